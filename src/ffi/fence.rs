//! The fence between nginx's C and Rust's panics: nothing unwinds into nginx.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

use super::log::{Level, Log};

/// Where the last panic happened, and what it said; the hook writes it, [`guard`] takes it.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Runs `call`; a panic in it is logged as `[alert]` and gives `otherwise`.
#[inline]
pub(crate) fn guard<R>(what: &'static str, otherwise: R, call: impl FnOnce() -> R) -> R {
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => value,
        Err(_) => {
            caught(what);
            otherwise
        }
    }
}

#[cold]
fn caught(what: &str) {
    let text = LAST.lock().map(|mut text| std::mem::take(&mut *text)).unwrap_or_default();
    Log::cycle().write(Level::Alert, 0, format_args!("peerage: panic in {what}: {text}"));
}

/// Keeps panics off stderr: their place and text go to the log, by [`guard`].
pub(crate) fn hook() {
    panic::set_hook(Box::new(|info| {
        let cause = info.payload();
        let text = cause
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| cause.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("unknown cause");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        if let Ok(mut last) = LAST.lock() {
            *last = format!("{text} at {place}");
        }
    }));
}
