//! Events that no change brings with it: told in their order as soon as the zone's lock is free.
//!
//! What they tell of is in force before; a process that dies meanwhile leaves its last ones untold.

use std::cell::RefCell;

use peerage_core::event::Event;
use peerage_zone::Worker;

use crate::ffi::process;
use crate::ffi::timer::{Kind, Timer};

/// Events of this process that wait to be told in a zone.
pub(super) struct Untold {
    worker: &'static Worker,
    events: RefCell<Vec<Event>>,
    again: Timer,
}

impl Untold {
    /// There are none yet; `again` is called a moment after they could not be told.
    pub(super) fn new(worker: &'static Worker, again: fn()) -> Self {
        let again = Timer::new(Kind::Cancelable, again);
        Self { worker, events: RefCell::default(), again }
    }

    /// Adds some.
    pub(super) fn push(&self, events: impl IntoIterator<Item = Event>) {
        let mut waiting = self.events.borrow_mut();
        waiting.extend(events);
        // The lock's holder may be stopped for long; of what happens then the beginning is kept.
        waiting.truncate(MOST);
    }

    /// Tells all there are, if the lock is to be had; whether it told any.
    pub(super) fn tell(&self) -> bool {
        let mut events = self.events.borrow_mut();
        if events.is_empty() {
            return false;
        }
        if !self.worker.tell(&events, &process::clock()) {
            self.again.set(AGAIN_MS);
            return false;
        }
        events.clear();
        true
    }
}

/// Events that wait at most.
const MOST: usize = 10_000;
/// Until the next try.
const AGAIN_MS: u64 = 5;
