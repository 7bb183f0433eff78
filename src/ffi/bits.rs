//! Bits of nginx's structures, by way of C (bits.c says why). Nothing else may read or set them.

#[cfg(ngx_feature = "http_ssl")]
use nginx_sys::ngx_connection_t;
use nginx_sys::{ngx_http_request_t, ngx_http_variable_value_t, ngx_str_t, ngx_uint_t};

unsafe extern "C" {
    fn peerage_header_only(r: *mut ngx_http_request_t) -> ngx_uint_t;
    fn peerage_buffered(r: *mut ngx_http_request_t) -> ngx_uint_t;
    fn peerage_discards_body(r: *mut ngx_http_request_t) -> ngx_uint_t;
    fn peerage_internal(r: *mut ngx_http_request_t) -> ngx_uint_t;
    fn peerage_value_len(v: *const ngx_http_variable_value_t) -> usize;
    fn peerage_set_value(v: *mut ngx_http_variable_value_t, data: *mut u8, len: usize);
    fn peerage_disable_not_modified(r: *mut ngx_http_request_t);
    fn peerage_add_reference(r: *mut ngx_http_request_t);
    #[cfg(ngx_feature = "http_ssl")]
    fn peerage_no_wait_shutdown(c: *mut ngx_connection_t);
}

/// Whether the answer has no body.
///
/// # Safety
///
/// - `r` is a living request
pub(super) unsafe fn is_header_only(r: *mut ngx_http_request_t) -> bool {
    // SAFETY: the caller's request; C looks at it and keeps nothing.
    unsafe { peerage_header_only(r) != 0 }
}

/// Whether nginx's filters hold some of the answer.
///
/// # Safety
///
/// - `r` is a living request
pub(super) unsafe fn is_buffered(r: *mut ngx_http_request_t) -> bool {
    // SAFETY: as above.
    unsafe { peerage_buffered(r) != 0 }
}

/// Whether nginx reads a body that nobody wants.
///
/// # Safety
///
/// - `r` is a living request
pub(super) unsafe fn discards_body(r: *mut ngx_http_request_t) -> bool {
    // SAFETY: as above.
    unsafe { peerage_discards_body(r) != 0 }
}

/// Whether nginx has sent the request on, or made it itself.
///
/// # Safety
///
/// - `r` is a living request
pub(super) unsafe fn is_internal(r: *mut ngx_http_request_t) -> bool {
    // SAFETY: as above.
    unsafe { peerage_internal(r) != 0 }
}

/// Bytes of a variable's value; none where it was not found.
#[inline]
pub(super) fn value_len(value: &ngx_http_variable_value_t) -> usize {
    // SAFETY: C looks at the value and keeps nothing.
    unsafe { peerage_value_len(value) }
}

/// Makes these bytes the value of a variable.
#[inline]
pub(super) fn set_value(value: &mut ngx_http_variable_value_t, text: ngx_str_t) {
    // SAFETY: C writes the value and keeps nothing.
    unsafe { peerage_set_value(value, text.data, text.len) };
}

/// Keeps nginx from deciding the request's conditions by the answer's header.
///
/// # Safety
///
/// - `r` is a living request, and nothing refers to it meanwhile
pub(super) unsafe fn disable_not_modified(r: *mut ngx_http_request_t) {
    // SAFETY: the caller's request, which nobody else looks at now.
    unsafe { peerage_disable_not_modified(r) };
}

/// Counts one more who keeps the request.
///
/// # Safety
///
/// - `r` is a living main request, and nothing refers to it meanwhile
pub(super) unsafe fn add_reference(r: *mut ngx_http_request_t) {
    // SAFETY: as above.
    unsafe { peerage_add_reference(r) };
}

/// Keeps nginx from waiting for the other side's end of TLS.
///
/// # Safety
///
/// - `c` is an open connection with TLS, and nothing refers to its part of it meanwhile
#[cfg(ngx_feature = "http_ssl")]
pub(super) unsafe fn no_wait_shutdown(c: *mut ngx_connection_t) {
    // SAFETY: the caller's connection.
    unsafe { peerage_no_wait_shutdown(c) };
}
