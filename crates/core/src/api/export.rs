//! A zone as JSON lines that people can read and another nginx can take.
//!
//! ```text
//! {"format":1,"zone":"main","revision":812}
//! {"host":"10.0.0.1","admin":{"state":"down","reason":"disk"}}
//! {"upstream":"app","method":"round_robin","defaults":{…},"servers":[{"server":"10.0.0.1:80"}]}
//! {"route":"acme","upstream":"app"}
//! {"end":1,"servers":1,"routes":1}
//! ```
//!
//! A line of an upstream or of a route is the body of its `PUT`. What is left out of a server is at its default;
//! ids, times of changes and actors are not there, so that equal content gives an equal digest.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;

use crate::api::check::{CheckJson, OutlierJson};
use crate::route::{Route, Status};
use crate::server::{Admin, AdminState, Server};
use crate::template::Template;
use crate::time::iso;
use crate::upstream::{Settings, Upstream};

/// The format that is written, and the latest that is read.
pub const FORMAT: u32 = 1;

/// The first line.
pub fn header(out: &mut Vec<u8>, zone: &str, revision: u64) {
    #[derive(Serialize)]
    struct Header<'a> {
        format: u32,
        zone: &'a str,
        revision: u64,
    }
    line(out, &Header { format: FORMAT, zone, revision });
}

/// A host that is not up.
pub fn host(out: &mut Vec<u8>, ip: IpAddr, admin: &Admin) {
    #[derive(Serialize)]
    struct Host<'a> {
        host: IpAddr,
        admin: AdminJson<'a>,
    }
    line(out, &Host { host: ip, admin: AdminJson::of(admin) });
}

/// An upstream.
pub fn upstream(out: &mut Vec<u8>, upstream: &Upstream) {
    line(out, &UpstreamJson::of(upstream, Some(upstream.name.as_str())));
}

/// A route.
pub fn route(out: &mut Vec<u8>, route: &Route) {
    line(out, &RouteJson::of(route, Some(route.key.as_str())));
}

/// The last line: how many of each there were.
pub fn end(out: &mut Vec<u8>, upstreams: u64, servers: u64, routes: u64) {
    #[derive(Serialize)]
    struct End {
        end: u64,
        servers: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        routes: Option<u64>,
    }
    line(out, &End { end: upstreams, servers, routes: (routes > 0).then_some(routes) });
}

/// A route as a value, without its key.
pub(crate) fn route_value(route: &Route) -> Value {
    serde_json::to_value(RouteJson::of(route, None)).unwrap_or_default()
}

/// An upstream as a value, without its name.
pub(crate) fn upstream_value(upstream: &Upstream) -> Value {
    serde_json::to_value(UpstreamJson::of(upstream, None)).unwrap_or_default()
}

/// A server as a value.
pub(crate) fn server_value(server: &Server) -> Value {
    serde_json::to_value(ServerJson::of(server)).unwrap_or_default()
}

/// A vector takes everything, and no type here refuses to be written.
fn line<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(&mut *out, value);
    out.push(b'\n');
}

#[derive(Serialize)]
struct RouteJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    upstream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
}

impl<'a> RouteJson<'a> {
    fn of(route: &'a Route, key: Option<&'a str>) -> Self {
        Self {
            route: key,
            upstream: route.upstream.as_str(),
            status: (route.status != Status::Active).then(|| route.status.as_str()),
            reason: &route.reason,
            until: route.until.map(iso),
            labels: &route.labels,
        }
    }
}

#[derive(Serialize)]
struct UpstreamJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    method: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_key: Option<&'a str>,
    defaults: DefaultsJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outlier: Option<OutlierJson>,
    servers: Vec<ServerJson<'a>>,
}

#[derive(Serialize)]
struct DefaultsJson {
    weight: u16,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: String,
    slow_start: String,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_conns: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_fails: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_start: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    backup: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    route: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<AdminJson<'a>>,
}

#[derive(Serialize)]
struct AdminJson<'a> {
    state: AdminState,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

impl<'a> UpstreamJson<'a> {
    fn of(upstream: &'a Upstream, name: Option<&'a str>) -> Self {
        let Settings { defaults, texts, check, outlier, .. } = &upstream.settings;
        let defaults = defaults.limits();
        Self {
            upstream: name,
            method: upstream.settings.method().as_str(),
            hash_key: texts.hash_key.as_ref().map(Template::as_str),
            // What holds, said in full: another nginx may have other defaults of its own.
            defaults: DefaultsJson {
                weight: defaults.weight,
                max_conns: defaults.max_conns,
                max_fails: defaults.max_fails,
                fail_timeout: defaults.fail_timeout.to_string(),
                slow_start: defaults.slow_start.to_string(),
            },
            host: texts.host.as_deref(),
            tls_name: texts.tls_name.as_deref(),
            check: check.as_deref().map(CheckJson::of),
            outlier: outlier.as_ref().map(OutlierJson::of),
            servers: upstream.servers.iter().map(ServerJson::of).collect(),
        }
    }
}

impl<'a> ServerJson<'a> {
    fn of(server: &'a Server) -> Self {
        let (params, admin) = (&server.params, &server.admin);
        let plain = admin.state == AdminState::Up && admin.reason.is_empty();
        Self {
            server: server.text(),
            weight: params.weight,
            max_conns: params.max_conns,
            max_fails: params.max_fails,
            fail_timeout: params.fail_timeout.map(|time| time.to_string()),
            slow_start: params.slow_start.map(|time| time.to_string()),
            backup: params.backup,
            route: &params.route,
            labels: &params.labels,
            admin: (!plain).then(|| AdminJson::of(admin)),
        }
    }
}

impl<'a> AdminJson<'a> {
    fn of(admin: &'a Admin) -> Self {
        Self {
            state: admin.state,
            until: admin.until.map(iso),
            close: admin.close.map(iso),
            reason: &admin.reason,
        }
    }
}
