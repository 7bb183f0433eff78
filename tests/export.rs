//! Export and import: a clone, a backup, a seed of a new box. (CONTRACT 4.)

mod support;

use std::collections::BTreeMap;

use support::*;

fn start() -> Nginx {
    let size = scale("16m", "256m");
    let conf = Nginx::builder().workers(2).http(format!(
        "peerage_zone main {size};
         upstream app {{ peerage main; server 10.9.9.1:80 weight=2; server 10.9.9.2:80; }}
         server {{
             listen {{api}};
             location /api {{ peerage_api write=on; client_max_body_size 64m; }}
         }}"
    ));
    conf.start()
}

fn export(api: &Api) -> String {
    let reply = api.call("GET", "zones/main/export", None);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")));
    reply.text()
}

fn import(api: &Api, query: &str, text: &str) -> (u16, Value) {
    let request = api.request("PUT", &format!("zones/main/import{query}"), None);
    let reply = request.body(text.as_bytes().to_vec()).send(api.addr()).expect("an answer");
    (reply.status, reply.json())
}

/// Digests by name.
fn digests(api: &Api) -> BTreeMap<String, String> {
    let mut digests = BTreeMap::new();
    loop {
        let after = digests.last_key_value().map(|(name, _)| format!("&after={name}"));
        let page =
            api.ok("GET", &format!("upstreams?limit=1000{}", after.unwrap_or_default()), None);
        let page = page.as_object().unwrap();
        if page.is_empty() {
            return digests;
        }
        let digest = |shown: &Value| shown["digest"].as_str().unwrap().to_owned();
        digests.extend(page.iter().map(|(name, shown)| (name.clone(), digest(shown))));
    }
}

fn fill(api: &Api, upstreams: usize) {
    for begin in (0..upstreams).step_by(250) {
        let changes: Vec<Value> = (begin..upstreams.min(begin + 250))
            .map(|u| {
                let servers: Vec<Value> = (0..20)
                    .map(|s| {
                        let server = format!("10.{}.{}.{s}:8080", u / 250, u % 250);
                        match (u + s) % 5 {
                            0 => json!({"server": server, "weight": s + 1, "max_fails": 3}),
                            1 => json!({"server": server, "backup": true, "labels": {"rack": "a", "row": "é"}}),
                            2 => json!({"server": server, "admin": {"state": "down", "reason": "disk"}}),
                            3 => json!({"server": server, "route": "r1", "fail_timeout": "30s", "max_conns": 9}),
                            _ => json!({"server": server, "admin": {"state": "drain", "ttl": "1h"}}),
                        }
                    })
                    .collect();
                let body = json!({"defaults": {"weight": 1 + u % 3}, "servers": servers});
                json!({"op": "put", "upstream": format!("u{u}"), "body": body})
            })
            .collect();
        api.ok("POST", "batch", Some(&json!({"changes": changes})));
    }
}

#[test]
fn what_one_box_exports_another_imports_with_equal_digests() {
    let (one, two) = (start(), start());
    let (api, other) = (one.api(), two.api());
    let api = &api.patient(secs(300));
    let n = scale(300, 10_000);
    fill(api, n);
    assert_eq!(api.verb("app", "10.9.9.1:80", "down?reason=deploy").0, 200);
    api.ok("PUT", "upstreams/app/servers/10.9.9.3:80", Some(&json!({})));
    assert_eq!(api.delete("upstreams/app/servers/10.9.9.2:80").0, 200);
    assert_eq!(api.post("hosts/10.0.1.0/drain?min_up=0&reason=rack").0, 200);
    assert_eq!(api.post("hosts/10.99.0.1/down?missing=ok&ttl=1h").0, 200);
    let text = export(api);
    assert_eq!(text.lines().count(), n + 1 + 2 + 2);

    let other = &other.patient(secs(300));
    let before = digests(other);
    let (status, told) = import(other, "?dry_run=1", &text);
    assert_eq!((status, &told["upstreams"], &told["created"]), (200, &json!(n + 1), &json!(n)));
    assert_eq!((&told["dry_run"], &told["changed"]), (&json!(true), &json!(true)));
    assert_eq!(digests(other), before, "a dry run changes nothing");
    let (status, answer) = import(other, "", &text);
    assert_eq!(
        (status, &answer["created"], &answer["hosts"]),
        (200, &json!(n), &json!(2)),
        "{answer}"
    );
    assert_eq!(digests(other), digests(api));
    let host = |api: &Api, ip: &str| {
        let admin = &api.get(&format!("hosts/{ip}")).1["admin"];
        (admin["state"].clone(), admin["reason"].clone(), admin["until"].is_null())
    };
    for ip in ["10.0.1.0", "10.99.0.1"] {
        assert_eq!(host(other, ip), host(api, ip), "{ip}");
    }
    let (status, again) = import(other, "", &text);
    assert_eq!((status, &again["changed"]), (200, &json!(false)), "{again}");
    assert_eq!(again["revision"], answer["revision"]);
    // In a temporary file, chunked, the same.
    let request = other.request("PUT", "zones/main/import", None).body(text.into_bytes());
    assert_eq!(request.chunked(8_000).send(other.addr()).unwrap().json()["changed"], false);
}

#[test]
fn prune_removes_what_the_api_made_and_the_import_does_not_name() {
    let nginx = start();
    let api = nginx.api();
    for name in ["a", "b", "c"] {
        api.ok("PUT", &format!("upstreams/{name}"), Some(&json!({"servers": []})));
    }
    let text = "{\"upstream\":\"b\",\"servers\":[{\"server\":\"10.9.1.1:80\"}]}\n";
    let (status, told) = import(&api, "?prune=origin:api&dry_run=1", text);
    assert_eq!((status, &told["removed"]), (200, &json!(2)), "{told}");
    let mut paths: Vec<&str> =
        told["diff"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["upstreams/a", "upstreams/b/servers/10.9.1.1:80", "upstreams/c"]);
    assert_eq!(digests(&api).len(), 4);
    let (status, answer) = import(&api, "?prune=origin:api", text);
    assert_eq!((status, &answer["removed"], &answer["created"]), (200, &json!(2), &json!(0)));
    let left: Vec<String> = digests(&api).into_keys().collect();
    assert_eq!(left, ["app", "b"], "what the configuration names stays");
    assert_eq!(import(&api, "?prune=all", text).0, 400);
}

#[test]
fn a_line_that_cannot_be_taken_leaves_everything_as_it_was() {
    let nginx = start();
    let api = nginx.api();
    let before = digests(&api);
    let good = "{\"upstream\":\"new\",\"servers\":[{\"server\":\"10.9.1.1:80\"}]}\n";
    let table = [
        ("nonsense", 400, "lines[2]"),
        ("{\"upstream\":\"NEW\"}", 400, "lines[2]"),
        (
            "{\"upstream\":\"a\",\"servers\":[{\"server\":\"x\",\"weight\":-1}]}",
            400,
            "lines[2].servers[0].weight",
        ),
        ("{\"upstream\":\"a\",\"servers\":[{\"server\":\"app.test:80\"}]}", 422, "lines[2].server"),
        ("{\"host\":\"x\"}", 400, "lines[2].host"),
        ("{\"end\":2,\"servers\":1}", 400, "lines[2]"),
        ("{\"format\":9}", 400, "lines[2].format"),
        ("{}", 400, "lines[2].upstream"),
    ];
    for (line, status, field) in table {
        let (is, problem) = import(&api, "", &format!("{good}{line}\n{good}"));
        assert_eq!((is, &problem["field"]), (status, &json!(field)), "{line}: {problem}");
        assert_eq!(digests(&api), before, "{line}");
    }
    let whole = export(&api);
    let cut = &whole[..whole.trim_end().rfind('\n').unwrap() + 1];
    let (status, problem) = import(&api, "", cut);
    assert_eq!((status, &problem["field"]), (400, &json!("end")), "{problem}");
    // What a client without its file sends must not remove everything.
    assert_eq!(import(&api, "?prune=origin:api", "").0, 400);
    assert_eq!(import(&api.with("If-Match", "*"), "", good).0, 400);
    assert_eq!(api.call("PUT", "zones/other/import", None).status, 404);
    assert_eq!(digests(&api), before);
}
