//! Consul: what is asked of it, what its answers mean, and which of them are believed.
//!
//! Everything here is decided from what is passed in; the edge connects, reads and waits.
//!
//! - [`settings`], [`service`]: the directives `peerage_consul` and `peerage_service`.
//! - [`query`]: the next read as target, headers and deadline; [`token`]: the file of the token.
//! - [`reader`]: what comes of an answer or of none: when to read again, where, and how.
//! - [`answer`], [`catalog`]: bodies. One bad entry is left out, never the whole.
//! - [`desired`]: the servers that an answer means.
//! - [`guard`]: which of the servers that an answer leaves out go, and when.
//! - [`status`]: what is known of a source, for reports.
//!
//! ```text
//! reader.next ─→ query ─→ (edge: HTTP) ─→ reader.answered ─→ desired ─→ guard.look ─→ Change::Source
//!      ↑                       │ reader.failed                            │ confirm_at, wake_at
//!      └───────────────────────┴─────────────────────────────────────────┘
//! ```

pub mod answer;
pub mod backoff;
pub mod catalog;
pub mod desired;
pub mod guard;
pub mod pace;
pub mod query;
pub mod reader;
pub mod service;
pub mod settings;
pub mod status;
pub mod token;

/// The largest body of an answer, in bytes; a larger one is as good as none.
pub const MAX_BODY: usize = 8 << 20;
/// The most entries of an answer; one with more is as good as none.
pub const MAX_ENTRIES: usize = 10_000;
