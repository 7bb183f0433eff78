//! The state file on a disk that is slow, fails or fills, in a directory that comes and goes, and
//! under a clock that jumps: durability may wait, a worker never does, nothing acknowledged is lost.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::saved::{flush, state};
use support::*;

fn conf(parameters: &str) -> Conf {
    let conf = Nginx::builder().workers(2);
    let conf = conf.http(format!(
        "peerage_zone main 16m state={{prefix}}/state/main.json {parameters};
         upstream app {{ peerage main; server {{b}}; keepalive 4; }}
         upstream any {{ peerage main name=$arg_u match=k*; }}
         server {{
             listen {{web}};
             location / {{
                 proxy_pass http://app;
                 proxy_http_version 1.1;
                 proxy_set_header Upgrade $http_upgrade;
                 proxy_set_header Connection $http_connection;
             }}
         }}"
    ));
    conf.with_api("write=on").allow("write failed").set("b", "127.0.0.1:9")
}

/// An upstream of its own for each name.
fn put(api: &Api, name: &str) -> Reply {
    let body = json!({"servers": [{"server": "127.0.0.1:9"}]});
    api.call("PUT", &format!("upstreams/{name}"), Some(&body))
}

fn names(api: &Api) -> BTreeSet<String> {
    let all = api.ok("GET", "upstreams?limit=1000", None);
    let all = all.as_object().unwrap().keys().cloned();
    all.filter(|name| name.starts_with('k')).collect()
}

#[track_caller]
fn has(api: &Api, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(names(api), expected);
}

#[track_caller]
fn recovers(nginx: &Nginx) {
    let api = nginx.api();
    let recovered = within(secs(15), || flush(&api).0 == 200);
    assert!(recovered.is_some(), "{}", state(&api));
    assert_eq!(state(&api)["error"], Value::Null);
}

/// After a crash and a start.
#[track_caller]
fn kept(nginx: &mut Nginx, expected: &[&str]) {
    nginx.allow("exited on signal 9");
    nginx.kill();
    nginx.start();
    has(&nginx.api(), expected);
}

/// How long it took.
fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let value = act();
    (value, begun.elapsed())
}

#[test]
fn slow_disk_delays_what_is_to_be_kept_and_nothing_else() {
    let (conf, disk) = Disk::of(conf(""));
    let backend = Backend::new("b");
    let nginx = conf.set("b", &backend).start();
    let api = nginx.api();
    recovers(&nginx);
    let measured = |rounds: usize, tag: &str| {
        let load = Load::to(nginx.web()).rate(200).start();
        let times = (0..rounds).map(|n| {
            let_pass(ms(20));
            let (reply, time) = timed(|| put(&api, &format!("k{tag}{n}")));
            assert_eq!(reply.status, 201, "{}", reply.text());
            time
        });
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        let report = load.stop();
        report.all_ok();
        (times[times.len() * 95 / 100], report.quantile(0.99))
    };
    let (change, request) = measured(scale(60, 500), "a");
    disk.set(Fault::SlowMs, 3_000);
    let (slow_change, slow_request) = measured(scale(90, 500), "b");
    // At the end a few are still on their way.
    assert!(state(&api)["lag"].as_u64() > Some(0), "{}", state(&api));
    assert!(disk.get(Fault::Syncs) > 0);
    let times = format!("{change:?} {slow_change:?}, {request:?} {slow_request:?}");
    assert!(slow_change < 3 * change + ms(100) && slow_request < 3 * request + ms(100), "{times}");
    println!("{times}");
    disk.set(Fault::SlowMs, 0);
    recovers(&nginx);
    assert_eq!(state(&api)["lag"], 0);
    assert_eq!(nginx.error_log().matches("[crit]").count(), 0);
}

#[test]
fn slow_disk_delays_answers_where_they_wait_for_it_and_traffic_never() {
    let (conf, disk) = Disk::of(conf("flush=always"));
    let backend = Backend::new("b");
    let mut nginx = conf.set("b", &backend).start();
    let api = nginx.api();
    put(&api, "k0");
    disk.set(Fault::SlowMs, 3_000);
    let load = Load::to(nginx.web()).rate(200).start();
    let writers: Vec<_> = (1..=5)
        .map(|n| {
            let api = api.clone();
            std::thread::spawn(move || timed(|| put(&api, &format!("k{n}")).status))
        })
        .collect();
    for writer in writers {
        let (status, time) = writer.join().unwrap();
        assert_eq!(status, 201);
        // Those that wait for one another go to the disk together.
        assert!(time > ms(2_500) && time < secs(9), "{time:?}");
    }
    // Longer than anybody waits: it is in force and said not to be kept.
    disk.set(Fault::SlowMs, 60_000);
    let (reply, time) = timed(|| put(&api, "k6"));
    let problem = reply.json();
    assert_eq!(reply.status, 503, "{problem}");
    assert_eq!((&problem["changed"], &problem["durable"]), (&json!(true), &json!(false)));
    assert!(time < secs(15), "{time:?}");
    assert!(names(&api).contains("k6"));
    let report = load.stop();
    report.all_ok();
    assert!(report.quantile(0.99) < ms(500), "{:?}", report.quantile(0.99));
    disk.set(Fault::SlowMs, 0);
    recovers(&nginx);
    assert_eq!(put(&api, "k6").status, 200, "said again, it is kept");
    kept(&mut nginx, &["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
}

#[test]
fn file_whose_fsync_failed_is_never_used_again() {
    let (conf, disk) = Disk::of(conf(""));
    let mut nginx = conf.start();
    let api = nginx.api();
    recovers(&nginx);
    let mut all = Vec::new();
    for nth in 1..=scale(4, 12) {
        let before = disk.journals();
        let snapshot = identity(&disk.snapshot());
        let errors = state(&api)["errors"].as_u64();
        disk.set(Fault::Again, 0);
        disk.set(Fault::SyncAt, nth);
        // One by one, until it has failed.
        let mut n = 0;
        eventually(secs(30), || {
            n += 1;
            all.push(format!("k{nth}-{n}"));
            assert_eq!(put(&api, all.last().unwrap()).status, 201);
            // It fails in this flush, or in what makes up for it, or not yet.
            within(secs(5), || flush(&api).0 == 200 || disk.get(Fault::SyncAt) <= 0);
            disk.get(Fault::SyncAt) <= 0
        });
        eventually(secs(10), || state(&api)["errors"].as_u64() > errors);
        recovers(&nginx);
        assert_eq!(disk.get(Fault::Again), 0, "the file was asked for again");
        let after = disk.journals();
        assert!(after.iter().all(|number| !before.contains(number)), "{before:?} {after:?}");
        assert_ne!(identity(&disk.snapshot()), snapshot, "a whole new snapshot");
    }
    // Others wait in line for the one that fails.
    disk.set(Fault::SlowMs, 300);
    disk.set(Fault::SyncAt, 1);
    for n in 0..8 {
        all.push(format!("kq-{n}"));
        assert_eq!(put(&api, all.last().unwrap()).status, 201);
        let_pass(ms(50));
    }
    eventually(secs(10), || disk.get(Fault::SyncAt) <= 0);
    disk.set(Fault::SlowMs, 0);
    recovers(&nginx);
    assert_eq!(disk.get(Fault::Again), 0, "what waited in line went to it");
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    has(&api, &all);
    kept(&mut nginx, &all);
}

#[test]
fn snapshot_that_cannot_be_put_in_its_place_is_made_again() {
    let (conf, disk) = Disk::of(conf(""));
    let mut nginx = conf.start();
    let api = nginx.api();
    recovers(&nginx);
    put(&api, "k1");
    disk.set(Fault::RenameAt, 1);
    fs::remove_file(disk.snapshot()).unwrap(); // another one is needed
    put(&api, "k2");
    eventually(secs(10), || disk.get(Fault::RenameAt) <= 0);
    recovers(&nginx);
    assert!(disk.snapshot().exists());
    assert_eq!(files(disk.directory(), "main.json.tmp"), Vec::<PathBuf>::new());
    assert_eq!(nginx.error_log().matches("[crit]").count(), 1);
    kept(&mut nginx, &["k1", "k2"]);
}

#[test]
fn record_that_the_disk_has_no_room_for_is_written_anew_elsewhere() {
    for crash in [false, true] {
        let (conf, disk) = Disk::of(conf(""));
        let mut nginx = conf.start();
        let api = nginx.api();
        put(&api, "k1");
        recovers(&nginx);
        disk.set(Fault::Room, 37);
        disk.set(Fault::Full, 1);
        put(&api, "k2");
        eventually(secs(10), || state(&api)["error"] == "28: No space left on device");
        assert_eq!(flush(&api).0, 503);
        let answer = put(&api, "k3").json();
        assert_eq!(answer["warning"], "in force, not on disk yet: 28: No space left on device");
        let newest = || {
            let number = disk.journals().pop().unwrap();
            fs::read(disk.directory().join(format!("main.json.journal-{number}"))).unwrap()
        };
        if crash {
            // Half a record is there; what was kept before it is good, still without room.
            let journals = disk.journals().into_iter().map(|number| {
                fs::read(disk.directory().join(format!("main.json.journal-{number}"))).unwrap()
            });
            assert!(journals.into_iter().any(|text| text.last().is_some_and(|&b| b != b'\n')));
            kept(&mut nginx, &["k1"]);
            assert!(nginx.error_log().contains("ends in line"), "{}", nginx.error_log());
            assert_eq!(nginx.error_log().matches("[alert]").count(), 0);
            put(&api, "k2");
            put(&api, "k3");
            assert_eq!(flush(&api).0, 503);
        }
        disk.set(Fault::Full, 0);
        recovers(&nginx);
        assert_eq!(newest().last(), Some(&b'\n'));
        has(&api, &["k1", "k2", "k3"]);
        kept(&mut nginx, &["k1", "k2", "k3"]);
    }
}

/// nobody and nogroup of Debian.
const NOBODY: (u32, u32) = (65_534, 65_534);

#[test]
fn wrong_permissions_are_said_and_cured_while_it_runs() {
    let conf = conf("");
    if fs::metadata(conf.prefix()).unwrap().uid() != 0 {
        println!("SKIPPED: only root gives its workers another user");
        return;
    }
    fs::set_permissions(conf.prefix(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = conf.prefix().join("state");
    // What root has written before.
    let mut nginx = conf.start();
    put(&nginx.api(), "k0");
    nginx.stop();
    let nobody = |path: &Path| chown(path, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
    type Cure<'a> = &'a dyn Fn(&Path);
    let troubles: [(&str, u32, bool, Cure<'_>); 2] = [
        ("root's files in root's directory", 0o755, false, &|dir| {
            fs::read_dir(dir).unwrap().flatten().for_each(|entry| nobody(&entry.path()));
            nobody(dir);
        }),
        ("a directory that may not be written", 0o500, true, &|dir| {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }),
    ];
    nginx.change(|conf| conf.user("nobody nogroup"));
    let mut expected = vec!["k0"];
    for ((what, mode, own, cure), (name, later)) in
        troubles.into_iter().zip([("k1", "k2"), ("k3", "k4")])
    {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        if own {
            nobody(&dir);
        }
        nginx.start();
        let api = nginx.api();
        has(&api, &expected);
        assert_eq!(put(&api, name).status, 201, "{what}");
        eventually(secs(10), || state(&api)["error"] == "13: Permission denied");
        assert_eq!(flush(&api).0, 503, "{what}");
        assert!(put(&api, later).json()["warning"].is_string(), "{what}");
        cure(&dir);
        recovers(&nginx);
        expected.extend([name, later]);
        kept(&mut nginx, &expected);
        nginx.stop();
    }
}

#[test]
fn directory_that_goes_and_comes_back_loses_nothing() {
    let mut nginx = conf("").start();
    let api = nginx.api();
    put(&api, "k1");
    recovers(&nginx);
    let (dir, away) = (nginx.path("state"), nginx.path("away"));
    fs::rename(&dir, &away).unwrap();
    put(&api, "k2");
    // It makes the directory anew where only that is missing.
    recovers(&nginx);
    kept(&mut nginx, &["k1", "k2"]);
    // The old one comes back in its place.
    put(&api, "k3");
    recovers(&nginx);
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(&away, &dir).unwrap();
    put(&api, "k4");
    recovers(&nginx);
    kept(&mut nginx, &["k1", "k2", "k3", "k4"]);
    // A file in its place.
    fs::rename(&dir, &away).unwrap();
    fs::write(&dir, "no directory").unwrap();
    put(&api, "k5");
    eventually(secs(10), || state(&api)["error"] == "20: Not a directory");
    assert_eq!(flush(&api).0, 503);
    fs::remove_file(&dir).unwrap();
    fs::rename(&away, &dir).unwrap();
    recovers(&nginx);
    kept(&mut nginx, &["k1", "k2", "k3", "k4", "k5"]);
}

#[test]
fn file_that_is_replaced_by_something_odd_is_refused_and_left_alone() {
    for odd in ["symlink", "fifo", "directory"] {
        let mut nginx = conf("").start();
        let api = nginx.api();
        put(&api, "k1");
        recovers(&nginx);
        let (file, target) = (nginx.path("state/main.json"), nginx.path("target"));
        fs::write(&target, "precious").unwrap();
        let kind = |path: &Path| fs::symlink_metadata(path).unwrap().file_type();
        fs::remove_file(&file).unwrap();
        match odd {
            "symlink" => symlink(&target, &file).unwrap(),
            "fifo" => assert!(Command::new("mkfifo").arg(&file).status().unwrap().success()),
            _ => fs::create_dir(&file).unwrap(),
        }
        let made = kind(&file);
        assert_eq!(put(&api, "k2").status, 201);
        eventually(secs(10), || state(&api)["error"].is_string());
        assert_eq!(flush(&api).0, 503, "{odd}");
        // Tried again and again, and said once a minute.
        let errors = state(&api)["errors"].as_u64().unwrap();
        eventually(secs(10), || state(&api)["errors"].as_u64() > Some(errors + 1));
        assert!(put(&api, "k3").json()["warning"].is_string(), "{odd}");
        assert_eq!(nginx.error_log().matches("[crit]").count(), 1, "{odd}");
        assert_eq!(kind(&file), made, "{odd}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        match odd {
            "directory" => fs::remove_dir(&file).unwrap(),
            _ => fs::remove_file(&file).unwrap(),
        }
        recovers(&nginx);
        assert!(kind(&file).is_file());
        kept(&mut nginx, &["k1", "k2", "k3"]);
    }
}

#[test]
fn jumps_of_the_wall_clock_move_ends_and_nothing_else() {
    const HOUR: i64 = 3_600;
    let (conf, disk) = Disk::of(conf(""));
    let backend = Backend::new("b");
    let mut nginx = conf.set("b", &backend).start();
    let api = nginx.api();
    let server = |port: u32| format!("127.0.0.1:{port}");
    assert_eq!(put(&api, "k").status, 201);
    for (port, ttl) in [(1, "30m"), (2, "3h")] {
        api.ok("PUT", &format!("upstreams/k/servers/{}", server(port)), Some(&json!({})));
        assert_eq!(api.verb("k", server(port), &format!("down?ttl={ttl}")).0, 200);
    }
    let admin = |api: &Api, port: u32| api.server("k", server(port))["admin"].clone();
    let until = admin(&api, 2)["until"].clone();
    let seq = |api: &Api| api.ok("GET", "zones/main", None)["seq"].as_u64().unwrap();
    let writer = state(&api)["writer"].clone();
    let mut last = seq(&api);
    let mut expected = vec!["k".to_owned()];
    let load = Load::to(nginx.web()).rate(100).start();
    for (n, jump) in [0, -HOUR, 0, HOUR, -HOUR, 0].into_iter().enumerate() {
        disk.set(Fault::Clock, jump);
        let_pass(ms(600)); // every process has looked at the clock
        let name = format!("k{n}");
        assert_eq!(put(&api, &name).status, 201);
        let (answer, time) = timed(|| flush(&api));
        assert_eq!(answer.0, 200, "{}", answer.1);
        assert!(time < secs(5), "{time:?}");
        expected.push(name);
        // The first has ended once the clock had gone an hour further, for good.
        let state = if n >= 3 { "up" } else { "down" };
        eventually(secs(5), || admin(&api, 1)["state"] == state);
        assert_eq!((&admin(&api, 2)["state"], &admin(&api, 2)["until"]), (&json!("down"), &until));
        let now = seq(&api);
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    load.stop().all_ok();
    assert_eq!(state(&api)["writer"], writer, "a lease does not depend on the wall clock");
    let events = api.ok("GET", "events?since=0&wait=1s", None);
    let events = events["events"].as_array().unwrap();
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.len() > 8 && seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    disk.set(Fault::Clock, -HOUR);
    kept(&mut nginx, &expected);
    assert_eq!((&admin(&api, 2)["state"], &admin(&api, 2)["until"]), (&json!("down"), &until));
    // Started an hour early, it ends when its time has come.
    disk.set(Fault::Clock, 3 * HOUR);
    eventually(secs(5), || admin(&api, 2)["state"] == "up");
}

/// All files of a directory as `ls -li` and `sha256sum` would tell, and the directory itself.
fn everything(dir: &Path) -> Vec<(PathBuf, Identity)> {
    let mut all: Vec<_> =
        files(dir, "").into_iter().map(|file| (file.clone(), identity(&file))).collect();
    all.sort();
    let meta = fs::metadata(dir).unwrap();
    all.push((dir.to_owned(), (meta.ino(), meta.mtime(), meta.mtime_nsec(), 0, Vec::new())));
    all
}

/// CASE 18.
#[test]
fn tests_of_the_configuration_touch_no_file_of_a_running_nginx() {
    let mut nginx = conf("").start();
    let api = nginx.api();
    for n in 0..20 {
        put(&api, &format!("k{n}"));
    }
    recovers(&nginx);
    let dir = nginx.path("state");
    let before = everything(&dir);
    assert!(before.len() >= 4, "snapshot, journal, lock, directory: {before:?}");
    let good = nginx.conf();
    let bad = good.clone().http_more("peerage_nonsense on;");
    for n in 0..scale(10, 100) {
        let conf = if n % 5 == 4 { &bad } else { good };
        let (passed, text) = if n % 2 == 0 { conf.test() } else { conf.dump() };
        assert_eq!(passed, n % 5 != 4, "{text}");
        assert_eq!(everything(&dir), before, "round {n}");
    }
    let traced = |conf: &Conf| {
        let trace = conf.prefix().join("trace");
        let (passed, text) = conf.traced(&trace);
        assert!(passed, "{text}");
        fs::read_to_string(trace).unwrap()
    };
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: no strace here");
        return;
    }
    let ours = traced(good);
    let plain = good.clone().module(None).http("server { listen {web}; } server { listen {api}; }");
    let stock = traced(&plain);
    let lines = |trace: &str, call: &str| trace.lines().filter(|line| line.contains(call)).count();
    for call in ["socket(", "connect(", "sendto(", "sendmsg(", "bind(", "clone"] {
        assert_eq!(lines(&ours, call), lines(&stock, call), "{call}:\n{ours}");
    }
    let path = dir.display().to_string();
    let opens: Vec<&str> = ours.lines().filter(|line| line.contains(&path)).collect();
    assert!(!opens.is_empty(), "it is read:\n{ours}");
    for line in opens {
        let writes =
            ["O_WRONLY", "O_RDWR", "O_CREAT", "unlink", "rename", "mkdir", "chown", "chmod"];
        assert!(!writes.iter().any(|word| line.contains(word)), "{line}");
    }
    assert_eq!(everything(&dir), before);
    put(&api, "k20");
    kept_all(&mut nginx, 21);
}

fn kept_all(nginx: &mut Nginx, n: usize) {
    recovers(nginx);
    let expected: Vec<String> = (0..n).map(|n| format!("k{n}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    kept(nginx, &expected);
}

/// As systemd stops Debian's: QUIT, and SIGKILL for what is left after 5 s.
#[test]
fn stop_under_load_with_an_old_worker_that_stays_loses_nothing_acknowledged() {
    let backend = Backend::new("b");
    let mut nginx = conf("").set("b", &backend).start();
    nginx.allow("exited on signal 9");
    for _ in 0..scale(1, 20) {
        let mut socket = Conn::open(nginx.web()).unwrap();
        let upgrade = Request::get("/").header("Upgrade", "x").header("Connection", "upgrade");
        socket.begin(&upgrade).unwrap();
        assert_eq!(socket.head().unwrap().status, 101);
        let clients =
            Clients::start(&nginx.api(), 2, &["127.0.0.1:9".into(), "127.0.0.2:9".into()]);
        eventually(secs(20), || clients.done().iter().all(|&done| done >= 5));
        nginx.reload(); // the one with the socket stays
        assert!(!nginx.leaving_pids().is_empty());
        let done = clients.done();
        eventually(secs(20), || clients.done().iter().zip(&done).all(|(now, then)| now > then));
        let load = Load::to(nginx.web()).rate(100).start();
        assert_eq!(nginx.stop_within(secs(5), Signal::QUIT), None, "the socket holds a worker");
        clients.crash();
        drop(load);
        nginx.start();
        let model = clients.end();
        assert_eq!(shown(&nginx.api()), model);
        drop(socket);
    }
}
