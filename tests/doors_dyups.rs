//! The dyups door: the samples of the dyups module's own pages, its statuses and texts, and what it
//! leaves as it was.

mod support;

use support::*;

/// The configuration of the samples, for a zone: two blocks, and one for whatever is posted.
const SAMPLE: &str = "
    upstream host1 { peerage main; server {b1}; }
    upstream host2 { peerage main; server {b2}; }
    upstream others { peerage main name=$http_host; keepalive 8; }
    server { listen {web}; location / { proxy_pass http://others; } }
    server { listen {doors}; location / { peerage_dyups; } }";

fn start(zone: &str, b1: &Backend, b2: &Backend) -> Nginx {
    Nginx::builder()
        .workers(4)
        .port("doors")
        .http(format!("{zone} {SAMPLE}"))
        .with_api("write=on")
        .set("b1", b1)
        .set("b2", b2)
        .start()
}

/// Status and text of a request to the door.
#[track_caller]
fn door(nginx: &Nginx, method: &str, target: &str, body: &str) -> (u16, String) {
    let request = Request::new(method, target);
    let request = if body.is_empty() { request } else { request.body(body) };
    let reply = request.send(nginx.addr("doors")).unwrap();
    (reply.status, reply.text())
}

#[track_caller]
fn post(nginx: &Nginx, name: &str, body: &str) {
    let answer = door(nginx, "POST", &format!("/upstream/{name}"), body);
    assert_eq!(answer, (200, "success".to_string()), "{body}");
}

/// Who answers a request for a host, on a fresh connection; 0 where nobody does.
fn asked(nginx: &Nginx, host: &str) -> (u16, String) {
    let reply = Request::get("/").header("Host", host).send(nginx.web()).unwrap();
    (reply.status, reply.backend().to_string())
}

#[test]
fn the_documented_samples_have_the_documented_answers() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start("peerage_zone main 1m;", &b1, &b2);
    assert_eq!(asked(&nginx, "dyhost").0, 502);
    assert_eq!(door(&nginx, "GET", "/list", ""), (200, "host1\nhost2\n".into()));

    // At once, whatever worker is asked.
    post(&nginx, "dyhost", &format!("server {b2};server {b1};"));
    let mut seen: Vec<(u16, String)> = (0..40).map(|_| asked(&nginx, "dyhost")).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [(200, "b1".to_string()), (200, "b2".to_string())]);

    let detail = format!("host1\nserver {b1}\n\nhost2\nserver {b2}\n\n");
    let whole = format!("dyhost\nserver {b2}\nserver {b1}\n\n{detail}");
    assert_eq!(door(&nginx, "GET", "/detail", ""), (200, whole));
    assert_eq!(door(&nginx, "GET", "/list", ""), (200, "dyhost\nhost1\nhost2\n".into()));
    let one = (200, format!("server {b2}\nserver {b1}\n"));
    assert_eq!(door(&nginx, "GET", "/upstream/dyhost", ""), one);

    // The whole set again, and not a merge of both.
    post(&nginx, "dyhost", &format!("server {b1};"));
    assert!((0..20).all(|_| asked(&nginx, "dyhost") == (200, "b1".into())));

    assert_eq!(door(&nginx, "DELETE", "/upstream/dyhost", ""), (200, "success".into()));
    assert!((0..20).all(|_| asked(&nginx, "dyhost").0 == 502));
    assert_eq!(door(&nginx, "GET", "/detail", ""), (200, detail));
    assert_eq!(door(&nginx, "DELETE", "/upstream/dyhost", ""), (404, "not found uptream".into()));
    assert_eq!(door(&nginx, "GET", "/upstream/dyhost", ""), (404, String::new()));
}

#[test]
fn other_requests_have_the_statuses_that_clients_of_dyups_know() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start("peerage_zone main 1m;", &b1, &b2);
    let before = nginx.api().get("upstreams?fields=servers").1;
    let interface = || "not support this interface".to_string();
    let table = [
        ("GET", "/", "", 404, String::new()),
        ("GET", "/nothing", "", 404, String::new()),
        ("GET", "/upstream", "", 404, String::new()),
        ("POST", "/upstream/a", "", 204, String::new()),
        ("POST", "/upstream", "server 10.0.0.1;", 404, interface()),
        ("POST", "/servers/a", "server 10.0.0.1;", 404, "not support this api".into()),
        ("DELETE", "/list", "", 405, interface()),
        ("DELETE", "/servers/a", "", 405, "not support this api".into()),
        ("PUT", "/upstream/a", "server 10.0.0.1;", 405, String::new()),
    ];
    for (method, target, body, status, text) in table {
        assert_eq!(door(&nginx, method, target, body), (status, text), "{method} {target}");
    }
    let reply = Request::new("PUT", "/upstream/a").send(nginx.addr("doors")).unwrap();
    assert_eq!(reply.header("allow"), Some("GET, HEAD, POST, DELETE"));
    // What a block names stays, unless it is insisted on.
    let (status, text) = door(&nginx, "DELETE", "/upstream/host1", "");
    assert!(status == 403 && text.contains("is named by a block"), "{status} {text}");
    assert_eq!(nginx.api().get("upstreams?fields=servers").1, before);
    for name in ["host1", "host2"] {
        let answer = door(&nginx, "DELETE", &format!("/upstream/{name}?force=1"), "");
        assert_eq!(answer, (200, "success".into()));
    }
    for path in ["/list", "/detail"] {
        assert_eq!(door(&nginx, "GET", path, ""), (204, String::new()));
    }
    assert_eq!(nginx.api().put("upstreams/empty", &json!({"servers": []})).0, 201);
    assert_eq!(door(&nginx, "GET", "/upstream/empty", ""), (204, String::new()));
    assert_eq!(door(&nginx, "GET", "/list", ""), (200, "empty\n".into()));
}

#[test]
fn methods_are_honoured_and_what_has_no_meaning_is_told_in_answer_and_log() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start("peerage_zone main 1m;", &b1, &b2);
    let servers = format!("server {b1}; server {b2};");
    let api = nginx.api();
    for (text, method, key) in [
        ("least_conn;", "least_conn", Value::Null),
        ("ip_hash;", "ip_hash", Value::Null),
        ("hash $http_x_user;", "hash", json!("$http_x_user")),
        ("hash '$http_x_user' consistent;", "hash consistent", json!("$http_x_user")),
    ] {
        post(&nginx, "dyhost", &format!("{text}\n{servers}"));
        let upstream = api.upstream("dyhost");
        assert_eq!(upstream["method"], method);
        if !key.is_null() {
            assert_eq!(upstream["hash_key"], key);
        }
    }
    // By the key, always the same; and a body that names no method leaves it.
    post(&nginx, "dyhost", &servers);
    assert_eq!(api.upstream("dyhost")["method"], "hash consistent");
    let by = |user: &str| {
        let request = Request::get("/").header("Host", "dyhost").header("X-User", user);
        request.send(nginx.web()).unwrap().backend().to_string()
    };
    let first = by("ann");
    assert!((0..10).all(|_| by("ann") == first));

    let text = format!("keepalive 16; check interval=3000 type=http;\n{servers} server 10.9.9.9;");
    let (status, answer) = door(&nginx, "POST", "/upstream/dyhost", &text);
    assert_eq!((status, answer.as_str()), (200, "success\nignored: keepalive, check\n"));
    let line = "set by \"127.0.0.1\", ignored: keepalive, check, upstream \"dyhost\"";
    eventually(secs(2), || nginx.error_log().contains(line));
    // The same again changes nothing: no line, no revision.
    let (lines, revision) = (nginx.error_log().matches(line).count(), api.get("").1);
    assert_eq!(door(&nginx, "POST", "/upstream/dyhost", &text).0, 200);
    assert_eq!(nginx.error_log().matches(line).count(), lines);
    assert_eq!(api.get("").1["revision"], revision["revision"]);
}

#[test]
fn a_server_that_stays_keeps_what_its_line_does_not_name() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start("peerage_zone main 1m;", &b1, &b2);
    let api = nginx.api();
    post(
        &nginx,
        "app",
        "server 10.0.0.1:80 weight=5 max_fails=3; server 10.0.0.2:80; server 10.0.0.3:80;",
    );
    assert_eq!(api.patch("upstreams/app/servers/10.0.0.2:80", &json!({"weight": 7})).0, 200);
    assert_eq!(api.verb("app", "10.0.0.3:80", "down?reason=disk").0, 200);
    let before = api.upstream("app")["servers"].clone();

    post(
        &nginx,
        "app",
        "server 10.0.0.1:80; server 10.0.0.2:80 fail_timeout=1m; server 10.0.0.3:80 down; server 10.0.0.4:80;",
    );
    let after = api.upstream("app")["servers"].clone();
    for at in 0..3 {
        for field in ["id", "server", "weight", "max_fails", "admin"] {
            assert_eq!(after[at][field], before[at][field], "{at} {field}");
        }
    }
    assert_eq!((&after[1]["fail_timeout"], &after[1]["weight"]), (&json!("60s"), &json!(7)));
    assert_eq!(after[2]["admin"]["reason"], "disk");
    post(&nginx, "app", "server 10.0.0.1:80; server 10.0.0.3:80;");
    assert_eq!(api.server("app", "10.0.0.3:80")["admin"], before[2]["admin"]);

    // What the door took down itself it sets up again.
    post(&nginx, "app", "server 10.0.0.1:80 down; server 10.0.0.3:80;");
    assert_eq!(api.server("app", "10.0.0.1:80")["admin"]["reason"], "dyups");
    assert_eq!(api.server("app", "10.0.0.1:80")["state"], "down");
    post(&nginx, "app", "server 10.0.0.1:80; server 10.0.0.3:80;");
    assert_eq!(api.server("app", "10.0.0.1:80")["state"], "up");
    assert_eq!(api.server("app", "10.0.0.1:80")["weight"], 5);
    assert_eq!(api.server("app", "10.0.0.3:80")["state"], "down");
}

#[test]
fn what_is_posted_is_there_after_a_crash_where_the_zone_has_a_file() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let zone = "peerage_zone main 1m state={prefix}/main.json flush=always;";
    let mut nginx = start(zone, &b1, &b2);
    post(&nginx, "dyhost", &format!("least_conn; server {b1} weight=3; server {b2} backup;"));
    post(&nginx, "host2", &format!("server {b1};"));
    let before = door(&nginx, "GET", "/detail", "");
    let ids = |nginx: &Nginx| {
        let servers = nginx.api().upstream("dyhost")["servers"].clone();
        [0, 1].map(|at| servers[at]["id"].clone())
    };
    let known = ids(&nginx);
    nginx.kill();
    nginx.start();
    assert_eq!(door(&nginx, "GET", "/detail", ""), before);
    assert_eq!(ids(&nginx), known);
    assert_eq!(nginx.api().upstream("dyhost")["method"], "least_conn");
    assert_eq!(asked(&nginx, "dyhost"), (200, "b1".into()));
}

#[test]
fn a_full_zone_says_so_in_plain_text() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = start("peerage_zone main 256k;", &b1, &b2);
    nginx.allow("is full");
    let before = nginx.api().get("upstreams?fields=servers").1;
    let many: String =
        (0..4000).map(|i| format!("server 10.8.{}.{}:80;", i / 250, i % 250)).collect();
    let reply = Request::post("/upstream/many").body(many).send(nginx.addr("doors")).unwrap();
    assert_eq!(reply.status, 507, "{}", reply.text());
    assert!(reply.text().contains(" bytes needed, "), "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/plain"));
    assert_eq!(nginx.api().get("upstreams?fields=servers").1, before);
}

#[test]
fn a_long_list_comes_whole_and_in_order() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start("peerage_zone main 16m;", &b1, &b2);
    let changes: Vec<Value> = (0..2500)
        .map(|i| json!({"op": "put", "upstream": format!("u{i:04}"), "body": {"servers": [{"server": "10.0.0.1:80"}]}}))
        .collect();
    assert_eq!(nginx.api().post_json("batch", &json!({"changes": changes})).0, 200);
    let (_, text) = door(&nginx, "GET", "/list", "");
    let names: Vec<&str> = text.lines().collect();
    assert_eq!((names.len(), names[2], names[2501]), (2502, "u0000", "u2499"));
    assert!(names.is_sorted());
    let (_, detail) = door(&nginx, "GET", "/detail", "");
    assert_eq!(detail.matches("\nserver ").count(), 2502);
    assert!(detail.ends_with("\nu2499\nserver 10.0.0.1:80\n\n"));
}

#[test]
fn while_another_writer_holds_the_zone_a_client_is_asked_to_try_again() {
    let nginx = Nginx::faulty()
        .workers(2)
        .port("doors")
        .http(
            "peerage_zone main 1m;
             server { listen {doors}; location / { peerage_dyups; }
                 location = /update { peerage_update; } }",
        )
        .env("PEERAGE_POINT", "lock.taken:stop:25")
        .main("env PEERAGE_POINT;")
        .start();
    let mut n = 0;
    let mut writer = Conn::open(nginx.addr("doors")).unwrap();
    let victim = eventually(secs(20), || {
        n += 1;
        let request = Request::post(&format!("/upstream/u{n}")).body("server 10.0.0.1;");
        writer.begin(&request.timeout(secs(60))).unwrap();
        let victim = within(secs(20), || {
            let stopped = nginx.worker_pids().into_iter().find(|pid| stopped(*pid));
            (stopped.is_some() || !writer.silent_for(ms(1))).then_some(stopped)
        })?;
        victim.or_else(|| writer.reply().map(|_| None).unwrap())
    });
    let refused = Request::post("/upstream/late").body("server 10.0.0.1;");
    let reply = refused.send(nginx.addr("doors")).unwrap();
    assert_eq!((reply.status, reply.text().as_str()), (409, "wait and try again\n"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let update = Request::post("/update").body(r#"{"service":"late","peers":[]}"#);
    let reply = update.send(nginx.addr("doors")).unwrap();
    assert_eq!((reply.status, &reply.json()["type"]), (503, &json!("urn:peerage:busy")));
    assert_eq!(get(nginx.addr("doors"), "/upstream/late").unwrap().status, 404);
    signal(victim, Signal::CONT);
    assert_eq!(refused.send(nginx.addr("doors")).unwrap().status, 200);
}

#[test]
fn what_the_disk_does_not_take_is_told() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let conf = |flush: &str| {
        Nginx::builder()
            .port("doors")
            .http(format!("peerage_zone main 1m state={{prefix}}/a/b/main.json {flush}; {SAMPLE}"))
            .with_api("write=on")
            .set("b1", &b1)
            .set("b2", &b2)
            .allow("write failed")
            .allow("is left at revision")
            .start()
    };
    let nginx = conf("flush=always");
    let request = Request::post("/upstream/dyhost").body(format!("server {b1};"));
    for _ in 0..2 {
        let reply = request.send(nginx.addr("doors")).unwrap();
        let text = "in force, but the state file cannot be written: 2: No such file or directory";
        assert_eq!((reply.status, reply.text().as_str()), (503, text));
        assert!(
            reply.header("retry-after").is_some() && reply.header("peerage-revision").is_some()
        );
        assert_eq!(asked(&nginx, "dyhost"), (200, "b1".into()));
    }
    drop(nginx);

    let nginx = conf("flush=10ms");
    let text = "success\nin force, not on disk yet: 2: No such file or directory\n";
    eventually(secs(10), || {
        let reply = request.send(nginx.addr("doors")).unwrap();
        assert_eq!(reply.status, 200);
        reply.text() == text
    });
}
