//! The API that clients of NGINX Plus know: what it shows, where it is found, and the form of its
//! answers.

mod support;

use std::collections::BTreeSet;

use support::*;

const APP: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.9.9.1:8080 weight=3 fail_timeout=21s;
        server 10.9.9.2:8080 backup max_conns=7; }
    upstream Keyed { peerage main name=$arg_u match=k*; }
    upstream static { server 10.9.9.3:8080; }";

fn start() -> Nginx {
    Nginx::builder().http(APP).with_api("write=on").start()
}

fn plus(nginx: &Nginx) -> Api {
    Api::new(nginx.addr("api"), "/api/9")
}

fn code(value: &Value) -> &str {
    value["error"]["code"].as_str().unwrap_or_default()
}

#[test]
fn every_path_is_answered_in_every_version_with_any_slashes() {
    let nginx = start();
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    let paths = [
        "",
        "nginx",
        "processes",
        "connections",
        "slabs",
        "slabs/main",
        "resolvers",
        "ssl",
        "workers",
        "http",
        "http/requests",
        "http/server_zones",
        "http/location_zones",
        "http/caches",
        "http/limit_conns",
        "http/limit_reqs",
        "http/upstreams",
        "http/upstreams/app",
        "http/upstreams/app/servers",
    ];
    for path in paths {
        let first = conn.send(&Request::get(&format!("/api/9/{path}"))).unwrap();
        assert_eq!(first.status, 200, "{path}: {}", first.text());
        assert_eq!(first.header("content-type"), Some("application/json"));
        first.json();
        assert!(!first.text().contains(": ") && !first.text().contains('\n'), "{}", first.text());
        for version in 1..=9 {
            for other in [
                format!("/api/{version}/{path}/"),
                format!("//api///{version}//{}//", path.replace('/', "//")),
            ] {
                let reply = conn.send(&Request::get(&other)).unwrap();
                assert_eq!(reply.status, 200, "{other}: {}", reply.text());
                let counts = ["nginx", "connections", "http/requests"].contains(&path);
                assert!(counts || reply.text() == first.text(), "{other}: {}", reply.text());
            }
        }
        conn.begin(&Request::new("HEAD", &format!("/api/9/{path}"))).unwrap();
        let head = conn.head().unwrap();
        assert_eq!((head.status, head.header("content-type")), (200, Some("application/json")));
    }
    for path in ["/api", "/api/", "//api//"] {
        let reply = conn.send(&Request::get(path)).unwrap();
        assert_eq!((reply.status, reply.text().as_str()), (200, "[1,2,3,4,5,6,7,8,9]"), "{path}");
    }
    assert_eq!(nginx.api().ok("GET", "", None)["zones"][0]["name"], "main", "beside it");
}

#[test]
fn what_is_not_there_says_so_in_the_form_of_the_interface() {
    let nginx = start();
    let api = plus(&nginx);
    let text = api.call("GET", "http/upstreams/nothing", None).text();
    let (head, rest) = text.split_once("\"request_id\":\"").unwrap();
    assert_eq!(
        head,
        r#"{"error":{"status":404,"text":"upstream not found","code":"UpstreamNotFound"},"#
    );
    assert!(rest[..32].bytes().all(|b| b.is_ascii_hexdigit()), "{rest}");
    assert!(rest[32..].starts_with(r#"","href":"http"#), "{rest}");
    let table = [
        ("GET", "/api/10/nginx", 404, "UnknownVersion"),
        ("GET", "/api/0", 404, "UnknownVersion"),
        ("GET", "/api/9/stream", 404, "PathNotFound"),
        ("GET", "/api/9/stream/upstreams", 404, "PathNotFound"),
        ("GET", "/api/9/http/keyvals", 404, "PathNotFound"),
        ("GET", "/api/9/slabs/nothing", 404, "SlabNotFound"),
        ("GET", "/api/9/workers/4711", 404, "WorkerNotFound"),
        ("GET", "/api/9/http/caches/x", 404, "CacheNotFound"),
        ("GET", "/api/9/http/upstreams/a%2Fb", 404, "UpstreamNotFound"),
        ("GET", "/api/9/http/upstreams/keyed", 404, "UpstreamNotFound"),
        ("GET", "/api/9/http/upstreams/static", 400, "UpstreamStatic"),
        ("POST", "/api/9/http/upstreams/STATIC/servers", 400, "UpstreamStatic"),
        ("DELETE", "/api/9/http/upstreams/static", 400, "UpstreamStatic"),
        ("GET", "/api/9/http/upstreams/app/servers/99", 404, "UpstreamServerNotFound"),
        ("DELETE", "/api/9/http/upstreams/app/servers/99", 404, "UpstreamServerNotFound"),
        ("GET", "/api/9/http/upstreams/app/servers/x", 400, "UpstreamBadServerId"),
        ("PUT", "/api/9/http/upstreams/app", 405, "MethodDisabled"),
        ("OPTIONS", "/api/9/http/upstreams/nothing/servers/x", 405, "MethodDisabled"),
        ("DELETE", "/api/9/connections", 405, "MethodDisabled"),
        ("POST", "/api", 405, "MethodDisabled"),
    ];
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    for (method, path, status, word) in table {
        let body = json!({"server": "10.9.9.9:80"});
        let request = Request::new(method, path).body(body.to_string());
        let reply = conn.send(&request).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!((reply.status, code(&reply.json())), (status, word), "{method} {path}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("allow").is_some(), status == 405, "{method} {path}");
        assert_eq!(reply.json()["error"]["status"], status);
    }
    assert_eq!(api.get("http/upstreams/static").1["error"]["text"], "upstream is static");
}

#[test]
fn the_location_may_have_any_name() {
    let nginx = Nginx::builder()
        .http(format!(
            "{APP}
             server {{ listen {{api}}; merge_slashes off; location / {{ peerage_api write=on; }} }}
             server {{ listen {{web}}; location /x/api/ {{ peerage_api write=on; }}
                 location = /one {{ peerage_api; }}
                 location /a%b/plus {{ peerage_api; }}
                 location \"/a b/é/\" {{ peerage_api; }} }}"
        ))
        .start();
    let servers = "http/upstreams/app/servers";
    for (addr, base) in [
        (nginx.addr("api"), "/"),
        (nginx.addr("api"), "//"),
        (nginx.web(), "/x/api/"),
        (nginx.web(), "/x//api//"),
    ] {
        let reply = get(addr, base).unwrap();
        assert_eq!((reply.status, reply.text().as_str()), (200, "[1,2,3,4,5,6,7,8,9]"), "{base}");
        let reply = get(addr, &format!("{base}9/{servers}/")).unwrap();
        assert_eq!(reply.json()[0]["server"], "10.9.9.1:8080", "{base}: {}", reply.text());
        let door = Api::new(addr, &format!("{base}9"));
        let (status, server) = door.post_json(servers, &json!({"server": "10.9.9.9"}));
        assert_eq!(status, 201, "{server}");
        assert_eq!(door.delete(&format!("{servers}/{}", server["id"])).0, 200);
        assert_eq!(get(addr, &format!("{base}v1/")).unwrap().status, 200, "{base}");
    }
    assert_eq!(get(nginx.web(), "/one").unwrap().text(), "[1,2,3,4,5,6,7,8,9]");
    // What a client must write by its code is read so.
    for base in ["/a%25b/plus", "/a%20b/%C3%A9", "/%61%20b%2F%c3%a9/"] {
        let reply = get(nginx.web(), &format!("{base}/9/{servers}")).unwrap();
        assert_eq!(reply.json()[0]["server"], "10.9.9.1:8080", "{base}: {}", reply.text());
    }
}

#[test]
fn objects_have_their_members_in_order() {
    let nginx = start();
    let api = plus(&nginx);
    let text = |path: &str| api.call("GET", path, None).text();
    let id = |server: &str| nginx.api().server("app", server)["id"].clone();
    let (one, two) = (id("10.9.9.1:8080"), id("10.9.9.2:8080"));
    let first = format!(
        r#"{{"id":{one},"server":"10.9.9.1:8080","weight":3,"max_conns":0,"max_fails":1,"fail_timeout":"21s","slow_start":"0s","route":"","backup":false,"down":false}}"#
    );
    let second = format!(
        r#"{{"id":{two},"server":"10.9.9.2:8080","weight":1,"max_conns":7,"max_fails":1,"fail_timeout":"10s","slow_start":"0s","route":"","backup":true,"down":false}}"#
    );
    assert_eq!(text("http/upstreams/app/servers"), format!("[{first},{second}]"));
    assert_eq!(text(&format!("http/upstreams/app/servers/{one}")), first);
    assert_eq!(
        text("http/upstreams/app").split(r#","id""#).next().unwrap(),
        format!(
            r#"{{"peers":[{{"id":{one},"server":"10.9.9.1:8080","name":"10.9.9.1:8080","backup":false,"weight":3,"state":"up","active":0,"requests":0,"responses":{{"1xx":0,"2xx":0,"3xx":0,"4xx":0,"5xx":0,"codes":{{}},"total":0}},"sent":0,"received":0,"fails":0,"unavail":0,"health_checks":{{"checks":0,"fails":0,"unhealthy":0}},"downtime":0}},{{"id":{two},"server":"10.9.9.2:8080","name":"10.9.9.2:8080","backup":true,"weight":1,"state":"up","active":0,"max_conns":7,"requests":0,"responses":{{"1xx":0,"2xx":0,"3xx":0,"4xx":0,"5xx":0,"codes":{{}},"total":0}},"sent":0,"received":0,"fails":0,"unavail":0,"health_checks":{{"checks":0,"fails":0,"unhealthy":0}},"downtime":0}}],"zone":"main"}}"#
        )
    );
    assert_eq!(text("http/upstreams?fields=zone"), r#"{"app":{"zone":"main"}}"#);
    assert_eq!(text("http/upstreams?fields="), r#"{"app":{}}"#);
    assert_eq!(text("http/upstreams/app?fields=zone,x"), r#"{"zone":"main"}"#);
    assert_eq!(text("http/upstreams/app"), text("http/upstreams/app?fields=zone,peers&version=9"));
    let path = |verb: &str| nginx.api().verb("app", "10.9.9.1:8080", verb);
    for (verb, state, down, drain) in [
        ("drain", "draining", false, Some(true)),
        ("down", "down", true, None),
        ("up", "up", false, None),
    ] {
        assert_eq!(path(verb).0, 200);
        let server = api.get("http/upstreams/app/servers").1[0].clone();
        assert_eq!((&server["down"], server["drain"].as_bool()), (&json!(down), drain), "{verb}");
        assert_eq!(api.get("http/upstreams/app").1["peers"][0]["state"], state);
    }
    assert_eq!(nginx.api().post("hosts/10.9.9.1/down?min_up=0").0, 200);
    assert_eq!(api.get("http/upstreams/app").1["peers"][0]["state"], "down", "of its host");
    assert_eq!(api.get("http/upstreams/app/servers").1[0]["down"], false, "of its own");
}

#[test]
fn figures_are_those_that_nginx_keeps() {
    let mut nginx = Nginx::builder()
        .http(format!(
            "{APP} limit_req_zone $binary_remote_addr zone=limit:64k rate=1000r/s;
             server {{ listen {{web}}; location / {{ limit_req zone=limit; return 204; }}
                 location /status {{ stub_status; }} }}"
        ))
        .with_api("")
        .workers(3)
        .start();
    let api = plus(&nginx);
    let info = api.ok("GET", "nginx", None);
    let workers: BTreeSet<u64> = nginx.worker_pids().into_iter().map(u64::from).collect();
    assert!(info["version"].as_str().unwrap().starts_with("1."), "{info}");
    assert_eq!(info["version"], nginx.api().ok("GET", "", None)["nginx"]);
    assert_eq!((&info["address"], &info["generation"]), (&json!("127.0.0.1"), &json!(1)));
    assert_eq!(info["ppid"], nginx.master_pid());
    assert!(workers.contains(&info["pid"].as_u64().unwrap()), "{info} {workers:?}");
    assert!(info["timestamp"].as_str() >= info["load_timestamp"].as_str(), "{info}");
    assert_eq!(info["timestamp"].as_str().unwrap().len(), "2026-11-29T21:05:07.123Z".len());
    assert_eq!(api.ok("GET", "nginx?fields=generation", None), json!({"generation": 1}));
    let pids = |api: &Api| -> BTreeSet<u64> {
        let listed = api.ok("GET", "workers", None);
        listed.as_array().unwrap().iter().map(|w| w["pid"].as_u64().unwrap()).collect()
    };
    assert_eq!(pids(&api), workers);
    let first = api.ok("GET", "workers", None)[0].clone();
    assert_eq!(api.ok("GET", &format!("workers/{}", first["id"]), None), first);

    let _idle: Vec<Conn> = (0..5)
        .map(|_| {
            let mut conn = Conn::open(nginx.web()).unwrap();
            assert_eq!(conn.send(&Request::get("/")).unwrap().status, 204);
            conn
        })
        .collect();
    eventually(secs(5), || api.ok("GET", "connections", None)["idle"] == 5);
    let (plain, shown) = (nginx.get("/status").text(), api.ok("GET", "connections", None));
    let words: Vec<u64> = plain.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Each of these two requests is a connection of its own.
    assert_eq!(shown["accepted"].as_u64().unwrap(), words[1] + 1, "{plain} {shown}");
    assert_eq!(shown["dropped"], 0, "{shown}");
    let requests = api.ok("GET", "http/requests", None);
    assert_eq!(requests["total"].as_u64().unwrap(), words[3] + 2, "{plain} {requests}");
    // A client has its answer a moment before nginx has counted the request's end.
    eventually(secs(5), || api.ok("GET", "connections", None)["active"] == 1);
    eventually(secs(5), || api.ok("GET", "http/requests", None)["current"] == 1);

    let slabs = api.ok("GET", "slabs", None);
    let names: Vec<&String> = slabs.as_object().unwrap().keys().collect();
    assert!(names.iter().any(|name| *name == "limit"), "{names:?}");
    let limit = &slabs["limit"];
    assert!((13..=16).contains(
        &(limit["pages"]["used"].as_u64().unwrap() + limit["pages"]["free"].as_u64().unwrap())
    ));
    let reqs: u64 =
        limit["slots"].as_object().unwrap().values().map(|s| s["reqs"].as_u64().unwrap()).sum();
    assert!(reqs > 0, "{limit}");
    let (ours, report) = (&slabs["main"]["pages"], nginx.api().get("zones/main").1);
    let (used, free) = (ours["used"].as_u64().unwrap(), ours["free"].as_u64().unwrap());
    assert!(used > 0 && free > 100 && used + free <= 256, "{ours}");
    assert!(free * 4096 <= report["bytes"]["free"].as_u64().unwrap() + 4096 * 3, "{ours} {report}");
    assert_eq!(api.ok("GET", "slabs/main?fields=pages", None), json!({"pages": ours}));

    nginx.reload();
    let again = api.ok("GET", "nginx", None);
    assert_eq!(again["generation"], 2);
    assert!(again["load_timestamp"].as_str() > info["load_timestamp"].as_str(), "{again}");
    let workers: BTreeSet<u64> = nginx.worker_pids().into_iter().map(u64::from).collect();
    eventually(secs(5), || pids(&api) == workers);
    for path in ["processes", "ssl", "resolvers", "http/server_zones", "http/limit_reqs"] {
        assert_eq!(api.ok("GET", path, None), json!({}), "{path}");
    }
}

#[test]
fn several_zones_want_one_said_for_upstreams_and_for_nothing_else() {
    let nginx = Nginx::builder()
        .http(
            "peerage_zone one 1m; peerage_zone two 1m;
               upstream app { peerage two; server 10.9.9.1:8080; }
               server { listen {web}; location /api { peerage_api zone=two; } }",
        )
        .with_api("write=on")
        .start();
    let api = plus(&nginx);
    let (status, fault) = api.get("http/upstreams");
    assert_eq!((status, code(&fault)), (400, "ZoneRequired"), "{fault}");
    let text = fault["error"]["text"].as_str().unwrap();
    assert!(text.ends_with(": one, two"), "{text}");
    assert_eq!(api.get("http/upstreams/app").0, 400);
    assert_eq!(api.get("http/upstreams?zone=nothing").0, 404);
    assert_eq!(api.ok("GET", "http/upstreams/app?zone=two", None)["zone"], "two");
    assert_eq!(api.ok("GET", "http/upstreams?zone=one", None), json!({}));
    for path in ["", "nginx", "slabs", "workers", "http/requests"] {
        api.ok("GET", path, None);
    }
    let bound = Api::new(nginx.web(), "/api/9");
    assert_eq!(
        bound.ok("GET", "http/upstreams?fields=zone", None),
        json!({"app": {"zone": "two"}})
    );
    assert_eq!(bound.get("http/upstreams?zone=one").0, 404);
}
