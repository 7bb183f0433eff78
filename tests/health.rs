//! Health checks: who takes requests, by what its probes say.

mod support;

use std::fmt::Display;
use std::time::Instant;

use support::*;

const ZONE: &str = "peerage_zone main 2m state={prefix}/main.json;";

/// "app" has b1 and b2.
fn two(check: &str) -> (Backend, Backend, Conf) {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let conf = Nginx::builder().workers(4).set("b1", &b1).set("b2", &b2).http(format!(
        "{ZONE}
         upstream app {{ peerage main; {check} server {{b1}}; server {{b2}}; }}
         server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
    ));
    (b1, b2, conf.with_api("write=on"))
}

fn state(nginx: &Nginx, b: impl Display) -> String {
    state_in(nginx, "app", b)
}

fn state_in(nginx: &Nginx, upstream: &str, b: impl Display) -> String {
    nginx.api().server(upstream, b)["state"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn becomes(nginx: &Nginx, b: impl Display + Copy, wanted: &str) {
    eventually(secs(5), || state(nginx, b) == wanted);
}

fn check(nginx: &Nginx, check: Value) {
    nginx.api().ok("PATCH", "upstreams/app", Some(&json!({ "check": check })));
}

#[test]
fn who_fails_gets_nothing_until_it_passes_again() {
    let (mut b1, b2, conf) = two("peerage_check interval=200ms fails=2 passes=2;");
    let nginx = conf.start();
    eventually(secs(3), || b1.requests() > 2 && b2.requests() > 2);
    b1.mode(Mode::Status(503));
    becomes(&nginx, &b1, "unhealthy");
    let report = hit(nginx.web(), "/", 20);
    report.all_ok();
    assert_eq!(report.backend("b2"), 20);
    b1.mode(Mode::Serve);
    becomes(&nginx, &b1, "up");
    assert_eq!(hit(nginx.web(), "/", 20).backend("b1"), 10);
    b1.stop();
    becomes(&nginx, &b1, "unhealthy");
    let text = nginx.error_log();
    assert_eq!(text.matches("is unhealthy: status 503").count(), 1, "{text}");
    assert_eq!(text.matches("is unhealthy: connection refused").count(), 1, "{text}");
    assert_eq!(text.matches("is healthy").count(), 1, "{text}");
    let seen = nginx.api().server("app", &b1);
    assert_eq!(seen["why"]["code"], "check_failed");
    assert_eq!(seen["why"]["text"], "its check failed: connection refused");
    assert_eq!(seen["counters"]["health_checks"]["unhealthy"], 2, "{seen}");
    assert_eq!(seen["counters"]["health_checks"]["last_passed"], false, "{seen}");
}

#[test]
fn a_status_in_no_list_is_a_failure() {
    let (b1, b2, conf) = two("peerage_check interval=100ms uri=/x status=200-299,404;");
    let nginx = conf.start();
    for (status, wanted) in
        [(404, "up"), (302, "unhealthy"), (200, "up"), (401, "unhealthy"), (204, "up")]
    {
        b1.mode(Mode::Status(status));
        let before = b1.requests();
        becomes(&nginx, &b1, wanted);
        eventually(secs(3), || b1.requests() > before + 3);
        becomes(&nginx, &b1, wanted);
    }
    assert_eq!(state(&nginx, &b2), "up");
}

#[test]
fn one_address_in_two_upstreams_has_two_verdicts() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::builder()
        .workers(4)
        .http(format!(
            "{ZONE}
             upstream good {{ peerage main; peerage_check interval=100ms; server {{b1}}; }}
             upstream bad {{ peerage main; peerage_check interval=100ms uri=/status/500
                 on_all_down=refuse; server {{b1}}; }}
             server {{ listen {{web}}; location /good {{ proxy_pass http://good/; }}
                 location /bad {{ proxy_pass http://bad/; }} }}"
        ))
        .with_api("write=on")
        .set("b1", &b1)
        .start();
    eventually(secs(3), || state_in(&nginx, "bad", &b1) == "unhealthy");
    assert_eq!(state_in(&nginx, "good", &b1), "up");
    hit(nginx.web(), "/good", 5).all_ok();
    assert_eq!(hit(nginx.web(), "/bad", 5).status(502), 5);
}

#[test]
fn all_unhealthy_are_used_unless_that_is_refused_and_never_one_that_is_down() {
    let (b1, b2, conf) = two("peerage_check interval=100ms uri=/status/500;");
    let nginx = conf.start();
    becomes(&nginx, &b1, "unhealthy");
    becomes(&nginx, &b2, "unhealthy");
    let report = hit(nginx.web(), "/", 20);
    report.all_ok();
    assert_eq!(report.backend("b1"), 10);
    nginx.api().verb("app", &b1, "down");
    let report = hit(nginx.web(), "/", 20);
    assert_eq!(report.backend("b2"), 20);
    check(&nginx, json!({ "on_all_down": "refuse" }));
    assert_eq!(hit(nginx.web(), "/", 10).status(502), 10);
    check(&nginx, Value::Null);
    hit(nginx.web(), "/", 10).all_ok();
}

#[test]
fn a_new_server_is_checked_at_once_and_a_mandatory_one_waits_for_its_pass() {
    let (b1, b2, conf) = two("peerage_check interval=20s timeout=1s mandatory;");
    let nginx = conf.start();
    becomes(&nginx, &b1, "up");
    becomes(&nginx, &b2, "up");
    let (b3, b4) = (Backend::new("b3"), Backend::new("b4"));
    b3.mode(Mode::Hold);
    let began = Instant::now();
    for b in [&b3, &b4] {
        nginx.api().ok("PUT", &format!("upstreams/app/servers/{b}"), Some(&json!({})));
    }
    becomes(&nginx, &b4, "up");
    assert!(began.elapsed() < secs(3), "long before the next interval");
    assert_eq!(state(&nginx, &b3), "checking");
    let report = hit(nginx.web(), "/", 30);
    report.all_ok();
    assert_eq!((report.backend("b3"), report.backend("b4")), (0, 10));
    b3.mode(Mode::Serve);
    b3.release();
    let _ = state(&nginx, &b3);
}

#[test]
fn a_change_of_one_server_or_of_weights_leaves_the_verdicts() {
    let (b1, b2, conf) = two("peerage_check interval=100ms;");
    let nginx = conf.start();
    becomes(&nginx, &b2, "up");
    b1.mode(Mode::Status(500));
    becomes(&nginx, &b1, "unhealthy");
    let b3 = Backend::new("b3");
    let api = nginx.api();
    let report = || {
        let report = hit(nginx.web(), "/", 12);
        report.all_ok();
        assert_eq!(report.backend("b1"), 0);
    };
    api.ok("PUT", &format!("upstreams/app/servers/{b3}"), Some(&json!({})));
    report();
    api.ok("PATCH", &format!("upstreams/app/servers/{b1}"), Some(&json!({ "weight": 9 })));
    report();
    assert_eq!(state(&nginx, &b1), "unhealthy");
    api.ok("DELETE", &format!("upstreams/app/servers/{b3}"), None);
    report();
    check(&nginx, json!({ "interval": "150ms" }));
    report();
    api.verb("app", &b1, "down");
    api.verb("app", &b1, "up");
    report();
    assert_eq!(state(&nginx, &b2), "up");
    b1.mode(Mode::Serve);
    becomes(&nginx, &b1, "up");
}

#[test]
fn a_check_comes_changes_and_goes_while_nginx_runs() {
    let (b1, b2, conf) = two("");
    let nginx = conf.start();
    assert_eq!(b1.requests(), 0);
    check(&nginx, json!({ "interval": "100ms", "uri": "/status/500" }));
    becomes(&nginx, &b1, "unhealthy");
    // Another question begins anew.
    check(&nginx, json!({ "uri": "/" }));
    becomes(&nginx, &b1, "up");
    b1.record();
    check(&nginx, json!({ "uri": "/health?x=1", "host": "example.test" }));
    let hit =
        eventually(secs(3), || b1.hits().into_iter().find(|hit| hit.target() == "/health?x=1"));
    assert_eq!(hit.header("host"), Some("example.test"));
    assert_eq!(hit.header("user-agent"), Some("peerage/0.1.0 (health check)"));
    check(&nginx, Value::Null);
    let last = std::cell::Cell::new((b1.requests(), b2.requests()));
    eventually(secs(3), || {
        let before = last.replace((b1.requests(), b2.requests()));
        let_pass(ms(250));
        before == (b1.requests(), b2.requests())
    });
}

#[test]
fn one_that_is_down_is_not_probed_and_a_draining_one_is() {
    let (b1, b2, conf) = two("peerage_check interval=100ms;");
    let nginx = conf.start();
    becomes(&nginx, &b1, "up");
    nginx.api().verb("app", &b1, "down");
    nginx.api().verb("app", &b2, "drain");
    eventually(secs(3), || {
        let before = b1.requests();
        let_pass(ms(300));
        before == b1.requests()
    });
    let before = b2.requests();
    eventually(secs(3), || b2.requests() > before + 2);
    b1.mode(Mode::Status(500));
    nginx.api().verb("app", &b1, "up");
    becomes(&nginx, &b1, "unhealthy");
}

#[test]
fn verdicts_outlive_reloads_and_there_is_no_moment_without_a_server() {
    let (b1, b2, conf) = two("peerage_check interval=300ms on_all_down=refuse;");
    let mut nginx = conf.start();
    b1.mode(Mode::Status(500));
    becomes(&nginx, &b1, "unhealthy");
    becomes(&nginx, &b2, "up");
    let load = Load::to(nginx.web()).threads(2).rate(300).start();
    for _ in 0..scale(5, 20) {
        nginx.reload();
        assert_eq!((state(&nginx, &b1), state(&nginx, &b2)), ("unhealthy".into(), "up".into()));
    }
    let report = load.stop();
    report.all_ok();
    assert_eq!(report.backend("b1"), 0, "{report:?}");
}

#[test]
fn a_restart_begins_with_the_check_of_the_file_and_without_verdicts() {
    let (b1, b2, conf) = two("");
    let mut nginx = conf.start();
    check(&nginx, json!({ "interval": "100ms" }));
    b1.mode(Mode::Status(500));
    becomes(&nginx, &b1, "unhealthy");
    nginx.restart();
    becomes(&nginx, &b1, "unhealthy");
    assert_eq!(state(&nginx, &b2), "up");
}

#[test]
fn a_server_is_probed_when_that_is_asked_for() {
    let (b1, b2, conf) = two("peerage_check interval=30s timeout=1s fails=2 passes=1;");
    let nginx = conf.start();
    eventually(secs(3), || b1.requests() == 1 && b2.requests() == 1);
    let api = nginx.api();
    let path = format!("upstreams/app/servers/{b1}/check");
    let ask = || {
        let (status, seen) = api.post(&path);
        assert_eq!(status, 200, "{seen}");
        seen["peers"][0]["check"].clone()
    };
    b1.mode(Mode::Status(500));
    assert_eq!((&ask()["verdict"], b1.requests()), (&json!("healthy"), 2));
    let seen = ask();
    assert_eq!((&seen["verdict"], &seen["in_a_row"]), (&json!("unhealthy"), &json!(2)), "{seen}");
    assert_eq!(seen["failure"], json!({ "code": "status", "text": "status 500" }));
    assert_eq!(hit(nginx.web(), "/", 10).backend("b2"), 10);
    // One that is down can be asked before it is taken up.
    api.verb("app", &b1, "down");
    b1.mode(Mode::Serve);
    assert_eq!(ask()["verdict"], "healthy");
    api.verb("app", &b1, "up");
    assert_eq!(hit(nginx.web(), "/", 10).backend("b1"), 5);
    check(&nginx, Value::Null);
    let (status, problem) = api.post(&path);
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:no-check")), "{problem}");
    let (status, _) = api.post("upstreams/app/servers/10.9.9.9:1/check");
    assert_eq!(status, 404);
    let (status, _) = api.post("upstreams/none/servers/10.9.9.9:1/check");
    assert_eq!(status, 404);
}

#[test]
fn taking_a_server_up_waits_for_its_pass() {
    let (b1, _b2, conf) = two("peerage_check interval=200ms;");
    let nginx = conf.start();
    becomes(&nginx, &b1, "up");
    let api = nginx.api();
    api.verb("app", &b1, "down");
    b1.mode(Mode::Status(503));
    let (status, problem) = api.verb("app", &b1, "up?wait=600ms");
    assert_eq!(status, 504, "{problem}");
    b1.mode(Mode::Serve);
    let (status, answer) = api.verb("app", &b1, "up?wait=5s");
    assert_eq!((status, &answer["server"]["state"]), (200, &json!("up")), "{answer}");
}

#[test]
fn turns_are_told_as_events_and_in_the_log() {
    let (b1, _b2, conf) = two("peerage_check interval=100ms;");
    let nginx = conf.start();
    becomes(&nginx, &b1, "up");
    let since = nginx.api().get("zones/main").1["seq"].as_u64().unwrap_or(0);
    b1.mode(Mode::Status(500));
    becomes(&nginx, &b1, "unhealthy");
    b1.mode(Mode::Serve);
    becomes(&nginx, &b1, "up");
    let told = eventually(secs(3), || {
        let (_, all) = nginx.api().get(&format!("events?since={since}&wait=0s"));
        let all = all["events"].as_array().cloned().unwrap_or_default();
        let health: Vec<Value> = all.into_iter().filter(|e| e["kind"] == "health").collect();
        (health.len() >= 2).then_some(health)
    });
    let turn =
        |e: &Value| (e["from"].clone(), e["to"].clone(), e["by"].clone(), e["reason"].clone());
    let words =
        |from: &str, to: &str, why: &str| (json!(from), json!(to), json!("check"), json!(why));
    assert_eq!(turn(&told[0]), words("up", "unhealthy", "status 500"));
    assert_eq!(turn(&told[1]), words("unhealthy", "up", ""));
    assert_eq!(told[0]["server"], b1.addr());
}

#[test]
fn another_check_is_asked_at_once_and_who_comes_back_is_late_for_nothing() {
    let (b1, b2, conf) = two("peerage_check interval=1s timeout=200ms;");
    let conf = conf.http_more("server { listen {metrics}; location / { peerage_metrics; } }");
    let nginx = conf.port("metrics").start();
    let late = || {
        let text = get(nginx.addr("metrics"), "/").unwrap().text();
        let line = text.lines().find(|line| line.starts_with("peerage_checks_late_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap()
    };
    eventually(secs(3), || b1.requests() > 1 && b2.requests() > 1);
    let before = late();
    for _ in 0..4 {
        nginx.api().verb("app", &b1, "down");
        let_pass(ms(1_500));
        let probes = b1.requests();
        nginx.api().verb("app", &b1, "up");
        eventually(ms(900), || b1.requests() > probes);
    }
    // A busy machine may make one or two of the others late.
    assert!(late() - before < 4, "{} late", late() - before);

    check(&nginx, json!({ "interval": "1h", "uri": "/a" }));
    for (i, uri) in ["/b", "/c", "/b"].into_iter().enumerate() {
        let probes = b1.requests();
        if i > 0 {
            check(&nginx, json!({ "uri": uri }));
        }
        eventually(secs(3), || b1.requests() > probes);
    }
    let probes = b1.requests();
    check(&nginx, Value::Null);
    check(&nginx, json!({ "interval": "1h", "uri": "/b" }));
    eventually(secs(3), || b1.requests() > probes);
}
