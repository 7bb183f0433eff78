//! A header filter that sees responses which turn into tunnels: nginx tells balancers nothing at
//! a 101.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nginx_sys::{ngx_http_request_t, ngx_http_top_header_filter, ngx_int_t};

use super::request::Request;
use super::{fence, peer};

type Filter = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// The filter below ours; a [`Filter`], or null before there is one.
static NEXT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Puts the filter into the chain that nginx builds while it reads a configuration.
pub(crate) fn install() {
    // SAFETY: nginx builds the chain on its one thread, anew for each configuration.
    unsafe {
        let next = ngx_http_top_header_filter.map_or(ptr::null_mut(), |next| next as *mut ());
        NEXT.store(next, Ordering::Relaxed);
        ngx_http_top_header_filter = Some(header);
    }
}

unsafe extern "C" fn header(r: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls with a living request; its upstream is null or living.
    if unsafe { (*r).upstream.as_ref() }.is_some_and(|u| u.upgrade() != 0) {
        // SAFETY: as above.
        upgraded(unsafe { Request::from_raw(r) });
    }
    let next = NEXT.load(Ordering::Relaxed);
    if next.is_null() {
        return super::conf::ERROR;
    }
    // SAFETY: `install` put a filter there, which nginx had on top, and it is called as nginx
    // would.
    unsafe { mem::transmute::<*mut (), Filter>(next)(r) }
}

/// Notes that the request holds its server as long as the tunnel lasts.
#[cold]
fn upgraded(r: Request<'_>) {
    fence::guard("header filter", (), || {
        if let Some(peer) = peer::of(r)
            && let Some(worker) = peer.worker()
            && peer.choice.held()
        {
            worker.upgraded(&peer.choice);
        }
    });
}
