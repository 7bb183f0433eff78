//! A scrape of many servers holds no event loop up: it is made in slices, however the servers are
//! spread over upstreams.

mod support;

use support::*;

const SERVERS: usize = 10_000;

fn addr(i: usize) -> String {
    format!("10.{}.{}.{}:8080", i >> 16, i >> 8 & 255, i & 255)
}

/// Servers of one upstream, or an upstream for each.
fn lines(upstreams: usize) -> String {
    let of_one = SERVERS / upstreams;
    let upstream = |u: usize| {
        let servers: Vec<Value> =
            (0..of_one).map(|i| json!({"server": addr(u * of_one + i)})).collect();
        format!("{}\n", json!({"upstream": format!("u{u}"), "servers": servers}))
    };
    (0..upstreams).map(upstream).collect()
}

fn fill(nginx: &Nginx, upstreams: usize) {
    let request = Request::new("PUT", "/api/v1/zones/main/import").body(lines(upstreams));
    let made = request.timeout(secs(60)).send(nginx.addr("api")).unwrap();
    assert_eq!(made.status, 200, "{}", made.text());
}

/// Asks five times for all servers, however they are spread over upstreams: no turn of the event
/// loop takes 5 ms of CPU, and there are at least so many. `look` gets the number of upstreams.
fn in_slices(conf: &Conf, least: u64, ask: impl Fn(&Nginx) -> Reply, look: impl Fn(&Reply, usize)) {
    for upstreams in [1, 500, SERVERS] {
        let (conf, turns) = Turns::of(conf.clone());
        let nginx = conf.start();
        fill(&nginx, upstreams);
        let mut all = Vec::new();
        for _ in 0..5 {
            let (reply, longest, n) = turns.during(|| ask(&nginx));
            look(&reply, upstreams);
            assert!(n > least, "{} bytes in {n} turns", reply.body.len());
            all.push(longest);
        }
        // Caches that another process has emptied cost a turn time too.
        all.sort_unstable();
        assert!(all[2] < ms(5), "{upstreams} upstreams: {all:?}");
    }
}

#[test]
fn no_turn_of_the_event_loop_takes_5_ms_for_ten_thousand_servers() {
    let conf = Nginx::builder().http(
        "peerage_zone main 64m;
         server { listen {api}; location /metrics { peerage_metrics; }
             location /api { peerage_api write=on; client_max_body_size 8m; } }",
    );
    let ask = |nginx: &Nginx| scrape(nginx.addr("api"), "/metrics", OPENMETRICS);
    in_slices(&conf, 100, ask, |reply, upstreams| {
        let shown = Exposition::of(reply);
        assert_eq!(shown.all("peerage_upstream_server_requests_total").len(), SERVERS);
        assert_eq!(shown.all("peerage_upstream_eligible").len(), upstreams);
    });
}

#[test]
fn no_turn_takes_5_ms_for_ten_thousand_peers_of_the_plus_api() {
    let conf = Nginx::builder().http("peerage_zone main 64m;").with_api("write=on");
    let ask = |nginx: &Nginx| get(nginx.addr("api"), "/api/9/http/upstreams").unwrap();
    in_slices(&conf, 80, ask, |reply, upstreams| {
        let shown = reply.json();
        let shown = shown.as_object().unwrap();
        assert_eq!(shown.len(), upstreams);
        let peers = shown.values().map(|upstream| upstream["peers"].as_array().unwrap().len());
        assert_eq!(peers.sum::<usize>(), SERVERS);
    });
}

/// What stands on hosts is not read anew for every few peers.
#[test]
fn hosts_that_are_down_do_not_make_a_listing_long() {
    let nginx = Nginx::builder().http("peerage_zone main 64m;").with_api("write=on");
    let (conf, turns) = Turns::of(nginx);
    let nginx = conf.start();
    fill(&nginx, SERVERS);
    let verb = |i: usize| {
        let host = format!("192.168.{}.{}", i >> 8, i & 255);
        json!({"op": "down", "host": host, "missing": "ok", "min_up": 0})
    };
    let changes: Vec<Value> = (0..4_000).map(verb).collect();
    nginx.api().patient(secs(20)).ok("POST", "batch", Some(&json!({"changes": changes})));
    let (reply, longest, n) =
        turns.during(|| get(nginx.addr("api"), "/api/9/http/upstreams").unwrap());
    assert_eq!(reply.json().as_object().unwrap().len(), SERVERS);
    assert!(n < 1_000, "{n} turns, {longest:?}");
}

#[test]
fn a_client_that_goes_away_takes_its_page_with_it() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 64m;
             server { listen {api}; location /metrics { peerage_metrics; }
                 location /api { peerage_api write=on; client_max_body_size 8m; } }",
        )
        .start();
    fill(&nginx, 500);
    let worker = nginx.worker_pids()[0];
    let go_away = |n: usize| {
        for _ in 0..n {
            let mut conn = Conn::open(nginx.addr("api")).unwrap();
            conn.begin(&Request::get("/metrics")).unwrap();
            assert_eq!(conn.head().unwrap().status, 200);
            conn.read(100_000).unwrap();
        }
        assert_eq!(scrape(nginx.addr("api"), "/metrics", "").status, 200);
    };
    go_away(20);
    let (memory, open) = (rss_kb(worker), descriptors(worker));
    go_away(scale(100, 1_000));
    assert!(rss_kb(worker) <= memory + 2_048, "{} kB, was {memory}", rss_kb(worker));
    // nginx sees that a client is gone at its next event.
    eventually(secs(5), || descriptors(worker) <= open);
}
