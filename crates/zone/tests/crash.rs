//! Writers that die at every point of a change: what the journal says then.

mod support;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use peerage_core::body::{Field, UpstreamBody, VerbOpts};
use peerage_core::change::{Actor, Change};
use peerage_core::check::Check;
use peerage_core::check::bar::Bar;
use peerage_core::check::reason::Reason;
use peerage_core::check::verdict::Side;
use peerage_core::host::HostVerb;
use peerage_core::name::UpstreamName;
use peerage_core::route::Route;
use peerage_core::server::{AdminState, Origin};
use peerage_core::upstream::{Defaults, Method, Upstream};
use peerage_zone::journal::Lost;
use peerage_zone::{
    Adoptee, BatchAttempt, Checks, Env, Lead, Need, Op, ROUTES_AT_ONCE, Sought, Zone, points,
};
use support::{World, routes, server, upstream};

thread_local! {
    static RESIGNS: Cell<Option<Zone>> = const { Cell::new(None) };
    static DIES_AT: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// How often the point is passed before.
    static SPARES: Cell<usize> = const { Cell::new(0) };
}

/// A panic inside is a death.
fn hook(point: &str) {
    if point == "journal.told"
        && let Some(zone) = RESIGNS.take()
    {
        zone.durable().set_lead(Lead::Waiting);
    }
    if DIES_AT.get() == Some(point) {
        let spares = SPARES.get();
        if spares > 0 {
            SPARES.set(spares - 1);
            return;
        }
        DIES_AT.set(None);
        resume_unwind(Box::new(()));
    }
}

/// Does something, and dies of it; false where the point is not on its way.
fn dies(point: &'static str, act: impl FnOnce()) -> bool {
    points::set(hook);
    DIES_AT.set(Some(point));
    let died = catch_unwind(AssertUnwindSafe(act)).is_err();
    DIES_AT.set(None);
    SPARES.set(0);
    died
}

/// Of the routes' table alone.
const ROUTE_POINTS: [&str; 6] = [
    "apps.linked",
    "route.published",
    "routes.published",
    "routes.begun",
    "routes.moved",
    "routes.switched",
];

const POINTS: [&str; 14] = [
    "lock.taken",
    "alloc.marked",
    "alloc.counted",
    "journal.written",
    "table.published",
    "upstream.ended",
    "upstream.unlinked",
    "batch.pending",
    "batch.committed",
    "journal.in_force",
    "journal.told",
    "limbo.filled",
    "limbo.linked",
    "unlock.clean",
];

fn put(name: &str, addr: &str) -> Op {
    let servers = Some(vec![server(addr, 1)]);
    let host = Field::Given("host.".repeat(40) + name);
    let body = UpstreamBody { servers, host, ..UpstreamBody::default() };
    Op::Upstream { name: upstream(name), change: Change::PutUpstream { body } }
}

fn delete(name: &str) -> Op {
    Op::Upstream { name: upstream(name), change: Change::DeleteUpstream { force: false } }
}

fn down(ip: &str) -> Op {
    let verb = AdminState::Down;
    let (ip, opts) = (ip.parse().unwrap(), VerbOpts::default());
    Op::Host(HostVerb { ip, verb, opts, missing_ok: true })
}

fn batch(world: &World, ops: &[Op]) -> BatchAttempt {
    let env = Env {
        clock: &world.clock,
        actor: Actor::new("test", "127.0.0.1"),
        origin: Origin::Api,
        named: &|_| false,
        keyed: Defaults::default(),
        resolves: true,
    };
    world.worker.batch(ops, &env, &Checks::NONE)
}

fn world() -> World {
    let world = World::new(256 << 10);
    world.put("app", &[server("10.0.0.1:81", 1)]);
    world.put("old", &[server("10.0.0.2:82", 1)]);
    world
}

#[test]
fn a_change_that_comes_after_its_leader_resigned_is_not_confirmed() {
    let world = world();
    points::set(hook);
    world.zone.durable().set_lead(Lead::Leads);
    RESIGNS.set(Some(world.zone));
    assert!(matches!(batch(&world, &[delete("old")]), BatchAttempt::Busy));
    assert_eq!(world.zone.revision(), 3, "it was stopped, and is in force here");
    world.zone.durable().set_lead(Lead::Leads);
    assert!(matches!(batch(&world, &[delete("app")]), BatchAttempt::Done(_)));
}

type State = Vec<(UpstreamName, Upstream)>;

fn state(world: &World) -> (State, bool) {
    let names = world.worker.names(None, 10);
    let read = |name: UpstreamName| Some((name.clone(), world.worker.read_wanted(&name)?.0));
    (names.into_iter().filter_map(read).collect(), world.worker.hosts().is_empty())
}

#[test]
fn nobody_reads_over_what_a_dead_writer_did() {
    let changes: [Vec<Op>; 5] = [
        vec![put("new", "10.0.0.3:83")],
        vec![put("app", "10.0.0.1:89")],
        vec![delete("old")],
        vec![put("app", "10.0.0.1:88"), put("new", "10.0.0.3:83"), delete("old")],
        vec![down("10.0.0.1")],
    ];
    let mut died = 0;
    for ops in &changes {
        for point in POINTS {
            let world = world();
            let before = state(&world);
            let mut reader = world.zone.journal().now();
            if !dies(point, || drop(batch(&world, ops))) {
                continue;
            }
            died += 1;
            // Before anybody repairs it: what is told is in force.
            match reader.next_entry() {
                Ok(Some(entry)) => {
                    assert_eq!((entry.revision, world.zone.revision()), (3, 3), "{point}");
                    assert_ne!(state(&world), before, "{point}: {ops:?}");
                }
                Ok(None) => {}
                Err(Lost) => panic!("{point}: {ops:?}"),
            }
            let told = reader.last();
            let after = state(&world);
            let repaired = point != "unlock.clean";
            world.put("next", &[server("10.0.0.4:84", 1)]);
            let mut now = state(&world);
            now.0.retain(|(name, _)| name.as_str() != "next");
            assert_eq!(now, after, "{point}: {ops:?}");
            assert_eq!(world.zone.wants_snapshot(), repaired, "{point}: {ops:?}");
            let next = reader.next_entry();
            if repaired {
                assert_eq!(next, Err(Lost), "{point}: {ops:?}");
                assert_eq!(world.zone.journal().after(told).err(), Some(Lost), "{point}");
            } else {
                assert_eq!(next.map(|entry| entry.map(|e| e.revision)), Ok(Some(told + 1)));
            }
            // With a new snapshot all goes on.
            world.zone.clear_snapshot_wish();
            let mut reader = world.zone.journal().now();
            world.put("next", &[server("10.0.0.4:85", 1)]);
            let entry = reader.next_entry().expect("it goes on").expect("it is told");
            assert_eq!(entry.revision, world.zone.revision());
            assert!(!world.zone.wants_snapshot());
        }
    }
    println!("died {died} times");
    assert!(died >= 40, "{died}");
}

#[test]
fn what_dies_while_it_adopts_is_adopted_again() {
    for point in POINTS {
        let (a, b) = (world(), World::new(256 << 10));
        b.put("gap", &[server("10.0.0.9:80", 1)]);
        b.put("app", &[server("10.0.0.1:81", 1)]);
        b.hit("app");
        let (file, revision) = a.worker.read_wanted(&upstream("app")).unwrap();
        batch(&a, &[down("10.0.0.1")]);
        let (app, gap) = (upstream("app"), upstream("gap"));
        let adoptees = [
            Adoptee { name: &app, file: Some(&file), revision, declared: None },
            Adoptee { name: &gap, file: None, revision, declared: None },
        ];
        let adopt = || {
            let hosts = b.worker.adopt_hosts(&a.worker.hosts(), &b.clock, &mut || false);
            assert!(hosts.is_ok());
            let adopted = b.worker.adopt(&adoptees, &b.clock, &mut || false);
            assert_eq!(adopted.done, 2);
        };
        dies(point, adopt);
        adopt();
        assert_eq!(b.worker.read_wanted(&app).unwrap().0, file, "{point}");
        assert!(b.worker.read_wanted(&gap).is_none(), "{point}");
        assert_eq!(b.worker.hosts(), a.worker.hosts(), "{point}");
        assert!(b.pick("app").is_err(), "{point}");
        let live = b.worker.read(&app, &b.clock).unwrap().live;
        assert_eq!(live[0].counters.requests, 1, "{point}");
    }
}

#[test]
fn whoever_knows_what_upstreams_there_are_is_told_of_a_writer_that_died() {
    let mut died = 0;
    let ops = [
        vec![put("new", "10.0.0.3:83")],
        vec![delete("old")],
        vec![put("new", "10.0.0.3:83"), delete("old"), down("10.0.0.1")],
    ];
    for (ops, point) in ops.iter().flat_map(|ops| POINTS.map(|point| (ops, point))) {
        let world = world();
        let are = |world: &World| ["new", "old"].map(|n| world.worker.is_upstream(n.as_bytes()));
        let (before, was) = (world.zone.upstreams().now(), are(&world));
        assert!(before.is_multiple_of(2));
        let old = world.worker.sought(&Sought::new(b"old")).expect("it is there");
        if !dies(point, || drop(batch(&world, ops))) {
            continue;
        }
        died += 1;
        // Also before anybody has repaired it.
        assert!(world.zone.upstreams().now() != before || are(&world) == was, "{point}: {ops:?}");
        let (mid, were) = (world.zone.upstreams().now(), are(&world));
        let other = World::of(world.zone, 2);
        for _ in 0..3 {
            other.worker.sweep(&|pid, _| pid != 1, &other.clock);
        }
        let now = world.zone.upstreams().now();
        assert!(now.is_multiple_of(2), "{point}: {now} is final");
        assert!(now != before || are(&other) == was, "{point}: {ops:?}");
        assert!(!mid.is_multiple_of(2) || now != mid || are(&other) == were, "{point}: {ops:?}");
        // Whatever comes into the memory of one that is gone.
        let stays = other.worker.names(None, 100).len();
        for i in 0..40 {
            assert_eq!(old.lives(), are(&other)[1], "{point}: {ops:?}");
            other.put(&format!("next-{i}"), &[server("10.0.0.4:84", 1)]);
        }
        assert_eq!(other.worker.names(None, 100).len(), stays + 40, "{point}: {ops:?}");
        for i in 0..40 {
            other.ok(&format!("next-{i}"), &Change::DeleteUpstream { force: false });
        }
        assert_eq!(other.worker.names(None, 100).len(), stays, "{point}: {ops:?}");
    }
    println!("died {died} times");
    assert!(died >= 24, "{died}");
}

#[test]
fn a_name_is_met_by_whoever_looks_after_its_writer_died() {
    let mut died = 0;
    let ops = [vec![put("new", "app.test:80")], vec![delete("named")]];
    for (ops, point) in ops.iter().flat_map(|ops| POINTS.map(|point| (ops, point))) {
        let world = world();
        batch(&world, &[put("named", "old.test:80")]);
        let (before, was) = (world.zone.names().generation().now(), names(&world));
        if !dies(point, || drop(batch(&world, ops))) {
            continue;
        }
        died += 1;
        let other = World::of(world.zone, 2);
        for _ in 0..3 {
            other.worker.sweep(&|pid, _| pid != 1, &other.clock);
        }
        let now = world.zone.names().generation().now();
        assert!(now.is_multiple_of(2), "{point}: {now} is final");
        assert!(now != before || names(&other) == was, "{point}: {ops:?}");
    }
    assert!(died >= 16, "{died}");
}

fn names(world: &World) -> usize {
    (0..).map_while(|i| world.worker.named(i)).map(|some| some.len()).sum()
}

/// What a method has beside a table is found again, and counted, whoever died over it.
#[test]
fn a_ring_or_sums_that_a_writer_died_over_are_whole_and_counted() {
    let set = |weight| {
        ["10.0.0.1:81", "10.0.0.1:82", "10.0.0.1:83"].map(|addr| server(addr, weight)).to_vec()
    };
    let mut died = 0;
    for method in [Method::HashConsistent, Method::Hash, Method::RandomTwo] {
        for point in POINTS {
            let world = World::new(256 << 10);
            let mut servers = set(2);
            servers[1].limits.weight = Field::Given(3);
            world.put_by("app", method, &servers);
            // Kept by one change, replaced by the other.
            servers[2].limits.weight = Field::Given(7);
            let acts: [&dyn Fn(); 2] =
                [&|| drop(world.admin("app", "10.0.0.1:81", AdminState::Down)), &|| {
                    world.put_by("app", method, &servers)
                }];
            for act in acts {
                died += usize::from(dies(point, act));
                world.put("next", &[server("10.0.0.4:84", 1)]);
                world.ok("next", &Change::DeleteUpstream { force: false });
            }
            for _ in 0..100 {
                world.worker.sweep(&|_, _| true, &world.clock);
            }
            let (report, app) = (world.zone.report(), state(&world).0);
            let need = Need::of(app.iter().map(|(_, app)| app), &world.worker.hosts());
            let used = report.used - support::FORMAT.fixed(256 << 10);
            assert_eq!((used, report.reserve), (need.content, need.reserve), "{method:?} {point}");
            for key in 0..20 {
                assert!(world.hit_by("app", &format!("key-{key}")).starts_with("10.0.0.1"));
            }
        }
    }
    assert!(died >= 30, "{died}");
}

fn routes_of(world: &World) -> Vec<Route> {
    world.page(None, None, 10_000)
}

/// What a route leads to, by all that there is to look at it.
fn is_sound(world: &World, point: &str) {
    let routes = routes_of(world);
    assert_eq!(routes, world.all_routes(), "{point}");
    for route in &routes {
        let seen = world.look(route.key.as_str()).expect("it is there");
        assert_eq!(seen, (route.upstream.to_string(), route.status.clone()), "{point}");
    }
    let apps: BTreeSet<&str> = routes.iter().map(|route| route.upstream.as_str()).collect();
    for app in &apps {
        let n = routes.iter().filter(|route| route.upstream.as_str() == *app).count();
        assert_eq!(world.worker.routes_of(&upstream(app)), n as u64, "{point}");
    }
    let report = world.zone.report();
    assert_eq!((report.routes, report.apps), (routes.len() as u64, apps.len() as u64), "{point}");
}

/// As many routes as are just not too many for the table, or too few.
#[test]
fn a_route_that_a_writer_died_over_is_in_force_or_not() {
    let names = |from: usize, to: usize| (from..to).map(|i| format!("tenant-{i}"));
    let coming = || names(60, 80).map(|name| routes::put(&name, "new-app")).collect::<Vec<_>>();
    let moving = || names(0, 20).map(|name| routes::put(&name, "app-0")).collect::<Vec<_>>();
    let held = || vec![routes::patch("tenant-3", routes::status("moved"))];
    let going = || names(0, 55).map(|name| routes::delete(&name)).collect::<Vec<_>>();
    let app_goes = || names(0, 60).step_by(7).map(|name| routes::delete(&name)).collect::<Vec<_>>();
    let all_go = || names(0, 60).map(|name| routes::delete(&name)).collect::<Vec<_>>();
    let mut died = 0;
    for ops in [coming(), moving(), held(), going(), app_goes(), all_go()] {
        for point in POINTS.into_iter().chain(ROUTE_POINTS) {
            for times in 0..4 {
                let world = World::new(256 << 10);
                world.fill(60, 7);
                world.rounds();
                let before = routes_of(&world);
                let mut reader = world.zone.journal().now();
                SPARES.set(times);
                if !dies(point, || drop(world.try_routes(&ops))) {
                    break;
                }
                died += 1;
                let told = reader.next_entry().expect("nothing is left out yet");
                let after = routes_of(&world);
                assert!(told.is_none() || after != before, "{point}");
                let last = reader.last();
                let repaired = point != "unlock.clean";
                // The next writer repairs it, and all is as it was seen.
                let other = World::of(world.zone, 2);
                other.rounds();
                assert_eq!(routes_of(&other), after, "{point}");
                is_sound(&other, point);
                if repaired {
                    assert_eq!(world.zone.journal().after(last).err(), Some(Lost), "{point}");
                }
                // Every route is what one of the two sides says.
                for route in &after {
                    let was = before.iter().find(|was| was.key == route.key);
                    let op = ops.iter().find(|op| op.key == route.key);
                    assert!(was == Some(route) || op.is_some(), "{point}: {route:?}");
                }
                // It grows, and goes to the last block.
                other.fill(400, 9);
                other.rounds();
                is_sound(&other, point);
                let keys = routes_of(&other).into_iter();
                let ops: Vec<_> = keys.map(|route| routes::delete(route.key.as_str())).collect();
                ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(other.routes(ops)));
                other.rounds();
                let report = other.zone.report();
                assert_eq!(report.used, support::FORMAT.fixed(256 << 10), "{point} {times}");
            }
        }
    }
    println!("died {died} times");
    assert!(died >= 70, "{died}");
}

#[test]
fn a_table_that_a_writer_died_over_is_moved_anew() {
    let mut died = 0;
    for point in ROUTE_POINTS {
        for times in 0..3 {
            let world = World::new(1 << 20);
            world.fill(1_010, 7);
            world.rounds();
            let grow = || {
                world.fill(1_100, 7);
                world.rounds();
            };
            SPARES.set(times);
            if !dies(point, grow) {
                break;
            }
            died += 1;
            let other = World::of(world.zone, 2);
            other.rounds();
            is_sound(&other, point);
            other.fill(3_000, 7);
            other.rounds();
            is_sound(&other, point);
            let need = Need::of(&[], &other.worker.hosts()).and_routes(&other.all_routes());
            assert_eq!(other.zone.report().route_bytes, need.content, "{point}");
        }
    }
    assert!(died >= 6, "{died}");
}

#[test]
fn a_prober_that_dies_with_its_verdict_is_made_good_by_the_next() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1)]);
    let check = Field::Given(Box::new(Check { fails: 1, ..Check::default() }.said()));
    let change = Change::PatchUpstream { body: UpstreamBody { check, ..UpstreamBody::default() } };
    world.ok("app", &change);
    let of = |n: usize| {
        let all = world.worker.checked_peers(&upstream("app"), |_| true).expect("it has a check");
        (all.peers[n].handle, all.check)
    };
    let (handle, check) = of(1);
    let failed = Err(Reason::Timeout);
    let (prober, clock) = (world.worker(7), world.clock);
    let observe = || assert_eq!(prober.observe(&handle, &check, failed, &clock), None);
    assert!(dies("check.judged", observe));
    assert_eq!(world.worker.verdict(&handle).map(|v| v.side()), Some(Side::Unhealthy));
    let seen = world.worker.observe(&handle, &check, failed, &world.clock).expect("it is there");
    assert_eq!(seen.is, Some(Bar::Failed(Some(Reason::Timeout))));
    assert_eq!(world.hits("app", 3), "111");

    // A check whose author dies before it says so to the peers begins with the first result.
    let check =
        Field::Given(Box::new(Check { port: Some(9), fails: 1, ..Check::default() }.said()));
    let change = Change::PatchUpstream { body: UpstreamBody { check, ..UpstreamBody::default() } };
    let author = world.worker(8);
    let env = Env {
        clock: &world.clock,
        actor: Actor::config(),
        origin: Origin::Api,
        named: &|_| false,
        keyed: Defaults::default(),
        resolves: false,
    };
    assert!(dies("table.published", || drop(author.change(&upstream("app"), &change, &env))));
    world.lock.expect("it is this one's").store(0, std::sync::atomic::Ordering::SeqCst);
    let (handle, check) = of(0);
    let seen = world.worker.observe(&handle, &check, failed, &world.clock).expect("it is there");
    assert_eq!((seen.verdict.run(), seen.verdict.side()), (1, Side::Unhealthy));
}
