//! The journal beside the state file: what it costs, what it keeps through a crash, what it makes
//! of damage.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use support::*;

fn conf(parameters: &str) -> Conf {
    let conf = Nginx::builder().workers(2);
    let conf = conf.http(format!(
        "peerage_zone main 16m state={{prefix}}/main.json {parameters};
         upstream any {{ peerage main name=$arg_u match=k*; }}
         server {{ listen {{web}}; location / {{ proxy_pass http://any; }} }}"
    ));
    conf.with_api("write=on")
}

fn journals(nginx: &Nginx) -> Vec<PathBuf> {
    let number = |path: &PathBuf| -> u64 {
        path.to_string_lossy().rsplit_once('-').unwrap().1.parse().unwrap_or(0)
    };
    let mut all = files(nginx.prefix(), "main.json.journal-");
    all.retain(|path| !path.to_string_lossy().contains("damaged"));
    all.sort_by_key(number);
    all
}

fn bytes(nginx: &Nginx) -> u64 {
    let all = journals(nginx).into_iter().chain([nginx.path("main.json")]);
    all.filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum()
}

fn names(api: &Api) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    loop {
        let after = all.last().map(|name| format!("&after={name}")).unwrap_or_default();
        let page = api.ok("GET", &format!("upstreams?limit=1000{after}"), None);
        let page = page.as_object().unwrap();
        all.extend(page.keys().cloned());
        if page.len() < 1000 {
            return all;
        }
    }
}

fn put(api: &Api, name: &str) {
    api.ok(
        "PUT",
        &format!("upstreams/{name}"),
        Some(&json!({"servers": [{"server": "127.0.0.1:9"}]})),
    );
}

#[test]
fn change_costs_bytes_in_proportion_to_it() {
    let nginx = conf("").start();
    let api = nginx.api();
    let servers: Vec<Value> = (0..1000)
        .map(|i| json!({"server": format!("127.0.{}.{}:80", i / 250, i % 250 + 1)}))
        .collect();
    api.ok("PUT", "upstreams/k", Some(&json!({"servers": servers})));
    api.ok("POST", "zones/main/flush", None);
    let before = bytes(&nginx);
    assert!(before > 30_000, "{before}");
    assert_eq!(api.verb("k", "127.0.0.7:80", "down?reason=deploy").0, 200);
    api.ok("POST", "zones/main/flush", None);
    let cost = bytes(&nginx) - before;
    assert!((100..1000).contains(&cost), "{cost} bytes");
}

#[test]
fn long_journal_is_replaced_by_a_snapshot() {
    let nginx = conf("").start();
    let api = nginx.api();
    let reason = "x".repeat(200);
    put(&api, "k");
    // Each batch writes some 100 KB.
    let mut most = 0;
    for round in 0..scale(40, 200) {
        let ops: Vec<Value> = (0..100)
            .map(|i| json!({"op": "put", "upstream": format!("k{i}"), "body": {"servers": [
                {"server": "127.0.0.1:9", "labels": {"round": format!("{round}{}", &reason[..50])}}]}}))
            .collect();
        api.ok("POST", "batch", Some(&json!({"changes": ops})));
        most = most.max(bytes(&nginx));
    }
    api.ok("POST", "zones/main/flush", None);
    assert!(most < 6 << 20, "{most} bytes at most");
    eventually(secs(5), || journals(&nginx).len() <= 2);
    let first = fs::read_to_string(nginx.path("main.json")).unwrap();
    let head: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    let needed = head["data"]["journal"].as_u64().unwrap();
    let there = journals(&nginx);
    assert!(there[0].to_string_lossy().ends_with(&format!("-{needed}")), "{needed}: {there:?}");
}

/// Kills everything at some moment; `old` is how old an acknowledged change may be and be missing.
fn killed(parameters: &str, rounds: u64, old: Duration) {
    let mut nginx = conf(parameters).start();
    nginx.allow("exited on signal 9");
    let done: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
    for round in 0..rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|tag| {
                let (api, stop, done) = (nginx.api(), Arc::clone(&stop), Arc::clone(&done));
                thread::spawn(move || {
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let name = format!("k{tag}-{round}-{n}");
                        let body = json!({"servers": [{"server": "127.0.0.1:9"}]});
                        let put = api.request("PUT", &format!("upstreams/{name}"), Some(&body));
                        let Ok(reply) = put.send(api.addr()) else { return };
                        if reply.status == 201 {
                            done.lock().unwrap().push((name, Instant::now()));
                        }
                    }
                })
            })
            .collect();
        // Any moment within some 100 ms, another one in each round.
        let_pass(ms(20 + round * 37 % 97) + old.min(secs(2)) / 10);
        nginx.kill();
        let died = Instant::now();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
        nginx.start();
        let there = names(&nginx.api());
        let done_before = &done;
        let done = done.lock().unwrap();
        let must = done.iter().filter(|(_, at)| died.saturating_duration_since(*at) >= old);
        let missing: Vec<&String> =
            must.map(|(name, _)| name).filter(|name| !there.contains(*name)).collect();
        assert!(missing.is_empty(), "round {round}: {missing:?}");
        drop(done);
        if there.len() > 500 {
            clear(&nginx, &there);
            done_before.lock().unwrap().clear();
        }
    }
}

/// Leaves room for the next round.
fn clear(nginx: &Nginx, names: &BTreeSet<String>) {
    let ops: Vec<Value> =
        names.iter().map(|name| json!({"op": "delete", "upstream": name})).collect();
    nginx.api().ok("POST", "batch", Some(&json!({"changes": ops})));
    nginx.api().ok("POST", "zones/main/flush", None);
}

#[test]
fn what_was_acknowledged_with_flush_always_survives_a_crash_at_any_moment() {
    killed("flush=always", scale(8, 200), ms(0));
}

#[test]
fn what_is_older_than_the_interval_survives_a_crash_at_any_moment() {
    killed("", scale(4, 60), ms(1500));
}

/// An nginx that crashed with three changes on the disk, and the journal that has them.
fn crashed() -> (Nginx, PathBuf) {
    let mut nginx = conf("").start();
    let api = nginx.api();
    for name in ["k1", "k2", "k3"] {
        put(&api, name);
    }
    api.ok("POST", "zones/main/flush", None);
    nginx.kill();
    let file = journals(&nginx).pop().expect("there is one");
    (nginx, file)
}

#[test]
fn record_that_was_cut_off_is_dropped_with_a_warning() {
    let (mut nginx, file) = crashed();
    let text = fs::read(&file).unwrap();
    fs::write(&file, &text[..text.len() - 7]).unwrap();
    nginx.start();
    assert_eq!(names(&nginx.api()), ["k1", "k2"].map(String::from).into());
    assert!(nginx.error_log().contains("[warn]"), "{}", nginx.error_log());
    put(&nginx.api(), "k4");
    nginx.restart();
    assert_eq!(names(&nginx.api()), ["k1", "k2", "k4"].map(String::from).into());
    assert_eq!(files(nginx.prefix(), "main.json.journal-").len(), journals(&nginx).len());
}

#[test]
fn damaged_record_is_set_aside_with_what_follows_it() {
    let (mut nginx, file) = crashed();
    let mut text = fs::read(&file).unwrap();
    let at = String::from_utf8_lossy(&text).find("\"k2\"").unwrap();
    text[at + 2] ^= 4;
    fs::write(&file, &text).unwrap();
    nginx.allow("is damaged");
    nginx.allow("is set aside as");
    nginx.start();
    assert_eq!(names(&nginx.api()), ["k1"].map(String::from).into());
    let aside = files(nginx.prefix(), "main.json.journal-");
    let aside: Vec<_> = aside.iter().filter(|f| f.to_string_lossy().contains("damaged")).collect();
    assert_eq!(fs::read(aside[0]).unwrap(), text);
    put(&nginx.api(), "k5");
    nginx.restart();
    assert_eq!(names(&nginx.api()), ["k1", "k5"].map(String::from).into());
}

#[test]
fn files_removed_or_replaced_beneath_it_are_written_anew() {
    let mut nginx = conf("").start();
    let api = nginx.api();
    put(&api, "k1");
    api.ok("POST", "zones/main/flush", None);
    let old = fs::read(nginx.path("main.json")).unwrap();
    nginx.allow("write failed");
    for (name, spoil) in [
        (
            "k2",
            &(|nginx: &Nginx| fs::remove_file(nginx.path("main.json")).unwrap()) as &dyn Fn(&Nginx),
        ),
        ("k3", &|nginx| journals(nginx).iter().for_each(|file| fs::remove_file(file).unwrap())),
        ("k4", &|nginx| fs::write(nginx.path("main.json"), &old).unwrap()),
        ("k5", &|nginx| fs::remove_file(nginx.path("main.json.lock")).unwrap()),
    ] {
        spoil(&nginx);
        put(&api, name);
        eventually(secs(10), || api.post("zones/main/flush").0 == 200);
        nginx.kill();
        nginx.allow("exited on signal 9");
        nginx.start();
        assert!(names(&nginx.api()).contains(name), "{name}");
    }
    assert_eq!(names(&nginx.api()).len(), 5);
}
