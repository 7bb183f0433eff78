//! Requests that nginx makes of other requests: subrequests, mirrors, redirects, background
//! updates. Each chooses and gives back by itself.

mod support;

use support::*;

const ALL: &str = "
    peerage_zone main 1m;
    proxy_cache_path {prefix}/cache keys_zone=cache:1m inactive=1h;
    log_format tried '$uri $status [$upstream_addr] [$peerage_upstream] [$peerage_server]';
    upstream app { peerage main; server {b1}; keepalive 4; }
    upstream other { peerage main; server {b2}; keepalive 4; }
    upstream named { peerage main name=$arg_u; }
    upstream dead { peerage main; peerage_server 127.0.0.1:9 down; }
    server {
        listen {web};
        access_log {prefix}/logs/access.log tried;
        location /checked { auth_request /auth; proxy_pass http://app; }
        location = /auth { internal; proxy_pass http://other/ok; }
        location /mirrored { mirror /mirror; proxy_pass http://app; }
        location = /mirror { internal; proxy_pass http://other; }
        location /fallback {
            proxy_pass http://dead;
            error_page 502 = @second;
        }
        location @second { proxy_pass http://other; }
        location /intercepted {
            proxy_intercept_errors on;
            proxy_pass http://app;
            error_page 503 = @named;
        }
        location @named { proxy_pass http://named; }
        location /cached {
            proxy_cache cache;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1s;
            proxy_cache_use_stale updating error;
            proxy_cache_background_update on;
            proxy_pass http://app;
        }
        location /ssi { ssi on; ssi_types *; proxy_pass http://app; }
    }";

fn all(b1: &Backend, b2: &Backend) -> Nginx {
    let conf = Nginx::builder().http(ALL).with_api("write=on").set("b1", b1).set("b2", b2);
    conf.workers(2).start()
}

/// Nothing is in flight, and each server has seen what it has answered.
fn balanced(nginx: &Nginx, b: &[&Backend; 2]) {
    for (upstream, backend) in ["app", "other"].iter().zip(b) {
        eventually(secs(5), || {
            let server = nginx.api().server(upstream, backend);
            server["active"] == 0 && server["counters"]["requests"] == backend.requests()
        });
    }
}

fn last_line(nginx: &Nginx, path: &str) -> String {
    eventually(secs(5), || {
        let log = nginx.log("access.log");
        log.lines().rfind(|line| line.starts_with(path)).map(str::to_string)
    })
}

#[test]
fn subrequests_and_mirrors_choose_for_themselves() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = all(&b1, &b2);
    for path in ["/checked", "/mirrored", "/checked/slow?ms=20", "/mirrored/slow?ms=20"] {
        for _ in 0..10 {
            let reply = nginx.get(path);
            assert_eq!((reply.status, reply.backend()), (200, "b1"), "{path}");
        }
    }
    eventually(secs(5), || b2.requests() == 40);
    assert_eq!(last_line(&nginx, "/checked"), format!("/checked/slow 200 [{b1}] [app] [{b1}]"));
    // A server of the subrequest that cannot be had fails the subrequest alone.
    nginx.api().verb("other", &b2, "down");
    assert_eq!(nginx.get("/mirrored").status, 200);
    assert_eq!(nginx.get("/checked").status, 500);
    balanced(&nginx, &[&b1, &b2]);
}

#[test]
fn a_request_that_is_sent_on_to_another_upstream_chooses_anew() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = all(&b1, &b2);
    let run_time = json!({"servers": [{"server": b2.addr()}]});
    nginx.api().ok("PUT", "upstreams/later", Some(&run_time));
    for _ in 0..5 {
        let reply = nginx.get("/fallback");
        assert_eq!((reply.status, reply.backend()), (200, "b2"));
        let line = last_line(&nginx, "/fallback");
        assert_eq!(line, format!("/fallback 200 [dead : {b2}] [other] [{b2}]"));
        let reply = nginx.get("/intercepted/status/503?u=Later");
        assert_eq!(reply.status, 503, "both answer so");
        let line = last_line(&nginx, "/intercepted");
        assert!(line.ends_with(&format!("[{b1} : {b2}] [later] [{b2}]")), "{line}");
    }
    let reply = nginx.get("/intercepted/status/503?u=nobody");
    assert_eq!(reply.status, 502);
    eventually(secs(5), || nginx.api().server("later", &b2)["active"] == 0);
    nginx.api().ok("DELETE", "upstreams/later", None);
    eventually(secs(5), || nginx.api().server("app", &b1)["active"] == 0);
}

#[test]
fn a_background_update_goes_on_after_its_client_was_answered() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = all(&b1, &b2);
    assert_eq!(nginx.get("/cached").backend(), "b1");
    let_pass(ms(2100));
    b1.mode(Mode::Hold);
    assert_eq!(nginx.get("/cached").backend(), "b1", "stale, at once");
    eventually(secs(5), || b1.held() == 1);
    let (status, body) = nginx.api().verb("app", &b1, "down?wait=200ms");
    assert_eq!((status, &body["active"]), (504, &json!(1)), "the update counts: {body}");
    b1.release();
    assert_eq!(nginx.api().verb("app", &b1, "down?wait=30s").0, 200);
    balanced(&nginx, &[&b1, &b2]);
}

#[test]
fn clients_that_go_away_at_any_time_leave_nothing_behind() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = all(&b1, &b2);
    let paths = [
        "/checked/slow?ms=15",
        "/mirrored/hold",
        "/mirrored/download?kb=64&ms=2",
        "/ssi/chunked?n=9&ms=3",
        "/mirrored/close",
        "/checked/reset",
        "/mirrored/partial",
    ];
    for i in 0..scale(150, 3000) {
        let mut conn = Conn::open(nginx.web()).unwrap();
        conn.begin(&Request::get(paths[i % paths.len()])).unwrap();
        conn.silent_for(ms(1 + i as u64 % 12));
    }
    eventually(secs(20), || {
        b1.release();
        b2.release();
        let idle = |upstream: &str, b: &Backend| nginx.api().server(upstream, b)["active"] == 0;
        idle("app", &b1) && idle("other", &b2)
    });
    assert_eq!(nginx.api().verb("app", &b1, "down?wait=10s").0, 200);
    assert_eq!(nginx.api().verb("app", &b1, "up?wait=10s").0, 200);
    hit(nginx.web(), "/mirrored", 10).all_ok();
}
