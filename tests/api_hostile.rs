//! Hostile clients of the API: names, pages of other sites, sizes, and slowness.
//! (CASES 23, CONTRACT 4.)

mod support;

use support::*;

const APP: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }";

/// What only a change moves.
fn shown(nginx: &Nginx) -> (Option<String>, String) {
    let reply = nginx.api().call("GET", "upstreams?fields=servers", None);
    assert_eq!(reply.status, 200, "{}", reply.text());
    (reply.header("peerage-revision").map(str::to_string), reply.text())
}

fn start(locations: &str) -> Nginx {
    let server = format!(
        "server {{ listen {{api}}; large_client_header_buffers 4 32k;
             location /api {{ peerage_api write=on; client_max_body_size 8m; }} {locations} }}"
    );
    Nginx::builder().http(format!("{APP}\n{server}")).start()
}

#[test]
fn hostile_names_are_refused_and_the_connection_stays_in_step() {
    let nginx = start("");
    let before = shown(&nginx);
    let (long, longer) = ("a".repeat(256), "a".repeat(10_000));
    let names = [
        "a%2Fb",
        "a%0Ab",
        "a%0D%0Ab",
        "a%20b",
        "a%25b",
        "a%22b",
        "a%5Cb",
        "a%3Cb%3E",
        "a%3Fb",
        "a%23b",
        "caf%C3%A9",
        "%FF",
        "a%7Fb",
        "a+b",
        "a,b",
        "a;b",
        "$a",
        "a*",
        "a%09b",
        &long,
        &longer,
    ];
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    for name in names {
        for (method, path) in [
            ("GET", format!("upstreams/{name}")),
            ("PUT", format!("upstreams/{name}")),
            ("DELETE", format!("upstreams/{name}")),
            ("POST", format!("upstreams/{name}/servers/10.9.9.1:8080/down")),
        ] {
            let request = Request::new(method, &format!("/api/v1/{path}"));
            let request = if method == "PUT" { request.body(r#"{"servers":[]}"#) } else { request };
            let reply = conn.send(&request).unwrap();
            // A slash of the name is one of the path: "upstreams/a/b" is none of the API's.
            assert_eq!(reply.status, 400, "{method} {name:.40}: {}", reply.text());
            assert!(reply.body.len() < 600, "{method} {name:.40}: {}", reply.text());
        }
    }
    let servers = [
        "id:",
        "id:-1",
        "id:+1",
        "id:18446744073709551616",
        "id:1e3",
        "10.9.9.1:0",
        "unix:a",
        &longer,
    ];
    for server in servers {
        let request = Request::post(&format!("/api/v1/upstreams/app/servers/{server}/down"));
        let reply = conn.send(&request).unwrap();
        assert_eq!(reply.status, 400, "{server:.40}: {}", reply.text());
    }
    let queries = [
        "reason=%00",
        "reason=a%0Ab",
        "wait=-1",
        "wait=99999999999999999999",
        "wait=1s&wait=2s",
        "wiat=1s",
        "min_up=1e9",
        "ttl=%FF",
        "%00=1",
        "reason=%zz",
        "zone=a%0Ab",
    ];
    for query in queries {
        let path = format!("/api/v1/upstreams/app/servers/10.9.9.1:8080/down?{query}");
        let reply = conn.send(&Request::post(&path)).unwrap();
        assert_eq!(reply.status, 400, "{query}: {}", reply.text());
    }
    assert_eq!(shown(&nginx), before);
}

#[test]
fn what_nginx_refuses_itself_never_reaches_the_api() {
    let nginx = start("");
    let before = shown(&nginx);
    for target in ["/api/v1/upstreams/a%00b", "/api/v1/upstreams/%zz", "/api/../../x", "/api/v1/%"]
    {
        let reply = Request::new("DELETE", target).send(nginx.addr("api")).unwrap();
        assert_eq!(reply.status, 400, "{target}");
    }
    let huge = format!("/api/v1/upstreams/{}", "a".repeat(40_000));
    assert_eq!(get(nginx.addr("api"), &huge).unwrap().status, 414);
    let smuggled = b"DELETE /api/v1/upstreams/app HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\
        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    conn.write(smuggled).unwrap();
    assert_eq!(conn.reply().unwrap().status, 400);
    assert_eq!(shown(&nginx), before);
}

#[test]
fn pages_of_other_sites_may_read_and_never_write() {
    let nginx = start("location /open { peerage_api write=on origin=https://ops.example; }");
    let before = shown(&nginx);
    let host = nginx.addr("api").to_string();
    let own = format!("http://{host}");
    let down = "/v1/upstreams/app/servers/10.9.9.1:8080/down?reason=evil";
    let forged = [
        vec![("Origin", "http://evil.example")],
        vec![("Origin", "null")],
        vec![("Origin", "")],
        vec![("Origin", "http://127.0.0.1")],
        vec![("Origin", "file://")],
        vec![("Sec-Fetch-Site", "cross-site")],
        vec![("Sec-Fetch-Site", "same-site")],
        vec![("Sec-Fetch-Site", "unheard-of")],
        vec![("Origin", own.as_str()), ("Sec-Fetch-Site", "cross-site")],
        vec![("Origin", "https://ops.example.evil")],
    ];
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    for headers in &forged {
        for location in ["/api", "/open"] {
            for (method, path, body) in [
                ("POST", down, "a=b"),
                ("PUT", "/v1/upstreams/new", r#"{"servers":[]}"#),
                ("DELETE", "/v1/upstreams/app?force=1", ""),
                ("PATCH", "/v1/upstreams/app/servers/10.9.9.1:8080", r#"{"weight":9}"#),
                ("POST", "/v1/zones/main/flush", ""),
            ] {
                let request = Request::new(method, &format!("{location}{path}"))
                    .header("Host", &host)
                    .header("Content-Type", "text/plain");
                let request =
                    headers.iter().fold(request, |r, (name, value)| r.header(name, value));
                let request = if body.is_empty() { request } else { request.body(body) };
                let reply = conn.send(&request).unwrap();
                assert_eq!(reply.status, 403, "{headers:?} {method} {path}: {}", reply.text());
                assert_eq!(reply.json()["type"], "urn:peerage:cross-site");
            }
            let request =
                Request::get(&format!("{location}/v1/upstreams/app")).header("Host", &host);
            let request = headers.iter().fold(request, |r, (name, value)| r.header(name, value));
            let reply = conn.send(&request).unwrap();
            assert_eq!(reply.status, 200);
            assert_eq!(reply.header("access-control-allow-origin"), None);
        }
    }
    assert_eq!(shown(&nginx), before);
    let good = [
        ("/api", vec![]),
        ("/api", vec![("Origin", own.as_str())]),
        ("/api", vec![("Origin", own.as_str()), ("Sec-Fetch-Site", "same-origin")]),
        ("/api", vec![("Sec-Fetch-Site", "none")]),
        ("/open", vec![("Origin", "https://ops.example"), ("Sec-Fetch-Site", "cross-site")]),
    ];
    for (location, headers) in good {
        let request = Request::post(&format!("{location}{down}")).header("Host", &host);
        let request = headers.iter().fold(request, |r, (name, value)| r.header(name, value));
        assert_eq!(conn.send(&request).unwrap().status, 200, "{location} {headers:?}");
    }
}

#[test]
fn bodies_too_large_are_refused_before_they_are_read() {
    let nginx = start("location /wide { peerage_api write=on; client_max_body_size 0; }");
    let before = shown(&nginx);
    let worker = nginx.worker_pids()[0];
    let memory = rss_kb(worker);
    // 100 MB are declared, none of it is sent: the answer waits for nothing.
    for location in ["/api", "/wide"] {
        let target = format!("{location}/v1/upstreams/app");
        let declared = Request::new("PUT", &target).header("Content-Length", "104857600");
        let mut conn = Conn::open(nginx.addr("api")).unwrap();
        conn.begin(&declared).unwrap();
        assert_eq!(conn.reply().unwrap().status, 413, "{location}");
    }
    // Over 1 MB is the API's own limit: the rest is thrown away and the connection goes on.
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let body = format!("{{\"servers\":[]{}}}", " ".repeat(3 << 20));
    let request = Request::new("PUT", "/api/v1/upstreams/app").body(body);
    for request in [request.clone(), request.chunked(64 * 1024)] {
        conn.begin(&request).unwrap();
        let reply = conn.reply().unwrap();
        assert_eq!(reply.status, 413);
        assert_eq!(reply.json()["type"], "urn:peerage:body-too-large");
        assert_eq!(conn.send(&Request::get("/api/v1/upstreams/app")).unwrap().status, 200);
    }
    // Just below it is taken.
    let body = format!("{{\"servers\":[]{}}}", " ".repeat((1 << 20) - 14));
    let request = Request::new("PUT", "/api/v1/upstreams/wide").body(body);
    assert_eq!(conn.send(&request).unwrap().status, 201);
    assert_eq!(nginx.api().delete("upstreams/wide").0, 200);
    assert_eq!(shown(&nginx).1, before.1);
    assert!(rss_kb(worker) < memory + 16 * 1024, "{} kB, was {memory}", rss_kb(worker));
}

#[test]
fn slow_and_broken_off_bodies_hold_nobody_and_change_nothing() {
    let nginx = start("location /hasty { peerage_api write=on; client_body_timeout 1s; }");
    let before = shown(&nginx);
    let addr = nginx.addr("api");
    let put = Request::new("PUT", "/api/v1/upstreams/app").header("Content-Length", "14");
    let mut slow: Vec<Conn> = (0..20).map(|_| Conn::open(addr).unwrap()).collect();
    for (i, conn) in slow.iter_mut().enumerate() {
        conn.begin(&put).unwrap();
        conn.write(&br#"{"servers":[]}"#[..i % 14]).unwrap();
    }
    // One worker, twenty bodies half-way: others are answered, also writers.
    assert_eq!(nginx.api().verb("app", "10.9.9.1:8080", "down").0, 200);
    assert_eq!(nginx.api().verb("app", "10.9.9.1:8080", "up").0, 200);
    let between = shown(&nginx);
    drop(slow.split_off(10));
    let hasty = Request::new("PUT", "/hasty/v1/upstreams/app").header("Content-Length", "14");
    let mut conn = Conn::open(addr).unwrap();
    conn.begin(&hasty).unwrap();
    conn.write(b"{").unwrap();
    // nginx's answer to a body that does not come: 408, or the end of the connection.
    let end = conn.reply();
    assert!(end.is_err() || end.unwrap().status == 408);
    assert_eq!(shown(&nginx), between);
    // Those that go on are still good.
    let mut last = slow.swap_remove(5);
    last.write(&br#"{"servers":[]}"#[5..]).unwrap();
    assert_eq!(last.reply().unwrap().status, 200);
    assert_ne!(shown(&nginx), before);
    assert_eq!(nginx.api().upstream("app")["servers"], json!([]));
}
