//! Writes of clients of NGINX Plus: the same changes as through `v1/`, with their own answers.

mod support;

use support::*;

const APP: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.9.9.1:8080 weight=3; server 10.9.9.2:8080 backup; }";
const SERVERS: &str = "http/upstreams/app/servers";

fn start() -> Nginx {
    Nginx::builder().http(APP).with_api("write=on").start()
}

fn plus(nginx: &Nginx) -> Api {
    Api::new(nginx.addr("api"), "/api/9")
}

fn code(value: &Value) -> &str {
    value["error"]["code"].as_str().unwrap_or_default()
}

fn revision(nginx: &Nginx) -> u64 {
    nginx.api().get("zones/main").1["revision"].as_u64().unwrap()
}

/// The path of a server.
fn one(nginx: &Nginx, server: &str) -> String {
    format!("{SERVERS}/{}", nginx.api().server("app", server)["id"])
}

#[test]
fn servers_are_added_altered_and_removed() {
    let nginx = start();
    let (api, v1) = (plus(&nginx), nginx.api());
    let body = json!({"server": "10.9.9.3", "weight": "5", "max_conns": 7, "max_fails": 2,
        "fail_timeout": "21s", "slow_start": 30, "route": "c", "backup": "true", "down": true});
    let reply = api.call("POST", &format!("{SERVERS}/"), Some(&body));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let id = reply.json()["id"].as_u64().unwrap();
    let text = format!(
        r#"{{"id":{id},"server":"10.9.9.3:80","weight":5,"max_conns":7,"max_fails":2,"fail_timeout":"21s","slow_start":"30s","route":"c","backup":true,"down":true}}"#
    );
    assert_eq!(reply.text(), text);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let shown = v1.server("app", "10.9.9.3:80");
    assert_eq!((&shown["id"], &shown["origin"]), (&json!(id), &json!("api")));
    assert_eq!((&shown["state"], &shown["why"]["code"]), (&json!("down"), &json!("down_by")));
    let (status, fault) = api.post_json(SERVERS, &json!({"server": "10.9.9.3:80"}));
    assert_eq!((status, code(&fault)), (409, "EntryExists"));

    let path = format!("{SERVERS}/{id}");
    let (status, server) = api.patch(&path, &json!({"weight": 9, "down": "false", "backup": true}));
    assert_eq!(status, 200, "{server}");
    assert_eq!((&server["weight"], &server["down"]), (&json!(9), &json!(false)));
    assert_eq!(v1.server("app", "10.9.9.3:80")["admin"]["state"], "up");
    assert_eq!(api.get(&path).1, server);
    for (body, word) in [
        (json!({"id": id}), "UpstreamConfFormatError"),
        (json!({"backup": false}), "UpstreamConfFormatError"),
        (json!({"server": "10.9.9.4:80"}), "UpstreamServerImmutable"),
        (json!({"server": "name.test:80"}), "UpstreamServerImmutable"),
    ] {
        let (status, fault) = api.patch(&path, &body);
        assert_eq!((status, code(&fault)), (400, word), "{body}");
    }
    let (status, fault) = api.post_json(SERVERS, &json!({"server": "name.test:80"}));
    assert_eq!((status, code(&fault)), (400, "UpstreamConfNoResolver"), "{fault}");

    let (status, rest) = api.delete(&path);
    assert_eq!(status, 200);
    let servers = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|server| server["server"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(servers(&rest), ["10.9.9.1:8080", "10.9.9.2:8080"]);
    assert_eq!(api.delete(&path).0, 404);
    for server in ["10.9.9.1:8080", "10.9.9.2:8080"] {
        assert_eq!(api.delete(&one(&nginx, server)).0, 200);
    }
    let reply = api.call("GET", SERVERS, None);
    assert_eq!((reply.status, reply.text().as_str()), (200, "[]"));
    assert_eq!(api.get("http/upstreams/app").1["peers"], json!([]));
    let (status, server) = api.post_json(SERVERS, &json!({"server": "10.9.9.1:8080"}));
    assert_eq!((status, &server["weight"]), (201, &json!(1)));
}

#[test]
fn flags_set_the_admin_state_and_its_end_is_as_good_as_up() {
    let nginx = start();
    let (api, v1) = (plus(&nginx), nginx.api());
    let path = one(&nginx, "10.9.9.1:8080");
    let admin = || v1.server("app", "10.9.9.1:8080")["admin"].clone();
    for (body, state) in [
        (json!({"drain": true}), "drain"),
        (json!({"down": false}), "up"),
        (json!({"drain": "true"}), "drain"),
        (json!({"drain": false}), "up"),
        (json!({"down": true}), "down"),
        (json!({"drain": false}), "down"),
        (json!({"weight": 4}), "down"),
        (json!({"down": false, "drain": true}), "drain"),
        (json!({"down": true, "drain": true}), "down"),
        (json!({"down": "false"}), "up"),
    ] {
        let (status, server) = api.patch(&path, &body);
        assert_eq!(status, 200, "{server}");
        assert_eq!(admin()["state"], state, "{body}");
        assert_eq!(server["down"], state == "down", "{body}");
        assert_eq!(server.get("drain").is_some(), state == "drain", "{body}");
    }
    // What an operator said stays with its reason while the state is as it was.
    v1.verb("app", "10.9.9.1:8080", "down?reason=deploy-812&ttl=1h");
    let before = admin();
    assert_eq!(api.patch(&path, &json!({"down": true, "weight": 6})).0, 200);
    assert_eq!(admin(), before);
    let events = v1.ok("GET", "events?since=0", None);
    let last = events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["kind"], &last["upstream"]), (&json!("server"), &json!("app")), "{last}");
}

/// CASE 30: a group's instances are stated again and again.
#[test]
fn a_patch_of_what_holds_already_writes_nothing() {
    let nginx = Nginx::builder()
        .http(APP.replace("1m", "1m state={prefix}/main.json"))
        .with_api("write=on")
        .start();
    let (api, v1) = (plus(&nginx), nginx.api());
    let path = one(&nginx, "10.9.9.1:8080");
    assert_eq!(v1.patch("upstreams/app/servers/10.9.9.1:8080", &json!({"weight": 42})).0, 200);
    v1.verb("app", "10.9.9.1:8080", "drain?reason=disk");
    v1.ok("POST", "zones/main/flush", None);
    let size = || -> u64 {
        let files = std::fs::read_dir(nginx.prefix()).unwrap().flatten();
        let ours = files.filter(|file| file.file_name().to_string_lossy().starts_with("main.json"));
        ours.map(|file| file.metadata().unwrap().len()).sum()
    };
    let (before, bytes) = (v1.upstream("app"), size());
    let seq = v1.get("zones/main").1["seq"].clone();
    let whole = api.get(&path).1;
    let mut echo = whole.clone();
    echo.as_object_mut().unwrap().remove("id");
    for _ in 0..20 {
        for body in [
            json!({"server": "10.9.9.1:8080", "max_conns": 0, "max_fails": 1,
                "fail_timeout": "10s", "slow_start": "0s"}),
            json!({"max_fails": "1", "fail_timeout": 10, "drain": true}),
            json!({}),
            echo.clone(),
        ] {
            let reply = api.call("PATCH", &path, Some(&body));
            assert_eq!((reply.status, reply.json()), (200, whole.clone()), "{body}");
            assert_eq!(reply.header("peerage-revision").unwrap(), before["revision"].to_string());
        }
    }
    v1.ok("POST", "zones/main/flush", None);
    assert_eq!((v1.upstream("app"), size()), (before, bytes));
    assert_eq!(v1.get("zones/main").1["seq"], seq, "no event");
}

#[test]
fn refused_bodies_change_nothing_and_leave_the_connection_in_step() {
    let nginx = start();
    let before = nginx.api().upstream("app");
    let path = one(&nginx, "10.9.9.1:8080");
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let deep = format!("{{\"server\":{}1{}}}", "[".repeat(500), "]".repeat(500));
    let format = (400, "UpstreamConfFormatError");
    let long = format!(r#"{{"server":"{}:80"}}"#, "a".repeat(100_000));
    let table: &[(&str, &str, (u16, &str))] = &[
        ("POST", "", (415, "JsonError")),
        ("POST", "{", (415, "JsonError")),
        ("POST", "server=10.9.9.9", (415, "JsonError")),
        ("POST", &deep, (415, "JsonError")),
        ("POST", "[]", format),
        ("POST", "{}", format),
        ("POST", r#"{"weight":1}"#, format),
        ("POST", r#"{"server":"10.9.9.9","server":"10.9.9.8"}"#, format),
        ("POST", r#"{"server":"10.9.9.9","id":1}"#, format),
        ("POST", r#"{"server":"10.9.9.9","labels":{}}"#, format),
        ("POST", r#"{"server":{"a":1}}"#, format),
        ("POST", r#"{"server":"10.9.9.9","down":null}"#, format),
        ("POST", r#"{"server":"10.9.9.9:99999"}"#, (400, "UpstreamBadAddress")),
        ("POST", r#"{"server":"a b"}"#, (400, "UpstreamBadAddress")),
        ("POST", r#"{"server":"unix:x"}"#, (400, "UpstreamBadAddress")),
        ("POST", &long, (400, "UpstreamBadAddress")),
        ("POST", r#"{"server":"10.9.9.9","weight":-1}"#, (400, "UpstreamBadWeight")),
        ("POST", r#"{"server":"10.9.9.9","weight":1e308}"#, (400, "UpstreamBadWeight")),
        ("PATCH", r#"{"max_conns":"99999999999"}"#, (400, "UpstreamBadMaxConns")),
        ("PATCH", r#"{"max_fails":65536}"#, (400, "UpstreamBadMaxFails")),
        ("PATCH", r#"{"fail_timeout":"1x"}"#, (400, "UpstreamBadFailTimeout")),
        ("PATCH", r#"{"slow_start":"9h"}"#, (400, "UpstreamBadSlowStart")),
        ("PATCH", r#"{"route":"0123456789012345678901234567890123"}"#, (400, "UpstreamBadRoute")),
        ("PATCH", "\u{feff}{}", (415, "JsonError")),
    ];
    for (method, body, (status, word)) in table {
        let path = if *method == "POST" { SERVERS } else { &path };
        for (kind, size) in [("text/plain", None), ("application/x-www-form-urlencoded", Some(7))] {
            let request = Request::new(method, &format!("/api/9/{path}"));
            let request = request.header("Content-Type", kind).body(*body);
            let request = match size {
                Some(size) => request.chunked(size),
                None => request,
            };
            let shown = &body[..body.len().min(60)];
            let reply = conn.send(&request).unwrap_or_else(|error| panic!("{shown}: {error}"));
            let got = reply.json();
            assert_eq!((reply.status, code(&got)), (*status, *word), "{method} {shown}: {got}");
            assert!(reply.body.len() < 500, "{got}");
        }
    }
    // Bodies that nobody wants, and one that is too long.
    for (method, path, status) in [
        ("GET", "/api/9/nginx", 200),
        ("PUT", "/api/9/http/upstreams/app", 405),
        ("POST", "/api/9/http/upstreams/nothing/servers", 404),
        ("PATCH", "/api/9/http/upstreams/app/servers/x", 400),
        ("DELETE", "/api/9/http/upstreams/app/servers/99", 404),
    ] {
        let request = Request::new(method, path).body(r#"{"server":"10.9.9.9"}"#.repeat(50));
        let request = if status == 404 && method == "POST" {
            Request::new(method, path).body(r#"{"server":"10.9.9.9"}"#)
        } else {
            request
        };
        assert_eq!(conn.send(&request).unwrap().status, status, "{method} {path}");
    }
    let body = format!(r#"{{"server":"{}"}}"#, "x".repeat(600_000));
    let large = Request::post(&format!("/api/9/{SERVERS}")).body(body);
    assert_eq!(conn.send(&large).unwrap().status, 400, "within nginx's own limit");
    assert_eq!(nginx.api().upstream("app"), before);
    assert_eq!(conn.send(&Request::get("/api/9/http/upstreams")).unwrap().status, 200);
}

#[test]
fn write_modes_and_other_sites_are_those_of_the_location() {
    let nginx = Nginx::builder()
        .http(format!(
            "{APP} server {{ listen {{api}};
                 location /off {{ peerage_api; }}
                 location /operate {{ peerage_api write=operate; }}
                 location /on {{ peerage_api write=on; }}
                 location /api {{ peerage_api; }} }}"
        ))
        .start();
    let door = |name: &str| Api::new(nginx.addr("api"), &format!("/{name}/9"));
    let path = one(&nginx, "10.9.9.1:8080");
    let before = revision(&nginx);
    for (method, path) in [
        ("POST", SERVERS),
        ("PATCH", &path),
        ("DELETE", &path),
        ("DELETE", "http/upstreams/nothing"),
        ("PATCH", "http/upstreams/a%20b/servers/x"),
    ] {
        let reply = door("off").call(method, path, Some(&json!({"server": "10.9.9.9"})));
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
        assert_eq!(code(&reply.json()), "MethodDisabled");
    }
    let operate = door("operate");
    for (method, path, body) in [
        ("POST", SERVERS, json!({"server": "10.9.9.9"})),
        ("DELETE", path.as_str(), json!({})),
        ("DELETE", "http/upstreams/app", json!({})),
        ("PATCH", &path, json!({"down": true, "max_conns": 1})),
        ("PATCH", &path, json!({"route": "a"})),
    ] {
        let reply = operate.call(method, path, Some(&body));
        assert_eq!((reply.status, code(&reply.json())), (403, "NotPermitted"), "{method} {body}");
    }
    assert_eq!(revision(&nginx), before);
    for body in [
        json!({"down": true, "server": "10.9.9.1:8080"}),
        json!({"weight": 9}),
        json!({"drain": true}),
        json!({"down": false}),
    ] {
        assert_eq!(operate.patch(&path, &body).0, 200, "{body}");
    }
    assert_eq!(revision(&nginx), before + 4);
    let foreign = door("on").with("Origin", "http://evil.test");
    for (method, path) in [("POST", SERVERS), ("DELETE", "http/upstreams/app"), ("PATCH", &path)] {
        let reply = foreign.call(method, path, Some(&json!({"down": true})));
        assert_eq!((reply.status, code(&reply.json())), (403, "CrossSite"), "{method}");
    }
    assert_eq!(foreign.get(SERVERS).0, 200);
    let tagged = door("on").with("If-Match", "\"0\"");
    let (status, fault) = tagged.patch(&path, &json!({"down": true}));
    assert_eq!((status, code(&fault)), (412, "Stale"));
    assert_eq!(revision(&nginx), before + 4);
}

#[test]
fn a_dry_run_shows_what_would_be_and_changes_nothing() {
    let nginx = start();
    let api = plus(&nginx);
    let (path, before) = (one(&nginx, "10.9.9.1:8080"), nginx.api().upstream("app"));
    let (status, server) = api.patch(&format!("{path}?dry_run=1"), &json!({"down": true}));
    assert_eq!((status, &server["down"]), (200, &json!(true)));
    let (status, server) =
        api.post_json(&format!("{SERVERS}?dry_run=1"), &json!({"server": "10.9.9.3"}));
    assert_eq!((status, &server["server"]), (201, &json!("10.9.9.3:80")));
    let (status, rest) = api.delete(&format!("{path}?dry_run=1"));
    assert_eq!((status, rest.as_array().unwrap().len()), (200, 1));
    assert_eq!(api.delete("http/upstreams/app?dry_run=1").0, 204);
    assert_eq!(api.patch(&format!("{path}?dry_run=yes"), &json!({})).0, 400);
    assert_eq!(nginx.api().upstream("app"), before);
}

#[test]
fn every_worker_acts_on_an_answered_write() {
    let backends = Backend::several(2);
    let mut conf = Nginx::builder().workers(4).http(
        "peerage_zone main 1m state={prefix}/main.json flush=always;
         upstream app { peerage main; server {b1}; server {b2}; }
         server { listen {web}; location / { proxy_pass http://app; } }",
    );
    for backend in &backends {
        conf = conf.set(&backend.name(), backend);
    }
    let nginx = conf.with_api("write=on").start();
    let api = plus(&nginx);
    for round in 0..scale(30, 300) {
        let (up, down) = (&backends[round % 2], &backends[(round + 1) % 2]);
        assert_eq!(api.patch(&one(&nginx, &up.addr()), &json!({"down": false})).0, 200);
        let reply = api.call("PATCH", &one(&nginx, &down.addr()), Some(&json!({"down": true})));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let durable = nginx.api().get("zones/main").1["state"]["durable_revision"].clone();
        let revision: u64 = reply.header("peerage-revision").unwrap().parse().unwrap();
        assert!(durable.as_u64().unwrap() >= revision, "answered before it was on the disk");
        let report = hit(nginx.web(), "/", 8);
        report.all_ok();
        assert_eq!(report.backend(&up.name()), 8, "round {round}");
    }
}

/// CASE 35: a connection that was opened before a reload.
#[test]
fn a_write_through_an_old_worker_reaches_the_live_zone_or_is_refused() {
    let nginx = Nginx::builder().workers(2).http(APP).with_api("write=on").start();
    let path = format!("/api/9/{}", one(&nginx, "10.9.9.1:8080"));
    let patch = |down: bool| Request::new("PATCH", &path).json(&json!({"down": down}));
    let state = || nginx.api().server("app", "10.9.9.1:8080")["state"].clone();
    let mut idle = Conn::open(nginx.addr("api")).unwrap();
    assert_eq!(idle.send(&Request::get("/api/9/nginx")).unwrap().status, 200);
    // Its head is there, its body is not: the old worker stays for it.
    let mut begun = Conn::open(nginx.addr("api")).unwrap();
    let bytes = patch(true).bytes();
    let (head, rest) = bytes.split_at(bytes.len() - 3);
    begun.write(head).unwrap();
    let elsewhere = Conn::open(nginx.addr("api")).unwrap().send(&Request::get("/api")).unwrap();
    assert_eq!(elsewhere.status, 200);
    nginx.hup();
    eventually(secs(5), || !nginx.leaving_pids().is_empty());
    eventually(secs(5), || {
        let info = Api::new(nginx.addr("api"), "/api/9").get("nginx").1;
        info["generation"] == 2
    });
    begun.write(rest).unwrap();
    let reply = begun.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["down"]), (200, &json!(true)), "{}", reply.text());
    assert_eq!(state(), "down", "in the zone that the new workers have");
    match idle.send(&patch(false)) {
        Ok(reply) if reply.status == 200 => assert_eq!(state(), "up"),
        Ok(reply) => assert_eq!((reply.status, state()), (503, json!("down"))),
        Err(_) => assert_eq!(state(), "down", "a connection that was closed has written nothing"),
    }
}

#[test]
fn a_full_zone_still_takes_operators_writes_and_says_why_others_fail() {
    let nginx = Nginx::builder()
        .http(APP.replace("main 1m", "main 512k"))
        .with_api("write=on")
        .allow("is full")
        .start();
    let api = plus(&nginx);
    let mut n = 0;
    let fault = loop {
        n += 1;
        let server = json!({"server": format!("10.8.{}.{}:80", n / 250, n % 250)});
        match api.post_json(SERVERS, &server) {
            (201, _) => assert!(n < 10_000, "a zone of 512k is never full"),
            (status, fault) => break (status, fault),
        }
    };
    assert_eq!((fault.0, code(&fault.1)), (500, "UpstreamOutOfMemory"), "{}", fault.1);
    assert_eq!(fault.1["error"]["text"], "upstream \"app\" memory exhausted");
    let path = one(&nginx, "10.9.9.1:8080");
    for body in [json!({"down": true}), json!({"weight": 9}), json!({"down": false, "weight": 3})] {
        assert_eq!(api.patch(&path, &body).0, 200, "{body}");
    }
}
