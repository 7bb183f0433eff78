//! Bad input to the API: every row is refused by name, however its body comes, and leaves nothing
//! behind; the connection stays in step. (CASES 23, CONTRACT 4.)

mod support;

use support::*;

/// What is sent, and how it must be refused.
struct Row {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    body: Vec<u8>,
    status: u16,
    code: &'static str,
    field: Option<&'static str>,
}

type Line<'a> = (&'static str, &'a str, u16, &'static str, Option<&'static str>);

const UP: &str = "upstreams/app";
const ONE: &str = "upstreams/app/servers/10.9.9.1:8080";

fn row(method: &'static str, path: &'static str, line: Line<'_>) -> Row {
    let (what, body, status, code, field) = line;
    Row { what, method, path, body: body.into(), status, code, field }
}

/// Bodies that are no JSON, or JSON that can be read in two ways.
fn no_json() -> Vec<Row> {
    let deep = format!("{{\"counts\":{}1{}}}", "[".repeat(16), "]".repeat(16));
    let deeper = "[".repeat(9_000);
    let texts: [(&'static str, &[u8], Option<&'static str>); 17] = [
        ("nothing at all", b"", None),
        ("a form", b"weight=3", None),
        ("half", br#"{"servers":["#, None),
        ("two values", b"{}{}", None),
        ("NaN", br#"{"servers":[{"server":"10.9.9.1:8080","weight":NaN}]}"#, None),
        ("Infinity", br#"{"defaults":{"weight":-Infinity}}"#, None),
        ("a number out of all ranges", br#"{"defaults":{"weight":1e999}}"#, None),
        ("a comment", b"{} // all", None),
        ("a comma at the end", br#"{"method":null,}"#, None),
        ("single quotes", b"{'method':null}", None),
        ("a byte order mark", b"\xef\xbb\xbf{}", None),
        ("no UTF-8", b"{\"method\":\"\xff\"}", None),
        ("half a surrogate pair", br#"{"method":"\ud800"}"#, None),
        ("NUL after the end", b"{}\0", None),
        ("a duplicate key", br#"{"method":null,"method":null}"#, Some("method")),
        ("a duplicate key, escaped", br#"{"method":null,"\u006dethod":null}"#, Some("method")),
        (
            "a duplicate key further down",
            br#"{"servers":[{"server":"10.9.9.1:8080","weight":1,"weight":2}]}"#,
            Some("weight"),
        ),
    ];
    let bad = |(what, body, field): (&'static str, &[u8], _)| Row {
        what,
        method: "PUT",
        path: UP,
        body: body.to_vec(),
        status: 400,
        code: "bad-json",
        field,
    };
    let nesting = [("17 levels", deep.as_bytes(), None), ("9,000 levels", deeper.as_bytes(), None)];
    texts.into_iter().chain(nesting).map(bad).collect()
}

/// Fields of an upstream.
fn bad_upstreams() -> Vec<Row> {
    let long = format!("{{\"{}\":1}}", "x".repeat(10_000));
    let lines: [Line<'_>; 20] = [
        ("a list", "[]", 400, "bad-value", None),
        ("null", "null", 400, "bad-value", None),
        ("unknown field", r#"{"sevrers":[]}"#, 400, "unknown-field", Some("sevrers")),
        ("a key of 10 kB", &long, 400, "unknown-field", None),
        ("method of another type", r#"{"method":5}"#, 400, "bad-value", Some("method")),
        ("unknown method", r#"{"method":"fastest"}"#, 400, "bad-value", Some("method")),
        ("defaults as a list", r#"{"defaults":[]}"#, 400, "bad-value", Some("defaults")),
        (
            "text as weight",
            r#"{"defaults":{"weight":"1"}}"#,
            400,
            "bad-value",
            Some("defaults.weight"),
        ),
        (
            "unknown default",
            r#"{"defaults":{"wieght":1}}"#,
            400,
            "unknown-field",
            Some("defaults.wieght"),
        ),
        (
            "backup as default",
            r#"{"defaults":{"backup":true}}"#,
            400,
            "unknown-field",
            Some("defaults.backup"),
        ),
        ("servers as an object", r#"{"servers":{}}"#, 400, "bad-value", Some("servers")),
        ("a number as server", r#"{"servers":[1]}"#, 400, "bad-value", Some("servers[0]")),
        (
            "a server without address",
            r#"{"servers":[{}]}"#,
            400,
            "bad-value",
            Some("servers[0].server"),
        ),
        (
            "the second server wrong",
            r#"{"servers":[{"server":"10.9.9.1:1"},{"server":"x:y"}]}"#,
            400,
            "bad-address",
            Some("servers[1].server"),
        ),
        (
            "unknown field of a server",
            r#"{"servers":[{"server":"10.9.9.1:1","wieght":1}]}"#,
            400,
            "unknown-field",
            Some("servers[0].wieght"),
        ),
        ("no servers said", r#"{"method":null}"#, 400, "bad-value", Some("servers")),
        (
            "fields that do not go together",
            r#"{"check":{"type":"tcp","uri":"/"},"servers":[]}"#,
            400,
            "bad-value",
            Some("check.uri"),
        ),
        (
            "the same address twice",
            r#"{"servers":[{"server":"10.9.9.1:80"},{"server":"10.9.9.1"}]}"#,
            409,
            "duplicate-server",
            Some("servers"),
        ),
        (
            "the same v6 address twice",
            r#"{"servers":[{"server":"[::1]:80"},{"server":"[0:0::1]"}]}"#,
            409,
            "duplicate-server",
            Some("servers"),
        ),
        (
            "a name",
            r#"{"servers":[{"server":"backend.test:80"}]}"#,
            422,
            "name-not-supported",
            Some("server"),
        ),
    ];
    let mut rows: Vec<Row> = lines.into_iter().map(|line| row("PUT", UP, line)).collect();
    let patch = (r#"{"servers":[]}"#, 400, "unknown-field", Some("servers"));
    rows.push(row("PATCH", UP, ("servers in a PATCH", patch.0, patch.1, patch.2, patch.3)));
    let unknown = ("PATCH of what is not there", "{}", 404, "upstream-not-found", None);
    rows.push(row("PATCH", "upstreams/nothing", unknown));
    rows
}

/// Fields of a server, and addresses.
fn bad_servers() -> Vec<Row> {
    let (long, route) = ("r".repeat(256), "r".repeat(33));
    let reason = format!(r#"{{"admin":{{"state":"down","reason":"{long}"}}}}"#);
    let route = format!(r#"{{"route":"{route}"}}"#);
    let labels: Vec<String> = (0..17).map(|i| format!(r#""k{i}":"v""#)).collect();
    let labels = format!(r#"{{"labels":{{{}}}}}"#, labels.join(","));
    let lines: [Line<'_>; 29] = [
        ("weight -1", r#"{"weight":-1}"#, 400, "bad-value", Some("weight")),
        ("weight 65536", r#"{"weight":65536}"#, 400, "bad-value", Some("weight")),
        ("weight 1e308", r#"{"weight":1e308}"#, 400, "bad-value", Some("weight")),
        ("weight 2^64", r#"{"weight":18446744073709551616}"#, 400, "bad-value", Some("weight")),
        ("weight 1.5", r#"{"weight":1.5}"#, 400, "bad-value", Some("weight")),
        ("weight as text", r#"{"weight":"3"}"#, 400, "bad-value", Some("weight")),
        ("max_conns -1", r#"{"max_conns":-1}"#, 400, "bad-value", Some("max_conns")),
        ("max_conns over 20 bits", r#"{"max_conns":1048576}"#, 400, "bad-value", Some("max_conns")),
        ("max_fails 65536", r#"{"max_fails":65536}"#, 400, "bad-value", Some("max_fails")),
        ("fail_timeout soon", r#"{"fail_timeout":"soon"}"#, 400, "bad-value", Some("fail_timeout")),
        ("fail_timeout -5", r#"{"fail_timeout":-5}"#, 400, "bad-value", Some("fail_timeout")),
        (
            "fail_timeout for ever",
            r#"{"fail_timeout":"99999999999y"}"#,
            400,
            "bad-value",
            Some("fail_timeout"),
        ),
        ("slow_start", r#"{"slow_start":"5h"}"#, 400, "bad-value", Some("slow_start")),
        ("backup as text", r#"{"backup":"yes"}"#, 400, "bad-value", Some("backup")),
        ("a route of 33 bytes", &route, 400, "bad-value", Some("route")),
        ("a route with a newline", r#"{"route":"a\nb"}"#, 400, "bad-value", Some("route")),
        ("labels as a list", r#"{"labels":["a"]}"#, 400, "bad-value", Some("labels")),
        ("17 labels", &labels, 400, "bad-value", Some("labels")),
        ("a label with a colon", r#"{"labels":{"a:b":"c"}}"#, 400, "bad-value", Some("labels")),
        ("a number as label", r#"{"labels":{"a":1}}"#, 400, "bad-value", Some("labels.a")),
        ("admin as text", r#"{"admin":"down"}"#, 400, "bad-value", Some("admin")),
        (
            "unknown admin state",
            r#"{"admin":{"state":"gone"}}"#,
            400,
            "bad-value",
            Some("admin.state"),
        ),
        (
            "unknown admin field",
            r#"{"admin":{"why":"x"}}"#,
            400,
            "unknown-field",
            Some("admin.why"),
        ),
        (
            "an end that is no time",
            r#"{"admin":{"state":"down","until":"soon"}}"#,
            400,
            "bad-value",
            Some("admin.until"),
        ),
        (
            "an end of up",
            r#"{"admin":{"state":"up","ttl":"5m"}}"#,
            400,
            "bad-value",
            Some("admin.state"),
        ),
        ("a reason of 256 bytes", &reason, 400, "bad-value", Some("admin.reason")),
        (
            "a reason with NUL",
            r#"{"admin":{"state":"down","reason":"a\u0000b"}}"#,
            400,
            "bad-value",
            Some("admin.reason"),
        ),
        ("unknown field", r#"{"wieght":1}"#, 400, "unknown-field", Some("wieght")),
        (
            "another address than the path's",
            r#"{"server":"10.9.9.2:8080"}"#,
            400,
            "bad-value",
            Some("server"),
        ),
    ];
    let mut rows = Vec::new();
    for line in lines {
        rows.push(row("PATCH", ONE, line));
        rows.push(row("PUT", ONE, line));
    }
    let missing = ("no such server", "{}", 404, "server-not-found", None);
    rows.push(row("PATCH", "upstreams/app/servers/10.9.9.9:1", missing));
    rows.push(row("PATCH", "upstreams/app/servers/id:4711", missing));
    let missing = ("no such upstream", "{}", 404, "upstream-not-found", None);
    rows.push(row("PUT", "upstreams/nothing/servers/10.9.9.9:1", missing));
    rows.push(row("PATCH", "upstreams/nothing/servers/10.9.9.9:1", missing));
    rows
}

fn bad_addresses() -> Vec<Row> {
    let long = format!("{}:80", "a".repeat(10_000));
    let path = format!("unix:/{}", "a".repeat(107));
    let texts = [
        "",
        ":80",
        "10.9.9.1:",
        "10.9.9.1:0",
        "10.9.9.1:65536",
        "10.9.9.1:-1",
        "10.9.9.1:80/x",
        "10.9.9:80",
        "1.2.3.4.5:80",
        "http://10.9.9.1:80",
        "10.9.9.1 :80",
        "::1",
        "[::1",
        "[::1]80",
        "[::1%25lo]:80",
        "[10.9.9.1]:80",
        "unix:",
        "unix:a.sock",
        "unix:/",
        "unix:/a\\nb",
        "a..b:80",
        "10.9.9.1:80\\u0000",
        "10.9.9.1:80\\n",
        "10.9.9.1:80; weight=2",
        "caf\u{e9}:80",
        &long,
        &path,
    ];
    let rows = texts.map(|text| {
        let body = format!(r#"{{"servers":[{{"server":"{text}"}}]}}"#);
        row("PUT", UP, ("an address", &body, 400, "bad-address", Some("servers[0].server")))
    });
    rows.into()
}

/// Options of the verbs.
fn bad_verbs() -> Vec<Row> {
    const DOWN: &str = "upstreams/app/servers/10.9.9.1:8080/down";
    let lines: [Line<'_>; 15] = [
        ("no JSON", "reason=x", 400, "bad-json", None),
        ("a list", "[]", 400, "bad-value", None),
        ("unknown option", r#"{"force":1}"#, 400, "unknown-field", Some("force")),
        ("wait as a list", r#"{"wait":[]}"#, 400, "bad-value", Some("wait")),
        ("wait over an hour", r#"{"wait":"61m"}"#, 400, "bad-value", Some("wait")),
        ("a negative wait", r#"{"wait":-1}"#, 400, "bad-value", Some("wait")),
        ("wait 1e308", r#"{"wait":1e308}"#, 400, "bad-value", Some("wait")),
        ("ttl 0", r#"{"ttl":0}"#, 400, "bad-value", Some("ttl")),
        ("ttl for ever", r#"{"ttl":"99999999999999999999d"}"#, 400, "bad-value", Some("ttl")),
        ("a reason with a newline", r#"{"reason":"a\nb"}"#, 400, "bad-value", Some("reason")),
        ("a number as reason", r#"{"reason":812}"#, 400, "bad-value", Some("reason")),
        ("min_up -1", r#"{"min_up":-1}"#, 400, "bad-value", Some("min_up")),
        ("min_up as text", r#"{"min_up":"1"}"#, 400, "bad-value", Some("min_up")),
        ("too few would remain", r#"{"min_up":2}"#, 409, "min-up", None),
        ("a duplicate key", r#"{"wait":1,"wait":2}"#, 400, "bad-json", Some("wait")),
    ];
    let mut rows: Vec<Row> = lines.into_iter().map(|line| row("POST", DOWN, line)).collect();
    let reason = ("down for another reason", r#"{"if_reason":"x"}"#, 409, "if-reason", None);
    rows.push(row("POST", "upstreams/app/servers/10.9.9.3:8080/up", reason));
    let end = ("an end of up", r#"{"ttl":"5m"}"#, 400, "bad-value", Some("ttl"));
    rows.push(row("POST", "upstreams/app/servers/10.9.9.1:8080/up", end));
    let gone = ("no such server", r#"{"wait":"1s"}"#, 404, "server-not-found", None);
    rows.push(row("POST", "upstreams/app/servers/id:999/drain", gone));
    rows
}

fn rows() -> Vec<Row> {
    let themes = [no_json(), bad_upstreams(), bad_servers(), bad_addresses(), bad_verbs()];
    themes.into_iter().flatten().collect()
}

/// An upstream nobody proxies to: what is listed moves only when something is changed.
fn start() -> Nginx {
    let conf = Nginx::builder().http(
        "peerage_zone main 2m;
         upstream app { peerage main; server 10.9.9.1:8080; peerage_server 10.9.9.2:8080 backup; }
         server {
             listen {api};
             location /api { peerage_api write=on; }
             location /small { peerage_api write=on; client_body_buffer_size 16; }
             location /file { peerage_api write=on; client_body_in_file_only clean; }
         }",
    );
    let nginx = conf.start();
    let third = json!({"admin": {"state": "down", "reason": "maintenance"}});
    nginx.api().ok("PUT", "upstreams/app/servers/10.9.9.3:8080", Some(&third));
    nginx
}

/// Sends every row on one connection, each followed by a good request that must find all as it was.
#[track_caller]
fn refused(location: &str, send: impl Fn(&mut Conn, &Request, &Row)) {
    let nginx = start();
    let list = Request::get("/api/v1/upstreams?fields=servers");
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let before = conn.send(&list).unwrap();
    assert_eq!(before.status, 200);
    for row in rows() {
        let what = format!("{} {}: {}", row.method, row.path, row.what);
        let target = format!("{location}/v1/{}", row.path);
        let request = Request::new(row.method, &target).body(row.body.clone());
        send(&mut conn, &request, &row);
        let reply = conn.reply().unwrap_or_else(|error| panic!("{what}: {error}"));
        let text = reply.text();
        assert_eq!(reply.status, row.status, "{what}: {text}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{what}");
        let problem = reply.json();
        assert_eq!(problem["type"], format!("urn:peerage:{}", row.code), "{what}: {text}");
        assert_eq!(problem["status"], row.status, "{what}");
        if let Some(field) = row.field {
            assert_eq!(problem["field"], field, "{what}: {text}");
        }
        assert!(reply.body.len() < 1_000, "{what}: it repeats what it was sent: {text}");
        let after = conn.send(&list).unwrap_or_else(|error| panic!("after {what}: {error}"));
        assert_eq!(after.text(), before.text(), "after {what}");
        assert_eq!(after.header("peerage-revision"), before.header("peerage-revision"), "{what}");
    }
}

#[test]
fn bad_bodies_in_memory_change_nothing() {
    refused("/api", |conn, request, _| conn.begin(request).unwrap());
}

#[test]
fn bad_bodies_in_memory_and_file_change_nothing() {
    refused("/small", |conn, request, _| conn.begin(request).unwrap());
}

#[test]
fn bad_bodies_in_a_file_change_nothing() {
    refused("/file", |conn, request, _| conn.begin(request).unwrap());
}

#[test]
fn bad_bodies_in_chunks_change_nothing() {
    refused("/api", |conn, request, _| conn.begin(&request.clone().chunked(7)).unwrap());
}

#[test]
fn bad_bodies_in_chunks_into_a_small_buffer_change_nothing() {
    refused("/small", |conn, request, _| conn.begin(&request.clone().chunked(7)).unwrap());
}

#[test]
fn bad_bodies_byte_by_byte_change_nothing() {
    refused("/small", |conn, request, row| {
        if row.body.len() < 1_000 {
            conn.begin_slowly(request, Duration::from_micros(10)).unwrap();
        } else {
            conn.begin(request).unwrap();
        }
    });
}

#[test]
fn good_bodies_arrive_whole_whichever_way_they_come() {
    let nginx = start();
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let labels: serde_json::Map<String, Value> =
        (0..16).map(|i| (format!("key-{i}"), "v".repeat(64).into())).collect();
    for (i, location) in ["/api", "/small", "/file"].into_iter().cycle().take(9).enumerate() {
        let servers: Vec<Value> = (0..60)
            .map(|n| json!({"server": format!("10.8.{i}.{n}:80"), "labels": labels}))
            .collect();
        let request = Request::new("PUT", &format!("{location}/v1/upstreams/u{i}"))
            .json(&json!({"servers": servers}));
        match i / 3 {
            0 => conn.begin(&request).unwrap(),
            1 => conn.begin(&request.chunked(1_000)).unwrap(),
            _ => conn.begin(&request.chunked(13)).unwrap(),
        }
        let reply = conn.reply().unwrap();
        assert_eq!(reply.status, 201, "{location}: {}", reply.text());
        let shown = nginx.api().upstream(&format!("u{i}"));
        let shown = shown["servers"].as_array().unwrap();
        assert_eq!(shown.len(), 60);
        assert!(shown.iter().zip(&servers).all(|(a, b)| a["server"] == b["server"]));
        assert!(shown.iter().all(|server| server["labels"] == json!(labels)));
    }
}

#[test]
fn read_only_fields_of_a_listing_are_accepted_and_ignored() {
    let nginx = start();
    let api = nginx.api();
    let mut listing = api.upstream("app");
    for (key, value) in [("revision", json!(1)), ("digest", json!("x")), ("eligible", json!([]))] {
        listing[key] = value;
    }
    listing["servers"][0]["id"] = json!(4711);
    listing["servers"][0]["counters"] = json!({"requests": -1});
    listing["servers"][0]["active"] = json!("many");
    let before = api.upstream("app");
    let answer = api.ok("PUT", UP, Some(&listing));
    assert_eq!(answer["changed"], false, "{answer}");
    assert_eq!(api.upstream("app"), before);
}
