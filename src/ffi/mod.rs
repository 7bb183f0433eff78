//! The fence: the one place that touches nginx's memory and calls its functions.
//!
//! What leaves it are references, values and closures. Every entry from nginx goes through
//! `callback!`, which lets no panic out. nginx is single-threaded: whatever is shared inside a
//! process sits in a [`global::Global`], which refuses any other thread.

#[macro_use]
mod callback;
mod admin;
mod bits;
pub(crate) mod body;
pub(crate) mod conf;
mod connect;
pub(crate) mod connections;
pub(crate) mod cycle;
mod dashboard;
pub(crate) mod destination;
#[cfg(any(feature = "panic", feature = "points"))]
pub(crate) mod faults;
pub(crate) mod fence;
pub(crate) mod figures;
pub(crate) mod file;
pub(crate) mod filter;
mod gate;
pub(crate) mod global;
mod key;
pub(crate) mod lock;
pub(crate) mod log;
mod metrics;
pub(crate) mod module;
pub(crate) mod output;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod request;
pub(crate) mod resolve;
pub(crate) mod routed;
#[cfg(ngx_feature = "http_ssl")]
pub(crate) mod session;
pub(crate) mod shm;
mod spare;
#[cfg(nginx_sid)]
mod sticky;
pub(crate) mod stream;
pub(crate) mod task;
pub(crate) mod template;
pub(crate) mod thread;
pub(crate) mod timer;
#[cfg(ngx_feature = "http_ssl")]
pub(crate) mod tls;
pub(crate) mod upstream;
pub(crate) mod variable;
pub(crate) mod version;
pub(crate) mod wake;
