//! The page of `peerage_dashboard` as a client sees it: files, headers, paths. What it does in a
//! browser is told by `ci/page.sh`.

mod support;

use support::*;

const CONF: &str = "peerage_zone main 1m;
    server {
        listen {api};
        location /api { peerage_api write=on; }
        location /page/ { peerage_dashboard; }
        location /bare { peerage_dashboard api=../api; }
        location /odd%20name { peerage_dashboard; }
        location /fenced/ { peerage_dashboard; limit_except GET { deny all; } }
        location /moved/ { rewrite ^/moved/(.*)$ /elsewhere/$1 break; peerage_dashboard; }
    }";

fn start() -> Nginx {
    Nginx::builder().http(CONF).start()
}

fn fetch(nginx: &Nginx, path: &str) -> Reply {
    get(nginx.addr("api"), path).unwrap()
}

/// The files that a text of the page names, by what stands before the name.
fn names(text: &str) -> Vec<String> {
    let begins = ["href=\"", "src=\"", "from \"./"];
    let after = begins.iter().flat_map(|begin| text.split(begin).skip(1));
    let named = after.filter_map(|rest| rest.split('"').next());
    named.filter(|name| !name.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn every_file_is_there_with_its_type_and_a_strict_policy() {
    let nginx = start();
    let index = fetch(&nginx, "/page/");
    assert_eq!(index.header("content-type"), Some("text/html; charset=utf-8"));
    let mut todo = names(&index.text());
    let mut seen = vec![String::new()];
    while let Some(name) = todo.pop() {
        if seen.contains(&name) {
            continue;
        }
        let reply = fetch(&nginx, &format!("/page/{name}"));
        assert_eq!(reply.status, 200, "{name}");
        let kind = match name.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(reply.header("content-type"), Some(kind), "{name}");
        if name.ends_with(".js") {
            todo.extend(names(&reply.text()));
        }
        seen.push(name);
    }
    // All that is in ui/ is asked for, but the page by its own name.
    assert_eq!(seen.len(), std::fs::read_dir("ui").unwrap().count(), "{seen:?}");
    for name in seen.iter().map(String::as_str).chain(["index.html"]) {
        let reply = fetch(&nginx, &format!("/page/{name}"));
        let policy = reply.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(policy.contains("script-src 'self';") && policy.contains("trusted-types 'none'"));
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
        // Nothing that the policy would refuse, and nothing of elsewhere.
        let text = reply.text();
        for refused in ["style=\"", "onclick=", "innerHTML", "eval(", "https://", "<script>"] {
            assert!(!text.contains(refused), "{name}: {refused}");
        }
    }
}

#[test]
fn what_a_browser_has_already_is_not_sent_again() {
    let nginx = start();
    for name in ["", "app.js", "style.css"] {
        let path = format!("/page/{name}");
        let reply = fetch(&nginx, &path);
        let tag = reply.header("etag").expect("a tag").to_owned();
        let again = Request::get(&path).header("If-None-Match", &tag);
        let again = again.send(nginx.addr("api")).unwrap();
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        let mut conn = Conn::open(nginx.addr("api")).unwrap();
        conn.begin(&Request::new("HEAD", &path)).unwrap();
        let head = conn.head().unwrap();
        assert_eq!(head.header("content-length"), Some(&*reply.body.len().to_string()), "{path}");
        assert_eq!(head.header("etag"), Some(&*tag), "{path}");
    }
    // The page that asks another API is another page.
    let tags =
        ["/page/", "/bare/"].map(|path| fetch(&nginx, path).header("etag").map(str::to_owned));
    assert_ne!(tags[0], tags[1]);
}

#[test]
fn the_page_says_where_its_api_is() {
    let nginx = start();
    let api = |path: &str, says: &str| {
        let text = fetch(&nginx, path).text();
        assert!(
            text.contains(&format!("<meta name=\"peerage-api\" content=\"{says}\">")),
            "{text}"
        );
    };
    api("/page/", "/api");
    api("/page/index.html", "/api");
    api("/bare/", "../api");
}

#[test]
fn the_slash_that_is_left_out_is_put_there() {
    let nginx = start();
    let table = [
        ("/bare", "./bare/"),
        ("/bare?zone=main", "./bare/?zone=main"),
        ("/odd%2520name", "./odd%2520name/"),
    ];
    for (path, to) in table {
        let reply = fetch(&nginx, path);
        assert_eq!((reply.status, reply.header("location")), (301, Some(to)), "{path}");
    }
    // nginx itself does it for a name with a slash.
    let reply = fetch(&nginx, "/page");
    assert_eq!(reply.status, 301);
    assert!(reply.header("location").is_some_and(|to| to.ends_with("/page/")));
}

#[test]
fn what_is_not_there_is_404_and_what_is_no_reading_405() {
    let nginx = start();
    let unknown = ["/page/none.js", "/page/app.js/", "/page/ui/app.js", "/page/App.js", "/barely"];
    for path in unknown.into_iter().chain(["/bare/none", "/moved/", "/page/%00", "/page/{api}"]) {
        assert!(matches!(fetch(&nginx, path).status, 404 | 400), "{path}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let request = Request::new(method, "/page/").body("x");
        let reply = request.send(nginx.addr("api")).unwrap();
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let fenced = Request::post("/fenced/").send(nginx.addr("api")).unwrap();
    assert_eq!(fenced.status, 403);
    assert_eq!(fetch(&nginx, "/fenced/").status, 200);
    // A broken request does not end the connection for the next one.
    let mut conn = Conn::open(nginx.addr("api")).unwrap();
    for path in ["/page/none.js", "/page/app.js", "/page/"] {
        let reply = conn.send(&Request::get(path)).unwrap();
        assert_eq!(reply.status, if path.ends_with("none.js") { 404 } else { 200 }, "{path}");
    }
}

#[test]
fn the_example_shows_to_staff_and_acts_for_operators_alone() {
    let backend = Backend::new("b1");
    let example = |allow: &str| {
        include_str!("../examples/page.conf")
            .replace("/var/lib/nginx/peerage/", "{prefix}/")
            .replace("/etc/nginx/staff", "{prefix}/staff")
            .replace("/etc/nginx/lb.crt", "{prefix}/lb.pem")
            .replace("/etc/nginx/lb.key", "{prefix}/lb.key")
            .replace("listen 8443 ssl", "listen {api}")
            .replace("listen 80;", "listen {web};")
            .replace("server 10.0.0.1:8080", &format!("server {}", backend.addr()))
            .replace("server 10.0.0.2:8080", "server 127.0.0.1:1 down")
            .replace("allow 10.1.0.0/16", allow)
    };
    let conf =
        Nginx::builder().http(example("allow 10.1.0.0/16")).file("staff", "anna:{PLAIN}secret\n");
    Certificate::make(conf.prefix(), &["lb"]);
    let mut nginx = conf.start();
    let status = |nginx: &Nginx, method: &str, path: &str, login: &str| {
        let mut request = Request::new(method, path);
        if !login.is_empty() {
            request = request.header("Authorization", login);
        }
        request.send(nginx.addr("api")).unwrap().status
    };
    let (anna, ben) = ("Basic YW5uYTpzZWNyZXQ=", "Basic YmVuOnNlY3JldA==");
    let down = format!("servers/{}/drain?reason=tried", backend.addr());
    let (seen, done) =
        (format!("/api/v1/upstreams/app/{down}"), format!("/operate/api/v1/upstreams/app/{down}"));
    for path in ["/dashboard/", "/dashboard/app.js", "/api/v1/upstreams", "/operate/dashboard/"] {
        assert!(matches!(status(&nginx, "GET", path, ""), 401 | 403), "{path}");
        assert!(matches!(status(&nginx, "GET", path, ben), 401 | 403), "{path}");
    }
    for path in ["/dashboard/", "/dashboard/app.js", "/api/v1/upstreams"] {
        assert_eq!(status(&nginx, "GET", path, anna), 200, "{path}");
    }
    assert_eq!(status(&nginx, "POST", &seen, anna), 405);
    // Not from where operators are.
    for path in ["/operate/dashboard/", "/operate/api/v1/upstreams"] {
        assert_eq!(status(&nginx, "GET", path, anna), 403, "{path}");
    }
    assert_eq!(status(&nginx, "POST", &done, anna), 403);
    nginx.change(|conf| conf.http(example("allow 127.0.0.1")));
    nginx.reload();
    assert_eq!(status(&nginx, "POST", &done, ""), 401);
    assert_eq!(status(&nginx, "GET", "/operate/dashboard/", anna), 200);
    assert_eq!(status(&nginx, "POST", &done, anna), 200);
    let server = format!("/api/v1/upstreams/app/servers/{}", backend.addr());
    let server = Request::get(&server).header("Authorization", anna);
    let server = server.send(nginx.addr("api")).unwrap().json();
    assert_eq!(
        (&server["admin"]["state"], &server["admin"]["by"]),
        (&"drain".into(), &"anna".into())
    );
}

#[test]
fn a_panic_while_the_page_is_asked_for_is_an_error_and_the_worker_lives() {
    let nginx = Nginx::faulty().http(CONF).allow("peerage: panic in ").start();
    let worker = nginx.worker_pids();
    let panic = Request::get("/page/").header("Peerage-Panic", "dashboard");
    assert_eq!(panic.send(nginx.addr("api")).unwrap().status, 500);
    assert_eq!(fetch(&nginx, "/page/").status, 200);
    assert_eq!(nginx.worker_pids(), worker);
}
