//! Names that are resolved at run time: their peers, and who looks for them.

mod support;

use std::collections::BTreeSet;
use std::net::IpAddr;

use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_zone::{Attempt, BatchAttempt, Checks, NoPeer, Op};
use support::{World, sel, server, upstream};

/// Gives a name its addresses; whether that changed something.
fn resolve(world: &World, name: &str, host: &str, ips: &[&str]) -> bool {
    let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
    match world.worker.resolve(&upstream(name), host, &ips, &world.clock) {
        Attempt::Done { changed, .. } => changed,
        other => panic!("{other:?}"),
    }
}

/// Peers that some requests go to.
fn peers(world: &World, name: &str) -> BTreeSet<String> {
    (0..60).map(|_| one(world, name)).collect()
}

fn one(world: &World, name: &str) -> String {
    let (address, choice) = world.pick(name).expect("a peer is open");
    world.done(choice, false);
    address
}

fn set(addresses: &[&str]) -> BTreeSet<String> {
    addresses.iter().map(ToString::to_string).collect()
}

fn requests(world: &World, name: &str) -> u64 {
    world.worker.read(&upstream(name), &world.clock).expect("it is there").live[0].counters.requests
}

#[test]
fn a_name_has_the_peers_of_its_last_answer() {
    let world = World::new(1 << 20);
    world.put("app", &[server("app.test:80", 1)]);
    assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable));
    assert!(resolve(&world, "app", "app.test", &["10.0.0.2", "10.0.0.1"]));
    assert_eq!(peers(&world, "app"), set(&["10.0.0.1:80", "10.0.0.2:80"]));
    assert_eq!(requests(&world, "app"), 60);
    assert!(!resolve(&world, "app", "app.test", &["10.0.0.1", "10.0.0.2"]));
    // Who stays has its counts.
    assert!(resolve(&world, "app", "app.test", &["10.0.0.3", "10.0.0.2"]));
    assert_eq!(requests(&world, "app"), 30);
    assert_eq!(peers(&world, "app"), set(&["10.0.0.2:80", "10.0.0.3:80"]));
    assert!(resolve(&world, "app", "app.test", &["2001:db8::1"]));
    assert_eq!(peers(&world, "app"), set(&["[2001:db8::1]:80"]));
    // Beside others, in its own place and with its own weight.
    world.put("app", &[server("10.0.0.9:80", 1), server("app.test:80", 2)]);
    resolve(&world, "app", "app.test", &["10.0.0.1", "10.0.0.2"]);
    let of_literal = (0..50).filter(|_| one(&world, "app") == "10.0.0.9:80").count();
    assert_eq!(of_literal, 10);
}

#[test]
fn whoever_looks_for_names_finds_them_and_is_told_when_others_come() {
    let world = World::new(1 << 20);
    let names = world.zone.names();
    world.put("plain", &[server("10.0.0.1:80", 1)]);
    assert_eq!(names.generation().now(), 0);
    let mut last = 0;
    let mut moved = |is: bool| {
        let now = names.generation().now();
        assert_eq!((now % 2, now != last), (0, is));
        last = now;
    };
    world.put("app", &[server("a.test:80", 1), server("b.test:80", 1), server("a.test:81", 1)]);
    moved(true);
    resolve(&world, "app", "a.test", &["10.0.0.1"]);
    world.admin("app", "a.test:80", AdminState::Down);
    world.put("plain", &[server("10.0.0.2:80", 1)]);
    moved(false);
    let found: Vec<_> = (0..).map_while(|i| world.worker.named(i)).flatten().collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].upstream, upstream("app"));
    assert_eq!(found[0].hosts, [("a.test".into(), false), ("b.test".into(), true)]);
    // Removed and set again: it has no address.
    world.ok("app", &Change::DeleteServer { sel: sel("a.test:80") });
    moved(true);
    world.ok("app", &Change::PutServer { sel: sel("a.test:80"), body: server("a.test:80", 1) });
    moved(true);
    // The same at once.
    let both = [
        Change::DeleteServer { sel: sel("a.test:80") },
        Change::PutServer { sel: sel("a.test:80"), body: server("a.test:80", 1) },
    ];
    let both = both.map(|change| Op::Upstream { name: upstream("app"), change });
    assert!(matches!(world.batch(&both, &Checks::NONE), BatchAttempt::Done(_)));
    moved(true);
    world.ok("app", &Change::DeleteUpstream { force: false });
    moved(true);
    assert!((0..).map_while(|i| world.worker.named(i)).all(|some| some.is_empty()));
}

#[test]
fn one_process_has_the_duty() {
    let names = World::new(1 << 20).zone.names();
    assert!(names.lease().take(0, 7) && !names.lease().take(0, 8));
    names.lease().renew(1_000);
    assert_eq!((names.lease().owner(), names.lease().until()), (7, 1_000));
    assert!(names.lease().take(7, 8) && !names.lease().take(7, 0));
}

/// One that was stopped after it had looked whether the duty is still its own.
#[test]
fn an_answer_of_one_that_lost_the_duty_is_not_applied() {
    let world = World::new(1 << 20);
    let names = world.zone.names();
    world.put("app", &[server("app.test:80", 1)]);
    assert!(names.lease().take(0, world.worker.pid()));
    assert!(resolve(&world, "app", "app.test", &["10.0.0.1"]));
    let other = World::of(world.zone, 2);
    assert!(names.lease().take(world.worker.pid(), 2));
    assert!(resolve(&other, "app", "app.test", &["10.0.0.2"]));
    let ips = ["10.0.0.1".parse().expect("an address")];
    let late = world.worker.resolve(&upstream("app"), "app.test", &ips, &world.clock);
    assert!(matches!(late, Attempt::Busy), "{late:?}");
    assert_eq!(peers(&world, "app"), set(&["10.0.0.2:80"]));
}

#[test]
fn a_drain_waits_for_the_addresses_that_a_name_had_and_for_no_other_server() {
    let world = World::new(1 << 20);
    world.put("app", &[server("app.test:80", 1)]);
    resolve(&world, "app", "app.test", &["10.0.0.1"]);
    let (_, former) = world.pick("app").expect("a peer is open");
    resolve(&world, "app", "app.test", &["10.0.0.2"]);
    let (_, of_name) = world.pick("app").expect("a peer is open");
    // The same address by its own name, and by another one.
    let all = [server("app.test:80", 1), server("10.0.0.2:80", 1), server("b.test:80", 1)];
    world.put("app", &all);
    resolve(&world, "app", "b.test", &["10.0.0.2"]);
    let (_, _, mark) = world.admin("app", "app.test:80", AdminState::Down);
    let others: Vec<_> = (0..4).map(|_| world.pick("app").expect("a peer is open")).collect();
    assert!(others.iter().all(|(address, _)| address == "10.0.0.2:80"));
    // What comes and goes meanwhile.
    resolve(&world, "app", "app.test", &["10.0.0.3"]);
    assert_eq!(world.worker.drain(&mark).active, 1);
    world.done(of_name, false);
    let drain = world.worker.drain(&mark);
    assert_eq!((drain.drained, drain.active), (false, 1));
    world.done(former, false);
    assert!(world.worker.drain(&mark).drained);
}

#[test]
fn a_host_closes_its_addresses_alone() {
    let world = World::new(1 << 20);
    let (one, two) = ("10.0.0.1", "10.0.0.2");
    world.put("app", &[server("app.test:80", 1)]);
    resolve(&world, "app", "app.test", &[one, two]);
    let held: Vec<_> = (0..2).map(|_| world.pick("app").expect("a peer is open")).collect();
    let mark = world.host(one.parse().expect("an address"), AdminState::Down);
    assert_eq!(peers(&world, "app"), set(&["10.0.0.2:80"]));
    assert_eq!(world.worker.drain(&mark).active, 1, "the other address is no matter");
    let seen = world.worker.read(&upstream("app"), &world.clock).expect("it is there");
    assert_eq!(seen.hosts, [None]);
    resolve(&world, "app", "app.test", &[one]);
    assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable));
    let seen = world.worker.read(&upstream("app"), &world.clock).expect("it is there");
    assert!(seen.hosts[0].is_some());
    world.host(one.parse().expect("an address"), AdminState::Up);
    assert_eq!(peers(&world, "app"), set(&["10.0.0.1:80"]));
    for (_, choice) in held {
        world.done(choice, false);
    }
}
