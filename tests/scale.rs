//! Ten thousand upstreams of twenty servers (a thousand in the short run): start, listing, one
//! change, snapshot, and what a server costs. Figures are printed.

mod support;

use std::fmt::Write;
use std::fs;

use support::*;

const SERVERS: usize = 20;

fn conf(size: &str) -> Conf {
    Nginx::builder()
        .http(format!("peerage_zone main {size} state={{prefix}}/main.json;"))
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
    line(
        &mut text,
        &format!(
            r#"{{"format":1,"zone":"main","revision":{upstreams},"next_id":{last},"time":"{time}"}}"#
        ),
    );
    for n in 0..upstreams {
        let mut servers = Vec::new();
        for s in 0..SERVERS {
            let id = n * SERVERS + s + 1;
            let server = format!("10.{}.{}.{s}:8080", n / 250, n % 250);
            servers.push(format!(r#"{{"id":{id},"server":"{server}"}}"#));
        }
        let (name, revision, servers) = (name(n), n + 1, servers.join(","));
        line(
            &mut text,
            &format!(
                r#"{{"upstream":"{name}","revision":{revision},"origin":"api","servers":[{servers}]}}"#
            ),
        );
    }
    line(&mut text, &format!(r#"{{"end":{upstreams},"servers":{}}}"#, upstreams * SERVERS));
    text
}

fn line(text: &mut String, data: &str) {
    writeln!(text, r#"{{"sum":"{:08x}","data":{data}}}"#, crc32c(data.as_bytes())).unwrap();
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (i, entry) in table.iter_mut().enumerate() {
        let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        *entry = (0..8).fold(i as u32, |crc, _| step(crc));
    }
    !bytes.iter().fold(!0, |crc: u32, &b| crc >> 8 ^ table[(crc as u8 ^ b) as usize])
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
    println!("start: {of_full:?}, of an empty zone {of_empty:?}");
    assert!(of_full < of_empty + secs(5), "{of_full:?}");
    let begun = Instant::now();
    assert!(nginx.test().0);
    println!("nginx -t: {:?}", begun.elapsed());

    let per_server = (used(&api) - bytes_of_empty) / (upstreams * SERVERS) as u64;
    println!("bytes a server, names, lists and upstreams included: {per_server}");
    assert!(per_server <= 384, "{per_server}");

    let begun = Instant::now();
    let mut after = String::new();
    let mut seen = 0;
    loop {
        let page = api.ok("GET", &format!("upstreams?limit=700&after={after}"), None);
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
        let verb = if turn % 2 == 0 { "down" } else { "up" };
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
