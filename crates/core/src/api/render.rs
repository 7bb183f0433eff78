//! Answers as compact JSON, with the fields of the contract in its order.
//!
//! Everything is appended to a buffer, in pieces small enough that the edge can send a long list
//! slice by slice: [`upstream_open`], then [`server`] by server, then [`UPSTREAM_CLOSE`].

use std::net::IpAddr;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

use crate::api::check::{CheckJson, OutlierJson};
use crate::counters::Counters;
use crate::name::UpstreamName;
use crate::server::{Admin, AdminState, Limits, Params, Server};
use crate::source::Sourced;
use crate::state::{Live, State, Why, eligible, reason, state, verdict};
use crate::template::Template;
use crate::time::iso;
use crate::upstream::Upstream;

/// An upstream with what is live of it, as a view of the zone gives it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its zone.
    pub zone: &'a str,
    /// The revision of its last change.
    pub revision: u64,
    /// What is declared and wanted.
    pub upstream: &'a Upstream,
    /// What is live, server by server.
    pub live: &'a [Live],
    /// What stands on the machine of each server.
    pub hosts: &'a [Option<Admin>],
}

impl<'a> Shown<'a> {
    /// One server; `None` = there is none at that place.
    pub fn server(&self, at: usize) -> Option<Line<'a>> {
        let server = self.upstream.servers.get(at)?;
        Some(Line {
            server,
            limits: self.upstream.limits(server),
            live: self.live.get(at)?,
            host: self.hosts.get(at).and_then(Option::as_ref),
        })
    }
}

/// A server with all that is shown of it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// What is declared and wanted.
    pub server: &'a Server,
    /// What holds for it.
    pub limits: Limits,
    /// What is live.
    pub live: &'a Live,
    /// What stands on its machine.
    pub host: Option<&'a Admin>,
}

/// Whether a listing has servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// With them.
    With,
    /// Without.
    Without,
}

/// What stands after the servers of [`upstream_open`].
pub const UPSTREAM_CLOSE: &[u8] = b"]}";

/// A server.
pub fn server(out: &mut Vec<u8>, line: &Line<'_>) {
    json(out, &ServerJson::of(line, None));
}

/// A server of a list over upstreams: it says its upstream first.
pub fn listed_server(out: &mut Vec<u8>, upstream: &UpstreamName, line: &Line<'_>) {
    json(out, &ServerJson::of(line, Some(upstream.as_str())));
}

/// What stands on a server or a host, as a value.
pub fn admin_value(admin: Option<&Admin>) -> Value {
    let up = Admin::default();
    serde_json::to_value(AdminJson::of(admin.unwrap_or(&up))).unwrap_or_default()
}

/// A host and what stands on it, up to the bracket of its servers.
pub fn host_open(out: &mut Vec<u8>, ip: IpAddr, admin: Option<&Admin>) {
    #[derive(Serialize)]
    struct Host<'a> {
        host: IpAddr,
        admin: AdminJson<'a>,
    }
    let up = Admin::default();
    json(out, &Host { host: ip, admin: AdminJson::of(admin.unwrap_or(&up)) });
    out.pop();
    out.extend_from_slice(b",\"servers\":[");
}

/// An upstream, whole.
pub fn upstream(out: &mut Vec<u8>, shown: &Shown<'_>, servers: Servers) {
    if servers == Servers::Without {
        json(out, &UpstreamJson::of(shown));
        return;
    }
    upstream_open(out, shown);
    for (i, line) in (0..shown.upstream.servers.len()).map_while(|at| shown.server(at)).enumerate()
    {
        if i > 0 {
            out.push(b',');
        }
        server(out, &line);
    }
    out.extend_from_slice(UPSTREAM_CLOSE);
}

/// An upstream up to the bracket of its servers.
pub fn upstream_open(out: &mut Vec<u8>, shown: &Shown<'_>) {
    json(out, &UpstreamJson::of(shown));
    if out.last() == Some(&b'}') {
        out.pop();
    }
    out.extend_from_slice(b",\"servers\":[");
}

/// The key of an entry of a list, with its comma where it is not the first.
pub fn list_key(out: &mut Vec<u8>, name: &UpstreamName, first: bool) {
    if !first {
        out.push(b',');
    }
    json(out, name.as_str());
    out.push(b':');
}

/// The entity tag of an upstream.
pub fn etag(upstream: &Upstream) -> String {
    format!("\"{}\"", upstream.digest_text())
}

/// The answer to a write.
#[derive(Clone, Debug)]
pub struct Answer<'a> {
    /// The revision that is in force.
    pub revision: u64,
    /// Whether this write made it.
    pub changed: bool,
    /// Where.
    pub upstream: Option<&'a UpstreamName>,
    /// The server it was about.
    pub server: Option<Line<'a>>,
    /// Further members: `drained`, `ready`, `warning`, …
    pub extra: &'a [(&'a str, Value)],
}

/// An answer to a write.
pub fn answer(out: &mut Vec<u8>, answer: &Answer<'_>) {
    json(out, answer);
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("revision", &self.revision)?;
        map.serialize_entry("changed", &self.changed)?;
        if let Some(upstream) = self.upstream {
            map.serialize_entry("upstream", upstream.as_str())?;
        }
        for (name, value) in self.extra {
            map.serialize_entry(name, value)?;
        }
        if let Some(line) = &self.server {
            map.serialize_entry("server", &ServerJson::of(line, None))?;
        }
        map.end()
    }
}

/// A vector takes everything, and no type here refuses to be written.
fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

#[derive(Serialize)]
struct ServerJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    id: u64,
    server: String,
    origin: String,
    weight: u16,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: String,
    slow_start: String,
    backup: bool,
    route: &'a str,
    labels: &'a std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<SourceJson>,
    host_admin: Option<AdminJson<'a>>,
    admin: AdminJson<'a>,
    state: State,
    why: Option<Why>,
    active: u64,
    upgraded: u64,
    counters: &'a Counters,
}

impl<'a> ServerJson<'a> {
    fn of(line: &Line<'a>, upstream: Option<&'a str>) -> Self {
        let Line { server, limits, live, host } = *line;
        let (state, why) = verdict(server, host, &limits, &live.facts);
        let Params { backup, route, labels, .. } = &server.params;
        Self {
            upstream,
            id: server.id,
            server: server.addr.to_string(),
            origin: server.origin.to_string(),
            weight: limits.weight,
            max_conns: limits.max_conns,
            max_fails: limits.max_fails,
            fail_timeout: limits.fail_timeout.to_string(),
            slow_start: limits.slow_start.to_string(),
            backup: *backup,
            route,
            labels,
            source: server.source.map(|said| SourceJson::of(&said, &server.params)),
            host_admin: host.map(AdminJson::of),
            admin: AdminJson::of(&server.admin),
            state,
            why,
            active: live.counters.active,
            upgraded: live.counters.upgraded,
            counters: &live.counters,
        }
    }
}

/// What a server's source says of it, and what holds here instead.
#[derive(Serialize)]
struct SourceJson {
    weight: Option<u16>,
    critical: bool,
    standing: &'static str,
    held: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    overridden: Vec<&'static str>,
}

impl SourceJson {
    fn of(said: &Sourced, params: &Params) -> Self {
        let Params { weight, max_conns, max_fails, fail_timeout, slow_start, .. } = params;
        let overridden = [
            ("weight", weight.is_some()),
            ("max_conns", max_conns.is_some()),
            ("max_fails", max_fails.is_some()),
            ("fail_timeout", fail_timeout.is_some()),
            ("slow_start", slow_start.is_some()),
        ];
        Self {
            weight: said.weight,
            critical: said.failing,
            standing: said.standing.as_str(),
            held: said.held,
            since: said.vanished().map(iso),
            overridden: overridden.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect(),
        }
    }
}

#[derive(Serialize)]
struct AdminJson<'a> {
    state: &'static str,
    since: Option<String>,
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    close: Option<String>,
    reason: &'a str,
    by: &'a str,
    from: &'a str,
}

impl<'a> AdminJson<'a> {
    fn of(admin: &'a Admin) -> Self {
        Self {
            state: admin.state.as_str(),
            since: (admin.since > 0).then(|| iso(admin.since)),
            until: admin.until.map(iso),
            close: admin.close.map(iso),
            reason: &admin.reason,
            by: &admin.by,
            from: &admin.from,
        }
    }
}

#[derive(Serialize)]
struct UpstreamJson<'a> {
    name: &'a str,
    zone: &'a str,
    origin: String,
    method: &'static str,
    hash_key: Option<&'a str>,
    defaults: DefaultsJson,
    host: Option<&'a str>,
    tls_name: Option<&'a str>,
    check: Option<CheckJson<'a>>,
    outlier: Option<OutlierJson>,
    eligible: usize,
    counts: Counts,
    revision: u64,
    digest: String,
}

#[derive(Serialize)]
struct DefaultsJson {
    weight: u16,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: String,
    slow_start: String,
}

impl<'a> UpstreamJson<'a> {
    fn of(shown: &Shown<'a>) -> Self {
        let upstream = shown.upstream;
        let texts = &upstream.settings.texts;
        let defaults = upstream.settings.defaults.limits();
        let mut counts = Counts([0; State::ALL.len()]);
        let mut takes = 0;
        for line in (0..upstream.servers.len()).map_while(|at| shown.server(at)) {
            let Line { server, limits, live, host } = line;
            let own = server.wanted();
            let host = host.map_or(AdminState::Up, |host| host.state);
            takes += usize::from(eligible(own.max(host), &limits, &live.facts));
            counts.0[state(reason(own, host, &limits, &live.facts)) as usize] += 1;
        }
        Self {
            name: upstream.name.as_str(),
            zone: shown.zone,
            origin: upstream.origin.to_string(),
            method: upstream.settings.method().as_str(),
            hash_key: texts.hash_key.as_ref().map(Template::as_str),
            defaults: DefaultsJson {
                weight: defaults.weight,
                max_conns: defaults.max_conns,
                max_fails: defaults.max_fails,
                fail_timeout: defaults.fail_timeout.to_string(),
                slow_start: defaults.slow_start.to_string(),
            },
            host: texts.host.as_deref(),
            tls_name: texts.tls_name.as_deref(),
            check: upstream.settings.check.as_deref().map(CheckJson::of),
            outlier: upstream.settings.outlier.as_ref().map(OutlierJson::of),
            eligible: takes,
            counts,
            revision: shown.revision,
            digest: upstream.digest_text(),
        }
    }
}

/// Servers by state; states without any are left out.
struct Counts([usize; State::ALL.len()]);

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counts = State::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        serializer.collect_map(counts.map(|(state, count)| (state.as_str(), count)))
    }
}
