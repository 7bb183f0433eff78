//! Names that are resolved at run time: what the answers do.

mod support;

use std::sync::Arc;

use support::*;

const APP: &str = "peerage_zone main 2m state={prefix}/main.json;
    resolver {dns} ipv6=off; resolver_timeout 1s;
    upstream app { peerage main; peerage_server app.test:{port} resolve; }
    server { listen {web}; location / { proxy_pass http://app; proxy_next_upstream off; } }";

/// Servers on one port of 127.0.0.2 and so on, called by their last number.
struct Site {
    dns: Dns,
    port: Arc<Port>,
    backends: Vec<Backend>,
}

impl Site {
    fn new(n: u8) -> Self {
        let port = Arc::new(Port::reserve());
        let on = |n: u8| Backend::beside(&n.to_string(), [127, 0, 0, n], &port);
        let backends = (2..2 + n).map(on).collect();
        Self { dns: Dns::new(), port, backends }
    }

    fn conf(&self, http: &str) -> Conf {
        let conf = Nginx::builder().http(http).with_api("write=on").set("dns", &self.dns);
        conf.set("port", self.port.number())
    }

    fn server(&self) -> String {
        format!("app.test:{}", self.port.number())
    }
}

/// Waits until all of some requests are answered by these alone, and by each of them.
#[track_caller]
fn answered_by(nginx: &Nginx, limit: Duration, names: &[&str]) {
    eventually(limit, || {
        let report = hit(nginx.web(), "/", 12);
        let answers: Vec<u64> = names.iter().map(|name| report.backend(name)).collect();
        answers.iter().sum::<u64>() == 12 && !answers.contains(&0)
    });
}

/// How many addresses the server has, by the last event about it.
fn addresses(nginx: &Nginx) -> Vec<String> {
    let events = nginx.api().ok("GET", "events?since=0", None)["events"].clone();
    let events = events.as_array().unwrap().clone();
    let of_source = events.into_iter().filter(|event| event["kind"] == "source");
    of_source.map(|e| format!("{} {} {}", e["from"], e["to"], e["by"]).replace('"', "")).collect()
}

#[test]
fn requests_flow_from_the_first_answer_on_and_every_worker_follows_the_next() {
    let site = Site::new(3);
    let nginx = site.conf(APP).workers(4).log_level("info").start();
    let api = nginx.api();
    let server = api.server("app", site.server());
    assert_eq!(
        (&server["state"], &server["why"]["code"]),
        (&json!("unavail"), &json!("not_resolved"))
    );
    assert_eq!(nginx.get("/").status, 502);
    let tag = |api: &Api| api.upstream("app")["digest"].clone();
    let before = tag(&api);

    site.dns.set("app.test", &["127.0.0.2"], 1);
    answered_by(&nginx, secs(10), &["2"]);
    assert_eq!(api.server("app", site.server())["state"], "up");
    for ip in ["127.0.0.3", "127.0.0.4", "127.0.0.2"] {
        site.dns.set("app.test", &[ip], 1);
        answered_by(&nginx, ms(2_500), &[&ip[8..]]);
    }
    // Both, whatever their order is.
    site.dns.set("app.test", &["127.0.0.3", "127.0.0.2"], 1);
    answered_by(&nginx, ms(2_500), &["2", "3"]);
    let revision = api.upstream("app")["revision"].clone();
    let asked = site.dns.asked("app.test");
    site.dns.set("app.test", &["127.0.0.2", "127.0.0.3"], 1);
    eventually(secs(6), || site.dns.asked("app.test") >= asked + 2);
    answered_by(&nginx, secs(1), &["2", "3"]);
    assert_eq!(api.upstream("app")["revision"], revision);
    assert_eq!(tag(&api), before, "what is wanted is as it was");
    let told = addresses(&nginx);
    assert_eq!(told.first().map(String::as_str), Some("addresses=0 addresses=1 resolver"));
    assert_eq!(told.last().map(String::as_str), Some("addresses=1 addresses=2 resolver"));
    assert!(nginx.error_log().contains("\"app.test\" has 2 addresses, upstream \"app\""));
}

#[test]
fn thirty_addresses_and_then_one() {
    let site = Site::new(30);
    let ips: Vec<String> = (2..32).map(|n| format!("127.0.0.{n}")).collect();
    let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
    site.dns.set("app.test", &ips, 1);
    let nginx = site.conf(APP).workers(2).start();
    eventually(secs(10), || nginx.get("/").status == 200);
    hit(nginx.web(), "/", 120).all_ok();
    assert!(site.backends.iter().all(|backend| backend.requests() > 0), "each has its share");
    let load = Load::to(nginx.web()).threads(2).rate(100).start();
    site.dns.set("app.test", &["127.0.0.9"], 1);
    answered_by(&nginx, ms(2_500), &["9"]);
    load.stop().all_ok();
    assert_eq!(addresses(&nginx).last().unwrap(), "addresses=30 addresses=1 resolver");

    let many: Vec<String> = (1..=200).map(|n| format!("127.0.1.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    site.dns.set("app.test", &many, 1);
    eventually(secs(4), || {
        addresses(&nginx).last().unwrap() == "addresses=1 addresses=128 resolver"
    });
    let line = "\"app.test\" has 72 addresses more than are used, zone \"main\"";
    let asked = site.dns.asked("app.test");
    eventually(secs(6), || site.dns.asked("app.test") >= asked + 2);
    assert_eq!(nginx.error_log().matches(line).count(), 1);
}

#[test]
fn the_last_answer_is_kept_while_there_is_none_and_over_a_restart() {
    let site = Site::new(2);
    site.dns.set("app.test", &["127.0.0.2"], 1);
    let mut nginx = site.conf(APP).workers(2).start();
    answered_by(&nginx, secs(10), &["2"]);
    let lines = |nginx: &Nginx, text: &str| nginx.error_log().matches(text).count();
    let codes = [
        (Say::Code(3), "(3: Host not found)"),
        (Say::Code(2), "(2: Server failure)"),
        (Say::Ips(Vec::new(), 1), "(3: Host not found)"),
        (Say::Nothing, "(110: Operation timed out)"),
    ];
    for (n, (say, why)) in codes.into_iter().enumerate() {
        site.dns.say("app.test", say);
        let line = format!("\"app.test\" could not be resolved {why}, zone \"main\"");
        eventually(secs(6), || nginx.error_log().contains(&line));
        let asked = site.dns.asked("app.test");
        eventually(secs(8), || site.dns.asked("app.test") > asked);
        answered_by(&nginx, secs(1), &["2"]);
        assert_eq!(lines(&nginx, "could not be resolved"), n + 1, "each failure is said once");
        site.dns.set("app.test", &["127.0.0.2"], 1);
        eventually(secs(12), || lines(&nginx, "\"app.test\" is resolved again") == n + 1);
    }
    assert_eq!(nginx.api().post("zones/main/flush").0, 200);
    site.dns.say("app.test", Say::Nothing);
    nginx.restart();
    hit(nginx.web(), "/", 10).all_ok();
    assert_eq!(nginx.api().server("app", site.server())["state"], "up");
    site.dns.set("app.test", &["127.0.0.3"], 1);
    answered_by(&nginx, secs(10), &["3"]);
}

#[test]
fn an_answer_of_no_time_is_asked_for_once_a_second_and_a_long_one_over_tcp() {
    let site = Site::new(2);
    site.dns.set("app.test", &["127.0.0.2"], 0);
    let nginx = site.conf(APP).start();
    answered_by(&nginx, secs(10), &["2"]);
    let (begun, asked) = (Instant::now(), site.dns.asked("app.test"));
    eventually(secs(8), || site.dns.asked("app.test") >= asked + 4);
    assert!(begun.elapsed() >= ms(2_900), "{:?}", begun.elapsed());
    site.dns.say("app.test", Say::Long(vec!["127.0.0.3".parse().unwrap()], 1));
    answered_by(&nginx, secs(4), &["3"]);
    assert!(site.dns.over_tcp());
}

#[test]
fn names_come_by_the_api_and_go_while_they_are_asked_for() {
    let site = Site::new(2);
    let none = site.conf(&APP.replace("peerage_server app.test:{port} resolve;", ""));
    let without = none.clone().http(
        "peerage_zone main 1m; server { resolver {dns}; listen {web}; location / { return 200; } }",
    );
    let mut nginx = without.with_api("write=on").start();
    for (path, body) in [
        ("upstreams/app", json!({"servers": [{"server": "app.test"}]})),
        ("upstreams/is/servers/app.test:81", json!({})),
    ] {
        nginx.api().ok("PUT", "upstreams/is", Some(&json!({"servers": []})));
        let (status, problem) = nginx.api().put(path, &body);
        assert_eq!((status, &problem["type"]), (422, &json!("urn:peerage:name-not-supported")));
        assert_eq!(problem["field"], "server");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .starts_with("no resolver defined to resolve \"app.test:8")
        );
    }
    nginx.stop();

    let nginx = none.start();
    let api = nginx.api();
    site.dns.set("app.test", &["127.0.0.2"], 1);
    site.dns.set("six.test", &["::1"], 1);
    let (status, answer) = api.put("upstreams/app/servers/APP.test.", &json!({}));
    assert_eq!((status, &answer["server"]["server"]), (201, &json!("app.test:80")));
    let list = json!({"servers": [{"server": site.server()}, {"server": "app.test", "weight": 0}]});
    let tag = api.call("GET", "upstreams/app", None).header("etag").unwrap().to_string();
    eventually(secs(5), || api.server("app", "app.test:80")["state"] == "up");
    assert_eq!(api.with("If-Match", &tag).put("upstreams/app", &list).0, 200);
    answered_by(&nginx, secs(5), &["2"]);
    let all = eventually(secs(5), || {
        let all = api.ok("GET", "servers?address=127.0.0.2", None)["servers"].clone();
        (all.as_array()?.len() == 2).then_some(all)
    });
    assert_eq!(
        (&all[0]["server"], &all[1]["server"]),
        (&json!("app.test:80"), &json!(site.server()))
    );
    let twice = json!({"servers": [{"server": "app.test"}, {"server": "App.Test:80"}]});
    assert_eq!(api.put("upstreams/app", &twice).1["type"], "urn:peerage:duplicate-server");

    // ipv6=off: it has no address that is asked for.
    let body = json!({"changes": [{"op": "put", "upstream": "six", "body": {"servers": [{"server": "six.test"}]}}]});
    assert_eq!(api.post_json("batch", &body).0, 200);
    eventually(secs(5), || site.dns.asked("six.test") > 0);
    assert_eq!(api.server("six", "six.test:80")["why"]["code"], "not_resolved");

    // An answer to a name that has gone is nobody's.
    site.dns.say("slow.test", Say::Nothing);
    api.ok("PUT", "upstreams/app/servers/slow.test", Some(&json!({})));
    eventually(secs(5), || site.dns.asked("slow.test") > 0);
    api.ok("DELETE", "upstreams/app/servers/slow.test", None);
    api.ok("DELETE", "upstreams/six", None);
    holds_for(ms(1_300), || api.get("upstreams/six").0 == 404);
    assert!(!nginx.error_log().contains("slow.test\" could not"));

    // What is exported is imported elsewhere, and resolved there.
    let text = api.call("GET", "zones/main/export", None).text();
    let other = site.conf(APP).start();
    let request = other.api().request("PUT", "zones/main/import", None).body(text.as_bytes());
    assert_eq!(request.send(other.addr("api")).unwrap().status, 200);
    assert_eq!(other.api().upstream("app")["digest"], api.upstream("app")["digest"]);
    answered_by(&other, secs(5), &["2"]);
}

#[test]
fn down_covers_every_address_and_waits_for_those_it_had() {
    let site = Site::new(3);
    site.dns.set("app.test", &["127.0.0.2", "127.0.0.3"], 1);
    let nginx = site.conf(APP).workers(2).start();
    answered_by(&nginx, secs(10), &["2", "3"]);
    let api = nginx.api();
    let holds: Vec<_> = (0..4)
        .map(|_| {
            let mut conn = Conn::open(nginx.web()).unwrap();
            conn.begin(&Request::get("/hold")).unwrap();
            conn
        })
        .collect();
    eventually(secs(5), || site.backends[..2].iter().map(Backend::held).sum::<usize>() == 4);
    // One of them leaves with its requests in flight.
    site.dns.set("app.test", &["127.0.0.3"], 1);
    answered_by(&nginx, ms(2_500), &["3"]);
    assert!(site.backends[0].held() > 0);
    site.backends[1].release();
    eventually(secs(5), || api.server("app", site.server())["active"] == 0);
    let (status, problem) = api.verb("app", site.server(), "down?wait=300ms");
    assert_eq!((status, &problem["drained"]), (504, &json!(false)), "{problem}");
    assert_eq!(problem["active"], site.backends[0].held());
    // An address that comes while it is down gets nothing.
    site.dns.set("app.test", &["127.0.0.4", "127.0.0.3"], 1);
    eventually(secs(4), || addresses(&nginx).last().unwrap() == "addresses=1 addresses=2 resolver");
    assert_eq!(hit(nginx.web(), "/", 10).status(502), 10);
    site.backends[0].release();
    assert_eq!(api.verb("app", site.server(), "down?wait=5s").0, 200);
    assert_eq!(api.verb("app", site.server(), "up?wait=5s").0, 200);
    answered_by(&nginx, secs(1), &["3", "4"]);
    drop(holds);
}

#[test]
fn an_address_on_a_host_that_is_down_is_closed_and_the_others_go_on() {
    let site = Site::new(3);
    site.dns.set("app.test", &["127.0.0.2", "127.0.0.3"], 1);
    let nginx = site.conf(APP).workers(2).start();
    answered_by(&nginx, secs(10), &["2", "3"]);
    let api = nginx.api();
    let (status, answer) = api.post("hosts/127.0.0.2/down?wait=5s");
    assert_eq!(status, 200, "{answer}");
    answered_by(&nginx, ms(100), &["3"]);
    let server = api.server("app", site.server());
    assert_eq!((&server["state"], &server["host_admin"]), (&json!("up"), &Value::Null));
    let (status, problem) = api.post("hosts/127.0.0.3/drain");
    assert_eq!((status, &problem["upstreams"]), (409, &json!(["app"])), "the last address");
    // One that comes while its host is down.
    assert_eq!(api.post("hosts/127.0.0.4/down?missing=ok").0, 200);
    site.dns.set("app.test", &["127.0.0.4", "127.0.0.3", "127.0.0.2"], 1);
    eventually(secs(4), || addresses(&nginx).last().unwrap() == "addresses=2 addresses=3 resolver");
    answered_by(&nginx, ms(100), &["3"]);
    assert_eq!(api.post("hosts/127.0.0.3/drain?min_up=0").0, 200);
    assert_eq!(api.server("app", site.server())["why"]["code"], "host_down_by");
    assert_eq!(hit(nginx.web(), "/", 4).status(502), 4);
    for n in 2..=4 {
        assert_eq!(api.post(&format!("hosts/127.0.0.{n}/up")).0, 200);
    }
    answered_by(&nginx, ms(100), &["2", "3", "4"]);
}

#[test]
fn a_test_of_the_configuration_asks_nobody_and_a_plain_line_stays_as_it_was_read() {
    let site = Site::new(1);
    let conf = site.conf(APP);
    let (good, said) = conf.test();
    assert!(good, "{said}");
    let (good, said) = conf.clone().http(APP.replace("resolver {dns}", "#")).test();
    assert!(!good && said.contains("no resolver defined to resolve \"app.test"), "{said}");
    assert_eq!(site.dns.askers(), 0);
    let plain = APP.replace("peerage_server app.test:{port} resolve", "server localhost:{port}");
    let nginx = conf.http(plain).with_api("write=on").start();
    nginx.api().ok(
        "PATCH",
        &format!("upstreams/app/servers/localhost:{}", site.port.number()),
        Some(&json!({"weight": 3})),
    );
    holds_for(ms(700), || site.dns.askers() == 0);
    let (ok, _) = nginx.test();
    assert!(ok && site.dns.askers() == 0);
}
