//! Reloads: the zone stays as it is, no request fails for it, and what is refused changes nothing.

mod support;

use std::fs;

use support::*;

const ZONE: &str = "peerage_zone main 1m state={prefix}/main.json;";
const WEB: &str = "server { listen {web}; location / { proxy_pass http://app; } }";

fn conf(block: &str) -> Conf {
    Nginx::builder().http(format!("{ZONE}\n{block}\n{WEB}")).with_api("write=on")
}

/// The configuration anew with another zone line.
fn resized(conf: Conf, zone: &str, block: &str) -> Conf {
    conf.http(format!("{zone}\n{block}\n{WEB}")).with_api("write=on")
}

const FOUR: &str =
    "upstream app { peerage main; server {b1}; server {b2}; server {b3}; server {b4}; }";

fn four(backends: &[Backend]) -> Conf {
    let names = ["b1", "b2", "b3", "b4"];
    names.iter().zip(backends).fold(conf(FOUR), |conf, (name, b)| conf.set(name, b))
}

/// A listing without what time and traffic move.
fn steady(api: &Api) -> Value {
    let mut app = api.upstream("app");
    for server in app["servers"].as_array_mut().unwrap() {
        server.as_object_mut().unwrap().retain(|key, _| !["counters", "active"].contains(&&**key));
    }
    app
}

/// Requests that the counters of all servers know.
fn counted(api: &Api) -> u64 {
    let app = api.upstream("app");
    let servers = app["servers"].as_array().unwrap();
    servers.iter().map(|server| server["counters"]["requests"].as_u64().unwrap()).sum()
}

#[test]
fn twenty_reloads_under_load_keep_the_listing_and_lose_no_request() {
    let backends = Backend::several(4);
    let gone = Backend::refusing("b5");
    let mut nginx = four(&backends).workers(2).start();
    let api = nginx.api();
    api.ok("POST", &format!("upstreams/app/servers/{}/down?reason=d1&ttl=1h", backends[0]), None);
    api.ok("POST", &format!("upstreams/app/servers/{}/drain", backends[1]), None);
    api.ok(
        "PATCH",
        &format!("upstreams/app/servers/{}", backends[2]),
        Some(&json!({"weight": 3, "max_conns": 900, "labels": {"rack": "a"}})),
    );
    api.ok(
        "PUT",
        &format!("upstreams/app/servers/{gone}"),
        Some(&json!({"max_fails": 1, "fail_timeout": "1h"})),
    );
    hit(nginx.web(), "/", 10).all_ok();
    assert_eq!(api.server("app", &gone)["state"], "unavail");

    let before = steady(&api);
    let load = Load::to(nginx.web()).rate(200).start();
    for _ in 0..scale(8, 20) {
        nginx.reload();
        assert_eq!(steady(&api), before);
    }
    load.stop().all_ok();
    nginx.settled(2);
    let listing = |api: &Api| {
        let mut app = api.upstream("app");
        for server in app["servers"].as_array_mut().unwrap() {
            server["counters"].as_object_mut().unwrap().remove("downtime"); // goes on
        }
        app
    };
    let before = listing(&api);
    nginx.reload();
    assert_eq!(listing(&api), before);
    assert_eq!(api.server("app", &gone)["counters"]["fails"], 1);
}

#[test]
fn reload_goes_on_in_round_robin_where_it_was_and_keeps_the_counters() {
    let backends = Backend::several(3);
    let block = "upstream app { peerage main; server {b1} weight=5; server {b2} weight=3;
        server {b3}; }";
    let names = ["b1", "b2", "b3"];
    let conf = names.iter().zip(&backends).fold(conf(block), |conf, (name, b)| conf.set(name, b));
    let mut nginx = conf.start();
    let api = nginx.api();
    let mut order = Vec::new();
    for turn in 0..27 {
        if [4, 11, 20].contains(&turn) {
            nginx.reload();
        }
        order.push(nginx.get("/").backend().to_owned());
    }
    // The smooth order of 5:3:1, begun three times.
    let round = "b1 b2 b1 b3 b1 b2 b1 b2 b1".split(' ').collect::<Vec<_>>();
    assert_eq!(order, [&round[..], &round[..], &round[..]].concat());
    assert_eq!(counted(&api), 27);
}

#[test]
fn overlapping_sets_twenty_times_a_second_under_load_fail_no_request() {
    let backends = Backend::several(4);
    let nginx = four(&backends).workers(4).start();
    let api = nginx.api();
    let load = Load::to(nginx.web()).rate(400).start();
    let end = Instant::now() + scale(secs(4), secs(60));
    let mut puts = 0;
    while Instant::now() < end {
        let set: Vec<Value> =
            (0..3).map(|i| json!({"server": backends[(puts + i) % 4].addr()})).collect();
        let answer = api.ok("PUT", "upstreams/app", Some(&json!({"servers": set})));
        assert_eq!(answer["changed"], true);
        puts += 1;
        let_pass(ms(50));
    }
    let report = load.stop();
    report.all_ok();
    assert!((1..=4).all(|n| report.backend(&format!("b{n}")) > 0), "{:?}", report.backends);
}

/// A PUT of server `addr`, cut in two.
fn halves(addr: &str) -> (String, String) {
    let target = format!("/api/v1/upstreams/app/servers/{addr}");
    let head = format!("PUT {target} HTTP/1.1\r\nHost: api\r\nContent-Length: 2\r\n");
    (head, "\r\n{}".to_owned())
}

#[test]
fn write_on_a_connection_of_before_the_reload_reaches_the_live_zone() {
    let backends = Backend::several(4);
    let mut nginx = four(&backends).start();
    let api = nginx.api();
    let mut idle = Conn::open(api.addr()).unwrap();
    idle.send(&api.request("GET", "upstreams/app", None)).unwrap();
    let mut begun = Conn::open(api.addr()).unwrap();
    begun.send(&api.request("GET", "upstreams/app", None)).unwrap();
    let (first, rest) = halves("127.0.0.1:1001");
    begun.write(first.as_bytes()).unwrap();
    let_pass(ms(100)); // nginx has read it
    nginx.reload();
    assert_eq!(nginx.leaving_pids().len(), 1);

    begun.write(rest.as_bytes()).unwrap();
    assert_eq!(begun.reply().unwrap().status, 201);
    assert_eq!(api.server("app", "127.0.0.1:1001")["state"], "up");
    let put = api.request("PUT", "upstreams/app/servers/127.0.0.1:1002", Some(&json!({})));
    if idle.send(&put).is_ok_and(|reply| reply.status == 201) {
        api.server("app", "127.0.0.1:1002");
    }
    api.ok("POST", "zones/main/flush", None);
    assert!(written(&nginx.path("main.json")).contains("127.0.0.1:1001"));
    drop((begun, idle));
    nginx.settled(1);
    api.server("app", "127.0.0.1:1001");
}

#[test]
fn write_through_an_old_worker_after_the_zone_grew_is_refused_not_lost() {
    let backends = Backend::several(4);
    let mut nginx = four(&backends).start();
    let api = nginx.api();
    let mut begun = Conn::open(api.addr()).unwrap();
    let (first, rest) = halves("127.0.0.1:1001");
    begun.write(first.as_bytes()).unwrap();
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/hold")).unwrap();
    eventually(secs(5), || backends.iter().map(Backend::held).sum::<usize>() == 1);
    // Not on the disk yet when the zone moves.
    api.ok("PUT", "upstreams/app/servers/127.0.0.1:1002", Some(&json!({"weight": 7})));
    nginx.change(|conf| resized(conf, &ZONE.replace("1m", "2m"), FOUR));
    nginx.reload();
    assert_eq!(api.server("app", "127.0.0.1:1002")["weight"], 7);

    begun.write(rest.as_bytes()).unwrap();
    let reply = begun.reply().unwrap();
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    assert_eq!(api.get("upstreams/app/servers/127.0.0.1:1001").0, 404);

    // The old worker's last word is not about the file.
    api.ok("PUT", "upstreams/app/servers/127.0.0.1:1003", Some(&json!({})));
    api.ok("POST", "zones/main/flush", None);
    backends.iter().for_each(Backend::release);
    assert_eq!(held.reply().unwrap().status, 200);
    drop((begun, held));
    nginx.settled(1);
    assert!(written(&nginx.path("main.json")).contains("127.0.0.1:1003"));
}

#[test]
fn configuration_tests_beside_a_live_instance_touch_nothing() {
    let backends = Backend::several(4);
    let good = four(&backends);
    let nginx = good.clone().workers(2).start();
    let api = nginx.api();
    api.ok("POST", &format!("upstreams/app/servers/{}/down", backends[0]), None);
    api.ok("POST", "zones/main/flush", None);
    let bad = resized(
        good.clone(),
        ZONE,
        "upstream app { peerage main; server 127.0.0.1:1001; } upstream x { peerage none; }",
    );
    let other = resized(
        good.clone(),
        &ZONE.replace("1m", "3m"),
        "upstream app { peerage main; server 127.0.0.1:1001; }",
    );
    let file = nginx.path("main.json");
    let entries = || fs::read_dir(nginx.prefix()).unwrap().count();
    let (before, disk) = (api.upstream("app"), identity(&file));
    assert!(good.test().0); // makes its files
    let (names, hits) = (entries(), backends.iter().map(Backend::accepted).sum::<u64>());
    for _ in 0..scale(5, 100) {
        assert!(good.test().0 && good.dump().0 && other.test().0);
        assert!(!bad.test().0 && !bad.dump().0);
        assert_eq!(identity(&file), disk);
    }
    assert_eq!(api.upstream("app"), before);
    assert_eq!(entries(), names);
    assert_eq!(backends.iter().map(Backend::accepted).sum::<u64>(), hits);
}

#[test]
fn old_workers_end_with_their_last_client() {
    let backends = Backend::several(4);
    let mut nginx = four(&backends).workers(2).start();
    let mut held: Vec<Conn> = Vec::new();
    for n in 1..=3 {
        let mut conn = Conn::open(nginx.web()).unwrap();
        conn.begin(&Request::get("/hold")).unwrap();
        eventually(secs(5), || backends.iter().map(Backend::held).sum::<usize>() == n);
        held.push(conn);
        nginx.reload();
    }
    let old = nginx.leaving_pids();
    assert!(!old.is_empty() && old.len() <= 3, "{old:?}");
    holds_for(ms(700), || nginx.leaving_pids() == old);
    let active = |api: &Api| -> u64 {
        let app = api.upstream("app");
        app["servers"].as_array().unwrap().iter().map(|s| s["active"].as_u64().unwrap()).sum()
    };
    assert_eq!(active(&nginx.api()), 3);
    backends.iter().for_each(Backend::release);
    for conn in &mut held {
        assert_eq!(conn.reply().unwrap().status, 200);
    }
    drop(held);
    nginx.settled(2);
    assert_eq!(active(&nginx.api()), 0);
}
