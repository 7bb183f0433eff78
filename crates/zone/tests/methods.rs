//! Methods other than round robin: what a zone has for them, and what picks make of it.

mod support;

use std::collections::HashMap;

use peerage_core::body::{Field, LimitsBody, ServerBody, UpstreamBody};
use peerage_core::change::Change;
use peerage_core::select::consistent::{self, Share};
use peerage_core::server::AdminState;
use peerage_core::units::Secs;
use peerage_core::upstream::Method;
use peerage_zone::{Choice, Input, Key, NoPeer, Outcome, Pick, Target};
use support::{World, sel, server, text, upstream};

/// `n` servers of weight 1.
fn servers(n: u32) -> Vec<ServerBody> {
    (0..n).map(|i| server(&format!("10.0.{}.{}:80", i / 250, i % 250 + 1), 1)).collect()
}

fn three() -> [ServerBody; 3] {
    [server("10.0.0.1:81", 1), server("10.0.0.1:82", 1), server("10.0.0.1:83", 1)]
}

fn weigh(world: &World, name: &str, addr: &str, weight: u16) {
    let limits = LimitsBody { weight: Field::Given(weight), ..LimitsBody::default() };
    let body = ServerBody { limits, ..ServerBody::default() };
    world.ok(name, &Change::PatchServer { sel: sel(addr), body });
}

fn set_method(world: &World, name: &str, method: Method) {
    let body = UpstreamBody { method: Field::Given(method), ..UpstreamBody::default() };
    world.ok(name, &Change::PatchUpstream { body });
}

/// Where each of so many keys goes.
fn map(world: &World, name: &str, keys: usize) -> Vec<String> {
    (0..keys).map(|key| world.hit_by(name, &format!("key-{key}"))).collect()
}

fn moved(before: &[String], after: &[String]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

#[test]
fn a_method_asks_for_what_it_wants_once_and_does_without_where_that_is_another_s() {
    let world = World::new(1 << 20);
    let wanted = [
        (Method::Hash, Some(Input::Text)),
        (Method::HashConsistent, Some(Input::Text)),
        (Method::IpHash, Some(Input::Address)),
        (Method::Random, None),
        (Method::LeastConn, None),
    ];
    for (method, input) in wanted {
        world.put_by("app", method, &three());
        let mut choice = Choice::new();
        let target = Target::Name(b"app");
        let asked = world.worker.pick_at_length(&mut choice, &target, Key::Unasked, &world.clock);
        match (asked, input) {
            (Pick::Wants(asked), Some(input)) => assert_eq!(asked, input),
            (Pick::Peer(_), None) => world.done(choice, false),
            _ => panic!("{method:?}"),
        }
    }
    // The other key, or none, is left to round robin.
    for key in [Key::Address(&[1, 2, 3]), Key::None, Key::Text(b"")] {
        world.put_by("app", Method::Hash, &three());
        let hits: Vec<_> = (0..3)
            .map(|_| {
                let mut choice = Choice::new();
                let at = world.try_by("app", &mut choice, key);
                world.done(choice, false);
                at.unwrap()
            })
            .collect();
        assert_eq!(hits.iter().collect::<std::collections::HashSet<_>>().len(), 3, "{hits:?}");
    }
    world.put_by("app", Method::Hash, &three()[..1]);
    let mut choice = Choice::new();
    assert!(world.try_by("app", &mut choice, Key::Unasked).is_some(), "one of one is no choice");
    world.done(choice, false);
}

#[test]
fn hash_and_ip_hash_count_closed_servers_so_that_only_their_keys_move_and_come_back() {
    for method in [Method::Hash, Method::HashConsistent] {
        let world = World::new(4 << 20);
        for (name, n) in [("small", 10), ("large", 200)] {
            let mut set = servers(n);
            if n == 200 {
                set[7].limits.weight = Field::Given(5);
            }
            world.put_by(name, method, &set);
            let before = map(&world, name, 2000);
            let gone = "10.0.0.3:80";
            for how in ["down", "drain", "weight", "host"] {
                match how {
                    "down" => drop(world.admin(name, gone, AdminState::Down)),
                    "drain" => drop(world.admin(name, gone, AdminState::Drain)),
                    "host" => drop(world.host([10, 0, 0, 3].into(), AdminState::Down)),
                    // Another weight is another range, or other points: here it has none.
                    _ if method == Method::Hash => continue,
                    _ => weigh(&world, name, gone, 0),
                }
                let after = map(&world, name, 2000);
                for (before, after) in before.iter().zip(&after) {
                    assert!(if before == gone { after != gone } else { after == before }, "{how}");
                }
                world.admin(name, gone, AdminState::Up);
                world.host([10, 0, 0, 3].into(), AdminState::Up);
                weigh(&world, name, gone, 1);
                assert_eq!(map(&world, name, 2000), before, "{how}");
            }
        }
    }
}

#[test]
fn a_server_that_comes_or_goes_moves_about_its_share_of_a_ring() {
    let world = World::new(4 << 20);
    world.put_by("app", Method::HashConsistent, &servers(10));
    let before = map(&world, "app", 10_000);
    let body = server("10.0.9.9:80", 1);
    world.ok("app", &Change::PutServer { sel: sel("10.0.9.9:80"), body });
    let added = map(&world, "app", 10_000);
    assert!((600..1300).contains(&moved(&before, &added)), "{}", moved(&before, &added));
    world.ok("app", &Change::DeleteServer { sel: sel("10.0.9.9:80") });
    assert_eq!(map(&world, "app", 10_000), before);
}

#[test]
fn what_a_method_has_is_kept_where_nothing_changed_that_it_derives_from() {
    let world = World::new(4 << 20);
    let mut set = servers(40);
    set[0].limits.weight = Field::Given(3);
    for method in [Method::HashConsistent, Method::Hash, Method::RandomTwo] {
        world.put_by("app", method, &set);
        world.admin("app", "10.0.0.1:80", AdminState::Down);
        for _ in 0..100 {
            world.worker.sweep(&|_, _| true, &world.clock);
        }
        let used = world.zone.report().used;
        // A reader that does not go on: what is replaced is not freed, and adds up.
        let reader = world.worker(9);
        let held = world.pick("app").unwrap();
        let begun = world.zone.report().used;
        world.admin("app", "10.0.0.2:80", AdminState::Down);
        let taken = world.zone.report().used - begun;
        assert!(taken < 4_000, "{method:?}: {taken} bytes for a table of {used}");
        world.admin("app", "10.0.0.2:80", AdminState::Up);
        world.done(held.1, false);
        assert!(reader.leave());
        world.ok("app", &Change::DeleteUpstream { force: false });
    }
}

#[test]
fn a_large_ring_is_the_one_of_its_texts_and_scaled_beyond_its_limit() {
    let world = World::new(32 << 20);
    let set = servers(1000);
    world.put_by("app", Method::HashConsistent, &set);
    let names: Vec<String> = set.iter().map(|s| s.addr.as_ref().unwrap().to_string()).collect();
    let share = |(i, text): (usize, &'_ String)| (i as u32, text.clone());
    let shares: Vec<(u32, String)> = names.iter().enumerate().map(share).collect();
    let shares: Vec<Share<'_>> =
        shares.iter().map(|(peer, text)| Share { text, peer: *peer, points: 160 }).collect();
    let ring = consistent::ring(&shares);
    for key in 0..500 {
        let key = format!("key-{key}");
        let hash = peerage_core::crc::crc32(key.as_bytes());
        let at = ring.partition_point(|&(place, _)| place < hash) % ring.len();
        assert_eq!(world.hit_by("app", &key), names[ring[at].1 as usize]);
    }
    // Sixty times as heavy, and still of its size; the shares are those of the weights.
    weigh(&world, "app", "10.0.0.1:80", 60_000);
    assert!(world.zone.report().used < 8 << 20);
    let first = map(&world, "app", 2000).iter().filter(|at| *at == "10.0.0.1:80").count();
    assert!(first > 1900, "{first}");
}

#[test]
fn tries_of_a_request_go_on_along_its_sequence_and_end_in_round_robin() {
    let world = World::new(4 << 20);
    for method in [Method::Hash, Method::HashConsistent, Method::IpHash] {
        world.put_by("app", method, &servers(6));
        let key =
            if method == Method::IpHash { Key::Address(&[10, 1, 2]) } else { Key::Text(b"a key") };
        let run = || {
            let mut choice = Choice::new();
            let mut tried = Vec::new();
            while let Some(at) = world.try_by("app", &mut choice, key) {
                tried.push(at);
                let outcome = Outcome { status: 200, ..Outcome::default() };
                world.worker.done(&mut choice, &outcome, || world.clock);
            }
            tried
        };
        let tried = run();
        let mut sorted = tried.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((tried.len(), sorted.len()), (6, 6), "each once: {tried:?}");
        assert_eq!(run()[..3], tried[..3], "{method:?}");
    }
}

#[test]
fn backups_are_not_hashed_and_serve_when_no_primary_can() {
    let world = World::new(1 << 20);
    for method in Method::ALL {
        let mut set = three();
        set[0].backup = Field::Given(true);
        world.put_by("app", method, &set);
        for key in 0..50 {
            assert!(!world.hit_by("app", &format!("{key}")).ends_with("81"));
        }
        world.admin("app", "10.0.0.1:82", AdminState::Down);
        world.admin("app", "10.0.0.1:83", AdminState::Down);
        assert!(world.hit_by("app", "x").ends_with("81"), "{method:?}");
        world.admin("app", "10.0.0.1:81", AdminState::Down);
        assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable));
        world.ok("app", &Change::DeleteUpstream { force: false });
    }
}

#[test]
fn max_conns_holds_with_every_method() {
    let world = World::new(1 << 20);
    for method in Method::ALL {
        let mut set = three();
        for server in &mut set {
            server.limits.max_conns = Field::Given(2);
        }
        world.put_by("app", method, &set);
        let mut choices: Vec<Choice> = (0..7).map(|_| Choice::new()).collect();
        let mut by: HashMap<String, u32> = HashMap::new();
        for choice in &mut choices[..6] {
            let key = match method {
                Method::IpHash => Key::Address(&[10, 0, 0]),
                _ => Key::Text(b"one key"),
            };
            *by.entry(world.try_by("app", choice, key).unwrap()).or_default() += 1;
        }
        assert!(by.len() == 3 && by.values().all(|&n| n == 2), "{method:?}: {by:?}");
        let mut last = choices.pop().unwrap();
        assert!(world.try_by("app", &mut last, Key::Text(b"one key")).is_none());
        choices.into_iter().for_each(|choice| world.done(choice, false));
    }
}

#[test]
fn least_conn_fills_by_weight_and_floods_no_newcomer() {
    let mut world = World::new(1 << 20);
    world.put_by("app", Method::LeastConn, &servers(5));
    let mut held: Vec<_> = (0..50).map(|_| world.pick("app").unwrap()).collect();
    let of =
        |held: &[(String, Choice)], addr: &str| held.iter().filter(|(at, _)| at == addr).count();
    assert_eq!(of(&held, "10.0.0.3:80"), 10);
    let (new, body) = ("10.0.9.9:80", server("10.0.9.9:80", 1));
    world.ok("app", &Change::PutServer { sel: sel(new), body });
    held.extend((0..12).map(|_| world.pick("app").unwrap()));
    assert!((1..=3).contains(&of(&held, new)), "{}", of(&held, new));
    world.tick(5);
    held.extend((0..8).map(|_| world.pick("app").unwrap()));
    assert!((5..8).contains(&of(&held, new)), "half as new: {}", of(&held, new));
    world.tick(6);
    held.extend((0..12).map(|_| world.pick("app").unwrap()));
    assert!(of(&held, new) >= 11, "{}", of(&held, new));
    // One that was down and is up again is a newcomer too.
    let before = of(&held, "10.0.0.1:80");
    world.admin("app", "10.0.0.1:80", AdminState::Down);
    let gone = held.extract_if(.., |(at, _)| at == "10.0.0.1:80");
    gone.for_each(|(_, choice)| world.done(choice, false));
    world.admin("app", "10.0.0.1:80", AdminState::Up);
    held.extend((0..12).map(|_| world.pick("app").unwrap()));
    assert!(before > 9 && of(&held, "10.0.0.1:80") <= 3, "{}", of(&held, "10.0.0.1:80"));
    held.into_iter().for_each(|(_, choice)| world.done(choice, false));
}

#[test]
fn idle_servers_of_a_large_group_take_turns_by_weight() {
    for method in [Method::LeastConn, Method::LeastTimeHeader] {
        let world = World::new(4 << 20);
        let mut set = servers(1000);
        world.put_by("app", method, &set);
        let hits = |world: &World, n: usize| {
            let mut by: HashMap<String, usize> = HashMap::new();
            for _ in 0..n {
                let (at, choice) = world.pick("app").unwrap();
                world.worker.abandon(&mut { choice });
                *by.entry(at).or_default() += 1;
            }
            by
        };
        let by = hits(&world, 3000);
        assert!(by.len() == 1000 && by.values().all(|&n| n == 3), "{method:?}");
        if method == Method::LeastConn {
            set[0].limits.weight = Field::Given(100);
            world.put_by("app", method, &set);
            assert_eq!(hits(&world, 1099 * 2)["10.0.0.1:80"], 200);
        }
    }
}

#[test]
fn least_time_prefers_the_faster_server_and_tries_a_slow_one_again() {
    for (method, header_ms, response_ms) in
        [(Method::LeastTimeHeader, 40, 40), (Method::LeastTimeLastByte, 1, 40)]
    {
        let mut world = World::new(1 << 20);
        world.put_by("app", method, &three());
        let hit = |world: &mut World| {
            let (at, mut choice) = world.pick("app").unwrap();
            let slow = at.ends_with("82");
            let outcome = Outcome {
                status: 200,
                header_ms: Some(if slow { header_ms } else { 1 }),
                response_ms: if slow { response_ms } else { 1 },
                ..Outcome::default()
            };
            world.worker.done(&mut choice, &outcome, || world.clock);
            slow
        };
        let slow = (0..200).filter(|_| hit(&mut world)).count();
        assert_eq!(slow, 1, "{method:?}: once, to know it");
        world.tick(100);
        let slow = (0..200).filter(|_| hit(&mut world)).count();
        assert!((1..5).contains(&slow), "{method:?}: {slow}");
        // Failures say nothing of the time, and what was learnt outlives a change.
        world.ok(
            "app",
            &Change::PutServer { sel: sel("10.0.0.1:84"), body: server("10.0.0.1:84", 1) },
        );
        let slow = (0..100).filter(|_| hit(&mut world)).count();
        assert!(slow < 5, "{slow}");
    }
}

#[test]
fn a_method_changed_at_run_time_is_in_force_at_the_next_pick_of_every_process() {
    let world = World::new(1 << 20);
    let other = World::of(world.zone, 2);
    world.put("app", &three());
    assert_eq!(other.hits("app", 6), "123123");
    for method in Method::ALL.into_iter().chain(Method::ALL.into_iter().rev()) {
        set_method(&world, "app", method);
        let one = world.hit_by("app", "some key");
        for _ in 0..20 {
            let is = other.hit_by("app", "some key") == one;
            assert!(is || !matches!(method, Method::Hash | Method::HashConsistent));
        }
    }
    set_method(&world, "app", Method::RoundRobin);
    let hits = other.hits("app", 9);
    assert!("123".chars().all(|c| hits.matches(c).count() == 3), "{hits}");
    assert_eq!(world.worker.sweep(&|_, _| true, &world.clock).slots, 0);
}

fn slow(addr: &str) -> ServerBody {
    let mut body = server(addr, 1);
    body.limits.slow_start = Field::Given(Secs(30));
    body
}

fn why(world: &World, i: usize) -> Option<String> {
    let seen = world.worker.read(&upstream("app"), &world.clock).unwrap();
    let server = &seen.upstream.servers[i];
    let limits = seen.upstream.limits(server);
    let (_, why) = peerage_core::state::verdict(server, None, &limits, &seen.live[i].facts);
    why.map(|why| why.text)
}

/// The share of one server among so many requests, in hundredths.
fn share(world: &World, addr: &str) -> usize {
    let hits = (0..2000).filter(|_| {
        let (at, choice) = world.pick("app").unwrap();
        world.done(choice, false);
        at == addr
    });
    hits.count() / 20
}

#[test]
fn a_newcomer_ramps_up_over_slow_start_and_then_the_cycle_is_nginx_s_again() {
    for method in [Method::RoundRobin, Method::LeastConn, Method::LeastTimeHeader] {
        let mut world = World::new(1 << 20);
        world.put_by("app", method, &[slow("10.0.0.1:81"), slow("10.0.0.1:82")]);
        assert_eq!(why(&world, 0), None, "the whole set is new");
        assert!((48..=52).contains(&share(&world, "10.0.0.1:81")));
        world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:83"), body: slow("10.0.0.1:83") });
        assert_eq!(why(&world, 2).as_deref(), Some("ramping up over slow_start=30s"));
        assert_eq!(share(&world, "10.0.0.1:83"), 0, "{method:?}");
        world.tick(15);
        let half = share(&world, "10.0.0.1:83");
        assert!((12..22).contains(&half), "{method:?}: {half}");
        world.worker.sweep(&|_, _| true, &world.clock);
        assert!((12..22).contains(&share(&world, "10.0.0.1:83")), "still out of the cycle");
        world.tick(15);
        assert_eq!(why(&world, 2), None);
        assert!((31..=35).contains(&share(&world, "10.0.0.1:83")));
        world.worker.sweep(&|_, _| true, &world.clock);
        if method == Method::RoundRobin {
            let hits = world.hits("app", 30);
            assert!(hits.as_bytes().windows(3).all(|w| w[0] != w[1] && w[1] != w[2]), "{hits}");
        }
    }
}

#[test]
fn a_server_that_comes_back_ramps_up_and_nobody_else_to_serve_is_no_reason_to_fail() {
    let mut world = World::new(1 << 20);
    world.put("app", &[slow("10.0.0.1:81"), slow("10.0.0.1:82")]);
    world.admin("app", "10.0.0.1:81", AdminState::Down);
    world.admin("app", "10.0.0.1:81", AdminState::Up);
    assert_eq!(share(&world, "10.0.0.1:81"), 0);
    world.admin("app", "10.0.0.1:82", AdminState::Down);
    assert_eq!(share(&world, "10.0.0.1:81"), 100, "it is all there is");
    world.admin("app", "10.0.0.1:82", AdminState::Up);
    assert_eq!(world.hits("app", 10).len(), 10, "both ramp up");
    world.tick(60);
    // Barred by failures and back.
    while {
        let (at, choice) = world.pick("app").unwrap();
        let it = at.ends_with("81");
        world.done(choice, it);
        !it
    } {}
    assert_eq!(share(&world, "10.0.0.1:81"), 0);
    world.tick(11);
    assert!(share(&world, "10.0.0.1:81") < 2, "its probe, and then it begins anew");
    assert_eq!(why(&world, 0).as_deref(), Some("ramping up over slow_start=30s"));
    world.tick(15);
    assert!((15..35).contains(&share(&world, "10.0.0.1:81")));
}

#[test]
fn where_keys_or_chance_decide_nobody_ramps_up() {
    for method in [Method::Random, Method::Hash, Method::HashConsistent, Method::IpHash] {
        let world = World::new(1 << 20);
        world.put_by("app", method, &[slow("10.0.0.1:81"), slow("10.0.0.1:82")]);
        world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:83"), body: slow("10.0.0.1:83") });
        assert_eq!(why(&world, 2), None);
        let keys = map(&world, "app", 300);
        assert!(keys.iter().any(|at| at.ends_with("83")), "{method:?}");
    }
}

#[test]
fn a_set_replaced_as_a_whole_does_not_ramp_up() {
    let world = World::new(1 << 20);
    world.put("app", &[slow("10.0.0.1:81")]);
    world.put("app", &[slow("10.0.0.1:82"), slow("10.0.0.1:83")]);
    assert_eq!((why(&world, 0), why(&world, 1)), (None, None));
    let (address, choice) = world.pick("app").unwrap();
    world.done(choice, false);
    assert!(!address.is_empty());
    let picked = world.worker.pick(&mut Choice::new(), &Target::Name(b"app"), &world.clock);
    assert!(!text(&picked.unwrap().address).is_empty());
}

#[test]
fn a_clock_that_is_set_back_ends_ramps_and_hinders_no_later_one() {
    let mut world = World::new(1 << 20);
    world.put("app", &[slow("10.0.0.1:81"), slow("10.0.0.1:82")]);
    world.tick(200_000);
    world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:83"), body: slow("10.0.0.1:83") });
    assert_eq!(share(&world, "10.0.0.1:83"), 0);
    (world.clock.secs, world.clock.msec) =
        (world.clock.secs - 86_400, world.clock.msec - 86_400_000);
    assert!((31..=35).contains(&share(&world, "10.0.0.1:83")));
    world.worker.sweep(&|_, _| true, &world.clock);
    let (mut choice, target) = (Choice::new(), Target::Name(b"app"));
    let in_turn = world.worker.pick_in_turn(&mut choice, &target, || world.clock);
    assert!(in_turn.is_some(), "the cycle holds again");
    world.done(choice, false);
    world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:84"), body: slow("10.0.0.1:84") });
    assert_eq!(share(&world, "10.0.0.1:84"), 0);
}
