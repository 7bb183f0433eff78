//! A zone's life in the master: laid out or found again, filled from its file, merged with what
//! the configuration declares.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use peerage_core::merge::Conflict;
use peerage_core::name::UpstreamName;
use peerage_core::snapshot::Loaded;
use peerage_core::upstream::Defaults;
use peerage_zone::{Format, Inherited, Lead, Merged, Need, Numbers};

use crate::audit;
use crate::conf::zone::{Flush, Memory};
use crate::conf::{Main, Zone};
use crate::ffi::cycle::Cycle;
use crate::ffi::global::Global;
use crate::ffi::process;
use crate::ffi::shm;
use crate::log::{Level, Log};
use crate::worker::state::{self, Found};

/// What this build lays out, another one does not read.
pub(crate) const BUILD: u64 = parse_hex(env!("PEERAGE_BUILD"));

/// How long the master tries to write before it leaves a commit to a worker.
const PATIENCE: Duration = Duration::from_secs(1);

/// Called in the master while it makes a configuration's zones: a new mapping is laid out, one
/// that old workers run on is only looked at.
pub(crate) fn open(zone: &Zone, memory: Option<shm::Memory>, log: Log<'_>) -> Result<(), ()> {
    let fail = |text: std::fmt::Arguments<'_>| {
        log.write(Level::Emerg, 0, text);
        Err(())
    };
    let name = &zone.name;
    let Some(memory) = memory else {
        return fail(format_args!("peerage zone \"{name}\" is too small"));
    };
    let cycle = zone.home().cycle();
    let format = Format {
        build: BUILD,
        slots: u16::try_from(2 * cycle.workers() + 2).unwrap_or(u16::MAX),
        connections: u32::try_from(cycle.connections()).unwrap_or(u32::MAX),
    };
    let found = if memory.fresh {
        match peerage_zone::Zone::format(memory.region, memory.lock, &format) {
            Ok(found) => found,
            Err(_) => {
                return fail(format_args!(
                    "peerage zone \"{name}\" is too small: {}k, at least {}k needed for {} \
                     workers of {} connections",
                    zone.size / 1024,
                    kilobytes_for(&format, 0),
                    cycle.workers(),
                    format.connections
                ));
            }
        }
    } else {
        match peerage_zone::Zone::attach(memory.region, memory.lock, BUILD) {
            Ok(found) => found,
            Err(error) => {
                return fail(format_args!("cannot use peerage zone \"{name}\": {error}"));
            }
        }
    };
    if memory.fresh && zone.of_store {
        // It begins anew with another size, whatever the old one has: nothing is refused.
        let Some(numbers) = free_numbers(zone, cycle) else {
            return fail(format_args!("too many redis, \"{name}\" has no numbers for its apps"));
        };
        found.set_numbers(numbers);
    } else if memory.fresh
        && let Some(old) = cycle.old_zone(zone).and_then(Zone::memory)
    {
        let me = (process::pid(), process::started(process::pid()));
        let Some((need, upstreams)) = old.zone.need(me, &old.format, &mut patience()) else {
            return fail(format_args!(
                "peerage zone \"{name}\" is busy, its size cannot be changed now"
            ));
        };
        if need.bytes() > found.report().free {
            return fail(format_args!(
                "peerage zone \"{name}\" is too small: {}k, at least {}k needed for its \
                 {upstreams} upstreams",
                zone.size / 1024,
                kilobytes_for(&format, need.bytes()),
            ));
        }
    }
    zone.set_memory(Memory { zone: found, format, fresh: memory.fresh });
    Ok(())
}

/// Numbers for the upstreams of a store's zone: such as no other store of the configuration has, or
/// takes over from the old one, where stores may stand in another order.
fn free_numbers(zone: &Zone, cycle: Cycle<'_>) -> Option<Numbers> {
    let stores = cycle.main()?.stores();
    let others = stores.iter().map(|store| &store.apps).filter(|apps| apps.name != zone.name);
    let memory =
        |apps: &Rc<Zone>| apps.memory().or_else(|| cycle.old_zone(apps).and_then(Zone::memory));
    let taken: Vec<Numbers> =
        others.filter_map(memory).map(|memory| memory.zone.numbers()).collect();
    (0..).map_while(Numbers::of_store).find(|numbers| !taken.contains(numbers))
}

/// The size that a zone needs for so many bytes besides what is always there.
fn kilobytes_for(format: &Format, need: u64) -> u64 {
    let region = |size| usize::try_from(size).map_or(size, |size| shm::usable(size) as u64);
    format.size_for(need, shm::page_size() as u64, &region) / 1024
}

/// Waits a little, as often as the master's patience lasts.
fn patience() -> impl FnMut() -> bool {
    let begun = Instant::now();
    move || {
        std::thread::sleep(Duration::from_millis(1));
        begun.elapsed() < PATIENCE
    }
}

/// Under `nginx -t`: warns about a zone that is too small for its state file, which is only read.
pub(crate) fn check_size(zone: &Zone, cycle: Cycle<'_>) {
    let (Some(path), Some(memory)) = (zone.state.as_ref(), zone.memory()) else { return };
    if let Some(loaded) = state::peek(Path::new(path)) {
        warn_of_size(zone, &memory, &loaded, cycle.complaints());
    }
}

/// Says that not all of a state file will fit.
fn warn_of_size(zone: &Zone, memory: &Memory, loaded: &Loaded, log: Log<'_>) {
    let upstreams = loaded.upstreams.iter().map(|(upstream, _)| upstream);
    let routes = loaded.routes.iter().map(|(route, _)| route);
    let need = Need::of(upstreams, &loaded.hosts).and_routes(routes).bytes();
    if need > memory.zone.report().free {
        log.write(
            Level::Warn,
            0,
            format_args!(
                "peerage zone \"{}\" is too small for its state file: {}k, at least {}k needed",
                zone.name,
                zone.size / 1024,
                kilobytes_for(&memory.format, need)
            ),
        );
    }
}

/// Warns about a state file that could not be written, also under `nginx -t`.
pub(crate) fn check_state(zone: &Zone, cycle: Cycle<'_>) {
    let Some(path) = zone.state.as_ref().map(Path::new) else { return };
    let text = state::check(path).or_else(|| {
        let directory = path.parent()?;
        let writable = process::may_write(directory, cycle.user()).unwrap_or(true);
        let directory = directory.display();
        (!writable)
            .then(|| format!("directory \"{directory}\" of state file is not writable for workers"))
    });
    if let Some(text) = text {
        cycle.complaints().write(Level::Warn, 0, format_args!("{text}, zone \"{}\"", zone.name));
    }
}

/// Called in the master once the configuration is accepted: fills a new zone, from the one it
/// replaces or from its file, and merges what the configuration declares. Never fails: what cannot
/// be done now is left to a worker.
pub(crate) fn load(zone: &Zone, main: &Main, cycle: Cycle<'_>) {
    let Some(memory) = zone.memory() else { return };
    let log = cycle.log();
    let master = memory.zone.as_master(process::pid());
    let mut wait = patience();
    if memory.fresh && !memory.zone.is_loaded() {
        let filled = match cycle.old_zone(zone).and_then(Zone::memory) {
            Some(_) if zone.of_store => None,
            Some(old) => {
                end(zone, &old.zone, &mut wait);
                let Inherited { upstreams, left } = master.inherit(&old.zone, &process::clock());
                lacks_routes(zone, memory, old.zone.report().routes, log);
                Some((upstreams, left, "the old zone"))
            }
            None => read_file(zone, memory, cycle),
        };
        if let Some((upstreams, left, from)) = filled {
            log.write(
                Level::Notice,
                0,
                format_args!(
                    "peerage zone \"{}\" has {upstreams} upstreams from {from}",
                    zone.name
                ),
            );
            full(zone, &left, log);
        }
    }
    keep(zone, memory);
    if memory.fresh
        && zone.state.is_none()
        && process::inherited()
        && main.zone(&zone.name).is_some()
        && cycle.old_zone(zone).is_none()
    {
        let text = "has no state file: what the old nginx changed at run time is not here";
        log.write(Level::Warn, 0, format_args!("peerage zone \"{}\" {text}", zone.name));
    }
    let merged = master.merge(&main.declared(zone), &process::clock(), &mut wait);
    report(zone, &merged, log);
    audit::write(&zone.name, &merged.said);
    zone.set_unmerged(merged.busy);
    zone.set_conflicts(merged.conflicts);
    if merged.busy {
        log.write(
            Level::Warn,
            0,
            format_args!("peerage zone \"{}\" is busy, a worker will merge it", zone.name),
        );
    }
}

/// Fills a new zone from its state file: how many upstreams it has, and those that did not fit.
fn read_file(
    zone: &Zone,
    memory: Memory,
    cycle: Cycle<'_>,
) -> Option<(usize, Vec<UpstreamName>, &'static str)> {
    let (path, log) = (Path::new(zone.state.as_ref()?), cycle.log());
    let durable = memory.zone.durable();
    durable.moves_to(path.as_os_str().as_encoded_bytes());
    // Before it is read: what somebody writes meanwhile is seen later.
    durable.set_seen(state::seen(path));
    let Found { mut loaded, is_damaged } = state::load(path, cycle.user(), log)?;
    // If not all fits, then what blocks name.
    loaded.upstreams.sort_by_key(|(upstream, _)| upstream.declared.is_none());
    warn_of_size(zone, &memory, &loaded, log);
    let left = memory.zone.as_master(process::pid()).load(&loaded, &process::clock());
    let routes_left = lacks_routes(zone, memory, loaded.routes.len() as u64, log);
    if !left.is_empty() || routes_left {
        state::keep_copy(path, &loaded, log);
    }
    durable.set_revision(memory.zone.revision());
    if is_damaged {
        memory.zone.ask_snapshot();
    }
    Some((loaded.upstreams.len() - left.len(), left, "its state file"))
}

/// Settles who is asked before the zone is changed: nobody where no file is written, else the one
/// who writes it.
fn keep(zone: &Zone, memory: Memory) {
    let durable = memory.zone.durable();
    let Some(path) = zone.state.as_ref().filter(|_| zone.flush != Flush::Off).map(Path::new) else {
        return durable.set_lead(Lead::Free);
    };
    if durable.lead() == Lead::Free {
        durable.set_lead(Lead::Waiting);
    }
    if durable.moves_to(path.as_os_str().as_encoded_bytes()) {
        // What is there is not this zone's, and is replaced.
        durable.set_seen(state::REPLACED);
        memory.zone.ask_snapshot();
    }
}

/// Ends a zone of another size, which old workers still run on: from now on they are refused to
/// change it.
fn end(zone: &Zone, old: &peerage_zone::Zone, wait: &mut dyn FnMut() -> bool) {
    let me = process::pid();
    old.as_master(me).end(wait);
    let mut elders = ELDERS.get().borrow_mut();
    elders.retain(|elder| process::alive(elder.pid, elder.started));
    let pids = old.report().workers.into_iter().map(|(pid, _)| pid).filter(|&pid| pid != me);
    elders.extend(pids.map(|pid| Elder {
        zone: zone.name.clone(),
        pid,
        started: process::started(pid),
    }));
}

/// A worker on a zone of another size: its requests are counted there, where nobody else looks.
struct Elder {
    zone: String,
    pid: u32,
    started: u64,
}

/// Filled in the master; every worker has what the master knew when it forked.
static ELDERS: Global<RefCell<Vec<Elder>>> = Global::new(RefCell::new(Vec::new()));

/// How many workers of before a change of the zone's size still live. While there are any, nobody
/// can tell that a server has no request.
pub(crate) fn elders(zone: &Zone) -> usize {
    let elders = ELDERS.get().borrow();
    let of_zone = elders.iter().filter(|elder| elder.zone == zone.name);
    of_zone.filter(|elder| process::alive(elder.pid, elder.started)).count()
}

/// The defaults of upstreams that no block declares: those of the zone's keyed blocks.
pub(crate) fn keyed_defaults(zone: &Zone, main: &Main) -> Defaults {
    main.blocks()
        .iter()
        .find(|block| block.is_keyed() && block.zone().is_some_and(|z| z.name == zone.name))
        .map(|block| block.settings().defaults)
        .unwrap_or_default()
}

/// Says what a merge could not keep.
pub(crate) fn report(zone: &Zone, merged: &Merged, log: Log<'_>) {
    for Conflict { upstream, server, field, file, runtime } in &merged.conflicts {
        let of = match server {
            Some(server) => format!("server \"{server}\" of upstream \"{upstream}\""),
            None => format!("upstream \"{upstream}\""),
        };
        log.write(
            Level::Warn,
            0,
            format_args!(
                "{field} of {of} was changed both in the configuration (\"{file}\") and at run \
                 time (\"{runtime}\"): the configuration's holds, zone \"{}\"",
                zone.name
            ),
        );
    }
    full(zone, &merged.no_room, log);
}

/// Says what did not fit.
fn full(zone: &Zone, left: &[UpstreamName], log: Log<'_>) {
    if let Some(first) = left.first() {
        log.write(
            Level::Crit,
            0,
            format_args!(
                "peerage zone \"{}\" is full, {} upstreams not added, the first is \"{first}\"",
                zone.name,
                left.len()
            ),
        );
    }
}

/// Says that a zone that was filled has not all of so many routes.
fn lacks_routes(zone: &Zone, memory: Memory, routes: u64, log: Log<'_>) -> bool {
    let left = routes.saturating_sub(memory.zone.report().routes);
    if left > 0 {
        log.write(
            Level::Crit,
            0,
            format_args!("peerage zone \"{}\" is full, {left} routes not added", zone.name),
        );
    }
    left > 0
}

const fn parse_hex(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut value = 0_u64;
    let mut i = 0;
    while i < bytes.len() {
        let digit = match bytes[i] {
            c @ b'0'..=b'9' => c - b'0',
            c => c - b'a' + 10,
        };
        value = value << 4 | digit as u64;
        i += 1;
    }
    value
}
