//! The support of the stories, proved against stock nginx: what these stories rest on.

mod support;

use support::*;

const APP: &str = "
    upstream app { server {b1} max_fails=0; server {b2} max_fails=0; keepalive 8; }
    map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
    server {
        listen {web};
        location / {
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header Upgrade $http_upgrade;
        }
    }";

fn app(b1: &Backend, b2: &Backend) -> Conf {
    Nginx::stock().http(APP).set("b1", b1).set("b2", b2)
}

#[test]
fn backends_answer_as_the_path_says() {
    let b1 = Backend::new("b1");
    let addr = b1.socket_addr();
    let mut conn = Conn::open(addr).unwrap();
    let mut path = |path: &str| conn.send(&Request::get(path)).unwrap();
    assert_eq!(path("/").text(), "b1");
    assert_eq!(path("/any/status/503").status, 503);
    assert_eq!(path("/chunked?n=3&ms=1").text(), "a chunk\n".repeat(3));
    assert_eq!(path("/download?kb=3").body.len(), 3 * 1024);
    let start = Instant::now();
    let slow = path("/slow?ms=50");
    assert!(start.elapsed() >= ms(50));
    assert_eq!((slow.header("x-connection"), slow.header("x-requests")), (Some("1"), Some("5")));

    let posted = Request::post("/echo").body("abcdef").chunked(4);
    let echo = conn.send(&posted).unwrap().text();
    assert!(echo.starts_with("POST /echo HTTP/1.1\r\n") && echo.ends_with("\r\n\r\nabcdef"));

    assert!(get(addr, "/close").is_err());
    assert!(get(addr, "/partial").is_err());
    let reset = get(addr, "/reset").unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);

    let mut socket = Conn::open(addr).unwrap();
    socket.begin(&Request::get("/").header("Upgrade", "websocket")).unwrap();
    assert_eq!(socket.head().unwrap().status, 101);
    socket.write(b"ping").unwrap();
    assert_eq!(socket.read(4).unwrap(), b"ping");
    eventually(secs(2), || (b1.upgraded(), b1.open()) == (1, 2));
    assert!(b1.max_open() >= 2, "the closed ones may have been counted a little longer");
    drop((socket, conn));
    eventually(secs(2), || b1.open() == 0 && b1.upgraded() == 0);
    let last = get(addr, "/").unwrap();
    assert_eq!(last.header("connection"), Some("close"), "it says so before it does so");
}

#[test]
fn backend_that_stops_refuses_and_comes_back_under_another_name() {
    let mut b1 = Backend::new("b1");
    let addr = b1.socket_addr();
    let mut kept = Conn::open(addr).unwrap();
    kept.send(&Request::get("/")).unwrap();
    b1.stop();
    assert!(kept.closed_within(secs(1)));
    assert!(get(addr, "/").is_err());
    b1.rename("b1 v2");
    b1.start();
    assert_eq!(get(addr, "/").unwrap().backend(), "b1 v2");
}

#[test]
fn two_hundred_requests_are_held_at_once_and_released() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let load = Load::to(nginx.web()).path("/hold").threads(200).start();
    eventually(secs(20), || b1.held() + b2.held() == 200);
    assert_eq!(load.total(), 0);
    let stop = std::thread::spawn(|| load.stop());
    eventually(secs(20), || {
        b1.release();
        b2.release();
        stop.is_finished()
    });
    let report = stop.join().unwrap();
    report.all_ok();
    assert_eq!(b1.max_active() + b2.max_active(), 200);
}

#[test]
fn reload_returns_with_new_workers_and_old_ones_that_finish_their_work() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).workers(2).start();
    let old = nginx.worker_pids();
    assert_eq!(old.len(), 2);
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/hold")).unwrap();
    eventually(secs(2), || b1.held() + b2.held() == 1);
    let load = Load::to(nginx.web()).rate(300).start();
    nginx.reload();
    let new = nginx.worker_pids();
    assert!(new.len() == 2 && new.iter().all(|pid| !old.contains(pid)));
    eventually(secs(5), || nginx.leaving_pids().len() == 1);
    load.stop().all_ok();
    b1.release();
    b2.release();
    assert_eq!(held.reply().unwrap().status, 200);
    nginx.settled(2);
}

#[test]
fn a_bad_configuration_is_told_by_test_and_by_reload_and_changes_nothing() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).start();
    let workers = nginx.worker_pids();
    assert!(nginx.test().0);
    nginx.change(|conf| conf.http("no_such_directive;"));
    let (good, text) = nginx.test();
    assert!(!good && text.contains("no_such_directive"), "{text}");
    assert_eq!(nginx.alerts(), Vec::<String>::new());
    let text = nginx.try_reload().unwrap_err();
    assert!(text.contains("unknown directive"), "{text}");
    assert_eq!(nginx.alerts().len(), 1);
    nginx.allow("unknown directive");
    assert_eq!(nginx.worker_pids(), workers);
    assert_eq!(nginx.get("/").status, 200);
    let refused = Nginx::stock().http("no_such_directive;").allow("unknown directive").try_start();
    assert!(refused.unwrap_err().contains("no_such_directive"));
}

#[test]
fn stop_restart_kill_and_reopen_keep_prefix_and_ports() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).allow("signal 9").workers(2).start();
    std::fs::write(nginx.path("state"), "kept").unwrap();
    nginx.restart();
    assert_eq!(nginx.get("/").text().len(), 2);
    signal(nginx.worker_pids()[0], Signal::KILL);
    eventually(secs(5), || nginx.error_log().contains("exited on signal 9"));
    nginx.settled(2);
    nginx.reopen();
    assert!(nginx.path("logs/error.log.1").exists());
    nginx.kill();
    assert!(get(nginx.web(), "/").is_err());
    nginx.start();
    assert_eq!(nginx.get("/").status, 200);
    assert!(nginx.stop().success());
    assert_eq!(std::fs::read_to_string(nginx.path("state")).unwrap(), "kept");
}

#[test]
fn one_process_without_a_master_serves_and_stops() {
    let (b1, b2) =
        (Backend::unix("b1", &std::env::temp_dir().join(socket_name())), Backend::new("b2"));
    let mut nginx = app(&b1, &b2).single().start();
    assert!(nginx.workers().is_empty());
    let report = hit(nginx.web(), "/", 20);
    report.all_ok();
    assert_eq!((report.backend("b1"), report.backend("b2")), (10, 10));
    assert!(nginx.stop().success());
}

fn socket_name() -> String {
    format!("peerage-harness-{}.sock", std::process::id())
}

#[test]
fn load_keeps_its_rate_and_counts_who_answered() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let load = Load::to(nginx.web()).rate(400).threads(4).start();
    eventually(secs(10), || load.total() >= 400);
    b1.mode(Mode::Status(503));
    eventually(secs(10), || load.failed() > 0);
    b1.mode(Mode::Serve);
    let report = load.stop();
    assert!(report.rate() < 420.0, "{report:?}");
    assert_eq!(report.status(200) + report.status(503), report.total);
    assert!(report.backend("b1").abs_diff(report.backend("b2")) <= 4);
    assert!(report.quantile(0.5) <= report.quantile(0.99));
    let kept = Load::to(nginx.web()).keepalive().rate(400).start();
    eventually(secs(10), || kept.total() >= 100);
    kept.stop().all_ok();
}

#[test]
fn websocket_passes_through_and_counts_as_upgraded() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let mut socket = Conn::open(nginx.web()).unwrap();
    let upgrade = Request::get("/").header("Upgrade", "websocket").header("Connection", "upgrade");
    socket.begin(&upgrade).unwrap();
    assert_eq!(socket.head().unwrap().status, 101);
    socket.write(b"hello").unwrap();
    assert_eq!(socket.read(5).unwrap(), b"hello");
    assert_eq!(b1.upgraded() + b2.upgraded(), 1);
    b1.close_connections();
    b2.close_connections();
    assert!(socket.closed_within(secs(2)));
}

#[test]
fn tls_backend_tells_names_connections_and_resumption() {
    let tls = Certificate::backend(&["a.test", "b.test"], "TLSv1.2 TLSv1.3");
    let nginx = Nginx::stock()
        .http(
            "upstream tls { server {tls}; }
             server {
                 listen {web};
                 location ~ /(?<name>[ab])$ {
                     proxy_pass https://tls;
                     proxy_ssl_server_name on;
                     proxy_ssl_protocols TLSv1.2 TLSv1.3;
                     proxy_ssl_name $name.test;
                     proxy_set_header Host $name.test;
                     proxy_set_header Connection close;
                 }
             }",
        )
        .set("tls", tls.web())
        .start();
    for name in ["a", "b", "a"] {
        let reply = nginx.get(&format!("/{name}"));
        assert_eq!(reply.backend(), format!("{name}.test"));
        assert_eq!(reply.text(), format!("{name}.test"));
        assert_eq!(reply.header("x-protocol"), Some("TLSv1.3"));
    }
}

#[test]
#[should_panic(expected = "unexpected in the error log")]
fn an_alert_that_nobody_expected_fails_the_story() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = app(&b1, &b2).start();
    let worker = nginx.worker_pids()[0];
    signal(worker, Signal::KILL);
    eventually(secs(5), || nginx.alerts().iter().any(|line| line.contains("signal 9")));
    eventually(secs(5), || nginx.worker_pids().iter().any(|pid| *pid != worker));
}
