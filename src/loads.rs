//! How often a configuration was loaded, and when the last one was.
//!
//! Counted in the master, when a configuration is accepted; a worker has what its master had when
//! it was made, so that one of an old generation says its own. Begins anew where the module was not in
//! the configuration for a while.

use std::cell::Cell;

use crate::ffi::global::Global;
use crate::ffi::process;

/// Loads, and unix ms.
static LAST: Global<Cell<(u64, u64)>> = Global::new(Cell::new((0, 0)));

/// A configuration is in force from now on.
pub(crate) fn count() {
    LAST.get().update(|(loads, _)| (loads + 1, process::clock().msec));
}

/// How many there were, the first one included, and when the last one was, unix ms.
pub(crate) fn last() -> (u64, u64) {
    LAST.get().get()
}
