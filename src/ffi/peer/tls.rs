//! TLS sessions with the server of a try, as nginx asks for them and hands them over.

use std::ffi::c_void;

use nginx_sys::{ngx_int_t, ngx_peer_connection_t};

#[cfg(ngx_feature = "http_ssl")]
use super::Peer;
use crate::ffi::conf::OK;
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::session;

#[cfg(ngx_feature = "http_ssl")]
callback! {
    /// nginx calls it before a TLS handshake with a server, after `get`.
    pub(super) fn set_session(pc: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t, or OK;
    {
        // SAFETY: as in `get`; nginx has made the SSL connection.
        unsafe {
            let peer = &*data.cast::<Peer>();
            session::give(&mut *pc, peer.worker, &peer.choice)
        }
    }
}

#[cfg(ngx_feature = "http_ssl")]
callback! {
    /// nginx calls it when the server has given a session, before `free` or after it, as long as
    /// the connection is the request's.
    pub(super) fn save_session(pc: *mut ngx_peer_connection_t, data: *mut c_void) -> (), or ();
    {
        // SAFETY: as in `set_session`; the request whose connection it is has its pool.
        unsafe {
            let peer = &*data.cast::<Peer>();
            session::take(&mut *pc, peer.worker, &peer.choice);
        }
    }
}

/// An nginx with TLS crashes where there is none, also with a module built for one without.
#[cfg(all(not(ngx_feature = "http_ssl"), any(ngx_feature = "ssl", ngx_feature = "compat")))]
pub(super) unsafe extern "C" fn set_session(
    _pc: *mut ngx_peer_connection_t,
    _data: *mut c_void,
) -> ngx_int_t {
    OK
}

#[cfg(all(not(ngx_feature = "http_ssl"), any(ngx_feature = "ssl", ngx_feature = "compat")))]
pub(super) unsafe extern "C" fn save_session(_pc: *mut ngx_peer_connection_t, _data: *mut c_void) {}
