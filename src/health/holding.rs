//! Which parts of the peers are this process's to probe.
//!
//! Each worker has parts that it prefers, by its number; it calls for those that another one has,
//! and is given them. Parts of one that died, or does not run any more, are whose who comes first.

use peerage_core::check::schedule::{SHARDS, shard};
use peerage_zone::{Holder, Shard, Worker};

use crate::ffi::{process, timer};

/// A set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts(u64);

/// The parts of this process.
#[derive(Default)]
pub(super) struct Holding {
    parts: Parts,
    /// Parts that were nobody's in the last round.
    free: Parts,
    /// When they were renewed last, monotonic ms.
    renewed: Option<u64>,
}

/// What a look has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// Parts that are another's now, or were for a while.
    pub(super) lost: Parts,
    /// Parts that are new.
    pub(super) won: Parts,
    /// Somebody was given a part, and is to be told.
    pub(super) given: bool,
}

impl Parts {
    pub(super) fn has(self, part: u32) -> bool {
        self.0 >> part & 1 == 1
    }

    /// Whether a peer is in one of them.
    pub(super) fn has_peer(self, key: u64) -> bool {
        self.has(shard(key))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn put(&mut self, part: u32) {
        self.0 |= 1 << part;
    }

    fn take(&mut self, part: u32) {
        self.0 &= !(1 << part);
    }
}

impl Holding {
    /// The parts of this process.
    pub(super) fn parts(&self) -> Parts {
        self.parts
    }

    /// Renews what it has, and takes what it should have; `round`: the time to look for processes
    /// that died. `workers`: how many there are.
    pub(super) fn look(&mut self, worker: &Worker, workers: usize, round: bool) -> Looked {
        let now = timer::fresh();
        let mut looked = Looked::default();
        let is_due = self.renewed.is_none_or(|at| now >= at + RENEW_MS);
        if !round && !is_due {
            return looked;
        }
        let mut free = Parts::default();
        for (i, part) in worker.zone().shards() {
            let holder = part.holder();
            if holder.pid() == process::pid() {
                self.keep(i, part, holder, now, &mut looked);
                continue;
            }
            if self.parts.has(i) {
                self.parts.take(i);
                looked.lost.put(i);
            }
            let (workers, number) = (workers.max(1), process::number());
            let is_mine = i as usize % workers == number;
            if holder.pid() == 0 {
                free.put(i);
            }
            let is_left = match holder.pid() {
                0 => is_mine || round && self.free.has(i),
                pid => {
                    // Two ask for each part, or all would ask for all; for others its word ends.
                    let asks = round && (is_mine || (i as usize + 1) % workers == number);
                    holder.is_over(now) || asks && !process::alive(pid, 0)
                }
            };
            if is_left && part.take(holder, process::pid(), now, LEASE_MS) {
                self.parts.put(i);
                looked.won.put(i);
            } else if is_mine && !is_left {
                part.call(process::pid());
            }
        }
        if round {
            self.free = free;
        }
        self.renewed = Some(now);
        looked
    }

    fn keep(&mut self, i: u32, part: Shard, holder: Holder, now: u64, looked: &mut Looked) {
        let me = process::pid();
        let caller = part.caller();
        let to = if caller != 0 && process::alive(caller, 0) { caller } else { me };
        // Where that fails, somebody has taken it: it is over, and the next look finds out.
        if !part.take(holder, to, now, LEASE_MS) || to != me {
            looked.given |= to != me;
            self.parts.take(i);
            looked.lost.put(i);
        } else if !self.parts.has(i) {
            // Given to it.
            self.parts.put(i);
            looked.won.put(i);
        } else if holder.is_over(now) {
            // It has not run for a while: what it knows of is old.
            looked.lost.put(i);
            looked.won.put(i);
        }
    }

    /// Whether a peer is still its to probe, by a clock that has gone on while it was stopped.
    pub(super) fn holds(&self, worker: &Worker, key: u64) -> bool {
        let holder = worker.zone().shard(shard(key)).holder();
        holder.pid() == process::pid() && !holder.is_over(timer::fresh())
    }

    /// Leaves all to others; whether there was anything.
    pub(super) fn leave(&mut self, worker: &Worker) -> bool {
        let mine = worker.zone().shards().filter(|(_, part)| part.holder().pid() == process::pid());
        let left = mine.filter(|(_, part)| part.take(part.holder(), 0, timer::fresh(), 0)).count();
        // It would be given to a process that looks no more.
        worker.zone().shards().for_each(|(_, part)| part.end_call(process::pid()));
        *self = Self::default();
        left > 0
    }
}

const _: () = assert!(SHARDS == 64, "as many as a set of parts has bits");
/// How long a process that does not run keeps its parts.
const LEASE_MS: u64 = 1_200;
/// After so long it renews them.
const RENEW_MS: u64 = 300;
