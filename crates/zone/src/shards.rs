//! Who probes which peers: they are dealt out in parts, each of which one process has at a time.
//!
//! A process that has a part renews its word for it, and loses it when it dies or does not run for
//! too long; whoever lost it does nothing for it any more. One that would rather have a part calls
//! for it, and is given it by the one that has it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use peerage_core::check::schedule::SHARDS;
use peerage_shm::AtomicU64;

use crate::layout::{high, low, pack, root};
use crate::zone::Zone;

/// A part of the peers.
#[derive(Clone, Copy)]
pub struct Shard {
    holder: &'static AtomicU64,
    caller: &'static AtomicU64,
}

/// Whose a part is, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(u64);

impl Zone {
    /// The parts, by their numbers.
    pub fn shards(&self) -> impl Iterator<Item = (u32, Shard)> {
        let zone = *self;
        (0..SHARDS).map(move |i| (i, zone.shard(i)))
    }

    /// The part of that number.
    pub fn shard(&self, i: u32) -> Shard {
        let i = (i % SHARDS) as usize;
        Shard { holder: self.root(root::SHARDS + i), caller: self.root(root::CALLERS + i) }
    }
}

impl Holder {
    /// Its pid, 0 = nobody's.
    pub fn pid(self) -> u32 {
        low(self.0)
    }

    /// Whether its word holds no more at this time, monotonic ms.
    pub fn is_over(self, now: u64) -> bool {
        // The clock's unit goes round within two years.
        (high(self.0).wrapping_sub(units(now)) as i32) <= 0
    }
}

impl Shard {
    /// Whose it is.
    pub fn holder(self) -> Holder {
        Holder(self.holder.load(Acquire))
    }

    /// Makes it `pid`'s for so many ms from now on, if it is as it was seen; false where somebody
    /// else was faster.
    pub fn take(self, seen: Holder, pid: u32, now: u64, ms: u64) -> bool {
        // Rounded up, so that the time is not over at once.
        let word = pack(units(now + ms + UNIT - 1), pid);
        let took = self.holder.compare_exchange(seen.0, word, AcqRel, Acquire).is_ok();
        if took && pid != 0 {
            self.end_call(pid);
        }
        took
    }

    /// Who calls for it, 0 = nobody.
    pub fn caller(self) -> u32 {
        self.caller.load(Acquire) as u32
    }

    /// Calls for it.
    pub fn call(self, pid: u32) {
        self.caller.store(pid.into(), Relaxed);
    }

    /// Who called has it, or wants it no more; another's call stays.
    pub fn end_call(self, pid: u32) {
        let _ = self.caller.compare_exchange(pid.into(), 0, Relaxed, Relaxed);
    }
}

/// The time as it is in a word.
fn units(ms: u64) -> u32 {
    (ms / UNIT) as u32
}

/// ms of a unit.
const UNIT: u64 = 16;
