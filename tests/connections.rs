//! Connections to servers: kept ones are reused by their own upstream only, and a name that the
//! zone does not know leads nowhere.

mod support;

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, UdpSocket};

use support::*;

const SERVICES: &str = "
    peerage_zone main 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    upstream app { peerage main; server {app}; keepalive 16; }
    upstream services { peerage main name=$svc match=svc-*; keepalive 16; }
    server {
        listen {web};
        add_header X-Error $peerage_error always;
        add_header X-Upstream $peerage_upstream always;
        add_header X-Tried $upstream_addr always;
        location / { proxy_pass http://app; }
        location ~ ^/named/(?<svc>[^/]*) { proxy_pass http://services; }
        location ~ ^/tls/(?<svc>svc-(?<short>[ab])) {
            proxy_pass https://services;
            proxy_ssl_server_name on;
            proxy_ssl_name $short.test;
            proxy_set_header Host $short.test;
            proxy_set_header Connection '';
        }
        location ~ ^/fresh/(?<svc>svc-(?<short>[ab])) {
            proxy_pass https://services;
            proxy_ssl_server_name on;
            proxy_ssl_session_reuse on;
            proxy_ssl_name $short.test;
            proxy_set_header Host $short.test;
            proxy_set_header Connection close;
        }
    }";

fn services(app: &Backend) -> Conf {
    Nginx::builder().http(SERVICES).with_api("write=on").set("app", app)
}

fn put(nginx: &Nginx, upstream: &str, servers: &[&str]) {
    let servers: Vec<Value> = servers.iter().map(|s| json!({ "server": s })).collect();
    nginx.api().ok("PUT", &format!("upstreams/{upstream}"), Some(&json!({ "servers": servers })));
}

/// CASE 4: how much of the traffic to `untouched` goes over kept connections while others change.
fn reuse_goes_on_in(upstream: &str, path: &str) {
    let b = Backend::several(5);
    let nginx = services(&b[0]).workers(2).start();
    let addrs: Vec<String> = b.iter().map(Backend::addr).collect();
    put(&nginx, upstream, &addrs[..4].iter().map(String::as_str).collect::<Vec<_>>());
    let load = Load::to(nginx.web()).path(path).keepalive().threads(4).rate(300).start();
    eventually(secs(20), || load.total() > 100);
    let counts =
        || -> Vec<(u64, u64)> { b[1..4].iter().map(|b| (b.requests(), b.accepted())).collect() };
    let before = counts();
    let servers = format!("upstreams/{upstream}/servers");
    for step in 0..scale(8, 60) {
        let api = nginx.api();
        match step % 4 {
            0 => api.ok("PATCH", &format!("{servers}/{}", b[0]), Some(&json!({"weight": 3}))),
            1 => api.ok("PUT", &format!("{servers}/{}", b[4]), Some(&json!({}))),
            2 => api.ok("PATCH", &format!("{servers}/{}", b[0]), Some(&json!({"weight": 1}))),
            _ => api.ok("DELETE", &format!("{servers}/{}", b[4]), None),
        };
        let sent = load.total();
        eventually(secs(20), || load.total() > sent + scale(60, 300));
    }
    for ((requests, accepted), (requests_before, accepted_before)) in counts().iter().zip(before) {
        let (requests, accepted) = (requests - requests_before, accepted - accepted_before);
        assert!(requests > 50, "{requests}");
        assert!(accepted * 20 <= requests, "{accepted} new connections for {requests} requests");
    }
    load.stop().all_ok();
    assert!(b[4].requests() > 0);
}

#[test]
fn kept_connections_of_untouched_servers_are_reused_while_others_change() {
    reuse_goes_on_in("app", "/");
}

#[test]
fn kept_connections_of_a_run_time_upstream_are_reused_while_others_change() {
    reuse_goes_on_in("svc-x", "/named/svc-x");
}

/// The connections that `n` requests to each of two upstreams went over.
fn connections(nginx: &Nginx, paths: [&str; 2], n: usize) -> [BTreeSet<String>; 2] {
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for i in 0..2 * n {
        let reply = nginx.get(paths[i % 2]);
        assert_eq!(reply.status, 200, "{}", reply.text());
        seen[i % 2].insert(reply.header("x-connection").unwrap().to_string());
    }
    seen
}

#[test]
fn two_upstreams_of_one_block_never_share_a_connection_to_one_address() {
    let app = Backend::new("app");
    let nginx = services(&app).start();
    let (v4, v6) = (Backend::new("v4"), Backend::on("v6", Ipv6Addr::LOCALHOST));
    let path = "a/b".repeat(8).replace('/', "-");
    let unix = Backend::unix("unix", &nginx.path(&path));
    let short = Backend::unix("short", &nginx.path("s"));
    for backend in [&v4, &v6, &unix, &short] {
        put(&nginx, "svc-a", &[&backend.addr()]);
        put(&nginx, "svc-b", &[&backend.addr()]);
        let [a, b] = connections(&nginx, ["/named/svc-a", "/named/svc-b"], 30);
        assert!(a.is_disjoint(&b), "{backend}: {a:?} {b:?}");
        assert_eq!((a.len(), b.len()), (1, 1), "each reuses its own");
        assert_eq!(nginx.get("/named/svc-a").header("x-tried"), Some(backend.addr().as_str()));
        // A new upstream of the old name is another one.
        nginx.api().ok("DELETE", "upstreams/svc-a", None);
        put(&nginx, "svc-a", &[&backend.addr()]);
        let [again, b2] = connections(&nginx, ["/named/svc-a", "/named/svc-b"], 5);
        assert!(again.is_disjoint(&a), "{backend}: {a:?} {again:?}");
        assert_eq!(b2, b, "the other one is not touched");
    }
}

/// CASE 32.
#[test]
fn no_request_meets_a_tls_connection_of_another_name() {
    let tls = Certificate::backend(&["a.test", "b.test"], "TLSv1.2 TLSv1.3");
    let app = Backend::new("app");
    let nginx = services(&app).workers(2).start();
    let workers = nginx.worker_pids();
    put(&nginx, "svc-a", &[&tls.web().to_string()]);
    put(&nginx, "svc-b", &[&tls.web().to_string()]);
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    let mut ask = |door: &str, n: usize| {
        for i in 0..n {
            let short = ["a", "b"][i % 2];
            let reply = nginx.get(&format!("/{door}/svc-{short}"));
            assert_eq!(reply.status, 200);
            assert_eq!(reply.backend(), format!("{short}.test"), "the name of the handshake");
            assert_eq!(reply.text(), format!("{short}.test"), "the name of the request");
            if door == "tls" {
                seen[i % 2].insert(reply.header("x-connection").unwrap().to_string());
            }
        }
    };
    ask("fresh", scale(40, 2000));
    ask("tls", scale(200, 900));
    assert!(seen[0].is_disjoint(&seen[1]), "{seen:?}");
    assert!(seen.iter().all(|s| s.len() <= 4), "they are reused: {seen:?}");
    assert_eq!(nginx.worker_pids(), workers, "nobody crashed");
}

#[test]
fn the_next_server_of_a_run_time_upstream_is_tried() {
    let app = Backend::new("app");
    let (good, bad) = (Backend::new("good"), Backend::refusing("bad"));
    let nginx = services(&app).start();
    put(&nginx, "svc-a", &[&bad.addr(), &good.addr()]);
    let reply = nginx.get("/named/svc-a");
    assert_eq!((reply.status, reply.backend()), (200, "good"));
    assert_eq!(reply.header("x-tried"), Some(format!("{bad}, {good}").as_str()));
    hit(nginx.web(), "/named/svc-a", 10).all_ok();
    put(&nginx, "svc-b", &[&bad.addr()]);
    assert_eq!(nginx.get("/named/svc-b").status, 502);
    // A kept connection that the server closed meanwhile costs nobody a request.
    for _ in 0..5 {
        good.close_connections();
        hit(nginx.web(), "/named/svc-a", 3).all_ok();
    }
}

#[test]
fn names_are_compared_in_lower_case_and_only_those_that_match_are_served() {
    let b = Backend::several(2);
    let nginx = services(&b[0]).start();
    put(&nginx, "SVC-One", &[&b[0].addr()]);
    put(&nginx, "other", &[&b[1].addr()]);
    assert_eq!(
        nginx.api().upstream("svc-one")["servers"],
        nginx.api().upstream("SVC-ONE")["servers"]
    );
    for name in ["svc-one", "SVC-ONE", "Svc-One"] {
        let reply = nginx.get(&format!("/named/{name}"));
        assert_eq!((reply.status, reply.backend()), (200, "b1"), "{name}");
        assert_eq!(reply.header("x-upstream"), Some("svc-one"));
        assert_eq!(reply.header("x-error"), None);
    }
    let refused = [
        ("other", "name_refused"),
        ("app", "name_refused"),
        ("", "name_refused"),
        ("services", "name_refused"),
        ("svc-on", "unknown_upstream"),
        ("svc-two", "unknown_upstream"),
    ];
    for (name, error) in refused {
        let reply = nginx.get(&format!("/named/{name}"));
        assert_eq!((reply.status, reply.header("x-error")), (502, Some(error)), "{name}");
        assert_eq!(reply.backend(), "");
    }
    assert_eq!(b[1].requests(), 0);
}

/// CASE 29.
#[test]
fn a_name_that_the_zone_does_not_know_never_reaches_dns() {
    let app = Backend::new("app");
    let dns = UdpSocket::bind("127.0.0.1:0").unwrap();
    dns.set_nonblocking(true).unwrap();
    let packets = || (0..).take_while(|_| dns.recv(&mut [0; 1500]).is_ok()).count();
    let more = "resolver {dns} valid=1s; resolver_timeout 1s;
        server {
            listen {vary};
            location ~ ^/block/(?<svc>[^/]*)/(?<block>.*) { proxy_pass http://$block; }
        }";
    let conf = services(&app).http_more(more).port("vary");
    let nginx = conf.set("dns", dns.local_addr().unwrap()).start();
    put(&nginx, "svc-gone", &[&app.addr()]);
    hit(nginx.web(), "/named/svc-gone", 3).all_ok();
    nginx.api().ok("DELETE", "upstreams/svc-gone", None);
    let vary = |path: &str| get(nginx.addr("vary"), path).unwrap().status;
    for name in ["svc-gone", "SVC-GONE", "svc-gnoe", "localhost", "example.com", "127.0.0.1:80"] {
        let reply = nginx.get(&format!("/named/{name}"));
        assert_eq!(reply.status, 502, "{name}");
        assert!(reply.header("x-error").is_some());
        assert_eq!(vary(&format!("/block/{name}/services")), 502);
        assert_eq!(vary(&format!("/block/{name}/SERVICES")), 502);
    }
    assert_eq!(app.requests(), 3);
    holds_for(ms(200), || packets() == 0);
    // The socket would see them: this is a name for nginx's resolver.
    assert_eq!(vary("/block/x/no-such-block.test"), 502);
    assert!(packets() > 0);
}
