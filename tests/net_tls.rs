//! Connections of our own with TLS and HTTP/2: who is believed, and what is said where nobody is.

mod support;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::*;

#[test]
fn tls_is_verified_and_its_errors_have_reasons() {
    let nginx = fetcher().start();
    let tls = Certificate::backend(&["a.test", "b.test"], "TLSv1.2 TLSv1.3");
    let (web, pem) = (tls.web(), tls.path("a.test.pem"));
    let worker = nginx.worker_pids()[0];
    let open = descriptors(worker);
    let ca = format!("verify;ca={}", pem.display());
    let found = fetch(&nginx, &format!("https://{web}/;name=a.test;host=x.test;{ca};times=5"));
    assert_eq!((&found["done"], &found["reused"]), (&json!(5), &json!(4)), "{found}");
    assert_eq!(found["last"]["text"], "x.test");
    let fresh = fetch(&nginx, &format!("https://{web}/;name=a.test;{ca};times=50;at_once=5;fresh"));
    assert_eq!((&fresh["done"], &fresh["reused"]), (&json!(50), &json!(0)), "{fresh}");
    let unverified = fetch(&nginx, &format!("https://{web}/;name=b.test"));
    assert_eq!(unverified["last"]["status"], 200, "{unverified}");
    let nameless = fetch(&nginx, &format!("https://{web}/"));
    assert_eq!(nameless["last"]["status"], 200, "{nameless}");
    let said = |text: &str| fetch_error(&nginx, text);
    let other = said(&format!("https://{web}/;name=c.test;{ca}"));
    assert_eq!(other, "TLS: the certificate is not for \"c.test\"");
    let unknown = said(&format!("https://{web}/;name=b.test;{ca}"));
    assert!(
        unknown.starts_with("TLS: self") && unknown.contains("signed certificate"),
        "{unknown}"
    );
    let system = said(&format!("https://{web}/;name=a.test;verify"));
    assert!(system.contains("signed certificate"), "{system}");
    let missing = said(&format!("https://{web}/;verify;ca=/nonexistent.pem"));
    assert!(missing.starts_with("\"/nonexistent.pem\": "), "{missing}");
    let old = Nginx::stock();
    let expired = expired(old.prefix(), "old.test");
    let old = old
        .http(format!(
            "server {{ listen {{web}} ssl; ssl_certificate {}; ssl_certificate_key {}; }}",
            expired.pem.display(),
            expired.key.display()
        ))
        .start();
    let trusted = format!("name=old.test;verify;ca={}", expired.pem.display());
    let said_of_old = said(&format!("https://{}/;{trusted}", old.web()));
    assert_eq!(said_of_old, "TLS: certificate has expired");
    // Another protocol on either side.
    let stock = Nginx::stock().http("server { listen {web}; }").start();
    assert_eq!(said(&format!("https://{}/", stock.web())), "TLS: wrong version number");
    let plain = fetch(&nginx, &format!("http://{web}/"));
    assert_eq!(plain["last"]["status"], 400, "nginx says so: {plain}");
    let smtp = Script::new(|mut stream| {
        let _ = stream.write_all(b"220 mail.test ESMTP\r\n"); // the client may not listen
        let mut rest = [0; 100];
        let _ = stream.read(&mut rest);
    });
    assert_eq!(said(&format!("https://{}/", smtp.addr)), "TLS: wrong version number");
    let silent = Script::new(|mut stream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // until the client has had enough
    });
    let late = said(&format!("https://{}/;timeout=200", silent.addr));
    assert_eq!(late, "the TLS handshake timed out");
    let closing = Script::new(|mut stream| {
        let _ = stream.read(&mut [0; 10]); // then closed, or reset
    });
    let closed = said(&format!("https://{}/", closing.addr));
    assert!(closed.contains("closed too early") || closed.contains("reset"), "{closed}");
    eventually(secs(5), || descriptors(worker) == open);
}

/// A self-signed certificate of a day that is over.
fn expired(dir: &Path, name: &str) -> Certificate {
    let made = Certificate { pem: dir.join("old.pem"), key: dir.join("old.key") };
    let (request, conf) = (dir.join("old.csr"), dir.join("ca.conf"));
    let text = format!(
        "[ca]\ndefault_ca=x\n[x]\ndatabase={0}/index\nserial={0}/serial\nnew_certs_dir={0}\n\
         default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n\
         [e]\nsubjectAltName=DNS:{name}\n",
        dir.display()
    );
    std::fs::write(&conf, text).unwrap();
    std::fs::write(dir.join("index"), "").unwrap();
    std::fs::write(dir.join("serial"), "01\n").unwrap();
    let openssl = |args: &[&str], files: [(&str, &PathBuf); 3]| {
        let mut command = Command::new("openssl");
        command.args(args).stdin(Stdio::null());
        for (option, file) in files {
            command.arg(option).arg(file);
        }
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let subject = format!("/CN={name}");
    let new = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", &subject];
    openssl(&new, [("-out", &request), ("-keyout", &made.key), ("-config", &conf)]);
    let days = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"];
    let key = made.key.display().to_string();
    let sign = [&["ca", "-selfsign", "-batch", "-notext", "-keyfile", &key][..], &days].concat();
    openssl(&sign, [("-in", &request), ("-out", &made.pem), ("-config", &conf)]);
    made
}

#[test]
fn a_client_certificate_is_shown_and_a_file_that_changes_is_read_again() {
    let nginx = fetcher().start();
    let server = Nginx::stock();
    let of_server = Certificate::make(server.prefix(), &["s.test"]);
    let of_client = Certificate::make(server.prefix(), &["client.test"]);
    let server = server
        .http(format!(
            "server {{ listen {{web}} ssl; ssl_certificate {}; ssl_certificate_key {};
             ssl_verify_client optional; ssl_client_certificate {}; ssl_protocols TLSv1.2;
             location / {{ return 200 $ssl_client_verify; }} }}",
            of_server.pem.display(),
            of_server.key.display(),
            of_client.pem.display(),
        ))
        .start();
    let url = format!("https://{}/;name=s.test;verify", server.web());
    let ca = nginx.path("ca.pem");
    std::fs::copy(&of_server.pem, &ca).unwrap();
    let known = format!("{url};ca={}", ca.display());
    assert_eq!(fetch(&nginx, &known)["last"]["text"], "NONE");
    let shown = format!("cert={};key={}", of_client.pem.display(), of_client.key.display());
    let found = fetch(&nginx, &format!("{known};{shown}"));
    assert_eq!(found["last"]["text"], "SUCCESS", "{found}");
    let wrong = format!("cert={};key={}", of_client.pem.display(), of_server.key.display());
    let said = fetch_error(&nginx, &format!("{known};{wrong}"));
    assert!(said.contains("s.test.key\": "), "{said}");
    // The authority is another one from now on.
    let later = std::time::SystemTime::now() + secs(2);
    std::fs::copy(&of_client.pem, &ca).unwrap();
    std::fs::File::options().write(true).open(&ca).unwrap().set_modified(later).unwrap();
    assert!(fetch_error(&nginx, &known).contains("signed certificate"));
}

#[test]
fn http_2_with_and_without_tls() {
    let nginx = fetcher().start();
    let plain = Nginx::stock()
        .http(
            "server { listen {web} http2; location / { return 200 \"$server_protocol\n\"; }
             location /none { return 204; } location = /file { root {prefix}; } }",
        )
        .file("file", "x".repeat(300_000));
    let plain = plain.start();
    let worker = nginx.worker_pids()[0];
    let open = descriptors(worker);
    let url = format!("h2://{}", plain.web());
    let found = fetch(&nginx, &format!("{url}/;times=20"));
    assert_eq!((&found["done"], &found["reused"]), (&json!(20), &json!(19)), "{found}");
    assert_eq!(found["last"]["text"], "HTTP/2.0\n");
    let found = fetch(&nginx, &format!("{url}/file"));
    assert_eq!(found["last"]["bytes"], 300_000, "{found}");
    let found = fetch(&nginx, &format!("{url}/file;body=100"));
    assert_eq!((&found["last"]["bytes"], &found["last"]["whole"]), (&json!(100), &json!(false)));
    let found = fetch(&nginx, &format!("{url}/none;method=POST;send=abc"));
    assert_eq!(found["last"]["status"], 204, "{found}");
    let found = fetch(&nginx, &format!("{url}/;times=500;at_once=10;fresh"));
    assert_eq!(found["done"], 500, "{found}");
    assert_eq!(found["tasks"], 1, "{found}");

    let conf = Nginx::stock();
    let certificate = Certificate::make(conf.prefix(), &["a.test"]);
    let tls = |http2: &str| {
        format!(
            "server {{ listen {{web}} ssl{http2}; ssl_certificate {}; ssl_certificate_key {};
             location / {{ return 200 $server_protocol; }} }}",
            certificate.pem.display(),
            certificate.key.display()
        )
    };
    let (both, one) = (conf.clone(), Nginx::stock());
    let (both, one) = (both.http(tls(" http2")).start(), one.http(tls("")).start());
    let trusted = format!("name=a.test;verify;ca={}", certificate.pem.display());
    let found = fetch(&nginx, &format!("h2s://{}/;{trusted};times=20", both.web()));
    assert_eq!(found["last"]["text"], "HTTP/2.0", "{found}");
    let found = fetch(&nginx, &format!("https://{}/;{trusted}", both.web()));
    assert_eq!(found["last"]["text"], "HTTP/1.1", "{found}");
    let said = fetch_error(&nginx, &format!("h2s://{}/;{trusted}", one.web()));
    assert_eq!(said, "TLS: tlsv1 alert no application protocol");
    let mute = Port::reserve();
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-naccept", "1", "-accept", &mute.addr().to_string()])
        .arg("-cert")
        .arg(&certificate.pem)
        .arg("-key")
        .arg(&certificate.key)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = eventually(secs(10), || {
        let said = fetch_error(&nginx, &format!("h2s://{}/;{trusted}", mute.addr()));
        (!said.contains("refused")).then_some(said)
    });
    assert_eq!(said, "TLS: the server does not choose h2");
    server.wait().unwrap();
    // A server of HTTP/1 is none of HTTP/2.
    let backend = Backend::new("b1");
    let said = fetch_error(&nginx, &format!("h2://{backend}/;timeout=2000"));
    assert!(!said.contains("timed out"), "{said}");
    let refusing = Backend::refusing("b2");
    assert!(fetch_error(&nginx, &format!("h2://{refusing}/")).contains("refused"));
    eventually(secs(5), || descriptors(worker) == open);
}
