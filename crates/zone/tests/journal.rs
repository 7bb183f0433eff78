//! What the writer of the state file finds of changes.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use peerage_core::body::{UpstreamBody, VerbOpts};
use peerage_core::change::{Actor, Change};
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::host::HostVerb;
use peerage_core::server::{AdminState, Origin};
use peerage_core::snapshot::Loaded;
use peerage_core::upstream::{Defaults, Settings};
use peerage_shm::AtomicU64;
use peerage_zone::journal::{Entry, Lost, Reader};
use peerage_zone::{Attempt, BatchAttempt, Checks, Env, Format, Lead, Op, Region, Zone};
use support::{World, sel, server, upstream};

fn batch(world: &World, ops: &[Op]) -> BatchAttempt {
    world.worker.batch(ops, &env(world), &Checks::NONE)
}

fn env(world: &World) -> Env<'_> {
    Env {
        clock: &world.clock,
        actor: Actor::new("test", "127.0.0.1"),
        origin: Origin::Api,
        named: &|_| false,
        keyed: Defaults::default(),
        resolves: false,
    }
}

fn put(name: &str, addr: &str) -> Op {
    let servers = Some(vec![server(addr, 1)]);
    let body = UpstreamBody { servers, ..UpstreamBody::default() };
    Op::Upstream { name: upstream(name), change: Change::PutUpstream { body } }
}

fn host(ip: &str, verb: AdminState, opts: VerbOpts) -> Op {
    Op::Host(HostVerb { ip: ip.parse().unwrap(), verb, opts, missing_ok: true })
}

fn declared(name: &str, servers: &[&str]) -> DeclaredUpstream {
    DeclaredUpstream {
        name: upstream(name),
        settings: Settings::default(),
        servers: servers.iter().map(|text| DeclaredServer::new(text).unwrap()).collect(),
    }
}

fn rest(reader: &mut Reader) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().expect("nothing is missing") {
        entries.push(entry);
    }
    assert!(reader.is_at_end());
    entries
}

#[test]
fn every_way_of_changing_something_is_in_the_journal() {
    let mut world = World::new(1 << 20);
    let mut reader = world.zone.journal().now();
    let ttl = || VerbOpts { ttl: Some(5_000), ..VerbOpts::default() };
    let down = |ttl| Change::Admin { sel: sel("10.0.0.1:81"), verb: AdminState::Down, opts: ttl };
    world.put("a", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    world.ok("a", &down(ttl()));
    world.tick(6);
    assert_eq!(world.worker.expire(&world.clock).len(), 1);
    assert!(matches!(
        batch(&world, &[put("b", "10.0.0.2:81"), put("c", "10.0.0.2:82")]),
        BatchAttempt::Done(_)
    ));
    let nobody = host("10.9.9.9", AdminState::Down, VerbOpts::default());
    assert!(matches!(batch(&world, &[nobody]), BatchAttempt::Done(_)));
    batch(&world, &[host("10.0.0.2", AdminState::Drain, ttl())]);
    world.tick(6);
    assert_eq!(world.worker.expire(&world.clock).len(), 2);
    world.ok("b", &Change::DeleteUpstream { force: false });
    let master = world.zone.as_master(1);
    master.merge(&[declared("d", &["10.0.0.3:81"])], &world.clock, &mut || false);
    world.ok("d", &Change::PutServer { sel: sel("10.0.0.4:81"), body: server("10.0.0.4:81", 1) });
    master.merge(&[], &world.clock, &mut || false);
    assert_eq!(world.worker.expire_orphans(u64::MAX - 1, &world.clock).len(), 1);
    // What changes nothing is not there.
    world.put("a", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let entries = rest(&mut reader);
    let revisions: Vec<u64> = entries.iter().map(|entry| entry.revision).collect();
    assert_eq!(revisions, (1..=world.zone.revision()).collect::<Vec<_>>());
    assert_eq!(revisions.len(), 12);
    assert!(entries.iter().all(|entry| !entry.bytes.is_empty()));
    assert_eq!(entries[0].next_id, 3);
    assert!(!world.zone.wants_snapshot());
    for revision in 0..=12 {
        let left = rest(&mut world.zone.journal().after(revision).unwrap());
        assert_eq!(left, entries[revision as usize..]);
    }
    assert_eq!(world.zone.journal().after(13).err(), Some(Lost));
}

#[test]
fn what_is_too_long_for_the_journal_asks_for_a_snapshot() {
    let world = World::new(256 << 10);
    let mut reader = world.zone.journal().now();
    world.put("a", &[server("10.0.0.1:81", 1)]);
    let many: Vec<Op> =
        (0..60).map(|i| put(&format!("{}{i}", "long".repeat(20)), "10.0.0.1:81")).collect();
    assert!(matches!(batch(&world, &many), BatchAttempt::Done(_)));
    assert!(world.zone.wants_snapshot());
    assert_eq!(world.zone.journal().after(1).err(), Some(Lost));
    // The snapshot begins here, and what comes later is in the journal.
    world.zone.clear_snapshot_wish();
    let mut later = world.zone.journal().now();
    assert_eq!(later.last(), 2);
    world.put("b", &[server("10.0.0.1:81", 1)]);
    assert_eq!(rest(&mut later).len(), 1);
    assert!(!world.zone.wants_snapshot());
    // Who reads on from before is not led over the gap.
    assert_eq!(reader.next_entry().map(|entry| entry.map(|entry| entry.revision)), Ok(Some(1)));
    assert_eq!(reader.next_entry(), Err(Lost));
    assert_eq!(reader.next_entry(), Err(Lost));
}

#[test]
fn a_reader_that_is_lapped_is_told_so() {
    let world = World::new(256 << 10);
    let mut slow = world.zone.journal().now();
    for i in 0..2000 {
        world.put("a", &[server("10.0.0.1:81", 1 + i % 2)]);
    }
    assert_eq!(slow.next_entry(), Err(Lost));
    assert_eq!(world.zone.journal().after(1).err(), Some(Lost));
    assert_eq!(rest(&mut world.zone.journal().after(1990).unwrap()).len(), 10);
    assert_eq!(rest(&mut world.zone.journal().after(2000).unwrap()).len(), 0);
    assert!(!world.zone.wants_snapshot(), "it is the reader's to ask");
}

#[test]
fn a_reader_beside_the_writer_misses_nothing() {
    let world = World::new(512 << 10);
    let zone = world.zone;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let reading = scope.spawn(move || {
            let (mut whole, mut lost, mut begun) = (0, 0, 0);
            let mut reader = zone.journal().now();
            loop {
                let ends = over.load(Ordering::Acquire);
                match reader.next_entry() {
                    Ok(Some(entry)) => {
                        assert_eq!(entry.revision, reader.last());
                        whole += 1;
                        // Now and then somebody else takes over.
                        if entry.revision % 50 == 0 {
                            begun += 1;
                            match zone.journal().after(entry.revision) {
                                Ok(next) => reader = next,
                                Err(Lost) => lost += 1,
                            }
                        }
                    }
                    Ok(None) if ends => break,
                    Ok(None) => {
                        // All that is told is in force.
                        assert!(reader.last() <= zone.revision());
                        let now = zone.journal().now();
                        assert!(now.last() >= reader.last());
                        reader = now;
                    }
                    Err(Lost) => {
                        lost += 1;
                        reader = zone.journal().now();
                    }
                }
            }
            println!("{whole} read, lost {lost} times, {begun} new readers");
            assert!(whole > 0);
            assert_eq!(reader.last(), zone.revision());
        });
        for i in 0..20_000 {
            world.put("a", &[server("10.0.0.1:81", 1 + i % 2)]);
        }
        over.store(true, Ordering::Release);
        reading.join().unwrap();
    });
}

#[test]
fn what_a_file_gave_is_not_in_the_journal() {
    let from = World::new(256 << 10);
    from.put("a", &[server("10.0.0.1:81", 1)]);
    batch(&from, &[host("10.0.0.1", AdminState::Down, VerbOpts::default())]);
    let (a, revision) = from.worker.read_wanted(&upstream("a")).unwrap();
    let into = World::new(256 << 10);
    into.put("b", &[server("10.0.0.1:81", 1)]);
    let mut reader = into.zone.journal().now();
    let loaded = Loaded { upstreams: vec![(a, 7)], ..Loaded::default() };
    into.zone.as_master(1).load(&loaded, &into.clock);
    assert_eq!((revision, into.zone.revision()), (2, 7));
    assert_eq!(reader.next_entry(), Err(Lost), "what was told does not lead to the file's state");
    assert_eq!(into.zone.journal().after(1).err(), Some(Lost));
    let mut next = into.zone.journal().after(7).unwrap();
    into.put("b", &[server("10.0.0.1:81", 2)]);
    assert_eq!(rest(&mut next)[0].revision, 8);
}

#[test]
fn only_the_leader_is_changed() {
    let mut world = World::new(256 << 10);
    world.put("a", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let opts = VerbOpts { ttl: Some(1_000), ..VerbOpts::default() };
    world.ok("a", &Change::Admin { sel: sel("10.0.0.1:81"), verb: AdminState::Down, opts });
    world.tick(2);
    let revision = world.zone.revision();
    let durable = world.zone.durable();
    let same = Change::DeleteServer { sel: sel("10.0.0.1:82") };
    let missing = Change::DeleteUpstream { force: false };
    durable.set_lead(Lead::Waiting);
    assert!(matches!(world.change("a", &same), Attempt::Busy));
    assert!(world.worker.expire(&world.clock).is_empty());
    durable.set_lead(Lead::Follows);
    assert!(matches!(world.change("a", &same), Attempt::NotWriter));
    assert!(matches!(world.change("nobody", &missing), Attempt::NotWriter), "who knows");
    assert!(world.worker.expire(&world.clock).is_empty());
    assert!(world.worker.expire_orphans(u64::MAX - 1, &world.clock).is_empty());
    let dry = Checks { dry_run: true, ..Checks::NONE };
    let looked = world.worker.batch(&[put("b", "10.0.0.1:81")], &env(&world), &dry);
    assert!(matches!(looked, BatchAttempt::Done(_)));
    assert_eq!(world.zone.revision(), revision);
    // Another takes the file while the change is computed.
    durable.set_lead(Lead::Leads);
    let holds = |_: &_, _: Option<&_>| {
        durable.set_lead(Lead::Follows);
        true
    };
    let checks = Checks { holds: &holds, ..Checks::NONE };
    let late = world.worker.batch(&[put("b", "10.0.0.1:81")], &env(&world), &checks);
    assert!(matches!(late, BatchAttempt::NotWriter));
    assert_eq!(world.zone.revision(), revision);
    durable.set_lead(Lead::Leads);
    assert_eq!(world.worker.expire(&world.clock).len(), 1);
    world.ok("a", &same);
}

#[test]
fn a_zone_too_small_for_a_journal_asks_for_a_snapshot_at_each_change() {
    let clock = World::new(64 << 10).clock;
    let smallest = (16..64).find_map(|kb| {
        let words: Box<[AtomicU64]> = (0..kb << 7).map(|_| AtomicU64::new(0)).collect();
        let lock: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let format = Format { build: 1, slots: 1, connections: 16 };
        let zone = Zone::format(Region::new(Box::leak(words)), lock, &format).ok()?;
        let world = World { zone, lock: Some(lock), worker: zone.worker(1, 1, &format)?, clock };
        let done = matches!(batch(&world, &[put("a", "10.0.0.1:81")]), BatchAttempt::Done(_));
        done.then_some(world)
    });
    let World { zone, .. } = smallest.expect("64k are enough");
    assert!(zone.wants_snapshot());
    assert_eq!(zone.journal().after(0).err(), Some(Lost));
    assert_eq!(zone.journal().now().next_entry(), Ok(None));
}
