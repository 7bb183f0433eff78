//! Apps that the store alone has, as upstreams of its own zone: balanced, resolved, and counted as
//! any other, and in no file.

use peerage_core::addr::ServerAddr;
use peerage_core::body::{ServerBody, UpstreamBody};
use peerage_core::change::{Actor, Change};
use peerage_core::name::UpstreamName;
use peerage_core::route::decide::Down;
use peerage_core::server::Origin;
use peerage_core::upstream::Defaults;
use peerage_zone::cache::Cache;
use peerage_zone::{Attempt, Cursor, Env, Worker};

use super::clock;
use super::flights::Got;
use crate::ffi::process;
use crate::log::Seldom;
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
        match attempt(at, store, name, &change, resolves) {
            Attempt::Done { changed, .. } => {
                if changed {
                    worker::wake_all();
                }
                return Ok(());
            }
            Attempt::NoRoom { .. } if make_room(at, cache, store, name) => {}
            Attempt::NoRoom { .. } => {
                static FULL: Seldom = Seldom::new();
                if FULL.may() {
                    log!(Crit, "no room for apps of store \"{store}\", its \"cache\" is too small");
                }
                return Err(Got::Malformed);
            }
            Attempt::Refused(error) => {
                static REFUSED: Seldom = Seldom::new();
                if REFUSED.may() {
                    log!(Crit, "app \"{name}\" of store \"{store}\": {error}");
                }
                return Err(Got::Malformed);
            }
            Attempt::Busy | Attempt::NotWriter | Attempt::Unmet(_) => {
                if clock::now() >= until {
                    return Err(Got::Down(Down::Busy));
                }
                sleep(1).await;
            }
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

/// Removes the upstreams of apps that were asked for longest ago, other than this one; whether there
/// was any.
fn make_room(at: &Worker, cache: &Cache, store: &str, but: &UpstreamName) -> bool {
    let names = at.walk(&mut Cursor::default(), usize::MAX);
    let asked = |name: &UpstreamName| {
        cache.app_seen(name.as_str().as_bytes(), clock::now()).map_or(0, |seen| seen.at)
    };
    let mut ages: Vec<_> =
        names.into_iter().filter(|name| name != but).map(|name| (asked(&name), name)).collect();
    ages.sort();
    let mut any = false;
    for (_, name) in ages.iter().take(ages.len().div_ceil(16)) {
        let delete = Change::DeleteUpstream { force: false };
        any |= matches!(attempt(at, store, name, &delete, false), Attempt::Done { .. });
    }
    any
}
