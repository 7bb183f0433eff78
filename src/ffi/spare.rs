//! Memory of requests that ended, kept for those to come.
//!
//! What a request holds of the balancer would cost room in its pool, and a pool that has not enough
//! takes another block from the system: for a few bytes a request would pay as for a page.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// Pieces for one `T` each, as many as were in use at once.
pub(crate) struct Spare<T> {
    /// The last piece that was given back; each holds the one before it at its end.
    last: Cell<*mut Piece<T>>,
}

#[repr(C)]
struct Piece<T> {
    /// First: a piece is known by the address of its value.
    value: T,
    before: *mut Self,
}

impl<T> Spare<T> {
    pub(crate) const fn new() -> Self {
        Self { last: Cell::new(ptr::null_mut()) }
    }

    /// Memory for a `T`, not filled: zeros, or what was there before.
    #[inline]
    pub(crate) fn take(&self) -> Option<NonNull<T>> {
        let Some(piece) = NonNull::new(self.last.get()) else { return Self::make() };
        // SAFETY: a piece that was given back is in nobody's use, and its `before` was written.
        self.last.set(unsafe { (*piece.as_ptr()).before });
        Some(piece.cast())
    }

    #[cold]
    fn make() -> Option<NonNull<T>> {
        // SAFETY: a piece holds a pointer: its size is not zero.
        NonNull::new(unsafe { alloc_zeroed(Layout::new::<Piece<T>>()) }.cast::<T>())
    }

    /// Gives memory back. What it holds stays readable until it is taken again.
    ///
    /// # Safety
    ///
    /// - `take` of this `Spare` gave it, and nobody writes to it from now on
    #[inline]
    pub(crate) unsafe fn give(&self, value: NonNull<T>) {
        let piece = value.cast::<Piece<T>>().as_ptr();
        // SAFETY: the caller's piece, of which `T` is a part.
        unsafe { (&raw mut (*piece).before).write(self.last.get()) };
        self.last.set(piece);
    }
}
