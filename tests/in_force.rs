//! A change is in force everywhere once it is answered, and takes nothing from requests in flight.

mod support;

use support::*;

const APP: &str = "
    peerage_zone main 1m;
    log_format tried '$request_uri $status $upstream_addr $peerage_server $peerage_server_id';
    upstream app { peerage main; server {b1}; server {b2}; }
    upstream named { peerage main name=$arg_u; }
    server {
        listen {web};
        access_log {prefix}/logs/access.log tried;
        location / { proxy_pass http://app; }
        location /named { proxy_pass http://named; }
    }";

fn app(b1: &Backend, b2: &Backend) -> Conf {
    Nginx::builder().http(APP).with_api("write=on").set("b1", b1).set("b2", b2)
}

/// CASE 6: `out` is answered, and b1 gets nothing; `back` is answered, and it gets its share.
fn nothing_begins_after(rounds: usize, out: impl Fn(&Api, &str), back: impl Fn(&Api, &str)) {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).workers(8).start();
    let api = nginx.api();
    let path = format!("upstreams/app/servers/{b1}");
    for round in 0..rounds {
        out(&api, &path);
        let report = hit(nginx.web(), "/", 20);
        report.all_ok();
        assert_eq!(report.backend("b1"), 0, "in round {round}");
        back(&api, &path);
        let report = hit(nginx.web(), "/", 4);
        report.all_ok();
        assert!(report.backend("b1") > 0, "in round {round}: {:?}", report.backends);
    }
}

#[test]
fn no_request_that_begins_after_down_is_answered_goes_there() {
    let post = |api: &Api, path: &str| drop(api.ok("POST", path, None));
    nothing_begins_after(
        scale(50, 2000),
        |api, path| post(api, &format!("{path}/down")),
        |api, path| post(api, &format!("{path}/up")),
    );
}

#[test]
fn no_request_that_begins_after_drain_is_answered_goes_there() {
    let post = |api: &Api, path: &str| drop(api.ok("POST", path, None));
    nothing_begins_after(
        scale(20, 2000),
        |api, path| post(api, &format!("{path}/drain")),
        |api, path| post(api, &format!("{path}/up")),
    );
}

#[test]
fn no_request_that_begins_after_a_removal_is_answered_goes_there() {
    nothing_begins_after(
        scale(40, 2000),
        |api, path| drop(api.ok("DELETE", path, None)),
        |api, path| drop(api.ok("PUT", path, Some(&json!({})))),
    );
}

#[test]
fn no_request_that_begins_after_weight_0_is_answered_goes_there() {
    nothing_begins_after(
        scale(40, 2000),
        |api, path| drop(api.ok("PATCH", path, Some(&json!({"weight": 0})))),
        |api, path| drop(api.ok("PATCH", path, Some(&json!({"weight": 1})))),
    );
}

#[test]
fn no_request_that_begins_after_the_set_is_replaced_goes_to_what_it_left_out() {
    let whole = |api: &Api, keep: &dyn Fn(&str) -> bool, more: &[&str]| {
        let upstream = api.upstream("app");
        let servers = upstream["servers"].as_array().unwrap();
        let addrs = servers.iter().map(|server| server["server"].as_str().unwrap());
        let addrs = addrs.filter(|addr| keep(addr)).chain(more.iter().copied());
        let servers: Vec<Value> = addrs.map(|addr| json!({ "server": addr })).collect();
        api.ok("PUT", "upstreams/app", Some(&json!({ "servers": servers })));
    };
    let b1 = |path: &str| path.rsplit('/').next().unwrap().to_string();
    nothing_begins_after(
        scale(20, 2000),
        |api, path| whole(api, &|addr| addr != b1(path), &[]),
        |api, path| whole(api, &|_| true, &[&b1(path)]),
    );
}

/// CASE 5, with the set replaced as a whole and server by server.
#[test]
fn an_empty_upstream_answers_502_at_once_and_its_first_server_200_at_once() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).workers(8).start();
    let api = nginx.api();
    let only = |status: u16, path: &str| {
        let report = hit(nginx.web(), path, 16);
        assert_eq!(report.status(status), 16, "{:?}", report.statuses);
    };
    for _ in 0..scale(10, 200) {
        for backend in [&b1, &b2] {
            api.ok("DELETE", &format!("upstreams/app/servers/{backend}"), None);
        }
        only(502, "/");
        api.ok("PUT", &format!("upstreams/app/servers/{b2}"), Some(&json!({})));
        only(200, "/");
        api.ok("PUT", "upstreams/app", Some(&json!({"servers": []})));
        only(502, "/");
        api.ok("PUT", "upstreams/app", Some(&json!({"servers": [{"server": b1.addr()}]})));
        only(200, "/");
        api.ok("PUT", &format!("upstreams/app/servers/{b2}"), Some(&json!({})));

        api.ok("PUT", "upstreams/fresh", Some(&json!({"servers": []})));
        only(502, "/named?u=fresh");
        api.ok("PUT", &format!("upstreams/fresh/servers/{b1}"), Some(&json!({})));
        only(200, "/named?u=fresh");
        api.ok("DELETE", "upstreams/fresh", None);
        only(502, "/named?u=fresh");
    }
}

/// CASE 1.
#[test]
fn a_removed_server_keeps_serving_its_open_requests() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).workers(4).start();
    let api = nginx.api();
    let path = format!("upstreams/app/servers/{b1}");
    let id = api.ok("GET", &path, None)["id"].as_u64().unwrap();
    let mut slow = Vec::new();
    while b1.held() < 20 {
        let mut conn = Conn::open(nginx.web()).unwrap();
        conn.begin(&Request::get("/hold").header("Connection", "close")).unwrap();
        slow.push(conn);
        eventually(secs(10), || b1.held() + b2.held() == slow.len());
    }
    api.ok("DELETE", &path, None);
    b2.release();
    let zone = api.ok("GET", "zones/main", None)["bytes"]["used"].as_u64().unwrap();
    for i in 0..200 {
        let other = format!("upstreams/app/servers/127.0.1.{i}:1");
        api.ok("PUT", &other, Some(&json!({"weight": 0})));
        if i >= 5 {
            let before = format!("upstreams/app/servers/127.0.1.{}:1", i - 5);
            api.ok("DELETE", &before, None);
        }
    }
    assert_eq!(b1.held(), 20);
    hit(nginx.web(), "/", 20).all_ok();
    b1.release();
    let mut answers: Vec<String> =
        slow.iter_mut().map(|conn| conn.reply().unwrap()).map(|r| r.backend().into()).collect();
    answers.retain(|name| name == "b1");
    assert_eq!(answers.len(), 20);
    let line = format!("/hold 200 {b1} {b1} {id}");
    let logged = || nginx.log("access.log").lines().filter(|l| **l == *line).count();
    eventually(secs(5), || logged() == 20);
    for i in 195..200 {
        api.ok("DELETE", &format!("upstreams/app/servers/127.0.1.{i}:1"), None);
    }
    // What a removed server leaves is collected by later changes.
    eventually(secs(10), || {
        api.ok("PATCH", &format!("upstreams/app/servers/{b2}"), Some(&json!({"weight": 2})));
        api.ok("PATCH", &format!("upstreams/app/servers/{b2}"), Some(&json!({"weight": 1})));
        api.ok("GET", "zones/main", None)["bytes"]["used"].as_u64().unwrap() <= zone
    });
    api.ok("PUT", &path, Some(&json!({})));
    assert_ne!(api.ok("GET", &path, None)["id"], id, "an id is never used again");
    assert!(hit(nginx.web(), "/", 4).backend("b1") > 0);
}
