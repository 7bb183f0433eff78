//! Where everything lies: the words of the records that make up a zone.
//!
//! All records are blocks of 64-bit atomic words; a `Ref` names a block by its granule. Words that
//! are written once, before the block is published, are read relaxed; the store that publishes a
//! block is the only ordering they need. Words that change while the block is visible say so.

mod node;
mod peer;
pub(crate) mod root;
mod table;
mod up;

use peerage_shm::{AtomicU64, Ordering, Ref, Region};

pub(crate) use self::node::{Kind, Node, Side};
pub(crate) use self::peer::{Peer, Shut};
pub(crate) use self::table::{Entry, HealthRules, Table, TableHead};
pub(crate) use self::up::Up;

/// Two halves of a word, high first.
pub(crate) const fn pack(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// The high half.
pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The low half.
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// Granules of a block of so many words.
pub(crate) const fn granules(words: usize) -> u32 {
    words.div_ceil(4) as u32
}

/// Words that hold so many bytes.
pub(crate) const fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// A number kept in a word, read without ordering.
#[inline]
pub(crate) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// A word set before its block is published, or where no order matters.
#[inline]
pub(crate) fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Bytes in a block of their own.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) at: Ref,
    pub(crate) len: u32,
}

impl Blob {
    pub(crate) const fn granules(self) -> u32 {
        granules(words_of(self.len as usize))
    }

    /// The word that names it.
    pub(crate) const fn word(self) -> u64 {
        pack(self.at.raw(), self.len)
    }

    /// What a word names.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self { at: Ref::from_raw(high(word)), len: low(word) }
    }

    pub(crate) fn read(self, region: &Region) -> Vec<u8> {
        let mut bytes = Vec::new();
        region.read_bytes(self.at, 0, self.len as usize, &mut bytes);
        bytes
    }
}
