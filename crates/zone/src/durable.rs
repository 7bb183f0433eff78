//! What the zone knows of its state file: who writes it, how far, and what went wrong.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::directory::hash;
use crate::layout::root;
use crate::lead::Lead;
use crate::lease::Lease;
use crate::zone::Zone;

/// The words of a zone about its state file.
#[derive(Clone, Copy)]
pub struct Durable(pub(crate) Zone);

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

    /// Who writes the file.
    pub fn lease(self) -> Lease {
        Lease::new(&self.0, root::FILE_OWNER, root::FILE_LEASE)
    }

    /// What told, when the file was read, whether anybody writes it afterwards.
    pub fn seen(self) -> u64 {
        self.0.root(root::FILE_SEEN).load(Acquire)
    }

    /// Says what the file looked like when it was read.
    pub fn set_seen(self, seen: u64) {
        self.0.root(root::FILE_SEEN).store(seen, Release);
    }

    /// Says where the file is; true where that is another place than before: nothing of the zone
    /// is there yet.
    pub fn moves_to(self, path: &[u8]) -> bool {
        let place = place(path);
        let moved = self.0.root(root::FILE_PLACE).swap(place, AcqRel) != place;
        if moved {
            self.0.root(root::DURABLE).store(0, Release);
        }
        moved
    }

    /// Whether the file is there, and not in a place that the zone has left.
    pub fn is_at(self, path: &[u8]) -> bool {
        self.0.root(root::FILE_PLACE).load(Acquire) == place(path)
    }

    /// Says that all that was in force at a time, monotonic ms, is on disk.
    pub fn reached(self, at: u64) {
        self.0.root(root::REACHED).fetch_max(at, AcqRel);
    }

    /// How long the oldest change in force has waited for the disk, ms; 0 where all are there.
    ///
    /// Nobody notes when each change came in force. What is known is up to when all of them are on
    /// disk: by who writes them, and, while none waits, by who looks. So it may be as much too long
    /// as lies between two looks, of which each process has one every half second.
    pub fn lag(self, now: u64) -> u64 {
        // In this order: a change that comes in between counts for the next look.
        let in_force = self.0.revision();
        // What another nginx writes is on its way to the disk there.
        if self.lead() == Lead::Follows || self.revision() >= in_force {
            self.reached(now);
            return 0;
        }
        let reached = self.0.root(root::REACHED);
        // Not even the first change is there.
        let first = reached.compare_exchange(0, now, AcqRel, Acquire);
        first.map_or_else(|at| now.saturating_sub(at), |_| 0)
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

/// A path as a word, never 0.
fn place(path: &[u8]) -> u64 {
    u64::from(hash(path)) | 1 << 32
}
