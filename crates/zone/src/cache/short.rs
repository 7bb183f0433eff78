//! The short places of a table once more, as arrays: a key that is there nearly always lies in one,
//! and is found in few instructions.

use peerage_shm::{AtomicU64, Ordering};

use super::entry::{self, Meta, Seen};
use super::key::Key;
use super::table::{Table, WAYS, nth, sides};

/// Sets of so many words, with places of so many.
#[derive(Clone, Copy)]
pub(super) struct Short<const SET: usize, const SLOT: usize> {
    sets: &'static [[AtomicU64; SET]],
}

impl<const SET: usize, const SLOT: usize> Short<SET, SLOT> {
    pub(super) fn of(table: &Table) -> Self {
        let (sets, rest) = table.words().as_chunks();
        debug_assert!(rest.is_empty() && table.slot() == SLOT);
        Self { sets }
    }

    /// As [`Table::look`], but once, and at one place.
    #[inline(always)]
    pub(super) fn glance<T>(
        self,
        key: Key<'_>,
        now: u64,
        epoch: u64,
        rest: impl FnMut(Meta, &[AtomicU64]) -> Option<T>,
    ) -> Option<(Seen, T)> {
        let [first, second] = sides(key.hash);
        let place = self.place(first, key.hash).or_else(|| self.place(second, key.hash))?;
        let seen = entry::once(place, epoch, entry::if_of(key, rest))?;
        entry::touch(place, now);
        Some(seen)
    }

    /// The first place of a set that may have a key of this hash.
    #[inline(always)]
    fn place(self, side: u64, hash: u64) -> Option<&'static [AtomicU64; SLOT]> {
        let set = self.sets.get(nth(side, self.sets.len()))?;
        let (hashes, places) = set.split_first_chunk::<WAYS>()?;
        let way = hashes.iter().position(|word| word.load(Ordering::Relaxed) == hash)?;
        places.as_chunks().0.get(way)
    }
}
