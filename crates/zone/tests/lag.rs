//! For how long the disk is behind, as those who look now and then can tell.

mod support;

use peerage_zone::Lead;
use support::{World, server};

#[test]
fn the_lag_grows_while_a_change_waits_and_ends_with_the_last_one() {
    let world = World::new(1 << 20);
    let durable = world.zone.durable();
    durable.set_lead(Lead::Leads);
    assert_eq!(durable.lag(1_000), 0);
    let (first, ..) = world.put("app", &[server("10.0.0.1:80", 1)]);
    assert_eq!(durable.lag(1_500), 500, "since the last look at most");
    let (second, ..) = world.put("app", &[server("10.0.0.1:80", 2)]);
    assert_eq!(durable.lag(9_000), 8_000);
    // The first one is there, with all that was in force when it was handed over.
    durable.set_revision(first);
    durable.reached(1_600);
    assert_eq!(durable.lag(9_100), 7_500);
    durable.set_revision(second);
    assert_eq!(durable.lag(60_000), 0);
    assert_eq!(durable.lag(120_000), 0);
    world.put("app", &[server("10.0.0.1:80", 3)]);
    assert_eq!(durable.lag(120_400), 400);
    // What another nginx writes is not ours to tell, nor when its time is over.
    durable.set_lead(Lead::Follows);
    assert_eq!(durable.lag(500_000), 0);
    durable.set_lead(Lead::Leads);
    assert_eq!(durable.lag(500_100), 100);
}
