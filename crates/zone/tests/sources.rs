//! Servers of a source in the zone: who takes requests, who drains, who goes.

mod support;

use peerage_core::addr::ServerAddr;
use peerage_core::api::model::{self, Form};
use peerage_core::change::{Actor, Change};
use peerage_core::json;
use peerage_core::server::{AdminState, Origin};
use peerage_core::source::{Sourced, Standing, Stated};
use peerage_core::state::{State, WhyCode, verdict};
use peerage_core::upstream::Defaults;
use peerage_zone::{Attempt, Closing, Env, Vanished};
use support::{World, sel, server, upstream};

fn web() -> Origin {
    Origin::Consul("dc1:web".into())
}

fn stated(port: u16, said: Sourced) -> Stated {
    Stated { addr: ServerAddr::parse(&format!("10.0.0.1:{port}")).unwrap(), said }
}

fn named(port: u16) -> Stated {
    stated(port, Sourced { weight: Some(1), ..Sourced::default() })
}

fn failing(port: u16) -> Stated {
    stated(port, Sourced { weight: Some(1), failing: true, ..Sourced::default() })
}

impl World {
    fn as_source(&self, change: &Change) -> (bool, bool) {
        let env = Env {
            clock: &self.clock,
            actor: Actor::new("consul/dc1:web", ""),
            origin: web(),
            named: &|_| false,
            keyed: Defaults::default(),
            resolves: false,
        };
        match self.worker.change(&upstream("app"), change, &env) {
            Attempt::Done { changed, upstream, .. } => (changed, upstream.is_some()),
            other => panic!("{other:?}"),
        }
    }

    fn source(&self, servers: &[Stated]) -> bool {
        self.as_source(&Change::Source { servers: servers.to_vec(), followed: vec![web()] }).0
    }

    fn state(&self, port: u16) -> (State, Option<WhyCode>) {
        let seen = self.worker.read(&upstream("app"), &self.clock).expect("it is there");
        let i = seen.upstream.position(&sel(&format!("10.0.0.1:{port}"))).expect("it is there");
        let server = &seen.upstream.servers[i];
        let limits = seen.upstream.limits(server);
        let (state, why) = verdict(server, None, &limits, &seen.live[i].facts);
        (state, why.map(|why| why.code))
    }

    fn vanished(&self) -> Vanished {
        self.worker.vanished(&upstream("app"), &self.clock)
    }
}

fn count(hits: &str, server: char) -> usize {
    hits.chars().filter(|&c| c == server).count()
}

#[test]
fn a_source_makes_an_upstream_that_takes_requests_by_its_weights() {
    let world = World::new(1 << 20);
    let heavy = stated(81, Sourced { weight: Some(9), ..Sourced::default() });
    let (changed, there) = world.as_source(&Change::Source {
        servers: vec![heavy.clone(), named(82)],
        followed: vec![web()],
    });
    assert!(changed && there);
    let hits = world.hits("app", 100);
    assert_eq!((count(&hits, '1'), count(&hits, '2')), (90, 10), "rule 9: 9 to 1");
    let revision = world.zone.revision();
    assert!(!world.source(&[heavy, named(82)]));
    assert_eq!(world.zone.revision(), revision, "rule 3: equal content is no change");
}

#[test]
fn rule_9_a_critical_server_is_unhealthy_and_well_again() {
    let mut world = World::new(1 << 20);
    world.source(&[named(81), named(82), failing(83)]);
    assert_eq!(world.state(83), (State::Unhealthy, Some(WhyCode::SourceDown)));
    assert_eq!(count(&world.hits("app", 9), '3'), 0, "from its first moment on");
    world.source(&[named(81), failing(82), named(83)]);
    assert_eq!(world.state(82), (State::Unhealthy, Some(WhyCode::SourceDown)));
    assert_eq!(world.state(83), (State::Up, None));
    let hits = world.hits("app", 10);
    assert_eq!((count(&hits, '1'), count(&hits, '3')), (5, 5));
    world.tick(10);
    let seen = world.worker.read(&upstream("app"), &world.clock).unwrap();
    assert_eq!(seen.live[1].counters.downtime, 10_000);
    world.source(&[named(81), named(82), named(83)]);
    assert_eq!(count(&world.hits("app", 9), '2'), 3);
}

#[test]
fn critical_servers_are_used_when_nothing_else_is_left() {
    let world = World::new(1 << 20);
    world.source(&[failing(81), failing(82)]);
    let hits = world.hits("app", 4);
    assert_eq!((count(&hits, '1'), count(&hits, '2')), (2, 2));
    let text = r#"{"check":{"on_all_down":"refuse"}}"#;
    let body = model::upstream_body(&json::parse(text.as_bytes()).unwrap(), Form::Patch).unwrap();
    world.ok("app", &Change::PatchUpstream { body });
    assert!(world.pick("app").is_err());
}

#[test]
fn rule_9_maintenance_drains_and_rule_13_a_vanished_server_drains_and_goes() {
    let mut world = World::new(1 << 20);
    world.source(&[named(81), named(82), named(83)]);
    let (address, request) = world.pick("app").unwrap();
    assert!(address.ends_with("81"));
    let mut closing = Closing::new(&world.worker);
    let every = || (0..20).collect();
    let away = stated(82, Sourced { standing: Standing::Maintenance, ..named(82).said });
    world.source(&[away, named(83)]);
    for port in [81, 82] {
        assert_eq!(world.state(port), (State::Draining, Some(WhyCode::Draining)));
    }
    assert_eq!(world.hits("app", 3), "333");
    let due = closing.look(&world.worker, world.clock.msec, &every);
    assert!(due.has_idle(), "connections that nobody uses are closed, as of any that drains");
    assert!(!due.has_requests());
    world.tick(9);
    assert_eq!(world.vanished(), Vanished { idle: vec![], more: true });
    world.tick(1);
    assert_eq!(world.vanished(), Vanished { idle: vec![], more: true }, "a request is under way");
    world.done(request, false);
    let Vanished { idle, more } = world.vanished();
    assert_eq!((idle.len(), more), (1, false), "maintenance is no farewell");
    world.as_source(&Change::Reap { idle, retire: true });
    let seen = world.worker.read(&upstream("app"), &world.clock).unwrap();
    assert_eq!(seen.upstream.servers.len(), 2);
}

#[test]
fn an_upstream_of_a_service_is_retired_with_it() {
    let mut world = World::new(1 << 20);
    world.source(&[named(81)]);
    assert_eq!(world.worker.followed(), [(upstream("app"), web())]);
    world.source(&[]);
    world.tick(10);
    let idle = world.vanished().idle;
    let (changed, there) = world.as_source(&Change::Reap { idle, retire: true });
    assert!(changed && !there);
    assert_eq!(world.worker.followed(), []);
}

#[test]
fn rule_14_what_an_operator_took_down_stays_down() {
    let mut world = World::new(1 << 20);
    world.source(&[named(81), named(82)]);
    world.admin("app", "10.0.0.1:81", AdminState::Down);
    world.source(&[named(82)]);
    world.tick(60);
    assert_eq!(world.vanished(), Vanished { idle: vec![], more: true });
    world.source(&[named(81), named(82)]);
    assert_eq!(world.state(81), (State::Down, Some(WhyCode::DownBy)));
    assert_eq!(world.hits("app", 2), "22");
}

#[test]
fn the_guard_is_told_who_fails() {
    let world = World::new(1 << 20);
    world.put("app", &[server("10.0.0.1:80", 1)]);
    world.source(&[named(81), failing(82), named(83)]);
    loop {
        let (address, request) = world.pick("app").unwrap();
        let is_bad = address.ends_with("83");
        world.done(request, is_bad);
        if is_bad {
            break;
        }
    }
    let known = world.worker.sourced(&upstream("app"), &web(), &world.clock);
    let known: Vec<(String, bool)> = known.iter().map(|k| (k.addr.to_string(), k.fails)).collect();
    // What its source says itself is no sign of its own.
    let expected = [("10.0.0.1:81", false), ("10.0.0.1:82", false), ("10.0.0.1:83", true)];
    assert_eq!(known, expected.map(|(addr, fails)| (addr.to_owned(), fails)));
}

#[test]
fn what_a_source_says_is_told() {
    let world = World::new(1 << 20);
    world.source(&[named(81), named(82)]);
    world.worker.take_said();
    world.source(&[failing(81), named(82)]);
    let said = world.worker.take_said();
    let json = String::from_utf8(said[0].json.clone()).unwrap();
    assert!(json.contains(r#""kind":"source""#) && json.contains(r#""to":"named critical""#));
}
