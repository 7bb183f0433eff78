//! The API server of a Kubernetes cluster, as far as EndpointSlices are concerned: a list and a
//! watch, under the story's control.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Cluster {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    slices: BTreeMap<String, Value>,
    /// What watches tell, each with its version.
    events: Vec<(u64, Value)>,
    /// Watches of before this count are over.
    watches: u64,
    heads: Vec<String>,
    closed: bool,
}

impl Cluster {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let addr = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ours.lock().closed {
                    return;
                }
                let shared = Arc::clone(&ours);
                // The client may go at any time.
                thread::spawn(move || shared.serve(stream).ok());
            }
        });
        Self { addr, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A slice of the service in the namespace "shop": it comes, or is another from now on.
    pub fn set(&self, service: &str, name: &str, port: u16, endpoints: &Value) {
        let mut state = self.shared.lock();
        let slice = state.slice(service, name, port, endpoints);
        let kind = match state.slices.insert(name.into(), slice.clone()) {
            None => "ADDED",
            Some(_) => "MODIFIED",
        };
        state.tell(kind, slice);
        self.shared.changed.notify_all();
    }

    pub fn delete(&self, name: &str) {
        let mut state = self.shared.lock();
        let slice = state.slices.remove(name).expect("a slice of this name");
        state.tell("DELETED", slice);
        self.shared.changed.notify_all();
    }

    /// The slice goes, and no watch ever tells: they end with an error, as when the version that
    /// they follow is too old.
    pub fn forget(&self, name: &str) {
        let mut state = self.shared.lock();
        state.slices.remove(name).expect("a slice of this name");
        state.tell("ERROR", json!({"kind": "Status", "code": 410, "message": "too old"}));
        state.watches += 1;
        self.shared.changed.notify_all();
    }

    /// All watches end, as they do after their time.
    pub fn end_watches(&self) {
        self.shared.lock().watches += 1;
        self.shared.changed.notify_all();
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.lock().heads.clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        TcpStream::connect(self.addr).ok(); // wakes the one that accepts
    }
}

impl State {
    fn slice(&mut self, service: &str, name: &str, port: u16, endpoints: &Value) -> Value {
        self.version += 1;
        json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": name, "namespace": "shop", "resourceVersion": self.version.to_string(),
                "labels": {"kubernetes.io/service-name": service, "app": service}
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "http", "port": port, "protocol": "TCP"}
            ]
        })
    }

    fn tell(&mut self, kind: &str, object: Value) {
        self.version += 1;
        self.events.push((self.version, json!({"type": kind, "object": object})));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut head = String::new();
        let mut reader = BufReader::new(stream.try_clone()?);
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {}
        let watched = head
            .split_once("resourceVersion=")
            .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        self.lock().heads.push(head);
        match watched {
            Some(version) => self.watch(&mut stream, version),
            None => self.list(&mut stream),
        }
    }

    fn list(&self, stream: &mut TcpStream) -> io::Result<()> {
        let state = self.lock();
        let body = json!({
            "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": state.version.to_string()},
            "items": state.slices.values().collect::<Vec<_>>()
        });
        let body = body.to_string();
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\n{JSON}Content-Length: {length}\r\n\r\n{body}")
    }

    fn watch(&self, stream: &mut TcpStream, mut version: u64) -> io::Result<()> {
        write!(stream, "HTTP/1.1 200 OK\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n")?;
        let mut state = self.lock();
        let begun = state.watches;
        loop {
            let new: Vec<_> =
                state.events.iter().filter(|(of, _)| *of > version).cloned().collect();
            let over = state.closed || state.watches != begun;
            drop(state);
            for (of, event) in new {
                let line = format!("{event}\n");
                write!(stream, "{:x}\r\n{line}\r\n", line.len())?;
                version = of;
            }
            if over {
                return write!(stream, "0\r\n\r\n");
            }
            state = self.lock();
            if state.events.iter().all(|(of, _)| *of <= version) && state.watches == begun {
                let waited = self.changed.wait_timeout(state, Duration::from_secs(1));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

const JSON: &str = "Content-Type: application/json\r\nConnection: close\r\n";
