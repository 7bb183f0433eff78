//! The door of the faults build that fetches what a request asks for, and servers for it that
//! behave as no server should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::conf::Conf;
use super::http::Request;
use super::nginx::Nginx;
use super::wait::let_pass;
use super::{ms, secs};

/// A server that does one thing on every connection.
#[derive(Debug)]
pub struct Script {
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Script {
    pub fn new(act: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (act, over) = (Arc::new(act), Arc::clone(&stop));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let act = Arc::clone(&act);
                thread::spawn(move || act(stream.unwrap()));
            }
        });
        Self { addr, stop, accepting: Some(accepting) }
    }

    /// Reads a head, then says this, a piece at a time.
    pub fn says(pieces: &'static [&'static str]) -> Self {
        Self::new(move |mut stream| {
            while let Some(()) = read_head(&mut stream) {
                for (i, piece) in pieces.iter().enumerate() {
                    if i > 0 {
                        let_pass(ms(20));
                    }
                    if stream.write_all(piece.as_bytes()).is_err() {
                        return;
                    }
                }
                if !pieces.concat().contains("keep") {
                    return;
                }
            }
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        TcpStream::connect(self.addr).ok(); // wakes it
        self.accepting.take().unwrap().join().unwrap();
    }
}

pub fn read_head(stream: &mut TcpStream) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(())
}

/// An nginx that fetches what it is asked for.
pub fn fetcher() -> Conf {
    Nginx::faulty().http("peerage_zone main 1m;").with_api("write=on")
}

/// A request for a fetch.
pub fn wish(text: &str) -> Request {
    Request::get("/api/v1").header("Peerage-Fetch", text).timeout(secs(60))
}

/// What came of a fetch.
pub fn fetch(nginx: &Nginx, text: &str) -> Value {
    let reply = wish(text).send(nginx.addr("api")).unwrap();
    assert_eq!(reply.status, 200, "{text}: {}", reply.text());
    reply.json()
}

/// The one error of a fetch.
pub fn fetch_error(nginx: &Nginx, text: &str) -> String {
    let found = fetch(nginx, text);
    let errors = found["errors"].as_object().unwrap();
    assert_eq!(errors.len(), 1, "{text}: {found}");
    errors.keys().next().unwrap().clone()
}

/// A listening socket whose queue is full.
#[derive(Debug)]
pub struct FullQueue {
    pub addr: SocketAddr,
    _listener: rustix::fd::OwnedFd,
    _waiting: Vec<TcpStream>,
}

impl FullQueue {
    pub fn new() -> Self {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, 0).unwrap();
        let addr: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&addr, ms(200)) {
            waiting.push(stream);
        }
        Self { addr, _listener: listener, _waiting: waiting }
    }
}
