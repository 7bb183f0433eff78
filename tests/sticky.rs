//! Sessions that nginx's `sticky` binds to a server. Only nginx 1.29.6 and newer has it: elsewhere
//! these stories say so and pass (`ci/sid.sh sticky` runs them).

mod support;

use support::*;

/// Whether the nginx to test with has `sticky`.
fn has_sticky() -> bool {
    let has = is_nginx([1, 29, 6]);
    if !has {
        eprintln!("skipped: this nginx has no \"sticky\"");
    }
    has
}

/// Four servers whose routes are a to d, bound by `?s=`.
const ROUTES: &str = "server {b1} route=a weight=3; server {b2} route=b weight=2;
    server {b3} route=c; server {b4} route=d; sticky route $arg_s;";

/// The value of the cookie that an answer sets.
fn cookie(reply: &Reply) -> String {
    let set = reply.header("set-cookie").unwrap_or_default();
    let value = set.strip_prefix("srv=").unwrap_or_default();
    value.split(';').next().unwrap_or_default().to_owned()
}

fn with_cookie(nginx: &Nginx, path: &str, value: &str) -> Reply {
    Request::get(path).header("Cookie", &format!("srv={value}")).send(nginx.web()).unwrap()
}

/// Who answers a request with this route, `-` where nobody does.
fn at(nginx: &Nginx, route: &str) -> String {
    let reply = nginx.get(&format!("/ours?s={route}"));
    if reply.status == 502 { "-".into() } else { reply.backend().to_owned() }
}

fn numbers() -> impl FnMut(u32) -> u32 {
    let mut state = 0x2545_f491_u32;
    move |below| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % below
    }
}

#[test]
fn cookies_name_servers_as_stock_nginx_does_and_keep_sessions() {
    if !has_sticky() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let b = [
        Backend::new("b1"),
        Backend::on("b2", [127, 0, 3, 9]),
        Backend::unix("b3", &dir.path().join("b3.sock")),
        Backend::new("b4"),
    ];
    let lines = "server {b1}; server {b2}; server {b3}; server {b4} route=four; sticky cookie srv;";
    let nginx = twins(lines, &b).workers(2).start();
    let mut names = Vec::new();
    for server in &b {
        let first = eventually(secs(5), || {
            let reply = nginx.get("/ours");
            (reply.backend() == server.name()).then_some(reply)
        });
        let name = cookie(&first);
        let twin = with_cookie(&nginx, "/stock", &name);
        assert_eq!((twin.backend(), cookie(&twin)), (server.name().as_str(), name.clone()));
        for _ in 0..20 {
            let reply = with_cookie(&nginx, "/ours", &name);
            assert_eq!((reply.backend(), cookie(&reply)), (server.name().as_str(), name.clone()));
        }
        names.push(name);
    }
    assert_eq!(names[3], "four");
    assert!(names[..3].iter().all(|name| name.len() == 32), "{names:?}");
    // What no server is called is no session.
    for name in ["", "fourth", "fou", &"0".repeat(32), &"x".repeat(4000)] {
        let reply = with_cookie(&nginx, "/ours", name);
        assert_eq!(reply.status, 200);
        assert!(names.contains(&cookie(&reply)), "{name}");
    }
}

#[test]
fn sessions_and_turns_mix_in_stock_nginx_order() {
    if !has_sticky() {
        return;
    }
    let b = Backend::several(4);
    let nginx = twins(ROUTES, &b).start();
    let mut number = numbers();
    for i in 0..scale(600, 6000) {
        // Now and then many of one session in a row.
        let route = ["", "", "a", "b", "c", "d"][number(6) as usize];
        for _ in 0..=number(3) {
            let stock = nginx.get(&format!("/stock?s={route}"));
            let ours = nginx.get(&format!("/ours?s={route}"));
            assert_eq!(ours.backend(), stock.backend(), "request {i} of \"{route}\"");
        }
    }
}

#[test]
fn failing_servers_lose_their_sessions_in_stock_nginx_order() {
    if !has_sticky() {
        return;
    }
    let mut b = Backend::several(4);
    let lines = "server {b1} route=a max_fails=2; server {b2} route=b;
         server {b3} route=c max_fails=0; server {b4} route=d backup; sticky route $arg_s;";
    let nginx = twins(lines, &b).allow("temporarily disabled").start();
    let alike = |n: usize| {
        let mut number = numbers();
        for i in 0..n {
            let route = ["", "a", "b", "c", "d"][number(5) as usize];
            let ask = |path: &str| {
                let reply = nginx.get(&format!("{path}?s={route}"));
                let tried = reply.header("x-tried").unwrap_or_default().to_owned();
                (reply.status, reply.backend().to_owned(), tried)
            };
            let stock = ask("/stock");
            assert_eq!(ask("/ours"), stock, "request {i} of \"{route}\"");
        }
    };
    b[0].stop();
    alike(20);
    b[2].stop();
    alike(20);
    b[1].stop();
    // Nobody but the backup, which gets its sessions, and all others.
    alike(20);
    assert_eq!(at(&nginx, "d"), "b4");
    b[0].start();
    b[2].start();
    // c was never barred; a comes back with its time.
    eventually(secs(30), || at(&nginx, "a") == "b1");
    assert_eq!(at(&nginx, "c"), "b3");
}

#[test]
fn a_server_that_drains_or_weighs_nothing_keeps_its_sessions_and_one_that_is_down_does_not() {
    if !has_sticky() {
        return;
    }
    let b = Backend::several(4);
    let nginx = twins(ROUTES, &b).workers(2).start();
    let api = nginx.api();
    let server = format!("upstreams/ours/servers/{}", b[0]);
    let host = format!("hosts/{}", b[0].socket_addr().ip());
    let check = |what: &str, bound: bool, open: bool| {
        for _ in 0..20 {
            assert_eq!(at(&nginx, "a") == "b1", bound, "{what}");
        }
        let seen = (0..30).any(|_| at(&nginx, "") == "b1");
        assert_eq!(seen, open, "{what}");
        assert!((0..10).all(|_| at(&nginx, "b") == "b2"), "{what}");
    };
    check("up", true, true);
    api.ok("POST", &format!("{server}/drain"), None);
    check("draining", true, false);
    api.ok("POST", &format!("{server}/down"), None);
    check("down", false, false);
    api.ok("POST", &format!("{server}/up"), None);
    check("up again", true, true);
    api.ok("PATCH", &server, Some(&json!({"weight": 0})));
    check("of weight 0", true, false);
    api.ok("PATCH", &server, Some(&json!({"weight": 3})));
    // The host of all of them.
    api.ok("POST", &format!("{host}/drain?min_up=0"), None);
    for (route, name) in [("a", "b1"), ("b", "b2"), ("", "-")] {
        assert_eq!(at(&nginx, route), name, "host draining");
    }
    api.ok("POST", &format!("{server}/drain"), None);
    assert_eq!(at(&nginx, "a"), "b1", "both draining");
    api.ok("POST", &format!("{host}/down?min_up=0"), None);
    for route in ["a", "b", ""] {
        assert_eq!(at(&nginx, route), "-", "host down");
    }
    api.ok("POST", &format!("{host}/up"), None);
    check("draining still", true, false);
    api.ok("POST", &format!("{server}/up"), None);
    check("all up", true, true);
}

#[test]
fn a_session_leaves_a_draining_server_that_fails_or_is_full() {
    if !has_sticky() {
        return;
    }
    let mut b = Backend::several(2);
    let lines = "server {b1} route=a max_conns=1; server {b2} route=b; sticky route $arg_s;";
    let nginx = twins(lines, &b).allow("temporarily disabled").start();
    let server = format!("upstreams/ours/servers/{}", b[0]);
    nginx.api().ok("POST", &format!("{server}/drain"), None);
    let mut held = Conn::open(nginx.web()).unwrap();
    b[0].mode(Mode::Hold);
    held.begin(&Request::get("/ours?s=a")).unwrap();
    eventually(secs(5), || b[0].held() == 1);
    assert_eq!(at(&nginx, "a"), "b2", "the server is full");
    b[0].mode(Mode::Serve);
    b[0].release();
    assert_eq!(held.reply().unwrap().backend(), "b1");
    eventually(secs(5), || at(&nginx, "a") == "b1");
    b[0].stop();
    let reply = nginx.get("/ours?s=a");
    assert_eq!((reply.status, reply.backend()), (200, "b2"));
    assert_eq!(reply.header("x-tried"), Some(format!("{}, {}", b[0], b[1]).as_str()));
}

#[test]
fn routes_change_at_run_time_and_a_removed_servers_sessions_go_on_elsewhere() {
    if !has_sticky() {
        return;
    }
    let b = Backend::several(4);
    let nginx = twins(ROUTES, &b).workers(2).start();
    let api = nginx.api();
    assert_eq!((at(&nginx, "a"), at(&nginx, "b")), ("b1".into(), "b2".into()));
    let server = |i: usize| format!("upstreams/ours/servers/{}", b[i]);
    api.ok("PATCH", &server(0), Some(&json!({"route": "z"})));
    api.ok("PATCH", &server(1), Some(&json!({"route": "a"})));
    for _ in 0..10 {
        assert_eq!((at(&nginx, "z"), at(&nginx, "a")), ("b1".into(), "b2".into()));
    }
    api.ok("DELETE", &server(0), None);
    assert!((0..20).all(|_| ["b2", "b3", "b4"].contains(&at(&nginx, "z").as_str())));
    assert_eq!(at(&nginx, "d"), "b4");
}

#[test]
fn what_the_configuration_says_of_routes_and_draining_is_known_to_the_api() {
    if !has_sticky() {
        return;
    }
    let b = Backend::several(2);
    let lines = "server {b1} route=a drain; server {b2} route=b; sticky route $arg_s;";
    let mut nginx = twins(lines, &b).start();
    let shown = nginx.api().server("ours", &b[0]);
    assert_eq!((&shown["route"], &shown["state"]), (&json!("a"), &json!("draining")));
    assert_eq!((at(&nginx, "a"), at(&nginx, "")), ("b1".into(), "b2".into()));
    let edited = lines.replace(" drain", "").replace("route=b", "route=c");
    nginx.change(|conf| conf.http(twins_text(&edited)).with_api("write=on"));
    nginx.reload();
    assert_eq!(nginx.api().server("ours", &b[0])["state"], "up");
    assert_eq!((at(&nginx, "a"), at(&nginx, "c")), ("b1".into(), "b2".into()));
}

#[test]
fn upstreams_of_one_block_keep_their_own_sessions() {
    if !has_sticky() {
        return;
    }
    let b = Backend::several(4);
    let text = "peerage_zone main 1m;
         upstream all { peerage main name=$arg_u; sticky cookie srv; keepalive 8; }
         server { listen {web}; location / { proxy_pass http://all; } }";
    let nginx = Nginx::builder().http(text).with_api("write=on").workers(2).start();
    for (name, servers) in [("one", &b[..2]), ("two", &b[1..])] {
        let servers: Vec<Value> =
            servers.iter().map(|b| json!({"server": b.to_string()})).collect();
        let path = format!("upstreams/{name}");
        nginx.api().ok("PUT", &path, Some(&json!({"servers": servers})));
    }
    // b2 is in both, under the same name.
    let second = eventually(secs(5), || {
        let reply = nginx.get("/?u=one");
        (reply.backend() == "b2").then(|| cookie(&reply))
    });
    for path in ["/?u=one", "/?u=two", "/?u=one"] {
        for _ in 0..10 {
            assert_eq!(with_cookie(&nginx, path, &second).backend(), "b2");
        }
    }
    nginx.api().verb("one", &b[1], "down");
    assert!((0..10).all(|_| with_cookie(&nginx, "/?u=one", &second).backend() == "b1"));
    assert!((0..10).all(|_| with_cookie(&nginx, "/?u=two", &second).backend() == "b2"));
    let reply = with_cookie(&nginx, "/?u=three", &second);
    assert_eq!(reply.status, 502);
}

#[test]
fn a_session_that_a_server_began_is_learned() {
    if !has_sticky() {
        return;
    }
    let b = Backend::several(3);
    let text = "peerage_zone main 1m;
         upstream app {
             peerage main;
             server {b1}; server {b2}; server {b3};
             sticky learn create=$upstream_http_x_backend lookup=$cookie_srv zone=sessions:1m;
         }
         server { listen {web}; location / { proxy_pass http://app; } }";
    let conf = Nginx::builder().http(text).workers(2);
    let nginx = b.iter().fold(conf, |conf, b| conf.set(&b.name(), b)).start();
    for server in &b {
        // The session is called as the server that began it.
        eventually(secs(5), || nginx.get("/").backend() == server.name());
        for _ in 0..20 {
            assert_eq!(with_cookie(&nginx, "/", &server.name()).backend(), server.name());
        }
    }
}
