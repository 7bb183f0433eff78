//! examples/k8s/endpointslices.py: an upstream follows the EndpointSlices of its service.

mod support;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use support::*;

#[test]
fn upstreams_follow_the_slices_of_their_services() {
    let backends = Backend::several(3);
    let cluster = Cluster::new();
    let nginx = nginx(&[]).start();
    let api = nginx.api();
    api.ok("PUT", "upstreams/by-hand", Some(&json!({"servers": [{"server": "127.0.0.1:9"}]})));
    for (i, backend) in backends.iter().take(2).enumerate() {
        slice(&cluster, "shop", i, backend, READY);
    }
    let agent = Agent::start(&cluster, &nginx, &[]);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "up")]);
    assert_eq!(answers(&nginx, "shop", 20), names(&["b1", "b2"]));

    slice(&cluster, "shop", 2, &backends[2], READY);
    slice(&cluster, "shop", 1, &backends[1], &json!({"ready": false}));
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[2], "up")]);
    slice(&cluster, "mail", 7, &backends[1], READY);
    servers(&api, "mail", &[(&backends[1], "up")]);
    assert_eq!(answers(&nginx, "mail", 5), names(&["b2"]));

    cluster.delete("mail-7");
    eventually(secs(10), || api.get("upstreams/mail").0 == 404);
    servers(&api, "by-hand", &[(&"127.0.0.1:9", "up")]);
    drop(agent);
}

#[test]
fn an_endpoint_that_terminates_drains_and_ends_its_requests() {
    let backends = Backend::several(2);
    let cluster = Cluster::new();
    let nginx = nginx(&[]).start();
    let api = nginx.api();
    for (i, backend) in backends.iter().enumerate() {
        slice(&cluster, "shop", i, backend, READY);
    }
    let _agent = Agent::start(&cluster, &nginx, &[]);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "up")]);
    let held: Vec<Conn> = (0..2)
        .map(|_| {
            let mut conn = Conn::open(nginx.web()).unwrap();
            conn.begin(&Request::get("/hold").header("X-Service", "shop")).unwrap();
            conn
        })
        .collect();
    eventually(secs(10), || backends.iter().all(|backend| backend.held() == 1));

    slice(&cluster, "shop", 1, &backends[1], ENDING);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "draining")]);
    assert_eq!(answers(&nginx, "shop", 20), names(&["b1"]));

    // The last one that is ready terminates as well: both serve until there is another.
    slice(&cluster, "shop", 0, &backends[0], ENDING);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "up")]);
    slice(&cluster, "shop", 0, &backends[0], READY);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "draining")]);

    cluster.delete("shop-1");
    servers(&api, "shop", &[(&backends[0], "up")]);
    for backend in &backends {
        backend.release();
    }
    for mut conn in held {
        assert_eq!(conn.reply().unwrap().status, 200);
    }
    // The address comes back with another pod.
    slice(&cluster, "shop", 1, &backends[1], READY);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "up")]);
}

#[test]
fn what_a_person_took_down_stays_down() {
    let backends = Backend::several(2);
    let cluster = Cluster::new();
    let nginx = nginx(&[]).start();
    let api = nginx.api();
    for (i, backend) in backends.iter().enumerate() {
        slice(&cluster, "shop", i, backend, READY);
    }
    let _agent = Agent::start(&cluster, &nginx, &[]);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "up")]);
    assert_eq!(api.verb("shop", &backends[1], "down?reason=disk").0, 200);

    slice(&cluster, "shop", 1, &backends[1], ENDING);
    slice(&cluster, "shop", 2, &"127.0.0.1:9", READY);
    servers(&api, "shop", &[(&"127.0.0.1:9", "up"), (&backends[0], "up"), (&backends[1], "down")]);
    slice(&cluster, "shop", 1, &backends[1], READY);
    cluster.delete("shop-2");
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "down")]);
    assert_eq!(api.server("shop", &backends[1])["admin"]["reason"], "disk");
}

#[test]
fn it_comes_back_from_whatever_ends() {
    let backends = Backend::several(2);
    let cluster = Cluster::new();
    let mut nginx = nginx(&[]).start();
    let api = nginx.api();
    slice(&cluster, "shop", 0, &backends[0], READY);
    slice(&cluster, "mail", 1, &backends[1], READY);
    let token = nginx.path("token");
    std::fs::write(&token, "secret-1\n").unwrap();
    let arguments = ["--token-file", token.to_str().unwrap()];
    let agent = Agent::start(&cluster, &nginx, &arguments);
    servers(&api, "mail", &[(&backends[1], "up")]);
    servers(&api, "shop", &[(&backends[0], "up")]);

    // A watch that ended, and one that lost events; the token is another by then.
    std::fs::write(&token, "secret-2\n").unwrap();
    cluster.end_watches();
    slice(&cluster, "shop", 1, &backends[1], READY);
    servers(&api, "shop", &[(&backends[0], "up"), (&backends[1], "up")]);
    cluster.forget("mail-1");
    eventually(secs(10), || api.get("upstreams/mail").0 == 404);
    let heads = cluster.heads();
    assert!(heads.iter().all(|head| head.contains(" /apis/discovery.k8s.io/v1/namespaces/shop/")));
    assert!(heads[0].contains("Authorization: Bearer secret-1\r\n"), "{heads:?}");
    assert!(heads.last().unwrap().contains("Authorization: Bearer secret-2\r\n"), "{heads:?}");

    // nginx is away, then it cannot take changes, then it can.
    nginx.stop();
    cluster.delete("shop-0");
    eventually(secs(10), || agent.said().contains("refused"));
    nginx.change(|conf| conf.set("api_is", "add_header Retry-After 3 always; return 503;"));
    nginx.start();
    eventually(secs(15), || {
        let said = agent.said();
        said.lines().any(|line| line.contains(": 503 ") && line.ends_with(", again in 3 s"))
    });
    nginx.change(|conf| conf.set("api_is", "peerage_api write=on;"));
    nginx.reload();
    servers(&api, "shop", &[(&backends[1], "up")]);

    // A service that goes while nobody follows.
    drop(agent);
    cluster.delete("shop-1");
    slice(&cluster, "mail", 1, &backends[1], READY);
    let _agent = Agent::start(&cluster, &nginx, &arguments);
    eventually(secs(10), || api.get("upstreams/shop").0 == 404);
    servers(&api, "mail", &[(&backends[1], "up")]);
}

#[test]
fn a_slice_that_lacks_what_others_have_stops_nothing() {
    let backends = Backend::several(2);
    let cluster = Cluster::new();
    let mut nginx = nginx(&[]).start();
    let api = nginx.api();
    let ip = |b: &Backend| b.socket_addr().ip();
    let endpoints = json!([
        {"addresses": []}, {"addresses": null},
        {"addresses": [ip(&backends[0])], "conditions": null}
    ]);
    let port = backends[0].socket_addr().port();
    cluster.set("odd", "odd-0", port, &endpoints);
    cluster.set("none", "none-0", port, &Value::Null);
    let mut agent = Agent::start(&cluster, &nginx, &[]);
    servers(&api, "odd", &[(&backends[0], "up")]);
    servers(&api, "none", &[]);
    slice(&cluster, "shop", 0, &backends[1], READY);
    servers(&api, "shop", &[(&backends[1], "up")]);

    // What it cannot make sense of ends it: who started it can tell, and start it again.
    assert!(agent.child.try_wait().unwrap().is_none());
    nginx.change(|conf| conf.set("api_is", "return 200 '{}';"));
    nginx.reload();
    slice(&cluster, "shop", 0, &backends[0], READY);
    let status = eventually(secs(15), || agent.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1), "{}", agent.said());
}

#[test]
fn a_block_of_the_configuration_keeps_what_is_said_of_it() {
    let backend = Backend::new("b1");
    let cluster = Cluster::new();
    let nginx = nginx(&["shop.web"]).start();
    let api = nginx.api();
    slice(&cluster, "web", 0, &backend, READY);
    // The API server has a certificate, as in a cluster.
    let certificate = Certificate::make(nginx.prefix(), &["localhost"]);
    let tls = Nginx::stock()
        .set("pem", certificate.pem.display())
        .set("key", certificate.key.display())
        .set("cluster", cluster.url())
        .http(
            "server { listen {web} ssl; ssl_certificate {pem}; ssl_certificate_key {key};
             location / { proxy_pass {cluster}; proxy_http_version 1.1; proxy_buffering off; } }",
        )
        .start();
    let server = format!("https://localhost:{}", tls.web().port());
    let settings = r#"{"method": "least_conn", "defaults": {"max_fails": 3}}"#;
    let mut arguments = vec!["--server", &server, "--ca", certificate.pem.to_str().unwrap()];
    arguments.extend(["--name", "{namespace}.{service}", "--port", "http"]);
    arguments.extend(["--settings", settings]);
    let _agent = Agent::start(&cluster, &nginx, &arguments);
    servers(&api, "shop.web", &[(&backend, "up")]);
    assert_eq!(api.upstream("shop.web")["method"], "least_conn");
    assert_eq!(api.upstream("shop.web")["servers"][0]["max_fails"], 3);

    cluster.delete("web-0");
    servers(&api, "shop.web", &[]);
}

/// With a keyed block, and blocks of these names besides.
fn nginx(blocks: &[&str]) -> Conf {
    let blocks: String =
        blocks.iter().map(|name| format!("upstream {name} {{ peerage main; }}\n")).collect();
    Nginx::builder().workers(2).set("api_is", "peerage_api write=on;").http(format!(
        "peerage_zone main 1m state={{prefix}}/main.json;
         {blocks}
         upstream services {{ peerage main name=$http_x_service; }}
         server {{ listen {{web}}; location / {{ proxy_pass http://services; }} }}
         server {{ listen {{api}}; location /api {{ {{api_is}} }} }}"
    ))
}

/// The slice `{service}-{i}`, with one endpoint.
fn slice(
    cluster: &Cluster,
    service: &str,
    i: usize,
    server: &impl ToString,
    conditions: impl Into<Conditions>,
) {
    let server: SocketAddr = server.to_string().parse().unwrap();
    let Conditions(conditions) = conditions.into();
    let endpoints = json!([{"addresses": [server.ip()], "conditions": conditions}]);
    cluster.set(service, &format!("{service}-{i}"), server.port(), &endpoints);
}

/// What a cluster says of an endpoint.
struct Conditions(Value);

impl From<&Value> for Conditions {
    fn from(value: &Value) -> Self {
        Self(value.clone())
    }
}

impl From<&str> for Conditions {
    fn from(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }
}

const READY: &str = r#"{"ready": true, "serving": true, "terminating": false}"#;
const ENDING: &str = r#"{"ready": false, "serving": true, "terminating": true}"#;

/// Waits until the upstream has these servers, in these states.
#[track_caller]
fn servers(api: &Api, upstream: &str, wanted: &[(&dyn ToString, &str)]) {
    let mut wanted: Vec<(String, String)> =
        wanted.iter().map(|(server, state)| (server.to_string(), state.to_string())).collect();
    wanted.sort();
    let mut last = Value::Null;
    let found = within(secs(15), || {
        let (_, said) = api.get(&format!("upstreams/{upstream}"));
        let servers = said["servers"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let mut got: Vec<_> = servers.map(|s| (text(&s["server"]), text(&s["state"]))).collect();
        got.sort();
        last = json!(got);
        // An upstream without servers is there all the same.
        got == wanted && said["name"] == upstream
    });
    assert!(found.is_some(), "{upstream}: {last}, wanted {wanted:?}");
}

/// Which backends answered so many requests for the service.
#[track_caller]
fn answers(nginx: &Nginx, service: &str, n: usize) -> BTreeSet<String> {
    let request = Request::get("/").header("X-Service", service);
    (0..n).map(|_| request.send(nginx.web()).unwrap().text().trim().to_string()).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The example, as it is run beside nginx.
struct Agent {
    child: Child,
    log: std::path::PathBuf,
}

impl Agent {
    fn start(cluster: &Cluster, nginx: &Nginx, arguments: &[&str]) -> Self {
        let log = nginx.path("agent.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "python3"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/k8s/endpointslices.py"))
            .args(["--server", &cluster.url(), "--namespace", "shop"])
            .args(arguments)
            .arg(format!("http://{}/api", nginx.addr("api")))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        self.child.kill().ok(); // ended already
        self.child.wait().ok();
    }
}
