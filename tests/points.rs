//! Workers that die or stop at every named point of the code, amid traffic and changes: service
//! goes on, and afterwards everything is as the clients know it must be.
//!
//! The points are those that the build with fault points has; one that no worker comes to fails
//! the story.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use support::*;

/// What leads a worker to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Traffic and changes, after these strikes.
    Work,
    /// More reloads than there are places for, with old workers that stay.
    Crowd,
    /// The end of nginx.
    End,
    /// Another nginx that writes the file.
    Follow,
}

/// The way to a point, and who has to be struck before somebody comes there.
fn way(point: &str) -> (Way, Vec<Strike>) {
    let work = |strikes| (Way::Work, strikes);
    match point {
        "slots.entered" => (Way::Crowd, vec![]),
        "last.begun" | "last.written" | "resign.said" => (Way::End, vec![]),
        "adoption.sliced" | "adoption.ended" => (Way::Follow, vec![]),
        // A new owner of the file.
        "duty.taken" | "lead.begun" | "fence.entered" | "file.created" => {
            work(vec![Strike::kill("helper.told", 3)])
        }
        // Who repairs the zone, and the snapshot that is needed then.
        "recover.cleared" | "recover.marked" | "recover.adopted" | "checkpoint.sliced"
        | "draft.settled" | "draft.renamed" | "draft.replaced" | "file.removed" => {
            work(vec![Strike::kill("limbo.filled", 3)])
        }
        // Who looks what ends next, after somebody died who may have known.
        "ends.begun" | "ends.looked" => work(vec![Strike::kill("limbo.filled", 3)]),
        // Who takes back what a dead one held.
        "sweep.settled" => work(vec![Strike::kill("acquire.counted", 9)]),
        "sweep.claimed" | "sweep.resolved" | "sweep.undone" | "sweep.freed" => {
            work(vec![Strike::kill("pick.counted", 9)])
        }
        // Who replaces the tag of one that is in the middle of its step.
        "tag.known" => work(vec![Strike::stop("acquire.counted", 9)]),
        _ => work(vec![]),
    }
}

/// An nginx whose workers follow a plan.
struct Stage {
    nginx: Nginx,
    points: Points,
    backends: Vec<Backend>,
    flush: Flush,
}

/// Half of all have one, half the other; the last is for what is written at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    Soon,
    Always,
    Late,
}

const WORKERS: usize = 2;
const CLIENTS: usize = 2;
/// None of them asks for the same upstreams alone.
const THREADS: usize = 3;

impl Stage {
    fn new(flush: Flush, state: Option<&str>) -> Self {
        let how = match flush {
            Flush::Soon => "",
            Flush::Always => "flush=always",
            Flush::Late => "flush=10m",
        };
        let conf = Nginx::faulty().workers(WORKERS).http(format!(
            "peerage_zone main 16m state={} {how};
             upstream any {{ peerage main name=$arg_u match=k*; keepalive 4; }}
             upstream checked {{ peerage main; peerage_check type=tcp interval=100ms; server {{web}}; }}
             server {{ listen {{web}}; location / {{ proxy_pass http://any; }} }}
             server {{
                 listen {{api}};
                 location /api {{
                     peerage_api write=on;
                     client_max_body_size 8m;
                     add_header X-Worker $pid always;
                 }}
             }}",
            state.unwrap_or("{prefix}/main.json")
        ));
        let conf = conf.allow("exited on signal 9").allow("was locked by");
        let (conf, points) = Points::of(conf);
        Self { nginx: conf.start(), points, backends: Backend::several(2), flush }
    }

    fn servers(&self) -> Vec<String> {
        self.backends.iter().map(ToString::to_string).collect()
    }

    fn clients(&self) -> Clients {
        let clients = Clients::start(&self.nginx.api(), CLIENTS, &self.servers());
        eventually(secs(20), || clients.done().iter().all(|&done| done >= 6));
        clients
    }

    fn load(&self) -> Running {
        let names =
            (0..CLIENTS).flat_map(|tag| ["one", "two"].map(|of| format!("/?u=k{tag}-{of}")));
        let load = names.fold(Load::to(self.nginx.web()), |load, path| load.path(&path));
        let load = load.threads(THREADS).rate(120).start();
        eventually(secs(20), || load.total() >= 8);
        load
    }

    /// Waits until all strikes have hit; whom they have stopped.
    fn struck(&self, strikes: &[Strike]) -> Vec<u32> {
        let mut stopped_ones = Vec::new();
        for (nth, strike) in strikes.iter().enumerate() {
            let hit = within(secs(30), || self.points.struck(nth));
            let Some(pid) = hit else {
                let state = self.nginx.api().get("zones/main").1["state"].clone();
                panic!("nobody comes to {strike:?}, {state}")
            };
            if strike.signal == Signal::STOP {
                eventually(secs(5), || stopped(pid));
                stopped_ones.push(pid);
            } else {
                eventually(secs(5), || !alive(pid));
            }
        }
        self.points.clear();
        stopped_ones
    }

    fn visit(&mut self, point: &str, signal: Signal, at: u64) {
        let (way, mut strikes) = way(point);
        let at = if strikes.is_empty() && way == Way::Work { at } else { 1 };
        strikes.push(Strike { point: point.into(), signal, at });
        match way {
            Way::Work | Way::Crowd => self.at_work(&strikes, way),
            Way::End if point == "last.written" => {
                Self::new(Flush::Late, None).at_the_end(&strikes);
            }
            Way::End => self.at_the_end(&strikes),
            Way::Follow => self.following(&strikes),
        }
    }

    fn at_work(&mut self, strikes: &[Strike], way: Way) {
        let clients = self.clients();
        let load = self.load();
        self.points.plan(strikes);
        let held = (way == Way::Crowd).then(|| self.crowd());
        let stopped_ones = self.struck(strikes);
        if !stopped_ones.is_empty() {
            // The others, if any, serve all the same; changes wait at most.
            let sent = load.total();
            let served = || load.total() >= sent + 20 || stopped_ones.len() == WORKERS;
            eventually(secs(3), served);
            holds_for(scale(secs(1), secs(3)), || stopped_ones.iter().all(|pid| stopped(*pid)));
            stopped_ones.iter().for_each(|pid| signal(*pid, Signal::CONT));
        }
        let (sent, done) = (load.total(), clients.done());
        eventually(LIMIT, || clients.done().iter().zip(&done).all(|(now, then)| now > then));
        eventually(secs(10), || load.total() >= sent + 10);
        eventually(secs(20), || self.nginx.worker_pids().len() == WORKERS);
        let model = clients.end();
        let report = load.stop();
        // A request ends with the worker that serves it, no other does.
        let killed = strikes.iter().filter(|strike| strike.signal == Signal::KILL).count();
        // A new worker that found no place yet, since the one before it died with the lock, says so.
        let busy = if held.is_some() { report.status(502) } else { 0 };
        assert!(
            report.errors.len() <= killed * THREADS
                && report.status(200) + busy + report.errors.len() as u64 == report.total,
            "{:?} {:?}",
            report.statuses,
            report.errors
        );
        self.is_right(&model);
        if held.is_some() {
            // What it took for more processes than it was made for, it keeps.
            drop(held);
            self.nginx.restart();
            return self.is_right(&model);
        }
        self.restarted(&model, !stopped_ones.is_empty());
    }

    /// Fills all places of the zone with workers that stay.
    fn crowd(&self) -> Vec<Conn> {
        let mut held = Vec::new();
        for _ in 0..4 {
            let old = self.nginx.worker_pids();
            for _ in 0..12 {
                let mut conn = Conn::open(self.nginx.api().addr()).unwrap();
                conn.write(b"GET /api/v1/ HTTP/1.1\r\n").unwrap();
                held.push(conn);
            }
            let_pass(ms(50));
            self.nginx.hup();
            let is_fresh = |pid: &&u32| !old.contains(pid);
            let come = within(secs(5), || {
                let fresh = self.nginx.worker_pids().iter().filter(is_fresh).count();
                self.points.struck(0).is_some() || fresh == WORKERS
            });
            if come.is_none() || self.points.struck(0).is_some() {
                break;
            }
        }
        held
    }

    /// Every worker shows what must be there, and no request counts any more.
    fn is_right(&self, model: &Model) {
        let api = self.nginx.api();
        let mut seen = BTreeSet::new();
        let active = || {
            let all = api.ok("GET", "upstreams?fields=servers&limit=1000", None);
            let all = all.as_object().unwrap().values();
            let servers = all.flat_map(|upstream| upstream["servers"].as_array().unwrap().clone());
            servers.map(|server| server["active"].as_u64().unwrap()).sum::<u64>()
        };
        eventually(LIMIT, || active() == 0);
        eventually(secs(20), || {
            let list = api.call("GET", "upstreams?limit=1000", None);
            seen.insert(list.header("X-Worker").unwrap().to_owned());
            assert_eq!(&shown(&api), model);
            seen.len() == WORKERS
        });
    }

    /// What is there after a stop and a start is the same, and takes the same room.
    fn restarted(&mut self, model: &Model, stopped: bool) {
        let api = self.nginx.api();
        let used = || api.ok("GET", "zones/main", None)["bytes"]["used"].as_u64().unwrap();
        let_pass(ms(1_100)); // what was retired is freed within a round or two
        let mut last = used();
        if stopped {
            // What was retired while somebody may have read it is freed little by little.
            eventually(secs(60), || {
                let_pass(ms(1_100));
                let before = std::mem::replace(&mut last, used());
                before == last
            });
        }
        let state = api.ok("GET", "zones/main", None)["state"].clone();
        self.nginx.stop();
        self.nginx.start();
        assert_eq!(&shown(&api), model, "{state}");
        let fresh = used();
        assert!(last <= fresh + SLACK, "{last} bytes in use, {fresh} in a fresh zone");
    }

    fn at_the_end(&mut self, strikes: &[Strike]) {
        let clients = self.clients();
        let mut held: Vec<Conn> = (0..8).map(|_| Conn::open(self.nginx.web()).unwrap()).collect();
        held.iter_mut().for_each(|c| c.begin(&Request::get("/slow?ms=500&u=k0-one")).unwrap());
        self.points.plan(strikes);
        let model = clients.end();
        // A graceful end leaves the last moment nothing to write, and an end at once does not resign.
        let resigns = strikes.iter().any(|strike| strike.point == "resign.said");
        let end = if resigns { Signal::QUIT } else { Signal::TERM };
        signal(self.nginx.master_pid(), end);
        let stopped_ones = self.struck(strikes);
        let_pass(if stopped_ones.is_empty() { ms(0) } else { scale(secs(1), secs(3)) });
        stopped_ones.iter().for_each(|pid| signal(*pid, Signal::CONT));
        self.nginx.ended(secs(20));
        self.nginx.start();
        self.is_right(&model);
        self.restarted(&model, !stopped_ones.is_empty());
    }

    /// All processes are killed while one of them is at a point.
    fn crash(&mut self, point: &str, at: u64) {
        let (_, mut strikes) = way(point);
        let at = if strikes.is_empty() { at } else { 1 };
        strikes.push(Strike::stop(point, at));
        // A journal that goes on after a change whose writer died, and whose snapshot is not there
        // yet.
        self.nginx.allow("does not go on where the one before it ends");
        self.nginx.allow("is set aside as");
        let clients = self.clients();
        self.points.plan(&strikes);
        self.struck(&strikes);
        clients.crash();
        self.nginx.kill();
        self.nginx.start();
        let model = clients.end();
        self.is_right(&model);
        self.nginx.restart();
        self.is_right(&model);
    }

    fn following(&mut self, strikes: &[Strike]) {
        let file = self.nginx.path("main.json").display().to_string();
        let mut other = Self::new(self.flush, Some(&file));
        let role = || other.nginx.api().ok("GET", "zones/main", None)["state"]["role"].clone();
        eventually(secs(10), || role() == "follows");
        let clients = self.clients();
        other.points.plan(strikes);
        let stopped_ones = other.struck(strikes);
        let_pass(if stopped_ones.is_empty() { ms(0) } else { scale(secs(1), secs(3)) });
        stopped_ones.iter().for_each(|pid| signal(*pid, Signal::CONT));
        eventually(secs(20), || other.nginx.worker_pids().len() == WORKERS);
        let model = clients.end();
        let follows = || shown(&other.nginx.api()) == model;
        // After a death the duty is taken over first.
        eventually(LIMIT, follows);
        other.is_right(&model);
        self.is_right(&model);
        self.nginx.stop();
        eventually(secs(10), || role() == "writes");
        other.is_right(&model);
        other.restarted(&model, !stopped_ones.is_empty());
        other.nginx.stop();
        self.nginx.start();
        self.is_right(&model);
    }
}

/// An empty set of hosts, which a fresh zone does not have.
const SLACK: u64 = 32;
/// How soon what a dead or stopped one held up goes on: 2 s, and what a busy machine takes.
const LIMIT: Duration = secs(5);

/// One visit: a point, what happens there, and when.
type Visit = (String, What, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Kill,
    Stop,
    /// All processes are killed.
    Crash,
}

/// Makes visits on several nginx at a time; each has its own.
fn tour(visits: &[Visit]) {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<String, Duration>> = Mutex::default();
    thread::scope(|scope| {
        for n in 0..scale(6, 3) {
            let (next, done) = (&next, &done);
            scope.spawn(move || {
                let mut stage: Option<Stage> = None;
                while let Some((point, what, at)) = visits.get(next.fetch_add(1, Ordering::SeqCst))
                {
                    let flush = match what {
                        What::Crash => Flush::Always,
                        _ if n % 2 == 0 => Flush::Soon,
                        _ => Flush::Always,
                    };
                    let text = format!("{point}:{what:?}:{at}, {flush:?}");
                    let trace = Trace(&text);
                    let begun = Instant::now();
                    let stage = stage.get_or_insert_with(|| Stage::new(flush, None));
                    match what {
                        What::Kill => stage.visit(point, Signal::KILL, *at),
                        What::Stop => stage.visit(point, Signal::STOP, *at),
                        What::Crash => stage.crash(point, *at),
                    }
                    drop(trace);
                    done.lock().unwrap().insert(text, begun.elapsed());
                }
            });
        }
    });
    for (what, time) in done.lock().unwrap().iter() {
        println!("{what}: {time:?}");
    }
}

/// Says where a story failed.
struct Trace<'a>(&'a str);

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("at {}", self.0);
        }
    }
}

/// Points of routes and of the cache of a store, to which no client of this story comes: stories of
/// processes at `crates/zone/tests` have them, `crash.rs` and `cache_crash.rs`.
const ELSEWHERE: [&str; 4] = ["apps.", "cache.", "route.", "routes."];

/// Every point, or those that PEERAGE_ONLY names.
fn points() -> Vec<String> {
    let only = std::env::var("PEERAGE_ONLY").unwrap_or_default();
    let is_here = |point: &String| !ELSEWHERE.iter().any(|of| point.starts_with(of));
    let all = all_points().into_iter().filter(|point| point.starts_with(&only));
    let all = all.filter(is_here);
    all.collect()
}

/// Another number for each point.
fn nth(point: &str) -> u64 {
    2 + u64::from(crc32c(point.as_bytes()) % 5)
}

/// Every point, as often as said, later each time.
fn visits(points: &[String], what: What, rounds: u64) -> Vec<Visit> {
    let round = |round| points.iter().map(move |p| (p.clone(), what, nth(p) + 7 * round));
    (0..rounds).flat_map(round).collect()
}

#[test]
fn worker_killed_at_any_point_is_missed_by_nobody() {
    tour(&visits(&points(), What::Kill, scale(1, 5)));
}

#[test]
fn worker_stopped_at_any_point_goes_on_as_if_nothing_had_been() {
    if scale(true, false) {
        println!("SKIPPED: PEERAGE_LONG=1 stops a worker at every point");
        return;
    }
    tour(&visits(&points(), What::Stop, 2));
}

#[test]
fn crash_at_any_point_of_writing_loses_nothing_that_was_acknowledged() {
    let mut points = points();
    let parts =
        ["journal.", "pen.", "file.", "draft.", "helper.", "checkpoint.", "fence.", "lead."];
    points.retain(|point| parts.iter().any(|part| point.starts_with(part)));
    tour(&visits(&points, What::Crash, scale(1, 10)));
}

#[test]
fn release_has_no_points() {
    assert!(all_points().len() >= 50, "{:?}", all_points());
    assert_eq!(known(&module()), BTreeSet::new());
}
