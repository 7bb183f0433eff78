//! The compact binary form of what the zone keeps cold: servers, settings, the rest of routes.
//!
//! The form is the zone's own and goes with its layout version; it is never in a file. Bytes after
//! a record are ignored, so that it may be padded to whole words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addr::ServerAddr;
use crate::check::Check;
use crate::check::outlier::Outlier;
use crate::host::Hosts;
use crate::name::UpstreamName;
use crate::route::{Route, RouteKey, Status};
use crate::server::{Declared, Origin, Server};
use crate::texts::Texts;
use crate::upstream::{Defaults, Method, Settings, Upstream};

/// Bytes that are no record of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot decode the record")]
pub struct RecordError;

/// A server, whole.
pub fn encode_server(server: &Server) -> Vec<u8> {
    encode(server)
}

/// The server of a record.
pub fn decode_server(bytes: &[u8]) -> Result<Server, RecordError> {
    decode(bytes)
}

/// An upstream without its servers and its texts.
pub fn encode_upstream_cold(upstream: &Upstream) -> Vec<u8> {
    let Upstream { name, origin, settings, declared, servers: _, removed, orphaned_at } = upstream;
    let Settings { method, defaults, texts: _, check, outlier } = settings;
    let health = (check, outlier);
    encode(&(name.as_str(), origin, method, defaults, health, declared, removed, orphaned_at))
}

/// The upstream of a record; it has no servers and no texts.
pub fn decode_upstream_cold(bytes: &[u8]) -> Result<Upstream, RecordError> {
    let cold: Cold = decode(bytes)?;
    let (name, origin, method, defaults, health, declared, removed, orphaned_at) = cold;
    let (check, outlier) = health;
    let settings = Settings { method, defaults, texts: Texts::default(), check, outlier };
    Ok(Upstream { name, origin, settings, declared, servers: Vec::new(), removed, orphaned_at })
}

/// The admin states of hosts.
pub fn encode_hosts(hosts: &Hosts) -> Vec<u8> {
    encode(hosts)
}

/// The hosts of a record.
pub fn decode_hosts(bytes: &[u8]) -> Result<Hosts, RecordError> {
    decode(bytes)
}

/// What a route has beside key, upstream, and the plain statuses; nothing where it has no more.
pub fn encode_route_rest(route: &Route) -> Vec<u8> {
    let Route { key: _, upstream: _, status, reason, until, labels, origin } = route;
    let word = matches!(status, Status::Other(_)).then_some(status);
    let from = (*origin != Origin::Api).then_some(origin);
    let rest: (Option<&Status>, &str, Option<u64>, _, Option<&Origin>) =
        (word, reason, *until, labels, from);
    if (word, reason.as_str(), *until, labels.len(), from) == (None, "", None, 0, None) {
        return Vec::new();
    }
    encode(&rest)
}

/// The route of a record.
pub fn decode_route(
    key: RouteKey,
    upstream: UpstreamName,
    plain: Status,
    rest: &[u8],
) -> Result<Route, RecordError> {
    let mut route = Route { status: plain, ..Route::new(key, upstream) };
    if !rest.is_empty() {
        let (word, reason, until, labels, from): RouteRest = decode(rest)?;
        route.status = word.unwrap_or(route.status);
        (route.reason, route.until, route.labels) = (reason, until, labels);
        route.origin = from.unwrap_or(Origin::Api);
    }
    Ok(route)
}

type RouteRest = (Option<Status>, String, Option<u64>, BTreeMap<String, String>, Option<Origin>);

type Cold = (
    UpstreamName,
    Origin,
    Option<Method>,
    Defaults,
    (Option<Box<Check>>, Option<Outlier>),
    Option<Settings>,
    Vec<(ServerAddr, Declared)>,
    Option<u64>,
);

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // A vector takes any length and no type of the model refuses to be written.
    postcard::to_allocvec(value).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    postcard::take_from_bytes(bytes).map(|(value, _)| value).map_err(|_| RecordError)
}
