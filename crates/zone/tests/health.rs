//! Peers that their health bars: by probes, by an outside checker, by errors of their requests.

mod support;

use peerage_core::api::model::{self, Form};
use peerage_core::body::{Field, ServerBody, UpstreamBody};
use peerage_core::change::Change;
use peerage_core::check::Check;
use peerage_core::check::bar::Bar;
use peerage_core::check::external::{External, Opinion};
use peerage_core::check::peer::PeerHealth;
use peerage_core::check::reason::Reason;
use peerage_core::check::verdict::{Outcome, Side};
use peerage_core::event::Event;
use peerage_core::json;
use peerage_core::server::AdminState;
use peerage_core::state::{State, WhyCode, verdict};
use peerage_core::upstream::Method;
use peerage_zone::{
    CheckedUpstream, Handle, NoPeer, Observed, Opined, Region, Relieved, SeenPeer, Zone,
};
use support::{FORMAT, World, sel, server, upstream};

const FAILED: Outcome = Err(Reason::Status(503));

fn patch(text: &str) -> Change {
    let value = json::parse(text.as_bytes()).unwrap();
    Change::PatchUpstream { body: model::upstream_body(&value, Form::Patch).unwrap() }
}

fn three() -> Vec<ServerBody> {
    [81, 82, 83].map(|port| server(&format!("10.0.0.1:{port}"), 1)).to_vec()
}

/// "app" with three servers and a check.
fn world(check: &str) -> World {
    let world = World::new(1 << 20);
    world.put("app", &three());
    world.ok("app", &patch(&format!(r#"{{"check":{check}}}"#)));
    world
}

fn checked_upstreams(world: &World) -> Vec<CheckedUpstream> {
    (0..).map_while(|bucket| world.worker.checked_upstreams(bucket)).flatten().collect()
}

impl World {
    fn handle(&self, port: u16) -> (Handle, Check) {
        let all = self.worker.checked_peers(&upstream("app"), |_| true).expect("it has a check");
        let ends = format!(":{port}");
        let peer = all.peers.iter().find(|peer| peer.address.ends_with(&ends));
        (peer.expect("there is such a peer").handle, all.check)
    }

    fn observe(&self, port: u16, outcome: Outcome) -> Observed {
        let (handle, check) = self.handle(port);
        self.worker.observe(&handle, &check, outcome, &self.clock).expect("it is there")
    }

    fn fail(&self, port: u16) {
        self.observe(port, FAILED);
        self.observe(port, FAILED);
    }

    fn state(&self, port: u16) -> (State, Option<WhyCode>) {
        let seen = self.worker.read(&upstream("app"), &self.clock).expect("it is there");
        let at = sel(&format!("10.0.0.1:{port}"));
        let i = seen.upstream.position(&at).expect("it has this server");
        let server = &seen.upstream.servers[i];
        let limits = seen.upstream.limits(server);
        let (state, why) = verdict(server, None, &limits, &seen.live[i].facts);
        (state, why.map(|why| why.code))
    }

    fn peer(&self, port: u16) -> SeenPeer {
        let mut cursor = peerage_zone::PeerCursor::default();
        let page = self.worker.peers(&upstream("app"), &mut cursor, 99, &self.clock).unwrap();
        let addr = format!("10.0.0.1:{port}");
        page.peers.into_iter().find(|peer| peer.server.addr.to_string() == addr).unwrap()
    }

    fn opine(&self, port: u16, opinion: Opinion, ttl: Option<u64>) -> Option<Bar> {
        self.opined(port, opinion, ttl).is
    }

    fn opined(&self, port: u16, opinion: Opinion, ttl: Option<u64>) -> Opined {
        let id = self.peer(port).server.id;
        let said = External::new(opinion, ttl, self.clock.msec);
        self.worker.opine(&upstream("app"), id, said, &self.clock).expect("it is there")
    }

    fn diagnosis(&self, port: u16) -> PeerHealth {
        let id = self.peer(port).server.id;
        let mut peers = self.worker.diagnose(&upstream("app"), id, &self.clock);
        assert_eq!(peers.len(), 1);
        peers.remove(0)
    }

    /// Requests that err, until the peer at this port had one.
    fn err(&self, port: u16) -> bool {
        let mut others = Vec::new();
        let ends = format!(":{port}");
        loop {
            let (address, mut choice) = self.pick("app").expect("a peer is open");
            if address.ends_with(&ends) {
                let outcome = peerage_zone::Outcome { status: 503, ..Default::default() };
                let done = self.worker.done(&mut choice, &outcome, || self.clock);
                others.into_iter().for_each(|choice| self.worker.abandon_all(choice));
                return done.ejected;
            }
            others.push(choice);
        }
    }
}

/// Gives back what was only held.
trait Abandon {
    fn abandon_all(&self, choice: peerage_zone::Choice);
}

impl Abandon for peerage_zone::Worker {
    fn abandon_all(&self, mut choice: peerage_zone::Choice) {
        self.abandon(&mut choice);
    }
}

fn count(hits: &str, port: char) -> usize {
    hits.chars().filter(|&c| c == port).count()
}

#[test]
fn a_peer_that_fails_takes_no_new_request_from_the_next_choice_on_and_comes_back() {
    for method in Method::ALL {
        let world = World::new(1 << 20);
        world.put_by("app", method, &three());
        world.ok("app", &patch(r#"{"check":{"passes":1}}"#));
        let hits = |n: usize| -> String {
            (0..n).map(|i| world.hit_by("app", &format!("key {i}"))).collect()
        };
        let before = hits(60);
        assert!(count(&before, '2') > 0, "{method:?}: {before}");
        assert_eq!(world.observe(82, FAILED).turn, None);
        assert!(count(&hits(60), '2') > 0, "{method:?}: one failure is not enough");
        let turn = world.observe(82, FAILED).turn.expect("it turned");
        assert_eq!((turn.from, turn.to), (Side::Unknown, Side::Unhealthy));
        let without = hits(60);
        assert_eq!(count(&without, '2'), 0, "{method:?}");
        assert!(count(&without, '1') > 0 && count(&without, '3') > 0, "{method:?}: {without}");
        assert_eq!(world.state(82), (State::Unhealthy, Some(WhyCode::CheckFailed)));
        world.observe(82, Ok(()));
        assert_eq!(world.state(82), (State::Up, None));
        assert!(count(&hits(60), '2') > 0, "{method:?}: it is back");
    }
}

#[test]
fn the_cycle_is_left_with_a_verdict_and_held_again_when_all_are_well() {
    let mut world = world(r#"{"passes":1}"#);
    assert_eq!(world.hits("app", 6), "123123");
    world.fail(82);
    assert_eq!(world.hits("app", 6), "131313");
    world.observe(82, Ok(()));
    let back = world.hits("app", 30);
    assert!((9..=11).contains(&count(&back, '2')), "{back}");
    world.tick(30);
    world.worker.sweep(&|_, _| true, &world.clock);
    let even = world.hits("app", 30);
    assert!("123123123123".contains(&even[..6]), "{even}");
}

#[test]
fn results_are_counted_and_shown() {
    let world = world("{}");
    let none = world.peer(81).live.counters.health_checks;
    assert_eq!((none.checks, none.last_passed), (0, None));
    world.observe(81, Ok(()));
    world.fail(81);
    world.observe(81, Ok(()));
    let shown = world.peer(81).live.counters.health_checks;
    assert_eq!((shown.checks, shown.fails, shown.unhealthy), (4, 2, 1));
    assert_eq!(shown.last_passed, Some(true));
    assert_eq!(world.peer(82).live.counters.health_checks.checks, 0);
    assert!(world.worker.probing(&world.handle(81).0, 7_000));
    let peers = world.worker.checked_peers(&upstream("app"), |_| true).unwrap().peers;
    assert_eq!((peers[0].began, peers[1].began), (Some(7_000), None));
    world.worker.reset(&upstream("app"));
    let shown = world.peer(81).live.counters.health_checks;
    assert_eq!((shown.checks, shown.unhealthy, shown.last_passed), (0, 0, None));
    assert_eq!(world.state(81).0, State::Unhealthy, "what was counted is no verdict");
}

#[test]
fn unhealthy_ones_are_used_when_nothing_else_is_left_but_never_down_or_draining_ones() {
    let world = world("{}");
    for port in [81, 82, 83] {
        world.fail(port);
    }
    world.admin("app", "10.0.0.1:81", AdminState::Down);
    world.admin("app", "10.0.0.1:82", AdminState::Drain);
    assert_eq!(world.hits("app", 4), "3333");
    world.ok("app", &patch(r#"{"check":{"on_all_down":"refuse"}}"#));
    assert_eq!(world.state(83).0, State::Unhealthy, "its verdict stays");
    assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable));
    world.ok("app", &patch(r#"{"check":{"on_all_down":"use"}}"#));
    assert_eq!(world.hits("app", 2), "33");
}

#[test]
fn healthy_backups_come_before_unhealthy_primaries() {
    let world = World::new(1 << 20);
    let mut backup = server("10.0.0.1:89", 1);
    backup.backup = Field::Given(true);
    world.put("app", &[server("10.0.0.1:81", 1), server("10.0.0.1:82", 1), backup]);
    world.ok("app", &patch(r#"{"check":{}}"#));
    world.fail(81);
    assert_eq!(world.hits("app", 2), "22");
    world.fail(82);
    assert_eq!(world.hits("app", 2), "99");
    world.fail(89);
    assert!(world.hits("app", 4).chars().all(|c| "12".contains(c)));
}

#[test]
fn a_retry_goes_to_the_healthy_and_then_to_the_others_each_once() {
    let world = world("{}");
    world.fail(82);
    world.fail(83);
    let (first, mut choice) = world.pick("app").unwrap();
    assert!(first.ends_with("81"));
    let mut tried = Vec::new();
    for _ in 0..2 {
        world.worker.abandon(&mut choice);
        tried.push(world.try_by("app", &mut choice, peerage_zone::Key::None).unwrap());
    }
    tried.sort();
    assert!(tried[0].ends_with("82") && tried[1].ends_with("83"), "{tried:?}");
    world.worker.abandon(&mut choice);
    assert_eq!(world.try_by("app", &mut choice, peerage_zone::Key::None), None);
}

#[test]
fn a_mandatory_check_lets_nothing_to_new_servers_before_their_first_pass() {
    let world = World::new(1 << 20);
    let check = r#"{"mandatory":true}"#;
    let value = json::parse(format!(r#"{{"check":{check}}}"#).as_bytes()).unwrap();
    let body = model::upstream_body(&value, Form::Put).unwrap();
    let servers = Some(three());
    world.ok("app", &Change::PutUpstream { body: UpstreamBody { servers, ..body } });
    assert_eq!(world.state(81), (State::Checking, Some(WhyCode::Checking)));
    assert_eq!(world.pick("app").err(), Some(NoPeer::AllUnavailable), "not even at last");
    let seen = world.observe(81, FAILED);
    assert_eq!((seen.was, seen.is), (Some(Bar::Checking), Some(Bar::Checking)));
    let seen = world.observe(82, Ok(()));
    assert_eq!((seen.was, seen.is), (Some(Bar::Checking), None));
    assert_eq!(world.hits("app", 3), "222");
    let seen = world.observe(81, FAILED);
    assert_eq!(seen.is, Some(Bar::Failed(Some(Reason::Status(503)))));
    assert_eq!(world.state(81).0, State::Unhealthy);
    // One that comes later waits too; those that are there are not touched.
    world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:84"), body: server("10.0.0.1:84", 1) });
    assert_eq!(world.state(84).0, State::Checking);
    assert_eq!(world.hits("app", 3), "222");
    world.observe(84, Ok(()));
    assert!(count(&world.hits("app", 10), '4') > 0);
}

#[test]
fn a_check_that_becomes_mandatory_takes_nobody_away() {
    let world = World::new(1 << 20);
    world.put("app", &three());
    world.ok("app", &patch(r#"{"check":{"mandatory":true}}"#));
    assert_eq!(count(&world.hits("app", 30), '2'), 10);
    world.fail(82);
    // Another check begins anew: who takes requests goes on, who did not waits for a pass.
    world.ok("app", &patch(r#"{"check":{"uri":"/other"}}"#));
    assert_eq!((world.state(81).0, world.state(82).0), (State::Up, State::Checking));
    assert_eq!(count(&world.hits("app", 30), '2'), 0);
    world.ok("app", &patch(r#"{"check":{"mandatory":false}}"#));
    assert_eq!(world.state(82).0, State::Up);
    world.ok("app", &patch(r#"{"check":null}"#));
    assert!(world.worker.checked_peers(&upstream("app"), |_| true).is_none());
    assert!(checked_upstreams(&world).is_empty());
}

#[test]
fn a_verdict_stays_over_changes_of_anything_but_what_is_probed() {
    let world = world("{}");
    world.fail(82);
    let unhealthy = |world: &World| world.state(82).0 == State::Unhealthy;
    for (what, change) in [
        ("weight", patch_server(r#"{"weight":5}"#)),
        ("method", patch(r#"{"method":"least_conn"}"#)),
        ("interval", patch(r#"{"check":{"interval":"1s","fails":3,"passes":1}}"#)),
        ("outlier", patch(r#"{"outlier":{}}"#)),
        ("another goes", Change::DeleteServer { sel: sel("10.0.0.1:81") }),
        (
            "one comes",
            Change::PutServer { sel: sel("10.0.0.1:84"), body: server("10.0.0.1:84", 1) },
        ),
    ] {
        world.ok("app", &change);
        assert!(unhealthy(&world), "{what}");
    }
    world.admin("app", "10.0.0.1:82", AdminState::Down);
    world.admin("app", "10.0.0.1:82", AdminState::Up);
    assert!(unhealthy(&world), "health is not the operator's");
    assert_eq!(count(&world.hits("app", 30), '2'), 0);
    world.ok("app", &patch(r#"{"check":{"uri":"/other"}}"#));
    assert_eq!(world.state(82).0, State::Up, "another check begins anew");
    assert!(count(&world.hits("app", 30), '2') > 0);
}

fn patch_server(text: &str) -> Change {
    let value = json::parse(text.as_bytes()).unwrap();
    let body = model::server_body(&value, Form::Patch).unwrap();
    Change::PatchServer { sel: sel("10.0.0.1:82"), body }
}

#[test]
fn another_check_and_the_end_of_a_pause_make_a_peer_due_at_once() {
    let world = world("{}");
    let began = || world.worker.checked_peers(&upstream("app"), |_| true).unwrap().peers[0].began;
    let probe = || {
        assert!(world.worker.probing(&world.handle(81).0, 7_000));
        world.observe(81, Ok(()));
    };
    probe();
    world.ok("app", &patch(r#"{"check":{"interval":"1s"}}"#));
    assert_eq!(began(), Some(7_000), "it keeps to its moments");
    world.ok("app", &patch(r#"{"check":{"uri":"/other"}}"#));
    assert_eq!(began(), None, "that was another check's");
    probe();
    world.ok("app", &patch(r#"{"check":null}"#));
    world.ok("app", &patch(r#"{"check":{"uri":"/other"}}"#));
    assert_eq!(began(), None, "that was before there was none");
    probe();
    world.admin("app", "10.0.0.1:81", AdminState::Down);
    assert!(!world.worker.probing(&world.handle(81).0, 8_000), "its checks pause");
    world.admin("app", "10.0.0.1:81", AdminState::Up);
    assert_eq!(began(), None);
    world.admin("app", "10.0.0.1:81", AdminState::Drain);
    assert!(world.worker.probing(&world.handle(81).0, 9_000), "one that drains is probed");
    assert_eq!(began(), Some(9_000));
}

#[test]
fn a_result_of_a_former_check_or_of_a_peer_that_is_gone_counts_for_nothing() {
    let world = world(r#"{"fails":1}"#);
    let (handle, check) = world.handle(82);
    world.ok("app", &patch(r#"{"check":{"uri":"/other"}}"#));
    assert_eq!(world.worker.observe(&handle, &check, FAILED, &world.clock), None);
    assert_eq!(world.state(82).0, State::Up);
    let (handle, check) = world.handle(82);
    world.ok("app", &Change::DeleteServer { sel: sel("10.0.0.1:82") });
    assert_eq!(world.worker.observe(&handle, &check, FAILED, &world.clock), None);
    assert_eq!(world.worker.verdict(&handle), None);
    world.ok("app", &Change::PutServer { sel: sel("10.0.0.1:82"), body: server("10.0.0.1:82", 1) });
    assert_eq!(world.worker.observe(&handle, &check, FAILED, &world.clock), None);
    assert_eq!(world.state(82).0, State::Up);
    let (handle, check) = world.handle(82);
    world.ok("app", &Change::DeleteUpstream { force: true });
    assert_eq!(world.worker.observe(&handle, &check, FAILED, &world.clock), None);
}

#[test]
fn the_same_address_in_two_upstreams_has_two_verdicts() {
    let world = world("{}");
    world.put("other", &three());
    world.ok("other", &patch(r#"{"check":{}}"#));
    world.fail(82);
    assert_eq!(count(&world.hits("app", 9), '2'), 0);
    assert_eq!(count(&world.hits("other", 9), '2'), 3);
    let names = checked_upstreams(&world);
    let mut names: Vec<&str> = names.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["app", "other"]);
}

#[test]
fn a_zone_of_another_size_has_the_same_verdicts() {
    let mut world = world("{}");
    world.fail(82);
    world.opine(83, Opinion::Unhealthy, Some(60_000));
    let (old, clock) = (world.zone, world.clock);
    let words: Box<[peerage_shm::AtomicU64]> =
        (0..(2 << 20) / 8).map(|_| peerage_shm::AtomicU64::new(0)).collect();
    let lock: &'static peerage_shm::AtomicU64 = Box::leak(Box::new(peerage_shm::AtomicU64::new(0)));
    let zone = Zone::format(Region::new(Box::leak(words)), lock, &FORMAT).unwrap();
    old.as_master(9).end(&mut || false);
    let left = zone.as_master(9).inherit(&old, &clock).left;
    assert!(left.is_empty());
    world = World::of(zone, 10);
    world.clock = clock;
    assert_eq!(world.state(82), (State::Unhealthy, Some(WhyCode::CheckFailed)));
    assert_eq!(world.state(83), (State::Unhealthy, Some(WhyCode::External)));
    assert_eq!(world.hits("app", 3), "111");
    assert_eq!(world.observe(82, Ok(())).verdict.run(), 1);
    world.tick(61);
    assert_eq!(world.worker.relieve(&world.clock).len(), 1, "the end of what was said came along");
}

#[test]
fn an_outside_checker_has_its_say_until_its_time_is_over() {
    let mut world = World::new(1 << 20);
    world.put("app", &three());
    assert_eq!(world.opine(82, Opinion::Unhealthy, Some(30_000)), Some(Bar::External));
    assert_eq!(world.state(82), (State::Unhealthy, Some(WhyCode::External)));
    assert_eq!(count(&world.hits("app", 9), '2'), 0);
    assert_eq!(world.worker.relieve(&world.clock), []);
    world.tick(31);
    assert_eq!(world.state(82).0, State::Up, "whether anybody has looked or not");
    assert!(count(&world.hits("app", 9), '2') > 0);
    let relieved = world.worker.relieve(&world.clock);
    assert_eq!((relieved.len(), relieved[0].address.as_str()), (1, "10.0.0.1:82"));
    assert_eq!(world.worker.relieve(&world.clock), []);
    let Relieved { server, was, .. } = &relieved[0];
    assert_eq!((server.to_string().as_str(), *was), ("10.0.0.1:82", Bar::External));
    world.opine(82, Opinion::Unhealthy, None);
    assert_eq!(world.opine(82, Opinion::Healthy, None), None);
    assert_eq!(world.state(82).0, State::Up);
    let none = World::new(1 << 20);
    let said = External::new(Opinion::Unhealthy, None, 1);
    assert_eq!(none.worker.opine(&upstream("app"), 1, said, &none.clock), None);
}

#[test]
fn what_an_outside_checker_says_again_is_no_turn_and_each_turn_is_found_once() {
    let mut world = world(r#"{"passes":1}"#);
    let opined = |turned, was, is| Opined { turned, was, is };
    let out = Some(Bar::External);
    let (ill, well) = (Opinion::Unhealthy, Opinion::Healthy);
    assert_eq!(world.opined(82, well, None), opined(false, None, None), "it lifts nothing");
    assert_eq!(world.opined(82, ill, Some(10_000)), opined(true, None, out));
    world.tick(5);
    assert_eq!(world.opined(82, ill, Some(10_000)), opined(false, out, out), "a new end alone");
    world.tick(9);
    assert_eq!(world.state(82).0, State::Unhealthy, "the new one counts");
    assert_eq!(world.opined(82, well, None), opined(true, out, None));
    // Its time is over, and nobody has looked: whoever comes first tells.
    world.opined(82, ill, Some(10_000));
    world.tick(11);
    assert_eq!(world.opined(82, well, None), opined(true, out, None));
    world.opined(82, ill, Some(10_000));
    world.tick(11);
    let observed = world.observe(82, Ok(()));
    assert_eq!((observed.was, observed.is), (out, None));
    assert_eq!(world.worker.relieve(&world.clock), []);
    // A failed check is the first reason, and stays.
    world.fail(82);
    let failed = Some(Bar::Failed(Some(Reason::Status(503))));
    assert_eq!(world.opined(82, ill, None), opined(true, failed, failed));
    assert_eq!(world.opined(82, well, None), opined(true, failed, failed));
}

#[test]
fn a_diagnosis_has_each_verdict_apart() {
    let mut world = world(r#"{"fails":2}"#);
    let bare = world.diagnosis(82);
    assert_eq!((bare.bar, bare.ejection, bare.counts.checks), (None, None, 0));
    assert_eq!(bare.verdict.unwrap().last_passed(), None);
    world.fail(82);
    world.opine(82, Opinion::Unhealthy, Some(30_000));
    world.ok("app", &patch(r#"{"outlier":{"consecutive_errors":3}}"#));
    assert!(!world.err(81));
    let ill = world.diagnosis(82);
    assert_eq!(ill.address, "10.0.0.1:82");
    assert_eq!(ill.bar, Some(Bar::Failed(Some(Reason::Status(503)))));
    let verdict = ill.verdict.unwrap();
    assert_eq!((verdict.side(), verdict.run()), (Side::Unhealthy, 2));
    assert_eq!((ill.counts.checks, ill.counts.fails, ill.last.unhealthy), (2, 2, 1));
    assert_eq!(ill.last.at, world.clock.msec);
    assert_eq!(ill.external.until(), Some(world.clock.msec + 30_000));
    assert_eq!(world.diagnosis(81).ejection.map(|ejection| ejection.errors()), Some(1));
    let begun = world.clock.msec;
    world.tick(1);
    world.observe(83, Ok(()));
    assert!(world.diagnosis(83).has_passed_since(begun + 1));
    assert!(!world.diagnosis(81).has_passed_since(begun));
    world.ok("app", &patch(r#"{"check":{"uri":"/other"}}"#));
    assert_eq!(world.diagnosis(82).verdict.unwrap().side(), Side::Unknown);
    world.ok("app", &patch(r#"{"check":null}"#));
    assert_eq!(world.diagnosis(82).verdict, None);
    assert_eq!(world.worker.diagnose(&upstream("app"), 77, &world.clock), []);
    assert_eq!(world.worker.diagnose(&upstream("nowhere"), 1, &world.clock), []);
}

#[test]
fn an_outside_verdict_holds_for_addresses_that_a_name_gets_later() {
    let world = World::new(1 << 20);
    world.put("app", &[server("app.test:81", 1)]);
    let resolve = |ips: &[[u8; 4]]| {
        let ips = ips.iter().map(|ip| (*ip).into()).collect();
        world.ok("app", &Change::Resolve { host: "app.test".into(), ips });
    };
    resolve(&[[10, 0, 0, 1]]);
    let seen = world.worker.read(&upstream("app"), &world.clock).unwrap();
    let said = External::new(Opinion::Unhealthy, None, world.clock.msec);
    let id = seen.upstream.servers[0].id;
    world.worker.opine(&upstream("app"), id, said, &world.clock).unwrap();
    resolve(&[[10, 0, 0, 1], [10, 0, 0, 2]]);
    let seen = world.worker.read(&upstream("app"), &world.clock).unwrap();
    assert_eq!(seen.live[0].facts.bar, Some(Bar::External), "of all of its peers");
}

#[test]
fn errors_in_a_row_eject_a_peer_and_a_success_in_between_does_not() {
    let mut world = World::new(1 << 20);
    world.put("app", &three());
    world.ok(
        "app",
        &patch(r#"{"outlier":{"consecutive_errors":3,"base":"10s","max":"25s","max_percent":50}}"#),
    );
    assert!(!world.err(82) && !world.err(82));
    assert_eq!(count(&world.hits("app", 3), '2'), 1);
    assert!(!world.err(82) && !world.err(82), "a success begins the count anew");
    assert_eq!(world.worker.take_ejected(), []);
    assert!(world.err(82), "three in a row");
    let ejected = world.worker.take_ejected();
    assert_eq!((ejected.len(), ejected[0].address.as_str()), (1, "10.0.0.1:82"));
    assert_eq!((ejected[0].errors, ejected[0].lasts), (3, 10_000));
    assert_eq!(world.state(82), (State::Unavail, Some(WhyCode::Ejected)));
    assert_eq!(count(&world.hits("app", 8), '2'), 0);
    assert_eq!(world.peer(82).live.counters.unavail, 1);
    // A second of three would be two thirds.
    for _ in 0..5 {
        assert!(!world.err(81));
    }
    world.tick(11);
    assert!(count(&world.hits("app", 9), '2') > 0, "its time is over");
    let relieved = world.worker.relieve(&world.clock);
    assert_eq!((relieved.len(), relieved[0].was), (1, Bar::Ejected));
    let mut lapsed = None;
    for (secs, lasts) in [(0, 20), (0, 25), (0, 25)] {
        world.tick(secs);
        let mut out = world.err(82);
        for _ in 0..4 {
            out = out || world.err(82);
        }
        assert!(out);
        assert_eq!(world.worker.take_ejected()[0].lapsed, lapsed);
        lapsed = Some(Bar::Ejected);
        world.tick(lasts - 1);
        assert_eq!(count(&world.hits("app", 6), '2'), 0, "it grows: {lasts}");
        world.tick(2);
        assert!(count(&world.hits("app", 6), '2') > 0);
    }
}

#[test]
fn by_default_a_tenth_of_the_peers_may_be_ejected_and_the_last_one_never() {
    let world = World::new(1 << 20);
    let servers: Vec<_> = (80..90).map(|port| server(&format!("10.0.0.1:{port}"), 1)).collect();
    world.put("app", &servers[..9]);
    world.ok("app", &patch(r#"{"outlier":{}}"#));
    assert!((0..20).all(|_| !world.err(83)), "one of nine is more than a tenth");
    world.put("app", &servers);
    world.ok("app", &patch(r#"{"outlier":{}}"#));
    assert!((0..6).any(|_| world.err(83)));
    assert!((0..20).all(|_| !world.err(84)));
    let all = patch(r#"{"outlier":{"max_percent":100,"consecutive_errors":1}}"#);
    world.ok("app", &all);
    for port in [80, 81, 82, 84, 85, 86, 87, 88] {
        assert!(world.err(port), "{port}");
    }
    assert!((0..5).all(|_| !world.err(89)));
    assert_eq!(world.hits("app", 3), "999");
    world.ok("app", &patch(r#"{"outlier":null}"#));
    assert_eq!(count(&world.hits("app", 20), '3'), 2, "without the rules nobody is ejected");
}

#[test]
fn up_pardons_an_ejected_server_and_rules_of_failures_go_on_beside() {
    let world = World::new(1 << 20);
    world.put("app", &three());
    world.ok("app", &patch(r#"{"outlier":{"consecutive_errors":1,"max_percent":100}}"#));
    assert!(world.err(82));
    world.admin("app", "10.0.0.1:82", AdminState::Down);
    world.admin("app", "10.0.0.1:82", AdminState::Up);
    assert_eq!(world.state(82).0, State::Up);
    assert!(count(&world.hits("app", 9), '2') > 0);
    let (address, choice) = world.pick("app").unwrap();
    world.done(choice, true);
    let port: u16 = address[address.len() - 2..].parse().unwrap();
    assert_eq!(world.state(port), (State::Unavail, Some(WhyCode::MaxFails)));
}

#[test]
fn a_recovered_peer_ramps_up_and_one_of_a_new_set_does_not() {
    let mut world = World::new(1 << 20);
    world.put("app", &three());
    world.ok("app", &patch(r#"{"check":{"passes":1},"defaults":{"slow_start":"100s"}}"#));
    world.fail(82);
    let down = world.peer(82).live.counters.downstart;
    assert_eq!(down, Some(world.clock.msec));
    world.tick(7);
    world.observe(82, Ok(()));
    let counters = world.peer(82).live.counters;
    assert_eq!((counters.downstart, counters.downtime), (None, 7_000));
    assert_eq!(world.state(82), (State::Up, Some(WhyCode::SlowStart)));
    assert!(count(&world.hits("app", 60), '2') < 10);
}

#[test]
fn health_is_told_as_an_event() {
    let world = world("{}");
    let last = world.zone.events().last();
    let at = peerage_core::addr::ServerAddr::parse("10.0.0.1:82").unwrap();
    let (from, to) = (State::Up, State::Unhealthy);
    let event = Event::health(&upstream("app"), &at, (from, to), "check", "status 503");
    assert!(world.worker.tell(&[event], &world.clock));
    let mut reader = world.zone.events().after(last).unwrap();
    let said = reader.next_event().unwrap().unwrap();
    let text = String::from_utf8(said.json).unwrap();
    let wanted = r#"{"kind":"health","upstream":"app","server":"10.0.0.1:82","from":"up","to":"unhealthy","by":"check","address":"","reason":"status 503"}"#;
    assert_eq!((said.seq, text.as_str()), (last + 1, wanted));
}

#[test]
fn a_large_zone_is_looked_over_by_slices_and_every_end_is_found() {
    let mut world = World::new(16 << 20);
    for i in 0..30 {
        let servers: Vec<_> =
            (1..=300).map(|port| server(&format!("10.0.{i}.1:{port}"), 1)).collect();
        world.put(&format!("u{i}"), &servers);
    }
    for i in 0..30 {
        let name = upstream(&format!("u{i}"));
        let seen = world.worker.read(&name, &world.clock).unwrap();
        for (at, ttl) in [(0, 1_000), (299, 5_000)] {
            let said = External::new(Opinion::Unhealthy, Some(ttl), world.clock.msec);
            world.worker.opine(&name, seen.upstream.servers[at].id, said, &world.clock);
        }
    }
    let walk = |world: &World| {
        let mut slices = Vec::new();
        loop {
            slices.push(world.worker.relieve(&world.clock).len());
            if !world.worker.is_relieving() {
                return slices;
            }
        }
    };
    assert_eq!(walk(&world), [0]);
    for secs in [1, 4] {
        world.tick(secs);
        let slices = walk(&world);
        assert!(slices.len() >= 2 && slices.iter().all(|n| *n < 30), "{slices:?}");
        assert_eq!(slices.iter().sum::<usize>(), 30);
        assert_eq!(walk(&world), [0], "until the next end");
    }
}
