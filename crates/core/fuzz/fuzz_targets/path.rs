//! The request line: what is routed is what nginx reads, and its text routes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::api::route::{Http, Slashes, WriteMode, after_location, route};
use peerage_core_fuzz::{call, nginx};

// `METHOD /location/v1/path?query`, then a line with the location's name.
fuzz_target!(|bytes: &[u8]| {
    let (request, location) = halves(bytes, b'\n');
    let location = if location.first() == Some(&b'/') { location } else { b"/api" };
    let (method, unparsed) = halves(request, b' ');
    let end = unparsed.iter().position(|b| b"?#".contains(b)).unwrap_or(unparsed.len());
    let (path, query) = (&unparsed[..end], unparsed.get(end + 1..).unwrap_or_default());
    for (slashes, merge) in [(Slashes::Merge, true), (Slashes::Keep, false)] {
        let Some(uri) = nginx::uri(path, merge) else { continue };
        // Read as nginx reads it, so that it refuses only a rewritten one.
        assert!(after_location(unparsed, &uri, b"/", slashes).is_ok(), "{uri:?}");
        let mut other = uri.clone();
        other.push(b'x');
        assert!(after_location(unparsed, &other, b"/", slashes).is_err());
        // nginx chooses the location by its reading.
        if !uri.starts_with(location) {
            continue;
        }
        let Ok(rest) = after_location(unparsed, &uri, location, slashes) else { continue };
        let Ok(routed) = route(Http::parse(method), rest, query, WriteMode::On) else { continue };
        // Dots and slashes have moved nothing: the words that were routed are those nginx reads.
        let inner = &uri[location.strip_suffix(b"/").unwrap_or(location).len()..];
        let words = decoded(rest);
        assert_eq!(merged(inner), merged(&words), "{:?}", String::from_utf8_lossy(unparsed));
        if let Some(text) = call::text(&routed) {
            assert_eq!(call::routed(&text).as_ref(), Ok(&routed), "{text}");
        }
    }
});

fn halves(bytes: &[u8], by: u8) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|&b| b == by).unwrap_or(bytes.len());
    (&bytes[..at], bytes.get(at + 1..).unwrap_or_default())
}

/// Without a word empty between slashes.
fn merged(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&b| b == b'/').filter(|word| !word.is_empty()).collect()
}

/// Every escape as what it stands for; those of an accepted path are whole.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut parts = path.split(|&b| b == b'%');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        out.extend(u8::from_str_radix(&String::from_utf8_lossy(digits), 16));
        out.extend(rest);
    }
    out
}
