//! Ten thousand upstreams of twenty servers (a thousand in the short run): start, listing, one
//! change, snapshot, and what a server costs. Figures are printed.

mod support;

use std::fs;

use support::*;

const SERVERS: usize = 20;

fn conf(size: &str) -> Conf {
    Nginx::builder()
        .http(format!("peerage_zone main {size} state={{prefix}}/main.json flush=10m;"))
        .with_api("write=on")
}

fn name(n: usize) -> String {
    format!("svc-{n:05}")
}

/// A state file as the module writes it.
fn state_file(upstreams: usize) -> String {
    let mut text = String::new();
    let last = upstreams * SERVERS + 1;
    let time = "2026-01-01T00:00:00Z";
    let header = format!(
        r#"{{"format":1,"zone":"main","revision":{upstreams},"next_id":{last},"time":"{time}"}}"#
    );
    text += &sealed(&header);
    for n in 0..upstreams {
        let server = |s: usize| {
            let id = n * SERVERS + s + 1;
            format!(r#"{{"id":{id},"server":"10.{}.{}.{s}:8080"}}"#, n / 250, n % 250)
        };
        let servers: Vec<String> = (0..SERVERS).map(server).collect();
        let (name, revision, servers) = (name(n), n + 1, servers.join(","));
        let upstream = format!(
            r#"{{"upstream":"{name}","revision":{revision},"origin":"api","servers":[{servers}]}}"#
        );
        text += &sealed(&upstream);
    }
    text + &sealed(&format!(r#"{{"end":{upstreams},"servers":{}}}"#, upstreams * SERVERS))
}

fn used(api: &Api) -> u64 {
    api.ok("GET", "zones/main", None)["bytes"]["used"].as_u64().unwrap()
}

fn started(conf: Conf) -> (Nginx, Duration) {
    let begun = Instant::now();
    let nginx = conf.start();
    (nginx, begun.elapsed())
}

#[test]
fn ten_thousand_upstreams_start_list_change_and_are_written() {
    let (upstreams, size) = scale((1_000, "24m"), (10_000, "160m"));
    let (empty, of_empty) = started(conf(size));
    let bytes_of_empty = used(&empty.api());
    drop(empty);

    let file = state_file(upstreams);
    let (nginx, of_full) = started(conf(size).file("main.json", &file));
    let api = nginx.api();
    let report = api.ok("GET", "zones/main", None);
    assert_eq!(report["upstreams"], upstreams);
    assert_eq!(report["servers"], upstreams * SERVERS);
    let ticks = cpu_ticks(nginx.master_pid());
    println!("start: {of_full:?}, of an empty zone {of_empty:?}; the master ran {ticks}0 ms");
    assert!(of_full < of_empty + secs(20), "{of_full:?}");
    let begun = Instant::now();
    assert!(nginx.test().0);
    println!("nginx -t: {:?}", begun.elapsed());

    let per_server = (used(&api) - bytes_of_empty) / (upstreams * SERVERS) as u64;
    println!("bytes a server, names, lists and upstreams included: {per_server}");
    // 384, and the text of the address in the peer (64) and in the server's own record (32).
    assert!(per_server <= 384 + 96, "{per_server}");

    let begun = Instant::now();
    let mut after = String::new();
    let mut seen = 0;
    loop {
        let from = if seen == 0 { String::new() } else { format!("&after={after}") };
        let page = api.ok("GET", &format!("upstreams?limit=700{from}"), None);
        let page = page.as_object().unwrap();
        let Some(last) = page.keys().max() else { break };
        assert_eq!(*last, name(seen + page.len() - 1));
        assert!(page.keys().all(|name| *name > after));
        seen += page.len();
        after = last.clone();
    }
    assert_eq!(seen, upstreams);
    println!("all pages: {:?}", begun.elapsed());
    pages_are_in_name_order(&api);

    let target = "10.0.7.3:8080";
    let mut door = Conn::open(api.addr()).unwrap();
    let mut times = Vec::new();
    for turn in 0..20 {
        let verb = if turn & 1 == 0 { "down" } else { "up" };
        let path = format!("upstreams/{}/servers/{target}/{verb}", name(7));
        let begun = Instant::now();
        let reply = door.send(&api.request("POST", &path, None)).unwrap();
        times.push(begun.elapsed());
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["changed"], true);
    }
    times.sort_unstable();
    println!("one change: median {:?}, longest {:?}", times[10], times[19]);

    let begun = Instant::now();
    let answer = api.ok("POST", "zones/main/flush", None);
    let took = begun.elapsed();
    println!("snapshot of {} KB: {took:?}", file.len() / 1024);
    assert_eq!(answer["durable"], true);
    assert!(took < secs(10), "{took:?}");
    let text = fs::read_to_string(nginx.path("main.json")).unwrap();
    assert_eq!(text.lines().count(), upstreams + 2);
    assert!(text.contains(&name(upstreams - 1)));
}

/// Order of the text itself: a JSON map of this test is sorted in any case.
fn pages_are_in_name_order(api: &Api) {
    let text = api.call("GET", "upstreams?limit=50&after=svc-00099", None).text();
    let places: Vec<_> = (100..150)
        .map(|n| text.find(&format!("\"{}\":{{", name(n))).expect("it is there"))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
}
