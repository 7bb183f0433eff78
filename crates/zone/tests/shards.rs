//! Parts of the peers, and whose they are.

mod support;

use std::collections::HashMap;

use peerage_core::check::schedule::{SHARDS, shard};
use support::*;

#[test]
fn a_part_is_one_processs_until_its_word_ends() {
    let world = World::new(1 << 20);
    let part = world.zone.shard(5);
    let free = part.holder();
    assert_eq!(free.pid(), 0);
    assert!(part.take(free, 11, 10_000, 1_000));
    assert!(!part.take(free, 12, 10_000, 1_000), "it is not as it was");
    let held = part.holder();
    assert_eq!(held.pid(), 11);
    assert!(!held.is_over(10_999) && held.is_over(11_040));
    // Renewed, it is another word: who has seen the former one comes too late.
    assert!(part.take(held, 11, 10_500, 1_000));
    assert!(!part.take(held, 12, 11_100, 1_000));
    assert!(!part.holder().is_over(11_499));
    assert_eq!(world.zone.shard(6).holder().pid(), 0, "and its neighbour another");
}

#[test]
fn the_time_of_a_word_goes_round() {
    let world = World::new(1 << 20);
    let part = world.zone.shard(63);
    let turn = 16 << 32;
    assert!(part.take(part.holder(), 11, turn - 500, 1_000));
    for (now, over) in [(turn - 1, false), (turn, false), (turn + 499, false), (turn + 540, true)] {
        assert_eq!(part.holder().is_over(now), over, "{now}");
    }
}

#[test]
fn who_calls_is_given_it() {
    let world = World::new(1 << 20);
    let part = world.zone.shard(0);
    assert!(part.take(part.holder(), 11, 10_000, 1_000));
    part.call(12);
    assert_eq!(part.caller(), 12);
    // Renewing it leaves the call; the caller's having it ends it.
    assert!(part.take(part.holder(), 11, 10_100, 1_000));
    assert_eq!(part.caller(), 12);
    assert!(part.take(part.holder(), part.caller(), 10_100, 1_000));
    assert_eq!((part.holder().pid(), part.caller()), (12, 0));
    part.call(13);
    part.end_call(12);
    assert_eq!(part.caller(), 13, "another's call stays");
    part.end_call(13);
    assert_eq!(part.caller(), 0);
}

#[test]
fn peers_are_spread_over_all_parts() {
    let mut parts: HashMap<u32, u32> = HashMap::new();
    (0..64_000).for_each(|key| *parts.entry(shard(key)).or_default() += 1);
    assert_eq!(parts.len(), SHARDS as usize);
    assert!(parts.values().all(|n| (800..1_200).contains(n)), "{parts:?}");
}
