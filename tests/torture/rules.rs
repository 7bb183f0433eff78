//! The rules of a change: what verbs, hosts and bodies make of a world.

use std::collections::BTreeMap;

use crate::support::*;

use super::change::{Moment, Opts, Verdict};
use super::model::*;

pub(crate) fn verb(
    world: &mut World,
    (name, addr): (&str, &str),
    state: State,
    opts: &Opts,
    now: Instant,
) -> Verdict {
    let Some(up) = world.upstreams.get(name) else { return Verdict::refused(404) };
    let Some(server) = up.server(addr) else { return Verdict::refused(404) };
    if opts.forbids(&server.admin) {
        return Verdict::refused(409);
    }
    let wanted = opts.admin(&server.admin, state, now);
    if wanted == server.admin {
        return Verdict::done();
    }
    let mut verdict = Verdict::done();
    if let Some(min_up) = opts.min_up.filter(|_| state != State::Up) {
        verdict = remaining(world, up, min_up, now, |other| other.addr != addr);
    }
    if verdict.done
        && let Some(server) = world.upstreams.get_mut(name).and_then(|up| up.server_mut(addr))
    {
        server.admin = wanted;
    }
    verdict
}

pub(crate) fn host(
    world: &mut World,
    ip: &str,
    state: State,
    opts: &Opts,
    missing: bool,
    now: Instant,
) -> Verdict {
    let on = |server: &Server| host_of(&server.addr) == ip;
    let stands = world.hosts.get(ip).cloned().unwrap_or_default();
    let any = world.upstreams.values().any(|up| up.servers.iter().any(on));
    if !any && stands.state == State::Up && !missing {
        return Verdict::refused(404);
    }
    if opts.forbids(&stands) {
        return Verdict::refused(409);
    }
    let wanted = opts.admin(&stands, state, now);
    if wanted == stands {
        return Verdict::done();
    }
    let mut verdict = Verdict::done();
    let min_up = opts.min_up.unwrap_or(1);
    if state != State::Up && min_up > 0 {
        for up in world.upstreams.values().filter(|up| up.servers.iter().any(on)) {
            let mut one = remaining(world, up, min_up, now, |other| !on(other));
            // It is not said whether an upstream counts that has lost them already.
            let loses =
                |server: &Server| on(server) && world.serves(up, server, now) == Serves::Yes;
            if !one.done && !up.servers.iter().any(loses) {
                one = Verdict::either(409);
            }
            verdict.and(one);
        }
    }
    if verdict.done {
        world.hosts.insert(ip.to_owned(), wanted);
        world.hosts.retain(|_, admin| admin.state != State::Up);
    }
    verdict
}

/// Whether `min_up` holds when only these remain.
fn remaining(
    world: &World,
    up: &Upstream,
    min_up: u64,
    now: Instant,
    stays: impl Fn(&Server) -> bool,
) -> Verdict {
    let others: Vec<Serves> =
        up.servers.iter().filter(|s| stays(s)).map(|s| world.serves(up, s, now)).collect();
    let count = |wanted: Serves| others.iter().filter(|s| **s == wanted).count() as u64;
    let least = count(Serves::Yes);
    if least >= min_up {
        Verdict::done()
    } else if up.shared.is_some() || least + count(Serves::Perhaps) >= min_up {
        Verdict::either(409)
    } else {
        Verdict::refused(409)
    }
}

pub(crate) fn put_servers(next: &mut Upstream, bodies: &[Value], at: &mut Moment<'_>) {
    let before: Vec<Server> = std::mem::take(&mut next.servers);
    for body in bodies {
        let addr = body["server"].as_str().unwrap_or_default();
        let mut server = match before.iter().find(|server| server.addr == addr) {
            Some(server) => server.clone(),
            None => {
                let server = made(next, addr, body, at);
                next.servers.push(server);
                continue;
            }
        };
        restate(&mut server, body, &next.defaults, true, at.now);
        next.servers.push(server);
    }
    // The order counts for hash alone: an equal set keeps what it has.
    let place = |server: &Server| before.iter().position(|other| other.addr == server.addr);
    if before.len() == next.servers.len() && next.servers.iter().all(|s| place(s).is_some()) {
        next.servers.sort_by_key(place);
    }
}

pub(crate) fn made(up: &Upstream, addr: &str, body: &Value, at: &mut Moment<'_>) -> Server {
    *at.born += 1;
    let mut server = Server {
        addr: addr.to_owned(),
        born: *at.born,
        config: up.declared.iter().any(|declared| declared == addr),
        limits: Limits::default(),
        backup: false,
        route: String::new(),
        labels: BTreeMap::new(),
        admin: Admin::default(),
    };
    limits(&mut server.limits, body, &BUILT_IN, None);
    rest(&mut server, body, true, at.now);
    server
}

pub(crate) fn restate(
    server: &mut Server,
    body: &Value,
    defaults: &Limits,
    whole: bool,
    now: Instant,
) {
    let base: Vec<u64> = (0..4).map(|at| defaults[at].unwrap_or(BUILT_IN[at])).collect();
    limits(&mut server.limits, body, &[base[0], base[1], base[2], base[3]], Some(whole));
    rest(server, body, whole, now);
}

/// What a body says of the limits. `whole` is `None` for what was not there. A value that holds
/// already is no change: what follows the defaults goes on to follow them.
pub(crate) fn limits(own: &mut Limits, body: &Value, base: &[u64; 4], whole: Option<bool>) {
    for at in 0..LIMITS.len() {
        own[at] = match body.get(LIMITS[at]) {
            None if whole == Some(false) => own[at],
            None | Some(Value::Null) => None,
            Some(value) => {
                let value = number(value);
                let holds = whole.is_some() && own[at].unwrap_or(base[at]) == value;
                if holds { own[at] } else { Some(value) }
            }
        };
    }
}

fn rest(server: &mut Server, body: &Value, whole: bool, now: Instant) {
    let said = |field: &str| whole || body.get(field).is_some();
    if said("backup") {
        server.backup = body["backup"] == true;
    }
    if said("route") {
        server.route = body["route"].as_str().unwrap_or_default().to_owned();
    }
    if whole || body.get("labels").is_some_and(Value::is_null) {
        server.labels.clear();
    }
    for (key, value) in body["labels"].as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => server.labels.insert(key.clone(), value.to_owned()),
            None => server.labels.remove(key),
        };
    }
    if let Some(admin) = body.get("admin") {
        let text = |field: &str| admin[field].as_str();
        let state = match text("state") {
            Some("drain") => State::Drain,
            Some("down") => State::Down,
            _ => State::Up,
        };
        let reason = text("reason").map(str::to_owned);
        let ttl = text("ttl").and_then(|ttl| ttl.trim_end_matches('s').parse().ok());
        let opts = Opts { ttl, reason, ..Opts::default() };
        server.admin = opts.admin(&server.admin, state, now);
    }
}

/// `5`, or `"5s"`.
fn number(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.trim_end_matches('s').parse().ok());
    value.as_u64().or(text).unwrap_or_default()
}
