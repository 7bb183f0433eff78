//! What all actors of a run share: the doors to nginx, what is being done to it, and the verdict.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::support::*;

use super::board::Board;

#[derive(Debug)]
pub(crate) struct Site {
    pub seed: u64,
    pub api: Api,
    pub web: SocketAddr,
    /// The API on sockets of each worker's own.
    pub each: Api,
    /// Names of backends by address.
    pub names: BTreeMap<String, String>,
    pub board: Board,
    /// Traffic rests.
    pub paused: AtomicBool,
    /// Requests of traffic under way.
    pub busy: AtomicUsize,
    /// Every id that was seen, with the client and the server of it that had it.
    pub ids: Mutex<HashMap<u64, (usize, u64)>>,
    over: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Odd while old workers may still act on an old zone.
    moves: AtomicU64,
    outages: Mutex<Vec<(Instant, Option<Instant>)>>,
    diary: Mutex<VecDeque<String>>,
    counts: Mutex<BTreeMap<String, u64>>,
    begun: Instant,
}

impl Site {
    pub(crate) fn new(seed: u64, nginx: &Nginx, names: BTreeMap<String, String>) -> Self {
        Self {
            seed,
            api: nginx.api().patient(secs(30)),
            web: nginx.web(),
            each: Api::new(nginx.addr("each"), "/api/v1").patient(secs(30)),
            names,
            board: Board::default(),
            paused: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            ids: Mutex::default(),
            over: AtomicBool::new(false),
            failure: Mutex::default(),
            moves: AtomicU64::new(0),
            outages: Mutex::default(),
            diary: Mutex::default(),
            counts: Mutex::default(),
            begun: Instant::now(),
        }
    }

    /// What a GET shows, though workers may die meanwhile.
    pub(crate) fn get(&self, path: &str) -> Result<Value, String> {
        let request = self.api.request("GET", path, None);
        let reply = within(secs(10), || request.send(self.api.addr()).ok());
        let reply = reply.ok_or_else(|| format!("no answer to GET {path} for 10 s"))?;
        serde_json::from_slice(&reply.body).map_err(|error| format!("GET {path}: {error}"))
    }

    /// Ends the run as failed, with the first that says so.
    pub(crate) fn fail(&self, text: impl Display) {
        let text = format!("at {:.3} s: {text}", self.begun.elapsed().as_secs_f64());
        self.failure.lock().unwrap().get_or_insert(text);
        self.end();
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap().clone()
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Notes what is done to nginx.
    pub(crate) fn note(&self, text: impl Display) {
        let line = format!("{:8.3} {text}", self.begun.elapsed().as_secs_f64());
        let mut diary = self.diary.lock().unwrap();
        diary.push_back(line);
        if diary.len() > 60 {
            diary.pop_front();
        }
    }

    pub(crate) fn diary(&self) -> String {
        self.diary.lock().unwrap().iter().cloned().collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn count(&self, what: impl Into<String>) {
        *self.counts.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> String {
        let counts = self.counts.lock().unwrap();
        counts.iter().map(|(what, n)| format!("{what} {n}")).collect::<Vec<_>>().join(", ")
    }

    /// From now on some connections may break, or find nobody.
    pub(crate) fn outage(&self) {
        self.outages.lock().unwrap().push((Instant::now(), None));
    }

    /// It is over; what was under way just then may still break.
    pub(crate) fn outage_ends(&self) {
        if let Some((_, end @ None)) = self.outages.lock().unwrap().last_mut() {
            *end = Some(Instant::now() + ms(500));
        }
    }

    /// Whether a request from `begin` until now may have lost its connection.
    pub(crate) fn excused(&self, begin: Instant) -> bool {
        let outages = self.outages.lock().unwrap();
        outages.iter().rev().any(|(_, end)| end.is_none_or(|end| begin <= end))
    }

    /// Old workers act on an old zone: what a client reads there may be old.
    pub(crate) fn moving(&self, moving: bool) {
        let before = self.moves.load(Ordering::SeqCst);
        if (before % 2 == 1) != moving {
            self.moves.store(before + 1, Ordering::SeqCst);
        }
    }

    /// A number that is the same before and after what no move has disturbed, else `None`.
    pub(crate) fn still(&self) -> Option<u64> {
        Some(self.moves.load(Ordering::SeqCst)).filter(|moves| moves % 2 == 0)
    }
}
