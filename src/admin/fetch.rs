//! A door for tests of `net`, in the faults build alone: fetches what a request asks for.
//!
//! `Peerage-Fetch: http://127.0.0.1:80/path;timeout=500` fetches by HTTP/1.1; `https:`, `h2:`
//! (HTTP/2 without TLS), `h2s:` and `tcp:` do what they say, and `http:unix:/path:/uri` goes to a
//! socket of the unix family. `times=` and `at_once=` are for many of them, `detach` leaves them to
//! themselves. `tasks:NAME` tries the executor instead.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer::{Kind, Timer};
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::tls::{Files, Handshake, Protocol};
use crate::net::Stream;
use crate::net::address::Address;
use crate::net::error::{Doing, Error};
use crate::net::executor::{self, Handle};
use crate::net::http::{Body, Connection};
use crate::net::time::{Deadline, sleep};
#[cfg(ngx_feature = "http_ssl")]
use crate::net::trust;

/// Answers with what came of it.
pub(super) fn handle(r: Request<'_>, wish: &[u8]) -> isize {
    let wish = String::from_utf8_lossy(wish).into_owned();
    task::run(r, task::Body::Discard, move |_, _| {
        let found = Rc::new(RefCell::new(None));
        let job = match wish.strip_prefix("tasks:") {
            Some(name) => tasks(name, Rc::clone(&found)),
            None => {
                let wish = Wish::parse(&wish).expect("a test asks for what there is");
                let is_detached = wish.has("detach");
                let job = executor::spawn(all(wish, Rc::clone(&found)));
                if is_detached {
                    found.replace(Some(json!({})));
                    mem::forget(job);
                    None
                } else {
                    Some(job)
                }
            }
        };
        Box::new(Fetch { found, _job: job })
    })
}

/// A request that waits for its fetches; with it, they end.
struct Fetch {
    found: Found,
    _job: Option<Handle>,
}

type Found = Rc<RefCell<Option<Value>>>;

impl Task for Fetch {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        match self.found.take() {
            Some(found) => {
                Turn::Answer(answer::json(200, Box::new(found.to_string().into_bytes())))
            }
            None => Turn::Wait(1),
        }
    }
}

/// What is asked for.
struct Wish {
    scheme: String,
    authority: String,
    address: Address,
    uri: String,
    params: BTreeMap<String, String>,
}

impl Wish {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(';');
        let (scheme, rest) = words.next()?.split_once(':')?;
        let (authority, address, uri) = match rest.strip_prefix("unix:") {
            Some(rest) => {
                let (path, uri) = rest.split_once(':')?;
                ("unix".to_owned(), Address::unix(path)?, uri.to_owned())
            }
            None => {
                let rest = rest.strip_prefix("//")?;
                let (at, uri) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let socket: std::net::SocketAddr = at.parse().ok()?;
                (at.to_owned(), Address::from(socket), uri.to_owned())
            }
        };
        let pair = |word: &str| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        };
        let params = words.map(pair).collect();
        Some(Self { scheme: scheme.to_owned(), authority, address, uri, params })
    }

    fn has(&self, name: &str) -> bool {
        self.params.contains_key(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.text(name).map_or(default, |text| text.parse().expect("a number"))
    }

    /// Has a stream speak TLS, if that is asked for.
    async fn shake(&self, stream: Stream) -> Result<Stream, Error> {
        match self.scheme.as_str() {
            #[cfg(ngx_feature = "http_ssl")]
            "https" | "h2s" => {
                let pair = self.text("cert").zip(self.text("key"));
                let files = Files {
                    ca: self.text("ca").map(str::to_owned),
                    certificate: pair.map(|(cert, key)| (cert.to_owned(), key.to_owned())),
                };
                let is_two = self.scheme == "h2s";
                let protocol = if is_two { Protocol::Http2 } else { Protocol::Any };
                let sni = self.text("name");
                let verify = self.has("verify").then(|| sni.unwrap_or("none"));
                trust::of(&files)?.shake(stream, Handshake { sni, verify, protocol }).await
            }
            _ => Ok(stream),
        }
    }

    async fn open(&self, deadline: Deadline) -> Result<Option<Connection>, Error> {
        let stream = deadline.within(Doing::Connect, Stream::connect(&self.address)).await?;
        let stream = deadline.within(Doing::Handshake, self.shake(stream)).await?;
        let head = self.number("head", 16_384) as usize;
        Ok(Some(match self.scheme.as_str() {
            "tcp" => return Ok(None),
            "h2" | "h2s" => Connection::http2(stream, head).await?,
            _ => Connection::http1(stream, head).await?,
        }))
    }

    /// Takes a response, or as much of it as is asked for.
    async fn take(
        &self,
        connection: Connection,
        request: hyper::Request<Body>,
    ) -> Result<(Reply, Option<Connection>), Error> {
        let limit = self.number("body", 1 << 24) as usize;
        let mut exchange = connection.send(request).await?;
        let (status, headers) = (exchange.status, exchange.headers.len());
        let mut reply = Reply { status, headers, body: Vec::new(), whole: false, trailers: None };
        while let Some(data) = exchange.data().await? {
            let room = limit - reply.body.len();
            reply.body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return Ok((reply, None));
            }
        }
        reply.whole = true;
        reply.trailers = exchange.trailers.as_ref().map(hyper::HeaderMap::len);
        Ok((reply, exchange.end().await))
    }

    /// One fetch, over the connection that is there; what is kept of it is for the next one.
    async fn fetch(&self, kept: &mut Option<Connection>) -> Result<Value, Error> {
        let deadline = Deadline::after(self.number("timeout", 10_000));
        let old = kept.take().filter(Connection::is_open);
        let reused = old.is_some();
        let connection = match old {
            Some(old) => old,
            None => match self.open(deadline).await? {
                Some(connection) => connection,
                None => return Ok(json!({ "connected": true })),
            },
        };
        let authority = self.text("host").unwrap_or(&self.authority);
        let request = hyper::Request::builder().method(self.text("method").unwrap_or("GET"));
        let request = if self.scheme.starts_with("h2") {
            request.version(hyper::Version::HTTP_2).uri(format!("http://{authority}{}", self.uri))
        } else {
            request.uri(&self.uri).header("Host", authority)
        };
        let request = request.body(self.text("send").unwrap_or_default().to_owned().into());
        let request = request.expect("a test asks for what may be asked for");
        let whole = self.take(connection, request);
        let (reply, again) = deadline.within(Doing::Exchange, whole).await?;
        let clean = again.is_some();
        *kept = again.filter(|_| !self.has("fresh"));
        Ok(json!({
            "status": reply.status.as_u16(), "headers": reply.headers,
            "bytes": reply.body.len(), "whole": reply.whole, "trailers": reply.trailers,
            "text": String::from_utf8_lossy(&reply.body[..reply.body.len().min(100)]),
            "reused": reused, "clean": clean,
        }))
    }
}

/// A response, or how it begins.
struct Reply {
    status: hyper::StatusCode,
    headers: usize,
    body: Vec<u8>,
    whole: bool,
    trailers: Option<usize>,
}

/// What became of many.
#[derive(Default)]
struct Sum {
    left: Cell<u64>,
    done: Cell<u64>,
    reused: Cell<u64>,
    /// Fetches that failed for nothing that the server has done.
    own: Cell<u64>,
    errors: RefCell<BTreeMap<String, u64>>,
    last: RefCell<Value>,
}

async fn all(wish: Wish, found: Found) {
    let (wish, sum) = (Rc::new(wish), Rc::new(Sum::default()));
    sum.left.set(wish.number("times", 1));
    let jobs: Vec<Handle> = (0..wish.number("at_once", 1))
        .map(|_| executor::spawn(some(Rc::clone(&wish), Rc::clone(&sum))))
        .collect();
    while jobs.iter().any(|job| !job.is_over()) {
        sleep(1).await;
    }
    found.replace(Some(json!({
        "done": sum.done.get(), "reused": sum.reused.get(), "errors": *sum.errors.borrow(),
        "own": sum.own.get(), "last": *sum.last.borrow(), "tasks": executor::count(),
    })));
}

async fn some(wish: Rc<Wish>, sum: Rc<Sum>) {
    let mut kept = None;
    while let Some(left) = sum.left.get().checked_sub(1) {
        sum.left.set(left);
        match wish.fetch(&mut kept).await {
            Ok(one) => {
                sum.done.set(sum.done.get() + 1);
                sum.reused.set(sum.reused.get() + u64::from(one["reused"] == true));
                sum.last.replace(one);
            }
            Err(error) => {
                sum.own.set(sum.own.get() + u64::from(error.is_own()));
                *sum.errors.borrow_mut().entry(error.to_string()).or_default() += 1;
            }
        }
        if let Some(pause) = wish.text("pause").and_then(|ms| ms.parse().ok()) {
            sleep(pause).await;
        }
    }
}

/// Tries of the executor.
fn tasks(name: &str, found: Found) -> Option<Handle> {
    Some(match name {
        // Ends in a panic; nobody else notices.
        "panic" => {
            found.replace(Some(json!({})));
            mem::forget(executor::spawn(async { panic!("asked for in a task") }));
            return None;
        }
        // Is dropped by itself, while it is polled.
        "own" => {
            let own = Rc::new(RefCell::new(None));
            let job = executor::spawn({
                let own: Rc<RefCell<Option<Handle>>> = Rc::clone(&own);
                async move {
                    drop(own.take());
                    found.replace(Some(json!({ "tasks": executor::count() })));
                    sleep(0).await;
                    unreachable!("it was dropped");
                }
            });
            own.replace(Some(job));
            return None;
        }
        // A thousand that want to go on at once, for a tenth of a millisecond each; how often
        // nginx looks at its timers meanwhile.
        "many" => executor::spawn(async move {
            let (turns, ticks) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let timer = ticking(&ticks);
            let jobs: Vec<Handle> = (0..1_000).map(|_| executor::spawn(busy(&turns))).collect();
            while jobs.iter().any(|job| !job.is_over()) {
                sleep(1).await;
            }
            drop(timer);
            found.replace(Some(json!({ "turns": turns.get(), "ticks": ticks.get() })));
        }),
        name => unreachable!("no task {name}"),
    })
}

/// Counts turns of the event loop in which a timer of 1 ms is due.
fn ticking(ticks: &Rc<Cell<u64>>) -> Rc<Timer> {
    Rc::new_cyclic(|timer: &Weak<Timer>| {
        let (timer, ticks) = (timer.clone(), Rc::clone(ticks));
        let tick = Timer::new(Kind::Cancelable, move || {
            ticks.set(ticks.get() + 1);
            if let Some(timer) = timer.upgrade() {
                timer.set(1);
            }
        });
        tick.set(1);
        tick
    })
}

fn busy(turns: &Rc<Cell<u64>>) -> impl Future<Output = ()> + 'static {
    let turns = Rc::clone(turns);
    let mut left = 10;
    std::future::poll_fn(move |cx| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(100) {
            std::hint::spin_loop();
        }
        turns.set(turns.get() + 1);
        left -= 1;
        if left == 0 {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
}
