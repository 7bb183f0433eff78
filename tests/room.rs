//! A full zone: refused with figures, nothing half-done, the operator's verbs still work, and room
//! comes back. (CASES 25, CONTRACT 4.)

mod support;

use std::fs;

use support::*;

fn conf(conf: Conf, zone: &str) -> Conf {
    let conf = conf.http(format!(
        "peerage_zone main {zone};
         upstream app {{ peerage main; server 10.9.9.1:8080; server 10.9.9.2:8080; }}"
    ));
    conf.with_api("write=on")
}

fn start() -> Nginx {
    conf(Nginx::builder(), "512k").allow("is full").start()
}

/// The size that a complaint asks for.
fn asked_for(text: &str) -> u64 {
    let rest = text.split(", at least ").nth(1).unwrap_or_else(|| panic!("no size: {text}"));
    rest.split('k').next().unwrap().parse().unwrap()
}

fn body(i: usize) -> Value {
    let labels = json!({"name": "x".repeat(i * 7 % 64)});
    let servers: Vec<Value> = (0..=i % 9)
        .map(|n| json!({"server": format!("10.8.{}.{n}:80", i % 250), "labels": labels}))
        .collect();
    json!({"servers": servers})
}

/// Adds upstreams from `i` on until one is refused; gives the next number and the refusal.
fn fill(api: &Api, mut i: usize) -> (usize, Value) {
    loop {
        let (status, answer) = api.put(&format!("upstreams/u{i}"), &body(i));
        match status {
            201 => i += 1,
            507 => return (i, answer),
            _ => panic!("{status} {answer}"),
        }
        assert!(i < 10_000, "a zone of 512k is never full");
    }
}

#[test]
fn a_full_zone_refuses_with_figures_and_leaves_everything_as_it_was() {
    let nginx = start();
    let api = nginx.api();
    let (n, problem) = fill(&api, 0);
    assert!(n > 50, "{n} upstreams fit");
    assert_eq!(problem["type"], "urn:peerage:no-room");
    assert!(problem["needed"].as_u64().unwrap() > 0, "{problem}");
    assert!(problem["free"].as_u64().unwrap() < problem["needed"].as_u64().unwrap(), "{problem}");
    let list = |path: &str| api.call("GET", path, None).text();
    let (before, zone) = (list("upstreams?limit=1000&fields=servers"), api.get("zones/main").1);
    for _ in 0..20 {
        assert_eq!(api.put(&format!("upstreams/u{n}"), &body(n)).0, 507);
        let more: Vec<Value> =
            (0..200).map(|i| json!({"server": format!("10.7.0.{i}:80")})).collect();
        assert_eq!(api.put("upstreams/app", &json!({"servers": more})).0, 507);
        assert_eq!(api.put("upstreams/u1", &json!({"servers": more})).0, 507);
    }
    assert_eq!(list("upstreams?limit=1000&fields=servers"), before);
    let after = api.get("zones/main").1;
    assert_eq!((&after["revision"], &after["upstreams"]), (&zone["revision"], &zone["upstreams"]));
    assert_eq!(after["bytes"]["used"], zone["bytes"]["used"], "nothing half-done");
    assert!(after["no_room"].as_u64().unwrap() >= 61, "{after}");
    assert_eq!(nginx.error_log().matches("is full").count(), 1, "one line a minute");
}

#[test]
fn verbs_and_weights_never_fail_for_lack_of_room() {
    let nginx = start();
    let api = nginx.api();
    let (n, _) = fill(&api, 0);
    let reason = "r".repeat(200);
    for i in 0..n {
        let server = format!("10.8.{}.0:80", i % 250);
        let path = format!("upstreams/u{i}/servers/{server}");
        for (call, want) in [
            (format!("{path}/down?reason={reason}"), "down"),
            (format!("{path}/drain"), "draining"),
        ] {
            let (status, answer) = api.post(&call);
            assert_eq!(
                (status, &answer["server"]["state"]),
                (200, &json!(want)),
                "{call}: {answer}"
            );
        }
        assert_eq!(api.patch(&path, &json!({"weight": 65_000})).0, 200);
    }
    // What is cut of a long reason is still told from another that begins alike.
    let (ours, other) = ("release-2026-11-29-812", "release-2026-11-29-813");
    let server = "upstreams/u7/servers/10.8.7.0:80";
    assert_eq!(api.post(&format!("{server}/up")).0, 200);
    let down = format!("{server}/down?reason={ours}&if_reason={ours}");
    let (status, answer) = api.post(&down);
    assert_eq!((status, &answer["changed"]), (200, &json!(true)), "{answer}");
    let kept = answer["server"]["admin"]["reason"].as_str().unwrap();
    assert!(ours.starts_with(&kept[..6]) && kept.len() <= ours.len(), "{kept}");
    assert_eq!(api.post(&down).1["changed"], false, "what is so already");
    assert_eq!(api.post(&format!("{server}/up?if_reason={other}")).0, 409);
    assert_eq!(api.post(&format!("{server}/up?if_reason={ours}")).0, 200);
    for server in ["10.9.9.1:8080", "10.9.9.2:8080"] {
        assert_eq!(api.verb("app", server, "down?wait=2s").0, 200);
        assert_eq!(api.verb("app", server, "up?wait=2s").0, 200);
    }
}

#[test]
fn room_comes_back_when_a_tenth_goes() {
    let nginx = start();
    let api = nginx.api();
    let (mut n, _) = fill(&api, 0);
    let mut alive: Vec<usize> = (0..n).collect();
    let mut counts = Vec::new();
    for round in 0..scale(12, 200) {
        let removed: Vec<usize> = alive.iter().copied().skip(round % 10).step_by(10).collect();
        for i in &removed {
            assert_eq!(api.delete(&format!("upstreams/u{i}")).0, 200);
        }
        alive.retain(|i| !removed.contains(i));
        let begun = n;
        n = eventually(secs(5), || {
            let (next, _) = fill(&api, n);
            n = next;
            (n > begun).then_some(next)
        });
        alive.extend(begun..n);
        counts.push(alive.len());
        assert_eq!(api.get("zones/main").1["upstreams"].as_u64().unwrap(), alive.len() as u64 + 1);
    }
    // Sizes differ, so the number does a little; it never creeps down.
    let (first, last) = (counts[0], counts[counts.len() - 1]);
    assert!(last * 100 >= first * 90, "{counts:?}");
    for i in alive {
        assert_eq!(api.delete(&format!("upstreams/u{i}")).0, 200);
    }
    let (again, _) = fill(&api, 0);
    assert!(again * 100 >= counts[0] * 95, "{again} fit, there were {counts:?}");
}

#[test]
fn smallest_zone_is_filled_refuses_and_has_its_room_back() {
    let events = "worker_connections 512;"; // nginx's own default
    let least = asked_for(&conf(Nginx::builder(), "32k").events(events).test().1);
    let smallest = format!("{least}k");
    let nginx = conf(Nginx::builder(), &smallest).events(events).allow("is full").start();
    let api = nginx.api();
    let (mut n, _) = fill(&api, 0);
    assert!(n > 1, "{n}");
    let mut alive: Vec<usize> = (0..n).collect();
    for round in 0..scale(20, 400) {
        assert_eq!(api.verb("app", "10.9.9.1:8080", "down").0, 200);
        assert_eq!(api.verb("app", "10.9.9.1:8080", "up").0, 200);
        let gone = alive.remove(round % alive.len());
        assert_eq!(api.delete(&format!("upstreams/u{gone}")).0, 200);
        let begun = n;
        // Sizes differ: what went may make room for none of the next, and for several later.
        n = fill(&api, n).0 + 1;
        alive.extend(begun..n - 1);
        let zone = api.get("zones/main").1;
        assert_eq!(zone["upstreams"].as_u64().unwrap(), alive.len() as u64 + 1);
        if alive.len() < 2 {
            // Only one large upstream is left: all goes, and all comes back.
            for i in alive.drain(..) {
                assert_eq!(api.delete(&format!("upstreams/u{i}")).0, 200);
            }
            n = fill(&api, 0).0;
            alive.extend(0..n);
        }
    }
    assert!(nginx.error_log().matches("is full").count() <= 2, "one line a minute");
}

#[test]
fn zone_too_small_for_its_state_file_is_a_warning_at_t_and_starts_with_what_fits() {
    let state = |size: &str| format!("{size} state={{prefix}}/main.json");
    let mut nginx =
        conf(Nginx::builder(), &state("4m")).allow("is full").allow("is kept as").start();
    let api = nginx.api();
    let set: Vec<Value> = (0..20).map(|n| json!({"server": format!("10.0.0.{n}:80")})).collect();
    for n in 0..100 {
        api.ok("PUT", &format!("upstreams/u{n}"), Some(&json!({"servers": set})));
    }
    api.ok("POST", "hosts/10.0.0.7/drain?min_up=0", None);
    nginx.stop();
    let file = nginx.path("main.json");
    assert!(nginx.test().0); // makes its files
    let (disk, listed) = (identity(&file), files(nginx.prefix(), "").len());

    nginx.change(|c| conf(c, &state("256k")));
    let (good, said) = nginx.test();
    let told = "[warn] ";
    let text = "peerage zone \"main\" is too small for its state file: 256k, at least ";
    let line = said.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{said}"));
    assert!(good && line.contains(told), "{said}");
    assert_eq!(identity(&file), disk);
    assert_eq!(files(nginx.prefix(), "").len(), listed);

    // It starts all the same; the next write leaves out what did not fit, so a copy stays.
    nginx.start();
    let log = nginx.error_log();
    assert!(log.contains(text) && log.contains("upstreams not added"), "{log}");
    api.server("app", "10.9.9.1:8080"); // what blocks name comes first
    let there = api.get("zones/main").1["upstreams"].as_u64().unwrap();
    assert!(there > 5 && there < 90, "{there}");
    assert_eq!(api.get("hosts/10.0.0.7").1["admin"]["state"], "drain");
    api.ok("POST", "upstreams/app/servers/10.9.9.1:8080/down", None);
    api.ok("POST", "zones/main/flush", None);
    nginx.stop();
    let copies = files(nginx.prefix(), "main.json.left-");
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(fs::read_to_string(&copies[0]).unwrap().contains("\"end\":101"));

    // What was asked for is enough, and hardly more than that.
    fs::copy(&copies[0], &file).unwrap();
    let need = asked_for(line);
    nginx.change(|c| conf(c, &state(&format!("{}k", need - 4))));
    assert!(nginx.test().1.contains("is too small for its state file"));
    nginx.change(|c| conf(c, &state(&format!("{need}k"))));
    assert!(!nginx.test().1.contains("[warn]"));
    nginx.start();
    assert_eq!(api.get("zones/main").1["upstreams"], 101);
    assert_eq!(files(nginx.prefix(), "main.json.left-").len(), 1);
}

#[test]
fn what_still_fits_is_about_what_does() {
    let nginx = conf(Nginx::builder(), "1m").allow("is full").start();
    let api = nginx.api();
    let told = api.get("zones/main").1["fits"].as_u64().unwrap();
    let ten: Vec<Value> = (0..10).map(|n| json!({"server": format!("10.0.0.{n}:8080")})).collect();
    let mut fitted = 0;
    for n in 0.. {
        match api.put(&format!("upstreams/service-{n}"), &json!({"servers": ten})).0 {
            201 => fitted += 10,
            507 => break,
            status => panic!("{status}"),
        }
    }
    assert!(told.abs_diff(fitted) * 20 <= told, "{told} told, {fitted} fit");
}
