//! Numbers of upstreams, which part connections that are kept to servers of equal addresses.
//!
//! A block of nginx's has one cache of such connections, and may serve upstreams of several zones:
//! its own, and those of stores. So each of these zones has numbers that the others do not have.

use std::sync::atomic::Ordering::Relaxed;

use crate::layout::{get, high, low, pack, root, set};
use crate::zone::Zone;

/// The numbers that the upstreams of a zone may have. 0 is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    first: u32,
    count: u32,
}

impl Numbers {
    /// Of zones of the configuration, no two of which are behind one block: the lower half.
    pub const OF_ZONES: Self = Self { first: 1, count: Self::STORES.first - 1 };
    /// Of all stores.
    const STORES: Self = Self { first: 1 << 31, count: 1 << 31 };
    /// Of each.
    const EACH: u32 = 1 << 24;

    /// The nth part of those of stores, of 128.
    pub const fn of_store(n: u32) -> Option<Self> {
        if n >= Self::STORES.count / Self::EACH {
            return None;
        }
        Some(Self { first: Self::STORES.first + n * Self::EACH, count: Self::EACH })
    }

    const fn nth(self, n: u64) -> u32 {
        self.first + (n % self.count as u64) as u32
    }
}

impl Zone {
    /// The numbers that its upstreams may have.
    pub fn numbers(&self) -> Numbers {
        let word = get(self.root(root::NUMBERS));
        Numbers { first: high(word), count: low(word) }
    }

    /// Says which; for a zone just laid out.
    pub fn set_numbers(&self, numbers: Numbers) {
        set(self.root(root::NUMBERS), pack(numbers.first, numbers.count));
    }

    /// A number that no upstream of this zone has. Inside a read section, or under the lock.
    pub(crate) fn fresh_number(&self) -> u32 {
        let numbers = self.numbers();
        loop {
            let n = self.root(root::NUMBERS_GIVEN).fetch_add(1, Relaxed);
            let number = numbers.nth(n);
            // After all were given once, those of upstreams that are still there are left out.
            if n < u64::from(numbers.count) || !self.has_number(number) {
                return number;
            }
        }
    }

    fn has_number(&self, number: u32) -> bool {
        let mut chains = (0..).map_while(|i| self.bucket_at(i));
        chains.any(|mut chain| chain.any(|up| up.uid() == number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::trial::zone;

    #[test]
    fn no_two_parts_have_a_number_in_common() {
        let stores: Vec<Numbers> = (0..).map_while(Numbers::of_store).collect();
        assert_eq!(stores.len(), 128);
        let mut next = 1_u64;
        for part in std::iter::once(&Numbers::OF_ZONES).chain(&stores) {
            assert_eq!(u64::from(part.first), next);
            next += u64::from(part.count);
            for n in [0, 1, u64::from(part.count), u64::MAX] {
                assert!((part.first..=part.first + (part.count - 1)).contains(&part.nth(n)));
            }
        }
        assert_eq!(next, 1 << 32);
    }

    #[test]
    fn numbers_stay_in_their_part_however_many_are_given() {
        let zone = zone(1 << 20);
        assert_eq!(zone.numbers(), Numbers::OF_ZONES);
        let numbers = Numbers { first: u32::MAX - 3, count: 4 };
        zone.set_numbers(numbers);
        let all: Vec<u32> = (0..10).map(|_| zone.fresh_number()).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4);
        assert!(all.iter().all(|&number| number >= u32::MAX - 3), "{all:?}");
    }
}
