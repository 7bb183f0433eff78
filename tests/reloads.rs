//! The nth reload: whatever comes and goes with the configuration, the module included, the master
//! lives and the state is right; and a reload that fails, at whatever stage, touches nothing.
//! (CASES 17)

mod support;

use std::fs;
use std::path::Path;

use support::*;

const BLOCK: &str = "upstream app { peerage main; server {b1}; server {b2}; }";

/// What a configuration of the story has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// Zone of that size and the block.
    All(&'static str),
    /// The zone, no block.
    Zone(&'static str),
    /// The module, nothing of it in http{}.
    Module,
    Nothing,
}

impl Has {
    fn conf(self, conf: Conf, module: &Path) -> Conf {
        let stock = "server { listen {web}; return 200 stock; }";
        let zone = |size| format!("peerage_zone main {size} state={{prefix}}/main.json;");
        let proxy = "server { listen {web}; location / { proxy_pass http://app; } }";
        let conf = conf.module((self != Self::Nothing).then_some(module));
        match self {
            Self::All(size) => {
                conf.http(format!("{}\n{BLOCK}\n{proxy}", zone(size))).with_api("write=on")
            }
            Self::Zone(size) => conf.http(format!("{}\n{stock}", zone(size))).with_api("write=on"),
            // The same ports in each.
            Self::Module | Self::Nothing => {
                conf.http(format!("{stock} server {{ listen {{api}}; return 404; }}"))
            }
        }
    }

    const fn has_zone(self) -> bool {
        matches!(self, Self::All(_) | Self::Zone(_))
    }
}

/// A run of numbers that is the same each time.
struct Dice(u64);

impl Dice {
    fn of(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Servers that stay in every configuration: API-made upstreams, and what was added to the block's.
fn check(api: &Api, has: Has, weight: u64) {
    let own = api.upstream("own");
    let servers = own["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 2, "{own}");
    assert_eq!(servers[0]["weight"], weight, "{own}");
    assert_eq!((&servers[1]["id"], &servers[1]["admin"]["reason"]), (&json!(4), &json!("r 1")));
    let app = api.upstream("app");
    let servers = app["servers"].as_array().unwrap();
    let added = servers.iter().find(|server| server["server"] == "10.0.0.9:80").unwrap();
    assert_eq!((&added["weight"], &added["state"]), (&json!(7), &json!("draining")));
    assert_eq!(servers.len(), if matches!(has, Has::All(_)) { 3 } else { 1 }, "{app}");
}

#[test]
fn nth_reload_finds_the_state_whatever_came_and_went_with_the_ones_before() {
    let backends = Backend::several(2);
    let b = |c: Conf| backends.iter().fold(c, |c, b| c.set(&b.name(), b));
    let file = module();
    let mut has = Has::All("1m");
    let mut nginx = b(has.conf(Nginx::builder(), &file))
        .workers(2)
        .allow("exited on signal 9")
        .allow("was locked by")
        .start();
    let api = nginx.api();
    let two = json!({"servers": [{"server": "10.0.0.1:80"}, {"server": "10.0.0.2:80"}]});
    api.ok("PUT", "upstreams/own", Some(&two));
    api.ok("POST", "upstreams/own/servers/10.0.0.2:80/down?reason=r%201", None);
    api.ok("PUT", "upstreams/app/servers/10.0.0.9:80", Some(&json!({"weight": 7})));
    api.ok("POST", "upstreams/app/servers/10.0.0.9:80/drain", None);
    let (mut dice, mut weight, mut descriptors_before) = (Dice(17), 1, None);
    let rounds = scale(24, 100);
    for round in 0..rounds {
        if has.has_zone() {
            weight = round as u64 + 1;
            let body = json!({"weight": weight});
            api.ok("PATCH", "upstreams/own/servers/10.0.0.1:80", Some(&body));
            // What is not on the disk goes with the zone.
            api.ok("POST", "zones/main/flush", None);
        }
        let all = [
            Has::All("1m"),
            Has::All("2m"),
            Has::Zone("1m"),
            Has::Zone("2m"),
            Has::Module,
            Has::Nothing,
        ];
        has = if round + 1 == rounds { Has::All("1m") } else { all[dice.of(6) as usize] };
        nginx.change(|c| b(has.conf(c, &file)));
        if dice.of(3) == 0 {
            let workers = nginx.worker_pids();
            if let Some(&victim) = workers.get(dice.of(2) as usize) {
                signal(victim, Signal::KILL);
            }
            nginx.hup();
            eventually(secs(20), || {
                let now = nginx.worker_pids();
                now.len() == 2 && now.iter().all(|pid| !workers.contains(pid))
            });
        } else {
            nginx.reload();
        }
        assert!(alive(nginx.master_pid()));
        if has.has_zone() {
            check(&api, has, weight);
        } else {
            assert_eq!(nginx.get("/").text(), "stock");
        }
        if let Has::All(_) = has {
            hit(nginx.web(), "/", 4).all_ok();
        }
        if has == Has::Nothing {
            nginx.settled(2);
            let now = (descriptors(nginx.master_pid()), rss_kb(nginx.master_pid()));
            let (fds, rss) = *descriptors_before.get_or_insert(now);
            assert!(now.0 <= fds + 2, "{} descriptors, {fds} without the module before", now.0);
            assert!(now.1 <= rss + 40_000, "{} kB, {rss} before", now.1);
        }
    }
    nginx.restart();
    check(&api, has, weight);
}

/// Puts another file in the place of one that is in use, as a package manager does.
fn replace(at: &Path, by: &Path) {
    let new = at.with_extension("new");
    fs::copy(by, &new).unwrap();
    fs::rename(&new, at).unwrap();
}

#[test]
fn another_build_runs_only_after_the_module_was_unloaded_and_reads_nothing_but_the_file() {
    let backends = Backend::several(2);
    let b = |c: Conf| backends.iter().fold(c, |c, b| c.set(&b.name(), b));
    let begun = Nginx::builder();
    let file = begun.prefix().join("module.so");
    replace(&file, &module());
    let mut nginx = b(Has::All("1m").conf(begun, &file)).workers(2).start();
    let api = nginx.api();
    api.ok("POST", &format!("upstreams/app/servers/{}/down?reason=r1", backends[0]), None);
    api.ok("PUT", "upstreams/own", Some(&json!({"servers": [{"server": "10.0.0.1:80"}]})));
    api.ok("POST", "zones/main/flush", None);
    let builds = || {
        let root = api.get("").1;
        (root["build"].as_str().unwrap().to_owned(), root["build_on_disk"].clone())
    };
    let (first, on_disk) = builds();
    assert_eq!(on_disk, json!(first));
    let before = (api.upstream("app"), api.upstream("own"));

    replace(&file, &faults_module());
    assert!(!nginx.error_log().contains("goes on to run"));
    for _ in 0..2 {
        nginx.reload();
        let (running, on_disk) = builds();
        assert!(running == first && on_disk != json!(first), "{running}, {on_disk} on the disk");
        assert_eq!((api.upstream("app"), api.upstream("own")), before);
    }
    let warned = nginx.error_log();
    let warned: Vec<&str> = warned.lines().filter(|l| l.contains("goes on to run")).collect();
    assert_eq!(warned.len(), 2, "once a reload: {warned:?}");
    assert!(warned[0].contains("[warn]") && warned[0].contains("module.so"), "{}", warned[0]);

    let digests = |api: &Api| {
        ["app", "own"].map(|name| {
            let shown = api.upstream(name);
            (shown["digest"].clone(), shown["servers"][0]["admin"].clone())
        })
    };
    let before = digests(&api);
    nginx.change(|c| b(Has::Nothing.conf(c, &file)));
    nginx.reload();
    nginx.settled(2);
    nginx.change(|c| b(Has::All("1m").conf(c, &file)));
    nginx.reload();
    let (running, on_disk) = builds();
    assert!(running != first && on_disk == json!(running), "{running}, {on_disk} on the disk");
    assert_eq!(digests(&api), before);
    hit(nginx.web(), "/", 4).all_ok();
}

#[test]
fn reload_that_fails_at_any_stage_touches_nothing() {
    let backends = Backend::several(2);
    let b = |c: Conf| backends.iter().fold(c, |c, b| c.set(&b.name(), b));
    let file = module();
    let taken = Backend::new("taken");
    let good = |c: Conf| b(Has::All("1m").conf(c, &file));
    let mut nginx = good(Nginx::builder()).workers(2).allow("[emerg]").start();
    let api = nginx.api();
    api.ok("POST", &format!("upstreams/app/servers/{}/down", backends[0]), None);
    let many: Vec<Value> =
        (0..500).map(|n| json!({"server": format!("10.1.{}.{}:80", n / 250, n % 250)})).collect();
    api.ok("PUT", "upstreams/own", Some(&json!({"servers": many})));
    api.ok("POST", "zones/main/flush", None);
    let state = nginx.path("main.json");
    let zone = |api: &Api| {
        let mut zone = api.get("zones/main").1;
        zone["bytes"].take(); // what was replaced is freed in time
        zone["fits"].take();
        zone
    };
    let upstream = |api: &Api, name: &str| {
        let mut shown = api.upstream(name);
        for server in shown["servers"].as_array_mut().unwrap() {
            server["counters"].take(); // moved by requests below
        }
        shown
    };
    let seen = |api: &Api| (upstream(api, "app"), upstream(api, "own"), zone(api));
    let (before, disk, workers) = (seen(&api), identity(&state), nginx.worker_pids());

    let other = "upstream app { peerage main; server 127.0.0.1:1001 weight=9; }";
    let web = "server { listen {web}; location / { proxy_pass http://app; } }";
    let main = |size: &str| format!("peerage_zone main {size} state={{prefix}}/main.json;");
    let (same, larger) = (main("1m"), main("2m"));
    let stages = [
        ("syntax", format!("{same} {other} {web} server {{")),
        ("unknown directive", format!("{larger} {other} {web} no_such_directive;")),
        ("no such zone", format!("{larger} upstream app {{ peerage other; }} {web}")),
        (
            "blocks that disagree",
            format!("{same} {other} upstream two {{ peerage main name=app; server 127.0.0.1:9; }}"),
        ),
        ("zone too small for its workers", format!("{} {other} {web}", main("32k"))),
        ("zone too small for its contents", format!("{} {other} {web}", main("128k"))),
        ("another zone too small", format!("{larger} peerage_zone more 32k; {other} {web}")),
        // After the zones were opened.
        ("port taken", format!("{same} {other} {web} server {{ listen {taken}; }}")),
        ("address not local", format!("{larger} {other} {web} server {{ listen 192.0.2.1:80; }}")),
    ];
    for (stage, http) in &stages {
        nginx.change(|c| c.http(http.clone()).with_api("write=on"));
        let read = nginx.error_log().len();
        nginx.hup();
        // The last word of a failure; nginx tries a port that is taken five times.
        eventually(secs(20), || {
            let log = nginx.error_log();
            let news = &log[read..];
            let binding = news.contains("Address already in use");
            news.contains("[emerg]") && (!binding || news.contains("still could not bind()"))
        });
        let_pass(ms(100));
        assert_eq!(nginx.worker_pids(), workers, "{stage}");
        let now = within(secs(2), || Some(seen(&api)).filter(|now| *now == before));
        assert!(now.is_some(), "{stage}: {:?}, before {before:?}", seen(&api));
        assert_eq!(identity(&state), disk, "{stage}");
        hit(nginx.web(), "/", 2).all_ok();
    }
    nginx.change(good);
    nginx.reload();
    let (app, own, after) = seen(&api);
    assert_eq!((app, own), (before.0, before.1));
    assert_eq!((&after["revision"], &after["seq"]), (&before.2["revision"], &before.2["seq"]));
    api.ok("POST", &format!("upstreams/app/servers/{}/up", backends[0]), None);
    nginx.change(|c| b(Has::All("2m").conf(c, &file)));
    nginx.reload();
    assert_eq!(api.server("app", &backends[0])["state"], "up");
}
