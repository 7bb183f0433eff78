//! Until when peers of an upstream ramp up, or count as new: noted in the upstream's record, so
//! that picks of others need not look at their peers' words.

use std::sync::atomic::Ordering::Relaxed;

use peerage_core::field;
use peerage_core::select::ramp::FRESH_MS;
use peerage_core::upstream::Method;

use crate::layout::{Entry, Peer, Up, get, set};

/// Whether a peer of an upstream may ramp up, or count as new.
#[inline]
pub(crate) fn is_any(up: Up, now: u64) -> bool {
    // A time further off was noted before the clock was set back.
    (1..=2 * MAX_MS).contains(&get(up.young_until()).saturating_sub(now))
}

/// The longest time for which a peer is young.
const MAX_MS: u64 = field::MAX_SLOW_START.0 as u64 * 1000;

/// What is seen of an upstream's peers.
pub(crate) struct Young {
    method: Method,
    now: u64,
    /// Until when, unix ms; 0 = there is none.
    until: u64,
}

impl Young {
    pub(crate) const fn of(method: Method, now: u64) -> Self {
        Self { method, now, until: 0 }
    }

    /// Looks at a peer.
    pub(crate) fn look(&mut self, peer: Peer, entry: Entry) {
        // Of round robin only the ramp is known.
        let fresh = if self.method == Method::RoundRobin { 0 } else { FRESH_MS };
        let time = fresh.max(entry.ramp_ms());
        if time == 0 || !self.method.ramps() {
            return;
        }
        let start = get(peer.start());
        if start != 0 && self.now.abs_diff(start) < time {
            self.until = self.until.max(start + time);
        }
    }

    /// Notes what was seen; whether there was a young peer.
    pub(crate) fn note(self, up: Up) -> bool {
        if self.until != 0 {
            let word = up.young_until();
            if get(word).saturating_sub(self.now) > 2 * MAX_MS {
                set(word, self.until);
            }
            word.fetch_max(self.until, Relaxed);
        }
        self.until != 0
    }
}
