//! Where a request goes, as long as no server is chosen: `proxy_set_header` and its like are
//! evaluated before the balancer is asked.

use nginx_sys::{
    ngx_http_request_t, ngx_http_upstream_main_conf_t, ngx_http_upstream_module,
    ngx_http_upstream_resolved_t, ngx_http_upstream_srv_conf_t,
};

use super::conf::{self, own};
use super::gate::Gate;
use super::request::Request;
use crate::conf::block::Name;
use crate::conf::{Block, Srv};

static GATE: Gate = Gate::new();

/// The upstream of a request.
pub(crate) enum Destination<'a> {
    /// A block taken over, and the value that names the upstream if the request does.
    Block(&'a Block, Option<&'a [u8]>),
    /// Another block, or a host, by its name.
    Other(&'a [u8]),
}

/// The upstream that the request is being made for; `None` where it is made for none.
pub(crate) fn of(r: Request<'_>) -> Option<Destination<'_>> {
    // SAFETY: a living request, whose upstream, if any, and the configuration outlive the use of
    // it; nginx fills `conf` and `resolved` before it makes a request for the upstream.
    unsafe {
        let u = (*r.as_ptr()).upstream.as_ref()?;
        let Some(resolved) = u.resolved.as_ref() else {
            let us = u.conf.as_ref()?.upstream.as_ref()?;
            return Some(block(r, us).unwrap_or_else(|| Destination::Other(conf::bytes(&us.host))));
        };
        let found = upstreams(r.as_ptr()).iter().find(|us| is(us, resolved));
        let host = || Destination::Other(conf::bytes(&resolved.host));
        Some(found.and_then(|us| block(r, us)).unwrap_or_else(host))
    }
}

/// Whether a block of this name is not taken over: nginx balances over its servers itself.
pub(crate) fn is_static(r: Request<'_>, name: &str) -> bool {
    // SAFETY: a living request's configuration outlives it, with all its names.
    unsafe {
        upstreams(r.as_ptr()).iter().any(|us| {
            let named = conf::bytes(&us.host).eq_ignore_ascii_case(name.as_bytes());
            named && !us.srv_conf.is_null() && own::<Srv>(us.srv_conf).block().is_none()
        })
    }
}

/// The blocks of the configuration, and the hosts that stand in `proxy_pass` and its like.
///
/// # Safety
///
/// - the request lives during `'a`
unsafe fn upstreams<'a>(r: *mut ngx_http_request_t) -> &'a [&'a ngx_http_upstream_srv_conf_t] {
    // SAFETY: `main_conf` has an entry a module; the upstream module's has an array of pointers,
    // none of which is null.
    unsafe {
        let index = ngx_http_upstream_module.ctx_index;
        let umcf = (*(*r).main_conf.add(index)).cast::<ngx_http_upstream_main_conf_t>();
        (*umcf).upstreams.as_slice()
    }
}

/// Whether nginx takes this one for a host known at run time, as ngx_http_upstream_init_request.
fn is(us: &ngx_http_upstream_srv_conf_t, resolved: &ngx_http_upstream_resolved_t) -> bool {
    let port = (us.port == 0 && resolved.no_port != 0) || us.port == resolved.port;
    // SAFETY: both names live as long as what they stand in.
    port && unsafe { conf::bytes(&us.host).eq_ignore_ascii_case(conf::bytes(&resolved.host)) }
}

/// The block, if it is one taken over.
///
/// # Safety
///
/// - `us` is of the request's configuration
unsafe fn block<'a>(
    r: Request<'a>,
    us: &'a ngx_http_upstream_srv_conf_t,
) -> Option<Destination<'a>> {
    // A host that stands in `proxy_pass` has no configuration of its own.
    if us.srv_conf.is_null() {
        return None;
    }
    // SAFETY: a block's `srv_conf` has an entry a module, ours being a Srv.
    let block = unsafe { own::<Srv>(us.srv_conf) }.block()?;
    let value = match &block.name {
        Name::Fixed(..) => None,
        Name::Keyed(value, _) => {
            let value = GATE.pass(|| value.evaluate(r.as_ptr()))??;
            // SAFETY: the value is of the request or of its pool.
            Some(unsafe { conf::bytes(&value) })
        }
    };
    Some(Destination::Block(block, value))
}
