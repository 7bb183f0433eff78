//! What a process does for the peers that are its own to probe.
//!
//! A look at what there is to do comes with every change, every half second, and when something is
//! due. A probe is a future of its own; its result is taken only while the peer is still this
//! process's: one that was stopped would tell of time-outs that were its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peerage_core::check::schedule::{Due, Schedule, Standing};
use peerage_zone::Worker;

use super::holding::Holding;
use super::probe::Probed;
use super::roster::{News, Roster};
use crate::ffi::process;
use crate::ffi::timer::{self, Kind, Timer};
use crate::log::Seldom;
use crate::net::error::Error;
use crate::net::executor::{self, Handle};
use crate::net::http::Connection;
use crate::worker;

/// What probes the peers of one zone, in one process.
pub(crate) struct Prober(Rc<Inner>);

/// What bounds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Workers that share the peers.
    pub(crate) workers: usize,
    /// Connections that it may have, kept ones included.
    pub(crate) connections: usize,
}

struct Inner {
    zone: String,
    worker: &'static Worker,
    bounds: Bounds,
    timer: RefCell<Option<Timer>>,
    state: RefCell<State>,
    /// This process probes nothing any more.
    over: Cell<bool>,
}

#[derive(Default)]
struct State {
    holding: Holding,
    roster: Roster,
    schedule: Schedule,
    probes: HashMap<u64, Handle>,
    /// Connections for the next probes of their peers.
    kept: BTreeMap<u64, Connection>,
}

impl Prober {
    pub(crate) fn new(zone: &str, worker: &'static Worker, bounds: Bounds) -> Self {
        let inner = Rc::new(Inner {
            zone: zone.to_owned(),
            worker,
            bounds,
            timer: RefCell::new(None),
            state: RefCell::default(),
            over: Cell::new(false),
        });
        let weak = Rc::downgrade(&inner);
        let timer = Timer::new(Kind::Cancelable, move || {
            if let Some(inner) = Weak::upgrade(&weak) {
                inner.look(false);
            }
        });
        inner.timer.replace(Some(timer));
        Self(inner)
    }

    /// Looks whether there is something to do; `round`: it is time to look for processes that died.
    /// Costs next to nothing where nothing is checked.
    pub(crate) fn look(&self, round: bool) {
        self.0.look(round);
    }

    /// Leaves the peers to others; true if there were any.
    pub(crate) fn give_up(&self) -> bool {
        self.0.stop();
        self.0.state.borrow_mut().holding.leave(self.0.worker)
    }

    /// Leaves them for good.
    pub(crate) fn end(&self) {
        self.give_up();
        self.0.over.set(true);
    }
}

impl Inner {
    fn look(self: &Rc<Self>, round: bool) {
        if self.worker.zone().checks().now() == 0 || process::exiting() || self.over.get() {
            return;
        }
        if self.worker.zone().is_moved() {
            // Another zone has them.
            self.stop();
            return;
        }
        let end = Instant::now() + SLICE;
        let given = self.learn(round, end);
        self.begin(end);
        self.arm();
        if given {
            worker::wake_all();
        }
    }

    /// Ends what runs, and forgets all but whose the parts are.
    fn stop(&self) {
        if let Some(timer) = self.timer.borrow().as_ref() {
            timer.clear();
        }
        let State { probes, kept, .. } = {
            let mut state = self.state.borrow_mut();
            let holding = std::mem::take(&mut state.holding);
            std::mem::replace(&mut *state, State { holding, ..State::default() })
        };
        // What they end with looks at nothing of this.
        drop((probes, kept));
    }

    /// Looks which peers there are; whether somebody was given parts.
    fn learn(&self, round: bool, end: Instant) -> bool {
        let mut state = self.state.borrow_mut();
        let State { holding, roster, .. } = &mut *state;
        let looked = holding.look(self.worker, self.bounds.workers, round);
        let mut all = Vec::new();
        if !(looked.lost.is_empty() && looked.won.is_empty()) {
            all.push(roster.set_parts(holding.parts(), looked.lost));
        }
        all.push(roster.look(self.worker, round, end));
        if round {
            state.bury();
        }
        for News { gone, put } in all {
            for key in gone {
                state.forget(key);
            }
            for probed in put {
                state.schedule.put(probed, timer::now());
            }
        }
        looked.given
    }

    /// Begins probes that are due.
    fn begin(self: &Rc<Self>, end: Instant) {
        let limit = self.bounds.connections;
        loop {
            let now = timer::now();
            let mut state = self.state.borrow_mut();
            let Some(due) = state.schedule.next(limit, now) else { return };
            self.begin_one(&mut state, due, now);
            if Instant::now() >= end {
                return;
            }
        }
    }

    fn begin_one(self: &Rc<Self>, state: &mut State, Due { key, is_late, .. }: Due, now: u64) {
        let is_ours = state.holding.holds(self.worker, key);
        let peer = state.roster.peer(key).filter(|_| is_ours);
        let Some(peer) = peer.filter(|peer| self.worker.probing(&peer.handle, now)) else {
            // The next look tells more.
            state.schedule.ended(key, Standing::default(), now);
            state.schedule.forget(key);
            return;
        };
        if is_late {
            self.late();
        }
        let target = peer.target.clone();
        let kept = state.kept.remove(&key);
        if kept.is_none() && state.schedule.running() + state.kept.len() > self.bounds.connections {
            state.kept.pop_first();
        }
        let weak = Rc::downgrade(self);
        let probe = executor::spawn(async move {
            let probed = target.probe(kept).await;
            if let Some(inner) = weak.upgrade() {
                inner.ended(key, probed);
            }
        });
        state.probes.insert(key, probe);
    }

    /// A probe has come to its end.
    fn ended(self: &Rc<Self>, key: u64, Probed { outcome, connection }: Probed) {
        let mut state = self.state.borrow_mut();
        let over = state.probes.remove(&key);
        let is_ours = state.holding.holds(self.worker, key);
        let Some(peer) = state.roster.peer(key).filter(|_| is_ours) else {
            state.schedule.ended(key, Standing::default(), timer::now());
            return;
        };
        let verdict = match outcome {
            Ok(outcome) => super::take(self.worker, peer, outcome),
            Err(error) => {
                self.failed(&error);
                self.worker.verdict(&peer.handle)
            }
        };
        let standing = verdict.map(Standing::of).unwrap_or_default();
        state.schedule.ended(key, standing, timer::now());
        if state.schedule.running() + state.kept.len() < self.bounds.connections {
            state.kept.extend(connection.map(|connection| (key, connection)));
        }
        drop(state);
        drop(over);
        self.arm();
    }

    fn late(&self) {
        self.worker.zone().checks_late().fetch_add(1, Ordering::Relaxed);
    }

    /// This process could not probe.
    fn failed(&self, error: &Error) {
        static FAILED: Seldom = Seldom::new();
        if let Error::Exiting = error {
            return;
        }
        self.late();
        if FAILED.may() {
            log!(Crit, "peers of zone \"{}\" cannot be probed: {error}", self.zone);
        }
    }

    /// Has the timer ring when the next thing is due.
    fn arm(&self) {
        let state = self.state.borrow();
        let due = state.schedule.first(self.bounds.connections);
        // Some together: a process that wakes up for each one takes half as much again.
        let now = timer::now();
        let due = due.map(|due| due.max(now + 1).next_multiple_of(TICK_MS) - now);
        let next = due.into_iter().chain(state.roster.next(self.worker)).min();
        if let (Some(timer), Some(ms)) = (self.timer.borrow().as_ref(), next) {
            timer.set(ms);
        }
    }
}

impl State {
    /// Ends probes that a panic has ended: their peers are to be probed again.
    fn bury(&mut self) {
        for (key, _) in self.probes.extract_if(|_, probe| probe.is_over()) {
            self.schedule.ended(key, Standing::default(), timer::now());
        }
    }

    fn forget(&mut self, key: u64) {
        self.kept.remove(&key);
        self.schedule.forget(key);
        if self.probes.remove(&key).is_some() {
            self.schedule.ended(key, Standing::default(), timer::now());
        }
    }
}

/// How long a look takes, about.
const SLICE: Duration = Duration::from_millis(2);
/// Times at which probes begin.
const TICK_MS: u64 = 8;
