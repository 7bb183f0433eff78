//! The Consul of our own: it must answer as the real one does, or stories against it say nothing.

mod support;

use peerage_core::consul::answer::Answer;
use support::*;

/// The head and the body of an answer; none where it broke.
fn ask(consul: &FakeConsul, target: &str) -> Option<(Reply, Vec<u8>)> {
    let addr: SocketAddr = consul.url().strip_prefix("http://")?.parse().ok()?;
    let reply = Request::get(target).timeout(secs(5)).send(addr).ok()?;
    let body = reply.body.clone();
    Some((reply, body))
}

const WEB: &str = "/v1/health/service/web";

fn consul() -> FakeConsul {
    let consul = FakeConsul::new();
    consul.register("web", "web-1", "127.0.0.1:8081".parse().unwrap());
    consul.register("web", "web-2", "127.0.0.1:8082".parse().unwrap());
    consul
}

fn index(reply: &Reply) -> u64 {
    reply.header("X-Consul-Index").and_then(|index| index.parse().ok()).unwrap_or(0)
}

#[test]
fn it_answers_what_the_reader_reads() {
    let consul = consul();
    consul.weights("web", "web-1", 9, 2);
    consul.check("web", "web-1", Checked::Warning);
    consul.maintenance("web", "web-2", true);
    consul.tags("web", "web-2", &["lb"]);
    let (reply, body) = ask(&consul, WEB).unwrap();
    assert_eq!((reply.status, index(&reply)), (200, consul.index()));
    let answer = Answer::read(&body).unwrap();
    let seen: Vec<(u16, bool)> =
        answer.instances.iter().map(|i| (i.weight, i.maintenance)).collect();
    assert_eq!(seen, [(2, false), (1, true)]);
    let (_, body) = ask(&consul, &format!("{WEB}?tag=lb")).unwrap();
    assert_eq!(Answer::read(&body).unwrap().instances.len(), 1);
    let (_, body) = ask(&consul, "/v1/catalog/services").unwrap();
    assert_eq!(body, br#"{"web":["lb"]}"#);
}

#[test]
fn a_query_waits_for_a_change_and_no_longer_than_it_says() {
    let consul = consul();
    let beyond = format!("{WEB}?index={}&wait=200ms", consul.index());
    let begun = Instant::now();
    assert!(ask(&consul, &beyond).is_some());
    assert!(begun.elapsed() >= ms(200));
    let beyond = format!("{WEB}?index={}&wait=60s", consul.index());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ask(&consul, &beyond).unwrap());
        eventually(secs(2), || consul.waiting() == 1);
        consul.deregister("web", "web-2");
        let (reply, body) = waits.join().unwrap();
        assert_eq!(index(&reply), consul.index());
        assert_eq!(Answer::read(&body).unwrap().instances.len(), 1);
    });
    assert_eq!(consul.asked().len(), 2);
}

#[test]
fn it_plays_what_goes_wrong() {
    let mut consul = consul();
    let table = [
        (Trouble::NoLeader, 500, 1),
        (Trouble::Token("good".into()), 403, 1),
        (Trouble::Empty(1), 200, 1),
        (Trouble::NoIndex, 200, 0),
        (Trouble::Leaderless, 200, consul.index()),
        (Trouble::Filtered, 200, consul.index()),
        (Trouble::Huge(10 << 20), 200, consul.index()),
    ];
    for (trouble, status, at) in table {
        consul.trouble(trouble.clone());
        let (reply, body) = ask(&consul, WEB).unwrap();
        assert_eq!((reply.status, index(&reply)), (status, at), "{trouble:?}");
        if let Trouble::Huge(bytes) = trouble {
            assert!(body.len() >= bytes);
        }
    }
    for trouble in [Trouble::Truncated, Trouble::Reset] {
        consul.trouble(trouble);
        assert!(ask(&consul, WEB).is_none());
    }
    consul.trouble(Trouble::None);
    consul.forget();
    let (reply, body) = ask(&consul, WEB).unwrap();
    assert_eq!((index(&reply), body.as_slice()), (5, &b"[]"[..]));
    consul.stop();
    assert!(ask(&consul, WEB).is_none());
    consul.start();
    assert!(ask(&consul, WEB).is_some());
}
