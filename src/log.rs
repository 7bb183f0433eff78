//! Lines in nginx's error log, in nginx's words.

pub(crate) use crate::ffi::log::{Level, Log};

/// `log!(Warn, "peer \"{}\" is unhealthy", name)`: a line in the running cycle's log.
macro_rules! log {
    ($level:ident, $($text:tt)+) => {
        $crate::log::Log::cycle().write($crate::log::Level::$level, 0, format_args!($($text)+))
    };
}
