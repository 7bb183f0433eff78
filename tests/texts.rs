//! `hash_key`, `host` and `tls_name` of an upstream: asked for by requests, kept over everything.

mod support;

use std::collections::BTreeSet;

use support::*;

/// Doors to an upstream by a fixed and by a keyed block, by literal and by variable.
const DOORS: &str = "
    peerage_zone main 1m state={prefix}/main.json;
    map $arg_m $mapped { default other; 1 one; }
    upstream app { peerage main; server {b1}; keepalive 8; }
    upstream alias { peerage main name=app; server {b1}; keepalive 8; }
    upstream services { peerage main name=$svc match=svc-*; keepalive 8; }
    upstream plain { server {b1}; }
    server {
        listen {web};
        set $set fixed;
        proxy_http_version 1.1;
        proxy_set_header Host $peerage_host;
        proxy_set_header Connection '';
        proxy_set_header X-Name $peerage_tls_name;
        proxy_set_header X-Key $peerage_hash_key;
        proxy_set_header X-Unused $proxy_host;
        location /app { proxy_pass http://app; }
        location /alias { proxy_pass http://alias; }
        location /plain { proxy_pass http://plain; }
        location ~ ^/named/(?<svc>[^/]*) { proxy_pass http://services; }
        location ~ ^/to/(?<to>[^/]*)/(?<svc>[^/]*) { proxy_pass http://$to; }
        location /here { return 200 '[$peerage_host$peerage_tls_name$peerage_hash_key]'; }
        location ~ ^/twice/(?<svc>[^/]*) {
            error_page 502 = @alias;
            proxy_pass http://services;
        }
        location @alias { proxy_pass http://alias; }
    }";

struct World {
    backend: Backend,
    nginx: Nginx,
}

impl World {
    fn new() -> Self {
        let backend = Backend::new("b1");
        backend.record();
        let nginx = Nginx::builder().http(DOORS).with_api("write=on").set("b1", &backend).start();
        Self { backend, nginx }
    }

    fn put(&self, name: &str, mut body: Value) {
        body["servers"] = json!([{"server": self.backend.addr()}]);
        self.nginx.api().ok("PUT", &format!("upstreams/{name}"), Some(&body));
    }

    fn patch(&self, name: &str, body: &Value) {
        self.nginx.api().ok("PATCH", &format!("upstreams/{name}"), Some(body));
    }

    /// What the server is told: the host, the name, the key.
    fn told(&self, path: &str) -> (String, String, String) {
        let reply = self.nginx.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let hit = self.backend.hits().pop().expect("it was recorded");
        let header = |name: &str| hit.header(name).unwrap_or("-").to_owned();
        (header("host"), header("x-name"), header("x-key"))
    }
}

fn words(host: &str, name: &str, key: &str) -> (String, String, String) {
    (host.to_owned(), name.to_owned(), key.to_owned())
}

#[test]
fn requests_are_made_with_the_texts_of_their_upstream() {
    let world = World::new();
    assert_eq!(world.told("/app"), words("app", "app", "-"));
    world.patch("app", &json!({"host": "app.test:81", "hash_key": "k-$arg_x"}));
    let app = words("app.test:81", "app.test:81", "k-7");
    for path in ["/app", "/alias", "/to/app/", "/to/Alias/"] {
        assert_eq!(world.told(&format!("{path}?x=7")), app, "{path}");
    }
    world.patch("app", &json!({"tls_name": "tls.test"}));
    assert_eq!(world.told("/app").1, "tls.test");
    world.put("svc-a", json!({"host": "a.test"}));
    world.put("svc-b", json!({}));
    for door in ["/named", "/to/services"] {
        assert_eq!(world.told(&format!("{door}/svc-a")), words("a.test", "a.test", "-"));
        assert_eq!(world.told(&format!("{door}/SVC-A")), words("a.test", "a.test", "-"));
        assert_eq!(world.told(&format!("{door}/Svc-B")), words("svc-b", "svc-b", "-"));
    }
    assert_eq!(world.told("/plain"), words("plain", "plain", "-"));
    let addr = world.backend.addr();
    let host = addr.split(':').next().expect("a host");
    assert_eq!(world.told(&format!("/to/{addr}/")), words(host, host, "-"));
    assert_eq!(world.nginx.get("/here").text(), "[]", "a request to no upstream has none");
    for path in ["/named/svc-none", "/named/other"] {
        assert_eq!(world.nginx.get(path).status, 502);
    }
    // The upstream that the request comes to at last, not the one it came from.
    let second = words("app.test:81", "tls.test", "k-");
    assert_eq!(world.told("/twice/svc-none"), second);
}

#[test]
fn a_hash_key_has_the_values_that_nginx_has() {
    let world = World::new();
    for (text, path, value) in [
        ("$uri", "/app/x?m=1", "/app/x"),
        ("${URI}!", "/app/x", "/app/x!"),
        ("$mapped/$arg_m", "/app?m=1", "one/1"),
        ("$mapped", "/app", "other"),
        ("$set", "/app", "fixed"),
        ("$arg_nothing|$http_x_nothing|$cookie_c", "/app", "||"),
        ("$host", "/app", "localhost"),
        // Known by its index alone, and only where a directive of the configuration uses it.
        ("$Proxy_Host", "/app", "app"),
        ("$peerage_host", "/app", "app"),
        ("$svc", "/named/svc-x", "svc-x"),
        // What leads back to the key is empty there.
        ("<$peerage_hash_key$peerage_hash_key>", "/app", "<>"),
        ("no variable", "/app", "no variable"),
    ] {
        let name = if path.starts_with("/app") { "app" } else { "svc-x" };
        world.put(name, json!({"hash_key": text}));
        assert_eq!(world.told(path).2, value, "{text}");
    }
}

#[test]
fn a_variable_that_the_configuration_does_not_have_is_refused() {
    let world = World::new();
    let api = world.nginx.api();
    let detail = |body: &Value| body["detail"].as_str().unwrap_or_default().to_owned();
    for name in ["nope", "1", "mappe", "htt", "proxy_add_via"] {
        let body = json!({"hash_key": format!("a${{{name}}}")});
        let (status, body) = api.patch("upstreams/app", &body);
        assert_eq!((status, &body["field"]), (400, &json!("hash_key")), "{name}: {body}");
        let text = format!("has the variable \"${name}\", which is unknown");
        assert!(detail(&body).contains(&text), "{body}");
    }
    let change = json!({"op": "patch", "upstream": "app", "body": {"hash_key": "$nope"}});
    let (status, body) = api.post_json("batch", &json!({"changes": [change]}));
    assert_eq!((status, &body["field"]), (400, &json!("changes[0].body.hash_key")), "{body}");
    let line = format!("{}\n", json!({"upstream": "b", "hash_key": "$nope", "servers": []}));
    let request = api.request("PUT", "zones/main/import", None).body(line.as_bytes());
    let reply = request.send(world.nginx.addr("api")).expect("an answer");
    let body = reply.json();
    assert_eq!((reply.status, &body["field"]), (400, &json!("lines[1].hash_key")), "{body}");
    assert_eq!(api.upstream("app")["hash_key"], json!(null));
}

#[test]
fn texts_outlive_reload_restart_and_go_to_another_nginx() {
    let mut world = World::new();
    let all = json!({"hash_key": "$uri", "host": "h.test", "tls_name": "t.test"});
    world.put("svc-a", all.clone());
    world.patch("app", &json!({"host": "run.time"}));
    let of = |nginx: &Nginx, name: &str| {
        let upstream = nginx.api().upstream(name);
        json!({"hash_key": upstream["hash_key"], "host": upstream["host"],
               "tls_name": upstream["tls_name"]})
    };
    let tag =
        world.nginx.api().call("GET", "upstreams/svc-a", None).header("etag").map(str::to_owned);
    world.nginx.reload();
    assert_eq!(of(&world.nginx, "svc-a"), all);
    world.nginx.change(|conf| conf.http(DOORS.replace("main 1m", "main 2m")).with_api("write=on"));
    world.nginx.reload();
    assert_eq!(of(&world.nginx, "svc-a"), all, "a zone of another size");
    world.nginx.restart();
    assert_eq!(of(&world.nginx, "svc-a"), all);
    assert_eq!(of(&world.nginx, "app")["host"], "run.time");
    assert_eq!(world.told("/named/svc-a"), words("h.test", "t.test", "/named/svc-a"));
    let again = world.nginx.api().call("GET", "upstreams/svc-a", None);
    assert_eq!(again.header("etag"), tag.as_deref());

    let export = world.nginx.api().call("GET", "zones/main/export", None);
    let other = World::new();
    let api = other.nginx.api();
    let request = api.request("PUT", "zones/main/import", None).body(export.body);
    let reply = request.send(other.nginx.addr("api")).expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(of(&other.nginx, "svc-a"), all);
}

/// CASE 32: two run-time upstreams of one keyed block, one address, different names, keepalive.
#[test]
fn two_names_of_one_address_never_meet() {
    let tls = Certificate::backend(&["a.test", "b.test"], "TLSv1.2 TLSv1.3");
    let nginx = Nginx::builder()
        .workers(2)
        .http(
            "peerage_zone main 1m;
             upstream services { peerage main name=$svc; keepalive 8; }
             server {
                 listen {web};
                 location ~ ^/(?<svc>[^/]*) {
                     proxy_pass https://services;
                     proxy_http_version 1.1;
                     proxy_ssl_server_name on;
                     proxy_ssl_name $peerage_tls_name;
                     proxy_set_header Host $peerage_host;
                     proxy_set_header Connection $http_x_connection;
                 }
             }",
        )
        .with_api("write=on")
        .start();
    for short in ["a", "b"] {
        let servers = json!([{"server": tls.web().to_string()}]);
        let name = format!("{short}.test");
        let body = json!({"servers": servers, "host": format!("{short}.host"), "tls_name": name});
        nginx.api().ok("PUT", &format!("upstreams/{short}"), Some(&body));
    }
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for i in 0..scale(300, 3_000) as usize {
        let (at, close) = (i % 2, i % 7 == 0);
        let short = ["a", "b"][at];
        let connection = if close { "close" } else { "" };
        let request = Request::get(&format!("/{short}")).header("X-Connection", connection);
        let reply = request.send(nginx.web()).expect("an answer");
        assert_eq!(reply.status, 200);
        assert_eq!(reply.backend(), format!("{short}.test"), "the name of the handshake");
        assert_eq!(reply.text(), format!("{short}.host"), "the name of the request");
        seen[at].insert(reply.header("x-connection").expect("it is told").to_owned());
    }
    assert!(seen[0].is_disjoint(&seen[1]), "{seen:?}");
}
