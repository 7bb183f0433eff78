//! Hostile bodies and clients at the doors of other systems: refused by name, nothing changed, the
//! connection in step.

mod support;

use support::*;

const ZONE: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }";

fn start(locations: &str) -> Nginx {
    let server = format!(
        "server {{ listen {{doors}}; client_max_body_size 8m;
             location / {{ peerage_dyups; }}
             location = /update {{ peerage_update; }} {locations} }}"
    );
    Nginx::builder().port("doors").http(format!("{ZONE}\n{server}")).with_api("write=on").start()
}

/// What only a change moves.
fn shown(nginx: &Nginx) -> (Option<String>, String) {
    let reply = nginx.api().call("GET", "upstreams?fields=servers", None);
    assert_eq!(reply.status, 200, "{}", reply.text());
    (reply.header("peerage-revision").map(str::to_string), reply.text())
}

#[test]
fn hostile_dyups_bodies_are_refused_by_name_and_change_nothing() {
    let nginx = start("");
    let before = shown(&nginx);
    let huge = format!("server {};", "a".repeat(500_000));
    let nested = "a {".repeat(10_000);
    let quote = format!("server \"{}", "10.0.0.1;".repeat(1000));
    let table: [(&[u8], &str); 24] = [
        (b"server 10.0.0.1:80;\ninclude /etc/passwd;", "\"include\" directive is not allowed"),
        (b"zone other 64k; server 10.0.0.1;", "\"zone\" directive is not allowed"),
        (b"server $host;", "variables are not allowed in \"$host\""),
        (b"server ${http_x}:80;", "variables are not allowed in \"${http_x}:80\""),
        (b"server 10.0.0.1 weight=$arg_w;", "variables are not allowed in \"weight=$arg_w\""),
        (b"hash $nothing_of_the_kind; server 10.0.0.1;", "\"$nothing_of_the_kind\""),
        (b"server 10.0.0.1; proxy_pass http://x;", "unknown directive \"proxy_pass\""),
        (b"server 10.0.0.1; } server { listen 80;", "unexpected \"}\""),
        (b"upstream app { server 10.0.0.1; }", "unexpected \"{\""),
        (nested.as_bytes(), "unexpected \"{\""),
        (quote.as_bytes(), "missing terminating"),
        (b"server 10.0.0.1", "expecting \";\""),
        (b"server 10.0.0.1;\0", "a control character"),
        (b"server 10.0.0.1;\x1b[2J", "a control character"),
        (b"server \xff\xfe;", "not UTF-8"),
        (huge.as_bytes(), "invalid address"),
        (b"server 10.0.0.1:0;", "invalid address"),
        (b"server unix:../x;", "invalid address"),
        (b"server 10.0.0.1 weight=-1;", "invalid value \"weight=-1\""),
        (b"server 10.0.0.1 fail_timeout=1e9;", "invalid value \"fail_timeout=1e9\""),
        (b"server 10.0.0.1; server 10.0.0.1:80;", "comes twice"),
        (b"server name.example:80;", "no resolver"),
        (b"# nothing\n\n", "no servers"),
        (b"{\"servers\":[]}", "unexpected \"{\""),
    ];
    let mut conn = Conn::open(nginx.addr("doors")).unwrap();
    for (body, text) in table {
        for name in ["app", "new"] {
            let request = Request::post(&format!("/upstream/{name}")).body(body);
            for request in [request.clone(), request.chunked(61)] {
                let reply = conn.send(&request).unwrap();
                let said = reply.text();
                assert!((400..500).contains(&reply.status), "{text}: {} {said}", reply.status);
                assert!(said.contains(text) && said.len() < 600, "{text}: {said}");
                assert!(!said.contains(|c: char| c.is_control()), "{text}: {said}");
            }
        }
    }
    let reply = conn.send(&Request::get("/list")).unwrap();
    assert_eq!((reply.status, reply.text().as_str()), (200, "app\n"));
    assert_eq!(shown(&nginx), before);
    let log = nginx.error_log();
    assert!(!log.contains("set by"), "{log}");
}

#[test]
fn hostile_updates_are_refused_as_by_the_api() {
    let nginx = start("");
    let before = shown(&nginx);
    let deep =
        format!("{{\"service\":\"app\",\"peers\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
    let table: [(&[u8], u16, &str); 12] = [
        (b"", 400, "bad-json"),
        (b"server 10.0.0.1;", 400, "bad-json"),
        (deep.as_bytes(), 400, "bad-json"),
        (b"{\"service\":\"app\",\"peers\":[\"\xff\"]}", 400, "bad-json"),
        (br#"{"service":"app","peers":[],"peers":["10.0.0.1"]}"#, 400, "bad-json"),
        (br#"{"service":"app","peers":"10.0.0.1"}"#, 400, "bad-value"),
        (br#"{"service":"app"}"#, 400, "bad-value"),
        (br#"{"service":"app","peers":["10.0.0.1 weight=1"]}"#, 400, "bad-address"),
        (br#"{"service":"a/../b","peers":[]}"#, 400, "bad-name"),
        (br#"{"service":"app","peers":[],"zone":"main"}"#, 400, "unknown-field"),
        (br#"{"service":"app","peers":["10.0.0.1","10.0.0.1:80"]}"#, 409, "duplicate-server"),
        (br#"{"service":"app","peers":["name.example"]}"#, 422, "name-not-supported"),
    ];
    let mut conn = Conn::open(nginx.addr("doors")).unwrap();
    for (body, status, code) in table {
        let request = Request::post("/update").body(body);
        for request in [request.clone(), request.chunked(7)] {
            let reply = conn.send(&request).unwrap();
            let problem = reply.json();
            assert_eq!(reply.status, status, "{problem}");
            assert_eq!(problem["type"], format!("urn:peerage:{code}"), "{problem}");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        }
    }
    let reply = conn.send(&Request::new("PUT", "/update").body("x")).unwrap();
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    assert_eq!(shown(&nginx), before);
}

#[test]
fn pages_of_other_sites_never_write_here_either() {
    let nginx = start("");
    let before = shown(&nginx);
    let host = nginx.addr("doors").to_string();
    let own = format!("http://{host}");
    let mut conn = Conn::open(nginx.addr("doors")).unwrap();
    let update = r#"{"service":"app","peers":[]}"#;
    let writes = [
        ("POST", "/upstream/app", "server 10.0.0.1;"),
        ("DELETE", "/upstream/app?force=1", ""),
        ("POST", "/update", update),
    ];
    for headers in [
        vec![("Origin", "http://evil.example")],
        vec![("Origin", "null")],
        vec![("Sec-Fetch-Site", "cross-site")],
        vec![("Origin", own.as_str()), ("Sec-Fetch-Site", "same-site")],
    ] {
        let with = |request: Request| {
            let request = request.header("Host", &host);
            headers.iter().fold(request, |r, (name, value)| r.header(name, value))
        };
        for (method, target, body) in writes {
            let reply = conn.send(&with(Request::new(method, target).body(body))).unwrap();
            assert_eq!(reply.status, 403, "{headers:?} {method} {target}: {}", reply.text());
        }
        assert_eq!(conn.send(&with(Request::get("/list"))).unwrap().status, 200);
    }
    assert_eq!(shown(&nginx), before);
    let request = Request::post("/update").header("Host", &host).header("Origin", &own);
    assert_eq!(conn.send(&request.body(update)).unwrap().status, 200);
}

#[test]
fn bodies_of_any_size_and_speed_are_read_up_to_the_limit() {
    let nginx = start("location = /disk { peerage_update; client_body_in_file_only clean; }");
    let addr = nginx.addr("doors");
    let api = nginx.api();
    let count = |name: &str| api.upstream(name)["servers"].as_array().unwrap().len();
    let mut conn = Conn::open(addr).unwrap();
    // In a temporary file, and chunked: more than nginx keeps in memory.
    let lines: String =
        (0..500).map(|i| format!("server  10.8.{}.{}:8080 ;\n", i / 250, i % 250)).collect();
    let lines = format!("{lines}#{}", " ".repeat(100_000));
    for (n, request) in [Request::post("/upstream/lines"), Request::post("/upstream/chunks")]
        .into_iter()
        .enumerate()
    {
        let request = request.body(lines.as_str());
        let request = if n == 0 { request } else { request.chunked(1000) };
        assert_eq!(conn.send(&request).unwrap().text(), "success");
    }
    assert_eq!((count("lines"), count("chunks")), (500, 500));
    let peers: Vec<String> = (0..500).map(|i| format!("10.8.{}.{}:80", i / 250, i % 250)).collect();
    let request = Request::post("/disk").json(&json!({"service": "disk", "peers": peers}));
    assert_eq!(conn.send(&request).unwrap().status, 201);
    assert_eq!(count("disk"), 500);
    // A byte at a time.
    conn.begin_slowly(&Request::post("/upstream/slow").body("server 10.0.0.1;"), ms(1)).unwrap();
    assert_eq!(conn.reply().unwrap().text(), "success");
    // Over 1 MB is refused; the rest is thrown away, and the connection goes on.
    let before = shown(&nginx);
    for target in ["/upstream/app", "/update"] {
        let request = Request::post(target).body(" ".repeat((1 << 20) + 1));
        for request in [request.clone(), request.chunked(64 * 1024)] {
            assert_eq!(conn.send(&request).unwrap().status, 413, "{target}");
            assert_eq!(conn.send(&Request::get("/upstream/slow")).unwrap().status, 200);
        }
    }
    assert_eq!(shown(&nginx), before);
}

#[test]
fn the_rules_of_nginx_guard_the_doors_as_any_location() {
    let nginx = Nginx::builder()
        .port("doors")
        .http(format!(
            "{ZONE} server {{ listen {{doors}};
                 location / {{ peerage_dyups; limit_except GET {{ deny all; }} }}
                 location /some/ {{ peerage_dyups; limit_except GET POST {{ deny all; }} }}
                 location /ops/ {{ peerage_dyups; limit_except GET {{ allow 127.0.0.1; deny all; }} }}
                 location = /ops/update {{ peerage_update;
                     limit_except GET {{ allow 127.0.0.1; deny all; }} }}
                 location /no {{ peerage_dyups; deny all; }}
                 location = /update {{ peerage_update; limit_except POST {{ deny all; }} }}
                 location ~ ^/up(date|set)/no$ {{ peerage_update; deny all; }}
             }}"
        ))
        .with_api("write=on")
        .start();
    let ask = |method: &str, target: &str| {
        let request = Request::new(method, target);
        let request = if method == "POST" { request.body("server 10.0.0.1:80;") } else { request };
        request.send(nginx.addr("doors")).unwrap().status
    };
    let before = shown(&nginx);
    assert_eq!((ask("GET", "/list"), ask("GET", "/some/list")), (200, 200));
    for (method, target) in [
        ("POST", "/upstream/app"),
        ("DELETE", "/upstream/app"),
        ("DELETE", "/some/upstream/app"),
        ("GET", "/no/list"),
        ("POST", "/no/upstream/app"),
        ("PUT", "/update"),
        ("POST", "/update/no"),
    ] {
        assert_eq!(ask(method, target), 403, "{method} {target}");
    }
    assert_eq!(shown(&nginx), before);
    assert_eq!(ask("POST", "/some/upstream/new"), 200);
    assert_eq!(ask("POST", "/ops/upstream/new"), 200, "allowed inside of limit_except");
    assert_eq!(ask("DELETE", "/ops/upstream/new"), 200);
    for (target, status) in [("/update", 201), ("/ops/update", 200)] {
        let update = Request::post(target).body(r#"{"service":"hr","peers":["10.0.0.1"]}"#);
        assert_eq!(update.send(nginx.addr("doors")).unwrap().status, status, "{target}");
    }
}

#[test]
fn of_several_zones_one_must_be_said() {
    let nginx = Nginx::builder()
        .port("doors")
        .http(
            "peerage_zone east 512k; peerage_zone west 512k;
             server { listen {doors};
                 location / { peerage_dyups; }
                 location /west { peerage_dyups zone=west; }
                 location = /update { peerage_update; }
                 location = /west/update { peerage_update zone=west; } }",
        )
        .with_api("write=on")
        .start();
    let post = |target: &str, body: &str| {
        let reply = Request::post(target).body(body).send(nginx.addr("doors")).unwrap();
        (reply.status, reply.text())
    };
    let (line, update) = ("server 10.0.0.1;", r#"{"service":"hr","peers":["10.0.0.1"]}"#);
    for (target, body) in [("/upstream/a", line), ("/update", update)] {
        let (status, text) = post(target, body);
        assert_eq!(status, 400, "{text}");
        assert!(text.contains("[\"east\",\"west\"]"), "{text}");
    }
    assert_eq!(get(nginx.addr("doors"), "/list").unwrap().status, 400);
    assert_eq!(post("/upstream/a?zone=east", line).0, 200);
    assert_eq!(post("/west/upstream/b", line).0, 200);
    assert_eq!(post("/update?zone=east", update).0, 201);
    assert_eq!(post("/west/update", update).0, 201);
    assert_eq!(post("/west/update?zone=east", update).0, 404);
    let list = |target: &str| get(nginx.addr("doors"), target).unwrap().text();
    assert_eq!((list("/list?zone=east"), list("/west/list")), ("a\nhr\n".into(), "b\nhr\n".into()));
}
