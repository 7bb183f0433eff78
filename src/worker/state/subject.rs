//! A zone and the state file that is kept of it, and what goes wrong with the file.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;

use peerage_core::declare::DeclaredUpstream;
use peerage_zone::{Durable, Lead, Worker, Zone};

use crate::ffi::log::{Level, Log};
use crate::ffi::process;
use crate::ffi::timer;

/// What is kept, where, and for whom.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) worker: &'static Worker,
    /// What this process's configuration declares: a state that another master wrote is merged
    /// with it.
    pub(super) declared: Vec<DeclaredUpstream>,
    /// How long a change may wait beyond what the disk takes, for others to come with it, ms.
    pub(super) patience: u64,
    /// Whether answers wait until changes are on the disk.
    pub(super) always: bool,
    /// When a failure was last logged, monotonic ms; `None`: all is well.
    logged: Cell<Option<u64>>,
    /// Since when somebody else has been inside the lock, and when that was seen last.
    kept_out: Cell<Option<(u64, u64)>>,
}

impl Subject {
    pub(super) fn new(
        name: &str,
        path: PathBuf,
        worker: &'static Worker,
        declared: Vec<DeclaredUpstream>,
        flush: Pace,
    ) -> Self {
        let (patience, always) = match flush {
            Pace::Within(ms) => (ms.saturating_sub(1_000) / 2, false),
            Pace::Always => (0, true),
        };
        let (logged, kept_out) = (Cell::new(None), Cell::new(None));
        Self { name: name.to_owned(), path, worker, declared, patience, always, logged, kept_out }
    }

    pub(super) fn zone(&self) -> &Zone {
        self.worker.zone()
    }

    pub(super) fn durable(&self) -> Durable {
        self.zone().durable()
    }

    /// Whether the zone's file is this one; a reload may have given it another.
    pub(super) fn is_here(&self) -> bool {
        self.durable().is_at(self.path.as_os_str().as_encoded_bytes())
    }

    /// Says where the zone stands, unless it has no file any more.
    pub(super) fn set_lead(&self, lead: Lead) {
        if self.durable().lead() != Lead::Free {
            self.durable().set_lead(lead);
        }
    }

    /// Somebody else is inside the lock; said if that lasts, as with one that is stopped there.
    pub(super) fn is_kept_out(&self) {
        let now = timer::now();
        let since = self.kept_out.get().filter(|&(_, last)| now - last < 1_000);
        let since = since.map_or(now, |(since, _)| since);
        self.kept_out.set(Some((since, now)));
        if now - since >= KEPT_OUT_MS {
            self.kept_out.set(None);
            self.failed(&io::Error::from_raw_os_error(libc::EBUSY));
        }
    }

    /// All up to a revision is on the disk.
    pub(super) fn succeeded(&self, revision: u64) {
        if !self.is_here() {
            return;
        }
        if self.logged.take().is_some() {
            let path = self.path.display();
            log!(Notice, "state file \"{path}\" is written again");
        }
        self.durable().set_revision(revision);
    }

    /// A write failed: said once a minute.
    pub(super) fn failed(&self, error: &io::Error) {
        if self.zone().is_moved() {
            return;
        }
        let now = timer::now();
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.durable().set_error(errno, process::clock().msec);
        if self.logged.get().is_none_or(|last| now - last >= LOG_MS) {
            self.logged.set(Some(now));
            let path = self.path.display();
            Log::cycle().write(
                Level::Crit,
                errno,
                format_args!("state file \"{path}\" write failed"),
            );
        }
    }
}

/// When a change is to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// So many ms after it is in force.
    Within(u64),
    /// Before it is answered.
    Always,
}

/// How long somebody else may be inside the lock before it is an error.
const KEPT_OUT_MS: u64 = 5_000;
/// Between two lines about the same trouble.
const LOG_MS: u64 = 60_000;
