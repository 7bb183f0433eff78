//! The writers' lock: tried, never waited for.
//!
//! The word holds the owner's pid, as nginx's `ngx_shmtx_t` does, so it may be the mutex of a slab
//! pool: when a worker dies, nginx's master clears the word. A *stopped* owner keeps it; who does
//! not get the lock does something else meanwhile.

use crate::sync::{AtomicU64, Ordering};

/// Somebody else writes, or memory that a dead writer left is not yet safe to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The lock, taken.
pub(crate) struct Guard {
    word: &'static AtomicU64,
    pid: u64,
}

impl Guard {
    pub(crate) fn try_lock(word: &'static AtomicU64, pid: u32) -> Result<Self, Busy> {
        let pid = u64::from(pid);
        if word.load(Ordering::Relaxed) != 0 {
            return Err(Busy);
        }
        match word.compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Self { word, pid }),
            Err(_) => Err(Busy),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Only what is still ours: the master may have taken it from a process it took for dead.
        let _ = self.word.compare_exchange(self.pid, 0, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_get_it_is_told_so() {
        let word = Box::leak(Box::new(AtomicU64::new(0)));
        let guard = Guard::try_lock(word, 7);
        assert_eq!(word.load(Ordering::SeqCst), 7);
        assert!(matches!(Guard::try_lock(word, 8), Err(Busy)));
        drop(guard);
        assert!(Guard::try_lock(word, 8).is_ok());
    }

    #[test]
    fn another_owners_lock_stays_locked() {
        let word = Box::leak(Box::new(AtomicU64::new(0)));
        let guard = Guard::try_lock(word, 7);
        word.store(9, Ordering::SeqCst);
        drop(guard);
        assert_eq!(word.load(Ordering::SeqCst), 9);
    }
}
