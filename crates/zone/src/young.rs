//! Until when peers of an upstream ramp up, or count as new: noted in the upstream's record, so
//! that picks of others need not look at their peers' words.

use std::sync::atomic::Ordering::Relaxed;

use peerage_core::select::ramp::FRESH_MS;
use peerage_core::upstream::Method;

use crate::layout::{Entry, Peer, Up, get};

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
            up.young_until().fetch_max(self.until, Relaxed);
        }
        self.until != 0
    }
}
