//! Rounds that look what ends next, and die over it or meet a writer: no end is forgotten.

mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use peerage_core::body::VerbOpts;
use peerage_core::change::Change;
use peerage_core::check::external::{External, Opinion};
use peerage_core::host::HostVerb;
use peerage_core::server::AdminState;
use peerage_zone::{BatchAttempt, Checks, Op, points};
use support::routes::{patch, ttl};
use support::{World, sel, server, upstream};

type Act = Box<dyn FnOnce()>;

thread_local! {
    /// What happens at a point, after it was passed so often.
    static PLAN: Cell<Option<(&'static str, usize, Act)>> = const { Cell::new(None) };
}

/// One for all tests, which run at the same time: each has a plan of its own.
fn hook(point: &str) {
    match PLAN.take() {
        Some((at, 0, act)) if at == point => act(),
        Some((at, spares, act)) if at == point => PLAN.set(Some((at, spares - 1, act))),
        plan => PLAN.set(plan),
    }
}

/// Does something, and `act` once it is at a point; false where it does not come there.
fn at(
    point: &'static str,
    spares: usize,
    act: impl FnOnce() + 'static,
    doing: impl FnOnce(),
) -> bool {
    points::set(hook);
    PLAN.set(Some((point, spares, Box::new(act))));
    doing();
    PLAN.take().is_none()
}

/// Does something, and dies of it; false where the point is not on its way.
fn dies(point: &'static str, spares: usize, doing: impl FnOnce()) -> bool {
    let dies = || resume_unwind(Box::new(()));
    catch_unwind(AssertUnwindSafe(|| at(point, spares, dies, doing))).is_err()
}

fn down(world: &World, name: &str, addr: &str, ttl: u64) {
    let opts = VerbOpts { ttl: Some(ttl), ..VerbOpts::default() };
    world.ok(name, &Change::Admin { sel: sel(addr), verb: AdminState::Down, opts });
}

fn host_down(world: &World, ip: &str, ttl: u64) {
    let opts = VerbOpts { ttl: Some(ttl), ..VerbOpts::default() };
    let ip = ip.parse().unwrap();
    let verb = HostVerb { ip, verb: AdminState::Down, opts, missing_ok: true };
    let done = world.batch(&[Op::Host(verb)], &Checks::NONE);
    assert!(matches!(done, BatchAttempt::Done(_)), "{done:?}");
}

/// An upstream whose block goes.
fn orphan(world: &World, name: &str) {
    world.ok(name, &Change::Declare(Some(support::file::declared(name, &["10.0.0.2:1"]))));
    let (sel, body) = (sel("10.0.0.9:81"), server("10.0.0.9:81", 1));
    world.ok(name, &Change::PutServer { sel, body });
    world.ok(name, &Change::Declare(None));
}

/// What has an end and is still there: a route, a server's state, a host's, for each of two times.
fn left(world: &World) -> String {
    let mut left = String::new();
    for (n, ip) in [(1, "10.0.0.5"), (2, "10.0.0.6")] {
        let name = upstream(&format!("app-{n}"));
        let app = world.worker.read_wanted(&name).unwrap().0;
        left += if world.look(&format!("tenant-{n}")).is_some() { "r" } else { "" };
        left += if app.servers[0].admin.state == AdminState::Down { "s" } else { "" };
        left += if world.worker.hosts().get(ip.parse().unwrap()).is_some() { "h" } else { "" };
        left += if n == 1 { " " } else { "" };
    }
    left
}

/// Ends at 1,010 s and 1,020 s, of each kind.
fn world() -> World {
    let world = World::new(1 << 20);
    world.fill(10, 3);
    for (n, ms) in [(1, 10_000), (2, 20_000)] {
        let name = format!("app-{n}");
        world.put(&name, &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
        down(&world, &name, "10.0.0.1:81", ms);
        host_down(&world, &format!("10.0.0.{}", 4 + n), ms);
        world.routes(&[patch(&format!("tenant-{n}"), ttl(ms))]);
    }
    assert_eq!(left(&world), "rsh rsh");
    world
}

/// On the way of a round that ends something.
const POINTS: [&str; 11] = [
    "lock.taken",
    "unlock.clean",
    "ends.begun",
    "ends.looked",
    "alloc.marked",
    "journal.written",
    "table.published",
    "batch.committed",
    "route.published",
    "journal.told",
    "limbo.linked",
];

#[test]
fn what_a_round_died_over_ends_by_another_one() {
    let mut died = 0;
    for point in POINTS {
        for spares in 0..9 {
            let mut world = world();
            world.tick(11);
            let round = || drop(world.worker.expire(&world.clock));
            if !dies(point, spares, round) {
                break;
            }
            died += 1;
            let mut other = World::of(world.zone, 2);
            other.clock = world.clock;
            // Whoever sees it first; what a dead one took is quiet for a moment.
            let end = |other: &World| {
                other.rounds();
                other.worker.expire(&other.clock);
            };
            end(&other);
            other.tick(2);
            end(&other);
            assert_eq!(left(&other), " rsh", "{point} {spares}");
            other.tick(6);
            end(&other);
            assert_eq!(left(&other), " rsh", "{point} {spares}");
            other.tick(2);
            end(&other);
            assert_eq!(left(&other), " ", "{point} {spares}");
        }
    }
    println!("died {died} times");
    assert!(died >= 30, "{died}");
}

#[test]
fn an_orphan_that_a_round_died_over_goes_with_another_one() {
    for point in ["ends.begun", "ends.looked", "lock.taken", "journal.written", "table.published"] {
        let mut world = World::new(1 << 20);
        orphan(&world, "first");
        world.tick(10);
        orphan(&world, "second");
        let since = world.clock.msec - 5_000;
        assert!(dies(point, 0, || drop(world.worker.expire_orphans(since, &world.clock))));
        let mut other = World::of(world.zone, 2);
        other.rounds();
        if point != "ends.looked" && point != "table.published" {
            assert_eq!(other.worker.orphans().len(), 2, "{point}");
        }
        other.clock = world.clock;
        other.tick(2);
        other.worker.expire_orphans(since + 2_000, &other.clock);
        let names = |world: &World| world.worker.names(None, 10);
        assert_eq!(names(&other), [upstream("second")], "{point}");
        other.tick(10);
        other.worker.expire_orphans(since + 12_000, &other.clock);
        assert!(names(&other).is_empty(), "{point}");
    }
}

/// What was to end at 1,010 s ends later: a round that looks finds nothing to do.
fn put_off() -> World {
    let mut world = world();
    world.routes(&[patch("tenant-1", ttl(60_000))]);
    down(&world, "app-1", "10.0.0.1:81", 60_000);
    host_down(&world, "10.0.0.5", 60_000);
    world.tick(11);
    world
}

/// A writer on its way, and a round of another process at each step of it; and the other way round.
#[test]
fn an_end_that_comes_while_a_round_looks_is_not_forgotten() {
    let of_route = ["lock.taken", "journal.written", "route.published", "journal.told"];
    let of_server = ["lock.taken", "journal.written", "table.published", "journal.told"];
    for (is_route, points) in [(true, of_route), (false, of_server)] {
        for point in points {
            let mut world = put_off();
            let mut round = World::of(world.zone, 2);
            round.clock = world.clock;
            let looks = move || drop(round.worker.expire(&round.clock));
            assert!(at(point, 0, looks, || comes(&world, is_route)), "{point}");
            is_met(&mut world, is_route, point);
        }
        for point in ["ends.begun", "ends.looked"] {
            for spares in [0, 1] {
                let mut world = put_off();
                let mut writer = World::of(world.zone, 2);
                writer.clock = world.clock;
                let writes = move || comes(&writer, is_route);
                let round = || drop(world.worker.expire(&world.clock));
                assert!(at(point, spares, writes, round), "{point}");
                is_met(&mut world, is_route, point);
            }
        }
    }
}

/// Something that ends at 1,016 s.
fn comes(world: &World, of_route: bool) {
    if of_route {
        world.routes(&[patch("tenant-7", ttl(5_000))]);
    } else {
        down(world, "app-2", "10.0.0.1:82", 5_000);
    }
}

/// It ends when it is to, and nothing else does.
fn is_met(world: &mut World, of_route: bool, point: &str) {
    for (secs, is_over) in [(2, false), (4, true)] {
        world.tick(secs);
        world.worker.expire(&world.clock);
        let app = world.worker.read_wanted(&upstream("app-2")).unwrap().0;
        let over = if of_route {
            world.look("tenant-7").is_none()
        } else {
            app.servers[1].admin.state == AdminState::Up
        };
        assert_eq!(over, is_over, "{point}");
        assert_eq!(left(world), "rsh rsh", "{point}");
    }
}

#[test]
fn a_verdict_over_whose_end_a_round_died_is_told_by_another_one() {
    let mut world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let seen = world.worker.read(&upstream("app"), &world.clock).unwrap();
    for (n, ms) in [(0, 1_000), (1, 9_000)] {
        let said = External::new(Opinion::Unhealthy, Some(ms), world.clock.msec);
        world.worker.opine(&upstream("app"), seen.upstream.servers[n].id, said, &world.clock);
    }
    world.tick(2);
    assert!(dies("ends.looked", 0, || drop(world.worker.relieve(&world.clock))));
    let mut other = World::of(world.zone, 2);
    other.clock = world.clock;
    for (secs, relieved) in [(0, 0), (2, 0), (4, 0), (2, 1), (1, 0)] {
        other.tick(secs);
        assert_eq!(other.worker.relieve(&other.clock).len(), relieved, "{secs}");
    }
}

#[test]
fn one_looks_at_a_time_until_his_time_is_over() {
    let mut world = world();
    world.tick(11);
    let mut other = World::of(world.zone, 2);
    other.clock = world.clock;
    let clock = world.clock;
    let looks = move || {
        other.worker.expire(&other.clock);
        assert!(other.look("tenant-1").is_some(), "the other one is at it");
        other.tick(2);
        other.worker.expire(&other.clock);
        assert!(other.look("tenant-1").is_none(), "it took too long");
    };
    assert!(at("ends.begun", 0, looks, || drop(world.worker.expire(&clock))));
    assert_eq!(left(&world), " rsh");
    // A clock that was set back does not hold it up.
    world.tick(10);
    assert!(dies("ends.begun", 0, || drop(world.worker.expire(&world.clock))));
    let mut back = World::of(world.zone, 3);
    back.clock = world.clock;
    back.clock.msec -= 500_000;
    back.worker.expire(&back.clock);
    world.tick(1);
    world.worker.expire(&world.clock);
    assert_eq!(left(&world), " ");
}
