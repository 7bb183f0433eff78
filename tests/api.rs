//! The API's resources: upstreams and servers, read and written, listed by page, and what every
//! answer carries.

mod support;

use support::*;

fn start() -> Nginx {
    let conf = Nginx::builder().http(
        "peerage_zone main 1m;
         upstream app { peerage main; server 10.9.9.1:8080 weight=3; server 10.9.9.2:8080 backup; }",
    );
    conf.with_api("write=on").start()
}

fn revision(reply: &Reply) -> u64 {
    reply.header("peerage-revision").and_then(|text| text.parse().ok()).expect("a revision")
}

#[test]
fn an_upstream_is_created_replaced_patched_and_deleted() {
    let nginx = start();
    let api = nginx.api();
    let body = json!({"defaults": {"weight": 5, "fail_timeout": "30s"}, "servers": [
        {"server": "10.9.1.1:80"},
        {"server": "[::1]:8080", "weight": 2, "labels": {"rack": "a"}},
        {"server": "unix:/run/a.sock", "backup": true, "max_conns": 7, "route": "r1"},
    ]});
    let reply = api.call("PUT", "upstreams/New-1", Some(&body));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let answer = reply.json();
    assert_eq!((&answer["changed"], &answer["upstream"]), (&json!(true), &json!("new-1")));
    assert_eq!(answer["revision"], revision(&reply));

    let shown = api.upstream("NEW-1");
    assert_eq!(shown["name"], "new-1");
    assert_eq!((&shown["zone"], &shown["origin"]), (&json!("main"), &json!("api")));
    assert_eq!(shown["method"], "round_robin");
    assert_eq!(shown["defaults"]["fail_timeout"], "30s");
    let servers = shown["servers"].as_array().unwrap();
    let addresses: Vec<&Value> = servers.iter().map(|s| &s["server"]).collect();
    assert_eq!(addresses, ["10.9.1.1:80", "[::1]:8080", "unix:/run/a.sock"]);
    let weights: Vec<&Value> = servers.iter().map(|s| &s["weight"]).collect();
    assert_eq!(weights, [5, 2, 5]);
    assert_eq!(servers[1]["labels"], json!({"rack": "a"}));
    assert_eq!((&servers[2]["max_conns"], &servers[2]["route"]), (&json!(7), &json!("r1")));
    assert_eq!(servers[2]["why"]["code"], "backup_idle");

    let again = api.call("PUT", "upstreams/new-1", Some(&body));
    assert_eq!((again.status, &again.json()["changed"]), (200, &json!(false)));
    assert_eq!(revision(&again), revision(&reply));
    let fed = api.call("PUT", "upstreams/new-1", Some(&shown));
    assert_eq!((fed.status, &fed.json()["changed"]), (200, &json!(false)), "its own listing");

    let patch = json!({"defaults": {"weight": 9}});
    let patched = api.call("PATCH", "upstreams/new-1", Some(&patch));
    assert_eq!((patched.status, revision(&patched)), (200, revision(&reply) + 1));
    let after = api.upstream("new-1");
    assert_eq!(after["servers"][0]["weight"], 9);
    assert_eq!(after["servers"][0]["id"], servers[0]["id"]);
    assert_eq!(after["servers"][1]["weight"], 2);
    assert_eq!(after["defaults"]["fail_timeout"], "30s", "a merge patch leaves the rest");
    api.ok("PATCH", "upstreams/new-1", Some(&json!({"defaults": null})));
    assert_eq!(api.upstream("new-1")["defaults"]["fail_timeout"], "10s");

    let gone = api.call("DELETE", "upstreams/new-1", None);
    assert_eq!((gone.status, &gone.json()["changed"]), (200, &json!(true)));
    assert_eq!(api.get("upstreams/new-1").0, 404);
    assert_eq!(api.delete("upstreams/new-1").0, 404);
    let (status, problem) = api.delete("upstreams/app");
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:named-by-block")));
    assert_eq!(api.delete("upstreams/app?force=0").0, 409);
    assert_eq!(api.delete("upstreams/app?force=1").0, 200);
    assert_eq!(api.get("upstreams/app").0, 404);
}

#[test]
fn a_server_has_the_same_four_verbs_by_address_and_by_id() {
    let nginx = start();
    let api = nginx.api();
    let plain = "upstreams/app/servers";
    let (status, answer) = api.put(&format!("{plain}/10.9.9.3"), &json!({"weight": 4}));
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["server"]["server"], "10.9.9.3:80");
    let id = answer["server"]["id"].as_u64().unwrap();
    assert_eq!(api.server("app", format!("id:{id}")), api.server("app", "10.9.9.3:80"));

    let (status, answer) = api.put(&format!("{plain}/id:{id}"), &json!({"weight": 4}));
    assert_eq!((status, &answer["changed"]), (200, &json!(false)));
    let (status, answer) = api.patch(&format!("{plain}/id:{id}"), &json!({"max_fails": 3}));
    assert_eq!((status, &answer["server"]["max_fails"]), (200, &json!(3)));
    assert_eq!(answer["server"]["weight"], 4);
    let (_, answer) = api.put(&format!("{plain}/10.9.9.3:80"), &json!({}));
    assert_eq!(
        (&answer["server"]["max_fails"], &answer["server"]["weight"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(answer["server"]["id"], id);

    assert_eq!(api.delete(&format!("{plain}/id:{id}")).0, 200);
    assert_eq!(api.delete(&format!("{plain}/id:{id}")).0, 404);
    assert_eq!(api.get(&format!("{plain}/10.9.9.3:80")).0, 404);
    let (_, answer) = api.put(&format!("{plain}/10.9.9.3"), &json!({}));
    assert!(answer["server"]["id"].as_u64().unwrap() > id, "ids are never used twice");
    assert_eq!(
        api.put(&format!("{plain}/id:4711"), &json!({})).0,
        404,
        "an id names what is there"
    );
}

#[test]
fn v6_and_unix_servers_are_reached_by_their_encoded_address() {
    let nginx = start();
    let api = nginx.api();
    for (path, text) in [
        ("[::1]:8080", "[::1]:8080"),
        ("%5B0:0:0::2%5D:8080", "[::2]:8080"),
        ("[2001:DB8::1]", "[2001:db8::1]:80"),
        ("unix:%2Frun%2Fa.sock", "unix:/run/a.sock"),
        ("unix:%2frun%2fwith%20space%25.sock", "unix:/run/with space%.sock"),
        ("10%2E9.9.7:80", "10.9.9.7:80"),
    ] {
        let path = format!("upstreams/app/servers/{path}");
        let (status, answer) = api.put(&path, &json!({}));
        assert_eq!((status, &answer["server"]["server"]), (201, &json!(text)), "{answer}");
        assert_eq!(api.post(&format!("{path}/down?reason=x")).0, 200);
        let (status, shown) = api.get(&path);
        assert_eq!(
            (status, &shown["state"], &shown["server"]),
            (200, &json!("down"), &json!(text))
        );
        assert_eq!(api.patch(&path, &json!({"weight": 2})).1["server"]["weight"], 2);
        assert_eq!(api.delete(&path).0, 200);
        assert_eq!(api.get(&path).0, 404);
    }
}

#[test]
fn every_write_tells_revision_and_change_and_setting_what_is_so_changes_nothing() {
    let nginx = start();
    let api = nginx.api();
    let server = "upstreams/app/servers/10.9.9.1:8080";
    let mut last = revision(&api.call("GET", "upstreams/app", None));
    let up = json!({"servers": [{"server": "10.9.9.1:8080"}]});
    let steps: [(&str, String, Option<Value>, bool); 14] = [
        ("POST", format!("{server}/up"), None, false),
        ("POST", format!("{server}/down?reason=a"), None, true),
        ("POST", format!("{server}/down?reason=a"), None, false),
        ("POST", format!("{server}/down?reason=b"), None, true),
        ("POST", format!("{server}/down?reason=b&ttl=1h"), None, true),
        ("POST", format!("{server}/drain"), Some(json!({"reason": "b"})), true),
        ("PATCH", server.into(), Some(json!({"weight": 3})), false),
        ("PATCH", server.into(), Some(json!({"weight": 0})), true),
        ("PATCH", server.into(), Some(json!({})), false),
        ("PUT", "upstreams/other".into(), Some(up.clone()), true),
        ("PUT", "upstreams/other".into(), Some(up), false),
        ("PATCH", "upstreams/other".into(), Some(json!({"method": "round_robin"})), false),
        ("DELETE", "upstreams/other/servers/10.9.9.1:8080".into(), None, true),
        ("DELETE", "upstreams/other".into(), None, true),
    ];
    for (method, path, body, changes) in steps {
        let reply = api.call(method, &path, body.as_ref());
        assert!(reply.status < 300, "{method} {path}: {}", reply.text());
        let answer = reply.json();
        assert_eq!(answer["changed"], changes, "{method} {path}: {answer}");
        let now = revision(&reply);
        assert_eq!(answer["revision"], now);
        assert_eq!(now, last + u64::from(changes), "{method} {path}");
        last = now;
    }
    assert_eq!(nginx.error_log().matches(", upstream \"").count(), 8, "one line a change");
}

#[test]
fn etag_is_the_digest_of_content_and_not_of_ids_or_times() {
    let (one, two) = (start(), start());
    let body =
        json!({"servers": [{"server": "10.9.1.1:80"}, {"server": "10.9.1.2:80", "weight": 2}]});
    // The second box comes to the same content by another way.
    one.api().ok("PUT", "upstreams/u", Some(&body));
    two.api().ok("PUT", "upstreams/x", Some(&body));
    two.api().ok("PUT", "upstreams/u", Some(&json!({"servers": []})));
    two.api().ok("PUT", "upstreams/u/servers/10.9.1.2:80", Some(&json!({"weight": 2})));
    two.api().ok("PUT", "upstreams/u/servers/10.9.1.1:80", Some(&json!({})));
    let (a, b) =
        (one.api().call("GET", "upstreams/u", None), two.api().call("GET", "upstreams/u", None));
    let etag = a.header("etag").expect("an ETag").to_string();
    assert_eq!(etag, format!("\"{}\"", a.json()["digest"].as_str().unwrap()));
    assert_eq!(b.header("etag"), Some(etag.as_str()));
    assert_ne!(a.json()["servers"][0]["id"], b.json()["servers"][0]["id"]);

    let same = one.api().with("If-None-Match", &etag).call("GET", "upstreams/u", None);
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(one.api().verb("u", "10.9.1.1:80", "down").0, 200);
    let moved = one.api().with("If-None-Match", &etag).call("GET", "upstreams/u", None);
    assert_eq!(moved.status, 200, "what is wanted is content");
    assert_ne!(moved.header("etag"), Some(etag.as_str()));
    assert_eq!(one.api().verb("u", "10.9.1.1:80", "up").0, 200);
    assert_eq!(one.api().call("GET", "upstreams/u", None).header("etag"), Some(etag.as_str()));
}

#[test]
fn upstreams_are_listed_by_page_in_the_order_of_their_names() {
    let nginx = start();
    let api = nginx.api();
    let body = json!({"servers": [{"server": "10.9.1.1:80"}]});
    let mut names: Vec<String> = (0..250).map(|i| format!("u{}", i * 7919 % 1000)).collect();
    for name in &names {
        api.ok("PUT", &format!("upstreams/{name}"), Some(&body));
    }
    names.push("app".into());
    names.sort();
    let page = |query: &str| -> Vec<String> {
        let listed = api.ok("GET", &format!("upstreams{query}"), None);
        // Our JSON's map is sorted; the text tells the order.
        listed.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(page(""), names[..100]);
    assert_eq!(page("?limit=1000"), names);
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let more = page(&format!("?limit=17{after}"));
        let Some(last) = more.last() else { break };
        after = format!("&after={}", last.to_uppercase());
        all.extend(more);
    }
    assert_eq!(all, names);
    assert_eq!(page("?after=u0~"), names[names.partition_point(|n| n.as_str() <= "u0~")..][..100]);
    assert_eq!(page("?after=zzz"), [""; 0]);

    let text = api.call("GET", "upstreams?limit=50", None).text();
    let places: Vec<usize> =
        names[..50].iter().map(|n| text.find(&format!("\"{n}\":{{")).unwrap()).collect();
    assert!(places.is_sorted(), "in name order in the text too");
    assert!(!text.contains("\"servers\""));
    let one = api.ok("GET", "upstreams?limit=1&fields=servers", None);
    assert_eq!(one["app"], api.upstream("app"));
    for bad in ["limit=0", "limit=1001", "limit=x", "fields=all", "after=a%2Fb", "page=2"] {
        assert_eq!(api.get(&format!("upstreams?{bad}")).0, 400, "{bad}");
    }
}

#[test]
fn head_slashes_and_media_types_are_those_of_the_contract() {
    let nginx = start();
    let addr = nginx.addr("api");
    let mut conn = Conn::open(addr).unwrap();
    for path in
        ["upstreams/app", "upstreams/app/servers/10.9.9.1:8080", "upstreams", "zones/main", ""]
    {
        let reply = conn.send(&Request::get(&format!("/api/v1/{path}"))).unwrap();
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        conn.begin(&Request::new("HEAD", &format!("/api/v1/{path}"))).unwrap();
        let head = conn.head().unwrap();
        assert_eq!(head.status, 200);
        for name in ["etag", "peerage-revision", "content-type", "content-length"] {
            assert_eq!(head.header(name), reply.header(name), "{path}: {name}");
        }
        for other in [
            format!("//api/v1/{path}/"),
            format!("/api//v1///{path}//"),
            format!("/api/./v1/x/../{path}"),
        ] {
            let again = conn.send(&Request::get(&other)).unwrap();
            let same = again.status == 200 && again.text() == reply.text();
            // What has dots, or a slash too many before the location's name, may be refused.
            assert!(same || again.status == 400, "{other}: {} {}", again.status, again.text());
            assert!(same || !other.starts_with("/api//"), "{other}: {}", again.text());
        }
    }
    for path in ["/api/v", "/api/v2/upstreams", "/apix/v1/upstreams", "/api/v1/hosts"] {
        let reply = conn.send(&Request::get(path)).unwrap();
        assert_eq!(
            (reply.status, &reply.json()["type"]),
            (404, &json!("urn:peerage:path-not-found")),
            "{path}"
        );
    }
    let root = nginx.api().ok("GET", "", None);
    assert_eq!(root["zones"][0]["name"], "main");
    assert_eq!(root["build"], root["build_on_disk"]);
    assert!(root["nginx"].as_str().unwrap().starts_with("1."));
}

#[test]
fn a_path_that_was_rewritten_on_its_way_is_refused() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m;
             upstream app { peerage main; server 10.9.9.1:8080; }
             upstream other { peerage main; server 10.9.9.1:8080; }
             server {
                 listen {api};
                 rewrite ^(/api/v1/upstreams/)app(.*)$ $1other$2;
                 rewrite ^/old/(.*)$ /api/$1;
                 location /api { peerage_api write=on; }
             }",
        )
        .start();
    for (method, path) in [
        ("GET", "/api/v1/upstreams/app"),
        ("POST", "/api/v1/upstreams/app/servers/10.9.9.1:8080/down"),
        ("DELETE", "/old/v1/upstreams/other"),
    ] {
        let reply = Request::new(method, path).send(nginx.addr("api")).unwrap();
        assert_eq!(
            (reply.status, &reply.json()["type"]),
            (400, &json!("urn:peerage:bad-path")),
            "{path}"
        );
    }
    let other = nginx.api().upstream("other");
    assert_eq!(other["servers"][0]["state"], "up");
}
