//! Which upstream a request goes to, in a block that any number of them are behind.

use std::ptr;

use nginx_sys::{ngx_http_request_t, ngx_int_t, ngx_pnalloc, ngx_str_t};
use peerage_core::name::{Case, Glob};
use peerage_zone::Target;

use super::Peer;
use crate::balancer;
use crate::conf::Block;
use crate::conf::block::Name;
use crate::ffi::conf::{self, Complex, ERROR, OK};
use crate::ffi::request::Request;
use crate::ffi::routed;
use crate::routing;

/// Names what the request's route leads to, as `$peerage_route` would; false where it leads nowhere.
/// The name of an app is one, in lower case: who looked it up has seen to that.
///
/// # Safety
///
/// - `r` lives, and `peer` is what `init` has made of it
#[inline]
pub(super) unsafe fn name_by_route(r: *mut ngx_http_request_t, peer: *mut Peer) -> bool {
    // SAFETY: the caller's request and Peer, which nobody else refers to now. What a request keeps
    // of its look-up stays as long as its pool, and nobody writes to the name.
    unsafe {
        let Some(routed) = routed::of(Request::from_raw(r)) else { return false };
        let app = routed.app();
        if app.is_empty() {
            return false;
        }
        (*peer).name = ngx_str_t { len: app.len(), data: app.as_ptr().cast_mut() };
        if let Some(apps) = routed.found.apps {
            (*peer).worker = Some(apps);
            (*peer).elsewhere = Some(apps);
            if let Some(upstream) = routed.found.upstream {
                (*peer).choice.is_for(upstream);
            }
        }
    }
    true
}

/// Asks the request which upstream it is for.
///
/// # Safety
///
/// - `r` lives, and `peer` is what `init` has made of it
#[inline(never)]
pub(super) unsafe fn name_it(
    r: *mut ngx_http_request_t,
    peer: *mut Peer,
    value: &Complex,
    glob: Option<&Glob>,
) -> ngx_int_t {
    // SAFETY: the caller's request and Peer, which nobody else refers to now.
    unsafe {
        let Some(mut given) = value.evaluate(r) else { return ERROR };
        match balancer::serves(glob, conf::bytes(&given)) {
            Ok(Case::Folded) => {}
            Ok(Case::Mixed) => {
                let Some(folded) = fold(r, &given) else { return ERROR };
                given = folded;
            }
            Err(error) => (*peer).refuse(error),
        }
        (*peer).name = given;
        if routing::has_stores() && (*peer).error.is_none() {
            let elsewhere = routed::elsewhere(Request::from_raw(r), conf::bytes(&given));
            (*peer).worker = elsewhere.or((*peer).worker);
            (*peer).elsewhere = elsewhere;
        }
    }
    OK
}

/// The value in lower case, in the request's pool.
///
/// # Safety
///
/// - `r` lives, and `given` is of its pool or of the request
#[cold]
unsafe fn fold(r: *mut ngx_http_request_t, given: &ngx_str_t) -> Option<ngx_str_t> {
    // SAFETY: the caller's request; the copy has as many bytes as were taken for it.
    unsafe {
        let folded = conf::bytes(given).to_ascii_lowercase();
        let data = ngx_pnalloc((*r).pool, folded.len()).cast::<u8>();
        if data.is_null() {
            return None;
        }
        ptr::copy_nonoverlapping(folded.as_ptr(), data, folded.len());
        Some(ngx_str_t { len: folded.len(), data })
    }
}

/// The upstream that the block's name, or the request's, leads to.
///
/// # Safety
///
/// - `name` lives during `'a`
pub(super) unsafe fn target<'a>(block: &'a Block, name: &ngx_str_t) -> Target<'a> {
    match &block.name {
        Name::Fixed(fixed, _) => Target::Fixed(fixed),
        // SAFETY: the caller says so.
        Name::Keyed(..) => Target::Name(unsafe { conf::bytes(name) }),
    }
}
