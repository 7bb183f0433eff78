//! What the zone does with its memory.

mod support;

use peerage_core::body::{UpstreamBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_zone::Attempt;
use support::{World, sel, server, upstream};

#[test]
fn create_use_delete_leaves_nothing_behind() {
    let world = World::new(1 << 20);
    let before = world.zone.report().free;
    for i in 0..10_000 {
        let name = format!("u{i}");
        world.put(&name, &[server("10.0.0.1:81", 1), server("unix:/run/a.sock", 2)]);
        world.hits(&name, 4);
        world.ok(&name, &Change::DeleteUpstream { force: false });
    }
    world.worker.sweep(&|_, _| true, &world.clock);
    assert_eq!(world.zone.report().free, before);
}

#[test]
fn a_full_zone_refuses_and_still_takes_down_up_and_weights() {
    let world = World::new(256 << 10);
    let mut names = Vec::new();
    for i in 0.. {
        let name = format!("u{i}");
        let servers = [server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)];
        let body = UpstreamBody { servers: Some(servers.to_vec()), ..UpstreamBody::default() };
        match world.change(&name, &Change::PutUpstream { body }) {
            Attempt::Done { .. } => names.push(name),
            Attempt::NoRoom { need, free } => {
                assert!(need > free || need > 0);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(names.len() > 50, "{}", names.len());
    let revision = world.zone.revision();
    for name in &names {
        let reason = Some("x".repeat(255));
        let opts = VerbOpts { reason, ..VerbOpts::default() };
        let down = Change::Admin { sel: sel("10.0.0.1:81"), verb: AdminState::Down, opts };
        world.ok(name, &down);
        assert_eq!(world.hits(name, 2), "22");
    }
    for name in &names {
        world.admin(name, "10.0.0.1:81", AdminState::Up);
        let body = server("10.0.0.1:82", 9);
        world.ok(name, &Change::PatchServer { sel: sel("10.0.0.1:82"), body });
    }
    assert!(world.zone.revision() > revision);
}

#[test]
fn bytes_of_a_server_are_within_the_contract() {
    let world = World::new(32 << 20);
    let servers: Vec<_> = (0..20).map(|i| server(&format!("10.0.0.{}:8080", i + 1), 1)).collect();
    world.put("warm", &servers);
    let before = world.zone.report().used;
    for i in 0..500 {
        world.put(&format!("service-{i}"), &servers);
    }
    let each = (world.zone.report().used - before) / (500 * 20);
    println!("bytes a server, with its text and codes: {each}");
    // 384 besides text (the address twice: 64 + 32) and status codes (64).
    assert!(each <= 384 + 96 + 64, "{each}");
}

#[test]
fn ttl_ends_by_itself_and_only_then() {
    let mut world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let opts = VerbOpts { ttl: Some(15_000), ..VerbOpts::default() };
    world.ok("app", &Change::Admin { sel: sel("10.0.0.1:81"), verb: AdminState::Down, opts });
    world.tick(14);
    assert!(world.worker.expire(&world.clock).is_empty());
    assert_eq!(world.hits("app", 2), "22");
    world.tick(2);
    assert_eq!(world.worker.expire(&world.clock).len(), 1);
    assert!(world.hits("app", 2).contains('1'));
}

#[test]
fn a_dead_process_s_requests_are_taken_back() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1)]);
    let other = world.worker(2);
    let mut choice = peerage_zone::Choice::new();
    let fixed = peerage_zone::Fixed::new("app");
    other.pick(&mut choice, &peerage_zone::Target::Fixed(&fixed), &world.clock).unwrap();
    let active =
        || world.worker.read(&upstream("app"), &world.clock).unwrap().live[0].counters.active;
    assert_eq!(active(), 1);
    let swept = world.worker.sweep(&|pid, _| pid != 2, &world.clock);
    assert_eq!((swept.slots, swept.references), (1, 1));
    assert_eq!(active(), 0);
}

#[test]
fn a_zone_that_has_moved_is_not_changed_any_more() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1)]);
    assert!(world.zone.as_master(1).end(&mut || false));
    let change = Change::DeleteUpstream { force: false };
    assert!(matches!(world.change("app", &change), Attempt::Busy));
    assert_eq!(world.hits("app", 2), "11");
}

#[test]
fn a_process_finds_a_slot_for_its_connections_even_in_a_full_zone() {
    let world = World::new(256 << 10);
    for i in 0.. {
        let body = UpstreamBody {
            servers: Some(vec![server("10.0.0.1:81", 1)]),
            ..UpstreamBody::default()
        };
        let put = Change::PutUpstream { body };
        if !matches!(world.change(&format!("u{i}"), &put), Attempt::Done { .. }) {
            break;
        }
    }
    let more = peerage_zone::Format { connections: 300, ..support::FORMAT };
    let workers: Vec<_> = (2..8).map(|pid| world.zone.worker(pid, 1, &more)).collect();
    assert!(workers.iter().filter(|worker| worker.is_some()).count() >= 4);
    let picks = workers.into_iter().flatten().next().map(|worker| {
        let target = peerage_zone::Target::Name(b"u0");
        (0..301)
            .map(|_| {
                let mut choice = peerage_zone::Choice::new();
                worker.pick(&mut choice, &target, &world.clock).is_ok()
            })
            .filter(|&ok| ok)
            .count()
    });
    assert_eq!(picks, Some(300), "a list as long as was asked for");
}
