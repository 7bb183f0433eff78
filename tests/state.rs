//! The state file: what is in it, who writes it, and what happens when the disk or somebody else
//! spoils it.

mod support;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::*;

const A: &str = "127.0.0.1:1001";
const B: &str = "127.0.0.1:1002";

/// `parameters` come after the size of the zone.
fn conf(parameters: &str) -> Conf {
    Nginx::builder()
        .http(format!(
            "peerage_zone main 1m {parameters}; upstream app {{ peerage main; server {A}; }}"
        ))
        .with_api("write=on")
}

fn saved() -> Conf {
    conf("state={prefix}/main.json")
}

/// A few changes of every kind.
fn fill(api: &Api) {
    api.ok("PUT", "upstreams/own", Some(&json!({"servers": [{"server": A}, {"server": B}]})));
    let body = json!({"weight": 7, "max_conns": 3, "labels": {"rack": "ä \"1\""}, "backup": true});
    api.ok("PATCH", &format!("upstreams/own/servers/{B}"), Some(&body));
    api.ok("POST", &format!("upstreams/own/servers/{A}/down?reason=r%201&ttl=1h"), None);
    api.ok("POST", &format!("upstreams/app/servers/{A}/drain"), None);
    for n in 1..=5 {
        let set = json!({"servers": [{"server": format!("10.0.0.{n}:80")}]});
        api.ok("PUT", &format!("upstreams/u{n}"), Some(&set));
    }
}

/// Everything but counters.
#[track_caller]
fn listing(api: &Api) -> Value {
    let mut all = api.ok("GET", "upstreams?fields=servers&limit=1000", None);
    for upstream in all.as_object_mut().unwrap().values_mut() {
        for server in upstream["servers"].as_array_mut().unwrap() {
            server.as_object_mut().unwrap().remove("counters");
        }
    }
    all
}

fn flush(api: &Api) -> (u16, Value) {
    api.post("zones/main/flush")
}

fn state(api: &Api) -> Value {
    api.ok("GET", "zones/main", None)["state"].clone()
}

fn writer(api: &Api) -> u32 {
    let pid = eventually(secs(10), || state(api)["writer"].as_u64());
    u32::try_from(pid).unwrap()
}

/// Files whose name begins so.
fn files(dir: &Path, begin: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(begin)).collect()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, &b| (0..8).fold(crc ^ u32::from(b), |crc, _| step(crc)))
}

fn sealed(data: &str) -> String {
    format!("{{\"sum\":\"{:08x}\",\"data\":{data}}}\n", crc32c(data.as_bytes()))
}

#[test]
fn stop_and_start_keep_the_listing() {
    let mut nginx = saved().workers(2).start();
    let api = nginx.api();
    fill(&api);
    let before = listing(&api);
    nginx.stop(); // what the timer had no time for is written at the end
    nginx.start();
    assert_eq!(listing(&api), before);
    assert_eq!(api.upstream("own")["servers"][0]["admin"]["reason"], "r 1");
    let next = api.ok("PUT", "upstreams/own/servers/127.0.0.1:1009", Some(&json!({})));
    let ids = before["own"]["servers"].as_array().unwrap().iter().map(|s| s["id"].as_u64());
    assert!(ids.max().flatten() < next["server"]["id"].as_u64(), "ids come once");
    assert_eq!(
        nginx.stop_within(secs(20), Signal::TERM).map(|status| status.success()),
        Some(true)
    );
    nginx.start();
    api.server("own", "127.0.0.1:1009");
}

#[test]
fn what_was_flushed_is_there_after_a_crash() {
    let mut nginx = saved().workers(2).start();
    let api = nginx.api();
    for round in 0..scale(5, 50) {
        fill(&api);
        let own = format!("upstreams/own/servers/127.0.0.1:{}", 2000 + round);
        api.ok("PUT", &own, Some(&json!({})));
        let revision = api.ok("GET", "zones/main", None)["revision"].clone();
        let (status, body) = flush(&api);
        assert_eq!((status, &body["durable"], &body["revision"]), (200, &json!(true), &revision));
        let before = listing(&api);
        // One more on its way to the disk, or not.
        api.ok("PUT", "upstreams/late", Some(&json!({"servers": []})));
        nginx.kill();
        assert_eq!(files(nginx.prefix(), "main.json.damaged"), Vec::<PathBuf>::new());
        nginx.start();
        let mut after = listing(&api);
        after.as_object_mut().unwrap().remove("late");
        let mut before = before;
        before.as_object_mut().unwrap().remove("late");
        assert_eq!(after, before);
        api.ok("PUT", "upstreams/late", Some(&json!({"servers": []})));
    }
    flush(&api);
    assert_eq!(files(nginx.prefix(), "main.json").len(), 1, "no drafts are left");
}

#[test]
fn change_is_on_disk_within_a_second_or_so_without_a_flush() {
    let mut nginx = saved().start();
    let api = nginx.api();
    fill(&api);
    let revision = api.ok("GET", "zones/main", None)["revision"].as_u64();
    eventually(secs(5), || state(&api)["durable_revision"].as_u64() >= revision);
    let before = listing(&api);
    nginx.kill();
    nginx.start();
    assert_eq!(listing(&api), before);
}

#[test]
fn file_is_private_lines_of_json_with_checksums() {
    let nginx = saved().start();
    let api = nginx.api();
    fill(&api);
    assert_eq!(flush(&api).0, 200);
    let file = nginx.path("main.json");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with('\n'));
    let mut lines = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let data = line.split_once("\"data\":").unwrap().1.strip_suffix('}').unwrap();
        assert_eq!(value["sum"], format!("{:08x}", crc32c(data.as_bytes())), "{line}");
        lines.push(value["data"].clone());
    }
    assert_eq!((&lines[0]["format"], &lines[0]["zone"]), (&json!(1), &json!("main")));
    assert_eq!(lines.last().unwrap()["end"], 7);
    let own = lines.iter().find(|line| line["upstream"] == "own").unwrap();
    assert_eq!(own["servers"][1]["labels"]["rack"], "ä \"1\"");
}

/// Spoils the file of a stopped nginx; after the start `left` of the upstreams beside app are there.
#[track_caller]
fn damaged(spoil: impl Fn(Vec<u8>) -> Vec<u8>, left: std::ops::RangeInclusive<usize>) {
    let mut nginx = saved().allow("state file").start();
    let api = nginx.api();
    fill(&api);
    nginx.stop();
    let file = nginx.path("main.json");
    let spoilt = spoil(fs::read(&file).unwrap());
    fs::write(&file, &spoilt).unwrap();
    nginx.start();
    let there = listing(&api).as_object().unwrap().len() - 1;
    assert!(left.contains(&there), "{there} of {left:?}");
    api.server("app", A); // the configuration's own are there in any case
    let aside = files(nginx.prefix(), "main.json.damaged-");
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read(&aside[0]).unwrap(), spoilt);
    let alerts = nginx.error_log().matches("[alert]").count();
    assert_eq!(alerts, 2, "what is wrong, and where it is now: {}", nginx.error_log());
    // A new file takes its place, and that one is good.
    assert_eq!(flush(&api).0, 200);
    let before = listing(&api);
    nginx.restart();
    assert_eq!(listing(&api), before);
    assert_eq!(files(nginx.prefix(), "main.json.damaged-").len(), 1);
}

#[test]
fn flipped_byte_sets_the_file_aside_and_what_stands_before_it_is_used() {
    damaged(
        |mut bytes| {
            let lines: Vec<usize> =
                bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i).collect();
            let at = lines[3] + 60; // in the fifth line: after the header and three upstreams
            bytes[at] ^= 1;
            bytes
        },
        2..=3, // one of the three may be app
    );
}

#[test]
fn cut_file_is_set_aside_and_what_is_whole_is_used() {
    damaged(|bytes| bytes[..bytes.len() / 2].to_vec(), 1..=5);
}

#[test]
fn file_that_lost_its_last_line_is_set_aside() {
    damaged(
        |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            (lines[..lines.len() - 1].join("\n") + "\n").into_bytes()
        },
        6..=6,
    );
}

#[test]
fn garbage_and_nothing_are_set_aside() {
    damaged(|_| vec![0xa5; 5_000], 0..=0);
    damaged(|_| Vec::new(), 0..=0);
}

#[test]
fn file_of_a_later_format_is_set_aside_untouched() {
    let header = r#"{"format":2,"zone":"main","revision":9,"next_id":9,"time":"x","more":[]}"#;
    damaged(|_| (sealed(header) + &sealed(r#"{"end":0,"servers":0}"#)).into_bytes(), 0..=0);
}

#[test]
fn missing_directory_is_a_warning_and_is_tried_again() {
    let conf = conf("state={prefix}/a/b/main.json").allow("write failed");
    let (good, text) = conf.test();
    assert!(good && text.contains("[warn]") && text.contains("of state file is missing"), "{text}");
    let mut nginx = conf.start();
    let api = nginx.api();
    let answer = api.ok("PUT", &format!("upstreams/app/servers/{B}"), Some(&json!({})));
    assert_eq!(answer["changed"], true);
    eventually(secs(5), || state(&api)["errors"].as_u64() > Some(0));
    let report = state(&api);
    assert_eq!(report["error"], "2: No such file or directory", "{report}");
    assert!(report["lag"].as_u64() > Some(0) && report["error_time"].is_string(), "{report}");
    let answer = api.ok("PUT", &format!("upstreams/app/servers/{B}"), Some(&json!({"weight": 2})));
    let text = "in force, not on disk yet: 2: No such file or directory";
    assert_eq!(answer["warning"], text);
    let (status, problem) = flush(&api);
    assert_eq!((status, &problem["type"]), (503, &json!("urn:peerage:not-durable")));
    assert_eq!(problem["durable"], false);
    // The last component is made by the module, no more.
    fs::create_dir(nginx.path("a")).unwrap();
    eventually(secs(10), || flush(&api).0 == 200);
    assert_eq!(fs::metadata(nginx.path("a/b")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(state(&api)["error"], Value::Null);
    assert_eq!(state(&api)["lag"], 0);
    let answer = api.ok("PUT", &format!("upstreams/app/servers/{B}"), Some(&json!({})));
    assert_eq!(answer["warning"], Value::Null);
    assert!(nginx.error_log().contains("is written again"));
    let crits = nginx.error_log().matches("[crit]").count();
    assert_eq!(crits, 1, "a line a minute at most");
    nginx.restart();
    assert_eq!(api.server("app", B)["weight"], 1);
}

#[test]
fn directory_not_writable_for_the_workers_is_a_warning() {
    let conf = conf("state={prefix}/shut/main.json").main("user nobody;").allow("write failed");
    let dir = conf.prefix().join("shut");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    let (good, text) = conf.test();
    if text.contains("\"user\" directive is duplicate") || !rustix_root() {
        println!("skipped: needs root and workers of another user");
        return;
    }
    assert!(good && text.contains("of state file is not writable"), "{text}");
}

/// Whether this process may do everything.
fn rustix_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[test]
fn what_is_no_regular_file_is_refused_and_left_alone() {
    for odd in ["symlink", "directory"] {
        let conf = saved().allow("state file");
        let (file, target) = (conf.prefix().join("main.json"), conf.prefix().join("target"));
        fs::write(&target, "precious").unwrap();
        let make = |file: &Path| match odd {
            "symlink" => symlink(&target, file),
            _ => fs::create_dir(file),
        };
        make(&file).unwrap();
        let (good, text) = conf.test();
        assert!(
            good && text.contains("[warn]") && text.contains("is not a regular file"),
            "{text}"
        );
        let nginx = conf.start();
        let api = nginx.api();
        api.ok("PUT", &format!("upstreams/app/servers/{B}"), Some(&json!({})));
        eventually(secs(5), || state(&api)["errors"].as_u64() > Some(0));
        assert_eq!(flush(&api).0, 503, "{odd}");
        assert!(nginx.error_log().contains("write failed"));
        assert!(!fs::symlink_metadata(&file).unwrap().is_file(), "{odd} is as it was");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        // Out of the way, the file is written.
        fs::rename(&file, nginx.path("odd")).unwrap();
        eventually(secs(10), || flush(&api).0 == 200);
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
    }
}

#[test]
fn flush_off_reads_the_file_and_never_writes_it() {
    let mut nginx = saved().start();
    let api = nginx.api();
    fill(&api);
    nginx.stop();
    let file = nginx.path("main.json");
    let disk = fs::read(&file).unwrap();
    let http = |parameters: &str| {
        let text = format!(
            "peerage_zone main 1m {parameters}; upstream app {{ peerage main; server {A}; }}"
        );
        move |conf: Conf| conf.http(text).with_api("write=on")
    };
    nginx.change(http("state={prefix}/main.json flush=off"));
    nginx.start();
    assert_eq!(api.upstream("own")["servers"][1]["weight"], 7);
    api.ok("DELETE", "upstreams/own", None);
    let (status, problem) = flush(&api);
    assert_eq!((status, &problem["type"]), (409, &json!("urn:peerage:no-state-file")));
    assert_eq!(state(&api)["written"], false);
    nginx.reload();
    nginx.restart();
    assert_eq!(fs::read(&file).unwrap(), disk);
    api.upstream("own"); // as the file has it
    nginx.change(http(""));
    nginx.restart();
    assert_eq!(flush(&api).0, 409);
    assert_eq!(state(&api), Value::Null);
    assert_eq!(api.get("upstreams/own").0, 404);
}

#[test]
fn another_worker_takes_the_file_when_its_owner_is_killed() {
    let nginx = saved().workers(3).allow("exited on signal 9").start();
    let api = nginx.api();
    for round in 0..scale(3, 20) {
        let owner = writer(&api);
        assert!(nginx.worker_pids().contains(&owner));
        signal(owner, Signal::KILL);
        eventually(secs(10), || !alive(owner) && nginx.worker_pids().len() == 3);
        api.ok("PUT", &format!("upstreams/k{round}"), Some(&json!({"servers": []})));
        let (status, body) = flush(&api);
        assert_eq!(status, 200, "{body}");
        assert_ne!(writer(&api), owner);
        assert!(
            fs::read_to_string(nginx.path("main.json")).unwrap().contains(&format!("\"k{round}\""))
        );
    }
}

#[test]
fn owner_that_is_stopped_loses_the_file_and_does_not_spoil_it_later() {
    let nginx = saved().workers(2).start();
    let api = nginx.api();
    assert_eq!(flush(&api).0, 200);
    let owner = writer(&api);
    api.ok("PUT", "upstreams/before", Some(&json!({"servers": []})));
    signal(owner, Signal::STOP);
    eventually(secs(5), || stopped(owner));
    // A connection may wait for the stopped one: each is given up soon and tried again.
    let quick = api.patient(secs(1));
    let body = json!({"servers": []});
    let put = quick.request("PUT", "upstreams/after", Some(&body));
    eventually(secs(30), || put.send(api.addr()).is_ok_and(|reply| reply.status < 300));
    let report = quick.request("GET", "zones/main", None);
    eventually(secs(30), || {
        let state = report.send(api.addr()).ok()?.json()["state"].clone();
        (state["lag"] == 0 && state["writer"] != owner).then_some(())
    });
    let written = || fs::read_to_string(nginx.path("main.json")).unwrap();
    assert!(written().contains("\"after\""));
    signal(owner, Signal::CONT);
    api.ok("PUT", "upstreams/last", Some(&json!({"servers": []})));
    assert_eq!(flush(&api).0, 200);
    holds_for(ms(1500), || written().contains("\"last\""));
    assert_ne!(writer(&api), owner);
}

#[test]
fn reload_hands_the_file_to_a_new_worker_and_only_one_writes() {
    let mut nginx = saved().workers(2).start();
    let api = nginx.api();
    for round in 0..3 {
        let owner = writer(&api);
        let mut kept = Conn::open(api.addr()).unwrap();
        let head = "POST /api/v1/zones/main/flush HTTP/1.1\r\nHost: api\r\n";
        kept.write(head.as_bytes()).unwrap();
        let_pass(ms(50)); // an old worker has it, and stays
        nginx.reload();
        api.ok("PUT", &format!("upstreams/r{round}"), Some(&json!({"servers": []})));
        assert_eq!(flush(&api).0, 200);
        let now = eventually(secs(10), || {
            let pid = writer(&api);
            (pid != owner).then_some(pid)
        });
        assert!(nginx.worker_pids().contains(&now), "{now}");
        // The barrier holds in an old worker too.
        kept.write(b"\r\n").unwrap();
        assert_eq!(kept.reply().unwrap().status, 200);
        drop(kept);
        nginx.settled(2);
        assert!(
            fs::read_to_string(nginx.path("main.json")).unwrap().contains(&format!("\"r{round}\""))
        );
    }
}

/// A file system of 48 KB; `None`, said aloud, where none can be mounted.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(dir: PathBuf) -> Option<Self> {
        fs::create_dir(&dir).unwrap();
        let tiny = Self(dir);
        if tiny.run("mount", &["-t", "tmpfs", "-o", "size=48k", "none"]).is_ok() {
            return Some(tiny);
        }
        println!("SKIPPED: no tmpfs can be mounted here, a full disk is not tried");
        None
    }

    fn run(&self, program: &str, words: &[&str]) -> io::Result<()> {
        let status = Command::new(program).args(words).arg(&self.0).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{status}"))) }
    }

    fn remount(&self, how: &str) {
        self.run("mount", &["-o", &format!("remount,{how}")]).unwrap();
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        self.run("umount", &["-l"]).ok(); // there may be none
    }
}

#[test]
fn full_or_read_only_disk_keeps_the_last_good_file_and_recovers() {
    let conf = conf("state={prefix}/disk/main.json").allow("write failed");
    let Some(disk) = Tiny::mount(conf.prefix().join("disk")) else { return };
    let mut nginx = conf.start();
    let api = nginx.api();
    fill(&api);
    assert_eq!(flush(&api).0, 200);
    let file = disk.0.join("main.json");
    let good = fs::read(&file).unwrap();

    let put = || api.call("PUT", "upstreams/more", Some(&json!({"servers": []}))).json();
    let trouble: [(&str, &dyn Fn(), &dyn Fn()); 2] = [
        (
            "28: No space left on device",
            &|| drop(fs::write(disk.0.join("filler"), vec![1; 64 << 10])),
            &|| fs::remove_file(disk.0.join("filler")).unwrap(),
        ),
        ("30: Read-only file system", &|| disk.remount("ro"), &|| disk.remount("rw")),
    ];
    let mut last = good;
    for (text, begin, end) in trouble {
        begin();
        put();
        eventually(secs(10), || state(&api)["error"] == text);
        api.ok("DELETE", "upstreams/more", None);
        assert_eq!(put()["warning"], format!("in force, not on disk yet: {text}"));
        assert_eq!(flush(&api).0, 503);
        assert_eq!(fs::read(&file).unwrap(), last);
        end();
        eventually(secs(10), || flush(&api).0 == 200);
        assert_eq!(state(&api)["error"], Value::Null);
        last = fs::read(&file).unwrap();
        assert!(String::from_utf8_lossy(&last).contains("\"more\""));
        assert_eq!(files(&disk.0, "main.json").len(), 1);
    }
    nginx.stop();
    drop(nginx);
}

#[test]
fn listing_put_into_a_fresh_nginx_is_equal() {
    let (one, two) = (saved().start(), saved().start());
    fill(&one.api());
    let body = json!({
        "defaults": {"max_fails": 4, "fail_timeout": "1m"},
        "servers": [
            {"server": A, "weight": 0}, {"server": "[::1]:80", "backup": true},
            {"server": "unix:/run/a.sock", "labels": {"a": "b", "c": ""}, "max_conns": 9},
            {"server": B, "admin": {"state": "drain", "reason": "why"}, "fail_timeout": "5s"},
        ],
    });
    one.api().ok("PUT", "upstreams/all", Some(&body));
    let strip = |mut upstream: Value| {
        upstream.as_object_mut().unwrap().remove("revision");
        for server in upstream["servers"].as_array_mut().unwrap() {
            let server = server.as_object_mut().unwrap();
            for own in ["id", "counters"] {
                server.remove(own);
            }
            for own in ["since", "by", "from"] {
                server["admin"].as_object_mut().unwrap().remove(own);
            }
        }
        upstream
    };
    for name in ["all", "own", "u1"] {
        let listed = one.api().upstream(name);
        let path = format!("upstreams/{name}");
        two.api().ok("PUT", &path, Some(&listed));
        let other = two.api().upstream(name);
        assert_eq!(listed["digest"], other["digest"], "{name}");
        assert_eq!(strip(listed.clone()), strip(other));
        let again = two.api().ok("PUT", &path, Some(&listed));
        assert_eq!(again["changed"], false, "{name}");
    }
}
