//! When which peer is probed: spread over the interval, never late for another's sake.
//!
//! Each peer has a moment of its own within the interval, from its key alone, and a jitter that
//! differs from round to round: whoever probes it keeps to the same moments, so that it is probed
//! once an interval over a takeover. A new peer is due at once. After a failure that does not
//! decide yet, the next probe comes by the jitter earlier, so that a peer that died is known after
//! `interval × fails + timeout` at the latest.
//!
//! Only so many probes run at a time, and of these at most half are of peers that are known to fail,
//! and a quarter of new ones: those that time out leave room for the living. Peers whose failure does
//! not decide yet go before those that are known to fail, and have an eighth for themselves, so that
//! the dead do not delay the verdict on others. Times are ms of one clock that all processes share and
//! that is never set back.

use std::collections::{BTreeSet, HashMap};

use crate::check::Check;
use crate::check::verdict::{Side, Verdict};

/// Parts of the peers that are given to processes, one by one.
pub const SHARDS: u32 = 64;

/// The part that a peer belongs to, by its key.
pub const fn shard(key: u64) -> u32 {
    (mix(key) >> 58) as u32
}

/// When the peers of a check are probed, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    interval: u64,
    jitter: u64,
}

impl Timing {
    /// That of a check.
    pub fn of(check: &Check) -> Self {
        let (interval, timeout) = (check.interval.0.max(1), check.timeout.0);
        // One failure that decides leaves no later probe to make up for the time; and none begins
        // before the one before is over.
        let jitter = if check.fails == 1 { 0 } else { interval * u64::from(check.jitter) / 100 };
        Self { interval, jitter: jitter.min(interval.saturating_sub(timeout)) }
    }

    /// From one probe to the next, on average.
    pub const fn interval(self) -> u64 {
        self.interval
    }

    /// How much later than due a probe may begin until it counts as late.
    pub fn slack(self) -> u64 {
        (self.interval / 10).max(100)
    }

    /// When the peer is due next after a probe that began then.
    fn after(self, key: u64, began: u64) -> u64 {
        let phase = mix(key ^ PHASE) % self.interval;
        // In which round it was; the first one has no phase before it.
        let round = (began + self.interval - phase) / self.interval;
        let jitter = mix(key ^ mix(round)) % (self.jitter + 1);
        round * self.interval + phase + jitter
    }
}

/// How a peer stands after its last probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is known.
    #[default]
    New,
    /// It passed.
    Sound,
    /// It failed, which does not decide yet.
    InDoubt,
    /// It failed, and is known to.
    Ailing,
}

impl Standing {
    /// How a peer of this verdict stands.
    pub fn of(verdict: Verdict) -> Self {
        match verdict.last_passed() {
            Some(false) if verdict.side() == Side::Unhealthy => Self::Ailing,
            Some(false) => Self::InDoubt,
            Some(true) => Self::Sound,
            None => Self::New,
        }
    }

    /// The queue that it waits in.
    const fn queue(self) -> usize {
        match self {
            Self::New => 0,
            Self::Sound => 1,
            Self::InDoubt => 2,
            Self::Ailing => 3,
        }
    }
}

/// A peer to be probed.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    /// Its key: a number that no other peer of the zone has.
    pub key: u64,
    /// When it is probed.
    pub timing: Timing,
    /// When its last probe began, as far as is known; `None`: there was none, so that it is due.
    pub began: Option<u64>,
    /// How it stood then.
    pub standing: Standing,
}

/// A peer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub key: u64,
    /// For how long it has been, ms.
    pub since: u64,
    /// Whether that is longer than it should be, see [`Timing::slack`].
    pub is_late: bool,
}

/// The peers that this process probes.
#[derive(Debug, Default)]
pub struct Schedule {
    peers: HashMap<u64, Entry>,
    queues: [Queue; 4],
    /// Probes that run, also of peers that were taken away meanwhile, and the queue they come from.
    running: HashMap<u64, usize>,
}

/// Peers that wait, by their time, and how many of them are being probed.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeSet<(u64, u64)>,
    running: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    timing: Timing,
    /// When it is due; `None`: its probe runs.
    due: Option<u64>,
    /// When its last probe began.
    began: Option<u64>,
    standing: Standing,
}

impl Entry {
    fn next(&self, key: u64, now: u64) -> u64 {
        let Some(began) = self.began else { return now };
        let next = self.timing.after(key, began);
        match self.standing {
            Standing::InDoubt => next.min(began + self.timing.interval - self.timing.jitter),
            Standing::New | Standing::Sound | Standing::Ailing => next,
        }
    }

    fn due(self, at: u64) -> Self {
        Self { due: Some(at), ..self }
    }

    /// With the time that its timing gives, where it waits.
    fn again(self, key: u64, now: u64) -> Self {
        Self { due: self.due.map(|_| self.next(key, now)), ..self }
    }
}

impl Schedule {
    /// Takes a peer. One that is there goes on, by another timing if it has another; where its last
    /// probe is said not to count any more, it is due.
    pub fn put(&mut self, Probed { key, timing, began, standing }: Probed, now: u64) {
        let fresh = Entry { timing, due: None, began, standing };
        let entry = match self.peers.get(&key).copied() {
            Some(old) if began.is_none() && old.began.is_some() && old.due.is_some() => {
                fresh.due(now)
            }
            Some(old) if old.timing == timing => return,
            Some(old) => Entry { timing, ..old }.again(key, now),
            None if self.running.contains_key(&key) => fresh,
            None => fresh.due(fresh.next(key, now)),
        };
        self.enter(key, entry);
    }

    /// Forgets a peer; a probe of it that runs still counts until it is over.
    pub fn forget(&mut self, key: u64) {
        let Some(entry) = self.peers.remove(&key) else { return };
        if let Some(due) = entry.due {
            self.queues[entry.standing.queue()].waiting.remove(&(due, key));
        }
    }

    /// When a peer is due next of which a probe may begin then; `None` also where as many run as
    /// may: one that ends makes room.
    pub fn first(&self, limit: usize) -> Option<u64> {
        self.heads(limit).into_iter().flatten().min().map(|(due, _)| due)
    }

    /// Takes the peer that has been due longest, to probe it; `limit` probes may run at a time. One
    /// in doubt goes before those that are known to fail.
    pub fn next(&mut self, limit: usize, now: u64) -> Option<Due> {
        let mut heads = self.heads(limit).map(|head| head.filter(|&(due, _)| due <= now));
        let [.., in_doubt, ailing] = &mut heads;
        if in_doubt.is_some() {
            *ailing = None;
        }
        let (due, key) = heads.into_iter().flatten().min()?;
        let entry = *self.peers.get(&key)?;
        self.enter(key, Entry { due: None, began: Some(now), ..entry });
        let queue = entry.standing.queue();
        self.running.insert(key, queue);
        self.queues[queue].running += 1;
        let since = now - due;
        Some(Due { key, since, is_late: since > entry.timing.slack() })
    }

    /// A probe is over.
    pub fn ended(&mut self, key: u64, standing: Standing, now: u64) {
        let Some(queue) = self.running.remove(&key) else { return };
        self.queues[queue].running -= 1;
        let Some(entry) = self.peers.get(&key).copied() else { return };
        let entry = Entry { standing, ..entry };
        let due = entry.next(key, now);
        self.enter(key, Entry { due: Some(due), ..entry });
    }

    /// Probes that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether there is no peer.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// The first of each queue of which a probe may begin.
    fn heads(&self, limit: usize) -> [Option<(u64, u64)>; 4] {
        let [new, _, in_doubt, ailing] = &self.queues;
        let has_room = self.running.len() < limit;
        let new = new.running < (limit / 4).max(1);
        let (failed, half) = (in_doubt.running + ailing.running, (limit / 2).max(1));
        let mut room = [new, true, failed < half + limit / 8, failed < half].into_iter();
        self.queues.each_ref().map(|queue| {
            let open = room.next() == Some(true) && has_room;
            queue.waiting.first().copied().filter(|_| open)
        })
    }

    fn enter(&mut self, key: u64, entry: Entry) {
        if let Some(before) = self.peers.insert(key, entry)
            && let Some(due) = before.due
        {
            self.queues[before.standing.queue()].waiting.remove(&(due, key));
        }
        if let Some(due) = entry.due {
            self.queues[entry.standing.queue()].waiting.insert((due, key));
        }
    }
}

const PHASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads keys that follow one another.
const fn mix(key: u64) -> u64 {
    let mut x = key.wrapping_add(PHASE);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
