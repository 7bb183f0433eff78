//! Connecting: how a [`Stream`] begins.

use std::cell::Cell;
use std::future::poll_fn;
use std::mem;
use std::ptr;
use std::rc::Rc;
use std::task::{Context, Poll};

use nginx_sys::{
    ngx_event_connect_peer, ngx_event_get_peer, ngx_log_t, ngx_peer_connection_t, ngx_str_t,
    ngx_tcp_nodelay,
};

use super::conf::OK;
use super::global::Global;
use super::process;
use super::stream::{AGAIN, Inner, Side, Stream, listen};
use super::timer;
use crate::net::address::Address;
use crate::net::error::{Doing, Error};

impl Stream {
    /// Connects, without waiting for anything but the other side.
    pub(crate) async fn connect(address: &Address) -> Result<Self, Error> {
        if process::exiting() {
            return Err(Error::Exiting);
        }
        let (stream, connected) = begin(address)?;
        stream.settle(address, connected).await
    }

    /// Connects for requests that wait for it, also while the worker waits for their end. Graceful
    /// shutdown leaves the connection alone until it is [`rested`](Self::rest).
    pub(crate) async fn connect_for_requests(address: &Address) -> Result<Self, Error> {
        let (stream, connected) = begin(address)?;
        stream.rest(false);
        stream.settle(address, connected).await
    }

    /// Waits for the other side.
    async fn settle(self, address: &Address, connected: bool) -> Result<Self, Error> {
        if !connected {
            poll_fn(|cx| poll_connected(&self.0, cx)).await?;
        }
        if !address.is_unix()
            && let Some(c) = self.0.live()
        {
            // SAFETY: our connection. Where it fails, small writes are slower.
            unsafe { ngx_tcp_nodelay(c) };
        }
        Ok(self)
    }
}

/// Makes the connection; whether it is there at once.
fn begin(address: &Address) -> Result<(Stream, bool), Error> {
    let stream = Stream(Rc::new(Inner::new()));
    let inner = &*stream.0;
    let log = Rc::as_ptr(&stream.0).cast_mut().cast::<ngx_log_t>();
    let mut name = ngx_str_t { len: 6, data: c"server".as_ptr().cast_mut().cast() };
    let mut at = address.storage();
    // SAFETY: a C struct of integers, pointers and optional functions, for all of which zero
    // is a value. Address, name and `pc` are used during the call alone. The log lives as long
    // as `inner`, which closes the connection before it ends. `ngx_event_get_peer` does not
    // choose: the address is there.
    let (code, c) = unsafe {
        let mut pc: ngx_peer_connection_t = mem::zeroed();
        pc.sockaddr = (&raw mut at).cast();
        pc.socklen = address.len() as _;
        pc.name = &raw mut name;
        pc.get = Some(ngx_event_get_peer);
        pc.log = log;
        (ngx_event_connect_peer(&raw mut pc), pc.connection)
    };
    if c.is_null() || (code != OK && code != AGAIN) {
        let error = inner.failed(Doing::Connect);
        if let Error::Short(text) = &error {
            complain(text);
        }
        return Err(error);
    }
    inner.c.set(c);
    // SAFETY: a new connection of ours, which nobody else knows; as nginx does after
    // connecting for an upstream.
    unsafe {
        (*c).data = ptr::null_mut();
        (*c).log = log;
        (*log).connection = (*c).number;
        (*c).pool = ptr::null_mut();
        (*c).set_idle(1);
        listen(c);
    }
    Ok((stream, code == OK))
}

fn poll_connected(stream: &Inner, cx: &Context<'_>) -> Poll<Result<(), Error>> {
    let c = stream.usable()?;
    // SAFETY: our connection and its events.
    unsafe {
        if (*(*c).write).ready() == 0 {
            return stream.park(Side::Writer, cx);
        }
    }
    let mut errno: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: room for an integer, as the option takes; as ngx_http_upstream_test_connect.
    unsafe {
        let (to, len) = ((&raw mut errno).cast(), &raw mut len);
        if libc::getsockopt((*c).fd, libc::SOL_SOCKET, libc::SO_ERROR, to, len) != 0 {
            errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        }
    }
    Poll::Ready(match errno {
        0 => Ok(()),
        errno => Err(stream.keep(Error::System(Doing::Connect, errno))),
    })
}

/// Says in the log that something is used up: once for all that suffer from it in a while.
fn complain(text: &str) {
    static LAST: Global<Cell<u64>> = Global::new(Cell::new(0));
    let (last, now) = (LAST.get(), timer::fresh());
    if last.get() == 0 || now.saturating_sub(last.get()) >= QUIET {
        last.set(now.max(1));
        log!(Alert, "{text} while connecting to a server");
    }
}

/// ms between two lines about what is used up.
const QUIET: u64 = 10_000;
