//! An import: what is accepted as a whole exports as lines that import to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::api::batch::Op;
use peerage_core::api::export;
use peerage_core::api::import::{Checker, Line, host_verb};
use peerage_core::change::Change;
use peerage_core::route::change::{RouteChange, RouteContext, apply};
use peerage_core::server::Origin;
use peerage_core_fuzz::world::{World, check, check_admin};

fuzz_target!(|bytes: &[u8]| {
    let Some(first) = imported(bytes) else { return };
    first.upstreams.values().for_each(check);
    first.hosts.iter().for_each(|(_, admin)| check_admin(admin));
    let text = exported(&first);
    let second = imported(&text).expect("an export is an import");
    assert_eq!(String::from_utf8_lossy(&exported(&second)), String::from_utf8_lossy(&text));
    for (name, upstream) in &first.upstreams {
        assert_eq!(second.upstreams[name].digest(), upstream.digest());
    }
    assert_eq!(second.upstreams.len(), first.upstreams.len());
    // One that was cut off is none.
    let cut = bytes.len() % text.len();
    assert!(cut == 0 || cut + 1 == text.len() || imported(&text[..cut]).is_none(), "{cut}");
});

fn imported(bytes: &[u8]) -> Option<World> {
    let (mut world, mut checker) = (World::default(), Checker::default());
    for text in bytes.split(|&b| b == b'\n') {
        match checker.line(text).ok()? {
            Line::Header | Line::Blank | Line::End { .. } => {}
            Line::Upstream { name, body } => {
                world.put(&name, Change::PutUpstream { body }).ok()?;
            }
            Line::Host { ip, admin } => {
                let Some(verb) = host_verb(ip, &admin, world.now) else { continue };
                world.apply(&Op::Host(verb)).ok()?;
            }
            // They are not in the world: that one can be made of it is all that is asked.
            Line::Route { key, body } => {
                let context =
                    RouteContext { now: world.now, origin: Origin::Api, knows: &|_| false };
                let change = RouteChange::Put { body, force: true };
                apply(None, &key, &change, &context).ok()?;
            }
        }
    }
    checker.end().ok()?;
    assert_eq!(checker.names().len(), world.upstreams.len());
    Some(world)
}

fn exported(world: &World) -> Vec<u8> {
    let mut out = Vec::new();
    export::header(&mut out, "main", 812);
    world.hosts.iter().for_each(|(ip, admin)| export::host(&mut out, ip, admin));
    world.upstreams.values().for_each(|upstream| export::upstream(&mut out, upstream));
    let servers: usize = world.upstreams.values().map(|upstream| upstream.servers.len()).sum();
    export::end(&mut out, world.upstreams.len() as u64, servers as u64, 0);
    out
}
