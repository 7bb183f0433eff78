//! Peers one by one, and their counters set to zero while others count.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use peerage_core::addr::ServerAddr;
use peerage_core::body::{Field, ServerBody};
use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_core::state::Facts;
use peerage_zone::{PeerCursor, SeenPeer};
use support::{World, server, upstream};

fn peers(world: &World, name: &str) -> Vec<SeenPeer> {
    let (name, mut cursor) = (upstream(name), PeerCursor::default());
    let page = world.worker.peers(&name, &mut cursor, 1000, &world.clock);
    let page = page.expect("it is there");
    assert!(!page.more);
    page.peers
}

/// The ports of the next peers, and whether there are more.
fn page(world: &World, cursor: &mut PeerCursor, most: usize) -> (Vec<u16>, bool) {
    let page =
        world.worker.peers(&upstream("app"), cursor, most, &world.clock).expect("it is there");
    let port = |peer: &SeenPeer| match &peer.server.addr {
        ServerAddr::Inet(addr) => addr.port(),
        other => panic!("{other}"),
    };
    (page.peers.iter().map(port).collect(), page.more)
}

#[test]
fn a_listing_goes_on_where_it_ended_whatever_changes_meanwhile() {
    let world = World::new(1 << 20);
    let at = |ports: &[u16]| -> Vec<ServerBody> {
        ports.iter().map(|port| server(&format!("10.0.0.1:{port}"), 1)).collect()
    };
    let mut servers = at(&[1, 2, 3, 4, 5]);
    servers[1].backup = Field::Given(true);
    world.put("app", &servers);
    let mut cursor = PeerCursor::default();
    assert_eq!(page(&world, &mut cursor, 2), (vec![1, 3], true));
    assert_eq!(page(&world, &mut cursor, 2), (vec![4, 5], true));
    assert_eq!(page(&world, &mut cursor, 2), (vec![2], false), "backups come last");
    let mut cursor = PeerCursor::default();
    assert_eq!(page(&world, &mut cursor, 2).0, [1, 3]);
    world.put("app", &at(&[6, 3, 4, 5]));
    let mut rest = Vec::new();
    loop {
        let (some, more) = page(&world, &mut cursor, 1);
        rest.extend(some);
        if !more {
            break;
        }
    }
    rest.sort_unstable();
    assert_eq!(rest, [4, 5, 6], "what stayed is met once, and nothing twice");
    world.ok("app", &Change::DeleteUpstream { force: true });
    assert!(world.worker.peers(&upstream("app"), &mut cursor, 1, &world.clock).is_none());
}

#[test]
fn a_name_has_a_peer_for_each_address_with_figures_of_its_own() {
    let world = World::new(1 << 20);
    world.put("app", &[server("a.test:80", 1), server("10.0.0.9:80", 1)]);
    let none = peers(&world, "app");
    assert_eq!(none.len(), 2);
    assert_eq!(none[0].address, None);
    assert_eq!(none[0].live.facts, Facts { unresolved: true, ..Facts::default() });
    let ips = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap()).to_vec();
    world.ok("app", &Change::Resolve { host: "a.test".into(), ips });
    world.host("10.0.0.2".parse().unwrap(), AdminState::Down);
    for _ in 0..4 {
        let (_, choice) = world.pick("app").unwrap();
        world.done(choice, false);
    }
    let some = peers(&world, "app");
    let shown: Vec<_> = some
        .iter()
        .map(|peer| (peer.server.id, peer.address.as_deref(), peer.live.counters.requests))
        .collect();
    let (name, plain) = (some[0].server.id, some[2].server.id);
    let wanted = [(name, Some("10.0.0.1:80"), 2), (name, Some("10.0.0.2:80"), 0), (plain, None, 2)];
    assert_eq!(shown, wanted);
    let hosts: Vec<bool> = some.iter().map(|peer| peer.host.is_some()).collect();
    assert_eq!(hosts, [false, true, false]);
    // The hosts that a listing has read are read anew once they change.
    world.host("10.0.0.9".parse().unwrap(), AdminState::Drain);
    world.host("10.0.0.2".parse().unwrap(), AdminState::Up);
    let hosts: Vec<_> = peers(&world, "app").into_iter().map(|peer| peer.host).collect();
    assert!(hosts[..2].iter().all(Option::is_none));
    assert_eq!(hosts[2].as_ref().map(|host| host.state), Some(AdminState::Drain));
    let whole = world.worker.read(&upstream("app"), &world.clock).unwrap();
    assert_eq!(whole.live[0].counters.requests, 2);
    let other = world.worker.peers(&upstream("other"), &mut PeerCursor::default(), 1, &world.clock);
    assert!(other.is_none());
}

#[test]
fn a_reset_leaves_what_is_in_flight_and_what_balancing_goes_by() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let (_, choice) = world.pick("app").unwrap();
    world.done(choice, true);
    let (_, held) = world.pick("app").unwrap();
    for _ in 0..3 {
        let (_, choice) = world.pick("app").unwrap();
        world.done(choice, false);
    }
    let revision = world.zone.revision();
    let before = peers(&world, "app");
    assert!(before[0].live.facts.failed, "the first one is barred");
    assert!(world.worker.reset(&upstream("app")));
    assert!(!world.worker.reset(&upstream("other")));
    let after = peers(&world, "app");
    for (peer, before) in after.iter().zip(&before) {
        let (now, was) = (&peer.live.counters, &before.live.counters);
        assert_eq!((now.requests, now.fails, now.unavail, now.downtime), (0, 0, 0, 0));
        assert_eq!((now.responses, now.codes.len()), ([0; 5], 0));
        assert_eq!((now.active, now.selected), (was.active, was.selected));
        assert_eq!((now.downstart, peer.live.facts), (was.downstart, before.live.facts));
    }
    assert_eq!(world.zone.revision(), revision);
    world.done(held, false);
    assert_eq!(peers(&world, "app")[1].live.counters.codes, [(200, 1)]);
}

#[test]
fn a_reset_loses_no_more_than_what_is_counted_at_that_moment() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1)]);
    let (zone, stop) = (world.zone, AtomicBool::new(false));
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let other = World::of(zone, 2);
            let mut done = 0u64;
            while !stop.load(Ordering::Relaxed) {
                other.hit("app");
                done += 1;
            }
            done
        });
        let mut seen = 0;
        for _ in 0..20_000 {
            let counters = peers(&world, "app")[0].live.counters.clone();
            seen += counters.requests;
            assert!(counters.codes.iter().all(|&(code, _)| code == 200), "{counters:?}");
            assert!(world.worker.reset(&upstream("app")));
        }
        stop.store(true, Ordering::Relaxed);
        let done = counting.join().expect("it counts");
        assert!(seen <= done, "{seen} of {done}");
        assert!(done > 1000, "{done}");
    });
    world.worker.reset(&upstream("app"));
    let counters = peers(&world, "app")[0].live.counters.clone();
    assert_eq!((counters.requests, counters.active, counters.codes.len()), (0, 0, 0));
}
