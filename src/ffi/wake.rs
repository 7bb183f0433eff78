//! Wake-ups between the processes of one nginx: an eventfd for each place in its process table.
//!
//! The master makes them before it forks, so that every worker has all of them; each listens on
//! its own. An old worker does not know those made after it was forked, so whoever depends on a
//! wake-up keeps a timer as well.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nginx_sys::{
    ngx_connection_t, ngx_cycle, ngx_event_t, ngx_free_connection, ngx_get_connection,
    ngx_handle_read_event,
};

use super::conf::OK;
use super::fence;
use super::global::Global;
use super::process;

struct State {
    fds: RefCell<Vec<OwnedFd>>,
    connection: Cell<*mut ngx_connection_t>,
    woken: Cell<fn()>,
    exiting: Cell<fn()>,
    /// Graceful shutdown has been told.
    told: Cell<bool>,
}

static STATE: Global<State> = Global::new(State {
    fds: RefCell::new(Vec::new()),
    connection: Cell::new(ptr::null_mut()),
    woken: Cell::new(nothing),
    exiting: Cell::new(nothing),
    told: Cell::new(false),
});

fn nothing() {}

/// Makes eventfds for as many places; what is there stays, since old workers listen on it.
pub(crate) fn prepare(places: usize) -> std::io::Result<()> {
    let mut fds = STATE.get().fds.borrow_mut();
    while fds.len() < places {
        // SAFETY: no pointers; the answer is -1 or a descriptor that is ours alone.
        let fd = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(std::io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        fds.push(fd);
    }
    Ok(())
}

/// Closes what [`prepare`] made in this process; others keep theirs.
pub(crate) fn release() {
    STATE.get().fds.borrow_mut().clear();
}

/// Listens on this process's own; `woken` runs after a wake-up, `exiting` once, the moment
/// graceful shutdown begins.
pub(crate) fn listen(place: usize, woken: fn(), exiting: fn()) -> bool {
    let state = STATE.get();
    if !state.connection.get().is_null() {
        return true;
    }
    let fds = state.fds.borrow();
    let Some(fd) = fds.get(place) else { return false };
    state.woken.set(woken);
    state.exiting.set(exiting);
    // SAFETY: called in init_process, after nginx has set up its events and connections; the
    // connection is ours until `close`. `idle` makes nginx call the read handler when graceful
    // shutdown begins, as it does for idle keepalive connections; `channel` keeps it out of the
    // connections that nginx reports as left open.
    unsafe {
        let log = (*ngx_cycle).log;
        let c = ngx_get_connection(fd.as_raw_fd(), log);
        if c.is_null() {
            return false;
        }
        (*c).set_idle(1);
        (*(*c).read).handler = Some(readable);
        (*(*c).read).log = log;
        (*(*c).write).log = log;
        (*(*c).read).set_channel(1);
        (*(*c).write).set_channel(1);
        if ngx_handle_read_event((*c).read, 0) != OK {
            ngx_free_connection(c);
            return false;
        }
        state.connection.set(c);
    }
    true
}

/// Wakes every process of this nginx, this one included.
pub(crate) fn all() {
    for fd in STATE.get().fds.borrow().iter() {
        let one = 1_u64;
        // SAFETY: eight readable bytes, as an eventfd takes. It fails only when the counter is
        // full: then whoever listens has been woken already.
        unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// Wakes this process from another thread of it.
pub(crate) struct Bell(RawFd);

/// The bell of this process; `None` where it has no place.
pub(crate) fn bell() -> Option<Bell> {
    let fds = STATE.get().fds.borrow();
    fds.get(process::slot()).map(|fd| Bell(fd.as_raw_fd()))
}

impl Bell {
    pub(crate) fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight readable bytes; the descriptor stays open as long as the process, and it
        // fails only when the counter is full: then the process has been woken already.
        unsafe { libc::write(self.0, (&raw const one).cast(), 8) };
    }
}

/// Stops listening, before the process ends.
pub(crate) fn close() {
    let state = STATE.get();
    let c = state.connection.replace(ptr::null_mut());
    if c.is_null() {
        return;
    }
    // SAFETY: the connection that `listen` took; the process ends, and its descriptors with it.
    // The descriptor itself belongs to `fds`: nginx only forgets the connection.
    unsafe {
        ngx_free_connection(c);
        (*c).fd = -1;
    }
}

callback! {
    /// A wake-up, or nginx's word that graceful shutdown begins.
    fn readable(event: *mut ngx_event_t) -> (), or ();
    {
        let state = STATE.get();
        // SAFETY: nginx calls with the read event of the connection that `listen` set up.
        let (c, closing) = unsafe {
            let c = (*event).data.cast::<ngx_connection_t>();
            (c, (*c).close() != 0)
        };
        if closing && !state.told.replace(true) {
            fence::guard("exiting", (), || (state.exiting.get())());
        }
        let mut count = 0_u64;
        // SAFETY: eight writable bytes, as an eventfd gives; not blocking.
        unsafe { libc::read((*c).fd, (&raw mut count).cast(), 8) };
        if count != 0 {
            fence::guard("wake-up", (), || (state.woken.get())());
        }
        // SAFETY: as above.
        unsafe {
            if (*c).fd != -1 {
                ngx_handle_read_event(event, 0);
            }
        }
    }
}
