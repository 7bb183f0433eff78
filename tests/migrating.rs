//! The scripts that docs/migrating.md names, against a real nginx.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use support::*;

#[test]
fn a_state_file_of_nginx_plus_becomes_an_upstream() {
    let backend = Backend::new("b1");
    let nginx = nginx().start();
    let api = nginx.api();
    let file = nginx.path("app.conf");
    let text = format!(
        "server {backend} weight=5 max_fails=3 fail_timeout=30s slow_start=10s route=a;\n\
         server 10.0.0.2 max_conns=100 fail_timeout=60 down;\n\
         server [2001:db8::3]:8080 backup; server \"unix:/run/a.sock\" drain; # both\n\
         server app.internal:8080 resolve weight=2;\n"
    );
    fs::write(&file, text).unwrap();

    let out = state(&file, &nginx, &[]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(text_of(&out.stderr), "");
    let upstream = api.upstream("app");
    assert_eq!(upstream["method"], "least_conn");
    let told: Vec<Value> = upstream["servers"].as_array().unwrap().iter().map(declared).collect();
    let reason = "state file of NGINX Plus";
    let wanted = [
        (backend.addr(), json!([5, 0, 3, "30s", "10s", false, "a"]), ("up", "")),
        ("10.0.0.2:80".into(), json!([1, 100, 1, "60s", "0s", false, ""]), ("down", reason)),
        ("[2001:db8::3]:8080".into(), json!([1, 0, 1, "10s", "0s", true, ""]), ("up", "")),
        ("unix:/run/a.sock".into(), json!([1, 0, 1, "10s", "0s", false, ""]), ("drain", reason)),
        ("app.internal:8080".into(), json!([2, 0, 1, "10s", "0s", false, ""]), ("up", "")),
    ];
    assert_eq!(told, wanted.map(|(server, fields, admin)| json!([server, fields, admin])));
    assert_eq!(nginx.get("/").text(), "b1");

    let again = state(&file, &nginx, &[]);
    assert!(text_of(&again.stdout).contains("\"changed\":false"), "{again:?}");
}

#[test]
fn what_a_state_file_has_and_an_upstream_has_not_is_named() {
    let nginx = nginx().start();
    let api = nginx.api();
    let file = nginx.path("app.conf");
    fs::write(
        &file,
        "server 10.0.0.1:8080 weight=2;\n\
         server _http._tcp.internal service=http resolve;\n\
         # a remark\n\
         server 10.0.0.2:8080 weight=many new_word=1;\n\
         keepalive 8;\n",
    )
    .unwrap();
    let named = [
        "line 2: the server _http._tcp.internal, for service=http",
        "line 4: weight=many of the server 10.0.0.2:8080",
        "line 4: new_word=1 of the server 10.0.0.2:8080",
        "line 5: keepalive 8",
    ];

    let out = state(&file, &nginx, &[]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    for line in named {
        let line = format!("plus-state: not carried over: {}, {line}\n", file.display());
        assert!(text_of(&out.stderr).contains(&line), "no {line} in {out:?}");
    }
    assert!(text_of(&out.stderr).ends_with("nothing sent\n"), "{out:?}");
    assert_eq!(api.upstream("app")["servers"], json!([]));

    let out = state(&file, &nginx, &["--anyway"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert_eq!(text_of(&out.stderr).lines().count(), named.len());
    let servers: Vec<Value> =
        api.upstream("app")["servers"].as_array().unwrap().iter().map(declared).collect();
    assert_eq!(servers.len(), 2);
    assert_eq!(servers[0][0], "10.0.0.1:8080");

    // What cannot be read, and what the API refuses.
    for (text, said) in [
        ("server 10.0.0.1:8080", "line 1: no semicolon"),
        ("\nupstream app { server 10.0.0.1; }", "line 2: a block in a state file"),
        ("server 10.0.0.1 weight=1;\nserver 10.0.0.1:80;", "the API answers 409"),
        ("server 10.0.0.1 slow_start=1x;", "the API answers 400"),
    ] {
        fs::write(&file, text).unwrap();
        let out = state(&file, &nginx, &[]);
        assert_eq!(out.status.code(), Some(2), "{text}: {out:?}");
        assert!(text_of(&out.stderr).contains(said), "{text}: {out:?}");
    }
    let mut command = Command::new("python3");
    let out = command.arg(example("plus-state.py")).arg(&file).args(["api", "app"]).output();
    assert_eq!(out.unwrap().status.code(), Some(2), "no URL");
    // An empty file is more likely a wrong one than an upstream without servers.
    fs::write(&file, "# nothing\n").unwrap();
    let out = state(&file, &nginx, &[]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert_eq!(api.upstream("app")["servers"].as_array().unwrap().len(), 2);
}

#[test]
fn a_rendered_file_is_sent_as_a_whole_or_not_at_all() {
    let backends = Backend::several(2);
    let mut nginx = nginx().start();
    let api = nginx.api();
    let file = nginx.path("app.json");
    let body = |servers: &[&Backend]| {
        let servers: Vec<Value> = servers.iter().map(|b| json!({"server": b.addr()})).collect();
        json!({"method": "least_conn", "servers": servers}).to_string()
    };

    fs::write(&file, body(&[&backends[0], &backends[1]])).unwrap();
    let out = put(&file, &nginx, "");
    assert!(out.status.success(), "{out:?}");
    assert!(hit(nginx.web(), "/", 10).backend("b2") > 0);
    let digest = api.upstream("app")["digest"].clone();

    for bad in [
        r#"{"host": "server", "servers": []}"#,
        r#"{"method": "least_conn", "servers": []}"#,
        r#"{"servers": [{"server": "10.0.0.1"#,
    ] {
        fs::write(&file, bad).unwrap();
        let out = put(&file, &nginx, "");
        assert!(!out.status.success(), "{out:?}");
        assert_eq!(api.upstream("app")["digest"], digest);
    }
    assert!(text_of(&put(&file, &nginx, "").stdout).contains("bad-json"));
    fs::write(&file, r#"{"method": "least_conn", "servers": []}"#).unwrap();
    assert!(put(&file, &nginx, "ok").status.success());
    assert_eq!(api.upstream("app")["servers"], json!([]));

    // nginx is away for a while.
    fs::write(&file, body(&[&backends[1]])).unwrap();
    nginx.stop();
    let (script, url) = (example("consul-template/put.sh"), url(&nginx));
    let waits = Command::new("bash").arg(script).arg(&file).arg(url).spawn();
    let mut waits = waits.unwrap();
    nginx.start();
    assert!(waits.wait().unwrap().success());
    assert_eq!(nginx.get("/").backend(), "b2");
}

/// One upstream that nothing is said of, and a resolver that nobody asks.
fn nginx() -> Conf {
    Nginx::builder().http(
        "peerage_zone main 1m state={prefix}/main.json;
         resolver 127.0.0.1:9; resolver_timeout 1s;
         upstream services { peerage main name=app; peerage_method least_conn; }
         server { listen {web}; location / { proxy_pass http://services; } }
         server { listen {api}; location /api { peerage_api write=on; } }",
    )
}

/// What is declared of a server and wanted of it.
fn declared(server: &Value) -> Value {
    let names =
        ["weight", "max_conns", "max_fails", "fail_timeout", "slow_start", "backup", "route"];
    let fields: Vec<_> = names.iter().map(|name| server[name].clone()).collect();
    let admin = &server["admin"];
    json!([server["server"], fields, [admin["state"], admin["reason"]]])
}

fn state(file: &Path, nginx: &Nginx, arguments: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.arg(example("plus-state.py")).args(arguments).arg(file);
    command.arg(format!("http://{}/api", nginx.addr("api"))).arg("app");
    command.output().unwrap()
}

fn put(file: &Path, nginx: &Nginx, empty: &str) -> Output {
    let mut command = Command::new("bash");
    command.arg(example("consul-template/put.sh")).arg(file).arg(url(nginx)).env("EMPTY", empty);
    command.output().unwrap()
}

fn url(nginx: &Nginx) -> String {
    format!("http://{}/api/v1/upstreams/app", nginx.addr("api"))
}

fn example(name: &str) -> String {
    format!("{}/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
