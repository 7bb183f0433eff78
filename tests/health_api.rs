//! What an outside checker says of a server, over the API: in force at once in every worker, apart
//! from the operator's will, told to everybody who listens.

mod support;

use std::fs;

use serde_json::json;
use support::*;

/// Three backends behind `app`, with a log of events.
fn conf(backends: &[Backend], more: &str) -> Conf {
    let servers: String = backends.iter().map(|b| format!("server {b};")).collect();
    Nginx::builder()
        .http(format!(
            "peerage_zone main 1m state={{prefix}}/main.json; peerage_log {{prefix}}/events.log;
             upstream app {{ peerage main; {servers} {more} }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
        ))
        .with_api("write=on")
}

/// `from > to by reason` of each health event after that one.
fn told(api: &Api, since: u64) -> Vec<String> {
    let (status, body) = api.get(&format!("events?since={since}"));
    assert_eq!(status, 200, "{body}");
    let text = |e: &Value, name: &str| e[name].as_str().unwrap().to_owned();
    let line = |e: &Value| {
        let words = ["from", "to", "by", "reason"].map(|name| text(e, name));
        format!("{} > {} {} {}", words[0], words[1], words[2], words[3]).trim_end().to_owned()
    };
    let events = body["events"].as_array().unwrap().iter();
    events.filter(|e| e["kind"] == "health").map(line).collect()
}

fn last_event(api: &Api) -> u64 {
    api.ok("GET", "events", None)["seq"].as_u64().unwrap()
}

/// State and why of a server.
fn state(api: &Api, server: &Backend) -> (String, Option<String>) {
    let server = api.server("app", server);
    let why = server["why"]["code"].as_str().map(str::to_owned);
    (server["state"].as_str().unwrap().to_owned(), why)
}

fn is(state: &str, why: &str) -> (String, Option<String>) {
    (state.to_owned(), (!why.is_empty()).then(|| why.to_owned()))
}

#[test]
fn an_unhealthy_server_gets_no_request_that_begins_after_the_answer_and_a_healthy_one_does() {
    let b = Backend::several(3);
    let nginx = conf(&b, "").workers(4).start();
    let api = nginx.api();
    let before = api.call("GET", "upstreams/app", None);
    let (_, first) = api.verb("app", &b[0], "unhealthy?reason=replication+lags");
    assert_eq!((&first["changed"], &first["upstream"]), (&json!(true), &json!("app")));
    assert_eq!(first["server"]["why"]["code"], "external");
    let (_, again) = api.verb("app", &b[0], "unhealthy?ttl=1h");
    assert_eq!((&again["changed"], &again["revision"]), (&json!(false), &first["revision"]));
    assert_eq!(api.verb("app", &b[0], "healthy").1["changed"], true);
    let id = api.server("app", &b[0])["id"].as_u64().unwrap();
    for round in 0..scale(25, 500) {
        let (status, body) = api.verb("app", format!("id:{id}"), "unhealthy");
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["server"]["state"], "unhealthy");
        let without = hit(nginx.web(), "/", 12);
        without.all_ok();
        assert_eq!(without.backend("b1"), 0, "round {round}");
        assert_eq!(api.verb("app", &b[0], "healthy").0, 200);
        let with = hit(nginx.web(), "/", 12);
        assert!(with.backend("b1") > 0, "round {round}");
    }
    let after = api.call("GET", "upstreams/app", None);
    assert_eq!(before.header("etag"), after.header("etag"));
    assert_eq!(before.header("peerage-revision"), after.header("peerage-revision"));
    let log = nginx.error_log();
    let line = |word: &str| format!("server \"{}\" is called {word} by \"127.0.0.1\"", b[0]);
    assert!(log.contains(&format!("{}: replication lags, upstream \"app\"", line("unhealthy"))));
    assert!(log.contains(&format!("{}, upstream \"app\"", line("healthy"))), "{log}");
    assert_eq!(log.matches(&line("unhealthy")).count(), scale(25, 500) + 1);
}

#[test]
fn what_was_said_ends_by_itself_and_is_told_once() {
    let b = Backend::several(2);
    let nginx = conf(&b, "").workers(4).start();
    let api = nginx.api();
    let since = last_event(&api);
    let body = json!({"ttl": "1s", "reason": "disk"});
    let path = format!("upstreams/app/servers/{}/unhealthy", b[0]);
    let (status, said) = api.post_json(&path, &body);
    assert_eq!(status, 200, "{said}");
    let check = api.ok("GET", &format!("upstreams/app/servers/{}/check", b[0]), None);
    assert_eq!(check["peers"][0]["external"]["verdict"], "unhealthy");
    assert!(check["peers"][0]["external"]["until"].as_str().unwrap().ends_with('Z'));
    assert_eq!(hit(nginx.web(), "/", 8).backend("b1"), 0);
    eventually(secs(5), || hit(nginx.web(), "/", 2).backend("b1") > 0);
    eventually(secs(5), || told(&api, since).len() == 2);
    holds_for(secs(1), || told(&api, since).len() == 2);
    assert_eq!(told(&api, since), ["up > unhealthy 127.0.0.1 disk", "unhealthy > up ttl"]);
    let line = format!("peer \"{}\" of upstream \"app\" takes requests again", b[0]);
    assert_eq!(nginx.error_log().matches(&line).count(), 1, "{}", nginx.error_log());
    let log = fs::read_to_string(nginx.path("events.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|l| l.contains(r#""kind":"health""#)).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains(r#""reason":"disk""#) && lines[1].contains(r#""by":"ttl""#));
    assert_eq!(api.upstream("app")["revision"], said["revision"]);
}

#[test]
fn each_new_end_counts_from_when_it_was_said() {
    let b = Backend::several(2);
    let nginx = conf(&b, "").workers(2).start();
    let api = nginx.api();
    let since = last_event(&api);
    for _ in 0..6 {
        assert_eq!(api.verb("app", &b[0], "unhealthy?ttl=2s").0, 200);
        let_pass(ms(500));
        assert_eq!(state(&api, &b[0]), is("unhealthy", "external"));
    }
    eventually(secs(5), || state(&api, &b[0]) == is("up", ""));
    eventually(secs(5), || told(&api, since) == ["up > unhealthy 127.0.0.1", "unhealthy > up ttl"]);
}

#[test]
fn a_listener_is_told_while_it_waits() {
    let b = Backend::several(2);
    let nginx = conf(&b, "").workers(2).start();
    let api = nginx.api();
    let since = last_event(&api);
    let mut poll = Conn::open(api.addr()).unwrap();
    let request = api.request("GET", &format!("events?since={since}&wait=30s"), None);
    poll.begin(&request).unwrap();
    let mut stream = Conn::open(api.addr()).unwrap();
    let request = api.request("GET", "events", None).header("Accept", "text/event-stream");
    stream.begin(&request).unwrap();
    assert_eq!(stream.head().unwrap().status, 200);
    api.verb("app", &b[1], "unhealthy?reason=x");
    let answer = poll.reply().unwrap().json();
    let event = &answer["events"][0];
    assert_eq!((&event["kind"], &event["to"]), (&json!("health"), &json!("unhealthy")));
    assert_eq!((&event["server"], &event["address"]), (&json!(b[1].addr()), &json!("127.0.0.1")));
    let mut text = String::new();
    while !text.contains("event: health\ndata: ") {
        text.push_str(&String::from_utf8(stream.read(1).unwrap()).unwrap());
    }
}

/// A writer that is stopped holds the lock: the verdict is in force all the same, only who listens
/// is told later.
#[test]
fn a_stopped_writer_holds_no_verdict_up() {
    let b = Backend::several(2);
    let servers: String = b.iter().map(|b| format!("server {b};")).collect();
    let http = format!(
        "peerage_zone main 1m; upstream app {{ peerage main; {servers} }}
         server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
    );
    let conf = Nginx::faulty().workers(2).http(http).with_api("write=on");
    let (conf, points) = Points::of(conf);
    let nginx = conf.start();
    let api = nginx.api();
    points.plan(&[Strike::stop("table.published", 1)]);
    let mut writer = Conn::open(api.addr()).unwrap();
    let weight = json!({"weight": 2});
    let path = format!("upstreams/app/servers/{}", b[1]);
    writer.begin(&api.request("PATCH", &path, Some(&weight))).unwrap();
    let stopped_one = eventually(secs(10), || points.struck(0));
    eventually(secs(5), || stopped(stopped_one));
    points.clear();
    let since = last_event(&api);
    let (status, body) = api.verb("app", &b[0], "unhealthy?reason=now");
    assert_eq!((status, &body["changed"]), (200, &json!(true)), "{body}");
    assert_eq!(hit(nginx.web(), "/", 8).backend("b1"), 0);
    holds_for(ms(300), || told(&api, since).is_empty());
    signal(stopped_one, Signal::CONT);
    assert_eq!(writer.reply().unwrap().status, 200);
    eventually(secs(5), || told(&api, since) == ["up > unhealthy 127.0.0.1 now"]);
}

#[test]
fn it_outlives_reloads_and_changes_and_is_apart_from_the_operators_will() {
    let b = Backend::several(3);
    let mut nginx = conf(&b, "").workers(2).start();
    let api = nginx.api();
    let ill = is("unhealthy", "external");
    assert_eq!(api.verb("app", &b[0], "unhealthy?ttl=1h").0, 200);
    for _ in 0..scale(2, 20) {
        nginx.reload();
        assert_eq!(state(&api, &b[0]), ill);
        assert_eq!(hit(nginx.web(), "/", 12).backend("b1"), 0);
    }
    let path = format!("upstreams/app/servers/{}", b[0]);
    api.ok("PATCH", &path, Some(&json!({"weight": 5, "labels": {"a": "b"}})));
    api.ok("PUT", &format!("upstreams/app/servers/{}", b[2]), Some(&json!({"weight": 2})));
    assert_eq!(state(&api, &b[0]), ill, "a weight");
    api.verb("app", &b[0], "down?reason=deploy");
    assert_eq!(state(&api, &b[0]), is("down", "down_by"));
    api.verb("app", &b[0], "up");
    assert_eq!(state(&api, &b[0]), ill, "up lifts it not");
    let (status, body) = api.verb("app", &b[0], "up?wait=200ms");
    assert_eq!((status, &body["why"]["code"]), (504, &json!("external")), "{body}");
    api.verb("app", &b[0], "down");
    api.verb("app", &b[0], "healthy");
    assert_eq!(state(&api, &b[0]), is("down", "down_by"), "healthy lifts down not");
    assert_eq!(hit(nginx.web(), "/", 12).backend("b1"), 0);
    api.verb("app", &b[0], "up?wait=5s");
    assert!(hit(nginx.web(), "/", 12).backend("b1") > 0);

    // Another size of the zone keeps it; a restart does not.
    api.verb("app", &b[1], "unhealthy?ttl=1h");
    nginx.change(|conf| {
        let servers: String = b.iter().map(|b| format!("server {b};")).collect();
        conf.http(format!(
            "peerage_zone main 2m state={{prefix}}/main.json;
             upstream app {{ peerage main; {servers} }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
        ))
        .with_api("write=on")
    });
    nginx.reload();
    let api = nginx.api();
    assert_eq!(state(&api, &b[1]), ill);
    nginx.restart();
    let api = nginx.api();
    assert_eq!(state(&api, &b[1]), is("up", ""));
    assert!(hit(nginx.web(), "/", 12).backend("b2") > 0);
}

#[test]
fn a_removed_server_and_a_new_one_have_nothing_said_of_them() {
    let b = Backend::several(2);
    let nginx = conf(&b, "").start();
    let api = nginx.api();
    let path = format!("upstreams/app/servers/{}", b[0]);
    api.verb("app", &b[0], "unhealthy");
    api.ok("PUT", "upstreams/other", Some(&json!({"servers": [{"server": b[0].addr()}]})));
    assert_eq!(api.server("other", &b[0])["state"], "up", "of the same address");
    api.ok("DELETE", &path, None);
    api.ok("PUT", &path, Some(&json!({})));
    assert_eq!(state(&api, &b[0]), is("up", ""));
}

#[test]
fn what_is_asked_wrongly_is_refused_and_changes_nothing() {
    let b = Backend::several(2);
    let servers: String = b.iter().map(|b| format!("server {b};")).collect();
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 1m; resolver 127.0.0.1:{{dns}};
             upstream app {{ peerage main; {servers} peerage_server app.test:8080; }}
             server {{ listen {{operate}}; location /api {{ peerage_api write=operate; }} }}
             server {{ listen {{off}}; location /api {{ peerage_api; }} }}"
        ))
        .with_api("write=on")
        .port("operate")
        .port("off")
        .set("dns", 1)
        .start();
    let api = nginx.api();
    let of = |server: &str| format!("upstreams/app/servers/{server}/unhealthy");
    let path = of(&b[0].addr());
    let since = last_event(&api);
    let table = [
        (of("10.9.9.9:80"), 404, "server-not-found", ""),
        (of("id:77"), 404, "server-not-found", ""),
        (of("app.test:8080"), 404, "server-not-found", ""),
        (of("a b"), 400, "bad-address", "server"),
        ("upstreams/nowhere/servers/id:1/unhealthy".into(), 404, "upstream-not-found", ""),
        (format!("{path}?ttl=5x"), 400, "bad-value", "ttl"),
        (format!("{path}?ttl=0"), 400, "bad-value", "ttl"),
        (format!("{path}?wait=5s"), 400, "bad-parameter", "wait"),
        (format!("{path}?zone=other"), 404, "zone-not-found", ""),
    ];
    for (path, status, code, field) in &table {
        let (got, body) = api.post(path.replace(' ', "%20").as_str());
        assert_eq!(got, *status, "{path}: {body}");
        assert_eq!(body["type"], format!("urn:peerage:{code}"), "{path}");
        assert_eq!(body["field"].as_str().unwrap_or_default(), *field, "{path}");
    }
    for (body, field) in [(json!({"ttl": "x"}), "ttl"), (json!({"min_up": 1}), "min_up")] {
        let (status, answer) = api.post_json(&path, &body);
        assert_eq!((status, &answer["field"]), (400, &json!(field)), "{answer}");
    }
    let stale = api.with("If-Match", "\"x\"").post(&path);
    assert_eq!(stale.0, 412, "{}", stale.1);
    let foreign = api.with("Origin", "http://elsewhere.test").post(&path);
    assert_eq!(foreign.0, 403, "{}", foreign.1);
    let reply = api.call("GET", &path, None);
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let off = Api::new(nginx.addr("off"), "/api/v1");
    assert_eq!(off.post(&path).0, 405, "reading only");
    assert_eq!(off.get(&path.replace("unhealthy", "check")).0, 200);
    let dry = api.ok("POST", &format!("{path}?dry_run=1"), None);
    assert_eq!((&dry["changed"], &dry["diff"][0]["to"]), (&json!(true), &json!("unhealthy")));
    assert_eq!(state(&api, &b[0]), is("up", ""));
    assert_eq!(told(&api, since), [""; 0]);

    let operate = Api::new(nginx.addr("operate"), "/api/v1");
    assert_eq!(operate.post(&path).0, 200, "an operator may");
    let etag = api.call("GET", "upstreams/app", None).header("etag").unwrap().to_owned();
    let healthy = path.replace("unhealthy", "healthy");
    assert_eq!(api.with("If-Match", &etag).post(&healthy).0, 200);
    assert_eq!(api.ok("POST", &format!("{healthy}?dry_run=1"), None)["diff"], json!([]));
    assert_eq!(told(&api, since).len(), 2);
}

#[test]
fn where_all_are_unhealthy_requests_get_what_the_upstream_says() {
    let b = Backend::several(2);
    let servers: String = b.iter().map(|b| format!("server {b};")).collect();
    let upstream = |name: &str, check: &str| {
        format!(
            "upstream {name} {{ peerage main; {servers} {check} }}
             server {{ listen {{{name}}}; location / {{ proxy_pass http://{name}; }} }}"
        )
    };
    let all = [
        upstream("uses", "peerage_check type=tcp on_all_down=use;"),
        upstream("refuses", "peerage_check type=tcp on_all_down=refuse;"),
        upstream("bare", ""),
    ];
    let mut conf = Nginx::builder().http(format!("peerage_zone main 1m; {}", all.concat()));
    for port in ["uses", "refuses", "bare"] {
        conf = conf.port(port);
    }
    let nginx = conf.with_api("write=on").start();
    let api = nginx.api();
    let say = |server: &Backend, word: &str| {
        for name in ["uses", "refuses", "bare"] {
            assert_eq!(api.verb(name, server, word).0, 200, "{name}");
        }
    };
    let hits = |name: &str| hit(nginx.addr(name), "/", 8);
    say(&b[0], "unhealthy");
    for name in ["uses", "refuses", "bare"] {
        assert_eq!(hits(name).backend("b2"), 8, "{name}");
        let (status, body) = api.verb(name, &b[1], "down?min_up=1");
        assert_eq!((status, &body["eligible"]), (409, &json!(0)), "{name}: {body}");
    }
    say(&b[1], "unhealthy");
    assert_eq!(hits("refuses").status(502), 8);
    for name in ["uses", "bare"] {
        hits(name).all_ok();
        assert_eq!(api.upstream(name)["eligible"], 0, "{name}");
    }
    // One that an operator took down is never used.
    say(&b[1], "down");
    assert_eq!(hits("uses").backend("b1"), 8);
    say(&b[0], "down");
    assert_eq!(hits("uses").status(502), 8);
    say(&b[0], "up");
    say(&b[0], "healthy");
    assert_eq!(hits("refuses").backend("b1"), 8);
}

#[test]
fn up_waits_for_a_pass_of_the_check() {
    let b = Backend::several(2);
    let check = "peerage_check type=tcp port={number} interval=200ms timeout=100ms fails=100;";
    let conf = conf(&b, check).port("closed");
    let number = conf.addr("closed").port();
    let nginx = conf.set("number", number).start();
    let api = nginx.api();
    api.verb("app", &b[0], "down");
    let (status, body) = api.verb("app", &b[0], "up?wait=1s");
    assert_eq!((status, &body["ready"]), (504, &json!(false)), "{body}");
    assert_eq!(body["why"]["code"], "checking", "{body}");
    assert_eq!(body["why"]["text"], "its check has not passed since then");
    assert_eq!(state(&api, &b[0]), is("up", ""), "it takes requests all the same");
    let (status, body) = api.post("hosts/127.0.0.1/up?wait=300ms");
    assert_eq!(status, 504, "{body}");
    assert!(body["detail"].as_str().unwrap().contains("has not passed"), "{body}");
}

#[test]
fn every_page_of_figures_says_the_same() {
    let b = Backend::several(2);
    let nginx = conf(&b, "peerage_check type=tcp; peerage_outlier;")
        .http_more("server { listen {metrics}; location = /metrics { peerage_metrics; } }")
        .port("metrics")
        .start();
    let api = nginx.api();
    api.verb("app", &b[0], "unhealthy");
    let plus = Api::new(nginx.addr("api"), "/api/9");
    let v1 = api.server("app", &b[0]);
    let peers = plus.ok("GET", "http/upstreams/app", None)["peers"].clone();
    assert_eq!((&peers[0]["state"], &peers[1]["state"]), (&json!("unhealthy"), &json!("up")));
    assert_eq!(api.upstream("app")["counts"], json!({"up": 1, "unhealthy": 1}));
    let listed = api.ok("GET", "servers?state=unhealthy", None);
    assert_eq!(listed["servers"].as_array().unwrap().len(), 1);
    let names = ["checks", "fails", "unhealthy"];
    for of in [&v1["counters"]["health_checks"], &peers[0]["health_checks"]] {
        assert!(names.iter().all(|name| of[*name].is_u64()), "{of}");
    }

    let check = api.ok("GET", &format!("upstreams/app/servers/{}/check", b[0]), None);
    assert_eq!((&check["state"], &check["why"]["code"]), (&json!("unhealthy"), &json!("external")));
    let peer = &check["peers"][0];
    assert_eq!((&peer["peer"], &peer["state"]), (&json!(b[0].addr()), &json!("unhealthy")));
    assert_eq!(peer["external"], json!({"verdict": "unhealthy", "until": null}));
    assert_eq!(peer["outlier"], json!({"errors": 0, "ejected_until": null}));
    assert!(["unknown", "healthy"].iter().any(|word| peer["check"]["verdict"] == *word));
    assert_eq!(peer["check"]["failure"], Value::Null);
    assert_eq!(api.get("upstreams/app/servers/10.9.9.9:80/check").0, 404);
    assert_eq!(api.get("upstreams/nowhere/servers/id:1/check").0, 404);

    let page = Exposition::of(&scrape(nginx.addr("metrics"), "/metrics", ""));
    let of = |server: &Backend, labels: &[(&str, &str)]| {
        let addr = server.addr();
        let mut all = vec![("upstream", "app"), ("server", addr.as_str())];
        all.extend_from_slice(labels);
        let name = match labels[0].0 {
            "state" => "peerage_upstream_server_state",
            _ => "peerage_upstream_server_health_checks_total",
        };
        page.one(name, &all)
    };
    assert_eq!(of(&b[0], &[("state", "unhealthy")]), 1.0);
    assert_eq!(of(&b[1], &[("state", "unhealthy")]), 0.0);
    assert_eq!(of(&b[0], &[("result", "failed")]), 0.0);
    assert!(of(&b[0], &[("result", "passed")]) >= 0.0);
    assert_eq!(page.one("peerage_upstream_eligible", &[("upstream", "app")]), 1.0);
    assert!(page.one("peerage_checks_late_total", &[("zone", "main")]) >= 0.0);
}

#[test]
fn errors_in_a_row_eject_a_server_for_a_time_that_grows() {
    let b = Backend::several(2);
    let rules = "peerage_outlier base=1s max=2s max_percent=50;";
    let nginx = conf(&b, rules).workers(4).start();
    let api = nginx.api();
    let since = last_event(&api);
    b[0].mode(Mode::Status(503));
    let out = || state(&api, &b[0]) == is("unavail", "ejected");
    let until_out = || {
        eventually(secs(20), || {
            hit(nginx.web(), "/", 2);
            out()
        });
    };
    // Five errors in a row over all workers, and not one more.
    until_out();
    assert_eq!(hit(nginx.web(), "/", 8).backend("b1"), 0);
    assert_eq!(b[0].requests(), 5);
    let check = api.ok("GET", &format!("upstreams/app/servers/{}/check", b[0]), None);
    assert!(check["peers"][0]["outlier"]["ejected_until"].is_string(), "{check}");
    assert_eq!(check["peers"][0]["state"], "unavail");
    assert_eq!(api.server("app", &b[0])["counters"]["unavail"], 1);
    // A second of two would be all of them.
    b[1].mode(Mode::Status(500));
    hit(nginx.web(), "/", 12);
    assert_eq!(state(&api, &b[1]), is("up", ""));
    b[1].mode(Mode::Serve);
    for _ in 0..2 {
        eventually(secs(5), || !out());
        until_out();
    }
    b[0].mode(Mode::Serve);
    eventually(secs(5), || hit(nginx.web(), "/", 4).backend("b1") > 0);
    eventually(secs(5), || told(&api, since).len() == 6);
    let ejected = |time: &str| format!("up > unavail outlier 5 errors in a row, out for {time}");
    let back = || "unavail > up outlier".to_owned();
    let wanted = [ejected("1s"), back(), ejected("2s"), back(), ejected("2s"), back()];
    assert_eq!(told(&api, since), wanted);
    let log = nginx.error_log();
    assert_eq!(log.matches("upstream server ejected as an outlier").count(), 3);
    assert_eq!(log.matches("takes requests again").count(), 3);
}
