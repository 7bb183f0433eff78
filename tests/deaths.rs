//! Workers that die or stop at the wrong moment: what they held is taken back, nobody waits for
//! them, nobody spins.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use support::*;

const APP: &str = "
    peerage_zone main 1m state={prefix}/main.json;
    upstream app { peerage main; server {b1} max_conns=5; server {b2}; server {b3}; keepalive 4; }
    server {
        listen {web};
        location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ''; }
    }";

fn app(conf: Conf, b: &[Backend]) -> Conf {
    let conf =
        conf.http(APP).with_api("write=on").allow("exited on signal 9").allow("was locked by");
    b.iter().fold(conf, |conf, b| conf.set(&b.name(), b))
}

/// Requests in flight as the API shows them, of all servers together.
fn active(nginx: &Nginx) -> u64 {
    let upstream = nginx.api().upstream("app");
    let servers = upstream["servers"].as_array().unwrap();
    servers.iter().map(|server| server["active"].as_u64().unwrap()).sum()
}

/// Every process of this nginx is idle: almost no time of the processor goes by.
fn nobody_spins(nginx: &Nginx) {
    let pids = nginx.worker_pids();
    let before: Vec<u64> = pids.iter().map(|pid| cpu_ticks(*pid)).collect();
    let_pass(secs(2));
    for (pid, before) in pids.iter().zip(before) {
        let ticks = cpu_ticks(*pid).saturating_sub(before);
        assert!(ticks <= 20, "worker {pid} used {ticks} ticks in 2 s of nothing to do");
    }
}

/// What a sender of updates has seen.
#[derive(Default)]
struct Updates {
    stop: AtomicBool,
    done: AtomicU64,
    refused: AtomicU64,
}

impl Updates {
    /// Weights, a fourth server and an upstream come and go; answers may be lost with a worker.
    fn send(&self, api: &Api) {
        // The first worker may die of this very question.
        let get = api.request("GET", "upstreams/app", None);
        let app = eventually(secs(20), || get.send(api.addr()).ok()).json();
        let servers: Vec<String> = app["servers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|server| server["server"].as_str().unwrap().to_string())
            .collect();
        let extra = "upstreams/app/servers/127.0.9.9:9";
        let other = json!({"servers": [{"server": "127.0.9.9:9"}, {"server": "127.0.9.8:9"}]});
        let weight = |w: u64| json!({ "weight": w });
        for turn in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let target = format!("upstreams/app/servers/{}", servers[1 + turn % 2]);
            let request = match turn % 5 {
                0 => api.request("PATCH", &target, Some(&weight(1 + turn as u64 % 3))),
                1 => api.request("PUT", extra, Some(&json!({"weight": 0}))),
                2 => api.request("PUT", "upstreams/other", Some(&other)),
                3 => api.request("DELETE", extra, None),
                _ => api.request("DELETE", "upstreams/other", None),
            };
            let Ok(reply) = request.send(api.addr()) else { continue };
            assert!([200, 201, 404, 503].contains(&reply.status), "{}", reply.text());
            let count = if reply.status == 503 { &self.refused } else { &self.done };
            count.fetch_add(1, Ordering::SeqCst);
            let_pass(ms(2));
        }
    }
}

/// Runs `story` while updates go on; gives how many were done.
fn amid_updates(nginx: &Nginx, story: impl FnOnce(&Updates)) -> u64 {
    let updates = Updates::default();
    let api = nginx.api();
    thread::scope(|scope| {
        let sender = scope.spawn(|| updates.send(&api));
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story(&updates)));
        updates.stop.store(true, Ordering::SeqCst);
        sender.join().expect("updates are answered as they should");
        if let Err(panic) = told {
            std::panic::resume_unwind(panic);
        }
    });
    updates.done.load(Ordering::SeqCst)
}

/// Every worker gives the same listing, and a change reaches each.
fn workers_agree(nginx: &Nginx) {
    let api = nginx.api();
    let listing = || {
        let mut upstream = api.upstream("app");
        for server in upstream["servers"].as_array_mut().unwrap() {
            server.as_object_mut().unwrap().remove("counters");
        }
        (upstream, api.get("upstreams/other").0)
    };
    let first = listing();
    for _ in 0..20 {
        assert_eq!(listing(), first);
    }
}

/// CASE 16.
#[test]
fn killed_workers_leave_no_count_behind_and_service_goes_on() {
    let b = Backend::several(3);
    let nginx = app(Nginx::builder(), &b).workers(4).start();
    let load = Load::to(nginx.web()).path("/").path("/slow?ms=40").threads(6).rate(200).start();
    let done = amid_updates(&nginx, |updates| {
        for kill in 0..scale(12, 200) {
            let (sent, changed) = (load.total(), updates.done.load(Ordering::SeqCst));
            let pids = nginx.worker_pids();
            let victim = pids[(kill * 7 + sent as usize) % pids.len()];
            signal(victim, Signal::KILL);
            eventually(secs(20), || nginx.worker_pids().len() == 4 && !alive(victim));
            eventually(secs(20), || {
                load.total() > sent + 10 && updates.done.load(Ordering::SeqCst) > changed + 2
            });
        }
    });
    assert!(done > 30, "{done}");
    let report = load.stop();
    assert!(report.failed() * 10 <= report.total, "{:?} {:?}", report.statuses, report.errors);
    eventually(secs(2), || active(&nginx) == 0);
    workers_agree(&nginx);
    nobody_spins(&nginx);
    max_conns_is_whole(&nginx, &b);
}

/// b1 takes its five requests and not one more.
fn max_conns_is_whole(nginx: &Nginx, b: &[Backend]) {
    for other in &b[1..] {
        nginx.api().verb("app", other, "down");
    }
    b[0].mode(Mode::Hold);
    let mut conns: Vec<Conn> = (0..5).map(|_| Conn::open(nginx.web()).unwrap()).collect();
    conns.iter_mut().for_each(|conn| conn.begin(&Request::get("/")).unwrap());
    eventually(secs(10), || b[0].held() == 5);
    assert_eq!(nginx.get("/").status, 502);
    b[0].mode(Mode::Serve);
    b[0].release();
    conns.iter_mut().for_each(|conn| assert_eq!(conn.reply().unwrap().status, 200));
    eventually(secs(2), || active(nginx) == 0);
}

#[test]
fn a_killed_worker_that_was_draining_gives_back_what_it_held() {
    let b = Backend::several(3);
    let mut nginx = app(Nginx::builder(), &b).workers(2).start();
    let mut held: Vec<Conn> = (0..9).map(|_| Conn::open(nginx.web()).unwrap()).collect();
    held.iter_mut().for_each(|conn| conn.begin(&Request::get("/hold")).unwrap());
    let all = || b.iter().map(Backend::held).sum::<usize>();
    eventually(secs(10), || all() == 9);
    nginx.reload();
    nginx.reload();
    assert_eq!(active(&nginx), 9, "the old generation's requests count");
    let mut wait = Conn::open(nginx.api().addr()).unwrap();
    let path = format!("upstreams/app/servers/{}/down?wait=60s", b[1]);
    wait.begin(&nginx.api().request("POST", &path, None)).unwrap();
    assert!(wait.silent_for(ms(300)));
    let leaving = nginx.leaving_pids();
    assert!(!leaving.is_empty());
    leaving.iter().for_each(|pid| signal(*pid, Signal::KILL));
    eventually(secs(10), || !leaving.iter().any(|pid| alive(*pid)));
    eventually(secs(2), || active(&nginx) == 0);
    let reply = wait.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["drained"]), (200, &json!(true)));
    nginx.settled(2);
    hit(nginx.web(), "/", 10).all_ok();
}

/// CASE 34, at any moment: what the worker was doing is left to chance.
#[test]
fn a_stopped_worker_holds_up_neither_traffic_nor_reload_nor_writers() {
    let b = Backend::several(3);
    let nginx = app(Nginx::builder(), &b).workers(4).start();
    for round in 0..scale(3, 20) {
        let load = Load::to(nginx.web()).path("/").path("/slow?ms=20").threads(4).rate(150).start();
        let old = nginx.worker_pids();
        let victim = old[round % old.len()];
        amid_updates(&nginx, |updates| {
            let (sent, done) = (load.total(), updates.done.load(Ordering::SeqCst));
            eventually(secs(20), || load.total() > sent + 10);
            signal(victim, Signal::STOP);
            eventually(secs(5), || stopped(victim));
            let (ok, refused) = (load.total() - load.failed(), &updates.refused);
            eventually(secs(30), || load.total() - load.failed() > ok + 60);
            eventually(secs(30), || {
                updates.done.load(Ordering::SeqCst) + refused.load(Ordering::SeqCst) > done + 10
            });
            nginx.hup();
            let is_new = |pid: &u32| !old.contains(pid);
            eventually(secs(30), || nginx.worker_pids().iter().filter(|p| is_new(p)).count() == 4);
            let (ok, went_on) = (load.total() - load.failed(), updates.done.load(Ordering::SeqCst));
            eventually(secs(30), || load.total() - load.failed() > ok + 60);
            let_pass(scale(ms(500), secs(10)));
            assert!(stopped(victim));
            signal(victim, Signal::CONT);
            eventually(secs(30), || updates.done.load(Ordering::SeqCst) > went_on + 10);
        });
        nginx.settled(4);
        let report = load.stop();
        assert!(report.failed() * 20 <= report.total, "{:?} {:?}", report.statuses, report.errors);
        eventually(secs(2), || active(&nginx) == 0);
    }
    workers_agree(&nginx);
    nobody_spins(&nginx);
    max_conns_is_whole(&nginx, &b);
}

/// CASE 34, in the middle of a write: it holds the zone's lock.
#[test]
fn a_writer_that_is_stopped_with_the_lock_leaves_others_a_503_and_then_goes_on() {
    let b = Backend::several(3);
    let conf = app(Nginx::faulty(), &b).workers(3);
    let nginx =
        conf.env("PEERAGE_POINT", "limbo.filled:stop:25").main("env PEERAGE_POINT;").start();
    let api = nginx.api();
    let path = format!("upstreams/app/servers/{}", b[1]);
    let write = |weight: u64| api.request("PATCH", &path, Some(&json!({ "weight": weight })));
    let mut writer = Conn::open(api.addr()).unwrap();
    let mut last = 1;
    let victim = eventually(secs(20), || {
        last = last % 5 + 1;
        writer.begin(&write(last).timeout(secs(60))).unwrap();
        within(secs(20), || {
            let stopped = nginx.worker_pids().into_iter().find(|pid| stopped(*pid));
            (stopped.is_some() || !writer.silent_for(ms(1))).then_some(stopped)
        })?
        .or_else(|| writer.reply().map(|r| assert_eq!(r.status, 200)).map(|()| None).unwrap())
    });
    hit(nginx.web(), "/", 30).all_ok();
    let (status, body) = api.patch(&path, &json!({"weight": 9}));
    assert_eq!((status, &body["type"]), (503, &json!("urn:peerage:busy")), "{body}");
    let old = nginx.worker_pids();
    nginx.hup();
    let is_new = |pid: &u32| !old.contains(pid);
    eventually(secs(30), || nginx.worker_pids().iter().filter(|p| is_new(p)).count() == 3);
    hit(nginx.web(), "/", 30).all_ok();
    assert_eq!(api.upstream("app")["servers"].as_array().unwrap().len(), 3);
    holds_for(scale(ms(500), secs(10)), || stopped(victim));
    signal(victim, Signal::CONT);
    assert_eq!(writer.reply().unwrap().status, 200);
    assert_eq!(api.server("app", &b[1])["weight"], last);
    nginx.settled(3);
    for weight in [7, 8] {
        eventually(secs(20), || api.patch(&path, &json!({ "weight": weight })).0 == 200);
    }
    workers_agree(&nginx);
    eventually(secs(2), || active(&nginx) == 0);
    nobody_spins(&nginx);
}
