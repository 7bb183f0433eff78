//! What a real Consul 1.8.7 answered, recorded by ci/consul_record.sh: read, mapped, believed.

use peerage_core::consul::answer::{Answer, Instance};
use peerage_core::consul::catalog::Tagged;
use peerage_core::consul::desired::{Names, desired};
use peerage_core::consul::guard::{Guard, Known, Rules};
use peerage_core::consul::reader::{Failure, Outcome, Reader, Reply};
use peerage_core::consul::service::Service;
use peerage_core::source::{Standing, Stated};

/// An answer as curl prints it.
struct Recorded {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Recorded {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\n\n").expect("a head and a body");
        let mut lines = head.lines();
        let status = lines.next().expect("a status").split(' ').nth(1).expect("a number");
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_owned(), value.trim().to_owned())
        };
        Self {
            status: status.parse().expect("a number"),
            headers: lines.map(header).collect(),
            body: body.trim_end().to_owned(),
        }
    }

    fn reply(&self) -> Reply<'_> {
        let header = |name: &str| {
            let mut all = self.headers.iter();
            all.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        };
        Reply::new(self.status, header, self.body.as_bytes())
    }

    fn answer(&self) -> Answer {
        Answer::read(self.body.as_bytes()).expect("an answer")
    }

    fn instance(&self, id: &str) -> Instance {
        let all = self.answer().instances;
        all.into_iter().find(|instance| instance.id == id).expect("it is named")
    }
}

macro_rules! recorded {
    ($name:literal) => {
        Recorded::parse(include_str!(concat!("data/consul/", $name, ".http")))
    };
}

/// What comes of an answer for a reader that knew this index.
fn read(reader: &mut Reader, recorded: &Recorded) -> Outcome<Answer> {
    let now = 1_000_000;
    let how = reader.next(now).how;
    reader.answered(how, &recorded.reply(), Answer::read, (now, 0))
}

fn failure(recorded: &Recorded) -> Failure {
    match read(&mut Reader::new(1), recorded) {
        Outcome::Failed { failure, .. } => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn registered_instances_become_servers() {
    let recorded = recorded!("registered");
    let (servers, skipped) = desired(recorded.answer(), Names::Refused);
    let servers: Vec<(String, Option<u16>)> =
        servers.iter().map(|s| (s.addr.to_string(), s.said.weight)).collect();
    let expected = [("127.0.0.1:8081", 9), ("127.0.0.1:8083", 1), ("[::1]:8082", 1)];
    assert_eq!(servers, expected.map(|(addr, weight)| (addr.to_owned(), Some(weight))));
    assert_eq!((skipped.port, skipped.total()), (1, 1), "one has no port");
    let reply = recorded.reply();
    assert!(reply.index.is_some_and(|index| index > 1));
    assert_eq!((reply.status, reply.led, reply.denied), (200, Some(true), false));
}

#[test]
fn states_of_checks_are_told_apart() {
    let of = |recorded: Recorded| {
        let Instance { weight, critical, maintenance, .. } = recorded.instance("web-1");
        (weight, critical, maintenance)
    };
    assert_eq!(of(recorded!("registered")), (9, false, false));
    assert_eq!(of(recorded!("critical")), (9, true, false));
    assert_eq!(of(recorded!("warning")), (2, false, false));
    assert_eq!(of(recorded!("maintenance")), (9, false, true));
    assert_eq!(of(recorded!("node_maintenance")), (9, false, true));
    let other = recorded!("maintenance").instance("web-2");
    assert!(!other.maintenance, "of its own alone");
    assert!(recorded!("node_maintenance").answer().instances.iter().all(|i| i.maintenance));
}

#[test]
fn an_instance_keeps_its_identity_and_another_one_is_gone() {
    let (before, after) = (recorded!("registered"), recorded!("deregistered"));
    assert_eq!(before.instance("web-1").identity(), after.instance("web-1").identity());
    assert!(after.answer().instances.iter().all(|instance| instance.id != "web-2"));
}

#[test]
fn filters_and_tags_are_the_consuls_to_apply() {
    for recorded in [recorded!("tagged"), recorded!("filtered")] {
        let ids: Vec<String> = recorded.answer().instances.into_iter().map(|i| i.id).collect();
        assert_eq!(ids, ["web-1"]);
    }
    let tagged = Tagged::read(recorded!("services").body.as_bytes(), "lb").unwrap();
    assert_eq!(tagged.services.values().collect::<Vec<_>>(), ["web"]);
}

#[test]
fn rule_2_errors_have_index_one_and_change_nothing() {
    let table = [
        (recorded!("no_leader"), "status 500: No cluster leader"),
        (recorded!("no_datacenter"), "status 500: No path to datacenter"),
        (recorded!("bad_token"), "status 403: ACL not found"),
    ];
    for (recorded, text) in table {
        assert_eq!(recorded.reply().index, Some(1));
        assert_eq!(failure(&recorded).to_string(), text);
    }
    assert!(failure(&recorded!("bad_filter")).to_string().starts_with("status 500: Failed to"));
}

#[test]
fn rule_4_a_restart_with_empty_state_is_not_believed_at_once() {
    let mut reader = Reader::new(1);
    assert!(matches!(read(&mut reader, &recorded!("registered")), Outcome::Answer { .. }));
    let empty = recorded!("empty_restart");
    assert!(matches!(read(&mut reader, &empty), Outcome::WentBack { .. }));
    // Said again by a leader that is sure: now it is the guard's.
    let Outcome::Answer { what, evidence, .. } = read(&mut reader, &empty) else { panic!() };
    let (named, _) = desired(what, Names::Refused);
    assert!(named.is_empty() && evidence.consistent);
    let web = Service::parse("web", &["consul=dc1"]).unwrap();
    let (known, _) = desired(recorded!("registered").answer(), Names::Refused);
    let known: Vec<Known> =
        known.into_iter().map(|Stated { addr, said }| Known { addr, said, fails: false }).collect();
    let mut guard = Guard::new(Rules::from(&web));
    let decision = guard.look(named, &known, evidence, 1_000_000);
    assert_eq!(decision.servers.len(), 3);
    assert!(decision.servers.iter().all(|server| server.said.held));
    assert!(decision.servers.iter().all(|server| server.said.standing == Standing::Named));
}

#[test]
fn what_a_token_may_not_see_looks_like_nothing() {
    // This version has no marker for it: the time of an empty answer is all that protects.
    let denied = recorded!("denied");
    let reply = denied.reply();
    assert_eq!((reply.status, reply.denied, denied.body.as_str()), (200, false, "[]"));
}
