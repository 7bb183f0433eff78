//! Random operations of many clients on a real nginx, under traffic, while it is reloaded, killed,
//! stopped, and its disk fails; all of it against a model that knows only the documentation.
//!
//! `ci/torture.sh [seconds] [seed]`. What is decided follows from the seed; when it happens does not.

mod support;

mod torture {
    pub(crate) mod backends;
    pub(crate) mod board;
    pub(crate) mod change;
    pub(crate) mod check;
    pub(crate) mod client;
    pub(crate) mod conductor;
    pub(crate) mod disk;
    pub(crate) mod draw;
    pub(crate) mod edit;
    pub(crate) mod faults;
    pub(crate) mod look;
    pub(crate) mod model;
    pub(crate) mod rng;
    pub(crate) mod rules;
    pub(crate) mod site;
    pub(crate) mod talk;
    pub(crate) mod traffic;
}

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use support::*;
use torture::backends::{Backends, CLIENTS, SHARED};
use torture::client::Client;
use torture::conductor::Conductor;
use torture::disk::Disk;
use torture::edit::Edit;
use torture::rng::Rng;
use torture::site::Site;
use torture::traffic;

/// What is tried: `PEERAGE_TORTURE_WITH=disk,upgrade,always`.
const WITH: &str = "disk,upgrade,always";

#[test]
fn nothing_that_was_answered_is_ever_otherwise() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("PEERAGE_TORTURE_SEED").unwrap_or(20_261_130);
    let time = secs(number("PEERAGE_TORTURE_SECONDS").unwrap_or(20));
    println!("torture: seed {seed}, {time:?}");
    run(seed, time);
}

fn run(seed: u64, time: Duration) {
    let with = env::var("PEERAGE_TORTURE_WITH").unwrap_or_else(|_| WITH.into());
    let with = |what: &str| with.split(',').any(|word| word == what);
    let mut rng = Rng::of(seed, 99, 0);
    let workers = if rng.chance(25) { 1 } else { 4 };
    let always = with("always") && rng.chance(50);
    let points = env::var_os("PEERAGE_FAULTS_MODULE").map(|_| points());
    println!("torture: {workers} workers, flush={}", if always { "always" } else { "1s" });

    let backends = Backends::start();
    let conf = if points.is_some() { Nginx::faulty() } else { Nginx::builder() };
    let disk = Disk::make(conf.prefix().join("disk"));
    if !disk.can_fail() {
        println!("SKIPPED: no tmpfs can be mounted here, a failing disk is not tried");
    }
    let edit = Edit::new(backends.common[2..].iter().map(Backend::addr).collect());
    let flush = if always { "always" } else { "1s" };
    let http = |conf: Conf, size: &str, edit: &str| backends.http(conf, size, flush, edit);
    let conf = [
        "exited on signal 9",
        "was locked by",
        "write failed",
        "is left at",
        // A second USR2 before the shell that started nginx is gone.
        "changing binary signal is ignored",
        "torture_nonsense",
        "too small",
    ]
    .iter()
    .fold(conf.workers(workers).port("each"), |conf, text| conf.allow(text))
    .events("worker_connections 256;")
    .main(if points.is_some() { "env PEERAGE_POINT;" } else { "" });
    let conf = conf.under(&ORPHAN);
    let size = "2m";
    let nginx = http(conf, size, &edit.block()).start();
    let site = Site::new(seed, &nginx, backends.names());
    let clients: Vec<Mutex<Client>> = (0..CLIENTS)
        .map(|i| Mutex::new(Client::new(i, backends.kit(i), backends.world(i))))
        .collect();
    for name in ["shared-0", "shared-1"] {
        site.api.ok("PUT", &format!("upstreams/{name}"), Some(&backends.base()));
    }
    for name in SHARED.iter().chain(&["edit"]) {
        site.board.post(name, usize::MAX, Vec::new(), true);
    }
    let mut conductor = Conductor {
        site: &site,
        nginx,
        clients: &clients,
        edit,
        disk,
        http: Box::new(http),
        workers,
        always,
        upgrade: with("upgrade"),
        points,
        size,
        upset: Instant::now(),
    };
    if !with("disk") {
        conductor.disk.never_fails();
    }
    conductor.flush().unwrap();
    let used = used(&site);
    conductor.arm(Some(&mut rng));
    let all: Vec<String> = SHARED.iter().map(ToString::to_string).chain(["edit".into()]).collect();
    let hot = (0..CLIENTS).flat_map(|i| backends.kit(i).hot);
    let all: Vec<String> = all.into_iter().chain(hot).collect();
    let verdict = thread::scope(|scope| {
        let _ends = Ends(&site);
        for client in &clients {
            scope.spawn(|| act(client, &site));
        }
        for index in 0..5 {
            let (site, all) = (&site, &all);
            scope.spawn(move || traffic::run(site, index, all));
        }
        if conductor.points.is_some() {
            let pid = conductor.nginx.path("nginx.pid");
            let site = &site;
            scope.spawn(move || medic(site, &pid));
        }
        conductor.run(time).and_then(|()| match site.failure() {
            Some(_) => Ok(()),
            None => finish(&mut conductor, used),
        })
    });
    let killed = conductor.nginx.error_log().matches("exited on signal 9").count();
    println!("torture: {}, killed in all {killed}", site.counts());
    let failure = site.failure().or_else(|| verdict.err());
    if let Some(text) = failure {
        let kept = keep(conductor.nginx.prefix(), seed);
        panic!(
            "seed {seed} after {:?}: {text}\nwhat was done to nginx:\n{}\nkept in {kept}",
            site.elapsed(),
            site.diary()
        );
    }
    conductor.nginx.stop();
}

/// The last look: all is taken away, and nothing is left.
fn finish(conductor: &mut Conductor<'_>, used_before: u64) -> Result<(), String> {
    let site = conductor.site;
    site.note("the end");
    conductor.check()?;
    conductor.arm(None);
    conductor.edit.restore();
    conductor.resize("2m")?;
    conductor.edit.accepted();
    conductor.check()?;
    let mut quiet = conductor.quiet()?;
    quiet.resolve()?;
    conductor.agree(&quiet)?;
    conductor.nobody_spins()?;
    site.end(); // what follows is nobody's expectation
    for client in &mut quiet.clients {
        for ip in client.kit.hosts.clone() {
            site.api.ok("POST", &format!("hosts/{ip}/up?missing=ok"), None);
        }
        for name in client.kit.own() {
            site.api.delete(&format!("upstreams/{name}"));
        }
        for name in &SHARED {
            let declared = client.world.upstreams[*name].declared.clone();
            for addr in &client.kit.private {
                let path = format!("upstreams/{name}/servers/{addr}");
                match declared.contains(addr) {
                    true => drop(site.api.ok(
                        "PUT",
                        &path,
                        Some(&json!({"weight": 2, "admin": {"state": "up"}})),
                    )),
                    false => drop(site.api.delete(&path)),
                }
            }
        }
    }
    for name in ["shared-0", "shared-1"] {
        let listing = site.api.upstream(name);
        if listing["servers"].as_array().is_none_or(|servers| servers.len() != 2) {
            return Err(format!("{name} is not as it was: {listing}"));
        }
    }
    // What was taken away is collected by later changes.
    let mut now = 0;
    let back = within(secs(5), || {
        for name in ["torture-a", "torture-b"] {
            site.api.put(&format!("upstreams/{name}"), &json!({"servers": []}));
            site.api.delete(&format!("upstreams/{name}"));
        }
        now = used(site);
        now <= used_before + SLACK
    });
    println!("torture: {used_before} bytes of the zone were used, and {now} at the end");
    back.ok_or_else(|| format!("{used_before} bytes of the zone were used, now it is {now}"))
}

/// nginx listens to USR2 only when the parent that it had at its start is gone. The shell that is
/// our child ends with the last process that has its pipe, and takes all along when we die.
const ORPHAN: [&str; 4] =
    ["sh", "-c", r#"trap 'trap - TERM; kill 0' TERM; ("$@" & sleep 0.3) | cat & wait"#, "sh"];

const POINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/shm/src/points.rs");

/// Labels, reasons and ids of what the configuration declares.
const SLACK: u64 = 4096;

fn used(site: &Site) -> u64 {
    let zone = site.api.ok("GET", "zones/main", None);
    zone["bytes"]["used"].as_u64().unwrap_or_default()
}

fn act(client: &Mutex<Client>, site: &Site) {
    for nth in 0.. {
        if site.over() {
            return;
        }
        let Ok(mut client) = client.lock() else { return };
        if site.over() {
            return;
        }
        client.step(site, nth);
        let pause = Rng::of(site.seed, 50 + client.index as u64, nth).below(100);
        drop(client);
        let_pass(ms(50 + pause));
    }
}

/// Lets workers go on that have stopped at a point.
fn medic(site: &Site, pid: &Path) {
    let mut seen = HashMap::new();
    while !site.over() {
        let_pass(ms(200));
        // Those of the old master too, while an upgrade goes on.
        let mut pids: Vec<u32> = Vec::new();
        for file in [pid.to_owned(), pid.with_extension("pid.oldbin")] {
            let master = fs::read_to_string(file).unwrap_or_default();
            let children = format!("/proc/{0}/task/{0}/children", master.trim());
            let children = fs::read_to_string(children).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        }
        seen.retain(|pid, _| stopped(*pid));
        for pid in pids.into_iter().filter(|pid| stopped(*pid)) {
            if seen.entry(pid).or_insert_with(Instant::now).elapsed() > secs(3) {
                signal(pid, Signal::CONT);
            }
        }
    }
}

/// Ends all actors, also when the conductor panics.
struct Ends<'a>(&'a Site);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
        if thread::panicking() {
            eprintln!("seed {}; what was done to nginx:\n{}", self.0.seed, self.0.diary());
        }
    }
}

/// The prefix, at a place where it stays.
fn keep(prefix: &Path, seed: u64) -> String {
    let kept = env::temp_dir().join(format!("torture-{seed}"));
    fs::remove_dir_all(&kept).ok(); // of an earlier run
    let done = Command::new("cp").arg("-r").arg(prefix).arg(&kept).status();
    if done.is_ok() { kept.display().to_string() } else { "nothing".into() }
}

/// Every point of the module that has them.
fn points() -> Vec<String> {
    let text = fs::read_to_string(POINTS).unwrap();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    names.chain(["batch.pending", "batch.committed"]).map(str::to_owned).collect()
}
