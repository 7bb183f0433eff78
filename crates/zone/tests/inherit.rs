//! A zone of another size takes over all that the old one holds, and nothing acknowledged is lost.

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use peerage_core::body::{Field, LimitsBody, ServerBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_zone::Attempt;
use support::{World, sel, server, upstream};

/// `to` takes over what `from` holds.
fn take_over(from: &World, to: &World) {
    assert!(from.zone.as_master(9).end(&mut || false));
    let inherited = to.zone.as_master(9).inherit(&from.zone, &from.clock);
    assert_eq!(inherited.left, []);
    assert_eq!(inherited.upstreams as u64, from.zone.report().upstreams);
}

/// All that is seen of an upstream, the time of a failure included.
fn seen(world: &World, name: &str) -> String {
    let seen = world.worker.read(&upstream(name), &world.clock).expect("it is there");
    format!("{:?} {:?} {:?} {}", seen.upstream, seen.live, seen.hosts, seen.revision)
}

#[test]
fn counters_failures_and_turns_go_on_in_a_larger_and_in_a_smaller_zone() {
    let first = World::new(1 << 20);
    first.put(
        "app",
        &[server("10.0.0.1:81", 5), server("10.0.0.1:82", 3), server("10.0.0.1:83", 1)],
    );
    let failing = ServerBody {
        limits: LimitsBody { max_fails: Field::Given(1), ..LimitsBody::default() },
        ..server("10.0.0.2:81", 1)
    };
    first.put("other", &[failing, server("10.0.0.2:82", 1)]);
    first.host("10.0.0.1".parse().unwrap(), AdminState::Down);
    first.host("10.0.0.1".parse().unwrap(), AdminState::Up);
    first.host("10.0.0.9".parse().unwrap(), AdminState::Drain);
    for _ in 0..3 {
        let (address, choice) = first.pick("other").unwrap();
        first.done(choice, address.ends_with(":81"));
    }
    let whole = first.hits("app", 18);
    let mut order = first.hits("app", 4);
    let mut worlds = vec![first];
    for bytes in [3 << 20, 512 << 10, 1 << 20, 300 << 10] {
        let old = worlds.last().unwrap();
        let new = World::new(bytes);
        take_over(old, &new);
        assert_eq!(seen(&new, "app"), seen(old, "app"));
        assert_eq!(seen(&new, "other"), seen(old, "other"));
        assert_eq!(new.hits("other", 3), "222", "a failed server stays barred");
        let (before, after) = (old.zone.report(), new.zone.report());
        assert_eq!((after.revision, after.seq), (before.revision, before.seq));
        assert_eq!((after.upstreams, after.servers), (before.upstreams, before.servers));
        assert_eq!(new.zone.next_id(), old.zone.next_id());
        assert_eq!(new.worker.hosts(), old.worker.hosts());
        order += &new.hits("app", 4);
        worlds.push(new);
    }
    assert_eq!(order[..18], whole[..18], "as if there had been one zone");
}

#[test]
fn events_and_what_is_known_of_the_file_move_and_numbers_never_go_back() {
    let old = World::new(1 << 20);
    for port in 1..200 {
        old.put("app", &[server(&format!("10.0.0.1:{port}"), 1)]);
    }
    old.zone.set_loaded();
    old.zone.durable().set_error(28, 77);
    old.zone.durable().want(150);
    old.zone.durable().set_revision(120);
    old.zone.durable().set_error(5, 78);
    let told = |world: &World| {
        let mut reader = world.zone.events().after(0).unwrap();
        let mut told = Vec::new();
        while let Some(said) = reader.next_event().unwrap() {
            told.push(said);
        }
        told
    };
    // Other rings hold more, less, and none at all.
    let (large, small) = (World::new(4 << 20), World::new(300 << 10));
    take_over(&old, &large);
    assert_eq!(told(&large), told(&old));
    take_over(&large, &small);
    assert!(told(&large).ends_with(&told(&small)) && !told(&small).is_empty());
    for world in [&large, &small] {
        let file = world.zone.durable();
        assert_eq!(
            (file.revision(), file.error(), file.error_at(), file.errors()),
            (120, 5, 78, 2)
        );
        assert!(world.zone.is_loaded() && file.is_wanted() && file.lease().owner() == 0);
    }
    let last = small.zone.report().seq;
    small.put("app", &[server("10.0.0.2:1", 1)]);
    let first = &told(&small);
    let first = first.iter().find(|said| said.seq > last).unwrap();
    assert_eq!(first.seq, last + 1);

    let (silent, next) = (World::new(1 << 20), World::new(2 << 20));
    take_over(&silent, &next);
    assert_eq!((next.zone.events().last(), next.zone.report().seq), (0, 0));
    next.put("app", &[server("10.0.0.2:1", 1)]);
    assert!(next.zone.events().last() > 1_000_000, "the first number is the time");
}

#[test]
fn requests_in_flight_are_counted_where_they_began() {
    let (old, new) = (World::new(1 << 20), World::new(2 << 20));
    old.put("app", &[server("10.0.0.1:81", 1)]);
    let (_, held) = old.pick("app").unwrap();
    take_over(&old, &new);
    let active = |world: &World| {
        world.worker.read(&upstream("app"), &world.clock).unwrap().live[0].counters.active
    };
    assert_eq!((active(&old), active(&new)), (1, 0));
    old.done(held, false);
    assert_eq!(active(&old), 0);
}

#[test]
fn what_has_moved_is_neither_changed_nor_said_to_be_so_already() {
    let (old, new) = (World::new(1 << 20), World::new(2 << 20));
    old.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    old.admin("app", "10.0.0.1:81", AdminState::Down);
    take_over(&old, &new);
    let opts = VerbOpts::default();
    for verb in [AdminState::Down, AdminState::Up] {
        let change = Change::Admin { sel: sel("10.0.0.1:81"), verb, opts: opts.clone() };
        assert!(matches!(old.change("app", &change), Attempt::Busy));
    }
}

/// Adds servers until the zone has moved; how many were acknowledged.
fn add(world: &World, name: &str, over: &AtomicBool) -> usize {
    let mut acknowledged = 0;
    loop {
        let sel = sel(&format!("10.0.0.1:{}", acknowledged + 1));
        let put = Change::PutServer { sel, body: ServerBody::default() };
        match world.change(name, &put) {
            Attempt::Done { .. } => acknowledged += 1,
            Attempt::Busy if over.load(SeqCst) => return acknowledged,
            Attempt::Busy => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_change_that_was_acknowledged_is_in_the_new_zone() {
    // With the lock, and where it is not to be had: then the mark alone decides.
    for patience in [usize::MAX, 0] {
        for round in 0..100 {
            let (old, new) = (World::new(1 << 20), World::new(2 << 20));
            let names = ["a", "b"];
            for name in names {
                old.put(name, &[]);
            }
            let (over, begun) = (AtomicBool::new(false), Barrier::new(3));
            let (zone, over, begun) = (old.zone, &over, &begun);
            let acknowledged = thread::scope(|scope| {
                let writers = [0, 1].map(|i| {
                    scope.spawn(move || {
                        let world = World::of(zone, 10 + i as u32);
                        begun.wait();
                        add(&world, names[i], over)
                    })
                });
                begun.wait();
                (0..round * 3_000).for_each(|_| std::hint::spin_loop());
                let mut left = patience;
                old.zone.as_master(9).end(&mut || {
                    left = left.saturating_sub(1);
                    left > 0
                });
                new.zone.as_master(9).inherit(&old.zone, &old.clock);
                over.store(true, SeqCst);
                writers.map(|writer| writer.join().expect("it does not panic"))
            });
            for (name, acknowledged) in names.iter().zip(acknowledged) {
                let there = new.worker.read_wanted(&upstream(name)).unwrap().0.servers.len();
                assert!(there >= acknowledged, "{there} of {acknowledged}, round {round}");
            }
        }
    }
}
