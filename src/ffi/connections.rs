//! Connections of this process to upstream servers: idle ones that nginx keeps, and those of
//! requests.
//!
//! Neither needs nginx's private structures. An idle connection that no listening socket accepted
//! is one that a cache of upstream connections keeps; whoever sets `idle` lets it be closed by
//! `close` and its read handler, as nginx does itself at shutdown. A connection whose data is a
//! request that has it as its upstream's connection is that request's.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::ptr;

use nginx_sys::{NGX_HTTP_MODULE, ngx_connection_t, ngx_cycle, ngx_del_timer, ngx_http_request_t};
use peerage_zone::{Due, How, Worker, upstream_of};

use super::peer;
use super::request::Request;

/// Closes the idle connections to upstream servers that are due.
pub(crate) fn close_idle(due: &Due) {
    for c in upstream_connections() {
        let is_due = with_idle(c, |address, data| {
            let mut memory = [0; ITEM];
            due.may_cover(address) && {
                let len = peek(data, &mut memory);
                due.covers(address, &memory[..len])
            }
        });
        if is_due == Some(true) {
            // SAFETY: as ngx_close_idle_connections does at shutdown; the handler may free the
            // connection, which is not looked at again.
            unsafe {
                (*c).set_close(1);
                if let Some(handler) = (*(*c).read).handler {
                    handler((*c).read);
                }
            }
        }
    }
}

/// The numbers of the upstreams to which there are idle connections.
pub(crate) fn idle_upstreams() -> HashSet<u32> {
    let number = |c| {
        with_idle(c, |address, data| {
            let mut memory = [0; ITEM];
            let len = peek(data, &mut memory);
            upstream_of(address, &memory[..len])
        })
    };
    upstream_connections().filter_map(number).collect()
}

/// Gives the other side's address of an idle connection, and its data; `None`: it is not idle.
fn with_idle<T>(
    c: *mut ngx_connection_t,
    look: impl FnOnce(&[u8], *const libc::c_void) -> T,
) -> Option<T> {
    // SAFETY: a connection of the running cycle, on its one thread.
    let (fd, data, idle) = unsafe { ((*c).fd, (*c).data, (*c).idle() != 0) };
    let mut room = MaybeUninit::uninit();
    let address = idle.then(|| peer_name(fd, &mut room)).flatten()?;
    Some(look(address, data))
}

/// Ends the requests that are due and hold a server of this worker: nginx closes their connections
/// by its own rules.
pub(crate) fn end(worker: &Worker, due: &Due) {
    for c in upstream_connections() {
        // SAFETY: a connection of the running cycle, on its one thread.
        let (fd, data, idle) = unsafe { ((*c).fd, (*c).data, (*c).idle() != 0) };
        if idle || signature(data) != NGX_HTTP_MODULE {
            continue;
        }
        // SAFETY: data that begins with the signature of http's structures is a request, as nginx
        // itself sets it for the connection to an upstream server; the request lives as long as it
        // has that connection.
        let chosen = unsafe {
            let r = data.cast::<ngx_http_request_t>();
            let u = (*r).upstream;
            if u.is_null() || (*u).peer.connection != c {
                continue;
            }
            peer::of(Request::from_raw(r))
        };
        let ours = chosen.filter(|peer| peer.worker().is_some_and(|w| ptr::eq(w, worker)));
        match ours.and_then(|peer| due.wants(&peer.choice)) {
            None => {}
            // SAFETY: no pointers; nginx is told by the event that follows.
            Some(How::Shut) => unsafe {
                libc::shutdown(fd, libc::SHUT_RDWR);
            },
            // SAFETY: as ngx_event_expire_timers does; the handler may end the request and free the
            // connection, which are not looked at again.
            Some(How::Expire) => unsafe {
                let event = (*c).read;
                if (*event).timer_set() != 0 {
                    ngx_del_timer(event);
                }
                (*event).set_timedout(1);
                if let Some(handler) = (*event).handler {
                    handler(event);
                }
            },
        }
    }
}

/// Bytes of an idle connection's data that are looked at: the item of nginx's cache has 152.
const ITEM: usize = 160;

/// Connections that this process made: those that a listening socket accepted know it.
fn upstream_connections() -> impl Iterator<Item = *mut ngx_connection_t> {
    // SAFETY: in a worker the cycle has its array of connections from before our first event until
    // the process ends.
    let (first, n) = unsafe { ((*ngx_cycle).connections, (*ngx_cycle).connection_n) };
    let n = if first.is_null() { 0 } else { n };
    (0..n).map(move |i| first.wrapping_add(i)).filter(|&c| {
        // SAFETY: within the array.
        unsafe { (*c).fd != -1 && (*c).listening.is_null() && !(*c).data.is_null() }
    })
}

/// The other side's address, of the bytes that the kernel gives.
fn peer_name(fd: i32, room: &mut MaybeUninit<libc::sockaddr_storage>) -> Option<&[u8]> {
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: room for any address, zeroed first, and its length; the answer is read as bytes, no
    // more than there are.
    unsafe {
        *room = MaybeUninit::zeroed();
        if libc::getpeername(fd, room.as_mut_ptr().cast(), &raw mut len) != 0 {
            return None;
        }
        let len = (len as usize).min(size_of::<libc::sockaddr_storage>());
        Some(std::slice::from_raw_parts(room.as_ptr().cast::<u8>(), len))
    }
}

/// What a connection's data begins with.
fn signature(data: *const libc::c_void) -> u32 {
    let mut bytes = [0; size_of::<u32>()];
    if peek(data, &mut bytes) != bytes.len()
        && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
    {
        // SAFETY: where the system does not let us look (a filter of system calls), nginx's custom
        // has to do: the data of a connection in use is its module's, which is larger.
        return unsafe { data.cast::<u32>().read_unaligned() };
    }
    u32::from_ne_bytes(bytes)
}

/// Copies what lies at an address of this process, as far as there is memory and the system lets
/// us; how many bytes. Other modules' connections may have any data.
fn peek(at: *const libc::c_void, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: at.cast_mut(), iov_len: into.len() };
    // SAFETY: the system writes to `into` alone, and answers EFAULT where nothing is mapped.
    let read = unsafe {
        let pid = libc::getpid();
        libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(read).unwrap_or(0)
}
