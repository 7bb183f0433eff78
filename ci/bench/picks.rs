//! Nanoseconds a pick (choose, count in, count out) with 1, 2 and 8 at work, beside nginx's rwlock.
//!
//! Threads stand for processes: the words they share and the way they wait are the same. A figure
//! is CPU time: what all used, over all picks, so that it stays level while nobody waits.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

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
        let peer = |_| Peer {
            weight: 1.into(),
            effective: 1.into(),
            max_fails: 1.into(),
            ..Peer::default()
        };
        Self { lock: Rwlock::default(), peers: (0..SERVERS).map(peer).collect() }
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
