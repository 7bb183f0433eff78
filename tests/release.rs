//! A release through the verbs: down, drain and up, what they wait for, and who may end what.

mod support;

use support::*;

const APP: &str = "
    peerage_zone main 1m state={prefix}/main.json;
    upstream app { peerage main; server {b1}; server {b2}; }
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    server {
        listen {web};
        location / {
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_read_timeout 120s;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header Upgrade $http_upgrade;
        }
    }";

fn app(b1: &Backend, b2: &Backend) -> Conf {
    Nginx::builder().http(APP).with_api("write=on").set("b1", b1).set("b2", b2).workers(2)
}

/// Requests in flight to `b1`, as many as asked for; those that fall to `b2` pass at once.
fn held(nginx: &Nginx, b1: &Backend, n: usize) -> Vec<Conn> {
    b1.mode(Mode::Hold);
    let mut held = Vec::new();
    while held.len() < n {
        let before = b1.held();
        let mut conn = Conn::open(nginx.web()).unwrap();
        conn.begin(&Request::get("/")).unwrap();
        let mut passed = false;
        eventually(secs(10), || {
            passed = passed || !conn.silent_for(ms(1));
            passed || b1.held() > before
        });
        if !passed {
            held.push(conn);
        }
    }
    b1.mode(Mode::Serve);
    held
}

/// A call of the API that is answered later.
fn begin(nginx: &Nginx, path: &str) -> Conn {
    let mut conn = Conn::open(nginx.api().addr()).unwrap();
    let path = format!("upstreams/app/servers/{path}");
    conn.begin(&nginx.api().request("POST", &path, None).timeout(secs(60))).unwrap();
    conn
}

fn admin(nginx: &Nginx, server: &Backend) -> Value {
    nginx.api().server("app", server)["admin"].clone()
}

#[test]
fn a_release_takes_each_server_out_and_back_without_a_lost_request() {
    let mut backends = Backend::several(2);
    let nginx = app(&backends[0], &backends[1]).start();
    let api = nginx.api();
    let load = Load::to(nginx.web()).path("/").path("/slow?ms=30").threads(8).rate(200).start();
    for backend in &mut backends {
        let (status, body) =
            api.verb("app", &*backend, "down?wait=30s&min_up=1&reason=v2&if_reason=v2");
        assert_eq!((status, &body["drained"]), (200, &json!(true)), "{body}");
        assert_eq!(body["server"]["active"], 0, "{body}");
        assert_eq!(body["server"]["admin"]["reason"], "v2");
        let (seen, sent) = (backend.requests(), load.total());
        eventually(secs(20), || load.total() > sent + 20);
        assert_eq!(backend.requests(), seen, "a server that is down gets nothing");
        backend.stop();
        backend.rename(&format!("{} v2", backend.name()));
        backend.start();
        let (status, body) = api.verb("app", &*backend, "up?wait=30s&if_reason=v2");
        assert_eq!((status, &body["ready"]), (200, &json!(true)), "{body}");
        let seen = backend.requests();
        eventually(secs(20), || backend.requests() > seen);
    }
    load.stop().all_ok();
}

#[test]
fn a_wait_that_expires_tells_the_numbers_and_the_server_is_down_all_the_same() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let conns = held(&nginx, &b1, 3);
    let (status, body) = nginx.api().verb("app", &b1, "down?wait=300ms");
    assert_eq!(status, 504, "{body}");
    assert_eq!(body["type"], "urn:peerage:wait-expired");
    assert_eq!(body["drained"], false);
    assert_eq!((&body["active"], &body["upgraded"]), (&json!(3), &json!(0)));
    assert_eq!((&body["changed"], &body["revision"]), (&json!(true), &revision(&nginx)));
    assert_eq!(admin(&nginx, &b1)["state"], "down");
    let report = hit(nginx.web(), "/", 10);
    report.all_ok();
    assert_eq!(report.backend("b2"), 10);

    // What is down already is still waited for, and nothing changes.
    let again = nginx.api().call("POST", &format!("upstreams/app/servers/{b1}/down?wait=0"), None);
    assert_eq!(again.status, 504, "{}", again.text());
    let mut wait = begin(&nginx, &format!("{b1}/down?wait=40s"));
    assert!(wait.silent_for(ms(200)), "it waits");
    b1.release();
    let reply = wait.reply().unwrap();
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["drained"], &body["changed"]),
        (200, &true.into(), &false.into())
    );
    assert_eq!(body["revision"], revision(&nginx));
    for mut conn in conns {
        assert_eq!(conn.reply().unwrap().backend(), "b1");
    }
    assert_eq!(nginx.api().verb("app", &b1, "down?wait=5s").0, 200, "at once where nothing runs");
}

fn revision(nginx: &Nginx) -> Value {
    nginx.api().ok("GET", "/", None)["revision"].clone()
}

#[test]
fn websockets_and_slow_downloads_count_until_they_are_closed() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let upgrade = Request::get("/").header("Upgrade", "websocket").header("Connection", "upgrade");
    let download = Request::get("/download?kb=4000&ms=20");
    for (request, upgraded) in [(upgrade, 1), (download, 0)] {
        let open = || {
            let mut conn = Conn::open(nginx.web()).unwrap();
            conn.begin(&request).unwrap();
            let head = conn.head().unwrap();
            (head.backend() == "b1").then_some(conn)
        };
        let mut conn = eventually(secs(5), open);
        let (status, body) = nginx.api().verb("app", &b1, "down?wait=300ms");
        assert_eq!(status, 504, "{body}");
        assert_eq!((&body["active"], &body["upgraded"]), (&json!(1), &json!(upgraded)), "{body}");
        let shown = nginx.api().server("app", &b1);
        assert_eq!((&shown["active"], &shown["upgraded"]), (&json!(1), &json!(upgraded)));
        if upgraded == 1 {
            conn.write(b"still here").unwrap();
            assert_eq!(conn.read(10).unwrap(), b"still here");
        }
        let mut wait = begin(&nginx, &format!("{b1}/down?wait=40s"));
        assert!(wait.silent_for(ms(200)));
        drop(conn);
        let reply = wait.reply().unwrap();
        assert_eq!((reply.status, &reply.json()["drained"]), (200, &json!(true)));
        nginx.api().verb("app", &b1, "up?wait=5s");
    }
}

#[test]
fn a_wait_goes_on_over_a_reload_and_counts_the_old_generation() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).start();
    let mut conns = held(&nginx, &b1, 2);
    let mut old = begin(&nginx, &format!("{b1}/down?wait=60s&reason=v2"));
    eventually(secs(5), || admin(&nginx, &b1)["state"] == "down");
    nginx.reload();
    assert_eq!(admin(&nginx, &b1)["reason"], "v2");
    let (status, body) = nginx.api().verb("app", &b1, "down?wait=300ms&reason=v2");
    assert_eq!((status, &body["active"]), (504, &json!(2)), "{body}");
    let mut new = begin(&nginx, &format!("{b1}/down?wait=60s&reason=v2"));
    assert!(old.silent_for(ms(200)) && new.silent_for(ms(200)));
    nginx.reload();
    assert!(old.silent_for(ms(200)) && new.silent_for(ms(200)));
    b1.release();
    for wait in [&mut old, &mut new] {
        let reply = wait.reply().unwrap();
        assert_eq!((reply.status, &reply.json()["drained"]), (200, &json!(true)));
    }
    for conn in &mut conns {
        assert_eq!(conn.reply().unwrap().status, 200);
    }
    drop((conns, old, new));
    nginx.settled(2);
}

#[test]
fn a_wait_counts_old_workers_after_a_reload_with_another_zone_size() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).start();
    let _conns = held(&nginx, &b1, 2);
    let mut old = begin(&nginx, &format!("{b1}/down?wait=60s&reason=v2"));
    eventually(secs(5), || admin(&nginx, &b1)["state"] == "down");
    nginx.change(|conf| conf.http(APP.replace("main 1m", "main 2m")).with_api("write=on"));
    nginx.reload();
    assert_eq!(admin(&nginx, &b1)["reason"], "v2");
    let (status, body) = nginx.api().verb("app", &b1, "down?wait=300ms&reason=v2");
    assert_eq!(status, 504, "{body}");
    let mut new = begin(&nginx, &format!("{b1}/down?wait=60s&reason=v2"));
    assert!(old.silent_for(ms(200)) && new.silent_for(ms(200)));
    b1.release();
    for wait in [&mut old, &mut new] {
        let reply = wait.reply().unwrap();
        assert_eq!((reply.status, &reply.json()["drained"]), (200, &json!(true)));
    }
}

#[test]
fn a_wait_goes_on_when_its_server_is_removed_and_ends_when_it_is_set_up() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let api = nginx.api();
    let _conns = held(&nginx, &b1, 1);
    let mut wait = begin(&nginx, &format!("{b1}/down?wait=40s"));
    eventually(secs(5), || admin(&nginx, &b1)["state"] == "down");
    api.verb("app", &b1, "up");
    let reply = wait.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["active"]), (504, &json!(1)), "at once");

    let mut wait = begin(&nginx, &format!("{b1}/down?wait=40s"));
    eventually(secs(5), || admin(&nginx, &b1)["state"] == "down");
    api.ok("DELETE", &format!("upstreams/app/servers/{b1}"), None);
    assert!(wait.silent_for(ms(300)), "its request goes on");
    b1.release();
    let reply = wait.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["drained"]), (200, &json!(true)));
}

#[test]
fn a_client_that_goes_away_leaves_the_change() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let _conns = held(&nginx, &b1, 1);
    let wait = begin(&nginx, &format!("{b1}/down?wait=60s&reason=gone"));
    eventually(secs(5), || admin(&nginx, &b1)["state"] == "down");
    drop(wait);
    hit(nginx.web(), "/", 10).all_ok();
    assert_eq!(admin(&nginx, &b1)["reason"], "gone");
    b1.release();
}

#[test]
fn up_waits_until_the_server_is_eligible() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let api = nginx.api();
    let _conns = held(&nginx, &b1, 1);
    let path = format!("upstreams/app/servers/{b1}");
    api.ok("PATCH", &path, Some(&json!({"max_conns": 1})));
    api.verb("app", &b1, "down");
    let (status, body) = api.verb("app", &b1, "up?wait=300ms");
    assert_eq!((status, &body["ready"]), (504, &json!(false)), "{body}");
    assert_eq!(body["why"]["code"], "max_conns", "{body}");
    assert_eq!(admin(&nginx, &b1)["state"], "up", "the change stands");
    let mut wait = begin(&nginx, &format!("{b1}/up?wait=40s"));
    assert!(wait.silent_for(ms(200)));
    b1.release();
    let reply = wait.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["ready"]), (200, &json!(true)));

    api.ok("PATCH", &path, Some(&json!({"weight": 0})));
    let (status, body) = api.verb("app", &b1, "up?wait=100ms");
    assert_eq!((status, &body["why"]["code"]), (504, &json!("weight_zero")), "{body}");
}

#[test]
fn min_up_keeps_the_last_servers_up() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let api = nginx.api();
    assert_eq!(api.verb("app", &b1, "down?min_up=1").0, 200);
    for verb in ["down?min_up=1&wait=5s", "drain?min_up=1", "down?min_up=2"] {
        let (status, body) = api.verb("app", &b2, verb);
        assert_eq!(status, 409, "{verb}: {body}");
        assert!(body["detail"].as_str().unwrap().contains("\"app\""), "{body}");
        assert_eq!(admin(&nginx, &b2)["state"], "up");
    }
    api.verb("app", &b1, "up");
    assert_eq!(api.verb("app", &b2, "down?min_up=2").0, 409);
    assert_eq!(api.verb("app", &b2, "drain?min_up=1").0, 200);
    let (status, _) = api.verb("app", &b1, "down");
    assert_eq!(status, 200, "without min_up the operator may");
}

/// CASE 33.
#[test]
fn neither_a_script_nor_a_release_tool_undoes_the_operator() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let api = nginx.api();
    api.verb("app", &b1, "down?reason=disk");
    let list = json!({"servers": [{"server": b1.addr()}, {"server": b2.addr()}]});
    for _ in 0..scale(5, 60) {
        api.ok("PUT", "upstreams/app", Some(&list));
        for verb in ["up?if_reason=v2", "down?if_reason=v2&reason=v2", "drain?if_reason=v2"] {
            let (status, body) = api.verb("app", &b1, verb);
            assert_eq!(status, 409, "{verb}: {body}");
        }
        let admin = admin(&nginx, &b1);
        assert_eq!((&admin["state"], &admin["reason"]), (&json!("down"), &json!("disk")));
        assert_eq!(hit(nginx.web(), "/", 4).backend("b2"), 4);
    }
    assert_eq!(api.verb("app", &b1, "up").0, 200);
    assert!(hit(nginx.web(), "/", 4).backend("b1") > 0);
    assert_eq!(api.verb("app", &b1, "down?if_reason=v2&reason=v2").0, 200);
    assert_eq!(api.verb("app", &b1, "up?if_reason=v2").0, 200);
}

#[test]
fn a_ttl_ends_by_itself_and_over_a_restart() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).start();
    let is = |nginx: &Nginx, state: &str| admin(nginx, &b1)["state"] == state;
    nginx.api().verb("app", &b1, "down?ttl=2s&reason=nap");
    assert!(admin(&nginx, &b1)["until"].is_string());
    assert_eq!(hit(nginx.web(), "/", 6).backend("b1"), 0);
    eventually(secs(10), || is(&nginx, "up"));
    assert!(hit(nginx.web(), "/", 6).backend("b1") > 0);
    assert_eq!(admin(&nginx, &b1)["until"], Value::Null);

    nginx.api().verb("app", &b1, "drain?ttl=8s&reason=nap");
    let until = admin(&nginx, &b1)["until"].clone();
    nginx.restart();
    assert!(is(&nginx, "drain"), "an absolute time is kept");
    assert_eq!(admin(&nginx, &b1)["until"], until);
    eventually(secs(20), || is(&nginx, "up"));

    nginx.api().verb("app", &b1, "down?ttl=1s");
    nginx.stop();
    let_pass(ms(1500));
    nginx.start();
    eventually(secs(5), || is(&nginx, "up"));
}
