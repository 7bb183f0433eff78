//! The state file of a zone: who writes it, when, and how it is read at start.
//!
//! One worker does it, by a lease in the zone that it renews; another takes over when it has died,
//! or has stopped for longer than the lease. What it writes, it has from the zone's ring and from
//! the zone itself, so that two who both take themselves for the one write the same. Between two
//! masters, the lock file and the first lines of the journals decide, see [`lead`]: a zone that
//! does not write takes over what another one has written, and refuses changes meanwhile.
//!
//! Everything that may block is done by a helper thread. What the timer had no time for,
//! [`Keeper::finish`] writes at the exit of the process.

mod checkpoint;
mod clerk;
mod fence;
mod file;
mod helper;
mod journal;
mod last;
mod lead;
mod load;
mod pen;
mod source;
mod subject;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::thread::JoinHandle;

use peerage_core::declare::DeclaredUpstream;
use peerage_shm::point;
use peerage_zone::{Lead, Worker, Zone};

pub(crate) use self::clerk::REPLACED;
use self::fence::Fence;
pub(crate) use self::file::read as read_whole;
use self::helper::Helper;
use self::lead::Duty;
pub(crate) use self::load::{Found, check, keep_copy, load, peek, prepare, seen};
pub(crate) use self::subject::Pace;
use self::subject::Subject;
use crate::ffi::process;
use crate::ffi::timer::{self, Kind, Timer};

/// Replaces a whole file as snapshots are replaced. It may block.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Processes that could not wait for a disk. One that lives may write yet.
    file::sweep(path, |pid| !process::alive(pid, 0));
    let mut draft = file::Draft::begin(path)?;
    draft.write(bytes)?;
    draft.settle()?;
    draft.replace().map(drop)
}

/// What keeps one zone's state file, in one process.
pub(crate) struct Keeper(Rc<Inner>);

struct Inner {
    subject: Subject,
    timer: RefCell<Option<Timer>>,
    fence: RefCell<Option<Rc<Fence>>>,
    helper: RefCell<Option<Helper>>,
    /// Threads that were given up and may still wait for the disk.
    ending: RefCell<Vec<JoinHandle<()>>>,
    duty: RefCell<Duty>,
    /// Since when this exiting process has seen nobody write, monotonic ms.
    alone: Cell<Option<u64>>,
}

impl Keeper {
    /// Begins to keep the file of a zone; to be called in a worker, after fork.
    pub(crate) fn start(
        zone: &str,
        path: &Path,
        pace: Pace,
        worker: &'static Worker,
        declared: Vec<DeclaredUpstream>,
    ) -> Self {
        let inner = Rc::new(Inner {
            subject: Subject::new(zone, path.to_owned(), worker, declared, pace),
            timer: RefCell::new(None),
            fence: RefCell::new(None),
            ending: RefCell::default(),
            helper: RefCell::new(None),
            duty: RefCell::new(Duty::none()),
            alone: Cell::new(None),
        });
        let weak = Rc::downgrade(&inner);
        let timer = Timer::new(Kind::Cancelable, move || {
            if let Some(inner) = Weak::upgrade(&weak) {
                inner.tick();
            }
        });
        inner.timer.replace(Some(timer));
        inner.arrive();
        inner.again(0);
        Self(inner)
    }

    /// Something may have happened: looks whether there is something to do at once.
    pub(crate) fn woken(&self) {
        let durable = self.0.subject.durable();
        if durable.lease().owner() == process::pid() {
            self.0.tick();
        }
    }

    /// The last drain, at the exit of the process: what is in force is on the disk afterwards, as
    /// far as the disk takes it, if no other process sees to that.
    pub(crate) fn finish(self) {
        let inner = self.0;
        inner.timer.take();
        let mut duty = inner.duty.replace(Duty::none());
        // The thread finishes what it was given.
        if let Some(helper) = inner.helper.take() {
            for outcome in helper.finish() {
                duty.hear_last(&inner.subject, outcome);
            }
        }
        for thread in inner.ending.take() {
            // The module may be unloaded after this. A panic in it was an outcome already.
            let _ = thread.join();
        }
        let fence = inner.fence.take();
        last::drain(&inner.subject, fence.as_deref(), |leave| inner.own(leave));
        if let Some(fence) = fence {
            // It ends with the process anyway.
            let _ = fence.withdraw(inner.subject.durable().instance());
        }
    }
}

/// Whether something in force is not on the disk, of a zone that writes a file.
pub(crate) fn is_behind(zone: &Zone) -> bool {
    let durable = zone.durable();
    let writes = match durable.lead() {
        Lead::Leads => true,
        // It wrote, or is to take another's place, and nobody has looked yet whether another master
        // writes now.
        Lead::Waiting => durable.epoch() != 0 || durable.seen() == REPLACED,
        Lead::Free | Lead::Follows => false,
    };
    writes && !zone.is_moved() && zone.revision() > durable.revision()
}

/// Writes what processes that died have left; for a master without any.
pub(crate) fn finish(zone: &str, path: &Path, worker: &'static Worker) {
    let subject = Subject::new(zone, path.to_owned(), worker, Vec::new(), Pace::Always);
    let durable = subject.durable();
    last::drain(&subject, None, |_| {
        let owner = durable.lease().owner();
        let is_free = owner == process::pid() || owner == 0 || !process::alive(owner, 0);
        is_free && (owner == process::pid() || durable.lease().take(owner, process::pid()))
    });
}

/// Whether the process is about to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Yes,
    No,
}

impl Inner {
    fn again(&self, ms: u64) {
        if let Some(timer) = self.timer.borrow().as_ref() {
            timer.set(ms);
        }
    }

    /// A process begins. Where nobody else works on the zone, another master may have written the
    /// file since somebody did: nothing is changed before that is known.
    fn arrive(&self) {
        let durable = self.subject.durable();
        let Ok(fence) = self.fence() else { return };
        let others = fence.is_attended(durable.instance()).unwrap_or(true);
        if !others && durable.lead() == Lead::Leads {
            durable.set_lead(Lead::Waiting);
        }
        self.attend(&fence);
    }

    /// The lock file, opened.
    fn fence(&self) -> io::Result<Rc<Fence>> {
        let old = self.fence.borrow().clone();
        if let Some(fence) = old {
            return Ok(fence);
        }
        let fence = Rc::new(Fence::open(&self.subject.path)?);
        self.fence.replace(Some(Rc::clone(&fence)));
        self.attend(&fence);
        Ok(fence)
    }

    fn start_helper(&self) -> io::Result<()> {
        if self.helper.borrow().is_none() {
            self.helper.replace(Some(Helper::start(&self.subject.path)?));
        }
        Ok(())
    }

    /// Leaves the duty to others, without waiting for what the helper is doing.
    fn give_up(&self) {
        let mut ending = self.ending.borrow_mut();
        ending.retain(|thread| !thread.is_finished());
        ending.extend(self.helper.take().and_then(Helper::dismiss));
        self.duty.replace(Duty::none());
    }

    fn attend(&self, fence: &Fence) {
        let instance = self.subject.durable().instance();
        if let Err(error) = fence.attend(instance) {
            self.subject.failed(&error);
        }
    }

    fn withdraw(&self) {
        if let Some(fence) = self.fence.borrow().as_ref() {
            // It ends with the process anyway.
            let _ = fence.withdraw(self.subject.durable().instance());
        }
    }

    /// Takes the duty, or keeps it. An exiting worker takes it only where nobody stays, or in its
    /// last moment.
    fn own(&self, leaving: Leaving) -> bool {
        let (durable, me, now) = (self.subject.durable(), process::pid(), timer::now());
        if self.subject.zone().is_moved() {
            // The file is the new zone's.
            return false;
        }
        if !self.subject.is_here() {
            // Nor is the zone this file's any more.
            durable.lease().take(me, 0);
            self.withdraw();
            return false;
        }
        let owner = durable.lease().owner();
        let exiting = leaving == Leaving::No && process::exiting();
        if owner != me {
            if owner != 0 && now < durable.lease().until() && process::alive(owner, 0) {
                self.alone.set(None);
                return false;
            }
            if exiting && !self.is_alone(now) {
                return false;
            }
            if !durable.lease().take(owner, me) {
                return false;
            }
            point!("duty.taken");
            // It may have withdrawn, while nobody of the zone wrote.
            let fence = self.fence.borrow().clone();
            if let Some(fence) = fence {
                self.attend(&fence);
            }
        } else if exiting && self.alone.get().is_none() {
            // Those who stay come first.
            self.alone.set(Some(now));
            durable.lease().take(me, 0);
            return false;
        }
        durable.lease().renew(now + LEASE_MS);
        true
    }

    /// Whether nobody has wanted the duty for so long that nobody will.
    fn is_alone(&self, now: u64) -> bool {
        if self.subject.durable().lead() != Lead::Leads {
            // Nor is there anything to do; another master's zone may go on.
            self.withdraw();
            return false;
        }
        match self.alone.get() {
            Some(since) => now >= since + ALONE_MS,
            None => {
                self.alone.set(Some(now));
                false
            }
        }
    }

    fn tick(&self) {
        let next = self.look();
        self.again(next);
    }

    /// Does what is to be done now; gives the time until the next look.
    fn look(&self) -> u64 {
        if !self.own(Leaving::No) {
            self.give_up();
            return IDLE_MS;
        }
        if let Err(error) = self.fence().and_then(|_| self.start_helper()) {
            return self.duty.borrow_mut().fail(&self.subject, &error);
        }
        let next = self.go_on();
        if self.fence.borrow().is_none() {
            self.give_up();
        }
        next
    }

    /// Hears the helper and goes on with the duty.
    fn go_on(&self) -> u64 {
        let helper = self.helper.borrow();
        let Some(helper) = helper.as_ref() else { return IDLE_MS };
        let mut duty = self.duty.borrow_mut();
        while let Some(outcome) = helper.outcome() {
            if outcome.has_lost_lock() {
                // Somebody removed it: others lock another file now.
                self.fence.take();
            }
            duty.hear(&self.subject, helper, outcome);
        }
        let next = duty.turn(&self.subject, helper);
        if process::exiting() && duty.is_done(&self.subject) && self.resign() {
            return IDLE_MS;
        }
        next
    }

    /// The last of a zone's processes that are about to end lets another master's go on; false
    /// while a change is on its way.
    fn resign(&self) -> bool {
        if !self.subject.worker.resign(&mut || false) {
            return false;
        }
        if self.subject.zone().revision() > self.subject.durable().revision() {
            // One that came before: it is written in the next turn, or at the exit.
            self.subject.durable().set_lead(Lead::Leads);
            return false;
        }
        self.withdraw();
        self.subject.durable().lease().take(process::pid(), 0);
        true
    }
}

/// Between two looks for somebody else's duty.
const IDLE_MS: u64 = 100;
/// How long an owner that does not run keeps the duty.
const LEASE_MS: u64 = 5_000;
/// After so long an exiting process takes it that no other will write.
const ALONE_MS: u64 = 300;
