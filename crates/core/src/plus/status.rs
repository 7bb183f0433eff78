//! What nginx knows of itself, as objects: only figures that it keeps.

use crate::plus::error::Code;
use crate::plus::fields::{Fields, Object, key};
use crate::time::iso_millis;

/// An endpoint of the status of nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `nginx`
    Nginx,
    /// `processes`
    Processes,
    /// `connections`
    Connections,
    /// `slabs`
    Slabs,
    /// `resolvers`
    Resolvers,
    /// `ssl`
    Ssl,
    /// `workers`
    Workers,
    /// `http/requests`
    Requests,
    /// `http/server_zones`
    ServerZones,
    /// `http/location_zones`
    LocationZones,
    /// `http/caches`
    Caches,
    /// `http/limit_conns`
    LimitConns,
    /// `http/limit_reqs`
    LimitReqs,
}

/// What a version has.
pub const ROOT: &[&str] =
    &["nginx", "processes", "connections", "slabs", "http", "resolvers", "ssl", "workers"];
/// What `http/` has.
pub const HTTP: &[&str] = &[
    "requests",
    "server_zones",
    "location_zones",
    "caches",
    "limit_conns",
    "limit_reqs",
    "upstreams",
];

impl Status {
    /// One of [`ROOT`].
    pub fn of_root(name: &str) -> Option<Self> {
        Some(match name {
            "nginx" => Self::Nginx,
            "processes" => Self::Processes,
            "connections" => Self::Connections,
            "slabs" => Self::Slabs,
            "resolvers" => Self::Resolvers,
            "ssl" => Self::Ssl,
            "workers" => Self::Workers,
            _ => return None,
        })
    }

    /// One of [`HTTP`].
    pub fn of_http(name: &str) -> Option<Self> {
        Some(match name {
            "requests" => Self::Requests,
            "server_zones" => Self::ServerZones,
            "location_zones" => Self::LocationZones,
            "caches" => Self::Caches,
            "limit_conns" => Self::LimitConns,
            "limit_reqs" => Self::LimitReqs,
            _ => return None,
        })
    }

    /// The error for one that is not there; `None` where there are no several.
    pub fn missing(self) -> Option<Code> {
        match self {
            Self::Nginx | Self::Processes | Self::Connections | Self::Ssl | Self::Requests => None,
            Self::Slabs => Some(Code::SlabNotFound),
            Self::Resolvers => Some(Code::ResolverZoneNotFound),
            Self::Workers => Some(Code::WorkerNotFound),
            Self::ServerZones => Some(Code::ServerZoneNotFound),
            Self::LocationZones => Some(Code::LocationZoneNotFound),
            Self::Caches => Some(Code::CacheNotFound),
            Self::LimitConns => Some(Code::LimitConnNotFound),
            Self::LimitReqs => Some(Code::LimitReqNotFound),
        }
    }
}

/// A list of words.
pub fn words(out: &mut Vec<u8>, words: &[&str]) {
    // A vector takes everything.
    let _ = serde_json::to_writer(out, words);
}

/// The running nginx.
#[derive(Clone, Debug, Default)]
pub struct Nginx<'a> {
    /// Its version.
    pub version: &'a str,
    /// Who answers here.
    pub build: &'a str,
    /// The address that the request came to.
    pub address: &'a str,
    /// Configurations that were loaded.
    pub generation: u64,
    /// When the last one was, unix ms.
    pub load_timestamp: u64,
    /// Now, unix ms.
    pub timestamp: u64,
    /// The worker.
    pub pid: u32,
    /// Its master.
    pub ppid: u32,
}

impl Nginx<'_> {
    /// Writes it.
    pub fn write(&self, out: &mut Vec<u8>, fields: &Fields) {
        let mut object = Object::open(out, fields);
        object.member("version", self.version);
        object.member("build", self.build);
        object.member("address", self.address);
        object.member("generation", &self.generation);
        object.member("load_timestamp", &iso_millis(self.load_timestamp));
        object.member("timestamp", &iso_millis(self.timestamp));
        object.member("pid", &self.pid);
        object.member("ppid", &self.ppid);
        object.close();
    }
}

/// What nginx counts of clients, as its `stub_status` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stub {
    /// Connections accepted.
    pub accepted: u64,
    /// Those of them that were not dropped at once.
    pub handled: u64,
    /// Connections open, idle ones among them.
    pub active: u64,
    /// Requests begun.
    pub requests: u64,
    /// Connections whose request is being read.
    pub reading: u64,
    /// Connections whose request is being answered.
    pub writing: u64,
    /// Idle connections.
    pub waiting: u64,
}

/// `connections`; nothing where nginx does not count.
pub fn connections(out: &mut Vec<u8>, fields: &Fields, stub: Option<&Stub>) {
    let mut object = Object::open(out, fields);
    if let Some(stub) = stub {
        // They are read one after the other while others count.
        object.member("accepted", &stub.accepted);
        object.member("dropped", &stub.accepted.saturating_sub(stub.handled));
        object.member("active", &stub.active.saturating_sub(stub.waiting));
        object.member("idle", &stub.waiting);
    }
    object.close();
}

/// `http/requests`; nothing where nginx does not count.
pub fn requests(out: &mut Vec<u8>, fields: &Fields, stub: Option<&Stub>) {
    let mut object = Object::open(out, fields);
    if let Some(stub) = stub {
        object.member("total", &stub.requests);
        object.member("current", &(stub.reading + stub.writing));
    }
    object.close();
}

/// A zone of shared memory as nginx's slab allocator keeps it.
#[derive(Clone, Debug, Default)]
pub struct Slab {
    /// Its name.
    pub name: String,
    /// Pages in use.
    pub used: u64,
    /// Pages that are free.
    pub free: u64,
    /// Its slots, the smallest first.
    pub slots: Vec<Slot>,
}

/// Pieces of one size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The size, bytes.
    pub size: u64,
    /// Pieces in use.
    pub used: u64,
    /// Pieces that are free.
    pub free: u64,
    /// How often one was asked for.
    pub reqs: u64,
    /// How often none was had.
    pub fails: u64,
}

impl Slab {
    /// Writes it.
    pub fn write(&self, out: &mut Vec<u8>, fields: &Fields) {
        out.push(b'{');
        let has_pages = fields.has("pages");
        if has_pages {
            key(out, "pages", true);
            let mut pages = Object::open(out, &Fields::All);
            pages.member("used", &self.used);
            pages.member("free", &self.free);
            pages.close();
        }
        if fields.has("slots") {
            key(out, "slots", !has_pages);
            out.push(b'{');
            for (i, slot) in self.slots.iter().enumerate() {
                key(out, &slot.size.to_string(), i == 0);
                let mut object = Object::open(out, &Fields::All);
                object.member("used", &slot.used);
                object.member("free", &slot.free);
                object.member("reqs", &slot.reqs);
                object.member("fails", &slot.fails);
                object.close();
            }
            out.push(b'}');
        }
        out.push(b'}');
    }
}

/// `slabs`
pub fn slabs(out: &mut Vec<u8>, fields: &Fields, slabs: &[Slab]) {
    out.push(b'{');
    for (i, slab) in slabs.iter().enumerate() {
        key(out, &slab.name, i == 0);
        slab.write(out, fields);
    }
    out.push(b'}');
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its place in the master's table of processes.
    pub id: u64,
    /// Its process.
    pub pid: u32,
}

impl Worker {
    /// Writes it.
    pub fn write(&self, out: &mut Vec<u8>, fields: &Fields) {
        let mut object = Object::open(out, fields);
        object.member("id", &self.id);
        object.member("pid", &self.pid);
        object.close();
    }
}

/// `workers`
pub fn workers(out: &mut Vec<u8>, fields: &Fields, workers: &[Worker]) {
    out.push(b'[');
    for (i, worker) in workers.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        worker.write(out, fields);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_listed_is_there() {
        for name in ROOT {
            assert!(*name == "http" || Status::of_root(name).is_some(), "{name}");
        }
        for name in HTTP {
            assert!(*name == "upstreams" || Status::of_http(name).is_some(), "{name}");
        }
    }

    #[test]
    fn figures_are_those_of_nginx_and_never_negative() {
        let stub = Stub {
            accepted: 10,
            handled: 9,
            active: 3,
            requests: 20,
            reading: 1,
            writing: 1,
            waiting: 1,
        };
        let all = &Fields::All;
        let shown = text(|out| connections(out, all, Some(&stub)));
        assert_eq!(shown, r#"{"accepted":10,"dropped":1,"active":2,"idle":1}"#);
        let shown = text(|out| requests(out, all, Some(&stub)));
        assert_eq!(shown, r#"{"total":20,"current":2}"#);
        let raced = Stub { handled: 11, waiting: 4, ..stub };
        let shown = text(|out| connections(out, &Fields::parse("dropped,active"), Some(&raced)));
        assert_eq!(shown, r#"{"dropped":0,"active":0}"#);
        assert_eq!(text(|out| connections(out, all, None)), "{}");
        assert_eq!(text(|out| requests(out, all, None)), "{}");
    }

    #[test]
    fn zones_show_pages_and_slots() {
        let slot = Slot { size: 8, used: 1, free: 2, reqs: 3, fails: 4 };
        let slab = Slab { name: "main".into(), used: 5, free: 6, slots: vec![slot] };
        let shown = text(|out| slabs(out, &Fields::All, std::slice::from_ref(&slab)));
        let wanted = r#"{"main":{"pages":{"used":5,"free":6},"slots":{"8":{"used":1,"free":2,"reqs":3,"fails":4}}}}"#;
        assert_eq!(shown, wanted);
        let shown = text(|out| slabs(out, &Fields::parse(""), &[slab]));
        assert_eq!(shown, r#"{"main":{}}"#);
    }

    #[test]
    fn the_running_nginx_and_its_workers_are_shown() {
        let nginx = Nginx { version: "1.22.1", pid: 7, load_timestamp: 1, ..Nginx::default() };
        let shown = text(|out| nginx.write(out, &Fields::parse("version,pid,load_timestamp")));
        let wanted = r#"{"version":"1.22.1","load_timestamp":"1970-01-01T00:00:00.001Z","pid":7}"#;
        assert_eq!(shown, wanted);
        let two = [Worker { id: 0, pid: 7 }, Worker { id: 1, pid: 8 }];
        let shown = text(|out| workers(out, &Fields::All, &two));
        assert_eq!(shown, r#"[{"id":0,"pid":7},{"id":1,"pid":8}]"#);
    }
}
