//! What changes make of an upstream: the rules of the contract, one story a test.

mod support;

use peerage_core::addr::ServerAddr;
use peerage_core::api::error::Code;
use peerage_core::change::Change;
use peerage_core::doors::{dyups, update};
use peerage_core::server::{AdminState, Limits, Origin};
use peerage_core::upstream::{Defaults, Method};
use proptest::prelude::*;
use support::{World, addr};

const APP: &str = "/v1/upstreams/app";

#[test]
fn a_put_creates_and_the_same_put_changes_nothing() {
    let mut world = World::new();
    let body = r#"{"method":"round_robin","defaults":{"weight":2},"servers":[
        {"server":"10.0.0.1:8080","weight":3,"labels":{"rack":"a"}},{"server":"10.0.0.2"}]}"#;
    assert!(world.call(&format!("PUT {APP}"), body));
    assert!(!world.call(&format!("PUT {APP}"), body));
    assert_eq!(world.addrs(), ["10.0.0.1:8080", "10.0.0.2:80"]);
    let app = world.app.as_ref().unwrap();
    assert_eq!(app.limits(&app.servers[0]).weight, 3);
    assert_eq!(app.limits(&app.servers[1]).weight, 2);
    assert_eq!(app.servers[1].given.as_deref(), Some("10.0.0.2"));
    assert_eq!(app.origin, Origin::Api);
}

#[test]
fn staying_servers_keep_id_and_admin_when_the_set_is_replaced() {
    let mut world = World::with(3);
    world.by = "operator".into();
    world.verb("10.0.0.2:80", "down?reason=broken");
    let before = world.server("10.0.0.2:80").clone();
    let script = r#"{"servers":[{"server":"10.0.0.2:80","weight":5},{"server":"10.0.0.9:80"}]}"#;
    world.by = "ci".into();
    assert!(world.call(&format!("PUT {APP}"), script));
    let after = world.server("10.0.0.2:80");
    assert_eq!((after.id, &after.admin), (before.id, &before.admin));
    assert_eq!(after.params.weight, Some(5));
    assert_eq!(world.addrs(), ["10.0.0.2:80", "10.0.0.9:80"]);
    assert_eq!(world.server("10.0.0.9:80").id, 4);
    for _ in 0..3 {
        assert!(!world.call(&format!("PUT {APP}"), script));
    }
}

#[test]
fn a_put_that_leaves_fields_out_sets_their_defaults() {
    let mut world = World::with(1);
    let server = format!("PUT {APP}/servers/10.0.0.1:80");
    let body = r#"{"weight":5,"backup":true,"route":"r","labels":{"a":"b"},"max_conns":7}"#;
    assert!(world.call(&server, body));
    assert!(!world.call(&server, body));
    assert!(world.call(&server, "{}"));
    assert_eq!(world.server("10.0.0.1:80").params, Default::default());
}

#[test]
fn what_no_block_declares_takes_the_defaults_of_the_keyed_blocks() {
    let mut world = World::new();
    world.keyed = Defaults { weight: Some(4), max_fails: Some(3), ..Defaults::default() };
    let limits = |world: &World| {
        let app = world.app.as_ref().unwrap();
        app.limits(&app.servers[0])
    };
    let body = r#"{"defaults":{"weight":1,"max_conns":9},"servers":[{"server":"10.0.0.1"}]}"#;
    assert!(world.call(&format!("PUT {APP}"), body));
    let Limits { weight, max_conns, max_fails, .. } = limits(&world);
    assert_eq!((weight, max_conns, max_fails), (1, 9, 3));
    assert!(!world.call(&format!("PUT {APP}"), body));
    assert!(world.call(&format!("PATCH {APP}"), r#"{"defaults":{"weight":null}}"#));
    assert_eq!((limits(&world).weight, limits(&world).max_conns), (4, 9));
    // A value equal to what is built in is a value all the same.
    assert!(world.call(&format!("PATCH {APP}"), r#"{"defaults":{"weight":1}}"#));
    assert_eq!(limits(&world).weight, 1);
    world.keyed.weight = Some(6);
    assert!(world.call(&format!("PUT {APP}"), r#"{"servers":[{"server":"10.0.0.1"}]}"#));
    assert_eq!((limits(&world).weight, limits(&world).max_conns), (6, 0));
    world.named_by_block = true;
    assert!(world.call(&format!("PUT {APP}"), r#"{"servers":[{"server":"10.0.0.1"}]}"#));
    assert_eq!(limits(&world), Limits::BUILT_IN);
}

#[test]
fn a_patch_alters_only_what_it_names() {
    let mut world = World::with(1);
    let server = format!("PATCH {APP}/servers/id:1");
    world.call(&server, r#"{"weight":5,"labels":{"a":"1","b":"2"},"max_conns":7}"#);
    assert!(world.call(&server, r#"{"max_conns":null,"labels":{"a":null,"c":"3"}}"#));
    let params = &world.server("10.0.0.1:80").params;
    assert_eq!((params.weight, params.max_conns), (Some(5), None));
    let labels: Vec<&str> = params.labels.keys().map(String::as_str).collect();
    assert_eq!(labels, ["b", "c"]);
    let upstream = format!("PATCH {APP}");
    assert!(world.call(&upstream, r#"{"defaults":{"weight":4,"max_fails":9}}"#));
    assert!(world.call(&upstream, r#"{"defaults":{"weight":null}}"#));
    assert_eq!(world.app.as_ref().unwrap().settings.defaults.max_fails, Some(9));
    assert!(!world.call(&upstream, "{}"));
}

#[test]
fn a_value_that_already_holds_is_no_change() {
    let mut world = World::with(1);
    // As asg-sync does each second on a server with a hand-set weight (case 30).
    world.call(&format!("PATCH {APP}/servers/id:1"), r#"{"weight":7}"#);
    let revision = world.revision;
    let patch =
        r#"{"weight":7,"max_conns":0,"max_fails":1,"fail_timeout":"10s","slow_start":"0s"}"#;
    for _ in 0..3 {
        assert!(!world.call(&format!("PATCH {APP}/servers/id:1"), patch));
    }
    assert!(!world.call(&format!("PATCH {APP}/servers/id:1"), r#"{"backup":false}"#));
    assert!(!world.call(&format!("PATCH {APP}"), r#"{"method":"round_robin","defaults":null}"#));
    assert_eq!(world.revision, revision);
    // The default was left to the upstream and still is.
    world.call(&format!("PATCH {APP}"), r#"{"defaults":{"max_fails":4}}"#);
    let app = world.app.as_ref().unwrap();
    assert_eq!(app.limits(&app.servers[0]).max_fails, 4);
}

#[test]
fn a_method_is_said_in_nginx_s_words_and_the_order_counts_where_it_counts() {
    let mut world = World::with(3);
    for method in Method::ALL {
        let words = method.as_str();
        world.call(&format!("PATCH {APP}"), &format!(r#"{{"method":"{words}"}}"#));
        let app = world.app.as_ref().unwrap();
        assert_eq!(app.settings.method(), method);
        let digest = app.digest();
        let (mut before, turned) = (world.addrs(), world.addrs().into_iter().rev());
        let servers: Vec<String> = turned.map(|s| format!(r#"{{"server":"{s}"}}"#)).collect();
        let body = format!(r#"{{"method":"{words}","servers":[{}]}}"#, servers.join(","));
        let ordered = matches!(method, Method::Hash | Method::IpHash);
        assert_eq!(world.call(&format!("PUT {APP}"), &body), ordered, "{words}");
        assert!(!world.call(&format!("PUT {APP}"), &body), "{words}");
        if ordered {
            before.reverse();
        }
        assert_eq!(world.addrs(), before, "{words}");
        assert_eq!(world.app.as_ref().unwrap().digest() != digest, ordered, "{words}");
    }
    assert!(world.call(&format!("PATCH {APP}"), r#"{"method":null}"#));
    assert_eq!(world.app.as_ref().unwrap().settings.method(), Method::RoundRobin);
}

#[test]
fn an_equal_set_in_another_order_is_no_change_for_round_robin() {
    let mut world = World::with(2);
    let turned = r#"{"servers":[{"server":"10.0.0.2:80"},{"server":"10.0.0.1:80"}]}"#;
    assert!(!world.call(&format!("PUT {APP}"), turned));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.2:80"]);
    let more = r#"{"servers":[{"server":"10.0.0.3:80"},{"server":"10.0.0.1:80"}]}"#;
    assert!(world.call(&format!("PUT {APP}"), more));
    assert_eq!(world.addrs(), ["10.0.0.3:80", "10.0.0.1:80"]);
}

#[test]
fn servers_come_and_go_one_by_one() {
    let mut world = World::with(1);
    let server = format!("{APP}/servers/unix:%2Frun%2Fa.sock");
    assert!(world.call(&format!("PUT {server}"), r#"{"weight":2}"#));
    assert!(!world.call(&format!("PUT {server}"), r#"{"server":"unix:/run/a.sock","weight":2}"#));
    assert_eq!(world.server("unix:/run/a.sock").id, 2);
    assert!(world.call(&format!("DELETE {server}"), ""));
    assert!(world.call(&format!("DELETE {APP}/servers/id:1"), ""));
    assert_eq!(world.addrs(), [""; 0]);
    world.call(&format!("PUT {APP}/servers/10.0.0.1:80"), "{}");
    assert_eq!(world.server("10.0.0.1:80").id, 3, "an id is never reused");
    assert!(world.call(&format!("DELETE {APP}"), ""));
    assert_eq!(world.app, None);
}

#[test]
fn refusals_have_their_code_and_change_nothing() {
    let mut world = World::with(2);
    let table = [
        (
            "PUT /v1/upstreams/app",
            r#"{"servers":[{"server":"10.0.0.1"},{"server":"10.0.0.1:80"}]}"#,
            Code::DuplicateServer,
        ),
        (
            "PUT /v1/upstreams/app",
            r#"{"servers":[{"server":"app.example:80"}]}"#,
            Code::NameNotSupported,
        ),
        ("PUT /v1/upstreams/app", r#"{"method":"round_robin"}"#, Code::BadValue),
        ("PUT /v1/upstreams/app/servers/app.example:80", "{}", Code::NameNotSupported),
        ("PUT /v1/upstreams/app/servers/id:99", "{}", Code::ServerNotFound),
        (
            "PUT /v1/upstreams/app/servers/10.0.0.1:80",
            r#"{"server":"10.0.0.2:80"}"#,
            Code::BadValue,
        ),
        (
            "PUT /v1/upstreams/app/servers/10.0.0.9:80",
            r#"{"server":"10.0.0.8:80"}"#,
            Code::BadValue,
        ),
        ("PATCH /v1/upstreams/app/servers/id:1", r#"{"server":"10.0.0.2:80"}"#, Code::BadValue),
        ("PATCH /v1/upstreams/app/servers/id:1", r#"{"admin":{"ttl":"5m"}}"#, Code::BadValue),
        ("PATCH /v1/upstreams/app/servers/10.0.0.9:80", "{}", Code::ServerNotFound),
        ("DELETE /v1/upstreams/app/servers/10.0.0.9:80", "", Code::ServerNotFound),
        ("POST /v1/upstreams/app/servers/id:9/down", "", Code::ServerNotFound),
    ];
    let before = world.app.clone();
    for (line, body, code) in table {
        assert_eq!(world.try_call(line, body).unwrap_err().code, code, "{line} {body}");
        assert_eq!(world.app, before);
    }
    world.app = None;
    for line in [
        "PATCH /v1/upstreams/app",
        "DELETE /v1/upstreams/app",
        "PUT /v1/upstreams/app/servers/10.0.0.1:80",
        "PATCH /v1/upstreams/app/servers/10.0.0.1:80",
        "DELETE /v1/upstreams/app/servers/10.0.0.1:80",
        "POST /v1/upstreams/app/servers/10.0.0.1:80/up",
    ] {
        let body = if line.starts_with('P') && !line.starts_with("POST") { "{}" } else { "" };
        assert_eq!(world.try_call(line, body).unwrap_err().code, Code::UpstreamNotFound, "{line}");
    }
}

#[test]
fn more_labels_than_fit_are_refused_also_by_patches() {
    let mut world = World::with(1);
    let labels = |from: u32, to: u32| {
        let list: Vec<String> = (from..to).map(|n| format!("\"k{n}\":\"v\"")).collect();
        format!(r#"{{"labels":{{{}}}}}"#, list.join(","))
    };
    let patch = format!("PATCH {APP}/servers/id:1");
    world.call(&patch, &labels(0, 10));
    let problem = world.try_call(&patch, &labels(10, 20)).unwrap_err();
    assert_eq!((problem.code, problem.field.as_deref()), (Code::BadValue, Some("labels")));
    world.call(&patch, &labels(10, 16));
}

#[test]
fn a_verb_sets_state_end_and_reason_together() {
    let mut world = World::with(1);
    let s = "10.0.0.1:80";
    assert!(!world.verb(s, "up"));
    assert_eq!(world.server(s).admin, Default::default());
    assert!(world.verb(s, "down?reason=deploy&ttl=15m"));
    let admin = world.server(s).admin.clone();
    assert_eq!((admin.state, admin.reason.as_str()), (AdminState::Down, "deploy"));
    assert_eq!((admin.since, admin.until), (world.now, Some(world.now + 900_000)));
    assert_eq!((admin.by.as_str(), admin.from.as_str()), ("ci", "10.1.1.1"));
    world.now += 1000;
    assert!(world.verb(s, "down?reason=deploy&ttl=15m"), "a new ttl is a change");
    assert!(world.verb(s, "down?reason=deploy"), "so is its end");
    assert!(!world.verb(s, "down?reason=deploy"));
    assert!(world.verb(s, "down?reason=other"), "and a new reason");
    assert!(world.verb(s, "drain?reason=other"));
    assert!(world.verb(s, "up"));
    let admin = &world.server(s).admin;
    assert_eq!((admin.state, admin.reason.as_str(), admin.until), (AdminState::Up, "", None));
    assert!(!world.verb(s, "up"));
    assert!(world.verb(s, "up?reason=checked"));
    assert_eq!(world.try_verb(s, "up?ttl=5m").unwrap_err().code, Code::BadValue);
}

#[test]
fn when_connections_are_closed_is_set_with_the_verb_as_a_time() {
    let mut world = World::with(1);
    let s = "10.0.0.1:80";
    assert!(world.verb(s, "down?close=5m"));
    let admin = world.server(s).admin.clone();
    assert_eq!((admin.close, admin.until), (Some(world.now + 300_000), None));
    let listing = world.listing();
    world.now += 1_000;
    assert!(!world.call(&format!("PUT {APP}"), &listing), "what is shown is what holds");
    assert!(world.verb(s, "drain?close=0"), "another one is a change");
    assert_eq!(world.server(s).admin.close, Some(world.now));
    assert!(world.verb(s, "drain"), "so is none");
    assert_eq!(world.server(s).admin.close, None);
    world.verb(s, "down?close=5m&ttl=10s");
    world.verb(s, "up");
    assert_eq!(world.server(s).admin.close, None);
    let refused = world.try_verb(s, "up?close=5m").unwrap_err();
    assert_eq!((refused.code, refused.field.as_deref()), (Code::BadValue, Some("close")));
}

#[test]
fn a_verb_takes_options_by_query_or_by_body() {
    let mut world = World::with(2);
    let line = format!("POST {APP}/servers/10.0.0.1:80/down");
    assert!(world.call(&line, r#"{"reason":"deploy","ttl":60,"min_up":1,"wait":"30s"}"#));
    assert_eq!(world.server("10.0.0.1:80").admin.until, Some(world.now + 60_000));
    let problem = world.try_call(&format!("{line}?reason=a"), r#"{"reason":"a"}"#).unwrap_err();
    assert_eq!(problem.field.as_deref(), Some("reason"));
    let problem = world.try_call(&line, r#"{"reasn":"a"}"#).unwrap_err();
    assert_eq!((problem.code, problem.field.as_deref()), (Code::UnknownField, Some("reasn")));
}

#[test]
fn min_up_counts_the_eligible_others() {
    let mut world = World::with(3);
    assert!(world.verb("10.0.0.1:80", "down?min_up=2&reason=x"));
    let problem = world.try_verb("10.0.0.2:80", "down?min_up=2").unwrap_err();
    assert_eq!(problem.code, Code::MinUp);
    let body = String::from_utf8(problem.to_bytes()).unwrap();
    assert!(body.ends_with(r#""eligible":1,"upstreams":["app"]}"#), "{body}");
    assert!(!world.verb("10.0.0.1:80", "down?min_up=3&reason=x"), "a repeat goes through");
    world.failed.push(addr("10.0.0.3:80"));
    assert_eq!(world.try_verb("10.0.0.2:80", "drain?min_up=1").unwrap_err().code, Code::MinUp);
    assert!(world.verb("10.0.0.1:80", "up?min_up=9"), "up takes nothing away");
    assert!(world.verb("10.0.0.2:80", "drain?min_up=1"));
}

#[test]
fn a_tool_with_if_reason_never_undoes_an_operator() {
    let mut world = World::with(2);
    let s = "10.0.0.1:80";
    let deploy = "reason=deploy-812&if_reason=deploy-812";
    assert!(world.verb(s, &format!("down?{deploy}")));
    assert!(!world.verb(s, &format!("down?{deploy}")), "a retry goes through");
    assert!(world.verb(s, "up?if_reason=deploy-812"));
    world.by = "operator".into();
    assert!(world.verb(s, "down?reason=broken+disk"));
    world.by = "ci".into();
    for verb in [format!("down?{deploy}"), "up?if_reason=deploy-812".into()] {
        let problem = world.try_verb(s, &verb).unwrap_err();
        assert_eq!(problem.code, Code::IfReason);
        assert!(problem.detail.contains("broken disk"), "{}", problem.detail);
    }
    world.call(&format!("PUT {APP}"), r#"{"servers":[{"server":"10.0.0.1:80"}]}"#);
    assert_eq!(world.server(s).admin.state, AdminState::Down, "no PUT undoes it either");
    assert!(world.verb(s, "up"));
}

#[test]
fn a_ttl_ends_in_up() {
    let mut world = World::with(2);
    world.verb("10.0.0.1:80", "down?ttl=10s&reason=x");
    world.verb("10.0.0.2:80", "down?reason=y");
    let end = world.now + 10_000;
    assert_eq!(world.app.as_ref().unwrap().next_expiry(), Some(end));
    assert_eq!(world.apply(&Change::ExpireTtl { now: end - 1 }), Ok(false));
    world.now = end;
    world.by = "ttl".into();
    assert_eq!(world.apply(&Change::ExpireTtl { now: end }), Ok(true));
    assert_eq!(world.apply(&Change::ExpireTtl { now: end }), Ok(false));
    let admin = &world.server("10.0.0.1:80").admin;
    assert_eq!((admin.state, admin.since, admin.by.as_str()), (AdminState::Up, end, "ttl"));
    assert_eq!((admin.until, admin.reason.as_str()), (None, ""));
    assert_eq!(world.server("10.0.0.2:80").admin.state, AdminState::Down);
    world.app = None;
    assert_eq!(world.apply(&Change::ExpireTtl { now: end }), Ok(false));
}

#[test]
fn an_admin_object_acts_as_a_verb() {
    let mut world = World::with(1);
    let s = "10.0.0.1:80";
    let put = format!("PUT {APP}/servers/{s}");
    assert!(
        world.call(
            &put,
            r#"{"admin":{"state":"down","reason":"x","until":"2026-12-01T00:00:00Z"}}"#
        )
    );
    let until = Some(1_796_083_200_000);
    assert_eq!(world.server(s).admin.until, until);
    assert!(!world.call(&put, "{}"), "what a PUT does not name of admin stays");
    let patch = format!("PATCH {APP}/servers/{s}");
    let same = r#"{"admin":{"reason":"x","until":"2026-12-01T00:00:00Z","since":null,"by":"me"}}"#;
    assert!(!world.call(&patch, same));
    assert!(world.call(&patch, r#"{"admin":{"state":"drain","reason":"x"}}"#));
    assert!(world.call(&patch, r#"{"admin":null}"#));
    assert_eq!(world.server(s).admin.state, AdminState::Up);
    assert!(!world.call(&put, r#"{"admin":{"state":"down","until":"2020-01-01T00:00:00Z"}}"#));
}

#[test]
fn an_upstream_of_a_block_goes_only_by_force() {
    let mut world = World::with(1);
    world.named_by_block = true;
    let problem = world.try_call(&format!("DELETE {APP}"), "").unwrap_err();
    assert_eq!(problem.code, Code::NamedByBlock);
    assert!(world.call(&format!("DELETE {APP}?force=1"), ""));
}

#[test]
fn a_source_keeps_its_servers() {
    let mut world = World::with(2);
    world.app.as_mut().unwrap().servers[0].origin = Origin::Consul("dc1:web".into());
    let problem = world.try_call(&format!("DELETE {APP}/servers/id:1"), "").unwrap_err();
    assert_eq!(problem.code, Code::OwnedBySource);
    assert!(world.call(&format!("PUT {APP}"), r#"{"servers":[]}"#));
    assert_eq!(world.addrs(), ["10.0.0.1:80"]);
    assert!(world.verb("10.0.0.1:80", "down"));
}

#[test]
fn writers_of_distinct_servers_reach_the_algebraic_result() {
    // Case 9, at the core: each change is applied to what the last one left.
    let mut world = World::with(0);
    for n in 0..200u32 {
        let text = format!("{APP}/servers/10.0.{}.{}:80", n / 50, n % 50);
        world.call(&format!("PUT {text}"), "{}");
        if n % 3 == 0 {
            world.call(&format!("DELETE {text}"), "");
        }
    }
    let expected = (0..200u32).filter(|n| n % 3 != 0);
    let expected: Vec<String> =
        expected.map(|n| format!("10.0.{}.{}:80", n / 50, n % 50)).collect();
    assert_eq!(world.addrs(), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Put(ServerAddr, String),
    Patch(ServerAddr, String),
    Delete(ServerAddr),
    Verb(ServerAddr, &'static str),
    Replace(Vec<ServerAddr>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let body = || {
        prop_oneof![
            Just("{}".to_owned()),
            (0u16..4).prop_map(|weight| format!(r#"{{"weight":{weight}}}"#)),
            Just(r#"{"backup":true,"labels":{"a":"b"}}"#.to_owned()),
        ]
    };
    let verb = prop_oneof![Just("up"), Just("down?reason=a"), Just("drain"), Just("down?ttl=5s")];
    prop_oneof![
        (support::any_addr(), body()).prop_map(|(addr, body)| Step::Put(addr, body)),
        (support::any_addr(), body()).prop_map(|(addr, body)| Step::Patch(addr, body)),
        support::any_addr().prop_map(Step::Delete),
        (support::any_addr(), verb).prop_map(|(addr, verb)| Step::Verb(addr, verb)),
        prop::collection::hash_set(support::any_addr(), 0..8)
            .prop_map(|set| Step::Replace(set.into_iter().collect())),
    ]
}

proptest! {
    /// Against a list of (address, id, weight): ids stay with their address as long as it is there
    /// and never come back, order is that of arrival.
    #[test]
    fn any_run_of_changes_agrees_with_a_plain_list(steps in prop::collection::vec(any_step(), 1..30)) {
        let mut world = World::with(0);
        let mut model: Vec<(ServerAddr, u64, Option<u16>)> = Vec::new();
        let mut next_id = 1;
        for step in steps {
            let path = |addr: &ServerAddr| {
                format!("{APP}/servers/{}", addr.to_string().replace('/', "%2F"))
            };
            let weight = |body: &str| body.strip_prefix("{\"weight\":").map(|w| w[..1].parse().unwrap());
            let (line, body) = match &step {
                Step::Put(addr, body) => {
                    match model.iter_mut().find(|(have, ..)| have == addr) {
                        // Weight 1 is what holds anyway.
                        Some(entry) if weight(body) == Some(1) && entry.2.is_none() => {}
                        Some(entry) => entry.2 = weight(body),
                        None => {
                            model.push((addr.clone(), next_id, weight(body)));
                            next_id += 1;
                        }
                    }
                    (format!("PUT {}", path(addr)), body.clone())
                }
                Step::Patch(addr, body) => {
                    if let Some(entry) = model.iter_mut().find(|(have, ..)| have == addr)
                        && let Some(weight) = weight(body)
                        && (weight != 1 || entry.2.is_some())
                    {
                        entry.2 = Some(weight);
                    }
                    (format!("PATCH {}", path(addr)), body.clone())
                }
                Step::Delete(addr) => {
                    model.retain(|(have, ..)| have != addr);
                    (format!("DELETE {}", path(addr)), String::new())
                }
                Step::Verb(addr, verb) => (format!("POST {}/{verb}", path(addr)), String::new()),
                Step::Replace(addrs) => {
                    let same = addrs.len() == model.len()
                        && model.iter().all(|(have, ..)| addrs.contains(have));
                    if same {
                        for entry in &mut model {
                            entry.2 = None;
                        }
                    } else {
                        model = addrs.iter().map(|addr| {
                            let staying = model.iter().find(|(have, ..)| have == addr);
                            let id = staying.map_or_else(|| { next_id += 1; next_id - 1 }, |s| s.1);
                            (addr.clone(), id, None)
                        }).collect();
                    }
                    let list: Vec<String> =
                        addrs.iter().map(|addr| format!(r#"{{"server":"{addr}"}}"#)).collect();
                    (format!("PUT {APP}"), format!(r#"{{"servers":[{}]}}"#, list.join(",")))
                }
            };
            let digest = world.app.as_ref().unwrap().digest();
            let changed = world.try_call(&line, &body);
            if !changed.clone().unwrap_or(false) {
                prop_assert_eq!(digest, world.app.as_ref().unwrap().digest());
            }
            if changed.is_ok() && !matches!(step, Step::Delete(_) | Step::Verb(_, "down?ttl=5s")) {
                prop_assert_eq!(world.try_call(&line, &body), Ok(false), "a repeat changes nothing");
            }
            let servers = &world.app.as_ref().unwrap().servers;
            let have: Vec<(ServerAddr, u64, Option<u16>)> =
                servers.iter().map(|s| (s.addr.clone(), s.id, s.params.weight)).collect();
            prop_assert_eq!(&have, &model, "after {}", line);
        }
    }
}

#[test]
fn an_answer_of_the_resolver_is_no_change_of_what_is_wanted() {
    let mut world = World::with(1);
    world.resolves = true;
    assert!(world.call(&format!("PUT {APP}/servers/App.Example"), r#"{"weight":2}"#));
    assert!(world.call(&format!("PUT {APP}/servers/app.example:81"), "{}"));
    let digest = world.app.as_ref().unwrap().digest();
    assert!(world.resolve("app.example", &["10.1.0.2", "2001:db8::1", "10.1.0.1", "10.1.0.2"]));
    let texts = |world: &World, server: &str| {
        let addrs = &world.server(server).addrs;
        addrs.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let sorted = ["10.1.0.1:80", "10.1.0.2:80", "[2001:db8::1]:80"];
    assert_eq!(texts(&world, "app.example:80"), sorted);
    assert_eq!(texts(&world, "app.example:81").len(), 3);
    assert_eq!(world.app.as_ref().unwrap().digest(), digest);
    // The same in another order, nothing, or of another name.
    assert!(!world.resolve("app.example", &["2001:db8::1", "10.1.0.1", "10.1.0.2"]));
    assert!(!world.resolve("app.example", &[]));
    assert!(!world.resolve("example", &["10.9.9.9"]));
    // What is said of the server, or of the whole set, keeps the addresses.
    assert!(world.verb("app.example:80", "down"));
    let list = r#"{"servers":[{"server":"app.example"},{"server":"10.0.0.1:80"}]}"#;
    assert!(world.call(&format!("PUT {APP}"), list));
    assert_eq!(texts(&world, "app.example:80"), sorted);
    assert_eq!(world.server("app.example:80").admin.state, AdminState::Down);
    let twice = r#"{"servers":[{"server":"app.example"},{"server":"APP.example.:80"}]}"#;
    assert_eq!(
        world.try_call(&format!("PUT {APP}"), twice).unwrap_err().code,
        Code::DuplicateServer
    );
    // Gone while it was asked for.
    assert!(world.call(&format!("DELETE {APP}/servers/app.example"), ""));
    assert!(!world.resolve("app.example", &["10.1.0.7"]));
}

/// What the doors of other systems make of a body.
fn posted(text: &str) -> Change {
    dyups::read(text.as_bytes()).unwrap().change
}

fn peers(list: &str) -> Change {
    update::read(format!(r#"{{"service":"app","peers":[{list}]}}"#).as_bytes()).unwrap().1
}

#[test]
fn a_set_that_names_addresses_alone_leaves_those_that_stay_as_they_are() {
    let mut world = World::with(3);
    let body = r#"{"weight":5,"max_conns":7,"backup":true,"route":"r","labels":{"a":"b"}}"#;
    assert!(world.call(&format!("PATCH {APP}/servers/10.0.0.1:80"), body));
    world.verb("10.0.0.2:80", "drain?reason=disk&ttl=15m");
    assert!(
        world.call(&format!("PATCH {APP}"), r#"{"method":"least_conn","defaults":{"weight":2}}"#)
    );
    let before = world.app.clone().unwrap();
    let change = peers(r#""10.0.0.3:80","10.0.0.1:80","10.0.0.2""#);
    assert_eq!(world.apply(&change), Ok(true), "the text of an address is new");
    assert_eq!(world.server("10.0.0.1:80"), &before.servers[0]);
    assert_eq!(world.server("10.0.0.2:80").admin, before.servers[1].admin);
    assert_eq!(world.app.as_ref().unwrap().settings, before.settings);
    assert_eq!(world.apply(&change), Ok(false));

    assert_eq!(world.apply(&peers(r#""10.0.0.2:80","10.0.0.9:80""#)), Ok(true));
    assert_eq!(world.addrs(), ["10.0.0.2:80", "10.0.0.9:80"]);
    assert_eq!(world.server("10.0.0.9:80").origin, Origin::Api);
    assert_eq!(world.apply(&peers("")), Ok(true));
    assert!(world.addrs().is_empty());
}

#[test]
fn a_set_creates_the_upstream_with_the_defaults_of_the_keyed_blocks() {
    let mut world = World::new();
    world.keyed = Defaults { weight: Some(4), ..Defaults::default() };
    let change = posted("hash $uri; server 10.0.0.2 max_fails=3; server 10.0.0.1;");
    assert!(change.creates(None));
    assert_eq!(world.apply(&change), Ok(true));
    let app = world.app.as_ref().unwrap();
    assert_eq!((app.settings.method(), app.limits(&app.servers[0]).weight), (Method::Hash, 4));
    assert_eq!(app.limits(&app.servers[0]).max_fails, 3);
    assert_eq!(world.addrs(), ["10.0.0.2:80", "10.0.0.1:80"]);
    // Where the order counts it is what is said.
    assert_eq!(world.apply(&posted("server 10.0.0.1; server 10.0.0.2;")), Ok(true));
    assert_eq!(world.addrs(), ["10.0.0.1:80", "10.0.0.2:80"]);
}

#[test]
fn a_line_takes_down_and_sets_up_again_and_never_undoes_the_operator() {
    let mut world = World::with(2);
    world.by = "operator".into();
    world.verb("10.0.0.2:80", "down?reason=disk");
    let operator = world.server("10.0.0.2:80").admin.clone();
    world.by = "script".into();
    let both = posted("server 10.0.0.1 down; server 10.0.0.2 down;");
    assert_eq!(world.apply(&both), Ok(true));
    assert_eq!(world.apply(&both), Ok(false));
    let admin = &world.server("10.0.0.1:80").admin;
    assert_eq!((admin.state, &*admin.reason, &*admin.by), (AdminState::Down, "dyups", "script"));
    assert_eq!(world.server("10.0.0.2:80").admin, operator);
    assert_eq!(world.apply(&peers(r#""10.0.0.1","10.0.0.2""#)), Ok(false));
    assert_eq!(world.apply(&posted("server 10.0.0.1; server 10.0.0.2;")), Ok(true));
    assert_eq!(world.server("10.0.0.1:80").admin.state, AdminState::Up);
    assert_eq!(world.server("10.0.0.2:80").admin, operator);
}
