//! Who probes: one worker of the whole nginx at a time, whatever becomes of it.

mod support;

use std::time::Instant;

use support::*;

/// Eight workers, and so many backends that each worker has some.
fn many(n: usize, check: &str) -> (Vec<Backend>, Conf) {
    let backends = Backend::several(n);
    let servers: String = backends.iter().map(|b| format!("server {b};")).collect();
    let conf = Nginx::builder().workers(8).http(format!(
        "peerage_zone main 2m;
         upstream app {{ peerage main; {check} {servers} }}
         server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
    ));
    (backends, conf.with_api("write=on").allow("exited on signal 9"))
}

/// Lets a time pass, and looks that each backend was probed once an interval meanwhile, but for one
/// more or less.
#[track_caller]
fn once_an_interval(backends: &[Backend], interval: u64, during: impl FnOnce()) {
    let before: Vec<u64> = backends.iter().map(Backend::requests).collect();
    let began = Instant::now();
    during();
    let took = u64::try_from(began.elapsed().as_millis()).unwrap();
    let now: Vec<u64> = backends.iter().map(Backend::requests).collect();
    let (least, most) = ((took / interval).saturating_sub(1), took.div_ceil(interval) + 1);
    for (i, (before, now)) in before.iter().zip(&now).enumerate() {
        let probes = now - before;
        assert!((least..=most).contains(&probes), "b{}: {probes}, {least} to {most}", i + 1);
    }
}

#[track_caller]
fn begun(backends: &[Backend]) {
    eventually(secs(5), || backends.iter().all(|b| b.requests() > 1));
}

#[test]
fn eight_workers_probe_each_server_once_an_interval_through_kills_stops_and_reloads() {
    let (backends, conf) = many(24, "peerage_check interval=1s jitter=0%;");
    let mut nginx = conf.start();
    begun(&backends);
    once_an_interval(&backends, 1_000, || let_pass(secs(3)));
    // Its parts go to others within two intervals.
    once_an_interval(&backends, 1_000, || {
        signal(nginx.worker_pids()[3], Signal::KILL);
        let_pass(secs(3));
    });
    eventually(secs(5), || nginx.worker_pids().len() == 8);
    once_an_interval(&backends, 1_000, || {
        nginx.reload();
        let_pass(secs(2));
        nginx.reload();
        let_pass(secs(2));
    });
    let paused = nginx.worker_pids()[5];
    once_an_interval(&backends, 1_000, || {
        // What is due within the lease's time comes late, and is not made up for.
        signal(paused, Signal::STOP);
        let_pass(secs(scale(4, 10)));
        signal(paused, Signal::CONT);
        let_pass(secs(2));
    });
    assert!(!nginx.error_log().contains("unhealthy"), "{}", nginx.error_log());
}

#[test]
fn who_was_stopped_tells_of_no_time_outs_of_its_own() {
    let (backends, conf) = many(16, "peerage_check interval=500ms timeout=300ms fails=1;");
    let nginx = conf.start();
    begun(&backends);
    for pid in nginx.worker_pids() {
        signal(pid, Signal::STOP);
    }
    let_pass(secs(3));
    for pid in nginx.worker_pids() {
        signal(pid, Signal::CONT);
    }
    let before: u64 = backends.iter().map(Backend::requests).sum();
    eventually(secs(5), || backends.iter().map(Backend::requests).sum::<u64>() > before + 48);
    assert!(!nginx.error_log().contains("unhealthy"), "{}", nginx.error_log());
}

#[test]
fn probes_are_spread_over_the_interval_and_over_the_workers() {
    let (backends, conf) = many(40, "peerage_check interval=2s type=tcp;");
    let nginx = conf.start();
    eventually(secs(8), || backends.iter().all(|b| b.accepted() > 1));
    let mut slots = [0; 8];
    let start = Instant::now();
    let mut last: Vec<u64> = backends.iter().map(Backend::accepted).collect();
    for slot in &mut slots {
        let_pass(ms(250));
        for (b, last) in backends.iter().zip(&mut last) {
            let now = b.accepted();
            *slot += now - *last;
            *last = now;
        }
    }
    if start.elapsed() < ms(2_200) {
        assert!(slots.iter().all(|n| *n <= 20), "{slots:?}");
    }
    drop(nginx);
}

#[test]
fn a_worker_that_dies_leaves_its_servers_to_others_within_two_intervals() {
    let (mut backends, conf) = many(16, "peerage_check interval=500ms fails=1;");
    let nginx = conf.start();
    begun(&backends);
    for _ in 0..scale(3, 20) {
        for pid in nginx.worker_pids().into_iter().take(4) {
            signal(pid, Signal::KILL);
        }
        let counts: Vec<u64> = backends.iter().map(Backend::requests).collect();
        eventually(ms(1_500), || {
            backends.iter().zip(&counts).all(|(b, before)| b.requests() > *before)
        });
    }
    backends[0].stop();
    let began = Instant::now();
    eventually(secs(3), || nginx.api().server("app", &backends[0])["state"] == "unhealthy");
    assert!(began.elapsed() < ms(2_000));
}

#[test]
fn probes_take_a_quarter_of_the_connections_at_most_and_the_dead_delay_nobody() {
    let dead = FullQueue::new();
    let live = Backend::several(4);
    let servers: String = live.iter().map(|b| format!("server {b};")).collect();
    let nginx = Nginx::builder()
        .workers(1)
        .events("worker_connections 64;")
        .http(format!(
            "peerage_zone main 2m;
             upstream app {{ peerage main; peerage_check interval=1s timeout=1s; {servers} }}
             server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
        ))
        .with_api("write=on")
        .start();
    begun(&live);
    let body = json!({ "servers": [{ "server": dead.addr.to_string() }] });
    let api = nginx.api();
    for i in 0..60 {
        let check = json!({ "interval": "1s", "timeout": "1s", "type": "tcp" });
        let mut body = body.clone();
        body["check"] = check;
        api.ok("PUT", &format!("upstreams/rack{i}"), Some(&body));
    }
    once_an_interval(&live, 1_000, || {
        for _ in 0..40 {
            let_pass(ms(100));
            let open = descriptors(nginx.worker_pids()[0]);
            assert!(open < 16 + 40, "{open} descriptors");
        }
    });
    hit(nginx.web(), "/", 20).all_ok();
}

#[test]
fn a_single_process_probes_until_it_is_reloaded() {
    let (backends, conf) = many(4, "peerage_check interval=200ms;");
    let nginx = conf.single().start();
    once_an_interval(&backends, 200, || {
        begun(&backends);
        let_pass(secs(1));
    });
    // nginx gives it no connections from then on: it asks for none, and says so of no peer.
    nginx.hup();
    eventually(secs(5), || nginx.error_log().contains("reconfiguring"));
    let_pass(secs(2));
    let seen = nginx.error_log();
    assert!(!seen.contains("not enough") && !seen.contains("unhealthy"), "{seen}");
}

#[test]
fn a_probe_that_panics_is_no_end_of_probing() {
    let b1 = Backend::new("b1");
    let nginx = Nginx::faulty()
        .http(
            "peerage_zone main 2m;
             upstream app { peerage main; peerage_check interval=200ms uri=/panic; server {b1}; }",
        )
        .with_api("write=on")
        .set("b1", &b1)
        .allow("panic")
        .start();
    let panics = || nginx.error_log().matches("a test asks for it").count();
    eventually(secs(5), || panics() >= 3);
    nginx.api().ok("PATCH", "upstreams/app", Some(&json!({ "check": { "uri": "/" } })));
    eventually(secs(3), || b1.requests() >= 3);
}
