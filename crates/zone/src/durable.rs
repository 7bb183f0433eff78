//! What the zone knows of its state file: who writes it, how far, and what went wrong.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::root;
use crate::zone::Zone;

/// The words of a zone about its state file.
#[derive(Clone, Copy)]
pub struct Durable(Zone);

impl Zone {
    /// What the zone knows of its state file.
    pub const fn durable(&self) -> Durable {
        Durable(*self)
    }
}

impl Durable {
    /// Revision that is on disk.
    pub fn revision(self) -> u64 {
        self.0.root(root::DURABLE).load(Acquire)
    }

    /// Says that a revision is on disk; the last error is over.
    pub fn set_revision(self, revision: u64) {
        self.0.root(root::DURABLE).fetch_max(revision, AcqRel);
        self.0.root(root::FILE_ERROR).store(0, Release);
    }

    /// Says that somebody waits for this revision to be on disk.
    pub fn want(self, revision: u64) {
        self.0.root(root::FLUSH_WANTED).fetch_max(revision, AcqRel);
    }

    /// Whether somebody waits for what is not on disk yet.
    pub fn is_wanted(self) -> bool {
        self.0.root(root::FLUSH_WANTED).load(Acquire) > self.revision()
    }

    /// Pid of the process that writes the file, 0 = nobody.
    pub fn owner(self) -> u32 {
        self.0.root(root::FILE_OWNER).load(Acquire) as u32
    }

    /// Takes the file from `from`, 0 = nobody; false where somebody else was faster.
    pub fn take(self, from: u32, to: u32) -> bool {
        let owner = self.0.root(root::FILE_OWNER);
        owner.compare_exchange(u64::from(from), u64::from(to), AcqRel, Acquire).is_ok()
    }

    /// Until when the owner's word holds, monotonic ms.
    pub fn lease(self) -> u64 {
        self.0.root(root::FILE_LEASE).load(Acquire)
    }

    /// Prolongs the owner's word.
    pub fn renew(self, until: u64) {
        self.0.root(root::FILE_LEASE).store(until, Release);
    }

    /// errno of the last write if it failed, 0 = it did not.
    pub fn error(self) -> i32 {
        self.0.root(root::FILE_ERROR).load(Acquire) as i32
    }

    /// Writes that failed.
    pub fn errors(self) -> u64 {
        self.0.root(root::FILE_ERRORS).load(Relaxed)
    }

    /// When the last failed write was, unix ms.
    pub fn error_at(self) -> u64 {
        self.0.root(root::FILE_ERROR_AT).load(Relaxed)
    }

    /// Says that a write failed.
    pub fn set_error(self, errno: i32, at: u64) {
        self.0.root(root::FILE_ERROR_AT).store(at, Relaxed);
        self.0.root(root::FILE_ERRORS).fetch_add(1, Relaxed);
        self.0.root(root::FILE_ERROR).store(errno.cast_unsigned().into(), Release);
    }
}
