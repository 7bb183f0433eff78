//! A process's place in a zone.

use std::cell::{Cell, RefCell};
use std::path::Path;

use peerage_core::declare::DeclaredUpstream;
use peerage_zone::{Closing, Worker};

use super::names::{Names, Occasion};
use super::state::{Keeper, Pace};
use super::untold::Untold;
use super::{Pending, ROUND, relieve_on, tell_on};
use crate::conf::Zone;
use crate::conf::zone::{Flush, Orphans};
use crate::consul::Watchers;
use crate::ffi::timer::{self, Kind, Timer};
use crate::ffi::{connections, process};
use crate::health::{Prober, telling};

/// A zone, and all that this process does for it.
pub(super) struct Place {
    pub(super) name: String,
    pub(super) worker: &'static Worker,
    pub(super) keeper: Option<Keeper>,
    pub(super) names: Names,
    pub(super) prober: Prober,
    pub(super) watchers: Watchers,
    orphans: Orphans,
    closing: RefCell<Closing>,
    pub(super) untold: Untold,
    /// Looks on for peers whose time out is over.
    relief: Timer,
    /// When connections were closed last, monotonic ms.
    closed: Cell<u64>,
}

impl Place {
    pub(super) fn new(pending: &Pending, worker: &'static Worker) -> Self {
        let Pending { zone, declared, resolver, bounds, terms } = pending;
        Self {
            name: zone.name.clone(),
            worker,
            keeper: keeper(zone, worker, declared),
            names: Names::new(&zone.name, worker, resolver.clone()),
            prober: Prober::new(&zone.name, worker, *bounds),
            watchers: Watchers::new(&zone.name, worker, terms, bounds.workers),
            orphans: zone.orphans,
            closing: RefCell::new(Closing::new(worker)),
            untold: Untold::new(worker, tell_on),
            relief: Timer::new(Kind::Cancelable, relieve_on),
            closed: Cell::new(0),
        }
    }

    /// What one process does for all: looks whether it is this one's, and whether there is something
    /// to do.
    pub(super) fn look_at_duties(&self, occasion: Occasion) {
        self.names.look(occasion);
        self.prober.look(occasion == Occasion::Round);
        self.watchers.look(occasion == Occasion::Round);
    }

    /// Leaves that to processes that stay; whether there was anything.
    pub(super) fn leave_duties(&self) -> bool {
        self.names.give_up() | self.prober.give_up() | self.watchers.give_up()
    }

    /// Closes connections to servers that were taken out.
    pub(super) fn close(&self) {
        let now = process::clock().msec;
        let due = self.closing.borrow_mut().look(self.worker, now, &connections::idle_upstreams);
        if due.has_idle() {
            connections::close_idle(&due);
        }
        if due.has_requests() {
            connections::end(self.worker, &due);
        }
        if due.has_idle() || due.has_requests() {
            self.closed.set(timer::now());
        }
    }

    /// The same when something has changed, unless that was a moment ago: it walks over all
    /// connections, and there may be many changes.
    pub(super) fn close_now(&self) {
        if timer::now().saturating_sub(self.closed.get()) >= ROUND / 2 {
            self.close();
        }
    }

    /// Looks for peers whose time out is over; tells whether there was anything to tell.
    pub(super) fn relieve(&self) -> bool {
        let relieved = self.worker.relieve(&process::clock());
        self.untold.push(relieved.iter().map(telling::relieved));
        if self.worker.is_relieving() {
            self.relief.set(1);
        }
        self.untold.tell()
    }

    /// Ends what is due; tells whether anything was.
    pub(super) fn expire(&self) -> bool {
        let clock = process::clock();
        let ttl = self.worker.expire(&clock);
        for upstream in &ttl {
            log!(Notice, "time of an admin state is over in upstream \"{upstream}\"");
        }
        let since = match self.orphans {
            // What an old configuration said of orphans holds no more.
            _ if process::exiting() => None,
            Orphans::After(ms) => Some(clock.msec.saturating_sub(ms)),
            Orphans::Off => Some(clock.msec),
            Orphans::Forever => None,
        };
        let gone = since.map(|since| self.worker.expire_orphans(since, &clock)).unwrap_or_default();
        for upstream in &gone {
            log!(Notice, "upstream \"{upstream}\", which no block names any more, is removed");
        }
        !(ttl.is_empty() && gone.is_empty())
    }
}

fn keeper(zone: &Zone, worker: &'static Worker, declared: &[DeclaredUpstream]) -> Option<Keeper> {
    let path = Path::new(zone.state.as_ref()?);
    let pace = match zone.flush {
        Flush::After(ms) => Pace::Within(ms),
        Flush::Always => Pace::Always,
        Flush::Off => return None,
    };
    Some(Keeper::start(&zone.name, path, pace, worker, declared.to_vec()))
}
