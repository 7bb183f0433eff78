//! State of the process, for the one thread that nginx runs.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A value that only the thread which asked first may reach.
///
/// nginx's event loop, its configuration and all its callbacks run on one thread, also after fork,
/// where the thread keeps its handle. The helper thread of the state file is another one; it gets
/// what it needs by value, and a panic when it asks here. Not `thread_local!`: the module may be
/// unloaded at reload, and a destructor left behind in a thread would be called afterwards.
pub(crate) struct Global<T> {
    owner: AtomicUsize,
    value: T,
}

// SAFETY: `get` gives the value out to the owner's thread only.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { owner: AtomicUsize::new(0), value }
    }

    /// The value; panics on a thread other than the first one that asked.
    #[inline]
    pub(crate) fn get(&'static self) -> &'static T {
        // SAFETY: no arguments, no failure; a process-wide unique handle of a living thread.
        let me = unsafe { libc::pthread_self() } as usize;
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != me {
            assert!(
                owner == 0
                    && self
                        .owner
                        .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok(),
                "state of nginx's thread used from another one"
            );
        }
        &self.value
    }
}
