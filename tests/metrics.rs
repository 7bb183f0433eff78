//! The page of metrics: its numbers are those that a client, the backends, and nginx's own log
//! counted; both formats are what their readers take.

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use support::*;

const PAGE: &str = "server { listen {api}; location /api { peerage_api write=on; }
    location /metrics { peerage_metrics; } location /short { peerage_metrics servers=off; } }";

fn page(nginx: &Nginx) -> Exposition {
    Exposition::of(&scrape(nginx.addr("api"), "/metrics", ""))
}

#[test]
fn numbers_are_what_a_client_counted_over_four_workers_and_a_reload() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = Nginx::builder()
        .workers(4)
        .http(format!(
            "peerage_zone main 1m;
             log_format times '$status $upstream_response_time';
             upstream app {{
                 peerage main; server {{b1}} max_fails=0; server {{b2}} max_fails=0;
             }}
             server {{
                 listen {{web}}; access_log {{prefix}}/logs/access.log times;
                 location / {{ proxy_pass http://app; proxy_next_upstream off; }}
             }} {PAGE}"
        ))
        .set("b1", &b1)
        .set("b2", &b2)
        .start();
    let paths = ["/", "/status/404", "/status/503", "/close", "/slow?ms=3", "/download?kb=3"];
    let load = paths.iter().fold(Load::to(nginx.web()).threads(4), |load, path| load.path(path));
    let load = load.start();
    let total = scale(10_000, 100_000);
    eventually(secs(120), || load.total() >= total / 2);
    let before = page(&nginx);
    nginx.reload();
    eventually(secs(120), || load.total() >= total);
    let report = load.stop();
    assert!(report.errors.is_empty(), "{:?}", report.errors);

    let shown = eventually(secs(5), || {
        let shown = page(&nginx);
        let all = shown.sum("peerage_upstream_server_requests_total", &[("upstream", "app")]);
        (all == report.total as f64).then_some(shown)
    });
    let name = |name: &str| format!("peerage_upstream_server_{name}");
    for (server, backend) in [(b1.addr(), &b1), (b2.addr(), &b2)] {
        let of = [("zone", "main"), ("upstream", "app"), ("server", &*server)];
        assert_eq!(shown.one(&name("requests_total"), &of), backend.requests() as f64);
        let answered = shown.sum(&name("responses_total"), &of);
        assert_eq!(answered + shown.one(&name("fails_total"), &of), backend.requests() as f64);
        for what in ["unavail_total", "active", "max_conns"] {
            assert_eq!(shown.one(&name(what), &of), 0.0, "{what}");
        }
        assert_eq!(shown.one(&name("weight"), &of), 1.0);
        let seconds = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let chosen = shown.one(&name("selected_seconds"), &of);
        assert!((seconds - 60.0..=seconds).contains(&chosen), "{chosen}");
        assert!(shown.one(&name("sent_bytes_total"), &of) > backend.requests() as f64 * 20.0);
    }
    assert_eq!(shown.sum(&name("fails_total"), &[]), report.status(502) as f64);
    for code in ["200", "404", "503"] {
        let of = [("code", code)];
        let count = report.status(code.parse().unwrap());
        assert_eq!(shown.sum(&name("responses_total"), &of), count as f64, "{code}");
    }
    assert!(shown.sum(&name("received_bytes_total"), &[]) > report.total as f64 / 6.0 * 3072.0);

    let log = eventually(secs(5), || {
        let log = nginx.log("access.log");
        (log.lines().count() as u64 == report.total).then_some(log)
    });
    let times: Vec<u64> = log
        .lines()
        .filter_map(|line| line.split_once(' '))
        // What a backend closed without an answer is no response.
        .filter(|(status, _)| *status != "502")
        .map(|(_, time)| (time.parse::<f64>().unwrap() * 1000.0).round() as u64)
        .collect();
    let histogram = "peerage_upstream_response_time_seconds";
    let of = [("zone", "main"), ("upstream", "app")];
    assert_eq!(shown.one(&format!("{histogram}_count"), &of), times.len() as f64);
    let sum = shown.one(&format!("{histogram}_sum"), &of);
    assert_eq!((sum * 1000.0).round() as u64, times.iter().sum::<u64>());
    for (bound, ms) in [("0.001", 1), ("0.005", 5), ("0.1", 100), ("10.0", 10_000)] {
        let within = times.iter().filter(|&&time| time <= ms).count();
        let of = [of[0], of[1], ("le", bound)];
        assert_eq!(shown.one(&format!("{histogram}_bucket"), &of), within as f64, "{bound}");
    }

    for family in shown.names().into_iter().filter(|family| family.ends_with("_total")) {
        let earlier: BTreeMap<_, _> = before.all(family).into_iter().collect();
        for (labels, value) in shown.all(family) {
            assert!(earlier.get(labels).is_none_or(|&was| value >= was), "{family} {labels:?}");
        }
    }
}

#[test]
fn labels_hold_whatever_names_hold_and_the_tools_of_prometheus_take_both_formats() {
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 1m state={{prefix}}/main.json; peerage_zone other 1m;
             upstream app {{ peerage main; server 10.9.9.1:8080 weight=3 max_conns=7; }}
             upstream off {{ peerage other; server 10.9.9.1:8080 down; }} {PAGE}"
        ))
        .start();
    let api = Api::new(nginx.addr("api"), "/api/v1");
    let path = r#"unix:/run/a "b" \n \c {d},e=é.sock"#;
    let name = "a.b_c~d:e@f-g";
    let servers = json!([{"server": path}, {"server": "[::1]:80"}]);
    api.ok("PUT", &format!("upstreams/{name}?zone=main"), Some(&json!({"servers": servers})));

    let plain = scrape(nginx.addr("api"), "/metrics", "");
    let open = scrape(nginx.addr("api"), "/metrics", OPENMETRICS);
    for reply in [&plain, &open] {
        assert_eq!(reply.header("vary"), Some("Accept"));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let shown = Exposition::of(reply);
        for server in [path, "[::1]:80"] {
            let of = [("zone", "main"), ("upstream", name), ("server", server)];
            assert_eq!(shown.one("peerage_upstream_server_weight", &of), 1.0);
        }
        let of = [("zone", "main"), ("upstream", "app"), ("server", "10.9.9.1:8080")];
        assert_eq!(shown.one("peerage_upstream_server_weight", &of), 3.0);
        assert_eq!(shown.one("peerage_upstream_server_max_conns", &of), 7.0);
        assert_eq!(shown.one("peerage_upstream_eligible", &[("upstream", "off")]), 0.0);
        assert_eq!(shown.all("peerage_revision").len(), 2);
        // Only one of them writes a state file.
        assert_eq!(shown.all("peerage_state_errors_total").len(), 1);
        let root = api.ok("GET", "", None);
        let of = [
            ("version", root["version"].as_str().unwrap()),
            ("build", root["build"].as_str().unwrap()),
        ];
        assert_eq!(shown.one("peerage_build_info", &of), 1.0);
    }

    let mut check = Command::new(promtool().join("promtool"));
    assert_eq!(said_of(check.args(["check", "metrics"]), &plain.body), "");
    let script = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
        families = list(read(sys.stdin.read()))\n\
        print(len(families), sum(len(family.samples) for family in families))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).env("PYTHONPATH", promtool().join("python"));
    let said = said_of(&mut python, &open.body);
    let samples = open.text().lines().filter(|line| !line.starts_with('#')).count();
    let families = Exposition::of(&open).names().len();
    assert_eq!(said, format!("{families} {samples}\n"), "Prometheus's reader of OpenMetrics");
}

#[test]
fn the_page_is_read_in_any_location_and_only_read() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m; upstream app { peerage main; server 10.9.9.1:8080; }
             server { listen {api};
                 location = /metrics { peerage_metrics; }
                 location ~ ^/of/.*$ { peerage_metrics servers=on; }
                 location /short/ { peerage_metrics servers=off; }
                 location /some { limit_except GET { deny all; } peerage_metrics; }
                 location /try { try_files /none @named; }
                 location @named { peerage_metrics; }
                 location /closed { deny all; peerage_metrics; }
             }",
        )
        .start();
    let addr = nginx.addr("api");
    for path in ["/metrics", "/metrics?x=y", "/of/mine", "/some", "/try"] {
        let shown = Exposition::of(&scrape(addr, path, OPENMETRICS));
        assert_eq!(shown.one("peerage_upstream_eligible", &[("upstream", "app")]), 1.0, "{path}");
        assert_eq!(shown.all("peerage_upstream_server_weight").len(), 1, "{path}");
    }
    let short = scrape(addr, "/short/", "");
    let shown = Exposition::of(&short);
    assert!(!short.text().contains("peerage_upstream_server_"), "{}", short.text());
    assert_eq!(shown.one("peerage_upstream_eligible", &[("upstream", "app")]), 1.0);
    assert_eq!(shown.all("peerage_upstream_response_time_seconds_count").len(), 1);

    let mut conn = Conn::open(addr).unwrap();
    for (method, status) in [("POST", 405), ("DELETE", 405), ("PUT", 405), ("OPTIONS", 405)] {
        let request = Request::new(method, "/metrics").body("x".repeat(5_000));
        let reply = conn.send(&request).unwrap();
        assert_eq!((reply.status, reply.header("allow")), (status, Some("GET, HEAD")), "{method}");
    }
    conn.begin(&Request::new("HEAD", "/metrics")).unwrap();
    let head = conn.head().unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    // The connection is still in step.
    assert_eq!(conn.send(&Request::get("/metrics")).unwrap().status, 200);
    assert_eq!(scrape(addr, "/closed", "").status, 403);
    assert_eq!(Request::post("/some").send(addr).unwrap().status, 403);
}

#[test]
fn states_and_their_times_are_what_operators_and_requests_made_of_servers() {
    let (b1, b2) = (Backend::new("b1"), Backend::refusing("b2"));
    let nginx = Nginx::builder()
        .workers(2)
        .http(format!(
            "peerage_zone main 1m;
             upstream app {{
                 peerage main; server {{b1}}; server {{b2}} fail_timeout=1h;
                 server 10.9.9.3:80; server 10.9.9.4:80; server 10.9.9.5:80 down;
             }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }} {PAGE}"
        ))
        .set("b1", &b1)
        .set("b2", &b2)
        .start();
    let api = Api::new(nginx.addr("api"), "/api/v1");
    api.verb("app", "10.9.9.3:80", "drain");
    api.ok("POST", "hosts/10.9.9.4/down", None);
    for _ in 0..4 {
        assert_eq!(nginx.get("/").status, 200);
    }
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/hold")).unwrap();
    eventually(secs(5), || b1.held() == 1);

    let shown = page(&nginx);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let b2 = b2.addr();
    for (server, state, since) in [
        (&*b1.addr(), "up", false),
        (&b2, "unavail", false),
        ("10.9.9.3:80", "draining", true),
        ("10.9.9.4:80", "down", true),
        ("10.9.9.5:80", "down", true),
    ] {
        let of = [("server", server), ("state", state)];
        assert_eq!(shown.one("peerage_upstream_server_state", &of), 1.0, "{server}");
        assert_eq!(shown.sum("peerage_upstream_server_state", &of[..1]), 1.0, "{server}");
        let told = shown.with("peerage_upstream_server_admin_since_seconds", &of[..1]);
        assert_eq!(told.len(), usize::from(since), "{server}");
        assert!(told.iter().all(|&at| (now - 60.0..=now).contains(&at)), "{told:?} {now}");
    }
    assert_eq!(shown.one("peerage_upstream_server_active", &[("server", &b1.addr())]), 1.0);
    assert_eq!(shown.one("peerage_upstream_server_unavail_total", &[("server", &b2)]), 1.0);
    assert_eq!(shown.one("peerage_upstream_server_fails_total", &[("server", &b2)]), 1.0);
    assert_eq!(api.upstream("app")["eligible"], 1);
    assert_eq!(shown.one("peerage_upstream_eligible", &[]), 1.0);
    let revision = api.ok("GET", "", None)["revision"].as_f64().unwrap();
    assert_eq!(shown.one("peerage_revision", &[("zone", "main")]), revision);
    b1.release();
    assert_eq!(held.reply().unwrap().status, 200);
}

#[test]
fn a_zone_tells_its_bytes_and_what_found_no_room() {
    let nginx =
        Nginx::builder().http(format!("peerage_zone main 256k; {PAGE}")).allow("is full").start();
    let api = Api::new(nginx.addr("api"), "/api/v1");
    let servers: Vec<Value> =
        (0..50).map(|i| json!({"server": format!("10.9.9.{i}:80")})).collect();
    let body = json!({ "servers": servers });
    let refused = (0..1000).map(|i| api.put(&format!("upstreams/u{i}"), &body).0 == 507);
    let refused = refused.take(100).filter(|refused| *refused).count();
    let (shown, report) = (page(&nginx), api.ok("GET", "zones/main", None));
    assert!(refused > 0);
    assert_eq!(shown.one("peerage_zone_no_room_total", &[]), refused as f64);
    for kind in ["total", "used", "free", "reserved", "largest"] {
        let bytes = shown.one("peerage_zone_bytes", &[("zone", "main"), ("kind", kind)]);
        assert_eq!(bytes, report["bytes"][kind].as_f64().unwrap(), "{kind}");
    }
}

#[test]
fn a_disk_that_fails_is_told_by_a_lag_that_grows_until_it_is_back() {
    let conf = Nginx::builder().workers(2).allow("write failed");
    let conf = conf.http(format!("peerage_zone main 1m state={{prefix}}/state/main.json; {PAGE}"));
    let (conf, disk) = Disk::of(conf);
    std::fs::create_dir(disk.directory()).unwrap();
    std::fs::set_permissions(disk.directory(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .unwrap();
    let mut nginx = conf.start();
    let api = Api::new(nginx.addr("api"), "/api/v1");
    let lag = |nginx: &Nginx| page(nginx).one("peerage_state_lag_seconds", &[("zone", "main")]);
    eventually(secs(10), || lag(&nginx) == 0.0);
    assert_eq!(page(&nginx).one("peerage_state_errors_total", &[]), 0.0);
    disk.set(Fault::Full, 1);
    api.ok("PUT", "upstreams/app", Some(&json!({"servers": []})));
    let first = eventually(secs(10), || Some(lag(&nginx)).filter(|&lag| lag > 0.5));
    assert!(first < 5.0, "{first}");
    eventually(secs(10), || page(&nginx).one("peerage_state_errors_total", &[]) > 0.0);
    // Workers of the next generation know since when.
    nginx.reload();
    eventually(secs(10), || lag(&nginx) > first + 1.0);
    disk.set(Fault::Full, 0);
    eventually(secs(15), || lag(&nginx) == 0.0);
}

#[test]
fn a_worker_of_before_a_change_of_size_shows_no_figures_that_went_on_elsewhere() {
    let mut b = Backend::new("b1");
    let conf = |size: &str| {
        format!(
            "peerage_zone main {size}; upstream app {{ peerage main; server {{b1}}; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }} {PAGE}"
        )
    };
    let mut nginx = Nginx::builder().http(conf("1m")).set("b1", &b).start();
    hit(nginx.web(), "/", 3).all_ok();
    // The old worker is about to be asked while a request holds it, which ends after its last
    // figures have moved.
    let mut held = Conn::open(nginx.web()).unwrap();
    b.mode(Mode::Hold);
    held.begin(&Request::get("/")).unwrap();
    eventually(secs(5), || b.held() == 1);
    let mut old = Conn::open(nginx.addr("api")).unwrap();
    assert_eq!(old.send(&Request::get("/metrics")).unwrap().status, 200);
    let head = b"GET /metrics HTTP/1.1\r\nHost: a\r\n";
    old.write(head).unwrap();
    let requests = |nginx: &Nginx| page(nginx).one("peerage_upstream_server_requests_total", &[]);
    nginx.change(|c| c.http(conf("2m")));
    nginx.reload();
    assert_eq!(requests(&nginx), 3.0);
    b.release();
    assert_eq!(held.reply().unwrap().status, 200);
    old.write(b"\r\n").unwrap();
    let reply = old.reply().unwrap();
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.json()["type"], "urn:peerage:moving");
    assert!(reply.header("retry-after").is_some());
    b.stop();
}

#[test]
fn a_panic_while_a_page_is_asked_for_is_an_error_and_the_worker_lives() {
    let nginx = Nginx::faulty()
        .http(format!("peerage_zone main 1m; {PAGE}"))
        .allow("peerage: panic in ")
        .start();
    let worker = nginx.worker_pids();
    let panic = Request::get("/metrics").header("Peerage-Panic", "metrics");
    assert_eq!(panic.send(nginx.addr("api")).unwrap().status, 500);
    assert_eq!(page(&nginx).all("peerage_revision").len(), 1);
    assert_eq!(nginx.worker_pids(), worker);
}
