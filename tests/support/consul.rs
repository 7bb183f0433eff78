//! A Consul of our own, written to the rules that the real one keeps, and to those it breaks.
//!
//! It answers `/v1/health/service/NAME` and `/v1/catalog/services` as blocking queries by index, and
//! plays what a real one cannot be asked for: see [`Trouble`]. Each connection has a thread, which
//! ends with the connection.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::wait::let_pass;

/// State of an instance's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    Passing,
    Warning,
    Critical,
}

/// What goes wrong with each answer until something else does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// An empty list with this index, whatever there is.
    Empty(u64),
    /// What there is, with this index.
    Index(u64),
    /// What there is, without an index.
    NoIndex,
    /// What there is, at once and for ever, each time with another index.
    AtOnce,
    /// No answer at all.
    Hang,
    /// A byte at a time, with this pause.
    Slow(Duration),
    /// The head, half of the body, and the end of the connection.
    Truncated,
    /// The same with a reset.
    Reset,
    /// As many bytes of one entry after the other.
    Huge(usize),
    /// A body of this text.
    Body(String),
    /// 500 with index 1, as of a cluster without a leader.
    NoLeader,
    /// 200 of a server that knows no leader.
    Leaderless,
    /// 403 with index 1, unless this token comes.
    Token(String),
    /// An empty list that says it may not show all.
    Filtered,
}

/// A read that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub target: String,
    pub token: Option<String>,
    pub at: Instant,
}

impl Asked {
    /// The value of a parameter, as it was encoded; empty where it has none.
    pub fn param(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then_some(value)
        })
    }

    /// The index that it waits beyond; 0 = it does not wait.
    pub fn index(&self) -> u64 {
        self.param("index").and_then(|index| index.parse().ok()).unwrap_or(0)
    }
}

#[derive(Clone, Debug)]
struct Instance {
    addr: SocketAddr,
    check: Checked,
    maintenance: bool,
    weights: (u16, u16),
    tags: Vec<String>,
}

#[derive(Default)]
struct Service {
    instances: BTreeMap<String, Instance>,
    index: u64,
}

struct State {
    index: u64,
    services: BTreeMap<String, Service>,
    trouble: Trouble,
    asked: Vec<Asked>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Queries that wait.
    waiting: AtomicUsize,
    stopped: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// See the module. It ends when it is dropped.
pub struct FakeConsul {
    addr: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl FakeConsul {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("it is bound");
        let state = State {
            index: 10,
            services: BTreeMap::new(),
            trouble: Trouble::None,
            asked: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        let listener = Some(listen(listener, &shared));
        Self { addr, shared, listener }
    }

    /// The value of `server=`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Registers an instance, or states it anew: passing, of weight 1.
    pub fn register(&self, service: &str, id: &str, addr: SocketAddr) {
        let (check, maintenance) = (Checked::Passing, false);
        let instance = Instance { addr, check, maintenance, weights: (1, 1), tags: Vec::new() };
        self.alter(service, |instances| {
            instances.insert(id.to_owned(), instance);
        });
    }

    pub fn deregister(&self, service: &str, id: &str) {
        self.alter(service, |instances| {
            instances.remove(id).expect("it is registered");
        });
    }

    pub fn check(&self, service: &str, id: &str, check: Checked) {
        self.instance(service, id, |instance| instance.check = check);
    }

    pub fn maintenance(&self, service: &str, id: &str, on: bool) {
        self.instance(service, id, |instance| instance.maintenance = on);
    }

    /// Weights while it passes and while it warns.
    pub fn weights(&self, service: &str, id: &str, passing: u16, warning: u16) {
        self.instance(service, id, |instance| instance.weights = (passing, warning));
    }

    pub fn tags(&self, service: &str, id: &str, tags: &[&str]) {
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        self.instance(service, id, |instance| instance.tags = tags);
    }

    /// It has lost its memory, as after a restart without its data.
    pub fn forget(&self) {
        let mut state = self.state();
        state.services.clear();
        state.index = 5;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// What goes wrong from now on; queries that wait are answered so.
    pub fn trouble(&self, trouble: Trouble) {
        self.state().trouble = trouble;
        self.shared.changed.notify_all();
    }

    /// Ends every connection and listens no more.
    pub fn stop(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        for stream in self.open().drain(..) {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes whoever accepts.
        let _ = TcpStream::connect(self.addr);
        listener.join().expect("the listener does not panic");
    }

    /// Listens again where it did.
    pub fn start(&mut self) {
        assert!(self.listener.is_none(), "it runs");
        self.shared.stopped.store(false, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_secs(5);
        let listener = loop {
            match TcpListener::bind(self.addr) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < until, "{}: {error}", self.addr),
            }
        };
        self.listener = Some(listen(listener, &self.shared));
    }

    /// Reads that came, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// Forgets which reads came.
    pub fn forget_asked(&self) {
        self.state().asked.clear();
    }

    /// Queries that wait for a change now.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::SeqCst)
    }

    /// The index of its last change.
    pub fn index(&self) -> u64 {
        self.state().index
    }

    fn alter(&self, service: &str, alter: impl FnOnce(&mut BTreeMap<String, Instance>)) {
        let mut state = self.state();
        state.index += 1;
        let index = state.index;
        let service = state.services.entry(service.to_owned()).or_default();
        alter(&mut service.instances);
        service.index = index;
        drop(state);
        self.shared.changed.notify_all();
    }

    fn instance(&self, service: &str, id: &str, alter: impl FnOnce(&mut Instance)) {
        self.alter(service, |instances| {
            alter(instances.get_mut(id).expect("it is registered"));
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("nobody panics with it")
    }

    fn open(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.shared.open.lock().expect("nobody panics with it")
    }
}

impl Drop for FakeConsul {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(listener: TcpListener, shared: &Arc<Shared>) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.stopped.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let Ok(kept) = stream.try_clone() else { continue };
            shared.open.lock().expect("nobody panics with it").push(kept);
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                // Its client may end it at any place.
                let _ = serve(&stream, &shared);
                let _ = stream.shutdown(Shutdown::Both);
            });
        }
    })
}

fn serve(stream: &TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut token, mut length) = (None, 0);
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? == 0 {
                return Ok(());
            }
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "x-consul-token" => token = Some(value.trim().to_owned()),
                "content-length" => length = value.trim().parse().unwrap_or(0),
                _ => {}
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
        let asked = Asked { target, token, at: Instant::now() };
        shared.state.lock().expect("nobody panics with it").asked.push(asked.clone());
        if !answer(stream, shared, &asked)? {
            return Ok(());
        }
    }
}

/// Answers; whether the connection goes on.
fn answer(mut stream: &TcpStream, shared: &Shared, asked: &Asked) -> Result<bool> {
    let Some((trouble, list, index)) = wait(stream, shared, asked) else { return Ok(false) };
    if shared.stopped.load(Ordering::SeqCst) {
        return Ok(false);
    }
    let whole = |index: Option<u64>, more: &str, body: &str| {
        let index = index.map_or(String::new(), |index| format!("X-Consul-Index: {index}\r\n"));
        response("200 OK", &format!("{index}{more}"), body)
    };
    let led = "X-Consul-KnownLeader: true\r\n";
    let plain = whole(Some(index), led, &list);
    match trouble {
        Trouble::None | Trouble::AtOnce => stream.write_all(plain.as_bytes())?,
        Trouble::Token(good) if asked.token.as_deref() == Some(good.as_str()) => {
            stream.write_all(plain.as_bytes())?;
        }
        Trouble::Token(_) => {
            let refused = response("403 Forbidden", "X-Consul-Index: 1\r\n", "ACL not found");
            stream.write_all(refused.as_bytes())?;
        }
        Trouble::Empty(index) => stream.write_all(whole(Some(index), led, "[]").as_bytes())?,
        Trouble::Index(index) => stream.write_all(whole(Some(index), led, &list).as_bytes())?,
        Trouble::NoIndex => stream.write_all(whole(None, led, &list).as_bytes())?,
        Trouble::Body(body) => stream.write_all(whole(Some(index), led, &body).as_bytes())?,
        Trouble::NoLeader => {
            let text = "No cluster leader";
            let head = "X-Consul-Index: 1\r\nX-Consul-KnownLeader: false\r\n";
            stream.write_all(response("500 Internal Server Error", head, text).as_bytes())?;
        }
        Trouble::Leaderless => {
            let head = "X-Consul-KnownLeader: false\r\n";
            stream.write_all(whole(Some(index), head, &list).as_bytes())?;
        }
        Trouble::Filtered => {
            let head = format!("{led}X-Consul-Results-Filtered-By-ACLs: true\r\n");
            stream.write_all(whole(Some(index), &head, "[]").as_bytes())?;
        }
        Trouble::Hang => {
            let mut state = shared.state.lock().expect("nobody panics with it");
            while state.trouble == Trouble::Hang && !shared.stopped.load(Ordering::SeqCst) {
                state = shared.changed.wait(state).expect("nobody panics with it");
            }
            return Ok(false);
        }
        Trouble::Slow(pause) => {
            for byte in plain.as_bytes().chunks(1) {
                if shared.stopped.load(Ordering::SeqCst) {
                    return Ok(false);
                }
                stream.write_all(byte)?;
                let_pass(pause);
            }
        }
        Trouble::Truncated => {
            stream.write_all(&plain.as_bytes()[..plain.len() - list.len() / 2 - 1])?;
            return Ok(false);
        }
        Trouble::Reset => {
            stream.write_all(&plain.as_bytes()[..plain.len() - list.len() / 2 - 1])?;
            reset(stream);
            return Ok(false);
        }
        Trouble::Huge(bytes) => {
            let entry = list.trim_matches(['[', ']']);
            let entry = if entry.is_empty() { "{}" } else { entry };
            let times = bytes / (entry.len() + 1) + 1;
            let body = format!("[{}]", vec![entry; times].join(","));
            stream.write_all(whole(Some(index), led, &body).as_bytes())?;
        }
    }
    Ok(true)
}

/// Ends a connection by a reset: zero seconds to linger.
fn reset(stream: &TcpStream) {
    // Where it cannot be set the connection ends in the middle all the same.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// Waits as a blocking query does; what is in force then. `None`: the client is gone.
fn wait(stream: &TcpStream, shared: &Shared, asked: &Asked) -> Option<(Trouble, String, u64)> {
    let beyond = asked.index();
    let limit = asked.param("wait").map_or(Duration::from_secs(300), duration);
    let until = Instant::now() + limit;
    let mut state = shared.state.lock().expect("nobody panics with it");
    shared.waiting.fetch_add(1, Ordering::SeqCst);
    loop {
        let (list, index) = what(&state, asked);
        let over = Instant::now() >= until || shared.stopped.load(Ordering::SeqCst);
        // A lower index than the one that is known answers at once, as the real one does.
        let is_due = beyond == 0 || index != beyond || state.trouble != Trouble::None || over;
        if is_due {
            shared.waiting.fetch_sub(1, Ordering::SeqCst);
            if state.trouble == Trouble::AtOnce {
                state.index += 1;
                return Some((Trouble::AtOnce, list, state.index));
            }
            return Some((state.trouble.clone(), list, index));
        }
        if is_gone(stream) {
            shared.waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
        state = shared.changed.wait_timeout(state, left).expect("nobody panics with it").0;
    }
}

/// Whether the other side has closed the connection.
fn is_gone(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let peeked = stream.peek(&mut [0]);
    let _ = stream.set_nonblocking(false);
    matches!(peeked, Ok(0))
}

/// The body and the index of what is asked.
fn what(state: &State, asked: &Asked) -> (String, u64) {
    let path = asked.target.split('?').next().unwrap_or_default();
    let Some(name) = path.strip_prefix("/v1/health/service/") else {
        return (catalog(state), state.index);
    };
    let tag = asked.param("tag");
    match state.services.get(name) {
        Some(service) => (health(name, service, tag), service.index),
        None => ("[]".to_owned(), state.index),
    }
}

fn catalog(state: &State) -> String {
    let services = state.services.iter().filter(|(_, service)| !service.instances.is_empty());
    let services = services.map(|(name, service)| {
        let mut tags: Vec<&str> =
            service.instances.values().flat_map(|i| i.tags.iter().map(String::as_str)).collect();
        tags.sort_unstable();
        tags.dedup();
        format!("\"{name}\":{}", list(&tags))
    });
    format!("{{{}}}", services.collect::<Vec<_>>().join(","))
}

fn health(name: &str, service: &Service, tag: Option<&str>) -> String {
    let has = |instance: &Instance| tag.is_none_or(|tag| instance.tags.iter().any(|t| t == tag));
    let all = service.instances.iter().filter(|(_, instance)| has(instance));
    let entries: Vec<String> = all.map(|(id, instance)| entry(name, id, instance)).collect();
    format!("[{}]", entries.join(","))
}

fn entry(name: &str, id: &str, instance: &Instance) -> String {
    let Instance { addr, check, maintenance, weights, tags } = instance;
    let check = match check {
        Checked::Passing => "passing",
        Checked::Warning => "warning",
        Checked::Critical => "critical",
    };
    let mut checks = format!(
        "{{\"CheckID\":\"serfHealth\",\"Status\":\"passing\"}},\
         {{\"CheckID\":\"service:{id}\",\"Status\":\"{check}\"}}"
    );
    if *maintenance {
        // A string takes everything.
        let _ = write!(
            checks,
            ",{{\"CheckID\":\"_service_maintenance:{id}\",\"Status\":\"critical\"}}"
        );
    }
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    format!(
        "{{\"Node\":{{\"Node\":\"n1\",\"Address\":\"{ip}\",\"Datacenter\":\"dc1\"}},\
         \"Service\":{{\"ID\":\"{id}\",\"Service\":\"{name}\",\"Tags\":{tags},\
         \"Address\":\"{ip}\",\"Port\":{port},\"Meta\":null,\
         \"Weights\":{{\"Passing\":{passing},\"Warning\":{warning}}}}},\"Checks\":[{checks}]}}",
        ip = addr.ip(),
        port = addr.port(),
        tags = list(&tags),
        passing = weights.0,
        warning = weights.1,
    )
}

fn list(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("[{}]", words.join(","))
}

fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// `300s`, `250ms`
fn duration(text: &str) -> Duration {
    let number = |text: &str| text.parse().unwrap_or(0);
    match text.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(number(ms)),
        None => Duration::from_secs(number(text.trim_end_matches('s'))),
    }
}
