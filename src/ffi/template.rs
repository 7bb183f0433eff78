//! Texts with variables that come at run time: evaluated for a request by nginx's own variables.

use nginx_sys::{
    ngx_hash_find, ngx_hash_key, ngx_http_core_main_conf_t, ngx_http_core_module,
    ngx_http_get_flushed_variable, ngx_http_get_variable, ngx_http_variable_t,
    ngx_http_variable_value_t, ngx_str_t, ngx_uint_t,
};
use peerage_core::template::{MAX_LEN, Part, parts};

use super::gate::Gate;
use super::request::Request;

static GATE: Gate = Gate::new();

/// Appends the value of a text; a variable without a value is nothing.
///
/// A text whose variables lead to another one's value finds nothing there, so that no text can make
/// a worker run in circles.
pub(crate) fn evaluate(r: Request<'_>, text: &str, out: &mut Vec<u8>) {
    let evaluate = || {
        for part in parts(text) {
            match part {
                Ok(Part::Literal(literal)) => out.extend_from_slice(literal.as_bytes()),
                Ok(Part::Variable(name)) => variable(r, name, out),
                // Who let the text in has read it to its end.
                Err(_) => break,
            }
        }
    };
    // Nothing is what was asked for inside of itself.
    GATE.pass(evaluate).unwrap_or_default();
}

/// Whether the configuration of a request has a variable of this name, which is in lower case.
pub(crate) fn knows(r: Request<'_>, name: &str) -> bool {
    let mut copy = name.as_bytes().to_vec();
    let cmcf = configuration(r);
    // SAFETY: the name lives during the call; nginx made the hash of ngx_http_variable_t when it
    // read the configuration, which outlives the request; the arrays hold the same.
    unsafe {
        let key = ngx_hash_key(copy.as_mut_ptr(), copy.len());
        let hash = (&raw const cmcf.variables_hash).cast_mut();
        let found = ngx_hash_find(hash, key, copy.as_mut_ptr(), copy.len());
        let prefixes = cmcf.prefix_variables.as_slice::<ngx_http_variable_t>();
        !found.is_null()
            || prefixes.iter().any(|v| copy.starts_with(v.name.as_bytes()))
            || index(cmcf, &copy).is_some()
    }
}

/// Appends the value of a variable.
fn variable(r: Request<'_>, name: &str, out: &mut Vec<u8>) {
    let mut lower = [0; MAX_LEN];
    let Some(lower) = lower.get_mut(..name.len()) else { return };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let mut name = ngx_str_t { len: lower.len(), data: lower.as_mut_ptr() };
    // SAFETY: the name lives during the calls; nginx gives null or a value that lives in the
    // request's pool, with `len` bytes where it was found.
    unsafe {
        let key = ngx_hash_key(name.data, name.len);
        let mut value = ngx_http_get_variable(r.as_ptr(), &raw mut name, key);
        // Some are known to nginx by their index alone.
        if value.as_ref().is_some_and(|value| value.not_found() != 0)
            && let Some(index) = index(configuration(r), name.as_bytes())
        {
            value = ngx_http_get_flushed_variable(r.as_ptr(), index);
        }
        out.extend_from_slice(value.as_ref().map_or(&[], |value| bytes(value)));
    }
}

/// The bytes of a value; none where it was not found.
///
/// # Safety
///
/// - the value is nginx's and lives
unsafe fn bytes(value: &ngx_http_variable_value_t) -> &[u8] {
    if value.not_found() != 0 || value.len() == 0 {
        return &[];
    }
    // SAFETY: a value that was found has `len` bytes at `data`.
    unsafe { std::slice::from_raw_parts(value.data, value.len() as usize) }
}

/// The index of a variable that a directive of the configuration names.
///
/// # Safety
///
/// - the configuration has been read
unsafe fn index(cmcf: &ngx_http_core_main_conf_t, name: &[u8]) -> Option<ngx_uint_t> {
    // SAFETY: the array is of nginx's variables, whose names live as long.
    let variables = unsafe { cmcf.variables.as_slice::<ngx_http_variable_t>() };
    variables.iter().position(|v| v.get_handler.is_some() && v.name.as_bytes() == name)
}

/// nginx's own part of http{} for a request.
fn configuration(r: Request<'_>) -> &ngx_http_core_main_conf_t {
    // SAFETY: `main_conf` has an entry a module, the core module's being a
    // ngx_http_core_main_conf_t; the configuration outlives its requests.
    unsafe {
        let index = ngx_http_core_module.ctx_index;
        &*(*(*r.as_ptr()).main_conf.add(index)).cast::<ngx_http_core_main_conf_t>()
    }
}
