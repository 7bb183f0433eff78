//! The state file: what is in it, who writes it, and what is there after an end of any kind.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use support::saved::{A, B, conf, fill, flush, listing, saved, state};
use support::*;

fn writer(api: &Api) -> u32 {
    let pid = eventually(secs(10), || state(api)["writer"].as_u64());
    u32::try_from(pid).unwrap()
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
    assert!(files(nginx.prefix(), "main.json.tmp").is_empty(), "no drafts are left");
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
fn flush_is_answered_soon_however_long_changes_may_wait() {
    let nginx = conf("state={prefix}/main.json flush=10m").workers(3).start();
    let api = nginx.api();
    assert_eq!(flush(&api).0, 200);
    let_pass(ms(300)); // nothing to do was seen
    fill(&api);
    holds_for(secs(1), || state(&api)["lag"].as_u64() > Some(0));
    let begun = Instant::now();
    assert_eq!(flush(&api).0, 200);
    assert!(begun.elapsed() < secs(20), "{:?}", begun.elapsed());
    assert_eq!(state(&api)["lag"], 0);
}

#[test]
fn file_is_private_lines_of_json_with_checksums() {
    let nginx = saved().start();
    let api = nginx.api();
    fill(&api);
    assert_eq!(flush(&api).0, 200);
    let mut lines = Vec::new();
    for file in files(nginx.prefix(), "main.json") {
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600, "{file:?}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{file:?}");
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let data = line.split_once("\"data\":").unwrap().1.strip_suffix('}').unwrap();
            assert_eq!(value["sum"], format!("{:08x}", crc32c(data.as_bytes())), "{line}");
            lines.push(value["data"].clone());
        }
    }
    let firsts: Vec<_> = lines.iter().filter(|line| line["format"] == 2).collect();
    assert!(firsts.len() >= 2 && firsts.iter().all(|line| line["zone"] == "main"), "{firsts:?}");
    let changes = lines.iter().filter_map(|line| line["changes"].as_array()).flatten();
    let servers = changes.filter(|change| change["upstream"] == "own").map(|c| &c["servers"]);
    let racks: Vec<_> =
        servers.filter_map(|servers| servers[0]["labels"]["rack"].as_str()).collect();
    assert_eq!(racks, ["ä \"1\""]);
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
        assert!(written(&nginx.path("main.json")).contains(&format!("\"k{round}\"")));
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
    let written = || written(&nginx.path("main.json"));
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
        assert!(written(&nginx.path("main.json")).contains(&format!("\"r{round}\"")));
    }
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
