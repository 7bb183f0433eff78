//! A backend: a real HTTP/1.1 server of threads on loopback, that counts and misbehaves on order.
//!
//! What it answers is chosen by the end of the path, whatever nginx puts before it:
//!
//! | path | answer |
//! |---|---|
//! | `/slow?ms=200` | 200 after that time |
//! | `/hold` | 200 once [`Backend::release`] is called |
//! | `/status/503` | that status |
//! | `/close`, `/reset` | no answer, the connection is closed, or reset |
//! | `/partial` | half of the body that the head promises, then closed |
//! | `/chunked?n=10&ms=20` | that many chunks with that time between them |
//! | `/download?kb=64&ms=5` | that many KB, with that time between two of them |
//! | `/echo` | the head and the body of the request as nginx sent them |
//! | any, with `Upgrade` | 101, then every byte comes back until one side closes |
//! | any other | 200 with the backend's name |
//!
//! Every answer has `X-Backend` (the name), `X-Connection` and `X-Requests` (how many requests the
//! connection has carried).

mod answer;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ports::Port;
use super::wait::within;
use stream::{Listener, Stream};

/// A backend; it listens from its making until it is stopped or dropped.
#[derive(Debug)]
pub struct Backend {
    place: Place,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// How a backend treats every request, before the path is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As the path says.
    #[default]
    Serve,
    /// This status at once.
    Status(u16),
    /// As the path says, this much later.
    Slow(Duration),
    /// The connection is closed without an answer after this time.
    CloseAfter(Duration),
    /// The connection is reset after this time.
    ResetAfter(Duration),
    /// Every request waits for [`Backend::release`].
    Hold,
}

/// A request as the backend saw it; kept after [`Backend::record`].
#[derive(Clone, Debug)]
pub struct Hit {
    pub connection: u64,
    /// The request line and the headers.
    pub head: String,
}

impl Hit {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The path and the query.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

impl Backend {
    /// On 127.0.0.1, on a port of its own.
    pub fn new(name: &str) -> Self {
        Self::on(name, [127, 0, 0, 1])
    }

    /// On another loopback address (`[127, 0, 0, 2]`, `Ipv6Addr::LOCALHOST`).
    pub fn on(name: &str, ip: impl Into<std::net::IpAddr>) -> Self {
        let port = Port::reserve();
        Self::at(name, Place::Inet(port.at(ip), Arc::new(port)))
    }

    /// On a port that it has together with others, which listen on other addresses.
    pub fn beside(name: &str, ip: impl Into<std::net::IpAddr>, port: &Arc<Port>) -> Self {
        Self::at(name, Place::Inet(port.at(ip), Arc::clone(port)))
    }

    /// On a unix socket at this path.
    pub fn unix(name: &str, path: &Path) -> Self {
        Self::at(name, Place::Unix(path.to_path_buf()))
    }

    /// A backend that refuses connections until [`Backend::start`].
    pub fn refusing(name: &str) -> Self {
        let mut backend = Self::new(name);
        backend.stop();
        backend
    }

    /// `n` backends named `b1`, `b2` ….
    pub fn several(n: usize) -> Vec<Self> {
        (1..=n).map(|i| Self::new(&format!("b{i}"))).collect()
    }

    fn at(name: &str, place: Place) -> Self {
        let shared = Arc::new(Shared { name: Mutex::new(name.into()), ..Shared::default() });
        let mut backend = Self { place, shared, accepting: None };
        backend.start();
        backend
    }

    /// Listens again, on the same address.
    #[track_caller]
    pub fn start(&mut self) {
        assert!(self.accepting.is_none(), "the backend is running already");
        let listen = || match &self.place {
            Place::Inet(addr, _) => Listener::inet(*addr),
            Place::Unix(path) => Listener::unix(path),
        };
        // A program that another story starts holds a copy of the old socket until its exec.
        let listener = within(Duration::from_secs(5), || listen().ok());
        let listener = listener.expect("the backend's address is its own");
        self.shared.stop.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        self.accepting = Some(thread::spawn(move || accept(&listener, &shared)));
    }

    /// As if the process died: stops listening and closes every connection.
    pub fn stop(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.stop.store(true, Ordering::SeqCst);
        match &self.place {
            Place::Inet(addr, _) => Stream::wake_inet(*addr),
            Place::Unix(path) => Stream::wake_unix(path),
        }
        accepting.join().ok(); // it does not panic; if it did, it listens no more either
        if let Place::Unix(path) = &self.place {
            std::fs::remove_file(path).ok(); // gone already
        }
        self.close_connections();
        self.release();
    }

    /// Closes every open connection, busy ones too, and goes on listening.
    pub fn close_connections(&self) {
        for stream in lock(&self.shared.streams).values() {
            stream.close();
        }
    }

    /// From now on it answers by this name (a new version at the same address).
    pub fn rename(&self, name: &str) {
        *lock(&self.shared.name) = name.into();
    }

    pub fn mode(&self, mode: Mode) {
        *lock(&self.shared.mode) = mode;
    }

    /// Waits this long before each `accept`.
    pub fn accept_slowly(&self, pause: Duration) {
        *lock(&self.shared.accept_pause) = pause;
    }

    /// Lets the requests go that are held now.
    pub fn release(&self) {
        *lock(&self.shared.gate) += 1;
        self.shared.gate_turned.notify_all();
    }

    /// How many requests are held now.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Keeps every request from now on for [`Backend::hits`].
    pub fn record(&self) {
        self.shared.recording.store(true, Ordering::SeqCst);
    }

    /// The requests since [`Backend::record`] or the last call of this; takes them away.
    pub fn hits(&self) -> Vec<Hit> {
        std::mem::take(&mut *lock(&self.shared.hits))
    }

    /// `ip:port`, or `unix:/path`: what a `server` line needs.
    pub fn addr(&self) -> String {
        self.to_string()
    }

    /// The socket address; fails the story for a unix socket.
    #[track_caller]
    pub fn socket_addr(&self) -> SocketAddr {
        let Place::Inet(addr, _) = &self.place else { panic!("{self} is a unix socket") };
        *addr
    }

    pub fn name(&self) -> String {
        lock(&self.shared.name).clone()
    }

    /// Requests received so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Requests being answered now.
    pub fn active(&self) -> usize {
        self.shared.active.now()
    }

    /// The most that were being answered at once.
    pub fn max_active(&self) -> usize {
        self.shared.active.most()
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.open.now()
    }

    /// The most that were open at once.
    pub fn max_open(&self) -> usize {
        self.shared.open.most()
    }

    /// Upgraded connections open now.
    pub fn upgraded(&self) -> usize {
        self.shared.upgraded.now()
    }

    /// Forgets the most so far of [`Backend::max_active`] and [`Backend::max_open`].
    pub fn forget_most(&self) {
        self.shared.active.forget_most();
        self.shared.open.forget_most();
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Inet(addr, _) => addr.fmt(f),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where a backend listens, also while it does not.
#[derive(Debug)]
enum Place {
    Inet(SocketAddr, Arc<Port>),
    Unix(PathBuf),
}

/// What the threads of a backend share with its owner.
#[derive(Debug, Default)]
struct Shared {
    name: Mutex<String>,
    mode: Mutex<Mode>,
    accept_pause: Mutex<Duration>,
    stop: AtomicBool,
    recording: AtomicBool,
    hits: Mutex<Vec<Hit>>,
    /// Counts releases; who is held waits for the next.
    gate: Mutex<u64>,
    gate_turned: Condvar,
    held: AtomicUsize,
    requests: AtomicU64,
    accepted: AtomicU64,
    active: Gauge,
    open: Gauge,
    upgraded: Gauge,
    streams: Mutex<HashMap<u64, Stream>>,
}

/// A number that goes up and down, and the most it has been.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    /// One more until the guard is dropped.
    fn one(&self) -> impl Drop + use<'_> {
        struct One<'a>(&'a Gauge);
        impl Drop for One<'_> {
            fn drop(&mut self) {
                self.0.now.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        One(self)
    }

    fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn forget_most(&self) {
        self.most.store(self.now(), Ordering::SeqCst);
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        thread::sleep(*lock(&shared.accept_pause));
        let stream = listener.accept();
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let id = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        if let Ok(other) = stream.another() {
            lock(&shared.streams).insert(id, other);
        }
        let shared = Arc::clone(shared);
        let work = move || {
            let open = shared.open.one();
            answer::serve(stream, id, &shared);
            lock(&shared.streams).remove(&id);
            drop(open);
        };
        let thread = thread::Builder::new().stack_size(256 * 1024).spawn(work);
        thread.expect("a thread can be started");
    }
}

/// The first header of this name in a head.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(n, _)| n.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim())
}

/// A story that has failed in one thread still ends in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
