//! Who may do what through which door: write modes, nginx's access rules, several zones, and the
//! versions of HTTP.

mod support;

use support::*;

const APP: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }";
const ONE: &str = "upstreams/app/servers/10.9.9.1:8080";

fn start(locations: &str) -> Nginx {
    Nginx::builder().http(format!("{APP} server {{ listen {{api}}; {locations} }}")).start()
}

fn kind(reply: &Reply) -> String {
    let kind = reply.json()["type"].as_str().unwrap_or_default().to_string();
    kind.trim_start_matches("urn:peerage:").to_string()
}

#[test]
fn where_writing_is_off_every_write_is_405_before_any_look_up() {
    let nginx = start("location /api { peerage_api; }");
    let api = nginx.api();
    const READ: Option<&str> = Some("GET, HEAD");
    for (method, path, allow) in [
        ("PUT", "upstreams/app", READ),
        ("PATCH", "upstreams/nothing", READ),
        ("DELETE", "upstreams/a%20b", READ),
        ("PUT", ONE, READ),
        ("DELETE", "upstreams/app/servers/x:y", READ),
        ("POST", "upstreams", READ),
        ("POST", "upstreams/app/servers/10.9.9.1:8080/down", Some("")),
        ("POST", "zones/main/flush", Some("")),
    ] {
        let reply = api.call(method, path, None);
        assert_eq!(reply.status, 405, "{method} {path}: {}", reply.text());
        assert_eq!(reply.header("allow"), allow, "{method} {path}");
        assert_eq!(kind(&reply), "method-not-allowed");
    }
    assert_eq!(api.server("app", "10.9.9.1:8080")["state"], "up");
    assert_eq!(api.get("zones/main").1["revision"], api.get("").1["revision"]);
}

#[test]
fn methods_that_a_path_does_not_have_are_405_with_those_it_has() {
    let nginx = start("location /api { peerage_api write=on; }");
    let api = nginx.api();
    const WHOLE: &str = "GET, HEAD, PUT, PATCH, DELETE";
    for (method, path, allow) in [
        ("POST", "upstreams/app", WHOLE),
        ("OPTIONS", "upstreams/nothing", WHOLE),
        ("MKCOL", ONE, WHOLE),
        ("POST", ONE, WHOLE),
        ("GET", "upstreams/app/servers/10.9.9.1:8080/down", "POST"),
        ("PUT", "upstreams/app/servers/nothing:1/up", "POST"),
        ("GET", "zones/main/flush", "POST"),
        ("DELETE", "upstreams", "GET, HEAD"),
        ("PUT", "zones/main", "GET, HEAD"),
        ("POST", "", "GET, HEAD"),
    ] {
        let reply = api.call(method, path, None);
        assert_eq!((reply.status, reply.header("allow")), (405, Some(allow)), "{method} {path}");
        assert_eq!(kind(&reply), "method-not-allowed");
    }
}

#[test]
fn operate_covers_verbs_and_weights_and_nothing_else() {
    let nginx = start("location /api { peerage_api write=operate; }");
    let api = nginx.api();
    for verb in ["down", "drain", "up"] {
        assert_eq!(api.verb("app", "10.9.9.1:8080", verb).0, 200, "{verb}");
    }
    assert_eq!(api.patch(ONE, &json!({"weight": 7})).1["server"]["weight"], 7);
    assert_eq!(api.patch(ONE, &json!({"weight": null, "server": "10.9.9.1:8080"})).0, 200);
    let before = api.upstream("app");
    for (method, path, body) in [
        ("PATCH", ONE, Some(json!({"weight": 1, "max_conns": 5}))),
        ("PATCH", ONE, Some(json!({"backup": true}))),
        ("PATCH", ONE, Some(json!({"admin": {"state": "down"}}))),
        ("PUT", ONE, Some(json!({"weight": 2}))),
        ("DELETE", ONE, None),
        ("PUT", "upstreams/app", Some(json!({"servers": []}))),
        ("PATCH", "upstreams/app", Some(json!({"defaults": {"weight": 2}}))),
        ("DELETE", "upstreams/app?force=1", None),
        ("DELETE", "upstreams/nothing", None),
    ] {
        let reply = api.call(method, path, body.as_ref());
        assert_eq!(
            (reply.status, kind(&reply).as_str()),
            (403, "not-permitted"),
            "{method} {path} {body:?}"
        );
    }
    assert_eq!(api.upstream("app"), before);
}

#[test]
fn limit_except_and_address_rules_guard_the_api_as_any_location() {
    let nginx = start(
        "location /api { peerage_api write=on; limit_except GET { deny all; } }
         location /some { peerage_api write=on; limit_except GET POST { deny all; } }
         location /no { peerage_api write=on; deny all; }
         location /any { peerage_api write=on; satisfy any; deny all;
             auth_basic ops; auth_basic_user_file {prefix}/users; }
         location /all { peerage_api write=on; allow 127.0.0.1; deny all;
             auth_basic ops; auth_basic_user_file {prefix}/users; }",
    );
    std::fs::write(nginx.path("users"), "ci:{PLAIN}secret\n").unwrap();
    let door = |name: &str| Api::new(nginx.addr("api"), &format!("/{name}/v1"));
    let basic = ("Authorization", "Basic Y2k6c2VjcmV0");

    assert_eq!(door("api").get(ONE).0, 200);
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    conn.begin(&Request::new("HEAD", "/api/v1/")).unwrap();
    assert_eq!(conn.head().unwrap().status, 200);
    assert_eq!(door("api").post(&format!("{ONE}/down")).0, 403);
    assert_eq!(door("api").delete(ONE).0, 403);
    assert_eq!(door("some").post(&format!("{ONE}/down?reason=a")).0, 200);
    assert_eq!(door("some").put(ONE, &json!({})).0, 403);
    assert_eq!(door("no").get(ONE).0, 403);
    for name in ["any", "all"] {
        assert_eq!(door(name).post(&format!("{ONE}/up")).0, 401, "{name}");
        assert_eq!(door(name).with("Authorization", "Basic Y2k6eA==").delete(ONE).0, 401, "{name}");
    }
    for name in ["any", "all"] {
        let (status, answer) =
            door(name).with(basic.0, basic.1).post(&format!("{ONE}/drain?reason={name}"));
        assert_eq!(status, 200, "{answer}");
        let admin = &answer["server"]["admin"];
        assert_eq!((&admin["by"], &admin["from"]), (&json!("ci"), &json!("127.0.0.1")));
        assert_eq!((&admin["state"], &admin["reason"]), (&json!("drain"), &json!(name)));
    }
    assert_eq!(door("some").server("app", "10.9.9.1:8080")["admin"]["by"], "ci");
}

#[test]
fn one_who_is_not_known_is_named_by_address() {
    let nginx = start("location /api { peerage_api write=on; }");
    let (_, answer) = nginx.api().verb("app", "10.9.9.1:8080", "down?reason=x");
    let admin = &answer["server"]["admin"];
    assert_eq!((&admin["by"], &admin["from"]), (&json!("127.0.0.1"), &json!("127.0.0.1")));
    assert!(
        nginx
            .error_log()
            .contains("server \"10.9.9.1:8080\" is set down by \"127.0.0.1\": x, upstream \"app\"")
    );
}

#[test]
fn a_location_with_and_without_a_slash_at_its_end_is_the_same_door() {
    let nginx = start(
        "location /api { peerage_api write=on; }
         location /ops/ { peerage_api write=on; }
         location = /exact { peerage_api write=on; }
         location ^~ /first { peerage_api write=on; }",
    );
    for prefix in ["/api/v1", "/ops/v1", "/first/v1", "/ops//v1"] {
        let api = Api::new(nginx.addr("api"), prefix);
        assert_eq!(api.upstream("app")["name"], "app", "{prefix}");
        assert_eq!(api.verb("app", "10.9.9.1:8080", "up").0, 200, "{prefix}");
    }
    assert_eq!(get(nginx.addr("api"), "/exact").unwrap().text(), "[1,2,3,4,5,6,7,8,9]");
    assert_eq!(get(nginx.addr("api"), "/ops").unwrap().status, 404, "never a redirect");
}

#[test]
fn of_several_zones_one_must_be_said() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone east 512k; peerage_zone west 512k;
             upstream app { peerage east; server 10.9.9.1:8080; }
             upstream web { peerage west; server 10.9.9.1:8080; }
             server {
                 listen {api};
                 location /api { peerage_api write=on; }
                 location /west { peerage_api write=on zone=west; }
             }",
        )
        .start();
    let (api, west) = (nginx.api(), Api::new(nginx.addr("api"), "/west/v1"));
    let writes = format!("{ONE}/down");
    for (method, path) in
        [("GET", "upstreams"), ("GET", "upstreams/app"), ("POST", writes.as_str())]
    {
        let reply = api.call(method, path, None);
        let (status, problem) = (reply.status, reply.json());
        assert_eq!(
            (status, &problem["type"]),
            (400, &json!("urn:peerage:zone-required")),
            "{path}"
        );
        assert_eq!(problem["zones"], json!(["east", "west"]));
        assert_eq!(problem["field"], "zone");
    }
    assert_eq!(api.get("upstreams/app?zone=east").1["zone"], "east");
    assert_eq!(api.get("upstreams/app?zone=west").0, 404);
    assert_eq!(api.get("upstreams/app?zone=north").1["type"], "urn:peerage:zone-not-found");
    assert_eq!(api.post(&format!("{writes}?zone=east&reason=x")).0, 200);
    assert_eq!(west.upstream("web")["zone"], "west");
    assert_eq!(west.get("upstreams/app").0, 404);
    assert_eq!(west.get("upstreams/app?zone=east").1["type"], "urn:peerage:zone-not-found");
    assert_eq!(west.get("zones/east").0, 404);
    let root = |api: &Api| api.ok("GET", "", None)["zones"].as_array().unwrap().len();
    assert_eq!((root(&api), root(&west)), (2, 1));
    // One name in two zones is two upstreams.
    assert_eq!(west.put("upstreams/app", &json!({"servers": []})).0, 201);
    assert_eq!(api.get("upstreams/app?zone=east").1["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn an_http_1_0_client_is_answered_and_its_connection_closed() {
    let nginx = start("location /api { peerage_api write=on; }");
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    conn.write(b"GET /api/v1/upstreams/app HTTP/1.0\r\n\r\n").unwrap();
    let reply = conn.reply().unwrap();
    assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None));
    assert_eq!(reply.json()["name"], "app");
    assert!(conn.closed_within(secs(5)));
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    conn.write(format!("POST /api/v1/{ONE}/down HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(conn.reply().unwrap().json()["server"]["state"], "down");
}

#[test]
fn requests_on_one_connection_are_answered_in_turn() {
    let nginx = start("location /api { peerage_api write=on; }");
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let requests = [
        Request::get("/api/v1/upstreams/app"),
        Request::new("PUT", "/api/v1/upstreams/one").body(r#"{"servers":[]}"#),
        Request::new("PUT", "/api/v1/upstreams/two").body("no json").chunked(2),
        Request::new("DELETE", "/api/v1/upstreams/nothing").body("a body that nobody wants"),
        Request::post("/api/v1/upstreams/app/servers/10.9.9.1:8080/down?wait=100ms"),
        Request::get("/api/v1/upstreams/one").body("another"),
        Request::new("DELETE", "/api/v1/upstreams/one").body("{}").chunked(1),
    ];
    let all: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
    for _ in 0..20 {
        conn.write(&all).unwrap();
        let statuses: Vec<u16> = requests.iter().map(|_| conn.reply().unwrap().status).collect();
        assert_eq!(statuses, [200, 201, 400, 404, 200, 200, 200]);
    }
}

#[test]
fn http_2_reads_writes_and_is_refused_like_http_1() {
    let nginx = Nginx::builder()
        .http(format!("{APP} server {{ listen {{api}}; listen {{two}} http2; location /api {{ peerage_api write=on; }} }}"))
        .port("two")
        .start();
    let at = nginx.addr("two");
    let curl = |words: &[&str], path: &str| -> (u16, Value) {
        let out = std::process::Command::new("curl")
            .args([
                "-sS",
                "--http2-prior-knowledge",
                "--max-time",
                "20",
                "-w",
                "\n%{http_version} %{http_code}",
            ])
            .args(words)
            .arg(format!("http://{at}/api/v1/{path}"))
            .output()
            .expect("curl is installed");
        let text = String::from_utf8(out.stdout).unwrap();
        let (body, last) = text.rsplit_once('\n').unwrap();
        let code = last.strip_prefix("2 ").expect("HTTP/2");
        (code.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    };
    assert_eq!(curl(&[], "upstreams/app").1["name"], "app");
    let servers: Vec<Value> =
        (0..500).map(|i| json!({"server": format!("10.8.{}.{}:80", i / 250, i % 250)})).collect();
    let body = json!({"servers": servers}).to_string();
    assert_eq!(curl(&["-X", "PUT", "-d", &body], "upstreams/big").0, 201);
    assert_eq!(curl(&[], "upstreams/big").1["servers"].as_array().unwrap().len(), 500);
    assert_eq!(curl(&["-X", "PUT", "-d", "{"], "upstreams/big").0, 400);
    assert_eq!(curl(&["-X", "POST"], &format!("{ONE}/down?wait=1s")).1["drained"], true);
    let own = format!("Origin: http://{at}");
    assert_eq!(curl(&["-X", "POST", "-H", &own], &format!("{ONE}/up")).0, 200);
    assert_eq!(curl(&["-X", "POST", "-H", "Origin: http://evil"], &format!("{ONE}/down")).0, 403);
    assert_eq!(curl(&["-X", "DELETE"], "upstreams/big").0, 200);
    assert_eq!(curl(&[], "upstreams/big").0, 404);
}

#[test]
fn a_wait_leaves_the_connection_in_step_and_reads_later_what_came_meanwhile() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m; upstream app { peerage main; server {b1}; }
             server { listen {web}; location / { proxy_pass http://app; } }",
        )
        .with_api("write=on")
        .set("b1", &b1)
        .start();
    let mut held = Conn::open(nginx.web()).unwrap();
    held.begin(&Request::get("/hold")).unwrap();
    eventually(secs(5), || b1.held() == 1);
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let down = Request::post(&format!("/api/v1/upstreams/app/servers/{b1}/down?wait=100ms"));
    let list = Request::get("/api/v1/upstreams/app");
    for _ in 0..3 {
        // The second and third are sent while the first waits.
        conn.write(&[down.bytes(), list.bytes(), down.bytes()].concat()).unwrap();
        let statuses = [1, 2, 3].map(|_| conn.reply().unwrap().status);
        assert_eq!(statuses, [504, 200, 504]);
    }
    let wait = Request::post(&format!("/api/v1/upstreams/app/servers/{b1}/drain?wait=30s"));
    conn.begin(&wait).unwrap();
    b1.release();
    let reply = conn.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["drained"]), (200, &json!(true)));
    assert_eq!(conn.send(&list).unwrap().json()["servers"][0]["active"], 0);
}

#[test]
fn one_with_a_certificate_is_named_by_its_subject() {
    let conf = Nginx::builder().port("tls");
    let own = Certificate::make(conf.prefix(), &["ops.test"]);
    let client = Certificate::make(conf.prefix(), &["deploy-bot"]);
    let nginx = conf
        .http(format!(
            "{APP} server {{ listen {{tls}} ssl; ssl_certificate {}; ssl_certificate_key {};
                 ssl_client_certificate {}; ssl_verify_client on;
                 location /api {{ peerage_api write=on; }} }}",
            own.pem.display(),
            own.key.display(),
            client.pem.display(),
        ))
        .start();
    let url = format!("https://{}/api/v1/{ONE}/down?reason=x", nginx.addr("tls"));
    let out = std::process::Command::new("curl")
        .args(["-sS", "-k", "-X", "POST", "--max-time", "20", "--cert"])
        .arg(&client.pem)
        .arg("--key")
        .arg(&client.key)
        .arg(url)
        .output()
        .expect("curl is installed");
    let answer: Value = serde_json::from_slice(&out.stdout).expect("an answer");
    assert_eq!(answer["server"]["admin"]["by"], "CN=deploy-bot", "{answer}");
}
