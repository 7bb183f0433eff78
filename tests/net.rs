//! Connections of our own as a client: whatever a server says or does has its outcome.

mod support;

use std::io::{Read, Write};

use support::*;

#[test]
fn responses_of_every_kind_are_read_to_their_end() {
    let nginx = fetcher().start();
    let worker = nginx.worker_pids()[0];
    let open = descriptors(worker);
    let check = |name: &str, server: &Script, params: &str, expected: Value| {
        let found = fetch(&nginx, &format!("{}{params}", server.url()));
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&found["last"][field], value, "{name}: {field} of {found}");
        }
    };
    let case = |name: &str, pieces: &'static [&'static str], expected: Value| {
        check(name, &Script::says(pieces), "", expected);
    };
    case(
        "length",
        &["HTTP/1.1 200 OK\r\nX: keep\r\nContent-Length: 5\r\n\r\nhello"],
        json!({"status": 200, "text": "hello", "whole": true, "clean": true}),
    );
    case(
        "a head that comes slowly",
        &["HTTP/1.", "1 503 No", "pe\r\nX: keep\r\nContent-", "Length: 0\r", "\n\r", "\n"],
        json!({"status": 503, "bytes": 0, "whole": true, "clean": true}),
    );
    case(
        "a body that comes slowly",
        &["HTTP/1.1 200 OK\r\nX: keep\r\nContent-Length: 6\r\n\r\n", "ab", "cd", "ef"],
        json!({"text": "abcdef", "whole": true, "clean": true}),
    );
    case(
        "chunked, with trailers",
        &[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "lo\r\n6;keep=1\r\n world\r\n",
            "0\r\nX-After: 1\r\n\r\n",
        ],
        json!({"text": "hello world", "whole": true, "clean": true, "trailers": 1}),
    );
    case(
        "without a body",
        &["HTTP/1.1 204 No Content\r\nX: keep\r\n\r\n"],
        json!({"status": 204, "bytes": 0, "whole": true, "clean": true}),
    );
    case(
        "100 first",
        &[
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early\r\nX: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: keep\r\nContent-Length: 2\r\n\r\nok",
        ],
        json!({"status": 200, "text": "ok", "clean": true}),
    );
    case(
        "HTTP/1.0 to the connection's end",
        &["HTTP/1.0 200 OK\r\n\r\nall ", "of it"],
        json!({"status": 200, "text": "all of it", "whole": true, "clean": false}),
    );
    case(
        "a connection that closes",
        &["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"],
        json!({"text": "ok", "whole": true, "clean": false}),
    );
    let backend = Backend::new("b1");
    let big = Script::new(|mut stream| {
        while read_head(&mut stream).is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()); // the client may have had enough
            let _ = stream.write_all(&vec![b'x'; 1 << 20]);
        }
    });
    check("1 MB", &big, "", json!({"bytes": 1 << 20, "whole": true, "clean": true}));
    let prefix = json!({"bytes": 1000, "whole": false, "clean": false});
    check("the first 1000 bytes of it", &big, ";body=1000", prefix);
    let found = fetch(&nginx, &format!("http://{backend}/download?kb=64&ms=1"));
    assert_eq!(found["last"]["bytes"], 64 * 1024, "{found}");
    let found = fetch(&nginx, &format!("http://{backend}/echo;method=POST;send=hello"));
    assert!(found["last"]["text"].as_str().unwrap().starts_with("POST /echo HTTP/1.1"), "{found}");
    assert_eq!(found["tasks"], 1, "only the one that counts: {found}");
    eventually(secs(5), || descriptors(worker) == open);
}

#[test]
fn what_goes_wrong_is_told_by_its_reason() {
    let nginx = fetcher().start();
    let worker = nginx.worker_pids()[0];
    let open = descriptors(worker);
    let backend = Backend::new("b1");
    let refusing = Backend::refusing("b2");
    let refused = fetch_error(&nginx, &format!("http://{refusing}/"));
    assert_eq!(refused, "connecting failed (Connection refused (os error 111))");
    let reset = fetch_error(&nginx, &format!("http://{backend}/reset"));
    assert!(reset.contains("failed (Connection reset by peer"), "{reset}");
    let early = "the connection was closed too early";
    for path in ["close", "partial"] {
        assert_eq!(fetch_error(&nginx, &format!("http://{backend}/{path}")), early, "{path}");
    }
    let late = fetch_error(&nginx, &format!("http://{backend}/hold;timeout=100"));
    assert_eq!(late, "the response timed out");
    eventually(secs(5), || backend.open() == 0);
    let case = |pieces: &'static [&'static str]| {
        let server = Script::says(pieces);
        fetch_error(&nginx, &format!("{};timeout=300", server.url()))
    };
    assert_eq!(case(&["HTTP/1.1 200 OK\r\nkeep: 1\r\n"]), "the response timed out");
    assert_eq!(
        case(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nkeep"]),
        "the response timed out"
    );
    assert_eq!(case(&["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]), early);
    assert_eq!(case(&["HTTP/1.1 200"]), early);
    for nonsense in [&["hello\r\n\r\n"][..], &["HTTP/9.9 200 OK\r\n\r\n"], &["\0\0\0\x12\x04"]] {
        let said = case(nonsense);
        assert!(said.contains("invalid HTTP") && !said.contains("closed"), "{nonsense:?}: {said}");
    }
    let smtp = Script::new(|mut stream| {
        let _ = stream.write_all(b"220 mail.test ESMTP\r\n"); // the client may not listen
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    });
    let said = fetch_error(&nginx, &format!("{};timeout=5000", smtp.url()));
    assert!(said.contains("invalid HTTP") || said.contains("unexpected message"), "{said}");
    let long = Script::new(|mut stream| {
        read_head(&mut stream);
        let line = format!("X: {}\r\n", "y".repeat(1000));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n"); // the client may have had enough
        for _ in 0..100 {
            let _ = stream.write_all(line.as_bytes());
        }
        let_pass(ms(500));
    });
    let said = fetch_error(&nginx, &format!("{};head=9000", long.url()));
    assert!(said.contains("too large"), "{said}");
    let missing = nginx.path("missing.sock");
    let said = fetch_error(&nginx, &format!("http:unix:{}:/", missing.display()));
    assert!(said.contains("No such file"), "{said}");
    // Nobody accepts, and there is no more room to wait.
    let full = FullQueue::new();
    let said = fetch_error(&nginx, &format!("http://{}/;timeout=200", full.addr));
    assert_eq!(said, "connecting timed out");
    // A connection that is idle is not tried again once its server is gone.
    let found = fetch(&nginx, &format!("http://{backend}/;times=3"));
    assert_eq!((&found["done"], &found["reused"]), (&json!(3), &json!(2)), "{found}");
    eventually(secs(5), || descriptors(worker) == open);
}

#[test]
fn unix_sockets_and_tcp_alone() {
    let nginx = fetcher().start();
    let b1 = Backend::unix("b1", &nginx.path("b1.sock"));
    let url = format!("http:unix:{}:/echo", nginx.path("b1.sock").display());
    let found = fetch(&nginx, &format!("{url};times=10;host=a.test"));
    assert_eq!((&found["done"], &found["reused"]), (&json!(10), &json!(9)), "{found}");
    assert_eq!(b1.accepted(), 1);
    let b2 = Backend::on("b2", std::net::Ipv6Addr::LOCALHOST);
    let found = fetch(&nginx, &format!("http://{b2}/"));
    assert_eq!(found["last"]["status"], 200, "{found}");
    let found = fetch(&nginx, &format!("tcp://{b2}"));
    assert_eq!(found["last"], json!({"connected": true}));
    let refusing = Backend::refusing("b3");
    assert!(fetch_error(&nginx, &format!("tcp://{refusing}")).contains("refused"));
}
