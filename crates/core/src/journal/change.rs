//! One change of a record: of an upstream, of a route, or of the hosts.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::host::Hosts;
use crate::line::route::RouteLine;
use crate::line::server::ServerLine;
use crate::line::upstream::{ColdLine, UpstreamLine};
use crate::name::UpstreamName;
use crate::route::{Route, RouteKey};
use crate::server::Server;
use crate::upstream::Upstream;

/// A change, read.
#[derive(Debug)]
pub(crate) enum Change {
    /// An upstream is as said, whatever it was.
    Set(Upstream),
    /// Parts of an upstream are as said.
    Parts(Parts),
    /// An upstream is gone.
    Delete(UpstreamName),
    /// The hosts are as said.
    Hosts(Hosts),
    /// A route is as said, whatever it was.
    Route(Box<Route>),
    /// A route is gone.
    Unroute(RouteKey),
}

/// What changed of an upstream that stays.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) name: UpstreamName,
    /// All but its servers.
    cold: Option<Upstream>,
    /// Once the others are gone: changed ones, which keep their place, and new ones, which come
    /// last.
    servers: Vec<Server>,
    /// Ids of those that went.
    gone: Vec<u64>,
}

impl Parts {
    /// Puts the parts in.
    pub(crate) fn apply(self, upstream: &mut Upstream) {
        if let Some(cold) = self.cold {
            let servers = std::mem::take(&mut upstream.servers);
            *upstream = Upstream { servers, ..cold };
        }
        match &self.gone[..] {
            [] => {}
            [one] => upstream.servers.retain(|server| server.id != *one),
            many => {
                let many: HashSet<u64> = many.iter().copied().collect();
                upstream.servers.retain(|server| !many.contains(&server.id));
            }
        }
        let ids = upstream.servers.iter().map(|server| server.id);
        let places: Option<HashMap<u64, usize>> =
            (self.servers.len() > FEW).then(|| ids.enumerate().map(|(i, id)| (id, i)).collect());
        for server in self.servers {
            let place = match &places {
                Some(places) => places.get(&server.id).copied(),
                None => upstream.servers.iter().position(|old| old.id == server.id),
            };
            match place {
                Some(place) => upstream.servers[place] = server,
                None => upstream.servers.push(server),
            }
        }
    }
}

/// Servers that are looked for without an index.
const FEW: usize = 8;

/// A change as it is written: one of `set`, `delete`, `hosts`, `route`, `unroute`, or `upstream`
/// with its parts.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ChangeLine<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    set: Option<UpstreamLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delete: Option<UpstreamName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hosts: Option<Cow<'a, Hosts>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    route: Option<RouteLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unroute: Option<RouteKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upstream: Option<UpstreamName>,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    cold: Option<ColdLine<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    servers: Vec<ServerLine<'a>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<u64>,
}

impl<'a> ChangeLine<'a> {
    /// What makes `after` of `before`; nothing where they are equal.
    pub(super) fn of(before: Option<&'a Upstream>, after: Option<&'a Upstream>) -> Option<Self> {
        match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some(Self::set(after)),
            (Some(before), None) => {
                Some(Self { delete: Some(before.name.clone()), ..Self::default() })
            }
            (Some(before), Some(after)) if before.name != after.name => Some(Self::set(after)),
            (Some(before), Some(after)) => Self::between(before, after),
        }
    }

    pub(super) fn of_hosts(hosts: &'a Hosts) -> Self {
        Self { hosts: Some(Cow::Borrowed(hosts)), ..Self::default() }
    }

    /// What makes `after` of `before`; nothing where they are equal.
    pub(super) fn of_route(before: Option<&Route>, after: Option<&Route>) -> Option<Self> {
        match (before, after) {
            (before, Some(after)) if before != Some(after) => {
                Some(Self { route: Some(RouteLine::of(after)), ..Self::default() })
            }
            (Some(before), None) => {
                Some(Self { unroute: Some(before.key.clone()), ..Self::default() })
            }
            _ => None,
        }
    }

    fn set(upstream: &'a Upstream) -> Self {
        Self { set: Some(UpstreamLine::of(upstream, 0)), ..Self::default() }
    }

    /// Parts, or the whole where parts would be no shorter.
    fn between(before: &'a Upstream, after: &'a Upstream) -> Option<Self> {
        let cold = !is_cold_equal(before, after);
        let Moved { servers, gone } = Moved::of(&before.servers, &after.servers);
        if !cold && servers.is_empty() && gone.is_empty() {
            return None;
        }
        let cold_bytes = COLD_BYTES + SERVER_BYTES * after.removed.len();
        let parts = SERVER_BYTES * servers.len()
            + GONE_BYTES * gone.len()
            + if cold { cold_bytes } else { 0 };
        if parts >= SERVER_BYTES * after.servers.len() + cold_bytes {
            return Some(Self::set(after));
        }
        Some(Self {
            upstream: Some(after.name.clone()),
            cold: cold.then(|| ColdLine::of(after)),
            servers: servers.into_iter().map(ServerLine::of).collect(),
            gone,
            ..Self::default()
        })
    }

    /// Reads it, so far that it can be applied.
    pub(super) fn into_change(self) -> Result<Change, String> {
        let routes = (self.route, self.unroute);
        Ok(match (self.set, self.delete, self.hosts, self.upstream, routes) {
            (Some(set), None, None, None, (None, None)) => Change::Set(set.into_upstream()?.0),
            (None, Some(name), None, None, (None, None)) => Change::Delete(name),
            (None, None, Some(hosts), None, (None, None)) => Change::Hosts(hosts.into_owned()),
            (None, None, None, None, (Some(route), None)) => {
                Change::Route(Box::new(route.into_route()?))
            }
            (None, None, None, None, (None, Some(key))) => Change::Unroute(key),
            (None, None, None, Some(name), (None, None)) => {
                let servers: Result<Vec<Server>, String> =
                    self.servers.into_iter().map(ServerLine::into_server).collect();
                let cold = self.cold.map(|cold| cold.into_upstream(name.clone())).transpose()?;
                Change::Parts(Parts { name, cold, servers: servers?, gone: self.gone })
            }
            _ => return Err("a change of an unknown kind".to_owned()),
        })
    }
}

/// About how long the texts are; only which of two is longer hangs on it.
const SERVER_BYTES: usize = 80;
const GONE_BYTES: usize = 8;
const COLD_BYTES: usize = 40;

fn is_cold_equal(a: &Upstream, b: &Upstream) -> bool {
    let Upstream { name: _, origin, settings, declared, servers: _, removed, orphaned_at } = a;
    (origin, settings, declared, removed, orphaned_at)
        == (&b.origin, &b.settings, &b.declared, &b.removed, &b.orphaned_at)
}

/// How one list of servers becomes another: some go, then some change in their place, then others
/// come at the end. One that moves goes and comes.
struct Moved<'a> {
    servers: Vec<&'a Server>,
    gone: Vec<u64>,
}

impl<'a> Moved<'a> {
    fn of(before: &[Server], after: &'a [Server]) -> Self {
        let mut moved = Self { servers: Vec::new(), gone: Vec::new() };
        let mut rest = after.iter().peekable();
        for old in before {
            match rest.next_if(|new| new.id == old.id) {
                Some(new) if new == old => {}
                Some(new) => moved.servers.push(new),
                None => moved.gone.push(old.id),
            }
        }
        moved.servers.extend(rest);
        moved
    }
}
