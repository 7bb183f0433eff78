//! A zone and the state file that is kept of it, and what goes wrong with the file.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;

use peerage_core::declare::DeclaredUpstream;
use peerage_zone::{Durable, Worker, Zone};

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
        let logged = Cell::new(None);
        Self { name: name.to_owned(), path, worker, declared, patience, always, logged }
    }

    pub(super) fn zone(&self) -> &Zone {
        self.worker.zone()
    }

    pub(super) fn durable(&self) -> Durable {
        self.zone().durable()
    }

    /// All up to a revision is on the disk.
    pub(super) fn succeeded(&self, revision: u64) {
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
            let text = format_args!("state file \"{path}\" write failed");
            Log::cycle().write(Level::Crit, errno, text);
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

/// Between two lines about the same trouble.
const LOG_MS: u64 = 60_000;
