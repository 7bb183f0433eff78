//! One connection of a backend: reads requests and answers as the mode and the path say.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::stream::Stream;
use super::{Hit, Mode, Shared, header, lock};

/// Serves a connection until one side closes it.
pub(super) fn serve(stream: Stream, id: u64, shared: &Shared) {
    let mut link = Link { stream: BufReader::new(stream), id, served: 0, last: false, shared };
    // An error here is a client or a story that closed; the counts tell what matters.
    while let Ok(Next::Request) = link.exchange() {}
}

struct Link<'a> {
    stream: BufReader<Stream>,
    id: u64,
    served: u64,
    /// The other side has asked for a close after the answer.
    last: bool,
    shared: &'a Shared,
}

enum Next {
    Request,
    Close,
}

impl Link<'_> {
    fn exchange(&mut self) -> io::Result<Next> {
        let Some(head) = self.head()? else { return Ok(Next::Close) };
        let active = self.shared.active.one();
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        self.served += 1;
        if self.shared.recording.load(Ordering::SeqCst) {
            lock(&self.shared.hits).push(Hit { connection: self.id, head: head.clone() });
        }
        self.last = header(&head, "connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
        let body = self.body(&head)?;
        let next = self.respond(&head, &body)?;
        drop(active);
        Ok(if self.last { Next::Close } else { next })
    }

    fn head(&mut self) -> io::Result<Option<String>> {
        let mut head = String::new();
        loop {
            let start = head.len();
            if self.stream.read_line(&mut head)? == 0 {
                return Ok(None);
            }
            if head[start..].trim_end().is_empty() {
                return Ok(Some(head));
            }
        }
    }

    fn body(&mut self, head: &str) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if header(head, "transfer-encoding").is_some() {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                let mut piece = vec![0; size + 2];
                self.stream.read_exact(&mut piece)?;
                if size == 0 {
                    return Ok(body);
                }
                body.extend_from_slice(&piece[..size]);
            }
        }
        if let Some(length) = header(head, "content-length") {
            body.resize(length.parse().map_err(io::Error::other)?, 0);
            self.stream.read_exact(&mut body)?;
        }
        Ok(body)
    }

    fn respond(&mut self, head: &str, body: &[u8]) -> io::Result<Next> {
        let mode = *lock(&self.shared.mode);
        match mode {
            Mode::Serve => {}
            Mode::Status(status) => return self.answer(status, b""),
            Mode::Slow(time) => self.pause(time)?,
            Mode::CloseAfter(time) => {
                self.pause(time)?;
                return Ok(Next::Close);
            }
            Mode::ResetAfter(time) => {
                self.pause(time)?;
                self.stream.get_ref().reset_on_close();
                return Ok(Next::Close);
            }
            Mode::Hold => self.hold()?,
        }
        if header(head, "upgrade").is_some() {
            return self.upgrade();
        }
        let target = head.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let number = |name: &str, default: u64| number(query, name).unwrap_or(default);
        let last = path.rsplit('/').next().unwrap_or_default();
        match last {
            "slow" => self.pause(Duration::from_millis(number("ms", 100)))?,
            "hold" => self.hold()?,
            "close" => return Ok(Next::Close),
            "reset" => {
                self.stream.get_ref().reset_on_close();
                return Ok(Next::Close);
            }
            "partial" => {
                self.begin(200, "Content-Length: 1000\r\n")?;
                self.stream.get_mut().write_all(&[b'x'; 500])?;
                return Ok(Next::Close);
            }
            "chunked" => return self.chunked(number("n", 10), number("ms", 0)),
            "download" => return self.download(number("kb", 64), number("ms", 0)),
            "echo" => return self.answer(200, &[head.as_bytes(), body].concat()),
            _ => {
                let status = path.rsplit_once("/status/").and_then(|(_, s)| s.parse().ok());
                if let Some(status) = status {
                    return self.answer(status, b"");
                }
            }
        }
        let name = lock(&self.shared.name).clone();
        self.answer(200, name.as_bytes())
    }

    fn answer(&mut self, status: u16, body: &[u8]) -> io::Result<Next> {
        self.begin(status, &format!("Content-Length: {}\r\n", body.len()))?;
        self.stream.get_mut().write_all(body)?;
        Ok(Next::Request)
    }

    fn begin(&mut self, status: u16, headers: &str) -> io::Result<()> {
        // Else nginx keeps the connection, and its next request may meet the close.
        let close = if self.last { "Connection: close\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {status} As ordered\r\nX-Backend: {}\r\nX-Connection: {}\r\n\
             X-Requests: {}\r\n{close}{headers}\r\n",
            lock(&self.shared.name),
            self.id,
            self.served,
        );
        self.stream.get_mut().write_all(text.as_bytes())
    }

    fn chunked(&mut self, n: u64, ms: u64) -> io::Result<Next> {
        self.begin(200, "Transfer-Encoding: chunked\r\n")?;
        for i in 0..n {
            self.pause(Duration::from_millis(if i == 0 { 0 } else { ms }))?;
            self.stream.get_mut().write_all(b"8\r\na chunk\n\r\n")?;
        }
        self.stream.get_mut().write_all(b"0\r\n\r\n")?;
        Ok(Next::Request)
    }

    fn download(&mut self, kb: u64, ms: u64) -> io::Result<Next> {
        self.begin(200, &format!("Content-Length: {}\r\n", kb * 1024))?;
        for i in 0..kb {
            self.pause(Duration::from_millis(if i == 0 { 0 } else { ms }))?;
            self.stream.get_mut().write_all(&[b'd'; 1024])?;
        }
        Ok(Next::Request)
    }

    fn upgrade(&mut self) -> io::Result<Next> {
        let upgraded = self.shared.upgraded.one();
        self.begin(101, "Connection: Upgrade\r\nUpgrade: websocket\r\n")?;
        let mut bytes = [0; 4096];
        loop {
            let n = self.stream.read(&mut bytes)?;
            if n == 0 {
                drop(upgraded);
                return Ok(Next::Close);
            }
            self.stream.get_mut().write_all(&bytes[..n])?;
        }
    }

    /// Waits for the next release.
    fn hold(&self) -> io::Result<()> {
        // A release after it was seen as held is for it.
        let turn = *lock(&self.shared.gate);
        self.shared.held.fetch_add(1, Ordering::SeqCst);
        let done = self.wait(turn, None);
        self.shared.held.fetch_sub(1, Ordering::SeqCst);
        done
    }

    fn pause(&self, time: Duration) -> io::Result<()> {
        if time.is_zero() { Ok(()) } else { self.wait(0, Some(Instant::now() + time)) }
    }

    /// Waits until then, or for the release after `turn`; an error as soon as the other side has
    /// closed.
    fn wait(&self, turn: u64, until: Option<Instant>) -> io::Result<()> {
        let mut gate = lock(&self.shared.gate);
        loop {
            let left = until.map(|then| then.saturating_duration_since(Instant::now()));
            let done = left.map_or(*gate != turn, |left| left.is_zero());
            if done {
                return Ok(());
            }
            drop(gate);
            if self.stream.get_ref().gone() || self.shared.stop.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            gate = lock(&self.shared.gate);
            if until.is_none() && *gate != turn {
                return Ok(());
            }
            let step = left.map_or(LOOK, |left| left.min(LOOK));
            let waited = self.shared.gate_turned.wait_timeout(gate, step);
            gate = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

fn number(query: &str, name: &str) -> Option<u64> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(n, _)| *n == name)?.1.parse().ok()
}

/// How often a waiting connection looks whether the other side is still there.
const LOOK: Duration = Duration::from_millis(20);
