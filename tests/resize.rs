//! A zone whose size a reload changes: all that it holds moves, nothing acknowledged is lost, and
//! what does not fit is refused.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use support::*;

const WEB: &str = "
    server {
        listen {web};
        location / { proxy_pass http://app; proxy_next_upstream off; }
    }";

fn conf(conf: Conf, size: &str, block: &str) -> Conf {
    let zone = format!("peerage_zone main {size} state={{prefix}}/main.json;");
    conf.http(format!("{zone}\n{block}\n{WEB}")).with_api("write=on")
}

const WEIGHTED: &str = "
    upstream app {
        peerage main;
        server {b1} weight=5;
        server {b2} weight=3;
        server {b3};
        server {gone} weight=1 max_fails=1 fail_timeout=1h backup;
    }";

/// Servers without what time alone moves.
fn shown(api: &Api, upstream: &str) -> Value {
    let mut shown = api.upstream(upstream);
    for server in shown["servers"].as_array_mut().unwrap() {
        server["counters"].as_object_mut().unwrap().remove("downtime");
    }
    shown
}

#[test]
fn counters_failures_events_and_the_place_in_round_robin_move_both_ways() {
    let backends = Backend::several(3);
    let gone = Backend::refusing("gone");
    let named = |c: Conf| backends.iter().fold(c, |c, b| c.set(&b.name(), b)).set("gone", &gone);
    let mut nginx = named(conf(Nginx::builder(), "1m", WEIGHTED)).start();
    let api = nginx.api();
    // The one that is gone fails once, and is barred from then on.
    let names: Vec<String> = backends.iter().map(Backend::addr).collect();
    names.iter().for_each(|b| assert_eq!(api.verb("app", b, "down").0, 200));
    assert_eq!(nginx.get("/").status, 502);
    names.iter().for_each(|b| assert_eq!(api.verb("app", b, "up").0, 200));
    api.ok("PUT", "upstreams/own", Some(&json!({"servers": [{"server": "10.0.0.1:1"}]})));
    api.ok("POST", "hosts/10.0.0.1/down?reason=rack&min_up=0", None);

    let mut order = Vec::new();
    let sizes = ["4m", "300k", "1m"];
    for turn in 0..36 {
        if [13, 22, 31].contains(&turn) {
            let before = (shown(&api, "app"), shown(&api, "own"), api.get("zones/main").1);
            let events = api.get("events?since=1").1;
            nginx.change(|c| named(conf(c, sizes[turn / 10 - 1], WEIGHTED)));
            nginx.reload();
            nginx.settled(1);
            let zone = api.get("zones/main").1;
            assert_eq!((shown(&api, "app"), shown(&api, "own")), (before.0, before.1));
            assert_eq!(api.server("app", &gone)["counters"]["fails"], 1);
            for field in ["revision", "seq", "upstreams", "servers", "no_room"] {
                assert_eq!(zone[field], before.2[field], "{field}");
            }
            assert_eq!(api.get("events?since=1").1, events);
        }
        order.push(nginx.get("/").backend().to_owned());
    }
    // The smooth order of 5:3:1, four times; `up` began it anew.
    let round = "b1 b2 b1 b3 b1 b2 b1 b2 b1".split(' ').collect::<Vec<_>>();
    assert_eq!(order, round.repeat(4));
    assert_eq!(gone.requests(), 0);
    // The file is the new zone's, and whole.
    api.ok("POST", "zones/main/flush", None);
    let before = api.upstream("own");
    nginx.restart();
    assert_eq!(api.upstream("own")["digest"], before["digest"]);
}

/// Adds servers to an upstream of its own until told to stop; those that were acknowledged.
fn add(api: &Api, upstream: &str, stop: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if stop.load(SeqCst) {
            break;
        }
        let server = format!("10.{}.{}.{}:80", n / 62_500, n / 250 % 250, n % 250);
        let path = format!("upstreams/{upstream}/servers/{server}");
        let put = api.request("PUT", &path, Some(&json!({})));
        match put.send(api.addr()) {
            Ok(reply) if reply.status == 201 => acknowledged.push(server),
            Ok(reply) => {
                assert_eq!(reply.status, 503, "{}", reply.text());
                assert!(reply.header("retry-after").is_some());
            }
            // A worker that leaves closes connections that it has not read from.
            Err(_) => {}
        }
        // As many as fit into the smallest size.
        let_pass(ms(if acknowledged.len() < 100 { 1 } else { 25 }));
    }
    acknowledged
}

fn servers(api: &Api, upstream: &str) -> Vec<String> {
    let shown = api.upstream(upstream);
    let servers = shown["servers"].as_array().unwrap();
    servers.iter().map(|server| server["server"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn changes_that_race_a_change_of_size_are_in_the_new_zone_or_were_refused() {
    let block = "upstream app { peerage main; server 127.0.0.1:1001; }";
    let mut nginx = conf(Nginx::builder(), "2m", block).workers(2).start();
    let api = nginx.api();
    let upstreams = ["a", "b", "c"];
    for upstream in upstreams {
        api.ok("PUT", &format!("upstreams/{upstream}"), Some(&json!({"servers": []})));
    }
    let stop = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let writers = upstreams.map(|upstream| {
            let (api, stop) = (nginx.api(), &stop);
            scope.spawn(move || add(&api, upstream, stop))
        });
        let sizes = ["3m", "5m", "4m", "2m"];
        for n in 0..scale(40, 200) {
            nginx.change(|c| conf(c, sizes[n % 4], block));
            nginx.reload();
        }
        stop.store(true, SeqCst);
        writers.map(|writer| writer.join().expect("it does not panic"))
    });
    let lost = |api: &Api| {
        let missing = upstreams.iter().zip(&acknowledged).map(|(upstream, acknowledged)| {
            let there = servers(api, upstream);
            acknowledged.iter().filter(|server| !there.contains(server)).count()
        });
        missing.sum::<usize>()
    };
    let all: usize = acknowledged.iter().map(Vec::len).sum();
    assert!(all > 100, "{all}");
    assert_eq!(lost(&api), 0, "of {all}");
    nginx.settled(2);
    nginx.restart();
    assert_eq!(lost(&api), 0, "of {all} after a restart");
}

#[test]
fn zone_too_small_for_what_it_holds_refuses_the_reload_and_says_what_is_enough() {
    let block = "upstream app { peerage main; server 127.0.0.1:1001; }";
    let mut nginx =
        conf(Nginx::builder(), "8m", block).allow("is too small").allow("is full").start();
    let api = nginx.api();
    let set: Vec<Value> =
        (0..1000).map(|n| json!({"server": format!("10.0.{}.{}:80", n / 250, n % 250)})).collect();
    for n in 0..8 {
        api.ok("PUT", &format!("upstreams/u{n}"), Some(&json!({"servers": set})));
    }
    let workers = nginx.worker_pids();
    let before = api.upstream("u7");
    nginx.change(|c| conf(c, "1m", block));
    let error = nginx.try_reload().unwrap_err();
    let told = "peerage zone \"main\" is too small: 1024k, at least ";
    assert!(error.contains(told) && error.contains("needed for its 9 upstreams"), "{error}");
    assert_eq!(nginx.worker_pids(), workers);
    assert_eq!(api.upstream("u7"), before);
    // Everything goes on.
    api.ok("PUT", "upstreams/app/servers/127.0.0.1:1009", Some(&json!({})));
    api.ok("PATCH", "upstreams/app/servers/127.0.0.1:1009", Some(&json!({"weight": 2})));
    assert_eq!(nginx.get("/").status, 502);
    let need = error.split(told).nth(1).and_then(|rest| rest.split('k').next()).unwrap();
    let need: u64 = need.parse().unwrap();
    // The server that came meanwhile is one granule too many, or just fits.
    nginx.change(|c| conf(c, &format!("{}k", need + 4), block));
    nginx.reload();
    assert_eq!(api.upstream("u7")["digest"], before["digest"]);
    assert_eq!(api.server("app", "127.0.0.1:1009")["weight"], 2);
    let put = json!({"servers": set});
    assert_eq!(api.put("upstreams/u9", &put).0, 507, "nothing to spare");
    assert_eq!(api.verb("u7", "10.0.0.1:80", "down").0, 200);
}

/// The holder of the lock does not run: the master does not wait for it, and what it has not
/// answered yet is answered by what became of it.
#[test]
fn change_of_a_writer_that_was_stopped_with_the_lock_is_in_the_new_zone_or_refused() {
    let block = "upstream app { peerage main; server 127.0.0.1:1001; }";
    for (point, in_force) in [("lock.taken", false), ("limbo.filled", true)] {
        let mut nginx = conf(Nginx::faulty(), "1m", block)
            .workers(2)
            .env("PEERAGE_POINT", format!("{point}:stop:25"))
            .main("env PEERAGE_POINT;")
            .allow("was locked by")
            .start();
        let api = nginx.api();
        let mut n = 0;
        let mut writer = Conn::open(api.addr()).unwrap();
        let victim = eventually(secs(20), || {
            n += 1;
            let path = format!("upstreams/app/servers/127.0.0.1:{}", 2000 + n);
            writer.begin(&api.request("PUT", &path, Some(&json!({}))).timeout(secs(60))).unwrap();
            let victim = within(secs(20), || {
                let stopped = nginx.worker_pids().into_iter().find(|pid| stopped(*pid));
                (stopped.is_some() || !writer.silent_for(ms(1))).then_some(stopped)
            })?;
            victim.or_else(|| writer.reply().map(|_| None).unwrap())
        });
        let server = format!("127.0.0.1:{}", 2000 + n);
        nginx.change(|c| conf(c, "2m", block));
        let old = nginx.worker_pids();
        nginx.hup();
        let is_new = |pid: &u32| !old.contains(pid);
        eventually(secs(30), || nginx.worker_pids().iter().filter(|p| is_new(p)).count() == 2);
        signal(victim, Signal::CONT);
        let status = writer.reply().unwrap().status;
        let there = servers(&api, "app").contains(&server);
        match status {
            201 => assert!(there, "at {point}"), // it was another one that stopped
            503 => assert_eq!(there, in_force, "at {point}"),
            _ => panic!("{status} at {point}"),
        }
        // Those before it were acknowledged.
        for before in 1..n {
            let server = format!("127.0.0.1:{}", 2000 + before);
            assert!(servers(&api, "app").contains(&server), "{server} of {n}, at {point}");
        }
        nginx.settled(2);
        api.ok("PUT", "upstreams/app/servers/127.0.0.1:3000", Some(&json!({})));
    }
}
