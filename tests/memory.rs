//! Memory: nothing read or written that is not ours, nothing kept that nobody needs, and panics that
//! stay behind the fence. (CASES 2.)

mod support;

use support::*;

const PROXY: &str = "
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;
    log_format peerage '$upstream_addr $status';";

const SERVER: &str = "
    server {
        listen {web};
        access_log {prefix}/logs/access.log peerage;
        location / { proxy_pass http://app; }
        location /tls/2 { proxy_pass https://tls; proxy_ssl_protocols TLSv1.2; }
        location /tls/3 { proxy_pass https://tls; proxy_ssl_protocols TLSv1.3; }
    }";

/// Requests of every kind to a proxy.
fn proxy_story(nginx: &Nginx, b1: &Backend) {
    hit(nginx.web(), "/", 20).all_ok();
    let mut kept = Conn::open(nginx.web()).unwrap();
    for path in
        ["/", "/status/404", "/status/503", "/chunked?n=5&ms=1", "/download?kb=200", "/slow?ms=20"]
    {
        kept.send(&Request::get(path).timeout(secs(60))).unwrap();
    }
    for path in ["/tls/2", "/tls/3"] {
        let resumed = |_| get(nginx.web(), path).unwrap().header("x-resumed") == Some("r");
        let resumed = (0..10).filter(|&i| resumed(i)).count();
        assert!(resumed > 5, "{path}: {resumed} of 10");
    }
    let post = Request::post("/echo").body("x".repeat(100_000)).timeout(secs(60));
    assert_eq!(post.send(nginx.web()).unwrap().status, 200);
    for path in ["/close", "/reset", "/partial"] {
        let _ = get(nginx.web(), path); // a 502, or half an answer
    }
    // A client that goes away while a server works, and one whose server dies.
    let mut gone = Conn::open(nginx.web()).unwrap();
    gone.begin(&Request::get("/hold")).unwrap();
    eventually(secs(20), || b1.held() > 0);
    drop(gone);
    b1.release();
    let upgrade = Request::get("/").header("Upgrade", "websocket").header("Connection", "upgrade");
    let mut socket = Conn::open(nginx.web()).unwrap();
    socket.begin(&upgrade.timeout(secs(60))).unwrap();
    assert_eq!(socket.head().unwrap().status, 101);
    socket.write(b"hello").unwrap();
    assert_eq!(socket.read(5).unwrap(), b"hello");
}

/// Calls of every kind to the API.
fn api_story(nginx: &Nginx, b1: &Backend) {
    let api = nginx.api();
    let servers: Vec<Value> = (0..40)
        .map(|i| json!({"server": format!("10.8.0.{i}:80"), "labels": {"n": i.to_string()}}))
        .collect();
    for i in 0..10 {
        api.ok("PUT", &format!("upstreams/u{i}"), Some(&json!({"servers": servers})));
        api.ok("PUT", &format!("upstreams/u{i}"), Some(&json!({"servers": servers[i..]})));
    }
    for path in [
        "",
        "zones/main",
        "upstreams",
        "upstreams?fields=servers",
        "upstreams/u3",
        "upstreams/u3/servers/id:9999",
        "x",
    ] {
        api.get(path);
        let mut head = Conn::open(nginx.addr("api")).unwrap();
        head.begin(&api.request("HEAD", path, None)).unwrap();
        head.head().unwrap();
    }
    for verb in
        ["down?wait=2s&reason=a", "drain?ttl=1h", "up?wait=2s", "down?if_reason=x", "up?min_up=9"]
    {
        api.verb("app", b1, verb);
    }
    for body in [
        json!({"servers": [{"server": "x:y"}]}),
        json!([]),
        json!({"servers": 1}),
        json!({"a": [[[[]]]]}),
    ] {
        assert_eq!(api.put("upstreams/u1", &body).0, 400);
    }
    let long = json!({"servers": [], "hash_key": null, "name": "y".repeat(200_000)});
    let request = api.request("PUT", "upstreams/u1", Some(&long));
    assert_eq!(request.clone().chunked(999).send(nginx.addr("api")).unwrap().status, 200);
    // A wait that its client does not wait for, and one that a request outlasts.
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/hold").timeout(secs(60))).unwrap();
    eventually(secs(20), || b1.held() > 0);
    let down = format!("upstreams/app/servers/{b1}/down?wait=30s");
    let mut waiting = Conn::open(nginx.addr("api")).unwrap();
    waiting.begin(&api.request("POST", &down, None)).unwrap();
    eventually(secs(20), || api.server("app", b1)["state"] == "down");
    drop(waiting);
    assert_eq!(api.verb("app", b1, "down?wait=100ms").0, 504);
    b1.release();
    held.reply().unwrap();
    assert_eq!(api.verb("app", b1, "up").0, 200);
    // A listing that nobody reads to its end.
    let mut half = Conn::open(nginx.addr("api")).unwrap();
    half.begin(&Request::get("/api/v1/upstreams?fields=servers")).unwrap();
    half.read(5_000).unwrap();
    drop(half);
    assert_eq!(api.post("zones/main/flush").0, 200);
    for i in 0..10 {
        api.ok("DELETE", &format!("upstreams/u{i}"), None);
    }
}

/// Names that come, change, fail, and go while they are asked for.
fn names_story(nginx: &Nginx, dns: &Dns) {
    let api = nginx.api();
    let state = |name: &str| api.server("named", format!("{name}:80"))["state"].clone();
    dns.set("a.test", &["127.0.0.2", "127.0.0.3"], 1);
    dns.say("long.test", Say::Long(vec!["127.0.0.4".parse().unwrap()], 1));
    dns.say("slow.test", Say::Nothing);
    let names = ["a.test", "long.test", "slow.test", "gone.test"];
    let servers: Vec<Value> = names.iter().map(|name| json!({ "server": name })).collect();
    api.ok("PUT", "upstreams/named", Some(&json!({ "servers": servers })));
    eventually(secs(20), || state("a.test") == "up" && state("long.test") == "up");
    dns.set("a.test", &["127.0.0.3"], 1);
    eventually(secs(20), || {
        api.ok("GET", "servers?address=127.0.0.2", None)["servers"] == json!([])
    });
    api.ok("DELETE", "upstreams/named/servers/slow.test", None);
    let log = || nginx.error_log();
    eventually(secs(20), || log().contains("\"gone.test\" could not be resolved"));
    // Being asked for at the end.
    api.ok("PUT", "upstreams/named/servers/slow.test", Some(&json!({})));
    let asked = dns.asked("slow.test");
    eventually(secs(20), || dns.asked("slow.test") > asked);
}

#[test]
fn memcheck_finds_nothing_that_it_does_not_find_in_stock_nginx() {
    let (b1, b2) = (Backend::new("b1"), Backend::refusing("b2"));
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let with = |conf: Conf, text: String| {
        conf.http(text).set("b1", &b1).set("b2", &b2).set("tls", tls.web())
    };
    let stock = format!(
        "{PROXY} upstream app {{ zone z 256k; server {{b1}} max_fails=0; server {{b2}} max_fails=0; keepalive 4; }}
         upstream tls {{ zone z; server {{tls}}; }} {SERVER}"
    );
    let conf = with(Nginx::stock(), stock);
    let mut nginx = conf.memcheck(&["--gen-suppressions=all"]).start();
    proxy_story(&nginx, &b1);
    nginx.stop();
    let known = suppressions(&nginx.log("valgrind.log"));

    let ours = format!(
        "peerage_zone main 1m state={{prefix}}/main.json; {PROXY}
         resolver {{dns}} ipv6=off; resolver_timeout 10s;
         upstream app {{ peerage main; server {{b1}} max_fails=0; server {{b2}} max_fails=0; keepalive 4; }}
         upstream tls {{ peerage main; server {{tls}}; }} {SERVER}"
    );
    // The build whose Rust objects lie in the heap that memcheck knows.
    let dns = Dns::new();
    let conf = with(Nginx::faulty(), ours).with_api("write=on").file("known", known);
    let conf = conf.set("dns", &dns);
    let known = format!("--suppressions={}", conf.prefix().join("known").display());
    let mut nginx = conf.memcheck(&[&known]).start();
    proxy_story(&nginx, &b1);
    api_story(&nginx, &b1);
    names_story(&nginx, &dns);
    nginx.stop();
    let log = nginx.log("valgrind.log");
    assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
    assert!(nginx.log("access.log").lines().count() > 20, "the requests went through it");
}

/// The blocks that `--gen-suppressions=all` has written.
fn suppressions(log: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in log.lines() {
        inside |= line == "{";
        if inside {
            out += line;
            out.push('\n');
        }
        inside &= line != "}";
    }
    out
}

#[test]
fn memory_zone_and_descriptors_are_flat_over_create_use_and_delete() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m;
             upstream services { peerage main name=$arg_u; keepalive 8; }
             server { listen {web}; location / { proxy_pass http://services; proxy_http_version 1.1; proxy_set_header Connection ''; } }",
        )
        .with_api("write=on")
        .set("b1", &b1)
        .start();
    let (api, worker) = (nginx.api(), nginx.worker_pids()[0]);
    let body = json!({"servers": [{"server": b1.addr(), "labels": {"a": "b"}}, {"server": "10.9.9.9:1", "backup": true}]});
    let round = |i: usize| {
        let name = format!("svc-{i}");
        api.ok("PUT", &format!("upstreams/{name}"), Some(&body));
        hit(nginx.web(), &format!("/?u={name}"), 4).all_ok();
        api.ok("DELETE", &format!("upstreams/{name}"), None);
    };
    let used = || api.ok("GET", "zones/main", None)["bytes"]["used"].as_u64().unwrap();
    let first = scale(100, 1_000);
    (0..first).for_each(round);
    let (rss, open) = (rss_kb(worker), descriptors(worker));
    let zone = used();
    (first..first * scale(6, 10)).for_each(round);
    // The last ones are freed by the next change.
    eventually(secs(5), || {
        round(0);
        used() <= zone
    });
    assert!(rss_kb(worker) <= rss + 512, "{} kB, was {rss}", rss_kb(worker));
    assert!(descriptors(worker) <= open + 8, "{} descriptors, were {open}", descriptors(worker));
    assert_eq!(api.ok("GET", "upstreams", None), json!({}));
}

#[test]
fn memory_is_flat_over_requests_and_calls() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m state={prefix}/main.json;
             upstream app { peerage main; server {b1}; server {b2}; keepalive 8; }
             server { listen {web}; location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ''; } }",
        )
        .with_api("write=on")
        .set("b1", &b1)
        .set("b2", &b2)
        .start();
    let (api, worker) = (nginx.api(), nginx.worker_pids()[0]);
    let calls = |n: usize| {
        for i in 0..n {
            match i % 5 {
                0 => assert_eq!(api.verb("app", &b1, "down?wait=1s&reason=x").0, 200),
                1 => assert_eq!(api.verb("app", &b1, "up?wait=1s").0, 200),
                2 => assert_eq!(
                    api.patch(
                        &format!("upstreams/app/servers/{b2}"),
                        &json!({"weight": i % 90 + 1})
                    )
                    .0,
                    200
                ),
                3 => assert_eq!(api.get("upstreams?fields=servers").0, 200),
                _ => assert_eq!(api.put("upstreams/app", &json!({"servers": "x"})).0, 400),
            }
        }
    };
    let requests = |n: u64| {
        let load = Load::to(nginx.web()).threads(2).keepalive().start();
        eventually(secs(120), || load.total() >= n);
        load.stop().all_ok();
    };
    // What leaks grows in every span; what is only kept for the next time does not.
    let grown: Vec<u64> = (0..4)
        .map(|_| {
            let before = rss_kb(worker);
            requests(scale(10_000, 100_000));
            calls(scale(1_000, 10_000));
            rss_kb(worker).saturating_sub(before)
        })
        .collect();
    assert!(grown[1..].contains(&0), "kB more after each span: {grown:?}");
}

#[test]
fn a_panic_in_a_callback_is_an_alert_and_an_error_and_the_worker_lives() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = Nginx::faulty()
        .http(
            "peerage_zone main 1m;
             upstream app { peerage main; server {b1}; server {b2}; keepalive 2; }
             server { listen {web}; location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ''; }
                 location /dyups/ { peerage_dyups; } }",
        )
        .with_api("write=on")
        .allow("peerage: panic in ")
        .set("b1", &b1)
        .set("b2", &b2)
        .start();
    let worker = nginx.worker_pids();
    let panic = |request: Request, name: &str| request.header("Peerage-Panic", name);
    let down = "/api/v1/upstreams/app/servers/id:1/down";
    let dyups = Request::post("/dyups/upstream/app").body("server 10.0.0.1;");
    for turn in 1..=10 {
        for request in [Request::get("/api/v1/upstreams"), Request::post(down)] {
            assert_eq!(panic(request, "api").send(nginx.addr("api")).unwrap().status, 500);
        }
        let door = panic(dyups.clone(), "door").send(nginx.web()).unwrap();
        assert_eq!(door.status, 500);
        for (callback, status) in [("init", 500), ("get", 502), ("free", 200)] {
            let reply = panic(Request::get("/"), callback).send(nginx.web()).unwrap();
            assert_eq!(reply.status, status, "{callback}");
        }
        let alerts = nginx.error_log().matches("[alert]").count();
        assert_eq!(alerts, turn * 6, "each is said once");
        hit(nginx.web(), "/", 4).all_ok();
    }
    let log = nginx.error_log();
    assert!(log.contains("peerage: panic in get: asked for in \"get\" at "), "{log}");
    assert_eq!(nginx.worker_pids(), worker);
    let shown = nginx.api().upstream("app");
    for server in shown["servers"].as_array().unwrap() {
        assert_eq!((&server["state"], &server["active"]), (&json!("up"), &json!(0)), "{server}");
    }
}
