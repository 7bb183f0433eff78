//! Who owns a server: a source those that it brought, the operator what is wanted of them.

mod support;

use peerage_core::api::error::Code;
use peerage_core::change::Change;
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::server::{AdminState, Origin, Server};
use peerage_core::source::{Sourced, Standing, Stated};
use peerage_core::state::{Facts, State, WhyCode, verdict};
use peerage_core::upstream::{ServerSel, Settings};
use support::{World, addr, app};

const APP: &str = "/v1/upstreams/app";

fn web() -> Origin {
    Origin::Consul("dc1:web".into())
}

fn other() -> Origin {
    Origin::Consul("dc1:other".into())
}

fn says(server: &str, said: Sourced) -> Stated {
    Stated { addr: addr(server), said }
}

fn named(server: &str, weight: u16) -> Stated {
    says(server, Sourced { weight: Some(weight), ..Sourced::default() })
}

impl World {
    /// A source states its servers; tells whether something changed.
    fn source(&mut self, origin: &Origin, servers: &[Stated]) -> bool {
        let followed = vec![web(), other()];
        self.as_source(origin, &Change::Source { servers: servers.to_vec(), followed })
    }

    fn as_source(&mut self, origin: &Origin, change: &Change) -> bool {
        let own = std::mem::replace(&mut self.origin, origin.clone());
        let changed = self.apply(change).expect("a source is not refused");
        self.origin = own;
        changed
    }

    fn of(&self, server: &str) -> &Server {
        let app = self.app.as_ref().expect("it is there");
        app.find(&ServerSel::Addr(addr(server))).expect("it is there")
    }

    fn weight(&self, server: &str) -> u16 {
        self.app.as_ref().unwrap().limits(self.of(server)).weight
    }

    fn why(&self, server: &str) -> (State, Option<WhyCode>, String) {
        let app = self.app.as_ref().unwrap();
        let server = self.of(server);
        let (state, why) = verdict(server, None, &app.limits(server), &Facts::default());
        let text = why.as_ref().map(|why| why.text.clone()).unwrap_or_default();
        (state, why.map(|why| why.code), text)
    }

    fn vanish(&mut self, server: &str) {
        let app = self.app.as_ref().unwrap();
        let rest = app.servers.iter().filter(|s| s.origin == web() && s.addr != addr(server));
        let rest: Vec<Stated> =
            rest.map(|s| Stated { addr: s.addr.clone(), said: s.source.unwrap() }).collect();
        assert!(self.source(&web(), &rest));
    }

    fn reap(&mut self, retire: bool) -> bool {
        let idle = self.app.as_ref().unwrap().servers.iter().map(|s| s.id).collect();
        self.as_source(&web(), &Change::Reap { idle, retire })
    }
}

#[test]
fn a_source_makes_the_upstream_and_equal_content_is_no_change() {
    let mut world = World::new();
    assert!(!world.source(&web(), &[]), "nothing makes nothing");
    let servers = [named("10.0.0.1:80", 9), named("10.0.0.2:80", 1)];
    assert!(world.source(&web(), &servers));
    assert_eq!(world.app.as_ref().unwrap().origin, web());
    assert_eq!((world.weight("10.0.0.1:80"), world.weight("10.0.0.2:80")), (9, 1));
    assert!(!world.source(&web(), &servers));
    let turned = [named("10.0.0.2:80", 1), named("10.0.0.1:80", 9)];
    assert!(!world.source(&web(), &turned), "its order means nothing");
}

#[test]
fn a_server_of_the_api_stays_the_apis() {
    let mut world = World::with(1);
    world.source(&web(), &[named("10.0.0.1:80", 9), named("10.0.0.2:80", 9)]);
    assert_eq!((&world.of("10.0.0.1:80").origin, world.weight("10.0.0.1:80")), (&Origin::Api, 1));
    assert_eq!(world.of("10.0.0.2:80").origin, web());
    world.source(&web(), &[]);
    assert_eq!(world.why("10.0.0.1:80").0, State::Up);
    // And the other way round: a whole that is stated leaves the source's.
    world.call(&format!("PUT {APP}"), r#"{"servers":[]}"#);
    assert_eq!(world.addrs(), ["10.0.0.2:80"]);
}

#[test]
fn rule_9_what_a_source_says_is_its_state() {
    let mut world = World::new();
    let said = Sourced { weight: Some(2), failing: true, ..Sourced::default() };
    let servers = [
        says("10.0.0.1:80", Sourced { standing: Standing::Maintenance, ..said }),
        says("10.0.0.2:80", Sourced { held: true, ..said }),
    ];
    world.source(&web(), &servers);
    let (state, why, text) = world.why("10.0.0.1:80");
    assert_eq!((state, why), (State::Draining, Some(WhyCode::Draining)));
    assert_eq!(text, "in maintenance, says its source");
    let (state, why, text) = world.why("10.0.0.2:80");
    assert_eq!((state, why), (State::Up, Some(WhyCode::Held)));
    assert_eq!(text, "kept though its source dropped it");
}

#[test]
fn rule_13_a_vanished_server_drains_and_goes_when_it_is_idle() {
    let mut world = World::new();
    world.source(&web(), &[named("10.0.0.1:80", 1), named("10.0.0.2:80", 1)]);
    let id = world.of("10.0.0.1:80").id;
    world.vanish("10.0.0.1:80");
    let (state, _, text) = world.why("10.0.0.1:80");
    assert_eq!((state, text.as_str()), (State::Draining, "its source dropped it"));
    assert!(!world.source(&web(), &[named("10.0.0.2:80", 1)]), "once is enough");
    // It comes back before it is idle: the same server.
    world.source(&web(), &[named("10.0.0.1:80", 1), named("10.0.0.2:80", 1)]);
    assert_eq!((world.of("10.0.0.1:80").id, world.why("10.0.0.1:80").0), (id, State::Up));
    assert!(!world.reap(false), "only vanished ones go");
    world.vanish("10.0.0.1:80");
    assert!(world.reap(false));
    assert_eq!(world.addrs(), ["10.0.0.2:80"]);
}

#[test]
fn rule_14_the_operators_wish_outlives_every_answer() {
    let mut world = World::new();
    let both = [named("10.0.0.1:80", 5), named("10.0.0.2:80", 5)];
    world.source(&web(), &both);
    assert!(world.verb("10.0.0.1:80", "down"));
    world.call(&format!("PATCH {APP}/servers/10.0.0.2:80"), r#"{"weight":3,"max_conns":7}"#);
    for other in [7, 3, 9] {
        world.source(&web(), &[named("10.0.0.1:80", other), named("10.0.0.2:80", other)]);
        assert_eq!(world.of("10.0.0.1:80").admin.state, AdminState::Down);
        assert_eq!((world.weight("10.0.0.1:80"), world.weight("10.0.0.2:80")), (other, 3));
    }
    // They vanish, nobody uses them, and still an operator has the say.
    world.source(&web(), &[]);
    assert!(!world.reap(false));
    world.source(&web(), &both);
    assert_eq!(world.of("10.0.0.1:80").admin.state, AdminState::Down);
    assert_eq!(world.weight("10.0.0.2:80"), 3);
    // Taken back, the source's holds again.
    world.call(&format!("PATCH {APP}/servers/10.0.0.2:80"), r#"{"weight":null,"max_conns":null}"#);
    assert_eq!(world.weight("10.0.0.2:80"), 5);
    assert!(world.verb("10.0.0.1:80", "up"));
    world.source(&web(), &[]);
    assert!(world.reap(false));
    assert!(world.addrs().is_empty());
}

#[test]
fn a_listing_fed_back_changes_nothing_of_a_source() {
    let mut world = World::new();
    world.source(&web(), &[named("10.0.0.1:80", 9), named("10.0.0.2:80", 1)]);
    world.vanish("10.0.0.2:80");
    let listing = world.listing();
    assert!(listing.contains(r#""source":{"weight":9,"critical":false,"standing":"named""#));
    assert!(!world.call(&format!("PUT {APP}"), &listing), "{listing}");
    world.call(&format!("PATCH {APP}/servers/10.0.0.1:80"), r#"{"weight":3}"#);
    assert!(world.listing().contains(r#""overridden":["weight"]"#));
}

#[test]
fn a_source_keeps_its_servers_and_a_vanished_one_may_be_deleted() {
    let mut world = World::new();
    world.source(&web(), &[named("10.0.0.1:80", 1), named("10.0.0.2:80", 1)]);
    let delete = format!("DELETE {APP}/servers/10.0.0.1:80");
    assert_eq!(world.try_call(&delete, "").unwrap_err().code, Code::OwnedBySource);
    world.vanish("10.0.0.1:80");
    assert!(world.call(&delete, ""));
}

#[test]
fn a_source_that_is_followed_no_longer_loses_its_servers() {
    let mut world = World::new();
    world.source(&web(), &[named("10.0.0.1:80", 1)]);
    let other = other();
    world.source(&other, &[named("10.0.0.2:80", 1)]);
    world.apply(&Change::Unfollow { followed: vec![other.clone()] }).unwrap();
    assert_eq!(world.why("10.0.0.1:80").0, State::Draining);
    assert_eq!(world.why("10.0.0.2:80").0, State::Up);
    // What vanished of one may be another's.
    world.source(&other, &[named("10.0.0.1:80", 4), named("10.0.0.2:80", 1)]);
    assert_eq!((&world.of("10.0.0.1:80").origin, world.weight("10.0.0.1:80")), (&other, 4));
}

#[test]
fn a_source_takes_over_what_is_left_of_one_that_is_followed_no_longer() {
    let mut world = World::new();
    let left = Origin::Consul("dc1:left".into());
    let stated = vec![named("10.0.0.1:80", 1), named("10.0.0.2:80", 1)];
    world.source(&left, &stated);
    let change = Change::Source { servers: stated[..1].to_vec(), followed: vec![web()] };
    assert!(world.as_source(&web(), &change));
    assert_eq!(world.of("10.0.0.1:80").origin, web());
    assert_eq!(world.of("10.0.0.2:80").origin, left);
    // Of one that is followed as well nothing is taken.
    let change = Change::Source { servers: stated, followed: vec![web(), other()] };
    assert!(!world.as_source(&other(), &change) || world.of("10.0.0.1:80").origin == web());
}

#[test]
fn an_upstream_goes_with_the_service_that_made_it() {
    let mut world = World::new();
    world.source(&web(), &[named("10.0.0.1:80", 1)]);
    assert!(!world.reap(true), "it has a server");
    world.vanish("10.0.0.1:80");
    world.named_by_block = true;
    assert!(world.reap(true));
    assert!(world.app.is_some(), "a block names it");
    world.named_by_block = false;
    assert!(world.reap(true));
    assert!(world.app.is_none());
    let mut api = World::with(0);
    assert!(!api.reap(true), "it is the API's");
}

#[test]
fn what_the_configuration_names_too_outlives_its_source() {
    let mut world = World::new();
    world.source(&web(), &[named("10.0.0.1:80", 9)]);
    let block = DeclaredUpstream {
        name: app(),
        settings: Settings::default(),
        servers: vec![DeclaredServer::new("10.0.0.1:80").unwrap()],
    };
    world.apply(&Change::Declare(Some(block))).unwrap();
    assert_eq!(world.of("10.0.0.1:80").origin, web());
    world.source(&web(), &[]);
    let server = world.of("10.0.0.1:80");
    assert_eq!((&server.origin, server.source), (&Origin::Config, None));
    assert_eq!(world.why("10.0.0.1:80").0, State::Up);
}

#[test]
fn names_are_for_who_can_resolve_them() {
    let mut world = World::new();
    world.source(&web(), &[named("app.internal:80", 1), named("10.0.0.1:80", 1)]);
    assert_eq!(world.addrs(), ["10.0.0.1:80"]);
    world.resolves = true;
    world.source(&web(), &[named("app.internal:80", 1), named("10.0.0.1:80", 1)]);
    assert!(world.of("app.internal:80").resolve);
    assert!(world.resolve("app.internal", &["10.0.0.9"]));
}
