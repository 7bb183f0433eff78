//! `hash_key`, `host` and `tls_name` of an upstream, through every door.

mod support;

use peerage_core::api::import::{Line, line};
use peerage_core::api::{export, model};
use peerage_core::body::{Field, UpstreamBody};
use peerage_core::change::{Actor, Change};
use peerage_core::diff;
use peerage_core::event;
use peerage_core::journal;
use peerage_core::snapshot::{self, Header, Writer};
use peerage_core::template::Template;
use peerage_core::texts::Texts;
use peerage_core::upstream::Upstream;
use support::{World, block};

const ALL: &str = r#"{"hash_key":"$uri/${Arg_x}","host":"app.test:80","tls_name":"app.test"}"#;

fn world() -> World {
    let mut world = World::with(1);
    assert!(world.call("PATCH /v1/upstreams/app", ALL));
    world
}

fn texts(world: &World) -> &Texts {
    &world.app.as_ref().unwrap().settings.texts
}

fn words(texts: &Texts) -> Vec<(&str, &str)> {
    texts.given().collect()
}

#[test]
fn a_patch_names_some_and_a_put_all() {
    let mut world = world();
    let all = [("hash_key", "$uri/${Arg_x}"), ("host", "app.test:80"), ("tls_name", "app.test")];
    assert_eq!(words(texts(&world)), all);
    assert!(!world.call("PATCH /v1/upstreams/app", ALL));
    assert!(world.call("PATCH /v1/upstreams/app", r#"{"host":null}"#));
    assert_eq!(words(texts(&world)), [all[0], all[2]]);
    let servers = r#""servers":[{"server":"10.0.0.1:80"}]"#;
    assert!(world.call("PUT /v1/upstreams/app", &format!(r#"{{"host":"b.test",{servers}}}"#)));
    assert_eq!(words(texts(&world)), [("host", "b.test")]);
    assert!(world.call("PUT /v1/upstreams/app", &format!("{{{servers}}}")));
    assert!(texts(&world).is_empty());
}

#[test]
fn a_listing_shows_them_and_may_be_fed_back() {
    let mut world = world();
    let listing = world.listing();
    for text in [
        r#""method":"round_robin","hash_key":"$uri/${Arg_x}","defaults":"#,
        r#""host":"app.test:80","tls_name":"app.test","check":null"#,
    ] {
        assert!(listing.contains(text), "{listing}");
    }
    assert!(!world.call("PUT /v1/upstreams/app", &listing));
    let mut fresh = World::new();
    fresh.call("PUT /v1/upstreams/app", &listing);
    assert_eq!(texts(&fresh), texts(&world));
}

#[test]
fn what_breaks_the_rules_is_refused_by_name_and_value() {
    let mut world = world();
    for (body, text) in [
        (r#"{"hash_key":""}"#, "\"hash_key\" must not be empty: \"\""),
        (r#"{"hash_key":"a${uri"}"#, "\"hash_key\" has a \"${\" without its \"}\": \"a${uri\""),
        (
            r#"{"hash_key":"${}"}"#,
            "\"hash_key\" has a \"$\" without the name of a variable: \"${}\"",
        ),
        (r#"{"hash_key":7}"#, "\"hash_key\" must be a string, not a number"),
        (r#"{"host":"a b"}"#, "\"host\" must have printable characters of ASCII only"),
        (r#"{"host":"a\r\nX: y"}"#, "\"host\" must have printable characters of ASCII only"),
        (r#"{"tls_name":"a:443"}"#, "\"tls_name\" must be the name of a host"),
        (r#"{"tls_name":""}"#, "\"tls_name\" must not be empty"),
    ] {
        let problem = world.try_call("PATCH /v1/upstreams/app", body).unwrap_err();
        assert!(problem.detail.starts_with(text), "{body}: {}", problem.detail);
        assert_eq!(problem.status(), 400);
    }
}

#[test]
fn a_variable_that_nobody_knows_is_refused() {
    let known = |name: &str| matches!(name, "uri" | "arg_x");
    let change = |text: &str| {
        let hash_key = Field::Given(Template::parse(text).unwrap());
        Change::PatchUpstream { body: UpstreamBody { hash_key, ..UpstreamBody::default() } }
    };
    assert_eq!(model::check_variables(&change("$URI-${arg_X}"), &known), Ok(()));
    assert_eq!(model::check_variables(&change("no variable"), &known), Ok(()));
    let problem = model::check_variables(&change("$uri$Nope"), &known).unwrap_err();
    let text = "\"hash_key\" has the variable \"$Nope\", which is unknown";
    assert_eq!((problem.status(), problem.detail.as_str()), (400, text));
    let default = Change::PatchUpstream { body: UpstreamBody::default() };
    assert_eq!(model::check_variables(&default, &|_| false), Ok(()));
}

#[test]
fn a_load_merges_them_field_by_field() {
    let mut world = World::new();
    let mut block = block(&["10.0.0.1:80"]);
    block.settings.texts.host = Some("file.test".into());
    world.merge(Some(&block));
    world.call("PATCH /v1/upstreams/app", r#"{"host":"api.test","tls_name":"api.test"}"#);
    assert_eq!(world.merge(Some(&block)), (false, vec![]));
    block.settings.texts.hash_key = Some(Template::parse("$uri").unwrap());
    assert_eq!(world.merge(Some(&block)), (true, vec![]));
    let kept = [("hash_key", "$uri"), ("host", "api.test"), ("tls_name", "api.test")];
    assert_eq!(words(texts(&world)), kept);
    block.settings.texts.host = Some("new.test".into());
    let (_, conflicts) = world.merge(Some(&block));
    let said = conflicts.iter().map(|c| (c.field, c.file.as_str(), c.runtime.as_str()));
    assert_eq!(said.collect::<Vec<_>>(), [("host", "new.test", "api.test")]);
    assert_eq!(texts(&world).host.as_deref(), Some("new.test"));
}

#[test]
fn they_are_told_as_a_change_and_as_an_event() {
    let (before, after) = (World::with(1).app.unwrap(), world().app.unwrap());
    let entries = diff::upstream(Some(&before), Some(&after));
    let told: Vec<_> = entries.iter().map(|e| (&e.path["upstreams/app/".len()..], &e.to)).collect();
    let said = |text: &str| serde_json::Value::from(text);
    let (key, host, name) = (said("$uri/${Arg_x}"), said("app.test:80"), said("app.test"));
    assert_eq!(told, [("hash_key", &key), ("host", &host), ("tls_name", &name)]);
    assert!(entries.iter().all(|entry| entry.from.is_null()));
    let events = event::of_change(Some(&before), Some(&after), &Actor::new("ci", "10.1.1.1"));
    let text = "round_robin hash_key=$uri/${Arg_x} host=app.test:80 tls_name=app.test";
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
fn files_have_them_where_they_are_said() {
    let plain = World::with(1).app.unwrap();
    let text = String::from_utf8(file(&plain)).unwrap();
    assert!(!["hash_key", "host", "tls_name"].iter().any(|name| text.contains(name)), "{text}");
    let upstream = world().app.unwrap();
    let loaded = snapshot::read(&file(&upstream));
    assert_eq!((&loaded.upstreams[..], loaded.damage), (&[(upstream.clone(), 1)][..], None));
    let line_of = journal::changes(&[(Some(&plain), Some(&upstream))], None);
    let settings = &r#""settings":{"hash_key":"$uri/${Arg_x}","host":"app.test:80","#;
    assert!(String::from_utf8(line_of).unwrap().contains(settings));

    let mut out = Vec::new();
    export::upstream(&mut out, &upstream);
    let Ok(Line::Upstream { body, .. }) = line(&out) else { panic!("no upstream") };
    assert_eq!(body.hash_key, Field::Given(Template::parse("$uri/${Arg_x}").unwrap()));
    assert_eq!((body.host, body.tls_name), {
        let given = |text: &str| Field::Given(text.to_owned());
        (given("app.test:80"), given("app.test"))
    });

    for spoil in [
        |texts: &mut Texts| texts.host = Some("a b".into()),
        |texts: &mut Texts| texts.tls_name = Some(String::new()),
    ] {
        let mut spoilt = upstream.clone();
        spoil(&mut spoilt.settings.texts);
        let damage = snapshot::read(&file(&spoilt)).damage.unwrap();
        assert!(damage.text.starts_with("a text must"), "{}", damage.text);
    }
}
