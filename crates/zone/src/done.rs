//! The end of a try: counters, failures, and the reference given back.

use peerage_core::counters::BUCKETS_MS;
use peerage_core::passive::Passive;
use peerage_core::select::least_time;
use peerage_shm::{AtomicU64, Ordering::Relaxed, point};

use crate::choice::{Choice, Clock, Done, FoundUp, Outcome};
use crate::eject::{ERROR, forgive};
use crate::health;
use crate::layout::{Entry, Peer, Table, get, set};
use crate::pick::passive;
use crate::turn;
use crate::worker::Worker;
use crate::young::Young;

/// Bits of a code cell below the status code.
const CODE_SHIFT: u32 = 48;
/// The count in a code cell.
pub(crate) const COUNT_MASK: u64 = (1 << CODE_SHIFT) - 1;

impl Worker {
    /// Counts a try and gives its peer back; the time is asked for where it matters.
    #[inline]
    pub fn done(
        &self,
        choice: &mut Choice,
        outcome: &Outcome,
        clock: impl FnOnce() -> Clock,
    ) -> Done {
        let Some(holding) = choice.held else { return Done::default() };
        let peer = holding.peer();
        point!("done.begun");
        count(peer, outcome);
        if outcome.status != 0 {
            self.time(choice, outcome.response_ms);
        }
        let erred = outcome.failed || outcome.status >= ERROR;
        if erred || choice.timed || !passive(peer).is_plain() {
            return self.done_at_length(choice, outcome, &clock());
        }
        choice.held = None;
        point!("done.counted");
        self.slot().release_counted(holding.held, peer.in_flight());
        Done::default()
    }

    /// The end of a try that erred, of one with a peer that had erred before or is not well, or of
    /// one whose time the method goes by.
    #[cold]
    fn done_at_length(&self, choice: &mut Choice, outcome: &Outcome, clock: &Clock) -> Done {
        let mut done = Done::default();
        let Some(holding) = choice.held.take() else { return done };
        let peer = holding.peer();
        if outcome.failed {
            done.disabled = self.failed(choice, peer, clock);
        } else {
            if choice.timed
                && let Some(header_ms) = outcome.header_ms
            {
                measure(peer.header_average(), header_ms);
                measure(peer.response_average(), outcome.response_ms);
            }
            if succeeded(peer, clock) {
                self.begin(choice, peer, clock);
            }
            if passive(peer).errs() && outcome.status < ERROR {
                forgive(peer);
            }
        }
        if outcome.failed || outcome.status >= ERROR {
            done.ejected = self.erred(choice, peer, clock);
        }
        self.slot().release_counted(holding.held, peer.in_flight());
        done
    }

    /// Gives a peer back without counting: the request ended before nginx knew how.
    #[cold]
    pub fn abandon(&self, choice: &mut Choice) {
        if let Some(holding) = choice.held.take() {
            self.slot().release(holding.held);
        }
    }

    /// Marks the request in flight as an upgraded connection.
    #[cold]
    pub fn upgraded(&self, choice: &Choice) {
        if let Some(holding) = &choice.held {
            self.slot().mark(&holding.held);
        }
    }

    #[inline]
    fn time(&self, choice: &Choice, ms: u64) {
        // The upstream may be gone: its record is read within a section, and is its own.
        let _section = self.enter();
        let Some(up) = choice.upstream.and_then(FoundUp::again) else { return };
        let histogram = up.histogram();
        let bucket = BUCKETS_MS.iter().position(|&b| ms <= u64::from(b));
        histogram[bucket.unwrap_or(BUCKETS_MS.len())].fetch_add(1, Relaxed);
        histogram[BUCKETS_MS.len() + 1].fetch_add(ms, Relaxed);
    }

    /// What a failure means for the peer; whether it is barred from now on.
    fn failed(&self, choice: &Choice, peer: Peer, clock: &Clock) -> bool {
        peer.fails().fetch_add(1, Relaxed);
        let _section = self.enter();
        let up = choice.upstream.and_then(FoundUp::again);
        let Some((up, table)) = up.and_then(|up| Some((up, up.table(self.zone())?))) else {
            return false;
        };
        let entry = table.entries().iter().map(Entry::read).find(|entry| entry.peer == peer.at);
        // Gone meanwhile, never barred, or nginx's single peer: there is nobody else to turn to.
        let Some(entry) = entry.filter(|entry| entry.max_fails != 0 && table.entries().len() > 1)
        else {
            return false;
        };
        let rules = entry.rules();
        turn::loosen(self.zone(), up, table, clock.secs);
        let mut word = get(peer.passive());
        let next = loop {
            let next = Passive::from_word(word).failed(clock.secs);
            if next.fails >= rules.max_fails && !self.another_is_open(table, peer, clock) {
                // The last usable peer is never switched off.
                return false;
            }
            match peer.passive().compare_exchange(word, next.word(), Relaxed, Relaxed) {
                Ok(_) => break next,
                Err(now) => word = now,
            }
        };
        lower(peer.effective(), i64::from(entry.weight) / i64::from(rules.max_fails));
        if next.fails < rules.max_fails {
            return false;
        }
        let was = peer.downstart().compare_exchange(0, clock.msec.max(1), Relaxed, Relaxed);
        if was.is_ok() {
            peer.unavail().fetch_add(1, Relaxed);
        }
        true
    }

    /// The peer is back: it ramps up from now on, and is a newcomer.
    fn begin(&self, choice: &Choice, peer: Peer, clock: &Clock) {
        set(peer.start(), clock.msec);
        let _section = self.enter();
        let up = choice.upstream.and_then(FoundUp::again);
        let Some((up, table)) = up.and_then(|up| Some((up, up.table(self.zone())?))) else {
            return;
        };
        let mut entries = table.entries().iter().map(Entry::read);
        if let Some(entry) = entries.find(|entry| entry.peer == peer.at) {
            let mut young = Young::of(table.method(), clock.msec);
            young.look(peer, entry);
            young.note(up);
        }
    }

    /// Whether any other peer of the upstream takes requests now.
    fn another_is_open(&self, table: Table, but: Peer, clock: &Clock) -> bool {
        table.entries().iter().map(Entry::read).any(|entry| {
            let other = Peer::at(self.region(), entry.peer).filter(|other| other.at != but.at);
            entry.open
                && other.is_some_and(|other| {
                    let word = passive(other);
                    !word.barred(entry.rules(), clock.secs)
                        && health::bar_of(word, other, clock.msec).is_none()
                })
        })
    }
}

/// Whether the peer was barred until now.
fn succeeded(peer: Peer, clock: &Clock) -> bool {
    let word = get(peer.passive());
    let Some(next) = Passive::from_word(word).succeeded() else { return false };
    // A failure that came in between counts more than this success.
    peer.passive().compare_exchange(word, next.word(), Relaxed, Relaxed).is_ok()
        && health::bar(peer, clock.msec).is_none()
        && end_downtime(peer, clock.msec)
}

/// Ends the time in which the peer was unavailable, if it was.
pub(crate) fn end_downtime(peer: Peer, now: u64) -> bool {
    let since = peer.downstart().swap(0, Relaxed);
    if since != 0 {
        peer.downtime().fetch_add(now.saturating_sub(since), Relaxed);
    }
    since != 0
}

/// Moves an average; who measures at the same moment may be left out.
fn measure(average: &AtomicU64, ms: u64) {
    set(average, least_time::average(get(average), ms));
}

/// Counts a try. As little as possible: what can be summed up is not counted as well.
#[inline]
fn count(peer: Peer, outcome: &Outcome) {
    peer.sent().fetch_add(outcome.sent, Relaxed);
    peer.received().fetch_add(outcome.received, Relaxed);
    if let Some(ms) = outcome.header_ms {
        peer.header_sum().fetch_add(ms, Relaxed);
        peer.response_sum().fetch_add(outcome.response_ms, Relaxed);
    } else {
        count_headerless(peer);
    }
    counter(peer, outcome.status).fetch_add(1, Relaxed);
}

#[cold]
#[inline(never)]
fn count_headerless(peer: Peer) {
    peer.headerless().fetch_add(1, Relaxed);
}

/// Where a try that ended with this status is counted: the code's cell, taking a free one the
/// first time.
#[inline]
fn counter(peer: Peer, status: u16) -> &'static AtomicU64 {
    if !(100..600).contains(&u32::from(status)) {
        return peer.unanswered();
    }
    let code = u64::from(status);
    for cell in peer.codes() {
        let word = get(cell);
        if word >> CODE_SHIFT == code || word == 0 && is_taken_for(cell, code) {
            return cell;
        }
    }
    peer.classes().get(class(status)).unwrap_or_else(|| peer.unanswered())
}

/// The class of a status: 0 for 1xx.
pub(crate) fn class(status: u16) -> usize {
    usize::from(status / 100).wrapping_sub(1)
}

/// Takes a free cell for a code, unless it went to another code meanwhile.
#[cold]
fn is_taken_for(cell: &AtomicU64, code: u64) -> bool {
    match cell.compare_exchange(0, code << CODE_SHIFT, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(now) => now >> CODE_SHIFT == code,
    }
}

/// The codes counted, and how often each; one whose count was set to zero is none.
pub(crate) fn codes(cells: &[AtomicU64]) -> Vec<(u16, u64)> {
    let mut codes: Vec<_> = cells
        .iter()
        .map(get)
        .filter(|&word| word & COUNT_MASK != 0)
        .map(|word| ((word >> CODE_SHIFT) as u16, word & COUNT_MASK))
        .collect();
    codes.sort_unstable();
    codes
}

/// Takes `lost` from a weight, not below 0.
fn lower(level: &AtomicU64, lost: i64) {
    let mut word = get(level);
    loop {
        let next = (word.cast_signed() - lost).max(0).cast_unsigned();
        match level.compare_exchange(word, next, Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => word = now,
        }
    }
}
