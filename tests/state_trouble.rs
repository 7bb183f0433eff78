//! The state file where the disk or somebody else spoils it.

mod support;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::saved::{A, B, conf, fill, flush, listing, saved, state};
use support::*;

/// Spoils the file of a stopped nginx; after the start `left` of the upstreams beside app are there.
#[track_caller]
fn damaged(spoil: impl Fn(Vec<u8>) -> Vec<u8>, left: std::ops::RangeInclusive<usize>) {
    let mut nginx = saved().allow("state file").start();
    let api = nginx.api();
    fill(&api);
    let file = nginx.path("main.json");
    whole(&nginx, &file);
    nginx.stop();
    let spoilt = spoil(fs::read(&file).unwrap());
    fs::write(&file, &spoilt).unwrap();
    nginx.start();
    let there = listing(&api).as_object().unwrap().len() - 1;
    assert!(left.contains(&there), "{there} of {left:?}");
    api.server("app", A); // the configuration's own are there in any case
    let aside = files(nginx.prefix(), "main.json.damaged-");
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read(&aside[0]).unwrap(), spoilt);
    // What is wrong, and where it is now; of the journal too, if it stands on nothing.
    let alerts = nginx.error_log().matches("[alert]").count();
    assert!(matches!(alerts, 2 | 4), "{alerts}: {}", nginx.error_log());
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
    let header = r#"{"format":3,"zone":"main","revision":9,"next_id":9,"time":"x","more":[]}"#;
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
    let conf = conf("state={prefix}/shut/main.json");
    let dir = conf.prefix().join("shut");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let (_, text) = conf.dump();
    assert!(!text.contains("[warn]"), "{text}");
    let (_, text) = text.split_once("test.conf:\n").expect("-T prints the configuration");
    let text = text.split("\nnginx: ").next().unwrap_or_default(); // what the test itself said
    if !text.contains("user root;") {
        println!("SKIPPED: only root gives its workers another user");
        return;
    }
    let conf = conf.file("conf/nobody.conf", text.replace("user root;", "user nobody nogroup;"));
    let mut nginx = Command::new(std::env::var("PEERAGE_NGINX").unwrap_or_else(|_| "nginx".into()));
    nginx.arg("-p").arg(conf.prefix()).args(["-e", "stderr", "-t", "-c", "conf/nobody.conf"]);
    let out = nginx.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    let expected = format!("directory \"{}\" of state file is not writable", dir.display());
    assert!(text.contains("[warn]") && text.contains(&expected), "{text}");
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

    fn remount(&self, how: &str) -> io::Result<()> {
        self.run("mount", &["-o", &format!("remount,{how}")])
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        self.run("umount", &["-l"]).ok(); // there may be none
    }
}

#[test]
fn full_disk_keeps_the_last_good_file_and_recovers() {
    let conf = conf("state={prefix}/disk/main.json").allow("write failed");
    let Some(disk) = Tiny::mount(conf.prefix().join("disk")) else { return };
    let mut nginx = conf.start();
    let api = nginx.api();
    fill(&api);
    assert_eq!(flush(&api).0, 200);
    let file = disk.0.join("main.json");
    let good = fs::read(&file).unwrap();

    // More than the journal's last page has room for.
    let many: Vec<Value> =
        (1..100).map(|n| json!({"server": format!("10.0.0.{n}:80"), "weight": 7})).collect();
    let put = || api.call("PUT", "upstreams/more", Some(&json!({"servers": many}))).json();
    let broken = |text: &str| {
        eventually(secs(10), || state(&api)["error"] == text);
        api.ok("DELETE", "upstreams/more", None);
        assert_eq!(put()["warning"], format!("in force, not on disk yet: {text}"));
        assert_eq!(flush(&api).0, 503);
        assert_eq!(fs::read(&file).unwrap(), good);
    };
    let filler = disk.0.join("filler");
    drop(fs::write(&filler, vec![1; 64 << 10]));
    put();
    broken("28: No space left on device");
    fs::remove_file(&filler).unwrap();
    let recovered = within(secs(10), || flush(&api).0 == 200);
    assert!(recovered.is_some(), "{:?} {}", state(&api), nginx.error_log());
    assert_eq!(state(&api)["error"], Value::Null);
    assert!(fs::read_to_string(&file).unwrap().contains("\"more\""));
    assert!(files(&disk.0, "main.json.tmp").is_empty());
    assert!(files(&disk.0, "main.json.journal-").len() <= 2, "no journal of a vain try is left");
    nginx.stop();
    drop(nginx);
}

#[test]
fn disk_that_is_read_only_at_start_is_written_once_it_is_not() {
    let conf = conf("state={prefix}/disk/main.json").allow("write failed");
    let Some(disk) = Tiny::mount(conf.prefix().join("disk")) else { return };
    disk.remount("ro").unwrap();
    let mut nginx = conf.start();
    let api = nginx.api();
    eventually(secs(10), || state(&api)["error"] == "30: Read-only file system");
    let put = api.ok("PUT", "upstreams/more", Some(&json!({"servers": []})));
    assert_eq!(put["warning"], "in force, not on disk yet: 30: Read-only file system");
    assert_eq!(flush(&api).0, 503);
    disk.remount("rw").unwrap();
    eventually(secs(10), || flush(&api).0 == 200);
    assert!(written(&disk.0.join("main.json")).contains("\"more\""));
    nginx.restart();
    api.upstream("more");
    nginx.stop();
    drop(nginx);
}
