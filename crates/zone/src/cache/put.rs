//! Putting what the store said of a tenant or an app.

use std::cmp::Reverse;

use peerage_core::route::decide::Changed;
use peerage_shm::{Ordering, point};

use super::entry::{self, Entry, Seen, Stamp, tick};
use super::key::Key;
use super::table::Table;
use super::{Cache, Kind, Read, Who};

/// What became of what was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there, or what was asked for later is.
    Stored,
    /// Others who live write all places where it could be, and may have stopped over it.
    Busy,
    /// Longer than any place.
    TooLong,
}

/// Where an entry comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The store said it now.
    Store,
    /// A file had it. It is marked, and takes no room of what was used later.
    File,
}

impl Cache {
    /// Of what there is of a key, what was asked for last stays.
    pub(super) fn put(
        &self,
        kind: Kind,
        entry: &Entry<'_>,
        read: &Read,
        origin: Origin,
        now: u64,
        who: &Who<'_>,
    ) -> Put {
        let (key, tables) = (self.key(kind, entry.key), self.positives(kind));
        let Some(i) = tables.iter().position(|table| entry.fits(table)) else {
            return Put::TooLong;
        };
        let is_file = origin == Origin::File;
        let epoch = self.epoch();
        let later = |seen: Seen| {
            if is_file {
                seen.at >= read.at
            } else {
                seen.at > read.at && seen.changed == Changed::No
            }
        };
        let mut there = tables.iter().flat_map(|table| table.places(key, epoch));
        if there.any(|(_, _, seen)| later(seen)) {
            return Put::Stored;
        }
        // First, so that what is longer or shorter than before is never there twice.
        self.forget(&tables[1 - i], key, u64::MAX, who);
        let used = tick(if is_file { read.at } else { now });
        let below = if is_file { used } else { u64::MAX };
        let same = |words: &[_]| entry::is_of(words, key);
        let Some(pair) = tables[i].pair(key.hash) else { return Put::Busy };
        let taken = pair.take(key.hash, same, entry::used, below, who);
        let Some(taken) = taken else { return Put::Busy };
        let tracked = !is_file && read.tracked && self.is_tracked(now);
        let stamp = Stamp { at: read.at, used, epoch: read.epoch, tracked };
        entry.write(taken.words, stamp);
        point!("cache.written");
        let Some(version) = taken.claim.publish() else { return Put::Busy };
        point!("cache.published");
        if !self.settle(kind, (i, taken.way), read.at, key, who) || is_file {
            return Put::Stored;
        }
        let generation = self.generation(key.hash);
        version.confirm(&taken.words[0], || generation.load(Ordering::SeqCst) != read.generation);
        self.has_changed();
        Put::Stored
    }

    /// Leaves one of the places that have a key: the one that was asked for last, and the first of
    /// those of one moment. Two writers at once may have made them, or one that was stopped.
    fn settle(
        &self,
        kind: Kind,
        mine: (usize, usize),
        at: u64,
        key: Key<'_>,
        who: &Who<'_>,
    ) -> bool {
        let tables = self.positives(kind);
        for (i, table) in tables.iter().enumerate() {
            for (pair, way, seen) in table.places(key, 0) {
                if (i, way) == mine {
                    continue;
                }
                let loses = (Reverse(seen.at), i, way) < (Reverse(at), mine.0, mine.1);
                let (pair, way, at) = match tables[mine.0].pair(key.hash) {
                    Some(pair) if loses => (pair, mine.1, at),
                    _ => (pair, way, seen.at),
                };
                let same = |words: &[_]| entry::is_of(words, key) && entry::at(words) == at;
                pair.empty(way, key.hash, same, who);
                if loses {
                    return false;
                }
            }
        }
        true
    }

    /// Empties the places of a key that was asked for until `at`, or is marked; tells whether
    /// there was one.
    pub(super) fn forget(&self, table: &Table, key: Key<'_>, at: u64, who: &Who<'_>) -> bool {
        let mut found = false;
        for (pair, way, seen) in table.places(key, self.epoch()) {
            if seen.at <= at || seen.changed != Changed::No {
                found |= pair.empty(way, key.hash, |words| entry::is_of(words, key), who);
            }
        }
        found
    }
}
