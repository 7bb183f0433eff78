//! An array of atomic words, and references into it.

use std::fmt;

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a granule, the unit in which memory is given out.
pub const GRANULE: usize = 32;
/// Words of a granule.
pub const WORDS_PER_GRANULE: usize = GRANULE / 8;

/// Where a block begins: the index of its first granule. 0 is no block.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref(u32);

impl Ref {
    /// No block.
    pub const NONE: Self = Self(0);

    /// The number to keep in a word.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Reads the number back.
    #[inline]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Whether it names no block.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// Memory as atomic words. Copies name the same memory.
#[derive(Clone, Copy)]
pub struct Region {
    words: &'static [AtomicU64],
}

impl Region {
    /// The region of these words.
    pub const fn new(words: &'static [AtomicU64]) -> Self {
        Self { words }
    }

    /// The region of mapped memory.
    ///
    /// # Safety
    ///
    /// - `start` is aligned to 8 bytes and `bytes` bytes from it are mapped, readable and writable
    ///   as long as any copy of the region is used;
    /// - nobody accesses them in any other way than through atomic words.
    #[cfg(not(loom))]
    pub unsafe fn from_raw(start: *mut u8, bytes: usize) -> Self {
        debug_assert!(start.cast::<AtomicU64>().is_aligned());
        // SAFETY: the caller keeps the memory mapped and accessed through atomics only; any bytes
        // are valid words.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8) };
        Self { words }
    }

    /// Bytes in the region.
    pub const fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// The first `n` words of the block at `at`; none for no block and outside of the region.
    #[inline]
    pub fn words(&self, at: Ref, n: usize) -> Option<&'static [AtomicU64]> {
        if at.is_none() {
            return None;
        }
        let start = at.0 as usize * WORDS_PER_GRANULE;
        self.words.get(start..start.checked_add(n)?)
    }

    /// The first `N` words of the block at `at`, as [`Self::words`].
    #[inline]
    pub fn array<const N: usize>(&self, at: Ref) -> Option<&'static [AtomicU64; N]> {
        if at.is_none() {
            return None;
        }
        // A granule's index is 32 bits: this does not overflow.
        let start = at.0 as usize * WORDS_PER_GRANULE;
        self.words.get(start..start + N)?.first_chunk()
    }

    /// Word `i` of the block at `at`, as [`Self::words`].
    #[inline]
    pub fn word(&self, at: Ref, i: usize) -> Option<&'static AtomicU64> {
        if at.is_none() {
            return None;
        }
        self.words.get((at.0 as usize * WORDS_PER_GRANULE).checked_add(i)?)
    }

    /// Where a block begins of which these are the first words.
    pub fn place(&self, block: &[AtomicU64]) -> Ref {
        let bytes = block.as_ptr().addr().wrapping_sub(self.words.as_ptr().addr());
        debug_assert!(bytes < self.bytes(), "the block is of this region");
        Ref((bytes / GRANULE) as u32)
    }

    /// All words.
    #[inline]
    pub(crate) const fn all(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Writes bytes from word `offset` of the block on; the rest of the last word becomes 0.
    pub fn write_bytes(&self, at: Ref, offset: usize, bytes: &[u8]) {
        let n = offset + bytes.len().div_ceil(8);
        let Some(words) = self.words(at, n) else { return };
        for (word, chunk) in words[offset..].iter().zip(bytes.chunks(8)) {
            word.store(word_of(chunk), Ordering::Relaxed);
        }
    }

    /// Appends `len` bytes from word `offset` of the block on to `to`.
    pub fn read_bytes(&self, at: Ref, offset: usize, len: usize, to: &mut Vec<u8>) {
        let Some(words) = self.words(at, offset + len.div_ceil(8)) else { return };
        let end = to.len() + len;
        for word in &words[offset..] {
            to.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        to.truncate(end);
    }

    /// Whether the bytes from word `offset` of the block on are these.
    #[inline]
    pub fn eq_bytes(&self, at: Ref, offset: usize, bytes: &[u8]) -> bool {
        self.eq_words(at, offset, Words::of(bytes))
    }

    /// The same for bytes that were taken apart before.
    #[inline(always)]
    pub fn eq_words(&self, at: Ref, offset: usize, bytes: Words<'_>) -> bool {
        let n = bytes.whole.len() + usize::from(!bytes.is_whole);
        let Some(words) = self.words(at, offset + n) else { return false };
        let (first, last) = words[offset..].split_at(bytes.whole.len());
        let is = |word: &AtomicU64, value| word.load(Ordering::Relaxed) == value;
        first.iter().zip(bytes.whole).all(|(word, eight)| is(word, u64::from_ne_bytes(*eight)))
            && last.first().is_none_or(|word| is(word, bytes.rest))
    }
}

/// Bytes as they lie in words.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// All words that they fill.
    pub whole: &'a [[u8; 8]],
    /// The word that they begin; 0 where there is none.
    pub rest: u64,
    is_whole: bool,
}

impl<'a> Words<'a> {
    /// Takes bytes apart.
    #[inline(always)]
    pub fn of(bytes: &'a [u8]) -> Self {
        let (whole, rest) = bytes.as_chunks();
        Self { whole, rest: word_of(rest), is_whole: rest.is_empty() }
    }
}

/// At most eight bytes as they lie in a word, the rest of which is 0.
#[inline]
pub fn word_of(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_ne_bytes(*eight);
    }
    // By halves: a copy of unknown length is a call.
    let (mut word, mut shift, mut rest) = (0, 0, bytes);
    if let Some((four, more)) = rest.split_first_chunk() {
        (word, shift, rest) = (u64::from(u32::from_le_bytes(*four)), 32, more);
    }
    if let Some((two, more)) = rest.split_first_chunk() {
        word |= u64::from(u16::from_le_bytes(*two)) << shift;
        (shift, rest) = (shift + 16, more);
    }
    if let Some(&one) = rest.first() {
        word |= u64::from(one) << shift;
    }
    word.to_le()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_back_and_compare_at_every_length() {
        let words = Box::leak((0..64).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>());
        let region = Region::new(words);
        let at = Ref::from_raw(1);
        for len in 0..40u8 {
            let text: Vec<u8> = (1..=len).collect();
            region.write_bytes(at, 3, &text);
            let mut back = vec![9];
            region.read_bytes(at, 3, text.len(), &mut back);
            assert_eq!(back[1..], text);
            assert!(region.eq_bytes(at, 3, &text));
            for i in 0..text.len() {
                let mut other = text.clone();
                other[i] ^= 1;
                assert!(!region.eq_bytes(at, 3, &other));
            }
        }
        assert!(!region.eq_bytes(at, 3, b"other"));
        assert!(region.words(Ref::NONE, 1).is_none());
        assert!(region.words(Ref::from_raw(15), 5).is_none());
    }
}
