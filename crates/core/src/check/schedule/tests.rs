use proptest::prelude::*;

use super::*;

fn timing(words: &[&str]) -> Timing {
    Timing::of(&Check::parse(words).unwrap())
}

fn fresh(keys: std::ops::Range<u64>, timing: Timing) -> impl Iterator<Item = Probed> {
    let peer = move |key| Probed { key, timing, began: None, standing: Standing::Sound };
    keys.map(peer)
}

/// These are the peers from now on.
fn set(schedule: &mut Schedule, peers: impl IntoIterator<Item = Probed>, now: u64) {
    let peers: Vec<Probed> = peers.into_iter().collect();
    let gone: Vec<u64> = schedule.peers.keys().copied().collect();
    for key in gone.into_iter().filter(|key| peers.iter().all(|peer| peer.key != *key)) {
        schedule.forget(key);
    }
    peers.into_iter().for_each(|peer| schedule.put(peer, now));
}

/// Runs what is due, each probe for as long as `lasts` says; when each began.
fn run(
    schedule: &mut Schedule,
    limit: usize,
    (from, until): (u64, u64),
    lasts: impl Fn(u64) -> (u64, Standing),
) -> Vec<(u64, u64, bool)> {
    let mut begun = Vec::new();
    let mut ends: BTreeSet<(u64, u64)> = BTreeSet::new();
    for now in from..until {
        while let Some(&(end, key)) = ends.first().filter(|(end, _)| *end <= now) {
            ends.remove(&(end, key));
            schedule.ended(key, lasts(key).1, now);
        }
        while let Some(due) = schedule.next(limit, now) {
            assert!(schedule.running() <= limit);
            begun.push((now, due.key, due.is_late));
            ends.insert((now + lasts(due.key).0, due.key));
        }
    }
    begun
}

#[test]
fn a_new_peer_is_due_at_once_and_then_once_an_interval_at_a_moment_of_its_own() {
    let timing = timing(&["interval=1s", "timeout=200ms"]);
    let mut schedule = Schedule::default();
    let start = 1_000_000;
    set(&mut schedule, fresh(0..200, timing), start);
    assert_eq!(schedule.first(1000), Some(start));
    let begun = run(&mut schedule, 1000, (start, start + 10_500), |_| (10, Standing::Sound));
    assert!(begun[..200].iter().all(|&(at, ..)| at == start));
    for key in 0..200 {
        let times: Vec<u64> = begun.iter().filter(|b| b.1 == key).map(|b| b.0).collect();
        assert!((11..=12).contains(&times.len()), "{key}: {times:?}");
        let gaps = times[1..].windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| (900..=1_100).contains(&gap)), "{times:?}");
        assert!(gaps.max() != gaps_of(&times).min(), "it comes at other times each round");
    }
    // Spread: in no tenth of an interval more than twice its share.
    let second = begun.iter().filter(|b| (start + 5_000..start + 6_000).contains(&b.0));
    let mut tenths = [0; 10];
    second.for_each(|b| tenths[((b.0 - start) % 1_000 / 100) as usize] += 1);
    assert!(tenths.iter().all(|n| (5..=40).contains(n)), "{tenths:?}");
    assert!(begun.iter().all(|&(.., late)| !late));
}

fn gaps_of(times: &[u64]) -> impl Iterator<Item = u64> + Clone {
    times[1..].windows(2).map(|pair| pair[1] - pair[0])
}

#[test]
fn who_takes_over_keeps_to_the_moments() {
    let timing = timing(&["interval=1s", "timeout=200ms"]);
    let start = 1_000_000;
    let mut whole = Schedule::default();
    set(&mut whole, fresh(0..50, timing), start);
    let all = run(&mut whole, 100, (start, start + 9_000), |_| (10, Standing::Sound));

    let mut first = Schedule::default();
    set(&mut first, fresh(0..50, timing), start);
    let mut parts = run(&mut first, 100, (start, start + 4_321), |_| (10, Standing::Sound));
    let mut second = Schedule::default();
    let known = (0..50).map(|key| {
        let began = parts.iter().rev().find(|b| b.1 == key).map(|b| b.0);
        Probed { key, timing, began, standing: Standing::Sound }
    });
    set(&mut second, known.collect::<Vec<_>>(), start + 4_321);
    parts.extend(run(&mut second, 100, (start + 4_321, start + 9_000), |_| (10, Standing::Sound)));
    assert_eq!(parts, all);
}

#[test]
fn a_dead_rack_does_not_delay_the_living() {
    let timing = timing(&["interval=1s", "timeout=1s", "jitter=0%"]);
    let start = 1_000_000;
    let mut schedule = Schedule::default();
    // 40 die, 200 live; 64 probes may run, so that the dead alone would take 40 of them all the time.
    let is_dead = |key: u64| key < 40;
    let known = (0..240).map(|key| Probed {
        key,
        timing,
        began: Some(start - 1),
        standing: if is_dead(key) { Standing::Ailing } else { Standing::Sound },
    });
    set(&mut schedule, known.collect::<Vec<_>>(), start);
    let lasts = |key| if is_dead(key) { (1_000, Standing::Ailing) } else { (20, Standing::Sound) };
    let begun = run(&mut schedule, 64, (start, start + 20_000), lasts);
    let living = begun.iter().filter(|b| !is_dead(b.1));
    assert!(living.clone().all(|b| !b.2), "none is late");
    assert!((200 * 19..=200 * 21).contains(&living.count()));
    let dead = begun.iter().filter(|b| is_dead(b.1)).count();
    assert!(dead >= 32 * 18, "half of the room is theirs: {dead}");
}

#[test]
fn a_dead_rack_does_not_delay_the_verdict_on_another() {
    let timing = timing(&["interval=1s", "timeout=1s", "jitter=0%"]);
    let start = 1_000_000;
    let mut schedule = Schedule::default();
    // The dead of the first rack wait for each other: of 64 probes 32 may be theirs.
    let known = (0..220).map(|key| Probed {
        key,
        timing,
        began: Some(start - 1),
        standing: if key < 200 { Standing::Ailing } else { Standing::Sound },
    });
    set(&mut schedule, known.collect::<Vec<_>>(), start);
    let fell = |key| (1_000, if key < 200 { Standing::Ailing } else { Standing::InDoubt });
    let begun = run(&mut schedule, 64, (start, start + 5_000), fell);
    for key in 200..220 {
        let times: Vec<u64> = begun.iter().filter(|b| b.1 == key).map(|b| b.0).collect();
        assert!(times[1] - times[0] <= 1_500, "{key}: {times:?}");
    }
    let dead = begun.iter().filter(|b| b.1 < 200).count();
    assert!(dead >= 32, "who is in doubt comes first, and not alone: {dead}");
}

#[test]
fn peers_come_and_go_while_their_probes_run() {
    let (old, new) = (timing(&[]), timing(&["interval=1s"]));
    let mut schedule = Schedule::default();
    set(&mut schedule, fresh(0..2, old), 0);
    assert!(schedule.next(9, 0).is_some() && schedule.next(9, 0).is_some());
    set(&mut schedule, [], 10);
    assert!(schedule.is_empty());
    assert_eq!(schedule.running(), 2);
    // Back while its probe runs: it is not probed twice at a time.
    set(&mut schedule, fresh(0..1, new), 20);
    assert_eq!(schedule.first(9), None);
    schedule.ended(0, Standing::Sound, 30);
    schedule.ended(1, Standing::Sound, 30);
    schedule.ended(1, Standing::Sound, 30);
    assert_eq!(schedule.running(), 0);
    assert_eq!(schedule.first(9), Some(30), "nobody knows of a probe of this one");
    assert!(schedule.next(9, 30).is_some());
    schedule.ended(0, Standing::Sound, 40);
    let due = schedule.first(9).unwrap();
    assert!(due <= 1_240, "by its new interval: {due}");
    let known = fresh(0..1, new).map(|peer| Probed { began: Some(30), ..peer });
    set(&mut schedule, known, 50);
    assert_eq!(schedule.first(9), Some(due), "what is known stays");
    set(&mut schedule, fresh(0..1, new), 60);
    assert_eq!(schedule.first(9), Some(60), "its check went and came back meanwhile");
}

#[test]
fn parts_are_of_about_one_size() {
    let mut sizes = [0; SHARDS as usize];
    (0..6_400).for_each(|key| sizes[shard(key) as usize] += 1);
    assert!(sizes.iter().all(|n| (60..=140).contains(n)), "{sizes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A peer that dies at any moment is known after `interval × fails + timeout`.
    #[test]
    fn detection_is_bounded(
        key in any::<u64>(),
        interval in 100u64..3_000,
        share in 1u64..=100,
        jitter in 0u8..=50,
        fails in 1u8..5,
        dies in 0u64..6_000,
    ) {
        let timeout = (interval * share / 100).max(1);
        let words = [
            format!("interval={interval}ms"),
            format!("timeout={timeout}ms"),
            format!("jitter={jitter}%"),
            format!("fails={fails}"),
        ];
        let check = Check::parse(&words.each_ref().map(String::as_str)).unwrap();
        let mut schedule = Schedule::default();
        let (start, rules) = (1_000_000, check.thresholds());
        set(&mut schedule, fresh(key..key.wrapping_add(1).max(key + u64::from(key < u64::MAX)), Timing::of(&check)), start);
        prop_assume!(!schedule.is_empty());
        let mut verdict = Verdict::new(1);
        let (mut now, died) = (start, start + dies);
        let known = loop {
            now = now.max(schedule.first(1).unwrap());
            schedule.next(1, now).unwrap();
            if now < died {
                verdict.observe(Ok(()), rules);
            } else {
                now += timeout;
                verdict.observe(Err(crate::check::reason::Reason::Timeout), rules);
            }
            schedule.ended(key, Standing::of(verdict), now);
            if verdict.side() == Side::Unhealthy {
                break now;
            }
        };
        prop_assert!(known - died <= interval * u64::from(fails) + timeout);
    }
}
