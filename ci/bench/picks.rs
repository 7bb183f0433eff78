//! Nanoseconds a pick (choose, count in, count out) with 1, 2 and 8 at work, beside nginx's rwlock.
//!
//! Threads stand for processes: the words they share and the way they wait are the same. A figure
//! is CPU time: what all used, over all picks, so that it stays level while nobody waits.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::name::UpstreamName;
use peerage_core::upstream::{Method, Settings};
use peerage_zone::{
    Choice, Clock, Fixed, Format, Key, Outcome, Pick, Region, Target, Worker, Zone,
};

const SERVERS: usize = 4;
const TIME: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;

fn main() {
    println!("{:44} {:>8} {:>8} {:>8}", "ns of CPU a pick, 4 servers", 1, 2, 8);
    let shared = Peers::new();
    row("nginx's zone and rwlock, same upstream", |_| {
        let peers = &shared;
        move || peers.turn()
    });
    let own: Vec<Peers> = (0..8).map(|_| Peers::new()).collect();
    row("nginx's zone and rwlock, an upstream each", |i| {
        let peers = &own[i];
        move || peers.turn()
    });
    let zone = zone();
    row("peerage, same upstream", |i| ours(zone, i, 0, Counted::No));
    row("peerage, an upstream each", |i| ours(zone, i, i, Counted::No));
    row("peerage, same upstream, all counters", |i| ours(zone, i, 0, Counted::Yes));
    row("peerage, an upstream each, all counters", |i| ours(zone, i, i, Counted::Yes));
    println!();
    println!("{:44} {:>8} {:>8} {:>8}", "ns of CPU a pick, one at work, servers:", 4, 64, 1000);
    let figures = [8, 9, 10].map(|upstream| median(&mut ours(zone, 0, upstream, Counted::No)));
    println!("{:44} {:8.1} {:8.1} {:8.1}", "peerage", figures[0], figures[1], figures[2]);
    println!();
    println!("{:44} {:>8} {:>8} {:>8}", "the same by method, servers:", 4, "1000", "1000 busy");
    let of = |method| Method::ALL.into_iter().position(|one| one == method).unwrap_or(0);
    let by = |name: &str, method: Method, counted| {
        let few = FIRST + 2 * of(method);
        let small = median(&mut keyed(zone, few, method, counted));
        let mut pick = keyed(zone, few + 1, method, counted);
        let large = median(&mut pick);
        let busy = busy(zone, few + 1);
        let most = median(&mut pick);
        drop(busy);
        println!("{name:44} {small:8.1} {large:8.1} {most:8.1}");
    };
    for method in Method::ALL {
        by(method.as_str(), method, Counted::No);
    }
    by("least_conn, all counters", Method::LeastConn, Counted::Yes);
    let (small, large) = (Peers::of(SERVERS), Peers::of(MANY));
    let (few, many) = (median(&mut || small.least()), median(&mut || large.least()));
    large.peers.iter().for_each(|peer| peer.conns.store(1, Relaxed));
    let most = median(&mut || large.least());
    println!("{:44} {few:8.1} {many:8.1} {most:8.1}", "nginx's zone and rwlock, least_conn");
}

/// The median of some rounds of one at work.
fn median(pick: &mut impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| alone(pick)).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

const FORMAT: Format = Format { build: 1, slots: 64, connections: 2000 };
/// The first of the upstreams that are there twice for each method, of four and of 1,000 servers.
const FIRST: usize = 11;
const MANY: usize = 1000;

/// Upstreams 0 to 7 of four servers, 8 of four, 9 of 64, 10 of 1,000; then those by method.
fn zone() -> Zone {
    let words: Box<[AtomicU64]> = (0..4 << 20).map(|_| AtomicU64::new(0)).collect();
    let lock = Box::leak(Box::new(AtomicU64::new(0)));
    let zone = Zone::format(Region::new(Box::leak(words)), lock, &FORMAT).expect("it fits");
    let upstreams = (0..FIRST + 2 * Method::ALL.len()).map(|i| {
        let (servers, method) = match i {
            9 => (64, None),
            10 => (MANY, None),
            ..FIRST => (SERVERS, None),
            _ => ([SERVERS, MANY][(i - FIRST) % 2], Some(Method::ALL[(i - FIRST) / 2])),
        };
        let mut upstream = DeclaredUpstream {
            name: UpstreamName::parse(&format!("u{i}")).expect("a good name"),
            settings: Settings { method, ..Settings::default() },
            servers: Vec::new(),
        };
        for s in 0..servers {
            let text = format!("10.0.{}.{}:80", s / 250, s % 250 + 1);
            upstream.servers.push(DeclaredServer::new(&text).expect("a good address"));
        }
        upstream
    });
    let upstreams: Vec<_> = upstreams.collect();
    let clock = Clock { secs: 1, msec: 1000 };
    let merged = zone.as_master(1).merge(&upstreams, &clock, &mut || false);
    assert_eq!(merged.changed, upstreams.len());
    zone
}

/// Whether a pick ends as nginx's does, which counts nothing but requests in flight.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    Yes,
    No,
}

/// Choose, count in, count out.
fn ours(zone: Zone, process: usize, upstream: usize, counted: Counted) -> impl FnMut() + Send {
    static PIDS: AtomicU64 = AtomicU64::new(2);
    let pid = PIDS.fetch_add(1, Relaxed) as u32;
    let worker = zone.worker(pid, process as u64 + 1, &FORMAT).expect("a slot is free");
    let fixed = Fixed::new(&format!("u{upstream}"));
    let clock = Clock { secs: 1, msec: 1000 };
    let outcome = Outcome { status: 200, header_ms: Some(1), response_ms: 1, ..Outcome::default() };
    move || {
        let mut choice = Choice::new();
        let picked = worker.pick(&mut choice, &Target::Fixed(&fixed), &clock);
        black_box(picked.is_ok());
        if counted == Counted::Yes {
            worker.done(&mut choice, &outcome, || clock);
        } else {
            worker.abandon(&mut choice);
        }
    }
}

/// The same by a method, with one key after the other.
fn keyed(zone: Zone, upstream: usize, method: Method, counted: Counted) -> impl FnMut() {
    let worker = worker(zone);
    let fixed = Fixed::new(&format!("u{upstream}"));
    let clock = Clock { secs: 1, msec: 1000 };
    let outcome = Outcome { status: 200, header_ms: Some(1), response_ms: 1, ..Outcome::default() };
    let mut text = *b"/some/path/of/a/request/0000";
    let mut key = 0u32;
    move || {
        key = key.wrapping_add(1);
        text[24..].copy_from_slice(&key.to_le_bytes());
        let (target, mut choice) = (Target::Fixed(&fixed), Choice::new());
        let key =
            if method == Method::IpHash { Key::Address(&text[25..]) } else { Key::Text(&text) };
        if worker.pick_in_turn(&mut choice, &target, || clock).is_none() {
            let pick = worker.pick_at_length(&mut choice, &target, key, &clock);
            black_box(matches!(pick, Pick::Peer(_)));
        }
        if counted == Counted::Yes {
            worker.done(&mut choice, &outcome, || clock);
        } else {
            worker.abandon(&mut choice);
        }
    }
}

fn worker(zone: Zone) -> Worker {
    static PIDS: AtomicU64 = AtomicU64::new(1000);
    zone.worker(PIDS.fetch_add(1, Relaxed) as u32, 1, &FORMAT).expect("a slot is free")
}

/// A request in flight at each of many servers.
fn busy(zone: Zone, upstream: usize) -> impl Drop {
    struct Busy(Worker, Vec<Choice>);
    impl Drop for Busy {
        fn drop(&mut self) {
            self.1.iter_mut().for_each(|choice| self.0.abandon(choice));
        }
    }
    let mut busy = Busy(worker(zone), Vec::new());
    let name = format!("u{upstream}");
    for _ in 0..MANY {
        let mut choice = Choice::new();
        let clock = Clock { secs: 1, msec: 1000 };
        let _ = busy.0.pick(&mut choice, &Target::Name(name.as_bytes()), &clock);
        busy.1.push(choice);
    }
    busy
}

/// For long enough that the kernel's clock, which may go by ticks of 4 ms, does not matter.
fn alone(pick: &mut impl FnMut()) -> f64 {
    const LEAST: u64 = 200_000_000;
    let (begun, mut picks) = (on_cpu(), 0);
    loop {
        for _ in 0..1000 {
            pick();
        }
        picks += 1000;
        let took = on_cpu() - begun;
        if took >= LEAST {
            return took as f64 / f64::from(picks);
        }
    }
}

/// The time that this thread has run, ns: others that run meanwhile do not count.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().and_then(|ns| ns.parse().ok());
    first.expect("the kernel tells how long a thread has run")
}

/// The median of some rounds, for each number of threads; `make` gives a thread its pick.
fn row<F: FnMut() + Send>(name: &str, make: impl Fn(usize) -> F) {
    let figures = [1, 2, 8].map(|n| {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| measure(n, &make)).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    });
    println!("{name:44} {:8.1} {:8.1} {:8.1}", figures[0], figures[1], figures[2]);
}

fn measure<F: FnMut() + Send>(threads: usize, make: &impl Fn(usize) -> F) -> f64 {
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let picks: u64 = thread::scope(|scope| {
        let work = |i| {
            let (mut pick, stop) = (make(i), &stop);
            scope.spawn(move || {
                let mut done = 0;
                while !stop.load(Relaxed) {
                    for _ in 0..64 {
                        pick();
                    }
                    done += 64;
                }
                done
            })
        };
        let threads: Vec<_> = (0..threads).map(work).collect();
        thread::sleep(TIME);
        stop.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no pick panics")).sum()
    });
    let cores = thread::available_parallelism().map_or(1, usize::from).min(threads);
    begun.elapsed().as_nanos() as f64 * cores as f64 / picks as f64
}

/// What nginx does for an upstream with `zone`: ngx_http_upstream_get_round_robin_peer under the
/// write lock of the peers, ngx_http_upstream_free_round_robin_peer under their read lock and the
/// write lock of the peer. On cache lines of its own, as in a zone's slab.
#[repr(align(128))]
struct Peers {
    lock: Rwlock,
    peers: Vec<Peer>,
}

#[derive(Default)]
struct Peer {
    lock: Rwlock,
    current: AtomicI64,
    effective: AtomicI64,
    weight: AtomicI64,
    conns: AtomicI64,
    max_conns: AtomicI64,
    fails: AtomicI64,
    max_fails: AtomicI64,
    checked: AtomicI64,
    down: AtomicI64,
}

impl Peers {
    fn new() -> Self {
        Self::of(SERVERS)
    }

    fn of(servers: usize) -> Self {
        let peer = |_| Peer {
            weight: 1.into(),
            effective: 1.into(),
            max_fails: 1.into(),
            ..Peer::default()
        };
        Self { lock: Rwlock::default(), peers: (0..servers).map(peer).collect() }
    }

    fn turn(&self) {
        let best = self.get();
        self.free(black_box(best));
    }

    fn get(&self) -> usize {
        let now = 1_000_000;
        let (mut best, mut total) = (0, 0);
        let mut most = i64::MIN;
        self.lock.write();
        for (i, peer) in self.peers.iter().enumerate() {
            if peer.down.load(Relaxed) != 0 {
                continue;
            }
            let failed = peer.max_fails.load(Relaxed) > 0
                && peer.fails.load(Relaxed) >= peer.max_fails.load(Relaxed)
                && now - peer.checked.load(Relaxed) <= 10;
            let full = peer.max_conns.load(Relaxed) > 0
                && peer.conns.load(Relaxed) >= peer.max_conns.load(Relaxed);
            if failed || full {
                continue;
            }
            let effective = peer.effective.load(Relaxed);
            let current = peer.current.load(Relaxed) + effective;
            peer.current.store(current, Relaxed);
            total += effective;
            if effective < peer.weight.load(Relaxed) {
                peer.effective.store(effective + 1, Relaxed);
            }
            if current > most {
                (best, most) = (i, current);
            }
        }
        let peer = &self.peers[best];
        peer.current.store(most - total, Relaxed);
        if now - peer.checked.load(Relaxed) > 10 {
            peer.checked.store(now, Relaxed);
        }
        peer.conns.store(peer.conns.load(Relaxed) + 1, Relaxed);
        self.lock.unlock();
        best
    }

    /// As ngx_http_upstream_get_least_conn_peer, which looks a second time where several have the
    /// fewest.
    fn least(&self) {
        let now = 1_000_000;
        let of = |peer: &Peer| (peer.conns.load(Relaxed), peer.weight.load(Relaxed));
        let open = |peer: &Peer| {
            let failed = peer.max_fails.load(Relaxed) > 0
                && peer.fails.load(Relaxed) >= peer.max_fails.load(Relaxed)
                && now - peer.checked.load(Relaxed) <= 10;
            let full = peer.max_conns.load(Relaxed) > 0
                && peer.conns.load(Relaxed) >= peer.max_conns.load(Relaxed);
            peer.down.load(Relaxed) == 0 && !failed && !full
        };
        self.lock.write();
        let mut best: Option<usize> = None;
        let mut many = false;
        for (i, peer) in self.peers.iter().enumerate().filter(|(_, peer)| open(peer)) {
            let (conns, weight) = of(peer);
            match best.map(|best| of(&self.peers[best])) {
                Some((least, its)) if conns * its > least * weight => {}
                Some((least, its)) if conns * its == least * weight => many = true,
                _ => (best, many) = (Some(i), false),
            }
        }
        let mut best = best.unwrap_or(0);
        let (least, its) = of(&self.peers[best]);
        let mut total = 0;
        for (i, peer) in self.peers.iter().enumerate().skip(if many { best } else { usize::MAX }) {
            let (conns, weight) = of(peer);
            if conns * its != least * weight || !open(peer) {
                continue;
            }
            let effective = peer.effective.load(Relaxed);
            let current = peer.current.load(Relaxed) + effective;
            peer.current.store(current, Relaxed);
            total += effective;
            if effective < weight {
                peer.effective.store(effective + 1, Relaxed);
            }
            if current > self.peers[best].current.load(Relaxed) {
                best = i;
            }
        }
        let peer = &self.peers[best];
        peer.current.store(peer.current.load(Relaxed) - total, Relaxed);
        if now - peer.checked.load(Relaxed) > 10 {
            peer.checked.store(now, Relaxed);
        }
        peer.conns.store(peer.conns.load(Relaxed) + 1, Relaxed);
        self.lock.unlock();
        self.free(black_box(best));
    }

    fn free(&self, at: usize) {
        let peer = &self.peers[at];
        self.lock.read();
        peer.lock.write();
        peer.conns.store(peer.conns.load(Relaxed) - 1, Relaxed);
        peer.lock.unlock();
        self.lock.unlock();
    }
}

/// As ngx_rwlock.c: a compare and swap, then spinning with growing pauses, then sched_yield.
#[derive(Default)]
struct Rwlock(AtomicU64);

const WRITER: u64 = u64::MAX;

impl Rwlock {
    fn write(&self) {
        let free = || self.0.load(Relaxed) == 0;
        self.acquire(|| free() && self.0.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok());
    }

    fn read(&self) {
        self.acquire(|| {
            let readers = self.0.load(Relaxed);
            let next = readers.wrapping_add(1);
            readers != WRITER && self.0.compare_exchange(readers, next, Acquire, Relaxed).is_ok()
        });
    }

    fn unlock(&self) {
        if self.0.compare_exchange(WRITER, 0, Release, Relaxed).is_err() {
            self.0.fetch_sub(1, AcqRel);
        }
    }

    fn acquire(&self, taken: impl Fn() -> bool) {
        loop {
            if taken() {
                return;
            }
            let mut n = 1;
            while n < 2048 {
                (0..n).for_each(|_| spin_loop());
                if taken() {
                    return;
                }
                n <<= 1;
            }
            thread::yield_now();
        }
    }
}
