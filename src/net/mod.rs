//! Connections of our own as a client, and what waits for them: futures on nginx's event loop.
//!
//! Nothing here blocks, and nothing starts a thread. A future belongs to the [`executor`]; a
//! [`Stream`] is a connection on nginx's events, with or without TLS; [`http`] speaks over it.
//! Whatever is dropped ends, closes what it has open, and asks nobody.

pub(crate) mod address;
pub(crate) mod error;
pub(crate) mod executor;
pub(crate) mod http;
pub(crate) mod time;
#[cfg(ngx_feature = "http_ssl")]
pub(crate) mod trust;

pub(crate) use crate::ffi::stream::Stream;

/// Ends all of it, before the process leaves its zones.
pub(crate) fn end() {
    executor::end();
    #[cfg(ngx_feature = "http_ssl")]
    trust::forget();
}
