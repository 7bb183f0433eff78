//! How much is cached, and how the store was to be had.

use peerage_core::route::decide::Down;
use peerage_shm::Ordering;

use super::Cache;
use super::layout::{Part, head};
use super::table::Table;

/// Of one kind of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// How many there are: one too many for a process that died in the wrong moment.
    pub entries: u64,
    /// How many there can be.
    pub capacity: u64,
    /// How many others took the place of.
    pub evicted: u64,
}

/// Figures of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Tenants.
    pub tenants: Filled,
    /// Apps.
    pub apps: Filled,
    /// Keys that are not there.
    pub negatives: Filled,
    /// How often the store was asked.
    pub asked: u64,
    /// How often it had no answer, in the order of [`Down::ALL`].
    pub failed: [u64; Down::ALL.len()],
}

impl Cache {
    /// The figures.
    pub fn figures(&self) -> Figures {
        Figures {
            tenants: self.filled(Part::Tenants, &self.tenants),
            apps: self.filled(Part::Apps, &self.apps),
            negatives: self.filled(Part::Negatives, &[self.negatives]),
            asked: self.count(head::ASKED),
            failed: Down::ALL.map(|why| self.count(head::FAILED + why as usize)),
        }
    }

    fn filled(&self, part: Part, tables: &[Table]) -> Filled {
        let capacity = tables.iter().map(|table| table.capacity() as u64).sum();
        // Two who count at once may be seen the wrong way round.
        let entries = (self.count(head::ENTRIES + part as usize) as i64).max(0) as u64;
        let evicted = self.count(head::EVICTED + part as usize);
        Filled { entries: entries.min(capacity), capacity, evicted }
    }

    fn count(&self, i: usize) -> u64 {
        self.head[i].load(Ordering::Relaxed)
    }
}
