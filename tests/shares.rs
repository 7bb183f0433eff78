//! Who gets how much: over equal and changed sets, over weights that walk, at limits, at the last
//! usable server, and between two tries of one request.

mod support;

use support::*;

fn app(servers: &str, backends: &[Backend]) -> Conf {
    let text = format!(
        "peerage_zone main 1m;
         upstream app {{ peerage main; {servers} }}
         server {{
             listen {{web}};
             add_header X-Tried $upstream_addr always;
             add_header X-Error $peerage_error always;
             location / {{ proxy_pass http://app; proxy_next_upstream error timeout http_500; }}
         }}"
    );
    let conf = Nginx::builder().http(text).with_api("write=on");
    backends.iter().fold(conf, |conf, b| conf.set(&b.name(), b))
}

fn list(backends: &[&Backend]) -> Value {
    let servers: Vec<Value> =
        backends.iter().map(|b| json!({"server": b.addr(), "max_fails": 0})).collect();
    json!({ "servers": servers })
}

/// CASE 10.
#[test]
fn an_equal_update_under_load_changes_neither_shares_nor_revision() {
    let b = Backend::several(3);
    let nginx = app("server {b1}; server {b2}; server {b3};", &b).workers(4).start();
    let api = nginx.api();
    let body = list(&b.iter().collect::<Vec<_>>());
    let revision = api.ok("PUT", "upstreams/app", Some(&body))["revision"].clone();
    let load = Load::to(nginx.web()).threads(2).rate(200).start();
    let enough = scale(300, 12_000);
    let mut puts = 0;
    eventually(secs(scale(30, 120)), || {
        let answer = api.ok("PUT", "upstreams/app", Some(&body));
        assert_eq!((&answer["changed"], &answer["revision"]), (&json!(false), &revision));
        puts += 1;
        load.total() >= enough
    });
    let report = load.stop();
    report.all_ok();
    assert!(puts >= 50, "{puts}");
    let shares = ["b1", "b2", "b3"].map(|name| report.backend(name) * 3);
    let near = |share: u64| share.abs_diff(report.total) <= report.total / 20 + 9;
    assert!(shares.into_iter().all(near), "{:?}", report.backends);
}

/// CASE 11.
#[test]
fn a_replaced_set_is_used_evenly_from_its_first_request_on() {
    let b = Backend::several(11);
    let nginx = app("server {b11};", &b).workers(8).start();
    for round in 0..scale(6, 100) {
        nginx.api().ok("PUT", "upstreams/app", Some(&list(&[&b[10]])));
        nginx.api().ok("PUT", "upstreams/app", Some(&list(&b[..10].iter().collect::<Vec<_>>())));
        let report = hit(nginx.web(), "/", 160);
        report.all_ok();
        let shares: Vec<u64> = b[..10].iter().map(|b| report.backend(&b.name())).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(most * 2 <= least * 3, "in round {round}: {shares:?}");
    }
}

/// CASE 13.
#[test]
fn shares_follow_a_weight_within_one_cycle() {
    let b = Backend::several(3);
    let nginx = app("server {b1}; server {b2}; server {b3};", &b).workers(4).start();
    let path = format!("upstreams/app/servers/{}", b[0]);
    for weight in [5, 1, 100, 1, 0, 100, 0, 1, 5] {
        nginx.api().ok("PATCH", &path, Some(&json!({ "weight": weight })));
        let cycle = weight + 2;
        let report = hit(nginx.web(), "/", cycle * 20_usize.div_ceil(cycle));
        report.all_ok();
        let wanted = report.total as usize * weight / cycle;
        let got = report.backend("b1") as usize;
        let slack = if weight == 0 { 0 } else { 1 + report.total as usize / 20 };
        assert!(got.abs_diff(wanted) <= slack, "weight {weight}: {got} of {}", report.total);
    }
}

/// CASE 21.
#[test]
fn the_last_usable_server_is_never_barred_by_its_failures() {
    let b = Backend::several(2);
    let servers = "server {b1} max_fails=1 fail_timeout=1h; server {b2} max_fails=1 down;";
    let nginx = app(servers, &b).workers(2).start();
    let fails_once = |backend: &Backend| {
        for mode in [Mode::Status(502), Mode::CloseAfter(ms(0)), Mode::ResetAfter(ms(0))] {
            backend.mode(mode);
            assert_eq!(nginx.get("/").status, 502);
            backend.mode(Mode::Serve);
            let report = hit(nginx.web(), "/", 4);
            report.all_ok();
            assert_eq!(report.backend(&backend.name()), 4);
        }
        assert_eq!(nginx.api().server("app", backend)["state"], "up");
    };
    fails_once(&b[0]);
    // The other one is usable, then barred: now the first is the last usable one.
    nginx.api().verb("app", &b[1], "up");
    b[1].mode(Mode::CloseAfter(ms(0)));
    hit(nginx.web(), "/", 4).all_ok();
    let barred = nginx.api().server("app", &b[1]);
    assert_eq!(
        (&barred["state"], &barred["why"]["code"]),
        (&json!("unavail"), &json!("max_fails"))
    );
    fails_once(&b[0]);
    // `up` ends what failures did.
    b[1].mode(Mode::Serve);
    nginx.api().ok("DELETE", &format!("upstreams/app/servers/{}", b[0]), None);
    let report = hit(nginx.web(), "/", 4);
    assert_eq!(report.backend("b2"), 4, "alone it serves: {:?}", report.statuses);
}

/// CASE 8.
#[test]
fn a_set_that_changes_between_two_tries_does_not_fail_the_request() {
    let b = Backend::several(5);
    let servers = "server {b1} max_fails=0; server {b2}; server {b3};";
    let nginx = app(servers, &b).workers(2).start();
    let api = nginx.api();
    let others = |sets: &[usize]| list(&sets.iter().map(|&i| &b[i]).collect::<Vec<_>>());
    let sets: [&[usize]; 5] = [&[0, 1, 3], &[1, 3], &[3], &[3, 4], &[0, 4]];
    b[0].mode(Mode::Hold);
    for set in sets.iter().cycle().take(scale(10, 200)) {
        api.ok("PUT", "upstreams/app", Some(&others(&[0, 1, 2])));
        eventually(secs(10), || b[0].held() == 0);
        let mut conn = Conn::open(nginx.web()).unwrap();
        // Others may be first in turn: they answer at once.
        eventually(secs(10), || {
            conn.begin(&Request::get("/")).unwrap();
            let held = within(ms(500), || b[0].held() == 1 || !conn.silent_for(ms(1)));
            assert!(held.is_some());
            b[0].held() == 1 || conn.reply().is_err()
        });
        api.ok("PUT", "upstreams/app", Some(&others(set)));
        b[0].close_connections();
        let reply = conn.reply().unwrap();
        let tried = reply.header("x-tried").unwrap().to_string();
        assert_eq!(reply.status, 200, "{set:?}: {tried}");
        let allowed: Vec<String> = set.iter().filter(|&&i| i != 0).map(|&i| b[i].name()).collect();
        assert!(allowed.iter().any(|name| name == reply.backend()), "{set:?}: {}", reply.backend());
        assert_eq!(tried.split(", ").count(), 2, "{set:?}: {tried} by {}", reply.backend());
    }
    // Nothing is left to try: the request ends, and so does the next.
    api.ok("PUT", "upstreams/app", Some(&others(&[0, 1])));
    eventually(secs(10), || b[0].held() == 0);
    b[1].mode(Mode::Hold);
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.begin(&Request::get("/")).unwrap();
    eventually(secs(10), || b[0].held() + b[1].held() == 1);
    api.ok("PUT", "upstreams/app", Some(&others(&[])));
    b[0].close_connections();
    b[1].close_connections();
    assert_eq!(conn.reply().unwrap().status, 502);
    let reply = nginx.get("/");
    assert_eq!((reply.status, reply.header("x-error")), (502, Some("no_servers")));
}

/// CASE 22: at each stand the backend holds exactly what it may, whatever goes on around it.
#[test]
fn max_conns_is_exact_over_workers_aborts_retries_and_a_killed_worker() {
    let b = Backend::several(2);
    let servers = "server {b1} max_conns=5 max_fails=0; server {b2} max_fails=0;";
    let mut b = b;
    b[1].stop();
    let nginx = app(servers, &b).workers(8).allow("exited on signal 9").start();
    b[0].mode(Mode::Hold);
    let load = Load::to(nginx.web()).threads(scale(60, 200)).rate(scale(150, 400)).start();
    // The backend sees a little late that somebody has gone; one too many would stay.
    let stand = || {
        eventually(secs(20), || {
            let full = b[0].held() == 5;
            let_pass(ms(if full { 150 } else { 1 }));
            full && b[0].held() == 5
        });
    };
    for round in 0..scale(6, 60) {
        stand();
        assert_eq!(nginx.api().server("app", &b[0])["active"], 5, "in round {round}");
        match round % 3 {
            0 => b[0].release(),
            1 => {
                // Clients that come and go, some while their request is held.
                b[0].release();
                for _ in 0..20 {
                    let mut conn = Conn::open(nginx.web()).unwrap();
                    conn.begin(&Request::get("/")).unwrap();
                    within(ms(10), || b[0].held() == 5);
                }
            }
            _ => signal(nginx.worker_pids()[round % 8], Signal::KILL),
        }
    }
    stand();
    let stop = std::thread::spawn(move || load.stop());
    eventually(secs(30), || {
        b[0].release();
        stop.is_finished()
    });
    assert!(stop.join().unwrap().status(200) > 0);
    eventually(secs(5), || nginx.api().server("app", &b[0])["active"] == 0);
    b[0].mode(Mode::Serve);
    hit(nginx.web(), "/", 20).all_ok();
}
