//! Lines in nginx's error log.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use nginx_sys::{
    NGX_LOG_ALERT, NGX_LOG_CRIT, NGX_LOG_EMERG, NGX_LOG_INFO, NGX_LOG_NOTICE, NGX_LOG_WARN,
    ngx_cycle, ngx_err_t, ngx_log_error_core, ngx_log_t, ngx_uint_t,
};

/// nginx's levels, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Level {
    Emerg = NGX_LOG_EMERG,
    Alert = NGX_LOG_ALERT,
    Crit = NGX_LOG_CRIT,
    Warn = NGX_LOG_WARN,
    Notice = NGX_LOG_NOTICE,
    Info = NGX_LOG_INFO,
}

/// One of nginx's logs: the cycle's, or a connection's, which adds its context to each line.
#[derive(Clone, Copy)]
pub(crate) struct Log<'a> {
    log: NonNull<ngx_log_t>,
    life: PhantomData<&'a ()>,
}

impl Log<'static> {
    /// The log of the running cycle.
    pub(crate) fn cycle() -> Self {
        // SAFETY: nginx sets `ngx_cycle` before it reads any configuration, and it and its log
        // stay valid as long as modules are called; the log is looked up for each use.
        unsafe { Self::from_raw((*ngx_cycle).log) }
    }
}

impl Log<'_> {
    /// Takes a log from nginx.
    ///
    /// # Safety
    ///
    /// - `log` is not null and lives during the life chosen
    pub(super) unsafe fn from_raw(log: *mut ngx_log_t) -> Self {
        debug_assert!(!log.is_null());
        // SAFETY: not null, the caller says so.
        Self { log: unsafe { NonNull::new_unchecked(log) }, life: PhantomData }
    }

    /// Whether a line of this level would be written.
    pub(crate) fn takes(self, level: Level) -> bool {
        // SAFETY: the log lives, by the promise of `from_raw`.
        unsafe { (*self.log.as_ptr()).log_level >= level as ngx_uint_t }
    }

    /// Writes one line; `errno` other than 0 is appended as nginx does, "(2: No such file …)".
    #[cold]
    pub(crate) fn write(self, level: Level, errno: i32, text: fmt::Arguments<'_>) {
        if !self.takes(level) {
            return;
        }
        let text = printable(&text.to_string());
        // SAFETY: "%*s" takes a length and that many bytes, which `text` has; the log lives.
        unsafe {
            ngx_log_error_core(
                level as ngx_uint_t,
                self.log.as_ptr(),
                errno as ngx_err_t,
                c"%*s".as_ptr(),
                text.len(),
                text.as_ptr(),
            );
        }
    }
}

/// The text with control characters as `\x0a`: one call, one line.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", c as u32)),
            _ => out.push(c),
        }
    }
    out
}
