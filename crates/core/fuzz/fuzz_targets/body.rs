//! Bodies: what they make of a zone keeps its rules, and its listing, its line of an export, its
//! journal, and its record say the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::api::batch::{Batch, Op, batch};
use peerage_core::api::route::{Call, WriteMode};
use peerage_core::api::{export, import, model};
use peerage_core::change::Change;
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::journal::{self, Head};
use peerage_core::json;
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::replica::Replica;
use peerage_core::upstream::{Settings, Upstream};
use peerage_core_fuzz::call;
use peerage_core_fuzz::world::{World, check, check_admin, listing};

// Pairs of lines: a request line and its body, or `CONF name` and the servers of its block.
fuzz_target!(|bytes: &[u8]| {
    let mut world = World::default();
    let lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
    for pair in lines.chunks(2).take(8) {
        let Ok(request) = std::str::from_utf8(pair[0]) else { continue };
        let body = pair.get(1).copied().unwrap_or_default();
        let ops = match (request.strip_prefix("CONF "), call::routed(request)) {
            (Some(name), _) => block(name, body),
            (None, routed) => routed.ok().and_then(|routed| read(routed.call, body)),
        };
        for op in ops.unwrap_or_default() {
            let before = world.upstreams.clone();
            if !world.apply(&op).unwrap_or(false) {
                assert_eq!(world.upstreams, before);
            }
            let Op::Upstream { name, .. } = &op else { continue };
            replays(before.get(name), world.upstreams.get(name));
        }
        world.hosts.iter().for_each(|(_, admin)| check_admin(admin));
        world.pass(1500);
    }
    for upstream in world.upstreams.clone().values() {
        check(upstream);
        // A listing shows whole seconds: in its last one a state looks over.
        if upstream.next_expiry().is_some_and(|at| at / 1000 <= world.now / 1000) {
            continue;
        }
        again(&mut world, upstream);
    }
});

fn read(call: Call, body: &[u8]) -> Option<Vec<Op>> {
    let mode = WriteMode::On;
    match call {
        Call::Batch => batch(body, mode).ok().map(|Batch { ops, .. }| ops),
        Call::HostVerb(verb) => model::host_verb(verb, body).ok().map(|verb| vec![Op::Host(verb)]),
        call => {
            let name = call.upstream()?.clone();
            let change = model::change(call, body, mode).ok()??;
            Some(vec![Op::Upstream { name, change }])
        }
    }
}

/// A load of a configuration: server lines with commas between, or none for no block.
fn block(name: &str, lines: &[u8]) -> Option<Vec<Op>> {
    let name = UpstreamName::parse(name).ok()?;
    let read = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        DeclaredServer::parse(words[0], &words[1..]).ok()
    };
    let lines = std::str::from_utf8(lines).ok()?;
    let servers = lines.split(',').map(read).collect::<Option<Vec<DeclaredServer>>>();
    let settings = Settings::default();
    let declared =
        servers.map(|servers| DeclaredUpstream { name: name.clone(), settings, servers });
    let change = Change::Declare(declared.filter(|block| block.duplicate().is_none()));
    Some(vec![Op::Upstream { name, change }])
}

fn replays(before: Option<&Upstream>, after: Option<&Upstream>) {
    let mut out = Vec::new();
    Head::new("main", 1, 1, 1, 0, 0).write(&mut out);
    journal::record(&mut out, 1, 1, &journal::changes(&[(None, before)], None));
    journal::record(&mut out, 2, 1, &journal::changes(&[(before, after)], None));
    let mut replica = Replica::default();
    assert_eq!(replica.replay_all(1, &out).damage, None);
    let mut loaded = replica.into_loaded().upstreams.into_iter().map(|(upstream, _)| upstream);
    assert_eq!((loaded.next().as_ref(), loaded.next()), (after, None));
}

/// What is said of an upstream says it again: there it changes nothing, elsewhere it is equal.
fn again(world: &mut World, upstream: &Upstream) {
    let (name, said) = (&upstream.name, listing(upstream));
    let value = json::parse(&said).unwrap();
    let body = model::upstream_body(&value, model::Form::Put).unwrap();
    let mut line = Vec::new();
    export::upstream(&mut line, upstream);
    let Ok(import::Line::Upstream { name: exported, body: line }) = import::line(&line) else {
        panic!("an export that is no import: {}", String::from_utf8_lossy(&line));
    };
    assert_eq!(exported, *name);
    let names = upstream.servers.iter().any(|server| server.addr.is_name());
    for body in [body, line] {
        let change = Change::PutUpstream { body };
        let mut fresh = World::at(world.now);
        // An orphan that is stated becomes whose it is.
        let orphan = world.upstreams[name].orphaned_at.is_some();
        assert_eq!(world.put(name, change.clone()), Ok(orphan), "{upstream:?}");
        if names {
            continue;
        }
        assert_eq!(fresh.put(name, change), Ok(true));
        assert_eq!(fresh.upstreams[name].digest(), upstream.digest(), "{upstream:?}");
    }
    for server in &upstream.servers {
        assert_eq!(record::decode_server(&record::encode_server(server)).as_ref(), Ok(server));
    }
}
