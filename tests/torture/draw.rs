//! Drawing changes: what a client may touch, and what it makes of chance.

use crate::support::*;

use super::change::{Change, Opts};
use super::model::*;
use super::rng::Rng;

/// What one client may touch. Nobody else does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kit {
    /// Upstreams of its own with real servers.
    pub hot: Vec<String>,
    /// Upstreams of its own to which no request is sent.
    pub cold: Vec<String>,
    /// Upstreams in which others have servers too.
    pub shared: Vec<String>,
    /// Real servers for those of its own.
    pub real: Vec<String>,
    /// Real servers that are nobody else's, for shared ones too.
    pub private: Vec<String>,
    /// Addresses of every kind on which nothing listens.
    pub fake: Vec<String>,
    pub hosts: Vec<String>,
}

impl Kit {
    pub(crate) fn own(&self) -> impl Iterator<Item = &String> {
        self.hot.iter().chain(&self.cold)
    }

    fn pool(&self, name: &str) -> &[String] {
        let has = |list: &[String]| list.iter().any(|other| other == name);
        if has(&self.shared) {
            &self.private
        } else if has(&self.hot) {
            &self.real
        } else {
            &self.fake
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    PutUpstream,
    PatchUpstream,
    DropUpstream,
    PutServer,
    PatchServer,
    DropServer,
    Verb,
    Host,
}

const KINDS: [(u64, Kind); 8] = [
    (12, Kind::PutUpstream),
    (5, Kind::PatchUpstream),
    (4, Kind::DropUpstream),
    (16, Kind::PutServer),
    (17, Kind::PatchServer),
    (11, Kind::DropServer),
    (27, Kind::Verb),
    (8, Kind::Host),
];

/// A change of something whose state is certain; `None` where chance found none.
pub(crate) fn draw(rng: &mut Rng, kit: &Kit, world: &World) -> Option<Change> {
    let kind = rng.weighted(&KINDS);
    let own_only = matches!(kind, Kind::PutUpstream | Kind::PatchUpstream | Kind::DropUpstream);
    let family = rng.weighted(&[
        (50, &kit.hot),
        (if own_only { 0 } else { 25 }, &kit.shared),
        (25, &kit.cold),
    ]);
    let name = rng.pick(family).clone();
    let pool = kit.pool(&name);
    let up = world.upstreams.get(&name);
    // Most are there most of the time.
    let kind = if up.is_none() && rng.chance(75) { Kind::PutUpstream } else { kind };
    let known =
        up.map(|up| &up.servers[..]).filter(|servers| !servers.is_empty() && rng.chance(85));
    let addr = match known {
        Some(servers) => rng.pick(servers).addr.clone(),
        None => rng.pick(pool).clone(),
    };
    let change = match kind {
        Kind::PutUpstream => Change::Upstream { name, body: whole(rng, pool), whole: true },
        Kind::PatchUpstream => {
            let mut body = json!({});
            match rng.chance(15) {
                true => body["defaults"] = Value::Null,
                false => body["defaults"] = limits(rng, true),
            }
            if rng.chance(50) {
                body["method"] = method(rng);
            }
            Change::Upstream { name, body, whole: false }
        }
        Kind::DropUpstream => Change::DropUpstream { name },
        Kind::PutServer => {
            let addr = if rng.chance(50) { rng.pick(pool).clone() } else { addr };
            Change::Server { name, addr, body: server(rng, false), whole: true }
        }
        Kind::PatchServer => Change::Server { name, addr, body: server(rng, true), whole: false },
        Kind::DropServer => Change::DropServer { name, addr },
        Kind::Verb => {
            let state = state(rng);
            Change::Verb { name, addr, state, opts: opts(rng, state, 4) }
        }
        Kind::Host => {
            let state = state(rng);
            let opts = opts(rng, state, 1);
            Change::Host { ip: rng.pick(&kit.hosts).clone(), state, opts, missing: rng.chance(50) }
        }
    };
    (!unsure(&change, world)).then_some(change)
}

/// Whether a `ttl` that is about to end makes it unsure what the change does.
fn unsure(change: &Change, world: &World) -> bool {
    let soon = Instant::now() + secs(3);
    match change {
        Change::Host { ip, .. } => world.hosts.get(ip).is_some_and(|admin| admin.unsure(soon)),
        Change::DropUpstream { .. } | Change::DropServer { .. } => false,
        Change::Server { name, addr, .. } | Change::Verb { name, addr, .. } => {
            let server = world.upstreams.get(name).and_then(|up| up.server(addr));
            server.is_some_and(|server| server.admin.unsure(soon))
        }
        Change::Upstream { name, .. } => {
            let up = world.upstreams.get(name);
            up.is_some_and(|up| up.servers.iter().any(|server| server.admin.unsure(soon)))
        }
    }
}

/// The body that states an upstream.
fn whole(rng: &mut Rng, pool: &[String]) -> Value {
    let mut body = json!({});
    if rng.chance(40) {
        body["defaults"] = limits(rng, false);
    }
    if rng.chance(40) {
        body["method"] = method(rng);
    }
    if rng.chance(4) {
        return body;
    }
    let mut left: Vec<&String> = pool.iter().collect();
    let n = rng.below(left.len() as u64 + 1);
    let servers = (0..n).map(|_| {
        let addr = left.remove(rng.below(left.len() as u64) as usize);
        let mut body = server(rng, false);
        body["server"] = json!(addr);
        body
    });
    body["servers"] = servers.collect();
    body
}

/// Those to which the order of servers is nothing, without the rings of `hash consistent`, for
/// which the zone is too small; or none.
fn method(rng: &mut Rng) -> Value {
    let least = ["least_conn", "least_time header", "least_time last_byte"];
    let all = [["round_robin", "random", "random two"], least].concat();
    if rng.chance(10) { Value::Null } else { json!(rng.pick(&all)) }
}

/// The fields of a server; in a PATCH, `null` sets some back.
fn server(rng: &mut Rng, patch: bool) -> Value {
    let mut body = limits(rng, patch);
    if rng.chance(12) {
        body["backup"] = json!(rng.chance(50));
    }
    if rng.chance(10) {
        body["route"] = json!(format!("r{}", rng.below(4)));
    }
    if rng.chance(30) {
        let mut labels = json!({});
        for _ in 0..rng.below(4) {
            let key = format!("k{}", rng.below(5));
            let gone = patch && rng.chance(30);
            let text = [
                "",
                "a",
                "rack \"7\"",
                "ümlaut",
                "a rather long value, of sixty bytes or so, as labels may be",
            ];
            labels[key] = if gone { Value::Null } else { json!(rng.pick(&text)) };
        }
        body["labels"] = labels;
    }
    if rng.chance(15) {
        let state = state(rng);
        let mut admin = json!({"state": state.word()});
        if state != State::Up {
            admin["reason"] = json!(reason(rng));
            if rng.chance(20) {
                admin["ttl"] = json!("3600s");
            }
        }
        body["admin"] = admin;
    }
    body
}

fn limits(rng: &mut Rng, nulls: bool) -> Value {
    let mut body = json!({});
    let values: [&[u64]; 4] = [&[0, 1, 2, 3, 7, 65535], &[0, 0, 5, 100], &[0, 1, 3], &[5, 10, 30]];
    for (name, values) in LIMITS.iter().zip(values) {
        if !rng.chance(35) {
            continue;
        }
        let value = *rng.pick(values);
        body[*name] = match () {
            () if nulls && rng.chance(20) => Value::Null,
            () if *name == "fail_timeout" => json!(format!("{value}s")),
            () => json!(value),
        };
    }
    body
}

fn state(rng: &mut Rng) -> State {
    rng.weighted(&[(45, State::Up), (20, State::Drain), (35, State::Down)])
}

fn reason(rng: &mut Rng) -> String {
    format!("r{}", rng.below(3))
}

fn opts(rng: &mut Rng, state: State, min_up: u64) -> Opts {
    let mut opts = Opts::default();
    if rng.chance(40) {
        opts.reason = Some(reason(rng));
    }
    if rng.chance(15) {
        opts.if_reason = Some(reason(rng));
    }
    if state != State::Up {
        opts.ttl = rng.chance(20).then(|| *rng.pick(&[2, 4, 3600, 3600]));
        opts.min_up = rng.chance(25).then(|| rng.below(min_up + 1));
    }
    opts
}

/// What must be refused with 4xx and change nothing: method, path, body.
pub(crate) fn bad(rng: &mut Rng, kit: &Kit) -> (&'static str, String, Vec<u8>) {
    let name = rng.pick(&kit.hot).clone();
    let addr = rng.pick(&kit.real).clone();
    let up = format!("upstreams/{name}");
    let server = format!("{up}/servers/{addr}");
    let body = |text: &str| text.as_bytes().to_vec();
    let deep = "[".repeat(3000);
    let fake = "10.99.0.1:80";
    let twice = format!(r#"{{"servers":[{{"server":"{fake}"}},{{"server":"{fake}"}}]}}"#);
    let cases: [(&'static str, String, Vec<u8>); 26] = [
        ("PUT", up.clone(), body("{")),
        ("PUT", up.clone(), body(&deep)),
        ("PUT", up.clone(), vec![b'{', 0xff, 0xfe, b'}']),
        ("PUT", up.clone(), body(r#"{"servers":[],"servers":[]}"#)),
        ("PUT", up.clone(), body(r#"{"server":[]}"#)),
        ("PUT", up.clone(), body(r#"{"servers":{}}"#)),
        ("PUT", up.clone(), body(r#"{"servers":[{"weight":1}]}"#)),
        ("PUT", up.clone(), body(r#"{"servers":[{"server":"name.test:80"}]}"#)),
        ("PUT", up.clone(), body(r#"{"servers":[{"server":"10.0.0.1:99999"}]}"#)),
        ("PUT", up.clone(), body(&twice)),
        ("PUT", up.clone(), body(r#"{"servers":[],"defaults":{"weight":-1}}"#)),
        ("PATCH", up.clone(), body(r#"{"servers":[]}"#)),
        ("PUT", server.clone(), body(r#"{"weight":65536}"#)),
        ("PUT", server.clone(), body(r#"{"weight":1e308}"#)),
        ("PUT", server.clone(), body(r#"{"weight":"x"}"#)),
        ("PUT", server.clone(), body(r#"{"max_conns":-3}"#)),
        ("PUT", server.clone(), body(r#"{"labels":{"a:b":"c"}}"#)),
        ("PUT", server.clone(), body(r#"{"admin":{"state":"gone"}}"#)),
        ("PUT", server.clone(), body(r#"{"server":"10.99.0.2:80"}"#)),
        ("PUT", "upstreams/no%20name".into(), body(r#"{"servers":[]}"#)),
        ("PUT", format!("upstreams/{name}/servers/not!an!address"), body("{}")),
        ("POST", format!("{server}/down?ttl=x"), Vec::new()),
        ("POST", format!("{server}/up?ttl=5s"), Vec::new()),
        ("POST", format!("{server}/sideways"), Vec::new()),
        ("POST", "batch".into(), body(r#"{"changes":[{"op":"explode"}]}"#)),
        ("DELETE", "zones/main".into(), Vec::new()),
    ];
    rng.pick(&cases).clone()
}
