//! What a change would change, in words of the API: path, value before, value after.
//!
//! Values are those that hold. Where what is stored changes and what holds does not, `null` stands
//! for the default.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;

use crate::addr::ServerAddr;
use crate::api;
use crate::api::export::{route_value, server_value, upstream_value};
use crate::check::Check;
use crate::check::outlier::Outlier;
use crate::host::Hosts;
use crate::route::Route;
use crate::server::{Admin, Limits, Server};
use crate::texts::Texts;
use crate::time::iso;
use crate::units::Secs;
use crate::upstream::{Defaults, Upstream};

/// One value that changes; `null` where there is or was nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Where: `upstreams/app/servers/10.0.0.1:8080/weight`.
    pub path: String,
    /// Before.
    pub from: Value,
    /// After.
    pub to: Value,
}

/// What changes of an upstream; nothing where neither is there.
pub fn upstream(before: Option<&Upstream>, after: Option<&Upstream>) -> Vec<Entry> {
    let mut diff = Vec::new();
    let Some(name) = before.or(after).map(|upstream| &upstream.name) else { return diff };
    let path = format!("upstreams/{name}");
    let (Some(before), Some(after)) = (before, after) else {
        let value = |side: Option<&Upstream>| side.map_or(Value::Null, upstream_value);
        diff.push(Entry { path, from: value(before), to: value(after) });
        return diff;
    };
    let at = Path(path);
    at.value(&mut diff, "origin", before.origin.to_string(), after.origin.to_string());
    let method = |side: &Upstream| side.settings.method().as_str();
    at.value(&mut diff, "method", method(before), method(after));
    limits(
        &mut diff,
        &at.below("defaults"),
        (&before.settings.defaults, &before.settings.defaults.limits()),
        (&after.settings.defaults, &after.settings.defaults.limits()),
    );
    texts(&mut diff, &at, &before.settings.texts, &after.settings.texts);
    let (was, is) = (&before.settings, &after.settings);
    let check = |check: &Option<Box<Check>>| check.as_deref().map(api::check::check_value);
    object(&mut diff, &at, "check", check(&was.check), check(&is.check));
    let outlier = |outlier: &Option<Outlier>| outlier.as_ref().map(api::check::outlier_value);
    object(&mut diff, &at, "outlier", outlier(&was.outlier), outlier(&is.outlier));
    servers(&mut diff, &at, before, after);
    diff
}

fn texts(diff: &mut Vec<Entry>, at: &Path, was: &Texts, is: &Texts) {
    let key = |texts: &Texts| texts.hash_key.as_ref().map(ToString::to_string);
    at.value(diff, "hash_key", key(was), key(is));
    at.value(diff, "host", was.host.clone(), is.host.clone());
    at.value(diff, "tls_name", was.tls_name.clone(), is.tls_name.clone());
}

/// What changes of an object: its fields, or the whole where it comes or goes.
fn object(diff: &mut Vec<Entry>, at: &Path, name: &str, was: Option<Value>, is: Option<Value>) {
    match (was, is) {
        (Some(Value::Object(was)), Some(Value::Object(mut is))) => {
            let at = at.below(name);
            for (key, from) in was {
                let to = is.get_mut(&key).map(Value::take).unwrap_or_default();
                at.value(diff, &key, from, to);
            }
        }
        (was, is) => at.value(diff, name, was, is),
    }
}

/// What changes of a route; nothing where neither is there.
pub fn route(before: Option<&Route>, after: Option<&Route>) -> Vec<Entry> {
    let mut diff = Vec::new();
    let Some(key) = before.or(after).map(|route| &route.key) else { return diff };
    let path = format!("routes/{key}");
    let (Some(was), Some(is)) = (before, after) else {
        let value = |side: Option<&Route>| side.map_or(Value::Null, route_value);
        diff.push(Entry { path, from: value(before), to: value(after) });
        return diff;
    };
    let at = Path(path);
    at.value(&mut diff, "upstream", was.upstream.as_str(), is.upstream.as_str());
    at.value(&mut diff, "status", was.status.as_str(), is.status.as_str());
    at.value(&mut diff, "reason", was.reason.clone(), is.reason.clone());
    at.value(&mut diff, "until", was.until.map(iso), is.until.map(iso));
    let label = |side: &Route, key: &str| side.labels.get(key).cloned();
    let keys: BTreeSet<&String> = was.labels.keys().chain(is.labels.keys()).collect();
    for key in keys {
        at.below("labels").value(&mut diff, key, label(was, key), label(is, key));
    }
    diff
}

/// What changes of hosts.
pub fn hosts(before: &Hosts, after: &Hosts) -> Vec<Entry> {
    let mut ips: Vec<IpAddr> = before.iter().chain(after.iter()).map(|(ip, _)| ip).collect();
    ips.sort_unstable();
    ips.dedup();
    let mut diff = Vec::new();
    let up = Admin::default();
    for ip in ips {
        let at = Path(format!("hosts/{ip}"));
        let side = |hosts: &Hosts| hosts.get(ip).cloned().unwrap_or_else(|| up.clone());
        admin(&mut diff, &at.below("admin"), &side(before), &side(after));
    }
    diff
}

fn servers(diff: &mut Vec<Entry>, at: &Path, before: &Upstream, after: &Upstream) {
    let old: HashMap<&ServerAddr, &Server> = before.servers.iter().map(|s| (&s.addr, s)).collect();
    let new: HashMap<&ServerAddr, &Server> = after.servers.iter().map(|s| (&s.addr, s)).collect();
    for server in before.servers.iter().filter(|server| !new.contains_key(&server.addr)) {
        let path = format!("{}/servers/{}", at.0, server.addr);
        diff.push(Entry { path, from: server_value(server), to: Value::Null });
    }
    for server in &after.servers {
        let path = format!("{}/servers/{}", at.0, server.addr);
        match old.get(&server.addr) {
            None => diff.push(Entry { path, from: Value::Null, to: server_value(server) }),
            Some(was) if *was == server && before.limits(was) == after.limits(server) => {}
            Some(was) => {
                let sides = ((*was, before.limits(was)), (server, after.limits(server)));
                one_server(diff, &Path(path), sides);
            }
        }
    }
}

fn one_server(diff: &mut Vec<Entry>, at: &Path, sides: ((&Server, Limits), (&Server, Limits))) {
    let ((was, was_limits), (is, is_limits)) = sides;
    limits(diff, at, (&own(was), &was_limits), (&own(is), &is_limits));
    let (old, new) = (&was.params, &is.params);
    at.value(diff, "backup", old.backup, new.backup);
    at.value(diff, "route", old.route.as_str(), new.route.as_str());
    let mut keys: Vec<&String> = old.labels.keys().chain(new.labels.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        at.value(
            diff,
            &format!("labels/{key}"),
            old.labels.get(key).cloned(),
            new.labels.get(key).cloned(),
        );
    }
    admin(diff, &at.below("admin"), &was.admin, &is.admin);
    at.value(diff, "given", was.given.clone(), is.given.clone());
    at.value(diff, "origin", was.origin.to_string(), is.origin.to_string());
    let words = |server: &Server| server.source.map(|said| said.words());
    at.value(diff, "source", words(was), words(is));
}

fn own(server: &Server) -> Defaults {
    let params = &server.params;
    Defaults {
        weight: params.weight,
        max_conns: params.max_conns,
        max_fails: params.max_fails,
        fail_timeout: params.fail_timeout,
        slow_start: params.slow_start,
    }
}

/// What is stored and what holds, before and after.
fn limits(diff: &mut Vec<Entry>, at: &Path, old: (&Defaults, &Limits), new: (&Defaults, &Limits)) {
    let ((was, was_held), (is, is_held)) = (old, new);
    fn side<T: Into<Value>>(stored: Option<T>, held: T, same: bool) -> Value {
        if same { stored.map_or(Value::Null, Into::into) } else { held.into() }
    }
    macro_rules! one {
        ($($name:ident: $text:expr;)+) => {$(
            let same = was_held.$name == is_held.$name;
            let text = $text;
            at.value(
                diff,
                stringify!($name),
                side(was.$name.map(text), text(was_held.$name), same),
                side(is.$name.map(text), text(is_held.$name), same),
            );
        )+};
    }
    let (whole, time) = (|n: u32| n, |secs: Secs| secs.to_string());
    one! {
        weight: |n: u16| n;
        max_conns: whole;
        max_fails: whole;
        fail_timeout: time;
        slow_start: time;
    }
}

fn admin(diff: &mut Vec<Entry>, at: &Path, was: &Admin, is: &Admin) {
    at.value(diff, "state", was.state.as_str(), is.state.as_str());
    at.value(diff, "reason", was.reason.as_str(), is.reason.as_str());
    at.value(diff, "until", was.until.map(iso), is.until.map(iso));
    at.value(diff, "close", was.close.map(iso), is.close.map(iso));
}

/// A place in what the API shows.
struct Path(String);

impl Path {
    fn below(&self, name: &str) -> Self {
        Self(format!("{}/{name}", self.0))
    }

    fn value(
        &self,
        diff: &mut Vec<Entry>,
        name: &str,
        from: impl Into<Value>,
        to: impl Into<Value>,
    ) {
        let (from, to) = (from.into(), to.into());
        if from != to {
            diff.push(Entry { path: format!("{}/{name}", self.0), from, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::name::UpstreamName;
    use crate::server::{AdminState, Origin, Params};

    fn server(addr: &str, weight: Option<u16>) -> Server {
        Server {
            id: 7,
            addr: ServerAddr::parse(addr).unwrap(),
            given: None,
            origin: Origin::Api,
            params: Params { weight, ..Params::default() },
            admin: Admin::default(),
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        }
    }

    fn app(servers: Vec<Server>) -> Upstream {
        Upstream { servers, ..Upstream::new(UpstreamName::parse("app").unwrap(), Origin::Api) }
    }

    fn told(diff: &[Entry]) -> Vec<(&str, Value, Value)> {
        diff.iter().map(|e| (e.path.as_str(), e.from.clone(), e.to.clone())).collect()
    }

    #[test]
    fn values_that_hold_are_told_before_and_after() {
        let a = "10.0.0.1:80";
        let (one, five) = (app(vec![server(a, None)]), app(vec![server(a, Some(5))]));
        let path = "upstreams/app/servers/10.0.0.1:80";
        let weight = "upstreams/app/servers/10.0.0.1:80/weight";
        assert_eq!(told(&upstream(Some(&one), Some(&one))), []);
        assert_eq!(told(&upstream(Some(&one), Some(&five))), [(weight, json!(1), json!(5))]);
        let said = app(vec![server(a, Some(1))]);
        assert_eq!(told(&upstream(Some(&one), Some(&said))), [(weight, json!(null), json!(1))]);

        let mut defaults = one.clone();
        defaults.settings.defaults.weight = Some(3);
        let told_both = upstream(Some(&one), Some(&defaults));
        let both =
            [("upstreams/app/defaults/weight", json!(1), json!(3)), (weight, json!(1), json!(3))];
        assert_eq!(told(&told_both), both);

        let mut down = one.clone();
        down.servers[0].admin = Admin {
            state: AdminState::Down,
            since: 1,
            until: Some(1_000),
            close: None,
            reason: "x".into(),
            by: "ann".into(),
            from: String::new(),
        };
        down.servers[0].params.labels.insert("rack".into(), "a".into());
        let entries = upstream(Some(&one), Some(&down));
        let ends: Vec<&str> = entries.iter().map(|e| &e.path[path.len()..]).collect();
        assert_eq!(ends, ["/labels/rack", "/admin/state", "/admin/reason", "/admin/until"]);
        assert_eq!(entries[3].to, "1970-01-01T00:00:01Z");
    }

    #[test]
    fn what_comes_and_goes_is_told_whole() {
        let (a, b) = (server("10.0.0.1:80", None), server("10.0.0.2:80", Some(2)));
        let diff = upstream(Some(&app(vec![a.clone()])), Some(&app(vec![b.clone()])));
        assert_eq!(
            told(&diff),
            [
                (
                    "upstreams/app/servers/10.0.0.1:80",
                    json!({"server": "10.0.0.1:80"}),
                    json!(null)
                ),
                (
                    "upstreams/app/servers/10.0.0.2:80",
                    json!(null),
                    json!({"server": "10.0.0.2:80", "weight": 2})
                ),
            ]
        );
        let created = upstream(None, Some(&app(vec![b])));
        assert_eq!((created.len(), created[0].path.as_str()), (1, "upstreams/app"));
        assert_eq!(created[0].to["servers"][0]["weight"], 2);
        assert_eq!(upstream(Some(&app(vec![a])), None)[0].to, json!(null));
        assert_eq!(upstream(None, None), []);
    }

    #[test]
    fn routes_are_told_by_their_key() {
        let route = |upstream: &str| {
            let key = crate::route::RouteKey::parse("acme").unwrap();
            Route::new(key, UpstreamName::parse(upstream).unwrap())
        };
        let mut held = route("b");
        held.labels.insert("tier".into(), "a".into());
        let diff = super::route(Some(&route("a")), Some(&held));
        assert_eq!(
            told(&diff),
            [
                ("routes/acme/upstream", json!("a"), json!("b")),
                ("routes/acme/labels/tier", json!(null), json!("a")),
            ]
        );
        let come = super::route(None, Some(&route("a")));
        assert_eq!(told(&come), [("routes/acme", json!(null), json!({"upstream": "a"}))]);
        assert_eq!(super::route(None, None), []);
    }

    #[test]
    fn hosts_are_told_by_their_address() {
        let mut hosts_after = Hosts::default();
        let admin = Admin { state: AdminState::Drain, ..Admin::default() };
        hosts_after.set("10.0.0.1".parse().unwrap(), admin);
        let diff = hosts(&Hosts::default(), &hosts_after);
        assert_eq!(told(&diff), [("hosts/10.0.0.1/admin/state", json!("up"), json!("drain"))]);
    }
}
