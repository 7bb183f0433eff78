//! What a client expects of its upstreams: plain maps, written from the documentation of the API
//! and not from its code.

use std::collections::BTreeMap;

use crate::support::*;

/// The limits of a server by their place; `None` follows the upstream's defaults.
pub(crate) type Limits = [Option<u64>; 4];

pub(crate) const LIMITS: [&str; 4] = ["weight", "max_conns", "max_fails", "fail_timeout"];
pub(crate) const BUILT_IN: [u64; 4] = [1, 0, 1, 10];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    #[default]
    Up,
    Drain,
    Down,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Drain => "drain",
            Self::Down => "down",
        }
    }
}

/// What an operator wants. It ends by itself not before and not after the two times of `until`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Admin {
    pub state: State,
    pub reason: String,
    pub until: Option<(Instant, Instant)>,
    /// When it was set; not again where it is set to what it is.
    pub since: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub addr: String,
    /// Which one it is of all that this client has made: it has one id as long as it is the same.
    pub born: u64,
    pub config: bool,
    pub limits: Limits,
    pub backup: bool,
    pub route: String,
    pub labels: BTreeMap<String, String>,
    pub admin: Admin,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Upstream {
    /// Empty is round robin.
    pub method: String,
    pub defaults: Limits,
    pub servers: Vec<Server>,
    /// Other clients have servers in it too: these addresses alone are ours.
    pub shared: Option<Vec<String>>,
    /// Addresses that its block in the configuration declares.
    pub declared: Vec<String>,
}

/// Everything that one client has a say in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct World {
    pub upstreams: BTreeMap<String, Upstream>,
    /// By address; a host that is up is not there.
    pub hosts: BTreeMap<String, Admin>,
}

impl Admin {
    /// Whether its end may have come and need not have.
    pub(crate) fn unsure(&self, now: Instant) -> bool {
        self.until.is_some_and(|(from, _)| now >= from)
    }

    fn settle(&mut self, now: Instant) {
        if self.until.is_some_and(|(_, to)| now > to) {
            *self = Self::default();
        }
    }

    /// What is wrong with it as it is shown.
    fn wrong(&self, shown: &Value, now: Instant) -> Option<String> {
        let up = shown.is_null() || shown["state"] == "up";
        let reason = shown["reason"].as_str().unwrap_or_default();
        if up && (self.unsure(now) || self.state == State::Up && reason == self.reason) {
            return None;
        }
        let same = shown["state"] == self.state.word()
            && shown["reason"] == *self.reason
            && shown["until"].is_null() == self.until.is_none();
        let late = self.until.is_some_and(|(_, to)| now > to);
        (!same || late).then(|| format!("admin is {shown}, expected {self:?}"))
    }
}

impl Server {
    pub(crate) fn limit(&self, at: usize, defaults: &Limits) -> u64 {
        self.limits[at].or(defaults[at]).unwrap_or(BUILT_IN[at])
    }
}

impl Upstream {
    pub(crate) fn server(&self, addr: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.addr == addr)
    }

    pub(crate) fn server_mut(&mut self, addr: &str) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.addr == addr)
    }

    /// What is wrong with it as it is shown; `hosts` are in force.
    pub(crate) fn wrong(
        &self,
        shown: &Value,
        hosts: &BTreeMap<String, Admin>,
        now: Instant,
    ) -> Option<String> {
        let none = Vec::new();
        let servers = shown["servers"].as_array().unwrap_or(&none);
        let ours = |addr: &str| {
            self.shared.as_ref().is_none_or(|mine| mine.iter().any(|other| other == addr))
        };
        let there: Vec<&str> =
            servers.iter().filter_map(|server| server["server"].as_str()).collect();
        let there: Vec<&str> = there.into_iter().filter(|addr| ours(addr)).collect();
        let expected: Vec<&str> = self.servers.iter().map(|server| &*server.addr).collect();
        let equal = if self.shared.is_some() {
            let sorted = |mut v: Vec<&str>| {
                v.sort_unstable();
                v.join(" ")
            };
            sorted(there.clone()) == sorted(expected.clone())
        } else {
            there == expected
        };
        if !equal {
            return Some(format!("servers are {there:?}, expected {expected:?}"));
        }
        if self.shared.is_none() {
            let method = if self.method.is_empty() { "round_robin" } else { &self.method };
            if shown["method"] != method {
                return Some(format!("method is {}, expected {method}", shown["method"]));
            }
            let defaults = &shown["defaults"];
            for at in 0..LIMITS.len() {
                let expected = shown_limit(at, self.defaults[at].unwrap_or(BUILT_IN[at]));
                if defaults[LIMITS[at]] != expected {
                    return Some(format!("defaults are {defaults}, expected {:?}", self.defaults));
                }
            }
        }
        self.servers.iter().find_map(|server| {
            let shown = servers.iter().find(|shown| shown["server"] == *server.addr)?;
            let wrong = self.wrong_server(server, shown, hosts, now)?;
            Some(format!("server {}: {wrong}: {shown}", server.addr))
        })
    }

    pub(crate) fn wrong_server(
        &self,
        server: &Server,
        shown: &Value,
        hosts: &BTreeMap<String, Admin>,
        now: Instant,
    ) -> Option<String> {
        for at in 0..LIMITS.len() {
            let expected = shown_limit(at, server.limit(at, &self.defaults));
            if shown[LIMITS[at]] != expected {
                return Some(format!("{} is not {expected}", LIMITS[at]));
            }
        }
        let origin = if server.config { "config" } else { "api" };
        let rest = [
            ("origin", json!(origin)),
            ("backup", json!(server.backup)),
            ("route", json!(server.route)),
            ("labels", json!(server.labels)),
        ];
        if let Some((field, expected)) = rest.iter().find(|(f, expected)| shown[*f] != *expected) {
            return Some(format!("{field} is not {expected}"));
        }
        let up = Admin::default();
        let host = hosts.get(host_of(&server.addr)).unwrap_or(&up);
        let wrong = server.admin.wrong(&shown["admin"], now);
        let wrong = wrong
            .or_else(|| host.wrong(&shown["host_admin"], now).map(|w| "host ".to_owned() + &w));
        if wrong.is_some() || server.admin.unsure(now) || host.unsure(now) {
            return wrong;
        }
        let state = &shown["state"];
        let right = match server.admin.state.max(host.state) {
            State::Down => state == "down",
            State::Drain => state == "draining",
            State::Up => state != "down" && state != "draining",
        };
        (!right).then(|| format!("state is {state}"))
    }
}

impl World {
    /// Ends what has ended for certain.
    pub(crate) fn settle(&mut self, now: Instant) {
        let servers = self.upstreams.values_mut().flat_map(|upstream| &mut upstream.servers);
        servers.for_each(|server| server.admin.settle(now));
        self.hosts.values_mut().for_each(|admin| admin.settle(now));
        self.hosts.retain(|_, admin| admin.state != State::Up);
    }

    /// What covers a server: its own admin state and that of its host, for certain or at most.
    pub(crate) fn serves(&self, upstream: &Upstream, server: &Server, now: Instant) -> Serves {
        let host = self.hosts.get(host_of(&server.addr));
        let states = [Some(&server.admin), host].into_iter().flatten();
        let closed: Vec<&Admin> = states.filter(|admin| admin.state != State::Up).collect();
        if server.limit(0, &upstream.defaults) == 0 {
            return Serves::No;
        }
        // A little before its end too: what is asked now is done a little later.
        let soon = now + secs(2);
        match closed.iter().all(|admin| admin.unsure(soon)) {
            true if !closed.is_empty() => Serves::Perhaps,
            false => Serves::No,
            true if server.limit(1, &upstream.defaults) > 0 || server.backup => Serves::Perhaps,
            true => Serves::Yes,
        }
    }
}

/// Whether a server takes a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    Yes,
    Perhaps,
    No,
}

fn shown_limit(at: usize, value: u64) -> Value {
    if LIMITS[at] == "fail_timeout" { json!(format!("{value}s")) } else { json!(value) }
}

/// The host of an address: of `10.0.0.1:80` and `[::1]:80`; a unix socket has none.
pub(crate) fn host_of(addr: &str) -> &str {
    if addr.starts_with("unix:") {
        return "";
    }
    addr.rsplit_once(':').map_or("", |(host, _)| host.trim_matches(['[', ']']))
}
