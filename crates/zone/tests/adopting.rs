//! A zone that follows what another one's master wrote.

mod support;

use peerage_core::body::{UpstreamBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::event;
use peerage_core::name::UpstreamName;
use peerage_core::server::AdminState;
use peerage_zone::{Adoptee, Choice, Fixed, Lead, NoPeer, Target, Unadopted};
use support::file::*;
use support::{World, sel, server, upstream};

fn told(world: &World) -> Vec<String> {
    let said = world.worker.take_said();
    said.into_iter().map(|said| String::from_utf8(said.json).unwrap()).collect()
}

fn id_of(world: &World, name: &str, addr: &str) -> u64 {
    let (found, _) = world.worker.read_wanted(&upstream(name)).unwrap();
    found.find(&sel(addr)).unwrap().id
}

fn admin(verb: AdminState, addr: &str) -> Change {
    let opts = VerbOpts { reason: Some("maintenance".into()), ..VerbOpts::default() };
    Change::Admin { sel: sel(addr), verb, opts }
}

#[test]
fn a_follower_becomes_what_the_file_says_and_keeps_what_lives() {
    let (a, mut b) = (World::new(1 << 20), World::new(1 << 20));
    a.put("gap", &[server("10.0.0.9:89", 1)]);
    a.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    b.put("app", &[server("10.0.0.1:82", 1), server("10.0.0.1:81", 1)]);
    b.put("old", &[server("10.0.0.1:83", 1)]);
    assert_ne!(id_of(&a, "app", "10.0.0.1:82"), id_of(&b, "app", "10.0.0.1:82"));
    b.hits("app", 6);
    let (_, held) = b.pick("app").unwrap();
    b.worker.take_said();
    b.zone.durable().set_lead(Lead::Follows);
    let file = File::of(&a);
    let adopted = adopt(&b, &File::of(&b), &file, &Blocks::new());
    assert_eq!(adopted.changed.len(), 3);
    assert_eq!(wanted(&File::of(&b)), wanted(&file));
    assert_eq!((b.zone.revision(), b.zone.next_id()), (2, 4));
    assert_eq!(b.pick("old").err(), Some(NoPeer::UnknownUpstream));
    // Servers are the same by their address: only the order changed, and what one never had.
    let events = told(&b);
    assert!(events.iter().all(|event| !event.contains("\"app\"")), "{events:?}");
    let live = b.worker.read(&upstream("app"), &b.clock).unwrap().live;
    assert_eq!(live.iter().map(|live| live.counters.requests).sum::<u64>(), 6);
    assert_eq!(live.iter().map(|live| live.counters.active).sum::<u64>(), 1);
    b.done(held, false);
    // The peers have the file's ids.
    let fixed = Fixed::new("app");
    for _ in 0..2 {
        let mut choice = Choice::new();
        let picked = b.worker.pick(&mut choice, &Target::Fixed(&fixed), &b.clock).unwrap();
        let addr = picked.address.text();
        assert_eq!(choice.server_id(), Some(id_of(&a, "app", &addr)));
        b.done(choice, false);
    }
    b.tick(1);
    a.ok("app", &admin(AdminState::Down, "10.0.0.1:81"));
    adopt(&b, &file, &File::of(&a), &Blocks::new());
    assert_eq!(b.hits("app", 3), "222");
    let events = told(&b);
    assert_eq!(events.len(), 1, "{events:?}");
    for part in ["\"kind\":\"admin\"", "\"to\":\"down\"", "\"by\":\"test\"", "maintenance"] {
        assert!(events[0].contains(part), "{part}: {}", events[0]);
    }
    assert_eq!(event::kind(events[0].as_bytes()), "admin");
}

#[test]
fn the_same_file_adopted_again_changes_nothing() {
    let (a, mut b) = (World::new(1 << 20), follower());
    a.zone.as_master(1).merge(
        &[declared("app", &["10.0.0.1:81", "10.0.0.1:82"]), declared("lost", &["10.0.0.1:84"])],
        &a.clock,
        &mut || false,
    );
    a.put("keyed", &[server("10.0.0.1:85", 1)]);
    a.ok("lost", &Change::PutServer { sel: sel("10.0.0.5:86"), body: server("10.0.0.5:86", 1) });
    // Its own configuration knows a server more, one that is down, and one upstream not at all.
    let mut own = declared("app", &["10.0.0.1:81", "10.0.0.1:83", "10.0.0.1:82"]);
    own.servers[1].admin = AdminState::Down;
    own.servers[2].admin = AdminState::Down;
    let blocks = Blocks::from([(own.name.clone(), own)]);
    let file = File::of(&a);
    let names: Vec<&UpstreamName> = file.upstreams.keys().collect();
    assert_eq!(adopt_these(&b, &file, &names, &blocks).changed.len(), 3);
    let first = File::of(&b);
    let app = &first.upstreams[&upstream("app")].0;
    assert_eq!(app.servers.len(), 3);
    let added = id_of(&b, "app", "10.0.0.1:83");
    assert!(added >= a.zone.next_id());
    assert!(first.upstreams[&upstream("lost")].0.orphaned_at.is_some());
    let free = b.zone.report().free;
    b.tick(100);
    b.worker.take_said();
    for _ in 0..3 {
        let adopted = adopt_these(&b, &file, &names, &blocks);
        assert!(adopted.changed.is_empty(), "{:?}", adopted.changed);
    }
    assert_eq!((wanted(&File::of(&b)), b.zone.report().free), (wanted(&first), free));
    assert!(told(&b).is_empty());
    // The other one gives the id that was made up here: here it is another from now on.
    while a.zone.next_id() <= added {
        let addr = format!("10.0.1.{}:80", a.zone.next_id());
        a.ok("app", &Change::PutServer { sel: sel(&addr), body: server(&addr, 1) });
    }
    adopt_these(&b, &File::of(&a), &names, &blocks);
    let ids: Vec<u64> =
        File::of(&b).upstreams[&upstream("app")].0.servers.iter().map(|s| s.id).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!((unique.len(), ids.contains(&added)), (ids.len(), true));
    assert_ne!(id_of(&b, "app", "10.0.0.1:83"), added);
}

#[test]
fn hosts_come_before_the_servers_they_cover() {
    let (a, b) = (World::new(1 << 20), follower());
    a.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.2:82", 1)]);
    let before = File::of(&a);
    adopt(&b, &File::default(), &before, &Blocks::new());
    host(&a, "10.0.0.1", AdminState::Down);
    let file = File::of(&a);
    let (held, _) = (b.pick("app").unwrap(), ());
    assert_eq!(b.worker.adopt_hosts(&file.hosts, &b.clock, &mut || false), Ok(true));
    assert_eq!(b.zone.revision(), 1, "not all of the file is there");
    assert_eq!(b.hits("app", 3), "222");
    assert!(told(&b).last().unwrap().contains("\"kind\":\"host\""));
    b.done(held.1, false);
    adopt(&b, &before, &file, &Blocks::new());
    assert_eq!(b.zone.revision(), 2);
    host(&a, "10.0.0.1", AdminState::Up);
    adopt(&b, &file, &File::of(&a), &Blocks::new());
    assert!(b.hits("app", 4).contains('1'));
}

/// All of them may come at one revision of the zone: the file's is not in force before its end.
#[test]
fn each_adoption_of_hosts_is_seen_by_whoever_has_seen_the_last() {
    let (a, b) = (World::new(1 << 20), follower());
    a.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.2:82", 1)]);
    adopt(&b, &File::default(), &File::of(&a), &Blocks::new());
    for state in [AdminState::Drain, AdminState::Down, AdminState::Up, AdminState::Down] {
        host(&a, "10.0.0.1", state);
        let hosts = a.worker.hosts();
        assert_eq!(b.worker.adopt_hosts(&hosts, &b.clock, &mut || false), Ok(true));
        let seen = b.worker.read(&upstream("app"), &b.clock).unwrap().hosts[0].clone();
        assert_eq!(seen.map(|host| host.state), Some(state).filter(|&s| s != AdminState::Up));
        assert_eq!(b.zone.revision(), 1);
    }
}

#[test]
fn the_revision_never_goes_back() {
    let (a, b) = (World::new(1 << 20), World::new(1 << 20));
    for i in 0..20 {
        b.put("app", &[server("10.0.0.1:81", 1 + i % 2)]);
    }
    b.put("gone", &[server("10.0.0.1:83", 1)]);
    a.put("app", &[server("10.0.0.1:82", 1)]);
    host(&a, "10.0.0.1", AdminState::Down);
    b.zone.durable().set_lead(Lead::Follows);
    adopt(&b, &File::of(&b), &File::of(&a), &Blocks::new());
    assert_eq!((a.zone.revision(), b.zone.revision()), (2, 21));
    assert_eq!(wanted(&File::of(&b)), wanted(&File::of(&a)));
    // Its own next change is above all there was.
    b.zone.durable().set_lead(Lead::Leads);
    assert_eq!(b.admin("app", "10.0.0.1:82", AdminState::Down).0, 22);
}

#[test]
fn while_somebody_else_writes_it_is_said_what_is_left() {
    let (a, b) = (World::new(1 << 20), follower());
    a.put("a", &[server("10.0.0.1:81", 1)]);
    a.put("b", &[server("10.0.0.1:82", 1)]);
    let file = File::of(&a);
    let names: Vec<&UpstreamName> = file.upstreams.keys().collect();
    let adoptees: Vec<_> = names
        .iter()
        .map(|name| Adoptee {
            name,
            file: Some(&file.upstreams[*name].0),
            revision: 1,
            declared: None,
        })
        .collect();
    let lock = b.lock.expect("its own");
    lock.store(99, std::sync::atomic::Ordering::SeqCst);
    let mut waits = 0;
    let adopted = b.worker.adopt(&adoptees, &b.clock, &mut || {
        waits += 1;
        waits < 3
    });
    assert_eq!((adopted.done, waits), (0, 3));
    assert!(!b.worker.adopt_head(2, 3, &mut || false));
    host(&a, "10.0.0.1", AdminState::Down);
    let hosts = b.worker.adopt_hosts(&a.worker.hosts(), &b.clock, &mut || false);
    assert_eq!(hosts, Err(Unadopted::Busy));
    lock.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(b.worker.adopt(&adoptees, &b.clock, &mut || false).done, 2);
}

#[test]
fn a_full_follower_still_takes_what_the_leader_could() {
    let (a, b) = (World::new(256 << 10), World::new(256 << 10));
    let mut names = Vec::new();
    for i in 0.. {
        let name = format!("u{i}");
        let servers = vec![server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)];
        let body = UpstreamBody { servers: Some(servers), ..UpstreamBody::default() };
        match a.change(&name, &Change::PutUpstream { body }) {
            peerage_zone::Attempt::Done { .. } => names.push(name),
            _ => break,
        }
    }
    let full = File::of(&a);
    let adopted = adopt(&b, &File::default(), &full, &Blocks::new());
    assert!(adopted.no_room.is_empty(), "{:?}", adopted.no_room);
    for name in &names {
        a.ok(name, &admin(AdminState::Down, "10.0.0.1:81"));
    }
    let adopted = adopt(&b, &full, &File::of(&a), &Blocks::new());
    assert!(adopted.no_room.is_empty(), "{:?}", adopted.no_room);
    assert_eq!(b.hits(&names[0], 2), "22");
    let more = adopt(&b, &full, &File::of(&a), &Blocks::new());
    assert!(more.changed.is_empty());
}
