//! A client's request as the rest of the module sees it: text in, no pointer out.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use nginx_sys::{
    ngx_hash_key, ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_core_srv_conf_t,
    ngx_http_get_variable, ngx_http_request_t, ngx_str_t, ngx_table_elt_t,
};

/// A request that nginx is handling now; valid as long as the callback it was made in.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    r: NonNull<ngx_http_request_t>,
    life: PhantomData<&'a ()>,
}

impl<'a> Request<'a> {
    /// Takes the request that nginx handed to a callback.
    ///
    /// # Safety
    ///
    /// - `r` is not null and is a request that nginx has not freed, and will not free during `'a`
    ///   other than through [`super::task`], which ends the use of it
    pub(crate) unsafe fn from_raw(r: *mut ngx_http_request_t) -> Self {
        debug_assert!(!r.is_null());
        // SAFETY: not null, the caller says so.
        let r = unsafe { NonNull::new_unchecked(r) };
        Self { r, life: PhantomData }
    }

    /// The pointer, for the other files of the fence.
    pub(super) fn as_ptr(self) -> *mut ngx_http_request_t {
        self.r.as_ptr()
    }

    /// `GET`, `POST`, …, as sent.
    pub(crate) fn method(self) -> &'a [u8] {
        // SAFETY: a living request, whose strings live as long as its pool.
        unsafe { text(&raw const (*self.as_ptr()).method_name) }
    }

    /// The request's target as sent, with its query.
    pub(crate) fn unparsed_uri(self) -> &'a [u8] {
        // SAFETY: as in `method`.
        unsafe { text(&raw const (*self.as_ptr()).unparsed_uri) }
    }

    /// `merge_slashes` of the server.
    pub(crate) fn merges_slashes(self) -> bool {
        // SAFETY: `srv_conf` holds one entry a module; the core module's is a
        // ngx_http_core_srv_conf_t.
        unsafe {
            let index = ngx_http_core_module.ctx_index;
            let cscf = (*(*self.as_ptr()).srv_conf.add(index)).cast::<ngx_http_core_srv_conf_t>();
            (*cscf).merge_slashes != 0
        }
    }

    /// `$uri`: decoded, with nginx's slash and dot rules, after rewrites.
    pub(crate) fn uri(self) -> &'a [u8] {
        // SAFETY: as in `method`.
        unsafe { text(&raw const (*self.as_ptr()).uri) }
    }

    /// `$args`.
    pub(crate) fn args(self) -> &'a [u8] {
        // SAFETY: as in `method`.
        unsafe { text(&raw const (*self.as_ptr()).args) }
    }

    /// The name of the location, `/api` of `location /api { … }`.
    pub(crate) fn location(self) -> &'a [u8] {
        // SAFETY: `loc_conf` holds one entry a module, made by nginx before the phases begin; the
        // core module's is a ngx_http_core_loc_conf_t.
        unsafe {
            let index = ngx_http_core_module.ctx_index;
            let clcf = (*(*self.as_ptr()).loc_conf.add(index)).cast::<ngx_http_core_loc_conf_t>();
            text(&raw const (*clcf).name)
        }
    }

    /// What the client says in the header `name`; the first one if there are several.
    pub(crate) fn header(self, name: &str) -> Option<&'a [u8]> {
        // SAFETY: `headers` is nginx's list of ngx_table_elt_t; each part holds `nelts` of them,
        // and their strings live as long as the request's pool.
        unsafe {
            let headers = &raw const (*self.as_ptr()).headers_in.headers;
            let mut part = &raw const (*headers).part;
            while !part.is_null() {
                let elements = (*part).elts.cast::<ngx_table_elt_t>();
                for i in 0..(*part).nelts {
                    let element = elements.add(i);
                    if text(&raw const (*element).key).eq_ignore_ascii_case(name.as_bytes()) {
                        return Some(text(&raw const (*element).value));
                    }
                }
                part = (*part).next;
            }
        }
        None
    }

    /// The length of the body that the client announced.
    pub(crate) fn content_length(self) -> Option<u64> {
        // SAFETY: a living request.
        let length = unsafe { (*self.as_ptr()).headers_in.content_length_n };
        u64::try_from(length).ok()
    }

    /// The value of one of nginx's variables, `None` where it has none or an empty one.
    pub(crate) fn variable(self, name: &str) -> Option<&'a [u8]> {
        debug_assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'));
        // nginx writes lower case into the names it is given by the configuration only; this one
        // it reads.
        let mut name = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
        // SAFETY: the name lives on this stack during both calls; the value is in the request's
        // pool or in memory that outlives the request.
        unsafe {
            let key = ngx_hash_key(name.data, name.len);
            let value = ngx_http_get_variable(self.as_ptr(), &raw mut name, key);
            let value = value.as_ref()?;
            if value.not_found() != 0 || value.len() == 0 {
                return None;
            }
            Some(std::slice::from_raw_parts(value.data, value.len() as usize))
        }
    }

    /// The client's address as text, after the realip module.
    pub(crate) fn address(self) -> &'a [u8] {
        // SAFETY: a living request has its connection; addr_text lives in the connection's pool.
        unsafe { text(&raw const (*(*self.as_ptr()).connection).addr_text) }
    }

    /// The client's request that this one belongs to.
    pub(crate) fn main(self) -> Self {
        // SAFETY: `main` is the request itself or the one that it belongs to, which lives longer.
        unsafe { Request::from_raw((*self.as_ptr()).main) }
    }

    /// Whether nginx made this request itself, on behalf of another one.
    pub(crate) fn is_subrequest(self) -> bool {
        // SAFETY: a living request.
        unsafe { !ptr::eq((*self.as_ptr()).main, self.as_ptr()) }
    }
}

/// The bytes of one of nginx's strings.
///
/// # Safety
///
/// - `s` points at a string whose bytes live and do not change during `'a`
unsafe fn text<'a>(s: *const ngx_str_t) -> &'a [u8] {
    // SAFETY: the caller says that the string lives.
    let s = unsafe { *s };
    if s.len == 0 || s.data.is_null() {
        return &[];
    }
    // SAFETY: nginx's string has `len` bytes at `data`.
    unsafe { std::slice::from_raw_parts(s.data, s.len) }
}
