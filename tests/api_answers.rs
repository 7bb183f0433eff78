//! Big answers in slices: whole and valid for every client, fast for those beside it, and gone with
//! a client that goes away.

mod support;

use support::*;

fn start(upstreams: usize, more: &str) -> Nginx {
    let conf = Nginx::builder().port("two").http(
        "peerage_zone main 48m;
         upstream app { peerage main; server 10.9.9.1:8080; }",
    );
    let nginx = conf.http_more(more).with_api("write=on").start();
    let servers: Vec<Value> =
        (0..20).map(|i| json!({"server": format!("10.8.0.{i}:80")})).collect();
    let body = json!({"servers": servers}).to_string();
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    for i in 0..upstreams {
        let put = Request::new("PUT", &format!("/api/v1/upstreams/u{i:04}")).body(body.clone());
        let reply = conn.send(&put).unwrap();
        assert_eq!(reply.status, 201, "{}", reply.text());
        if i % 900 == 899 {
            conn = Conn::open(nginx.addr("api")).unwrap(); // keepalive_requests
        }
    }
    nginx
}

const ALL: &str = "/api/v1/upstreams?limit=1000&fields=servers&after=app";

/// Every upstream with its twenty servers.
#[track_caller]
fn whole(listing: &Value, upstreams: usize) {
    let listing = listing.as_object().expect("an object");
    assert_eq!(listing.len(), upstreams);
    assert!(listing.values().all(|u| u["servers"].as_array().is_some_and(|s| s.len() == 20)));
}

#[test]
fn a_thousand_upstreams_of_twenty_come_whole_to_fast_and_slow_readers() {
    let nginx = start(1_000, "");
    let addr = nginx.addr("api");
    let fast = get(addr, ALL).unwrap();
    assert_eq!(fast.header("transfer-encoding"), Some("chunked"));
    whole(&fast.json(), 1_000);
    let worker = nginx.worker_pids()[0];
    let memory = rss_kb(worker);

    // Forty readers that take nothing for a while: they cost a slice each, and hold nobody.
    let mut slow: Vec<Conn> = (0..40).map(|_| Conn::open(addr).unwrap()).collect();
    for conn in &mut slow {
        conn.begin(&Request::get(ALL).timeout(secs(60))).unwrap();
    }
    let replies = slow.iter_mut().map(|conn| conn.head().unwrap().status);
    assert!(replies.eq([200; 40]));
    let ticks = cpu_ticks(worker);
    holds_for(ms(300), || nginx.api().call("GET", "upstreams/u0500", None).status == 200);
    assert!(rss_kb(worker) < memory + 40 * 256, "{} kB, was {memory}", rss_kb(worker));
    // What changes between two slices is shown as it is then; what goes is left out.
    assert_eq!(nginx.api().delete("upstreams/u0999").0, 200);
    assert_eq!(nginx.api().delete("upstreams/u0998/servers/10.8.0.7:80").0, 200);
    let mut reply = Reply {
        status: 200,
        headers: vec![("Transfer-Encoding".into(), "chunked".into())],
        body: Vec::new(),
    };
    slow[0].body_of(&mut reply).unwrap();
    let listing = reply.json();
    assert_eq!(listing.as_object().unwrap().len(), 999);
    assert_eq!(listing["u0998"]["servers"].as_array().unwrap().len(), 19);
    // The others go away in the middle.
    drop(slow);
    eventually(secs(5), || descriptors(worker) < 40);
    let before = cpu_ticks(worker);
    holds_for(ms(300), || nginx.api().call("GET", "upstreams/u0500", None).status == 200);
    assert!(cpu_ticks(worker) - before < 30 + (before - ticks), "it works for nobody");
    assert_eq!(nginx.worker_pids(), [worker]);
}

#[test]
fn a_reader_may_take_any_pieces_at_any_pace() {
    // With so small a buffer of the socket, a slice goes out in several pieces.
    let nginx =
        start(scale(60, 400), "server { listen {two} sndbuf=4k; location /api { peerage_api; } }");
    let addr = nginx.addr("two");
    let want = get(nginx.addr("api"), ALL).unwrap().text();
    for (piece, pause) in [(1, 0), (7, 0), (4_000, 1_000), (40_000, 2_000), (400_000, 20_000)] {
        let mut conn = Conn::open(addr).unwrap();
        conn.write(format!("GET {ALL} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let reply = conn.head().unwrap();
        assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None));
        let_pass(ms(50)); // until no buffer takes any more
        let mut got = Vec::new();
        while got.len() < want.len() {
            let n = piece.min(want.len() - got.len());
            got.extend(conn.read(n).unwrap());
            if pause > 0 {
                let_pass(Duration::from_micros(pause));
            }
        }
        assert!(conn.closed_within(secs(5)));
        assert_eq!(String::from_utf8(got).unwrap(), want, "in pieces of {piece}");
    }
}

#[test]
fn big_answers_pass_the_filters_of_nginx() {
    let nginx = start(
        scale(100, 400),
        "gzip_types application/json; gzip_min_length 1;
         server {
             listen {web} sndbuf=4k; listen {two} http2 sndbuf=4k;
             location /plain { peerage_api; }
             location /zip { peerage_api; gzip on; }
             location /thin { peerage_api; limit_rate 2m; }
             location /small { peerage_api; output_buffers 1 1k; postpone_output 0; }
             location /page { default_type text/html; return 200 '\"page\":'; add_after_body /plain/v1/upstreams; }
         }",
    );
    let n = scale(100, 400);
    let path = ALL.strip_prefix("/api").unwrap();
    let want = get(nginx.web(), &format!("/plain{path}")).unwrap().text();
    whole(&serde_json::from_str(&want).unwrap(), n);
    for (location, words) in [
        ("zip", &["--compressed"][..]),
        ("thin", &[]),
        ("small", &[]),
        ("small", &["--http1.0"]),
        ("plain", &["--http2-prior-knowledge"]),
        ("zip", &["--http2-prior-knowledge", "--compressed"]),
        ("thin", &["--http2-prior-knowledge"]),
    ] {
        let port = if words.contains(&"--http2-prior-knowledge") { "two" } else { "web" };
        let out = std::process::Command::new("curl")
            .args(["-sS", "--fail", "--max-time", "60"])
            .args(words)
            .arg(format!("http://{}/{location}{path}", nginx.addr(port)))
            .output()
            .expect("curl is installed");
        assert!(out.status.success(), "{location}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(String::from_utf8(out.stdout).unwrap() == want, "{location} {words:?}");
    }
    // A part of another answer has another path than its client sent: it is refused, not mixed up.
    let page = get(nginx.web(), "/page").unwrap();
    assert_eq!(page.status, 200);
    assert!(
        page.text().starts_with("\"page\":{\"type\":\"urn:peerage:bad-path\""),
        "{}",
        page.text()
    );
}

#[test]
fn an_exiting_worker_ends_its_answers_first() {
    let mut nginx = start(scale(300, 1_000), "");
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    conn.begin(&Request::get(ALL)).unwrap();
    let mut reply = conn.head().unwrap();
    nginx.reload();
    conn.body_of(&mut reply).unwrap();
    whole(&reply.json(), scale(300, 1_000));
    nginx.settled(1);
}
