//! Two masters for a while: an upgrade of the binary and its rollback, with changes going on.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use support::*;

fn conf(parameters: &str) -> Conf {
    let conf = Nginx::builder().daemon().workers(2);
    let conf = conf.http(format!(
        "peerage_zone main 2m state={{prefix}}/main.json {parameters};
         upstream app {{ peerage main; server 127.0.0.1:9; }}
         upstream any {{ peerage main name=$arg_u match=k*; }}
         server {{ listen {{web}}; location / {{ proxy_pass http://any; }} }}"
    ));
    conf.with_api("write=on")
}

/// Changes that go on, each tried until it is acknowledged.
struct Changes {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeMap<String, BTreeSet<String>>>,
}

impl Changes {
    fn start(api: Api, tag: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut done: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            let mut n = 0;
            while !ended.load(Ordering::Relaxed) {
                let name = format!("k{tag}-{}", n % 4);
                let server = format!("127.0.{tag}.{}:{}", n / 200 + 1, 1000 + n % 200);
                put(&api, &name, &server);
                done.entry(name).or_default().insert(server);
                n += 1;
                let_pass(ms(5));
            }
            done
        });
        Self { stop, thread }
    }

    fn end(self) -> BTreeMap<String, BTreeSet<String>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("changes go on")
    }
}

/// Puts a server, again and again where somebody else writes for now or the worker has gone.
fn put(api: &Api, upstream: &str, server: &str) {
    let path = format!("upstreams/{upstream}/servers/{server}");
    eventually(secs(20), || {
        let first = api.request("PUT", &format!("upstreams/{upstream}"), Some(&json!({})));
        let second = api.request("PUT", &path, Some(&json!({"max_fails": 3})));
        let exists = first.header("If-None-Match", "*").send(api.addr()).ok()?;
        if !matches!(exists.status, 201 | 409) {
            assert_eq!(exists.status, 503, "{}", exists.text());
            return None;
        }
        let reply = second.send(api.addr()).ok()?;
        if reply.status == 503 {
            assert!(reply.header("Retry-After").is_some(), "{}", reply.text());
            return None;
        }
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
        Some(())
    });
}

/// Watches the first lines of journals: an epoch has one writer, and epochs only rise.
struct Watch {
    stop: Arc<AtomicBool>,
    heads: Arc<Mutex<BTreeMap<u64, (u64, u64)>>>,
    thread: JoinHandle<()>,
}

impl Watch {
    fn start(prefix: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let heads = Arc::new(Mutex::new(BTreeMap::new()));
        let (ended, seen, prefix) = (Arc::clone(&stop), Arc::clone(&heads), prefix.to_owned());
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let files =
                    if prefix.exists() { files(&prefix, "main.json.journal-") } else { Vec::new() };
                for file in files {
                    if let Some((number, head)) = head(&file) {
                        let old = seen.lock().unwrap().insert(number, head);
                        assert!(old.is_none_or(|old| old == head), "journal {number} changed");
                    }
                }
                let_pass(ms(10));
            }
        });
        Self { stop, heads, thread }
    }

    fn end(self) -> BTreeMap<u64, (u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it watches");
        let heads = self.heads.lock().unwrap().clone();
        let mut writers: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last = 0;
        for (number, &(epoch, instance)) in &heads {
            assert!(epoch >= last, "journal {number} of epoch {epoch} after {last}: {heads:?}");
            last = epoch;
            let writer = *writers.entry(epoch).or_insert(instance);
            assert_eq!(writer, instance, "two writers in epoch {epoch}: {heads:?}");
        }
        heads
    }
}

/// Number, epoch and instance of a journal.
fn head(file: &PathBuf) -> Option<(u64, (u64, u64))> {
    let text = fs::read_to_string(file).ok()?;
    let line: Value = serde_json::from_str(text.lines().next()?).ok()?;
    let number = |field: &str| line["data"][field].as_u64();
    Some((number("journal")?, (number("epoch")?, number("instance")?)))
}

/// What the API shows, from any worker.
fn listing(nginx: &Nginx) -> BTreeMap<String, BTreeSet<String>> {
    let all = nginx.api().ok("GET", "upstreams?limit=1000&fields=servers", None);
    let all = all.as_object().expect("a map").iter();
    let servers = |body: &Value| {
        let list = body["servers"].as_array().cloned().unwrap_or_default();
        list.iter().map(|s| s["server"].as_str().unwrap().to_owned()).collect()
    };
    let all = all.filter(|(name, _)| name.starts_with('k'));
    all.map(|(name, body)| (name.clone(), servers(body))).collect()
}

/// What several clients have changed.
fn ended(changes: [Changes; 2]) -> BTreeMap<String, BTreeSet<String>> {
    // Each has names of its own.
    changes.into_iter().flat_map(Changes::end).collect()
}

/// A master and its workers are killed.
fn dies(nginx: &Nginx, master: u32) {
    let workers = nginx.workers_of(master);
    signal(master, Signal::KILL);
    workers.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    nginx.gone(master);
}

/// Only this master is left, with all that was acknowledged, also after another start.
#[track_caller]
fn kept(nginx: &mut Nginx, master: u32, all: &BTreeMap<String, BTreeSet<String>>) {
    assert_eq!(nginx.masters(), [master]);
    assert_eq!(listing(nginx), *all);
    nginx.restart();
    assert_eq!(listing(nginx), *all);
}

#[test]
fn every_change_is_there_after_an_upgrade() {
    let mut nginx = conf("").start();
    let watch = Watch::start(nginx.prefix());
    let changes = [1, 2].map(|tag| Changes::start(nginx.api(), tag));
    let_pass(ms(500));
    let (old, new) = nginx.upgrade();
    let_pass(ms(500));
    signal(old, Signal::WINCH);
    eventually(secs(10), || nginx.workers_of(old).is_empty());
    let_pass(ms(500));
    signal(old, Signal::QUIT);
    nginx.gone(old);
    let all = ended(changes);
    kept(&mut nginx, new, &all);
    let epochs: BTreeSet<u64> = watch.end().into_values().map(|(epoch, _)| epoch).collect();
    assert!(epochs.len() >= 2, "{epochs:?}");
}

#[test]
fn rollback_goes_on_from_what_the_new_one_wrote() {
    let mut nginx = conf("").start();
    let watch = Watch::start(nginx.prefix());
    let changes = Changes::start(nginx.api(), 1);
    let_pass(ms(300));
    let (old, new) = nginx.upgrade();
    signal(old, Signal::WINCH);
    eventually(secs(10), || nginx.workers_of(old).is_empty());
    put(&nginx.api(), "kmark", "127.0.0.1:1");
    // The new one writes now. It is taken back with all that was changed meanwhile.
    signal(old, Signal::HUP);
    eventually(secs(10), || nginx.workers_of(old).len() == 2);
    signal(new, Signal::QUIT);
    nginx.gone(new);
    let_pass(ms(300));
    let mut all = changes.end();
    all.entry("kmark".into()).or_default().insert("127.0.0.1:1".into());
    kept(&mut nginx, old, &all);
    watch.end();
}

#[test]
fn new_master_that_dies_changes_nothing() {
    let mut nginx = conf("").start();
    nginx.allow("exited on signal 9");
    let watch = Watch::start(nginx.prefix());
    let changes = Changes::start(nginx.api(), 1);
    let (old, new) = nginx.upgrade();
    let_pass(ms(300));
    dies(&nginx, new);
    let_pass(ms(300));
    let all = changes.end();
    assert_eq!(listing(&nginx), all);
    assert_eq!(nginx.masters(), [old]);
    watch.end();
}

#[test]
fn death_of_the_old_one_loses_nothing_that_was_promised() {
    let mut nginx = conf("flush=always").start();
    nginx.allow("exited on signal 9");
    let watch = Watch::start(nginx.prefix());
    let changes = [1, 2].map(|tag| Changes::start(nginx.api(), tag));
    let (old, new) = nginx.upgrade();
    let_pass(ms(300));
    dies(&nginx, old);
    let_pass(ms(500));
    let all = ended(changes);
    kept(&mut nginx, new, &all);
    watch.end();
}

#[test]
fn follower_shows_what_the_other_one_does_and_says_who_writes() {
    let nginx = conf("").start();
    let (old, _) = nginx.upgrade();
    put(&nginx.api(), "kshown", "127.0.0.1:7");
    // Every worker of both, asked on fresh connections.
    let mut seen = BTreeSet::new();
    eventually(secs(10), || {
        let report = nginx.api().ok("GET", "zones/main", None);
        seen.insert(report["state"]["role"].as_str().unwrap_or_default().to_owned());
        seen.len() == 2
    });
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["follows", "writes"]);
    // A verdict of which the other one's workers would not know is refused.
    let mut answers = BTreeSet::new();
    eventually(secs(10), || {
        let (status, body) = nginx.api().verb("app", "127.0.0.1:9", "unhealthy");
        answers.insert((status, body["type"].as_str().unwrap_or_default().to_owned()));
        answers.len() == 2
    });
    let refused = (503, "urn:peerage:not-writer".to_owned());
    assert_eq!(answers.into_iter().collect::<Vec<_>>(), [(200, String::new()), refused]);
    eventually(secs(1), || {
        (0..20).all(|_| listing(&nginx).get("kshown").is_some_and(|servers| servers.len() == 1))
    });
    signal(old, Signal::QUIT);
    nginx.gone(old);
    put(&nginx.api(), "kshown", "127.0.0.1:8");
}

#[test]
fn zone_without_a_file_says_that_an_upgrade_loses_its_changes() {
    let nginx =
        Nginx::builder().daemon().http("peerage_zone main 1m; upstream app { peerage main; }");
    let nginx = nginx.with_api("write=on").start();
    let (old, _) = nginx.upgrade();
    assert!(nginx.error_log().contains("peerage zone \"main\" has no state file"));
    signal(old, Signal::QUIT);
    nginx.gone(old);
}
