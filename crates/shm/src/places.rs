//! Which entries of a slot's list are free; known to its owner only.

use std::cell::Cell;

/// No place.
const NONE: u32 = u32::MAX;

/// A stack of free places, chained through themselves.
pub(crate) struct Places {
    first: Cell<u32>,
    next: Box<[Cell<u32>]>,
}

impl Places {
    /// All of `n` are free; the lowest is given first.
    pub(crate) fn new(n: u32) -> Self {
        let next = (1..=n).map(|i| Cell::new(if i == n { NONE } else { i })).collect();
        Self { first: Cell::new(if n == 0 { NONE } else { 0 }), next }
    }

    /// Takes a free place.
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        let place = self.first.get();
        // NONE is behind every list.
        self.first.set(self.next.get(place as usize)?.get());
        Some(place)
    }

    /// Gives a place back, once.
    #[inline]
    pub(crate) fn give(&self, place: u32) {
        if let Some(next) = self.next.get(place as usize) {
            next.set(self.first.replace(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_given_once_until_it_comes_back() {
        let places = Places::new(3);
        assert_eq!([0; 4].map(|_| places.take()), [Some(0), Some(1), Some(2), None]);
        places.give(1);
        places.give(0);
        assert_eq!([0; 3].map(|_| places.take()), [Some(0), Some(1), None]);
        assert_eq!(Places::new(0).take(), None);
    }
}
