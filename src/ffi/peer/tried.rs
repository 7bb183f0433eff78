//! The address of a try, where nginx may keep it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nginx_sys::{
    NGX_BUSY, ngx_int_t, ngx_palloc, ngx_peer_connection_t, ngx_str_t, ngx_uint_t, sockaddr,
};
use peerage_shm::point;
use peerage_zone::{Address, CHUNK, Picked};

use super::Peer;
use crate::ffi::conf::OK;

/// Chunks of the address of a server by IPv4; others get memory of their own.
pub(super) const INLINE: usize = 2;

/// The address of one try, fresh memory for each: nginx reads it until the request's log phase.
#[repr(C)]
pub(super) struct Try {
    /// Points behind this struct, at the text that follows the socket address there.
    pub(super) name: ngx_str_t,
}

/// Writes the address where nginx may keep it: fresh memory for each try.
///
/// # Safety
///
/// - the request of `peer` lives
#[inline(always)]
pub(super) unsafe fn hand_over(
    pc: &mut ngx_peer_connection_t,
    peer: &mut Peer,
    picked: &Picked,
) -> ngx_int_t {
    point!("peer.picked");
    let address = &picked.address;
    let memory = if peer.last.is_null() && address.rest.len() < INLINE {
        peer.first.as_mut_ptr().cast::<Try>()
    } else {
        // SAFETY: the caller's request.
        let Some(memory) = (unsafe { memory_for(peer, address) }) else {
            // What was picked goes back with the request's pool.
            pc.name = &raw mut peer.name;
            return NGX_BUSY as _;
        };
        memory.as_ptr()
    };
    peer.last = memory;
    pc.tries = pc.tries.min(picked.tries as ngx_uint_t);
    // SAFETY: `memory` has room for a Try and as many chunks as there are; a copy of all of them
    // holds the socket address and the text.
    unsafe {
        let place = memory.add(1).cast::<[u64; CHUNK]>();
        let copy = |chunk: &[AtomicU64; CHUNK]| chunk.each_ref().map(|w| w.load(Ordering::Relaxed));
        place.write(copy(address.first));
        for (i, chunk) in address.rest.iter().enumerate() {
            place.add(1 + i).write(copy(chunk));
        }
        let data = place.cast::<u8>().add(address.name_at());
        (*memory).name = ngx_str_t { len: address.name_len(), data };
        pc.sockaddr = place.cast::<sockaddr>();
        pc.socklen = address.sockaddr_len() as _;
        pc.name = &raw mut (*memory).name;
    }
    OK
}

/// Memory for a try that goes to this address.
///
/// # Safety
///
/// - the request of `peer` lives
#[cold]
#[inline(never)]
unsafe fn memory_for(peer: &Peer, address: &Address) -> Option<NonNull<Try>> {
    let size = size_of::<Try>() + (1 + address.rest.len()) * size_of::<[u64; CHUNK]>();
    // SAFETY: a living request has its pool.
    NonNull::new(unsafe { ngx_palloc((*peer.r.as_ptr()).pool, size).cast::<Try>() })
}
