//! What a process closes of servers that were taken out, look by look.

mod support;

use std::collections::HashSet;

use std::net::SocketAddr;

use peerage_core::body::VerbOpts;
use peerage_core::change::Change;
use peerage_core::server::AdminState::{self, Down, Drain, Up};
use peerage_zone::{Closing, Due, How};
use support::{World, sel, server, upstream};

const A: &str = "10.0.0.1:81";
const B: &str = "10.0.0.1:82";

/// The address as the kernel gives it, or, with the number of an upstream, as nginx keeps it.
fn address(text: &str, upstream: u32) -> Vec<u8> {
    let addr: SocketAddr = text.parse().unwrap();
    let mark = upstream.to_ne_bytes();
    match addr {
        SocketAddr::V4(addr) => {
            let port = addr.port().to_be_bytes();
            [&2_u16.to_ne_bytes()[..], &port, &addr.ip().octets(), &mark, &[0; 4]].concat()
        }
        SocketAddr::V6(addr) => {
            let port = addr.port().to_be_bytes();
            [&10_u16.to_ne_bytes()[..], &port, &mark, &addr.ip().octets(), &[0; 4]].concat()
        }
    }
}

/// An item of a cache: pointers, then the address.
fn item(address: &[u8]) -> Vec<u8> {
    let mut item = vec![0x55; 36];
    item.extend(address);
    item.resize(160, 0);
    item
}

/// Of which upstreams, by number, idle connections to an address are closed.
fn closed(due: &Due, text: &str) -> Vec<u32> {
    let of = |n: &u32| due.covers(&address(text, 0), &item(&address(text, *n)));
    (0..20).filter(of).collect()
}

fn take_out(world: &World, addr: &str, verb: AdminState, close: Option<u64>) {
    let opts = VerbOpts { close, ..VerbOpts::default() };
    world.ok("app", &Change::Admin { sel: sel(addr), verb, opts });
}

fn app() -> (World, Closing) {
    let world = World::new(1 << 20);
    world.put("app", &[server(A, 1), server(B, 1)]);
    let closing = Closing::new(&world.worker);
    (world, closing)
}

/// The numbers of all upstreams there are.
fn every() -> HashSet<u32> {
    (0..20).collect()
}

#[test]
fn idle_connections_are_closed_once_and_for_their_own_upstream_and_address() {
    let (world, mut closing) = app();
    let mut look = |world: &World| closing.look(&world.worker, world.clock.msec, &every);
    assert!(!look(&world).has_idle());
    world.admin("app", A, Down);
    let due = look(&world);
    let own = closed(&due, A);
    assert_eq!((own.len(), closed(&due, B)), (1, vec![]));
    assert!(due.has_idle() && !due.has_requests());
    // Where nothing is known of the number, the address decides.
    assert!(due.covers(&address(A, 0), &[]) && due.covers(&address(A, 0), &[7; 160]));
    assert!(!due.covers(&address(B, 0), &[]) && !due.covers(b"", &[]));
    assert!(due.may_cover(&address(A, 0)) && !due.may_cover(&address(B, 0)));
    assert!(!look(&world).has_idle());
    for verb in [Up, Down, Drain] {
        world.admin("app", A, verb);
        let due = look(&world);
        assert_eq!(due.has_idle(), verb != Up, "{verb:?}");
    }
    world.put("app", &[server(B, 1)]);
    assert_eq!(closed(&look(&world), A), own);
    world.put("other", &[server(B, 1)]);
    world.host("10.0.0.1".parse().unwrap(), Down);
    let due = look(&world);
    assert_eq!((closed(&due, B).len(), closed(&due, A)), (2, vec![]));
    world.host("10.0.0.1".parse().unwrap(), Up);
    assert!(!look(&world).has_idle());
    world.ok("app", &Change::DeleteUpstream { force: true });
    assert_eq!(closed(&look(&world), B), own);
}

#[test]
fn every_family_is_known_again() {
    let world = World::new(1 << 20);
    let six = "[2001:db8::1]:81";
    let path = "unix:/run/a.sock";
    world.put("app", &[server(six, 1), server(path, 1)]);
    let mut closing = Closing::new(&world.worker);
    for addr in [six, path] {
        world.admin("app", addr, Down);
    }
    let due = closing.look(&world.worker, 0, &every);
    assert_eq!(closed(&due, six).len(), 1);
    let unix = |path: &str, upstream: u32| {
        let mut bytes = 1_u16.to_ne_bytes().to_vec();
        bytes.extend(path.as_bytes());
        bytes.push(0);
        bytes.extend(upstream.to_ne_bytes());
        bytes.resize(110, 0);
        bytes
    };
    // The server may be bound to another path than the one that was dialled.
    for bound in ["/run/a.sock", "/srv/a.sock", "a.sock"] {
        assert!(due.may_cover(&unix(bound, 0)));
        let of = |n: &u32| due.covers(&unix(bound, 0), &item(&unix("/run/a.sock", *n)));
        assert_eq!((0..20).filter(of).count(), 1, "{bound}");
        assert!(!due.covers(&unix(bound, 0), &item(&unix("/run/b.sock", 1))));
    }
    assert!(due.covers(&unix("/run/a.sock", 0), &[]) && !due.covers(&unix("/run/b.sock", 0), &[]));
}

#[test]
fn a_drain_waits_for_the_last_request_and_down_looks_again_after_each() {
    let (world, mut closing) = app();
    let mut look = |world: &World| closing.look(&world.worker, world.clock.msec, &every);
    let on = |addr: &str| {
        let picked = (0..10).map(|_| world.pick("app").unwrap());
        let mut found = None;
        for (text, choice) in picked {
            if text == addr && found.is_none() {
                found = Some(choice);
            } else {
                world.done(choice, false);
            }
        }
        found.unwrap()
    };
    let held = [on(A), on(A)];
    world.admin("app", A, Drain);
    assert!(!look(&world).has_idle());
    let [first, second] = held;
    world.done(first, false);
    assert!(!look(&world).has_idle());
    world.done(second, false);
    assert_eq!(closed(&look(&world), A).len(), 1);
    assert!(!look(&world).has_idle());

    world.admin("app", A, Up);
    let held = [on(A), on(A)];
    world.admin("app", A, Down);
    assert!(look(&world).has_idle());
    assert!(!look(&world).has_idle(), "nothing has ended since");
    for choice in held {
        world.done(choice, false);
        assert_eq!(closed(&look(&world), A).len(), 1);
        assert!(!look(&world).has_idle());
    }

    // One that comes up again is none of our business any more.
    world.admin("app", A, Up);
    let held = on(A);
    world.admin("app", A, Down);
    world.admin("app", A, Up);
    assert!(!look(&world).has_idle());
    world.done(held, false);
    assert!(!look(&world).has_idle());
}

#[test]
fn requests_end_at_their_time_and_those_of_others_do_not() {
    let (mut world, mut closing) = app();
    let held: Vec<_> = (0..2).map(|_| world.pick("app").unwrap()).collect();
    assert_ne!(held[0].0, held[1].0);
    let (on_a, on_b) = if held[0].0 == A { (0, 1) } else { (1, 0) };
    take_out(&world, A, Down, Some(2_000));
    let due = closing.look(&world.worker, world.clock.msec, &every);
    assert!(!due.has_requests());
    world.tick(2);
    let mut wants = |world: &World| {
        let due = closing.look(&world.worker, world.clock.msec, &every);
        [on_a, on_b].map(|i: usize| due.wants(&held[i].1))
    };
    assert_eq!(wants(&world), [Some(How::Shut), None]);
    assert_eq!(wants(&world), [Some(How::Shut), None]);
    world.tick(1);
    assert_eq!(wants(&world), [Some(How::Expire), None]);
    // Removed, it is still to be closed.
    world.ok("app", &Change::DeleteServer { sel: sel(A) });
    assert_eq!(wants(&world), [Some(How::Shut), None]);
    take_out(&world, B, Drain, Some(0));
    assert_eq!(wants(&world)[1], Some(How::Shut));
    // Without a time, nothing is closed any more.
    take_out(&world, B, Drain, None);
    assert_eq!(wants(&world)[1], None);
}

/// A wait for the drain ends with them.
#[test]
fn the_time_reaches_what_a_server_had_before() {
    for lapped in [false, true] {
        let mut world = World::new(1 << 20);
        let mut closing = Closing::new(&world.worker);
        world.put("app", &[server("app.test:80", 1)]);
        world.put("other", &[server(A, 1), server(B, 1)]);
        let resolve = |world: &World, ip: &str| {
            let ips = [ip.parse().unwrap()];
            world.worker.resolve(&upstream("app"), "app.test", &ips, &world.clock);
        };
        // An address that the name had, and a server that was removed and is there again.
        resolve(&world, "10.0.0.1");
        let (_, of_name) = world.pick("app").unwrap();
        resolve(&world, "10.0.0.2");
        let (removed, of_removed) = world.pick("other").unwrap();
        let body = server(&removed, 1);
        world.ok("other", &Change::DeleteServer { sel: sel(&removed) });
        world.ok("other", &Change::PutServer { sel: sel(&removed), body });
        closing.look(&world.worker, world.clock.msec, &every);
        let opts = VerbOpts { close: Some(1_000), ..VerbOpts::default() };
        for (upstream, addr) in [("app", "app.test:80"), ("other", &*removed)] {
            let opts = opts.clone();
            world.ok(upstream, &Change::Admin { sel: sel(addr), verb: Down, opts });
        }
        let kept = if removed == A { B } else { A };
        for _ in 0..if lapped { 2_000 } else { 0 } {
            world.admin("other", kept, Down);
            world.admin("other", kept, Up);
        }
        assert!(!closing.look(&world.worker, world.clock.msec, &every).has_requests());
        world.tick(1);
        let due = closing.look(&world.worker, world.clock.msec, &every);
        let wants = |due: &Due| [&of_name, &of_removed].map(|choice| due.wants(choice));
        assert_eq!(wants(&due), [Some(How::Shut); 2], "{lapped}");
        // Without a time, nothing is closed any more.
        world.admin("app", "app.test:80", Down);
        let due = closing.look(&world.worker, world.clock.msec, &every);
        assert_eq!(wants(&due), [None, Some(How::Shut)], "{lapped}");
    }
}

/// More than the ring holds, or a writer that died before it told.
#[test]
fn who_missed_something_closes_what_is_not_open() {
    let (mut world, mut closing) = app();
    world.put("other", &[server(A, 1), server("10.0.0.1:83", 1)]);
    let (text, choice) = world.pick("app").unwrap();
    let kept = if text == A { B } else { A };
    take_out(&world, &text, Down, Some(1_000));
    let (removed, held) = world.pick("other").unwrap();
    world.ok("other", &Change::DeleteServer { sel: sel(&removed) });
    for _ in 0..2_000 {
        world.admin("app", kept, Down);
        world.admin("app", kept, Up);
    }
    let due = closing.look(&world.worker, world.clock.msec, &every);
    let all: Vec<u32> = (1..20).collect();
    for addr in [A, B, "10.0.0.1:83", "10.0.0.1:99"] {
        let open = all.len() - closed(&due, addr).len();
        let upstreams = usize::from(addr == kept)
            + usize::from([A, "10.0.0.1:83"].contains(&addr) && addr != removed);
        assert_eq!(open, upstreams, "{addr}");
    }
    // What is not ours, or not known to be.
    assert!(!closed(&due, &text).contains(&0) && !due.covers(&address(&text, 0), &[7; 160]));
    assert!(due.covers(&address(&text, 0), &[]));
    // What is in flight is not forgotten, nor its time.
    world.done(held, false);
    assert!(closing.look(&world.worker, world.clock.msec, &every).has_idle());
    world.tick(1);
    let due = closing.look(&world.worker, world.clock.msec, &every);
    assert_eq!(due.wants(&choice), Some(How::Shut));
    world.done(choice, false);
    assert_eq!(closed(&closing.look(&world.worker, world.clock.msec, &every), &text).len(), 1);
    assert!(!closing.look(&world.worker, world.clock.msec, &every).has_idle());
}
