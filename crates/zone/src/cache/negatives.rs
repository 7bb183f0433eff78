//! Keys that the store does not have, by their hash alone.
//!
//! Guesses fill nothing but this table, and an entry is short: two hashes of 64 bits by keys that
//! nobody outside knows, and a stamp. Two keys of one hash would hide a tenant; none will be found
//! whose hash is another's.

use std::hash::{DefaultHasher, Hasher};

use peerage_core::route::decide::Changed;
use peerage_shm::{AtomicU64, Ordering, Version, point};

use super::entry::mark;
use super::{Cache, Kind, Read, Who};

/// Words of a place: the version, the second hash, the stamp.
pub(super) const SLOT: usize = 3;
const SECOND: usize = 1;
const STAMP: usize = 2;

/// When it was asked for, above the lowest bits of the epoch, above whether it is tracked.
const AT: u32 = 17;

/// What is known of a key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenNothing {
    /// When it was asked for.
    pub at: u64,
    /// Whether it has come since.
    pub changed: Changed,
    /// The store told then what changes.
    pub tracked: bool,
}

impl Cache {
    /// Puts that the store does not have a key. A tenant that was there is dropped; an app is not,
    /// for its servers may be better than none.
    pub fn put_absent(&self, kind: Kind, key: &[u8], read: Read, now: u64, who: &Who<'_>) {
        let looked = self.key(kind, key);
        if kind == Kind::Tenant {
            let drops = |table| self.forget(table, looked, read.at, who);
            if self.tenants.iter().fold(false, |found, table| found | drops(table)) {
                self.has_changed();
            }
        }
        let [first, second] = self.hashes(kind, key);
        let Some(pair) = self.negatives.pair(first) else { return };
        let Some(taken) = pair.take(first, is(second), at, u64::MAX, who) else { return };
        let tracked = read.tracked && self.is_tracked(now);
        let stamp = read.at << AT | (read.epoch & 0xffff) << 1 | u64::from(tracked);
        taken.words[SECOND].store(second, Ordering::Relaxed);
        taken.words[STAMP].store(stamp, Ordering::Relaxed);
        point!("cache.absent");
        let Some(version) = taken.claim.publish() else { return };
        let generation = self.generation(looked.hash);
        version.confirm(&taken.words[0], || generation.load(Ordering::SeqCst) != read.generation);
    }

    /// What is known of a key that is not there.
    pub fn absent(&self, kind: Kind, key: &[u8]) -> Option<SeenNothing> {
        let [first, second] = self.hashes(kind, key);
        let mut ways = self.negatives.pair(first)?.having(first);
        ways.find_map(|(_, words)| {
            let version = Version::of(&words[0]);
            let found = is(second)(words);
            let stamp = words[STAMP].load(Ordering::Relaxed);
            if !version.is_whole() || !found || !version.is_still(&words[0]) {
                return None;
            }
            let changed = match () {
                () if version.is_marked() => Changed::Yes,
                () if stamp >> 1 & 0xffff != self.epoch() & 0xffff => Changed::Perhaps,
                () => Changed::No,
            };
            Some(SeenNothing { at: stamp >> AT, changed, tracked: stamp & 1 == 1 })
        })
    }

    /// Forgets that a key was not there, if that was asked for until `until`.
    pub(super) fn forget_absent(&self, kind: Kind, key: &[u8], until: u64, who: &Who<'_>) {
        let [first, second] = self.hashes(kind, key);
        let Some(pair) = self.negatives.pair(first) else { return };
        for (way, _) in pair.having(first) {
            pair.empty(way, first, |words| is(second)(words) && at(words) <= until, who);
        }
    }

    pub(super) fn mark_absent(&self, kind: Kind, key: &[u8]) {
        let [first, second] = self.hashes(kind, key);
        let ways = self.negatives.pair(first).into_iter().flat_map(|pair| pair.having(first));
        ways.for_each(|(_, words)| mark(&words[0], || is(second)(words)));
    }

    /// SipHash behind a secret: what keys have in common says nothing of their hashes.
    fn hashes(&self, kind: Kind, key: &[u8]) -> [u64; 2] {
        [0, 1].map(|i| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.seeds[0]);
            hasher.write_u64(self.seeds[1]);
            hasher.write_u8(i << 1 | u8::from(kind == Kind::App));
            hasher.write(key);
            hasher.finish().max(1)
        })
    }
}

fn is(second: u64) -> impl Fn(&[AtomicU64]) -> bool {
    move |words| words[SECOND].load(Ordering::Relaxed) == second
}

fn at(words: &[AtomicU64]) -> u64 {
    words[STAMP].load(Ordering::Relaxed) >> AT
}
