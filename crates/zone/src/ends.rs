//! When the next of something ends: so long, a round costs a comparison.
//!
//! Writers lower the word before they put something in force that has an end. Whoever looks at all
//! raises it, as nobody else can say what is the next: he sets it to "never" and lowers it by what
//! he finds. So that nothing is lost:
//!
//! - He begins under the lock. A writer has either put in force what he lowered the word for, and
//!   it is found; or has not lowered it yet, and that stays. Where the writer died in between, the
//!   lock is not given out before it is known what is in force.
//! - A second word says until when he is expected to be through. If he dies, somebody else looks
//!   at all after that time.

use std::sync::atomic::Ordering::SeqCst;

use peerage_shm::{AtomicU64, point};

use crate::choice::Clock;
use crate::layout::{root, set};
use crate::trace::Reachable;
use crate::worker::Worker;
use crate::zone::Zone;

/// After so many ms another process looks, if who looked did not say that he is through.
const AGAIN_MS: u64 = 1_000;
/// No time, and nobody looks.
const NEVER: u64 = u64::MAX;

/// Words of the root: when the next ends, and until when somebody looks.
#[derive(Clone, Copy)]
pub(crate) struct Kind(usize, usize);

/// Admin states of servers and hosts.
pub(crate) const TTL: Kind = Kind(root::NEXT_TTL, root::NEXT_TTL_LOOK);
/// Routes.
pub(crate) const ROUTES: Kind = Kind(root::ROUTES_END, root::ROUTES_LOOK);
/// Orphans, by the time since when they are.
pub(crate) const ORPHANS: Kind = Kind(root::ORPHANS, root::ORPHANS_LOOK);
/// Ejections and outside verdicts, which nobody needs the lock for.
pub(crate) const BARS: Kind = Kind(root::BARS, root::BARS_LOOK);

/// When the next of a kind ends.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    next: &'static AtomicU64,
    look: &'static AtomicU64,
}

/// A look at all of a kind, by this process.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    ends: Ends,
    until: u64,
}

impl Zone {
    /// When the next of a kind ends.
    pub(crate) fn ends(&self, Kind(next, look): Kind) -> Ends {
        Ends { next: self.root(next), look: self.root(look) }
    }

    /// Nothing has an end in a new zone.
    pub(crate) fn begin_ends(&self) {
        for Ends { next, look } in [TTL, ROUTES, ORPHANS, BARS].map(|kind| self.ends(kind)) {
            set(next, NEVER);
            set(look, NEVER);
        }
    }

    /// All is looked at again: a writer that died may have left something out.
    pub(crate) fn look_for_ends(&self) {
        for kind in [TTL, ROUTES, ORPHANS] {
            self.ends(kind).again();
        }
    }
}

impl Worker {
    /// Begins a look at all, if something has ended at `by`, or another look came to no end; not
    /// while somebody looks, and not where the lock is not to be had.
    pub(crate) fn look(&self, kind: Kind, by: u64, clock: &Clock) -> Option<Look> {
        let ends = self.zone().ends(kind);
        if !ends.is_due(by, clock.msec) {
            return None;
        }
        let trace = Reachable(*self.zone());
        let writer = self.zone().shared().try_write(self.pid(), &trace).ok()?;
        let look = ends.look(by, clock.msec);
        drop(writer);
        point!("ends.begun");
        look
    }
}

impl Ends {
    /// Something ends then.
    pub(crate) fn lower(self, end: u64) {
        self.next.fetch_min(end, SeqCst);
    }

    /// All is to be looked at again.
    pub(crate) fn again(self) {
        self.look.store(0, SeqCst);
    }

    /// Whether nothing has an end.
    pub(crate) fn is_never(self) -> bool {
        // Before and after: a look may begin, or end, in between.
        let looks = || self.look.load(SeqCst) != NEVER;
        !looks() && self.next.load(SeqCst) == NEVER && !looks()
    }

    /// Whether a look may begin.
    pub(crate) fn is_due(self, by: u64, now: u64) -> bool {
        let until = self.look.load(SeqCst);
        // As far ahead as none is: the clock was set back.
        let is_looked = until > now && until <= now + 2 * AGAIN_MS;
        let is_over = until != NEVER && !is_looked;
        is_over || self.next.load(SeqCst) <= by && !is_looked
    }

    /// Begins a look: under the lock, where writers have it.
    pub(crate) fn look(self, by: u64, now: u64) -> Option<Look> {
        let (before, next) = (self.look.load(SeqCst), self.next.load(SeqCst));
        // Another number than before, for who still looks.
        let until = now + AGAIN_MS + u64::from(before == now + AGAIN_MS);
        let begins = self.is_due(by, now)
            && self.look.compare_exchange(before, until, SeqCst, SeqCst).is_ok();
        begins.then(|| {
            // Where it is another one by now it stays, and all is looked at once more.
            let _ = self.next.compare_exchange(next, NEVER, SeqCst, SeqCst);
            Look { ends: self, until }
        })
    }
}

impl Look {
    /// This is to end then, and does not now.
    pub(crate) fn saw(self, end: u64) {
        self.ends.lower(end);
    }

    /// It takes longer; others are not to begin.
    pub(crate) fn goes_on(&mut self, now: u64) {
        let (before, until) = (self.until, now + AGAIN_MS);
        if self.ends.look.compare_exchange(before, until, SeqCst, SeqCst).is_ok() {
            self.until = until;
        }
    }

    /// All was looked at, and what had ended is not there any more.
    pub(crate) fn end(self) {
        point!("ends.looked");
        // Where that is another's by now, he looks to the end.
        let _ = self.ends.look.compare_exchange(self.until, NEVER, SeqCst, SeqCst);
    }
}
