//! A worker that is killed in the middle of a batch: all of it is there, or nothing.
mod support;

use serde_json::{Value, json};
use support::*;

/// Puts two upstreams and takes a host down, as one batch numbered `n`.
fn batch(n: u32) -> Value {
    let servers = json!([{"server": format!("127.0.0.1:{}", 10_000 + n)}]);
    json!({"changes": [
        {"op": "put", "upstream": "one", "body": {"servers": servers}},
        {"op": "put", "upstream": "two", "body": {"servers": servers}},
        {"op": "down", "host": "127.0.0.9", "missing": "ok", "reason": format!("batch {n}")},
        {"op": "put", "upstream": format!("new-{n}"), "body": {"servers": servers}},
        {"op": "delete", "upstream": format!("new-{}", n - 1), "force": true},
    ]})
}

/// Which batch each part is of.
fn seen(api: &Api) -> Vec<String> {
    let port = |name: &str| {
        let (status, body) = api.get(&format!("upstreams/{name}"));
        if status == 200 { body["servers"][0]["server"].to_string() } else { "none".into() }
    };
    let (_, host) = api.get("hosts/127.0.0.9");
    let names = api.get("upstreams").1;
    let new: Vec<&String> =
        names.as_object().unwrap().keys().filter(|n| n.starts_with("new")).collect();
    vec![port("one"), port("two"), host["admin"]["reason"].to_string(), format!("{new:?}")]
}

fn killed_at(point: &str, in_force: bool) {
    let conf = Nginx::faulty()
        .workers(1)
        .http("peerage_zone main 1m; upstream keyed { peerage main name=$arg_u; }")
        .with_api("write=on")
        .main("env PEERAGE_POINT;")
        .allow("exited on signal 9")
        .allow("was locked by");
    let nginx = conf.env("PEERAGE_POINT", format!("{point}:kill:2")).start();
    let api = nginx.api();
    api.ok("PUT", "upstreams/new-0", Some(&json!({"servers": []})));
    for round in 0..scale(3, 20) {
        // The first batch of a process passes, its second one kills it.
        let (first, second) = (2 * round + 1, 2 * round + 2);
        let revision = api.ok("POST", "batch", Some(&batch(first)))["revision"].as_u64().unwrap();
        let before = seen(&api);
        let worker = nginx.worker_pids();
        let request = api.request("POST", "batch", Some(&batch(second)));
        assert!(request.send(api.addr()).is_err(), "the worker died before it answered");
        eventually(secs(20), || !nginx.worker_pids().is_empty() && nginx.worker_pids() != worker);
        let after = eventually(secs(20), || within(secs(1), || Some(seen(&api))));
        let (_, root) = api.get("");
        let now = root["revision"].as_u64().unwrap();
        // Whoever repairs the zone leaves a revision out.
        let at = |expected: u64| (expected..=expected + 1).contains(&now);
        if in_force {
            assert!(at(revision + 1), "{now} after {revision}");
            assert!(after.iter().zip(&before).all(|(a, b)| a != b), "{before:?} {after:?}");
        } else {
            assert!(at(revision), "{now} after {revision}");
            assert_eq!(after, before);
            // What it began must not stand in the way of the same names.
            api.ok("POST", "batch", Some(&batch(second)));
            let worker = nginx.worker_pids();
            let last = api.request("POST", "batch", Some(&batch(second + 1)));
            assert!(last.send(api.addr()).is_err());
            eventually(secs(20), || {
                nginx.worker_pids() != worker && !nginx.worker_pids().is_empty()
            });
        }
    }
}

#[test]
fn a_batch_whose_writer_dies_before_its_revision_is_stored_is_not_there() {
    killed_at("batch.pending", false);
}

#[test]
fn a_batch_whose_writer_dies_after_its_revision_is_stored_is_there_whole() {
    killed_at("batch.committed", true);
}
