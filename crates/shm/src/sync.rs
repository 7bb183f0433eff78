//! Atomics: the machine's, or loom's when a model is explored.

#[cfg(not(loom))]
pub use std::sync::atomic::AtomicU64;
pub use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::fence;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::fence;

#[cfg(loom)]
pub use mortal::{AtomicU64, Died, live_for};

/// Orders everything before against everything after, over all processes.
///
/// It stands beside sequentially consistent read-modify-writes, which are such a barrier by
/// themselves on x86; elsewhere, and for loom, it takes a fence.
#[inline]
pub(crate) fn order() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(all(not(loom), target_arch = "x86_64"))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(all(not(loom), not(target_arch = "x86_64")))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// Loom's atomics for threads that play processes, each of which may die before any write.
#[cfg(loom)]
mod mortal {
    use std::cell::Cell;
    use std::panic::resume_unwind;

    use loom::sync::atomic;

    use super::Ordering;

    loom::thread_local! {
        static LEFT: Cell<Option<u32>> = Cell::new(None);
    }

    /// What the thread unwinds with when its writes are used up.
    #[derive(Debug)]
    pub struct Died;

    /// Lets this thread write `n` times more; `None`: for ever.
    pub fn live_for(n: Option<u32>) {
        LEFT.with(|left| left.set(n));
    }

    fn write() {
        let left = LEFT.with(|left| left.replace(left.get().map(|n| n.saturating_sub(1))));
        if left == Some(0) {
            resume_unwind(Box::new(Died));
        }
    }

    /// A word.
    #[derive(Debug, Default)]
    pub struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        /// A word of this value.
        pub fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        /// As std's.
        pub fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        /// As std's.
        pub fn store(&self, value: u64, order: Ordering) {
            write();
            self.0.store(value, order);
        }

        /// As std's.
        pub fn swap(&self, value: u64, order: Ordering) -> u64 {
            write();
            self.0.swap(value, order)
        }

        /// As std's.
        pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            write();
            self.0.fetch_add(value, order)
        }

        /// As std's.
        pub fn compare_exchange(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            write();
            self.0.compare_exchange(current, new, success, failure)
        }
    }
}
