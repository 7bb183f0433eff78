//! The doors of other systems: what is read of a body has a text that reads equal, and said twice it
//! changes nothing the second time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::api::route::Http;
use peerage_core::body::{Field, ServerBody, UpstreamBody};
use peerage_core::change::Change;
use peerage_core::doors::dyups::{self, Call, OWN, Posted, Routed};
use peerage_core::doors::statement::statements;
use peerage_core::doors::update;
use peerage_core::name::UpstreamName;
use peerage_core_fuzz::world::{World, check};

// A request line and a body, for either door.
fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|&b| b == b'\n').unwrap_or(bytes.len());
    let (line, body) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    let name = target(line).unwrap_or_else(|| UpstreamName::parse("app").unwrap());
    words(body);
    if let Ok(Posted { change, .. }) = dyups::read(body) {
        let text = said(&change);
        let again = dyups::read(text.as_bytes()).map(|posted| posted.change);
        assert_eq!(again.as_ref(), Ok(&change), "{text}");
        twice(&name, &change);
    }
    if let Ok((name, change)) = update::read(body) {
        twice(&name, &change);
    }
});

/// The upstream that a request is about; its name reads back.
fn target(line: &[u8]) -> Option<UpstreamName> {
    let mut parts = line.splitn(2, |&b| b == b' ');
    let method = Http::parse(parts.next()?);
    let target = parts.next()?;
    let mut parts = target.splitn(2, |&b| b == b'?');
    let (path, query) = (parts.next()?, parts.next().unwrap_or_default());
    match dyups::route(method, path, query) {
        Ok(Routed { call: Call::Show(name) | Call::Post(name), .. }) => {
            let path = format!("/upstream/{name}");
            let routed = dyups::route(Http::Post, path.as_bytes(), b"").unwrap();
            assert_eq!(routed.call, Call::Post(name.clone()));
            Some(name)
        }
        Ok(_) => None,
        Err(reply) => {
            assert!((400..500).contains(&reply.status) && reply.text.len() <= 512, "{reply:?}");
            None
        }
    }
}

/// Directives that are written with quotes are the same.
fn words(body: &[u8]) {
    let Ok(all) = statements(body) else { return };
    let line = |words: &[String]| {
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        words.join(" ") + ";"
    };
    let text: String = all.iter().map(|statement| line(&statement.words)).collect();
    let again = statements(text.as_bytes()).unwrap();
    assert!(all.iter().map(|s| &s.words).eq(again.iter().map(|s| &s.words)), "{text}");
}

fn quoted(word: &str) -> String {
    let mut out = String::from("'");
    for c in word.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '\'' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out + "'"
}

/// A body that says the same.
fn said(change: &Change) -> String {
    let Change::SetServers { body, own: Some(OWN) } = change else { panic!("{change:?}") };
    let UpstreamBody { method, hash_key, servers, .. } = body;
    let mut out = String::new();
    if let Field::Given(method) = method {
        let mut words = method.as_str().split(' ').map(str::to_owned).collect::<Vec<_>>();
        if let Field::Given(key) = hash_key {
            words.insert(1, quoted(key.as_str()));
        }
        out += &(words.join(" ") + ";");
    }
    for server in servers.iter().flatten() {
        out += &format!("server {};", server_words(server).join(" "));
    }
    out
}

fn server_words(server: &ServerBody) -> Vec<String> {
    let ServerBody { addr, given, limits, backup, route, labels, admin } = server;
    fn pair<T: std::fmt::Display>(name: &str, field: &Field<T>) -> Option<String> {
        let Field::Given(value) = field else { return None };
        Some(quoted(&format!("{name}={value}")))
    }
    let addr = addr.as_ref().map(ToString::to_string);
    let mut words: Vec<String> =
        given.clone().or(addr).iter().map(|address| quoted(address)).collect();
    words.extend(pair("weight", &limits.weight));
    words.extend(pair("max_conns", &limits.max_conns));
    words.extend(pair("max_fails", &limits.max_fails));
    words.extend(pair("fail_timeout", &limits.fail_timeout));
    words.extend(pair("slow_start", &limits.slow_start));
    words.extend(pair("route", route));
    if let Field::Given(labels) = labels {
        let label = |(key, value): &(String, Option<String>)| {
            quoted(&format!("label={key}:{}", value.as_deref().unwrap_or_default()))
        };
        words.extend(labels.iter().map(label));
    }
    words.extend(matches!(backup, Field::Given(true)).then(|| "backup".to_owned()));
    if let Field::Given(admin) = admin {
        words.extend(admin.state.map(|state| state.as_str().to_owned()));
    }
    words
}

fn twice(name: &UpstreamName, change: &Change) {
    let mut world = World::default();
    let Ok(true) = world.put(name, change.clone()) else { panic!("{change:?} is refused") };
    assert_eq!(world.put(name, change.clone()), Ok(false), "{change:?}");
    let upstream = world.upstreams[name].clone();
    check(&upstream);
    // So does a list of the addresses alone.
    let bare = |server: &peerage_core::server::Server| ServerBody {
        addr: Some(server.addr.clone()),
        ..ServerBody::default()
    };
    let servers = Some(upstream.servers.iter().map(bare).collect());
    let body = UpstreamBody { servers, ..UpstreamBody::default() };
    assert_eq!(world.put(name, Change::SetServers { body, own: None }), Ok(false), "{upstream:?}");
}
