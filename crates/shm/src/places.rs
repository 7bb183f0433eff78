//! Which entries of a slot's list are free; known to its owner only.

use std::cell::Cell;

use crate::sync::{AtomicU64, Ordering};

/// A stack of free entries, chained through their low halves; the high half of a free one is 0.
///
/// What an entry has there is the next one's index, combined with that of the one behind it: a list
/// of zeros is a chain of all entries in order.
pub(crate) struct Places {
    first: Cell<u32>,
    list: &'static [AtomicU64],
}

impl Places {
    /// All entries become free; the lowest is given first.
    pub(crate) fn new(list: &'static [AtomicU64]) -> Self {
        for place in list.iter().filter(|place| place.load(Ordering::Relaxed) != 0) {
            place.store(0, Ordering::Relaxed);
        }
        Self { first: Cell::new(0), list }
    }

    /// The entries.
    pub(crate) const fn list(&self) -> &'static [AtomicU64] {
        self.list
    }

    /// An entry.
    #[inline]
    pub(crate) fn place(&self, index: u32) -> Option<&'static AtomicU64> {
        self.list.get(index as usize)
    }

    /// Takes a free entry.
    #[inline]
    pub(crate) fn take(&self) -> Option<(u32, &'static AtomicU64)> {
        let index = self.first.get();
        let place = self.place(index)?;
        self.first.set(place.load(Ordering::Relaxed) as u32 ^ (index + 1));
        Some((index, place))
    }

    /// Clears an entry that was taken, and gives it back.
    #[inline]
    pub(crate) fn give(&self, index: u32, place: &AtomicU64) {
        let next = self.first.replace(index) ^ (index + 1);
        place.store(u64::from(next), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::trial::region;

    #[test]
    fn each_place_is_given_once_until_it_comes_back() {
        let list = region(3 * 8).all();
        let places = Places::new(list);
        let take = || {
            let (index, place) = places.take()?;
            place.store(1 << 32, Ordering::Relaxed);
            Some(index)
        };
        let give = |index: u32| places.give(index, &list[index as usize]);
        assert_eq!([0; 4].map(|_| take()), [Some(0), Some(1), Some(2), None]);
        give(1);
        give(0);
        assert_eq!([0; 3].map(|_| take()), [Some(0), Some(1), None]);
        (0..3).for_each(give);
        assert_eq!([0; 4].map(|_| take()), [Some(2), Some(1), Some(0), None]);
        give(2);
        // Whatever the last owner left.
        let places = Places::new(list);
        assert_eq!([0; 4].map(|_| Some(places.take()?.0)), [Some(0), Some(1), Some(2), None]);
        assert!(Places::new(&[]).take().is_none());
    }
}
