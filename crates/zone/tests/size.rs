//! What a zone needs is known beforehand, and said in docs/directives.md.

mod support;

use std::net::IpAddr;

use peerage_core::body::{Field, LimitsBody, ServerBody, UpstreamBody, VerbOpts};
use peerage_core::change::Change;
use peerage_core::host::Hosts;
use peerage_core::server::AdminState;
use peerage_core::snapshot::Loaded;
use peerage_core::template::Template;
use peerage_core::upstream::Method;
use peerage_zone::{Attempt, Format, Need};
use support::{World, sel, server};

/// The same by a method.
fn by(method: Method, servers: Vec<ServerBody>) -> Change {
    let (method, servers) = (Field::Given(method), Some(servers));
    Change::PutUpstream { body: UpstreamBody { method, servers, ..UpstreamBody::default() } }
}

/// The servers of the upstream of a number.
type Servers = dyn Fn(usize) -> Vec<ServerBody>;

fn change(servers: Vec<ServerBody>) -> Change {
    Change::PutUpstream { body: UpstreamBody { servers: Some(servers), ..UpstreamBody::default() } }
}

/// `n` servers on ports of one address, from weight 1 on.
fn ports(ip: &str, n: usize, weights: u16) -> Vec<ServerBody> {
    (0..n).map(|i| server(&format!("{ip}:{}", 10_000 + i), 1 + i as u16 % weights)).collect()
}

fn texts(hash_key: &str, host: &str, tls_name: &str) -> Change {
    let text = |text: &str| Field::Given(text.to_owned());
    let hash_key = Field::Given(Template::parse(hash_key).expect("a text with variables"));
    let (host, tls_name) = (text(host), text(tls_name));
    Change::PatchUpstream { body: UpstreamBody { hash_key, host, tls_name, ..Default::default() } }
}

fn labelled(mut servers: Vec<ServerBody>, labels: usize, text: usize) -> Vec<ServerBody> {
    for server in &mut servers {
        let label = |i: usize| (format!("label-{i:02}"), Some("x".repeat(text)));
        server.labels = Field::Given((0..labels).map(label).collect());
    }
    servers
}

/// Everything that a zone holds.
fn contents(world: &World) -> Loaded {
    let names = world.worker.names(None, 100_000);
    let read = names.iter().filter_map(|name| world.worker.read_wanted(name));
    Loaded { hosts: world.worker.hosts(), upstreams: read.collect(), ..Loaded::default() }
}

fn need(loaded: &Loaded) -> Need {
    Need::of(loaded.upstreams.iter().map(|(upstream, _)| upstream), &loaded.hosts)
}

#[test]
fn what_is_always_there_is_known_for_every_size() {
    for bytes in [64 << 10, 100 << 10, 1 << 20, 3_333_000 / 4096 * 4096, 40 << 20] {
        let world = World::new(bytes);
        let before = world.zone.report();
        let slot = support::FORMAT.fixed(bytes as u64);
        assert_eq!(before.used, slot, "of {bytes}");
    }
}

#[test]
fn a_zone_that_is_as_large_as_it_says_is_enough_and_one_page_less_is_not() {
    for connections in [1, 512, 4_096] {
        for slots in [1, 10, 66] {
            let format = Format { build: 1, slots, connections };
            let least = format.size_for(0, 4096, &|bytes| bytes) as usize;
            assert!(World::try_new(least, &format).is_ok(), "{least}");
            assert!(World::try_new(least - 4096, &format).is_err(), "{least} less a page");
        }
    }
}

#[test]
fn what_upstreams_take_is_known_to_the_byte() {
    let shapes: [(usize, &Servers); 6] = [
        (300, &|_| ports("10.0.0.1", 1, 1)),
        (40, &|i| ports("10.0.0.1", i, 3)),
        (20, &|i| labelled(ports("[2001:db8::17]", 10, 1), i % 16, 64)),
        (30, &|_| vec![server("unix:/run/services/a-rather-long-name/of.sock", 7)]),
        (3, &|_| ports("10.0.0.1", 700, 9)),
        (100, &|_| Vec::new()),
    ];
    let round_robin = shapes.into_iter().map(|(n, servers)| (Method::RoundRobin, n, servers));
    let others = Method::ALL.into_iter().flat_map(|method| {
        let many: &Servers = &|i| ports("10.0.0.1", 60 + i, 9);
        let few: &Servers = &|i| ports("10.0.0.1", i, 3);
        let equal: &Servers = &|i| ports("10.0.0.1", i, 1);
        [(method, 12, many), (method, 20, few), (method, 20, equal)]
    });
    for (method, n, servers) in round_robin.chain(others) {
        let world = World::new(16 << 20);
        let empty = world.zone.report().used;
        for i in 0..n {
            world.ok(&format!("u{i}"), &by(method, servers(i)));
        }
        settle(&world);
        let (report, need) = (world.zone.report(), need(&contents(&world)));
        assert_eq!(
            (report.used - empty, report.reserve),
            (need.content, need.reserve),
            "{method:?} {n}"
        );
    }
}

#[test]
fn texts_take_what_they_are_long() {
    let world = World::new(8 << 20);
    let of = |i| format!("u{i}");
    for i in 0..100 {
        world.ok(&of(i), &change(ports("10.0.0.1", i, 1)));
    }
    settle(&world);
    let before = world.zone.report().used;
    for i in 0..100 {
        let name = "x".repeat(1 + i % 60);
        world.ok(&of(i), &texts("$uri", "app.internal", &name));
    }
    settle(&world);
    let (report, need) = (world.zone.report(), need(&contents(&world)));
    assert_eq!(report.used - before, (0..100).map(|i| up(8 + 4 + 12 + 1 + i % 60)).sum::<u64>());
    assert_eq!(report.used, support::FORMAT.fixed(8 << 20) + need.content);
    for i in 0..100 {
        let none = || Field::Default;
        let body = UpstreamBody { hash_key: Field::Default, ..UpstreamBody::default() };
        let body = UpstreamBody { host: none(), tls_name: none(), ..body };
        world.ok(&of(i), &Change::PatchUpstream { body });
    }
    settle(&world);
    assert_eq!(world.zone.report().used, before);
}

/// Frees all that was replaced.
fn settle(world: &World) {
    for _ in 0..100 {
        world.worker.sweep(&|_, _| true, &world.clock);
    }
}

fn up(n: u64) -> u64 {
    n.next_multiple_of(32)
}

/// The formula of docs/directives.md.
fn documented(world: &World, size: u64, slots: u64, connections: u64) -> u64 {
    let share = |part: u64, least: u64, most: u64| (size / part).clamp(least, most);
    let fixed = 6_000
        + size / 256
        + slots * (64 + 8 * connections)
        + 8 * (size / 1024)
        + share(32, 8 << 10, 1 << 20)
        + share(16, 0, 4 << 20)
        + share(64, 1 << 10, 64 << 10);
    let mut content = 0;
    for (upstream, _) in contents(world).upstreams {
        let (n, name) = (upstream.servers.len() as u64, upstream.name.as_str().len() as u64);
        content += up(192 + name) + up(18 + name) + 64 + 32 * n;
        let texts: usize = upstream.settings.texts.given().map(|(_, text)| text.len()).sum();
        content += if texts == 0 { 0 } else { up(8 + texts as u64) };
        let weights: Vec<_> = upstream.servers.iter().map(|s| s.params.weight).collect();
        let unequal = weights.iter().any(|w| *w != weights[0]);
        let sum: u64 = weights.iter().map(|w| u64::from(w.unwrap_or(1))).sum();
        let order = match n {
            ..=64 => 0,
            _ if unequal => up(4 * sum.min(4096.max(n))),
            _ => 0,
        };
        let has = match upstream.settings.method() {
            Method::RoundRobin => match n {
                0..2 => 0,
                2..=64 if unequal => up(sum.min(4096)),
                2..=64 => up(n),
                _ => order,
            },
            Method::LeastConn | Method::LeastTimeHeader | Method::LeastTimeLastByte => order,
            Method::HashConsistent => up(8 + 1280 * sum.min(1024)),
            _ if unequal => 8 * n,
            _ => 0,
        };
        content += has;
        for server in &upstream.servers {
            let text = server.addr.to_string();
            let len = text.len() as u64;
            let (address, own) = match text.as_bytes()[0] {
                b'u' => (112, 22 + len),
                b'[' => (32, 44),
                _ => (16, 30),
            };
            let labels = server.params.labels.iter();
            let labels: usize = labels.map(|(key, value)| key.len() + value.len() + 2).sum();
            content += 320 + up(address + len) + up(own + labels as u64);
        }
        let brief = match upstream.settings.method() {
            Method::HashConsistent => has.max(up(8 + 32 * n)),
            Method::Hash | Method::IpHash | Method::Random | Method::RandomTwo => 0,
            _ if n > 64 => up(4 * (n + (4 * n).min(4096).max(n))),
            _ => 0,
        };
        content += 96 + 96 * n + brief + brief.saturating_sub(has);
    }
    fixed + content + 4096
}

#[test]
fn the_documented_formula_is_within_five_percent() {
    let long = "a-service-with-a-name-that-somebody-took-care-to-make-long.eu-central-1.internal";
    let shapes: [(usize, &str, &Servers); 10] = [
        (1_000, "svc-", &|_| ports("10.0.0.1", 1, 1)),
        (1_000, "svc-", &|_| ports("10.11.12.13", 4, 1)),
        (300, long, &|_| ports("10.11.12.13", 10, 1)),
        (300, "svc-", &|_| ports("[2001:db8:1:2:3:4:5:6]", 10, 1)),
        (300, "svc-", &|_| labelled(ports("10.0.0.1", 10, 1), 4, 20)),
        (300, "svc-", &|i| vec![server(&format!("unix:/run/services/{i}/http.sock"), 1)]),
        (100, "svc-", &|_| ports("10.0.0.1", 50, 5)),
        (10, "svc-", &|_| ports("10.0.0.1", 1_000, 7)),
        (100, "svc-", &|_| ports("10.0.0.1", 70, 1)),
        (100, "svc-", &|_| ports("10.0.0.1", 100, 2)),
    ];
    let round_robin = shapes.into_iter().map(|shape| (Method::RoundRobin, shape));
    let ten: &Servers = &|_| ports("10.0.0.1", 10, 4);
    let many: &Servers = &|_| ports("10.0.0.1", 200, 3);
    let others =
        Method::ALL.into_iter().flat_map(|m| [(m, (100, "svc-", ten)), (m, (10, "svc-", many))]);
    for (method, (n, name, servers)) in round_robin.chain(others) {
        let size = 16 << 20;
        let world = World::new(size);
        for i in 0..n {
            world.ok(&format!("{name}{i}"), &by(method, servers(i)));
        }
        settle(&world);
        let report = world.zone.report();
        let real = report.used + report.reserve;
        let said = documented(&world, size as u64, 4, 256);
        println!("{method:?} {n} of {name}: {real} bytes, {said} said");
        assert!(said.abs_diff(real) * 20 <= real, "{n} of {name}: {real} bytes, {said} said");
    }
}

#[test]
fn what_still_fits_is_told() {
    for per in [10, 3] {
        let world = World::new(2 << 20);
        let told = world.zone.report().fits();
        let mut fitted = 0;
        for i in 0.. {
            let servers = ports("10.0.0.10", per, 1);
            match world.change(&format!("service-{i}"), &change(servers)) {
                Attempt::Done { .. } => fitted += per as u64,
                Attempt::NoRoom { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        let off = if per == 10 { 20 } else { 4 };
        assert!(told.abs_diff(fitted) * off <= told, "{told} told, {fitted} of {per} fit");
        assert!(world.zone.report().fits() < 2 * per as u64);
    }
}

#[test]
fn what_fits_is_loaded_and_what_does_not_is_known_beforehand() {
    let mut seen = [0, 0];
    for n in (10..400).step_by(3) {
        let from = World::new(1 << 20);
        for i in 0..n {
            from.ok(&format!("u{i}"), &change(ports("10.0.0.1", i % 7, 1)));
        }
        let loaded = contents(&from);
        let into = World::new(192 << 10);
        let (need, have) = (need(&loaded).bytes(), into.zone.report().free);
        let fits = into.zone.as_master(1).load(&loaded, &from.clock).is_empty();
        assert_eq!(need <= have, fits, "{n} upstreams need {need} of {have}");
        seen[usize::from(fits)] += 1;
        let bytes = support::FORMAT.size_for(need, 4096, &|bytes| bytes);
        let into = World::new(bytes as usize).zone.as_master(1);
        assert!(into.load(&loaded, &from.clock).is_empty(), "{bytes} are said to be enough");
    }
    assert!(seen[0] > 3 && seen[1] > 3, "{seen:?}");
}

#[test]
fn a_change_that_does_not_fit_keeps_no_more_in_reserve_than_before() {
    let world = World::new(256 << 10);
    world.put("app", &ports("10.0.0.1", 10, 1));
    settle(&world);
    let before = world.zone.report();
    let large = change(ports("10.0.0.2", 2_000, 1));
    assert!(matches!(world.change("large", &large), Attempt::NoRoom { need, free } if need > free));
    assert!(matches!(world.change("app", &large), Attempt::NoRoom { need, free } if need > free));
    let after = world.zone.report();
    assert_eq!((after.reserve, after.used), (before.reserve, before.used));
}

#[test]
fn what_was_kept_for_a_large_upstream_comes_back_when_it_goes() {
    let world = World::new(1 << 20);
    world.put("app", &ports("10.0.0.1", 10, 1));
    settle(&world);
    let before = world.zone.report();
    world.put("large", &ports("10.0.0.2", 500, 1));
    assert!(world.zone.report().reserve > before.reserve + 64_000);
    world.ok("large", &change(ports("10.0.0.2", 2, 1)));
    world.ok("large", &Change::DeleteUpstream { force: false });
    settle(&world);
    let after = world.zone.report();
    assert_eq!((after.reserve, after.used), (before.reserve, before.used));
}

#[test]
fn weights_of_a_large_group_never_fail_for_lack_of_room() {
    let world = World::new(512 << 10);
    world.put("large", &ports("10.0.0.1", 100, 1));
    for i in 0.. {
        let put = change(ports("10.0.0.2", 1 + i % 3, 1));
        if matches!(world.change(&format!("u{i}"), &put), Attempt::NoRoom { .. }) {
            break;
        }
    }
    for i in 0..100 {
        let addr = format!("10.0.0.1:{}", 10_000 + i);
        let limits = LimitsBody { weight: Field::Given(1 + i * 600), ..LimitsBody::default() };
        let body = ServerBody { limits, ..ServerBody::default() };
        world.ok("large", &Change::PatchServer { sel: sel(&addr), body });
        let opts = VerbOpts { reason: Some("x".repeat(255)), ..VerbOpts::default() };
        let verb = if i % 2 == 0 { AdminState::Down } else { AdminState::Drain };
        world.ok("large", &Change::Admin { sel: sel(&addr), verb, opts });
    }
}

#[test]
fn weights_of_every_group_never_fail_for_lack_of_room_and_hold() {
    let world = World::new(1 << 20);
    let mut n = 0;
    loop {
        let put = change(ports("10.0.0.1", if n % 50 == 49 { 70 } else { 3 }, 1));
        if matches!(world.change(&format!("u{n}"), &put), Attempt::NoRoom { .. }) {
            break;
        }
        n += 1;
    }
    assert!(n > 200, "{n}");
    // Orders of primes are long.
    for round in [0, 1] {
        for i in 0..n {
            for (port, weight) in [(10_000, 997), (10_001, 499 + round), (10_002, 1)] {
                let limits = LimitsBody { weight: Field::Given(weight), ..LimitsBody::default() };
                let body = ServerBody { limits, ..ServerBody::default() };
                let sel = sel(&format!("10.0.0.1:{port}"));
                world.ok(&format!("u{i}"), &Change::PatchServer { sel, body });
            }
        }
    }
    for i in [0, 1, 100, n / 50 * 50 - 2] {
        let hits = world.hits(&format!("u{i}"), 1_498);
        for (port, share) in [('0', 997), ('1', 500), ('2', 1_usize)] {
            let hits = hits.matches(port).count();
            assert!(hits.abs_diff(share) <= 2, "{hits} of {share} at {port}");
        }
    }
}

#[test]
fn verbs_of_a_host_in_every_upstream_never_fail_for_lack_of_room() {
    let world = World::new(1 << 20);
    for i in 0.. {
        let put = change(ports("10.0.0.1", 1 + i % 3 * 5, 4));
        if matches!(world.change(&format!("u{i}"), &put), Attempt::NoRoom { .. }) {
            assert!(i > 200, "{i}");
            break;
        }
    }
    // The operator has used what is kept for each server.
    let reason = Some("x".repeat(255));
    for (upstream, _) in contents(&world).upstreams {
        for server in &upstream.servers {
            let opts = VerbOpts { reason: reason.clone(), ..VerbOpts::default() };
            let sel = sel(&server.addr.to_string());
            let verb = Change::Admin { sel, verb: AdminState::Drain, opts };
            world.ok(upstream.name.as_str(), &verb);
        }
    }
    let ip: IpAddr = "10.0.0.1".parse().unwrap();
    for verb in [AdminState::Down, AdminState::Up, AdminState::Drain, AdminState::Up] {
        world.host(ip, verb);
    }
}

#[test]
fn hosts_are_counted_too() {
    assert_eq!(Need::of(&[], &Hosts::default()).content, 0);
    let world = World::new(1 << 20);
    world.put("app", &ports("10.0.0.1", 2, 1));
    let before = need(&contents(&world)).content;
    let ip: IpAddr = "10.0.0.1".parse().unwrap();
    world.host(ip, AdminState::Down);
    settle(&world);
    let loaded = contents(&world);
    assert!(need(&loaded).content > before);
    assert_eq!(world.zone.report().used - support::FORMAT.fixed(1 << 20), need(&loaded).content);
}

#[test]
fn verbs_and_weights_of_every_method_never_fail_for_lack_of_room() {
    for method in Method::ALL {
        let world = World::new(1 << 20);
        let mut n = 0;
        loop {
            let servers = if n == 0 { ports("10.0.0.1", 90, 2) } else { ports("10.0.0.1", 4, 2) };
            let put = by(method, servers);
            if matches!(world.change(&format!("u{n}"), &put), Attempt::NoRoom { .. }) {
                break;
            }
            n += 1;
        }
        assert!(n > 20, "{method:?}: {n}");
        for round in 0..3 {
            for i in 0..n {
                let name = format!("u{i}");
                for port in 10_000..10_004 {
                    let addr = format!("10.0.0.1:{port}");
                    let weight = [0, 65_535, 3][(round + port) % 3];
                    let limits =
                        LimitsBody { weight: Field::Given(weight), ..LimitsBody::default() };
                    let body = ServerBody { limits, ..ServerBody::default() };
                    world.ok(&name, &Change::PatchServer { sel: sel(&addr), body });
                    let verb = [AdminState::Down, AdminState::Drain, AdminState::Up][round];
                    world.admin(&name, &addr, verb);
                }
            }
        }
        for i in 0..n {
            assert!(world.hit_by(&format!("u{i}"), "key").starts_with("10.0.0.1:"), "{method:?}");
        }
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        world.host(ip, AdminState::Down);
        world.host(ip, AdminState::Up);
    }
}

#[test]
fn verbs_and_weights_fit_where_free_memory_is_in_pieces() {
    for method in [Method::RoundRobin, Method::HashConsistent, Method::LeastTimeHeader] {
        let world = World::new(2 << 20);
        let large = if method == Method::HashConsistent { 60 } else { 500 };
        world.ok("large", &by(method, ports("10.0.0.1", large, 2)));
        let fill = |name: &str, labels: usize| {
            let fits = |i: &usize| {
                let put = change(labelled(ports("10.0.0.2", 1, 1), labels, 255));
                !matches!(world.change(&format!("{name}{i}"), &put), Attempt::NoRoom { .. })
            };
            (0..).take_while(fits).count()
        };
        let small = fill("small", 0);
        for i in (0..small).step_by(2) {
            world.ok(&format!("small{i}"), &Change::DeleteUpstream { force: false });
        }
        settle(&world);
        // What is free now lies in holes, which are too small for these.
        fill("labelled", 8);
        for port in 10_000..10_020 {
            let addr = format!("10.0.0.1:{port}");
            let verb = Change::Admin {
                sel: sel(&addr),
                verb: AdminState::Down,
                opts: VerbOpts::default(),
            };
            let limits = LimitsBody { weight: Field::Given(60_000), ..LimitsBody::default() };
            let body = ServerBody { limits, ..ServerBody::default() };
            for change in [verb, Change::PatchServer { sel: sel(&addr), body }] {
                let came = world.change("large", &change);
                let Attempt::NoRoom { need, free } = came else { continue };
                panic!("{method:?} {addr}: {need} of {free}, {:?}", world.zone.report());
            }
        }
    }
}
