//! The page of metrics as a content handler.

use nginx_sys::{NGX_HTTP_INTERNAL_SERVER_ERROR, ngx_http_request_t, ngx_int_t};

use super::request::Request;

callback! {
    /// nginx calls it for a request in a location with `peerage_metrics`.
    pub(super) fn handler(r: *mut ngx_http_request_t) -> ngx_int_t,
    or NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    {
        // SAFETY: nginx calls with a living request.
        let r = unsafe { Request::from_raw(r) };
        #[cfg(feature = "panic")]
        super::faults::panic_on_demand(r, "metrics");
        crate::metrics::handle(r)
    }
}
