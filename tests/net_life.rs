//! The life of our own connections: nothing of them stays, whoever goes away, and they hold nobody.

mod support;

use std::io::Read;

use support::*;

#[test]
fn thousands_of_fetches_leave_nothing_open() {
    // A slot or a descriptor that is lost each time would be missed soon.
    let nginx = fetcher().events("worker_connections 64;").start();
    let worker = nginx.worker_pids()[0];
    let (b1, refusing) = (Backend::new("b1"), Backend::refusing("b2"));
    let tls = Certificate::backend(&["a.test"], "TLSv1.3");
    let round = |times: usize| {
        let many = |url: String, params: &str, times: usize| {
            fetch(&nginx, &format!("{url};times={times};at_once=8;{params}"))
        };
        let found = many(format!("http://{b1}/"), "fresh", times);
        assert_eq!(found["done"], times, "{found}");
        let found = many(format!("http://{b1}/"), "", times);
        assert_eq!(found["done"], times, "{found}");
        let found = many(format!("http://{refusing}/"), "", times);
        assert_eq!((&found["done"], &found["own"]), (&json!(0), &json!(0)), "{found}");
        for path in ["close", "reset", "partial", "hold"] {
            let found = many(format!("http://{b1}/{path}"), "timeout=5", times / 10);
            assert_eq!((&found["done"], &found["own"]), (&json!(0), &json!(0)), "{found}");
        }
        let found = many(format!("https://{}/", tls.web()), "fresh", times / 10);
        assert_eq!(found["done"], times / 10, "{found}");
        let found = many(format!("https://{}/", tls.web()), "verify;name=a.test", times / 10);
        assert_eq!((&found["done"], &found["own"]), (&json!(0), &json!(0)), "{found}");
        assert_eq!(found["tasks"], 1, "{found}");
    };
    round(1_000);
    let (rss, open) = (rss_kb(worker), descriptors(worker));
    round(scale(3_000, 30_000));
    eventually(secs(5), || descriptors(worker) <= open);
    assert!(rss_kb(worker) <= rss + 512, "{} kB, was {rss}", rss_kb(worker));
    eventually(secs(5), || {
        b1.release();
        b1.open() == 0
    });
    assert_eq!(nginx.worker_pids(), [worker]);
}

#[test]
fn a_client_that_goes_away_takes_its_fetch_along_wherever_that_is() {
    let nginx = fetcher().start();
    let worker = nginx.worker_pids()[0];
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let (b1, full) = (Backend::new("b1"), FullQueue::new());
    let silent = Script::new(|mut stream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // until the client is gone
    });
    let open = descriptors(worker);
    for url in [
        format!("http://{b1}/hold"),
        format!("http://{b1}/download?kb=10000&ms=5"),
        format!("http://{}/", full.addr),
        format!("https://{}/", silent.addr),
        format!("h2://{}/", silent.addr),
    ] {
        let mut client = Conn::open(nginx.addr("api")).unwrap();
        client.begin(&wish(&format!("{url};at_once=3;times=3"))).unwrap();
        eventually(secs(5), || descriptors(worker) == open + 1 + 3);
        drop(client);
        eventually(secs(5), || descriptors(worker) == open);
    }
    // At any moment of a fetch.
    for i in 0..scale(200, 2_000) {
        let mut client = Conn::open(nginx.addr("api")).unwrap();
        let url =
            if i % 2 == 0 { format!("https://{}/", tls.web()) } else { format!("http://{b1}/") };
        client.begin(&wish(&format!("{url};at_once=4;times=1000;fresh"))).unwrap();
        let_pass(Duration::from_micros(i * 37 % 5_000));
        drop(client);
    }
    eventually(secs(5), || descriptors(worker) == open);
    let found = fetch(&nginx, &format!("http://{b1}/"));
    assert_eq!((&found["done"], &found["tasks"]), (&json!(1), &json!(1)), "{found}");
    assert_eq!(nginx.worker_pids(), [worker]);
}

#[test]
fn a_worker_that_exits_ends_its_fetches_and_waits_for_none() {
    let mut nginx = fetcher().start();
    let (b1, tls) = (Backend::new("b1"), Certificate::backend(&["a.test"], "TLSv1.3"));
    let first = nginx.worker_pids();
    // One belongs to a request, which is answered; the others belong to the process.
    let mut client = Conn::open(nginx.addr("api")).unwrap();
    client.begin(&wish(&format!("http://{b1}/hold;timeout=60000"))).unwrap();
    fetch(&nginx, &format!("http://{b1}/hold;detach;at_once=5;times=5;timeout=60000"));
    fetch(&nginx, &format!("https://{}/;detach;times=100000;pause=200", tls.web()));
    fetch(&nginx, "tasks:panic");
    nginx.allow("asked for in a task");
    eventually(secs(5), || b1.held() == 6);
    nginx.hup();
    let reply = client.reply().unwrap();
    assert_eq!(reply.json()["errors"], json!({"the worker is exiting": 1}));
    assert_eq!(reply.json()["own"], 1);
    eventually(secs(5), || first.iter().all(|&pid| !alive(pid)));
    eventually(secs(5), || b1.open() == 0);
    nginx.settled(1);
    // Reloads in the middle of many.
    for _ in 0..10 {
        fetch(&nginx, &format!("http://{b1}/;detach;at_once=20;times=1000000;fresh"));
        fetch(&nginx, &format!("https://{}/;detach;at_once=5;times=1000000;fresh", tls.web()));
        nginx.reload();
        nginx.settled(1);
    }
    assert_eq!(fetch(&nginx, &format!("http://{b1}/"))["done"], 1);
    nginx.stop();
    assert!(!nginx.error_log().contains("open socket"), "none is left to nginx");
}

#[test]
fn a_single_process_fetches_too() {
    let mut nginx = fetcher().single().start();
    let b1 = Backend::new("b1");
    assert_eq!(fetch(&nginx, &format!("http://{b1}/;times=100;fresh"))["done"], 100);
    fetch(&nginx, &format!("http://{b1}/hold;detach;timeout=60000"));
    fetch(&nginx, &format!("http://{b1}/;detach;times=1000000;pause=1"));
    // A single process that has reloaded has no connections to give, in stock nginx neither.
    eventually(secs(5), || b1.held() == 1 && b1.open() == 2);
    nginx.hup();
    eventually(secs(5), || nginx.error_log().contains("reconfiguring"));
    b1.release();
    nginx.stop();
    eventually(secs(5), || b1.open() == 0);
}

#[test]
fn connections_that_are_used_up_are_an_error_and_not_the_servers() {
    let nginx = fetcher()
        .events("worker_connections 24;")
        .allow("worker_connections are not enough")
        .start();
    let b1 = Backend::new("b1");
    fetch(&nginx, &format!("http://{b1}/hold;detach;at_once=10;times=10;timeout=60000"));
    eventually(secs(5), || b1.held() == 10);
    let worker = nginx.worker_pids()[0];
    let open = descriptors(worker);
    let found = fetch(&nginx, &format!("http://{b1}/hold;at_once=20;times=20;timeout=500"));
    let (late, short) = ("the response timed out", "24 worker_connections are not enough");
    let count = |text: &str| found["errors"][text].as_u64().unwrap_or(0);
    assert_eq!(count(late) + count(short), 20, "{found}");
    assert!(count(short) >= 5 && found["own"] == count(short), "{found}");
    let lines = nginx.error_log().matches("are not enough").count();
    assert!(lines == 1, "one line for all of them, not {lines}");
    // nginx takes idle connections away where there are too few, not these.
    eventually(secs(5), || descriptors(worker) == open);
    b1.release();
    eventually(secs(5), || b1.open() == 0);
    assert_eq!(fetch(&nginx, &format!("http://{b1}/;at_once=5;times=50"))["done"], 50);
}

#[test]
fn a_server_taken_out_closes_no_connection_of_ours() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::faulty()
        .http(
            "peerage_zone main 1m; upstream app { peerage main; server {b1}; keepalive 4; }
             server { listen {web}; location / { proxy_pass http://app; proxy_http_version 1.1;
                 proxy_set_header Connection ''; } }",
        )
        .set("b1", &b1)
        .with_api("write=on")
        .start();
    hit(nginx.web(), "/", 4).all_ok();
    let mut client = Conn::open(nginx.addr("api")).unwrap();
    client.begin(&wish(&format!("http://{b1}/hold;timeout=60000"))).unwrap();
    eventually(secs(5), || b1.held() == 1);
    let kept = b1.open();
    assert_eq!(nginx.api().verb("app", &b1, "down?close=100ms").0, 200);
    eventually(secs(5), || b1.open() < kept);
    holds_for(ms(800), || b1.held() == 1);
    b1.release();
    assert_eq!(client.reply().unwrap().json()["done"], 1);
}

#[test]
fn futures_have_their_turns_without_holding_the_loop() {
    let nginx = fetcher().allow("asked for in a task").start();
    let worker = nginx.worker_pids();
    for _ in 0..3 {
        fetch(&nginx, "tasks:panic");
        eventually(secs(5), || {
            nginx.error_log().contains("panic in a background task: asked for in a task")
        });
        assert_eq!(fetch(&nginx, "tasks:own")["tasks"], 0);
    }
    assert_eq!(nginx.error_log().matches("[alert]").count(), 3);
    // A second of work: others have their turn every few milliseconds.
    let running = Load::to(nginx.addr("api")).path("/api/v1").start();
    let found = fetch(&nginx, "tasks:many");
    let report = running.stop();
    assert_eq!(found["turns"], 10_000, "{found}");
    assert!(found["ticks"].as_u64().unwrap() > 100, "{found}");
    assert!(report.status(200) > 20, "{report:?}");
    assert_eq!(nginx.worker_pids(), worker);
}

#[test]
fn memcheck_finds_nothing_in_fetches() {
    // With the thread of a state file the module stays loaded to the end, and so does what it keeps
    // there.
    let conf = Nginx::faulty().http("peerage_zone main 1m state={prefix}/main.json;").single();
    let conf = conf.with_api("write=on").allow("asked for in a task").file("known", KNOWN);
    let known = format!("--suppressions={}", conf.prefix().join("known").display());
    let mut nginx = conf.memcheck(&[&known]).start();
    let (b1, refusing) = (Backend::new("b1"), Backend::refusing("b2"));
    let tls = Certificate::backend(&["a.test"], "TLSv1.2 TLSv1.3");
    let two = Nginx::stock()
        .http("server { listen {web} http2; location / { return 200 $server_protocol; } }")
        .start();
    let ca = tls.path("a.test.pem");
    for path in ["", "chunked?n=5&ms=1", "download?kb=200", "status/503", "slow?ms=20"] {
        let found = fetch(&nginx, &format!("http://{b1}/{path};times=4"));
        assert_eq!(found["done"], 4, "{path}: {found}");
        fetch(&nginx, &format!("http://{b1}/{path};times=4;fresh;body=3"));
    }
    for path in ["close", "reset", "partial", "hold"] {
        fetch(&nginx, &format!("http://{b1}/{path};times=3;timeout=200"));
    }
    fetch(&nginx, &format!("http://{refusing}/;times=3"));
    for params in ["verify", "", "fresh", "verify;cert=/x;key=/y"] {
        let url = format!("https://{}/;times=3;name=a.test", tls.web());
        fetch(&nginx, &format!("{url};{params}"));
        fetch(&nginx, &format!("{url};ca={};{params}", ca.display()));
    }
    fetch(&nginx, &format!("https://{b1}/"));
    assert_eq!(fetch(&nginx, &format!("h2://{}/;times=9", two.web()))["done"], 9);
    fetch(&nginx, &format!("h2://{b1}/"));
    fetch(&nginx, &format!("h2s://{}/;times=2", tls.web()));
    for name in ["tasks:panic", "tasks:own"] {
        fetch(&nginx, name);
    }
    let mut gone = Conn::open(nginx.addr("api")).unwrap();
    gone.begin(&wish(&format!("http://{b1}/hold;timeout=60000"))).unwrap();
    eventually(secs(20), || b1.held() > 0);
    drop(gone);
    fetch(&nginx, &format!("http://{b1}/hold;detach;timeout=60000"));
    fetch(&nginx, &format!("https://{}/;detach;times=1000000;pause=50", tls.web()));
    nginx.stop();
    let log = nginx.log("valgrind.log");
    assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
}

/// What stock nginx keeps to its end.
const KNOWN: &str = "{
    environment
    Memcheck:Leak
    match-leak-kinds: definite
    fun:malloc
    fun:ngx_alloc
    fun:ngx_set_environment
}
";
