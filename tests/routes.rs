//! `v1/routes`: routes one by one, many at once, in pages; what a write promises, and what stays.

mod support;

use std::collections::BTreeSet;

use support::*;

/// Tenants go where their routes lead, each in the header `X-Tenant`.
const ROUTED: &str = "
    upstream tenants { peerage main name=$peerage_route; keepalive 8; }
    server {
        listen {web};
        location / { peerage_route $http_x_tenant; proxy_pass http://tenants; }
    }";

fn conf(zone: &str) -> Conf {
    let text = format!("peerage_zone main 8m {zone}; {ROUTED}");
    Nginx::builder().workers(2).http(text).with_api("write=on")
}

fn app(api: &Api, name: &str, servers: &[&Backend]) {
    let servers: Vec<Value> = servers.iter().map(|b| json!({"server": b.addr()})).collect();
    api.ok("PUT", &format!("upstreams/{name}"), Some(&json!({"servers": servers})));
}

fn request(tenant: &str) -> Request {
    Request::get("/").header("X-Tenant", tenant)
}

/// Sends lines as they are.
fn post(api: &Api, query: &str, lines: &str) -> (u16, Value) {
    let request = api.request("POST", &format!("routes{query}"), None).body(lines.as_bytes());
    let reply = request.timeout(secs(60)).send(api.addr()).unwrap();
    (reply.status, reply.json())
}

/// All keys of a listing, page by page; every page is in order.
fn keys(api: &Api, filter: &str, limit: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    loop {
        let after = all.last().map_or_else(String::new, |key| format!("&after={}", encoded(key)));
        let (status, page) = api.get(&format!("routes?limit={limit}{filter}{after}"));
        assert_eq!(status, 200, "{page}");
        let page: Vec<String> = page.as_object().unwrap().keys().cloned().collect();
        assert!(page.is_sorted() && page.len() <= limit, "{page:?}");
        if page.is_empty() {
            return all;
        }
        assert!(all.last().is_none_or(|last| *last < page[0]), "{page:?}");
        all.extend(page);
    }
}

fn encoded(key: &str) -> String {
    key.bytes().map(|b| format!("%{b:02X}")).collect()
}

#[test]
fn every_worker_follows_a_route_once_its_write_is_answered() {
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let text = format!("peerage_zone main 8m; {ROUTED}");
    let nginx = Nginx::builder().workers(4).http(text).with_api("write=on").start();
    let api = nginx.api();
    app(&api, "a", &[&a]);
    app(&api, "b", &[&b]);
    for round in 0..scale(150, 2_000) {
        let name = if round % 2 == 0 { "a" } else { "b" };
        let (status, answer) = api.put("routes/acme", &json!({"upstream": name}));
        assert_eq!(status, if round == 0 { 201 } else { 200 }, "{answer}");
        assert_eq!(
            (&answer["changed"], &answer["route"]["upstream"]),
            (&json!(true), &json!(name))
        );
        for _ in 0..8 {
            let reply = request("acme").send(nginx.web()).unwrap();
            assert_eq!((reply.status, reply.backend()), (200, name), "round {round}");
        }
    }
    for round in 0..scale(50, 500) {
        let (body, expected) = match round % 2 {
            0 => (json!({"status": "suspended", "reason": "unpaid"}), 403),
            _ => (json!({"status": null, "reason": null}), 200),
        };
        assert_eq!(api.patch("routes/acme", &body).0, 200);
        for _ in 0..8 {
            assert_eq!(request("acme").send(nginx.web()).unwrap().status, expected, "{round}");
        }
    }
    assert_eq!(api.delete("routes/acme").0, 200);
    for _ in 0..20 {
        assert_eq!(request("acme").send(nginx.web()).unwrap().status, 404);
    }
}

#[test]
fn a_write_answers_like_one_of_an_upstream() {
    let nginx = conf("").start();
    let api = nginx.api();
    assert_eq!(api.get("routes"), (200, json!({})));
    let (status, problem) = api.get("routes/acme");
    assert_eq!((status, &problem["type"]), (404, &json!("urn:peerage:route-not-found")));
    let (status, problem) = api.put("routes/acme", &json!({"upstream": "a"}));
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:unknown-upstream")));
    assert_eq!(problem["field"], "upstream");
    assert_eq!(api.get("routes/acme").0, 404, "nothing changed");
    let (status, forced) = api.put("routes/acme?force=1", &json!({"upstream": "a"}));
    assert_eq!((status, &forced["route"]["status"]), (201, &json!("active")), "{forced}");
    app(&api, "a", &[]);
    app(&api, "b", &[]);

    // The same again is no change, whatever form it has.
    let before = api.get("routes/acme").1;
    let again = api.ok("PUT", "routes/acme", Some(&before));
    assert_eq!((&again["changed"], &again["route"]), (&json!(false), &before));
    let revision = again["revision"].as_u64().unwrap();
    let moved =
        api.call("PATCH", "routes/acme", Some(&json!({"upstream": "b", "labels": {"t": "1"}})));
    assert_eq!(moved.header("peerage-revision"), Some(&*(revision + 1).to_string()));
    assert_eq!(moved.json()["route"]["labels"], json!({"t": "1"}));
    let kept = api.ok("PATCH", "routes/acme", Some(&json!({"status": "suspended"})));
    assert_eq!(
        (&kept["route"]["upstream"], &kept["route"]["labels"]["t"]),
        (&json!("b"), &json!("1"))
    );

    // Conditions.
    let shown = api.call("GET", "routes/acme", None);
    let tag = shown.header("etag").unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", shown.json()["digest"].as_str().unwrap()));
    assert_eq!(api.with("If-None-Match", &tag).call("GET", "routes/acme", None).status, 304);
    let body = json!({"upstream": "a"});
    assert_eq!(api.with("If-Match", &tag).put("routes/acme", &body).0, 200);
    let (status, stale) = api.with("If-Match", &tag).put("routes/acme", &json!({"upstream": "b"}));
    assert_eq!((status, &stale["type"]), (412, &json!("urn:peerage:stale")), "{stale}");
    let now = api.call("GET", "routes/acme", None).header("etag").unwrap().to_owned();
    assert_eq!((stale["etag"].as_str(), now == tag), (Some(&*now), false));
    assert_eq!(api.with("If-Match", &tag).delete("routes/acme").0, 412);
    let (status, exists) = api.with("If-None-Match", "*").put("routes/acme", &body);
    assert_eq!((status, &exists["type"]), (409, &json!("urn:peerage:exists")));
    assert_eq!(api.with("If-None-Match", "*").put("routes/new", &body).0, 201);
    let line = "{\"key\":\"x\",\"upstream\":\"a\"}";
    let held = api.with("If-Match", &tag);
    assert_eq!(post(&held, "", line).0, 400, "many lines have no tag");

    // A dry run says what would be.
    let dry = api.ok("PATCH", "routes/acme?dry_run=1", Some(&json!({"upstream": "b"})));
    let diff = json!([{"path": "routes/acme/upstream", "from": "a", "to": "b"}]);
    assert_eq!((&dry["dry_run"], &dry["diff"]), (&json!(true), &diff), "{dry}");
    assert_eq!(api.get("routes/acme").1["upstream"], "a");
    assert_eq!(api.call("PUT", "routes/dry?dry_run=1", Some(&body)).status, 200);
    assert_eq!(api.get("routes/dry").0, 404);

    // Fields out of their rules, and a route that ends by itself.
    for (body, field) in [
        (json!({}), "upstream"),
        (json!({"upstream": "a b"}), "upstream"),
        (json!({"upstream": "a", "status": "a:b"}), "status"),
        (json!({"upstream": "a", "reason": "x".repeat(256)}), "reason"),
        (json!({"upstream": "a", "weight": 1}), "weight"),
        (json!({"upstream": "a", "ttl": "soon"}), "ttl"),
    ] {
        let (status, problem) = api.put("routes/acme", &body);
        assert_eq!((status, problem["field"].as_str()), (400, Some(field)), "{problem}");
    }
    let short = api.ok("PUT", "routes/short", Some(&json!({"upstream": "a", "ttl": "1s"})));
    assert!(short["route"]["until"].is_string(), "{short}");
    eventually(secs(10), || api.get("routes/short").0 == 404);
    assert_eq!(api.delete("routes/short").0, 404);
}

#[test]
fn who_may_not_write_moves_nobody() {
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 1m; upstream a {{ peerage main; }} {ROUTED}
             server {{ listen {{api}};
                 location /api {{ peerage_api write=on; }}
                 location /read {{ peerage_api; }} location /operate {{ peerage_api write=operate; }} }}"
        ))
        .start();
    let (api, addr) = (Api::new(nginx.addr("api"), "/api/v1"), nginx.addr("api"));
    let line = json!({"key": "acme", "upstream": "a"});
    for (prefix, status, allow) in [("/read/v1", 405, true), ("/operate/v1", 403, false)] {
        let held = Api::new(addr, prefix);
        for (method, path) in [
            ("PUT", "routes/acme"),
            ("PATCH", "routes/acme"),
            ("DELETE", "routes/acme"),
            ("POST", "routes"),
        ] {
            let body = (method != "DELETE").then_some(&line);
            let reply = held.call(method, path, body);
            assert_eq!(reply.status, status, "{prefix} {method}: {}", reply.text());
            assert_eq!(reply.header("allow").is_some(), allow);
        }
        assert_eq!(held.get("routes").0, 200);
    }
    let from_elsewhere = api.with("Origin", "https://elsewhere.example");
    assert_eq!(from_elsewhere.put("routes/acme", &json!({"upstream": "a"})).0, 403);
    assert_eq!(api.get("routes"), (200, json!({})));
}

#[test]
fn many_lines_are_checked_as_a_whole_and_put_in_force_while_traffic_goes_on() {
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let nginx = conf("").start();
    let api = nginx.api();
    app(&api, "a", &[&a]);
    app(&api, "b", &[&b]);
    let lines = |upstream: &str, n: usize| -> String {
        let line = |i| format!("{{\"key\":\"tenant-{i:05}\",\"upstream\":\"{upstream}\"}}\n");
        (0..n).map(line).collect()
    };
    let (status, answer) = post(&api, "", &lines("a", 5_000));
    let counts = |answer: &Value| {
        [&answer["routes"], &answer["created"], &answer["removed"]].map(|v| v.as_u64().unwrap())
    };
    assert_eq!((status, counts(&answer)), (200, [5_000, 5_000, 0]), "{answer}");

    // Moving all of them fails no request.
    let load = (0..50).fold(Load::to(nginx.web()).threads(2), |load, i| {
        load.request(request(&format!("tenant-{:05}", i * 97)))
    });
    let load = load.start();
    for to in ["b", "a", "b"] {
        let (status, answer) = post(&api, "", &format!("\n{}\n", lines(to, 5_000)));
        assert_eq!((status, counts(&answer)), (200, [5_000, 0, 0]), "{answer}");
        let seen = request("tenant-04999").send(nginx.web()).unwrap();
        assert_eq!(seen.backend(), to);
    }
    load.stop().all_ok();
    let (_, same) = post(&api, "", &lines("b", 5_000));
    assert_eq!((&same["changed"], counts(&same)), (&json!(false), [5_000, 0, 0]));

    // One bad line, and nothing happens.
    let revision = same["revision"].as_u64().unwrap();
    for (bad, status, field) in [
        ("{\"key\":\"x\",\"upstream\":\"nowhere\"}", 409, "lines[4001].upstream"),
        ("{\"key\":\"tenant-00000\",\"upstream\":\"a\"}", 400, "lines[4001].key"),
        ("{\"key\":\"x\",\"op\":\"delete\"}", 404, "lines[4001]"),
        ("{\"key\":\"x\"", 400, "lines[4001]"),
    ] {
        let (got, problem) = post(&api, "", &format!("{}{bad}\n", lines("a", 4_000)));
        assert_eq!(got, status, "{problem}");
        let named = problem["field"].as_str().unwrap_or_default();
        assert!(named.starts_with(field), "{problem}");
    }
    assert_eq!(api.get("zones/main").1["revision"].as_u64(), Some(revision));
    let dry = post(&api, "?dry_run=1", &lines("a", 5_000)).1;
    assert_eq!((dry["diff"].as_array().unwrap().len(), &dry["diff_left_off"]), (5_000, &json!(0)));
    assert_eq!(api.get("routes/tenant-00000").1["upstream"], "b");
    assert_eq!(post(&api, "?force=1", "{\"key\":\"x\",\"upstream\":\"nowhere\"}").0, 200);
    let big = "x".repeat(8 << 20) + "y";
    assert_eq!(api.request("POST", "routes", None).body(big).send(api.addr()).unwrap().status, 413);

    // Pages.
    let wanted: Vec<String> = (0..5_000).map(|i| format!("tenant-{i:05}")).collect();
    assert_eq!(keys(&api, "&upstream=b", 700), wanted);
    assert_eq!(keys(&api, "&upstream=nowhere", 10), ["x"]);
    assert_eq!(keys(&api, "", 1_000).len(), 5_001);
    assert_eq!(api.get("routes?upstream=a"), (200, json!({})));
    let first = api.get("routes").1;
    assert_eq!(first.as_object().unwrap().len(), 100);
    assert_eq!(first["tenant-00000"], api.get("routes/tenant-00000").1);
    for bad in ["limit=0", "limit=1001", "upstream=a b", "after=", "key=x", "force=1"] {
        assert_eq!(api.get(&format!("routes?{}", bad.replace(' ', "%20"))).0, 400, "{bad}");
    }

    let gone: String =
        (0..5_000).map(|i| format!("{{\"op\":\"delete\",\"key\":\"tenant-{i:05}\"}}\n")).collect();
    let (status, answer) = post(&api, "", &gone);
    assert_eq!((status, counts(&answer)), (200, [5_000, 0, 5_000]), "{answer}");
    assert_eq!(keys(&api, "", 10), ["x"]);
}

#[test]
fn routes_are_there_again_after_restarts_reloads_and_changes_of_size() {
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let mut nginx = conf("state={prefix}/main.json flush=always").start();
    let api = nginx.api();
    app(&api, "a", &[&a]);
    app(&api, "b", &[&b]);
    let line = |i: usize| format!("{{\"key\":\"t{i}\",\"upstream\":\"{}\"}}\n", ["a", "b"][i % 2]);
    assert_eq!(post(&api, "", &(0..1_000).map(line).collect::<String>()).0, 200);
    let body =
        json!({"upstream": "a", "status": "suspended", "reason": "unpaid", "labels": {"k": "v"}});
    api.ok("PUT", "routes/é%2Fü", Some(&body));
    let listing = |api: &Api| -> Vec<(String, Value)> {
        let keys = keys(api, "", 1_000);
        keys.into_iter()
            .map(|key| (key.clone(), api.get(&format!("routes/{}", encoded(&key))).1))
            .collect()
    };
    let all = listing(&api);
    assert_eq!(all.len(), 1_001);
    let check = |nginx: &Nginx, what: &str| {
        assert_eq!(listing(&nginx.api()), all, "{what}");
        assert_eq!(request("t7").send(nginx.web()).unwrap().backend(), "b", "{what}");
        assert_eq!(request("é/ü").send(nginx.web()).unwrap().status, 403, "{what}");
    };
    nginx.reload();
    check(&nginx, "reload");
    nginx.allow("exited on signal 9");
    nginx.kill();
    nginx.start();
    check(&nginx, "killed: only its journal has it");
    nginx.restart();
    check(&nginx, "restart");
    nginx.change(|conf| {
        conf.http(format!("peerage_zone main 16m state={{prefix}}/main.json; {ROUTED}"))
            .with_api("write=on")
    });
    nginx.reload();
    check(&nginx, "another size");
    assert_eq!(nginx.api().get("zones/main").1["routes"], 1_001);
}

#[test]
fn an_upstream_that_routes_name_is_removed_by_force_only() {
    let a = Backend::new("a");
    let nginx = conf("").start();
    let api = nginx.api();
    app(&api, "a", &[&a]);
    api.ok("PUT", "routes/acme", Some(&json!({"upstream": "a"})));
    api.ok("PUT", "routes/globex", Some(&json!({"upstream": "a"})));
    let (status, problem) = api.delete("upstreams/a");
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:named-by-routes")));
    assert_eq!(problem["routes"], 2);
    assert_eq!(request("acme").send(nginx.web()).unwrap().backend(), "a");
    assert_eq!(api.delete("upstreams/a?force=1").0, 200);
    assert_eq!(request("acme").send(nginx.web()).unwrap().status, 502);
    assert_eq!(api.get("routes/acme").1["upstream"], "a", "the route stays");
    app(&api, "a", &[&a]);
    assert_eq!(request("acme").send(nginx.web()).unwrap().backend(), "a");
    for key in ["acme", "globex"] {
        assert_eq!(api.delete(&format!("routes/{key}")).0, 200);
    }
    assert_eq!(api.delete("upstreams/a").0, 200);
}

#[test]
fn keys_are_whatever_tenants_are_called() {
    let a = Backend::new("a");
    let nginx = conf("").start();
    let api = nginx.api();
    app(&api, "a", &[&a]);
    let body = json!({"upstream": "a"});
    let long = "k".repeat(255);
    let good =
        ["Acme", "acme", "a b", "eu/acme", "é", "日本", "a%41", "a\"b\\", "<b>", "*", "$x", &long];
    for key in good {
        let (status, answer) = api.put(&format!("routes/{}", encoded(key)), &body);
        assert_eq!((status, answer["route"]["key"].as_str()), (201, Some(key)), "{answer}");
        assert_eq!(request(key).send(nginx.web()).unwrap().backend(), "a", "{key}");
    }
    for key in
        ["ACME", "a B", "eu", "e", "é2", &"k".repeat(254), &"k".repeat(256), "k\u{1}", "..", ""]
    {
        assert_eq!(request(key).send(nginx.web()).unwrap().status, 404, "{key:?}");
    }
    let too_long = "k".repeat(256);
    for key in [too_long.as_str(), "a\nb", "a\u{7f}", "\u{85}", "a\u{0}"] {
        let (status, problem) = api.put(&format!("routes/{}", encoded(key)), &body);
        assert_eq!(status, 400, "{key:?}: {problem}");
        let text = json!({"key": key, "upstream": "a"}).to_string();
        assert_eq!(post(&api, "", &text).0, 400, "{key:?}");
    }
    // Bytes that are no UTF-8: nobody's key, and no route's.
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Tenant: caf\xe9\r\n\r\n").unwrap();
    assert_eq!(conn.reply().unwrap().status, 404);
    assert_eq!(api.put("routes/caf%E9", &body).0, 400);

    // What a path cannot say, a line can.
    for key in [".", "..", "a/../b"] {
        let (status, problem) = api.put(&format!("routes/{}", encoded(key)), &body);
        assert_eq!(status, 400, "{key}: {problem}");
        assert_eq!(
            post(&api, "", &json!({"key": key, "upstream": "a"}).to_string()).0,
            200,
            "{key}"
        );
        assert_eq!(request(key).send(nginx.web()).unwrap().backend(), "a", "{key}");
    }
    let listed: BTreeSet<String> = keys(&api, "", 5).into_iter().collect();
    assert_eq!(listed.len(), good.len() + 3, "{listed:?}");
}

#[test]
fn changes_of_routes_are_told() {
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_log logs/peerage.log; peerage_zone main 1m; log_format change escape=none '$peerage_change';
             upstream a {{ peerage main; }} upstream b {{ peerage main; }} {ROUTED}
             server {{ listen {{api}}; access_log {{prefix}}/logs/access.log change; location /api {{ peerage_api write=on; }} }}"
        ))
        .start();
    let api = nginx.api();
    let seq = api.get("events").1["seq"].as_u64().unwrap();
    api.ok("PUT", "routes/acme", Some(&json!({"upstream": "a"})));
    api.ok(
        "PATCH",
        "routes/acme",
        Some(&json!({"upstream": "b", "status": "suspended", "reason": "unpaid"})),
    );
    assert_eq!(
        post(&api, "", "{\"key\":\"x\",\"upstream\":\"a\"}\n{\"op\":\"delete\",\"key\":\"acme\"}")
            .0,
        200
    );
    let told = api.get(&format!("events?since={seq}")).1;
    let told: Vec<[&str; 4]> = told["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            assert_eq!(event["kind"], "route", "{event}");
            ["route", "upstream", "from", "to"].map(|field| event[field].as_str().unwrap())
        })
        .collect();
    let acme = |upstream, from, to| ["acme", upstream, from, to];
    assert!(told.contains(&acme("a", "absent", "a")), "{told:?}");
    assert!(told.contains(&acme("b", "a", "b suspended")), "{told:?}");
    assert!(told.contains(&acme("b", "b suspended", "absent")), "{told:?}");
    assert_eq!(told.len(), 4);
    eventually(secs(5), || {
        nginx.log("peerage.log").lines().filter(|l| l.contains("\"kind\":\"route\"")).count() == 4
    });
    let log = nginx.error_log();
    for text in [
        "route \"acme\" is set by \"127.0.0.1\", upstream \"a\"",
        "route \"acme\" is set suspended by \"127.0.0.1\": unpaid, upstream \"b\"",
        "1 routes set and 1 removed by \"127.0.0.1\", zone \"main\"",
    ] {
        assert!(log.contains(text), "no {text}");
        eventually(secs(5), || nginx.log("access.log").contains(text));
    }
}

#[test]
fn a_hundred_thousand_routes_take_what_the_formula_says() {
    let a = Backend::new("a");
    let nginx = conf("").start();
    let api = nginx.api();
    for i in 0..50 {
        app(&api, &format!("app-{i:02}"), &[&a]);
    }
    let bytes = |api: &Api| {
        let report = api.get("zones/main").1;
        (
            report["routes"].as_u64().unwrap(),
            report["bytes"]["used"].as_u64().unwrap(),
            report["bytes"]["routes"].as_u64().unwrap(),
        )
    };
    let empty = bytes(&api);
    assert_eq!((empty.0, empty.2), (0, 0));
    const ROUTES: u64 = 100_000;
    let line = |i| format!("{{\"key\":\"tenant-{i:09}\",\"upstream\":\"app-{:02}\"}}\n", i % 50);
    let (status, answer) = post(&api, "", &(0..ROUTES).map(line).collect::<String>());
    assert_eq!((status, &answer["created"]), (200, &json!(ROUTES)), "{answer}");
    // docs/directives.md: 16 + key rounded up to 8 a route, 16 + name an app, 4 for each of them in
    // a table whose length is a power of two.
    let formula = ROUTES * 32 + 50 * 24 + 4 * (ROUTES + 50).next_power_of_two();
    let near = |is: u64| is.abs_diff(formula) * 20 <= formula;
    let (routes, used, own) = eventually(secs(10), || Some(bytes(&api)).filter(|b| near(b.2)));
    assert_eq!(routes, ROUTES);
    eventually(secs(10), || near(bytes(&api).1 - empty.1));
    assert!(near(own), "{own} and {used} of {formula}");
    for i in [0, 1, 49_999, 99_999] {
        let reply = request(&format!("tenant-{i:09}")).send(nginx.web()).unwrap();
        assert_eq!(reply.status, 200);
    }
    assert_eq!(request("tenant-000100000").send(nginx.web()).unwrap().status, 404);
    let page = api.get("routes?upstream=app-07&after=tenant-000099900&limit=1000").1;
    assert_eq!(page.as_object().unwrap().len(), 2);
}
