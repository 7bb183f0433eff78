//! A connection of our own to a server, on nginx's events: what hyper reads and writes.
//!
//! Events only wake who waits, so that nobody's work runs inside nginx's handlers and a stream may
//! be dropped anywhere; dropping it closes the connection and gives its slot back. nginx's view of
//! it: never reusable, so that a worker short of connections does not take it; idle, so that its
//! handler is called when graceful shutdown begins; and without `data`, by which nobody can take it
//! for the connection of a request or of a cache. It is known by its log, which is its own: what
//! nginx would write there about a server is not the log's but the owner's to tell, and is read for
//! the reason of an error.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem;
use std::pin::Pin;
use std::ptr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};
use nginx_sys::{
    NGX_AGAIN, NGX_LOG_INFO, ngx_close_connection, ngx_connection_t, ngx_cycle, ngx_destroy_pool,
    ngx_event_t, ngx_handle_read_event, ngx_handle_write_event, ngx_int_t, ngx_log_t, ngx_uint_t,
    u_char,
};

use super::conf::OK;
#[cfg(ngx_feature = "http_ssl")]
use super::tls;
use crate::net::error::{Doing, Error};

/// A connection; dropping it closes it.
pub(crate) struct Stream(pub(super) Rc<Inner>);

/// How a stream came to its end, for who no longer has the stream: hyper tells less than it knows.
#[derive(Clone)]
pub(crate) struct Fate(Rc<Inner>);

/// nginx finds this by the connection's log, which therefore comes first.
#[repr(C)]
pub(super) struct Inner {
    log: UnsafeCell<ngx_log_t>,
    /// Null once it is closed.
    pub(super) c: Cell<*mut ngx_connection_t>,
    /// Who waits for anything to be read, and to be written.
    wakers: RefCell<[Option<Waker>; 2]>,
    /// What nginx told last.
    said: RefCell<String>,
    /// The first error.
    error: RefCell<Option<Error>>,
    /// The other side has said all.
    ended: Cell<bool>,
    /// nginx wants it to end.
    told: Cell<bool>,
    /// What its SSL connection is made from.
    #[cfg(ngx_feature = "http_ssl")]
    trust: RefCell<Option<Rc<tls::Context>>>,
}

/// What one waits for.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Reader = 0,
    Writer = 1,
}

impl Stream {
    /// How it will have ended.
    pub(crate) fn fate(&self) -> Fate {
        Fate(Rc::clone(&self.0))
    }

    /// Says whether nobody waits for it: then it ends when graceful shutdown begins.
    pub(crate) fn rest(&self, rests: bool) {
        let Some(c) = self.0.live() else { return };
        // SAFETY: our connection.
        unsafe { (*c).set_idle(u32::from(rests)) };
    }
}

/// Has nginx tell a stream of its events; a handshake would have them for itself.
///
/// # Safety
///
/// - `c` is the open connection of a stream
pub(super) unsafe fn listen(c: *mut ngx_connection_t) {
    debug_assert!(!c.is_null());
    // SAFETY: the caller's connection, which has its events.
    unsafe {
        (*(*c).read).handler = Some(ready);
        (*(*c).write).handler = Some(ready);
    }
}

impl Fate {
    /// What went wrong with the connection itself.
    pub(crate) fn error(&self) -> Option<Error> {
        self.0.error.borrow().clone()
    }

    /// Whether the other side has closed it.
    pub(crate) fn is_ended(&self) -> bool {
        self.0.ended.get()
    }
}

impl Inner {
    pub(super) fn new() -> Self {
        // SAFETY: a C struct of integers, pointers and optional functions, for all of which zero is
        // a value. nginx writes to a file only where there is no writer.
        let mut log: ngx_log_t = unsafe { mem::zeroed() };
        log.log_level = NGX_LOG_INFO as ngx_uint_t;
        log.writer = Some(said);
        // SAFETY: the running cycle has its log.
        log.file = unsafe { (*(*ngx_cycle).log).file };
        Self {
            log: UnsafeCell::new(log),
            c: Cell::new(ptr::null_mut()),
            wakers: RefCell::default(),
            said: RefCell::default(),
            error: RefCell::default(),
            ended: Cell::new(false),
            told: Cell::new(false),
            #[cfg(ngx_feature = "http_ssl")]
            trust: RefCell::default(),
        }
    }

    /// The connection, as long as it is open.
    pub(super) fn live(&self) -> Option<*mut ngx_connection_t> {
        let c = self.c.get();
        (!c.is_null()).then_some(c)
    }

    /// The connection, if it is to be used.
    pub(super) fn usable(&self) -> Result<*mut ngx_connection_t, Error> {
        if self.told.get() {
            return Err(self.keep(Error::Exiting));
        }
        self.live().ok_or(Error::Closed)
    }

    /// Keeps an SSL context, until after the connection is closed.
    #[cfg(ngx_feature = "http_ssl")]
    pub(super) fn keep_trust(&self, trust: Rc<tls::Context>) {
        self.trust.replace(Some(trust));
    }

    /// Remembers the first error.
    pub(super) fn keep(&self, error: Error) -> Error {
        self.error.borrow_mut().get_or_insert(error).clone()
    }

    /// The error that nginx has just told.
    pub(super) fn failed(&self, doing: Doing) -> Error {
        let said = self.said.take();
        self.keep(Error::of_line(doing, &said))
    }

    /// To be woken at the next event.
    pub(super) fn park<T>(&self, side: Side, cx: &Context<'_>) -> Poll<T> {
        let waker = &mut self.wakers.borrow_mut()[side as usize];
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake(&self) {
        let wakers = self.wakers.take();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Reads into memory that need not be filled.
    ///
    /// # Safety
    ///
    /// - there are `len` bytes at `into`, more than none, that may be written
    unsafe fn poll_recv(
        &self,
        cx: &Context<'_>,
        into: *mut u8,
        len: usize,
    ) -> Poll<Result<usize, Error>> {
        let c = self.usable()?;
        // SAFETY: nginx sets `recv` of every connection that it makes; the caller's memory.
        let n = unsafe { (*c).recv.map_or(-1, |recv| recv(c, into, len)) };
        if n == AGAIN {
            // SAFETY: our connection's event.
            if unsafe { ngx_handle_read_event((*c).read, 0) } != OK {
                return Poll::Ready(Err(self.failed(Doing::Read)));
            }
            return self.park(Side::Reader, cx);
        }
        Poll::Ready(match usize::try_from(n) {
            Ok(n) => {
                self.ended.set(self.ended.get() | (n == 0));
                Ok(n)
            }
            Err(_) => Err(self.failed(Doing::Read)),
        })
    }

    fn poll_send(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        let c = self.usable()?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let data = bytes.as_ptr().cast_mut();
        // SAFETY: nginx sets `send` of every connection that it makes, and does not write to what
        // it sends.
        let n = unsafe { (*c).send.map_or(-1, |send| send(c, data, bytes.len())) };
        if n == AGAIN {
            // SAFETY: our connection's event.
            if unsafe { ngx_handle_write_event((*c).write, 0) } != OK {
                return Poll::Ready(Err(self.failed(Doing::Write)));
            }
            return self.park(Side::Writer, cx);
        }
        Poll::Ready(usize::try_from(n).map_err(|_| self.failed(Doing::Write)))
    }

    /// Says that nothing more will be written.
    fn shut(&self) {
        let Some(c) = self.live() else { return };
        // SAFETY: our connection. With TLS the end is told when the connection is closed.
        unsafe {
            #[cfg(ngx_feature = "http_ssl")]
            if !(*c).ssl.is_null() {
                return;
            }
            libc::shutdown((*c).fd, libc::SHUT_WR);
        }
    }

    fn close(&self) {
        let c = self.c.replace(ptr::null_mut());
        if c.is_null() {
            return;
        }
        // SAFETY: our connection, which nobody uses from here on; its pool is destroyed after it,
        // as nginx does. nginx takes its events and timers out of all its structures.
        unsafe {
            #[cfg(ngx_feature = "http_ssl")]
            tls::end(c);
            let pool = (*c).pool;
            ngx_close_connection(c);
            if !pool.is_null() {
                ngx_destroy_pool(pool);
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.close();
        drop(self.0.wakers.take());
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        // SAFETY: nothing is taken out of the buffer, and its memory lives during the call; it
        // advances by what was written.
        unsafe {
            let into = buf.as_mut();
            if into.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let (at, len) = (into.as_mut_ptr().cast(), into.len());
            self.0.poll_recv(cx, at, len).map(|read| {
                buf.advance(read?);
                Ok(())
            })
        }
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.poll_send(cx, bytes).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0.shut();
        Poll::Ready(Ok(()))
    }
}

callback! {
    /// Something can be read or written, or nginx wants the connection to end.
    fn ready(event: *mut ngx_event_t) -> (), or (); {
        // SAFETY: nginx calls with an event of a connection that `begin` has made and `close` has
        // not closed: its log is that of a living Inner, whose count is raised for this call.
        let (c, inner) = unsafe {
            let c = (*event).data.cast::<ngx_connection_t>();
            let inner = (*c).log.cast::<Inner>().cast_const();
            Rc::increment_strong_count(inner);
            (c, Rc::from_raw(inner))
        };
        // SAFETY: as above. Where events are told as long as they hold, this takes those back for
        // which nobody waits. If it fails, the connection's next use does.
        unsafe {
            if (*c).close() != 0 {
                inner.told.set(true);
            }
            if (*event).write() != 0 {
                ngx_handle_write_event(event, 0);
            } else {
                ngx_handle_read_event(event, 0);
            }
        }
        inner.wake();
    }
}

callback! {
    /// A line that nginx would write to a log.
    fn said(log: *mut ngx_log_t, _level: ngx_uint_t, line: *mut u_char, len: usize) -> (), or (); {
        // SAFETY: nginx calls with the log of a living Inner, and with a line of that many bytes.
        let (inner, line) = unsafe {
            (&*log.cast::<Inner>().cast_const(), std::slice::from_raw_parts(line, len))
        };
        let line = String::from_utf8_lossy(line);
        inner.said.replace(line.trim_end().to_owned());
    }
}

pub(super) const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;
