//! A process at work: its places in the zones, the half-second round, wake-ups.

mod names;
mod place;
pub(crate) mod state;
mod untold;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use peerage_core::declare::DeclaredUpstream;
use peerage_core::event::Event;
use peerage_zone::Worker;

use self::names::Occasion;
use self::place::Place;
use crate::conf::zone::Flush;
use crate::conf::{Main, Zone};
use crate::consul::Terms;
use crate::ffi::cycle::Cycle;
use crate::ffi::global::Global;
use crate::ffi::process;
use crate::ffi::resolve::Resolver;
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::session;
use crate::ffi::timer::{self, Kind, Timer};
use crate::ffi::{task, wake};
use crate::health::{Bounds, telling};
use crate::{audit, net, routing, zone};

/// How often a process looks for others that died.
const ROUND: u64 = 500;
/// ms until the next try where a zone cannot be used yet: its requests are answered 502 meanwhile.
const AGAIN: u64 = 5;

struct State {
    /// One entry a zone.
    places: RefCell<Vec<Place>>,
    /// Zones in which there was no place left, or that are to be merged yet.
    pending: RefCell<Vec<Pending>>,
    round: RefCell<Option<Timer>>,
    running: Cell<bool>,
}

struct Pending {
    zone: Rc<Zone>,
    /// What the configuration declares.
    declared: Vec<DeclaredUpstream>,
    resolver: Option<Resolver>,
    bounds: Bounds,
    terms: Rc<Terms>,
}

static STATE: Global<State> = Global::new(State {
    places: RefCell::new(Vec::new()),
    pending: RefCell::new(Vec::new()),
    round: RefCell::new(None),
    running: Cell::new(false),
});

/// In the master, before it forks: what all processes share.
pub(crate) fn prepare(cycle: Cycle<'_>) -> io::Result<()> {
    // Workers of all generations that live, the next one too, and nginx's own helpers share one
    // process table.
    wake::prepare(process::table_end() + 2 * cycle.workers() + 8)
}

/// Takes a place in every zone and begins the round.
pub(crate) fn begin(main: &Main, cycle: Cycle<'_>) {
    let state = STATE.get();
    // As many as leave room for requests.
    let connections = (cycle.connections() / 4).max(1);
    let bounds = Bounds { workers: cycle.workers(), connections };
    for zone in main.all_zones() {
        let declared = main.declared(&zone);
        let (resolver, terms) = (main.resolver().cloned(), Terms::new(main, &zone));
        let pending = Pending { zone, declared, resolver, bounds, terms };
        if !join(&pending) {
            state.pending.borrow_mut().push(pending);
        }
    }
    if !wake::listen(process::slot(), woken, exiting) {
        log!(Info, "no wake-up for process {}, it will look by itself", process::slot());
    }
    state.running.set(true);
    routing::begin(main);
    look_at_duties(Occasion::Round);
    // What went with this configuration goes before its first request.
    let ended = state.places.borrow().iter().map(Place::expire).fold(false, |a, b| a | b);
    if ended {
        wake_all();
    }
    let timer = Timer::new(Kind::Cancelable, round);
    timer.set(pause(state));
    *state.round.borrow_mut() = Some(timer);
}

/// A process that is at work has another configuration: a single one, after a reload. nginx gives
/// it no connections any more, its resolver neither.
pub(crate) fn reloaded() {
    for place in STATE.get().places.borrow().iter() {
        place.names.end();
        place.prober.end();
        place.watchers.end();
    }
}

/// Gives the places back.
pub(crate) fn end() {
    let state = STATE.get();
    if !state.running.replace(false) {
        return;
    }
    drop(state.round.borrow_mut().take());
    tell_on();
    routing::end();
    net::end();
    state.pending.borrow_mut().clear();
    #[cfg(ngx_feature = "http_ssl")]
    session::forget();
    audit();
    let duties = leave_duties();
    for place in state.places.borrow_mut().drain(..) {
        if let Some(keeper) = place.keeper {
            keeper.finish();
        }
        place.worker.leave();
    }
    if duties {
        wake::all();
    }
    wake::close();
}

/// In the master, after its last worker: what one that died has left unwritten.
pub(crate) fn ended(main: &Main, user: (u32, u32)) {
    for zone in main.zones() {
        let (Some(path), Some(memory)) = (zone.state.as_ref(), zone.memory()) else { continue };
        if zone.flush == Flush::Off || !state::is_behind(&memory.zone) {
            continue;
        }
        let pid = process::pid();
        if let Some(worker) = memory.zone.worker(pid, process::started(pid), &memory.format) {
            let worker: &'static Worker = Box::leak(Box::new(worker));
            // Files that it makes are to be readable for the next workers.
            process::as_user(user, || state::finish(&zone.name, Path::new(path), worker));
            worker.leave();
        }
    }
}

/// Tells every process of this nginx that something it may wait for has changed, and the log what
/// it was.
pub(crate) fn wake_all() {
    audit();
    wake::all();
}

/// Tells events that no change of a zone brings with it.
pub(crate) fn tell(worker: &Worker, events: impl IntoIterator<Item = Event>) {
    let told = {
        let places = STATE.get().places.borrow();
        let Some(place) = places.iter().find(|place| std::ptr::eq(place.worker, worker)) else {
            return;
        };
        place.untold.push(events);
        place.untold.tell()
    };
    if told {
        wake_all();
    }
}

/// Tells of the peers that requests of this process have ejected.
pub(crate) fn tell_ejected(worker: &Worker) {
    tell(worker, worker.take_ejected().into_iter().flat_map(telling::ejected));
}

/// Tells what could not be told before.
fn tell_on() {
    let told = STATE.get().places.borrow().iter().fold(false, |any, p| p.untold.tell() | any);
    if told {
        wake_all();
    }
}

/// Looks on where a look for peers whose time out is over has not come to its end.
fn relieve_on() {
    let places = STATE.get().places.borrow();
    let told = places.iter().filter(|place| place.worker.is_relieving());
    if told.fold(false, |any, place| place.relieve() | any) {
        wake_all();
    }
}

/// Writes what this process told to the log.
fn audit() {
    for place in STATE.get().places.borrow().iter() {
        audit::write(&place.name, &place.worker.take_said());
    }
}

/// Takes a place in a zone and does what the master could not; false: try again later.
fn join(pending: &Pending) -> bool {
    let zone = &pending.zone;
    let Some(memory) = zone.memory() else { return true };
    if zone.worker().is_none() {
        let pid = process::pid();
        let started = process::started(pid);
        let Some(worker) = memory.zone.worker(pid, started, &memory.format) else {
            memory.zone.free_idle(pid, started, &process::alive);
            return false;
        };
        // One of a zone and process, for as long as the process lives: requests refer to it from
        // their pools.
        let worker: &'static Worker = Box::leak(Box::new(worker));
        // Before its first request: where workers die one after the other, none comes to a round.
        worker.sweep(&process::alive, &process::clock());
        let place = Place::new(pending, worker);
        STATE.get().places.borrow_mut().push(place);
        zone.set_worker(worker);
    }
    if zone.is_unmerged() && process::number() == 0 {
        let Some(worker) = zone.worker() else { return false };
        let merged = worker.merge(&pending.declared, &process::clock(), &mut || false);
        zone::report(zone, &merged, crate::log::Log::cycle());
        zone.set_unmerged(merged.busy);
        return !merged.busy;
    }
    true
}

/// Every half second.
fn round() {
    let state = STATE.get();
    let before = state.pending.borrow().len();
    state.pending.borrow_mut().retain(|pending| !join(pending));
    let joined = state.pending.borrow().len() != before;
    let mut changed = false;
    for place in state.places.borrow().iter() {
        let swept = place.worker.sweep(&process::alive, &process::clock());
        if swept.slots != 0 {
            log!(
                Notice,
                "{} dead processes left {} requests in peerage zone \"{}\", taken back",
                swept.slots,
                swept.references,
                place.name
            );
        }
        // A look, so that later ones know since when the disk is behind.
        place.worker.zone().durable().lag(timer::now());
        changed |= place.relieve();
        changed |= swept.slots != 0 || place.expire();
        place.close();
    }
    #[cfg(ngx_feature = "http_ssl")]
    session::sweep();
    // A merge that the master left tells something too.
    if changed | joined {
        wake_all();
    }
    look_at_duties(Occasion::Round);
    if let Some(timer) = state.round.borrow().as_ref() {
        timer.set(pause(state));
    }
}

fn pause(state: &State) -> u64 {
    if state.pending.borrow().is_empty() { ROUND } else { AGAIN }
}

/// Something may have changed that a request here waits for.
fn woken() {
    for place in STATE.get().places.borrow().iter() {
        if let Some(keeper) = &place.keeper {
            keeper.woken();
        }
        place.close_now();
    }
    look_at_duties(Occasion::Event);
    task::wake_all();
}

/// Graceful shutdown begins.
fn exiting() {
    if leave_duties() {
        wake_all();
    }
    task::exiting();
}

fn look_at_duties(occasion: Occasion) {
    for place in STATE.get().places.borrow().iter() {
        place.look_at_duties(occasion);
    }
    routing::look(occasion == Occasion::Round);
}

/// Leaves what one process does for all to those that stay; whether there was anything.
fn leave_duties() -> bool {
    let places = STATE.get().places.borrow();
    places.iter().fold(routing::give_up(), |any, place| place.leave_duties() | any)
}
