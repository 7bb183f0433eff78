//! HTTP over one connection: a request, as much of the response as is wanted, and the connection
//! again if it is fit for another one.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Request, StatusCode, rt};

use super::Stream;
use super::error::{Doing, Error};
use super::executor::{self, Handle};
use super::time::Deadline;
use crate::ffi::stream::Fate;

/// A body that is there as a whole.
pub(crate) type Body = Full<Bytes>;

/// A connection that speaks HTTP; dropping it closes it, whatever is under way.
pub(crate) struct Connection {
    sender: Sender,
    fate: Fate,
    /// The error with which the driver ended.
    end: Rc<RefCell<Option<Error>>>,
    /// What moves the bytes.
    _drivers: Rc<Drivers>,
}

/// A response whose body is yet to be read; dropping it closes the connection.
pub(crate) struct Exchange {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Once the body is whole.
    pub(crate) trailers: Option<HeaderMap>,
    connection: Connection,
    body: Incoming,
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Connection {
    /// Speaks HTTP/1.1 over a stream, and understands 1.0. A head of more bytes is an error; at least
    /// 8 KB are taken.
    pub(crate) async fn http1(stream: Stream, head: usize) -> Result<Self, Error> {
        let fate = stream.fate();
        let mut builder = http1::Builder::new();
        builder.max_buf_size(head.max(HEAD_MIN));
        let (sender, driver) =
            builder.handshake(stream).await.map_err(|e| error(&fate, None, &e))?;
        Ok(Self::new(Sender::One(sender), driver, fate, Rc::default()))
    }

    /// Speaks HTTP/2 over a stream, whose server is known to.
    pub(crate) async fn http2(stream: Stream, head: usize) -> Result<Self, Error> {
        let fate = stream.fate();
        let drivers = Rc::new(Drivers::default());
        let mut builder = http2::Builder::new(Executor(Rc::downgrade(&drivers)));
        builder.max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
        let (sender, driver) =
            builder.handshake(stream).await.map_err(|e| error(&fate, None, &e))?;
        Ok(Self::new(Sender::Two(sender), driver, fate, drivers))
    }

    fn new(
        sender: Sender,
        driver: impl Future<Output = hyper::Result<()>> + 'static,
        fate: Fate,
        drivers: Rc<Drivers>,
    ) -> Self {
        let end = Rc::new(RefCell::new(None));
        drivers.spawn({
            let (end, fate) = (Rc::clone(&end), fate.clone());
            async move {
                if let Err(e) = driver.await {
                    end.replace(Some(error(&fate, None, &e)));
                }
            }
        });
        Self { sender, fate, end, _drivers: drivers }
    }

    /// Whether it may be tried with another request.
    pub(crate) fn is_open(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => !sender.is_closed(),
            Sender::Two(sender) => !sender.is_closed(),
        }
    }

    /// Sends a request; gives the response as soon as its head is there.
    pub(crate) async fn send(mut self, request: Request<Body>) -> Result<Exchange, Error> {
        let sent = match &mut self.sender {
            Sender::One(sender) => sender.send_request(request).await,
            Sender::Two(sender) => sender.send_request(request).await,
        };
        let response = sent.map_err(|e| self.error(&e))?;
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status, head.headers);
        Ok(Exchange { status, headers, trailers: None, connection: self, body })
    }

    fn error(&self, e: &hyper::Error) -> Error {
        error(&self.fate, self.end.borrow().as_ref(), e)
    }
}

/// Sends a request over the connection that was kept, if there is one, else over a fresh one. Whoever
/// keeps a connection may meet its end at any time: where there was no answer yet, it asks again.
pub(crate) async fn send_over(
    kept: Option<Connection>,
    fresh: impl Future<Output = Result<Connection, Error>>,
    request: impl Fn() -> Result<Request<Body>, Error>,
    deadline: Deadline,
) -> Result<Exchange, Error> {
    if let Some(kept) = kept.filter(Connection::is_open) {
        match deadline.within(Doing::Exchange, kept.send(request()?)).await {
            Err(error) if error.is_stale() => {}
            sent => return sent,
        }
    }
    let fresh = fresh.await?;
    deadline.within(Doing::Exchange, fresh.send(request()?)).await
}

impl Exchange {
    /// The next piece of the body; `None`: it is whole.
    pub(crate) async fn data(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            match frame.map_err(|e| self.connection.error(&e))?.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(None)
    }

    /// The connection, for another request, once the body is whole.
    pub(crate) async fn end(self) -> Option<Connection> {
        let Self { mut connection, body, .. } = self;
        drop(body);
        let ready = match &mut connection.sender {
            Sender::One(sender) => sender.ready().await,
            Sender::Two(sender) => sender.ready().await,
        };
        ready.is_ok().then_some(connection)
    }
}

/// What an error of hyper's comes from.
fn error(fate: &Fate, end: Option<&Error>, e: &hyper::Error) -> Error {
    // hyper may tell the request no more than that the connection is gone.
    if let Some(cause) = fate.error() {
        return cause;
    }
    let source = std::error::Error::source(e);
    if e.is_canceled() || e.is_closed() {
        return match source.and_then(|source| source.downcast_ref()) {
            Some(cause) => error(fate, end, cause),
            None => end.cloned().unwrap_or(Error::Closed),
        };
    }
    if e.is_incomplete_message() || (fate.is_ended() && !e.is_parse()) {
        return Error::Closed;
    }
    let cause = source.map(|source| format!(": {source}"));
    Error::Protocol(format!("{e}{}", cause.unwrap_or_default()))
}

/// The futures that a connection needs besides the request's.
#[derive(Default)]
struct Drivers(RefCell<Vec<Handle>>);

impl Drivers {
    fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let handle = executor::spawn(future);
        let mut handles = self.0.borrow_mut();
        handles.retain(|handle| !handle.is_over());
        handles.push(handle);
    }
}

/// For hyper: runs what a connection needs as long as the connection is there.
#[derive(Clone)]
struct Executor(Weak<Drivers>);

impl<F: Future<Output = ()> + 'static> rt::Executor<F> for Executor {
    fn execute(&self, future: F) {
        if let Some(drivers) = self.0.upgrade() {
            drivers.spawn(future);
        }
    }
}

/// hyper's buffer has at least that many bytes.
const HEAD_MIN: usize = 8192;
