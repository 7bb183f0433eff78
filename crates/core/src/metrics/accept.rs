//! Which of the two formats a client asks for.

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

impl Format {
    /// The better one by an `Accept` header; the text where nobody asks for OpenMetrics by name,
    /// or for anything that there is.
    pub fn accepted(accept: Option<&[u8]>) -> Self {
        let accept = String::from_utf8_lossy(accept.unwrap_or_default());
        let ranges: Vec<Range<'_>> = accept.split(',').filter_map(Range::parse).collect();
        let best = |media: &str, version: &str| {
            let fits = ranges.iter().filter(|range| range.fits(media, version));
            fits.max_by_key(|range| range.precision()).map(|range| (range.precision(), range.q))
        };
        let open = best("application/openmetrics-text", "1.0.0");
        let text = best("text/plain", "0.0.4");
        match (open, text) {
            (Some((2, q)), text) if q > 0 && text.is_none_or(|(_, other)| q >= other) => {
                Self::OpenMetrics
            }
            _ => Self::Text,
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// One of the media types that a client takes.
struct Range<'a> {
    media: &'a str,
    version: Option<&'a str>,
    /// In thousandths.
    q: u32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().filter(|media| media.contains('/'))?;
        let (mut version, mut q) = (None, 1000);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let (name, value) = (name.trim_end(), value.trim_start().trim_matches('"'));
            if name.eq_ignore_ascii_case("version") {
                version = Some(value);
            } else if name.eq_ignore_ascii_case("q") {
                let share = value.parse::<f32>().ok().filter(|q| (0.0..=1.0).contains(q))?;
                q = (share * 1000.0) as u32;
            }
        }
        Some(Self { media, version, q })
    }

    fn fits(&self, media: &str, version: &str) -> bool {
        let kind = media.split('/').next().unwrap_or_default();
        let is_kind = self.media.strip_suffix("/*").is_some_and(|k| k.eq_ignore_ascii_case(kind));
        let is_named = self.media.eq_ignore_ascii_case(media)
            && self.version.is_none_or(|wanted| wanted == version);
        self.media == "*/*" || is_kind || is_named
    }

    /// The more exactly a range says what it means, the more it counts.
    fn precision(&self) -> u32 {
        match self.media {
            "*/*" => 0,
            media if media.ends_with("/*") => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_format_that_it_prefers() {
        use Format::{OpenMetrics, Text};
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                          version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let table = [
            (prometheus, OpenMetrics),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\";q=0.5,*/*;q=0.1", OpenMetrics),
            ("text/plain, application/openmetrics-text", OpenMetrics),
            ("text/plain, application/openmetrics-text;q=0.9", Text),
            ("application/openmetrics-text;version=0.0.1,text/plain;q=0.5", Text),
            ("application/openmetrics-text;version=2.0.0", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=0,*/*", Text),
            ("application/openmetrics-text;q=2", Text),
            ("application/*", Text),
            ("*/*", Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Text),
            ("application/json", Text),
            ("", Text),
            (";,;q=1,=", Text),
        ];
        for (accept, format) in table {
            assert_eq!(Format::accepted(Some(accept.as_bytes())), format, "{accept}");
        }
        assert_eq!(Format::accepted(None), Text);
        assert_eq!(Format::accepted(Some(b"\xff/\xff")), Text);
    }
}
