//! A ring of entries that everybody reads and the writer overwrites.
//!
//! Positions count words since the zone was made and never come back; a word lies at its position
//! modulo the ring's words. An entry is `H` words of its user's, its length, and its bytes. It is
//! written behind the last one and then published by one store to the head: a writer that dies
//! before it has told nothing.
//!
//! The tail is raised before words are overwritten. A reader copies an entry first and looks at
//! the tail afterwards: if the entry still lies before it, the copy is whole.

use std::sync::atomic::fence;

use peerage_shm::{AtomicU64, Ordering, Ref, Writer};

use crate::layout::{granules, high, low, pack, words_of};
use crate::zone::Zone;

/// The root's words of a ring: its block, and where the next and the oldest entry lie.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) block: usize,
    pub(crate) head: usize,
    pub(crate) tail: usize,
}

/// A ring whose entries begin with `H` words of their own.
#[derive(Clone, Copy)]
pub(crate) struct Ring<const H: usize> {
    words: &'static [AtomicU64],
    head: &'static AtomicU64,
    tail: &'static AtomicU64,
}

/// What was to be read is overwritten.
#[derive(Debug)]
pub(crate) struct Lapped;

impl Zone {
    /// Takes a ring of so many bytes, in a zone that is being laid out.
    pub(crate) fn lay_out_ring(
        &self,
        writer: &mut Writer<'_>,
        places: Places,
        bytes: usize,
    ) -> Option<()> {
        let words = bytes / 8;
        let at = writer.alloc(granules(words))?;
        for word in self.region().words(at, words)? {
            word.store(0, Ordering::Relaxed);
        }
        self.root(places.block).store(pack(at.raw(), words as u32), Ordering::Release);
        Some(())
    }

    /// The block of a ring, for the allocator's truth.
    pub(crate) fn ring_block(&self, places: Places) -> (Ref, u32) {
        let ring = self.root(places.block).load(Ordering::Acquire);
        (Ref::from_raw(high(ring)), granules(low(ring) as usize))
    }
}

impl<const H: usize> Ring<H> {
    /// The ring of a zone; without words where none was laid out.
    pub(crate) fn new(zone: &Zone, places: Places) -> Self {
        let ring = zone.root(places.block).load(Ordering::Acquire);
        let words = zone.region().words(Ref::from_raw(high(ring)), low(ring) as usize);
        let words = words.unwrap_or_default();
        Self { words, head: zone.root(places.head), tail: zone.root(places.tail) }
    }

    /// Words of the ring.
    pub(crate) const fn words(self) -> u64 {
        self.words.len() as u64
    }

    /// Words of an entry of so many bytes.
    pub(crate) const fn entry_words(bytes: usize) -> u64 {
        (H + 1 + words_of(bytes)) as u64
    }

    /// Where the next entry goes.
    pub(crate) fn head(self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// Where the oldest entry lies.
    pub(crate) fn tail(self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// The word at a position.
    pub(crate) fn word(self, at: u64) -> u64 {
        self.from(at).next().map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Whether what was copied from this position, or lies there, is still there.
    pub(crate) fn check(self, at: u64) -> Result<(), Lapped> {
        fence(Ordering::Acquire);
        if at < self.tail() { Err(Lapped) } else { Ok(()) }
    }

    /// The words that an entry begins with, and where the next one lies.
    pub(crate) fn peek(self, at: u64) -> Result<([u64; H], u64), Lapped> {
        let (first, len) = (self.first(at), self.word(at + H as u64));
        self.check(at)?;
        Ok((first, at + Self::entry_words(len as usize)))
    }

    /// An entry, and where the next one lies.
    pub(crate) fn read(self, at: u64) -> Result<([u64; H], Vec<u8>, u64), Lapped> {
        let (first, len) = (self.first(at), self.word(at + H as u64));
        self.check(at)?;
        let len = len as usize;
        let mut bytes = Vec::with_capacity(len + 7);
        for word in self.from(at + H as u64 + 1).take(words_of(len)) {
            bytes.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes.truncate(len);
        self.check(at)?;
        Ok((first, bytes, at + Self::entry_words(len)))
    }

    /// Writes an entry, and a word behind it if there is one; gives the head that publishes it.
    /// Under the lock. `None` where it is longer than the ring.
    pub(crate) fn write(self, first: [u64; H], bytes: &[u8], behind: Option<u64>) -> Option<u64> {
        let need = Self::entry_words(bytes.len());
        let end = need + u64::from(behind.is_some());
        if end > self.words() {
            return None;
        }
        let at = self.head();
        self.make_room(at + end);
        let (eights, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(&last);
        let text = eights.iter().chain(last).map(|&eight| u64::from_ne_bytes(eight));
        let values = first.into_iter().chain([bytes.len() as u64]).chain(text).chain(behind);
        for (word, value) in self.from(at).zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        Some(at + need)
    }

    /// Publishes what was written before this position. Under the lock.
    pub(crate) fn publish(self, head: u64) {
        self.head.store(head, Ordering::Release);
    }

    /// Gives up all entries: whoever has not read them, or has and would go on, is lapped. Under
    /// the lock.
    pub(crate) fn cut(self) {
        let head = self.head() + 1;
        self.tail.store(head, Ordering::Relaxed);
        fence(Ordering::Release);
        self.publish(head);
    }

    /// The words from a position on, once around.
    pub(crate) fn from(self, at: u64) -> impl Iterator<Item = &'static AtomicU64> {
        let start = (at % self.words.len().max(1) as u64) as usize;
        let (before, after) = self.words.split_at(start);
        after.iter().chain(before)
    }

    /// Gives up entries that lie where words up to `end` will. Under the lock.
    pub(crate) fn make_room(self, end: u64) {
        let (mut at, head) = (self.tail(), self.head());
        while at < head && at + self.words() < end {
            at += Self::entry_words(self.word(at + H as u64) as usize);
        }
        self.tail.store(at.min(head), Ordering::Relaxed);
        // Whoever sees a word written after this sees the tail.
        fence(Ordering::Release);
    }

    fn first(self, at: u64) -> [u64; H] {
        let mut words = self.from(at);
        std::array::from_fn(|_| words.next().map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}
