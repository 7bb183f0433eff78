//! `peerage_route`: which requests it looks up, where they go, and what those that do not pass are
//! answered.

mod support;

use support::*;

/// What the last look-up came to, in every answer.
const TOLD: &str =
    "add_header X-Route \"$peerage_route $peerage_route_status $peerage_error\" always;";

/// A zone of some size with two apps that tenants may be routed to, and more.
fn text(size: &str, more: &str) -> String {
    format!(
        "peerage_zone main {size};
         upstream a {{ peerage main; server {{a}}; keepalive 4; }}
         upstream b {{ peerage main; server {{b}}; keepalive 4; }}
         upstream tenants {{ peerage main name=$peerage_route; keepalive 4; }}
         {TOLD} {more}"
    )
}

fn started(more: &str) -> (Nginx, Backend, Backend) {
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let conf = Nginx::builder().http(text("4m", more)).set("a", &a).set("b", &b);
    let conf = conf.port("other").with_api("write=on");
    for (name, text) in [
        ("unknown.html", "unknown tenant\n"),
        ("files/one.txt", "one\n"),
        (
            "page.html",
            "<!--#include virtual=\"/part?t=acme\" --> <!--#include virtual=\"/part?t=held\" -->",
        ),
    ] {
        let path = conf.prefix().join("html").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let nginx = conf.start();
    let api = nginx.api();
    for (key, body) in [
        ("acme", json!({"upstream": "a"})),
        ("globex", json!({"upstream": "b"})),
        ("held", json!({"upstream": "a", "status": "suspended", "reason": "unpaid"})),
        ("gone", json!({"upstream": "a", "status": "moved"})),
    ] {
        api.ok("PUT", &format!("routes/{key}"), Some(&body));
    }
    (nginx, a, b)
}

fn of(nginx: &Nginx, path: &str, tenant: &str) -> Reply {
    Request::get(path).header("X-Tenant", tenant).send(nginx.web()).unwrap()
}

/// Status and `X-Route` of an answer.
fn told(reply: &Reply) -> (u16, &str) {
    (reply.status, reply.header("x-route").unwrap_or_default().trim())
}

#[test]
fn a_route_leads_to_its_app_and_what_does_not_pass_is_answered_here() {
    let (nginx, a, b) = started(
        "log_format route '$status $peerage_route $peerage_route_status $peerage_error';
         server { listen {web}; access_log {prefix}/logs/access.log route;
             location / {
                 peerage_route $http_x_tenant status=moved:451;
                 proxy_pass http://tenants;
                 proxy_set_header X-Tenant $http_x_tenant;
                 proxy_set_header X-App $peerage_route;
             }
         }",
    );
    let seen = of(&nginx, "/echo", "acme");
    assert_eq!(told(&seen), (200, "a FRESH"));
    assert!(seen.text().contains("X-App: a\r\n"), "{}", seen.text());
    assert_eq!(told(&of(&nginx, "/", "globex")), (200, "b FRESH"));
    let before = (a.requests(), b.requests());
    let table = [
        ("held", (403, "SUSPENDED suspended")),
        ("gone", (451, "SUSPENDED suspended")),
        ("nobody", (404, "NEGATIVE no_route")),
        ("", (404, "NEGATIVE no_route")),
    ];
    for (tenant, expected) in table {
        assert_eq!(told(&of(&nginx, "/", tenant)), expected, "{tenant}");
    }
    assert_eq!((a.requests(), b.requests()), before, "they reached no server");
    // A body is taken, so that the connection goes on.
    let mut conn = Conn::open(nginx.web()).unwrap();
    let post = Request::post("/").header("X-Tenant", "held").body("x".repeat(100_000));
    assert_eq!(conn.send(&post).unwrap().status, 403);
    assert_eq!(conn.send(&Request::get("/").header("X-Tenant", "acme")).unwrap().status, 200);

    let mut lines = vec!["200 a FRESH -", "200 b FRESH -", "403 - SUSPENDED suspended"];
    lines.push("404 - NEGATIVE no_route");
    for line in lines {
        // nginx logs an empty value as it is.
        let line = line.replace("403 - ", "403  ").replace("404 - ", "404  ");
        eventually(secs(5), || nginx.log("access.log").lines().any(|l| l == line));
    }
    // An app that went, and one without a server that can be used.
    let api = nginx.api();
    api.ok("PUT", "routes/lost?force=1", Some(&json!({"upstream": "later"})));
    assert_eq!(told(&of(&nginx, "/", "lost")), (502, "later FRESH unknown_upstream"));
    api.ok("PUT", "upstreams/later", Some(&json!({"servers": []})));
    assert_eq!(told(&of(&nginx, "/", "lost")), (502, "later FRESH no_servers"));
}

#[test]
fn what_a_client_says_of_itself_is_overwritten() {
    let (nginx, a, _b) = started(
        "server { listen {web}; server_name ~^(?<tenant>[a-z0-9-]+)\\.example\\.com$;
             location / {
                 peerage_route $tenant;
                 proxy_pass http://tenants;
                 proxy_set_header Host $host;
                 proxy_set_header X-Tenant $tenant;
                 proxy_set_header X-App $peerage_route;
             }
         }
         server { listen {web} default_server; return 421; }",
    );
    a.record();
    let forged = Request::get("/")
        .header("Host", "acme.example.com")
        .header("X-Tenant", "globex")
        .header("X-App", "b")
        .header("x_tenant", "globex");
    assert_eq!(forged.send(nginx.web()).unwrap().backend(), "a");
    let head = &a.hits()[0];
    assert_eq!((head.header("x-tenant"), head.header("x-app")), (Some("acme"), Some("a")));
    assert!(!head.head.to_lowercase().contains("globex"), "{}", head.head);
    let other = |host: &str| Request::get("/").header("Host", host).send(nginx.web()).unwrap();
    assert_eq!(other("nobody.example.com").status, 404);
    assert_eq!(other("acme.example.org").status, 421);
}

#[test]
fn locations_inherit_it_until_one_says_otherwise() {
    let (nginx, _a, _b) = started(
        "peerage_route $http_x_tenant;
         server { listen {web};
             location / { proxy_pass http://tenants; }
             location /off { peerage_route off; proxy_pass http://b; }
             location /off/on { peerage_route $arg_t; proxy_pass http://tenants; }
             location /post { limit_except GET { allow all; } proxy_pass http://tenants; }
             location /if { if ($arg_x) { proxy_pass http://tenants; } proxy_pass http://b; }
             location /static { root {prefix}; }
             location /return { return 204; }
         }",
    );
    assert_eq!(told(&of(&nginx, "/", "acme")), (200, "a FRESH"));
    assert_eq!(of(&nginx, "/", "nobody").status, 404);
    assert_eq!(
        (of(&nginx, "/off", "nobody").backend(), told(&of(&nginx, "/off", "held")).1),
        ("b", "")
    );
    assert_eq!(told(&of(&nginx, "/off/on?t=globex", "held")), (200, "b FRESH"));
    assert_eq!(told(&of(&nginx, "/off/on", "acme")), (404, "NEGATIVE no_route"));
    assert_eq!(told(&of(&nginx, "/if?x=1", "acme")), (200, "a FRESH"));
    assert_eq!(told(&of(&nginx, "/if?x=1", "held")), (403, "SUSPENDED suspended"));
    assert_eq!(told(&of(&nginx, "/static", "held")), (403, "SUSPENDED suspended"));
    assert_eq!(of(&nginx, "/return", "held").status, 204, "rewrite comes before");
    let post = |tenant| {
        let post = Request::post("/post").header("X-Tenant", tenant).body("x");
        post.send(nginx.web()).unwrap().status
    };
    assert_eq!((post("acme"), post("held")), (200, 403));
}

#[test]
fn access_control_comes_first_and_its_own_requests_are_not_refused() {
    let (nginx, a, b) = started(
        "peerage_route $http_x_tenant;
         server { listen {web};
             location / { auth_request /auth; proxy_pass http://tenants; }
             location = /auth { internal; proxy_pass http://b/status/$http_x_auth; }
             location /deny { deny all; proxy_pass http://tenants; }
         }",
    );
    let asked = |tenant: &str, auth: &str| {
        let request = Request::get("/").header("X-Tenant", tenant).header("X-Auth", auth);
        let reply = request.send(nginx.web()).unwrap();
        (reply.status, reply.header("x-route").unwrap_or_default().trim().to_owned())
    };
    assert_eq!(asked("acme", "200"), (200, "a FRESH".into()));
    assert_eq!(asked("held", "200"), (403, "SUSPENDED suspended".into()));
    assert_eq!(asked("nobody", "200"), (404, "NEGATIVE no_route".into()));
    let asked_auth = b.requests();
    let there = a.requests();
    assert_eq!(asked("acme", "403").0, 403);
    assert_eq!(asked("nobody", "403").0, 403, "who may not in learns of no route");
    assert_eq!((a.requests(), b.requests()), (there, asked_auth + 2));
    assert_eq!(told(&of(&nginx, "/deny", "nobody")), (403, ""));
}

#[test]
fn error_pages_fallbacks_and_files_work_as_with_other_directives() {
    let (nginx, a, b) = started(
        "server { listen {web}; peerage_route $http_x_tenant; error_page 404 /unknown.html;
             error_page 403 = @held; root {prefix}/html;
             location / { proxy_pass http://tenants; }
             location = /unknown.html { }
             location /files { try_files $uri @app; }
             location @app { proxy_pass http://tenants; }
             location @held { proxy_pass http://b; }
         }
         server { listen {other}; error_page 404 = @default;
             location / { peerage_route $http_x_tenant; proxy_pass http://tenants; }
             location @default { peerage_route globex; proxy_pass http://tenants; }
         }",
    );
    // The error page of the server is under its `peerage_route`, and sent all the same.
    let page = of(&nginx, "/", "nobody");
    assert_eq!((told(&page), page.text()), ((404, "NEGATIVE no_route"), "unknown tenant\n".into()));
    let held = of(&nginx, "/", "held");
    assert_eq!((told(&held), held.backend()), ((200, "SUSPENDED suspended"), "b"));
    // A file, and what there is instead of one.
    let file = of(&nginx, "/files/one.txt", "acme");
    assert_eq!((told(&file), file.text()), ((200, "a FRESH"), "one\n".into()));
    assert_eq!(told(&of(&nginx, "/files/two.txt", "acme")), (200, "a FRESH"));
    assert_eq!(of(&nginx, "/files/one.txt", "nobody").status, 404, "files are behind it too");
    // Another key where the first has no route.
    let send = |tenant: &str| {
        let request = Request::get("/").header("X-Tenant", tenant);
        request.send(nginx.addr("other")).unwrap()
    };
    assert_eq!((send("acme").backend(), send("nobody").backend()), ("a", "b"));
    assert_eq!(nginx.api().delete("routes/globex").0, 200);
    assert_eq!(told(&send("nobody")), (404, "NEGATIVE no_route"));
    assert!(a.requests() > 0 && b.requests() > 0);
}

#[test]
fn subrequests_go_by_their_own_location() {
    let (nginx, a, b) = started(
        "server { listen {web};
             location / { peerage_route $http_x_tenant; mirror /mirror; proxy_pass http://tenants; }
             location = /mirror { internal; peerage_route $arg_copy; proxy_pass http://tenants; }
             location /page { ssi on; root {prefix}/html; }
             location /part { peerage_route $arg_t; proxy_pass http://tenants; }
         }",
    );
    assert_eq!(told(&of(&nginx, "/?copy=globex", "acme")), (200, "a FRESH"));
    eventually(secs(5), || (a.requests(), b.requests()) == (1, 1));
    assert_eq!(of(&nginx, "/?copy=globex", "held").status, 403);
    assert_eq!(told(&of(&nginx, "/?copy=nobody", "acme")), (200, "a FRESH"));
    holds_for(ms(200), || b.requests() == 1);
    // What a page includes is refused where its own route does not pass.
    let page = of(&nginx, "/page.html", "");
    assert_eq!(page.status, 200);
    let text = page.text();
    assert!(text.starts_with('a'), "{text}");
    assert!(text.contains("403 Forbidden") && !text.contains("502"), "{text}");
}

#[test]
fn switching_an_alias_under_load_fails_no_request() {
    let (nginx, a, b) = started(
        "server { listen {web};
             location / { peerage_route live; proxy_pass http://tenants; }
         }",
    );
    let api = nginx.api();
    assert_eq!(get(nginx.web(), "/").unwrap().status, 404);
    api.ok("PUT", "routes/live", Some(&json!({"upstream": "a"})));
    let load = Load::to(nginx.web()).threads(3).start();
    let mut kept = Conn::open(nginx.web()).unwrap();
    for round in 0..scale(200, 3_000) {
        let name = if round % 2 == 0 { "b" } else { "a" };
        let answer = api.ok("PATCH", "routes/live", Some(&json!({"upstream": name})));
        assert_eq!(answer["changed"], true);
        assert_eq!(kept.send(&Request::get("/")).unwrap().backend(), name);
    }
    let report = load.stop();
    report.all_ok();
    assert!(report.backend("a") > 20 && report.backend("b") > 20, "{report:?}");
    assert!(a.requests() > 100 && b.requests() > 100);
}

#[test]
fn look_ups_are_counted_by_what_they_came_to_over_a_change_of_size() {
    let page = "server { listen {other}; location /metrics { peerage_metrics; } }";
    let routed = "server { listen {web};
             location / { peerage_route $http_x_tenant; proxy_pass http://tenants; } }";
    let more = format!("{routed} {page}");
    let (mut nginx, _a, _b) = started(&more);
    let shown = |nginx: &Nginx| Exposition::of(&scrape(nginx.addr("other"), "/metrics", ""));
    for (tenant, n) in [("acme", 7), ("held", 3), ("nobody", 2), ("", 1)] {
        (0..n).for_each(|_| drop(of(&nginx, "/", tenant)));
    }
    let count = |nginx: &Nginx| {
        let shown = shown(nginx);
        let of = |status| shown.one("peerage_route_lookups_total", &[("status", status)]) as u64;
        ["FRESH", "SUSPENDED", "NEGATIVE", "DOWN"].map(of)
    };
    assert_eq!(count(&nginx), [7, 3, 3, 0]);
    assert_eq!(shown(&nginx).one("peerage_routes", &[("zone", "main")]), 4.0);
    assert_eq!(nginx.api().get("zones/main").1["routes"], 4);
    assert_eq!(nginx.api().get("ready").0, 200);
    nginx.change(|conf| conf.http(text("8m", &more)).with_api("write=on"));
    nginx.reload();
    assert_eq!(told(&of(&nginx, "/", "acme")), (200, "a FRESH"));
    assert_eq!(count(&nginx), [8, 3, 3, 0]);
    // A zone by which nobody is routed has none.
    nginx.change(|conf| conf.http(text("8m", page)).with_api("write=on"));
    nginx.reload();
    assert!(shown(&nginx).with("peerage_route_lookups_total", &[]).is_empty());
}

#[test]
fn the_example_routes_tenants_by_host() {
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let text = include_str!("../examples/tenants.conf");
    let text = text.replace("/var/lib/nginx/peerage/", "{prefix}/");
    let text = text.replace("127.0.0.1:8081;", "{api};").replace("listen 8080", "listen {web}");
    let mut nginx = Nginx::builder().workers(2).http(text).start();
    let api = nginx.api();
    for (name, backend) in [("orders-v1", &a), ("orders-v2", &b)] {
        let body = json!({"servers": [{"server": backend.addr()}]});
        api.ok("PUT", &format!("upstreams/{name}"), Some(&body));
    }
    api.ok("PUT", "routes/acme", Some(&json!({"upstream": "orders-v1"})));
    let host = |nginx: &Nginx, host: &str| {
        let request = Request::get("/echo").header("Host", host).header("X-Tenant", "forged");
        request.send(nginx.web()).unwrap()
    };
    let seen = host(&nginx, "ACME.example.com");
    assert_eq!(seen.backend(), "a");
    assert!(seen.text().contains("X-Tenant: acme\r\n") && !seen.text().contains("forged"));
    api.ok("PATCH", "routes/acme", Some(&json!({"upstream": "orders-v2"})));
    assert_eq!(host(&nginx, "acme.example.com").backend(), "b");
    api.ok("PATCH", "routes/acme", Some(&json!({"status": "suspended", "reason": "unpaid"})));
    nginx.restart();
    assert_eq!(host(&nginx, "acme.example.com").status, 403);
    assert_eq!(host(&nginx, "globex.example.com").status, 404);
    assert_eq!(host(&nginx, "example.com").status, 421);
    let line = "403 tenant=acme app= route=SUSPENDED server=- error=suspended";
    eventually(secs(5), || nginx.log("tenants.log").lines().any(|l| l.ends_with(line)));
}
