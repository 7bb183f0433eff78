//! The refusal of cross-site writes: a page of another site may not use an operator's browser.

/// What a request says of the page it comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Site<'a> {
    /// The header `Origin`.
    pub origin: Option<&'a [u8]>,
    /// The header `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a [u8]>,
    /// The header `Host`.
    pub host: Option<&'a [u8]>,
}

impl Site<'_> {
    /// Tells whether it may write; `origins` are those of `origin=`.
    ///
    /// With neither header (curl, Go) it may. An `Origin` in the list may; `null` may not; any
    /// other must name the host of the request, and `Sec-Fetch-Site` may not say otherwise.
    pub fn may_write<O: AsRef<[u8]>>(&self, origins: &[O]) -> bool {
        if let Some(origin) = self.origin {
            if origins.iter().any(|listed| same(listed.as_ref(), origin)) {
                return true;
            }
            let Some(host) = self.host else { return false };
            let bare = ["http://", "https://"].iter().find_map(|scheme| strip(origin, scheme));
            let Some((bare, port)) = bare else { return false };
            if !same(without_port(bare, port), without_port(host, port)) {
                return false;
            }
        }
        match self.fetch_site {
            None => true,
            Some(site) => same(site, b"same-origin") || same(site, b"none"),
        }
    }
}

/// The host and port of an origin, with the scheme's own port.
fn strip<'a>(origin: &'a [u8], scheme: &str) -> Option<(&'a [u8], &'static [u8])> {
    let (head, bare) = origin.split_at_checked(scheme.len())?;
    let port: &[u8] = if scheme == "https://" { b":443" } else { b":80" };
    same(head, scheme.as_bytes()).then_some((bare, port))
}

fn without_port<'a>(host: &'a [u8], port: &[u8]) -> &'a [u8] {
    host.strip_suffix(port).unwrap_or(host)
}

fn same(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_host_or_of_the_list_write() {
        type Header = Option<&'static str>;
        let table: [(Header, Header, bool); 14] = [
            (None, None, true),
            (Some("http://box:8081"), None, true),
            (Some("HTTP://BOX:8081"), Some("same-origin"), true),
            (Some("http://box"), None, false),
            (Some("http://evil"), None, false),
            (Some("http://box:8081.evil"), None, false),
            (Some("null"), None, false),
            (Some(""), None, false),
            (Some("file://box:8081"), None, false),
            (None, Some("cross-site"), false),
            (None, Some("same-site"), false),
            (None, Some("none"), true),
            (Some("http://box:8081"), Some("same-site"), false),
            (Some("https://ops.example"), Some("cross-site"), true),
        ];
        for (origin, fetch_site, may) in table {
            let site = Site {
                origin: origin.map(str::as_bytes),
                fetch_site: fetch_site.map(str::as_bytes),
                host: Some(b"box:8081"),
            };
            assert_eq!(site.may_write(&["https://ops.example"]), may, "{origin:?} {fetch_site:?}");
        }
        let none: [&str; 0] = [];
        let site = Site { origin: Some(b"http://box"), fetch_site: None, host: Some(b"box:80") };
        assert!(site.may_write(&none));
        assert!(!Site { origin: Some(b"https://box"), ..site }.may_write(&none));
    }
}
