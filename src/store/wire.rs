//! Commands and answers over one connection, in their order.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, Write};
use peerage_core::redis::resp::{Parser, Value};

use super::fault::Fault;
use crate::net::Stream;
use crate::net::error::{Doing, Error};

/// A connection; dropping it closes it.
pub(super) struct Wire {
    stream: Stream,
    parser: Parser,
    out: Vec<u8>,
}

impl Wire {
    /// Takes answers of so many bytes at most.
    pub(super) fn new(stream: Stream, limit: usize) -> Self {
        Self { stream, parser: Parser::new(limit), out: Vec::new() }
    }

    /// What is to be sent yet.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Says whether nobody waits for it.
    pub(super) fn rest(&self, rests: bool) {
        self.stream.rest(rests);
    }

    /// Whether a part of an answer came.
    pub(super) fn is_amid(&self) -> bool {
        self.parser.is_amid()
    }

    /// Sends, and waits for the next value.
    pub(super) async fn next(&mut self) -> Result<Value, Fault> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, Fault>> {
        let sent = self.poll_send(cx);
        let next = self.poll_read(cx);
        match (sent, next) {
            // What it has said before it hung up tells more.
            (Poll::Ready(Err(error)), Poll::Pending) => Poll::Ready(Err(error)),
            (_, next) => next,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        while !self.out.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.out));
            let sent = sent.map_err(|error| fault(error, Doing::Write))?;
            self.out.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, Fault>> {
        loop {
            if let Some(value) = self.parser.value()? {
                return Poll::Ready(Ok(value));
            }
            let mut room = [0; ROOM];
            let mut buf = ReadBuf::new(&mut room);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf.unfilled()));
            read.map_err(|error| fault(error, Doing::Read))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Err(Error::Closed.into()));
            }
            self.parser.feed(buf.filled());
        }
    }
}

/// The stream's own error, which came as another kind.
fn fault(error: std::io::Error, doing: Doing) -> Fault {
    let errno = error.raw_os_error().unwrap_or(0);
    error.downcast::<Error>().unwrap_or(Error::System(doing, errno)).into()
}

/// Bytes that are read at once.
const ROOM: usize = 8192;
