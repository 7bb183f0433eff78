//! One question about a key at a time, over all processes.
//!
//! A flight is a word with the pid of who asks, since when, and a part of the key's hash. A key has a
//! few words that it may take, the first that is free of them: so keys wait for each other only where
//! both parts of their hashes are the same, which costs a moment and tells nobody anything wrong.
//! Where all words are taken by others the question is asked without one, twice at the worst.

use peerage_shm::{AtomicU64, Ordering};

use super::layout::{FLIGHTS, head};
use super::{Cache, Kind, Who};

/// The right to ask the store about a key, until it is landed.
#[derive(Debug)]
#[must_use = "a flight that is not landed holds others up"]
pub struct Flight(Option<(&'static AtomicU64, u64)>);

/// Words that a key may take.
const WAYS: usize = 4;
/// Pids have 22 bits at most; then a part of the hash; then the lowest bits of the time, which are
/// compared by half of what they can tell.
const PID: u32 = 22;
const TAG: u32 = 16;
const TIME: u32 = u64::BITS - PID - TAG;

/// Between two looks whether who asks is alive, ms: that costs a few calls of the system, and very
/// many may wait. Most questions are answered before the first.
const LOOK_EVERY: u64 = 50;
/// As long is the time for such a look, ms: who waits looks at the flight every 8 ms or so.
const LOOK_FOR: u64 = 10;

/// How far the clock of one process may be behind another's, ms; what seems to be of a time later than
/// that is of one so long ago that the bits do not tell.
const LATER: i64 = 10_000;

/// What is in a word.
#[derive(Clone, Copy)]
struct Taken(u64);

impl Taken {
    const fn new(pid: u32, tag: u16, now: u64) -> Self {
        Self(now << (PID + TAG) | (tag as u64) << PID | pid as u64 & ((1 << PID) - 1))
    }

    const fn pid(self) -> u32 {
        self.0 as u32 & ((1 << PID) - 1)
    }

    const fn tag(self) -> u16 {
        (self.0 >> PID) as u16
    }

    /// Whether whoever took it has had its time, or is dead, if it is time to look for that.
    fn is_over(self, now: u64, span: u64, who: &Who<'_>) -> bool {
        let since = (now << (PID + TAG)).wrapping_sub(self.0 >> (PID + TAG) << (PID + TAG)) as i64;
        let since = since >> (PID + TAG);
        // Clocks are looked at now and then: it may have begun a little later, but not by so much.
        let Ok(since) = u64::try_from(since) else { return since < -LATER };
        if since >= span.min(1 << (TIME - 1)) {
            return true;
        }
        let looks = since >= LOOK_EVERY && since % LOOK_EVERY < LOOK_FOR;
        looks && self.pid() != who.pid && !(who.alive)(self.pid())
    }
}

impl Cache {
    /// Takes the question about a key, if nobody asks it: who does is dead, or has for `span` ms. To
    /// be called every 8 ms or so, by who waits: whether it is dead is looked at now and then, not
    /// each time.
    pub fn claim(
        &self,
        kind: Kind,
        key: &[u8],
        now: u64,
        span: u64,
        who: &Who<'_>,
    ) -> Option<Flight> {
        let hash = self.key(kind, key).hash;
        let (tag, first) = (hash as u16, (hash >> 16) as usize % (FLIGHTS / WAYS) * WAYS);
        let words = &self.head[head::FLIGHTS + first..][..WAYS];
        let mine = Taken::new(who.pid, tag, now);
        loop {
            let there = [0, 1, 2, 3].map(|i| words[i].load(Ordering::Acquire));
            let is_free = |&i: &usize| there[i] == 0 || Taken(there[i]).is_over(now, span, who);
            let same = (0..WAYS).find(|&i| there[i] != 0 && Taken(there[i]).tag() == tag);
            let free = match same {
                Some(same) if is_free(&same) => same,
                Some(_) => return None,
                None => match (0..WAYS).find(is_free) {
                    Some(free) => free,
                    None => return Some(Flight(None)),
                },
            };
            let took = words[free].compare_exchange(
                there[free],
                mine.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            // Each failure is a step of somebody else's.
            if took.is_ok() {
                return Some(Flight(Some((&words[free], mine.0))));
            }
        }
    }

    /// Gives the question back, if it was not taken over meanwhile.
    pub fn land(&self, flight: Flight) {
        if let Some((word, mine)) = flight.0 {
            // Who took it over lands it.
            let _ = word.compare_exchange(mine, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
