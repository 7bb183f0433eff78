//! `hash`, `hash consistent` and `ip_hash` beside stock nginx in the same process, and what a
//! change of servers does to keys. (CASE 20.)

mod support;

use support::*;

const FRONT: &str = "
    peerage_zone main 4m;
    keepalive_requests 1000000;
    proxy_next_upstream error timeout http_500;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Client;
    server {
        listen {web};
        add_header X-Tried $upstream_addr always;
        location /stock { proxy_pass http://stock; }
        location /ours { proxy_pass http://ours; }
        location ~ ^/named/(?<svc>.*)$ { proxy_pass http://services; }
    }";

/// An upstream of stock nginx and one taken over, with the same servers.
fn pair(stock: &str, ours: &str, servers: &str, backends: &[Backend]) -> Conf {
    let conf = Nginx::builder()
        .http(FRONT)
        .http_more(&format!(
            "upstream stock {{ {stock} {servers} }}
             upstream ours {{ peerage main; {ours} {servers} }}
             upstream services {{ peerage main name=$svc; peerage_hash_key $arg_key; }}"
        ))
        .with_api("write=on");
    backends.iter().fold(conf, |conf, b| conf.set(&b.name(), b))
}

/// The servers that each of so many keys is tried at, over one connection.
fn map(nginx: &Nginx, path: &str, keys: usize) -> Vec<String> {
    let mut conn = Conn::open(nginx.web()).unwrap();
    let mut tried = |key: usize| {
        let ip = format!("{}.{}.{}.7", key % 200 + 1, key * 31 % 256, key * 101 % 256);
        let target = format!("{path}?key=key-{key}");
        let reply = conn.send(&Request::get(&target).header("X-Client", &ip)).unwrap();
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        reply.header("x-tried").unwrap().to_owned()
    };
    (0..keys).map(&mut tried).collect()
}

fn lines(backends: &[Backend]) -> String {
    let line = |b: &Backend| format!("server {{{}}} max_fails=0; ", b.name());
    backends.iter().map(line).collect()
}

fn bodies<'a>(backends: impl Iterator<Item = &'a Backend>) -> Vec<Value> {
    backends.map(|b| json!({"server": b.addr(), "max_fails": 0})).collect()
}

const CONSISTENT: (&str, &str) =
    ("hash $arg_key consistent;", "peerage_method hash consistent; peerage_hash_key $arg_key;");

/// CASE 20.
#[test]
fn ten_thousand_keys_go_where_stock_nginx_sends_them_and_few_move() {
    let b = Backend::several(11);
    let (stock, ours) = CONSISTENT;
    let nginx = pair(stock, ours, &lines(&b[..10]), &b).start();
    let api = nginx.api();
    let keys = 10_000;
    let before = map(&nginx, "/ours", keys);
    assert!(map(&nginx, "/stock", keys) == before, "the mapping is another one");

    let server = |b: &Backend| format!("upstreams/ours/servers/{b}");
    api.ok("PUT", &server(&b[10]), Some(&json!({})));
    let after = map(&nginx, "/ours", keys);
    let moved: Vec<usize> = (0..keys).filter(|&key| before[key] != after[key]).collect();
    assert!((keys / 20..keys / 7).contains(&moved.len()), "{} of {keys} moved", moved.len());
    assert!(moved.iter().all(|&key| after[key] == b[10].addr()), "from one old server to another");
    api.ok("DELETE", &server(&b[10]), None);
    assert!(map(&nginx, "/ours", keys) == before, "removed, it takes nothing with it");

    for (verb, back) in [("down", "up"), ("drain", "up")] {
        api.ok("POST", &format!("{}/{verb}", server(&b[3])), None);
        let after = map(&nginx, "/ours", keys);
        for (key, (before, after)) in before.iter().zip(&after).enumerate() {
            let its = *before == b[3].addr();
            assert!(if its { *after != b[3].addr() } else { after == before }, "{verb}: {key}");
        }
        api.ok("POST", &format!("{}/{back}", server(&b[3])), None);
        assert!(map(&nginx, "/ours", keys) == before, "all return after {verb}");
    }
    for weight in [0, 1] {
        api.ok("PATCH", &server(&b[3]), Some(&json!({ "weight": weight })));
        let after = map(&nginx, "/ours", keys);
        let stays = |(was, is): (&String, &String)| was == is || *was == b[3].addr();
        assert!(before.iter().zip(&after).all(stays), "weight {weight}");
        assert_eq!(after == before, weight == 1);
    }
}

#[test]
fn two_instances_with_another_order_agree_and_so_does_one_that_was_reloaded() {
    let b = Backend::several(10);
    let (stock, ours) = CONSISTENT;
    let mut nginx = pair(stock, ours, &lines(&b), &b).workers(2).start();
    let before = map(&nginx, "/ours", 1000);
    // The other is filled at run time, from the last server to the first.
    let other = pair(stock, ours, &lines(&b[9..]), &b).start();
    for backend in b.iter().rev().skip(1) {
        let path = format!("upstreams/ours/servers/{backend}");
        other.api().ok("PUT", &path, Some(&json!({"max_fails": 0})));
    }
    assert!(map(&other, "/ours", 1000) == before, "they differ");
    let digest = |nginx: &Nginx| nginx.api().upstream("ours")["digest"].clone();
    assert_eq!(digest(&nginx), digest(&other));
    nginx.reload();
    assert!(map(&nginx, "/ours", 1000) == before, "reloaded, it is another");
}

#[test]
fn hash_and_ip_hash_are_stock_nginx_s_with_weights_and_failing_servers_too() {
    let b = Backend::several(7);
    let servers = "server {b1} weight=5 max_fails=0; server {b2} max_fails=0;
        server {b3} weight=2 down; server {b4} weight=3 max_fails=0; server {b5} max_fails=0;
        server {b6} max_fails=0; server {b7} weight=2 max_fails=0;";
    let methods = [
        ("hash $arg_key;", "peerage_method hash; peerage_hash_key $arg_key;"),
        ("ip_hash;", "peerage_method ip_hash;"),
        CONSISTENT,
        ("hash $remote_addr;", "peerage_method hash;"),
    ];
    for (stock, ours) in methods {
        b.iter().for_each(|b| b.mode(Mode::Serve));
        let nginx = pair(stock, ours, servers, &b).start();
        assert_eq!(map(&nginx, "/ours", 400), map(&nginx, "/stock", 400), "{ours}");
        for i in [0, 4, 6] {
            b[i].mode(Mode::Status(500));
            let tried = map(&nginx, "/ours", 300);
            assert_eq!(tried, map(&nginx, "/stock", 300), "{ours}");
            assert!(tried.iter().any(|tried| tried.contains(", ")), "nobody failed");
        }
    }
}

#[test]
fn a_put_sets_the_order_that_hash_goes_by() {
    let b = Backend::several(5);
    let reversed: String =
        (1..=5).rev().map(|i| format!("server {{b{i}}} max_fails=0; ")).collect();
    let ours = "peerage_method hash; peerage_hash_key $arg_key;";
    let stock = format!("hash $arg_key; {reversed}");
    let conf = Nginx::builder()
        .http(FRONT)
        .http_more(&format!(
            "upstream stock {{ {stock} }}
             upstream ours {{ peerage main; {ours} {} }}
             upstream services {{ peerage main name=$svc; }}",
            lines(&b)
        ))
        .with_api("write=on");
    let nginx = b.iter().fold(conf, |conf, b| conf.set(&b.name(), b)).workers(2).start();
    let api = nginx.api();
    let before = map(&nginx, "/ours", 200);
    assert_ne!(before, map(&nginx, "/stock", 200));
    let digest = api.upstream("ours")["digest"].clone();
    let body = json!({"method": "hash", "servers": bodies(b.iter().rev())});
    let answer = api.ok("PUT", "upstreams/ours", Some(&body));
    assert_eq!(answer["changed"], true, "{answer}");
    assert_eq!(map(&nginx, "/ours", 200), map(&nginx, "/stock", 200));
    assert_ne!(api.upstream("ours")["digest"], digest);
    assert_eq!(api.ok("PUT", "upstreams/ours", Some(&body))["changed"], false);
    // The ring does without an order.
    let ring = json!({"method": "hash consistent", "servers": bodies(b.iter())});
    assert_eq!(api.ok("PUT", "upstreams/ours", Some(&ring))["changed"], true);
    let turned = json!({"method": "hash consistent", "servers": bodies(b.iter().rev())});
    assert_eq!(api.ok("PUT", "upstreams/ours", Some(&turned))["changed"], false);
}

#[test]
fn a_key_of_a_block_is_that_of_its_upstreams_and_an_empty_one_is_left_to_round_robin() {
    let b = Backend::several(4);
    let (stock, ours) = CONSISTENT;
    let nginx = pair(stock, ours, &lines(&b[..3]), &b).workers(4).start();
    let api = nginx.api();
    for method in ["hash", "hash consistent"] {
        let body = json!({"method": method, "servers": bodies(b.iter())});
        api.ok("PUT", "upstreams/svc-a", Some(&body));
        let one = hit(nginx.web(), "/named/svc-a?key=one", 40);
        assert_eq!(one.backends.len(), 1, "{:?}", one.backends);
        let path = |i: usize| format!("/named/svc-a?key={i}");
        let names = (0..60).map(|i| nginx.get(&path(i)).backend().to_owned());
        let names: std::collections::BTreeSet<String> = names.collect();
        assert_eq!(names.len(), 4, "{method}: {names:?}");
        let none = hit(nginx.web(), "/named/svc-a", 40);
        assert!((1..=4).all(|i| none.backend(&format!("b{i}")) >= 6), "{:?}", none.backends);
    }
    // Without the directive it is the client's address.
    let body = json!({"method": "hash", "servers": bodies(b.iter())});
    api.ok("PUT", "upstreams/svc-b", Some(&body));
    let one = hit(nginx.web(), "/ours?key=", 40);
    assert!(one.backends.len() > 1, "{:?}", one.backends);
}

#[test]
fn a_key_of_the_upstream_goes_over_that_of_its_block() {
    let b = Backend::several(4);
    let other = "peerage_method hash consistent; peerage_hash_key $arg_other;";
    let nginx = pair(CONSISTENT.0, other, &lines(&b), &b).workers(4).start();
    let api = nginx.api();
    let key = |key: Value| api.ok("PATCH", "upstreams/ours", Some(&json!({"hash_key": key})));
    let stock = map(&nginx, "/stock", 100);
    assert_ne!(map(&nginx, "/ours", 100), stock);
    key(json!("${arg_key}"));
    assert_eq!(map(&nginx, "/ours", 100), stock);
    key(json!("a$arg_key"));
    assert_ne!(map(&nginx, "/ours", 100), stock);
    key(json!(null));
    assert_eq!(hit(nginx.web(), "/ours?other=one", 40).backends.len(), 1);
}
