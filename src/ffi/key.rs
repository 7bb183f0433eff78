//! What a method chooses a server by, asked of the request: its hash key, the client's address.

use nginx_sys::{ngx_http_request_t, ngx_palloc, ngx_str_t};
use peerage_zone::{Input, Key, Target, Worker};

use super::request::Request;
use super::{conf, template};
use crate::conf::Block;

/// What a request said, kept for its further tries; in its pool, or its connection's.
pub(super) enum Said {
    Address(ngx_str_t),
    Text(ngx_str_t),
}

impl Said {
    /// Asks the request, in whose pool the answer stays; `None` where there is no memory.
    ///
    /// # Safety
    ///
    /// - `r` lives, and is a request of the block's configuration
    pub(super) unsafe fn ask(
        r: *mut ngx_http_request_t,
        (block, worker): (&Block, &Worker),
        target: &Target<'_>,
        input: Input,
    ) -> Option<*const Self> {
        // SAFETY: the caller's request; what is written fits the memory that was taken for it.
        unsafe {
            let said = match input {
                Input::Address => Self::Address(address(r)),
                Input::Text => Self::Text(match (own(r, worker, target), block.hash_key()) {
                    (Some(text), _) => conf::copy((*r).pool, &text)?,
                    (None, Some(value)) => value.evaluate(r)?,
                    // $remote_addr
                    (None, None) => (*(*r).connection).addr_text,
                }),
            };
            let place = ngx_palloc((*r).pool, size_of::<Self>()).cast::<Self>();
            if place.is_null() {
                return None;
            }
            place.write(said);
            Some(place.cast_const())
        }
    }

    /// For the choice.
    ///
    /// # Safety
    ///
    /// - the request that was asked lives during `'a`
    pub(super) unsafe fn key<'a>(&self) -> Key<'a> {
        // SAFETY: what was said lives as long as the request.
        unsafe {
            match self {
                Self::Address(bytes) => Key::Address(conf::bytes(bytes)),
                Self::Text(bytes) => Key::Text(conf::bytes(bytes)),
            }
        }
    }
}

/// The value of the upstream's own `hash_key`, if it has one.
///
/// # Safety
///
/// - `r` lives
unsafe fn own(r: *mut ngx_http_request_t, worker: &Worker, target: &Target<'_>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    if !worker.hash_key(target, &mut text) {
        return None;
    }
    let mut value = Vec::new();
    // SAFETY: the caller's request.
    let r = unsafe { Request::from_raw(r) };
    template::evaluate(r, str::from_utf8(&text).unwrap_or_default(), &mut value);
    Some(value)
}

/// What ngx_http_upstream_init_ip_hash_peer takes of the client's address: the first three bytes
/// of an IPv4 one, all of an IPv6 one, else zeros.
///
/// # Safety
///
/// - `r` lives
unsafe fn address(r: *mut ngx_http_request_t) -> ngx_str_t {
    static NONE: [u8; 3] = [0; 3];
    // SAFETY: a connection of a client has its address, of the size of its family; it stays until
    // the request ends.
    unsafe {
        let address = (*(*r).connection).sockaddr;
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let bytes = &raw mut (*address.cast::<libc::sockaddr_in>()).sin_addr;
                ngx_str_t { len: 3, data: bytes.cast() }
            }
            libc::AF_INET6 => {
                let bytes = &raw mut (*address.cast::<libc::sockaddr_in6>()).sin6_addr;
                ngx_str_t { len: 16, data: bytes.cast() }
            }
            _ => ngx_str_t { len: NONE.len(), data: NONE.as_ptr().cast_mut() },
        }
    }
}
