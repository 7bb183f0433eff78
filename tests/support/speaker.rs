//! A server that speaks FastCGI, uwsgi, SCGI, or memcached: as little of it as nginx asks for.
//!
//! It answers every request with 200, its name as the body, and, where the protocol has headers,
//! `X-Backend`, `X-Connection`, and the parameters `REQUEST_URI` and `REQUEST_METHOD` as `X-Uri`
//! and `X-Method`, with the length of the body it was sent as `X-Length`.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::ports::Port;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    FastCgi,
    Uwsgi,
    Scgi,
    Memcached,
}

/// Listens from its making until it is dropped.
#[derive(Debug)]
pub struct Speaker {
    port: Port,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    protocol: Protocol,
    stop: AtomicBool,
    requests: AtomicU64,
    accepted: AtomicU64,
    open: AtomicUsize,
    streams: Mutex<HashMap<u64, TcpStream>>,
}

impl Speaker {
    pub fn new(name: &str, protocol: Protocol) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind(port.addr()).expect("the port is its own");
        let shared = Arc::new(Shared {
            name: name.into(),
            protocol,
            stop: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            streams: Mutex::default(),
        });
        let accepting = Some(thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        }));
        Self { port, shared, accepting }
    }

    /// Requests answered so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// As if the process died.
    pub fn stop(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.stop.store(true, Ordering::SeqCst);
        TcpStream::connect(self.port.addr()).ok(); // ends its accept
        accepting.join().ok(); // it does not panic
        let streams = self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.values() {
            stream.shutdown(Shutdown::Both).ok(); // the other side was first
        }
    }
}

impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::fmt(&self.port.addr(), f)
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let stream = listener.accept();
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = stream else { continue };
        let id = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        let streams = || shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(other) = stream.try_clone() {
            streams().insert(id, other);
        }
        shared.open.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let mut link = Link { stream: BufReader::new(stream), id, shared: &shared };
            // An error is a client that closed.
            while let Ok(true) = link.exchange() {}
            let streams = shared.streams.lock();
            let other = streams.unwrap_or_else(PoisonError::into_inner).remove(&id);
            drop((link, other));
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

struct Link<'a> {
    stream: BufReader<TcpStream>,
    id: u64,
    shared: &'a Shared,
}

type Parameters = HashMap<String, String>;

impl Link<'_> {
    /// One request and its answer; whether the connection goes on.
    fn exchange(&mut self) -> io::Result<bool> {
        match self.shared.protocol {
            Protocol::FastCgi => self.fastcgi(),
            Protocol::Uwsgi => self.uwsgi(),
            Protocol::Scgi => self.scgi(),
            Protocol::Memcached => self.memcached(),
        }
    }

    fn fastcgi(&mut self) -> io::Result<bool> {
        const BEGIN: u8 = 1;
        const PARAMS: u8 = 4;
        const STDIN: u8 = 5;
        let (mut keeps, mut params, mut body) = (false, Vec::new(), 0);
        loop {
            let [_, kind, _, _, high, low, padding, _] = self.array()?;
            let content = self.bytes(usize::from(high) << 8 | usize::from(low))?;
            self.bytes(padding.into())?;
            match kind {
                BEGIN => keeps = content[2] & 1 != 0,
                PARAMS => params.extend(content),
                STDIN if content.is_empty() => break,
                STDIN => body += content.len(),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        let mut parameters = Parameters::new();
        let mut rest = &params[..];
        while !rest.is_empty() {
            let mut length = || {
                let long = rest[0] & 0x80 != 0;
                let (number, after) = rest.split_at(if long { 4 } else { 1 });
                rest = after;
                let number = number.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
                if long { number & 0x7fff_ffff } else { number }
            };
            let (name, value) = (length(), length());
            let mut text = |n: usize| {
                let (text, after) = rest.split_at(n);
                rest = after;
                String::from_utf8_lossy(text).into_owned()
            };
            let name = text(name);
            parameters.insert(name, text(value));
        }
        let answer = self.answer("Status: 200 OK\r\n", &parameters, body);
        let mut out = Vec::new();
        let mut record = |kind: u8, content: &[u8]| {
            let [high, low] = (content.len() as u16).to_be_bytes();
            out.extend([1, kind, 0, 1, high, low, 0, 0]);
            out.extend(content);
        };
        record(6, &answer);
        record(6, b"");
        record(3, &[0; 8]);
        self.stream.get_mut().write_all(&out)?;
        Ok(keeps)
    }

    fn uwsgi(&mut self) -> io::Result<bool> {
        let [_, low, high, _] = self.array()?;
        let block = self.bytes(usize::from(u16::from_le_bytes([low, high])))?;
        let mut parameters = Parameters::new();
        let mut rest = &block[..];
        let text = |rest: &mut &[u8]| {
            let (length, after) = rest.split_at(2);
            let length = u16::from_le_bytes([length[0], length[1]]);
            let (text, after) = after.split_at(length.into());
            *rest = after;
            String::from_utf8_lossy(text).into_owned()
        };
        while !rest.is_empty() {
            let name = text(&mut rest);
            parameters.insert(name, text(&mut rest));
        }
        self.body_and_answer("HTTP/1.1 200 OK\r\n", &parameters)
    }

    fn scgi(&mut self) -> io::Result<bool> {
        let mut length = Vec::new();
        self.stream.read_until(b':', &mut length)?;
        length.pop();
        let length = String::from_utf8_lossy(&length).parse().map_err(io::Error::other)?;
        let block = self.bytes(length)?;
        self.bytes(1)?; // the comma
        let texts: Vec<String> =
            block.split(|&b| b == 0).map(|t| String::from_utf8_lossy(t).into_owned()).collect();
        let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        self.body_and_answer("Status: 200 OK\r\n", &pairs.collect())
    }

    fn memcached(&mut self) -> io::Result<bool> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let key = line.trim_end().strip_prefix("get ").ok_or(io::ErrorKind::InvalidData)?;
        let name = &self.shared.name;
        let answer = format!("VALUE {key} 0 {}\r\n{name}\r\nEND\r\n", name.len());
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        self.stream.get_mut().write_all(answer.as_bytes())?;
        Ok(true)
    }

    /// The end of a request whose answer ends with the connection.
    fn body_and_answer(&mut self, status: &str, parameters: &Parameters) -> io::Result<bool> {
        let length = parameters.get("CONTENT_LENGTH").and_then(|n| n.parse().ok()).unwrap_or(0);
        self.bytes(length)?;
        let answer = self.answer(status, parameters, length);
        self.stream.get_mut().write_all(&answer)?;
        self.stream.get_mut().shutdown(Shutdown::Write)?;
        Ok(false)
    }

    fn answer(&self, status: &str, parameters: &Parameters, length: usize) -> Vec<u8> {
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        let Shared { name, .. } = self.shared;
        let of = |name: &str| parameters.get(name).map_or("", String::as_str);
        format!(
            "{status}X-Backend: {name}\r\nX-Connection: {}\r\nX-Uri: {}\r\nX-Method: {}\r\n\
             X-Length: {length}\r\nContent-Length: {}\r\n\r\n{name}",
            self.id,
            of("REQUEST_URI"),
            of("REQUEST_METHOD"),
            name.len(),
        )
        .into_bytes()
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.stream.read_exact(&mut array)?;
        Ok(array)
    }

    fn bytes(&mut self, n: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
