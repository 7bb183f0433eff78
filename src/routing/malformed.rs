//! Tenants of which the store says nonsense: they are asked for no more often than what is not there.

use std::cell::RefCell;
use std::collections::HashMap;

use peerage_zone::cache::{Cache, Kind, Read};

/// Those that this process asked for lately.
#[derive(Default)]
pub(super) struct Malformed(RefCell<HashMap<Box<[u8]>, Asked>>);

struct Asked {
    read: Read,
    at: u64,
}

impl Malformed {
    /// Notes one.
    pub(super) fn put(&self, key: &[u8], read: Read, now: u64) {
        let mut all = self.0.borrow_mut();
        if all.len() >= MOST {
            // They are asked for again.
            all.clear();
        }
        all.insert(key.into(), Asked { read, at: now });
    }

    /// Whether one was asked for within such a time, and not told to have changed since.
    pub(super) fn has(&self, cache: &Cache, key: &[u8], now: u64, within: u64) -> bool {
        self.0.borrow().get(key).is_some_and(|&Asked { read, at }| {
            now.saturating_sub(at) <= within && cache.is_current(Kind::Tenant, key, read)
        })
    }
}

/// How many are noted.
const MOST: usize = 1_024;
