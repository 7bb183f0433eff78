//! Which upstreams there are: a number tells who remembers it, and a pick may know its upstream.

mod support;

use peerage_core::change::Change;
use peerage_core::server::AdminState;
use peerage_zone::{BatchAttempt, Checks, Choice, FoundUp, NoPeer, Op, Sought, Target};
use support::{World, server, upstream};

fn delete() -> Change {
    Change::DeleteUpstream { force: false }
}

fn found(world: &World, name: &str) -> Option<FoundUp> {
    world.worker.sought(&Sought::new(name.as_bytes()))
}

/// The address that a request goes to which knows an upstream.
fn known(world: &World, name: &str, upstream: FoundUp) -> Result<String, NoPeer> {
    let mut choice = Choice::new();
    choice.is_for(upstream);
    let target = Target::Known(name.as_bytes());
    let picked = world.worker.pick(&mut choice, &target, &world.clock)?;
    let address = picked.address.text();
    world.done(choice, false);
    Ok(address)
}

#[test]
fn the_number_moves_when_one_comes_or_goes_and_by_nothing_else() {
    let world = World::new(1 << 20);
    let mut last = world.zone.upstreams().now();
    let mut moved = |is: bool| {
        let now = world.zone.upstreams().now();
        assert_eq!((now % 2, now != last), (0, is));
        last = now;
    };
    world.put("app", &[server("10.0.0.1:80", 1)]);
    moved(true);
    world.put("app", &[server("10.0.0.1:80", 2), server("10.0.0.2:80", 1)]);
    world.admin("app", "10.0.0.2:80", AdminState::Down);
    moved(false);
    world.ok("app", &delete());
    moved(true);
    world.put("app", &[server("10.0.0.1:80", 1)]);
    moved(true);
    // One of several.
    let ops = |change: &Change| {
        ["app", "other"].map(|name| Op::Upstream { name: upstream(name), change: change.clone() })
    };
    let body = peerage_core::body::UpstreamBody {
        servers: Some(vec![server("10.0.0.3:80", 1)]),
        ..Default::default()
    };
    let batch = |change| {
        assert!(matches!(world.batch(&ops(&change), &Checks::NONE), BatchAttempt::Done(_)));
    };
    batch(Change::PutUpstream { body: body.clone() });
    moved(true);
    batch(Change::PutUpstream { body });
    moved(false);
    batch(delete());
    moved(true);
}

#[test]
fn a_request_that_knows_its_upstream_goes_there_and_else_by_its_name() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:80", 1)]);
    world.put("other", &[server("10.0.0.2:80", 1)]);
    assert!(found(&world, "none").is_none());
    let app = found(&world, "app").expect("it is there");
    assert_eq!(known(&world, "app", app).as_deref(), Ok("10.0.0.1:80"));
    // What is known is not looked for.
    assert_eq!(known(&world, "other", app).as_deref(), Ok("10.0.0.1:80"));
    world.put("app", &[server("10.0.0.3:80", 1)]);
    assert_eq!(known(&world, "app", app).as_deref(), Ok("10.0.0.3:80"));
    world.ok("app", &delete());
    assert!(!app.lives());
    assert_eq!(known(&world, "app", app), Err(NoPeer::UnknownUpstream));
    assert_eq!(known(&world, "other", app).as_deref(), Ok("10.0.0.2:80"));
    world.put("app", &[server("10.0.0.4:80", 1)]);
    assert!(!app.lives(), "whatever is in its memory now");
    assert_eq!(known(&world, "app", app).as_deref(), Ok("10.0.0.4:80"));
}
