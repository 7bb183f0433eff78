//! Balancing methods: which peer takes the next request.
//!
//! A method is a pure function over a [`View`] of one group of peers (the primaries, or the
//! backups). It reads what the view says and moves the levels it is given; it knows neither the
//! memory they live in nor the clock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub mod cycle;
pub mod round_robin;
pub mod sequence;
pub mod spread;

/// The largest group that is balanced by nginx's own algorithm, which looks at every peer.
pub const EXACT_PEERS: usize = 64;

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
