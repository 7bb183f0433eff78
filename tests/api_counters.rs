//! What the API shows of traffic: counters that equal what clients and backends counted, and the
//! variables of nginx's own logs and headers.

mod support;

use support::*;

const PROXY: &str = "
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_upgrade;";

fn counters(api: &Api, upstream: &str) -> Vec<Value> {
    let shown = api.upstream(upstream);
    shown["servers"].as_array().unwrap().iter().map(|s| s["counters"].clone()).collect()
}

fn sum(counters: &[Value], pointer: &str) -> u64 {
    counters.iter().map(|c| c.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)).sum()
}

#[test]
fn counters_equal_what_clients_and_backends_counted_over_four_workers() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = Nginx::builder()
        .workers(4)
        .http(format!(
            "peerage_zone main 1m; {PROXY}
             upstream app {{ peerage main; server {{b1}} max_fails=0; server {{b2}} max_fails=0; keepalive 8; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; proxy_next_upstream off; }} }}"
        ))
        .with_api("")
        .set("b1", &b1)
        .set("b2", &b2)
        .start();
    let load = [
        "/",
        "/status/201",
        "/status/404",
        "/status/503",
        "/status/302",
        "/close",
        "/status/599",
        "/download?kb=3",
    ]
    .iter()
    .fold(Load::to(nginx.web()).threads(4), |load, path| load.path(path));
    let load = load.start();
    eventually(secs(60), || load.total() >= scale(1_600, 40_000));
    let report = load.stop();
    assert!(report.errors.is_empty(), "{:?}", report.errors);

    let api = nginx.api();
    let shown = eventually(secs(5), || {
        let shown = counters(&api, "app");
        (sum(&shown, "/requests") == report.total).then_some(shown)
    });
    for (counters, backend) in shown.iter().zip([&b1, &b2]) {
        assert_eq!(counters["requests"], backend.requests(), "{counters}");
        assert_eq!(
            counters["responses"]["total"].as_u64().unwrap() + counters["fails"].as_u64().unwrap(),
            backend.requests()
        );
        assert_eq!((&counters["unavail"], &counters["downtime"]), (&json!(0), &json!(0)));
    }
    // What a backend closes without an answer is nginx's own 502, and no response of a server.
    assert_eq!(sum(&shown, "/fails"), report.status(502));
    for (class, statuses) in [
        ("1xx", &[][..]),
        ("2xx", &[200, 201]),
        ("3xx", &[302]),
        ("4xx", &[404]),
        ("5xx", &[503, 599]),
    ] {
        let want: u64 = statuses.iter().map(|s| report.status(*s)).sum();
        assert_eq!(sum(&shown, &format!("/responses/{class}")), want, "{class}");
        for status in statuses {
            assert_eq!(sum(&shown, &format!("/responses/codes/{status}")), report.status(*status));
        }
    }
    // One in eight, if the thread that asks for them is as fast as the others.
    let downloads = report.total / 16;
    assert!(sum(&shown, "/received") > downloads * 3 * 1024 + report.total * 50);
    assert!(sum(&shown, "/sent") > report.total * 30);
    assert!(shown.iter().all(|c| c["selected"].as_str().is_some_and(|time| time.ends_with('Z'))));
    assert!(api.upstream("app")["servers"].as_array().unwrap().iter().all(|s| s["active"] == 0));
}

#[test]
fn bytes_and_times_are_those_of_the_exchange() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m;
             upstream app { peerage main; server {b1}; }
             server { listen {web}; location / { proxy_pass http://app; } }",
        )
        .with_api("")
        .set("b1", &b1)
        .start();
    let api = nginx.api();
    assert_eq!(counters(&api, "app")[0].get("selected"), None, "nothing was measured yet");
    for _ in 0..3 {
        assert_eq!(nginx.get("/slow?ms=60").status, 200);
    }
    let head = |c: &Value| c["header_time"].as_u64().unwrap_or(0);
    let shown = counters(&api, "app")[0].clone();
    assert!((55..2_000).contains(&head(&shown)), "{shown}");
    for _ in 0..20 {
        assert_eq!(nginx.get("/download?kb=4&ms=20").body.len(), 4096);
    }
    let after = counters(&api, "app")[0].clone();
    assert!(head(&after) < head(&shown), "{after}");
    assert!(after["response_time"].as_u64().unwrap() >= 50, "{after}");
    let received = after["received"].as_u64().unwrap() - shown["received"].as_u64().unwrap();
    assert!((20 * 4096..20 * 4096 + 20 * 300).contains(&received), "{received}");

    let before = counters(&api, "app")[0]["sent"].as_u64().unwrap();
    let body = "x".repeat(50_000);
    assert_eq!(Request::post("/echo").body(body).send(nginx.web()).unwrap().status, 200);
    let sent = counters(&api, "app")[0]["sent"].as_u64().unwrap() - before;
    assert!((50_000..50_500).contains(&sent), "{sent}");
}

#[test]
fn open_requests_and_upgraded_connections_are_counted_while_they_last() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::builder()
        .workers(2)
        .http(format!(
            "peerage_zone main 1m; {PROXY}
             upstream app {{ peerage main; server {{b1}}; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
        ))
        .with_api("")
        .set("b1", &b1)
        .start();
    let api = nginx.api();
    let now = || {
        let server = api.server("app", &b1);
        (server["active"].as_u64().unwrap(), server["upgraded"].as_u64().unwrap())
    };
    assert_eq!(now(), (0, 0));
    let held: Vec<Conn> = (0..3)
        .map(|_| {
            let mut conn = Conn::open(nginx.web()).unwrap();
            conn.begin(&Request::get("/hold")).unwrap();
            conn
        })
        .collect();
    eventually(secs(5), || now() == (3, 0));
    let upgrade = Request::get("/").header("Upgrade", "websocket").header("Connection", "upgrade");
    let mut sockets: Vec<Conn> = (0..4).map(|_| Conn::open(nginx.web()).unwrap()).collect();
    for socket in &mut sockets {
        socket.begin(&upgrade).unwrap();
        assert_eq!(socket.head().unwrap().status, 101);
        socket.write(b"hello").unwrap();
        assert_eq!(socket.read(5).unwrap(), b"hello");
    }
    eventually(secs(5), || now() == (7, 4));
    drop(sockets.pop());
    eventually(secs(5), || now() == (6, 3));
    b1.close_connections();
    b1.release();
    eventually(secs(5), || now() == (0, 0));
    drop(held);
    let shown = &counters(&api, "app")[0];
    assert_eq!(
        (&shown["responses"]["1xx"], &shown["responses"]["codes"]["101"]),
        (&json!(4), &json!(4))
    );
}

const LOG: &str = "log_format peerage '$uri up=$peerage_upstream server=$peerage_server \
    id=$peerage_server_id error=$peerage_error revision=$peerage_revision status=$status tries=$upstream_addr';";

#[test]
fn variables_tell_upstream_server_error_and_revision_in_logs_and_headers() {
    let (b1, b2) = (Backend::new("b1"), Backend::refusing("b2"));
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 1m; {LOG}
             upstream app {{ peerage main; server {{b1}} backup; server {{b2}} max_fails=0; }}
             upstream keyed {{ peerage main name=$arg_u match=svc-*; }}
             upstream down {{ peerage main; server {{b1}} down; }}
             server {{
                 listen {{web}};
                 access_log {{prefix}}/logs/access.log peerage;
                 add_header X-Up \"$peerage_upstream|$peerage_server|$peerage_server_id|$peerage_error|$peerage_revision\" always;
                 location / {{ proxy_pass http://app; proxy_set_header X-Before \"[$peerage_server]\"; }}
                 location /keyed {{ proxy_pass http://keyed; }}
                 location /down {{ proxy_pass http://down; }}
                 location /none {{ return 200; }}
             }}"
        ))
        .with_api("write=on")
        .set("b1", &b1)
        .set("b2", &b2)
        .start();
    let api = nginx.api();
    api.ok("PUT", "upstreams/svc-a", Some(&json!({"servers": [{"server": b1.addr()}]})));
    api.ok("PUT", "upstreams/svc-empty", Some(&json!({"servers": []})));
    let revision = api.ok("GET", "", None)["revision"].as_u64().unwrap();
    let id = |up: &str| api.server(up, &b1)["id"].as_u64().unwrap();
    let up = |path: &str| {
        let reply = nginx.get(path);
        (reply.status, reply.header("x-up").unwrap_or_default().to_string())
    };
    // The last try counts: b2 refused, b1 answered.
    assert_eq!(up("/"), (200, format!("app|{b1}|{}||{revision}", id("app"))));
    assert_eq!(up("/keyed?u=SVC-A"), (200, format!("svc-a|{b1}|{}||{revision}", id("svc-a"))));
    assert_eq!(up("/keyed?u=svc-x"), (502, format!("|||unknown_upstream|{revision}")));
    assert_eq!(up("/keyed?u=app"), (502, format!("|||name_refused|{revision}")));
    assert_eq!(up("/keyed?u=svc%2Fa"), (502, format!("|||name_refused|{revision}")));
    assert_eq!(up("/keyed"), (502, format!("|||name_refused|{revision}")));
    assert_eq!(up("/keyed?u=svc-empty"), (502, format!("|||no_servers|{revision}")));
    assert_eq!(up("/down"), (502, format!("|||all_unavailable|{revision}")));
    assert_eq!(up("/none"), (200, format!("||||{revision}")));
    b1.record();
    assert_eq!(nginx.get("/echo").status, 200);
    assert_eq!(
        b1.hits()[0].header("x-before"),
        Some("[]"),
        "before a server is chosen it is empty"
    );

    let lines = eventually(secs(5), || {
        let log = nginx.log("access.log");
        (log.lines().count() >= 10).then_some(log)
    });
    let line = |uri: &str| {
        lines.lines().find(|line| line.starts_with(&format!("{uri} "))).unwrap_or_default()
    };
    let want = format!(
        "/ up=app server={b1} id={} error=- revision={revision} status=200 tries={b2}, {b1}",
        id("app")
    );
    assert_eq!(line("/"), want);
    assert_eq!(
        line("/down"),
        format!(
            "/down up=- server=- id=- error=all_unavailable revision={revision} status=502 tries=down"
        )
    );
}

#[test]
fn the_change_of_a_call_is_a_variable_of_its_log_line() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m; log_format change '$request_method $status [$peerage_change] $peerage_revision';
             upstream app { peerage main; server 10.9.9.1:8080; }
             server { listen {api}; access_log {prefix}/logs/access.log change; location /api { peerage_api write=on; } }",
        )
        .start();
    let api = nginx.api();
    let first = api.ok("GET", "", None)["revision"].as_u64().unwrap();
    for path in ["down?reason=deploy", "down?reason=deploy", "down?min_up=5&reason=x"] {
        api.verb("app", "10.9.9.1:8080", path);
    }
    let lines = eventually(secs(5), || {
        let log = nginx.log("access.log");
        (log.lines().count() == 4).then_some(log)
    });
    let lines: Vec<&str> = lines.lines().skip(1).collect();
    let (now, by) = (first + 1, "\\x22127.0.0.1\\x22");
    let down = format!(
        "server \\x2210.9.9.1:8080\\x22 is set down by {by}: deploy, upstream \\x22app\\x22"
    );
    assert_eq!(lines[0], format!("POST 200 [{down}] {now}"));
    assert_eq!(lines[1], format!("POST 200 [-] {now}"));
    assert!(lines[2].ends_with(&format!(" [-] {now}")), "{}", lines[2]);
}
