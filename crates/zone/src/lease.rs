//! A duty that one process has at a time: whose it is, and until when that holds.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use peerage_shm::AtomicU64;

use crate::zone::Zone;

/// Two words of a zone.
#[derive(Clone, Copy)]
pub struct Lease {
    owner: &'static AtomicU64,
    until: &'static AtomicU64,
}

impl Lease {
    /// The lease in these words of the root.
    pub(crate) fn new(zone: &Zone, owner: usize, until: usize) -> Self {
        Self { owner: zone.root(owner), until: zone.root(until) }
    }

    /// The lease in these words.
    pub(crate) const fn on(owner: &'static AtomicU64, until: &'static AtomicU64) -> Self {
        Self { owner, until }
    }

    /// Pid of the process whose duty it is, 0 = nobody's.
    pub fn owner(self) -> u32 {
        self.owner.load(Acquire) as u32
    }

    /// Takes the duty from `from`, 0 = nobody, for `to`; false where somebody else was faster.
    pub fn take(self, from: u32, to: u32) -> bool {
        self.owner.compare_exchange(u64::from(from), u64::from(to), AcqRel, Acquire).is_ok()
    }

    /// Until when the owner's word holds, monotonic ms.
    pub fn until(self) -> u64 {
        self.until.load(Acquire)
    }

    /// Prolongs the owner's word.
    pub fn renew(self, until: u64) {
        self.until.store(until, Release);
    }
}
