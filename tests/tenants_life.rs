//! Tenants in a Redis while processes come, stop and die: reloads and upgrades with requests that
//! wait, workers that are killed or stopped while they ask or listen, and the store's file.

mod support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use support::*;

fn http(store: &str, route: &str) -> String {
    format!(
        "peerage_zone main 2m;
         {store}
         upstream tenants {{ peerage main name=$peerage_route; keepalive 8; }}
         upstream a {{ peerage main; server {{a}}; keepalive 8; }}
         proxy_set_header X-Tenant $http_x_tenant;
         add_header X-Route \"$peerage_route $peerage_route_status\" always;
         add_header X-Pid $pid always;
         server {{ listen {{web}};
             location / {{ peerage_route $http_x_tenant redis=routes {route};
                 proxy_pass http://tenants; }} }}"
    )
}

fn store(parameters: &str) -> String {
    format!("peerage_redis routes server={{redis}} cache=1m {parameters};")
}

struct Scene {
    nginx: Nginx,
    redis: Redis,
    proxy: Proxy,
    _a: Backend,
    b: Backend,
}

impl Scene {
    fn new(parameters: &str, route: &str, edit: impl FnOnce(Conf) -> Conf) -> Self {
        let redis = Redis::new();
        let proxy = Proxy::new(redis.addr());
        let (a, b) = (Backend::new("a"), Backend::new("b"));
        for i in 0..100 {
            redis.tenant(&format!("t{i}"), "a", "active");
            redis.tenant(&format!("u{i}"), "b", "active");
        }
        redis.set("app:b", &b.addr());
        let conf = Nginx::builder()
            .http(http(&store(parameters), route))
            .with_api("write=on")
            .set("redis", proxy.addr())
            .set("a", &a)
            .set("b", &b);
        Self { nginx: edit(conf).start(), redis, proxy, _a: a, b }
    }

    fn get(&self, tenant: &str) -> Reply {
        self.ask(tenant).send(self.nginx.web()).unwrap()
    }

    fn ask(&self, tenant: &str) -> Request {
        Request::get("/echo").header("X-Tenant", tenant)
    }

    fn asked(&self) -> u64 {
        self.redis.calls("hmget") + self.redis.calls("get")
    }

    /// Answers come no more, to any worker that has a connection.
    fn hold(&self, workers: usize) {
        // Each worker has one, by a tenant that nobody knows yet.
        let mut seen = BTreeSet::new();
        loop {
            let reply = self.get(&format!("nobody{}", self.asked()));
            seen.insert(reply.header("x-pid").unwrap().to_owned());
            if seen.len() == workers {
                break;
            }
        }
        self.proxy.set(Between::Hold);
    }

    /// Requests for tenants that nobody asked for, and wait.
    fn waiting(&self, tenants: &[&str]) -> Vec<Conn> {
        let asked = self.asked();
        let conns = tenants.iter().map(|tenant| {
            let mut conn = Conn::open(self.nginx.web()).unwrap();
            conn.begin(&self.ask(tenant)).unwrap();
            conn
        });
        let conns = conns.collect();
        eventually(secs(5), || self.asked() >= asked + tenants.len() as u64);
        conns
    }
}

#[track_caller]
fn answered(conn: &mut Conn, tenant: &str) {
    let reply = conn.reply().unwrap();
    assert_eq!(reply.status, 200, "{tenant}: {:?}", reply.headers);
    assert!(reply.text().contains(&format!("X-Tenant: {tenant}\r\n")), "{}", reply.text());
}

const LONG: &str = "tracking=off timeout=20s";
const KEPT: &str = "valid=1h miss_limit=100000r/s";

#[test]
fn workers_that_leave_answer_what_waits() {
    let mut scene = Scene::new(LONG, KEPT, |conf| conf.workers(2));
    scene.hold(2);
    let tenants = ["t1", "u1", "t2", "u2", "nobody"];
    let mut conns = scene.waiting(&tenants);
    scene.nginx.hup();
    eventually(secs(5), || !scene.nginx.leaving_pids().is_empty());
    holds_for(ms(500), || !scene.nginx.leaving_pids().is_empty());
    scene.proxy.set(Between::Pass);
    for (conn, tenant) in conns.iter_mut().zip(tenants) {
        match tenant {
            "nobody" => assert_eq!(conn.reply().unwrap().status, 404),
            _ => answered(conn, tenant),
        }
    }
    scene.nginx.settled(2);
    // The cache has come along.
    let asked = scene.asked();
    assert_eq!(scene.get("t1").status, 200);
    assert_eq!(scene.asked(), asked);
    // One that waits longer than workers may take.
    scene.nginx.change(|conf| conf.main("worker_shutdown_timeout 1s;"));
    scene.nginx.reload();
    scene.hold(2);
    let mut conns = scene.waiting(&["t3", "u3"]);
    scene.nginx.hup();
    for conn in &mut conns {
        assert!(conn.reply().is_err());
    }
    scene.proxy.set(Between::Pass);
    scene.nginx.settled(2);
    assert_eq!(scene.get("u3").status, 200);
}

#[test]
fn reloads_with_another_cache_another_store_and_none() {
    let mut scene = Scene::new("state={prefix}/routes.state timeout=5s", "valid=1h", |c| c);
    let b = scene.b.addr();
    assert_eq!(scene.get("t1").status, 200);
    assert_eq!(scene.get("u1").status, 200);
    let state = scene.nginx.path("routes.state");
    eventually(secs(5), || fs::read_to_string(&state).is_ok_and(|text| text.contains(&b)));
    scene.proxy.set(Between::Hold);
    scene.proxy.cut();
    let more =
        "peerage_redis routes server={redis} cache=2m timeout=50ms state={prefix}/routes.state;";
    scene.nginx.change(|conf| conf.http(http(more, "valid=1h")));
    scene.nginx.reload();
    for tenant in ["t1", "u1"] {
        let reply = scene.get(tenant);
        assert_eq!(
            (reply.status, reply.header("x-route").unwrap().ends_with("STALE")),
            (200, true)
        );
    }
    scene.proxy.set(Between::Pass);
    let other = Redis::new();
    other.tenant("x", "c", "active");
    other.set("app:c", &b);
    let both = format!(
        "{more} peerage_redis other server={} cache=1m;
         server {{ listen {{two}}; location / {{ peerage_route $http_x_tenant redis=other;
             proxy_pass http://tenants; }} }}",
        other.addr()
    );
    scene.nginx.change(|conf| conf.port("two").http(http(&both, "valid=1h")));
    scene.nginx.reload();
    let of_other = |tenant: &str| {
        scene.ask(tenant).send(scene.nginx.addr("two")).map_or(0, |reply| reply.status)
    };
    eventually(secs(2), || of_other("x") == 200);
    assert_eq!(of_other("t1"), 404);
    eventually(secs(5), || scene.get("u1").status == 200 && scene.get("x").status == 404);
    // And without any, with a request that waits meanwhile.
    scene.proxy.set(Between::Delay(ms(30)));
    let mut conn = Conn::open(scene.nginx.web()).unwrap();
    conn.begin(&scene.ask("t7")).unwrap();
    scene
        .nginx
        .change(|conf| conf.http("server { listen {web}; location / { return 200 bare; } }"));
    scene.nginx.reload();
    let _ = conn.reply().unwrap();
    scene.nginx.settled(1);
    assert_eq!(scene.get("t1").text(), "bare");
}

#[test]
fn an_upgrade_answers_what_waits_and_both_serve() {
    let mut scene =
        Scene::new("tracking=off timeout=20s state={prefix}/routes.state", KEPT, |conf| {
            conf.daemon().workers(2)
        });
    assert_eq!(scene.get("t0").status, 200);
    let state = scene.nginx.path("routes.state");
    eventually(secs(5), || fs::read_to_string(&state).is_ok_and(|text| text.contains("\"t0\"")));
    scene.hold(2);
    let tenants = ["t1", "u1", "t2"];
    let mut conns = scene.waiting(&tenants);
    let (old, _) = scene.nginx.upgrade();
    signal(old, Signal::QUIT);
    let_pass(ms(300));
    scene.proxy.set(Between::Pass);
    for (conn, tenant) in conns.iter_mut().zip(tenants) {
        answered(conn, tenant);
    }
    scene.nginx.gone(old);
    for tenant in ["t0", "u1", "u5"] {
        assert_eq!(scene.get(tenant).status, 200);
    }
    scene.nginx.stop();
}

/// The worker that a request of a story is in.
fn worker_of(nginx: &Nginx, conn: &Conn) -> Option<u32> {
    worker_with(nginx, 2, conn.local_addr()?.port())
}

/// The worker with a connection from this port (column 1), or to it (column 2).
fn worker_with(nginx: &Nginx, column: usize, port: u16) -> Option<u32> {
    let at = format!(":{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inodes: Vec<_> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(column).is_some_and(|word| word.ends_with(&at)))
        .map(|words| format!("socket:[{}]", words[9]))
        .collect();
    let has = |pid: &u32| {
        let Ok(dir) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let mut links = dir.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|to| inodes.contains(&to.to_string_lossy().into_owned()))
    };
    nginx.worker_pids().into_iter().find(has)
}

#[test]
fn a_question_of_a_dead_worker_is_asked_by_another() {
    let mut scene = Scene::new("tracking=off timeout=3s", KEPT, |conf| conf.workers(4));
    scene.nginx.allow("exited on signal 9");
    for round in 0..scale(3, 20) {
        let tenant = format!("u{round}");
        scene.hold(4);
        let asked = scene.asked();
        let mut first = scene.waiting(&[&tenant]);
        let worker = worker_of(&scene.nginx, &first[0]).unwrap();
        let mut others = Vec::new();
        while others.len() < 3 {
            let mut conn = Conn::open(scene.nginx.web()).unwrap();
            conn.begin(&scene.ask(&tenant)).unwrap();
            let accepted = within(secs(1), || worker_of(&scene.nginx, &conn));
            if accepted.is_some_and(|pid| pid != worker) {
                others.push(conn);
            }
        }
        assert_eq!(scene.asked(), asked + 1, "one asks");
        signal(worker, Signal::KILL);
        let _ = first[0].reply();
        eventually(secs(1), || scene.asked() > asked + 1);
        scene.proxy.set(Between::Pass);
        for conn in &mut others {
            answered(conn, &tenant);
        }
        scene.nginx.settled(4);
    }
}

#[test]
fn a_worker_that_was_stopped_brings_nothing_old() {
    let scene = Scene::new("tracking=off timeout=2500ms", KEPT, |conf| conf.workers(2));
    let c = Backend::new("c");
    scene.hold(2);
    // Time enough to stop it between question and answer.
    scene.proxy.set(Between::Delay(ms(700)));
    scene.redis.tenant("mover", "moving", "active");
    scene.redis.set("app:moving", &scene.b.addr());
    let asked = scene.redis.calls("get");
    let mut first = Conn::open(scene.nginx.web()).unwrap();
    first.begin(&scene.ask("mover")).unwrap();
    // Its question has come, its answer not.
    eventually(secs(5), || scene.redis.calls("get") > asked);
    let worker = worker_of(&scene.nginx, &first).unwrap();
    signal(worker, Signal::STOP);
    eventually(secs(5), || stopped(worker));
    scene.redis.set("app:moving", &c.addr());
    scene.proxy.set(Between::Pass);
    let at = |reply: &Reply| (reply.status, reply.backend().to_owned());
    let moved = (200, "c".to_owned());
    // By the other one, which accepts alone now; the stopped one may be handed a connection.
    let other = || {
        let request = scene.ask("mover").timeout(ms(1_500));
        request.send(scene.nginx.web()).ok().map(|reply| at(&reply))
    };
    assert_eq!(eventually(secs(10), || other().filter(|at| at.0 == 200)), moved);
    signal(worker, Signal::CONT);
    let reply = first.reply().unwrap();
    assert!(reply.status == 503 || at(&reply) == moved, "{:?}", reply.headers);
    for _ in 0..20 {
        assert_eq!(at(&scene.get("mover")), moved);
    }
}

/// Workers with a connection that the store tells changes over.
fn listeners(scene: &Scene) -> Vec<u32> {
    let list = scene.redis.ok(&["CLIENT", "LIST", "TYPE", "normal"]);
    let lines = list.lines().filter(|line| line.contains("flags=tB") || line.contains("flags=B"));
    let ports = lines.filter_map(|line| {
        line.split("addr=127.0.0.1:").nth(1)?.split(' ').next()?.parse::<u16>().ok()
    });
    let pids = ports.filter_map(|port| worker_with(&scene.nginx, 1, port));
    pids.collect()
}

#[test]
fn when_the_one_that_listens_dies_or_stops_another_does() {
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let proxy = Proxy::new(redis.addr());
    redis.tenant("mover", "b", "active");
    redis.set("app:b", &b.addr());
    let route = "valid=1ms valid_tracked=1h stale=1ms";
    let conf = Nginx::builder()
        .workers(4)
        .allow("exited on signal 9")
        .http(http(&store("timeout=300ms"), route))
        .set("redis", redis.addr())
        .set("a", &a)
        .set("b", &b);
    let mut scene = Scene { nginx: conf.start(), redis, proxy, _a: a, b };
    let web = scene.nginx.web();
    let ask = || {
        let request = Request::get("/").header("X-Tenant", "mover").timeout(ms(500));
        request.send(web).ok().map(|reply| reply.backend().to_owned())
    };
    let mut is_a = false;
    for kind in [Signal::KILL, Signal::STOP, Signal::KILL, Signal::STOP] {
        let worker = eventually(secs(5), || listeners(&scene).first().copied());
        eventually(secs(5), || {
            let reply = Request::get("/").header("X-Tenant", "mover").send(web);
            reply.is_ok_and(|r| r.header("x-route").is_some_and(|r| r.ends_with("FRESH")))
        });
        signal(worker, kind);
        // What changes while nobody listens is known within a moment.
        is_a = !is_a;
        let to = if is_a { "a" } else { "b" };
        scene.redis.tenant("mover", to, "active");
        let began = Instant::now();
        eventually(secs(3), || ask().is_some_and(|at| at == to));
        holds_for(ms(300), || ask().is_none_or(|at| at == to || at.is_empty()));
        eventually(secs(3).saturating_sub(began.elapsed()), || {
            listeners(&scene).iter().any(|&pid| pid != worker)
        });
        if kind == Signal::STOP {
            is_a = !is_a;
            let to = if is_a { "a" } else { "b" };
            scene.redis.tenant("mover", to, "active");
            eventually(secs(3), || ask().is_some_and(|at| at == to));
            signal(worker, Signal::CONT);
            holds_for(ms(1_500), || ask().is_none_or(|at| at == to || at.is_empty()));
        }
        scene.nginx.settled(4);
    }
    scene.nginx.stop();
}

#[test]
fn one_process_does_all_of_it() {
    let scene = Scene::new(LONG, KEPT, Conf::single);
    assert_eq!(scene.get("t0").status, 200);
    scene.proxy.set(Between::Hold);
    let tenants = ["t1", "u1", "u2"];
    let mut conns = scene.waiting(&tenants);
    conns.push(Conn::open(scene.nginx.web()).unwrap());
    conns[3].begin(&scene.ask("t9")).unwrap();
    drop(conns.pop());
    scene.proxy.set(Between::Pass);
    for (conn, tenant) in conns.iter_mut().zip(tenants) {
        answered(conn, tenant);
    }
}

#[test]
fn a_state_file_is_read_as_far_as_it_is_good() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = now.as_millis() as u64;
    let line = |tenant: &str, at: u64| {
        format!("{{\"tenant\":\"{tenant}\",\"app\":\"b\",\"status\":\"active\",\"at\":{at}}}\n")
    };
    let mut text = String::from("{\"peerage_store\":1}\n");
    text += &line("good", now - 1_000);
    text += "{\"tenant\":\"half\",\"app\"\n\0\x01nonsense\n[]\n{}\n";
    text += &line("old", 5);
    text += &line("none", 0);
    // The clock was set back since.
    text += &line("ahead", now + 3_600_000);
    text += &line("far", u64::MAX);
    text += &line("huge", u64::MAX / 2);
    text += &format!("{}\n", "x".repeat(100_000));
    text += "{\"tenant\":\"a\\u0000b\",\"app\":\"b\",\"status\":\"active\",\"at\":5}\n";
    let redis = Redis::new();
    let proxy = Proxy::new(redis.addr());
    proxy.set(Between::Cut(0));
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    text += &format!("{{\"app\":\"b\",\"servers\":\"{b}\",\"at\":{}}}\n", now - 5_000);
    let conf = Nginx::builder()
        .http(http(&store("timeout=50ms state={prefix}/routes.state"), "stale=1ms"))
        .file("routes.state", &text)
        .set("redis", proxy.addr())
        .set("a", &a)
        .set("b", &b);
    let (good, said) = conf.test();
    assert!(good, "{said}");
    assert_eq!(fs::read_to_string(conf.prefix().join("routes.state")).unwrap(), text);
    let scene = Scene { nginx: conf.start(), redis, proxy, _a: a, b };
    assert!(scene.nginx.error_log().contains("lines of state file"), "{}", scene.nginx.error_log());
    let status = |tenant: &str| {
        let reply = scene.get(tenant);
        (reply.status, reply.header("x-route").unwrap().trim().to_owned())
    };
    let stale = || (200, "b STALE".to_owned());
    let down = || (503, "DOWN".to_owned());
    assert_eq!(status("good"), stale());
    assert_eq!(status("ahead"), stale());
    assert_eq!(status("old"), down());
    assert_eq!(status("none"), down());
    assert_eq!(status("half"), down());
    for far in ["far", "huge"] {
        let got = status(far);
        assert!(got == stale() || got == down(), "{far} {got:?}");
    }
    // What was ahead is asked for like all else.
    scene.redis.set("app:b", &scene.b.addr());
    scene.redis.tenant("ahead", "a", "active");
    scene.proxy.set(Between::Pass);
    eventually(secs(5), || scene.get("ahead").backend() == "a");
}

#[test]
fn another_database_is_another_store_in_memory_and_in_the_file() {
    let redis = Redis::new();
    let (a, b) = (Backend::new("a"), Backend::new("b"));
    let fill = "redis.call('SELECT', ARGV[1])
                redis.call('HSET', 'tenant:x', 'app', ARGV[2], 'status', 'active')
                redis.call('SET', 'app:b', ARGV[3])";
    redis.ok(&["EVAL", fill, "0", "0", "a", &b.addr()]);
    redis.ok(&["EVAL", fill, "0", "1", "b", &b.addr()]);
    let state = "state={prefix}/routes.state";
    let text = |db| http(&store(&format!("tracking=off db={db} {state}")), "valid=1h stale=1h");
    let conf = Nginx::builder().http(text(0)).with_api("write=on").set("redis", redis.addr());
    let mut nginx = conf.set("a", &a).set("b", &b).start();
    let of = |nginx: &Nginx| {
        let reply = Request::get("/").header("X-Tenant", "x").send(nginx.web()).unwrap();
        reply.header("x-route").unwrap().to_owned()
    };
    assert_eq!((of(&nginx), of(&nginx)), ("a MISS".into(), "a FRESH".into()));
    let file = nginx.path("routes.state");
    eventually(secs(5), || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"x\"")));
    nginx.change(|conf| conf.http(text(1)));
    nginx.reload();
    assert_eq!((of(&nginx), of(&nginx)), ("b MISS".into(), "b FRESH".into()));

    // The file of another database is no answer either.
    eventually(secs(5), || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"db\":1")));
    nginx.change(|conf| conf.http(text(0)));
    nginx.restart();
    assert_eq!(of(&nginx), "a MISS");
    assert!(nginx.error_log().contains("is of another database or other prefixes"));
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_written_later() {
    let scene = Scene::new("state={prefix}/dir/routes.state", "valid=1h", |conf| {
        let dir = conf.prefix().join("dir");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(conf.prefix(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        conf.user("nobody nogroup").allow("cannot be written")
    });
    let dir = scene.nginx.path("dir");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    std::os::unix::fs::chown(&dir, Some(0), Some(0)).unwrap();
    for i in 0..20 {
        assert_eq!(scene.get(&format!("t{i}")).status, 200);
    }
    eventually(secs(5), || scene.nginx.error_log().contains("cannot be written"));
    let_pass(ms(1_500));
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(scene.get("t0").status, 200);
    // Nothing need change for that.
    let written =
        || fs::read_to_string(dir.join("routes.state")).is_ok_and(|t| t.contains("\"t19\""));
    eventually(secs(10), written);
}

/// A disk that does not answer keeps no old workers, and what one of them has begun does not stay.
#[test]
fn a_disk_that_does_not_answer_holds_no_worker_that_leaves() {
    let slow = RefCell::new(None);
    let mut scene = Scene::new("tracking=off state={prefix}/state/routes.state", KEPT, |conf| {
        let (conf, disk) = Disk::of(conf.workers(1).allow("is left to the disk, which is slow"));
        slow.replace(Some(disk));
        conf
    });
    let disk = slow.into_inner().expect("it was made");
    let file = disk.directory().join("routes.state");
    let has = |tenant: &str| fs::read_to_string(&file).is_ok_and(|text| text.contains(tenant));
    assert_eq!(scene.get("t0").status, 200);
    eventually(secs(10), || has("\"t0\""));
    disk.set(Fault::SlowMs, 12_000);
    assert_eq!(scene.get("t1").status, 200);
    let drafts = || {
        let names = fs::read_dir(disk.directory()).unwrap().flatten();
        names.filter(|one| one.file_name().to_string_lossy().contains(".tmp-")).count()
    };
    eventually(secs(10), || drafts() == 1);
    let [old] = scene.nginx.worker_pids()[..] else { panic!("one worker") };
    scene.nginx.reload();
    eventually(secs(8), || !alive(old));
    assert!(scene.nginx.error_log().contains("is left to the disk"));
    assert!(has("\"t0\"") && !has("\"t1\""));
    // The next one, too, has begun; the one after it finds the disk well.
    disk.set(Fault::SlowMs, 0);
    scene.nginx.reload();
    let mut tenants = (2..).map(|i| format!("t{i}"));
    eventually(secs(30), || {
        let tenant = tenants.next().expect("they do not end");
        assert_eq!(scene.get(&tenant).status, 200);
        let_pass(ms(500));
        has("\"t1\"") && has("\"t2\"") && drafts() == 0
    });
}

#[test]
fn what_cannot_be_is_refused_with_the_configuration() {
    let redis = Redis::new();
    let conf = Nginx::builder().set("redis", redis.addr());
    let refused = |text: &str, cause: &str| {
        let (good, said) = conf.clone().http(text).test();
        assert!(!good && said.contains(cause), "{text}: {said}");
    };
    let two = "peerage_redis x server={redis} state=s; peerage_redis y server={redis} state=s;";
    refused(
        &format!("peerage_zone main 1m; {two}"),
        "/s\" of redis \"y\" is already used by redis \"x\"",
    );
    refused(
        "peerage_zone main 1m state=s; peerage_redis x server={redis} state=s;",
        "/s\" of redis \"x\" is already used by zone \"main\"",
    );
    refused(
        "peerage_redis x server={redis} state=s; peerage_zone main 1m state=s;",
        "/s\" of peerage zone \"main\" is already used by redis \"x\"",
    );
    refused(
        "peerage_zone x 1m; peerage_redis x server={redis};",
        "redis \"x\" has the name of a peerage zone",
    );
    refused(
        "peerage_redis x server={redis}; peerage_zone x 1m;",
        "peerage zone \"x\" has the name of a redis",
    );
    refused("peerage_redis x server={redis}; peerage_redis x server={redis};", "duplicate");
    refused(
        "peerage_zone main 1m; server { location / { peerage_route $host redis=x; return 200; } }",
        "unknown redis \"x\" in \"peerage_route\" directive",
    );
    let good = |text: &str| {
        let (good, said) = conf.clone().http(text).test();
        assert!(good, "{text}: {said}");
    };
    good(
        "server { listen {web}; location / { peerage_route $host redis=x zone=main; } }
         peerage_redis x server={redis} state={prefix}/none/s; peerage_redis y server={redis};
         peerage_zone main 1m; peerage_zone other 1m;",
    );
    good("peerage_redis x server={redis};");
    assert!(!conf.prefix().join("none").exists());
    let nginx = conf.http("peerage_redis x server={redis}; server { listen {web}; }").start();
    assert_eq!(get(nginx.web(), "/none").unwrap().status, 404);
}
