//! `close=time` of `down` and `drain`: what is still open to the server then is closed, and nothing
//! else is. (CONTRACT 4.)

mod support;

use support::*;

const CONF: &str = "
    peerage_zone main 1m {state};
    proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $conn;
    map $http_upgrade $conn { '' ''; default upgrade; }
    upstream app { peerage main; keepalive 16; }
    upstream other { peerage main; keepalive 16; }
    upstream services { peerage main name=$svc match=svc-*; keepalive 16; }
    upstream stock { server {b1}; keepalive 16; }
    server {
        listen {web};
        location /app { proxy_pass http://app; }
        location /other { proxy_pass http://other; }
        location /unbuffered { proxy_buffering off; proxy_pass http://app; }
        location /stock { proxy_pass http://stock; }
        location ~ ^/named/(?<svc>svc-[^/]*) { proxy_pass http://services; }
    }";

fn start(b: &Backend, state: &str) -> Nginx {
    let conf = Nginx::builder().workers(2).http(CONF.replace("{state}", state));
    conf.with_api("write=on").set("b1", b).start()
}

fn put(nginx: &Nginx, upstream: &str, servers: &[&Backend]) {
    let servers: Vec<Value> = servers.iter().map(|s| json!({"server": s.addr()})).collect();
    nginx.api().ok("PUT", &format!("upstreams/{upstream}"), Some(&json!({"servers": servers})));
}

fn begin(nginx: &Nginx, path: &str) -> Conn {
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.begin(&Request::get(path)).unwrap();
    conn
}

fn upgraded(nginx: &Nginx, path: &str) -> Conn {
    let mut conn = Conn::open(nginx.web()).unwrap();
    let request = Request::get(path).header("Upgrade", "websocket").header("Connection", "upgrade");
    conn.begin(&request).unwrap();
    assert_eq!(conn.head().unwrap().status, 101);
    conn
}

fn echoes(conn: &mut Conn) -> bool {
    conn.write(b"ping").is_ok() && conn.read(4).is_ok_and(|bytes| bytes == b"ping")
}

#[test]
fn requests_and_upgraded_connections_end_at_the_time_and_a_wait_with_them() {
    let b = Backend::several(2);
    let nginx = start(&b[0], "");
    for verb in ["down", "drain"] {
        put(&nginx, "app", &[&b[0]]);
        assert_eq!(nginx.api().verb("app", &b[0], "up").0, 200);
        let mut held = begin(&nginx, "/app/hold");
        let mut halfway = begin(&nginx, "/app/chunked?n=1000&ms=50");
        let mut socket = upgraded(&nginx, "/app/ws");
        let head = halfway.head().unwrap();
        assert_eq!(head.status, 200);
        eventually(secs(5), || b[0].active() == 3);
        let begun = Instant::now();
        let path = format!("upstreams/app/servers/{}/{verb}?close=1s&wait=20s", b[0]);
        let waiting = std::thread::spawn({
            let api = nginx.api().patient(secs(30));
            move || api.post(&path)
        });
        holds_for(ms(800), || b[0].active() == 3);
        assert!(echoes(&mut socket));
        assert!(socket.closed_within(secs(3)));
        assert!(begun.elapsed() >= ms(1_000), "not earlier: {:?}", begun.elapsed());
        // Nobody else is there to try.
        assert_eq!(held.reply().unwrap().status, 502);
        assert!(halfway.body_of(&mut head.clone()).is_err(), "it was cut off");
        let (status, answer) = waiting.join().unwrap();
        assert_eq!((status, &answer["drained"]), (200, &json!(true)), "{answer}");
        eventually(secs(2), || b[0].open() == 0);
        b[0].release();
        let admin = &nginx.api().server("app", &b[0])["admin"];
        assert_eq!((&admin["state"], &admin["until"]), (&json!(verb), &Value::Null));
        assert!(admin["close"].as_str().unwrap().ends_with('Z'), "{admin}");
    }
}

#[test]
fn a_request_that_has_no_answer_yet_is_tried_elsewhere() {
    let b = Backend::several(2);
    let nginx = start(&b[0], "");
    put(&nginx, "app", &[&b[0], &b[1]]);
    let mut held: Vec<Conn> = (0..8).map(|_| begin(&nginx, "/app/hold")).collect();
    eventually(secs(5), || (b[0].held(), b[1].held()) == (4, 4));
    assert_eq!(nginx.api().verb("app", &b[0], "down?close=0").0, 200);
    eventually(secs(2), || b[1].held() == 8);
    b.iter().for_each(Backend::release);
    for conn in &mut held {
        let reply = conn.reply().unwrap();
        assert_eq!((reply.status, reply.backend()), (200, "b2"));
    }
}

#[test]
fn another_upstream_s_requests_to_the_same_address_go_on() {
    let b = Backend::new("b1");
    let nginx = start(&b, "");
    for name in ["app", "other", "svc-a", "svc-b"] {
        put(&nginx, name, &[&b]);
    }
    let paths = ["/app", "/other", "/named/svc-a", "/named/svc-b", "/stock"];
    let mut sockets: Vec<Conn> = Vec::new();
    let mut held: Vec<Conn> = Vec::new();
    for path in paths {
        sockets.push(upgraded(&nginx, path));
        held.push(begin(&nginx, &format!("{path}/hold")));
    }
    eventually(secs(5), || b.held() == paths.len());
    assert_eq!(nginx.api().verb("svc-a", &b, "down?close=0").0, 200);
    assert!(sockets[2].closed_within(secs(2)));
    assert_eq!(held[2].reply().unwrap().status, 502);
    assert_eq!(nginx.api().verb("app", &b, "drain?close=100ms").0, 200);
    assert!(sockets[0].closed_within(secs(2)));
    assert_eq!(held[0].reply().unwrap().status, 502);
    let_pass(ms(700));
    for at in [1, 3, 4] {
        assert!(echoes(&mut sockets[at]), "{}", paths[at]);
    }
    b.release();
    for at in [1, 3, 4] {
        assert_eq!(held[at].reply().unwrap().status, 200, "{}", paths[at]);
    }
}

#[test]
fn what_came_up_or_lost_its_time_before_is_not_closed() {
    let b = Backend::new("b1");
    let nginx = start(&b, "");
    put(&nginx, "app", &[&b]);
    let mut socket = upgraded(&nginx, "/app");
    let verb = |verb: &str| assert_eq!(nginx.api().verb("app", &b, verb).0, 200);
    verb("down?close=700ms");
    verb("up");
    let_pass(ms(1_300));
    assert!(echoes(&mut socket));
    verb("down?close=700ms");
    verb("down");
    assert_eq!(nginx.api().server("app", &b)["admin"].get("close"), None);
    let_pass(ms(1_300));
    assert!(echoes(&mut socket));
    // The same for what is down already, and a time for what has none.
    verb("down?close=0");
    assert!(socket.closed_within(secs(2)));
}

#[test]
fn a_client_that_takes_nothing_keeps_no_connection_open() {
    let b = Backend::new("b1");
    let nginx = start(&b, "");
    put(&nginx, "app", &[&b]);
    let mut slow = begin(&nginx, "/unbuffered/download?kb=100000&ms=0");
    assert_eq!(slow.head().unwrap().status, 200);
    let mut socket = upgraded(&nginx, "/app");
    assert!(echoes(&mut socket));
    let path = format!("upstreams/app/servers/{b}/down?close=200ms&wait=10s");
    let (status, answer) = nginx.api().patient(secs(20)).post(&path);
    assert_eq!((status, &answer["drained"]), (200, &json!(true)), "{answer}");
    eventually(secs(2), || b.open() == 0);
}

#[test]
fn a_host_a_batch_and_a_removed_server_close_alike() {
    let b = Backend::on("b1", [127, 0, 0, 2]);
    let nginx = start(&b, "");
    let api = nginx.api();
    for name in ["app", "other"] {
        put(&nginx, name, &[&b]);
    }
    let both = || ["/app", "/other"].map(|path| upgraded(&nginx, path));
    let mut sockets = both();
    let shown = api.ok("POST", "hosts/127.0.0.2/down?close=100ms&min_up=0", None);
    assert!(shown["admin"]["close"].is_string(), "{shown}");
    sockets.iter_mut().for_each(|socket| assert!(socket.closed_within(secs(2))));
    api.ok("POST", "hosts/127.0.0.2/up", None);

    let mut sockets = both();
    let ops: Vec<Value> = ["app", "other"]
        .map(|name| json!({"op": "drain", "upstream": name, "server": b.addr(), "close": "100ms"}))
        .into();
    api.ok("POST", "batch", Some(&json!({"changes": ops})));
    sockets.iter_mut().for_each(|socket| assert!(socket.closed_within(secs(2))));
    for name in ["app", "other"] {
        assert_eq!(api.verb(name, &b, "up").0, 200);
    }

    // The time goes on though the server is gone.
    let mut sockets = both();
    assert_eq!(api.verb("app", &b, "down?close=1s").0, 200);
    api.ok("DELETE", &format!("upstreams/app/servers/{b}"), None);
    assert_eq!(api.verb("other", &b, "down?close=1s").0, 200);
    api.ok("DELETE", "upstreams/other?force=1", None);
    assert!(sockets.iter_mut().all(echoes));
    sockets.iter_mut().for_each(|socket| assert!(socket.closed_within(secs(3))));
}

#[test]
fn the_time_outlives_a_reload_and_a_restart() {
    let b = Backend::new("b1");
    let mut nginx = start(&b, "state={prefix}/main.json");
    put(&nginx, "app", &[&b]);
    let mut socket = upgraded(&nginx, "/app");
    let begun = Instant::now();
    assert_eq!(nginx.api().verb("app", &b, "down?close=2s&reason=move").0, 200);
    let admin = nginx.api().server("app", &b)["admin"].clone();
    // The old worker has the connection, and closes it.
    nginx.hup();
    eventually(secs(5), || nginx.leaving_pids().len() == 1 && nginx.workers().len() == 3);
    assert_eq!(nginx.api().server("app", &b)["admin"], admin);
    assert!(socket.closed_within(secs(5)));
    assert!(begun.elapsed() > ms(1_900), "{:?}", begun.elapsed());
    nginx.settled(2);
    nginx.restart();
    assert_eq!(nginx.api().server("app", &b)["admin"], admin);
    // By the journal as well as by a snapshot.
    assert_eq!(nginx.api().verb("app", &b, "drain?close=1h").0, 200);
    let admin = nginx.api().server("app", &b)["admin"].clone();
    nginx.api().ok("POST", "zones/main/flush", None);
    nginx.kill();
    nginx.start();
    assert_eq!(nginx.api().server("app", &b)["admin"], admin);
}

#[test]
fn values_and_places_that_make_no_sense_are_refused() {
    let b = Backend::new("b1");
    let nginx = start(&b, "");
    put(&nginx, "app", &[&b]);
    let api = nginx.api();
    let at = format!("upstreams/app/servers/{b}");
    let refused = |(status, problem): (u16, Value), field: &str| {
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
    };
    refused(api.post(&format!("{at}/down?close=soon")), "close");
    refused(api.post(&format!("{at}/down?close=-1s")), "close");
    refused(api.post(&format!("{at}/up?close=1s")), "close");
    refused(api.post("hosts/127.0.0.1/up?close=1s"), "close");
    refused(api.post_json(&format!("{at}/down?close=1s"), &json!({"close": "1s"})), "close");
    refused(api.post_json(&format!("{at}/down"), &json!({"close": true})), "close");
    let time = "2026-11-29T21:05:07Z";
    let admin = |admin: Value| api.patch(&at, &json!({"admin": admin}));
    refused(admin(json!({"state": "up", "close": time})), "admin.close");
    refused(admin(json!({"state": "down", "close": "1s"})), "admin.close");
    let (status, answer) = admin(json!({"state": "down", "close": time}));
    assert_eq!((status, &answer["server"]["admin"]["close"]), (200, &json!(time)), "{answer}");
    // What is shown is what holds: given back, it changes nothing.
    let shown = api.server("app", &b)["admin"].clone();
    assert_eq!(admin(shown).1["changed"], false);
    let (_, answer) = api.post_json(&format!("{at}/drain"), &json!({"close": "1h", "wait": "1s"}));
    assert!(answer["server"]["admin"]["close"].is_string(), "{answer}");
}
