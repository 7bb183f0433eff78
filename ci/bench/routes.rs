//! Nanoseconds that a request takes to look its key up among the routes of a zone, and how long a
//! change of a hundred of them takes, all of it, one at work.
//!
//! The table grows while routes come. Of three runs, each change counts with its shortest time, so
//! that what the machine did meanwhile is left out and what the table costs is not.

use std::hint::black_box;
use std::time::{Duration, Instant};

use peerage_core::change::Actor;
use peerage_core::name::UpstreamName;
use peerage_core::route::RouteKey;
use peerage_core::route::change::{RouteBody, RouteChange};
use peerage_core::server::Origin;
use peerage_core::upstream::Defaults;
use peerage_shm::AtomicU64;
use peerage_zone::{
    Clock, Env, Format, ROUTES_AT_ONCE, Region, RouteAttempt, RouteChecks, RouteOp, Worker, Zone,
};

const APPS: usize = 50;
const RUNS: usize = 3;
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
const FORMAT: Format = Format { build: 1, slots: 2, connections: 16 };

fn main() {
    println!("{:44} {:>8} {:>8} {:>8}", "ns a look-up, routes:", 1_000, 100_000, "1000000");
    let zones = SIZES.map(zone);
    for (name, key) in [("peerage, a key that is there", "tenant-"), ("one that is not", "guess-")]
    {
        let figures = [0, 1, 2].map(|i| look_up(&zones[i].0, SIZES[i], key));
        println!("{name:44} {:8.1} {:8.1} {:8.1}", figures[0], figures[1], figures[2]);
    }
    println!();
    println!(
        "{:44} {:>8} {:>8} {:>8}",
        "µs a change of 100 routes, routes:", 1_000, 100_000, "1000000"
    );
    for (i, what) in ["median", "longest, while the table grows"].iter().enumerate() {
        let figures = [0, 1, 2].map(|n| zones[n].1[i].as_secs_f64() * 1e6);
        println!("{what:44} {:8.1} {:8.1} {:8.1}", figures[0], figures[1], figures[2]);
    }
}

/// A zone with so many routes, and how long changes took: the median, and the longest.
fn zone(n: usize) -> (Worker, [Duration; 2]) {
    let mut shortest: Vec<Duration> = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let words: Box<[AtomicU64]> = (0..n * 10 + (1 << 20)).map(|_| AtomicU64::new(0)).collect();
        let lock = Box::leak(Box::new(AtomicU64::new(0)));
        let zone = Zone::format(Region::new(Box::leak(words)), lock, &FORMAT).expect("it fits");
        let worker = zone.worker(1, 1, &FORMAT).expect("a slot is free");
        let times = fill(&worker, n);
        if shortest.is_empty() {
            shortest.clone_from(&times);
        }
        shortest.iter_mut().zip(times).for_each(|(least, time)| *least = time.min(*least));
        last = Some(worker);
    }
    shortest.sort_unstable();
    let longest = shortest.last().copied().unwrap_or_default();
    (last.expect("it was made"), [shortest[shortest.len() / 2], longest])
}

fn fill(worker: &Worker, n: usize) -> Vec<Duration> {
    let clock = Clock { secs: 1, msec: 1000 };
    let mut times = Vec::with_capacity(n / ROUTES_AT_ONCE + 1);
    for from in (0..n).step_by(ROUTES_AT_ONCE) {
        let ops: Vec<RouteOp> = (from..n.min(from + ROUTES_AT_ONCE)).map(op).collect();
        let env = Env {
            clock: &clock,
            actor: Actor::new("bench", ""),
            origin: Origin::Api,
            named: &|_| false,
            keyed: Defaults::default(),
            resolves: false,
        };
        let begun = Instant::now();
        let came = worker.put_routes(&ops, &env, &RouteChecks::NONE);
        times.push(begun.elapsed());
        assert!(matches!(came, RouteAttempt::Done(_)), "{came:?}");
        worker.take_said();
    }
    times
}

fn op(i: usize) -> RouteOp {
    let upstream = UpstreamName::parse(&format!("app-{}", i % APPS)).ok();
    let body = RouteBody { upstream, ..RouteBody::default() };
    let key = RouteKey::parse(&format!("tenant-{i}")).expect("a good key");
    RouteOp { key, change: RouteChange::Put { body, force: true } }
}

/// The median of some rounds over keys that lie anywhere.
fn look_up(worker: &Worker, n: usize, prefix: &str) -> f64 {
    let keys: Vec<String> =
        (0..1 << 16).map(|i: usize| format!("{prefix}{}", i * 7_919 % n)).collect();
    let mut app = Vec::with_capacity(256);
    let mut rounds: Vec<f64> = (0..9)
        .map(|_| {
            let begun = Instant::now();
            for key in &keys {
                app.clear();
                black_box(worker.route(key.as_bytes(), &mut app));
            }
            begun.elapsed().as_nanos() as f64 / keys.len() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
