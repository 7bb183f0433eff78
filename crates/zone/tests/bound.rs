//! Sessions that are bound to a server.

mod support;

use std::collections::HashSet;

use peerage_core::body::{Field, LimitsBody, ServerBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::host::HostVerb;
use peerage_core::server::AdminState;
use peerage_core::sid::Sid;
use peerage_zone::{BatchAttempt, Checks, Choice, Closing, How, Op, Target};
use support::{World, sel, server, text};

const A: &str = "10.0.0.1:81";
const B: &str = "10.0.0.2:82";
const C: &str = "10.0.0.3:83";

fn routed(addr: &str, route: &str) -> ServerBody {
    ServerBody { route: Field::Given(route.into()), ..server(addr, 1) }
}

/// `app` of A and B with the routes a and b, and C without one.
fn world() -> World {
    let world = World::new(1 << 20);
    world.put("app", &[routed(A, "a"), routed(B, "b"), server(C, 1)]);
    world
}

/// A try of a session with this name; the address, and how many tries are worth it.
fn pick(world: &World, choice: &mut Choice, sid: &[u8]) -> Option<(String, u32)> {
    let picked = world.worker.pick_bound(choice, &Target::Name(b"app"), &world.clock, sid)?;
    Some((text(&picked.address), picked.tries))
}

/// A whole request of a session.
fn bound(world: &World, sid: &str) -> Option<String> {
    let mut choice = Choice::new();
    let (address, _) = pick(world, &mut choice, sid.as_bytes())?;
    world.done(choice, false);
    Some(address)
}

/// The servers' names for sessions that begin.
fn names(world: &World) -> Vec<(String, String)> {
    let name = |_| {
        let (address, choice) = world.pick("app").unwrap();
        let sid = world.worker.sid(&choice).unwrap();
        world.done(choice, false);
        (address, String::from_utf8(sid.as_bytes().to_vec()).unwrap())
    };
    let mut names: Vec<_> = (0..6).map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// The numbers of all upstreams there are.
fn every() -> HashSet<u32> {
    (0..20).collect()
}

#[test]
fn a_name_that_is_given_out_leads_back() {
    let world = world();
    let by_address = String::from_utf8(Sid::of_address(C).as_bytes().to_vec()).unwrap();
    let of = |addr: &str, name: &str| (addr.to_owned(), name.to_owned());
    assert_eq!(names(&world), [of(A, "a"), of(B, "b"), of(C, &by_address)]);
    for (address, name) in names(&world) {
        for _ in 0..3 {
            assert_eq!(bound(&world, &name), Some(address.clone()));
        }
    }
    for nobody in ["", "c", "aa", &"f".repeat(32), &"a".repeat(100)] {
        assert_eq!(bound(&world, nobody), None, "{nobody}");
    }
    let unknown = Target::Name(b"none");
    let mut choice = Choice::new();
    assert!(world.worker.pick_bound(&mut choice, &unknown, &world.clock, b"a").is_none());
}

#[test]
fn who_drains_or_weighs_nothing_keeps_sessions_and_who_is_down_or_gone_does_not() {
    let world = world();
    let at_a = || bound(&world, "a").is_some();
    world.admin("app", A, AdminState::Drain);
    assert!(at_a() && !world.hits("app", 6).contains('1'));
    world.admin("app", A, AdminState::Down);
    assert!(!at_a());
    world.admin("app", A, AdminState::Up);
    let limits = LimitsBody { weight: Field::Given(0), ..LimitsBody::default() };
    let body = ServerBody { limits, ..ServerBody::default() };
    world.ok("app", &Change::PatchServer { sel: sel(A), body });
    assert!(at_a() && !world.hits("app", 6).contains('1'));

    let host = [10, 0, 0, 1].into();
    world.host(host, AdminState::Drain);
    assert!(at_a());
    world.host(host, AdminState::Down);
    assert!(!at_a());
    // The server's own word does not lift its host's.
    world.admin("app", A, AdminState::Drain);
    assert!(!at_a());
    world.host(host, AdminState::Up);
    assert!(at_a());
    world.ok("app", &Change::DeleteServer { sel: sel(A) });
    assert!(!at_a());
}

#[test]
fn who_drains_keeps_sessions_until_its_connections_are_closed() {
    let mut world = world();
    let host = [10, 0, 0, 1].into();
    let opts = VerbOpts { close: Some(2_000), ..VerbOpts::default() };
    let drain = Change::Admin { sel: sel(A), verb: AdminState::Drain, opts: opts.clone() };
    world.ok("app", &drain);
    // A process that has begun since, and was told nothing.
    let mut closing = Closing::new(&world.worker);
    assert!(!closing.look(&world.worker, world.clock.msec, &every).has_idle());
    let mut choice = Choice::new();
    assert!(pick(&world, &mut choice, b"a").is_some());
    let due = closing.look(&world.worker, world.clock.msec, &every);
    assert!(!due.has_idle() && !due.has_requests());
    assert!(bound(&world, "a").is_some());
    world.tick(2);
    assert_eq!(bound(&world, "a"), None, "it would be cut off");
    let due = closing.look(&world.worker, world.clock.msec, &every);
    assert_eq!(due.wants(&choice), Some(How::Shut));
    world.done(choice, false);
    assert!(closing.look(&world.worker, world.clock.msec, &every).has_idle());
    world.admin("app", A, AdminState::Drain);
    assert!(bound(&world, "a").is_some());
    // The host's time is one as well.
    let verb = HostVerb { ip: host, verb: AdminState::Drain, opts, missing_ok: false };
    assert!(matches!(world.batch(&[Op::Host(verb)], &Checks::NONE), BatchAttempt::Done(_)));
    assert!(bound(&world, "a").is_some());
    world.tick(2);
    assert_eq!(bound(&world, "a"), None);
    assert!(bound(&world, "b").is_some());
}

#[test]
fn a_session_follows_its_route_to_another_server() {
    let world = world();
    assert_eq!(bound(&world, "a").as_deref(), Some(A));
    for (addr, route) in [(A, "x"), (C, "a")] {
        let body = ServerBody { route: Field::Given(route.into()), ..ServerBody::default() };
        world.ok("app", &Change::PatchServer { sel: sel(addr), body });
    }
    assert_eq!(bound(&world, "a").as_deref(), Some(C));
    assert_eq!(bound(&world, "x").as_deref(), Some(A));
    let old = String::from_utf8(Sid::of_address(C).as_bytes().to_vec()).unwrap();
    assert_eq!(bound(&world, &old), None);
}

#[test]
fn a_route_of_several_servers_leads_to_the_first_that_can() {
    let world = World::new(1 << 20);
    world.put("app", &[routed(A, "same"), routed(B, "same"), server(C, 1)]);
    assert_eq!(bound(&world, "same").as_deref(), Some(A));
    world.admin("app", A, AdminState::Down);
    assert_eq!(bound(&world, "same").as_deref(), Some(B));
    world.admin("app", B, AdminState::Down);
    assert_eq!(bound(&world, "same"), None);
}

#[test]
fn limits_and_failures_hold_for_sessions_and_a_tried_server_is_not_tried_again() {
    let mut world = world();
    let limits = LimitsBody { max_conns: Field::Given(1), ..LimitsBody::default() };
    let body = ServerBody { limits, ..ServerBody::default() };
    world.ok("app", &Change::PatchServer { sel: sel(A), body });
    let mut held = Choice::new();
    assert!(pick(&world, &mut held, b"a").is_some());
    assert_eq!(bound(&world, "a"), None, "the server is full");
    world.done(held, false);

    let mut choice = Choice::new();
    assert_eq!(pick(&world, &mut choice, b"a"), Some((A.into(), 3)));
    let fail = |choice: &mut Choice| {
        let outcome = peerage_zone::Outcome { failed: true, ..Default::default() };
        world.worker.done(choice, &outcome, || world.clock);
    };
    fail(&mut choice);
    assert_eq!(pick(&world, &mut choice, b"a"), None, "it was tried");
    assert_eq!(pick(&world, &mut choice, b"b"), Some((B.into(), 3)));
    fail(&mut choice);
    assert_eq!(pick(&world, &mut choice, b"b"), None);
    let picked = world.worker.pick(&mut choice, &Target::Name(b"app"), &world.clock).unwrap();
    assert_eq!(text(&picked.address), C, "neither of those that sessions chose");
    world.done(choice, false);

    assert_eq!(bound(&world, "a"), None, "it is barred");
    world.tick(11);
    assert_eq!(bound(&world, "a").as_deref(), Some(A));
}

#[test]
fn a_draining_servers_session_may_try_all_others_besides() {
    let world = world();
    world.admin("app", A, AdminState::Drain);
    let mut choice = Choice::new();
    assert_eq!(pick(&world, &mut choice, b"a"), Some((A.into(), 3)));
    world.done(choice, false);
    // The last one may be tried again after a kept connection turned out closed.
    world.admin("app", B, AdminState::Down);
    world.admin("app", C, AdminState::Down);
    let mut choice = Choice::new();
    for _ in 0..2 {
        assert_eq!(pick(&world, &mut choice, b"a"), Some((A.into(), 1)));
        world.worker.done(&mut choice, &peerage_zone::Outcome::default(), || world.clock);
    }
}

#[test]
fn backups_get_their_sessions_while_no_primary_can_serve() {
    let world = World::new(1 << 20);
    let backup = ServerBody { backup: Field::Given(true), ..routed(C, "c") };
    world.put("app", &[routed(A, "a"), routed(B, "b"), backup]);
    assert_eq!(bound(&world, "c"), None);
    world.admin("app", A, AdminState::Down);
    world.admin("app", B, AdminState::Drain);
    assert_eq!(bound(&world, "c").as_deref(), Some(C));
    assert_eq!(bound(&world, "b").as_deref(), Some(B), "who drains keeps its own");
}

#[test]
fn a_drain_waits_for_sessions_requests_too() {
    let world = world();
    let mut choice = Choice::new();
    pick(&world, &mut choice, b"a").unwrap();
    let (_, _, mark) = world.admin("app", A, AdminState::Down);
    assert_eq!(world.worker.drain(&mark).active, 1);
    world.done(choice, false);
    assert!(world.worker.drain(&mark).drained);
}
