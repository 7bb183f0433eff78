//! peerage: upstreams that change while stock nginx runs.
//!
//! This crate is the edge: it gathers what nginx knows, calls `peerage-zone` and `peerage-core`
//! once, and acts on the answer. Only `ffi` touches nginx.

#![deny(unsafe_code)]

#[macro_use]
mod log;
mod admin;
mod audit;
mod balancer;
mod conf;
mod consul;
mod dashboard;
mod duty;
#[expect(unsafe_code, reason = "the fence: nginx is C")]
mod ffi;
mod health;
mod loads;
mod metrics;
mod module;
mod net;
mod routing;
mod store;
mod variables;
mod worker;
mod zone;

/// nginx takes its pools from the C library's heap at every request, and how long that takes
/// depends on what lies there: ours stays apart. Not in builds for tests of memory, whose tools know
/// the C library's heap.
#[cfg(not(feature = "panic"))]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;
