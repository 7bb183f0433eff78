//! Tenants in a Redis, and what goes wrong around a request that waits for it: clients that go away,
//! bodies, subrequests, redirects; apps that come, move and go; and a store that is never quite well.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::*;

/// What stands in http{} but for the servers; the store is behind a proxy.
fn http(store: &str) -> String {
    let cache = if store.contains("cache=") { "" } else { "cache=1m" };
    format!(
        "peerage_zone main 2m;
         peerage_redis routes server={{redis}} {cache} tracking=off {store};
         upstream tenants {{ peerage main name=$peerage_route; keepalive 8; }}
         upstream a {{ peerage main; server {{a}}; keepalive 8; }}
         proxy_http_version 1.1;
         proxy_set_header Connection '';
         proxy_set_header X-Tenant $http_x_tenant;
         proxy_set_header X-App $peerage_route;
         add_header X-Route \"$peerage_route $peerage_route_status\" always;
         add_header X-Error \"$peerage_error\" always;"
    )
}

const ROUTE: &str = "peerage_route $http_x_tenant redis=routes valid=1h miss_limit=100000r/s;";

struct Scene {
    nginx: Nginx,
    redis: Redis,
    proxy: Proxy,
    a: Backend,
    b: Backend,
}

impl Scene {
    /// `t0` … `t99` are on the zone's app, `u0` … `u99` on one that the store alone has.
    fn new(store: &str, servers: &str) -> Self {
        Self::with(store, servers, |conf| conf)
    }

    fn with(store: &str, servers: &str, edit: impl FnOnce(Conf) -> Conf) -> Self {
        let redis = Redis::new();
        let proxy = Proxy::new(redis.addr());
        let (a, b) = (Backend::new("a"), Backend::new("b"));
        for i in 0..100 {
            redis.tenant(&format!("t{i}"), "a", "active");
            redis.tenant(&format!("u{i}"), "b", "active");
        }
        redis.tenant("warm", "a", "active");
        redis.tenant("held", "a", "suspended");
        redis.set("app:b", &b.addr());
        let conf = Nginx::builder()
            .http(format!("{} {servers}", http(store)))
            .with_api("write=on")
            .set("redis", proxy.addr())
            .set("a", &a)
            .set("b", &b);
        let nginx = edit(conf).start();
        Self { nginx, redis, proxy, a, b }
    }

    /// Answers come no more, on a connection that is there.
    fn hold(&self) {
        self.is("warm", 200);
        self.proxy.set(Between::Hold);
    }

    #[track_caller]
    fn is(&self, tenant: &str, status: u16) {
        let reply = self.get("/", tenant);
        assert_eq!(reply.status, status, "{tenant}: {:?}", reply.headers);
    }

    fn get(&self, path: &str, tenant: &str) -> Reply {
        request(path, tenant).send(self.nginx.web()).unwrap()
    }

    /// Begins a request for a tenant that nobody has asked for yet; it waits.
    fn begin(&self, request: &Request) -> Conn {
        let asked = self.asked();
        let mut conn = Conn::open(self.nginx.web()).unwrap();
        conn.begin(request).unwrap();
        eventually(secs(5), || self.asked() > asked);
        conn
    }

    /// Questions that have come to the store.
    fn asked(&self) -> u64 {
        self.redis.calls("hmget") + self.redis.calls("get")
    }
}

fn request(path: &str, tenant: &str) -> Request {
    Request::get(path).header("X-Tenant", tenant)
}

/// The answer on a connection that is kept as long as nginx keeps it.
fn asked(conn: &mut Conn, nginx: &Nginx, tenant: &str) -> Reply {
    let reply = conn.send(&request("/", tenant)).unwrap();
    if reply.header("connection") == Some("close") {
        *conn = Conn::open(nginx.web()).unwrap();
    }
    reply
}

fn simple() -> String {
    format!("server {{ listen {{web}}; location / {{ {ROUTE} proxy_pass http://tenants; }} }}")
}

#[test]
fn clients_that_go_away_while_they_wait_leave_nothing_behind() {
    let scene = Scene::new("timeout=20s", &simple());
    scene.hold();
    let worker = scene.nginx.worker_pids();
    let mut stays = scene.begin(&request("/echo", "t0"));
    for i in 1..40 {
        let conn = scene.begin(&request("/echo", &format!("{}{i}", ["t", "u"][i % 2])));
        match i % 3 {
            // Another request behind the first one, before its end.
            0 => {
                let mut conn = conn;
                conn.write(&request("/echo", "t0").bytes()).unwrap();
            }
            _ => drop(conn),
        }
    }
    // And one that is reset.
    let stream = TcpStream::connect(scene.nginx.web()).unwrap();
    (&stream).write_all(&request("/", "t50").bytes()).unwrap();
    eventually(secs(5), || scene.asked() >= 42);
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    let_pass(ms(100));
    scene.proxy.set(Between::Pass);
    let reply = stays.reply().unwrap();
    assert_eq!((reply.status, reply.backend()), (200, "a"));
    assert!(reply.text().contains("X-Tenant: t0"), "{}", reply.text());
    // It goes on as a kept connection, and what was asked for the others is there.
    for i in 0..40 {
        let tenant = format!("{}{i}", ["t", "u"][i % 2]);
        let reply = stays.send(&request("/echo", &tenant)).unwrap();
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains(&format!("X-Tenant: {tenant}\r\n")), "{}", reply.text());
    }
    assert_eq!(scene.nginx.worker_pids(), worker);
}

#[test]
fn requests_of_one_connection_are_answered_in_their_order() {
    let scene = Scene::new("timeout=20s", &simple());
    scene.hold();
    let mut all = Vec::new();
    let tenants = ["t1", "nobody", "u2", "held", "t3"];
    for tenant in tenants {
        all.extend(request("/echo", tenant).bytes());
    }
    let mut conn = Conn::open(scene.nginx.web()).unwrap();
    conn.write(&all).unwrap();
    let asked = scene.asked();
    eventually(secs(5), || scene.asked() >= asked);
    scene.proxy.set(Between::Delay(ms(20)));
    for (tenant, status) in tenants.into_iter().zip([200, 404, 200, 403, 200]) {
        let reply = conn.reply().unwrap();
        assert_eq!(reply.status, status, "{tenant}");
        assert!(status != 200 || reply.text().contains(&format!("X-Tenant: {tenant}\r\n")));
    }
}

#[test]
fn bodies_that_come_before_during_and_after_the_wait_arrive_whole() {
    let scene = Scene::new(
        "timeout=20s",
        &format!(
            "server {{ listen {{web}}; client_body_buffer_size 4k; {ROUTE}
                 location / {{ proxy_pass http://tenants; }}
                 location /file/ {{ client_body_in_file_only clean; proxy_pass http://tenants; }}
                 location /flow/ {{ proxy_request_buffering off; proxy_pass http://tenants; }}
             }}"
        ),
    );
    let body: String = (0..20_000).map(|i| format!("{i:07}\n")).collect();
    let mut n = 0;
    for path in ["/echo", "/file/echo", "/flow/echo"] {
        for chunk in [None, Some(1_000)] {
            for part in [0, 1, 300, 70_000, usize::MAX] {
                for (base, expects) in [("t", false), ("u", true)] {
                    let tenant = format!("{base}{n}");
                    n += 1;
                    let mut post =
                        Request::post(path).header("X-Tenant", &tenant).body(body.clone());
                    if let Some(chunk) = chunk {
                        post = post.chunked(chunk);
                    }
                    if expects {
                        post = post.header("Expect", "100-continue");
                    }
                    let bytes = post.bytes();
                    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
                    scene.redis.tenant(&tenant, if base == "t" { "a" } else { "b" }, "active");
                    scene.hold();
                    let asked = scene.asked();
                    let mut conn = Conn::open(scene.nginx.web()).unwrap();
                    let first = (head + part.min(bytes.len())).min(bytes.len());
                    conn.write(&bytes[..head]).unwrap();
                    if part % 2 == 0 {
                        eventually(secs(5), || scene.asked() > asked);
                    }
                    let rest = bytes.clone();
                    let mut other = conn.writer();
                    let writer = thread::spawn(move || {
                        other.write_all(&rest[head..first]).unwrap();
                        let_pass(ms(10));
                        other.write_all(&rest[first..]).unwrap();
                    });
                    eventually(secs(5), || scene.asked() > asked);
                    let_pass(ms(5));
                    scene.proxy.set(Between::Pass);
                    let mut reply = conn.reply().unwrap();
                    if reply.status == 100 {
                        reply = conn.reply().unwrap();
                    }
                    writer.join().unwrap();
                    let what = format!("{path} {chunk:?} {part} {tenant}");
                    assert_eq!(reply.status, 200, "{what}");
                    let text = reply.text();
                    assert!(text.contains(&format!("X-Tenant: {tenant}\r\n")), "{what}");
                    assert!(
                        text.contains(&body) || chunk.is_some() && path == "/flow/echo",
                        "{what}"
                    );
                    // What follows on the connection is not taken for a rest.
                    let next = conn.send(&request("/echo", "warm")).unwrap();
                    assert_eq!(next.status, 200, "{what}");
                    assert!(next.text().contains("X-Tenant: warm\r\n"), "{what}");
                }
            }
        }
    }
}

#[test]
fn refused_bodies_do_not_spoil_the_connection() {
    let scene = Scene::new("timeout=20s", &simple());
    let body = "x".repeat(100_000);
    for (tenant, status) in [("nobody", 404), ("held", 403)] {
        scene.hold();
        let post = Request::post("/echo").header("X-Tenant", tenant).body(body.clone());
        let mut conn = scene.begin(&post);
        scene.proxy.set(Between::Pass);
        assert_eq!(conn.reply().unwrap().status, status);
        let next = conn.send(&request("/echo", "warm")).unwrap();
        assert_eq!(next.status, 200, "{tenant}");
        assert!(next.text().contains("X-Tenant: warm\r\n"));
    }
}

/// A raw HTTP/2 connection.
struct H2(TcpStream);

impl H2 {
    fn open(addr: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(secs(20))).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut h2 = Self(stream);
        h2.frame(4, 0, 0, &[]);
        h2
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.0.write_all(&bytes).unwrap();
    }

    fn get(&mut self, stream: u32, path: &str, tenant: &str) {
        let mut head = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("x-tenant", tenant),
        ] {
            head.extend([0, name.len() as u8]);
            head.extend(name.bytes());
            head.push(value.len() as u8);
            head.extend(value.bytes());
        }
        self.frame(1, 5, stream, &head);
    }

    fn reset(&mut self, stream: u32) {
        self.frame(3, 0, stream, &8_u32.to_be_bytes());
    }

    /// Bodies of so many streams, once they have ended.
    fn answers(&mut self, n: usize) -> Vec<(u32, String)> {
        let (mut bodies, mut done) = (BTreeMap::<u32, Vec<u8>>::new(), Vec::new());
        while done.len() < n {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).unwrap();
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let mut payload = vec![0; len];
            self.0.read_exact(&mut payload).unwrap();
            if head[3] == 0 {
                bodies.entry(stream).or_default().extend(payload);
            }
            if head[3] <= 1 && head[4] & 1 != 0 {
                let body = bodies.remove(&stream).unwrap_or_default();
                done.push((stream, String::from_utf8_lossy(&body).into_owned()));
            }
        }
        done.sort();
        done
    }
}

#[test]
fn streams_of_one_connection_wait_and_end_apart() {
    let servers = simple().replace("listen {web};", "listen {web}; listen {two} http2;");
    let scene = Scene::with("timeout=20s", &servers, |conf| conf.port("two"));
    let worker = scene.nginx.worker_pids();
    for round in 0..4 {
        scene.hold();
        let mut h2 = H2::open(scene.nginx.addr("two"));
        let asked = scene.asked();
        for i in 0..10 {
            h2.get(
                1 + 2 * i,
                "/echo",
                &format!("{}{}", ["t", "u"][i as usize % 2], 10 * round + i),
            );
        }
        eventually(secs(5), || scene.asked() >= asked + 10);
        for i in 0..5 {
            h2.reset(1 + 4 * i);
        }
        if round == 3 {
            // All of it goes.
            drop(h2);
            scene.proxy.set(Between::Pass);
            break;
        }
        let_pass(ms(20));
        scene.proxy.set(Between::Pass);
        for (stream, body) in h2.answers(5) {
            let i = (stream - 1) / 2;
            assert_eq!(i % 2, 1);
            assert!(body.contains(&format!("X-Tenant: u{}\r\n", 10 * round + i)), "{body}");
        }
        h2.get(101, "/echo", "warm");
        assert!(h2.answers(1)[0].1.contains("X-Tenant: warm\r\n"));
    }
    scene.is("t1", 200);
    assert_eq!(scene.nginx.worker_pids(), worker);
}

#[test]
fn subrequests_wait_each_for_its_own_key() {
    let scene = Scene::new(
        "timeout=20s",
        "server { listen {web}; root {prefix}/html;
             location /echo { peerage_route $arg_t redis=routes; proxy_set_header X-Tenant $arg_t;
                 proxy_pass http://tenants; }
             location = /page.html { ssi on; }
             location /auth { auth_request /_auth; peerage_route $arg_t redis=routes valid=1h;
                 proxy_set_header X-Tenant $arg_t; proxy_pass http://tenants/echo; }
             location = /_auth { internal; peerage_route $http_x_who redis=routes valid=1h;
                 proxy_pass http://tenants/; }
             location /fixed { auth_request /_fixed; peerage_route $arg_t redis=routes valid=1h;
                 proxy_set_header X-Tenant $arg_t; proxy_pass http://tenants/echo; }
             location = /_fixed { internal; peerage_route $http_x_who redis=routes valid=1h;
                 proxy_pass http://a/; }
             location /mirror { mirror /_mirror; peerage_route $arg_t redis=routes valid=1h;
                 proxy_set_header X-Tenant $arg_t; proxy_pass http://tenants/echo; }
             location = /_mirror { internal; peerage_route $http_x_who redis=routes valid=1h;
                 proxy_pass http://tenants/status/200; }
         }",
    );
    let html = scene.nginx.path("html");
    std::fs::create_dir(&html).unwrap();
    let tenants = ["t1", "u2", "nobody", "t3", "held", "u4", "u5"];
    let page: String = tenants
        .iter()
        .map(|t| format!("[{t}]<!--#include virtual=\"/echo?t={t}\" -->\n"))
        .collect();
    std::fs::write(html.join("page.html"), page).unwrap();
    let web = scene.nginx.web();
    let warm = || assert_eq!(get(web, "/echo?t=warm").unwrap().status, 200);
    warm();
    scene.proxy.set(Between::Delay(ms(30)));
    let reply = get(web, "/page.html").unwrap();
    let text = reply.text();
    assert_eq!(reply.status, 200);
    for (tenant, part) in tenants.iter().zip(text.split('[').skip(1)) {
        let is_there = part.contains(&format!("X-Tenant: {tenant}\r\n"));
        assert_eq!(is_there, !["nobody", "held"].contains(tenant), "{tenant}: {part}");
        assert!(part.starts_with(tenant), "{part}");
    }
    // A client that goes away while parts of its page wait.
    scene.proxy.set(Between::Hold);
    let html = tenants.map(|t| format!("<!--#include virtual=\"/echo?t={t}9\" -->\n")).concat();
    std::fs::write(scene.nginx.path("html/page.html"), html).unwrap();
    for _ in 0..3 {
        let mut conn = Conn::open(web).unwrap();
        conn.begin(&Request::get("/page.html")).unwrap();
        let_pass(ms(30));
        drop(conn);
    }
    scene.proxy.set(Between::Delay(ms(5)));
    // The request itself and the one that is asked whether it may.
    let asked = |path: &str, tenant: &str, who: &str| {
        let request = Request::get(&format!("{path}?t={tenant}")).header("X-Who", who);
        request.send(web).unwrap()
    };
    for (path, tenant, who, status) in [
        ("/auth", "t30", "u31", 200),
        ("/auth", "u32", "t33", 200),
        ("/auth", "nobody", "t33", 404),
        ("/auth", "held", "t34", 403),
        ("/fixed", "t34", "t35", 200),
        // Who is refused there is not let in.
        ("/fixed", "t34", "held", 403),
        ("/auth", "t34", "held", 403),
    ] {
        assert_eq!(asked(path, tenant, who).status, status, "{path} {tenant} {who}");
    }
    // A mirror that waits longer than its request, and one that is refused.
    for (t, who) in [("t40", "u41"), ("u42", "nobody"), ("t43", "held")] {
        let reply = asked("/mirror", t, who);
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains(&format!("X-Tenant: {t}\r\n")));
    }
}

#[test]
fn redirects_look_up_where_they_lead() {
    let servers = "
        server { listen {web}; root {prefix}/html; proxy_set_header X-Tenant $arg_t;
            location /accel { peerage_route $arg_t redis=routes valid=1h;
                proxy_pass http://{x}; }
            location /inner/ { internal; peerage_route $arg_u redis=routes valid=1h;
                proxy_set_header X-Tenant $arg_u; proxy_pass http://tenants/echo; }
            location /try { peerage_route $arg_t redis=routes valid=1h; try_files /none @named; }
            location @named { peerage_route $arg_u redis=routes valid=1h;
                proxy_set_header X-Tenant $arg_u; rewrite ^ /echo break;
                proxy_pass http://tenants; }
            location /error { peerage_route $arg_t redis=routes; error_page 404 403 503 = @named;
                proxy_pass http://tenants; }
            location /limited { peerage_route $arg_t redis=routes valid=1h;
                limit_except GET { proxy_pass http://tenants; } proxy_pass http://tenants; }
            location /if { peerage_route $arg_t redis=routes valid=1h;
                if ($arg_i) { proxy_pass http://tenants; } proxy_pass http://tenants; }
        }
        server { listen {x};
            location / { add_header X-Accel-Redirect /inner/?$args; return 200; } }
        server { listen {off}; peerage_route $arg_t redis=routes valid=1h;
            proxy_set_header X-Tenant $arg_t;
            location / { proxy_pass http://tenants; }
            location /off { peerage_route off; proxy_pass http://a; } }";
    let scene = Scene::with("timeout=5s", servers, |conf| conf.port("x").port("off"));
    let (web, off) = (scene.nginx.web(), scene.nginx.addr("off"));
    assert_eq!(get(web, "/if/echo?t=warm").unwrap().status, 200);
    scene.proxy.set(Between::Delay(ms(20)));
    for (addr, path, status, tenant) in [
        (web, "/accel?t=t1&u=u1", 200, "u1"),
        (web, "/accel?t=t2&u=nobody", 404, ""),
        (web, "/accel?t=held&u=u2", 403, ""),
        (web, "/try?t=t3&u=u3", 200, "u3"),
        (web, "/try?t=u4&u=nobody", 404, ""),
        (web, "/error?t=nobody&u=u5", 200, "u5"),
        (web, "/error?t=held&u=t6", 200, "t6"),
        (web, "/error?t=nobody&u=held", 403, ""),
        (web, "/limited/echo?t=u7", 200, "u7"),
        (web, "/if/echo?t=u8&i=1", 200, "u8"),
        (web, "/if/echo?t=t9", 200, "t9"),
        (off, "/echo?t=u10", 200, "u10"),
        (off, "/off/echo?t=nobody", 200, "nobody"),
    ] {
        let reply = get(addr, path).unwrap();
        assert_eq!(reply.status, status, "{path}");
        let text = reply.text();
        assert!(
            status != 200 || text.contains(&format!("X-Tenant: {tenant}\r\n")),
            "{path} {text}"
        );
    }
    let post = Request::post("/limited/echo?t=t11").body("hello").send(web).unwrap();
    assert_eq!(post.status, 200);
    assert!(post.text().contains("X-Tenant: t11\r\n") && post.text().ends_with("hello"));
    // An error page that cannot be looked up either says so once.
    scene.proxy.set(Between::Cut(0));
    let reply = get(web, "/error?t=new&u=newer").unwrap();
    let retries = reply.headers.iter().filter(|(name, _)| name == "Retry-After").count();
    assert_eq!((reply.status, retries), (503, 1), "{:?}", reply.headers);
    let reply = get(web, "/error?t=new&u=t1").unwrap();
    assert_eq!((reply.status, reply.header("retry-after")), (200, None), "{:?}", reply.headers);
}

/// Requests of many clients at once, each with a body of its own; what each was answered.
fn many(
    scene: &Scene,
    n: usize,
    each: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Vec<u16> {
    let web = scene.nginx.web();
    let each = Arc::new(each);
    let threads: Vec<_> = (0..8)
        .map(|t| {
            let each = Arc::clone(&each);
            thread::spawn(move || {
                let mut conn = Conn::open(web).unwrap();
                let mut statuses = Vec::new();
                for i in (t..n).step_by(8) {
                    let id = format!("id-{i}-{}", i * 7919 % 10_007);
                    let body = format!("<{id}>").repeat(1 + i % 40 * 20);
                    let mut post = Request::post("/echo")
                        .header("X-Tenant", &each(i))
                        .header("X-Id", &id)
                        .body(body.clone());
                    if i % 3 == 0 {
                        post = post.chunked(700);
                    }
                    let reply = match conn.send(&post) {
                        Ok(reply) => reply,
                        // nginx closes what it has not read to its end.
                        Err(_) => {
                            conn = Conn::open(web).unwrap();
                            conn.send(&post).unwrap_or_else(|e| panic!("{id}: {e}"))
                        }
                    };
                    let text = reply.text();
                    if reply.status == 200 {
                        assert!(text.contains(&format!("X-Id: {id}\r\n")), "{id}: {text:.300}");
                        assert!(text.contains(&format!("X-Tenant: {}\r\n", each(i))), "{id}");
                        assert!(text.ends_with(&body), "{id}");
                    }
                    if reply.header("connection") == Some("close") {
                        conn = Conn::open(web).unwrap();
                    }
                    statuses.push(reply.status);
                }
                statuses
            })
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn whatever_fails_each_answer_is_of_its_own_request() {
    let servers = format!(
        "server {{ listen {{web}}; keepalive_requests 100000; client_body_buffer_size 4k;
             location / {{ {} proxy_pass http://tenants; proxy_read_timeout 1s;
                 proxy_next_upstream error timeout http_503 non_idempotent; }} }}",
        ROUTE.replace("valid=1h", "valid=20ms stale=10ms negative=1ms")
    );
    let scene = Scene::with("timeout=60ms", &servers, |conf| conf.workers(2));
    let mut other = Backend::new("c");
    scene.redis.set("app:b", &format!("{},{other}", scene.b));
    for tenant in (0..100).flat_map(|i| [format!("t{i}"), format!("u{i}")]) {
        scene.is(&tenant, 200);
    }
    let n = scale(5_000, 100_000);
    let over = AtomicBool::new(false);
    let statuses = thread::scope(|scope| {
        scope.spawn(|| {
            let modes = [
                Between::Pass,
                Between::Delay(ms(30)),
                Between::Cut(50),
                Between::Pass,
                Between::Reset(10),
                Between::Delay(ms(80)),
                Between::Hold,
                Between::Drip,
            ];
            for i in 0.. {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                scene.proxy.set(modes[i % modes.len()]);
                if i % 5 == 0 {
                    scene.proxy.cut();
                }
                match i % 4 {
                    0 => other.stop(),
                    1 => other.start(),
                    2 => scene.b.mode(Mode::Status(503)),
                    _ => {
                        scene.b.close_connections();
                        scene.b.mode(Mode::Serve);
                    }
                }
                let_pass(ms(60));
            }
            scene.proxy.set(Between::Pass);
        });
        let statuses = many(&scene, n, |i| match i % 11 {
            0 => "nobody".into(),
            1 => "held".into(),
            2 => format!("new{i}"),
            _ => format!("{}{}", ["t", "u"][i % 2], i % 100),
        });
        over.store(true, Ordering::SeqCst);
        statuses
    });
    let mut kinds = BTreeMap::new();
    for status in statuses {
        *kinds.entry(status).or_insert(0) += 1;
    }
    let known = [200, 403, 404, 502, 503, 504];
    assert!(kinds.keys().all(|status| known.contains(status)), "{kinds:?}");
    assert!(kinds[&200] > n / 4, "{kinds:?}");
    scene.b.mode(Mode::Serve);
    eventually(secs(5), || {
        scene.get("/", "t1").status == 200 && scene.get("/", "u1").status == 200
    });
}

#[test]
fn an_app_by_names_waits_for_them_and_is_not_waited_for_longer_than_a_store() {
    let dns = Dns::new();
    let servers = format!("resolver {{dns}} valid=1s ipv6=off; {}", simple());
    let scene = Scene::with("timeout=1s", &servers, |conf| conf.set("dns", &dns));
    let port = scene.b.socket_addr().port();
    dns.set("orders.test", &["127.0.0.1"], 60);
    dns.say("silent.test", Say::Nothing);
    scene.redis.set("app:named", &format!("orders.test:{port}"));
    scene.redis.set("app:silent", &format!("silent.test:{port}"));
    scene.redis.set("app:both", &format!("silent.test:{port},{}", scene.b));
    for app in ["named", "silent", "both"] {
        scene.redis.tenant(&format!("of-{app}"), app, "active");
    }
    assert_eq!(scene.get("/", "of-named").backend(), "b");
    assert_eq!(scene.get("/", "of-both").backend(), "b");
    let began = Instant::now();
    let silent = scene.get("/", "of-silent");
    assert_eq!(silent.status, 502, "{:?}", silent.headers);
    assert!(began.elapsed() < secs(3), "{:?}", began.elapsed());
    dns.set("silent.test", &["127.0.0.1"], 60);
    eventually(secs(20), || scene.get("/", "of-silent").status == 200);
    // A store that answers is not down for an app without addresses.
    for i in 0..20 {
        scene.redis.tenant(&format!("n{i}"), "a", "active");
        scene.is(&format!("n{i}"), 200);
    }
}

#[test]
fn an_app_moves_while_requests_to_it_are_under_way_and_they_end_well() {
    let scene = Scene::new(
        "timeout=5s",
        &format!(
            "server {{ listen {{web}}; location / {{ {} proxy_pass http://tenants; }} }}",
            ROUTE.replace("valid=1h", "valid=1ms stale=1ms")
        ),
    );
    assert_eq!(scene.get("/", "u1").backend(), "b");
    let mut held = Conn::open(scene.nginx.web()).unwrap();
    held.begin(&request("/hold", "u1")).unwrap();
    eventually(secs(5), || scene.b.held() == 1);
    let c = Backend::new("c");
    scene.redis.set("app:b", &c.addr());
    eventually(secs(5), || scene.get("/", "u1").backend() == "c");
    // An upstream of the zone takes the name over, and gives it back.
    let api = scene.nginx.api();
    api.ok("PUT", "upstreams/b", Some(&json!({"servers": [{"server": scene.a.addr()}]})));
    assert_eq!(scene.get("/", "u1").backend(), "a");
    api.ok("DELETE", "upstreams/b", None);
    eventually(secs(2), || scene.get("/", "u1").backend() == "c");
    scene.b.release();
    let reply = held.reply().unwrap();
    assert_eq!((reply.status, reply.backend()), (200, "b"));
    // A list of as many as there may be.
    let list: Vec<_> = (1..=256).map(|i| format!("127.1.{}.{}:1", i / 250, i % 250)).collect();
    scene.redis.set("app:b", &list.join(","));
    eventually(secs(5), || matches!(scene.get("/", "u1").status, 502));
    scene.redis.set("app:b", &scene.b.addr());
    eventually(secs(5), || scene.get("/", "u1").backend() == "b");
}

#[test]
fn a_full_zone_of_apps_drops_old_ones_and_a_store_is_not_down_for_that() {
    let text = format!("{} {}", http("timeout=2s"), simple()).replace("cache=1m", "cache=512k");
    let scene = Scene::with("", "", |conf| conf.http(text).allow("no room for apps"));
    let mut held = Conn::open(scene.nginx.web()).unwrap();
    held.begin(&request("/hold", "u1")).unwrap();
    eventually(secs(5), || scene.b.held() == 1);
    let n = 600;
    for i in 0..n {
        scene.redis.set(&format!("app:many{i}"), &scene.b.addr());
        scene.redis.tenant(&format!("m{i}"), &format!("many{i}"), "active");
    }
    for round in 0..2 {
        for i in 0..n {
            let reply = scene.get("/", &format!("m{i}"));
            assert_eq!(
                (reply.status, reply.backend()),
                (200, "b"),
                "{round} {i} {:?}",
                reply.headers
            );
        }
    }
    scene.b.release();
    let reply = held.reply().unwrap();
    assert_eq!((reply.status, reply.backend()), (200, "b"));
    // One that has no room at all is refused; the store is not to blame.
    let list: Vec<_> = (1..=256).map(|i| format!("127.1.{}.{}:1", i / 250, i % 250)).collect();
    scene.redis.set("app:huge", &list.join(","));
    scene.redis.tenant("huge", "huge", "active");
    for i in 0..3 {
        let asked = scene.redis.calls("get");
        for _ in 0..8 {
            let reply = scene.get("/", "huge");
            assert_eq!((reply.status, reply.header("x-error")), (502, Some("bad_data")));
        }
        assert!(scene.redis.calls("get") <= asked + 1, "it is tried again and again");
        scene.redis.tenant(&format!("n{i}"), "a", "active");
        scene.is(&format!("n{i}"), 200);
    }
}

/// An upstream that is made anew has a server with another id.
#[test]
fn apps_that_were_asked_for_first_make_room_however_their_names_are_written() {
    let id = "add_header X-Id $peerage_server_id always;";
    let text = format!("{} {id} {}", http("timeout=2s"), simple()).replace("=1m", "=512k");
    let scene = Scene::with("", "", |conf| conf.workers(1).http(text));
    let id_of = |tenant: &str| {
        let reply = scene.get("/", tenant);
        assert_eq!((reply.status, reply.backend()), (200, "b"), "{tenant} {:?}", reply.headers);
        reply.header("x-id").unwrap().to_owned()
    };
    let add = |tenant: &str, app: &str| {
        scene.redis.set(&format!("app:{app}"), &scene.b.addr());
        scene.redis.tenant(tenant, app, "active");
        id_of(tenant)
    };
    let first = add("m0", "many0");
    (1..30).for_each(|i| drop(add(&format!("m{i}"), &format!("many{i}"))));
    let loud = add("loud", "A-Loud-One");
    let n = (30..2_000).find(|i| {
        add(&format!("m{i}"), &format!("many{i}"));
        id_of("m0") != first
    });
    assert!(n.is_some_and(|n| (40..400).contains(&n)), "{n:?}");
    assert_eq!(id_of("loud"), loud);
}

/// A process that makes room while another one has stopped over a change waits for that: it is no
/// sign that there is no room.
#[test]
fn room_for_an_app_is_waited_for_while_another_process_writes() {
    let text = format!("{} {}", http("timeout=20s"), simple()).replace("cache=1m", "cache=512k");
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let n = 2_000;
    for i in 0..n {
        redis.set(&format!("app:many{i}"), &b.addr());
        redis.tenant(&format!("m{i}"), &format!("many{i}"), "active");
    }
    let conf = Nginx::faulty().workers(2).http(text).set("redis", redis.addr()).set("a", &a);
    let (conf, points) = Points::of(conf);
    let nginx = conf.start();
    let addr = nginx.web();
    let mut tenants = (0..n).map(|i| format!("m{i}"));
    // Requests for new apps, one after the other, until one stops its worker; that one's answer.
    let mut until_struck = |nth| loop {
        let tenant = tenants.next().expect("there are more apps than there is room for");
        let ask = request("/", &tenant).timeout(secs(60));
        let asking = thread::spawn(move || ask.send(addr).unwrap());
        eventually(secs(20), || asking.is_finished() || points.struck(nth).is_some());
        if let Some(pid) = points.struck(nth) {
            eventually(secs(5), || stopped(pid));
            break (pid, asking);
        }
        assert_eq!(asking.join().unwrap().status, 200, "{tenant}");
    };
    points.plan(&[Strike::stop("apps.full", 1), Strike::stop("table.published", 1)]);
    let (makes_room, first) = until_struck(0);
    let (writes, second) = until_struck(1);
    assert_ne!(makes_room, writes);
    points.clear();
    signal(makes_room, Signal::CONT);
    holds_for(ms(300), || !first.is_finished());
    signal(writes, Signal::CONT);
    for asking in [first, second] {
        let reply = asking.join().unwrap();
        assert_eq!((reply.status, reply.backend()), (200, "b"), "{:?}", reply.headers);
    }
    assert!(!nginx.error_log().contains("no room"), "{}", nginx.error_log());
}

#[test]
fn room_for_an_app_is_made_in_short_turns() {
    let text = format!("{} {}", http("timeout=20s"), simple()).replace("cache=1m", "cache=32m");
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let n = 20_000;
    let fill = "for i = 0, ARGV[1] - 1 do
                    redis.call('SET', 'app:Many' .. i, ARGV[2])
                    redis.call('HSET', 'tenant:m' .. i, 'app', 'Many' .. i, 'status', 'active') end";
    redis.ok(&["EVAL", fill, "0", &n.to_string(), &b.addr()]);
    let conf = Nginx::builder().workers(1).http(text).set("redis", redis.addr()).set("a", &a);
    let (conf, turns) = Turns::of(conf);
    let nginx = conf.start();
    let mut conn = Conn::open(nginx.web()).unwrap();
    let mut of_all = Vec::new();
    for some in 0..n / 500 {
        let ((), longest, _) = turns.during(|| {
            for i in 500 * some..500 * (some + 1) {
                let reply = asked(&mut conn, &nginx, &format!("m{i}"));
                assert_eq!((reply.status, reply.backend()), (200, "b"), "m{i}");
            }
        });
        of_all.push(longest);
    }
    println!("longest turn for each 500 apps: {of_all:?}");
    // Caches that another process has emptied cost a turn time too.
    of_all.sort_unstable();
    let longest = of_all[of_all.len() * 3 / 4];
    assert!(longest < ms(6), "{longest:?}");
}

#[test]
fn blocks_serve_the_apps_that_they_match_and_case_is_nothing() {
    let scene = Scene::new(
        "timeout=2s",
        &format!(
            "upstream some {{ peerage main name=$peerage_route match=b*; }}
             upstream more {{ peerage main name=$peerage_route match=c*; keepalive 4; }}
             server {{ listen {{web}}; {ROUTE}
                 location / {{ proxy_pass http://tenants; }}
                 location /some/ {{ proxy_pass http://some/; }}
                 location /more/ {{ proxy_pass http://more/; }} }}"
        ),
    );
    scene.redis.set("app:Loud", &scene.b.addr());
    scene.redis.tenant("loud", "Loud", "active");
    scene.redis.tenant("zone", "A", "active");
    for _ in 0..2 {
        assert_eq!(scene.get("/", "loud").backend(), "b");
        assert_eq!(scene.get("/", "zone").backend(), "a");
        assert_eq!(scene.get("/some/", "u1").backend(), "b");
        assert_eq!(scene.get("/more/", "u1").status, 502);
        assert_eq!(scene.get("/some/", "loud").status, 502);
    }
    // Connections that are kept lead where the app is.
    scene.redis.set("app:c1", &scene.a.addr());
    scene.redis.set("app:c2", &scene.b.addr());
    scene.redis.tenant("k1", "c1", "active");
    scene.redis.tenant("k2", "c2", "active");
    for _ in 0..20 {
        assert_eq!(scene.get("/more/", "k1").backend(), "a");
        assert_eq!(scene.get("/more/", "k2").backend(), "b");
    }
}

#[test]
fn a_million_guessed_keys_stay_in_their_room() {
    let scene = Scene::new("timeout=2s", &simple());
    let n = scale(20_000, 1_000_000);
    let worker = scene.nginx.worker_pids()[0];
    scene.is("u1", 200);
    let mut before = 0;
    let mut conn = Conn::open(scene.nginx.web()).unwrap();
    for i in 0..n {
        assert_eq!(asked(&mut conn, &scene.nginx, &format!("guess-{i}")).status, 404);
        if i == n / 4 {
            before = rss_kb(worker);
        }
    }
    let after = rss_kb(worker);
    assert!(after < before + 2_000, "{before} {after}");
    let reply = scene.get("/", "u1");
    assert_eq!(reply.header("x-route").map(str::trim), Some("b FRESH"));
}

#[test]
fn of_more_tenants_than_the_cache_holds_each_is_served_and_the_cache_stays_in_its_room() {
    let metrics = "location = /metrics { peerage_metrics; }";
    let server = format!(
        "server {{ listen {{web}}; {metrics}
             location / {{ {ROUTE} proxy_pass http://tenants; }} }}"
    );
    // 512k hold some 1,900 tenants, 32m 170,000.
    let (n, cache) = scale((8_000, "512k"), (1_000_000, "32m"));
    let scene = Scene::new(&format!("timeout=2s cache={cache}"), &server);
    let fill = "for i = 0, ARGV[1] - 1 do
                    redis.call('HSET', 'tenant:m' .. i, 'app', 'b-app', 'status', 'active') end";
    scene.redis.ok(&["EVAL", fill, "0", &n.to_string()]);
    scene.redis.set("app:b-app", &scene.b.addr());
    let worker = scene.nginx.worker_pids()[0];
    let mut conn = Conn::open(scene.nginx.web()).unwrap();
    let mut before = 0;
    for i in 0..n {
        let reply = asked(&mut conn, &scene.nginx, &format!("m{i}"));
        assert_eq!((reply.status, reply.backend()), (200, "b"), "m{i}");
        if i == n / 4 {
            before = rss_kb(worker);
        }
    }
    // By then a worker has touched all of the shared memory.
    let after = rss_kb(worker);
    assert!(after < before + 2_000, "{before} {after}");
    let shown = Exposition::of(&scene.nginx.get("/metrics"));
    let of = |kind| [("store", "routes"), ("kind", kind)];
    let (cached, evicted) = ("peerage_store_cached", "peerage_store_evicted_total");
    assert!(shown.one(cached, &of("tenant")) < n as f64 / 2.0);
    assert!(shown.one(evicted, &of("tenant")) > n as f64 / 2.0);
    assert_eq!((shown.one(evicted, &of("app")), shown.one(evicted, &of("absent"))), (0.0, 0.0));
}
