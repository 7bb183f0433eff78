//! How a region is shared out: the head, and the tables one after the other.

use peerage_shm::{AtomicU64, Ordering, Ref, Region};
use thiserror::Error;

use super::Cache;
use super::entry::HEADER;
use super::negatives::SLOT as NEGATIVE;
use super::short::Short;
use super::table::{Table, Tally, WAYS};
use super::text::words_of;

/// The region is too small for a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a cache needs at least {} bytes", Cache::MIN_BYTES)]
pub struct TooSmall;

/// Words of the head. Those of one line are written about equally often.
pub(super) mod head {
    /// What tells that this is a cache; written last.
    pub(in super::super) const MAGIC: usize = 0;
    /// Who laid it out.
    pub(in super::super) const BUILD: usize = 1;
    /// Bytes of the region.
    pub(in super::super) const SIZE: usize = 2;
    pub(in super::super) const SEEDS: usize = 3;
    /// Entries of another epoch are marked.
    pub(in super::super) const EPOCH: usize = 5;
    pub(in super::super) const TRACKER: usize = 8;
    pub(in super::super) const TRACKED_UNTIL: usize = 9;
    pub(in super::super) const TRACKER_UNTIL: usize = 12;
    pub(in super::super) const SAVER: usize = 10;
    pub(in super::super) const SAVER_UNTIL: usize = 11;
    pub(in super::super) const BREAKER: usize = 16;
    pub(in super::super) const CHANGED: usize = 18;
    /// How often the store was asked.
    pub(in super::super) const ASKED: usize = 19;
    /// 1 = the store said last that it has lost what it had.
    pub(in super::super) const WIPED: usize = 20;
    /// Entries by [`Part`](super::Part).
    pub(in super::super) const ENTRIES: usize = 24;
    /// Entries that others took the place of, by the same.
    pub(in super::super) const EVICTED: usize = 27;
    /// Failures by why.
    pub(in super::super) const FAILED: usize = 32;
    /// A limit of misses for each rate: which, and its state.
    pub(in super::super) const LIMITERS: usize = 48;
    pub(in super::super) const GENERATIONS: usize = LIMITERS + 2 * super::LIMITERS;
    pub(in super::super) const FLIGHTS: usize = GENERATIONS + super::GENERATIONS;
    pub(in super::super) const END: usize = FLIGHTS + super::FLIGHTS;
}

/// Rates that have a limit of their own; more of them share one.
pub(super) const LIMITERS: usize = 16;
/// Keys share a generation by their hash.
pub(super) const GENERATIONS: usize = 1024;
/// Keys share a flight by their hash.
pub(super) const FLIGHTS: usize = 4096;

/// "peercach", and the layout's number.
const MAGIC: u64 = 0x7065_6572_6361_6368;
const LAYOUT: u64 = 1 << 56;

/// Words of a place, such that lines of sets and short places begin lines of the machine.
const TENANT: usize = 16;
const LONG_TENANT: usize = (HEADER + 2 * words_of(Cache::MAX_KEY) + 4).next_multiple_of(8);
const APP: usize = 32;
/// A name and a value that are not cut at words, and the digest.
const LONG_APP: usize = (HEADER + words_of(Cache::MAX_APP) + 2).next_multiple_of(8);

pub(super) type ShortTenants = Short<{ WAYS + WAYS * TENANT }, TENANT>;
pub(super) type ShortApps = Short<{ WAYS + WAYS * APP }, APP>;

/// What is counted by itself.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Tenants,
    Apps,
    Negatives,
}

/// Words of a line of the machine.
const LINE: usize = 8;

/// A region as it is shared out.
pub(super) struct Layout {
    words: &'static [AtomicU64],
    pub(super) head: &'static [AtomicU64; head::END],
    /// Tenants, long ones, apps, long ones, negatives.
    pub(super) tables: [Table; 5],
    bytes: u64,
}

impl Layout {
    pub(super) fn of(region: Region) -> Option<Self> {
        let bytes = region.bytes();
        if bytes < Cache::MIN_BYTES {
            return None;
        }
        // From the second line on: the first granule of a region cannot be named.
        let all = bytes / 8;
        let words = region.words(Ref::from_raw(2), all - LINE)?;
        let (head, mut rest) = words.split_first_chunk::<{ head::END }>()?;
        let mut cut = |part: Part, budget: usize, slot: usize| {
            let budget = budget.min(rest.len());
            let full = WAYS + WAYS * slot;
            let (sets, ways) = match budget / full {
                0 => (1, ((budget.saturating_sub(WAYS)) / slot).max(2)),
                sets => (sets, WAYS),
            };
            let words = sets * (WAYS + ways * slot);
            let (table, after) = rest.split_at_checked(words.next_multiple_of(LINE))?;
            rest = after;
            let entries = &head[head::ENTRIES + part as usize];
            let evicted = &head[head::EVICTED + part as usize];
            Some(Table::new(&table[..words], sets, ways, slot, Tally { entries, evicted }))
        };
        let long_tenants = cut(Part::Tenants, all / 16, LONG_TENANT)?;
        let long_apps = cut(Part::Apps, all / 16, LONG_APP)?;
        let negatives = cut(Part::Negatives, all / 16, NEGATIVE)?;
        let apps = cut(Part::Apps, all / 8, APP)?;
        let tenants = cut(Part::Tenants, usize::MAX, TENANT)?;
        let tables = [tenants, long_tenants, apps, long_apps, negatives];
        Some(Self { words, head, tables, bytes: bytes as u64 })
    }

    /// Whether a cache of this build and size is there.
    pub(super) fn is_of(&self, build: u64) -> bool {
        let is = |i: usize, value| self.words[i].load(Ordering::Acquire) == value;
        is(head::MAGIC, MAGIC) && is(head::BUILD, build ^ LAYOUT) && is(head::SIZE, self.bytes)
    }

    pub(super) fn seeds(&self) -> [u64; 2] {
        [0, 1].map(|i| self.words[head::SEEDS + i].load(Ordering::Relaxed))
    }

    /// Makes it empty.
    pub(super) fn clear(&self, build: u64, seeds: [u64; 2]) {
        self.words[head::MAGIC].store(0, Ordering::Release);
        // Fresh memory is of zeros, and stays as it is.
        for word in self.words.iter().filter(|word| word.load(Ordering::Relaxed) != 0) {
            word.store(0, Ordering::Relaxed);
        }
        let set = |i: usize, value| self.words[i].store(value, Ordering::Relaxed);
        set(head::BUILD, build ^ LAYOUT);
        set(head::SIZE, self.bytes);
        set(head::SEEDS, seeds[0]);
        set(head::SEEDS + 1, seeds[1]);
        self.words[head::MAGIC].store(MAGIC, Ordering::Release);
    }
}
