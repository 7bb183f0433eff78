//! Rules 11 and 12 of guarding, one by one, and what must hold whatever is answered.

use proptest::prelude::*;

use super::*;
use crate::source::Standing;

const PLAIN: Evidence = Evidence { consistent: false, denied: false };
const SURE: Evidence = Evidence { consistent: true, denied: false };
const DENIED: Evidence = Evidence { consistent: true, denied: true };
const RULES: Rules =
    Rules { min_servers: 1, max_removal: 50, empty_hold: Millis(60_000), on_empty: OnEmpty::Hold };

fn addr(n: u8) -> ServerAddr {
    ServerAddr::parse(&format!("10.0.0.{n}:80")).unwrap()
}

fn stated(n: u8) -> Stated {
    let said = Sourced { identity: n.into(), weight: Some(1), ..Sourced::default() };
    Stated { addr: addr(n), said }
}

/// The zone, as far as the guard is concerned.
struct World {
    guard: Guard,
    known: Vec<Known>,
    now: u64,
    last: Option<Decision>,
}

impl World {
    fn new(rules: Rules, servers: &[u8]) -> Self {
        let mut world =
            Self { guard: Guard::new(rules), known: Vec::new(), now: 1_000, last: None };
        world.look(servers, SURE);
        world
    }

    fn look(&mut self, servers: &[u8], evidence: Evidence) -> Decision {
        let named = servers.iter().map(|&n| stated(n)).collect();
        let decision = self.guard.look(named, &self.known, evidence, self.now);
        self.put(decision)
    }

    fn wake(&mut self) -> Decision {
        let decision = self.guard.wake(&self.known, self.now).unwrap();
        self.put(decision)
    }

    /// What the zone makes of it: what is left out vanishes.
    fn put(&mut self, decision: Decision) -> Decision {
        let fails = |addr: &ServerAddr| self.known.iter().any(|k| k.addr == *addr && k.fails);
        let all = decision.servers.iter();
        let all = all.map(|s| Known { addr: s.addr.clone(), said: s.said, fails: fails(&s.addr) });
        let stays: Vec<Known> = all.collect();
        let gone = self.known.iter().filter(|k| stays.iter().all(|s| s.addr != k.addr));
        let gone: Vec<Known> = gone
            .map(|k| {
                let standing = Standing::Vanished { since: self.now };
                let said = Sourced { standing, held: false, discarded: false, ..k.said };
                Known { said, ..k.clone() }
            })
            .collect();
        self.known = stays;
        self.known.extend(gone);
        self.last = Some(decision.clone());
        decision
    }

    fn fail(&mut self, n: u8) {
        for known in self.known.iter_mut().filter(|k| k.addr == addr(n)) {
            known.fails = true;
        }
    }

    /// Last digits of those that take requests, in order.
    fn open(&self) -> Vec<u8> {
        let mut open: Vec<u8> = (0..=255).filter(|&n| self.is_open(n)).collect();
        open.sort_unstable();
        open
    }

    fn is_open(&self, n: u8) -> bool {
        self.known.iter().any(|k| k.addr == addr(n) && k.said.vanished().is_none())
    }

    fn why(&self) -> Option<&'static str> {
        self.guard.held().map(|held| held.why.code())
    }
}

#[test]
fn rule_11_additions_and_new_attributes_apply_at_once() {
    let mut world = World::new(RULES, &[1, 2]);
    let mut named: Vec<Stated> = [1, 2, 3, 4, 5, 6].map(stated).into();
    named[0].said.weight = Some(9);
    named[1].said.failing = true;
    let decision = world.guard.look(named.clone(), &world.known, PLAIN, world.now);
    assert_eq!(decision.servers, named);
    assert_eq!((decision.confirm_at, decision.began), (None, None));
}

#[test]
fn rule_12_few_removals_apply_at_once() {
    let mut world = World::new(RULES, &[1, 2, 3, 4]);
    world.look(&[1, 2], PLAIN);
    assert_eq!(world.open(), [1, 2]);
    // Half of two, and of three the largest whole number that is no more than half.
    world.now += 2_000;
    world.look(&[1], PLAIN);
    assert_eq!((world.open(), world.why()), (vec![1], None));
    let mut world = World::new(RULES, &[1, 2, 3]);
    world.look(&[1], PLAIN);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3], Some("max_removal")));
    // One at a time may always go.
    let mut world = World::new(Rules { max_removal: 0, ..RULES }, &[1, 2, 3]);
    world.look(&[1, 2], PLAIN);
    assert_eq!(world.open(), [1, 2]);
}

#[test]
fn rule_12_many_removals_need_a_second_consistent_answer() {
    let mut world = World::new(RULES, &[1, 2, 3, 4]);
    let decision = world.look(&[1, 5], PLAIN);
    assert_eq!(world.open(), [1, 2, 3, 4, 5]);
    assert_eq!(decision.confirm_at, Some(world.now + 2_000));
    assert_eq!(decision.began, Some(Why::Removal { removed: 3, of: 4 }));
    let held = decision.servers.iter().filter(|s| s.said.held).count();
    assert_eq!(held, 3);
    // Another answer of the same kind, or a confirmation too early, decides nothing.
    world.now += 1_999;
    for evidence in [PLAIN, SURE] {
        let again = world.look(&[1, 5], evidence);
        assert_eq!((again.began, world.open()), (None, vec![1, 2, 3, 4, 5]));
    }
    world.now += 1;
    let done = world.look(&[1, 5], SURE);
    assert_eq!((world.open(), done.ended, done.confirm_at), (vec![1, 5], true, None));
}

#[test]
fn rule_12_a_second_answer_that_names_them_again_ends_it() {
    let mut world = World::new(RULES, &[1, 2, 3, 4]);
    world.look(&[1], PLAIN);
    world.now += 2_000;
    let done = world.look(&[1, 2, 3], SURE);
    assert!(done.ended);
    assert_eq!(world.open(), [1, 2, 3], "one of four may go at once");
}

#[test]
fn rule_12_what_is_missed_only_by_the_second_answer_waits_for_a_third() {
    let mut world = World::new(RULES, &[1, 2, 3, 4, 5, 6, 7, 8]);
    world.look(&[1, 2, 3], PLAIN);
    world.now += 2_000;
    let decision = world.look(&[1], SURE);
    assert_eq!(world.open(), [1, 2, 3]);
    assert_eq!(decision.confirm_at, Some(world.now + 2_000));
    world.now += 2_000;
    world.look(&[1], SURE);
    assert_eq!(world.open(), [1]);
}

#[test]
fn rule_12_fewer_than_must_be_left_need_to_be_confirmed() {
    let mut world = World::new(Rules { min_servers: 3, ..RULES }, &[1, 2, 3]);
    world.look(&[1, 2], PLAIN);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3], Some("min_servers")));
    world.now += 2_000;
    world.look(&[1, 2], SURE);
    assert_eq!((world.open(), world.why()), (vec![1, 2], None));
}

#[test]
fn rule_12_an_empty_answer_is_held_and_then_only_those_go_that_fail() {
    let mut world = World::new(RULES, &[1, 2, 3]);
    let decision = world.look(&[], SURE);
    let over = world.now + 60_000;
    assert_eq!((decision.confirm_at, world.why()), (Some(over), Some("empty")));
    assert_eq!(world.guard.held().unwrap().until, Some(over));
    world.fail(2);
    world.now = over - 1;
    world.look(&[], SURE);
    assert_eq!(world.open(), [1, 2, 3]);
    world.now = over;
    assert_eq!(world.wake().confirm_at, Some(over), "time alone decides nothing");
    let decision = world.look(&[], SURE);
    assert_eq!((world.open(), decision.wake_at), (vec![1, 3], Some(over + 5_000)));
    world.fail(3);
    world.now += 5_000;
    world.wake();
    assert_eq!((world.open(), world.why()), (vec![1], Some("empty")));
    // Whatever the source names ends it, by the rules for what is left out.
    let decision = world.look(&[1, 4], PLAIN);
    assert!(decision.ended);
    assert_eq!(world.open(), [1, 4]);
}

#[test]
fn rule_12_who_comes_back_one_by_one_to_an_empty_registry_takes_no_other_along() {
    let mut world = World::new(RULES, &[1, 2, 3, 4, 5]);
    world.look(&[], SURE);
    world.now += 20_000;
    let decision = world.look(&[1], PLAIN);
    assert_eq!(decision.confirm_at, Some(world.now + 2_000));
    world.look(&[1], SURE);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3, 4, 5], Some("max_removal")));
    world.now += 1_000;
    world.look(&[1, 2, 3, 4, 5], PLAIN);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3, 4, 5], None));
}

#[test]
fn rule_12_many_small_removals_in_a_row_are_one_large_one() {
    let mut world = World::new(RULES, &[1, 2, 3, 4, 5, 6, 7, 8]);
    world.look(&[1, 2, 3, 4, 5], PLAIN);
    world.now += 200;
    world.look(&[1, 2, 3, 4], PLAIN);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3, 4], None));
    world.now += 200;
    let decision = world.look(&[1, 2, 3], PLAIN);
    assert_eq!(decision.began, Some(Why::Removal { removed: 5, of: 8 }));
    world.now += 2_000;
    world.look(&[1, 2, 3], SURE);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3], None));
    // Those that only moved are not counted.
    let mut world = World::new(RULES, &[1, 2, 3, 4]);
    let mut named: Vec<Stated> = [1, 2, 3, 4].map(stated).into();
    for (i, server) in named.iter_mut().enumerate() {
        server.addr = addr(11 + i as u8);
    }
    let decision = world.guard.look(named.clone(), &world.known, PLAIN, world.now);
    world.put(decision);
    named.pop();
    let decision = world.guard.look(named, &world.known, PLAIN, world.now);
    world.put(decision);
    assert_eq!((world.open(), world.why()), (vec![11, 12, 13], None));
}

#[test]
fn rule_12_on_empty_says_what_becomes_of_them() {
    for (on_empty, open) in [(OnEmpty::Apply, vec![]), (OnEmpty::Keep, vec![1, 2])] {
        let mut world = World::new(Rules { on_empty, ..RULES }, &[1, 2]);
        world.fail(1);
        world.look(&[], SURE);
        world.now += 60_000;
        world.look(&[], SURE);
        world.now += 60_000;
        world.look(&[], SURE);
        assert_eq!(world.open(), open, "{on_empty:?}");
    }
}

#[test]
fn rule_12_an_empty_answer_of_who_may_not_see_is_held_for_good() {
    let mut world = World::new(Rules { on_empty: OnEmpty::Apply, ..RULES }, &[1, 2]);
    let decision = world.look(&[], DENIED);
    assert_eq!((decision.began, decision.confirm_at), (Some(Why::Denied), None));
    world.now += 1_000_000;
    world.look(&[], DENIED);
    assert_eq!((world.open(), world.why()), (vec![1, 2], Some("denied")));
}

#[test]
fn rule_8_who_moved_is_not_missed() {
    let mut world = World::new(RULES, &[1, 2, 3]);
    let moved = |n: u8, to: u8| Stated { addr: addr(to), ..stated(n) };
    let named = vec![moved(1, 11), moved(2, 12), moved(3, 13)];
    let decision = world.guard.look(named, &world.known, PLAIN, world.now);
    world.put(decision);
    assert_eq!((world.open(), world.why()), (vec![11, 12, 13], None));
}

#[test]
fn rule_15_an_operator_applies_what_is_held() {
    let mut world = World::new(RULES, &[1, 2, 3]);
    assert_eq!(world.guard.apply(&world.known, world.now), None);
    world.look(&[], DENIED);
    let decision = world.guard.apply(&world.known, world.now).unwrap();
    let decision = world.put(decision);
    assert_eq!((world.open(), decision.ended, world.why()), (vec![], true, None));
}

#[test]
fn rule_15_an_operator_discards_what_is_held() {
    let mut world = World::new(Rules { on_empty: OnEmpty::Apply, ..RULES }, &[1, 2, 3, 4]);
    assert_eq!(world.guard.discard(&world.known, world.now), None);
    world.look(&[4], PLAIN);
    let decision = world.guard.discard(&world.known, world.now).unwrap();
    world.put(decision);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3, 4], Some("discarded")));
    world.now += 2_000;
    world.look(&[4], SURE);
    assert_eq!(world.open(), [1, 2, 3, 4], "they stay, however often it is said");
    // Others go by the rules, and who was named again is the source's once more.
    world.look(&[1, 5], SURE);
    assert_eq!(world.open(), [1, 2, 3, 5]);
    world.look(&[5], PLAIN);
    assert_eq!((world.open(), world.why()), (vec![2, 3, 5], Some("discarded")));
}

#[test]
fn rule_14_what_was_discarded_stays_for_another_watcher_too() {
    let mut world = World::new(RULES, &[1, 2, 3, 4]);
    world.look(&[4], PLAIN);
    let decision = world.guard.discard(&world.known, world.now).unwrap();
    world.put(decision);
    world.guard = Guard::new(RULES);
    world.look(&[4], PLAIN);
    world.now += 2_000;
    world.look(&[4], SURE);
    assert_eq!((world.open(), world.why()), (vec![1, 2, 3, 4], Some("discarded")));
    // Named again, it is the source's once more, here as well.
    world.look(&[1, 4], PLAIN);
    world.guard = Guard::new(RULES);
    world.look(&[4], PLAIN);
    assert_eq!(world.open(), [2, 3, 4]);
}

#[test]
fn an_operator_may_apply_what_was_discarded() {
    let mut world = World::new(RULES, &[1, 2, 3, 4]);
    world.look(&[4], PLAIN);
    let decision = world.guard.discard(&world.known, world.now).unwrap();
    world.put(decision);
    let decision = world.guard.apply(&world.known, world.now).unwrap();
    world.put(decision);
    assert_eq!((world.open(), world.why()), (vec![4], None));
}

#[derive(Clone, Debug)]
enum Step {
    Look(BTreeSet<u8>, bool, bool),
    Wake,
    Wait(u64),
    Fail(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (prop::collection::btree_set(0u8..12, 0..12), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(named, sure, denied)| Step::Look(named, sure, denied)),
        1 => Just(Step::Wake),
        2 => prop_oneof![Just(500u64), Just(2_000), Just(60_000)].prop_map(Step::Wait),
        1 => (0u8..12).prop_map(Step::Fail),
    ];
    prop::collection::vec(step, 1..40)
}

fn rules() -> impl Strategy<Value = Rules> {
    let on_empty = prop_oneof![Just(OnEmpty::Hold), Just(OnEmpty::Apply), Just(OnEmpty::Keep)];
    (0u32..6, 0u8..=100, on_empty).prop_map(|(min_servers, max_removal, on_empty)| Rules {
        min_servers,
        max_removal,
        on_empty,
        ..RULES
    })
}

proptest! {
    /// Whatever comes: more than may go at once went only after a consistent answer that came two
    /// seconds after the first that left them out, and the last ones only after `empty_hold`.
    #[test]
    fn more_than_may_goes_only_confirmed(rules in rules(), steps in steps()) {
        let mut world = World::new(rules, &[0, 1, 2, 3, 4, 5]);
        let mut missed: BTreeMap<u8, u64> = BTreeMap::new();
        let mut empty_since = None;
        for step in steps {
            let before = world.open();
            let (mut named, mut sure) = (None, false);
            match step {
                Step::Wait(ms) => {
                    world.now += ms;
                    continue;
                }
                Step::Fail(n) => {
                    world.fail(n);
                    continue;
                }
                Step::Wake => {
                    world.wake();
                }
                Step::Look(set, consistent, denied) => {
                    let list: Vec<u8> = set.iter().copied().collect();
                    missed.retain(|n, _| !set.contains(n));
                    for n in before.iter().filter(|n| !set.contains(n)) {
                        missed.entry(*n).or_insert(world.now);
                    }
                    empty_since = set.is_empty().then(|| empty_since.unwrap_or(world.now));
                    world.look(&list, Evidence { consistent, denied });
                    sure = consistent;
                    named = Some(list);
                }
            }
            let after = world.open();
            let gone: Vec<u8> = before.iter().copied().filter(|n| !after.contains(n)).collect();
            if let Some(named) = &named {
                prop_assert!(named.iter().all(|n| after.contains(n)), "named ones are there");
            }
            if gone.is_empty() {
                continue;
            }
            if let Some(since) = empty_since {
                prop_assert!(world.now >= since + 60_000 && rules.on_empty != OnEmpty::Keep);
                let fails = |n: &u8| world.known.iter().any(|k| k.addr == addr(*n) && k.fails);
                prop_assert!(rules.on_empty == OnEmpty::Apply || gone.iter().all(fails));
                continue;
            }
            let most = (before.len() * usize::from(rules.max_removal) / 100).max(1);
            let left = named.as_ref().map_or(0, Vec::len);
            if gone.len() > most || left < rules.min_servers as usize {
                prop_assert!(sure, "{gone:?} went unconfirmed");
                prop_assert!(gone.iter().all(|n| missed[n] + CONFIRM <= world.now));
            }
        }
    }

    /// The same answer twice is the same set.
    #[test]
    fn equal_content_is_no_change(rules in rules(), named in prop::collection::btree_set(0u8..12, 0..12)) {
        let mut world = World::new(rules, &[0, 1, 2, 3]);
        let named: Vec<u8> = named.into_iter().collect();
        let first = world.look(&named, PLAIN);
        let again = world.look(&named, PLAIN);
        prop_assert_eq!(&first.servers, &again.servers);
        prop_assert!(again.began.is_none() && !again.ended);
    }
}
