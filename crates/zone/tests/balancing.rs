//! Requests over an upstream that changes.

mod support;

use peerage_core::body::Field;
use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_zone::{NoPeer, Outcome};
use support::{World, sel, server, upstream};

#[test]
fn weights_5_3_1_give_nginx_s_order() {
    let world = World::new(1 << 20);
    world.put(
        "app",
        &[server("10.0.0.1:81", 5), server("10.0.0.1:82", 3), server("10.0.0.1:83", 1)],
    );
    assert_eq!(world.hits("app", 18), "121312121121312121");
}

#[test]
fn a_server_taken_down_gets_nothing_from_then_on_and_comes_back() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    assert_eq!(world.hits("app", 4), "1212");
    let (revision, changed, _) = world.admin("app", "10.0.0.1:81", AdminState::Down);
    assert!(changed);
    assert_eq!(world.hits("app", 3), "222");
    let (again, changed, _) = world.admin("app", "10.0.0.1:81", AdminState::Down);
    assert_eq!((again, changed), (revision, false));
    world.admin("app", "10.0.0.1:81", AdminState::Up);
    assert!(world.hits("app", 4).contains('1'));
}

#[test]
fn drained_is_said_only_when_the_last_request_is_done() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1)]);
    let (_, choice) = world.pick("app").unwrap();
    let (_, _, mark) = world.admin("app", "10.0.0.1:81", AdminState::Down);
    let drain = world.worker.drain(&mark);
    assert_eq!((drain.drained, drain.active), (false, 1));
    world.worker.upgraded(&choice);
    assert_eq!(world.worker.drain(&mark).upgraded, 1);
    world.done(choice, false);
    let drain = world.worker.drain(&mark);
    assert_eq!((drain.drained, drain.active, drain.upgraded), (true, 0, 0));
    assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable));
}

#[test]
fn requests_to_a_server_that_was_removed_and_set_again_are_waited_for() {
    let world = World::new(1 << 20);
    let sets = [server("10.0.0.1:81", 1), server("10.0.0.2:81", 1)];
    world.put("app", &sets);
    world.put("other", &sets);
    let held: Vec<_> = (0..2).map(|_| world.pick("app").unwrap()).collect();
    let other = world.pick("other").unwrap();
    for addr in ["10.0.0.1:81", "10.0.0.2:81"] {
        world.ok("app", &Change::DeleteServer { sel: sel(addr) });
        world.ok("app", &Change::PutServer { sel: sel(addr), body: server(addr, 1) });
    }
    let (_, _, one) = world.admin("app", "10.0.0.1:81", AdminState::Down);
    assert_eq!(world.worker.drain(&one).active, 1, "of one server in one upstream");
    let host = world.host([10, 0, 0, 1].into(), AdminState::Down);
    world.done(other.1, false);
    assert_eq!(world.worker.drain(&host).active, 1, "of the former server");
    for (_, choice) in held {
        world.done(choice, false);
    }
    assert!(world.worker.drain(&one).drained && world.worker.drain(&host).drained);
}

#[test]
fn a_removed_server_is_freed_only_after_its_last_request() {
    let mut world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let (address, choice) = world.pick("app").unwrap();
    assert_eq!(address, "10.0.0.1:81");
    world.ok("app", &Change::DeleteServer { sel: sel("10.0.0.1:81") });
    for i in 0..200 {
        let addr = format!("10.0.1.{i}:80");
        world.ok("app", &Change::PutServer { sel: sel(&addr), body: server(&addr, 1) });
        world.ok("app", &Change::DeleteServer { sel: sel(&addr) });
    }
    world.tick(1);
    let free = world.zone.report().free;
    world.done(choice, false);
    world.worker.sweep(&|_, _| true, &world.clock);
    assert!(world.zone.report().free > free, "its record is free now");
}

#[test]
fn max_conns_holds_and_the_next_server_is_chosen() {
    let world = World::new(1 << 20);
    let mut small = server("10.0.0.1:81", 1);
    small.limits.max_conns = Field::Given(1);
    world.put("app", &[small, server("10.0.0.1:82", 1)]);
    let held: Vec<_> = (0..4).map(|_| world.pick("app").unwrap()).collect();
    let on_first = held.iter().filter(|(address, _)| address.ends_with("81")).count();
    assert_eq!(on_first, 1);
    held.into_iter().for_each(|(_, choice)| world.done(choice, false));
    assert!(world.hits("app", 4).contains('1'));
}

#[test]
fn a_failing_server_is_left_alone_until_its_time_out_and_the_last_one_never() {
    let mut world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let (address, choice) = world.pick("app").unwrap();
    assert!(address.ends_with("81"));
    world.done(choice, true);
    assert_eq!(world.hits("app", 3), "222");
    let (_, choice) = world.pick("app").unwrap();
    world.done(choice, true);
    assert_eq!(world.hits("app", 2), "22", "the last usable one is not ejected");
    world.tick(11);
    assert!(world.hits("app", 4).contains('1'));
}

#[test]
fn backups_serve_when_no_primary_can() {
    let world = World::new(1 << 20);
    let mut backup = server("10.0.0.1:89", 1);
    backup.backup = Field::Given(true);
    world.put("app", &[server("10.0.0.1:81", 1), backup]);
    assert_eq!(world.hits("app", 2), "11");
    world.admin("app", "10.0.0.1:81", AdminState::Down);
    assert_eq!(world.hits("app", 2), "99");
}

#[test]
fn unknown_empty_and_closed_upstreams_say_so() {
    let world = World::new(1 << 20);
    assert_eq!(world.pick("nobody").err(), Some(NoPeer::UnknownUpstream));
    world.put("app", &[]);
    assert_eq!(world.pick("app").err(), Some(NoPeer::NoServers));
    world.put("app", &[server("10.0.0.1:81", 0)]);
    assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable));
    world.put("app", &[server("10.0.0.1:81", 1)]);
    assert_eq!(world.hit("app"), '1');
    world.ok("app", &Change::DeleteUpstream { force: false });
    assert_eq!(world.pick("app").err(), Some(NoPeer::UnknownUpstream));
}

#[test]
fn a_retry_goes_to_another_server_and_sees_the_set_as_it_is_then() {
    let world = World::new(1 << 20);
    world.put(
        "app",
        &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1), server("10.0.0.1:83", 1)],
    );
    let (first, mut choice) = world.pick("app").unwrap();
    assert!(first.ends_with("81"));
    world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:84"), body: server("10.0.0.1:84", 1) });
    world.ok("app", &Change::DeleteServer { sel: sel("10.0.0.1:83") });
    let app = peerage_zone::Target::Name(b"app");
    let failed = Outcome { failed: true, ..Default::default() };
    world.worker.done(&mut choice, &failed, || world.clock);
    let address = world.worker.pick(&mut choice, &app, &world.clock).unwrap();
    let second = support::text(&address.address);
    assert!(second.ends_with("82") || second.ends_with("84"), "{second}");
    world.worker.done(&mut choice, &failed, || world.clock);
    let address = world.worker.pick(&mut choice, &app, &world.clock).unwrap();
    assert_ne!(support::text(&address.address), second);
    world.worker.abandon(&mut choice);
}

#[test]
fn a_thousand_servers_share_evenly_and_weights_hold() {
    let world = World::new(4 << 20);
    let mut servers: Vec<_> =
        (0..1000u32).map(|i| server(&format!("10.0.{}.{}:80", i / 250, i % 250 + 1), 1)).collect();
    world.put("app", &servers);
    let mut count = std::collections::HashMap::new();
    for _ in 0..10_000 {
        let (address, choice) = world.pick("app").unwrap();
        world.done(choice, false);
        *count.entry(address).or_insert(0) += 1;
    }
    assert!(count.len() == 1000 && count.values().all(|&n| n == 10));
    servers[0].limits.weight = Field::Given(100);
    world.put("app", &servers);
    let mut first = 0;
    for _ in 0..1099 * 4 {
        let (address, choice) = world.pick("app").unwrap();
        world.done(choice, false);
        first += u32::from(address == "10.0.0.1:80");
    }
    assert_eq!(first, 400);
}

/// Sums are taken when they are read: of codes with a cell, and of those that found none.
#[test]
fn every_try_is_counted_once_whatever_came_of_it() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1)]);
    let codes = [200, 200, 201, 202, 203, 204, 301, 404, 500, 599, 418, 103, 600, 99, 0];
    for (i, status) in codes.into_iter().enumerate() {
        let (_, mut choice) = world.pick("app").unwrap();
        let header_ms = (i % 2 == 0).then_some(10);
        let outcome = Outcome { status, header_ms, response_ms: 20, ..Outcome::default() };
        world.worker.done(&mut choice, &outcome, || world.clock);
    }
    let seen = world.worker.read(&upstream("app"), &world.clock).expect("it is there");
    let counters = &seen.live[0].counters;
    assert_eq!(counters.requests, 15);
    assert_eq!(counters.responses, [1, 6, 1, 2, 2]);
    assert_eq!(counters.codes.len(), 8);
    assert_eq!(counters.codes[0], (200, 2));
    assert_eq!((counters.header_time, counters.response_time), (10, 20));
}
