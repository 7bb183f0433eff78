//! Tenants in a Redis: what is cached, what is asked, and what requests are answered, by the rows of
//! the table in docs/directives.md.

mod support;

use support::*;

const TOLD: &str = "add_header X-Route \"$peerage_route $peerage_route_status\" always;
                    add_header X-Error \"$peerage_error\" always;";

/// A zone with an app of its own, and tenants in a store.
fn conf(server: impl std::fmt::Display, store: &str, route: &str) -> Conf {
    Nginx::builder()
        .http(format!(
            "peerage_zone main 2m;
             peerage_redis routes server={server} cache=1m {store};
             upstream a {{ peerage main; server {{a}}; keepalive 4; }}
             upstream tenants {{ peerage main name=$peerage_route; keepalive 4; }}
             {TOLD}
             server {{ listen {{web}};
                 location = /metrics {{ peerage_metrics; }}
                 location / {{
                     peerage_route $http_x_tenant redis=routes {route};
                     proxy_pass http://tenants;
                     proxy_set_header X-Tenant $http_x_tenant;
                 }}
             }}"
        ))
        .with_api("write=on")
}

struct Scene {
    nginx: Nginx,
    redis: Redis,
    a: Backend,
    b: Backend,
}

/// `acme` is on the zone's app, `globex` on one that the store alone has.
fn started(store: &str, route: &str) -> Scene {
    let redis = Redis::new();
    let server = redis.addr();
    started_at(redis, server, store, route)
}

fn started_at(redis: Redis, server: impl std::fmt::Display, store: &str, route: &str) -> Scene {
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    fill(&redis, &b);
    let nginx = conf(server, store, route).set("a", &a).set("b", &b).start();
    Scene { nginx, redis, a, b }
}

fn fill(redis: &Redis, b: &Backend) {
    redis.tenant("acme", "a", "active");
    redis.tenant("globex", "orders-v2", "active");
    redis.tenant("held", "a", "suspended");
    redis.set("app:orders-v2", &b.addr());
}

fn of(nginx: &Nginx, tenant: &str) -> Reply {
    Request::get("/").header("X-Tenant", tenant).send(nginx.web()).unwrap()
}

/// Status, and what the look-up came to.
fn told(nginx: &Nginx, tenant: &str) -> (u16, String) {
    let reply = of(nginx, tenant);
    (reply.status, reply.header("x-route").unwrap_or_default().trim().to_owned())
}

/// A sample of the store.
fn figure(nginx: &Nginx, name: &str, labels: &[(&str, &str)]) -> f64 {
    let shown = Exposition::of(&nginx.get("/metrics"));
    shown.one(name, &[&[("store", "routes")], labels].concat())
}

fn is(nginx: &Nginx, tenant: &str, status: u16, route: &str) {
    assert_eq!(told(nginx, tenant), (status, route.to_owned()), "{tenant}");
}

#[test]
fn rows_1_6_7_8_10_what_the_store_says_is_asked_once_and_kept() {
    let Scene { nginx, redis, a, b } = started("tracking=off", "negative=1h valid=1h");
    is(&nginx, "acme", 200, "a MISS");
    is(&nginx, "globex", 200, "orders-v2 MISS");
    is(&nginx, "held", 403, "SUSPENDED");
    is(&nginx, "nobody", 404, "NEGATIVE");
    let asked = redis.calls("hmget");
    assert_eq!((asked, redis.calls("get")), (4, 1));
    for _ in 0..10 {
        is(&nginx, "acme", 200, "a FRESH");
        is(&nginx, "globex", 200, "orders-v2 FRESH");
        is(&nginx, "held", 403, "SUSPENDED");
        is(&nginx, "nobody", 404, "NEGATIVE");
    }
    assert_eq!((redis.calls("hmget"), redis.calls("get")), (4, 1));
    assert_eq!((a.requests(), b.requests()), (11, 11));
}

#[test]
fn row_8_a_status_has_a_code_of_its_own_and_none_is_not_active() {
    let Scene { nginx, redis, a: _a, b: _b } = started("", "status=moved:451,unpaid:402");
    redis.tenant("x", "a", "moved");
    redis.tenant("y", "a", "unpaid");
    redis.ok(&["HSET", "tenant:z", "app", "a"]);
    is(&nginx, "x", 451, "SUSPENDED");
    is(&nginx, "y", 402, "SUSPENDED");
    is(&nginx, "z", 403, "SUSPENDED");
}

#[test]
fn row_2_what_is_stale_is_used_while_it_is_asked_anew() {
    let Scene { nginx, redis, a: _a, b: _b } = started("tracking=off", "valid=1ms stale=1h");
    redis.set("app:a2", &redis.addr().to_string());
    is(&nginx, "acme", 200, "a MISS");
    let_pass(ms(5));
    redis.tenant("acme", "orders-v2", "active");
    is(&nginx, "acme", 200, "a STALE");
    eventually(secs(2), || told(&nginx, "acme").1.starts_with("orders-v2"));
}

#[test]
fn row_3_what_is_too_old_is_waited_for() {
    let Scene { nginx, redis, a: _a, b: _b } = started("tracking=off", "valid=1ms stale=1ms");
    is(&nginx, "acme", 200, "a MISS");
    redis.tenant("acme", "orders-v2", "active");
    let_pass(ms(20));
    is(&nginx, "acme", 200, "orders-v2 MISS");
}

#[test]
fn rows_4_9_11_12_without_the_store_what_is_known_goes_on() {
    let Scene { nginx, mut redis, a: _a, b: _b } =
        started("tracking=off timeout=100ms", "valid=1ms stale=1ms negative=1ms");
    is(&nginx, "acme", 200, "a MISS");
    is(&nginx, "globex", 200, "orders-v2 MISS");
    is(&nginx, "held", 403, "SUSPENDED");
    is(&nginx, "nobody", 404, "NEGATIVE");
    let_pass(ms(20));
    for gone in ["stopped", "killed"] {
        match gone {
            "stopped" => redis.stop(),
            _ => {
                redis.go_on();
                redis.kill();
            }
        }
        is(&nginx, "acme", 200, "a STALE");
        is(&nginx, "globex", 200, "orders-v2 STALE");
        is(&nginx, "held", 403, "SUSPENDED");
        is(&nginx, "nobody", 503, "DOWN");
        let unknown = of(&nginx, "new");
        assert_eq!((unknown.status, unknown.header("retry-after")), (503, Some("1")), "{gone}");
        assert_eq!(unknown.header("x-error"), Some("store_down"), "{gone}");
    }
    redis.start();
    redis.tenant("acme", "a", "active");
    eventually(secs(5), || told(&nginx, "acme") == (200, "a MISS".to_owned()));
}

#[test]
fn row_12_while_it_is_known_to_be_away_nobody_waits() {
    let Scene { nginx, redis, a: _a, b: _b } = started("tracking=off timeout=300ms", "");
    redis.stop();
    for i in 0..5 {
        is(&nginx, &format!("t{i}"), 503, "DOWN");
    }
    let began = Instant::now();
    let mut asked = 0;
    for i in 0..50 {
        let one = Instant::now();
        is(&nginx, &format!("u{i}"), 503, "DOWN");
        asked += usize::from(one.elapsed() > ms(150));
    }
    assert!(asked <= 3, "{asked} of 50 waited in {:?}", began.elapsed());
    redis.go_on();
    eventually(secs(5), || told(&nginx, "acme") == (200, "a MISS".to_owned()));
}

#[test]
fn row_5_nothing_is_used_for_ever() {
    let Scene { nginx, mut redis, a: _a, b: _b } =
        started("tracking=off", "valid=1ms stale=1ms stale_if_error=50ms");
    is(&nginx, "acme", 200, "a MISS");
    is(&nginx, "held", 403, "SUSPENDED");
    redis.kill();
    eventually(secs(5), || told(&nginx, "acme") == (503, "DOWN".to_owned()));
    is(&nginx, "held", 403, "SUSPENDED");
}

#[test]
fn row_13_an_error_is_not_no_such_key() {
    let Scene { nginx, redis, a: _a, b: _b } =
        started("tracking=off timeout=1s", "valid=1ms stale=1ms");
    is(&nginx, "acme", 200, "a MISS");
    redis.require("secret");
    redis.drop_clients();
    let_pass(ms(10));
    is(&nginx, "acme", 200, "a STALE");
    is(&nginx, "nobody", 503, "DOWN");
    eventually(secs(2), || nginx.error_log().contains("NOAUTH"));
}

#[test]
fn row_13_the_password_of_the_file_is_read_again() {
    let redis = Redis::new();
    let server = redis.addr();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let conf = conf(server, "tracking=off password_file={prefix}/password", "valid=1ms stale=1ms");
    let path = conf.prefix().join("password");
    std::fs::write(&path, "first\n").unwrap();
    redis.tenant("acme", "a", "active");
    redis.require("first");
    let nginx = conf.set("a", &a).set("b", &b).start();
    is(&nginx, "acme", 200, "a MISS");
    redis.require("second");
    redis.drop_clients();
    let_pass(ms(10));
    is(&nginx, "acme", 200, "a STALE");
    std::fs::write(&path, "second\n").unwrap();
    eventually(secs(8), || told(&nginx, "acme") == (200, "a MISS".to_owned()));
}

#[test]
fn rows_14_15_nonsense_changes_nothing_that_was_good() {
    let Scene { nginx, redis, b, a: _a } =
        started("tracking=off", "valid=1ms stale=1ms negative=1ms");
    is(&nginx, "globex", 200, "orders-v2 MISS");
    redis.set("app:orders-v2", "not an address at all");
    let_pass(ms(10));
    is(&nginx, "globex", 200, "orders-v2 STALE");
    redis.del("app:orders-v2");
    let_pass(ms(10));
    is(&nginx, "globex", 200, "orders-v2 STALE");
    redis.ok(&["SET", "tenant:text", "a"]);
    redis.tenant("lost", "nowhere", "active");
    redis.tenant("bad", "not a name", "active");
    for tenant in ["text", "lost", "bad"] {
        is(&nginx, tenant, 502, "BAD");
    }
    assert_eq!(of(&nginx, "lost").header("x-error"), Some("bad_data"));
    redis.set("app:nowhere", &b.addr());
    eventually(secs(5), || told(&nginx, "lost").0 == 200);
}

#[test]
fn nonsense_of_one_tenant_is_seldom_asked_for_and_takes_nothing_from_others() {
    let Scene { nginx, redis, a: _a, b: _b } =
        started("tracking=off", "negative=1h miss_limit=5r/m");
    redis.ok(&["HSET", "tenant:odd", "app", "a", "status", "active "]);
    for _ in 0..50 {
        is(&nginx, "odd", 502, "BAD");
    }
    assert_eq!(redis.calls("hmget"), 1);
    is(&nginx, "acme", 200, "a MISS");
    let line = "tenant \"odd\" of store \"routes\" has no valid app or status";
    assert_eq!(nginx.error_log().matches(line).count(), 1);
}

#[test]
fn limits_of_two_locations_are_apart() {
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    fill(&redis, &b);
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 2m;
             peerage_redis routes server={redis} cache=1m tracking=off;
             upstream a { peerage main; server {a}; }
             server { listen {web};
                 location /slow { peerage_route $http_x_tenant redis=routes miss_limit=1r/m;
                                  proxy_pass http://a; }
                 location / { peerage_route $http_x_tenant redis=routes; proxy_pass http://a; } }",
        )
        .set("redis", redis.addr())
        .set("a", &a)
        .start();
    let of = |path: &str, tenant: &str| {
        Request::get(path).header("X-Tenant", tenant).send(nginx.web()).unwrap().status
    };
    assert_eq!(of("/slow", "guess"), 404);
    assert_eq!(of("/slow", "other"), 404);
    assert_eq!(of("/", "acme"), 200);
}

#[test]
fn row_16_an_app_without_a_server_is_as_any_upstream_without() {
    let Scene { nginx, redis: _redis, a, b: _b } = started("", "");
    nginx.api().verb("a", &a, "down");
    let down = of(&nginx, "acme");
    assert_eq!(
        (down.status, down.header("x-error")),
        (502, Some("all_unavailable")),
        "{}",
        down.text()
    );
}

#[test]
fn row_17_what_is_no_key_is_not_asked_for() {
    let Scene { nginx, redis, a: _a, b: _b } = started("tracking=off", "");
    is(&nginx, "", 404, "NEGATIVE");
    is(&nginx, &"x".repeat(256), 404, "NEGATIVE");
    assert_eq!(redis.calls("hmget"), 0);
}

#[test]
fn row_18_an_emptied_store_is_known_by_its_marker() {
    let Scene { nginx, redis, b, a: _a } =
        started("tracking=off epoch_key=epoch", "valid=1ms stale=1ms negative=1ms");
    is(&nginx, "acme", 503, "DOWN");
    redis.set("epoch", "1");
    eventually(secs(5), || told(&nginx, "acme") == (200, "a MISS".to_owned()));
    is(&nginx, "globex", 200, "orders-v2 MISS");
    is(&nginx, "nobody", 404, "NEGATIVE");
    redis.flush();
    let_pass(ms(10));
    is(&nginx, "acme", 200, "a STALE");
    is(&nginx, "globex", 200, "orders-v2 STALE");
    is(&nginx, "nobody", 503, "DOWN");
    assert_eq!(figure(&nginx, "peerage_store_up", &[]), 0.0);
    assert!(figure(&nginx, "peerage_store_failures_total", &[("reason", "wiped")]) >= 3.0);
    fill(&redis, &b);
    redis.set("epoch", "2");
    redis.del("tenant:acme");
    eventually(secs(5), || told(&nginx, "acme") == (404, "NEGATIVE".to_owned()));
    assert_eq!(figure(&nginx, "peerage_store_up", &[]), 1.0);
}

#[test]
fn row_19_what_changes_is_in_force_at_once_and_a_lost_connection_makes_all_stale() {
    let Scene { nginx, redis, a, b } = started("", "valid=1ms valid_tracked=1h stale=1h");
    // Tracking is on when something stays fresh for longer than a moment.
    eventually(secs(5), || {
        told(&nginx, "acme");
        let_pass(ms(5));
        told(&nginx, "acme").1 == "a FRESH"
    });
    eventually(secs(5), || told(&nginx, "globex").1 == "orders-v2 FRESH");
    let asked = redis.calls("hmget");
    for _ in 0..20 {
        is(&nginx, "acme", 200, "a FRESH");
    }
    assert_eq!(redis.calls("hmget"), asked);
    // One tenant, suspended; and an app that moves.
    redis.tenant("acme", "a", "suspended");
    eventually(ms(1_000), || told(&nginx, "acme") == (403, "SUSPENDED".to_owned()));
    redis.set("app:orders-v2", &a.addr());
    eventually(ms(1_000), || of(&nginx, "globex").backend() == "a");
    redis.set("app:orders-v2", &b.addr());
    eventually(ms(1_000), || of(&nginx, "globex").backend() == "b");
    // All is asked anew after the connection was lost, and nothing fails meanwhile.
    redis.drop_clients();
    eventually(secs(5), || told(&nginx, "globex").1 == "orders-v2 STALE");
    eventually(secs(5), || told(&nginx, "globex").1 == "orders-v2 FRESH");
    redis.flush();
    eventually(secs(5), || told(&nginx, "globex") == (404, "NEGATIVE".to_owned()));
}

/// One command that changes very many keys is one announcement.
#[test]
fn what_changes_all_at_once_is_taken_in_short_turns() {
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    fill(&redis, &b);
    let route = "valid=1ms valid_tracked=1h stale=1h";
    let conf = conf(redis.addr(), "", route).set("a", &a).set("b", &b).workers(1);
    let (conf, turns) = Turns::of(conf);
    let nginx = conf.start();
    let change = |app: &str| {
        let change = "for i = 1, 40000 do
                          redis.call('HSET', 'tenant:m' .. i, 'app', ARGV[1], 'status', 'active') end";
        redis.ok(&["EVAL", change, "0", app]);
    };
    change("a");
    for i in [1, 20_000, 40_000] {
        let tenant = format!("m{i}");
        eventually(secs(5), || told(&nginx, &tenant).1 == "a FRESH");
    }
    let mut all = Vec::new();
    for (app, backend) in [("orders-v2", "b"), ("a", "a")].into_iter().cycle().take(5) {
        let ((), longest, _) = turns.during(|| {
            change(app);
            for i in [1, 20_000, 40_000] {
                eventually(secs(5), || of(&nginx, &format!("m{i}")).backend() == backend);
            }
        });
        all.push(longest);
    }
    println!("40,000 tenants at once: longest turns {all:?}");
    // Caches that another process has emptied cost a turn time too.
    all.sort_unstable();
    assert!(all[2] < ms(6), "{all:?}");
}

#[test]
fn what_may_have_changed_unheard_is_asked_for_before_it_is_used() {
    let Scene { nginx, redis, a: _a, b: _b } = started("", "valid=1ms stale=1ms valid_tracked=1h");
    let stays = |tenant: &str, route: &str| {
        told(&nginx, tenant);
        let_pass(ms(5));
        told(&nginx, tenant) == (200, route.to_owned())
    };
    eventually(secs(5), || stays("acme", "a FRESH") && stays("globex", "orders-v2 FRESH"));
    redis.drop_clients();
    eventually(secs(5), || told(&nginx, "globex").1 != "orders-v2 FRESH");
    eventually(secs(5), || stays("globex", "orders-v2 FRESH"));
    // Nobody has asked for it since; somebody listens again.
    is(&nginx, "acme", 200, "a MISS");
}

#[test]
fn a_write_is_in_force_also_where_an_older_question_is_under_way() {
    let dns = Dns::new();
    dns.say("silent.test", Say::Nothing);
    let resolver = format!("timeout=2s; resolver {dns} ipv6=off valid=1s");
    let Scene { nginx, redis, a, b } = started(&resolver, "valid=1ms valid_tracked=1h");
    redis.tenant("slow", "slow", "active");
    redis.set("app:slow", "silent.test:80");
    eventually(secs(5), || {
        told(&nginx, "globex");
        let_pass(ms(5));
        told(&nginx, "globex").1 == "orders-v2 FRESH"
    });
    let asked = redis.calls("get");
    let mut waits = Conn::open(nginx.web()).unwrap();
    waits.begin(&Request::get("/").header("X-Tenant", "slow")).unwrap();
    eventually(secs(5), || redis.calls("get") > asked);
    redis.set("app:slow", &b.addr());
    // What is told later has come, so this has.
    redis.set("app:orders-v2", &a.addr());
    eventually(secs(5), || of(&nginx, "globex").backend() == "a");
    let reply = of(&nginx, "slow");
    assert_eq!((reply.status, reply.backend()), (200, "b"));
    let _ = waits.reply().unwrap();
}

#[test]
fn routes_of_the_zone_stand_over_the_store_while_it_is_away() {
    let Scene { nginx, mut redis, a: _a, b: _b } = started("tracking=off", "valid=1h");
    is(&nginx, "globex", 200, "orders-v2 MISS");
    let api = nginx.api();
    api.ok("PUT", "routes/globex", Some(&json!({"upstream": "a", "reason": "redis is away"})));
    is(&nginx, "globex", 200, "a OVERRIDE");
    redis.kill();
    api.ok("PUT", "routes/acme", Some(&json!({"upstream": "a", "status": "suspended"})));
    is(&nginx, "acme", 403, "SUSPENDED");
    // An app that the store alone has.
    api.ok("PUT", "routes/new?force=1", Some(&json!({"upstream": "orders-v2"})));
    is(&nginx, "new", 200, "orders-v2 OVERRIDE");
    api.ok("DELETE", "routes/globex", None);
    is(&nginx, "globex", 200, "orders-v2 FRESH");
}

#[test]
fn ten_thousand_requests_for_a_cold_tenant_ask_once() {
    let redis = Redis::new();
    let proxy = Proxy::new(redis.addr());
    proxy.set(Between::Delay(ms(100)));
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    fill(&redis, &b);
    let conf = conf(proxy.addr(), "tracking=off timeout=2s", "valid=1h").workers(4);
    let nginx = conf.set("a", &a).set("b", &b).start();
    let n = scale(400, 10_000);
    let mut conns: Vec<Conn> = Vec::new();
    for _ in 0..n {
        let mut conn = Conn::open(nginx.web()).unwrap();
        conn.begin(&Request::get("/").header("X-Tenant", "acme")).unwrap();
        conns.push(conn);
    }
    for conn in &mut conns {
        assert_eq!(conn.reply().unwrap().status, 200);
    }
    assert_eq!(redis.calls("hmget"), 1);
}

#[test]
fn guessed_names_push_out_no_tenant_and_a_restart_without_the_store_serves_all() {
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    fill(&redis, &b);
    let n = scale(200, 1_000);
    for i in 0..n {
        redis.tenant(&format!("t{i}"), if i % 2 == 0 { "a" } else { "orders-v2" }, "active");
    }
    let store = "tracking=off state={prefix}/routes.state";
    let conf = conf(redis.addr(), store, "valid=1ms stale=1ms miss_limit=100000r/s").workers(2);
    let mut nginx = conf.set("a", &a).set("b", &b).start();
    let mut conn = Conn::open(nginx.web()).unwrap();
    let mut ask = |key: &str| {
        let request = Request::get("/").header("X-Tenant", key);
        match conn.send(&request) {
            Ok(reply) => reply.status,
            Err(_) => {
                conn = Conn::open(nginx.web()).unwrap();
                conn.send(&request).unwrap().status
            }
        }
    };
    for i in 0..n {
        assert_eq!(ask(&format!("t{i}")), 200);
    }
    for i in 0..scale(3_000, 20_000) {
        assert_eq!(ask(&format!("guess{i}")), 404);
    }
    let mut redis = redis;
    redis.kill();
    for i in 0..n {
        assert_eq!(ask(&format!("t{i}")), 200, "t{i}");
    }
    let state = nginx.path("routes.state");
    let lines = || std::fs::read_to_string(&state).map_or(0, |text| text.lines().count());
    eventually(secs(10), || lines() > n + 1);
    nginx.restart();
    for i in 0..n {
        let (status, route) = told(&nginx, &format!("t{i}"));
        assert_eq!((status, route.ends_with("STALE")), (200, true), "t{i} {route}");
    }
}

#[test]
fn an_app_of_several_addresses_is_balanced_and_a_dead_one_is_left_out() {
    let Scene { nginx, redis, a, mut b } = started("", "");
    redis.set("app:both", &format!("{},{}", a.addr(), b.addr()));
    redis.tenant("t", "both", "active");
    let report =
        Load::to(nginx.web()).request(Request::get("/").header("X-Tenant", "t")).rate(200).start();
    eventually(secs(5), || report.total() >= 40);
    b.stop();
    eventually(secs(5), || report.total() >= 120);
    let report = report.stop();
    report.all_ok();
    let (of_a, of_b) = (report.backend("a"), report.backend("b"));
    assert!(of_a > of_b && of_b > 10, "{of_a} {of_b}");
}

/// Prints how long it takes from Redis's answer until requests go by what was written.
#[test]
fn a_write_moves_an_app_or_a_tenant_within_a_moment() {
    let Scene { nginx, redis, a, b } = started("", "valid=1ms valid_tracked=1h stale=1h");
    eventually(secs(5), || {
        told(&nginx, "globex");
        let_pass(ms(5));
        told(&nginx, "globex").1 == "orders-v2 FRESH"
    });
    redis.set("app:other", &a.addr());
    let mut conn = Conn::open(nginx.web()).unwrap();
    let mut until = |backend: &str| {
        let began = Instant::now();
        let request = Request::get("/").header("X-Tenant", "globex");
        eventually(secs(2), || conn.send(&request).unwrap().backend() == backend);
        began.elapsed()
    };
    let mut took = Vec::new();
    for _ in 0..scale(10, 100) {
        redis.set("app:orders-v2", &a.addr());
        took.push(until("a"));
        redis.set("app:orders-v2", &b.addr());
        took.push(until("b"));
        redis.tenant("globex", "other", "active");
        took.push(until("a"));
        redis.tenant("globex", "orders-v2", "active");
        took.push(until("b"));
    }
    took.sort();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{} moves: median {median:?}, longest {most:?}", took.len());
}
