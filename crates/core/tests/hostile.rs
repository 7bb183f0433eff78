//! Hostile admin input (case 23): a 4xx that names the field, nothing changed, no panic.

mod support;

use peerage_core::api::error::Code;
use peerage_core::api::model;
use peerage_core::api::route::{Http, WriteMode, route};
use peerage_core::crc::crc32c;
use peerage_core::damage::DamageKind;
use peerage_core::server::{Declared, Params};
use peerage_core::snapshot::{self, Header, Writer};
use peerage_core::units::Secs;
use peerage_core::upstream::Upstream;
use proptest::prelude::*;
use support::{World, addr};

#[test]
fn bad_bodies_are_refused_with_their_field() {
    let long = "a".repeat(10_000);
    let long_addr = format!(r#"{{"servers":[{{"server":"{long}"}}]}}"#);
    let long_reason =
        format!(r#"{{"servers":[{{"server":"10.0.0.1","admin":{{"reason":"{long}"}}}}]}}"#);
    let long_key = format!(r#"{{"servers":[],"{long}":1}}"#);
    let deep = format!(r#"{{"servers":{}{}}}"#, "[".repeat(1000), "]".repeat(1000));
    let server = |field: &str| format!(r#"{{"servers":[{{"server":"10.0.0.1:80",{field}}}]}}"#);
    let labels: Vec<String> = (0..17).map(|n| format!("\"k{n}\":\"v\"")).collect();
    let many_labels = server(&format!(r#""labels":{{{}}}"#, labels.join(",")));
    let table: Vec<(String, Code, Option<&str>)> = vec![
        ("".into(), Code::BadJson, None),
        ("null".into(), Code::BadValue, None),
        ("[]".into(), Code::BadValue, None),
        ("\"x\"".into(), Code::BadValue, None),
        ("{\"servers\":[]} trailing".into(), Code::BadJson, None),
        ("<xml/>".into(), Code::BadJson, None),
        ("servers=1".into(), Code::BadJson, None),
        (deep, Code::BadJson, None),
        (r#"{"servers":[],"servers":[]}"#.into(), Code::BadJson, Some("servers")),
        (server(r#""weight":1,"weight":2"#), Code::BadJson, Some("weight")),
        (server(r#""weight":NaN"#), Code::BadJson, None),
        (server(r#""weight":1e999"#), Code::BadJson, None),
        (server(r#""weight":-1"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":1e308"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":1.5"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":1.25"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":65536"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":18446744073709551616"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":"5""#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":true"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""weight":[1]"#), Code::BadValue, Some("servers[0].weight")),
        (server(r#""max_conns":1048576"#), Code::BadValue, Some("servers[0].max_conns")),
        (server(r#""max_fails":65536"#), Code::BadValue, Some("servers[0].max_fails")),
        (server(r#""fail_timeout":"10x""#), Code::BadValue, Some("servers[0].fail_timeout")),
        (server(r#""fail_timeout":-1"#), Code::BadValue, Some("servers[0].fail_timeout")),
        (server(r#""fail_timeout":2147483648"#), Code::BadValue, Some("servers[0].fail_timeout")),
        (server(r#""slow_start":"4h1s""#), Code::BadValue, Some("servers[0].slow_start")),
        (server(r#""backup":"true""#), Code::BadValue, Some("servers[0].backup")),
        (server(r#""route":"a\nb""#), Code::BadValue, Some("servers[0].route")),
        (
            server(r#""route":"012345678901234567890123456789012""#),
            Code::BadValue,
            Some("servers[0].route"),
        ),
        (server(r#""labels":[]"#), Code::BadValue, Some("servers[0].labels")),
        (server(r#""labels":{"":"v"}"#), Code::BadValue, Some("servers[0].labels")),
        (server(r#""labels":{"a:b":"v"}"#), Code::BadValue, Some("servers[0].labels")),
        (server(r#""labels":{"a":1}"#), Code::BadValue, Some("servers[0].labels.a")),
        (server(r#""labels":{"a":"\u0000"}"#), Code::BadValue, Some("servers[0].labels.a")),
        (many_labels, Code::BadValue, Some("servers[0].labels")),
        (server(r#""admin":"down""#), Code::BadValue, Some("servers[0].admin")),
        (server(r#""admin":{"state":"off"}"#), Code::BadValue, Some("servers[0].admin.state")),
        (
            server(r#""admin":{"state":"down","reason":"\u001b[2J"}"#),
            Code::BadValue,
            Some("servers[0].admin.reason"),
        ),
        (
            server(r#""admin":{"state":"down","until":"soon"}"#),
            Code::BadValue,
            Some("servers[0].admin.until"),
        ),
        (
            server(r#""admin":{"state":"down","ttl":"0"}"#),
            Code::BadValue,
            Some("servers[0].admin.ttl"),
        ),
        (
            server(r#""admin":{"state":"up","ttl":"5m"}"#),
            Code::BadValue,
            Some("servers[0].admin.state"),
        ),
        (server(r#""admin":{"ttl":"5m"}"#), Code::BadValue, Some("servers[0].admin.state")),
        (
            server(r#""admin":{"state":"down","ttl":1,"until":"2030-01-01T00:00:00Z"}"#),
            Code::BadValue,
            Some("servers[0].admin.until"),
        ),
        (server(r#""admin":{"x":1}"#), Code::UnknownField, Some("servers[0].admin.x")),
        (server(r#""down":true"#), Code::UnknownField, Some("servers[0].down")),
        (server(r#""weigth":1"#), Code::UnknownField, Some("servers[0].weigth")),
        (r#"{"servers":[{}]}"#.into(), Code::BadValue, Some("servers[0].server")),
        (r#"{"servers":[1]}"#.into(), Code::BadValue, Some("servers[0]")),
        (r#"{"servers":{}}"#.into(), Code::BadValue, Some("servers")),
        (r#"{"servers":null}"#.into(), Code::BadValue, Some("servers")),
        (r#"{"servers":[{"server":null}]}"#.into(), Code::BadValue, Some("servers[0].server")),
        (
            r#"{"servers":[{"server":"../../etc/passwd"}]}"#.into(),
            Code::BadAddress,
            Some("servers[0].server"),
        ),
        (
            r#"{"servers":[{"server":"10.0.0.1:80\u0000"}]}"#.into(),
            Code::BadAddress,
            Some("servers[0].server"),
        ),
        (
            r#"{"servers":[{"server":"10.0.0.1:99999"}]}"#.into(),
            Code::BadAddress,
            Some("servers[0].server"),
        ),
        (long_addr, Code::BadAddress, Some("servers[0].server")),
        (long_reason, Code::BadValue, Some("servers[0].admin.reason")),
        (r#"{"servers":[],"method":"fastest"}"#.into(), Code::BadValue, Some("method")),
        (r#"{"servers":[],"method":"hash  consistent"}"#.into(), Code::BadValue, Some("method")),
        (
            r#"{"servers":[],"defaults":{"backup":true}}"#.into(),
            Code::UnknownField,
            Some("defaults.backup"),
        ),
        (r#"{"servers":[],"defaults":[]}"#.into(), Code::BadValue, Some("defaults")),
        (r#"{"servers":[],"host":"x y"}"#.into(), Code::BadValue, Some("host")),
        (r#"{"servers":[],"tls_name":"x:1"}"#.into(), Code::BadValue, Some("tls_name")),
        (r#"{"servers":[],"hash_key":"${"}"#.into(), Code::BadValue, Some("hash_key")),
        (r#"{"servers":[],"check":[]}"#.into(), Code::BadValue, Some("check")),
        (
            r#"{"servers":[],"check":{"type":"tcp","uri":"/"}}"#.into(),
            Code::BadValue,
            Some("check.uri"),
        ),
        (r#"{"servers":[],"outlier":{"base":{}}}"#.into(), Code::BadValue, Some("outlier.base")),
        (r#"{"servers":[],"keepalive":32}"#.into(), Code::UnknownField, Some("keepalive")),
        (long_key, Code::UnknownField, Some(&long[..64])),
    ];
    let mut world = World::with(1);
    let before = world.app.clone();
    for (body, code, field) in table {
        let problem = world.try_call("PUT /v1/upstreams/app", &body).unwrap_err();
        let start: String = body.chars().take(90).collect();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{start}: {problem:?}");
        assert_eq!(problem.status(), 400);
        assert!(problem.to_bytes().len() < 1000, "{start}");
        assert_eq!(world.app, before);
    }
    let problem =
        world.try_bytes("PUT /v1/upstreams/app", b"{\"servers\":[],\"\xff\":1}").unwrap_err();
    assert_eq!(problem.code, Code::BadJson);
    let problem = world.try_call("PATCH /v1/upstreams/app", r#"{"servers":[]}"#).unwrap_err();
    assert_eq!((problem.code, problem.field.as_deref()), (Code::UnknownField, Some("servers")));
}

#[test]
fn a_body_of_many_keys_costs_no_square() {
    let keys: Vec<String> = (0..60_000).map(|n| format!("\"k{n}\":0")).collect();
    let body = format!("{{{}}}", keys.join(","));
    let mut world = World::with(1);
    let problem = world.try_call("PUT /v1/upstreams/app", &body).unwrap_err();
    assert_eq!(problem.code, Code::UnknownField);
    let servers: Vec<String> = (0..20_000u32)
        .map(|n| format!(r#"{{"server":"10.{}.{}.{}:80"}}"#, n >> 16, n >> 8 & 255, n & 255))
        .collect();
    world.call("PUT /v1/upstreams/app", &format!(r#"{{"servers":[{}]}}"#, servers.join(",")));
    assert_eq!(world.app.as_ref().unwrap().servers.len(), 20_000);
}

#[test]
fn operate_lets_a_patch_change_only_the_weight() {
    let table = [
        (r#"{"weight":0}"#, true),
        (r#"{"weight":5,"server":"10.0.0.1:80","id":1}"#, true),
        ("{}", true),
        (r#"{"weight":5,"max_conns":1}"#, false),
        (r#"{"admin":{"state":"down"}}"#, false),
        (r#"{"backup":null}"#, false),
    ];
    for (body, allowed) in table {
        let path = b"/v1/upstreams/app/servers/10.0.0.1:80";
        let routed = route(Http::Patch, path, b"", WriteMode::Operate).unwrap();
        let change = model::change(routed.call, body.as_bytes(), WriteMode::Operate);
        match change {
            Ok(_) => assert!(allowed, "{body}"),
            Err(problem) => {
                assert_eq!((problem.code, allowed), (Code::NotPermitted, false), "{body}")
            }
        }
    }
}

#[test]
fn what_no_change_makes_is_not_read_from_a_state_file() {
    type Row = (fn(&mut Upstream), &'static str);
    let table: [Row; 11] = [
        (|u| u.servers[1].addr = addr("10.0.0.1:80"), "server \"10.0.0.1:80\" comes twice"),
        (|u| u.servers[1].id = 1, "id 1 comes twice"),
        (
            |u| u.servers[0].given = Some("10.0.0.2".into()),
            "server \"10.0.0.1:80\" was given as another",
        ),
        (
            |u| u.servers[0].params.max_conns = Some(1 << 20),
            "a field of server \"10.0.0.1:80\" must be a whole number from 0 to 1048575",
        ),
        (
            |u| u.servers[0].params.route = "\u{1b}[2J".into(),
            "a field of server \"10.0.0.1:80\" must not have control characters",
        ),
        (
            |u| drop(u.servers[0].params.labels.insert(String::new(), "v".into())),
            "a field of server \"10.0.0.1:80\" must have keys that are not empty",
        ),
        (
            |u| u.servers[0].admin.reason = "a".repeat(256),
            "a field of server \"10.0.0.1:80\" must have at most 255 bytes",
        ),
        (
            |u| u.servers[0].admin.until = Some(1),
            "a field of server \"10.0.0.1:80\" has no end while it is up",
        ),
        (
            |u| {
                let params = Params { max_fails: Some(1 << 16), ..Params::default() };
                u.servers[0].declared = Some(Declared { params, ..Declared::default() });
            },
            "a declared field must be a whole number from 0 to 65535",
        ),
        (
            |u| u.settings.defaults.max_fails = Some(1 << 16),
            "a default must be a whole number from 0 to 65535",
        ),
        (|u| u.settings.defaults.fail_timeout = Some(Secs(1 << 31)), "too large"),
    ];
    for (spoil, text) in table {
        let mut upstream = World::with(2).app.unwrap();
        spoil(&mut upstream);
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, &Header::new("main", 1, 9, 0));
        writer.upstream(&mut out, &upstream, 1);
        writer.end(&mut out);
        let damage = snapshot::read(&out).damage.unwrap();
        assert_eq!((damage.kind, damage.line), (DamageKind::Damaged, 2));
        assert!(damage.text.starts_with(text), "{text}: {}", damage.text);
    }
}

#[test]
fn a_state_of_a_host_counts_whatever_form_its_address_has() {
    let file = |hosts: &str| {
        let mut out = Vec::new();
        let writer = Writer::begin(&mut out, &Header::new("main", 1, 9, 0));
        let data = format!(r#"{{"hosts":{hosts}}}"#);
        let sum = crc32c(data.as_bytes());
        out.extend(format!("{{\"sum\":\"{sum:08x}\",\"data\":{data}}}\n").bytes());
        writer.end(&mut out);
        snapshot::read(&out)
    };
    let admin = r#"{"state":"down","since":1,"until":null,"reason":"REASON","by":"","from":""}"#;
    let one = file(&format!(r#"{{"::ffff:10.0.0.1":{admin}}}"#));
    assert_eq!(one.damage, None);
    assert!(one.hosts.get("10.0.0.1".parse().unwrap()).is_some());
    let up = file(&format!(r#"{{"10.0.0.1":{}}}"#, admin.replace("down", "up")));
    assert!(up.damage.is_none() && up.hosts.is_empty());
    let long = file(&format!(r#"{{"10.0.0.1":{}}}"#, admin.replace("REASON", &"a".repeat(256))));
    assert!(long.damage.is_some() && long.hosts.is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_routing_or_reading_panic(
        method in "(GET|PUT|PATCH|DELETE|POST|BREW)",
        path in "(/v1/upstreams/app(/servers/x(/down)?)?)?[ -~]{0,20}",
        query in "[ -~]{0,20}",
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let method = Http::parse(method.as_bytes());
        if let Ok(routed) = route(method, path.as_bytes(), query.as_bytes(), WriteMode::On) {
            let _ = model::change(routed.call, &body, WriteMode::On);
        }
    }

    #[test]
    fn near_json_never_panics(body in r#"[{}\[\]":,0-9a-z\\. -]{0,80}"#) {
        let mut world = World::with(1);
        let _ = world.try_call("PUT /v1/upstreams/app", &body);
        let _ = world.try_call("PATCH /v1/upstreams/app/servers/id:1", &body);
    }
}
