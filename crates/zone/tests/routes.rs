//! Routes: from keys to apps, by every change, in every size of the table.

mod support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use peerage_core::body::{Field, UpstreamBody};
use peerage_core::change::{Change, ChangeError};
use peerage_core::event;
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::route::change::{RouteBody, RouteChange, RouteError};
use peerage_core::route::{Route, RouteKey, Status};
use peerage_core::snapshot::{Header, Loaded};
use peerage_core::upstream::Upstream;
use peerage_zone::{
    BatchAttempt, Checks, Lead, Need, Op, ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteCursor,
    RouteOp, RouteSum,
};
use proptest::prelude::*;
use support::routes::{delete, key, patch, put, status, to, ttl};
use support::{FORMAT, World, sel, server, upstream};

#[test]
fn a_route_leads_to_its_app_until_it_goes() {
    let world = World::new(1 << 20);
    let empty = world.zone.report();
    world.put("orders", &[server("10.0.0.1:81", 1)]);
    let op =
        RouteOp { key: key("acme"), change: RouteChange::Put { body: to("orders"), force: false } };
    let done = world.routes(std::slice::from_ref(&op));
    assert!(done.changed && done.touched[0].is_created());
    assert_eq!(done.revision, world.zone.revision());
    assert_eq!(world.look("acme"), Some(("orders".into(), Status::Active)));
    assert_eq!([world.look("acm"), world.look("acme2"), world.look("Acme")], [const { None }; 3]);
    // As it is already: no revision.
    let again = world.routes(&[op]);
    assert_eq!((again.revision, again.changed), (done.revision, false));
    world.routes(&[patch("acme", status("suspended"))]);
    assert_eq!(world.look("acme"), Some(("orders".into(), Status::Suspended)));
    world.routes(&[patch("acme", status("moved"))]);
    assert_eq!(world.look("acme").unwrap().1.as_str(), "moved");
    let report = world.zone.report();
    assert_eq!((report.routes, report.apps), (1, 1));
    world.routes(&[delete("acme")]);
    assert_eq!((world.look("acme"), world.zone.report().routes), (None, 0));
    world.ok("orders", &Change::DeleteUpstream { force: false });
    world.rounds();
    assert_eq!(world.zone.report().used, empty.used, "nothing is left behind");
}

#[test]
fn what_a_route_says_is_told_noted_and_read_back() {
    let world = World::new(1 << 20);
    let mut journal = world.zone.journal().now();
    let mut events = world.zone.events().now();
    let body = RouteBody {
        reason: Field::Given("unpaid since june".into()),
        labels: Field::Given(vec![("tier".into(), Some("gold".into()))]),
        end: ttl(60_000).end,
        ..status("trial-ended")
    };
    world.routes(&[put("acme", "orders"), put("globex", "orders"), patch("acme", body)]);
    let route = world.worker.read_route(&key("acme")).unwrap();
    assert_eq!((route.until, route.status.as_str()), (Some(1_060_000), "trial-ended"));
    let entry = journal.next_entry().unwrap().unwrap();
    let text = String::from_utf8(entry.bytes).unwrap();
    assert_eq!(
        text,
        r#"[{"route":{"key":"acme","upstream":"orders","status":"trial-ended","reason":"unpaid since june","until":1060000,"labels":{"tier":"gold"}}},{"route":{"key":"globex","upstream":"orders"}}]"#
    );
    let told = [(); 2].map(|()| events.next_event().unwrap().unwrap());
    assert!(told.iter().all(|said| event::kind(&said.json) == "route"));
    assert!(told.iter().all(|said| said.revision == world.zone.revision()));
    world.routes(&[delete("acme")]);
    assert_eq!(journal.next_entry().unwrap().unwrap().bytes, br#"[{"unroute":"acme"}]"#);
}

#[test]
fn an_unknown_upstream_is_refused_and_nothing_is_done() {
    let world = World::new(1 << 20);
    world.put("orders", &[]);
    let to = |name: &str| RouteOp {
        key: key(name),
        change: RouteChange::Put { body: to(name), force: false },
    };
    let revision = world.zone.revision();
    let RouteAttempt::Refused { op: 1, error } = world.try_routes(&[to("orders"), to("billing")])
    else {
        panic!("refused");
    };
    assert_eq!(error, RouteError::UnknownUpstream(upstream("billing")));
    assert_eq!((world.zone.revision(), world.look("orders")), (revision, None));
    let checks = RouteChecks { dry_run: true, ..RouteChecks::NONE };
    let RouteAttempt::Done(dry) =
        world.worker.put_routes(&[to("orders")], &world.route_env(), &checks)
    else {
        panic!("possible");
    };
    assert!(dry.changed && world.look("orders").is_none());
    let checks = RouteChecks { holds: &|_, now| now.is_some(), ..RouteChecks::NONE };
    let unmet = world.worker.put_routes(&[to("orders")], &world.route_env(), &checks);
    assert!(matches!(unmet, RouteAttempt::Unmet { op: 0, route: None }));
    let checks = RouteChecks { may: &|| false, ..RouteChecks::NONE };
    let may_not = world.worker.put_routes(&[to("orders")], &world.route_env(), &checks);
    assert!(matches!(may_not, RouteAttempt::Busy));
    world.zone.durable().set_lead(Lead::Follows);
    assert!(matches!(world.try_routes(&[to("orders")]), RouteAttempt::NotWriter));
}

#[test]
fn an_upstream_that_routes_name_is_not_removed_by_the_way() {
    let mut world = World::new(1 << 20);
    world.put("orders", &[server("10.0.0.1:81", 1)]);
    world.routes(&[put("acme", "orders"), put("globex", "orders")]);
    assert_eq!(world.worker.routes_of(&upstream("orders")), 2);
    let delete_it = Change::DeleteUpstream { force: false };
    let refused = world.refused("orders", &delete_it);
    assert_eq!(refused, ChangeError::NamedByRoutes { upstream: upstream("orders"), routes: 2 });
    world.routes(&[delete("acme")]);
    world.refused("orders", &delete_it);
    world.ok("orders", &Change::DeleteUpstream { force: true });
    assert_eq!(world.look("globex"), Some(("orders".into(), Status::Active)));
    // One that no block names any more stays as long as it is named here.
    world.ok("orders", &Change::Declare(Some(support::file::declared("orders", &["10.0.0.2:1"]))));
    let (sel, body) = (sel("10.0.0.1:81"), server("10.0.0.1:81", 1));
    world.ok("orders", &Change::PutServer { sel, body });
    world.ok("orders", &Change::Declare(None));
    assert_eq!(world.worker.orphans().len(), 1);
    world.tick(10);
    assert!(world.worker.expire_orphans(world.clock.msec, &world.clock).is_empty());
    assert!(world.worker.expire_orphans(world.clock.msec, &world.clock).is_empty());
    world.routes(&[put("globex", "elsewhere")]);
    let ended = world.worker.expire_orphans(world.clock.msec, &world.clock);
    assert_eq!(ended, [upstream("orders")]);
}

#[test]
fn a_route_and_its_upstream_do_not_pass_each_other() {
    let world = World::new(1 << 20);
    let other = World::of(world.zone, 2);
    // The upstream goes after it was found.
    world.put("orders", &[]);
    let to = |name: &str, app: &str| RouteOp {
        key: key(name),
        change: RouteChange::Put { body: to(app), force: false },
    };
    let holds = |key: &RouteKey, _: Option<&Route>| {
        if key.as_str() == "second" {
            other.change("orders", &Change::DeleteUpstream { force: false });
        }
        true
    };
    let checks = RouteChecks { holds: &holds, ..RouteChecks::NONE };
    world.put("b", &[]);
    let ops = [to("first", "orders"), to("second", "b")];
    let came = world.worker.put_routes(&ops, &world.route_env(), &checks);
    assert!(matches!(came, RouteAttempt::Refused { op: 0, .. }), "{came:?}");
    assert_eq!(world.look("first"), None);
    // A route comes after none was found.
    world.put("orders", &[]);
    let holds = |name: &UpstreamName, _: Option<&Upstream>| {
        if name.as_str() == "b" {
            other.routes(&[put("first", "orders")]);
        }
        true
    };
    let op = |name: &str| Op::Upstream {
        name: upstream(name),
        change: Change::DeleteUpstream { force: false },
    };
    let checks = Checks { holds: &holds, ..Checks::NONE };
    let came = world.batch(&[op("orders"), op("b")], &checks);
    let BatchAttempt::Refused { op: 0, error } = came else { panic!("{came:?}") };
    assert_eq!(error, ChangeError::NamedByRoutes { upstream: upstream("orders"), routes: 1 });
    assert!(world.worker.read_wanted(&upstream("orders")).is_some());
    // Another change of the same route comes first.
    let turns = Cell::new(0);
    let holds = |_: &RouteKey, now: Option<&Route>| {
        turns.set(turns.get() + 1);
        if turns.get() == 1 {
            other.routes(&[patch("first", status("moved"))]);
        }
        now.is_some()
    };
    let checks = RouteChecks { holds: &holds, ..RouteChecks::NONE };
    let labels = Field::Given(vec![("tier".into(), Some("a".into()))]);
    let ops = [patch("first", RouteBody { labels, ..RouteBody::default() })];
    let came = world.worker.put_routes(&ops, &world.route_env(), &checks);
    assert!(matches!(came, RouteAttempt::Done(_)), "{came:?}");
    let route = world.worker.read_route(&key("first")).unwrap();
    assert_eq!((route.status.as_str(), route.labels.len(), turns.get()), ("moved", 1, 2));
}

#[test]
fn a_route_ends_when_its_time_is_over() {
    let mut world = World::new(1 << 20);
    world.fill(300, 5);
    world.routes(&[patch("tenant-7", ttl(15_000)), patch("tenant-8", ttl(40_000))]);
    let mut events = world.zone.events().now();
    world.tick(14);
    world.worker.expire(&world.clock);
    assert!(world.look("tenant-7").is_some());
    world.tick(2);
    world.worker.expire(&world.clock);
    assert_eq!((world.look("tenant-7"), world.look("tenant-8").is_some()), (None, true));
    let said = String::from_utf8(events.next_event().unwrap().unwrap().json).unwrap();
    assert!(said.contains(r#""to":"absent","by":"ttl""#), "{said}");
    world.tick(100);
    world.worker.expire(&world.clock);
    assert_eq!((world.look("tenant-8"), world.zone.report().routes), (None, 298));
}

#[test]
fn pages_are_in_the_order_of_keys_and_may_be_of_one_upstream() {
    let world = World::new(4 << 20);
    world.fill(1_000, 7);
    let all = world.page(None, None, 2_000);
    assert_eq!(all, world.all_routes());
    assert_eq!(all.len(), 1_000);
    let (mut after, mut paged) = (None, Vec::new());
    loop {
        let page = world.page(Some("app-3"), after.as_deref(), 10);
        let Some(last) = page.last() else { break };
        after = Some(last.key.to_string());
        paged.extend(page);
    }
    let of_app: Vec<Route> =
        all.into_iter().filter(|route| route.upstream.as_str() == "app-3").collect();
    assert_eq!(paged, of_app);
    assert!(world.page(Some("nowhere"), None, 10).is_empty());
}

#[test]
fn a_walk_meets_all_that_stays_once_while_the_table_changes_its_size() {
    let world = World::new(8 << 20);
    world.fill(2_000, 7);
    // Grows and shrinks in the middle.
    for sizes in [[2_000, 20_000], [20_000, 2_000]] {
        let (mut cursor, mut met) = (RouteCursor::default(), BTreeMap::new());
        let mut steps = 0;
        loop {
            let (routes, _) = world.worker.walk_routes(&mut cursor, 20);
            if routes.is_empty() {
                break;
            }
            routes.into_iter().for_each(|route| *met.entry(route.key).or_insert(0) += 1);
            steps += 1;
            if steps == 30 {
                let others = 2_000..sizes[0].max(sizes[1]);
                let op = |i: usize| match sizes[0] < sizes[1] {
                    true => put(&format!("tenant-{i}"), "app-0"),
                    false => delete(&format!("tenant-{i}")),
                };
                let ops: Vec<_> = others.map(op).collect();
                ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(world.routes(ops)));
                world.rounds();
            }
        }
        assert!(met.values().all(|&times| times == 1), "{sizes:?}");
        let stay = (0..2_000).filter(|i| met.contains_key(&key(&format!("tenant-{i}")))).count();
        assert_eq!(stay, 2_000, "{sizes:?}");
    }
}

/// What is known of each route by a model that has no table.
type Model = BTreeMap<String, (String, String)>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Status(u8, u8),
    Delete(u8),
    Many(u8, u16),
    Clear,
    Round,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (any::<u8>(), 0..6u8).prop_map(|(key, app)| Step::Put(key, app)),
        3 => (any::<u8>(), 0..3u8).prop_map(|(key, word)| Step::Status(key, word)),
        4 => any::<u8>().prop_map(Step::Delete),
        1 => (0..6u8, 0..600u16).prop_map(|(app, n)| Step::Many(app, n)),
        1 => Just(Step::Clear),
        2 => Just(Step::Round),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_leave_what_a_naive_model_has(steps in prop::collection::vec(step(), 1..60)) {
        let world = World::new(2 << 20);
        let empty = world.zone.report().used;
        let mut model = Model::new();
        let name = |key: u8| format!("{}{key}", "long-".repeat(key as usize % 5 * 5));
        for step in steps {
            match step {
                Step::Put(key, app) => {
                    let app = format!("app-{app}");
                    world.routes(&[put(&name(key), &app)]);
                    model.insert(name(key), (app, "active".into()));
                }
                Step::Status(key, word) => {
                    let word = ["active", "suspended", "moved"][word as usize];
                    let came = world.try_routes(&[patch(&name(key), status(word))]);
                    prop_assert_eq!(
                        matches!(came, RouteAttempt::Done(_)), model.contains_key(&name(key))
                    );
                    if let Some((_, is)) = model.get_mut(&name(key)) {
                        *is = word.into();
                    }
                }
                Step::Delete(key) => {
                    let came = world.try_routes(&[delete(&name(key))]);
                    let was = model.remove(&name(key)).is_some();
                    prop_assert_eq!(matches!(came, RouteAttempt::Done(_)), was);
                }
                Step::Many(app, n) => {
                    let app = format!("app-{app}");
                    let keys: Vec<_> = (0..n).map(|i| format!("m{i}")).collect();
                    let ops: Vec<_> = keys.iter().map(|key| put(key, &app)).collect();
                    ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(world.routes(ops)));
                    model.extend(keys.into_iter().map(|key| (key, (app.clone(), "active".into()))));
                }
                Step::Clear => {
                    let ops: Vec<_> = model.keys().map(|key| delete(key)).collect();
                    ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(world.routes(ops)));
                    model.clear();
                }
                Step::Round => drop(world.worker.sweep(&|_, _| true, &world.clock)),
            }
            for key in (0..=255).step_by(5).map(name) {
                let seen = world.look(&key).map(|(app, is)| (app, is.to_string()));
                prop_assert_eq!(seen.as_ref(), model.get(&key));
            }
        }
        let line = |route: &Route| {
            (route.key.to_string(), (route.upstream.to_string(), route.status.to_string()))
        };
        let all: Model = world.all_routes().iter().map(line).collect();
        prop_assert_eq!(&all, &model);
        let apps: std::collections::BTreeSet<_> = model.values().map(|(app, _)| app).collect();
        for app in &apps {
            let routes = model.values().filter(|(of, _)| of == *app).count() as u64;
            prop_assert_eq!(world.worker.routes_of(&upstream(app)), routes);
        }
        world.rounds();
        let report = world.zone.report();
        prop_assert_eq!((report.routes, report.apps), (model.len() as u64, apps.len() as u64));
        prop_assert_eq!(report.used - empty, report.route_bytes);
        let ops: Vec<_> = model.keys().map(|key| delete(key)).collect();
        ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(world.routes(ops)));
        world.rounds();
        prop_assert_eq!(world.zone.report().used, empty);
    }
}

#[test]
fn whoever_reads_finds_what_is_there_while_others_write() {
    let world = World::new(16 << 20);
    world.fill(500, 10);
    let over = AtomicBool::new(false);
    let (zone, over) = (world.zone, &over);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|i| {
                scope.spawn(move || {
                    let world = World::of(zone, 10 + i);
                    let mut reads = 0;
                    while !over.load(SeqCst) {
                        for i in 0..500 {
                            let (app, status) = world.look(&format!("tenant-{i}")).expect("there");
                            assert_eq!(status, Status::Active);
                            assert!(app == format!("app-{}", i % 10) || app == "moved", "{app}");
                            reads += 1;
                        }
                    }
                    reads
                })
            })
            .collect();
        for round in 0..6 {
            let ops: Vec<_> = (0..6_000)
                .map(|i| match round % 2 {
                    0 => put(&format!("other-{i}"), &format!("app-{}", i % 50)),
                    _ => delete(&format!("other-{i}")),
                })
                .collect();
            for (i, ops) in ops.chunks(ROUTES_AT_ONCE).enumerate() {
                // Memory comes back only as readers let it.
                while !matches!(world.try_routes(ops), RouteAttempt::Done(_)) {}
                let tenant = i * 7 % 500;
                let app = if i % 3 == 0 { "moved".into() } else { format!("app-{}", tenant % 10) };
                while !matches!(
                    world.try_routes(&[put(&format!("tenant-{tenant}"), &app)]),
                    RouteAttempt::Done(_)
                ) {}
            }
            world.rounds();
        }
        over.store(true, SeqCst);
        let reads: usize = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        assert!(reads > 1_000, "{reads}");
    });
}

#[test]
fn what_routes_take_is_known_to_the_byte_and_documented_within_five_percent() {
    let up = |n: usize| n.next_multiple_of(32) as u64;
    let shapes: [(usize, usize, &str); 6] = [
        (100_000, 50, "tenant-"),
        (70_000, 50, "t"),
        (5_000, 5_000, "tenant-"),
        (3_000, 3, "a-tenant-with-a-long-name.eu-central-1.example.internal-"),
        (1, 1, "tenant-"),
        (9, 9, "tenant-"),
    ];
    for (n, apps, name) in shapes {
        let world = World::new(32 << 20);
        let before = world.zone.report();
        let ops: Vec<_> =
            (0..n).map(|i| put(&format!("{name}{i}"), &format!("orders-{}", i % apps))).collect();
        ops.chunks(ROUTES_AT_ONCE).for_each(|ops| drop(world.routes(ops)));
        world.rounds();
        let report = world.zone.report();
        let used = report.used - before.used;
        assert_eq!(report.reserve, before.reserve);
        let need = Need::of(&[], &Hosts::default());
        let all = world.all_routes();
        assert_eq!(used, need.and_routes(&all).content, "{n} of {name}");
        assert_eq!(used, report.route_bytes);
        // The documented one.
        let keys: u64 = all.iter().map(|r| up(16 + r.key.as_str().len().next_multiple_of(8))).sum();
        let names: u64 =
            (0..apps).map(|i| up(16 + format!("orders-{i}").len().next_multiple_of(8))).sum();
        let table = 4 * (n + apps).next_power_of_two().max(8) as u64;
        let said = keys + names + table;
        println!("{n} of {name} to {apps}: {used} bytes, {said} said");
        assert!(said.abs_diff(used) * 20 <= used, "{n} of {name}: {used} bytes, {said} said");
    }
}

#[test]
fn routes_take_half_a_zone_at_most_and_holding_one_needs_no_room() {
    let world = World::new(256 << 10);
    world.put("orders", &[server("10.0.0.1:81", 1)]);
    let reason = Field::Given("x".repeat(255));
    let labels = (0..4).map(|i| (format!("l{i}"), Some("x".repeat(64)))).collect();
    let large = RouteBody { reason, labels: Field::Given(labels), ..RouteBody::default() };
    world.routes(&[put("large", "orders"), patch("large", large)]);
    let mut n = 0;
    let refused = loop {
        let before = (world.zone.report().used, world.zone.revision());
        match world.try_routes(&[put(&format!("tenant-{n}"), "orders")]) {
            RouteAttempt::Done(_) => n += 1,
            RouteAttempt::NoRoom { need, free } => {
                world.rounds();
                assert!(world.zone.report().used <= before.0, "nothing is kept");
                assert_eq!(world.zone.revision(), before.1);
                break (need, free);
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(n > 2_500 && refused.0 > refused.1, "{n} {refused:?}");
    let report = world.zone.report();
    assert!(report.route_bytes <= 128 << 10 && report.route_bytes > 120 << 10, "{report:?}");
    assert_eq!(report.no_room, 1);
    // Upstreams have their half.
    world.put("more", &[server("10.0.0.1:81", 1)]);
    let fill = |i: usize| {
        let body = UpstreamBody { servers: Some(Vec::new()), ..UpstreamBody::default() };
        matches!(
            world.change(&format!("u{i}"), &Change::PutUpstream { body }),
            peerage_zone::Attempt::NoRoom { .. }
        )
    };
    assert!((0..10_000).any(fill));
    let names = || (0..n).map(|i| format!("tenant-{i}")).chain(["large".to_owned()]);
    for word in ["suspended", "active", "suspended"] {
        for name in names() {
            let hold = [patch(&name, status(word))];
            loop {
                match world.try_routes(&hold) {
                    RouteAttempt::Done(_) => break,
                    // What the last one took out of the reserve comes back.
                    RouteAttempt::Busy => drop(world.worker.sweep(&|_, _| true, &world.clock)),
                    other => panic!("{name}: {other:?}"),
                }
            }
        }
    }
    assert!(names().all(|name| world.look(&name).unwrap().1 == Status::Suspended));
    for name in names() {
        world.routes(&[delete(&name)]);
    }
    world.routes(&[put("tenant-1", "orders")]);
}

#[test]
fn a_sum_of_dry_runs_tells_beforehand_what_does_not_fit() {
    let world = World::new(256 << 10);
    let dry = RouteChecks { dry_run: true, ..RouteChecks::NONE };
    let mut seen = [0, 0];
    for n in (1_000..6_000).step_by(500) {
        let world = World::new(256 << 10);
        let ops: Vec<_> =
            (0..n).map(|i| put(&format!("tenant-{i}"), &format!("app-{}", i % 9))).collect();
        let mut sum = RouteSum::default();
        for ops in ops.chunks(ROUTES_AT_ONCE) {
            match world.worker.put_routes(ops, &world.route_env(), &dry) {
                RouteAttempt::Done(done) => sum.add(&world.worker, &done),
                other => panic!("{other:?}"),
            }
        }
        let fits = sum.lacks(&world.worker).is_none();
        let all = ops
            .chunks(ROUTES_AT_ONCE)
            .all(|ops| matches!(world.try_routes(ops), RouteAttempt::Done(_)));
        // A table that would be too large for its half is done without.
        assert!(all || !fits, "{n}");
        seen[usize::from(fits)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    assert_eq!(RouteSum::default().lacks(&world.worker), None);
}

/// What a file has of a zone's routes.
fn loaded(world: &World) -> Loaded {
    let routes = world.all_routes().into_iter().map(|route| (route, 7)).collect();
    let header = Header::new("main", world.zone.revision(), world.zone.next_id(), 0);
    Loaded { header: Some(header), routes, ..Loaded::default() }
}

#[test]
fn a_file_fills_a_zone_and_what_does_not_fit_is_known() {
    let world = World::new(4 << 20);
    world.fill(10_000, 40);
    world.routes(&[patch("tenant-9", status("moved")), patch("tenant-8", ttl(60_000))]);
    let file = loaded(&world);
    let into = World::new(4 << 20);
    assert!(into.zone.as_master(9).load(&file, &into.clock).is_empty());
    assert_eq!(into.all_routes(), world.all_routes());
    assert_eq!(into.zone.revision(), world.zone.revision());
    let need = Need::of(&[], &Hosts::default()).and_routes(file.routes.iter().map(|one| &one.0));
    let used = into.zone.report().used - FORMAT.fixed(4 << 20);
    assert_eq!((used, into.zone.report().route_bytes), (need.content, need.content));
    let mut late = World::of(into.zone, 5);
    late.tick(61);
    late.worker.expire(&late.clock);
    assert_eq!(into.zone.report().routes, 9_999);
    let small = World::new(256 << 10);
    small.zone.as_master(9).load(&file, &small.clock);
    let report = small.zone.report();
    assert!((2_000..4_000).contains(&report.routes), "{report:?}");
    assert!(report.route_bytes <= 128 << 10);
    small.put("app", &[server("10.0.0.1:81", 1)]);
}

#[test]
fn a_zone_of_another_size_takes_routes_over() {
    let old = World::new(4 << 20);
    old.fill(5_000, 40);
    old.routes(&[patch("tenant-9", status("moved"))]);
    let me = (9, 1);
    let (need, _) = old.zone.need(me, &FORMAT, &mut || false).unwrap();
    let bytes = FORMAT.size_for(need.bytes(), 4096, &|bytes| bytes) as usize;
    for bytes in [bytes, 8 << 20] {
        let new = World::new(bytes);
        assert!(old.zone.as_master(9).end(&mut || false));
        assert_eq!(new.zone.as_master(9).inherit(&old.zone, &old.clock).left, []);
        assert_eq!(new.all_routes(), old.all_routes());
        assert_eq!(new.zone.report().routes, 5_000);
        new.routes(&[put("tenant-9", "app-1")]);
        assert!(matches!(old.try_routes(&[put("tenant-9", "app-1")]), RouteAttempt::Busy));
    }
}

#[test]
fn a_follower_becomes_what_the_file_says() {
    let (leader, follower) = (World::new(1 << 20), support::file::follower());
    leader.fill(250, 7);
    follower.zone.durable().set_lead(Lead::Leads);
    follower.fill(300, 3);
    follower.zone.durable().set_lead(Lead::Follows);
    let wanted = leader.all_routes();
    let mut images: Vec<_> = wanted.iter().map(|route| (&route.key, Some(route))).collect();
    let rest = follower.all_routes();
    images.extend(rest.iter().filter_map(|route| {
        let gone = leader.look(route.key.as_str()).is_none();
        gone.then_some((&route.key, None))
    }));
    let adopt = || follower.worker.adopt_routes(&images, 77, &follower.clock, &mut || false);
    let adopted = adopt();
    assert_eq!((adopted.done, adopted.no_room.len()), (images.len(), 0));
    assert_eq!(follower.all_routes(), wanted);
    assert_eq!(adopt().changed, 0, "twice is once");
    let busy = follower.lock.unwrap();
    busy.store(99, SeqCst);
    let first = Route::new(key("tenant-0"), upstream("other"));
    let one = [(&first.key, Some(&first))];
    let adopted = follower.worker.adopt_routes(&one, 78, &follower.clock, &mut || false);
    assert_eq!((adopted.done, adopted.changed), (0, 0));
    busy.store(0, SeqCst);
}
