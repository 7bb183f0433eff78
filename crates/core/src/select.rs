//! Balancing methods: which peer takes the next request.
//!
//! A method is a pure function over a [`View`] of one group of peers (the primaries, or the
//! backups). It reads what the view says and moves the levels it is given; it knows neither the
//! memory they live in nor the clock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub mod consistent;
pub mod cycle;
pub mod hash;
pub mod ip_hash;
mod least;
pub mod least_conn;
pub mod least_time;
pub mod ramp;
pub mod random;
pub mod round_robin;
pub mod sequence;
pub mod spread;
pub mod weights;

/// The largest group that is balanced by nginx's own algorithm, which looks at every peer.
pub const EXACT_PEERS: usize = 64;

/// Peers that a method finds closed before it leaves the request to round robin, as nginx does.
pub const MISSES: u32 = 20;

/// What a method sees of one group of peers.
pub trait View {
    /// Peers in the group.
    fn len(&self) -> usize;

    /// Whether the group has no peer.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Peer `i`, if it may take a new request of this client now: wanted by the operator, alive,
    /// below its limits, and not tried before by the same request.
    fn open(&self, i: usize) -> Option<Candidate<'_>>;

    /// Peer `i`, which was open a moment ago and is not looked at for that again.
    fn again(&self, i: usize) -> Option<Candidate<'_>> {
        self.open(i)
    }

    /// Whether some peer may be new, see [`Candidate::fresh`].
    fn has_newcomers(&self) -> bool {
        true
    }

    /// Whether the same request tried peer `i` before.
    fn tried(&self, i: usize) -> bool;

    /// The configured weight of peer `i`, closed or not.
    fn weight(&self, i: usize) -> u32;
}

/// A peer that may be chosen.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// Configured weight, at least 1.
    pub weight: i64,
    /// The running weight, as `current_weight` in nginx.
    pub current: Level<'a>,
    /// What is left of the weight after failures, as `effective_weight` in nginx.
    pub effective: Level<'a>,
    /// Requests in flight.
    pub active: u32,
    /// How new it is, see [`ramp::freshness`].
    pub fresh: u32,
}

/// A signed number that several workers move at once.
#[derive(Clone, Copy)]
pub struct Level<'a>(&'a AtomicU64);

impl<'a> Level<'a> {
    /// Reads and moves the number kept in `word`.
    #[inline]
    pub const fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// The number now.
    #[inline]
    pub fn load(self) -> i64 {
        self.0.load(Relaxed).cast_signed()
    }

    /// Sets the number.
    #[inline]
    pub fn store(self, value: i64) {
        self.0.store(value.cast_unsigned(), Relaxed);
    }

    /// Adds `step` and returns the sum.
    #[inline]
    pub fn shift(self, step: i64) -> i64 {
        let old = self.0.fetch_add(step.cast_unsigned(), Relaxed).cast_signed();
        old.wrapping_add(step)
    }

    /// Raises the number by one, unless somebody else moved it meanwhile.
    #[inline]
    pub fn raise(self, seen: i64) {
        let next = (seen + 1).cast_unsigned();
        // Whoever moved it first has decided; the next pick raises it again.
        let _ = self.0.compare_exchange(seen.cast_unsigned(), next, Relaxed, Relaxed);
    }
}

/// The first open peer of a sequence that is run through from its start at each try, or none after
/// as many closed ones as nginx passes over in the whole life of a request.
///
/// nginx goes on where it chose last, which costs it nothing: here a peer that was tried is passed
/// over for free the first time.
fn first_open<V: View>(view: &V, mut next: impl FnMut() -> usize) -> Option<usize> {
    let mut passed = Vec::new();
    let mut misses = 0;
    while misses <= MISSES {
        let i = next();
        if view.open(i).is_some() {
            return Some(i);
        }
        if view.tried(i) && !passed.contains(&i) {
            passed.push(i);
        } else {
            misses += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests;
