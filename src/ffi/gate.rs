//! A gate that lets one in at a time: what nginx's variables lead back to is not begun again.

use std::cell::Cell;

use super::global::Global;

/// Where the process is at most once, however deep its calls are.
pub(crate) struct Gate(Global<Cell<bool>>);

impl Gate {
    pub(crate) const fn new() -> Self {
        Self(Global::new(Cell::new(false)))
    }

    /// Calls; `None` where such a call is under way.
    pub(crate) fn pass<R>(&'static self, call: impl FnOnce() -> R) -> Option<R> {
        /// Opens the gate again, after a panic too.
        struct Open(&'static Cell<bool>);
        impl Drop for Open {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let inside = self.0.get();
        if inside.replace(true) {
            return None;
        }
        let _open = Open(inside);
        Some(call())
    }
}
