//! Stores: a Redis is asked over kept connections, and every answer is the asker's own, or a reason.

mod support;

use std::io::{Read, Write};

use support::*;

/// An nginx with a store, in one worker unless that is said again.
fn asker(params: &str) -> Conf {
    // The door listens where a story says so, and nobody else.
    let http = format!("peerage_zone main 1m;\npeerage_redis routes {params} tracking=off;");
    Nginx::faulty().http(http).with_api("write=on").workers(1)
}

fn wish(nginx: &Nginx, text: &str) -> Value {
    let request = Request::get("/api/v1").header("Peerage-Store", &format!("routes;{text}"));
    let reply = request.timeout(secs(60)).send(nginx.addr("api")).unwrap();
    assert_eq!(reply.status, 200, "{text}: {}", reply.text());
    reply.json()
}

/// What one question found.
fn ask(nginx: &Nginx, text: &str) -> String {
    let found = wish(nginx, text);
    let all = found["found"].as_object().unwrap();
    assert_eq!(all.len(), 1, "{text}: {found}");
    all.keys().next().unwrap().clone()
}

/// Waits until a question finds this.
#[track_caller]
fn comes_to(nginx: &Nginx, text: &str, expected: &str) {
    let mut last = String::new();
    let found = within(secs(10), || {
        last = ask(nginx, text);
        last == expected
    });
    assert!(found.is_some(), "{text}: {last}, not {expected}\n{}", nginx.error_log());
}

/// Lines of the log with this text.
fn lines(nginx: &Nginx, text: &str) -> usize {
    nginx.error_log().lines().filter(|line| line.contains(text)).count()
}

/// A Redis with tenants 0 to n-1: each has its own app, at its own port.
fn filled(redis: &Redis, n: u32) {
    for first in (0..n).step_by(500) {
        let mut words = vec!["EVAL".to_owned()];
        words.push(
            "for i = ARGV[1], ARGV[2] - 1 do
               redis.call('HSET', 'tenant:t-' .. i, 'app', 'app-' .. i, 'status', 'active')
               redis.call('SET', 'app:app-' .. i, '10.0.0.1:' .. (i + 1))
             end"
            .to_owned(),
        );
        words.extend(["0".to_owned(), first.to_string(), (first + 500).min(n).to_string()]);
        redis.ok(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn the_published_layout_is_read_over_tcp_and_unix_sockets() {
    let redis = Redis::new();
    redis.tenant("acme", "Orders-v2", "active");
    redis.tenant("late", "orders", "suspended");
    redis.ok(&["HSET", "tenant:bare", "app", "orders"]);
    redis.ok(&["HSET", "tenant:odd", "app", "a b", "status", "active"]);
    redis.set("tenant:text", "orders");
    redis.set("app:Orders-v2", "10.0.0.1:8080,orders.internal:80");
    redis.set("app:odd", ",");
    redis.ok(&["RPUSH", "app:list", "10.0.0.1:80"]);
    for server in [redis.addr().to_string(), redis.socket()] {
        let nginx = asker(&format!("server={server} timeout=5s")).start();
        for (text, expected) in [
            ("tenant=acme", "Orders-v2 active"),
            ("tenant=late", "orders suspended"),
            ("tenant=bare", "orders unset"),
            ("tenant=odd", "malformed"),
            ("tenant=text", "malformed"),
            ("tenant=none", "absent"),
            ("app=Orders-v2", "10.0.0.1:8080,orders.internal:80"),
            ("app=odd", "malformed"),
            ("app=list", "malformed"),
            ("app=none", "absent"),
        ] {
            assert_eq!(ask(&nginx, text), expected, "{text} by {server}");
        }
        assert_eq!(redis.clients(), 1);
        assert_eq!(lines(&nginx, "redis \"routes\""), 0);
    }
}

#[test]
fn user_password_database_and_prefixes_are_those_of_the_directive() {
    let redis = Redis::new();
    redis.ok(&[
        "ACL", "SETUSER", "nginx", "on", ">a b", "~t:*", "~a:*", "+hmget", "+get", "+select",
        "+ping", "+hello", "+auth",
    ]);
    redis.ok(&["EVAL", "redis.call('SELECT', 3); redis.call('HSET', 't:acme', 'app', 'x', 'status', 'active'); redis.call('SET', 'a:x', '10.0.0.1:80')", "0"]);
    let params =
        "timeout=5s db=3 user=nginx password_file={prefix}/secret tenant_prefix=t: app_prefix=a:";
    let nginx = asker(&format!("server={} {params}", redis.addr())).file("secret", "a b\n").start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    assert_eq!(ask(&nginx, "app=x"), "10.0.0.1:80");
    redis.ok(&["ACL", "SETUSER", "nginx", "-get"]);
    assert_eq!(ask(&nginx, "app=x"), "down: noperm");
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    let line = "redis \"routes\" is down: NOPERM";
    assert_eq!(lines(&nginx, line), 1, "{}", nginx.error_log());
}

#[test]
fn a_server_without_hello_is_spoken_with_in_the_older_protocol() {
    let redis = Redis::with("rename-command HELLO \"\"");
    redis.ok(&["EVAL", "redis.call('SELECT', 2); redis.call('HSET', 'tenant:acme', 'app', 'x', 'status', 'active')", "0"]);
    redis.require("secret");
    let params = format!("server={} db=2 timeout=5s password_file={{prefix}}/secret", redis.addr());
    let nginx = asker(&params).file("secret", "secret").start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    assert_eq!(ask(&nginx, "tenant=none"), "absent");
}

#[test]
fn many_questions_share_few_connections_and_each_has_its_own_answer() {
    let redis = Redis::new();
    filled(&redis, 20_000);
    let nginx = asker(&format!("server={} timeout=20s keepalive=3", redis.addr())).start();
    let found = wish(&nginx, "tenant=t-%;times=20000;at_once=1000");
    assert_eq!(found["found"], json!({"app-N active": 20_000}));
    assert_eq!(redis.clients(), 3);
    assert!(redis.calls("hmget") == 20_000 && redis.calls("hello") == 3);
    // One after the other, one connection is enough.
    redis.drop_clients();
    let found = wish(&nginx, "tenant=t-%;times=100");
    assert_eq!(found["found"], json!({"app-N active": 100}));
    assert_eq!(redis.clients(), 1);
}

#[test]
fn questions_that_are_given_up_leave_the_others_their_answers() {
    let redis = Redis::new();
    filled(&redis, 3_000);
    let proxy = Proxy::new(redis.addr());
    let nginx = asker(&format!("server={} timeout=5s keepalive=2", proxy.addr())).start();
    assert_eq!(ask(&nginx, "tenant=t-1"), "app-1 active");
    proxy.set(Between::Delay(ms(30)));
    let addr = nginx.addr("api");
    let impatient = std::thread::spawn(move || {
        let text = "routes;tenant=t-%;times=2000;at_once=50;give_up=10";
        let request = Request::get("/api/v1").header("Peerage-Store", text);
        request.timeout(secs(60)).send(addr).unwrap().json()
    });
    let patient = wish(&nginx, "tenant=t-%;times=1000;at_once=50");
    assert_eq!(patient["found"], json!({"app-N active": 1_000}));
    let impatient = impatient.join().unwrap();
    let given_up = impatient["found"]["given up"].as_u64().unwrap_or(0);
    let own = impatient["found"]["app-N active"].as_u64().unwrap_or(0);
    assert!(given_up > 0 && given_up + own == 2_000, "{impatient}");
    assert!(proxy.accepted() <= 2, "no connection was lost");
}

#[test]
fn a_server_that_hangs_costs_its_time_and_no_more() {
    let redis = Redis::new();
    redis.tenant("acme", "x", "active");
    let nginx = asker(&format!("server={} timeout=100ms", redis.addr())).start();
    comes_to(&nginx, "tenant=acme", "x active");
    redis.stop();
    let found = wish(&nginx, "tenant=acme;times=200;at_once=20");
    let all: u64 = found["found"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!((&found["found"]["down: timeout"], all), (&json!(200), 200), "{found}");
    assert!(found["longest"].as_u64().unwrap() < 1_000, "{found}");
    let told = lines(&nginx, "redis \"routes\" is down: ");
    assert!((1..=5).contains(&told), "{}", nginx.error_log());
    redis.go_on();
    comes_to(&nginx, "tenant=acme", "x active");
    assert!(lines(&nginx, "redis \"routes\" is up") > 0);
}

#[test]
fn a_connection_that_hangs_is_not_asked_again() {
    let redis = Redis::new();
    redis.tenant("acme", "x", "active");
    let proxy = Proxy::new(redis.addr());
    let nginx = asker(&format!("server={} timeout=100ms keepalive=1", proxy.addr())).start();
    comes_to(&nginx, "tenant=acme", "x active");
    let before = proxy.accepted();
    proxy.set(Between::Hold);
    assert_eq!(ask(&nginx, "tenant=acme"), "down: timeout");
    assert_eq!(ask(&nginx, "tenant=acme"), "down: timeout");
    assert!(proxy.accepted() > before, "the next question goes over another one");
    proxy.set(Between::Pass);
    comes_to(&nginx, "tenant=acme", "x active");
}

#[test]
fn a_server_that_died_is_found_again() {
    let mut redis = Redis::new();
    redis.tenant("acme", "x", "active");
    let nginx = asker(&format!("server={} timeout=2s", redis.addr())).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    redis.kill();
    eventually(secs(5), || ask(&nginx, "tenant=acme") == "down: connect");
    // While nothing is tried, it is said at once.
    let found = wish(&nginx, "tenant=acme;times=5000;at_once=50");
    assert_eq!(found["found"], json!({"down: connect": 5_000}));
    let told = lines(&nginx, "redis \"routes\" is down: connecting failed");
    assert!((1..=5).contains(&told), "{}", nginx.error_log());
    redis.start();
    comes_to(&nginx, "tenant=acme", "absent");
}

#[test]
fn a_question_on_a_connection_that_was_closed_is_asked_once_more() {
    let redis = Redis::new();
    filled(&redis, 100);
    let nginx = asker(&format!("server={} timeout=5s keepalive=4", redis.addr())).start();
    for _ in 0..20 {
        let found = wish(&nginx, "tenant=t-%;times=100;at_once=100");
        assert_eq!(found["found"], json!({"app-N active": 100}));
        redis.drop_clients();
    }
    // Also when the end comes while questions are out.
    let addr = nginx.addr("api");
    let asking = std::thread::spawn(move || {
        let text = "routes;tenant=t-%;times=100;at_once=1;pause=5";
        let request = Request::get("/api/v1").header("Peerage-Store", text);
        request.timeout(secs(60)).send(addr).unwrap().json()
    });
    let mut answered = redis.calls("hmget");
    while !asking.is_finished() {
        // Not during a login, which is not tried again.
        if redis.calls("hmget") >= answered + 5 {
            redis.drop_clients();
            answered = redis.calls("hmget");
        }
    }
    let found = asking.join().unwrap();
    assert_eq!(found["found"], json!({"app-N active": 100}));
    assert_eq!(lines(&nginx, "is down"), 0, "{}", nginx.error_log());
}

/// A server that answers one question on each connection, and says this to the second one as its last
/// word.
fn forgetful(last: &'static [u8]) -> Script {
    Script::new(move |mut stream| {
        let login = &b"%1\r\n+proto\r\n:3\r\n+PONG\r\n"[..];
        let mut room = [0; 4096];
        for said in [login, b"*2\r\n$-1\r\n$-1\r\n", last] {
            let (Ok(1..), Ok(())) = (stream.read(&mut room), stream.write_all(said)) else {
                return;
            };
        }
    })
}

#[test]
fn a_question_that_is_out_when_its_connection_ends_is_asked_once_more_unless_it_was_answered() {
    let silent = forgetful(b"");
    let nginx = asker(&format!("server={} timeout=5s", silent.addr)).start();
    assert_eq!(wish(&nginx, "tenant=acme;times=50")["found"], json!({"absent": 50}));
    assert_eq!(lines(&nginx, "is down"), 0, "{}", nginx.error_log());
    let stammering = forgetful(b"*2\r\n$3\r\nx");
    let nginx = asker(&format!("server={} timeout=5s", stammering.addr)).start();
    let found = wish(&nginx, "tenant=acme;times=50");
    assert_eq!(found["found"], json!({"absent": 25, "down: closed": 25}));
}

#[test]
fn whatever_a_connection_does_an_answer_is_the_askers_own_or_none() {
    let redis = Redis::new();
    filled(&redis, 1_000);
    let proxy = Proxy::new(redis.addr());
    let nginx = asker(&format!("server={} timeout=2s keepalive=2", proxy.addr())).start();
    for mode in [
        Between::Cut(0),
        Between::Cut(1),
        Between::Cut(1_000),
        Between::Reset(0),
        Between::Reset(7),
        Between::Reset(1_500),
        Between::Drip,
    ] {
        proxy.set(Between::Pass);
        proxy.cut();
        comes_to(&nginx, "tenant=t-1", "app-1 active");
        proxy.set(mode);
        let times = if mode == Between::Drip { 20 } else { 1_000 };
        let found = wish(&nginx, &format!("tenant=t-%;times={times};at_once=40"));
        for (text, n) in found["found"].as_object().unwrap() {
            let fits = ["app-N active", "down: closed", "down: connect", "down: timeout"];
            assert!(fits.contains(&text.as_str()), "{mode:?}: {text} {n} times");
        }
    }
    proxy.set(Between::Pass);
    comes_to(&nginx, "tenant=t-1", "app-1 active");
}

#[test]
fn the_password_is_read_again_where_it_is_refused() {
    let redis = Redis::new();
    redis.tenant("acme", "x", "active");
    let conf =
        asker(&format!("server={} timeout=2s password_file={{prefix}}/secret", redis.addr()));
    let conf = conf.file("secret", "first\n");
    let secret = conf.prefix().join("secret");
    redis.require("first");
    let mut nginx = conf.start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    redis.require("second");
    eventually(secs(5), || ask(&nginx, "tenant=acme") == "down: wrongpass");
    assert!(lines(&nginx, "redis \"routes\" is down: WRONGPASS") > 0);
    std::fs::write(&secret, "second\n").unwrap();
    comes_to(&nginx, "tenant=acme", "x active");
    // A file that is gone changes nothing, until the server does.
    std::fs::remove_file(&secret).unwrap();
    redis.drop_clients();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    nginx.allow("password of redis \"routes\" not read");
    redis.require("third");
    eventually(secs(5), || ask(&nginx, "tenant=acme") == "down: wrongpass");
    eventually(secs(5), || {
        ask(&nginx, "tenant=acme");
        lines(&nginx, "password of redis \"routes\" not read: \"") > 0
    });
    std::fs::write(&secret, "third\n").unwrap();
    comes_to(&nginx, "tenant=acme", "x active");
}

#[test]
fn a_server_that_wants_a_password_is_no_store_without_one() {
    let redis = Redis::new();
    redis.require("secret");
    let nginx = asker(&format!("server={} timeout=2s", redis.addr())).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "down: noauth");
}

#[test]
fn tls_is_spoken_with_servers_of_the_right_name() {
    let redis = Redis::tls("redis.test");
    redis.tenant("acme", "x", "active");
    let ca = redis.path("redis.test.pem");
    let params = |name: &str| {
        format!("server={} timeout=5s tls ca={} tls_name={name}", redis.addr(), ca.display())
    };
    let nginx = asker(&params("redis.test")).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    let nginx = asker(&params("other.test")).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "down: connect");
    assert_eq!(lines(&nginx, "the certificate is not for \"other.test\""), 1);
}

#[test]
fn a_server_that_loads_its_data_has_no_answers_yet() {
    let mut redis = Redis::with("key-load-delay 5000\nloading-process-events-interval-bytes 1024");
    filled(&redis, 500);
    redis.ok(&["SAVE"]);
    redis.kill();
    let nginx = asker(&format!("server={} timeout=2s", redis.addr())).start();
    redis.launch();
    comes_to(&nginx, "tenant=t-1", "down: loading");
    // Another one is asked, where there is one.
    let other = Redis::new();
    filled(&other, 2);
    let params = format!("server={} server={} timeout=5s", redis.addr(), other.addr());
    let second = asker(&params).start();
    assert_eq!(ask(&second, "tenant=t-1"), "app-1 active");
    assert!(ask(&nginx, "tenant=t-1") == "down: loading", "it took too long");
    eventually(secs(30), || ask(&nginx, "tenant=t-1") == "app-1 active");
}

#[test]
fn a_replica_that_has_lost_its_master_is_left_for_the_next_server() {
    let mut master = Redis::new();
    master.tenant("acme", "x", "active");
    let replica = Redis::replica(&master, "replica-serve-stale-data no");
    eventually(secs(10), || replica.ok(&["INFO", "replication"]).contains("master_link_status:up"));
    let alone = asker(&format!("server={} timeout=5s", replica.addr())).start();
    comes_to(&alone, "tenant=acme", "x active");
    let other = Redis::new();
    other.tenant("acme", "y", "active");
    let params = format!("server={} server={} timeout=5s", replica.addr(), other.addr());
    let both = asker(&params).start();
    comes_to(&both, "tenant=acme", "x active");
    master.kill();
    comes_to(&alone, "tenant=acme", "down: masterdown");
    comes_to(&both, "tenant=acme", "y active");
    assert_eq!(wish(&both, "tenant=acme;times=50")["found"], json!({"y active": 50}));
}

#[test]
fn a_server_that_runs_a_script_is_busy() {
    let redis = Redis::with("busy-reply-threshold 50");
    redis.tenant("acme", "x", "active");
    let nginx = asker(&format!("server={} timeout=3s", redis.addr())).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    std::thread::scope(|scope| {
        scope.spawn(|| redis.try_call(&["EVAL", "while true do end", "0"]));
        comes_to(&nginx, "tenant=acme", "down: busy");
        eventually(secs(5), || redis.try_call(&["SCRIPT", "KILL"]).is_some_and(|a| a == "OK"));
    });
    comes_to(&nginx, "tenant=acme", "x active");
}

#[test]
fn of_several_servers_the_first_that_has_a_connection_is_asked() {
    let (mut first, second) = (Redis::new(), Redis::new());
    first.tenant("acme", "x", "active");
    second.tenant("acme", "y", "active");
    let dead = Port::reserve();
    let params = format!(
        "server={} server={} server={} timeout=5s",
        dead.addr(),
        first.addr(),
        second.addr()
    );
    let nginx = asker(&params).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    first.kill();
    comes_to(&nginx, "tenant=acme", "y active");
    first.start();
    assert_eq!(ask(&nginx, "tenant=acme"), "y active");
}

#[test]
fn without_its_marker_a_store_is_wiped() {
    let redis = Redis::new();
    redis.tenant("acme", "x", "active");
    redis.set("epoch", "1");
    let nginx = asker(&format!("server={} timeout=5s epoch_key=epoch", redis.addr())).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    assert_eq!(ask(&nginx, "tenant=none"), "absent");
    redis.flush();
    assert_eq!(ask(&nginx, "tenant=acme"), "down: wiped");
    assert_eq!(ask(&nginx, "app=x"), "down: wiped");
    redis.set("epoch", "2");
    assert_eq!(ask(&nginx, "tenant=acme"), "absent");
}

#[test]
fn a_sentinel_says_where_the_master_is() {
    let mut master = Redis::new();
    master.tenant("acme", "x", "active");
    let replica = Redis::replica(&master, "");
    eventually(secs(10), || replica.ok(&["INFO", "replication"]).contains("master_link_status:up"));
    let sentinel = Redis::sentinel(&master);
    eventually(secs(20), || {
        sentinel.ok(&["SENTINEL", "REPLICAS", "mymaster"]).contains(&replica.addr().to_string())
    });
    let dead = Port::reserve();
    let params =
        format!("server={} server={} sentinel=mymaster timeout=5s", dead.addr(), sentinel.addr());
    let nginx = asker(&params).start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    assert!(master.calls("hmget") > 0 && replica.calls("hmget") == 0);
    let unknown = asker(&params.replace("mymaster", "other")).start();
    assert_eq!(ask(&unknown, "tenant=acme"), "down: masterdown");
    wish(&nginx, "track");
    eventually(secs(5), || told(&nginx).contains(&"alive".to_owned()));
    master.kill();
    eventually(secs(30), || ask(&nginx, "tenant=acme") == "x active");
    assert!(replica.calls("hmget") > 0);
    let mut all = Vec::new();
    eventually(secs(10), || {
        all.extend(told(&nginx));
        all.ends_with(&["all".to_owned(), "alive".to_owned()])
    });
    assert!(all.contains(&"lost".to_owned()), "{all:?}");
}

/// What was told since this was asked last.
fn told(nginx: &Nginx) -> Vec<String> {
    let told = wish(nginx, "told");
    told["told"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect()
}

/// Waits until this is told; what came before it.
#[track_caller]
fn until_told(nginx: &Nginx, what: &str) -> Vec<String> {
    let mut all = Vec::new();
    let found = within(secs(10), || {
        all.extend(told(nginx));
        all.iter().any(|text| text == what)
    });
    assert!(found.is_some(), "{what} not told: {all:?}\n{}", nginx.error_log());
    all
}

#[test]
fn what_changes_is_told_as_long_as_the_connection_is_proven() {
    let mut redis = Redis::new();
    redis.tenant("acme", "x", "active");
    let nginx = asker(&format!("server={} timeout=300ms", redis.addr())).start();
    wish(&nginx, "track");
    let first = until_told(&nginx, "alive");
    assert_eq!(first, ["all", "alive"]);
    redis.tenant("acme", "y", "active");
    until_told(&nginx, "tenant acme");
    redis.set("app:x", "10.0.0.1:80");
    until_told(&nginx, "app x");
    redis.set("other", "1");
    redis.ok(&["EVAL", "for i = 1, 30000 do redis.call('SET', 'app:m' .. i, 'x') end", "0"]);
    let many = until_told(&nginx, "app m30000");
    assert!(many.iter().filter(|text| text.starts_with("app m")).count() == 30_000);
    assert!(!many.contains(&"lost".to_owned()));
    redis.flush();
    until_told(&nginx, "all");
    // What hangs is lost, and what was in the queue meanwhile is not taken for news.
    until_told(&nginx, "alive");
    redis.stop();
    let lost = until_told(&nginx, "lost");
    let end = lost.iter().position(|text| text == "lost").unwrap();
    assert_eq!(lost[end - 1], "all", "{lost:?}");
    redis.go_on();
    let back = until_told(&nginx, "alive");
    assert_eq!(back, ["all", "alive"]);
    redis.kill();
    until_told(&nginx, "lost");
    redis.start();
    until_told(&nginx, "alive");
    redis.del("tenant:acme");
    redis.tenant("acme", "x", "active");
    until_told(&nginx, "tenant acme");
    wish(&nginx, "untrack");
    eventually(secs(5), || redis.clients() == 0);
}

#[test]
fn a_store_that_cannot_tell_changes_says_so_once() {
    let user = ["ACL", "SETUSER", "default", "-client|tracking"];
    let deny = |redis: &Redis| drop(redis.ok(&user));
    let older = Redis::with("rename-command HELLO \"\"");
    let denied = Redis::new();
    deny(&denied);
    for (redis, why) in [(&older, "it speaks the older protocol"), (&denied, "NOPERM")] {
        let nginx = asker(&format!("server={} timeout=2s", redis.addr())).start();
        wish(&nginx, "track");
        let line = format!("redis \"routes\" does not tell changes: {why}");
        eventually(secs(5), || lines(&nginx, &line) == 1);
        assert_eq!(told(&nginx), Vec::<String>::new());
        assert_eq!(ask(&nginx, "tenant=acme"), "absent");
    }
}

#[test]
fn prefixes_that_overlap_are_told_once_each() {
    let redis = Redis::new();
    for (params, key) in
        [("tenant_prefix= app_prefix=app:", "app:x"), ("tenant_prefix=a: app_prefix=a:x:", "a:x:x")]
    {
        let nginx = asker(&format!("server={} timeout=2s {params}", redis.addr())).start();
        wish(&nginx, "track");
        until_told(&nginx, "alive");
        redis.set(key, "1");
        let all = until_told(&nginx, "app x");
        let tenant = if key == "app:x" { "tenant app:x" } else { "tenant x:x" };
        assert_eq!(all.iter().filter(|text| *text == tenant).count(), 1, "{all:?}");
    }
}

/// A server that logs in whoever comes, and says this to every question.
fn liar(answer: &'static [u8]) -> Script {
    Script::new(move |mut stream| {
        let mut room = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut room) {
            let text = String::from_utf8_lossy(&room[..n]);
            let said = if text.contains("HELLO") {
                &b"%1\r\n+proto\r\n:3\r\n+PONG\r\n"[..]
            } else {
                answer
            };
            if stream.write_all(said).is_err() {
                return;
            }
        }
    })
}

#[test]
fn an_answer_that_is_none_ends_its_connection_and_no_more() {
    let large: &'static [u8] =
        Box::leak(format!("$70000\r\n{}\r\n", "x".repeat(70_000)).into_boxed_str()).as_bytes();
    for (answer, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "down: protocol"),
        (large, "down: protocol"),
        (b"*9999999\r\n", "down: protocol"),
        (b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n_\r\n", "down: protocol"),
        (b"+OK\r\n", "down: protocol"),
        (b"*1\r\n$-1\r\n", "down: protocol"),
        (b"-ERR max number of clients reached\r\n", "down: error"),
        (b"*2\r\n$1\r\nx\r\n", "down: timeout"),
        (b"*2\r\n$-1\r\n$-1\r\n", "absent"),
        (b">2\r\n+a\r\n+b\r\n*2\r\n$-1\r\n$-1\r\n", "absent"),
    ] {
        let server = liar(answer);
        let nginx = asker(&format!("server={} timeout=300ms", server.addr)).start();
        let text = String::from_utf8_lossy(&answer[..answer.len().min(40)]);
        for _ in 0..3 {
            comes_to(&nginx, "tenant=acme", expected);
        }
        assert!(nginx.workers().len() == 1, "{text}");
    }
}

#[test]
fn workers_that_leave_end_their_connections_when_the_last_question_is_answered() {
    let redis = Redis::new();
    filled(&redis, 10);
    let proxy = Proxy::new(redis.addr());
    let mut nginx = asker(&format!("server={} timeout=10s", proxy.addr())).start();
    wish(&nginx, "track");
    until_told(&nginx, "alive");
    assert_eq!(ask(&nginx, "tenant=t-1"), "app-1 active");
    assert_eq!(redis.clients(), 2);
    // Idle ones do not hold a worker.
    nginx.reload();
    eventually(secs(5), || redis.clients() == 0);
    // Those with questions out hold it as long as these do.
    assert_eq!(ask(&nginx, "tenant=t-1"), "app-1 active");
    proxy.set(Between::Hold);
    let addr = nginx.addr("api");
    let asking = std::thread::spawn(move || {
        let text = "routes;tenant=t-%;times=10;at_once=10";
        let request = Request::get("/api/v1").header("Peerage-Store", text);
        request.timeout(secs(60)).send(addr).unwrap().json()
    });
    eventually(secs(5), || redis.calls("hmget") >= 12);
    nginx.hup();
    eventually(secs(5), || !nginx.leaving_pids().is_empty());
    proxy.set(Between::Pass);
    let found = asking.join().unwrap();
    assert_eq!(found["found"], json!({"app-N active": 10}));
    nginx.settled(1);
    eventually(secs(5), || redis.clients() == 0);
}

#[test]
fn a_single_process_lets_its_connections_go_with_the_configuration() {
    let redis = Redis::new();
    redis.tenant("acme", "x", "active");
    let nginx = asker(&format!("server={} timeout=5s", redis.addr())).single().start();
    assert_eq!(ask(&nginx, "tenant=acme"), "x active");
    wish(&nginx, "track");
    until_told(&nginx, "alive");
    assert_eq!(redis.clients(), 2);
    nginx.hup();
    // nginx gives such a process no connections after that.
    eventually(secs(5), || redis.clients() == 0);
}

#[test]
fn a_panic_while_a_connection_is_made_is_no_end_of_making_them() {
    let redis = Redis::new();
    let http = format!(
        "peerage_zone main 1m;
         peerage_redis panics server={} timeout=100ms tracking=off;",
        redis.addr()
    );
    let conf = Nginx::faulty().http(http).with_api("write=on").workers(1).allow("panic");
    let nginx = conf.start();
    let panics = || lines(&nginx, "a test asks for it");
    for _ in 0..3 {
        let before = panics();
        let request = Request::get("/api/v1").header("Peerage-Store", "panics;tenant=acme");
        let reply = request.timeout(secs(60)).send(nginx.addr("api")).unwrap().json();
        assert_eq!(reply["found"], json!({"down: timeout": 1}), "{reply}");
        assert!(panics() > before, "{}", nginx.error_log());
    }
}
