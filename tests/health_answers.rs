//! What servers answer to probes, of every kind: the verdict is right, and nothing stays open.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use support::*;

/// An nginx that checks what is put into upstreams of the zone.
fn checker() -> Nginx {
    Nginx::builder().http("peerage_zone main 4m;").with_api("write=on").start()
}

fn put(nginx: &Nginx, upstream: &str, server: &str, check: Value) {
    let body = json!({ "check": check, "servers": [{ "server": server }] });
    nginx.api().ok("PUT", &format!("upstreams/{upstream}"), Some(&body));
}

/// The verdict on the one server of an upstream: `passes`, or why it failed.
#[track_caller]
fn verdict(nginx: &Nginx, upstream: &str) -> String {
    let api = nginx.api();
    let server = eventually(secs(5), || {
        let seen = api.upstream(upstream)["servers"][0].clone();
        let checks = &seen["counters"]["health_checks"];
        (checks["checks"].as_u64() >= Some(2)).then_some(seen)
    });
    match server["state"].as_str() {
        Some("up") => "passes".to_owned(),
        _ => server["why"]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

fn failed(why: &str) -> String {
    format!("its check failed: {why}")
}

/// Answers a head with these bytes, and closes when there are no more.
fn says(bytes: impl Into<Vec<u8>>) -> Script {
    let bytes = bytes.into();
    Script::new(move |mut stream| {
        while read_head(&mut stream).is_some() {
            if stream.write_all(&bytes).is_err() || bytes.is_empty() {
                return;
            }
            if !bytes.windows(4).any(|some| some == b"keep") {
                return;
            }
        }
    })
}

/// Answers with the first part at once, and with the rest slowly, a byte at a time.
fn slowly(first: &'static str, text: &'static str, pause: Duration) -> Script {
    Script::new(move |mut stream| {
        if read_head(&mut stream).is_some() {
            drop(stream.write_all(first.as_bytes()));
            for byte in text.bytes() {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                let_pass(pause);
            }
        }
    })
}

#[test]
fn every_kind_of_answer_has_its_verdict() {
    let nginx = checker();
    let worker = nginx.worker_pids()[0];
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell";
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let big = [b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n".as_slice(), &[b'x'; 1 << 20]];
    let late = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &[b'x'; 300 << 10], b"well"];
    let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(64 << 10));
    let scripts: Vec<(&str, Script, &str, String)> = vec![
        ("plain", says(ok), "", "passes".into()),
        (
            "kept",
            says("HTTP/1.1 200 OK\r\nX: keep\r\nContent-Length: 0\r\n\r\n"),
            "",
            "passes".into(),
        ),
        ("body", says(ok), "well", "passes".into()),
        ("other-body", says(ok), "ill", failed("text not in the body")),
        ("late-body", says(late.concat()), "well", failed("text not in the body")),
        ("slow-head", slowly("", ok, ms(100)), "", failed("timed out")),
        ("slow-body", slowly(head, "it is as it is", ms(100)), "well", failed("timed out")),
        ("slow-unread", slowly(head, "it is as it is", ms(100)), "", "passes".into()),
        ("megabyte", says(big.concat()), "", "passes".into()),
        ("megabyte-body", says(big.concat()), "xxx", "passes".into()),
        (
            "chunked",
            says(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nwe\r\n2\r\nll\r\n0\r\n\r\n",
            ),
            "well",
            "passes".into(),
        ),
        (
            "bad-chunk",
            says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "well",
            failed("no answer of its protocol"),
        ),
        ("204", says("HTTP/1.1 204 No Content\r\n\r\n"), "", "passes".into()),
        (
            "204-body",
            says("HTTP/1.1 204 No Content\r\n\r\n"),
            "well",
            failed("text not in the body"),
        ),
        ("continue", says(format!("HTTP/1.1 100 Continue\r\n\r\n{ok}")), "", "passes".into()),
        (
            "early-hints",
            says(format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{ok}")),
            "well",
            "passes".into(),
        ),
        ("http10", says("HTTP/1.0 200 OK\r\n\r\nwell"), "well", "passes".into()),
        ("503", says("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), "", failed("status 503")),
        (
            "101",
            says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
            "",
            failed("status 101"),
        ),
        ("999", says("HTTP/1.1 999 What\r\n\r\n"), "", failed("status 999")),
        ("none", says(""), "", failed("connection closed")),
        ("half", says("HTTP/1.1 200 OK\r\nContent-"), "", failed("connection closed")),
        (
            "short",
            says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nwe"),
            "well",
            failed("connection closed"),
        ),
        ("long-head", says(long_head), "", failed("no answer of its protocol")),
        ("smtp", says("220 mail.test ESMTP\r\n"), "", failed("no answer of its protocol")),
        (
            "ssh",
            Script::new(|mut s| drop(s.write_all(b"SSH-2.0-x\r\n"))),
            "",
            failed("no answer of its protocol"),
        ),
    ];
    for (name, script, body, _) in &scripts {
        let mut check = json!({ "interval": "200ms", "timeout": "150ms" });
        if !body.is_empty() {
            check["body"] = json!(body);
        }
        put(&nginx, name, &script.addr.to_string(), check);
    }
    for (name, _, _, wanted) in &scripts {
        assert_eq!(verdict(&nginx, name), *wanted, "{name}");
    }
    let (refusing, full) = (Backend::refusing("r"), FullQueue::new());
    let reset = Backend::new("reset");
    let check = |more: Value| {
        let mut check = json!({ "interval": "200ms", "timeout": "150ms" });
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check
    };
    put(&nginx, "refusing", &refusing.to_string(), check(json!({})));
    put(&nginx, "full", &full.addr.to_string(), check(json!({})));
    put(&nginx, "reset", &reset.to_string(), check(json!({ "uri": "/reset" })));
    put(&nginx, "tcp", &reset.to_string(), check(json!({ "type": "tcp" })));
    put(&nginx, "tcp-refused", &refusing.to_string(), check(json!({ "type": "tcp" })));
    put(
        &nginx,
        "other-port",
        &refusing.to_string(),
        check(json!({ "port": reset.socket_addr().port() })),
    );
    let path = nginx.path("b.sock");
    let unix = Backend::unix("unix", &path);
    put(&nginx, "unix", &unix.to_string(), check(json!({})));
    put(
        &nginx,
        "no-socket",
        &format!("unix:{}", nginx.path("none.sock").display()),
        check(json!({})),
    );
    for (name, wanted) in [
        ("refusing", failed("connection refused")),
        ("full", failed("connecting timed out")),
        ("reset", failed("connection reset")),
        ("tcp", "passes".into()),
        ("tcp-refused", failed("connection refused")),
        ("other-port", "passes".into()),
        ("unix", "passes".into()),
        ("no-socket", failed("connecting failed")),
    ] {
        assert_eq!(verdict(&nginx, name), wanted, "{name}");
    }
    assert_eq!(nginx.worker_pids(), [worker]);
}

#[test]
fn tls_is_verified_as_asked() {
    let tls = Certificate::backend(&["a.test", "b.test"], "TLSv1.2 TLSv1.3");
    let ca = tls.path("a.test.pem").display().to_string();
    let nginx = checker();
    let plain = Backend::new("plain");
    let web = tls.web().to_string();
    let check = |more: Value| {
        let mut check = json!({ "type": "https", "interval": "200ms", "timeout": "200ms" });
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check
    };
    put(&nginx, "any", &web, check(json!({})));
    put(
        &nginx,
        "good",
        &web,
        check(json!({ "ca": ca, "sni": "a.test", "body": "x.test", "host": "x.test" })),
    );
    put(&nginx, "reused", &web, check(json!({ "ca": ca, "sni": "a.test", "reuse": true })));
    put(&nginx, "other-name", &web, check(json!({ "ca": ca, "sni": "c.test" })));
    put(&nginx, "other-ca", &web, check(json!({ "ca": ca, "sni": "b.test" })));
    put(&nginx, "plain", &nginx.addr("api").to_string(), check(json!({})));
    put(&nginx, "closes", &plain.to_string(), check(json!({})));
    put(&nginx, "plain-to-tls", &web, json!({ "interval": "200ms", "timeout": "200ms" }));
    for (name, wanted) in [
        ("any", "passes".into()),
        ("good", "passes".into()),
        ("reused", "passes".into()),
        ("other-name", failed("certificate not accepted")),
        ("other-ca", failed("certificate not accepted")),
        ("plain", failed("TLS handshake failed")),
        ("closes", failed("connection closed")),
        ("plain-to-tls", failed("status 400")),
    ] {
        assert_eq!(verdict(&nginx, name), wanted, "{name}");
    }
}

#[test]
fn what_this_side_lacks_is_no_failure_of_the_server() {
    let tls = Certificate::backend(&["a.test"], "TLSv1.3");
    let nginx = Nginx::builder()
        .http("peerage_zone main 4m;")
        .with_api("write=on")
        .allow("cannot be probed")
        .start();
    let check = json!({ "type": "https", "interval": "100ms", "ca": "/nonexistent.pem" });
    put(&nginx, "app", &tls.web().to_string(), check);
    eventually(secs(3), || nginx.error_log().contains("cannot be probed: \"/nonexistent.pem\": "));
    let server = nginx.api().upstream("app")["servers"][0].clone();
    assert_eq!(
        (&server["state"], &server["counters"]["health_checks"]["checks"]),
        (&json!("up"), &json!(0))
    );
    assert_eq!(nginx.error_log().matches("cannot be probed").count(), 1);
}

/// A stock nginx that answers calls of gRPC as its port says.
fn calls() -> Nginx {
    let message = |status: char| format!("\"\0\0\0\0\x02\x08{status}\"");
    let server = |port: &str, sock: &str, trailers: &str| {
        format!(
            "server {{ listen {{{port}}} http2;
                location = /grpc.health.v1.Health/Check {{
                    {trailers} proxy_pass http://unix:{{prefix}}/{sock}; }}
                location / {{ return 404; }} }}"
        )
    };
    let answer = |sock: &str, body: String| {
        format!(
            "server {{ listen unix:{{prefix}}/{sock}; default_type application/grpc;
                return 200 {body}; }}"
        )
    };
    let ok = "add_trailer grpc-status 0;";
    let text = [
        server("serving", "1.sock", ok),
        server("not", "2.sock", ok),
        server("cut", "1.sock", ""),
        server("error", "1.sock", "add_trailer grpc-status 5;"),
        server("empty", "3.sock", ok),
        answer("1.sock", message('\x01')),
        answer("2.sock", message('\x02')),
        answer("3.sock", "\"\"".to_owned()),
    ]
    .concat();
    let mut conf = Nginx::stock().http(text);
    for port in ["serving", "not", "cut", "error", "empty"] {
        conf = conf.port(port);
    }
    conf.start()
}

#[test]
fn grpc_says_whether_it_serves() {
    let (server, nginx, plain) = (calls(), checker(), Backend::new("b1"));
    let check =
        json!({ "type": "grpc", "interval": "200ms", "timeout": "200ms", "uri": "a.Service" });
    let ports = [
        ("serving", "passes".to_owned()),
        ("not", failed("not serving")),
        ("cut", failed("connection closed")),
        ("error", failed("gRPC status 5")),
        ("empty", failed("no answer of its protocol")),
    ];
    for (port, _) in &ports {
        put(&nginx, port, &server.addr(port).to_string(), check.clone());
    }
    put(&nginx, "plain", &plain.to_string(), check);
    for (port, wanted) in &ports {
        assert_eq!(verdict(&nginx, port), *wanted, "{port}");
    }
    assert_eq!(verdict(&nginx, "plain"), failed("no answer of its protocol"));
}

#[test]
fn a_kept_connection_is_used_again_and_a_stale_one_is_no_failure() {
    let (nginx, b1) = (checker(), Backend::new("b1"));
    put(&nginx, "app", &b1.to_string(), json!({ "interval": "100ms", "fails": 1 }));
    eventually(secs(5), || b1.requests() > 10);
    assert_eq!(b1.accepted(), 1);
    for _ in 0..5 {
        let before = b1.requests();
        b1.close_connections();
        eventually(secs(5), || b1.requests() > before + 1);
    }
    // One that closes after each answer without saying so.
    let closing = Script::new(|mut stream: TcpStream| {
        if read_head(&mut stream).is_some() {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
            // The client's next request meets a reset.
            let _ = stream.read(&mut [0; 10]);
        }
    });
    put(&nginx, "closing", &closing.addr.to_string(), json!({ "interval": "100ms", "fails": 1 }));
    let checks = || {
        let seen = nginx.api().upstream("closing")["servers"][0].clone();
        seen["counters"]["health_checks"]["checks"].as_u64().unwrap_or(0)
    };
    eventually(secs(5), || checks() > 8);
    assert!(!nginx.error_log().contains("unhealthy"), "{}", nginx.error_log());
}

#[test]
fn ten_thousand_probes_leave_nothing_open() {
    let nginx = Nginx::builder()
        .http("peerage_zone main 4m;")
        .events("worker_connections 256;")
        .with_api("write=on")
        .start();
    let worker = nginx.worker_pids()[0];
    let idle = descriptors(worker);
    let (b1, refusing) = (Backend::new("b1"), Backend::refusing("r"));
    let tls = Certificate::backend(&["a.test"], "TLSv1.3");
    let check = |more: Value| {
        let mut check = json!({ "interval": "100ms", "timeout": "50ms" });
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        check
    };
    let paths = ["/", "/close", "/reset", "/partial", "/hold", "/status/500", "/chunked?n=3"];
    for i in 0..scale(8, 40) {
        for (j, path) in paths.iter().enumerate() {
            let reuse = i % 2 == 0;
            put(
                &nginx,
                &format!("a{i}-{j}"),
                &b1.to_string(),
                check(json!({ "uri": path, "reuse": reuse })),
            );
        }
        put(&nginx, &format!("t{i}"), &b1.to_string(), check(json!({ "type": "tcp" })));
        put(&nginx, &format!("r{i}"), &refusing.to_string(), check(json!({})));
        put(&nginx, &format!("s{i}"), &tls.web().to_string(), check(json!({ "type": "https" })));
        put(&nginx, &format!("h{i}"), &b1.to_string(), check(json!({ "type": "grpc" })));
    }
    let all =
        || nginx.api().get("upstreams?limit=1000&fields=servers").1.as_object().unwrap().clone();
    let probes = || {
        let of =
            |up: &Value| up["servers"][0]["counters"]["health_checks"]["checks"].as_u64().unwrap();
        all().values().map(of).sum::<u64>()
    };
    let reached = |n: u64| {
        eventually(secs(60), || {
            let_pass(ms(200));
            probes() >= n
        })
    };
    reached(3_000);
    let (rss, open) = (rss_kb(worker), descriptors(worker));
    assert!(open <= idle + 70, "{open}");
    reached(scale(11_000, 60_000));
    assert!(rss_kb(worker) <= rss + 1_024, "{} kB, was {rss}", rss_kb(worker));
    assert!(descriptors(worker) <= idle + 70, "{}", descriptors(worker));
    for name in all().keys() {
        nginx.api().ok("DELETE", &format!("upstreams/{name}?force=1"), None);
    }
    eventually(secs(5), || {
        b1.release();
        b1.open() == 0
    });
    eventually(secs(5), || descriptors(worker) <= idle);
    assert_eq!(nginx.worker_pids(), [worker]);
}

#[test]
fn a_pipe_in_the_place_of_certificates_holds_no_worker() {
    let nginx = Nginx::builder().workers(2).http("peerage_zone main 4m;").with_api("write=on");
    let nginx = nginx.allow("cannot be probed").start();
    let (b1, pipe) = (Backend::new("b1"), nginx.path("pipe"));
    let made = Command::new("mkfifo").args(["-m", "666"]).arg(&pipe).status().unwrap();
    assert!(made.success());
    let check = json!({ "type": "https", "ca": pipe, "interval": "100ms" });
    put(&nginx, "x", &b1.addr(), check);
    let text = format!("\"{}\": not a regular file", pipe.display());
    eventually(secs(5), || nginx.error_log().contains(&text));
    // Long enough for both to have had it.
    let_pass(secs(3));
    for _ in 0..20 {
        nginx.api().ok("GET", "upstreams/x", None);
    }
    let (status, said) = nginx.api().post(&format!("upstreams/x/servers/{b1}/check"));
    assert_eq!(status, 503, "{said}");
}

#[test]
fn whatever_a_check_may_have_for_its_uri_is_asked_for() {
    let nginx = checker();
    let b1 = Backend::new("b1");
    b1.record();
    let all: String = ('!'..='~').filter(|c| !"\"`<>#?".contains(*c)).collect();
    let uri = format!("/{all}?{all}?");
    put(&nginx, "x", &b1.addr(), json!({ "uri": uri, "host": "\"<a>:b:c`#", "interval": "100ms" }));
    let hit = eventually(secs(5), || b1.hits().into_iter().next());
    assert_eq!((hit.target(), hit.header("host")), (uri.as_str(), Some("\"<a>:b:c`#")));
    assert_eq!(verdict(&nginx, "x"), "passes");
}
