//! The snapshot of a state file: JSON lines that people can read, each with its checksum.
//!
//! ```text
//! {"sum":"8a9136aa","data":{"format":2,"zone":"main","revision":812,"next_id":9,"time":"…"}}
//! {"sum":"…","data":{"hosts":{"10.0.0.1":{…}},"revision":790}}
//! {"sum":"…","data":{"upstream":"app","revision":811,"servers":[{"id":7,"server":"10.0.0.1:80"}]}}
//! {"sum":"…","data":{"routes":[{"key":"acme","upstream":"app"}],"revision":812}}
//! {"sum":"…","data":{"end":1,"servers":1,"routes":1}}
//! ```
//!
//! Lines are absolute images with their revision; of routes, many to a line, that is the zone's when
//! they were read: no older change is missing in them. The snapshot is fuzzy: changes go on while it is
//! made, so that lines may be newer than the header; the journals from [`Header::journal`] on make
//! it whole.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::damage::{Damage, Fault, Part};
use crate::host::Hosts;
use crate::line;
pub use crate::line::FORMAT;
use crate::line::route::RouteLine;
use crate::line::upstream::UpstreamLine;
use crate::name::UpstreamName;
use crate::route::{Route, RouteKey};
use crate::time::iso;
use crate::upstream::Upstream;

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
    /// The first journal that goes on top; 0 = none was (format 1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub journal: u64,
    /// Under which epoch it was written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// Which instance of the zone wrote it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
    /// When it began, for people.
    pub time: String,
}

impl Header {
    /// The header of a snapshot that begins at `now`, unix ms, and needs no journal.
    pub fn new(zone: &str, revision: u64, next_id: u64, now: u64) -> Self {
        let (zone, time) = (zone.to_owned(), iso(now));
        Self { format: FORMAT, zone, revision, next_id, journal: 0, epoch: 0, instance: 0, time }
    }
}

/// Makes the lines of a snapshot, one upstream at a time.
#[derive(Debug, Default)]
pub struct Writer {
    upstreams: u64,
    servers: u64,
    routes: u64,
}

impl Writer {
    /// Begins with the header.
    pub fn begin(out: &mut Vec<u8>, header: &Header) -> Self {
        line::write(out, header);
        Self::default()
    }

    /// Adds an upstream.
    pub fn upstream(&mut self, out: &mut Vec<u8>, upstream: &Upstream, revision: u64) {
        self.upstreams += 1;
        self.servers += upstream.servers.len() as u64;
        line::write(out, &UpstreamLine::of(upstream, revision));
    }

    /// Adds the admin states of hosts, once.
    pub fn hosts(&mut self, out: &mut Vec<u8>, hosts: &Hosts, revision: u64) {
        if !hosts.is_empty() {
            line::write(out, &HostsLine { hosts: hosts.clone(), revision });
        }
    }

    /// Adds routes that were read when the zone had this revision, or a later one.
    pub fn routes(&mut self, out: &mut Vec<u8>, routes: &[Route], revision: u64) {
        if !routes.is_empty() {
            self.routes += routes.len() as u64;
            let routes = routes.iter().map(RouteLine::of).collect();
            line::write(out, &RoutesLine { routes, revision });
        }
    }

    /// Ends: only a file with this line is whole.
    pub fn end(self, out: &mut Vec<u8>) {
        let Self { upstreams: end, servers, routes } = self;
        line::write(out, &EndLine { end, servers, routes });
    }
}

/// What a state file gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The first line, if it is good.
    pub header: Option<Header>,
    /// The admin states of hosts.
    pub hosts: Hosts,
    /// Their revision.
    pub hosts_revision: u64,
    /// Upstreams with their revision, in the file's order.
    pub upstreams: Vec<(Upstream, u64)>,
    /// Routes with the revision up to which no change is missing in them, in the file's order.
    pub routes: Vec<(Route, u64)>,
    /// What stopped the reading, if the file is not whole.
    pub damage: Option<Damage>,
}

impl Loaded {
    /// The same as one snapshot, on which only journals from this number on go on.
    pub fn to_bytes(&self, journal: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let first = self.header.clone().unwrap_or_else(|| Header::new("", 0, 1, 0));
        let mut writer = Writer::begin(&mut out, &Header { journal, ..first });
        writer.hosts(&mut out, &self.hosts, self.hosts_revision);
        for (upstream, revision) in &self.upstreams {
            writer.upstream(&mut out, upstream, *revision);
        }
        for (route, revision) in &self.routes {
            writer.routes(&mut out, std::slice::from_ref(route), *revision);
        }
        writer.end(&mut out);
        out
    }
}

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Loaded {
    let mut reader = Reader::default();
    let mut lines = 0;
    for text in bytes.split_inclusive(|&b| b == b'\n') {
        lines += 1;
        if let Err(fault) = reader.line(text) {
            reader.loaded.damage = Some(fault.at(Part::Snapshot, lines));
            return reader.loaded;
        }
    }
    if !reader.ended {
        let fault = Fault::torn("the end is missing");
        reader.loaded.damage = Some(fault.at(Part::Snapshot, lines + 1));
    }
    reader.loaded
}

#[derive(Default)]
struct Reader {
    loaded: Loaded,
    names: HashSet<UpstreamName>,
    keys: HashSet<RouteKey>,
    servers: u64,
    ended: bool,
}

impl Reader {
    fn line(&mut self, text: &[u8]) -> Result<(), Fault> {
        if self.ended {
            return Err("there is something after the end".to_owned().into());
        }
        let data = line::unwrap(text)?;
        if self.loaded.header.is_none() {
            self.loaded.header = Some(line::first(data)?);
        } else if data.starts_with(b"{\"end\":") {
            self.end(&line::from_json(data)?)?;
        } else if data.starts_with(b"{\"hosts\":") {
            let HostsLine { hosts, revision } = line::from_json(data)?;
            (self.loaded.hosts, self.loaded.hosts_revision) = (hosts, revision);
        } else if data.starts_with(b"{\"routes\":") {
            self.routes(line::from_json(data)?)?;
        } else {
            self.upstream(line::from_json(data)?)?;
        }
        Ok(())
    }

    fn upstream(&mut self, line: UpstreamLine<'_>) -> Result<(), String> {
        let (upstream, revision) = line.into_upstream()?;
        if !self.names.insert(upstream.name.clone()) {
            return Err(format!("upstream \"{}\" comes twice", upstream.name));
        }
        self.servers += upstream.servers.len() as u64;
        self.loaded.upstreams.push((upstream, revision));
        Ok(())
    }

    fn routes(&mut self, line: RoutesLine) -> Result<(), String> {
        let RoutesLine { routes, revision } = line;
        for route in routes {
            let route = route.into_route()?;
            if !self.keys.insert(route.key.clone()) {
                return Err(format!("route \"{}\" comes twice", route.key));
            }
            self.loaded.routes.push((route, revision));
        }
        Ok(())
    }

    fn end(&mut self, end: &EndLine) -> Result<(), String> {
        let (have, have_servers) = (self.loaded.upstreams.len() as u64, self.servers);
        if (end.end, end.servers) != (have, have_servers) {
            return Err(format!(
                "{have} upstreams and {have_servers} servers where {} and {} were written",
                end.end, end.servers
            ));
        }
        let (have, written) = (self.loaded.routes.len() as u64, end.routes);
        if have != written {
            return Err(format!("{have} routes where {written} were written"));
        }
        self.ended = true;
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct HostsLine {
    hosts: Hosts,
    #[serde(default)]
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct RoutesLine {
    routes: Vec<RouteLine>,
    #[serde(default)]
    revision: u64,
}

#[derive(Serialize, Deserialize)]
struct EndLine {
    end: u64,
    servers: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    routes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
