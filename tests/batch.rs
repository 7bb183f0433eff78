//! Batches: any number of changes, done together or not at all, and what a write would change.
//! (CASES 9, CONTRACT 4.)

mod support;

use std::collections::{BTreeMap, HashSet};

use support::*;

fn start(workers: usize) -> Nginx {
    let conf = Nginx::builder().workers(workers).http(
        "peerage_zone main 4m;
         upstream app { peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }
         server { listen {ops}; location /api { peerage_api write=operate; } }",
    );
    conf.port("ops").with_api("write=on").start()
}

fn batch(api: &Api, changes: Value) -> (u16, Value) {
    api.post_json("batch", &json!({"changes": changes}))
}

/// All that the zone has, without counters.
fn content(api: &Api) -> Value {
    api.ok("GET", "upstreams?limit=1000&fields=servers", None)
}

fn revision(api: &Api) -> u64 {
    api.ok("GET", "zones/main", None)["revision"].as_u64().unwrap()
}

#[test]
fn a_batch_is_one_revision_and_tells_what_each_change_did() {
    let nginx = start(1);
    let api = nginx.api();
    let before = revision(&api);
    let changes = json!([
        {"op": "put", "upstream": "b", "body": {"servers": [{"server": "10.9.1.1:80"}]}},
        {"op": "put", "upstream": "b", "server": "10.9.1.2:80", "body": {"weight": 4}},
        {"op": "down", "upstream": "app", "server": "10.9.9.1:8080", "ttl": "15m", "reason": "x"},
        {"op": "up", "upstream": "app", "server": "10.9.9.2:8080"},
        {"op": "patch", "upstream": "app", "server": "10.9.9.2:8080", "body": {"weight": 7}},
        {"op": "drain", "host": "10.9.1.2"},
        {"op": "delete", "upstream": "b", "server": "10.9.1.1:80"},
        {"op": "patch", "upstream": "b", "body": {"defaults": {"max_fails": 5}}},
    ]);
    let reply = api.call("POST", "batch", Some(&json!({"changes": changes})));
    let answer = reply.json();
    assert_eq!((reply.status, &answer["changed"]), (200, &json!(true)), "{answer}");
    assert_eq!(answer["revision"], before + 1);
    assert_eq!(reply.header("peerage-revision"), Some((before + 1).to_string().as_str()));
    let told = |name: &str| -> Vec<bool> {
        let results = answer["results"].as_array().unwrap();
        results.iter().map(|result| result[name].as_bool().unwrap()).collect()
    };
    assert_eq!(told("changed"), [true, true, true, false, true, true, true, true]);
    assert_eq!(told("created"), [true, true, false, false, false, false, false, false]);
    assert_eq!(revision(&api), before + 1);
    assert_eq!(api.server("app", "10.9.9.1:8080")["admin"]["reason"], "x");
    assert_eq!(api.server("app", "10.9.9.2:8080")["weight"], 7);
    let b = api.upstream("b");
    assert_eq!(b["servers"].as_array().unwrap().len(), 1);
    let (state, max_fails) = (&b["servers"][0]["state"], &b["servers"][0]["max_fails"]);
    assert_eq!((state, max_fails), (&json!("draining"), &json!(5)));
    for name in ["app", "b"] {
        assert_eq!(api.upstream(name)["revision"], before + 1, "{name}");
    }
    let (status, same) = batch(&api, json!([{"op": "drain", "host": "10.9.1.2", "min_up": 0}]));
    assert_eq!(
        (status, &same["changed"], &same["revision"]),
        (200, &json!(false), &answer["revision"])
    );
    let (status, none) = batch(&api, json!([]));
    assert_eq!((status, &none["results"]), (200, &json!([])));
}

#[test]
fn one_change_that_cannot_be_done_leaves_everything_as_it_was() {
    let nginx = start(1);
    let api = nginx.api();
    let (before, at) = (content(&api), revision(&api));
    let good = json!({"op": "down", "upstream": "app", "server": "10.9.9.1:8080"});
    let new = json!({"op": "put", "upstream": "new", "body": {"servers": []}});
    let bad = [
        (json!({"op": "kick"}), 400, "changes[2].op"),
        (
            json!({"op": "put", "upstream": "x", "body": {"weight": 1}}),
            400,
            "changes[2].body.weight",
        ),
        (
            json!({"op": "patch", "upstream": "app", "server": "10.9.9.2:8080", "body": {"weight": -1}}),
            400,
            "changes[2].body.weight",
        ),
        (json!({"op": "down", "upstream": "app", "server": "10.9.9.9:1"}), 404, "changes[2]"),
        (json!({"op": "delete", "upstream": "app"}), 409, "changes[2]"),
        (json!({"op": "delete", "upstream": "nope"}), 404, "changes[2]"),
        (
            json!({"op": "down", "upstream": "app", "server": "10.9.9.2:8080", "min_up": 1}),
            409,
            "changes[2]",
        ),
        (json!({"op": "down", "host": "10.9.9.2"}), 409, "changes[2]"),
        (json!({"op": "down", "host": "10.9.9.7"}), 404, "changes[2]"),
        (
            json!({"op": "up", "upstream": "app", "server": "10.9.9.2:8080", "wait": "5s"}),
            400,
            "changes[2].wait",
        ),
        (
            json!({"op": "put", "upstream": "y", "server": "a.test:80", "body": {}}),
            404,
            "changes[2]",
        ),
    ];
    for (change, status, field) in bad {
        let (is, problem) =
            batch(&api, json!([good, new, change, {"op": "up", "host": "10.9.9.1"}]));
        assert_eq!((is, &problem["field"]), (status, &json!(field)), "{change}: {problem}");
        assert_eq!((content(&api), revision(&api)), (before.clone(), at), "{change}");
    }
    let far = [
        json!([]),
        json!({"changes": {}}),
        json!({"changes": [], "x": 1}),
        json!({"if_revision": "1", "changes": []}),
        json!({"if_revision": -1, "changes": []}),
    ];
    for body in far {
        assert_eq!(api.post_json("batch", &body).0, 400, "{body}");
    }
    let tagged = api.with("If-Match", "*");
    assert_eq!(batch(&tagged, json!([good])).0, 400, "a precondition is never ignored");
    assert_eq!(content(&api), before);
}

#[test]
fn if_revision_is_of_the_upstreams_that_a_batch_touches() {
    let nginx = start(1);
    let api = nginx.api();
    for name in ["a", "b"] {
        let body = json!({"servers": [{"server": "10.9.1.1:80"}, {"server": "10.9.1.2:80"}]});
        api.ok("PUT", &format!("upstreams/{name}"), Some(&body));
    }
    let at = revision(&api);
    assert_eq!(api.verb("a", "10.9.1.1:80", "down").0, 200);
    let of = |name: &str| {
        let op = json!({"op": "drain", "upstream": name, "server": "10.9.1.2:80"});
        api.post_json("batch", &json!({"if_revision": at, "changes": [op]}))
    };
    let (status, problem) = of("a");
    assert_eq!((status, &problem["type"]), (412, &json!("urn:peerage:stale")), "{problem}");
    assert_eq!((&problem["upstream"], &problem["revision"]), (&json!("a"), &json!(at + 1)));
    assert_eq!(api.server("a", "10.9.1.2:80")["state"], "up");
    assert_eq!(of("b").0, 200, "nobody touched it");
    let host = json!({"if_revision": at + 1, "changes": [{"op": "down", "host": "10.9.1.1", "min_up": 0}]});
    assert_eq!(api.post_json("batch", &host).0, 412, "a host touches what is on it");
}

#[test]
fn ten_thousand_changes_and_eight_megabytes_are_the_limit() {
    let nginx = start(1);
    let api = nginx.api();
    let put = |i: usize| json!({"op": "put", "upstream": format!("u{}", i % 500), "body": {"servers": [{"server": format!("10.9.{}.{}:80", i / 250 % 250, i % 250)}]}});
    let before = revision(&api);
    let (status, answer) = batch(&api, (0..10_000).map(put).collect());
    assert_eq!((status, &answer["revision"]), (200, &json!(before + 1)));
    assert_eq!(answer["results"].as_array().unwrap().len(), 10_000);
    let (status, problem) = batch(&api, (0..10_001).map(put).collect());
    assert_eq!((status, &problem["field"]), (400, &json!("changes")));
    let long = format!("{{\"changes\":[]{}}}", " ".repeat(8 << 20));
    let request = api.request("POST", "batch", None).body(long.into_bytes());
    assert_eq!(request.send(api.addr()).unwrap().status, 413);
    assert_eq!(revision(&api), before + 1);
}

#[test]
fn operate_covers_batches_of_what_it_covers() {
    let nginx = start(1);
    let (api, ops) = (nginx.api(), Api::new(nginx.addr("ops"), "/api/v1"));
    let changes = json!([
        {"op": "down", "upstream": "app", "server": "10.9.9.1:8080"},
        {"op": "patch", "upstream": "app", "server": "10.9.9.2:8080", "body": {"weight": 3}},
        {"op": "up", "host": "10.9.9.1"},
    ]);
    assert_eq!(batch(&ops, changes).0, 200);
    let (before, weight) = (content(&api), json!({"weight": 9}));
    for change in [
        json!({"op": "put", "upstream": "app", "server": "10.9.9.1:8080", "body": weight}),
        json!({"op": "delete", "upstream": "app", "server": "10.9.9.1:8080"}),
        json!({"op": "patch", "upstream": "app", "body": {"defaults": weight}}),
        json!({"op": "patch", "upstream": "app", "server": "10.9.9.1:8080", "body": {"backup": true}}),
    ] {
        let (status, problem) = batch(&ops, json!([{"op": "up", "host": "10.9.9.1"}, change]));
        assert_eq!((status, &problem["field"]), (403, &json!("changes[1]")), "{problem}");
    }
    assert_eq!(content(&api), before);
}

#[test]
fn a_dry_run_tells_the_diff_and_changes_nothing() {
    let nginx = start(1);
    let api = nginx.api();
    let server = "upstreams/app/servers/10.9.9.1:8080";
    let path = |rest: &str| format!("{server}{rest}");
    let (before, at) = (content(&api), revision(&api));
    let set = json!({"servers": [{"server": "10.9.9.1:8080"}]});
    let weight = json!({"weight": 5});
    let gone = json!({"path": "upstreams/app/servers/10.9.9.2:8080", "from": {"server": "10.9.9.2:8080"}, "to": null});
    let five = json!({"path": path("/weight"), "from": 1, "to": 5});
    let change =
        json!([{"op": "patch", "upstream": "app", "server": "10.9.9.1:8080", "body": weight}]);
    let writes: [(&str, String, Option<Value>, Value); 9] = [
        ("PUT", "upstreams/app".into(), Some(set), json!([gone])),
        ("PATCH", path(""), Some(weight.clone()), json!([five])),
        ("PUT", path(""), Some(weight.clone()), json!([five])),
        ("PATCH", path(""), Some(json!({"weight": 1})), json!([])),
        ("DELETE", "upstreams/app/servers/10.9.9.2:8080".into(), None, json!([gone])),
        (
            "POST",
            path("/down"),
            Some(json!({"reason": "x"})),
            json!([
                {"path": path("/admin/state"), "from": "up", "to": "down"},
                {"path": path("/admin/reason"), "from": "", "to": "x"},
            ]),
        ),
        (
            "PATCH",
            "upstreams/app".into(),
            Some(json!({"defaults": {"fail_timeout": "3s"}})),
            json!([
                {"path": "upstreams/app/defaults/fail_timeout", "from": "10s", "to": "3s"},
                {"path": path("/fail_timeout"), "from": "10s", "to": "3s"},
                {"path": "upstreams/app/servers/10.9.9.2:8080/fail_timeout", "from": "10s", "to": "3s"},
            ]),
        ),
        ("POST", "batch".into(), Some(json!({"changes": change})), json!([five])),
        ("POST", "hosts/10.9.9.1/up".into(), None, json!([])),
    ];
    for (method, path, body, diff) in &writes {
        let (status, answer) = {
            let reply = api.call(method, &format!("{path}?dry_run=1"), body.as_ref());
            (reply.status, reply.json())
        };
        assert_eq!((status, &answer["diff"]), (200, diff), "{method} {path}: {answer}");
        assert_eq!(answer["dry_run"], true);
        assert_eq!(answer["changed"], *diff != json!([]), "{method} {path}");
        assert_eq!(answer["revision"], at);
        assert_eq!((content(&api), revision(&api)), (before.clone(), at), "{method} {path}");
    }
    let created = api.call("PUT", "upstreams/new?dry_run=1", Some(&json!({"servers": []}))).json();
    assert_eq!(
        (&created["diff"][0]["path"], &created["diff"][0]["from"]),
        (&json!("upstreams/new"), &Value::Null)
    );
    assert_eq!(api.get("upstreams/new").0, 404);
    assert_eq!(api.call("DELETE", "upstreams/app?dry_run=1", None).status, 409);
    let stale = api.with("If-Match", "\"x\"").call("PATCH", &path("?dry_run=1"), Some(&weight));
    assert_eq!(stale.status, 412);
    assert_eq!(api.get("upstreams/app?dry_run=1").0, 400);
    assert_eq!(nginx.error_log().matches(", upstream \"").count(), 0, "nothing is said to change");
}

/// A client's accepted batch: its revision, what it asked for, the upstreams and its value.
type Accepted = (u64, Option<u64>, Vec<String>, u64);

/// Batches of 16 clients over the same upstreams, half of them with `if_revision`. Every batch
/// sets two or three upstreams to a weight of its own.
#[test]
fn the_final_content_is_that_of_some_order_of_the_accepted_batches() {
    let nginx = start(4);
    let api = nginx.api();
    let names = ["a", "b", "c", "d"];
    for name in names {
        let body = json!({"servers": [{"server": "10.9.1.1:80"}]});
        api.ok("PUT", &format!("upstreams/{name}"), Some(&body));
    }
    let rounds = scale(25, 400);
    let clients: Vec<_> = (0..16u64)
        .map(|client| {
            let api = api.clone();
            std::thread::spawn(move || -> (Vec<Accepted>, u64) {
                let (mut accepted, mut stale) = (Vec::new(), 0);
                for round in 0..rounds {
                    let value = 2 + client * rounds + round;
                    let first = (client + round) as usize;
                    let count = 2 + (round % 2) as usize;
                    let touched: Vec<String> =
                        (0..count).map(|i| names[(first + i) % 4].to_owned()).collect();
                    let ops: Vec<Value> = touched
                        .iter()
                        .map(|name| json!({"op": "patch", "upstream": name, "server": "10.9.1.1:80", "body": {"weight": value}}))
                        .collect();
                    let mut body = json!({"changes": ops});
                    let asked = (client % 2 == 0).then(|| revision(&api));
                    if let Some(asked) = asked {
                        body["if_revision"] = asked.into();
                    }
                    let (status, answer) = api.post_json("batch", &body);
                    match status {
                        200 => {
                            let revision = answer["revision"].as_u64().unwrap();
                            assert_eq!(answer["changed"], true);
                            accepted.push((revision, asked, touched, value));
                        }
                        412 if asked.is_some() => stale += 1,
                        503 => {}
                        _ => panic!("{status} {answer}"),
                    }
                }
                (accepted, stale)
            })
        })
        .collect();
    let mut accepted: Vec<Accepted> = Vec::new();
    let mut stale = 0;
    for client in clients {
        let (some, late) = client.join().unwrap();
        accepted.extend(some);
        stale += late;
    }
    accepted.sort_unstable();
    let revisions: HashSet<u64> = accepted.iter().map(|one| one.0).collect();
    assert_eq!(revisions.len(), accepted.len(), "each has a revision of its own");
    let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (revision, asked, touched, value) in &accepted {
        for name in touched {
            let before = last.insert(name, (*revision, *value));
            let fresh = asked.is_none_or(|asked| before.is_none_or(|(at, _)| at <= asked));
            assert!(fresh, "{name}: {revision} asked for {asked:?}, changed at {before:?}");
        }
    }
    for (name, (revision, value)) in last {
        let shown = api.upstream(name);
        assert_eq!(shown["servers"][0]["weight"], value, "{name}");
        assert_eq!(shown["revision"], revision, "{name}");
    }
    assert!(stale > 0 && accepted.len() > 100, "{stale} stale, {} accepted", accepted.len());
}
