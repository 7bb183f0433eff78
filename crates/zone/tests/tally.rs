//! What metrics show of an upstream, piece by piece, beside what a listing shows.

mod support;

use std::net::IpAddr;

use peerage_core::change::Change;
use peerage_core::counters::BUCKETS_MS;
use peerage_core::metrics::UpstreamSample;
use peerage_core::server::AdminState;
use peerage_core::state::{State, eligible};
use peerage_zone::{Extent, Outcome, Tallied};
use support::{World, server, upstream};

/// Reads an upstream whole; something may happen between two pieces.
fn tally(world: &World, name: &str, extent: Extent, between: impl Fn(usize)) -> UpstreamSample {
    let mut tally = world.worker.tally(&upstream(name), extent).expect("there is one");
    for piece in 0.. {
        match world.worker.tally_on(&mut tally, &world.clock) {
            Tallied::More => between(piece),
            Tallied::Whole(sample) => return *sample,
            Tallied::Gone => panic!("it is there"),
        }
    }
    unreachable!("pieces end")
}

fn addr(i: usize) -> String {
    format!("10.0.{}.{}:80", i / 200, i % 200 + 1)
}

#[test]
fn a_sample_is_what_a_listing_shows() {
    let mut world = World::new(1 << 20);
    let servers: Vec<_> = (0..5).map(|i| server(&addr(i), 1 + i as u16)).collect();
    world.put("app", &servers);
    for i in 0..60 {
        let (_, mut choice) = world.pick("app").expect("a peer is open");
        let status = [200, 404, 0, 201, 202, 203, 204, 206, 207, 208, 226][i % 11];
        let failed = status == 0;
        let outcome = Outcome {
            status,
            failed,
            sent: 10,
            received: 100,
            header_ms: Some(3),
            response_ms: i as u64,
        };
        world.worker.done(&mut choice, &outcome, || world.clock);
    }
    world.tick(60);
    world.admin("app", &addr(1), AdminState::Down);
    world.admin("app", &addr(2), AdminState::Drain);
    let ip = "10.0.0.4".parse().expect("an address");
    world.host(ip, AdminState::Down);
    let held = world.pick("app").expect("a peer is open");

    let sample = tally(&world, "app", Extent::Servers, |_| {});
    let seen = world.worker.read(&upstream("app"), &world.clock).expect("there is one");
    let shown = seen.upstream.servers.iter().zip(&seen.live).zip(&seen.hosts);
    let mut takes = 0;
    for (of_metrics, ((server, live), host)) in sample.servers().zip(shown) {
        let (limits, counters) = (seen.upstream.limits(server), &live.counters);
        let host = host.as_ref().map_or(AdminState::Up, |host| host.state);
        takes += u32::from(eligible(server.admin.state.max(host), &limits, &live.facts));
        let is = of_metrics.sample;
        assert_eq!(of_metrics.server, server.addr.to_string());
        assert_eq!((is.weight, is.max_conns), (limits.weight, limits.max_conns));
        assert_eq!((is.requests, is.active), (counters.requests, counters.active));
        assert_eq!((is.sent, is.received), (counters.sent, counters.received));
        assert_eq!((is.fails, is.unavail), (counters.fails, counters.unavail));
        assert_eq!(is.selected, counters.selected);
        for (class, count) in (1..).zip(counters.responses) {
            let of_class = |code: u16| code == class || code / 100 == class;
            let sum: u64 = of_metrics.responses.iter().filter(|r| of_class(r.0)).map(|r| r.1).sum();
            assert_eq!(sum, count, "{of_metrics:?}");
        }
    }
    let states: Vec<State> = sample.servers().map(|server| server.sample.state).collect();
    use State::{Down, Draining, Up};
    assert_eq!(states, [Up, Down, Draining, Down, Up]);
    let since: Vec<_> = sample.servers().map(|server| server.sample.admin_since).collect();
    let now = Some(world.clock.msec);
    assert_eq!(since, [None, now, now, now, None]);
    assert_eq!((sample.eligible, takes), (2, 2));
    assert_eq!(sample.servers().map(|s| s.sample.active).sum::<u64>(), 1);
    let mut classes = sample.servers().flat_map(|s| s.responses.iter().map(|r| r.0));
    assert!(classes.any(|code| code == 2), "more statuses than are counted one by one");
    let answered: u64 = sample.servers().flat_map(|s| s.responses.iter().map(|r| r.1)).sum();
    assert_eq!(sample.times.iter().sum::<u64>(), answered);
    let upto = |ms: u32| BUCKETS_MS.iter().position(|&bound| bound == ms).expect("a bound");
    assert_eq!(sample.times[upto(100) + 1..], [0; 7]);

    let alone = tally(&world, "app", Extent::Upstream, |_| {});
    assert_eq!((alone.eligible, alone.servers().count()), (2, 0));
    assert_eq!((alone.times, alone.times_ms), (sample.times, sample.times_ms));
    world.done(held.1, false);
    let later = tally(&world, "app", Extent::Servers, |_| {});
    assert_eq!(later.servers().map(|s| s.sample.active).sum::<u64>(), 0);
}

#[test]
fn servers_are_met_once_while_the_set_changes() {
    let world = World::new(8 << 20);
    let set = |from: usize, to: usize| {
        let servers: Vec<_> = (from..to).rev().map(|i| server(&addr(i), 1)).collect();
        world.put("app", &servers);
    };
    set(0, 1000);
    for extent in [Extent::Servers, Extent::Upstream] {
        let sample = tally(&world, "app", extent, |piece| set(piece * 5, 1000 + piece * 3));
        let mut names: Vec<&str> = sample.servers().map(|s| s.server).collect();
        let met = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), met, "none twice");
        if extent == Extent::Servers {
            for i in 100..1000 {
                assert!(names.binary_search(&&*addr(i)).is_ok(), "{i}");
            }
        }
        assert!((900..1200).contains(&sample.eligible), "{}", sample.eligible);
        set(0, 1000);
    }
}

#[test]
fn an_address_that_comes_again_as_another_server_is_met_once() {
    let world = World::new(8 << 20);
    let set = |servers: Vec<usize>| {
        let servers: Vec<_> = servers.iter().map(|&i| server(&addr(i), 1)).collect();
        world.put("app", &servers);
    };
    set((0..300).collect());
    // Each piece takes servers that were met out, and puts them in again as new ones.
    let sample = tally(&world, "app", Extent::Servers, |piece| {
        set((piece % 2 + 1..300).collect());
        set((0..300).rev().collect());
    });
    let mut names: Vec<&str> = sample.servers().map(|s| s.server).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((sample.servers().count(), sample.eligible), (names.len(), names.len() as u32));
    assert_eq!(names.len(), 300);
}

#[test]
fn an_upstream_that_goes_is_gone_and_an_empty_one_is_whole() {
    let world = World::new(1 << 20);
    world.put("app", &[]);
    let sample = tally(&world, "app", Extent::Servers, |_| {});
    assert_eq!((sample.eligible, sample.servers().count()), (0, 0));
    let mut begun = world.worker.tally(&upstream("app"), Extent::Servers).expect("there is one");
    world.ok("app", &Change::DeleteUpstream { force: false });
    let on = world.worker.tally_on(&mut begun, &world.clock);
    assert!(matches!(on, Tallied::Gone), "{on:?}");
    assert!(world.worker.tally(&upstream("app"), Extent::Servers).is_none());
}

#[test]
fn a_name_is_one_server_with_the_sum_of_its_peers() {
    let world = World::new(1 << 20);
    world.put("app", &[server("app.test:80", 1), server("10.0.0.9:80", 2)]);
    let of_name = |sample: &UpstreamSample| {
        let server = sample.server(0).expect("two servers");
        assert_eq!((server.server, sample.servers().count()), ("app.test:80", 2));
        *server.sample
    };
    let sample = tally(&world, "app", Extent::Servers, |_| {});
    assert_eq!((of_name(&sample).state, sample.eligible), (State::Unavail, 1));
    let ips: Vec<IpAddr> = (1..=3).map(|i| IpAddr::from([10, 0, 0, i])).collect();
    world.worker.resolve(&upstream("app"), "app.test", &ips, &world.clock);
    world.hits("app", 50);
    for extent in [Extent::Servers, Extent::Upstream] {
        assert_eq!(tally(&world, "app", extent, |_| {}).eligible, 2);
    }
    let sample = tally(&world, "app", Extent::Servers, |_| {});
    let is = of_name(&sample);
    assert_eq!((is.state, is.requests), (State::Up, 30));
    // One of its machines alone does not take it out.
    world.host(ips[0], AdminState::Down);
    let sample = tally(&world, "app", Extent::Servers, |_| {});
    assert_eq!((of_name(&sample).state, sample.eligible), (State::Up, 2));
    ips.iter().for_each(|&ip| drop(world.host(ip, AdminState::Down)));
    let sample = tally(&world, "app", Extent::Servers, |_| {});
    let is = of_name(&sample);
    assert_eq!((is.state, is.admin_since), (State::Down, Some(world.clock.msec)));
    assert_eq!(sample.eligible, 1);
    assert_eq!(tally(&world, "app", Extent::Upstream, |_| {}).eligible, 1);
}
