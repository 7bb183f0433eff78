//! Requests of clients of NGINX Plus: nothing is too strange, what is accepted keeps a zone's rules,
//! saying it again changes nothing, and every answer is JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::api::batch::Op;
use peerage_core::api::route::{Http, WriteMode};
use peerage_core::name::UpstreamName;
use peerage_core::plus::body::Body;
use peerage_core::plus::change::Write;
use peerage_core::plus::error::Fault;
use peerage_core::plus::object;
use peerage_core::plus::route::{Call, is_here, route};
use peerage_core_fuzz::world::{World, check};

// Pairs of lines: `METHOD path?query` and a body.
fuzz_target!(|bytes: &[u8]| {
    let mut world = World::default();
    let name = UpstreamName::parse("app").unwrap();
    let lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
    for pair in lines.chunks(2).take(8) {
        let (method, target) = halves(pair[0], b' ');
        let (path, query) = halves(target, b'?');
        let Ok(routed) =
            route(Http::parse(method), path, query, WriteMode::On).map_err(|fault| is_json(&fault))
        else {
            continue;
        };
        assert!(is_here(path), "{:?}", String::from_utf8_lossy(path));
        let body = pair.get(1).copied().unwrap_or_default();
        let write = match routed.call {
            Call::Add(_) => Body::read(body).map(Write::Add),
            Call::Patch(_, id) => Body::read(body).map(|body| Write::Patch(id, body)),
            Call::Remove(_, id) => Ok(Write::Remove(id)),
            _ => continue,
        };
        if let Err(fault) = write.and_then(|write| put(&mut world, &name, &write)) {
            is_json(&fault);
        }
    }
});

fn put(world: &mut World, name: &UpstreamName, write: &Write) -> Result<(), Fault> {
    let empty = br#"{"servers":[]}"#;
    if !world.upstreams.contains_key(name) {
        let value = peerage_core::json::parse(empty).unwrap();
        let form = peerage_core::api::model::Form::Put;
        let body = peerage_core::api::model::upstream_body(&value, form).unwrap();
        let change = peerage_core::change::Change::PutUpstream { body };
        assert_eq!(world.put(name, change), Ok(true));
    }
    for change in write.changes(&world.upstreams[name])? {
        world.apply(&Op::Upstream { name: name.clone(), change })?;
    }
    let now = world.upstreams[name].clone();
    check(&now);
    if let Write::Patch(..) = write {
        for change in write.changes(&now).expect("what was accepted is accepted again") {
            let op = Op::Upstream { name: name.clone(), change };
            assert_eq!(world.apply(&op), Ok(false), "{write:?}");
        }
    }
    let mut list = b"[".to_vec();
    assert_eq!(object::servers(&mut list, &now, 0, usize::MAX), now.servers.len());
    list.push(b']');
    let list: serde_json::Value = serde_json::from_slice(&list).expect("a list");
    assert_eq!(list.as_array().map(Vec::len), Some(now.servers.len()));
    Ok(())
}

fn is_json(fault: &Fault) {
    let body: serde_json::Value = serde_json::from_slice(&fault.to_bytes("ab")).expect("JSON");
    assert_eq!(body["error"]["status"], fault.status());
}

fn halves(bytes: &[u8], by: u8) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|&b| b == by).unwrap_or(bytes.len());
    (&bytes[..at], bytes.get(at + 1..).unwrap_or_default())
}
