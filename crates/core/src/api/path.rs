//! The path of a request as nginx reads it, against the one the client sent.

use crate::api::error::{Code, Problem};
use crate::api::query::hex;

/// The raw path after the location's name, from the request line as the client sent it.
///
/// `unparsed` is nginx's `unparsed_uri`, `uri` its decoded `$uri`, `location` the location's name.
/// Refused is a path whose decoded form, after nginx's slash and dot rules, is not `$uri` (another
/// phase rewrote it), or which goes through dots before the location's name is over.
pub fn after_location<'a>(
    unparsed: &'a [u8],
    uri: &[u8],
    location: &[u8],
    slashes: Slashes,
) -> Result<&'a [u8], Problem> {
    let bad = |detail: &str| Problem::new(Code::BadPath, detail);
    let end = unparsed.iter().position(|&b| b == b'?' || b == b'#').unwrap_or(unparsed.len());
    let path = &unparsed[..end];
    if normal(path, slashes).as_deref() != Some(uri) {
        return Err(bad("the path is not what nginx reads it as"));
    }
    // A slash at the end of the name begins the path.
    let location = location.strip_suffix(b"/").unwrap_or(location);
    let rest = strip(path, location, slashes);
    rest.ok_or_else(|| bad("the location's name must be written without dots"))
}

/// What follows the location's name; a slash of it may be written as many where nginx merges them,
/// and any byte of it by its code, as clients must for some.
fn strip<'a>(path: &'a [u8], location: &[u8], slashes: Slashes) -> Option<&'a [u8]> {
    let mut rest = path;
    for &byte in location {
        rest = after(rest, byte)?;
        while byte == b'/'
            && slashes == Slashes::Merge
            && let Some(tail) = after(rest, byte)
        {
            rest = tail;
        }
    }
    Some(rest)
}

/// What follows a byte, however it is written.
fn after(path: &[u8], byte: u8) -> Option<&[u8]> {
    let (first, rest) = match path {
        [b'%', high, low, rest @ ..] => (hex(*high)? << 4 | hex(*low)?, rest),
        [first, rest @ ..] => (*first, rest),
        [] => return None,
    };
    (first == byte).then_some(rest)
}

/// Whether nginx merges slashes (`merge_slashes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slashes {
    /// Many are one.
    #[default]
    Merge,
    /// Each stands for itself.
    Keep,
}

/// As ngx_http_parse_complex_uri: decode, merge slashes, resolve `.` and `..`.
fn normal(path: &[u8], slashes: Slashes) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(&byte) = rest.next() {
        decoded.push(match byte {
            b'%' => match hex(*rest.next()?)? << 4 | hex(*rest.next()?)? {
                0 => return None,
                byte => byte,
            },
            byte => byte,
        });
    }
    let (b'/', tail) = decoded.split_first()? else { return None };
    let mut out: Vec<&[u8]> = Vec::new();
    let mut closed = false;
    for segment in tail.split(|&b| b == b'/') {
        // A kept empty segment is the slash itself.
        closed = match segment {
            b"" => slashes == Slashes::Merge,
            segment => matches!(segment, b"." | b".."),
        };
        match segment {
            b"" if slashes == Slashes::Merge => {}
            b"." => {}
            b".." => {
                out.pop()?;
            }
            segment => out.push(segment),
        }
    }
    let mut uri = Vec::with_capacity(decoded.len());
    for segment in &out {
        uri.push(b'/');
        uri.extend_from_slice(segment);
    }
    if uri.is_empty() || closed {
        uri.push(b'/');
    }
    Some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_slashes_are_those_of_nginx() {
        let table = [
            ("/a//b", "/a/b", "/a//b"),
            ("/a//", "/a/", "/a//"),
            ("/a//b/..", "/a/", "/a//"),
            ("/a//.", "/a/", "/a//"),
            ("/a//..", "/", "/a/"),
            ("/a/./b/", "/a/b/", "/a/b/"),
            ("//", "/", "//"),
            ("/.", "/", "/"),
            ("/a/..", "/", "/"),
        ];
        for (path, merged, kept) in table {
            let normal = |slashes| normal(path.as_bytes(), slashes).unwrap();
            assert_eq!(normal(Slashes::Merge), merged.as_bytes(), "{path}");
            assert_eq!(normal(Slashes::Keep), kept.as_bytes(), "{path}");
        }
    }

    #[test]
    fn the_path_after_the_location_is_the_one_nginx_read() {
        let ok = [
            ("/api/v1/upstreams?x=/../", "/api/v1/upstreams", "/api", "/v1/upstreams"),
            ("/api/v1/", "/api/v1/", "/api/", "/v1/"),
            ("/api", "/api", "/api", ""),
            ("/api//v1/", "/api/v1/", "/api", "//v1/"),
            ("//api/v1/", "/api/v1/", "/api", "/v1/"),
            ("/x///api/v1/", "/x/api/v1/", "/x/api/", "/v1/"),
            ("//v1/", "/v1/", "/", "//v1/"),
            (
                "/api/s/unix:%2Frun%2Fa/down",
                "/api/s/unix:/run/a/down",
                "/api",
                "/s/unix:%2Frun%2Fa/down",
            ),
            ("/api/a%3Fb", "/api/a?b", "/api", "/a%3Fb"),
            ("/%61pi/v1", "/api/v1", "/api", "/v1"),
            ("/a%20b%2F/%c3%A9/v1/%41", "/a b/é/v1/A", "/a b/é/", "/v1/%41"),
            ("/api/v1/./x/..", "/api/v1/", "/api", "/v1/./x/.."),
        ];
        for (unparsed, uri, location, path) in ok {
            let got = after_location(
                unparsed.as_bytes(),
                uri.as_bytes(),
                location.as_bytes(),
                Slashes::Merge,
            );
            assert_eq!(got.unwrap(), path.as_bytes(), "{unparsed}");
        }
        let bad = [
            ("/api/v1/x", "/api/v1/y", "/api"),
            ("/x/../api/v1", "/api/v1", "/api"),
            ("/api/%00", "/api/", "/api"),
            ("/api/%", "/api/", "/api"),
            ("/../api", "/api", "/api"),
            ("http://box/api/v1", "/api/v1", "/api"),
        ];
        for (unparsed, uri, location) in bad {
            let got = after_location(
                unparsed.as_bytes(),
                uri.as_bytes(),
                location.as_bytes(),
                Slashes::Merge,
            );
            assert_eq!(got.unwrap_err().code, Code::BadPath, "{unparsed}");
        }
    }
}
