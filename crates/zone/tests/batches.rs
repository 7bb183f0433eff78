//! Changes over several upstreams and hosts.

mod support;

use peerage_core::body::{UpstreamBody, VerbOpts};
use peerage_core::change::{Actor, Change, ChangeError};
use peerage_core::host::HostVerb;
use peerage_core::server::{AdminState, Origin};
use peerage_core::upstream::Defaults;
use peerage_zone::{Attempt, Batch, BatchAttempt, Checks, Env, NoPeer, Op};
use support::{World, sel, server, upstream};

fn batch(world: &World, ops: &[Op], checks: &Checks<'_>) -> BatchAttempt {
    let env = Env {
        clock: &world.clock,
        actor: Actor::new("test", "127.0.0.1"),
        origin: Origin::Api,
        named: &|_| false,
        keyed: Defaults::default(),
        resolves: false,
    };
    world.worker.batch(ops, &env, checks)
}

fn ok(world: &World, ops: &[Op]) -> Batch {
    match batch(world, ops, &Checks::NONE) {
        BatchAttempt::Done(batch) => *batch,
        other => panic!("{ops:?}: {other:?}"),
    }
}

fn put(name: &str, addr: &str) -> Op {
    let servers = Some(vec![server(addr, 1)]);
    let body = UpstreamBody { servers, ..UpstreamBody::default() };
    Op::Upstream { name: upstream(name), change: Change::PutUpstream { body } }
}

fn delete(name: &str) -> Op {
    Op::Upstream { name: upstream(name), change: Change::DeleteUpstream { force: false } }
}

fn host(ip: &str, verb: AdminState, opts: VerbOpts) -> Op {
    Op::Host(HostVerb { ip: ip.parse().unwrap(), verb, opts, missing_ok: false })
}

#[test]
fn a_batch_is_one_revision_and_comes_whole() {
    let world = World::new(1 << 20);
    world.put("gone", &[server("10.0.0.1:89", 1)]);
    let before = world.zone.revision();
    let done = ok(&world, &[put("a", "10.0.0.1:81"), put("b", "10.0.0.1:82"), delete("gone")]);
    assert_eq!((done.revision, done.changed, done.touched.len()), (before + 1, true, 3));
    assert_eq!(world.hit("a"), '1');
    assert_eq!(world.hit("b"), '2');
    assert_eq!(world.pick("gone").err(), Some(NoPeer::UnknownUpstream));
    assert_eq!(world.worker.names(None, 10).len(), 2);
}

#[test]
fn a_batch_with_a_step_that_cannot_be_done_changes_nothing() {
    let world = World::new(1 << 20);
    world.put("a", &[server("10.0.0.1:81", 1)]);
    let revision = world.zone.revision();
    let free = world.zone.report().free;
    let ops = [put("b", "10.0.0.1:82"), delete("nobody")];
    let refused = batch(&world, &ops, &Checks::NONE);
    assert!(matches!(refused, BatchAttempt::Refused { op: 1, error: ChangeError::NoUpstream(_) }));
    assert_eq!((world.zone.revision(), world.zone.report().free), (revision, free));
    assert_eq!(world.pick("b").err(), Some(NoPeer::UnknownUpstream));
}

#[test]
fn later_steps_see_what_earlier_ones_did_and_a_dry_run_does_nothing() {
    let world = World::new(1 << 20);
    let add = Op::Upstream {
        name: upstream("a"),
        change: Change::PutServer { sel: sel("10.0.0.1:82"), body: server("10.0.0.1:82", 1) },
    };
    let ops = [put("a", "10.0.0.1:81"), add];
    let dry = Checks { dry_run: true, ..Checks::NONE };
    let BatchAttempt::Done(plan) = batch(&world, &ops, &dry) else { panic!("it can be done") };
    assert_eq!(plan.touched[0].after.as_ref().unwrap().servers.len(), 2);
    assert_eq!(world.zone.revision(), 0);
    ok(&world, &ops);
    assert_eq!(world.hits("a", 4), "1212");
    assert!(!ok(&world, &ops[1..]).changed);
}

#[test]
fn a_batch_made_on_an_old_view_is_refused() {
    let world = World::new(1 << 20);
    let (seen, ..) = world.put("a", &[server("10.0.0.1:81", 1)]);
    world.put("b", &[server("10.0.0.1:82", 1)]);
    let checks = Checks { if_revision: Some(seen), ..Checks::NONE };
    assert!(matches!(batch(&world, &[delete("a")], &checks), BatchAttempt::Done(_)));
    let stale = batch(&world, &[delete("b")], &checks);
    assert!(matches!(stale, BatchAttempt::Stale { revision, .. } if revision == seen + 1));
}

#[test]
fn a_host_that_goes_down_covers_its_servers_and_those_that_come_later() {
    let world = World::new(1 << 20);
    world.put("a", &[server("10.0.0.1:81", 1), server("10.0.0.2:82", 1)]);
    world.put("b", &[server("10.0.0.1:83", 1), server("10.0.0.2:84", 1)]);
    let (_, held) = world.pick("a").unwrap();
    let done = ok(&world, &[host("10.0.0.1", AdminState::Down, VerbOpts::default())]);
    assert_eq!((done.touched.len(), done.touched[0].covered), (2, true));
    assert_eq!(world.hits("a", 3), "222");
    assert_eq!(world.hits("b", 3), "444");
    assert_eq!(world.worker.drain(&done.mark).active, 1);
    world.done(held, false);
    assert!(world.worker.drain(&done.mark).drained);
    world.put("c", &[server("10.0.0.1:85", 1)]);
    assert_eq!(world.pick("c").err(), Some(NoPeer::AllUnavailable));
    let later = Change::PutServer { sel: sel("10.0.0.1:86"), body: server("10.0.0.1:86", 9) };
    world.ok("a", &later);
    assert_eq!(world.hits("a", 3), "222");
    assert!(world.worker.read(&upstream("c"), &world.clock).unwrap().hosts[0].is_some());
    world.admin("a", "10.0.0.1:81", AdminState::Down);
    ok(&world, &[host("10.0.0.1", AdminState::Up, VerbOpts::default())]);
    assert_eq!(world.hit("c"), '5');
    assert!(!world.hits("a", 22).contains('1'), "its own state stays");
}

#[test]
fn a_host_without_enough_others_is_refused_and_its_time_ends() {
    let mut world = World::new(1 << 20);
    world.put("a", &[server("10.0.0.1:81", 1)]);
    let opts = VerbOpts { min_up: Some(1), ..VerbOpts::default() };
    let refused = batch(&world, &[host("10.0.0.1", AdminState::Down, opts)], &Checks::NONE);
    assert!(matches!(refused, BatchAttempt::Refused { error: ChangeError::HostMinUp { .. }, .. }));
    let opts = VerbOpts { ttl: Some(5_000), ..VerbOpts::default() };
    ok(&world, &[host("10.0.0.1", AdminState::Drain, opts)]);
    assert!(world.pick("a").is_err());
    world.tick(6);
    assert_eq!(world.worker.expire(&world.clock).len(), 1);
    assert_eq!(world.hit("a"), '1');
}

#[test]
fn what_a_batch_makes_and_takes_away_again_under_a_host_that_goes_down_is_not_there() {
    let world = World::new(1 << 20);
    let ops = [
        put("a", "10.0.0.1:80"),
        host("10.0.0.1", AdminState::Down, VerbOpts::default()),
        delete("a"),
    ];
    ok(&world, &ops);
    assert!(world.worker.read_wanted(&upstream("a")).is_none());
    ok(&world, &[put("a", "10.0.0.1:80")]);
}

#[test]
fn batches_leave_nothing_behind() {
    let world = World::new(1 << 20);
    let free = world.zone.report().free;
    for i in 0..500 {
        let (a, b) = (format!("a{i}"), format!("b{i}"));
        ok(&world, &[put(&a, "10.0.0.1:81"), put(&b, "10.0.0.2:82")]);
        ok(&world, &[host("10.0.0.1", AdminState::Down, VerbOpts::default())]);
        ok(
            &world,
            &[host("10.0.0.1", AdminState::Up, VerbOpts::default()), delete(&a), delete(&b)],
        );
    }
    let expired = world.change("nobody", &Change::ExpireTtl { now: 1 });
    assert!(matches!(expired, Attempt::Done { changed: false, .. }));
    world.worker.sweep(&|_, _| true, &world.clock);
    assert_eq!(world.zone.report().free + 32, free, "but for an empty list of hosts");
}
