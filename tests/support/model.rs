//! Clients that change upstreams of their own while something goes wrong, and know what must be
//! there: what was acknowledged; where no answer came, the state before or after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use super::api::Api;
use super::http::Request;
use super::wait::{eventually, let_pass};
use super::{ms, secs};

/// What is declared and wanted of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    weight: u64,
    admin: String,
}

/// Upstreams, and hosts that are not up, with what is wanted of their servers by address.
pub type Model = BTreeMap<String, BTreeMap<String, Wanted>>;

/// Clients at work.
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Model>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Acknowledged changes of each client.
    done: Vec<AtomicU64>,
    refused: AtomicU64,
    lost: AtomicU64,
    /// What nobody acknowledged may be undone.
    crashed: AtomicBool,
}

impl Clients {
    /// `n` of them; each upstream of theirs has `servers` besides others that take no request.
    pub fn start(api: &Api, n: usize, servers: &[String]) -> Self {
        let done = (0..n).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { done, ..Shared::default() });
        let client = |tag| {
            let client = Client {
                api: api.clone(),
                tag,
                servers: servers.to_vec(),
                shared: Arc::clone(&shared),
                model: Model::new(),
                since: Vec::new(),
            };
            thread::spawn(move || client.run())
        };
        let threads = (0..n).map(client).collect();
        Self { shared, threads }
    }

    /// Acknowledged changes of each.
    pub fn done(&self) -> Vec<u64> {
        self.shared.done.iter().map(|done| done.load(Ordering::SeqCst)).collect()
    }

    /// Answers that said "not now".
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// Changes without an answer.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// From now on, what was in force without an acknowledgement may be gone.
    pub fn crash(&self) {
        self.shared.crashed.store(true, Ordering::SeqCst);
    }

    /// Lets them end; gives what must be there.
    pub fn end(self) -> Model {
        self.shared.stop.store(true, Ordering::SeqCst);
        let models = self.threads.into_iter().map(|t| t.join().expect("a client's answers fit"));
        models.flatten().collect()
    }
}

struct Client {
    api: Api,
    tag: usize,
    servers: Vec<String>,
    shared: Arc<Shared>,
    model: Model,
    /// What there was since the last change that was acknowledged, in force and perhaps not kept.
    since: Vec<Model>,
}

/// What came of a change.
enum Came {
    Done,
    Refused,
    /// No answer: before or after. Or: in force here, but not on the disk.
    Unknown,
}

impl Client {
    fn run(mut self) -> Model {
        self.model = self.read();
        for turn in 0.. {
            if self.shared.stop.load(Ordering::SeqCst) {
                break;
            }
            self.change(turn);
            let_pass(ms(3));
        }
        self.model
    }

    fn name(&self, of: &str) -> String {
        format!("k{}-{of}", self.tag)
    }

    /// A server that takes no request.
    fn idle(&self) -> String {
        format!("127.0.9.{}:9", self.tag + 1)
    }

    fn set(&self, weight: u64) -> Vec<(String, u64)> {
        let mut set: Vec<_> = self.servers.iter().map(|s| (s.clone(), 1)).collect();
        set[0].1 = weight;
        set.push((self.idle(), 0));
        set
    }

    fn change(&mut self, turn: u64) {
        let mut after = self.model.clone();
        let weight = 1 + turn / 10 % 3;
        let (one, two, new) = (self.name("one"), self.name("two"), self.name("new"));
        let (first, idle) = (self.servers[0].clone(), self.idle());
        let whole = |set: &[(String, u64)]| {
            // With a limit a pick looks at every server.
            let server = |(s, w): &(_, _)| json!({"server": s, "weight": w, "max_conns": 900});
            json!({ "servers": set.iter().map(server).collect::<Vec<Value>>() })
        };
        let put = |after: &mut Model, name: &str, set: &[(String, u64)]| {
            let old = after.remove(name).unwrap_or_default();
            let wanted = |(server, weight): &(String, u64)| {
                let admin =
                    old.get(server).map_or_else(|| "up".to_owned(), |old| old.admin.clone());
                (server.clone(), Wanted { weight: *weight, admin })
            };
            after.insert(name.to_owned(), set.iter().map(wanted).collect());
        };
        let up = |weight| Wanted { weight, admin: "up".into() };
        if !after.contains_key(&one) || !after.contains_key(&two) {
            let missing = if after.contains_key(&one) { &two } else { &one };
            let set = self.set(1);
            put(&mut after, missing, &set);
            return self.send("PUT", &format!("upstreams/{missing}"), Some(whole(&set)), after);
        }
        let on = |name: &str, server: &str| format!("upstreams/{name}/servers/{server}");
        match turn % 10 {
            0 => {
                after.get_mut(&one).unwrap().get_mut(&first).unwrap().weight = weight;
                self.send("PATCH", &on(&one, &first), Some(json!({ "weight": weight })), after);
            }
            1 => {
                let was =
                    after[&one].get(&idle).map_or_else(|| "up".into(), |was| was.admin.clone());
                let now = Wanted { weight: 0, admin: was };
                after.get_mut(&one).unwrap().insert(idle.clone(), now);
                self.send("PUT", &on(&one, &idle), Some(json!({"weight": 0})), after);
            }
            2 => {
                let set = self.set(weight);
                put(&mut after, &two, &set);
                self.send("PUT", &format!("upstreams/{two}"), Some(whole(&set)), after);
            }
            3 if after[&one].contains_key(&idle) => {
                after.get_mut(&one).unwrap().remove(&idle);
                self.send("DELETE", &on(&one, &idle), None, after);
            }
            4 => {
                let set = self.set(weight);
                put(&mut after, &new, &set);
                let last = self.servers.last().unwrap().clone();
                after.get_mut(&one).unwrap().insert(last.clone(), up(weight));
                let ops = json!({"changes": [
                    {"op": "patch", "upstream": one, "server": last, "body": {"weight": weight}},
                    {"op": "put", "upstream": new, "body": whole(&set)},
                ]});
                self.send("POST", "batch", Some(ops), after);
            }
            5 | 8 => {
                let state = if turn % 10 == 5 { "down" } else { "up" };
                after.get_mut(&two).unwrap().get_mut(&idle).unwrap().admin = state.into();
                self.send("POST", &(on(&two, &idle) + "/" + state), None, after);
            }
            6 if after.contains_key(&new) => {
                after.remove(&new);
                self.send("DELETE", &format!("upstreams/{new}"), None, after);
            }
            7 => {
                let state = if (turn / 10).is_multiple_of(2) { "drain" } else { "up" };
                after.remove(&host(self.tag));
                after.extend(host_of(self.tag, state));
                let path = format!("hosts/{}/{state}?missing=ok&min_up=0", host(self.tag));
                self.send("POST", &path, None, after);
            }
            _ => {
                // What a listing costs meanwhile, and that it is answered.
                let list = self.api.request("GET", "upstreams?fields=servers&limit=1000", None);
                if let Ok(reply) = list.send(self.api.addr()) {
                    assert_eq!(reply.status, 200, "{}", reply.text());
                }
            }
        }
    }

    fn send(&mut self, method: &str, path: &str, body: Option<Value>, after: Model) {
        let request = self.api.request(method, path, body.as_ref());
        match self.came(&request) {
            Came::Done => {
                self.shared.done[self.tag].fetch_add(1, Ordering::SeqCst);
                self.model = after;
                self.since.clear();
            }
            Came::Refused => {
                self.shared.refused.fetch_add(1, Ordering::SeqCst);
            }
            Came::Unknown => {
                self.shared.lost.fetch_add(1, Ordering::SeqCst);
                let now = self.read();
                let crashed = self.shared.crashed.load(Ordering::SeqCst);
                assert!(
                    now == self.model || now == after || crashed && self.since.contains(&now),
                    "{method} {path} left {now:#?}, neither {:#?} nor {after:#?}",
                    self.model
                );
                self.since.push(std::mem::replace(&mut self.model, now));
            }
        }
    }

    fn came(&self, request: &Request) -> Came {
        let Ok(reply) = request.send(self.api.addr()) else { return Came::Unknown };
        match reply.status {
            200 | 201 => Came::Done,
            503 if reply.json()["changed"] == true => {
                assert_eq!(reply.json()["durable"], false, "{}", reply.text());
                Came::Unknown
            }
            503 => {
                assert!(reply.header("Retry-After").is_some(), "{}", reply.text());
                Came::Refused
            }
            _ => panic!("{}", reply.text()),
        }
    }

    /// What there is of this client, as soon as somebody answers.
    fn read(&self) -> Model {
        eventually(secs(60), || self.try_read())
    }

    fn try_read(&self) -> Option<Model> {
        let mut model = Model::new();
        for of in ["one", "two", "new"] {
            let name = self.name(of);
            let reply = self.api.request("GET", &format!("upstreams/{name}"), None);
            let reply = reply.send(self.api.addr()).ok()?;
            match reply.status {
                200 => drop(model.insert(name, servers(&reply.json()))),
                404 => {}
                _ => panic!("{}", reply.text()),
            }
        }
        let reply = self.api.request("GET", &format!("hosts/{}", host(self.tag)), None);
        let reply = reply.send(self.api.addr()).ok()?;
        model.extend(host_of(self.tag, reply.json()["admin"]["state"].as_str().unwrap_or("up")));
        Some(model)
    }
}

fn servers(upstream: &Value) -> BTreeMap<String, Wanted> {
    let list = upstream["servers"].as_array().expect("a list of servers").iter();
    let server = |server: &Value| {
        let wanted = Wanted {
            weight: server["weight"].as_u64().unwrap(),
            admin: server["admin"]["state"].as_str().unwrap().into(),
        };
        (server["server"].as_str().unwrap().into(), wanted)
    };
    list.map(server).collect()
}

/// The address whose state a client changes, on which no server is.
fn host(tag: usize) -> String {
    format!("127.0.8.{}", tag + 1)
}

/// One that is up is not told from one that nobody has named.
fn host_of(tag: usize, state: &str) -> Option<(String, BTreeMap<String, Wanted>)> {
    let wanted = Wanted { weight: 0, admin: state.into() };
    (state != "up").then(|| (host(tag), [("host".into(), wanted)].into()))
}

/// What there is of all clients, as a listing shows it.
pub fn shown(api: &Api) -> Model {
    let all = api.ok("GET", "upstreams?fields=servers&limit=1000", None);
    let all = all.as_object().expect("a map").iter();
    let mut shown: Model = all
        .filter(|(name, _)| name.starts_with('k'))
        .map(|(name, upstream)| (name.clone(), servers(upstream)))
        .collect();
    for tag in 0..4 {
        let (_, body) = api.get(&format!("hosts/{}", host(tag)));
        shown.extend(host_of(tag, body["admin"]["state"].as_str().unwrap_or("up")));
    }
    shown
}
