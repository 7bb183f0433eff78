//! The state file of a zone: who writes it, when, and how it is read at start.
//!
//! One worker owns the file, by a lease in the zone that it renews; another takes over when the
//! owner has died, or has stopped for longer than the lease. A change shows as a revision that is
//! newer than the durable one: the owner then makes a whole snapshot in slices of 0.5 ms between
//! other events, and the helper thread puts it on the disk. The snapshot is fuzzy: changes go on
//! meanwhile, and it counts for the revision at which it began. What the timer had no time for,
//! [`Keeper::finish`] writes at the exit of the process.

mod file;
mod helper;
mod load;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use peerage_core::snapshot::{Header, Writer};
use peerage_zone::{Cursor, Durable, Worker};

use self::file::Draft;
use self::helper::Helper;
pub(crate) use self::load::{check, keep_copy, load, peek};
use crate::ffi::log::{Level, Log};
use crate::ffi::process;
use crate::ffi::timer::{self, Kind, Timer};

/// What keeps one zone's state file, in one process.
pub(crate) struct Keeper(Rc<Inner>);

struct Inner {
    zone: String,
    path: PathBuf,
    worker: &'static Worker,
    /// How long a change may wait beyond what the disk takes, for others to come with it.
    patience: u64,
    timer: RefCell<Option<Timer>>,
    phase: RefCell<Phase>,
    helper: RefCell<Option<Helper>>,
    /// Whether the file on the disk was looked at, and is to be written whatever the zone says.
    looked: Cell<bool>,
    missing: Cell<bool>,
    /// No snapshot begins before this, monotonic ms.
    not_before: Cell<u64>,
    /// Nor before this, unless somebody waits for it.
    due: Cell<u64>,
    /// When a failure was last logged, monotonic ms.
    logged: Cell<Option<u64>>,
}

enum Phase {
    Idle,
    /// A snapshot is being made.
    Making(Making),
    /// The helper has it whole; it counts for the revision, and took so long until here.
    Writing {
        revision: u64,
        begun: u64,
    },
}

/// A snapshot on its way.
struct Making {
    revision: u64,
    begun: u64,
    cursor: Cursor,
    writer: Writer,
}

impl Keeper {
    /// Begins to keep the file of a zone; to be called in a worker, after fork. `flush` is how
    /// many ms after a change it is to be on the disk.
    pub(crate) fn start(zone: &str, path: &Path, flush: u64, worker: &'static Worker) -> Self {
        let inner = Rc::new(Inner {
            zone: zone.to_owned(),
            path: path.to_owned(),
            worker,
            patience: flush.saturating_sub(1_000) / 2,
            timer: RefCell::new(None),
            phase: RefCell::new(Phase::Idle),
            helper: RefCell::new(None),
            looked: Cell::new(false),
            missing: Cell::new(false),
            not_before: Cell::new(0),
            due: Cell::new(0),
            logged: Cell::new(None),
        });
        let weak = Rc::downgrade(&inner);
        let timer = Timer::new(Kind::Cancelable, move || {
            if let Some(inner) = Weak::upgrade(&weak) {
                inner.tick();
            }
        });
        timer.set(IDLE_MS);
        inner.timer.replace(Some(timer));
        Self(inner)
    }

    /// Looks at once whether there is something to write: somebody waits for it.
    pub(crate) fn hurry(&self) {
        if matches!(*self.0.phase.borrow(), Phase::Idle) {
            self.0.again(0);
        }
    }

    /// The last drain, at the exit of the process: what is in force is on the disk afterwards, as
    /// far as the disk takes it, if no other process sees to that.
    pub(crate) fn finish(self) {
        let inner = self.0;
        inner.timer.take();
        // The thread finishes what it was given whole.
        let helper = inner.helper.take();
        if let Phase::Writing { revision, .. } = inner.phase.replace(Phase::Idle) {
            if let Some(Some(Ok(()))) = helper.map(Helper::finish) {
                inner.succeeded(revision);
            }
        } else {
            drop(helper);
        }
        let begun = Instant::now();
        while inner.is_behind() && begun.elapsed() < LAST_DRAIN {
            if inner.own(Leaving::Yes) {
                if let Err(error) = inner.write_now() {
                    inner.failed(&error);
                    break;
                }
            } else {
                // The owner lives: it writes, or leaves the file to us when it goes.
                thread::sleep(Duration::from_millis(5));
            }
        }
        let owner = inner.durable().owner();
        inner.durable().take(process::pid(), 0);
        if !inner.is_behind() {
            return;
        }
        let (have, want) = (inner.durable().revision(), inner.worker.zone().revision());
        let path = inner.path.display();
        if owner != 0 && owner != process::pid() && process::alive(owner, 0) {
            // It does not run now: it writes when it goes on, or whoever takes its lease over.
            log!(
                Warn,
                "state file \"{path}\" is left to process {owner} at revision {have} of {want}"
            );
        } else if inner.others_live() {
            // Changes go on while this process leaves: whoever stays writes them.
            log!(Info, "state file \"{path}\" is left to others at revision {have} of {want}");
        } else {
            log!(Alert, "state file \"{path}\" is left at revision {have} of {want}");
        }
    }
}

/// Whether the process is about to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Yes,
    No,
}

impl Inner {
    fn durable(&self) -> Durable {
        self.worker.zone().durable()
    }

    /// Whether another process uses the zone.
    fn others_live(&self) -> bool {
        let users = self.worker.zone().report().workers;
        users.iter().any(|&(pid, _)| pid != process::pid() && process::alive(pid, 0))
    }

    fn is_behind(&self) -> bool {
        let zone = self.worker.zone();
        !zone.is_moved() && (self.missing.get() || zone.revision() > self.durable().revision())
    }

    fn again(&self, ms: u64) {
        if let Some(timer) = self.timer.borrow().as_ref() {
            timer.set(ms);
        }
    }

    /// Takes the file, or keeps it. An exiting worker takes it only in its last moment.
    fn own(&self, leaving: Leaving) -> bool {
        let (durable, me, now) = (self.durable(), process::pid(), timer::now());
        if self.worker.zone().is_moved() {
            // The file is the new zone's.
            return false;
        }
        let owner = durable.owner();
        if owner != me {
            let held = owner != 0 && now < durable.lease() && process::alive(owner, 0);
            if held || (leaving == Leaving::No && process::exiting()) {
                return false;
            }
            if !durable.take(owner, me) {
                return false;
            }
        }
        durable.renew(now + LEASE_MS);
        if !self.looked.replace(true) {
            // The zone may have been filled from a file that was damaged, or from another zone.
            let on_disk = file::revision(&self.path);
            self.missing.set(on_disk.unwrap_or(0) < durable.revision());
        }
        self.with_helper(|helper| helper.renew(Duration::from_millis(LEASE_MS)));
        true
    }

    fn tick(&self) {
        let next = match self.phase.replace(Phase::Idle) {
            Phase::Idle => self.idle(),
            Phase::Making(making) => self.slice(making),
            Phase::Writing { revision, begun } => self.written(revision, begun),
        };
        self.again(next);
    }

    /// Looks for something to do; gives the time until the next look.
    fn idle(&self) -> u64 {
        if !self.own(Leaving::No) {
            return IDLE_MS;
        }
        if process::exiting() {
            // Whoever stays takes it; if nobody does, `finish`.
            self.durable().take(process::pid(), 0);
            return IDLE_MS;
        }
        let now = timer::now();
        if !self.is_behind() {
            self.due.set(now + self.patience);
            return IDLE_MS;
        }
        let due = if self.durable().is_wanted() { 0 } else { self.due.get() };
        let next = self.not_before.get().max(due);
        if now < next {
            return IDLE_MS.min(next - now);
        }
        if self.helper.borrow().is_none() {
            match Helper::start(&self.path) {
                Ok(helper) => {
                    helper.renew(Duration::from_millis(LEASE_MS));
                    self.helper.replace(Some(helper));
                }
                Err(error) => {
                    self.failed(&error);
                    return IDLE_MS;
                }
            }
        }
        let mut out = Vec::new();
        let making = self.begin(&mut out);
        self.with_helper(|helper| {
            helper.begin();
            helper.write(out);
        });
        self.slice(making)
    }

    fn begin(&self, out: &mut Vec<u8>) -> Making {
        let zone = self.worker.zone();
        let revision = zone.revision();
        let header = Header::new(&self.zone, revision, zone.next_id(), process::clock().msec);
        let mut writer = Writer::begin(out, &header);
        writer.hosts(out, &self.worker.hosts());
        Making { revision, begun: timer::now(), cursor: Cursor::default(), writer }
    }

    /// Makes one slice of the snapshot.
    fn slice(&self, mut making: Making) -> u64 {
        if !self.own(Leaving::No) {
            self.with_helper(Helper::abort);
            return IDLE_MS;
        }
        if let Some(Err(error)) = self.with_helper(Helper::outcome).flatten() {
            self.failed(&error);
            return IDLE_MS;
        }
        if self.with_helper(Helper::backlog).unwrap_or(0) > BACKLOG {
            self.phase.replace(Phase::Making(making));
            return WAIT_MS;
        }
        let begun = Instant::now();
        let mut out = Vec::new();
        let mut more = true;
        while more && begun.elapsed() < SLICE {
            more = self.piece(&mut making, &mut out);
        }
        if more {
            self.with_helper(|helper| helper.write(out));
            self.phase.replace(Phase::Making(making));
            return 1;
        }
        let Making { revision, begun, writer, .. } = making;
        writer.end(&mut out);
        self.with_helper(|helper| {
            helper.write(out);
            helper.commit();
        });
        self.phase.replace(Phase::Writing { revision, begun });
        1
    }

    /// Adds a few upstreams; false at the end.
    fn piece(&self, making: &mut Making, out: &mut Vec<u8>) -> bool {
        let names = self.worker.walk(&mut making.cursor, PIECE);
        for name in &names {
            // One that went meanwhile is not in the file.
            if let Some((upstream, revision)) = self.worker.read_wanted(name) {
                making.writer.upstream(out, &upstream, revision);
            }
        }
        !names.is_empty()
    }

    /// Looks whether the helper is done.
    fn written(&self, revision: u64, begun: u64) -> u64 {
        self.own(Leaving::No);
        match self.with_helper(Helper::outcome).flatten() {
            None => {
                self.phase.replace(Phase::Writing { revision, begun });
                WAIT_MS
            }
            Some(Ok(())) => {
                self.succeeded(revision);
                // Under a stream of changes, at most a third of the time goes into snapshots.
                let now = timer::now();
                self.not_before.set(now + (2 * (now - begun)).clamp(PAUSE_MS, MAX_PAUSE_MS));
                IDLE_MS
            }
            Some(Err(error)) => {
                self.failed(&error);
                IDLE_MS
            }
        }
    }

    /// Writes the whole file at once.
    fn write_now(&self) -> io::Result<()> {
        let mut draft = Draft::begin(&self.path)?;
        let mut out = Vec::new();
        let mut making = self.begin(&mut out);
        while self.piece(&mut making, &mut out) {
            if out.len() >= BACKLOG {
                draft.write(&out)?;
                out.clear();
            }
        }
        let Making { revision, writer, .. } = making;
        writer.end(&mut out);
        draft.write(&out)?;
        draft.commit(|| true)?;
        self.succeeded(revision);
        Ok(())
    }

    fn succeeded(&self, revision: u64) {
        let durable = self.durable();
        if self.logged.take().is_some() {
            Log::cycle().write(
                Level::Notice,
                0,
                format_args!("state file \"{}\" is written again", self.path.display()),
            );
        }
        self.missing.set(false);
        durable.set_revision(revision);
    }

    fn failed(&self, error: &io::Error) {
        if self.worker.zone().is_moved() {
            return;
        }
        let now = timer::now();
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.durable().set_error(errno, process::clock().msec);
        self.not_before.set(now + RETRY_MS);
        if self.logged.get().is_none_or(|last| now - last >= LOG_MS) {
            self.logged.set(Some(now));
            Log::cycle().write(
                Level::Crit,
                errno,
                format_args!("state file \"{}\" write failed", self.path.display()),
            );
        }
    }

    fn with_helper<R>(&self, act: impl FnOnce(&Helper) -> R) -> Option<R> {
        self.helper.borrow().as_ref().map(act)
    }
}

/// Between two looks for a change.
const IDLE_MS: u64 = 100;
/// Between two looks at the helper.
const WAIT_MS: u64 = 5;
/// How long an owner that does not run keeps the file.
const LEASE_MS: u64 = 5_000;
/// Between a failed write and the next one.
const RETRY_MS: u64 = 1_000;
/// Between two lines about the same trouble.
const LOG_MS: u64 = 60_000;
/// The shortest and the longest time between two snapshots.
const PAUSE_MS: u64 = 200;
const MAX_PAUSE_MS: u64 = 2_000;
/// Bytes that the disk may be behind before the snapshot waits.
const BACKLOG: usize = 4 << 20;
/// Upstreams between two looks at the clock.
const PIECE: usize = 4;
const SLICE: Duration = Duration::from_micros(500);
/// How long a process that exits tries; Debian's unit kills after 5 s.
const LAST_DRAIN: Duration = Duration::from_secs(3);
