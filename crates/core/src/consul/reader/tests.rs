//! Rules 2–6 of reading, one by one.

use super::*;
use crate::consul::answer::Answer;
use crate::consul::status::Health;

const HALF: u32 = 1 << 31;

/// A Consul of so many addresses, as its reader sees it.
struct World {
    reader: Reader,
    now: u64,
}

impl World {
    fn new(servers: usize) -> Self {
        Self { reader: Reader::new(servers), now: 1_000_000 }
    }

    fn next(&self) -> Read {
        self.reader.next(self.now)
    }

    /// Makes the next read, once its time has come.
    fn begin(&mut self) -> Read {
        let read = self.next();
        self.now = read.at;
        self.reader.begin(self.now);
        read
    }

    fn reply(&mut self, reply: Reply<'_>) -> Outcome<Answer> {
        let read = self.begin();
        self.reader.answered(read.how, &reply, Answer::read, (self.now, HALF))
    }

    /// An empty list with that index.
    fn empty(&mut self, index: Option<u64>) -> Outcome<Answer> {
        self.reply(Reply { status: 200, index, led: Some(true), denied: false, body: b"[]" })
    }

    fn fail(&mut self) -> Outcome<Answer> {
        self.begin();
        self.reader.failed(Failure::Deadline, (self.now, HALF))
    }
}

fn is_answer(outcome: &Outcome<Answer>) -> bool {
    matches!(outcome, Outcome::Answer { .. })
}

#[test]
fn rule_2_the_index_of_an_error_is_not_believed() {
    let mut world = World::new(1);
    world.empty(Some(500));
    assert_eq!(world.next().how.index, 500);
    for (status, body) in [(403, &b"ACL not found"[..]), (500, b"No cluster leader"), (429, b"")] {
        let reply = Reply { status, index: Some(1), led: Some(false), denied: false, body };
        let Outcome::Failed { failure, .. } = world.reply(reply) else { panic!("{status}") };
        assert!(failure.to_string().starts_with(&format!("status {status}")), "{failure}");
        assert_eq!(world.next().how, How::default());
        assert_eq!(world.reader.status().index, 500);
    }
}

#[test]
fn rule_3_an_index_is_at_least_one() {
    for index in [None, Some(0), Some(1)] {
        let mut world = World::new(1);
        assert!(is_answer(&world.empty(index)));
        assert_eq!(world.next().how.index, 1);
    }
}

#[test]
fn rule_4_an_index_that_went_back_is_asked_for_again_and_only_then_believed() {
    let mut world = World::new(1);
    world.empty(Some(500));
    assert_eq!(world.empty(Some(6)), Outcome::WentBack { from: 500, to: 6 });
    let again = world.next();
    assert_eq!(again.how, How { index: 0, consistent: true, wait: None });
    assert!((200..=1_000).contains(&(again.at - world.now)), "{}", again.at - world.now);
    let Outcome::Answer { evidence, .. } = world.empty(Some(6)) else { panic!() };
    assert!(evidence.consistent);
    assert_eq!(world.next().how, How { index: 6, ..How::default() });
}

#[test]
fn rule_4_holds_over_failures_too() {
    let mut world = World::new(1);
    world.empty(Some(500));
    world.fail();
    world.fail();
    // Back with empty hands: 200, and a leader.
    assert_eq!(world.empty(Some(6)), Outcome::WentBack { from: 500, to: 6 });
    world.fail();
    assert!(world.next().how.consistent, "what went back stays to be confirmed");
    assert!(is_answer(&world.empty(Some(6))));
}

#[test]
fn rule_16_another_reader_goes_on_where_the_last_one_was() {
    let mut world = World::new(1);
    world.empty(Some(500));
    let status = world.reader.status().clone();
    world.reader = Reader::resume(1, status.clone());
    assert_eq!(world.next().how, How::default(), "what is there is read at once");
    world.fail();
    let after = world.reader.status();
    assert_eq!((after.index, after.last_success), (500, status.last_success));
    // And another one, while the source is away.
    world.reader = Reader::resume(1, after.clone());
    assert_eq!(world.empty(Some(6)), Outcome::WentBack { from: 500, to: 6 });
    world.reader = Reader::resume(1, status);
    assert!(is_answer(&world.empty(Some(500))));
}

#[test]
fn rule_4_a_consistent_read_of_something_else_confirms_no_index_that_went_back() {
    let mut world = World::new(1);
    world.empty(Some(500));
    world.reader.confirm(Some(world.now + 2_000));
    world.begin();
    world.now += 2_000;
    world.reader.confirm(Some(world.now));
    assert!(world.next().how.consistent);
    assert_eq!(world.empty(Some(6)), Outcome::WentBack { from: 500, to: 6 });
    assert!(is_answer(&world.empty(Some(6))));
}

#[test]
fn a_clock_that_is_set_back_stops_no_reads() {
    let mut world = World::new(1);
    world.now += 3_600_000;
    (0..9).for_each(|_| drop(world.fail()));
    world.now -= 3_600_000;
    assert!(world.next().at <= world.now + 30_000, "{}", world.next().at - world.now);
    world.begin();
    world.empty(Some(500));
    assert!(world.next().at <= world.now + 1_250);
}

#[test]
fn what_did_not_fit_is_read_again_without_waiting_for_a_change() {
    let mut world = World::new(1);
    world.empty(Some(500));
    world.reader.again(world.now + 5_000);
    assert_eq!((world.next().at, world.next().how), (world.now + 5_000, How::default()));
    assert!(is_answer(&world.empty(Some(500))));
    assert_eq!(world.next().how.index, 500);
}

#[test]
fn rule_5_a_failure_keeps_what_was_said_and_backs_off() {
    let mut world = World::new(1);
    world.empty(Some(500));
    let mut waits = Vec::new();
    for _ in 0..7 {
        world.fail();
        waits.push(world.next().at - world.now);
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    let status = world.reader.status();
    assert_eq!((status.health, status.index), (Health::Stale, 500));
    assert!(status.last_error.as_ref().is_some_and(|(text, _)| text == "no answer in time"));
    assert!(is_answer(&world.empty(Some(501))));
    assert_eq!(world.reader.status().health, Health::Up);
    world.fail();
    assert_eq!(world.next().at - world.now, 500, "a success begins anew");
}

#[test]
fn rule_5_what_is_no_answer_is_a_failure() {
    let good = Reply { status: 200, index: Some(9), led: Some(true), denied: false, body: b"[]" };
    for bad in [
        Reply { body: b"[{\"Node\"", ..good },
        Reply { body: b"", ..good },
        Reply { body: b"<html>", ..good },
        Reply { led: Some(false), ..good },
        Reply { status: 204, ..good },
    ] {
        let mut world = World::new(1);
        let outcome = world.reply(bad);
        assert!(matches!(outcome, Outcome::Failed { .. }), "{bad:?}");
        assert_eq!(world.next().how.index, 0);
    }
}

#[test]
fn rule_6_a_server_that_answers_at_once_is_not_asked_at_once() {
    let mut world = World::new(1);
    let begin = world.now;
    for index in 1..=41 {
        world.empty(Some(index));
    }
    assert!(world.now - begin >= 9_000, "40 reads in {} ms", world.now - begin);
}

#[test]
fn rule_10_the_next_address_is_tried_on_failure() {
    let mut world = World::new(3);
    world.empty(Some(5));
    let mut tried = Vec::new();
    for _ in 0..7 {
        world.fail();
        let next = world.next();
        tried.push((next.server, next.at > world.now));
    }
    let all = [(1, false), (2, false), (0, true), (1, true), (2, true), (0, true), (1, true)];
    assert_eq!(tried, all);
    world.empty(Some(6));
    assert_eq!(world.next().server, 1, "who answers is asked again");
}

#[test]
fn rule_10_a_refused_token_is_read_again() {
    let mut world = World::new(2);
    world.empty(Some(5));
    let refused = Reply { status: 403, index: Some(1), body: b"ACL not found", ..Reply::default() };
    world.reply(refused);
    let next = world.next();
    assert_eq!((next.token_again, next.server, next.at), (true, 0, world.now));
    world.reply(refused);
    assert!(world.next().at > world.now, "and not again and again");
    assert!(is_answer(&world.empty(Some(5))));
    assert!(!world.next().token_again);
}

#[test]
fn a_confirmation_comes_in_time_and_reads_wait_no_longer_until_then() {
    let mut world = World::new(1);
    world.empty(Some(5));
    world.reader.confirm(Some(world.now + 2_000));
    assert_eq!(world.next().how, How { index: 5, consistent: false, wait: Some(2_000) });
    world.now += 1_950;
    let read = world.next();
    assert_eq!((read.at, read.how.consistent), (world.now + 50, true));
    world.reader.confirm(None);
    assert_eq!(world.next().how, How { index: 5, ..How::default() });
}

#[test]
fn markers_are_read_from_headers() {
    let headers = |pairs: &'static [(&str, &str)]| {
        move |name: &str| {
            pairs.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|&(_, value)| value)
        }
    };
    let reply = Reply::new(200, headers(&[("x-consul-index", " 7 ")]), b"");
    assert_eq!((reply.index, reply.led, reply.denied), (Some(7), None, false));
    let filtered = headers(&[("X-Consul-Results-Filtered-By-ACLs", "true")]);
    assert!(Reply::new(200, filtered, b"").denied);
    let deny = headers(&[("X-Consul-Default-ACL-Policy", "deny"), ("X-Consul-Index", "x")]);
    assert!(Reply::new(200, deny, b"").denied);
    let allow =
        headers(&[("X-Consul-Default-Acl-Policy", "allow"), ("X-Consul-Knownleader", "true")]);
    assert_eq!(
        (Reply::new(200, allow, b"").denied, Reply::new(200, allow, b"").led),
        (false, Some(true))
    );
}
