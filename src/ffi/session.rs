//! TLS sessions with servers, kept for the next connection: a few of this process's own.
//!
//! nginx asks for one before a handshake, and hands one over when the server has given it: with
//! TLS 1.3 that is while the response is read, perhaps after the balancer's `free`. A session is
//! used again with the same peer only, in the same SSL context (another one may not have verified
//! the certificate), and for the same name.

use std::cell::RefCell;
use std::ffi::CStr;
use std::mem::offset_of;
use std::ptr::{self, NonNull};

use nginx_sys::{
    SSL_SESSION, SSL_SESSION_free, SSL_get_servername, TLSEXT_NAMETYPE_host_name,
    ngx_http_complex_value_t, ngx_http_upstream_t, ngx_int_t, ngx_peer_connection_t,
    ngx_ssl_get_session, ngx_ssl_set_session,
};
use peerage_core::recent::Recent;
use peerage_zone::{Choice, Known, Worker};

use super::conf::OK;
use super::global::Global;

/// Sessions of a process, at most.
const MAX: usize = 1024;
/// Entries of upstreams that a round looks at, at most.
const BUDGET: usize = 100_000;

/// Which connections may use a session.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    /// Address of the worker, hence the zone.
    worker: usize,
    /// The peer, by the number that no other one of the zone has.
    peer: u32,
    /// Address of the SSL context; it lives as long as the configuration, see [`forget`].
    context: usize,
    /// The name asked for by SNI.
    name: Box<[u8]>,
}

/// Where the sessions of a key lie: made before the handshake, when the peer is held.
struct Place {
    worker: &'static Worker,
    peer: Known,
    session: Option<Session>,
}

/// A reference of ours to one of OpenSSL's sessions.
struct Session(NonNull<SSL_SESSION>);

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: `ngx_ssl_get_session` has counted this reference, which nobody else gives back.
        unsafe { SSL_SESSION_free(self.0.as_ptr()) };
    }
}

static PLACES: Global<RefCell<Option<Recent<Key, Place>>>> = Global::new(RefCell::new(None));

/// Before a handshake: gives the connection the session of its last like.
///
/// # Safety
///
/// - `pc` is the connection of an upstream of nginx's, with its SSL connection made
pub(super) unsafe fn give(
    pc: &mut ngx_peer_connection_t,
    worker: Option<&'static Worker>,
    choice: &Choice,
) -> ngx_int_t {
    // SAFETY: the caller's connection.
    let Some(key) = (unsafe { key(pc, worker, choice) }) else { return OK };
    let (Some(worker), Some(peer)) = (worker, choice.known()) else { return OK };
    let mut places = PLACES.get().borrow_mut();
    let places = places.get_or_insert_with(|| Recent::new(MAX));
    match places.get(&key) {
        Some(Place { session: Some(session), .. }) => {
            // SAFETY: the caller's connection; OpenSSL counts a reference of its own.
            unsafe { ngx_ssl_set_session(pc.connection, session.0.as_ptr()) }
        }
        Some(_) => OK,
        None => {
            places.put(key, Place { worker, peer, session: None });
            OK
        }
    }
}

/// The server has given a session: keeps it if there is a place for it.
///
/// # Safety
///
/// - as for [`give`]
pub(super) unsafe fn take(
    pc: &mut ngx_peer_connection_t,
    worker: Option<&'static Worker>,
    choice: &Choice,
) {
    // SAFETY: the caller's connection.
    let Some(key) = (unsafe { key(pc, worker, choice) }) else { return };
    let mut places = PLACES.get().borrow_mut();
    let Some(place) = places.as_mut().and_then(|places| places.get(&key)) else { return };
    // SAFETY: the caller's connection; nginx counts the reference that it gives.
    let session = NonNull::new(unsafe { ngx_ssl_get_session(pc.connection) });
    // The one before is given back.
    place.session = session.map(Session);
}

/// The key of a connection; none where its sessions are not to be used by others.
///
/// # Safety
///
/// - as for [`give`]
unsafe fn key(
    pc: &mut ngx_peer_connection_t,
    worker: Option<&'static Worker>,
    choice: &Choice,
) -> Option<Key> {
    let (worker, peer) = (ptr::from_ref(worker?).addr(), choice.number()?);
    // SAFETY: the connection is a part of its upstream, whose configuration outlives it, with the
    // SSL connection; the name is the SSL connection's own until it ends.
    unsafe {
        let u = ptr::from_mut(pc).byte_sub(offset_of!(ngx_http_upstream_t, peer));
        let conf = (*u.cast::<ngx_http_upstream_t>()).conf.as_ref()?;
        // The server knows a client of a resumed session as who it was at first.
        if varies(conf.ssl_certificate) || varies(conf.ssl_certificate_key) {
            return None;
        }
        let ssl = pc.connection.as_ref()?.ssl.as_ref()?;
        let name = SSL_get_servername(ssl.connection, TLSEXT_NAMETYPE_host_name as _);
        let name = if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() };
        Some(Key { worker, peer, context: ssl.session_ctx.addr(), name: name.into() })
    }
}

/// Whether a value is another one for each request.
///
/// # Safety
///
/// - `value` is null or nginx's
unsafe fn varies(value: *const ngx_http_complex_value_t) -> bool {
    // SAFETY: the caller says so.
    unsafe { value.as_ref() }.is_some_and(|value| !value.lengths.is_null())
}

/// Forgets the sessions of peers that are gone. In the half-second round.
pub(crate) fn sweep() {
    let mut budget = BUDGET;
    if let Some(places) = PLACES.get().borrow_mut().as_mut() {
        places.retain(|place| place.worker.knows(&mut place.peer, &mut budget));
    }
}

/// Forgets all: contexts are about to go, or have gone, and others may come to lie where they lay.
pub(crate) fn forget() {
    drop(PLACES.get().take());
}
