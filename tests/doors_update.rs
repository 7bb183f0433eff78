//! The update door: peers as scripts tell them to a balancer with a shared dictionary.

mod support;

use support::*;

fn start(b1: &Backend, b2: &Backend, zone: &str) -> Nginx {
    Nginx::builder()
        .workers(4)
        .port("doors")
        .http(format!(
            "{zone}
             log_format change escape=none '$request_method $status $peerage_revision $peerage_change';
             upstream services {{ peerage main name=$http_x_service; keepalive 8; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://services; }} }}
             server {{ listen {{doors}}; access_log {{prefix}}/logs/change.log change;
                 location = /upstream/update {{ peerage_update; }} }}"
        ))
        .with_api("write=on")
        .set("b1", b1)
        .set("b2", b2)
        .start()
}

fn update(nginx: &Nginx, body: &Value) -> Reply {
    Request::post("/upstream/update").json(body).send(nginx.addr("doors")).unwrap()
}

fn asked(nginx: &Nginx) -> (u16, String) {
    let reply = Request::get("/").header("X-Service", "hr").send(nginx.web()).unwrap();
    (reply.status, reply.backend().to_string())
}

#[test]
fn peers_are_replaced_at_once_in_every_worker() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start(&b1, &b2, "peerage_zone main 1m;");
    assert_eq!(asked(&nginx).0, 502);
    let reply = update(&nginx, &json!({"service": "hr", "peers": [b1.addr()]}));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let answer = reply.json();
    assert_eq!((&answer["changed"], &answer["upstream"]), (&json!(true), &json!("hr")));
    assert!((0..20).all(|_| asked(&nginx) == (200, "b1".into())));

    let reply = update(&nginx, &json!({"service": "HR", "peers": [b2.addr()]}));
    assert_eq!((reply.status, &reply.json()["changed"]), (200, &json!(true)));
    assert!((0..20).all(|_| asked(&nginx) == (200, "b2".into())));
    // The line of a request is written after its answer, with the revision of then.
    let logged = |n: usize| {
        eventually(secs(5), || nginx.log("change.log").lines().nth(n).map(str::to_string))
    };
    let revision = reply.json()["revision"].clone();
    assert_eq!(logged(1), format!("POST 200 {revision} set by \"127.0.0.1\", upstream \"hr\""));
    let reply = update(&nginx, &json!({"service": "hr", "peers": [b2.addr()]}));
    assert_eq!(reply.json()["changed"], false);
    assert_eq!(reply.json()["revision"], revision);
    assert_eq!(logged(2), format!("POST 200 {revision} "));

    // No peer is a set of its own.
    assert_eq!(update(&nginx, &json!({"service": "hr", "peers": []})).status, 200);
    assert!((0..20).all(|_| asked(&nginx).0 == 502));
    assert_eq!(nginx.api().upstream("hr")["servers"], json!([]));
}

#[test]
fn peers_that_stay_keep_all_that_was_set_of_them() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let zone = "peerage_zone main 1m state={prefix}/main.json flush=always;";
    let mut nginx = start(&b1, &b2, zone);
    let peers = |list: &[&str]| json!({"service": "hr", "peers": list});
    assert_eq!(update(&nginx, &peers(&["10.0.0.1:80", "10.0.0.2:80"])).status, 201);
    let api = nginx.api();
    let set =
        json!({"weight": 7, "max_conns": 3, "backup": true, "labels": {"rack": "a"}, "route": "r"});
    assert_eq!(api.patch("upstreams/hr/servers/10.0.0.1:80", &set).0, 200);
    assert_eq!(api.patch("upstreams/hr", &json!({"method": "least_conn"})).0, 200);
    assert_eq!(api.verb("hr", "10.0.0.2:80", "down?reason=dyups").0, 200);
    let before = api.upstream("hr");
    assert_eq!(update(&nginx, &peers(&["10.0.0.2:80", "10.0.0.1:80"])).json()["changed"], false);
    assert_eq!(update(&nginx, &peers(&["10.0.0.3:80", "10.0.0.2:80", "10.0.0.1:80"])).status, 200);
    let after = api.upstream("hr");
    assert_eq!(after["method"], "least_conn");
    let of = |upstream: &Value, server: &str| {
        let servers = upstream["servers"].as_array().unwrap().clone();
        let mut server = servers.into_iter().find(|s| s["server"] == server).unwrap();
        // A backup is idle when there is another one to serve.
        server["why"] = Value::Null;
        server
    };
    for server in ["10.0.0.1:80", "10.0.0.2:80"] {
        assert_eq!(of(&after, server), of(&before, server));
    }
    nginx.kill();
    nginx.start();
    assert_eq!(nginx.api().upstream("hr")["digest"], after["digest"]);
}

#[test]
fn a_condition_on_what_is_there_holds_here_too() {
    let (b1, b2) = (Backend::new("b1"), Backend::new("b2"));
    let nginx = start(&b1, &b2, "peerage_zone main 1m;");
    let body = json!({"service": "hr", "peers": ["10.0.0.1:80"]});
    let send = |name: &str, value: &str, body: &Value| {
        let request = Request::post("/upstream/update").json(body).header(name, value);
        request.send(nginx.addr("doors")).unwrap().status
    };
    assert_eq!(send("If-None-Match", "*", &body), 201);
    assert_eq!(send("If-None-Match", "*", &body), 409);
    let tag = nginx.api().call("GET", "upstreams/hr", None).header("etag").unwrap().to_string();
    let other = json!({"service": "hr", "peers": ["10.0.0.2:80"]});
    assert_eq!(send("If-Match", &tag, &other), 200);
    assert_eq!(send("If-Match", &tag, &body), 412);
}
