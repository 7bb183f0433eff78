//! Texts in words of shared memory, each from a whole word on.

use peerage_shm::{AtomicU64, Ordering, word_of};

/// Words that so many bytes take.
#[inline(always)]
pub(super) const fn words_of(bytes: usize) -> usize {
    (bytes + 7) >> 3
}

/// Writes a text, and gives the words after it.
pub(super) fn write<'a>(words: &'a [AtomicU64], text: &[u8]) -> &'a [AtomicU64] {
    for (word, chunk) in words.iter().zip(text.chunks(8)) {
        word.store(word_of(chunk), Ordering::Relaxed);
    }
    words.get(words_of(text.len())..).unwrap_or_default()
}

/// Appends a text of so many bytes; `None` where there are fewer.
#[inline]
pub(super) fn read(words: &[AtomicU64], len: usize, to: &mut Vec<u8>) -> Option<()> {
    let words = words.get(..words_of(len))?;
    let end = to.len() + len;
    to.reserve(words.len() * 8);
    for word in words {
        to.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    to.truncate(end);
    Some(())
}
