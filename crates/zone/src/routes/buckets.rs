//! The array of buckets: a ref each, two to a word.

use peerage_shm::{AtomicU64, Ordering, Ref, Region};

use super::Hashed;
use crate::layout::{Side, granules, high, low, pack};

/// An array of buckets, and which link of the records its chains go by.
#[derive(Clone, Copy)]
pub(crate) struct Buckets {
    words: &'static [AtomicU64],
    at: Ref,
    bits: u32,
    side: Side,
}

/// The fewest buckets: as many as a granule holds.
const MIN_BITS: u32 = 3;
/// Beside the bits in the word of a table.
const ODD: u32 = 1 << 8;

/// Buckets for so many records, as a power of two.
pub(crate) fn bits_for(records: usize) -> u32 {
    records.next_power_of_two().ilog2().max(MIN_BITS)
}

impl Buckets {
    /// The table that a word names; 0 names none.
    #[inline]
    pub(crate) fn of(region: &Region, word: u64) -> Option<Self> {
        let (at, low) = (Ref::from_raw(high(word)), low(word));
        let (bits, side) = (low & 0x3f, if low & ODD == 0 { Side::Even } else { Side::Odd });
        let words = region.words(at, 1 << (bits.max(1) - 1))?;
        Some(Self { words, at, bits, side })
    }

    /// The word that names it.
    pub(crate) const fn word(self) -> u64 {
        pack(self.at.raw(), Self::low(self.bits, self.side))
    }

    const fn low(bits: u32, side: Side) -> u32 {
        match side {
            Side::Even => bits,
            Side::Odd => bits | ODD,
        }
    }

    /// The word of an array in a block.
    pub(crate) const fn word_of(at: Ref, bits: u32, side: Side) -> u64 {
        pack(at.raw(), Self::low(bits, side))
    }

    /// Granules of the array of so many buckets.
    pub(crate) const fn granules_of(bits: u32) -> u32 {
        granules(1 << (bits - 1))
    }

    pub(crate) const fn granules(self) -> u32 {
        Self::granules_of(self.bits)
    }

    pub(crate) const fn at(self) -> Ref {
        self.at
    }

    pub(crate) const fn bits(self) -> u32 {
        self.bits
    }

    pub(crate) const fn side(self) -> Side {
        self.side
    }

    /// How many buckets there are.
    pub(crate) const fn len(self) -> usize {
        1 << self.bits
    }

    /// The bucket of a record.
    #[inline]
    pub(crate) const fn index(self, hash: Hashed) -> usize {
        (hash.position() as u64 >> (32 - self.bits)) as usize
    }

    /// The first position of a bucket; past the last one, of none.
    pub(crate) const fn position(self, index: usize) -> u64 {
        (index as u64) << (32 - self.bits)
    }

    /// The bucket that holds a position.
    pub(crate) const fn index_at(self, position: u64) -> usize {
        (position >> (32 - self.bits)) as usize
    }

    /// The first record of a bucket.
    #[inline]
    pub(crate) fn first(self, index: usize) -> Ref {
        let word = self.words.get(index / 2).map_or(0, |word| word.load(Ordering::SeqCst));
        Ref::from_raw(if index.is_multiple_of(2) { high(word) } else { low(word) })
    }

    /// Makes a record the first of a bucket, or none. Under the lock.
    pub(crate) fn set_first(self, index: usize, at: Ref) {
        let Some(place) = self.words.get(index / 2) else { return };
        let word = place.load(Ordering::Relaxed);
        let word = if index.is_multiple_of(2) {
            pack(at.raw(), low(word))
        } else {
            pack(high(word), at.raw())
        };
        place.store(word, Ordering::SeqCst);
    }

    /// Empties every bucket, before anybody sees it.
    pub(crate) fn clear(self) {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
    }
}
