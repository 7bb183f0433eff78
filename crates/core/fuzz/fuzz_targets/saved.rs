//! The state file of a store: what is read could have been a reply, is read again from what is
//! written of it, and does not depend on what stands around it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::name::UpstreamName;
use peerage_core::route::redis::RedisConf;
use peerage_core::route::saved::{self, Reader, Saved};
use peerage_core::route::{Status, app, is_key};

fuzz_target!(|bytes: &[u8]| {
    let conf = RedisConf::default();
    let mut reader = Reader::new(bytes, &conf);
    let all: Vec<Saved<'_>> = reader.by_ref().collect();
    let lines = bytes.split_inclusive(|&b| b == b'\n').count();
    assert!(all.len() + reader.skipped() <= lines);
    all.iter().for_each(check);
    let mut again = Vec::new();
    saved::begin(&mut again, &conf);
    all.iter().for_each(|one| saved::line(&mut again, one));
    let mut reader = Reader::new(&again, &conf);
    assert_eq!(reader.by_ref().collect::<Vec<_>>(), all);
    assert_eq!(reader.skipped(), 0);
    // A line that is cut off takes nothing but itself.
    let torn: Vec<Saved<'_>> = Reader::new(&again[..again.len() - 1], &conf).collect();
    assert_eq!(torn, all[..all.len().saturating_sub(1)]);
});

fn check(saved: &Saved<'_>) {
    match saved {
        Saved::Tenant { key, app, status, .. } => {
            assert!(is_key(key.as_bytes()));
            assert_eq!(Status::parse(status.as_str()).as_ref(), Ok(status));
            assert!(app.is_some() || *status != Status::Active);
            app.iter().for_each(|app| assert!(UpstreamName::parse(app).is_ok()));
        }
        Saved::App { name, value, .. } => {
            assert!(UpstreamName::parse(name).is_ok());
            assert!(app::parse(value.as_bytes()).is_ok());
        }
    }
}
