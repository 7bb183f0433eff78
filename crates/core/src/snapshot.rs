//! The state file: JSON lines that people can read, each with its checksum.
//!
//! ```text
//! {"sum":"8a9136aa","data":{"format":1,"zone":"main","revision":812,"next_id":9,"time":"…"}}
//! {"sum":"…","data":{"upstream":"app","revision":811,"servers":[{"id":7,"server":"10.0.0.1:80"}]}}
//! {"sum":"…","data":{"end":1,"servers":1}}
//! ```
//!
//! Fields with their default value are left out. Lines are absolute images with their revision.
//! Unknown fields are ignored, so that a file of a later version of the same format can be read.
//! Times are unix ms.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::addr::ServerAddr;
use crate::crc::crc32c;
use crate::host::Hosts;
use crate::name::UpstreamName;
use crate::server::{Admin, AdminState, Declared, Origin, Params, Server};
use crate::time::iso;
use crate::units::Secs;
use crate::upstream::{Defaults, Method, Settings, Upstream};

/// The format that is written, and the latest that is read.
pub const FORMAT: u32 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// See [`FORMAT`].
    pub format: u32,
    /// Whose state it is.
    pub zone: String,
    /// The zone's revision when the snapshot began.
    pub revision: u64,
    /// The next id that was never given.
    pub next_id: u64,
    /// When it began, for people.
    pub time: String,
}

impl Header {
    /// The header of a snapshot that begins at `now`, unix ms.
    pub fn new(zone: &str, revision: u64, next_id: u64, now: u64) -> Self {
        Self { format: FORMAT, zone: zone.to_owned(), revision, next_id, time: iso(now) }
    }
}

/// Makes the lines of a snapshot, one upstream at a time.
#[derive(Debug, Default)]
pub struct Writer {
    upstreams: u64,
    servers: u64,
}

impl Writer {
    /// Begins with the header.
    pub fn begin(out: &mut Vec<u8>, header: &Header) -> Self {
        line(out, header);
        Self::default()
    }

    /// Adds an upstream.
    pub fn upstream(&mut self, out: &mut Vec<u8>, upstream: &Upstream, revision: u64) {
        self.upstreams += 1;
        self.servers += upstream.servers.len() as u64;
        line(out, &UpstreamLine::of(upstream, revision));
    }

    /// Adds the admin states of hosts, once.
    pub fn hosts(&mut self, out: &mut Vec<u8>, hosts: &Hosts) {
        if !hosts.is_empty() {
            line(out, &HostsLine { hosts: hosts.clone() });
        }
    }

    /// Ends: only a file with this line is whole.
    pub fn end(self, out: &mut Vec<u8>) {
        line(out, &EndLine { end: self.upstreams, servers: self.servers });
    }
}

/// What a state file gave.
#[derive(Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The first line, if it is good.
    pub header: Option<Header>,
    /// The admin states of hosts.
    pub hosts: Hosts,
    /// Upstreams with their revision, in the file's order.
    pub upstreams: Vec<(Upstream, u64)>,
    /// What stopped the reading, if the file is not whole.
    pub damage: Option<Damage>,
}

/// Where and how a file is not whole; what stands before is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Line, from 1.
    pub line: usize,
    /// How bad it is.
    pub kind: DamageKind,
    /// What is wrong.
    pub text: String,
}

/// How bad the damage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// The file ends too early: a write was cut off.
    Torn,
    /// A line is not as it was written.
    Damaged,
    /// The file is of a later format.
    Format,
}

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Loaded {
    let mut loaded =
        Loaded { header: None, hosts: Hosts::default(), upstreams: Vec::new(), damage: None };
    let mut names = HashSet::new();
    let mut servers = 0;
    let mut ended = false;
    let mut number = 0;
    for text in bytes.split_inclusive(|&b| b == b'\n') {
        number += 1;
        let whole = text.ends_with(b"\n");
        let outcome = if ended {
            Err("there is something after the end".to_owned())
        } else {
            unwrap(text).and_then(|data| match loaded.header {
                None => header(data, &mut loaded),
                Some(_) => {
                    record(data, &mut loaded, &mut names, &mut servers).map(|end| ended = end)
                }
            })
        };
        if let Err(text) = outcome {
            let kind = if whole { DamageKind::Damaged } else { DamageKind::Torn };
            loaded.damage = Some(Damage { line: number, kind, text });
        }
        if loaded.damage.is_some() {
            return loaded;
        }
    }
    if !ended {
        let text = "the end is missing".to_owned();
        loaded.damage = Some(Damage { line: number + 1, kind: DamageKind::Torn, text });
    }
    loaded
}

fn header(data: &[u8], loaded: &mut Loaded) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = from_json(data)?;
    if format > FORMAT {
        let text = format!("format {format} is later than {FORMAT}");
        loaded.damage = Some(Damage { line: 1, kind: DamageKind::Format, text });
        return Ok(());
    }
    loaded.header = Some(from_json(data)?);
    Ok(())
}

/// Reads an upstream or the end; tells whether it was the end.
fn record(
    data: &[u8],
    loaded: &mut Loaded,
    names: &mut HashSet<UpstreamName>,
    servers: &mut u64,
) -> Result<bool, String> {
    if data.starts_with(b"{\"end\":") {
        let end: EndLine = from_json(data)?;
        let (have, have_servers) = (loaded.upstreams.len() as u64, *servers);
        if (end.end, end.servers) != (have, have_servers) {
            return Err(format!(
                "{have} upstreams and {have_servers} servers where {} and {} were written",
                end.end, end.servers
            ));
        }
        return Ok(true);
    }
    if data.starts_with(b"{\"hosts\":") {
        let HostsLine { hosts } = from_json(data)?;
        loaded.hosts = hosts;
        return Ok(false);
    }
    let line: UpstreamLine<'_> = from_json(data)?;
    let (upstream, revision) = line.into_upstream()?;
    if !names.insert(upstream.name.clone()) {
        return Err(format!("upstream \"{}\" comes twice", upstream.name));
    }
    *servers += upstream.servers.len() as u64;
    loaded.upstreams.push((upstream, revision));
    Ok(false)
}

fn from_json<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(data).map_err(|error| error.to_string())
}

const SUM: &[u8] = b"{\"sum\":\"";
const DATA: &[u8] = b"\",\"data\":";

/// Appends a line: the data in its checksum.
fn line<T: Serialize>(out: &mut Vec<u8>, data: &T) {
    out.extend_from_slice(SUM);
    let sum_at = out.len();
    out.extend_from_slice(b"00000000");
    out.extend_from_slice(DATA);
    let from = out.len();
    // A vector takes everything and no type of a line refuses to be written.
    let _ = serde_json::to_writer(&mut *out, data);
    let sum = format!("{:08x}", crc32c(&out[from..]));
    out[sum_at..sum_at + 8].copy_from_slice(sum.as_bytes());
    out.extend_from_slice(b"}\n");
}

/// Takes the data out of a line, if its checksum holds.
fn unwrap(text: &[u8]) -> Result<&[u8], String> {
    let bad = || "not a line of a state file".to_owned();
    let text = text.strip_suffix(b"\n").ok_or("the line is cut off")?;
    let text = text.strip_prefix(SUM).ok_or_else(bad)?;
    let (sum, text) = text.split_at_checked(8).ok_or_else(bad)?;
    let text = text.strip_prefix(DATA).ok_or_else(bad)?;
    let data = text.strip_suffix(b"}").ok_or_else(bad)?;
    if sum != format!("{:08x}", crc32c(data)).as_bytes() {
        return Err("its checksum does not hold".to_owned());
    }
    Ok(data)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Serialize, Deserialize)]
struct HostsLine {
    hosts: Hosts,
}

#[derive(Serialize, Deserialize)]
struct EndLine {
    end: u64,
    servers: u64,
}

#[derive(Serialize, Deserialize)]
struct UpstreamLine<'a> {
    upstream: UpstreamName,
    revision: u64,
    #[serde(borrow)]
    origin: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    settings: SettingsLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared: Option<SettingsLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    orphaned_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    removed: Vec<RemovedLine<'a>>,
    #[serde(default, borrow)]
    servers: Vec<ServerLine<'a>>,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct SettingsLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<Method>,
    #[serde(default, skip_serializing_if = "is_default")]
    defaults: LimitsLine,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct LimitsLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_conns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_fails: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<Secs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_start: Option<Secs>,
}

#[derive(Serialize, Deserialize)]
struct RemovedLine<'a> {
    server: ServerAddr,
    #[serde(default, borrow)]
    declared: DeclaredLine<'a>,
}

#[derive(Default, Serialize, Deserialize)]
struct DeclaredLine<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_conns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_fails: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<Secs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_start: Option<Secs>,
    #[serde(default, skip_serializing_if = "is_default")]
    backup: bool,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    route: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "no_labels")]
    labels: Cow<'a, BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "is_default")]
    admin: AdminState,
}

#[derive(Serialize, Deserialize)]
struct ServerLine<'a> {
    id: u64,
    server: ServerAddr,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    given: Option<Cow<'a, str>>,
    /// Left out: `config` where the configuration declares it, else `api`.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    origin: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_conns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_fails: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<Secs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_start: Option<Secs>,
    #[serde(default, skip_serializing_if = "is_default")]
    backup: bool,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    route: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "no_labels")]
    labels: Cow<'a, BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    admin: Option<AdminLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    declared: Option<DeclaredLine<'a>>,
    #[serde(default, skip_serializing_if = "no_addrs")]
    addrs: Cow<'a, [SocketAddr]>,
}

#[derive(Serialize, Deserialize)]
struct AdminLine<'a> {
    state: AdminState,
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    reason: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    by: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    from: Cow<'a, str>,
}

impl<'a> UpstreamLine<'a> {
    fn of(upstream: &'a Upstream, revision: u64) -> Self {
        let removed = upstream.removed.iter().map(|(addr, declared)| RemovedLine {
            server: addr.clone(),
            declared: DeclaredLine::of(declared),
        });
        Self {
            upstream: upstream.name.clone(),
            revision,
            origin: upstream.origin.to_string().into(),
            settings: SettingsLine::of(&upstream.settings),
            declared: upstream.declared.as_ref().map(SettingsLine::of),
            orphaned_at: upstream.orphaned_at,
            removed: removed.collect(),
            servers: upstream.servers.iter().map(ServerLine::of).collect(),
        }
    }

    fn into_upstream(self) -> Result<(Upstream, u64), String> {
        let servers: Result<Vec<Server>, String> =
            self.servers.into_iter().map(ServerLine::into_server).collect();
        let removed = self.removed.into_iter();
        let upstream = Upstream {
            name: self.upstream,
            origin: origin(&self.origin)?,
            settings: self.settings.into_settings(),
            declared: self.declared.map(SettingsLine::into_settings),
            servers: servers?,
            removed: removed.map(|line| (line.server, line.declared.into_declared())).collect(),
            orphaned_at: self.orphaned_at,
        };
        Ok((upstream, self.revision))
    }
}

fn origin(text: &str) -> Result<Origin, String> {
    Origin::parse(text).ok_or_else(|| format!("unknown origin \"{text}\""))
}

impl SettingsLine {
    fn of(settings: &Settings) -> Self {
        let Defaults { weight, max_conns, max_fails, fail_timeout, slow_start } = settings.defaults;
        let defaults = LimitsLine { weight, max_conns, max_fails, fail_timeout, slow_start };
        Self { method: settings.method, defaults }
    }

    fn into_settings(self) -> Settings {
        let LimitsLine { weight, max_conns, max_fails, fail_timeout, slow_start } = self.defaults;
        let defaults = Defaults { weight, max_conns, max_fails, fail_timeout, slow_start };
        Settings { method: self.method, defaults }
    }
}

impl<'a> DeclaredLine<'a> {
    fn of(declared: &'a Declared) -> Self {
        let params = &declared.params;
        Self {
            weight: params.weight,
            max_conns: params.max_conns,
            max_fails: params.max_fails,
            fail_timeout: params.fail_timeout,
            slow_start: params.slow_start,
            backup: params.backup,
            route: Cow::Borrowed(&params.route),
            labels: Cow::Borrowed(&params.labels),
            admin: declared.admin,
        }
    }

    fn into_declared(self) -> Declared {
        let params = Params {
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            slow_start: self.slow_start,
            backup: self.backup,
            route: self.route.into_owned(),
            labels: self.labels.into_owned(),
        };
        Declared { params, admin: self.admin }
    }
}

impl<'a> ServerLine<'a> {
    fn of(server: &'a Server) -> Self {
        let params = &server.params;
        let implied = implied_origin(server.declared.is_some());
        let admin = &server.admin;
        let admin = (*admin != Admin::default()).then(|| AdminLine {
            state: admin.state,
            since: admin.since,
            until: admin.until,
            reason: Cow::Borrowed(&admin.reason),
            by: Cow::Borrowed(&admin.by),
            from: Cow::Borrowed(&admin.from),
        });
        Self {
            id: server.id,
            server: server.addr.clone(),
            given: server.given.as_deref().map(Cow::Borrowed),
            origin: (server.origin != implied).then(|| server.origin.to_string().into()),
            weight: params.weight,
            max_conns: params.max_conns,
            max_fails: params.max_fails,
            fail_timeout: params.fail_timeout,
            slow_start: params.slow_start,
            backup: params.backup,
            route: Cow::Borrowed(&params.route),
            labels: Cow::Borrowed(&params.labels),
            admin,
            declared: server.declared.as_ref().map(DeclaredLine::of),
            addrs: Cow::Borrowed(&server.addrs),
        }
    }

    fn into_server(self) -> Result<Server, String> {
        let implied = implied_origin(self.declared.is_some());
        let origin = self.origin.as_deref().map_or(Ok(implied), origin)?;
        let admin = self.admin.map(|admin| Admin {
            state: admin.state,
            since: admin.since,
            until: admin.until,
            reason: admin.reason.into_owned(),
            by: admin.by.into_owned(),
            from: admin.from.into_owned(),
        });
        let params = Params {
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            slow_start: self.slow_start,
            backup: self.backup,
            route: self.route.into_owned(),
            labels: self.labels.into_owned(),
        };
        Ok(Server {
            id: self.id,
            addr: self.server,
            given: self.given.map(Cow::into_owned),
            origin,
            params,
            admin: admin.unwrap_or_default(),
            declared: self.declared.map(DeclaredLine::into_declared),
            addrs: self.addrs.into_owned(),
        })
    }
}

fn implied_origin(declared: bool) -> Origin {
    if declared { Origin::Config } else { Origin::Api }
}

fn no_addrs(addrs: &[SocketAddr]) -> bool {
    addrs.is_empty()
}

fn no_labels(labels: &BTreeMap<String, String>) -> bool {
    labels.is_empty()
}
