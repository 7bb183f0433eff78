//! A change: how it is said to the API, and what the documentation says it does to a world.

use crate::support::*;

use super::model::*;
use super::rules::{host, limits, made, put_servers, restate, verb};

/// Parameters of `up`, `down`, `drain`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opts {
    /// Seconds.
    pub ttl: Option<u64>,
    pub reason: Option<String>,
    pub if_reason: Option<String>,
    pub min_up: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// PUT (`whole`) or PATCH of an upstream.
    Upstream {
        name: String,
        body: Value,
        whole: bool,
    },
    DropUpstream {
        name: String,
    },
    /// PUT (`whole`) or PATCH of a server.
    Server {
        name: String,
        addr: String,
        body: Value,
        whole: bool,
    },
    DropServer {
        name: String,
        addr: String,
    },
    Verb {
        name: String,
        addr: String,
        state: State,
        opts: Opts,
    },
    Host {
        ip: String,
        state: State,
        opts: Opts,
        missing: bool,
    },
}

/// What the answer may be: a success, or one of these refusals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub done: bool,
    pub refused: Vec<u16>,
}

impl Verdict {
    pub(crate) fn done() -> Self {
        Self { done: true, refused: Vec::new() }
    }

    pub(crate) fn refused(status: u16) -> Self {
        Self { done: false, refused: vec![status] }
    }

    pub(crate) fn either(status: u16) -> Self {
        Self { done: true, refused: vec![status] }
    }

    /// The verdict of several changes of which all are done or none.
    pub(crate) fn and(&mut self, next: Self) {
        self.done &= next.done;
        self.refused.extend(next.refused);
    }
}

/// When a change is made, and the number of the next server that is made.
pub(crate) struct Moment<'a> {
    pub now: Instant,
    pub born: &'a mut u64,
}

impl Change {
    /// Method, path and body of the call.
    pub(crate) fn call(&self) -> (&'static str, String, Option<Value>) {
        let server = |name: &str, addr: &str| format!("upstreams/{name}/servers/{}", escaped(addr));
        let method = |whole: bool| if whole { "PUT" } else { "PATCH" };
        match self {
            Self::Upstream { name, body, whole } => {
                (method(*whole), format!("upstreams/{name}"), Some(body.clone()))
            }
            Self::DropUpstream { name } => ("DELETE", format!("upstreams/{name}"), None),
            Self::Server { name, addr, body, whole } => {
                (method(*whole), server(name, addr), Some(body.clone()))
            }
            Self::DropServer { name, addr } => ("DELETE", server(name, addr), None),
            Self::Verb { name, addr, state, opts } => {
                ("POST", format!("{}/{}?{}", server(name, addr), state.word(), opts.query()), None)
            }
            Self::Host { ip, state, opts, missing } => {
                let missing = if *missing { "&missing=ok" } else { "" };
                let path = format!("hosts/{ip}/{}?{}{missing}", state.word(), opts.query());
                ("POST", path, None)
            }
        }
    }

    /// The same as a part of a batch.
    pub(crate) fn item(&self) -> Value {
        let op = |whole: bool| if whole { "put" } else { "patch" };
        match self {
            Self::Upstream { name, body, whole } => {
                json!({"op": op(*whole), "upstream": name, "body": body})
            }
            Self::DropUpstream { name } => json!({"op": "delete", "upstream": name}),
            Self::Server { name, addr, body, whole } => {
                json!({"op": op(*whole), "upstream": name, "server": addr, "body": body})
            }
            Self::DropServer { name, addr } => {
                json!({"op": "delete", "upstream": name, "server": addr})
            }
            Self::Verb { name, addr, state, opts } => {
                let mut item = json!({"op": state.word(), "upstream": name, "server": addr});
                opts.put_into(&mut item);
                item
            }
            Self::Host { ip, state, opts, missing } => {
                let mut item = json!({"op": state.word(), "host": ip});
                opts.put_into(&mut item);
                if *missing {
                    item["missing"] = json!("ok");
                }
                item
            }
        }
    }

    /// The upstream that it is about; of a host, `None`.
    pub(crate) fn upstream(&self) -> Option<&str> {
        match self {
            Self::Upstream { name, .. }
            | Self::DropUpstream { name }
            | Self::Server { name, .. }
            | Self::DropServer { name, .. }
            | Self::Verb { name, .. } => Some(name),
            Self::Host { .. } => None,
        }
    }

    /// Does it to a world, which stays as it is where the change is refused for certain.
    pub(crate) fn apply(&self, world: &mut World, at: &mut Moment<'_>) -> Verdict {
        let mut next = world.clone();
        let verdict = self.apply_to(&mut next, at);
        if verdict.done {
            *world = next;
        }
        verdict
    }

    fn apply_to(&self, world: &mut World, at: &mut Moment<'_>) -> Verdict {
        match self {
            Self::Upstream { name, body, whole: true } => {
                let mut next = world.upstreams.remove(name).unwrap_or_default();
                limits(&mut next.defaults, &body["defaults"], &BUILT_IN, Some(true));
                method(&mut next.method, Some(&body["method"]));
                match body["servers"].as_array() {
                    Some(servers) => put_servers(&mut next, servers, at),
                    None if next.servers.is_empty() => {}
                    None => return Verdict::refused(400),
                }
                world.upstreams.insert(name.clone(), next);
            }
            Self::Upstream { name, body, whole: false } => {
                let Some(next) = world.upstreams.get_mut(name) else {
                    return Verdict::refused(404);
                };
                method(&mut next.method, body.get("method"));
                match body.get("defaults") {
                    Some(Value::Null) => next.defaults = Limits::default(),
                    Some(defaults) => limits(&mut next.defaults, defaults, &BUILT_IN, Some(false)),
                    None => {}
                }
            }
            Self::DropUpstream { name } => {
                if world.upstreams.remove(name).is_none() {
                    return Verdict::refused(404);
                }
            }
            Self::Server { name, addr, body, whole } => {
                let Some(up) = world.upstreams.get_mut(name) else { return Verdict::refused(404) };
                match up.servers.iter().position(|server| server.addr == *addr) {
                    Some(there) => {
                        let defaults = up.defaults;
                        restate(&mut up.servers[there], body, &defaults, *whole, at.now);
                    }
                    None if *whole => {
                        let made = made(up, addr, body, at);
                        up.servers.push(made);
                    }
                    None => return Verdict::refused(404),
                }
            }
            Self::DropServer { name, addr } => {
                let Some(up) = world.upstreams.get_mut(name) else { return Verdict::refused(404) };
                let before = up.servers.len();
                up.servers.retain(|server| server.addr != *addr);
                if up.servers.len() == before {
                    return Verdict::refused(404);
                }
            }
            Self::Verb { name, addr, state, opts } => {
                return verb(world, (name, addr), *state, opts, at.now);
            }
            Self::Host { ip, state, opts, missing } => {
                return host(world, ip, *state, opts, *missing, at.now);
            }
        }
        Verdict::done()
    }
}

impl Opts {
    fn query(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.ttl.map(|ttl| format!("ttl={ttl}s")));
        parts.extend(self.reason.as_ref().map(|reason| format!("reason={reason}")));
        parts.extend(self.if_reason.as_ref().map(|reason| format!("if_reason={reason}")));
        parts.extend(self.min_up.map(|n| format!("min_up={n}")));
        parts.join("&")
    }

    fn put_into(&self, item: &mut Value) {
        if let Some(ttl) = self.ttl {
            item["ttl"] = json!(format!("{ttl}s"));
        }
        if let Some(reason) = &self.reason {
            item["reason"] = json!(reason);
        }
        if let Some(reason) = &self.if_reason {
            item["if_reason"] = json!(reason);
        }
        if let Some(min_up) = self.min_up {
            item["min_up"] = json!(min_up);
        }
    }

    /// What stands afterwards.
    pub(crate) fn admin(&self, stands: &Admin, state: State, now: Instant) -> Admin {
        let until = self.ttl.map(|ttl| (now + secs(ttl) - ms(1100), now + secs(ttl) + LATE));
        let reason = self.reason.clone().unwrap_or_default();
        if stands.state == state && stands.reason == reason && stands.until == until {
            return stands.clone();
        }
        Admin { state, reason, until, since: Some(now) }
    }

    /// Whether `if_reason` forbids it.
    pub(crate) fn forbids(&self, stands: &Admin) -> bool {
        let other = |reason: &String| *reason != stands.reason;
        stands.state != State::Up && self.if_reason.as_ref().is_some_and(other)
    }
}

/// An address as a segment of a path.
fn escaped(addr: &str) -> String {
    addr.replace('/', "%2F").replace('[', "%5B").replace(']', "%5D")
}

/// How much later than its time a ttl may end: its keeper may be killed or stopped.
const LATE: Duration = secs(8);

/// `null` is round robin; nothing said leaves it as it is.
fn method(now: &mut String, said: Option<&Value>) {
    if let Some(said) = said {
        let said = said.as_str().filter(|said| *said != "round_robin");
        *now = said.unwrap_or_default().to_owned();
    }
}
