//! TLS to servers: sessions are used again, with the same peer, context and name only.

mod support;

use support::*;

/// One upstream; a door for each way to it. Every request makes a connection of its own.
const DOORS: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; }
    proxy_http_version 1.0;
    proxy_ssl_server_name on;
    proxy_ssl_name a.test;
    server {
        listen {web};
        location /2 { proxy_pass https://app; proxy_ssl_protocols TLSv1.2; }
        location /3 { proxy_pass https://app; proxy_ssl_protocols TLSv1.3; }
        location /off { proxy_pass https://app; proxy_ssl_session_reuse off; }
        location /named/ { proxy_pass https://app; proxy_ssl_name $arg_name; }
    }";

fn doors(servers: &[&Nginx]) -> Nginx {
    let nginx = Nginx::builder().http(DOORS).with_api("write=on").start();
    replace(&nginx, servers);
    nginx
}

fn replace(nginx: &Nginx, servers: &[&Nginx]) {
    let servers: Vec<Value> =
        servers.iter().map(|tls| json!({"server": tls.web().to_string()})).collect();
    nginx.api().ok("PUT", "upstreams/app", Some(&json!({"servers": servers})));
}

/// Asks once; whether the session was used again.
fn resumed(nginx: &Nginx, path: &str) -> bool {
    let reply = nginx.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.header("x-resumed") == Some("r")
}

/// CASE 3.
fn sessions_are_used_again_while_sets_change(door: &str, protocol: &str) {
    let [a, b] = [0; 2].map(|_| Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3"));
    let nginx = doors(&[&a, &b]);
    let (n, pause) = (scale(1_200, 20_000), scale(60, 500));
    let sets: [&[&Nginx]; 4] = [&[&a], &[&b, &a], &[&b], &[&a, &b]];
    let rss = || nginx.worker_pids().into_iter().map(rss_kb).sum::<u64>();
    let (mut count, mut before) = (0, 0);
    for i in 0..n {
        if i % pause == 0 {
            replace(&nginx, sets[(i / pause) as usize % sets.len()]);
        }
        if i == n / 3 {
            before = rss();
        }
        count += u64::from(resumed(&nginx, door));
    }
    assert_eq!(nginx.get(door).header("x-protocol"), Some(protocol));
    let n = n as u64;
    assert!(count * 10 > n * 9, "{count} of {n} resumed");
    // One session that is not given back takes some KB.
    let grown = rss().saturating_sub(before);
    assert!(grown < n / 2, "{grown} KB more after {n} requests");
}

#[test]
fn sessions_of_tls_1_2_are_used_again_while_sets_change() {
    sessions_are_used_again_while_sets_change("/2", "TLSv1.2");
}

#[test]
fn sessions_of_tls_1_3_are_used_again_while_sets_change() {
    sessions_are_used_again_while_sets_change("/3", "TLSv1.3");
}

#[test]
fn who_wants_no_sessions_gets_none() {
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let nginx = doors(&[&tls]);
    resumed(&nginx, "/3");
    assert!(resumed(&nginx, "/3"));
    assert!((0..20).all(|_| !resumed(&nginx, "/off")));
}

#[test]
fn a_session_is_for_one_name() {
    let tls = Certificate::backend(&["a.test", "b.test"], "TLSv1.2 TLSv1.3");
    let nginx = doors(&[&tls]);
    for i in 0..40 {
        let name = ["a.test", "b.test"][i % 2];
        let reply = nginx.get(&format!("/named/?name={name}"));
        assert_eq!(reply.backend(), name);
        assert_eq!(reply.header("x-resumed"), Some(if i < 2 { "." } else { "r" }), "{i}");
    }
}

#[test]
fn a_session_is_for_one_peer_and_goes_with_it() {
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let mut nginx = doors(&[&tls]);
    resumed(&nginx, "/3");
    assert!(resumed(&nginx, "/3"));
    // A change of the server leaves it the peer that it is.
    let server = format!("upstreams/app/servers/{}", tls.web());
    nginx.api().ok("PATCH", &server, Some(&json!({"weight": 7})));
    assert!(resumed(&nginx, "/3"));
    replace(&nginx, &[]);
    replace(&nginx, &[&tls]);
    assert!(!resumed(&nginx, "/3"), "the server that was added again is another one");
    assert!(resumed(&nginx, "/3"));
    nginx.reload();
    eventually(secs(20), || resumed(&nginx, "/3"));
}

#[test]
fn a_session_that_nobody_verified_opens_no_door_that_verifies() {
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let other = Certificate::backend(&["a.test"], "TLSv1.3");
    let trusting = |who: &Nginx| {
        let pem = who.path("a.test.pem").display().to_string();
        format!("proxy_pass https://app; proxy_ssl_verify on; proxy_ssl_trusted_certificate {pem};")
    };
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 1m;
             upstream app {{ peerage main; }}
             proxy_http_version 1.0; proxy_ssl_server_name on; proxy_ssl_name a.test;
             server {{
                 listen {{web}};
                 location /any {{ proxy_pass https://app; }}
                 location /right {{ {} }}
                 location /wrong {{ {} }}
             }}",
            trusting(&tls),
            trusting(&other)
        ))
        .with_api("write=on")
        .start();
    replace(&nginx, &[&tls]);
    for _ in 0..5 {
        resumed(&nginx, "/any");
        assert_eq!(nginx.get("/wrong").status, 502);
        resumed(&nginx, "/right");
    }
    assert!(resumed(&nginx, "/any") && resumed(&nginx, "/right"));
}

#[test]
fn a_session_of_one_client_certificate_is_not_another_ones() {
    let conf = Nginx::stock();
    let server = Certificate::make(conf.prefix(), &["a.test"]);
    let clients = ["ann", "bob"].map(|name| Certificate::make(conf.prefix(), &[name]));
    let tls = conf
        .http(format!(
            "server {{ listen {{web}} ssl; ssl_certificate {}; ssl_certificate_key {};
             ssl_verify_client optional_no_ca; ssl_session_cache shared:tls:1m;
             location / {{ return 200 $ssl_client_s_dn; }} }}",
            server.pem.display(),
            server.key.display()
        ))
        .start();
    let dir = clients[0].pem.parent().expect("a folder").display();
    let nginx = Nginx::builder()
        .http(format!(
            "peerage_zone main 1m;
             upstream app {{ peerage main; }}
             server {{ listen {{web}}; location / {{
                 proxy_pass https://app; proxy_http_version 1.0;
                 proxy_ssl_certificate {dir}/$arg_who.pem;
                 proxy_ssl_certificate_key {dir}/$arg_who.key;
             }} }}"
        ))
        .with_api("write=on")
        .start();
    replace(&nginx, &[&tls]);
    for i in 0..10 {
        let who = ["ann", "bob"][i % 2];
        assert_eq!(nginx.get(&format!("/?who={who}")).text(), format!("CN={who}"));
    }
}

/// The number is that of the cache, and one handshake for each of these names costs time.
#[test]
fn more_names_than_there_is_room_for_do_no_harm() {
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let mut nginx = doors(&[&tls]);
    let names = scale(1_100, 3_000);
    for i in 0..names {
        assert!(!resumed(&nginx, &format!("/named/?name=n{i}.test")));
    }
    assert!(resumed(&nginx, &format!("/named/?name=n{}.test", names - 1)));
    assert!(!resumed(&nginx, "/named/?name=n0.test"), "it has made room");
    let pids = nginx.worker_pids();
    nginx.reload();
    eventually(secs(20), || nginx.worker_pids() != pids);
}
