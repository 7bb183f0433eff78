//! Apps that a Redis alone has, in memory of their own: apart from the zone's and from each other's,
//! and begun anew where it gets another size.

mod support;

use std::collections::BTreeSet;

use serde_json::json;
use support::*;

/// A location for each store, all of them with one upstream block.
fn http(stores: &[(&str, &str)]) -> String {
    let redis = |(name, cache): &(&str, &str)| {
        format!("peerage_redis {name} server={{redis}} cache={cache} tracking=off;")
    };
    let location = |(name, _): &(&str, &str)| {
        format!(
            "location /{name}/ {{ peerage_route $http_x_tenant redis={name} zone=main valid=1h
                 miss_limit=100000r/s; proxy_pass http://tenants/; }}"
        )
    };
    format!(
        "peerage_zone main 1m;
         {}
         upstream tenants {{ peerage main name=$peerage_route; keepalive 32; }}
         upstream own {{ peerage main; server {{a}}; }}
         proxy_http_version 1.1;
         proxy_set_header Connection '';
         add_header X-Error \"$peerage_error\" always;
         server {{ listen {{web}}; {} }}",
        stores.iter().map(redis).collect::<String>(),
        stores.iter().map(location).collect::<String>()
    )
}

fn conf(conf: Conf, stores: &[(&str, &str)], redis: &Redis, a: &Backend) -> Conf {
    conf.http(http(stores)).set("redis", redis.addr()).set("a", a)
}

fn ask(nginx: &Nginx, store: &str, tenant: &str) -> Reply {
    let request = Request::get(&format!("/{store}/")).header("X-Tenant", tenant);
    request.send(nginx.web()).unwrap()
}

#[test]
fn an_app_of_a_store_shares_no_connection_with_an_upstream_of_the_zone_or_of_another_store() {
    let (redis, a) = (Redis::new(), Backend::new("a"));
    redis.tenant("of-zone", "own", "active");
    redis.tenant("of-store", "app", "active");
    redis.set("app:app", &a.addr());
    let mut stores = vec![("one", "1m"), ("two", "1m")];
    let mut nginx = conf(Nginx::builder(), &stores, &redis, &a).start();
    let all_are_apart = |nginx: &Nginx, stores: &[(&str, &str)]| {
        let connections = || {
            let of_stores = stores.iter().map(|&(store, _)| (store, "of-store"));
            let all = of_stores.chain([(stores[0].0, "of-zone")]).map(|(store, tenant)| {
                let reply = ask(nginx, store, tenant);
                assert_eq!((reply.status, reply.backend()), (200, "a"), "{:?}", reply.headers);
                reply.header("x-connection").unwrap().to_owned()
            });
            all.collect::<Vec<_>>()
        };
        let first = connections();
        let apart: BTreeSet<_> = first.iter().collect();
        assert_eq!(apart.len(), stores.len() + 1, "{first:?}");
        for _ in 0..3 {
            assert_eq!(connections(), first, "they are kept");
        }
    };
    all_are_apart(&nginx, &stores);
    // New ones before those that stay as they are, or change their size, or go.
    let reloads: [&[(&str, &str)]; 4] = [
        &[("three", "1m"), ("two", "1m"), ("one", "1m")],
        &[("four", "1m"), ("three", "2m"), ("one", "1m")],
        &[("two", "512k"), ("five", "1m"), ("four", "2m"), ("three", "2m"), ("one", "2m")],
        &[("six", "1m"), ("five", "1m")],
    ];
    for reload in reloads {
        stores = reload.to_vec();
        nginx.change(|c| conf(c, &stores, &redis, &a));
        nginx.reload();
        nginx.settled(1);
        all_are_apart(&nginx, &stores);
    }
    // A zone and a store that have the same name and size one after the other share nothing.
    let zone = "peerage_zone six 256k; upstream of-six { peerage six; server {a}; }";
    for (stores, zone) in [(&[("one", "1m")][..], zone), (&[("six", "1m"), ("one", "1m")], "")] {
        nginx.change(|c| c.http(format!("{} {zone}", http(stores))));
        nginx.reload();
        nginx.settled(1);
        all_are_apart(&nginx, stores);
    }
}

/// Each worker remembers where an app was.
#[test]
fn every_worker_follows_an_app_that_the_zone_gets_or_loses() {
    let (redis, a, b) = (Redis::new(), Backend::new("a"), Backend::new("b"));
    let names =
        ["app", "an-app-with-a-name-of-more-bytes-than-are-remembered-of-names-for-requests"];
    for (i, name) in names.iter().enumerate() {
        redis.tenant(&format!("t{i}"), name, "active");
        redis.set(&format!("app:{name}"), &b.addr());
    }
    redis.tenant("upper", "App", "active");
    redis.set("app:App", &b.addr());
    let nginx = conf(Nginx::builder(), &[("routes", "1m")], &redis, &a).workers(4);
    let nginx = nginx.with_api("write=on").start();
    let api = nginx.api();
    let mut conns: Vec<_> = (0..16).map(|_| Conn::open(nginx.web()).unwrap()).collect();
    let mut all_go_to = |backends: [&str; 2]| {
        for conn in &mut conns {
            for (tenant, backend) in [("t0", 0), ("t1", 1), ("upper", 0), ("t0", 0)] {
                let request = Request::get("/routes/").header("X-Tenant", tenant);
                let reply = conn.send(&request).unwrap();
                assert_eq!((reply.status, reply.backend()), (200, backends[backend]), "{tenant}");
            }
        }
    };
    let body = json!({"servers": [{"server": a.addr()}]});
    let paths = names.map(|name| format!("upstreams/{name}"));
    all_go_to(["b", "b"]);
    for _ in 0..scale(20, 500) {
        for (path, then) in paths.iter().zip([["a", "b"], ["a", "a"]]) {
            api.ok("PUT", path, Some(&body));
            all_go_to(then);
        }
        for (path, then) in paths.iter().zip([["b", "a"], ["b", "b"]]) {
            api.ok("DELETE", path, None);
            all_go_to(then);
        }
        let put = names.map(|name| json!({"op": "put", "upstream": name, "body": body}));
        api.ok("POST", "batch", Some(&json!({"changes": put})));
        all_go_to(["a", "a"]);
        let delete = names.map(|name| json!({"op": "delete", "upstream": name}));
        api.ok("POST", "batch", Some(&json!({"changes": delete})));
        all_go_to(["b", "b"]);
    }
}

/// What is remembered of an app is used no longer than each location allows.
#[test]
fn an_app_that_is_older_than_its_tenant_is_asked_for_where_that_is_too_old() {
    let (redis, a, b) = (Redis::new(), Backend::new("a"), Backend::new("b"));
    redis.tenant("first", "app", "active");
    redis.tenant("second", "app", "active");
    redis.set("app:app", &b.addr());
    let strict = "location /strict/ { peerage_route $http_x_tenant redis=routes zone=main valid=1s
                      stale=1ms; proxy_pass http://tenants/; }";
    let mut text = http(&[("routes", "1m")]);
    text.insert_str(text.rfind('}').unwrap(), strict);
    let nginx = conf(Nginx::builder(), &[], &redis, &a).http(text).start();
    assert_eq!(ask(&nginx, "routes", "first").backend(), "b");
    assert_eq!(ask(&nginx, "routes", "first").backend(), "b");
    let_pass(ms(1_200));
    redis.set("app:app", &a.addr());
    assert_eq!(ask(&nginx, "routes", "second").backend(), "b", "fresh for an hour");
    assert_eq!(ask(&nginx, "strict", "second").backend(), "a");
}

#[test]
fn there_may_be_128_stores() {
    let (redis, a) = (Redis::new(), Backend::new("a"));
    let names: Vec<String> = (0..129).map(|n| format!("s{n}")).collect();
    let stores: Vec<_> = names.iter().map(|name| (name.as_str(), "512k")).collect();
    let tested = |stores: &[_]| conf(Nginx::builder(), stores, &redis, &a).test();
    let (is_good, text) = tested(&stores[..128]);
    assert!(is_good, "{text}");
    let (is_good, text) = tested(&stores);
    assert!(!is_good && text.contains("too many redis, \"s128\" has no numbers"), "{text}");
}

#[test]
fn a_cache_that_becomes_smaller_begins_anew_and_refuses_nothing() {
    let (redis, b) = (Redis::new(), Backend::new("b"));
    let n = 400;
    for i in 0..n {
        redis.set(&format!("app:app{i}"), &b.addr());
        redis.tenant(&format!("t{i}"), &format!("app{i}"), "active");
    }
    let mut nginx = conf(Nginx::builder(), &[("routes", "2m")], &redis, &b).start();
    let all = |nginx: &Nginx| {
        for i in 0..n {
            let reply = ask(nginx, "routes", &format!("t{i}"));
            assert_eq!((reply.status, reply.backend()), (200, "b"), "{i} {:?}", reply.headers);
        }
    };
    all(&nginx);
    for size in ["512k", "4m", "512k", "1m"] {
        // A request that began before is of the old memory, to its end.
        let mut held = Conn::open(nginx.web()).unwrap();
        held.begin(&Request::get("/routes/hold").header("X-Tenant", "t7")).unwrap();
        eventually(secs(5), || b.held() == 1);
        nginx.change(|c| conf(c, &[("routes", size)], &redis, &b));
        nginx.reload();
        all(&nginx);
        b.release();
        let reply = held.reply().unwrap();
        assert_eq!((reply.status, reply.backend()), (200, "b"));
        drop(held);
        nginx.settled(1);
        all(&nginx);
    }
}
