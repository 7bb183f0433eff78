//! Connections that nginx keeps to servers which are taken out are closed within a second, in
//! every worker, and nobody else's are. (CONTRACT 3.)

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use support::*;

/// Ours by name and by block, and one of stock nginx's.
const CONF: &str = "
    peerage_zone main 1m;
    keepalive_requests 100000;
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    add_header X-Worker $pid;
    upstream app { peerage main; keepalive 64; }
    upstream other { peerage main; keepalive 64; }
    upstream services { peerage main name=$svc match=svc-*; keepalive 64; }
    upstream stock { server {stock}; keepalive 64; }
    server {
        listen {web} reuseport;
        location /app { proxy_pass http://app; }
        location /other { proxy_pass http://other; }
        location /stock { proxy_pass http://stock; }
        location ~ ^/named/(?<svc>svc-[^/]*) { proxy_pass http://services; }
    }";

const WORKERS: usize = 4;
/// The promise is a second; the machine may be busy.
const SOON: Duration = secs(2);

fn conf(stock: &Backend) -> Conf {
    on(Nginx::builder(), stock)
}

fn on(conf: Conf, stock: &Backend) -> Conf {
    conf.workers(WORKERS).http(CONF).with_api("write=on").set("stock", stock)
}

fn put(nginx: &Nginx, upstream: &str, servers: &[&Backend]) {
    let servers: Vec<Value> =
        servers.iter().map(|s| json!({"server": s.addr(), "max_fails": 0})).collect();
    nginx.api().ok("PUT", &format!("upstreams/{upstream}"), Some(&json!({"servers": servers})));
}

/// Leaves kept connections behind in every worker: requests at the same time, until each worker
/// has answered some; the connections that were used.
fn warm(nginx: &Nginx, path: &str) -> BTreeSet<String> {
    let mut workers: BTreeMap<String, usize> = BTreeMap::new();
    let mut used = BTreeSet::new();
    let path = format!("{path}/slow?ms=60");
    eventually(secs(20), || {
        let mut conns: Vec<Conn> = (0..16).map(|_| Conn::open(nginx.web()).unwrap()).collect();
        for conn in &mut conns {
            conn.begin(&Request::get(&path)).unwrap();
        }
        for mut conn in conns {
            let reply = conn.reply().unwrap();
            assert_eq!(reply.status, 200, "{}", reply.text());
            *workers.entry(reply.header("x-worker").unwrap().to_owned()).or_default() += 1;
            let connection = reply.header("x-connection").unwrap();
            used.insert(format!("{}/{connection}", reply.backend()));
        }
        workers.values().filter(|&&n| n >= 2).count() == WORKERS
    });
    used
}

#[test]
fn a_server_that_goes_down_keeps_no_idle_connection_in_any_worker() {
    let b = Backend::several(3);
    let nginx = conf(&b[2]).start();
    put(&nginx, "app", &[&b[0], &b[1]]);
    warm(&nginx, "/app");
    let others = b[1].open();
    assert!(b[0].open() >= WORKERS && others >= WORKERS, "{} {others}", b[0].open());
    assert_eq!(nginx.api().verb("app", &b[0], "down").0, 200);
    eventually(SOON, || b[0].open() == 0);
    assert_eq!(b[1].open(), others, "the other server's are not touched");
    // And again after it was up.
    assert_eq!(nginx.api().verb("app", &b[0], "up").0, 200);
    warm(&nginx, "/app");
    assert!(b[0].open() > 0);
    assert_eq!(nginx.api().verb("app", &b[0], "down").0, 200);
    eventually(SOON, || b[0].open() == 0);
}

#[test]
fn whatever_takes_a_server_out_closes_its_idle_connections() {
    let out = Backend::on("out", [127, 0, 0, 2]);
    let (b, stock) = (Backend::new("b"), Backend::new("stock"));
    let nginx = conf(&stock).start();
    let api = nginx.api();
    let at = format!("upstreams/app/servers/{out}");
    let whole = json!({"servers": [{"server": b.addr()}]});
    let (admin, down) = (json!({"admin": {"state": "down"}}), json!({"state": "down"}));
    let op = |op: &str| json!({"op": op, "upstream": "app", "server": out.addr()});
    let with_other = json!({"changes": [op("down"),
        {"op": "patch", "upstream": "other", "body": {"defaults": {"max_fails": 2}}}]});
    let import = format!(
        "{}\n{}\n{}\n",
        json!({"format": 1}),
        json!({"upstream": "app", "servers": [
            {"server": out.addr(), "admin": down}, {"server": b.addr()}]}),
        json!({"end": 1, "servers": 2})
    );
    let ways: [(&str, &str, Option<Value>); 10] = [
        ("POST", &format!("{at}/down"), None),
        ("POST", &format!("{at}/drain"), None),
        ("POST", &format!("{at}/down?ttl=1h"), None),
        ("PATCH", &at, Some(admin)),
        ("DELETE", &at, None),
        ("PUT", "upstreams/app", Some(whole)),
        ("POST", "batch", Some(json!({"changes": [op("drain")]}))),
        ("POST", "batch", Some(with_other)),
        ("POST", "hosts/127.0.0.2/down", None),
        ("POST", "hosts/127.0.0.2/drain", None),
    ];
    put(&nginx, "other", &[&b]);
    for (method, path, body) in ways {
        put(&nginx, "app", &[&out, &b]);
        api.ok("POST", "hosts/127.0.0.2/up?missing=ok", None);
        api.ok("POST", &format!("{at}/up"), None);
        warm(&nginx, "/app");
        let (before, others) = (out.open(), b.open());
        assert!(before > 0, "{method} {path}");
        api.ok(method, path, body.as_ref());
        let closed = within(SOON, || out.open() == 0);
        assert!(closed.is_some(), "{method} {path}: {} of {before} are open", out.open());
        assert_eq!(b.open(), others, "{method} {path}");
    }
    api.ok("POST", "hosts/127.0.0.2/up?missing=ok", None);
    put(&nginx, "app", &[&out, &b]);
    warm(&nginx, "/app");
    let reply = Request::new("PUT", "/api/v1/zones/main/import").body(import);
    let reply = reply.send(api.addr()).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    eventually(SOON, || out.open() == 0);
    put(&nginx, "app", &[&out]);
    api.ok("POST", &format!("{at}/up"), None);
    warm(&nginx, "/app");
    assert!(out.open() > 0);
    api.ok("DELETE", "upstreams/app?force=1", None);
    eventually(SOON, || out.open() == 0);
}

#[test]
fn what_takes_requests_or_may_again_at_once_keeps_its_connections() {
    let b = Backend::several(3);
    let nginx = conf(&b[2]).start();
    put(&nginx, "app", &[&b[0], &b[1]]);
    warm(&nginx, "/app");
    let open = || (b[0].open(), b[1].open());
    let before = open();
    let at = format!("upstreams/app/servers/{}", b[0]);
    let weight = |weight: u32| nginx.api().ok("PATCH", &at, Some(&json!({"weight": weight})));
    weight(0);
    holds_for(ms(1_300), || open() == before);
    weight(1);
    put(&nginx, "app", &[&b[1], &b[0]]);
    nginx.api().ok("PATCH", "upstreams/app", Some(&json!({"defaults": {"max_fails": 3}})));
    holds_for(ms(700), || open() == before);
    hit(nginx.web(), "/app", 40).all_ok();
    // A worker that had none to a server may have made one.
    let now = open();
    assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?} {now:?}");
}

#[test]
fn a_server_that_drains_keeps_its_connections_until_its_last_request_ends() {
    let b = Backend::several(3);
    let nginx = conf(&b[2]).start();
    put(&nginx, "app", &[&b[0]]);
    warm(&nginx, "/app");
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/app/hold")).unwrap();
    eventually(secs(5), || b[0].held() == 1);
    let before = b[0].open();
    assert!(before > WORKERS, "{before}");
    assert_eq!(nginx.api().verb("app", &b[0], "drain").0, 200);
    holds_for(ms(1_300), || b[0].open() == before);
    b[0].release();
    assert_eq!(held.reply().unwrap().status, 200);
    eventually(SOON, || b[0].open() == 0);
}

#[test]
fn requests_in_flight_to_a_server_that_is_down_go_on_and_their_connections_are_not_kept() {
    let b = Backend::several(3);
    let nginx = conf(&b[2]).start();
    for take_out in ["down", "delete"] {
        put(&nginx, "app", &[&b[0], &b[1]]);
        warm(&nginx, "/app");
        let mut held: Vec<Conn> = (0..16).map(|_| Conn::open(nginx.web()).unwrap()).collect();
        for conn in &mut held {
            conn.begin(&Request::get("/app/hold")).unwrap();
        }
        eventually(secs(5), || b[0].held() + b[1].held() == held.len());
        let on_b0 = b[0].held();
        match take_out {
            "down" => assert_eq!(nginx.api().verb("app", &b[0], "down").0, 200),
            _ => assert_eq!(nginx.api().delete(&format!("upstreams/app/servers/{}", b[0])).0, 200),
        }
        eventually(SOON, || b[0].open() == on_b0);
        holds_for(ms(700), || b[0].held() == on_b0);
        b.iter().for_each(Backend::release);
        for mut conn in held {
            assert_eq!(conn.reply().unwrap().status, 200);
        }
        eventually(SOON, || b[0].open() == 0);
        assert!(b[1].open() > 0);
    }
}

#[test]
fn a_reload_that_drops_a_server_closes_its_connections_when_their_requests_end() {
    let b = Backend::several(3);
    let text = |servers: &str| {
        format!(
            "peerage_zone main 1m; proxy_http_version 1.1; proxy_set_header Connection '';
             upstream app {{ peerage main; {servers} keepalive 16; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
        )
    };
    let both = text("server {b1}; server {b2};");
    let conf = Nginx::builder().workers(2).http(both).with_api("write=on");
    let mut nginx = conf.set("b1", &b[0]).set("b2", &b[1]).start();
    hit(nginx.web(), "/", 10).all_ok();
    let mut held: Vec<Conn> = (0..2).map(|_| Conn::open(nginx.web()).unwrap()).collect();
    for conn in &mut held {
        conn.begin(&Request::get("/hold")).unwrap();
    }
    eventually(secs(5), || b[0].held() == 1 && b[1].held() == 1);
    let api = nginx.api();
    nginx.change(|conf| conf.http(text("server {b2};")));
    nginx.hup();
    eventually(secs(5), || api.upstream("app")["servers"].as_array().unwrap().len() == 1);
    eventually(SOON, || b[0].open() == 1);
    b.iter().for_each(Backend::release);
    for mut conn in held {
        assert_eq!(conn.reply().unwrap().status, 200);
    }
    eventually(SOON, || b[0].open() == 0);
}

/// Two upstreams, of one block or two, and one of stock nginx's, all to one address.
#[test]
fn connections_of_another_upstream_to_the_same_address_are_kept() {
    let prefix = tempfile::tempdir().unwrap();
    let backends = [
        Backend::new("v4"),
        Backend::on("v6", Ipv6Addr::LOCALHOST),
        Backend::unix("unix", &prefix.path().join("a.sock")),
    ];
    for backend in backends {
        let nginx = conf(&backend).start();
        for name in ["app", "other", "svc-a", "svc-b"] {
            put(&nginx, name, &[&backend]);
        }
        let paths = ["/app", "/other", "/named/svc-a", "/named/svc-b", "/stock"];
        let mut used: Vec<BTreeSet<String>> = paths.iter().map(|path| warm(&nginx, path)).collect();
        let all: usize = used.iter().map(BTreeSet::len).sum();
        assert_eq!(backend.open(), all, "nothing is shared: {used:?}");
        for (closed, name) in [(2, "svc-a"), (0, "app")] {
            nginx.api().ok(
                "POST",
                &format!("upstreams/{name}/servers/{}/down", path_of(&backend)),
                None,
            );
            let left: usize = used.iter().map(BTreeSet::len).sum::<usize>() - used[closed].len();
            eventually(SOON, || backend.open() <= left);
            holds_for(ms(700), || backend.open() == left);
            used[closed].clear();
        }
    }
}

/// As a segment of a path.
fn path_of(backend: &Backend) -> String {
    backend.addr().replace('/', "%2F")
}

/// A worker that was stopped learns of more than the zone tells one by one.
#[test]
fn a_worker_that_missed_much_closes_what_is_shut_and_keeps_what_is_not() {
    let b = Backend::several(3);
    let nginx = conf(&b[2]).start();
    put(&nginx, "app", &[&b[0], &b[1]]);
    warm(&nginx, "/app");
    let others = b[1].open();
    let pids = nginx.worker_pids();
    let (halted, _) = pids.split_at(WORKERS - 1);
    for &pid in halted {
        signal(pid, Signal::STOP);
        eventually(secs(5), || stopped(pid));
    }
    // The one that goes on accepts it, since nobody else does.
    let mut api = Conn::open(nginx.api().addr()).unwrap();
    let mut post = |verb: &str| {
        let target = format!("/api/v1/upstreams/app/servers/{}/{verb}", b[0]);
        let reply = api.send(&Request::post(&target)).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    for _ in 0..600 {
        post("down");
        post("up");
    }
    post("down");
    for &pid in halted {
        signal(pid, Signal::CONT);
    }
    eventually(SOON, || b[0].open() == 0);
    assert_eq!(b[1].open(), others);
}

/// The change is in force, and its writer dies before it has told what it took out.
#[test]
fn a_writer_that_dies_before_it_tells_leaves_no_connection_open() {
    let b = Backend::several(3);
    for (method, verb) in [("POST", "/down"), ("POST", "/drain"), ("DELETE", "")] {
        let (conf, points) = Points::of(on(Nginx::faulty(), &b[2]));
        let conf = conf.allow("exited on signal 9").allow("was locked by");
        let nginx = conf.start();
        put(&nginx, "app", &[&b[0], &b[1]]);
        warm(&nginx, "/app");
        let mut held: Vec<Conn> = (0..16).map(|_| Conn::open(nginx.web()).unwrap()).collect();
        for conn in &mut held {
            conn.begin(&Request::get("/app/hold")).unwrap();
        }
        eventually(secs(5), || b[0].held() + b[1].held() == held.len());
        points.plan(&[Strike::kill("journal.told", 1)]);
        let path = format!("/api/v1/upstreams/app/servers/{}{verb}", b[0]);
        assert!(Request::new(method, &path).send(nginx.api().addr()).is_err());
        eventually(secs(5), || points.struck(0).is_some());
        if verb != "/drain" {
            // Its own connections went with it.
            eventually(secs(3), || b[0].open() == b[0].held());
            assert!(b[0].held() > 0);
        }
        b.iter().for_each(Backend::release);
        eventually(secs(3), || b[0].open() == 0);
        assert!(b[1].open() > 0, "what is open keeps its connections");
        eventually(secs(5), || nginx.workers().len() == WORKERS);
        hit(nginx.web(), "/app", 10).all_ok();
        drop(held);
        drop(nginx);
        eventually(secs(5), || b[1].open() == 0);
    }
}

/// Kept connections over TLS, which nginx closes in its own way.
#[test]
fn a_tls_connection_to_a_server_that_was_down_is_not_used_again() {
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let text = "
        peerage_zone main 1m; proxy_http_version 1.1; proxy_set_header Connection '';
        upstream app { peerage main; server {tls}; keepalive 8; }
        server { listen {web}; location / {
            proxy_pass https://app; proxy_ssl_server_name on; proxy_ssl_name a.test; } }";
    let nginx = Nginx::builder().http(text).with_api("write=on").set("tls", tls.web()).start();
    let connection = || nginx.get("/").header("x-connection").unwrap().to_owned();
    let first = connection();
    assert_eq!(connection(), first);
    for verb in ["down", "drain"] {
        let before = connection();
        assert_eq!(nginx.api().verb("app", tls.web(), verb).0, 200);
        let_pass(ms(1_100));
        assert_eq!(nginx.api().verb("app", tls.web(), "up").0, 200);
        assert_ne!(connection(), before, "{verb}");
    }
}
