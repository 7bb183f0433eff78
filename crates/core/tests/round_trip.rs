//! What is written reads back: listings, records, the state file.

mod support;

use peerage_core::api::render::{self, Answer, Line};
use peerage_core::check::Check;
use peerage_core::check::outlier::Outlier;
use peerage_core::counters::Counters;
use peerage_core::damage::DamageKind;
use peerage_core::record;
use peerage_core::server::{Admin, AdminState, Origin, Server};
use peerage_core::snapshot::{self, Header, Loaded, Writer};
use peerage_core::state::Live;
use peerage_core::template::Template;
use peerage_core::texts::Texts;
use peerage_core::upstream::Upstream;
use proptest::prelude::*;
use serde_json::Value;
use support::{World, any_server, any_upstream, app, block};

/// A listing without what is another instance's own: ids, origins, times, actors.
fn content(listing: &str) -> Value {
    let mut value: Value = serde_json::from_str(listing).unwrap();
    for server in value["servers"].as_array_mut().unwrap() {
        for own in ["id", "origin"] {
            server[own].take();
        }
        for own in ["since", "by", "from"] {
            server["admin"][own].take();
        }
        // The text of the reason names the actor.
        server["why"]["text"].take();
    }
    value["origin"].take();
    value
}

#[test]
fn a_listing_fed_to_a_fresh_instance_gives_an_equal_one() {
    let mut world = World::new();
    let lines =
        ["10.0.0.1:80 weight=3 label=rack:a", "10.0.0.2:80 down", "unix:/run/a.sock backup"];
    world.merge(Some(&block(&lines)));
    world.call("PATCH /v1/upstreams/app", r#"{"defaults":{"weight":2,"fail_timeout":"30s"}}"#);
    world.by = "operator \"<b>\"".into();
    world.verb("10.0.0.1:80", "down?reason=disk&ttl=2h");
    world.verb("unix:%2Frun%2Fa.sock", "drain?reason=caf%C3%A9");
    let listing = world.listing();

    let mut fresh = World::new();
    fresh.by = "copy".into();
    fresh.now += 5000;
    assert!(fresh.call("PUT /v1/upstreams/app", &listing));
    assert_eq!(content(&fresh.listing()), content(&listing));
    assert_eq!(fresh.app.as_ref().unwrap().digest(), world.app.as_ref().unwrap().digest());
    let admin = &fresh.server("10.0.0.1:80").admin;
    assert_eq!((admin.reason.as_str(), admin.by.as_str()), ("disk", "copy"));

    assert!(!world.call("PUT /v1/upstreams/app", &listing), "and to its own changes nothing");
    for server in serde_json::from_str::<Value>(&listing).unwrap()["servers"].as_array().unwrap() {
        let line = format!("PUT /v1/upstreams/app/servers/id:{}", server["id"]);
        assert!(!world.call(&line, &server.to_string()));
    }
}

#[test]
fn a_server_has_the_fields_of_the_contract_in_its_order() {
    let mut world = World::with(1);
    world.verb("10.0.0.1:80", "down?reason=deploy-812");
    let listing = world.listing();
    let start = r#"{"name":"app","zone":"main","origin":"api","method":"round_robin","hash_key":null,"defaults":{"weight":1,"max_conns":0,"max_fails":1,"fail_timeout":"10s","slow_start":"0s"},"host":null,"tls_name":null,"check":null,"outlier":null,"eligible":0,"counts":{"down":1},"revision":812,"digest":""#;
    let server = r#""servers":[{"id":1,"server":"10.0.0.1:80","origin":"api","weight":1,"max_conns":0,"max_fails":1,"fail_timeout":"10s","slow_start":"0s","backup":false,"route":"","labels":{},"host_admin":null,"admin":{"state":"down","since":"2026-11-29T21:05:07Z","until":null,"reason":"deploy-812","by":"ci","from":"10.1.1.1"},"state":"down","why":{"code":"down_by","text":"taken down by ci: deploy-812"},"active":0,"upgraded":0,"counters":{"#;
    assert!(listing.starts_with(start), "{listing}");
    assert!(listing.contains(server), "{listing}");
    assert!(listing.ends_with("}}]}"));
}

#[test]
fn an_answer_has_revision_and_changed_first() {
    let world = World::with(1);
    let upstream = world.app.as_ref().unwrap();
    let server = &upstream.servers[0];
    let live = Live { counters: Counters { active: 2, ..Counters::default() }, ..Live::default() };
    let name = app();
    let extra = [("drained", Value::from(true))];
    let mut answer = Answer {
        revision: 812,
        changed: true,
        upstream: Some(&name),
        server: Some(Line { server, limits: upstream.limits(server), live: &live, host: None }),
        extra: &extra,
    };
    let mut out = Vec::new();
    render::answer(&mut out, &answer);
    let text = String::from_utf8(out).unwrap();
    let start =
        r#"{"revision":812,"changed":true,"upstream":"app","drained":true,"server":{"id":1,"#;
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains(r#""state":"up","why":null,"active":2,"upgraded":0,"#));
    answer.server = None;
    answer.extra = &[];
    let mut out = Vec::new();
    render::answer(&mut out, &answer);
    assert_eq!(out, br#"{"revision":812,"changed":true,"upstream":"app"}"#);
}

#[test]
fn the_digest_leaves_out_ids_origins_times_actors_and_order() {
    let mut world = World::with(2);
    world.verb("10.0.0.1:80", "down?reason=x");
    let digest = world.app.as_ref().unwrap().digest();
    let mut other = world.app.clone().unwrap();
    other.servers.reverse();
    other.servers[0].id = 77;
    other.servers[1].admin = Admin {
        state: AdminState::Down,
        reason: "x".into(),
        since: 5,
        until: Some(9),
        close: Some(8),
        by: "me".into(),
        from: "there".into(),
    };
    other.origin = Origin::Config;
    assert_eq!(other.digest(), digest);
    other.servers[0].params.weight = Some(1);
    assert_eq!(other.digest(), digest, "what holds counts, not whether it was said");
    let changes: [fn(&mut Upstream); 12] = [
        |u| u.servers[0].params.weight = Some(2),
        |u| u.servers[0].params.labels = [("a".into(), "b".into())].into(),
        |u| u.servers[0].admin.state = AdminState::Drain,
        |u| u.servers[1].admin.reason = "y".into(),
        |u| u.settings.defaults.max_fails = Some(0),
        |u| u.settings.texts.hash_key = Some(Template::parse("$uri").unwrap()),
        |u| u.settings.texts.host = Some("a.test".into()),
        |u| u.settings.texts.tls_name = Some("a.test".into()),
        |u| u.settings.check = Some(Box::default()),
        |u| u.settings.check = Some(Box::new(Check { fails: 3, ..Check::default() })),
        |u| u.settings.outlier = Some(Outlier::default()),
        |u| drop(u.servers.pop()),
    ];
    for change in changes {
        let mut changed = other.clone();
        change(&mut changed);
        assert_ne!(changed.digest(), digest);
    }
    assert_eq!(render::etag(&other), format!("\"{digest:016x}\""));
}

#[test]
fn the_digest_of_known_content_is_the_same_in_every_version() {
    let mut world = World::new();
    let body = r#"{"servers":[{"server":"10.0.0.1:80","weight":3,"labels":{"a":"b"}}]}"#;
    world.call("PUT /v1/upstreams/app", body);
    assert_eq!(world.app.as_ref().unwrap().digest_text(), KNOWN_DIGEST);
}

const KNOWN_DIGEST: &str = "b12fa5484a8c8627";

fn file(upstreams: &[Upstream]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header::new("main", 812, 99, 1_795_986_307_000);
    let mut writer = Writer::begin(&mut out, &header);
    for (i, upstream) in upstreams.iter().enumerate() {
        writer.upstream(&mut out, upstream, 800 + i as u64);
    }
    writer.end(&mut out);
    out
}

fn three() -> Vec<Upstream> {
    ["a", "b", "c"]
        .map(|name| {
            let mut upstream = World::with(2).app.unwrap();
            upstream.name = peerage_core::name::UpstreamName::parse(name).unwrap();
            upstream
        })
        .to_vec()
}

#[test]
fn a_state_file_is_lines_that_people_can_read() {
    let mut world = World::new();
    world.merge(Some(&block(&["10.0.0.1:80 weight=3", "10.0.0.2:80"])));
    world.verb("10.0.0.1:80", "down?reason=disk");
    world.call("DELETE /v1/upstreams/app/servers/10.0.0.2:80", "");
    let text = String::from_utf8(file(&[world.app.unwrap()])).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| &line[18..]).collect();
    let expected = [
        r#""data":{"format":2,"zone":"main","revision":812,"next_id":99,"time":"2026-11-29T21:05:07Z"}}"#,
        r#""data":{"upstream":"app","revision":800,"origin":"config","declared":{},"removed":[{"server":"10.0.0.2:80","declared":{}}],"servers":[{"id":1,"server":"10.0.0.1:80","weight":3,"admin":{"state":"down","since":1795986307000,"reason":"disk","by":"ci","from":"10.1.1.1"},"declared":{"weight":3}}]}}"#,
        r#""data":{"end":1,"servers":1}}"#,
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_torn_file_gives_what_stands_before_the_tear() {
    let bytes = file(&three());
    let whole = snapshot::read(&bytes);
    assert_eq!(whole.damage, None);
    assert_eq!(whole.upstreams.len(), 3);
    let ends: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] == b'\n').map(|i| i + 1).collect();
    for cut in 0..bytes.len() {
        let Loaded { header, upstreams, damage, .. } = snapshot::read(&bytes[..cut]);
        let lines = ends.iter().filter(|&&end| end <= cut).count();
        let damage = damage.expect("a cut file is not whole");
        assert_eq!(damage.kind, DamageKind::Torn, "{cut}");
        assert_eq!(damage.line, lines + 1, "{cut}");
        assert_eq!(header.is_some(), lines > 0);
        assert_eq!(upstreams, whole.upstreams[..lines.saturating_sub(1).min(3)]);
    }
}

#[test]
fn a_flipped_byte_anywhere_is_found_and_what_stands_before_is_used() {
    let bytes = file(&three());
    let whole = snapshot::read(&bytes);
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        if bad[at] == b'\n' || bytes[at] == b'\n' {
            continue; // lines move; found all the same, elsewhere
        }
        let line = bytes[..at].iter().filter(|&&b| b == b'\n').count();
        let loaded = snapshot::read(&bad);
        let damage = loaded.damage.expect("a flipped byte is damage");
        assert_eq!((damage.kind, damage.line), (DamageKind::Damaged, line + 1), "{at}");
        assert_eq!(loaded.upstreams, whole.upstreams[..line.saturating_sub(1).min(3)]);
    }
}

#[test]
fn lines_that_are_whole_but_out_of_place_are_damage() {
    let bytes = file(&three());
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    let join = |order: &[usize]| order.iter().flat_map(|&i| lines[i].to_vec()).collect::<Vec<u8>>();
    let table = [
        (vec![1, 2, 3, 4], DamageKind::Damaged, 1),
        (vec![0, 1, 1, 3, 4], DamageKind::Damaged, 3),
        (vec![0, 1, 3, 4], DamageKind::Damaged, 4),
        (vec![0, 1, 2, 3, 4, 1], DamageKind::Damaged, 6),
        (vec![0, 0, 1], DamageKind::Damaged, 2),
        (vec![0], DamageKind::Torn, 2),
        (vec![], DamageKind::Torn, 1),
    ];
    for (order, kind, line) in table {
        let damage = snapshot::read(&join(&order)).damage.unwrap();
        assert_eq!((damage.kind, damage.line), (kind, line), "{order:?} {damage:?}");
    }
}

#[test]
fn a_file_of_format_1_is_read() {
    let loaded = snapshot::read(include_bytes!("recorded/format-1.json"));
    assert_eq!(loaded.damage, None);
    let header = Header { format: 1, ..Header::new("main", 812, 99, 1_795_986_307_000) };
    assert_eq!(loaded.header, Some(header));
    assert_eq!((loaded.hosts.iter().count(), loaded.hosts_revision), (1, 0));
    let [(app, 800)] = &loaded.upstreams[..] else { panic!("{:?}", loaded.upstreams) };
    assert_eq!((app.servers[0].id, app.servers[0].params.weight), (1, Some(3)));
    assert_eq!(app.removed.len(), 1);
}

#[test]
fn a_later_format_is_left_alone() {
    let mut out = Vec::new();
    let header = Header { format: 3, ..Header::new("main", 1, 1, 0) };
    Writer::begin(&mut out, &header).end(&mut out);
    let loaded = snapshot::read(&out);
    assert_eq!(loaded.header, None);
    assert_eq!(loaded.damage.unwrap().kind, DamageKind::Format);
}

proptest! {
    #[test]
    fn a_listing_of_anything_puts_to_an_equal_digest(mut upstream in any_upstream()) {
        upstream.servers.retain(|server| server.origin.is_own());
        let listing = support::listing(&upstream);
        let mut fresh = World::new();
        fresh.call("PUT /v1/upstreams/app", &listing);
        prop_assert_eq!(fresh.app.as_ref().unwrap().digest(), upstream.digest());
        prop_assert_eq!(content(&fresh.listing()), content(&listing));
        prop_assert!(!fresh.call("PUT /v1/upstreams/app", &listing));
        let mut same = World::new();
        same.next_id = 100;
        upstream.orphaned_at = None;
        same.app = Some(upstream);
        prop_assert!(!same.call("PUT /v1/upstreams/app", &listing));
    }

    #[test]
    fn a_snapshot_reads_back(upstream in any_upstream()) {
        let loaded = snapshot::read(&file(std::slice::from_ref(&upstream)));
        prop_assert_eq!(loaded.damage, None);
        prop_assert_eq!(loaded.header, Some(Header::new("main", 812, 99, 1_795_986_307_000)));
        prop_assert_eq!(loaded.upstreams, vec![(upstream, 800)]);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(snapshot::read(&bytes).damage.is_some());
    }

    #[test]
    fn records_read_back_also_when_padded(server in any_server(), upstream in any_upstream(), pad in 0usize..8) {
        let mut bytes = record::encode_server(&server);
        bytes.resize(bytes.len() + pad, 0);
        prop_assert_eq!(record::decode_server(&bytes), Ok(server));
        let mut bytes = record::encode_upstream_cold(&upstream);
        bytes.resize(bytes.len() + pad, 0);
        let mut cold = Upstream { servers: Vec::new(), ..upstream };
        cold.settings.texts = Texts::default();
        prop_assert_eq!(record::decode_upstream_cold(&bytes), Ok(cold));
    }

    #[test]
    fn no_bytes_make_the_decoders_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = (record::decode_server(&bytes), record::decode_upstream_cold(&bytes));
    }
}

#[test]
fn the_record_of_a_plain_server_is_small() {
    let world = World::with(1);
    let server: &Server = world.server("10.0.0.1:80");
    assert!(record::encode_server(server).len() <= 32);
}
