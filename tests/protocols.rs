//! Every protocol that nginx speaks with upstream servers goes through a block of ours, with a peer
//! that really speaks it: answers, the verbs, retries, counters, kept connections. (CONTRACT 2.)

mod support;

use support::*;

/// Two servers of ours behind a location, at the door `/`.
fn start(pass: &str, servers: [&dyn std::fmt::Display; 2]) -> Nginx {
    let text = format!(
        "peerage_zone main 1m;
         upstream app {{ peerage main; server {{s1}}; server {{s2}}; keepalive 8; }}
         server {{
             listen {{web}};
             add_header X-Tried $upstream_addr always;
             add_header X-Server $peerage_server always;
             location / {{ {pass} }}
         }}"
    );
    let conf = Nginx::builder().http(text).with_api("write=on");
    conf.set("s1", servers[0]).set("s2", servers[1]).start()
}

/// What a server counted.
fn counters(nginx: &Nginx, server: impl std::fmt::Display) -> (u64, u64, u64) {
    let shown = nginx.api().server("app", server);
    let number = |value: &Value| value.as_u64().unwrap();
    (
        number(&shown["counters"]["requests"]),
        number(&shown["counters"]["responses"]["2xx"]),
        number(&shown["active"]),
    )
}

/// `n` requests: how many of them the first server answered, by the name in the body.
fn first_of(nginx: &Nginx, servers: [&dyn std::fmt::Display; 2], n: usize) -> usize {
    let mut first = 0;
    for i in 0..n {
        let reply = nginx.get(&format!("/path/{i}?q=1"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let text = reply.text();
        let at = usize::from(text.contains("two"));
        assert!(text.contains(["one", "two"][at]), "{text}");
        let address = servers[at].to_string();
        assert_eq!(reply.header("x-tried"), Some(address.as_str()));
        assert_eq!(reply.header("x-server"), Some(address.as_str()));
        first += 1 - at;
    }
    first
}

/// What holds for every protocol; `kept`: it can keep connections.
fn story(protocol: Protocol, pass: &str, kept: bool) {
    let (mut one, two) = (Speaker::new("one", protocol), Speaker::new("two", protocol));
    let nginx = start(pass, [&one, &two]);
    assert_eq!(first_of(&nginx, [&one, &two], 10), 5);
    assert_eq!(counters(&nginx, &one), (5, 5, 0));
    assert_eq!((one.requests(), one.accepted()), (5, if kept { 1 } else { 5 }));
    assert_eq!(nginx.api().verb("app", &one, "down?wait=5s").0, 200);
    eventually(secs(2), || one.open() == 0);
    assert_eq!(first_of(&nginx, [&one, &two], 6), 0);
    assert_eq!((counters(&nginx, &one), counters(&nginx, &two)), ((5, 5, 0), (11, 11, 0)));
    assert_eq!(two.accepted(), if kept { 1 } else { 11 }, "the other's is kept");
    assert_eq!(nginx.api().verb("app", &one, "up").0, 200);
    assert_eq!(first_of(&nginx, [&one, &two], 10), 5);
    if protocol != Protocol::Memcached {
        cgi(&nginx);
    }
    // One that dies is tried and passed over.
    let address = one.to_string();
    one.stop();
    let replies: Vec<Reply> = (0..4).map(|_| nginx.get("/")).collect();
    assert!(replies.iter().all(|r| r.status == 200 && r.text().contains("two")));
    let tried = |r: &Reply| r.header("x-tried") == Some(&format!("{address}, {two}"));
    assert_eq!(replies.iter().filter(|r| tried(r)).count(), 1, "and then barred");
    assert_eq!(nginx.api().server("app", &address)["state"], "unavail");
}

#[test]
fn fastcgi_with_kept_connections() {
    let params = "fastcgi_param REQUEST_URI $request_uri;
        fastcgi_param REQUEST_METHOD $request_method;
        fastcgi_param CONTENT_LENGTH $content_length; fastcgi_keep_conn on; fastcgi_pass app;";
    story(Protocol::FastCgi, params, true);
}

#[test]
fn uwsgi() {
    let params = "uwsgi_param REQUEST_URI $request_uri; uwsgi_param REQUEST_METHOD $request_method;
        uwsgi_param CONTENT_LENGTH $content_length; uwsgi_pass app;";
    story(Protocol::Uwsgi, params, false);
}

#[test]
fn scgi() {
    let params = "scgi_param CONTENT_LENGTH $content_length if_not_empty;
        scgi_param REQUEST_URI $request_uri; scgi_param REQUEST_METHOD $request_method;
        scgi_pass app;";
    story(Protocol::Scgi, params, false);
}

#[test]
fn memcached_with_kept_connections() {
    story(Protocol::Memcached, "set $memcached_key $uri; memcached_pass app;", true);
}

/// A stock nginx that speaks HTTP/2 in plain text, as gRPC does. It answers a call once it has read
/// all of it: who answers before says so on the connection, which then is not kept.
fn http2(name: &str) -> Nginx {
    let text = format!(
        "server {{
            listen {{web}} http2;
            location / {{
                proxy_pass http://unix:{{prefix}}/answer.sock;
                add_header X-Connection $connection;
                add_header X-Protocol $server_protocol;
                add_header X-Type $content_type;
            }}
            location = /closed {{ return 444; }}
        }}
        server {{
            listen unix:{{prefix}}/answer.sock;
            default_type application/grpc;
            return 200 {name};
        }}"
    );
    Nginx::stock().http(text).start()
}

#[test]
fn grpc_with_kept_connections() {
    let (one, two) = (http2("one"), http2("two"));
    let servers: [&dyn std::fmt::Display; 2] = [&one.web(), &two.web()];
    let nginx = start("grpc_next_upstream error invalid_header; grpc_pass grpc://app;", servers);
    assert_eq!(first_of(&nginx, servers, 10), 5);
    let call = Request::post("/service/Method").header("Content-Type", "application/grpc");
    let call = call.body(b"\0\0\0\0\x03abc".to_vec());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let reply = call.send(nginx.web()).unwrap();
        assert_eq!((reply.status, reply.header("x-protocol")), (200, Some("HTTP/2.0")));
        assert_eq!(reply.header("x-type"), Some("application/grpc"));
        seen.insert((reply.text(), reply.header("x-connection").unwrap().to_owned()));
    }
    assert_eq!(seen.len(), 2, "a kept connection to each: {seen:?}");
    let before = counters(&nginx, one.web());
    assert_eq!((before, counters(&nginx, two.web())), ((8, 8, 0), (8, 8, 0)));
    let connection_of_one = || {
        let text = "one".to_owned();
        seen.iter().find(|(name, _)| *name == text).map(|(_, id)| id.clone())
    };
    assert_eq!(nginx.api().verb("app", one.web(), "down?wait=5s").0, 200);
    assert_eq!(first_of(&nginx, servers, 6), 0);
    let_pass(ms(1_100));
    assert_eq!(nginx.api().verb("app", one.web(), "up").0, 200);
    let reply = eventually(secs(5), || Some(nginx.get("/")).filter(|r| r.text() == "one"));
    assert_ne!(reply.header("x-connection").map(str::to_owned), connection_of_one(), "not kept");
    // An error in the middle of a call goes to the next.
    let reply = nginx.get("/closed");
    assert_eq!(reply.status, 502);
    assert_eq!(reply.header("x-tried").unwrap().split(", ").count(), 2);
}

#[test]
fn websockets() {
    let b = [Backend::new("one"), Backend::new("two")];
    let pass = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection upgrade; proxy_pass http://app;";
    let nginx = start(pass, [&b[0], &b[1]]);
    let connect = || {
        let mut conn = Conn::open(nginx.web()).unwrap();
        let request = Request::get("/ws").header("Upgrade", "websocket");
        conn.begin(&request.header("Connection", "upgrade")).unwrap();
        let head = conn.head().unwrap();
        assert_eq!(head.status, 101);
        (head.backend().to_owned(), conn)
    };
    let mut conns: Vec<(String, Conn)> = (0..4).map(|_| connect()).collect();
    let on = |name: &str, conns: &[(String, Conn)]| conns.iter().filter(|c| c.0 == name).count();
    assert_eq!((on("one", &conns), on("two", &conns)), (2, 2));
    let shown = nginx.api().server("app", &b[0]);
    assert_eq!((&shown["active"], &shown["upgraded"]), (&json!(2), &json!(2)));
    assert_eq!(nginx.api().verb("app", &b[0], "down").0, 200);
    conns.extend((0..4).map(|_| connect()));
    assert_eq!((on("one", &conns), on("two", &conns)), (2, 6));
    for (_, conn) in &mut conns {
        conn.write(b"hello").unwrap();
        assert_eq!(conn.read(5).unwrap(), b"hello", "open ones go on");
    }
    drop(conns);
    eventually(secs(5), || nginx.api().server("app", &b[0])["active"] == 0);
    assert_eq!(nginx.api().server("app", &b[0])["counters"]["responses"]["codes"]["101"], 2);
}

/// Parameters and bodies arrive.
fn cgi(nginx: &Nginx) {
    let reply = Request::post("/form?a=b").body(vec![b'x'; 70_000]).send(nginx.web()).unwrap();
    assert_eq!(reply.status, 200);
    let headers = ["x-uri", "x-method", "x-length"].map(|name| reply.header(name));
    assert_eq!(headers, [Some("/form?a=b"), Some("POST"), Some("70000")]);
}
