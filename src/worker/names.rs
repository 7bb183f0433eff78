//! Names that are resolved at run time: one worker of the whole nginx asks http{}'s resolver.
//!
//! Which one that is, a lease in the zone says, which it renews every round; another takes over
//! when it has died, does not run, or is about to exit. What the resolver answers is applied as a
//! change; while it does not, what a name had last stays.

mod roll;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use peerage_zone::Worker;

use self::roll::{Duty, Heard};
use crate::duty::{self, Whose};
use crate::ffi::process;
use crate::ffi::resolve::Resolver;
use crate::ffi::timer::{Kind, Timer};

/// What resolves the names of one zone, in one process.
pub(super) struct Names(Rc<Inner>);

struct Inner {
    zone: String,
    worker: &'static Worker,
    resolver: RefCell<Option<Resolver>>,
    timer: RefCell<Option<Timer>>,
    /// In the process whose duty it is.
    duty: RefCell<Option<Duty>>,
    /// What the resolver said and nobody has looked at yet.
    heard: RefCell<Vec<Heard>>,
    /// It has been said that there is no resolver.
    said: Cell<bool>,
}

/// On which occasion it is looked whether there is something to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The half-second round, in which it is looked for processes that died.
    Round,
    /// Anything else.
    Event,
}

impl Names {
    pub(super) fn new(zone: &str, worker: &'static Worker, resolver: Option<Resolver>) -> Self {
        let inner = Rc::new(Inner {
            zone: zone.to_owned(),
            worker,
            resolver: RefCell::new(resolver),
            timer: RefCell::new(None),
            duty: RefCell::new(None),
            heard: RefCell::default(),
            said: Cell::new(false),
        });
        let weak = Rc::downgrade(&inner);
        let timer = Timer::new(Kind::Cancelable, move || {
            if let Some(inner) = Weak::upgrade(&weak) {
                inner.look(Occasion::Event);
            }
        });
        inner.timer.replace(Some(timer));
        Self(inner)
    }

    /// Looks whether there is something to do; costs next to nothing where it is not this
    /// process's duty, or where there are no names.
    pub(super) fn look(&self, occasion: Occasion) {
        self.0.look(occasion);
    }

    /// Leaves the duty to others; true if it was this process's.
    pub(super) fn give_up(&self) -> bool {
        self.0.stop();
        duty::leave(self.0.worker.zone().names().lease())
    }

    /// Asks nobody any more.
    pub(super) fn end(&self) {
        self.give_up();
        self.0.resolver.take();
        self.0.said.set(true);
    }
}

impl Inner {
    fn look(self: &Rc<Self>, occasion: Occasion) {
        let next = self.turn(occasion);
        if let (Some(timer), Some(ms)) = (self.timer.borrow().as_ref(), next) {
            timer.set(ms);
        }
    }

    /// Ends what this process does for its duty.
    fn stop(&self) {
        if let Some(timer) = self.timer.borrow().as_ref() {
            timer.clear();
        }
        self.duty.take();
        self.heard.take();
    }

    /// Does what is to be done now; gives the time until the next look, if that is not some event.
    fn turn(self: &Rc<Self>, occasion: Occasion) -> Option<u64> {
        let generation = self.worker.zone().names().generation().now();
        if generation == 0 {
            return None;
        }
        let Some(resolver) = self.resolver.borrow().clone() else {
            self.say_missing();
            return None;
        };
        if !self.own(occasion) {
            self.stop();
            return None;
        }
        let mut duty = self.duty.borrow_mut();
        let duty = duty.get_or_insert_default();
        let end = Instant::now() + SLICE;
        duty.learn(self, generation, occasion, end);
        for heard in self.heard.take() {
            duty.hear(self, heard);
        }
        let again = duty.apply(self, end);
        duty.ask(self, &resolver);
        if !self.heard.borrow().is_empty() {
            return Some(1);
        }
        again.into_iter().chain(duty.next()).min()
    }

    /// Whether it is this process's duty; takes it where it is nobody's.
    fn own(&self, occasion: Occasion) -> bool {
        let lease = self.worker.zone().names().lease();
        if !duty::may(self.worker) {
            duty::leave(lease);
            return false;
        }
        let whose = duty::take(lease, occasion == Occasion::Round);
        if whose == Whose::OursAnew {
            self.stop();
        }
        whose != Whose::Another
    }

    /// Whether it is still this process's duty, by a clock that has gone on while it was stopped.
    fn is_owner(&self) -> bool {
        duty::is_ours(self.worker.zone().names().lease())
    }

    /// Says once that names stay as they are.
    fn say_missing(&self) {
        if self.said.replace(true) || process::number() != 0 || process::exiting() {
            return;
        }
        let some = (0..).map_while(|bucket| self.worker.named(bucket)).flatten().next();
        let host = some.and_then(|named| named.hosts.into_iter().next());
        if let Some((host, _)) = host {
            log!(Warn, "no resolver defined to resolve \"{host}\", zone \"{}\"", self.zone);
        }
    }
}

/// How long a turn takes, about.
const SLICE: Duration = Duration::from_millis(2);
