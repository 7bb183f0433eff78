//! The clock of what stores said.
//!
//! Milliseconds that all processes of the machine count alike and that never go back, whatever is
//! done to the time of day. They begin long before the machine does, so that what is read from a
//! file may be older than the machine's start.

use crate::ffi::{process, timer};

/// Between the clock's beginning and the machine's, ms.
const BEFORE: u64 = 1 << 41;

/// Now, as nginx's event loop last looked.
#[inline]
pub(super) fn now() -> u64 {
    timer::now() + BEFORE
}

/// The same as it is now, however long this process was stopped since.
pub(super) fn fresh() -> u64 {
    timer::fresh() + BEFORE
}

/// How far the time of day is ahead of this clock, ms.
pub(super) fn to_unix() -> i64 {
    process::clock().msec as i64 - now() as i64
}
