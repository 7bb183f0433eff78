//! The balancer where nginx's `sticky` stands in the block: sessions keep their servers.
//!
//! `sticky` wraps our hooks. Before it calls `get` it points `hint` at what a session says of its
//! server; afterwards it looks at `sid`, which is to name the server chosen, for the session to
//! keep.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use nginx_sys::{NGX_BUSY, ngx_int_t, ngx_palloc, ngx_peer_connection_t, ngx_str_t};

use super::conf::{self, ERROR, OK};
use super::peer::{self, Peer};

callback! {
    /// Gives nginx the server that the session is bound to, else the next to try.
    pub(super) fn get(pc: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t,
    or NGX_BUSY as _;
    {
        // SAFETY: nginx calls with the connection of a request and the data that `peer::init` set,
        // which lives in that request's pool; the hint, if any, lives during the call.
        unsafe {
            let (pc, peer) = (&mut *pc, &mut *data.cast::<Peer>());
            let hint = pc.hint.as_ref().map(|hint| conf::bytes(hint));
            if let Some(hint) = hint
                && let Some(got) = peer::get_bound(pc, peer, hint)
            {
                return if got == OK { name(pc, peer, hint) } else { got };
            }
            let got = peer::get_next(pc, peer);
            if got != OK {
                return got;
            }
            match peer.worker().and_then(|worker| worker.sid(&peer.choice)) {
                Some(sid) => name(pc, peer, sid.as_bytes()),
                None => got,
            }
        }
    }
}

/// Gives nginx the name by which a session will know the server: fresh memory for each try.
///
/// # Safety
///
/// - the request of `peer` lives
unsafe fn name(pc: &mut ngx_peer_connection_t, peer: &Peer, sid: &[u8]) -> ngx_int_t {
    // SAFETY: the caller's request has its pool; the memory has room for both.
    unsafe {
        let memory = ngx_palloc(peer.pool(), size_of::<ngx_str_t>() + sid.len());
        let Some(memory) = NonNull::new(memory.cast::<ngx_str_t>()) else { return ERROR };
        let data = memory.add(1).cast::<u8>();
        ptr::copy_nonoverlapping(sid.as_ptr(), data.as_ptr(), sid.len());
        memory.write(ngx_str_t { len: sid.len(), data: data.as_ptr() });
        pc.sid = memory.as_ptr();
    }
    OK
}
