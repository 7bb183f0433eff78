//! The texts of an upstream: read by requests, kept by changes of other things.

mod support;

use peerage_core::body::{Field, UpstreamBody};
use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_core::template::Template;
use peerage_core::texts::Texts;
use peerage_zone::{Attempt, Choice, Fixed, Target};
use support::{World, server};

fn put(hash_key: Option<&str>, host: Option<&str>) -> Change {
    let servers = Some(vec![server("10.0.0.1:80", 1), server("10.0.0.2:80", 1)]);
    Change::PutUpstream { body: UpstreamBody { servers, ..texts(hash_key, host) } }
}

fn texts(hash_key: Option<&str>, host: Option<&str>) -> UpstreamBody {
    fn field<T>(text: Option<&str>, read: impl Fn(&str) -> T) -> Field<T> {
        text.map_or(Field::Default, |text| Field::Given(read(text)))
    }
    let key = |text: &str| Template::parse(text).expect("a text with variables");
    UpstreamBody {
        hash_key: field(hash_key, key),
        host: field(host, str::to_owned),
        ..UpstreamBody::default()
    }
}

/// What a request reads, by a name and by a name known beforehand.
fn read(world: &World, name: &str) -> (Option<Texts>, Option<String>) {
    let fixed = Fixed::new(name);
    let both = [Target::Name(name.as_bytes()), Target::Fixed(&fixed)].map(|target| {
        let mut key = b">".to_vec();
        let found = world.worker.hash_key(&target, &mut key);
        let key = String::from_utf8(key).expect("a text");
        (world.worker.texts(&target), found.then(|| key[1..].to_owned()))
    });
    assert_eq!(both[0], both[1]);
    let [one, _] = both;
    one
}

#[test]
fn requests_read_what_changes_leave() {
    let world = World::new(1 << 20);
    assert_eq!(read(&world, "app"), (None, None));
    world.ok("app", &put(None, None));
    assert_eq!(read(&world, "app"), (Some(Texts::default()), None));
    world.ok("app", &Change::PatchUpstream { body: texts(Some("$uri"), Some("a.test")) });
    let key = Template::parse("$uri").ok();
    let all = Texts { hash_key: key, host: Some("a.test".into()), tls_name: None };
    assert_eq!(read(&world, "app"), (Some(all.clone()), Some("$uri".into())));
    for verb in [AdminState::Down, AdminState::Up] {
        world.admin("app", "10.0.0.1:80", verb);
        assert_eq!(read(&world, "app").0, Some(all.clone()));
    }
    world.ok("app", &Change::PatchUpstream { body: texts(None, Some("b.test")) });
    assert_eq!(read(&world, "app").1, None);
    world.ok("app", &Change::DeleteUpstream { force: true });
    assert_eq!(read(&world, "app"), (None, None));
}

#[test]
fn a_host_with_long_texts_in_every_upstream_goes_down_in_a_full_zone() {
    let world = World::new(1 << 20);
    let long = "x".repeat(255);
    let full = |i: &usize| {
        matches!(
            world.change(&format!("u{i}"), &put(Some(&long), Some(&long))),
            Attempt::NoRoom { .. }
        )
    };
    let n = (0..10_000).find(full).expect("the zone is full once");
    assert!(n > 100, "{n}");
    let ip = "10.0.0.1".parse().expect("an address");
    // The reserve has no room for texts: what stays is not written again.
    for verb in [AdminState::Down, AdminState::Up, AdminState::Down] {
        world.host(ip, verb);
        (0..100).for_each(|_| _ = world.worker.sweep(&|_, _| true, &world.clock));
    }
    let texts = read(&world, "u7").0.expect("it is there");
    assert_eq!(texts.host, Some(long));
}

#[test]
fn a_peer_is_known_until_it_goes() {
    let world = World::new(1 << 20);
    world.ok("app", &put(None, None));
    let (mut choice, target) = (Choice::new(), Target::Name(b"app"));
    assert!(choice.known().is_none() && choice.number().is_none());
    world.worker.pick(&mut choice, &target, &world.clock).expect("a peer");
    let number = choice.number().expect("it has a number");
    let mut known = choice.known().expect("it is held");
    world.worker.abandon(&mut choice);
    assert!(choice.known().is_none() && choice.number() == Some(number));
    let knows = |known: &mut _, mut budget: usize| world.worker.knows(known, &mut budget);
    assert!(knows(&mut known, 2));
    assert!(knows(&mut known, 0), "nothing has changed");
    world.admin("app", "10.0.0.1:80", AdminState::Down);
    assert!(knows(&mut known, 9));
    // The same address, but another peer.
    let empty = UpstreamBody { servers: Some(Vec::new()), ..UpstreamBody::default() };
    world.ok("app", &Change::PutUpstream { body: empty });
    world.ok("app", &put(None, None));
    assert!(knows(&mut known, 1), "beyond the budget it counts as there");
    assert!(!knows(&mut known, 2));
    world.ok("app", &Change::DeleteUpstream { force: true });
    assert!(!knows(&mut known, 0));
}
