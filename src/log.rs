//! Lines in nginx's error log, in nginx's words.

use std::cell::Cell;

pub(crate) use crate::ffi::log::{Level, Log};

use crate::ffi::global::Global;
use crate::ffi::timer;

/// For a line that would come again and again: once a minute is enough.
pub(crate) struct Seldom(Global<Cell<Option<u64>>>);

impl Seldom {
    pub(crate) const fn new() -> Self {
        Self(Global::new(Cell::new(None)))
    }

    /// Whether it is time for the line.
    pub(crate) fn may(&'static self) -> bool {
        let (last, now) = (self.0.get(), timer::now());
        let may = last.get().is_none_or(|at| now - at >= SILENCE_MS);
        if may {
            last.set(Some(now));
        }
        may
    }
}

const SILENCE_MS: u64 = 60_000;

/// `log!(Warn, "peer \"{}\" is unhealthy", name)`: a line in the running cycle's log.
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        $crate::log::Log::cycle().write($crate::log::Level::$level, 0, format_args!($($text)+))
    };
}
