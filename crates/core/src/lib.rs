//! The model of peerage: what an upstream is, how it changes, and how it is said.
//!
//! Everything here is a function of its arguments: no nginx, no I/O, no clock, no threads, no
//! environment. Time, ids, randomness and live facts come in as arguments; what should happen goes
//! out as a value. The edge gathers, calls once, and acts on the answer.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod addr;
pub mod agenda;
pub mod api;
pub mod body;
pub mod change;
pub mod check;
pub mod consul;
pub mod counters;
pub mod crc;
pub mod damage;
pub mod declare;
pub mod diff;
pub mod doors;
pub mod event;
pub mod field;
pub mod host;
pub mod journal;
pub mod json;
mod line;
mod md5;
pub mod merge;
pub mod metrics;
pub mod name;
pub mod passive;
pub mod plus;
pub mod recent;
pub mod record;
pub mod redis;
pub mod replica;
pub mod route;
pub mod select;
pub mod server;
pub mod sid;
pub mod snapshot;
pub mod source;
pub mod state;
pub mod template;
pub mod texts;
pub mod time;
pub mod units;
pub mod upstream;
