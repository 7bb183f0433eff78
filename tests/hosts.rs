//! Hosts: an operator's will over a whole machine, over every upstream of a zone. (CONTRACT 4.)

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::*;

/// Upstreams are named by the request's `u`.
const KEYED: &str = "
    upstream services { peerage main name=$arg_u match=svc-*; }
    server { listen {web}; location / { proxy_pass http://services; } }";

fn start(state: &str) -> Nginx {
    let conf = Nginx::builder().workers(2).http(format!("peerage_zone main 4m {state}; {KEYED}"));
    conf.with_api("write=on").start()
}

fn app(api: &Api, name: &str, servers: &[&str]) {
    let servers: Vec<Value> = servers.iter().map(|s| json!({"server": s})).collect();
    api.ok("PUT", &format!("upstreams/{name}"), Some(&json!({"servers": servers})));
}

fn state(api: &Api, upstream: &str, server: &str) -> (String, Option<String>) {
    let shown = api.server(upstream, server);
    let code = shown["why"]["code"].as_str().map(str::to_owned);
    (shown["state"].as_str().unwrap().to_owned(), code)
}

#[test]
fn no_request_reaches_a_drained_host_though_a_script_adds_its_servers_again() {
    let (good, bad) = (Backend::new("good"), Backend::on("bad", [127, 0, 0, 2]));
    let nginx = start("");
    let api = nginx.api();
    let (good_addr, bad_addr) = (good.addr(), bad.addr());
    let names: Vec<String> = (0..40).map(|i| format!("svc-{i}")).collect();
    let mut load = Load::to(nginx.web()).threads(2);
    for name in &names {
        app(&api, name, &[&good_addr, &bad_addr]);
        load = load.path(&format!("/?u={name}"));
    }
    let load = load.start();
    let over = Arc::new(AtomicBool::new(false));
    let script = std::thread::spawn({
        let (api, over, names) = (api.clone(), Arc::clone(&over), names.clone());
        move || {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                let path = format!("upstreams/{}/servers/{bad_addr}", names[n % names.len()]);
                assert_eq!(api.delete(&path).0, 200);
                assert_eq!(api.put(&path, &json!({"weight": 1 + n % 3})).0, 201);
                n += 1;
            }
            n
        }
    });
    eventually(secs(10), || bad.requests() > 20);
    for round in 0..scale(3, 20) {
        let (status, answer) = api.post("hosts/127.0.0.2/drain?wait=20s&reason=disk");
        assert_eq!((status, &answer["drained"]), (200, &json!(true)), "{answer}");
        let (there, at) = (bad.requests(), load.total());
        holds_for(ms(700), || bad.requests() == there);
        eventually(secs(10), || load.total() > at + 40);
        assert_eq!((bad.requests(), bad.active()), (there, 0), "round {round}");
        assert_eq!(api.post("hosts/127.0.0.2/up").0, 200);
        eventually(secs(10), || bad.requests() > there + 5);
    }
    over.store(true, Ordering::Relaxed);
    assert!(script.join().unwrap() > 10, "the script went on");
    let report = load.stop();
    assert_eq!(report.failed(), 0, "{report:?}");
    assert_eq!(report.status(200), report.total, "{report:?}");
}

#[test]
fn servers_that_come_later_are_covered_and_up_ends_only_the_hosts_own() {
    let nginx = start("");
    let api = nginx.api();
    app(&api, "svc-a", &["10.9.0.1:80", "10.9.0.2:80"]);
    assert_eq!(api.post("hosts/10.9.0.1/down?reason=disk&by=x").0, 400);
    let (status, answer) = api.post("hosts/10.9.0.1/down?reason=disk");
    assert_eq!((status, &answer["changed"]), (200, &json!(true)), "{answer}");
    assert_eq!((&answer["host"], &answer["admin"]["state"]), (&json!("10.9.0.1"), &json!("down")));
    let (_, again) = api.post("hosts/10.9.0.1/down?reason=disk");
    assert_eq!((&again["changed"], &again["revision"]), (&json!(false), &answer["revision"]));

    let down = ("down".to_owned(), Some("host_down_by".to_owned()));
    assert_eq!(state(&api, "svc-a", "10.9.0.1:80"), down);
    app(&api, "svc-b", &["10.9.0.1:81", "10.9.0.2:81"]);
    api.ok("PUT", "upstreams/svc-a/servers/10.9.0.1:99", Some(&json!({})));
    assert_eq!(state(&api, "svc-b", "10.9.0.1:81"), down);
    assert_eq!(state(&api, "svc-a", "10.9.0.1:99"), down);
    let shown = api.server("svc-b", "10.9.0.1:81");
    assert_eq!(
        (&shown["host_admin"]["reason"], &shown["admin"]["state"]),
        (&json!("disk"), &json!("up"))
    );
    assert_eq!(shown["why"]["text"], "host taken down by 127.0.0.1: disk");
    assert_eq!(api.server("svc-b", "10.9.0.2:81")["host_admin"], Value::Null);
    let counts = &api.upstream("svc-b")["counts"];
    assert_eq!((&counts["down"], &counts["up"]), (&json!(1), &json!(1)));

    let (_, host) = api.get("hosts/10.9.0.1");
    assert_eq!(host["admin"]["reason"], "disk");
    let servers: Vec<(&str, &str)> = host["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["upstream"].as_str().unwrap(), s["server"].as_str().unwrap()))
        .collect();
    let all = [("svc-a", "10.9.0.1:80"), ("svc-a", "10.9.0.1:99"), ("svc-b", "10.9.0.1:81")];
    assert_eq!(servers, all);

    assert_eq!(api.verb("svc-a", "10.9.0.1:80", "down?reason=mine").0, 200);
    assert_eq!(api.verb("svc-b", "10.9.0.1:81", "up").0, 200, "lifts nothing of the host");
    assert_eq!(state(&api, "svc-b", "10.9.0.1:81"), down);
    assert_eq!(api.post("hosts/10.9.0.1/up").0, 200);
    let own = ("down".to_owned(), Some("down_by".to_owned()));
    assert_eq!(state(&api, "svc-a", "10.9.0.1:80"), own);
    assert_eq!(state(&api, "svc-b", "10.9.0.1:81"), ("up".to_owned(), None));
    assert_eq!(api.get("hosts/10.9.0.1").1["admin"]["state"], "up");
}

#[test]
fn a_host_is_not_taken_away_where_too_few_would_remain() {
    let nginx = start("");
    let api = nginx.api();
    app(&api, "svc-a", &["10.9.0.1:80", "10.9.0.2:80"]);
    app(&api, "svc-b", &["10.9.0.1:80"]);
    app(&api, "svc-c", &["10.9.0.1:80", "10.9.0.3:80"]);
    app(&api, "svc-d", &["10.9.0.2:80"]);
    assert_eq!(api.verb("svc-c", "10.9.0.3:80", "down").0, 200);
    let before = api.get("hosts/10.9.0.1");
    for path in ["down", "drain?wait=1s", "down?dry_run=1", "down?min_up=1"] {
        let (status, problem) = api.post(&format!("hosts/10.9.0.1/{path}"));
        assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:min-up")), "{path}");
        assert_eq!(problem["upstreams"], json!(["svc-b", "svc-c"]), "{path}");
    }
    assert_eq!(api.get("hosts/10.9.0.1"), before);
    assert_eq!(api.post("hosts/10.9.0.1/down?min_up=0").0, 200);
    assert_eq!(state(&api, "svc-b", "10.9.0.1:80").0, "down");
}

#[test]
fn a_host_without_servers_is_404_unless_missing_is_ok() {
    let nginx = start("");
    let api = nginx.api();
    for (method, path) in [("GET", ""), ("POST", "/down"), ("POST", "/drain"), ("POST", "/up")] {
        let reply = api.call(method, &format!("hosts/10.9.0.9{path}"), None);
        let kind = reply.json()["type"].clone();
        assert_eq!((reply.status, kind), (404, json!("urn:peerage:host-not-found")), "{path}");
    }
    assert_eq!(api.post("hosts/10.9.0.9/up?missing=ok").1["changed"], json!(false));
    assert_eq!(api.post_json("hosts/10.9.0.9/down", &json!({"missing": "ok"})).0, 200);
    assert_eq!(api.get("hosts/10.9.0.9").1["servers"], json!([]));
    app(&api, "svc-a", &["10.9.0.9:80", "10.9.0.8:80"]);
    assert_eq!(state(&api, "svc-a", "10.9.0.9:80").0, "down");
    // A v6 address in any form, with brackets or without, is the same host.
    app(&api, "svc-b", &["[2001:db8::1]:80", "10.9.0.8:80"]);
    assert_eq!(api.post("hosts/2001:DB8:0::1/down").0, 200);
    assert_eq!(api.get("hosts/[2001:db8::1]").1["admin"]["state"], "down");
    assert_eq!(state(&api, "svc-b", "[2001:db8::1]:80").0, "down");
    for bad in ["hosts/app/down", "hosts/10.9.0.1:80/down", "hosts/10.9.0.9/down?missing=no"] {
        assert_eq!(api.post(bad).0, 400, "{bad}");
    }
}

#[test]
fn a_ttl_ends_and_a_tool_does_not_undo_an_operator() {
    let nginx = start("");
    let api = nginx.api();
    app(&api, "svc-a", &["10.9.0.1:80", "10.9.0.2:80"]);
    assert_eq!(api.post("hosts/10.9.0.1/down?reason=disk").0, 200);
    let (status, problem) = api.post("hosts/10.9.0.1/up?if_reason=deploy");
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:if-reason")));
    assert_eq!(problem["reason"], "disk");
    assert_eq!(api.post("hosts/10.9.0.1/drain?if_reason=disk&ttl=1s").0, 200);
    assert_eq!(state(&api, "svc-a", "10.9.0.1:80").0, "draining");
    assert_ne!(api.get("hosts/10.9.0.1").1["admin"]["until"], Value::Null);
    eventually(secs(10), || state(&api, "svc-a", "10.9.0.1:80").0 == "up");
    assert_eq!(api.get("hosts/10.9.0.1").1["admin"]["state"], "up");
}

#[test]
fn what_stands_on_a_host_is_kept_over_reload_and_restart() {
    let mut nginx = start("state={prefix}/main.json");
    let api = nginx.api();
    app(&api, "svc-a", &["10.9.0.1:80", "10.9.0.2:80"]);
    assert_eq!(api.post("hosts/10.9.0.1/down?reason=disk&ttl=1h").0, 200);
    let before = api.get("hosts/10.9.0.1").1["admin"].clone();
    nginx.reload();
    assert_eq!(api.get("hosts/10.9.0.1").1["admin"], before);
    assert_eq!(state(&api, "svc-a", "10.9.0.1:80").0, "down");
    nginx.restart();
    assert_eq!(api.get("hosts/10.9.0.1").1["admin"], before, "of the state file");
    assert_eq!(state(&api, "svc-a", "10.9.0.1:80").1.as_deref(), Some("host_down_by"));
}

#[test]
fn a_wait_tells_when_the_last_request_has_left_the_host() {
    let (good, bad) = (Backend::new("good"), Backend::on("bad", [127, 0, 0, 2]));
    let nginx = start("");
    let api = nginx.api();
    app(&api, "svc-a", &[&bad.addr()]);
    let mut open = Conn::open(nginx.web()).unwrap();
    open.begin(&Request::get("/hold?u=svc-a")).unwrap();
    eventually(secs(5), || bad.held() == 1);
    app(&api, "svc-a", &[&bad.addr(), &good.addr()]);
    let (status, problem) = api.post("hosts/127.0.0.2/down?wait=300ms");
    assert_eq!((status, &problem["drained"]), (504, &json!(false)), "{problem}");
    assert_eq!((&problem["active"], &problem["changed"]), (&json!(1), &json!(true)));
    let waits = api.clone();
    let waiting = std::thread::spawn(move || waits.post("hosts/127.0.0.2/down?wait=30s"));
    holds_for(ms(200), || !waiting.is_finished());
    bad.release();
    assert_eq!(open.reply().unwrap().status, 200);
    let (status, answer) = waiting.join().unwrap();
    assert_eq!((status, &answer["drained"]), (200, &json!(true)), "{answer}");
    assert_eq!(answer["changed"], json!(false), "it was down");
    let (status, answer) = api.post("hosts/127.0.0.2/up?wait=5s");
    assert_eq!((status, &answer["ready"]), (200, &json!(true)), "{answer}");
}

#[test]
fn operate_covers_hosts_and_a_dry_run_only_tells() {
    let conf = Nginx::builder().http(format!(
        "peerage_zone main 1m; {KEYED}
        server {{ listen {{ops}}; location /api {{ peerage_api write=operate; }} }}"
    ));
    let nginx = conf.port("ops").with_api("write=on").start();
    let (api, ops) = (nginx.api(), Api::new(nginx.addr("ops"), "/api/v1"));
    app(&api, "svc-a", &["10.9.0.1:80", "10.9.0.2:80"]);
    let before = api.get("hosts/10.9.0.1");
    let (status, told) = ops.post("hosts/10.9.0.1/drain?dry_run=1&wait=5s&reason=x");
    assert_eq!((status, &told["dry_run"], &told["changed"]), (200, &json!(true), &json!(true)));
    let entry = |path: &str, to: &str| json!({"path": format!("hosts/10.9.0.1/admin/{path}"), "from": if path == "state" { "up" } else { "" }, "to": to});
    assert_eq!(told["diff"], json!([entry("state", "drain"), entry("reason", "x")]));
    assert_eq!(api.get("hosts/10.9.0.1"), before);
    assert_eq!(
        ops.post("hosts/10.9.0.1/drain?reason=x").1["revision"],
        json!(told["revision"].as_u64().unwrap() + 1)
    );
    assert_eq!(ops.post("hosts/10.9.0.1/up").0, 200);
}

#[test]
fn in_a_full_zone_a_host_still_goes_down_and_up() {
    let conf = Nginx::builder().http(format!("peerage_zone main 512k; {KEYED}"));
    let nginx = conf.with_api("write=on").allow("is full").start();
    let api = nginx.api();
    let mut i = 0;
    for count in [8, 2, 1] {
        let servers: Vec<String> = (1..=count).map(|n| format!("10.9.0.{n}:80")).collect();
        let servers: Vec<Value> = servers.iter().map(|server| json!({"server": server})).collect();
        let body = json!({"servers": servers});
        while api.put(&format!("upstreams/svc-{i}"), &body).0 == 201 {
            i += 1;
        }
    }
    assert!(i > 50, "{i} upstreams");
    let n = api.get("hosts/10.9.0.1").1["servers"].as_array().unwrap().len();
    assert_eq!(n, i, "the host is in every upstream");
    for verb in ["down?min_up=0&reason=disk", "drain?min_up=0", "up", "down?min_up=0", "up"] {
        let (status, answer) = api.post(&format!("hosts/10.9.0.1/{verb}"));
        assert_eq!((status, &answer["changed"]), (200, &json!(true)), "{verb}: {answer}");
    }
    let listed = api.ok("GET", "servers?address=10.9.0.1&state=up&limit=1000", None);
    assert_eq!(listed["servers"].as_array().unwrap().len(), n);
}
