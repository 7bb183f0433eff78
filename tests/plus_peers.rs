//! Peers as clients of NGINX Plus see them: what was counted, names, many, and reset.

mod support;

use std::sync::Arc;

use support::*;

fn plus(nginx: &Nginx) -> Api {
    Api::new(nginx.addr("api"), "/api/9")
}

/// Every number of an answer is whole and not below zero.
fn whole_numbers(value: &Value) {
    match value {
        Value::Number(number) => assert!(number.is_u64(), "{number}"),
        Value::Array(items) => items.iter().for_each(whole_numbers),
        Value::Object(entries) => entries.values().for_each(whole_numbers),
        _ => {}
    }
}

/// CASE 31: one address in two upstreams, and a thousand peers.
#[test]
fn numbers_are_whole_for_one_address_in_two_upstreams_and_a_thousand_peers() {
    let backend = Backend::new("b1");
    let nginx = Nginx::builder()
        .workers(2)
        .http(
            "peerage_zone main 4m;
               upstream a { peerage main; server {b1}; }
               upstream b { peerage main; server {b1} max_conns=5; }
               server { listen {web}; location /a/ { proxy_pass http://a; }
                   location /b/ { proxy_pass http://b; } }",
        )
        .set("b1", &backend)
        .with_api("write=on")
        .start();
    hit(nginx.web(), "/a/x", 3).all_ok();
    hit(nginx.web(), "/b/status/503", 2);
    hit(nginx.web(), "/b/x", 5).all_ok();
    let api = plus(&nginx);
    let all = eventually(secs(5), || {
        let all = api.ok("GET", "http/upstreams", None);
        let total = |name: &str| all[name]["peers"][0]["responses"]["total"].as_u64().unwrap();
        (total("a") == 3 && total("b") == 7).then_some(all)
    });
    let (a, b) = (&all["a"]["peers"][0], &all["b"]["peers"][0]);
    assert_eq!(a["server"], b["server"]);
    assert_ne!(a["id"], b["id"]);
    assert_eq!((&a["requests"], &b["requests"]), (&json!(3), &json!(7)));
    assert_eq!(b["responses"]["5xx"], 2);
    assert_eq!(b["responses"]["codes"], json!({"200": 5, "503": 2}));
    assert_eq!((a.get("max_conns"), &b["max_conns"]), (None, &json!(5)));
    assert_eq!(a["selected"].as_str().unwrap().len(), "2026-11-29T21:05:07.123Z".len());
    for peer in [a, b] {
        assert!(peer["sent"].as_u64().unwrap() > 0 && peer["received"].as_u64().unwrap() > 0);
        assert_eq!((&peer["active"], &peer["state"]), (&json!(0), &json!("up")));
    }

    let servers: Vec<Value> = (0..1000)
        .map(|i| json!({"server": format!("10.9.{}.{}:80", i / 250, i % 250), "weight": 1 + i % 7}))
        .collect();
    nginx.api().ok("PUT", "upstreams/many", Some(&json!({"servers": servers})));
    let reply = api.call("GET", "http/upstreams", None);
    let all = reply.json();
    whole_numbers(&all);
    assert_eq!(all["many"]["peers"].as_array().unwrap().len(), 1000);
    assert_eq!(all["many"]["peers"][999]["server"], "10.9.3.249:80");
    assert_eq!(all.as_object().unwrap().len(), 3);
    assert_eq!(api.ok("GET", "http/upstreams/many", None), all["many"]);
    let listed = api.ok("GET", "http/upstreams/many/servers", None);
    assert_eq!(listed.as_array().unwrap().len(), 1000);
    assert_eq!(listed[7]["weight"], 1);
    for path in ["slabs", "connections", "http/requests", "workers", "nginx"] {
        whole_numbers(&api.ok("GET", path, None));
    }
}

#[test]
fn many_upstreams_are_listed_while_others_come_and_go() {
    let nginx =
        Nginx::builder().workers(2).http("peerage_zone main 16m;").with_api("write=on").start();
    let v1 = nginx.api();
    let n = scale(1000, 10_000);
    let put = |name: String, servers: usize| {
        let servers: Vec<Value> =
            (0..servers).map(|i| json!({"server": format!("10.9.9.{i}:80")})).collect();
        json!({"op": "put", "upstream": name, "body": {"servers": servers}})
    };
    for first in (0..n).step_by(500) {
        let ops: Vec<Value> = (first..first + 500).map(|i| put(format!("k{i}"), 2)).collect();
        v1.ok("POST", "batch", Some(&json!({"changes": ops})));
    }
    for round in 0..5 {
        let mut conn = Conn::open(nginx.addr("api")).unwrap();
        conn.begin(&Request::get("/api/9/http/upstreams")).unwrap();
        let ops: Vec<Value> = (0..50).map(|i| put(format!("other{i}"), round + 1)).collect();
        v1.ok("POST", "batch", Some(&json!({"changes": ops})));
        let all = conn.reply().unwrap().json();
        for i in 0..n {
            let peers = all[format!("k{i}")]["peers"].as_array().map(Vec::len);
            assert_eq!(peers, Some(2), "k{i} is listed once, and whole");
        }
    }
}

#[test]
fn a_name_has_a_peer_for_each_address() {
    let port = Arc::new(Port::reserve());
    let dns = Dns::new();
    let backends: Vec<Backend> =
        (2..4).map(|n: u8| Backend::beside(&n.to_string(), [127, 0, 0, n], &port)).collect();
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 2m; resolver {dns} ipv6=off; resolver_timeout 1s;
               upstream app { peerage main; peerage_server App.test:{port} resolve; }
               server { listen {web}; location / { proxy_pass http://app; } }",
        )
        .set("dns", &dns)
        .set("port", port.number())
        .with_api("write=on")
        .start();
    let api = plus(&nginx);
    let peers = || api.ok("GET", "http/upstreams/app", None)["peers"].clone();
    let name = format!("app.test:{}", port.number());
    let alone = peers();
    assert_eq!((alone.as_array().unwrap().len(), &alone[0]["state"]), (1, &json!("unavail")));
    assert_eq!(alone[0]["server"], json!(name));
    dns.set("app.test", &["127.0.0.2", "127.0.0.3"], 1);
    eventually(secs(10), || peers().as_array().unwrap().len() == 2);
    hit(nginx.web(), "/", 10).all_ok();
    let both = eventually(secs(5), || {
        let both = peers();
        let requests = |i: usize| both[i]["requests"].as_u64().unwrap();
        (requests(0) + requests(1) == 10).then_some(both)
    });
    let id = nginx.api().server("app", &name)["id"].clone();
    for (peer, backend) in both.as_array().unwrap().iter().zip(&backends) {
        assert_eq!(peer["server"], json!(format!("127.0.0.{}:{}", backend.name(), port.number())));
        assert_eq!(peer["name"], json!(format!("App.test:{}", port.number())));
        assert_eq!(peer["id"], id);
        assert_eq!(peer["requests"], backend.requests(), "each has its own figures");
    }
    assert_eq!(api.ok("GET", "http/upstreams/app/servers", None).as_array().unwrap().len(), 1);
    assert_eq!(nginx.api().post("hosts/127.0.0.3/down?min_up=0").0, 200);
    let states: Vec<Value> =
        peers().as_array().unwrap().iter().map(|peer| peer["state"].clone()).collect();
    assert_eq!(states, ["up", "down"]);
    let (status, server) =
        api.patch(&format!("http/upstreams/app/servers/{id}"), &json!({"down": true}));
    assert_eq!((status, &server["server"]), (200, &json!(name)));
    assert!(peers().as_array().unwrap().iter().all(|peer| peer["state"] == "down"));
}

/// An exporter refuses the whole scrape where two peers have one address.
#[test]
fn peers_behind_one_address_are_told_apart() {
    let dns = Dns::new();
    for name in ["a.test", "b.test"] {
        dns.set(name, &["127.0.0.2", "127.0.0.3"], 60);
    }
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 2m; resolver {dns} ipv6=off;
               upstream app { peerage main; server 127.0.0.2:8080;
                   peerage_server a.test:8080; peerage_server b.test:8080; }",
        )
        .set("dns", &dns)
        .with_api("")
        .start();
    let shown = || -> Vec<String> {
        let app = plus(&nginx).ok("GET", "http/upstreams/app", None);
        let peers = app["peers"].as_array().unwrap();
        peers.iter().map(|peer| peer["server"].as_str().unwrap().to_owned()).collect()
    };
    let wanted = [
        "127.0.0.2:8080",
        "127.0.0.2:8080 (a.test:8080)",
        "127.0.0.3:8080",
        "127.0.0.2:8080 (b.test:8080)",
        "127.0.0.3:8080 (b.test:8080)",
    ];
    eventually(secs(10), || shown() == wanted);
}

#[test]
fn a_reset_forgets_what_was_counted_and_nothing_else() {
    let (b1, b2) = (Backend::new("b1"), Backend::refusing("b2"));
    let nginx = Nginx::builder()
        .workers(2)
        .http(
            "peerage_zone main 1m;
               upstream app { peerage main; server {b1}; server {b2} max_fails=1 fail_timeout=1h; }
               upstream other { peerage main; server {b1}; }
               server { listen {web}; location / { proxy_pass http://app; }
                   location /other { proxy_pass http://other; } }",
        )
        .set("b1", &b1)
        .set("b2", &b2)
        .with_api("write=on")
        .start();
    let api = plus(&nginx);
    let peers = || api.ok("GET", "http/upstreams/app", None)["peers"].clone();
    hit(nginx.web(), "/x", 10).all_ok();
    hit(nginx.web(), "/other", 2).all_ok();
    eventually(secs(5), || peers()[0]["responses"]["codes"]["200"] == 10);
    assert_eq!((&peers()[1]["fails"], &peers()[1]["unavail"]), (&json!(1), &json!(1)));
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/hold")).unwrap();
    eventually(secs(5), || b1.held() == 1);
    eventually(secs(5), || peers()[0]["active"] == 1);
    let (revision, selected) =
        (nginx.api().get("zones/main").1["revision"].clone(), peers()[0]["selected"].clone());

    let reply = api.call("DELETE", "http/upstreams/app/", None);
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    let after = peers();
    let none = json!({"1xx":0,"2xx":0,"3xx":0,"4xx":0,"5xx":0,"codes":{},"total":0});
    for peer in after.as_array().unwrap() {
        for name in ["requests", "sent", "received", "fails", "unavail"] {
            assert_eq!(peer[name], 0, "{name}: {peer}");
        }
        assert_eq!(peer["responses"], none);
        assert!(peer.get("header_time").is_none() && peer.get("response_time").is_none());
    }
    assert_eq!((&after[0]["active"], &after[0]["selected"]), (&json!(1), &selected));
    assert_eq!(after[1]["state"], "unavail", "balancing goes on as it was");
    assert!(after[1].get("downstart").is_some());
    let other = api.ok("GET", "http/upstreams/other", None);
    assert_eq!(other["peers"][0]["requests"], 2, "of another upstream");
    assert_eq!(nginx.api().get("zones/main").1["revision"], revision, "no change of anything");

    b1.release();
    assert_eq!(held.reply().unwrap().status, 200);
    hit(nginx.web(), "/x", 4).all_ok();
    eventually(secs(5), || peers()[0]["responses"]["codes"] == json!({"200": 5}));
    assert_eq!((&peers()[0]["active"], &peers()[0]["requests"]), (&json!(0), &json!(5)));

    // While requests are counted, a step may be lost and no more.
    let load = Load::to(nginx.web()).path("/x").threads(2).keepalive().start();
    for _ in 0..scale(200, 5_000) {
        assert_eq!(api.delete("http/upstreams/app").0, 204);
        let peer = peers()[0].clone();
        whole_numbers(&peer);
        assert!(peer["requests"].as_u64().unwrap() < 100_000, "{peer}");
    }
    load.stop().all_ok();
    eventually(secs(5), || peers()[0]["active"] == 0);
    assert_eq!(api.delete("http/upstreams/app").0, 204);
    assert_eq!(peers()[0]["requests"], 0);
}
