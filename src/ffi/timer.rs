//! A timer of nginx's event loop that calls a closure and ends with its owner.
//!
//! The closure may drop the timer, or whatever owns it: the handler keeps the memory until it has
//! returned. A `Kind::Keeping` timer holds an exiting worker until it has run; a `Kind::Cancelable`
//! one does not.

use std::cell::UnsafeCell;
use std::mem;
use std::rc::Rc;

use nginx_sys::{
    ngx_add_timer, ngx_current_msec, ngx_cycle, ngx_del_timer, ngx_delete_posted_event,
    ngx_event_t, ngx_msec_t, ngx_post_event, ngx_posted_next_events,
};

/// Whether a worker that exits waits for the timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The worker goes on until the timer has run: a request depends on it.
    Keeping,
    /// The worker exits whatever the timer would do.
    Cancelable,
}

/// A timer; dropping it takes it back.
pub(crate) struct Timer(Rc<Inner>);

/// nginx finds this by the event's `data`; the event comes first, because nginx's debug log reads
/// `data` as a connection and prints its `fd`, which must be readable memory.
#[repr(C)]
struct Inner {
    event: UnsafeCell<ngx_event_t>,
    call: Box<dyn Fn()>,
}

impl Timer {
    /// Makes a timer that is not armed.
    pub(crate) fn new(kind: Kind, call: impl Fn() + 'static) -> Self {
        // SAFETY: ngx_event_t is a C struct of integers, pointers and an optional function, for
        // all of which zero is a value; nginx itself makes events by ngx_pcalloc.
        let mut event: ngx_event_t = unsafe { mem::zeroed() };
        event.handler = Some(expired);
        event.set_cancelable(u32::from(kind == Kind::Cancelable));
        let inner = Rc::new(Inner { event: UnsafeCell::new(event), call: Box::new(call) });
        let data = Rc::as_ptr(&inner).cast_mut().cast();
        // SAFETY: the event was made above and nobody else knows it yet.
        unsafe { (*inner.event.get()).data = data };
        Self(inner)
    }

    /// Arms the timer anew, `ms` from nginx's cached time.
    pub(crate) fn set(&self, ms: u64) {
        self.clear();
        let event = self.0.event.get();
        // SAFETY: `event` lives in the Rc; the log is the running cycle's, which outlives every
        // event that its process runs; not armed, so that ngx_add_timer sets the exact time.
        unsafe {
            (*event).log = (*ngx_cycle).log;
            ngx_add_timer(event, ms as ngx_msec_t);
        }
    }

    /// Calls the closure in the next turn of the event loop, after what has happened until then.
    ///
    /// It does not hold an exiting worker: whoever depends on it keeps another timer armed.
    pub(crate) fn post(&self) {
        self.clear();
        let event = self.0.event.get();
        // SAFETY: as in `set`; the queue is nginx's own and is initialised in every worker.
        unsafe {
            (*event).log = (*ngx_cycle).log;
            ngx_post_event(event, &raw mut ngx_posted_next_events);
        }
    }

    /// Whether the next turn of the event loop calls the closure.
    pub(crate) fn is_posted(&self) -> bool {
        // SAFETY: as in `clear`.
        unsafe { (*self.0.event.get()).posted() != 0 }
    }

    /// Takes the timer back, if it is armed.
    pub(crate) fn clear(&self) {
        let event = self.0.event.get();
        // SAFETY: `event` lives in the Rc, and the flags say in which of nginx's structures it is.
        unsafe {
            if (*event).timer_set() != 0 {
                ngx_del_timer(event);
            }
            if (*event).posted() != 0 {
                ngx_delete_posted_event(event);
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.clear();
    }
}

callback! {
    /// nginx calls it when the time has come, with the event already out of its structures.
    fn expired(event: *mut ngx_event_t) -> (), or (); {
        // SAFETY: nginx calls with an event that is armed, hence owned by a living Timer, and
        // `data` is that Timer's Rc; the added count keeps it alive through the call.
        let inner = unsafe {
            let data = (*event).data.cast::<Inner>().cast_const();
            Rc::increment_strong_count(data);
            Rc::from_raw(data)
        };
        (inner.call)();
    }
}

/// The same clock as it is now, not as it was when the event loop woke up.
pub(crate) fn fresh() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a writable timespec; the clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// nginx's cached monotonic time, in ms; the same clock in every process.
pub(crate) fn now() -> u64 {
    // SAFETY: a plain integer that nginx's one thread writes between events.
    unsafe { ngx_current_msec as u64 }
}
