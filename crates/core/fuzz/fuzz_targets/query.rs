//! The query: the order of parameters says nothing, and what is read has a text that reads equal.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use peerage_core::api::filter::Place;
use peerage_core::api::query::Query;
use peerage_core::api::route::{Call, Http, WriteMode, route};
use peerage_core_fuzz::call;

/// Every path with parameters of its own.
const PATHS: [&str; 9] = [
    "GET /v1/upstreams",
    "DELETE /v1/upstreams/app",
    "POST /v1/upstreams/app/servers/id:1/down",
    "GET /v1/servers",
    "GET /v1/events",
    "POST /v1/hosts/10.0.0.1/drain",
    "GET /v1/ready",
    "PUT /v1/zones/main/import",
    "POST /v1/batch",
];

fuzz_target!(|bytes: &[u8]| {
    let pairs: Vec<&[u8]> = bytes.split(|&b| b == b'&').collect();
    let reversed = pairs.iter().rev().copied().collect::<Vec<_>>().join(&b'&');
    for line in PATHS {
        let (method, path) = line.split_once(' ').unwrap();
        let read = |query: &[u8]| {
            let method = Http::parse(method.as_bytes());
            route(method, path.as_bytes(), query, WriteMode::On)
        };
        let (Ok(routed), other) = (read(bytes), read(&reversed)) else {
            assert!(read(&reversed).is_err(), "{line}");
            continue;
        };
        assert_eq!(other.as_ref(), Ok(&routed), "{line}");
        if let Some(text) = call::text(&routed) {
            assert_eq!(call::routed(&text).as_ref(), Ok(&routed), "{line}: {text}");
        }
        if let Call::ListServers { after: Some(place), .. } = &routed.call {
            assert_eq!(Place::parse(&place.to_string()).as_ref(), Ok(place));
        }
    }
    if let Ok(mut query) = Query::parse(bytes) {
        for (name, value) in plain(&pairs) {
            assert_eq!(query.take(name), Some(value.to_owned()));
            assert_eq!(query.take(name), None);
        }
    }
});

/// Parameters that need no decoding.
fn plain<'a>(pairs: &[&'a [u8]]) -> BTreeMap<&'a str, &'a str> {
    let text = |pair: &'a [u8]| std::str::from_utf8(pair).ok()?.split_once('=');
    let pairs = pairs.iter().filter_map(|pair| text(pair));
    pairs.filter(|(name, value)| !format!("{name}{value}").contains(['%', '+'])).collect()
}
