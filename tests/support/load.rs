//! A steady load in the background, and a report that a story can hold to account.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::http::{Conn, Reply, Request};

/// What to send. Nothing is ever tried again: what fails is counted as failed.
#[derive(Clone, Debug)]
pub struct Load {
    addr: SocketAddr,
    requests: Vec<Request>,
    threads: usize,
    rate: Option<u32>,
    keepalive: bool,
}

impl Load {
    /// Two threads, fresh connections, as fast as they can, `GET /`.
    pub fn to(addr: SocketAddr) -> Self {
        Self { addr, requests: Vec::new(), threads: 2, rate: None, keepalive: false }
    }

    pub fn path(self, path: &str) -> Self {
        self.request(Request::get(path))
    }

    /// Several are sent in turn.
    pub fn request(mut self, request: Request) -> Self {
        self.requests.push(request);
        self
    }

    pub fn threads(mut self, n: usize) -> Self {
        self.threads = n;
        self
    }

    /// At most this many requests a second, all threads together.
    pub fn rate(mut self, per_second: u32) -> Self {
        self.rate = Some(per_second);
        self
    }

    /// One kept connection a thread. (A reload of nginx itself breaks some: TRAPS 33.)
    pub fn keepalive(mut self) -> Self {
        self.keepalive = true;
        self
    }

    /// Begins. Dropping the handle ends the load as well.
    pub fn start(mut self) -> Running {
        if self.requests.is_empty() {
            self.requests.push(Request::get("/"));
        }
        if !self.keepalive {
            self.requests = self.requests.into_iter().map(Request::closing).collect();
        }
        let shared = Arc::new(Shared::default());
        let begun = Instant::now();
        let threads = (0..self.threads).map(|i| {
            let (load, shared) = (self.clone(), Arc::clone(&shared));
            thread::spawn(move || load.run(i, begun, &shared))
        });
        Running { threads: threads.collect(), shared, begun }
    }

    fn run(&self, index: usize, begun: Instant, shared: &Shared) -> Report {
        let mut report = Report::default();
        let mut kept: Option<Conn> = None;
        let period = self.rate.map(|rate| Duration::from_secs(1) / rate);
        for turn in 0.. {
            let nth = turn * self.threads + index;
            if let Some(period) = period {
                let due = begun + period * nth as u32;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let request = &self.requests[nth % self.requests.len()];
            let start = Instant::now();
            let conn = kept.take().map_or_else(|| Conn::open(self.addr), Ok);
            let answer = conn.and_then(|mut conn| Ok((conn.send(request)?, conn)));
            shared.total.fetch_add(1, Ordering::Relaxed);
            if !matches!(&answer, Ok((reply, _)) if reply.status == 200) {
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
            report.note(start, answer.as_ref().map(|(reply, _)| reply));
            if let Ok((reply, conn)) = answer {
                let closes = reply.header("connection") == Some("close");
                kept = (self.keepalive && !closes).then_some(conn);
            }
        }
        report
    }
}

/// `n` requests one after the other, each on a fresh connection.
pub fn hit(addr: SocketAddr, path: &str, n: usize) -> Report {
    let request = Request::get(path);
    let mut report = Report::default();
    let begun = Instant::now();
    for _ in 0..n {
        let start = Instant::now();
        report.note(start, request.send(addr).as_ref());
    }
    report.time = begun.elapsed();
    report.micros.sort_unstable();
    report
}

/// A load that is going on.
#[derive(Debug)]
pub struct Running {
    threads: Vec<JoinHandle<Report>>,
    shared: Arc<Shared>,
    begun: Instant,
}

impl Running {
    /// Requests ended so far.
    pub fn total(&self) -> u64 {
        self.shared.total.load(Ordering::Relaxed)
    }

    /// Of those, how many were not answered 200.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Waits for the requests under way and reports.
    #[track_caller]
    pub fn stop(mut self) -> Report {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut report = Report::default();
        for thread in self.threads.drain(..) {
            report.add(thread.join().expect("the load does not panic"));
        }
        report.time = self.begun.elapsed();
        report.micros.sort_unstable();
        report
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok(); // the story has failed already
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    total: AtomicU64,
    failed: AtomicU64,
}

/// What became of a load.
#[derive(Debug, Default)]
pub struct Report {
    pub total: u64,
    pub statuses: BTreeMap<u16, u64>,
    /// By the answer's `X-Backend`; "" where there was none.
    pub backends: BTreeMap<String, u64>,
    /// Requests without an answer.
    pub errors: Vec<String>,
    pub time: Duration,
    micros: Vec<u32>,
}

impl Report {
    /// Requests not answered 200.
    pub fn failed(&self) -> u64 {
        self.total - self.status(200)
    }

    pub fn status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    pub fn backend(&self, name: &str) -> u64 {
        self.backends.get(name).copied().unwrap_or(0)
    }

    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.total as f64 / self.time.as_secs_f64()
    }

    /// The time within which this share (0.99) of the answers came.
    pub fn quantile(&self, share: f64) -> Duration {
        let at = (self.micros.len() as f64 * share) as usize;
        let at = at.min(self.micros.len().saturating_sub(1));
        Duration::from_micros(self.micros.get(at).copied().unwrap_or(0).into())
    }

    /// Fails the story unless there were requests and each was answered 200.
    #[track_caller]
    pub fn all_ok(&self) {
        let errors = &self.errors[..self.errors.len().min(5)];
        assert!(self.total > 0, "no request was made");
        assert_eq!(self.failed(), 0, "of {}: {:?}, {errors:?}", self.total, self.statuses);
    }

    fn note(&mut self, start: Instant, answer: Result<&Reply, &io::Error>) {
        self.total += 1;
        match answer {
            Ok(reply) => {
                self.micros.push(start.elapsed().as_micros() as u32);
                *self.statuses.entry(reply.status).or_default() += 1;
                *self.backends.entry(reply.backend().to_string()).or_default() += 1;
            }
            Err(error) => self.errors.push(error.to_string()),
        }
    }

    fn add(&mut self, other: Self) {
        self.total += other.total;
        for (status, n) in other.statuses {
            *self.statuses.entry(status).or_default() += n;
        }
        for (backend, n) in other.backends {
            *self.backends.entry(backend).or_default() += n;
        }
        self.errors.extend(other.errors);
        self.micros.extend(other.micros);
    }
}
