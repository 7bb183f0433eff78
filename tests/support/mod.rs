//! What every story needs: a real nginx of its own, backends, a raw HTTP client, a load, and
//! waiting on conditions. Everything is on loopback, under a temporary prefix, on ports that
//! no other story has, and everything started here ends with the story.
//!
//! A story says `mod support;` and `use support::*;`.

#![allow(dead_code, unused_imports, reason = "each story uses its own part of this")]
#![allow(unreachable_pub, reason = "a module shared by test crates has no outside")]

mod api;
mod backend;
mod cluster;
mod conf;
mod consul;
mod disk;
mod dns;
mod example;
mod exposition;
mod fetch;
mod http;
mod load;
mod model;
mod nginx;
mod points;
mod ports;
mod process;
mod promtool;
mod redis;
mod registry;
pub mod saved;
mod speaker;
mod state;
mod tls;
mod turns;
mod twins;
mod upgrade;
mod wait;

pub use api::Api;
pub use backend::{Backend, Hit, Mode};
pub use cluster::Cluster;
pub use conf::{Conf, faults_module, module};
pub use consul::{Asked, Checked, FakeConsul, Trouble};
pub use disk::{Disk, Fault};
pub use dns::{Dns, Say};
pub use example::{Run, ansible, example, pair, root_of, run, script};
pub use exposition::{Exposition, OPENMETRICS, scrape};
pub use fetch::{FullQueue, Script, fetch, fetch_error, fetcher, read_head, wish};
pub use http::{Conn, Reply, Request, get};
pub use load::{Load, Report, Running, hit};
pub use model::{Clients, Model, shown};
pub use nginx::{Nginx, Worker, is_nginx};
pub use points::{Points, Strike, all_points, known};
pub use ports::Port;
pub use process::{Signal, alive, cpu_ticks, descriptors, rss_kb, signal, stopped};
pub use promtool::{promtool, said_of};
pub use redis::{Between, Proxy, Redis};
pub use registry::{RealConsul, Registry, servers, source};
pub use speaker::{Protocol, Speaker};
pub use state::{Identity, crc32c, files, identity, sealed, whole, written};
pub use tls::Certificate;
pub use turns::Turns;
pub use twins::{twins, twins_text};
pub use wait::{eventually, holds_for, let_pass, within};

pub use serde_json::{Value, json};
pub use std::net::SocketAddr;
pub use std::time::{Duration, Instant};

/// Milliseconds, as stories like to write them.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Seconds.
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The size of a story: `short` in `ci/test.sh`, `long` in `ci/long.sh` (`PEERAGE_LONG=1`).
pub fn scale<T>(short: T, long: T) -> T {
    if std::env::var_os("PEERAGE_LONG").is_some_and(|v| v == "1") { long } else { short }
}
