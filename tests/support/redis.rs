//! A real Redis of a story's own, Sentinels, and a proxy that spoils what lies between.
//!
//! `redis-server` is Debian's. Each has its own directory, listens on a free port of loopback or on
//! a unix socket, and ends with the story, by its pid.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ports::Port;
use super::process::{self, Signal, mortal, signal, spawn};
use super::tls::Certificate;
use super::wait::{eventually, let_pass};
use super::{ms, secs};

/// A Redis, or a Sentinel.
pub struct Redis {
    dir: tempfile::TempDir,
    port: Port,
    kind: Kind,
    /// Without TLS.
    plain: Option<Port>,
    child: Option<Child>,
    password: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Server,
    Sentinel,
}

impl Redis {
    /// One without a password, in memory alone.
    pub fn new() -> Self {
        Self::with("")
    }

    /// One with these lines in its file, too.
    pub fn with(lines: &str) -> Self {
        let port = Port::reserve();
        let listen = format!("port {}", port.number());
        Self::make(Kind::Server, port, None, &format!("{listen}\n{lines}"))
    }

    /// One that follows another one.
    pub fn replica(of: &Self, lines: &str) -> Self {
        Self::with(&format!("replicaof 127.0.0.1 {}\n{lines}", of.port.number()))
    }

    /// One that speaks TLS, with a certificate for this name; a story speaks with it without.
    pub fn tls(name: &str) -> Self {
        let (port, plain) = (Port::reserve(), Port::reserve());
        let dir = directory();
        let pair = Certificate::make(dir.path(), &[name]);
        let lines = format!(
            "port {}\ntls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-auth-clients no\n",
            plain.number(),
            port.number(),
            pair.pem.display(),
            pair.key.display(),
        );
        Self::make_in(dir, Kind::Server, port, Some(plain), &lines)
    }

    /// A Sentinel for a master, which it calls "mymaster"; one is enough to agree.
    pub fn sentinel(master: &Self) -> Self {
        let port = Port::reserve();
        let lines = format!(
            "port {}\nsentinel monitor mymaster 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds mymaster 500\n\
             sentinel failover-timeout mymaster 3000\n",
            port.number(),
            master.port.number(),
        );
        Self::make(Kind::Sentinel, port, None, &lines)
    }

    fn make(kind: Kind, port: Port, plain: Option<Port>, lines: &str) -> Self {
        Self::make_in(directory(), kind, port, plain, lines)
    }

    fn make_in(
        dir: tempfile::TempDir,
        kind: Kind,
        port: Port,
        plain: Option<Port>,
        lines: &str,
    ) -> Self {
        let path = dir.path();
        let mut conf = format!(
            "bind 127.0.0.1\ndir {0}\ndaemonize no\nlogfile {0}/log\n{lines}\n",
            path.display(),
        );
        if kind == Kind::Server {
            conf.push_str("save \"\"\nenable-debug-command yes\nrepl-diskless-sync-delay 0\n");
            conf.push_str(&format!(
                "unixsocket {}/redis.sock\nunixsocketperm 777\n",
                path.display()
            ));
        }
        fs::write(path.join("redis.conf"), conf).unwrap();
        let mut redis = Self { dir, port, kind, plain, child: None, password: Mutex::default() };
        redis.start();
        redis
    }

    /// Starts it, where it was stopped; waits until it answers.
    pub fn start(&mut self) {
        self.launch();
        eventually(secs(10), || self.try_call(&["PING"]).is_some());
    }

    /// Starts it without waiting for anything but its socket.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut command = mortal("redis-server");
        command.arg(self.path("redis.conf"));
        if self.kind == Kind::Sentinel {
            command.arg("--sentinel");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(spawn(command).expect("redis-server is installed"));
        let addr = self.plain.as_ref().unwrap_or(&self.port).addr();
        eventually(secs(10), || TcpStream::connect(addr).is_ok());
    }

    /// Kills it; what was in memory alone is lost.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        signal(child.id(), Signal::KILL);
        child.wait().unwrap();
    }

    /// Ends it, and starts it without its data.
    pub fn restart(&mut self) {
        self.kill();
        let _ = fs::remove_file(self.path("dump.rdb")); // there may be none
        self.start();
    }

    /// Stops it: it listens, and answers nothing.
    pub fn stop(&self) {
        signal(self.pid(), Signal::STOP);
        eventually(secs(5), || process::stopped(self.pid()));
    }

    /// It goes on.
    pub fn go_on(&self) {
        signal(self.pid(), Signal::CONT);
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// The value of `server=`.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The same, of its unix socket.
    pub fn socket(&self) -> String {
        format!("unix:{}", self.path("redis.sock").display())
    }

    /// A file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn set(&self, key: &str, value: &str) {
        self.ok(&["SET", key, value]);
    }

    /// A tenant, as the published layout has it.
    pub fn tenant(&self, key: &str, app: &str, status: &str) {
        self.ok(&["HSET", &format!("tenant:{key}"), "app", app, "status", status]);
    }

    pub fn del(&self, key: &str) {
        self.ok(&["DEL", key]);
    }

    pub fn flush(&self) {
        self.ok(&["FLUSHALL"]);
    }

    pub fn config(&self, name: &str, value: &str) {
        self.ok(&["CONFIG", "SET", name, value]);
    }

    /// It wants this password from now on, also from those that are connected.
    pub fn require(&self, password: &str) {
        self.config("requirepass", password);
        self.password.lock().unwrap().replace(password.to_owned());
        self.drop_clients();
    }

    /// Ends all connections but the one that says so.
    pub fn drop_clients(&self) {
        self.ok(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    /// How many clients are connected, this one not counted.
    pub fn clients(&self) -> usize {
        self.ok(&["CLIENT", "LIST", "TYPE", "normal"]).matches("id=").count() - 1
    }

    /// How often a command was called: `hmget`, `client|tracking`.
    pub fn calls(&self, command: &str) -> u64 {
        let text = self.ok(&["INFO", "commandstats"]);
        let head = format!("cmdstat_{command}:calls=");
        let found = text.lines().find_map(|line| line.strip_prefix(&head));
        found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// What it answers; an error fails the story.
    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        let answer = self.try_call(words).unwrap_or_else(|| panic!("{words:?}: no answer"));
        assert!(!answer.starts_with('-'), "{words:?}: {answer}");
        answer
    }

    /// What it answers, an error by its line; `None`: it does not.
    pub fn try_call(&self, words: &[&str]) -> Option<String> {
        let addr = self.plain.as_ref().unwrap_or(&self.port).addr();
        let stream = TcpStream::connect_timeout(&addr, secs(5)).ok()?;
        stream.set_read_timeout(Some(secs(5))).ok()?;
        let mut stream = BufReader::new(stream);
        if let Some(password) = &*self.password.lock().unwrap() {
            say(stream.get_mut(), &["AUTH", password])?;
            read(&mut stream)?;
        }
        say(stream.get_mut(), words)?;
        read(&mut stream)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            signal(child.id(), Signal::CONT);
        }
        self.kill();
    }
}

/// For the unix socket: workers run as another user.
fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new().prefix("peerage-redis-").tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn say(stream: &mut TcpStream, words: &[&str]) -> Option<()> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(text.as_bytes()).ok()
}

/// An answer as a text: those of a list by lines.
fn read(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at(1);
    match kind {
        "-" => Some(line.to_owned()),
        "$" => {
            let Ok(len) = rest.parse::<usize>() else { return Some(String::new()) };
            let mut text = vec![0; len + 2];
            stream.read_exact(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text[..len]).into_owned())
        }
        "*" => {
            let items = (0..rest.parse().unwrap_or(0)).map(|_| read(stream));
            Some(items.collect::<Option<Vec<_>>>()?.join("\n"))
        }
        _ => Some(rest.to_owned()),
    }
}

/// What a proxy does with what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Nothing.
    Pass,
    /// Answers come so much later.
    Delay(Duration),
    /// Answers come a byte at a time.
    Drip,
    /// Answers do not come.
    Hold,
    /// The connection ends after so many bytes of answers, counted from now on.
    Cut(usize),
    /// The same, by a reset.
    Reset(usize),
}

/// Stands before a server, and spoils what it answers.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    to: SocketAddr,
    mode: Mutex<Between>,
    changed: Condvar,
    /// Bytes of answers since the mode was set.
    passed: AtomicUsize,
    accepted: AtomicUsize,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn new(to: SocketAddr) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind(port.addr()).unwrap();
        let shared = Arc::new(Shared {
            to,
            mode: Mutex::new(Between::Pass),
            changed: Condvar::new(),
            passed: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let all = Arc::clone(&shared);
        let listener = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if all.over.load(Ordering::SeqCst) {
                    return;
                }
                all.accepted.fetch_add(1, Ordering::SeqCst);
                let all = Arc::clone(&all);
                thread::spawn(move || all.serve(&client));
            }
        });
        Self { port, shared, listener: Some(listener) }
    }

    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Connections that came.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    pub fn set(&self, mode: Between) {
        self.shared.passed.store(0, Ordering::SeqCst);
        *self.shared.mode.lock().unwrap() = mode;
        self.shared.changed.notify_all();
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both); // it may have ended by itself
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.set(Between::Pass);
        self.cut();
        let _ = TcpStream::connect(self.port.addr()); // wakes it
        self.listener.take().unwrap().join().unwrap();
    }
}

impl Shared {
    fn serve(&self, client: &TcpStream) {
        // Where there is nobody, the client is told so by the end.
        let Ok(server) = TcpStream::connect(self.to) else { return };
        let both = [client, &server];
        self.open.lock().unwrap().extend(both.map(|stream| stream.try_clone().unwrap()));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = std::io::copy(&mut { client }, &mut { &server }); // to either's end
                let _ = server.shutdown(Shutdown::Both);
            });
            let resets = self.answers(client, &server);
            // What is ended both ways ends without a reset.
            let _ = client.shutdown(if resets { Shutdown::Read } else { Shutdown::Both });
            let _ = server.shutdown(Shutdown::Both);
        });
    }

    /// Passes answers on; whether the end is to be a reset.
    fn answers(&self, mut client: &TcpStream, mut server: &TcpStream) -> bool {
        let mut room = [0; 4096];
        loop {
            let Ok(n @ 1..) = server.read(&mut room) else { return false };
            let mut bytes = &room[..n];
            let mode = self.mode();
            match mode {
                Between::Delay(time) => let_pass(time),
                Between::Drip => {
                    for byte in bytes.chunks(1) {
                        if client.write_all(byte).is_err() {
                            return false;
                        }
                        let_pass(ms(1));
                    }
                    continue;
                }
                Between::Cut(limit) | Between::Reset(limit) => {
                    let left = limit.saturating_sub(self.passed.load(Ordering::SeqCst));
                    if left < bytes.len() {
                        bytes = &bytes[..left];
                        let _ = client.write_all(bytes); // it ends anyway
                        self.passed.fetch_add(left, Ordering::SeqCst);
                        let resets = matches!(mode, Between::Reset(_));
                        if resets {
                            let zero = Some(Duration::ZERO);
                            rustix::net::sockopt::set_socket_linger(client, zero).unwrap();
                            self.forget(client);
                        }
                        return resets;
                    }
                }
                Between::Pass | Between::Hold => {}
            }
            self.passed.fetch_add(bytes.len(), Ordering::SeqCst);
            if client.write_all(bytes).is_err() {
                return false;
            }
        }
    }

    fn mode(&self) -> Between {
        let mut mode = self.mode.lock().unwrap();
        while *mode == Between::Hold {
            mode = self.changed.wait(mode).unwrap();
        }
        *mode
    }

    /// A reset is sent when the last descriptor is closed.
    fn forget(&self, client: &TcpStream) {
        let peer = client.peer_addr().ok();
        self.open.lock().unwrap().retain(|stream| stream.peer_addr().ok() != peer);
    }
}
