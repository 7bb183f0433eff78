//! A raw HTTP/1.1 client: one connection, every byte under the story's control, always a timeout.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// A request, sent as it stands. `Host` is `localhost` unless set; `Content-Length` is added to
/// a body, and to POST, PUT and PATCH without one.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    chunk: Option<usize>,
    timeout: Duration,
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            headers: Vec::new(),
            body: None,
            chunk: None,
            timeout: TIMEOUT,
        }
    }

    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    /// Adds a header; the same name twice is sent twice, but `Host` replaces the default.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    /// Sends the body chunked, in chunks of `size` bytes.
    pub fn chunked(mut self, size: usize) -> Self {
        self.chunk = Some(size);
        self
    }

    /// How long to wait for bytes of the answer; 20 s unless said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends it on a fresh connection that is closed afterwards.
    pub fn send(&self, addr: SocketAddr) -> io::Result<Reply> {
        Conn::open(addr)?.send(&self.clone().closing())
    }

    /// With `Connection: close`, unless it says something about that itself.
    pub(super) fn closing(self) -> Self {
        if self.has("connection") { self } else { self.header("Connection", "close") }
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.has("host") {
            out += "Host: localhost\r\n";
        }
        for (name, value) in &self.headers {
            out += &format!("{name}: {value}\r\n");
        }
        let writes = matches!(self.method.as_str(), "POST" | "PUT" | "PATCH");
        let body = self.body.as_deref().unwrap_or_default();
        if self.chunk.is_some() {
            out += "Transfer-Encoding: chunked\r\n";
        } else if (self.body.is_some() || writes) && !self.has("content-length") {
            out += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut out = (out + "\r\n").into_bytes();
        let Some(size) = self.chunk else {
            out.extend_from_slice(body);
            return out;
        };
        for piece in body.chunks(size) {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }
}

/// GET on a fresh connection.
pub fn get(addr: SocketAddr, target: &str) -> io::Result<Reply> {
    Request::get(target).send(addr)
}

/// One connection, kept alive as long as both sides wish.
#[derive(Debug)]
pub struct Conn {
    stream: BufReader<TcpStream>,
}

impl Conn {
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and reads its answer. Nothing is ever tried again.
    pub fn send(&mut self, request: &Request) -> io::Result<Reply> {
        self.begin(request)?;
        self.reply()
    }

    /// Sends a request; [`Conn::reply`] reads its answer later.
    pub fn begin(&mut self, request: &Request) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(request.timeout))?;
        self.write(&request.bytes())
    }

    /// Sends a request byte by byte with `pause` between two.
    pub fn begin_slowly(&mut self, request: &Request, pause: Duration) -> io::Result<()> {
        for byte in request.bytes() {
            self.write(&[byte])?;
            thread::sleep(pause);
        }
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one answer whole.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut reply = self.head()?;
        self.body_of(&mut reply)?;
        Ok(reply)
    }

    /// Reads the head of an answer; after a 101, read and write raw bytes.
    pub fn head(&mut self) -> io::Result<Reply> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| bad(&format!("no status line: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Reply { status, headers, body: Vec::new() });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("header without colon"))?;
            headers.push((name.to_string(), value.trim().to_string()));
        }
    }

    /// Reads the body that belongs to a head.
    pub fn body_of(&mut self, reply: &mut Reply) -> io::Result<()> {
        if reply.status < 200 || reply.status == 204 || reply.status == 304 {
            return Ok(());
        }
        if reply.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
            return self.chunks(&mut reply.body);
        }
        let Some(length) = reply.header("content-length") else {
            self.stream.read_to_end(&mut reply.body)?;
            return Ok(());
        };
        let length: usize = length.parse().map_err(|_| bad("length is no number"))?;
        reply.body.resize(length, 0);
        self.stream.read_exact(&mut reply.body)
    }

    /// Reads exactly this many raw bytes.
    pub fn read(&mut self, n: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the other side has closed and nothing is left to read; waits up to `limit`.
    pub fn closed_within(&mut self, limit: Duration) -> bool {
        let set = self.stream.get_ref().set_read_timeout(Some(limit));
        set.is_ok()
            && !matches!(self.stream.fill_buf(), Err(e) if would_block(&e))
            && self.stream.buffer().is_empty()
    }

    /// Whether nothing comes for this time, neither a byte nor the end.
    pub fn silent_for(&mut self, time: Duration) -> bool {
        let before = self.stream.get_ref().read_timeout().ok().flatten();
        let set = self.stream.get_ref().set_read_timeout(Some(time));
        let silent = set.is_ok() && matches!(self.stream.fill_buf(), Err(e) if would_block(&e));
        silent && self.stream.get_ref().set_read_timeout(before).is_ok()
    }

    /// The same connection for another thread that writes.
    pub fn writer(&self) -> TcpStream {
        self.stream.get_ref().try_clone().expect("a descriptor more")
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.get_ref().local_addr().ok()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_string())
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("chunk without size"))?;
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            self.line()?;
            if size == 0 {
                return Ok(());
            }
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; fails the story when it is none.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error} in the {} answer {:?}", self.status, self.text()),
        }
    }

    /// Which [`super::Backend`] answered.
    pub fn backend(&self) -> &str {
        self.header("x-backend").unwrap_or_default()
    }
}

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_string())
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

const TIMEOUT: Duration = Duration::from_secs(20);
