//! The next server of a request: nginx's own rules for when to try one and when to stop, and ours
//! for which one. What a set that changes does to a request, and the last server, is in
//! shares.rs. (CONTRACT 8.)

mod support;

use std::collections::BTreeSet;

use support::*;

/// The same servers behind stock nginx and behind us, `/stock/…` and `/ours/…`.
fn pair(servers: &str, b: &[Backend]) -> Conf {
    let doors = [
        ("", "proxy_next_upstream error timeout http_500;"),
        ("two", "proxy_next_upstream error timeout http_500; proxy_next_upstream_tries 2;"),
        ("brief", "proxy_next_upstream_timeout 500ms;"),
        ("any", "proxy_next_upstream error timeout non_idempotent;"),
        ("off", "proxy_next_upstream off;"),
    ];
    let locations: String = ["stock", "ours"]
        .iter()
        .flat_map(|which| {
            doors.map(|(door, rules)| {
                format!("location /{which}/{door} {{ {rules} proxy_pass http://{which}; }}\n")
            })
        })
        .collect();
    let conf = Nginx::builder().http(format!(
        "peerage_zone main 1m;
         upstream stock {{ {servers} }}
         upstream ours {{ peerage main; {servers} }}
         server {{
             listen {{web}};
             add_header X-Tried $upstream_addr always;
             add_header X-Statuses $upstream_status always;
             add_header X-Id $peerage_server_id always;
             add_header X-Error $peerage_error always;
             {locations}
         }}"
    ));
    let conf = conf.with_api("write=on");
    b.iter().fold(conf, |conf, b| conf.set(&b.name(), b))
}

/// Servers that no failure bars.
fn unbarred(n: usize) -> String {
    (1..=n).map(|i| format!("server {{b{i}}} max_fails=0; ")).collect()
}

fn tried(reply: &Reply) -> Vec<String> {
    reply.header("x-tried").unwrap_or_default().split(", ").map(str::to_owned).collect()
}

fn other(method: &str, path: &str) -> Request {
    Request::new(method, path).body("a body")
}

fn tries(nginx: &Nginx, request: Request) -> (u16, usize) {
    let reply = request.send(nginx.web()).unwrap();
    let tried = tried(&reply);
    let distinct: BTreeSet<&String> = tried.iter().collect();
    assert_eq!(distinct.len(), tried.len(), "no server twice: {tried:?}");
    (reply.status, tried.len())
}

#[test]
fn every_server_is_tried_once_and_no_more_than_allowed_as_by_stock_nginx() {
    let b = Backend::several(6);
    let nginx = pair(&unbarred(6), &b).start();
    for mode in [Mode::Status(500), Mode::CloseAfter(ms(0)), Mode::ResetAfter(ms(0))] {
        b.iter().for_each(|b| b.mode(mode));
        for (door, many) in [("", 6), ("two", 2), ("off", 1)] {
            let status = if matches!(mode, Mode::Status(_)) { 500 } else { 502 };
            for which in ["stock", "ours"] {
                let got = tries(&nginx, Request::get(&format!("/{which}/{door}")));
                assert_eq!(got, (status, many), "{mode:?} {which}/{door}");
            }
        }
    }
    // A timeout of the next server counts from the first try on.
    b.iter().for_each(|b| b.mode(Mode::CloseAfter(ms(200))));
    let begun = Instant::now();
    let (status, many) = tries(&nginx, Request::get("/ours/brief"));
    assert_eq!(status, 502);
    assert!((2..=4).contains(&many) && begun.elapsed() < secs(3), "{many} {:?}", begun.elapsed());
    let counted = |b: &Backend| nginx.api().server("ours", b)["counters"].clone();
    let all: u64 = b.iter().map(|b| counted(b)["requests"].as_u64().unwrap()).sum();
    assert_eq!(all, 3 * (6 + 2 + 1) + many as u64, "each try counts");
    assert!(b.iter().all(|b| nginx.api().server("ours", b)["active"] == 0));
}

#[test]
fn what_must_not_be_sent_twice_is_not() {
    let mut b = Backend::several(4);
    let nginx = pair(&unbarred(4), &b).start();
    b.iter().for_each(|b| b.mode(Mode::CloseAfter(ms(0))));
    let table = [
        ("GET", "", 4),
        ("PUT", "", 4),
        ("DELETE", "", 4),
        ("POST", "", 1),
        ("PATCH", "", 1),
        ("LOCK", "", 1),
        ("POST", "any", 4),
        ("PATCH", "any", 4),
    ];
    for (method, door, many) in table {
        for which in ["stock", "ours"] {
            let before: u64 = b.iter().map(Backend::requests).sum();
            let got = tries(&nginx, other(method, &format!("/{which}/{door}")));
            let sent = b.iter().map(Backend::requests).sum::<u64>() - before;
            assert_eq!((got, sent), ((502, many), many as u64), "{method} {which}/{door}");
        }
    }
    // Of what was not sent at all, any method may be tried again.
    b[..3].iter_mut().for_each(Backend::stop);
    b[3].mode(Mode::Serve);
    for which in ["stock", "ours"] {
        let path = format!("/{which}/echo");
        let replies: Vec<Reply> =
            (0..4).map(|_| other("POST", &path).send(nginx.web()).unwrap()).collect();
        assert!(replies.iter().all(|r| r.status == 200 && r.text().ends_with("a body")));
        assert!(replies.iter().any(|r| tried(r).len() > 1));
    }
}

#[test]
fn a_try_passes_over_what_is_full_down_or_has_no_weight() {
    let b = Backend::several(6);
    let servers = "server {b1} max_fails=0 weight=9; server {b2} max_conns=1; server {b3} down;
         server {b4} max_fails=0; server {b5} backup max_fails=0; server {b6} backup down;";
    let nginx = pair(servers, &b).workers(4).start();
    let api = nginx.api();
    // The place of b2 is taken.
    b[1].mode(Mode::Hold);
    let mut held = Conn::open(nginx.web()).unwrap();
    eventually(secs(10), || {
        held = Conn::open(nginx.web()).unwrap();
        held.begin(&Request::get("/ours/")).unwrap();
        within(ms(200), || b[1].held() == 1).is_some()
    });
    b[0].mode(Mode::Status(500));
    b[3].mode(Mode::Status(500));
    for _ in 0..20 {
        let reply = nginx.get("/ours/");
        let tried = tried(&reply);
        assert_eq!((reply.status, reply.backend()), (200, "b5"), "{tried:?}");
        let names: BTreeSet<&str> = tried.iter().map(String::as_str).collect();
        let may: Vec<String> = [&b[0], &b[3], &b[4]].iter().map(|b| b.addr()).collect();
        assert_eq!(names, may.iter().map(String::as_str).collect(), "{tried:?}");
    }
    let weight = json!({"weight": 0});
    api.ok("PATCH", &format!("upstreams/ours/servers/{}", b[3]), Some(&weight));
    let reply = nginx.get("/ours/");
    assert_eq!(tried(&reply), [b[0].addr(), b[4].addr()]);
    b[1].release();
    assert_eq!(held.reply().unwrap().status, 200);
}

/// A request whose first try ends while the set changes.
fn meanwhile(nginx: &Nginx, b: &[Backend], path: &str, act: impl FnOnce(&Api)) -> Reply {
    // The backend sees a little late that the last one has gone.
    eventually(secs(5), || b[0].held() == 0);
    b[0].mode(Mode::Hold);
    let mut conn = Conn::open(nginx.web()).unwrap();
    conn.begin(&Request::get(path)).unwrap();
    eventually(secs(5), || b[0].held() == 1);
    act(&nginx.api());
    b[0].mode(Mode::Serve);
    b[0].close_connections();
    conn.reply().unwrap()
}

fn put(api: &Api, servers: &[(&Backend, u32)]) {
    let one = |(b, weight): &(&Backend, u32)| json!({"server": b.addr(), "weight": weight, "max_fails": 0});
    let servers: Vec<Value> = servers.iter().map(one).collect();
    api.ok("PUT", "upstreams/ours", Some(&json!({"servers": servers})));
}

#[test]
fn what_was_tried_is_known_by_its_id_whatever_becomes_of_the_set() {
    let b = Backend::several(4);
    let nginx = pair("server {b1} weight=1000 max_fails=0; server {b2} backup;", &b).start();
    let [b1, b2, b3, b4] = &b[..] else { unreachable!() };
    let set = || put(&nginx.api(), &[(b1, 1000), (b2, 1)]);
    let first = || {
        // b1 is first in turn once its weight is new.
        nginx.api().ok("DELETE", "upstreams/ours?force=1", None);
        set();
    };
    // In another place, with another weight, it is still the one that was tried.
    first();
    let reply = meanwhile(&nginx, &b, "/ours/", |api| {
        put(api, &[(b4, 1), (b3, 1), (b1, 2000), (b2, 1)]);
    });
    assert_eq!(reply.status, 200);
    let twice = tried(&reply);
    assert!(twice.len() == 2 && twice[0] == b1.addr() && twice[1] != b1.addr(), "{twice:?}");
    // Removed and added again, it is another one, of another id.
    first();
    let before = nginx.api().server("ours", b1)["id"].clone();
    let reply = meanwhile(&nginx, &b, "/ours/", |api| {
        put(api, &[(b2, 1)]);
        put(api, &[(b1, 1000), (b2, 1)]);
    });
    assert_eq!((reply.status, tried(&reply)), (200, vec![b1.addr(), b1.addr()]));
    assert_ne!(reply.header("x-id"), Some(before.to_string().as_str()));
    // Nobody is left that it has not tried.
    first();
    let reply = meanwhile(&nginx, &b, "/ours/", |api| {
        put(api, &[(b1, 1000), (b2, 0)]);
        assert_eq!(api.verb("ours", b1, "drain").0, 200);
    });
    let (status, error) = (reply.status, reply.header("x-error"));
    assert_eq!((status, error), (502, Some("all_unavailable")), "{:?}", tried(&reply));
    // The upstream is gone, or another one has its name.
    for again in [false, true] {
        first();
        let reply = meanwhile(&nginx, &b, "/ours/", |api| {
            api.ok("DELETE", "upstreams/ours?force=1", None);
            if again {
                put(api, &[(b3, 1), (b4, 1)]);
            }
        });
        assert_eq!((reply.status, reply.header("x-error")), (502, Some("unknown_upstream")));
        if !again {
            set();
        }
    }
}
