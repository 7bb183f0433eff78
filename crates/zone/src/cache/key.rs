//! A key as it is looked for: its hash, and its words.

use peerage_shm::{AtomicU64, Ordering, word_of};

/// A key and its hash, which is computed once.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    /// 0 is none.
    pub(super) hash: u64,
    pub(super) len: usize,
    /// All words but the last.
    first: &'a [[u8; 8]],
    last: u64,
}

impl<'a> Key<'a> {
    /// With the hash by a seed.
    #[inline(always)]
    pub(super) fn new(seed: u64, text: &'a [u8]) -> Self {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |state: u64, word: u64| {
            let wide = u128::from(state ^ word) * u128::from(K);
            (wide >> 64) as u64 ^ wide as u64
        };
        let len = text.len();
        let (first, _) = text[..len.saturating_sub(1)].as_chunks::<8>();
        let last = match text.last_chunk() {
            // Of the last eight bytes, those of the last word: fewer branches.
            Some(eight) => (u64::from_le_bytes(*eight) >> (len.wrapping_neg() % 8 * 8)).to_le(),
            None => word_of(text),
        };
        let mut hash = seed ^ K ^ len as u64;
        for eight in first {
            hash = mix(hash, u64::from_ne_bytes(*eight));
        }
        Self { hash: mix(hash, last).max(1), len, first, last }
    }

    /// The words behind it, where the first ones are this key's. None is empty.
    #[inline(always)]
    pub(super) fn behind(self, words: &[AtomicU64]) -> Option<&[AtomicU64]> {
        let (mine, rest) = words.split_at_checked(self.first.len() + 1)?;
        let (last, first) = mine.split_last()?;
        for (word, eight) in first.iter().zip(self.first) {
            if word.load(Ordering::Relaxed) != u64::from_ne_bytes(*eight) {
                return None;
            }
        }
        (last.load(Ordering::Relaxed) == self.last).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{self, words_of};
    use super::*;

    #[test]
    fn a_key_is_known_by_each_of_its_bytes() {
        for len in 1..=41 {
            let mut bytes: Vec<u8> = (0..len).map(|i| b'a' + i).collect();
            let words = [const { AtomicU64::new(0) }; 8];
            text::write(&words, &bytes);
            let hash = Key::new(7, &bytes).hash;
            let rest = Key::new(7, &bytes).behind(&words).map(<[_]>::len);
            assert_eq!(rest, Some(8 - words_of(len.into())));
            assert!(Key::new(7, &bytes).behind(&words[..words_of(len.into()) - 1]).is_none());
            for i in 0..usize::from(len) {
                bytes[i] ^= 1;
                let other = Key::new(7, &bytes);
                assert!(other.behind(&words).is_none() && other.hash != hash, "{i} of {len}");
                bytes[i] ^= 1;
            }
            assert_ne!(Key::new(8, &bytes).hash, hash);
        }
    }
}
