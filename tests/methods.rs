//! Methods other than round robin over several workers: shares, newcomers, limits, and a method
//! that changes while requests come. What keys decide is in `hashing`.

mod support;

use support::*;

const ALL: [&str; 9] = [
    "round_robin",
    "least_conn",
    "random",
    "random two",
    "hash",
    "hash consistent",
    "ip_hash",
    "least_time header",
    "least_time last_byte",
];

fn text(directives: &str) -> String {
    format!(
        "peerage_zone main 1m state={{prefix}}/main.json;
         upstream app {{ peerage main; peerage_hash_key $arg_key; {directives} }}
         server {{
             listen {{web}};
             add_header X-Error $peerage_error always;
             location / {{ proxy_pass http://app; }}
         }}"
    )
}

fn app(directives: &str, backends: &[Backend]) -> Conf {
    let conf = Nginx::builder().http(text(directives)).with_api("write=on");
    backends.iter().fold(conf, |conf, b| conf.set(&b.name(), b))
}

fn list(backends: &[Backend]) -> Value {
    let servers: Vec<Value> =
        backends.iter().map(|b| json!({"server": b.addr(), "max_fails": 0})).collect();
    json!({ "servers": servers })
}

/// Begins a request that stays until its backend is released; which one took it.
fn hold(nginx: &Nginx, backends: &[Backend], held: &mut Vec<Conn>) -> usize {
    let before: Vec<usize> = backends.iter().map(Backend::held).collect();
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.begin(&Request::get("/hold")).unwrap();
    held.push(conn);
    eventually(secs(10), || (0..backends.len()).find(|&i| backends[i].held() > before[i]))
}

fn let_go(backends: &[Backend], held: Vec<Conn>) {
    backends.iter().for_each(Backend::release);
    for mut conn in held {
        assert_eq!(conn.reply().unwrap().status, 200);
    }
}

/// CASE 12.
#[test]
fn a_newcomer_is_not_flooded_by_least_conn() {
    let b = Backend::several(6);
    let servers = "server {b1}; server {b2}; server {b3}; server {b4}; server {b5};";
    let directives = format!("peerage_method least_conn; {servers}");
    let nginx = app(&directives, &b).workers(4).start();
    let mut held = Vec::new();
    for _ in 0..30 {
        hold(&nginx, &b, &mut held);
    }
    assert!(b[..5].iter().all(|b| b.held() == 6), "{:?}", b.iter().map(Backend::held));
    nginx.api().ok("PUT", &format!("upstreams/app/servers/{}", b[5]), Some(&json!({})));
    for _ in 0..6 {
        hold(&nginx, &b, &mut held);
    }
    let taken = b[5].held();
    assert!(taken <= 3, "{taken} of 6 requests");
    // Once it is no newcomer any more, it comes up to the others.
    eventually(secs(40), || {
        if b[5].held() < 6 {
            hold(&nginx, &b, &mut held);
            // The next one a little later: it is time that lets it come up.
            let_pass(ms(300));
        }
        b[5].held() >= 6
    });
    let_go(&b, held);
}

/// CASE 13.
#[test]
fn shares_follow_a_weight_by_random_and_by_least_conn() {
    let b = Backend::several(3);
    for method in ["random", "random two", "least_conn"] {
        let directives =
            format!("peerage_method {method}; server {{b1}}; server {{b2}}; server {{b3}};");
        let nginx = app(&directives, &b).workers(4).start();
        let path = format!("upstreams/app/servers/{}", b[0]);
        for weight in [5, 1, 100, 1, 0, 5] {
            nginx.api().ok("PATCH", &path, Some(&json!({ "weight": weight })));
            let report = hit(nginx.web(), "/", 600);
            report.all_ok();
            let wanted = match method {
                // Idle, the second of two is chosen: over the weights, without the first.
                "random two" => continue,
                _ => 600 * weight / (weight + 2),
            };
            let got = report.backend("b1") as usize;
            // Chance is off by three times the root of its variance now and then.
            let slack = match (weight, method) {
                (0, _) => 0,
                (_, "random") => 50,
                _ => 31,
            };
            assert!(got.abs_diff(wanted) <= slack, "{method} {weight}: {got}, not {wanted}");
        }
    }
}

/// CASE 10 and 11, of methods that do not go by keys.
#[test]
fn an_equal_update_changes_nothing_and_a_replaced_set_is_used_evenly_at_once() {
    let b = Backend::several(11);
    for method in ["least_conn", "random", "random two"] {
        let directives = format!("peerage_method {method}; server {{b11}};");
        let nginx = app(&directives, &b).workers(8).start();
        let api = nginx.api();
        let mut body = list(&b[..10]);
        body["method"] = json!(method);
        let revision = api.ok("PUT", "upstreams/app", Some(&body))["revision"].clone();
        let report = hit(nginx.web(), "/", 160);
        report.all_ok();
        let shares: Vec<u64> = b[..10].iter().map(|b| report.backend(&b.name())).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        let fair = if method == "least_conn" { most * 2 <= least * 3 } else { *most <= 40 };
        assert!(fair, "{method}: {shares:?}");
        let load = Load::to(nginx.web()).threads(2).rate(200).start();
        eventually(secs(30), || {
            let answer = api.ok("PUT", "upstreams/app", Some(&body));
            assert_eq!((&answer["changed"], &answer["revision"]), (&json!(false), &revision));
            load.total() >= 200
        });
        load.stop().all_ok();
    }
}

#[test]
fn a_method_set_at_run_time_acts_in_every_worker_from_the_answer_on() {
    let b = Backend::several(4);
    let mut nginx =
        app("server {b1}; server {b2}; server {b3}; server {b4};", &b).workers(4).start();
    let mut seen = Vec::new();
    for method in ["hash", "round_robin", "hash consistent", "random", "ip_hash", "least_conn"] {
        let body = json!({ "method": method });
        assert_eq!(nginx.api().ok("PATCH", "upstreams/app", Some(&body))["changed"], true);
        let report = hit(nginx.web(), "/?key=one", 60);
        report.all_ok();
        assert_eq!(nginx.api().upstream("app")["method"], method);
        seen.push((method, report.backends.len()));
    }
    let spread: Vec<usize> = seen.iter().map(|&(_, spread)| spread).collect();
    assert_eq!(spread, [1, 4, 1, 4, 1, 4], "{seen:?}");
    // It was set at run time: reloads and restarts keep it.
    for _ in 0..2 {
        nginx.api().ok("PATCH", "upstreams/app", Some(&json!({"method": "hash consistent"})));
        nginx.reload();
        assert_eq!(hit(nginx.web(), "/?key=one", 20).backends.len(), 1);
        nginx.restart();
        assert_eq!(hit(nginx.web(), "/?key=one", 20).backends.len(), 1);
    }
    // What the file says anew holds.
    nginx.change(|conf| {
        let servers = "server {b1}; server {b2}; server {b3}; server {b4};";
        let with = format!("peerage_method random two least_conn; {servers}");
        conf.http(text(&with)).with_api("write=on")
    });
    nginx.reload();
    assert_eq!(nginx.api().upstream("app")["method"], "random two");
    assert!(hit(nginx.web(), "/?key=one", 60).backends.len() > 1);
}

#[test]
fn every_method_keeps_max_conns_over_all_workers() {
    let b = Backend::several(3);
    for method in ALL {
        let servers = "server {b1} max_conns=2; server {b2} max_conns=2; server {b3} max_conns=2;";
        let directives = format!("peerage_method {method}; {servers}");
        let nginx = app(&directives, &b).workers(4).start();
        let mut conns: Vec<Conn> = (0..24).map(|_| Conn::open(nginx.web()).unwrap()).collect();
        for conn in &mut conns {
            conn.begin(&Request::get("/hold?key=one")).unwrap();
        }
        let held = || b.iter().map(Backend::held).sum::<usize>();
        eventually(secs(10), || held() == 6);
        assert!(b.iter().all(|b| b.held() == 2 && b.max_active() <= 2), "{method}");
        // The others were told so.
        let mut refused = 0;
        for conn in &mut conns {
            if !conn.silent_for(ms(20)) {
                assert_eq!(conn.reply().unwrap().status, 502, "{method}");
                refused += 1;
            }
        }
        assert_eq!(refused, 18, "{method}");
        b.iter().for_each(Backend::release);
        eventually(secs(10), || held() == 0);
        let server = || nginx.api().upstream("app")["servers"].clone();
        eventually(secs(10), || server().as_array().unwrap().iter().all(|s| s["active"] == 0));
        b.iter().for_each(Backend::forget_most);
    }
}

#[test]
fn least_time_leaves_a_slow_server_alone() {
    let b = Backend::several(3);
    for method in ["least_time header", "least_time last_byte"] {
        let directives =
            format!("peerage_method {method}; server {{b1}}; server {{b2}}; server {{b3}};");
        let nginx = app(&directives, &b).workers(2).start();
        b[1].mode(Mode::Slow(ms(100)));
        let report = hit(nginx.web(), "/", 200);
        report.all_ok();
        assert!(report.backend("b2") <= 4, "{method}: {:?}", report.backends);
        b[1].mode(Mode::Serve);
    }
}

#[test]
fn a_server_ramps_up_over_slow_start_and_says_so() {
    let b = Backend::several(3);
    let servers = "peerage_server {b1}; peerage_server {b2};";
    for method in ["round_robin", "least_conn"] {
        let directives =
            format!("peerage_method {method}; peerage_defaults slow_start=6s; {servers}");
        let nginx = app(&directives, &b).workers(4).start();
        let api = nginx.api();
        assert_eq!(api.server("app", &b[0])["why"], Value::Null, "the whole set is new");
        let path = format!("upstreams/app/servers/{}", b[2]);
        api.ok("PUT", &path, Some(&json!({})));
        let shown = api.server("app", &b[2]);
        assert_eq!((&shown["state"], &shown["slow_start"]), (&json!("up"), &json!("6s")));
        let why = json!({"code": "slow_start", "text": "ramping up over slow_start=6s"});
        assert_eq!(shown["why"], why);
        let first = hit(nginx.web(), "/", 60);
        first.all_ok();
        assert!(first.backend("b3") <= 8, "{method}: {:?}", first.backends);
        eventually(secs(20), || api.server("app", &b[2])["why"] == Value::Null);
        let after = hit(nginx.web(), "/", 60);
        assert!(after.backend("b3").abs_diff(20) <= 1, "{method}: {:?}", after.backends);
        // Up again, it ramps up again; alone, it serves all the same.
        api.verb("app", &b[2], "down");
        api.verb("app", &b[2], "up");
        assert_eq!(api.server("app", &b[2])["why"]["code"], "slow_start");
        api.verb("app", &b[0], "down");
        api.verb("app", &b[1], "down");
        let alone = hit(nginx.web(), "/", 20);
        alone.all_ok();
        assert_eq!(alone.backend("b3"), 20);
    }
}
