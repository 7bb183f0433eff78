//! Variables: nginx asks for a value when one is read.

use nginx_sys::{
    NGX_HTTP_VAR_NOCACHEABLE, ngx_http_add_variable, ngx_http_request_t, ngx_http_variable_value_t,
    ngx_int_t, ngx_str_t, ngx_uint_t,
};

use super::bits;
use super::conf::{self, Conf, ERROR, OK, Refused};
use super::request::Request;
use super::routed;
use crate::variables::{self, Variable};

/// Makes a variable known to the configuration that is read.
pub(crate) fn add(cf: &Conf<'_>, which: Variable) -> Result<(), Refused> {
    let text = which.name();
    // SAFETY: the name is copied into the configuration's pool, where nginx lower-cases it;
    // nginx's answer is an entry of its own table.
    unsafe {
        let pool = (*cf.as_ptr()).pool;
        let mut name = conf::copy(pool, text.as_bytes()).ok_or(Refused(None))?;
        let flags = NGX_HTTP_VAR_NOCACHEABLE as ngx_uint_t;
        let entry = ngx_http_add_variable(cf.as_ptr(), &raw mut name, flags);
        let Some(entry) = entry.as_mut() else { return Err(Refused(None)) };
        entry.get_handler = Some(if which == Variable::Route { route } else { value });
        entry.data = which as usize;
    }
    Ok(())
}

callback! {
    fn value(r: *mut ngx_http_request_t, v: *mut ngx_http_variable_value_t, data: usize)
        -> ngx_int_t,
    or ERROR;
    {
        // SAFETY: nginx calls with a living request and with room for a value.
        let (request, v, pool) = unsafe { (Request::from_raw(r), &mut *v, (*r).pool) };
        let mut text = Vec::new();
        let found = Variable::from_index(data)
            .is_some_and(|which| variables::write(which, request, &mut text));
        if !found {
            v.set_not_found(1);
            return OK;
        }
        let Some(copy) = conf::copy(pool, &text) else { return ERROR };
        bits::set_value(v, copy);
        OK
    }
}

callback! {
    /// `$peerage_route`, which every request that is routed asks for: where it lies, without a copy.
    fn route(r: *mut ngx_http_request_t, v: *mut ngx_http_variable_value_t, _data: usize)
        -> ngx_int_t,
    or ERROR;
    {
        // SAFETY: as in `value`; what a request keeps of its look-up stays as long as its pool.
        let (request, v) = unsafe { (Request::from_raw(r), &mut *v) };
        let Some(routed) = routed::of(request) else {
            v.set_not_found(1);
            return OK;
        };
        let app = routed.app();
        // nginx writes to no value.
        bits::set_value(v, ngx_str_t { len: app.len(), data: app.as_ptr().cast_mut() });
        OK
    }
}
