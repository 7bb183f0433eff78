//! Apps that the store alone has, as upstreams of its own zone: balanced, resolved, and counted as
//! any other, and in no file.

use std::cell::Cell;
use std::collections::HashMap;

use peerage_core::addr::ServerAddr;
use peerage_core::body::{ServerBody, UpstreamBody};
use peerage_core::change::{Actor, Change};
use peerage_core::name::UpstreamName;
use peerage_core::route::decide::Down;
use peerage_core::route::saved::Saved;
use peerage_core::server::Origin;
use peerage_core::upstream::Defaults;
use peerage_shm::point;
use peerage_zone::cache::{self, Cache};
use peerage_zone::{Attempt, Cursor, Env, Worker};

use super::clock;
use super::flights::Got;
use crate::ffi::global::Global;
use crate::ffi::process;
use crate::log::Seldom;
use crate::net::executor::pass;
use crate::net::time::sleep;
use crate::worker;

/// Has an upstream with these servers, and no others; servers that stay keep what is known of them.
/// After `until` it is too late for that.
pub(super) async fn put(
    at: &'static Worker,
    cache: &Cache,
    store: &str,
    name: &UpstreamName,
    servers: &[ServerAddr],
    resolves: bool,
    until: u64,
) -> Result<(), Got> {
    let servers_of =
        |addr: &ServerAddr| ServerBody { addr: Some(addr.clone()), ..ServerBody::default() };
    let body = UpstreamBody {
        servers: Some(servers.iter().map(servers_of).collect()),
        ..UpstreamBody::default()
    };
    let change = Change::SetServers { body, own: None };
    loop {
        let others_write = match attempt(at, store, name, &change, resolves) {
            Attempt::Done { changed, .. } => {
                if changed {
                    worker::wake_all();
                }
                return Ok(());
            }
            Attempt::NoRoom { .. } => match make_room(at, cache, store, name, until).await {
                Room::Made => false,
                Room::Later => true,
                Room::None => {
                    static FULL: Seldom = Seldom::new();
                    if FULL.may() {
                        log!(
                            Crit,
                            "no room for apps of store \"{store}\", its \"cache\" is too small"
                        );
                    }
                    return Err(Got::Malformed);
                }
            },
            Attempt::Refused(error) => {
                static REFUSED: Seldom = Seldom::new();
                if REFUSED.may() {
                    log!(Crit, "app \"{name}\" of store \"{store}\": {error}");
                }
                return Err(Got::Malformed);
            }
            Attempt::Busy | Attempt::NotWriter | Attempt::Unmet(_) => true,
        };
        if others_write && clock::now() < until {
            sleep(1).await;
        } else if others_write {
            return Err(Got::Down(Down::Busy));
        }
        if clock::fresh() > until {
            return Err(Got::Down(Down::Busy));
        }
    }
}

/// Waits for the addresses of names, so that the first request has where to go.
pub(super) async fn resolved(at: &Worker, name: &UpstreamName, span: u64) {
    let until = clock::now() + span;
    while !at.has_addresses(name) && clock::now() <= until {
        sleep(2).await;
    }
}

fn attempt(
    at: &Worker,
    store: &str,
    name: &UpstreamName,
    change: &Change,
    resolves: bool,
) -> Attempt {
    let clock = process::clock();
    let env = Env {
        clock: &clock,
        actor: Actor::new(&format!("redis/{store}"), ""),
        origin: Origin::Api,
        named: &|_| false,
        keyed: Defaults::default(),
        resolves,
    };
    at.change(name, change, &env)
}

/// What came of making room.
enum Room {
    Made,
    /// Others make some, or write.
    Later,
    /// There is nothing that could be removed.
    None,
}

/// Removes the sixteenth of upstreams whose apps were asked for longest ago, other than this one, in
/// many short turns. One request of a process does so at a time, for all: others find room then.
async fn make_room(
    at: &Worker,
    cache: &Cache,
    store: &str,
    but: &UpstreamName,
    until: u64,
) -> Room {
    let Some(_making) = Making::begin() else { return Room::Later };
    point!("apps.full");
    let asked = asked(cache).await;
    let (mut cursor, mut ages) = (Cursor::default(), Vec::new());
    loop {
        let names = at.walk(&mut cursor, AT_ONCE);
        let is_last = names.len() < AT_ONCE;
        let others = names.into_iter().filter(|name| name != but);
        // What the cache does not know goes first.
        ages.extend(others.map(|name| (asked.get(name.as_str()).copied().unwrap_or(0), name)));
        if is_last {
            break;
        }
        pass().await;
    }
    let go = ages.len().div_ceil(16);
    if go < ages.len() {
        ages.select_nth_unstable(go);
        ages.truncate(go);
    }
    let mut room = Room::None;
    for some in ages.chunks(REMOVED_AT_ONCE) {
        for (_, name) in some {
            match remove(at, store, name, until).await {
                Room::Made => room = Room::Made,
                Room::Later => return Room::Later,
                Room::None => {}
            }
        }
        pass().await;
    }
    room
}

/// When apps were asked for last, by the names of their upstreams: those are in lower case, however
/// the store writes the app.
async fn asked(cache: &Cache) -> HashMap<String, u64> {
    let mut asked = HashMap::new();
    let mut cursor = cache::Cursor::of_apps();
    while cache.walk(&mut cursor, AT_ONCE, &mut |one| {
        if let Saved::App { name, at, .. } = one {
            let last = asked.entry(name.to_ascii_lowercase()).or_insert(at);
            *last = at.max(*last);
        }
    }) {
        pass().await;
    }
    asked
}

/// Removes an upstream; waits while others write.
async fn remove(at: &Worker, store: &str, name: &UpstreamName, until: u64) -> Room {
    let delete = Change::DeleteUpstream { force: false };
    loop {
        match attempt(at, store, name, &delete, false) {
            Attempt::Done { .. } => return Room::Made,
            Attempt::NoRoom { .. } | Attempt::Refused(_) => {
                // Another process may have removed it.
                let is_there = at.is_upstream(name.as_str().as_bytes());
                return if is_there { Room::None } else { Room::Made };
            }
            Attempt::Busy | Attempt::NotWriter | Attempt::Unmet(_) => {
                if clock::now() >= until {
                    return Room::Later;
                }
                sleep(1).await;
            }
        }
    }
}

/// This process makes room now, until it is dropped.
struct Making;

static MAKING: Global<Cell<bool>> = Global::new(Cell::new(false));

impl Making {
    /// Where nobody does yet.
    fn begin() -> Option<Self> {
        (!MAKING.get().replace(true)).then_some(Self)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.get().set(false);
    }
}

/// Apps and upstreams that are looked at in one turn of the event loop.
const AT_ONCE: usize = 256;
/// Upstreams that are removed in one turn.
const REMOVED_AT_ONCE: usize = 16;
