//! A number that goes up when something of a kind comes, goes or changes.

use std::sync::atomic::Ordering::SeqCst;

use peerage_shm::AtomicU64;

/// One word of a zone's root.
///
/// An odd number is not final: what is read under it may lack what is about to come. It stays odd
/// where the writer died, until another one repairs what it left.
#[derive(Clone, Copy)]
pub struct Generation(&'static AtomicU64);

impl Generation {
    /// That of this word.
    pub(crate) const fn new(word: &'static AtomicU64) -> Self {
        Self(word)
    }

    /// The number; 0 where there never was anything of the kind.
    #[inline]
    pub fn now(self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Before something changes. Under the lock.
    pub(crate) fn begin(self) {
        self.0.fetch_or(1, SeqCst);
    }

    /// After it did, or after who was about to died. Under the lock.
    pub(crate) fn end(self) {
        self.0.store(self.now().next_multiple_of(2), SeqCst);
    }
}
