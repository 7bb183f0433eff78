//! `check` and `outlier` of an upstream, through every door.

mod support;

use peerage_core::api::import::{Line, line};
use peerage_core::api::{export, render};
use peerage_core::change::Actor;
use peerage_core::check::outlier::Outlier;
use peerage_core::check::{Check, Kind};
use peerage_core::diff;
use peerage_core::event;
use peerage_core::journal;
use peerage_core::snapshot::{self, Header, Writer};
use peerage_core::units::Millis;
use peerage_core::upstream::Upstream;
use support::{World, block};

const CHECK: &str = r#"{"check":{"type":"https","interval":"500ms","uri":"/health","status":"200","ca":"/etc/ca.pem"}}"#;
const OUTLIER: &str = r#"{"outlier":{"base":"10s","max_percent":50}}"#;
const PATCH: &str = "PATCH /v1/upstreams/app";

fn world() -> World {
    let mut world = World::with(1);
    assert!(world.call(PATCH, CHECK));
    assert!(world.call(PATCH, OUTLIER));
    world
}

fn check(world: &World) -> Option<&Check> {
    world.app.as_ref().unwrap().settings.check.as_deref()
}

fn outlier(world: &World) -> Option<Outlier> {
    world.app.as_ref().unwrap().settings.outlier
}

#[test]
fn a_patch_merges_into_what_is_there_and_a_put_states_the_whole() {
    let mut world = world();
    let said = check(&world).unwrap();
    assert_eq!((said.kind, said.timeout, said.fails), (Kind::Https, Millis(500), 2));
    assert!(!world.call(PATCH, CHECK));
    assert!(!world.call(PATCH, r#"{"check":{}}"#), "nothing is named");
    assert!(world.call(PATCH, r#"{"check":{"fails":3,"interval":null,"verify":false}}"#));
    let said = check(&world).unwrap();
    assert_eq!((said.uri.as_str(), said.fails, said.interval), ("/health", 3, Millis(5_000)));
    assert_eq!((said.timeout, said.verify), (Millis(1_000), false));
    assert!(world.call(PATCH, r#"{"outlier":{"max":"20s"}}"#));
    let said = outlier(&world).unwrap();
    assert_eq!((said.base, said.max, said.max_percent), (Millis(10_000), Millis(20_000), 50));
    let servers = r#""servers":[{"server":"10.0.0.1:80"}]"#;
    world.call("PUT /v1/upstreams/app", &format!(r#"{{"check":{{"fails":4}},{servers}}}"#));
    let wanted = Check { fails: 4, ..Check::default() };
    assert_eq!((check(&world), outlier(&world)), (Some(&wanted), None));
    assert!(world.call(PATCH, r#"{"check":null}"#));
    assert_eq!(check(&world), None);
    assert!(world.call(PATCH, r#"{"check":{},"outlier":{}}"#), "all defaults are a check too");
    assert_eq!(
        (check(&world), outlier(&world)),
        (Some(&Check::default()), Some(Outlier::default()))
    );
    world.call("PUT /v1/upstreams/app", &format!("{{{servers}}}"));
    assert_eq!((check(&world), outlier(&world)), (None, None));
}

#[test]
fn a_listing_shows_every_field_and_may_be_fed_back() {
    let mut world = world();
    let listing = world.listing();
    let shown = r#""check":{"type":"https","interval":"500ms","jitter":"10%","timeout":"500ms","fails":2,"passes":2,"uri":"/health","host":null,"port":null,"sni":null,"verify":true,"ca":"/etc/ca.pem","status":"200","body":null,"mandatory":false,"reuse":false,"on_all_down":"use"},"outlier":{"consecutive_errors":5,"base":"10s","max":"300s","max_percent":50},"eligible":1"#;
    assert!(listing.contains(shown), "{listing}");
    assert!(!world.call("PUT /v1/upstreams/app", &listing));
    let mut fresh = World::new();
    fresh.call("PUT /v1/upstreams/app", &listing);
    assert_eq!((check(&fresh), outlier(&fresh)), (check(&world), outlier(&world)));
    let (one, other) = (fresh.app.as_ref().unwrap(), world.app.as_ref().unwrap());
    assert_eq!(render::etag(one), render::etag(other));

    world.call(PATCH, r#"{"check":null,"outlier":null}"#);
    world.call(PATCH, r#"{"check":{"type":"tcp"}}"#);
    let listing = world.listing();
    let shown = r#""uri":null,"host":null,"port":null,"sni":null,"verify":null,"ca":null,"status":null,"body":null,"mandatory":false,"reuse":null,"#;
    assert!(listing.contains(shown), "what has no meaning is null: {listing}");
    assert!(!world.call("PUT /v1/upstreams/app", &listing));
}

#[test]
fn what_breaks_the_rules_is_refused_by_name_and_changes_nothing() {
    let mut world = world();
    let before = world.app.clone();
    for (body, field, text) in [
        (r#"{"check":7}"#, "check", "check must be an object, not a number"),
        (r#"{"check":{"rise":2}}"#, "check.rise", "unknown field \"check.rise\""),
        (
            r#"{"check":{"type":"ftp"}}"#,
            "check.type",
            "\"check.type\" is none of: http, https, tcp, grpc",
        ),
        (
            r#"{"check":{"interval":true}}"#,
            "check.interval",
            "\"check.interval\" must be a time like \"30s\", not a boolean",
        ),
        (r#"{"check":{"interval":"1x"}}"#, "check.interval", "\"check.interval\" is not a time"),
        (
            r#"{"check":{"interval":"2h"}}"#,
            "check.interval",
            "\"check.interval\" must be a time from 100ms to 3600s",
        ),
        (
            r#"{"check":{"timeout":"1s"}}"#,
            "check.timeout",
            "\"check.timeout\" must be at most the interval",
        ),
        (
            r#"{"check":{"jitter":10}}"#,
            "check.jitter",
            "\"check.jitter\" must be a string, not a number",
        ),
        (
            r#"{"check":{"fails":0}}"#,
            "check.fails",
            "\"check.fails\" must be a whole number from 1 to 100",
        ),
        (
            r#"{"check":{"fails":1.5}}"#,
            "check.fails",
            "\"check.fails\" must be a whole number from 1 to 100",
        ),
        (
            r#"{"check":{"port":70000}}"#,
            "check.port",
            "\"check.port\" must be a whole number from 1 to 65535",
        ),
        (r#"{"check":{"status":"2xx"}}"#, "check.status", "\"check.status\" must be statuses"),
        (
            r#"{"check":{"type":"http"}}"#,
            "check.ca",
            "\"check.ca\" has no meaning where the type is \"http\"",
        ),
        (
            r#"{"check":{"ca":null,"verify":true}}"#,
            "check.verify",
            "\"check.verify\" needs a \"ca\"",
        ),
        (
            r#"{"check":{"mandatory":"yes"}}"#,
            "check.mandatory",
            "\"check.mandatory\" must be true or false",
        ),
        (r#"{"outlier":[]}"#, "outlier", "outlier must be an object, not an array"),
        (r#"{"outlier":{"max":"5s"}}"#, "outlier.max", "\"outlier.max\" must be at least the base"),
        (
            r#"{"outlier":{"max_percent":0}}"#,
            "outlier.max_percent",
            "\"outlier.max_percent\" must be a whole number from 1 to 100",
        ),
        (r#"{"outlier":{"errors":1}}"#, "outlier.errors", "unknown field \"outlier.errors\""),
    ] {
        let problem = world.try_call(PATCH, body).unwrap_err();
        assert!(problem.detail.starts_with(text), "{body}: {}", problem.detail);
        assert_eq!((problem.status(), problem.field.as_deref()), (400, Some(field)), "{body}");
    }
    assert_eq!(world.app, before);
    // A set that states the whole is refused before anything is looked at, so that an import is.
    let text = br#"{"upstream":"b","check":{"type":"tcp","body":"x"},"servers":[]}"#;
    let problem = line(text).unwrap_err();
    assert_eq!(problem.field.as_deref(), Some("check.body"));
}

#[test]
fn a_load_merges_the_whole_check_as_one_field() {
    let mut world = World::new();
    let mut block = block(&["10.0.0.1:80"]);
    block.settings.check = Some(Box::new(Check::parse(&["uri=/file"]).unwrap()));
    world.merge(Some(&block));
    assert_eq!(check(&world).unwrap().uri, "/file");
    world.call(PATCH, r#"{"check":{"fails":9}}"#);
    assert_eq!(world.merge(Some(&block)), (false, vec![]), "what run time made of it stays");
    block.settings.outlier = Some(Outlier::default());
    assert_eq!(world.merge(Some(&block)), (true, vec![]));
    assert_eq!((check(&world).unwrap().fails, outlier(&world)), (9, Some(Outlier::default())));
    block.settings.check = Some(Box::new(Check::parse(&["uri=/other"]).unwrap()));
    let (_, conflicts) = world.merge(Some(&block));
    let said = conflicts.iter().map(|c| (c.field, c.file.as_str(), c.runtime.as_str()));
    let wanted = ("check", "type=http uri=/other", "type=http fails=9 uri=/file");
    assert_eq!(said.collect::<Vec<_>>(), [wanted]);
    assert_eq!(check(&world).unwrap().fails, 2);
    world.call(PATCH, r#"{"check":null}"#);
    block.settings.check = None;
    assert_eq!(world.merge(Some(&block)), (true, vec![]), "both took it away");
    assert_eq!(world.merge(None).1, vec![]);
}

#[test]
fn they_are_told_as_a_change_and_as_an_event() {
    let (plain, mut world) = (World::with(1).app.unwrap(), world());
    let before = world.app.clone().unwrap();
    let came = diff::upstream(Some(&plain), Some(&before));
    let paths: Vec<&str> = came.iter().map(|e| &e.path["upstreams/app/".len()..]).collect();
    assert_eq!(paths, ["check", "outlier"]);
    assert!(came[0].from.is_null() && came[0].to["uri"] == "/health");
    world.call(PATCH, r#"{"check":{"uri":"/x"},"outlier":{"base":"1s"}}"#);
    let entries = diff::upstream(Some(&before), world.app.as_ref());
    let told =
        entries.iter().map(|e| (&e.path["upstreams/app/".len()..], e.from.as_str(), e.to.as_str()));
    let wanted =
        [("check/uri", Some("/health"), Some("/x")), ("outlier/base", Some("10s"), Some("1s"))];
    assert_eq!(told.collect::<Vec<_>>(), wanted);
    let events = event::of_change(Some(&plain), Some(&before), &Actor::new("ci", "10.1.1.1"));
    let text = "round_robin check(type=https interval=500ms timeout=500ms uri=/health ca=/etc/ca.pem status=200) outlier(consecutive_errors=5 base=10s max=300s max_percent=50)";
    let told: Vec<_> = events.iter().map(|e| (e.from.as_str(), e.to.as_str())).collect();
    assert_eq!(told, [("round_robin", text)]);
}

fn file(upstream: &Upstream) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::begin(&mut out, &Header::new("main", 1, 9, 0));
    writer.upstream(&mut out, upstream, 1);
    writer.end(&mut out);
    out
}

#[test]
fn files_have_them_where_they_are_said_and_are_read_with_care() {
    let plain = World::with(1).app.unwrap();
    let text = String::from_utf8(file(&plain)).unwrap();
    assert!(!text.contains("check") && !text.contains("outlier"), "{text}");
    let upstream = world().app.unwrap();
    let loaded = snapshot::read(&file(&upstream));
    assert_eq!((&loaded.upstreams[..], loaded.damage), (&[(upstream.clone(), 1)][..], None));
    let line_of = journal::changes(&[(Some(&plain), Some(&upstream))], None);
    let settings = r#""settings":{"check":{"type":"https","interval":500,"#;
    assert!(String::from_utf8(line_of).unwrap().contains(settings));

    let mut out = Vec::new();
    export::upstream(&mut out, &upstream);
    let Ok(Line::Upstream { body, .. }) = line(&out) else { panic!("no upstream") };
    let mut copy = World::new();
    copy.apply(&peerage_core::change::Change::PutUpstream { body }).unwrap();
    assert_eq!(copy.app.as_ref().unwrap().digest(), upstream.digest());

    type Spoil = fn(&mut Upstream);
    let spoils: [(Spoil, &str); 3] = [
        (|u| u.settings.check.as_mut().unwrap().fails = 0, "a field of a check: \"fails\" must be"),
        (
            |u| u.settings.check.as_mut().unwrap().kind = Kind::Tcp,
            "a field of a check: \"uri\" has no",
        ),
        (
            |u| u.settings.outlier.as_mut().unwrap().max_percent = 101,
            "a field of outliers: \"max_percent\"",
        ),
    ];
    for (spoil, text) in spoils {
        let mut spoilt = upstream.clone();
        spoil(&mut spoilt);
        let damage = snapshot::read(&file(&spoilt)).damage.unwrap();
        assert!(damage.text.starts_with(text), "{}", damage.text);
    }
}
