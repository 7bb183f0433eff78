//! The page for operators as a content handler.

use nginx_sys::{NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_http_request_t, ngx_int_t};

use super::request::Request;

callback! {
    /// nginx calls it for a request in a location with `peerage_dashboard`.
    pub(super) fn handler(r: *mut ngx_http_request_t) -> ngx_int_t,
    or NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    {
        // SAFETY: nginx calls with a living request.
        let r = unsafe { Request::from_raw(r) };
        #[cfg(feature = "panic")]
        super::faults::panic_on_demand(r, "dashboard");
        crate::dashboard::handle(r)
    }
}
