//! The module as nginx loads it: its name, its directives, its hooks.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_void};
use std::ptr;

use nginx_sys::{
    NGX_CONF_1MORE, NGX_CONF_2MORE, NGX_CONF_ANY, NGX_CONF_TAKE1, NGX_CONF_TAKE123,
    NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET, NGX_HTTP_MAIN_CONF, NGX_HTTP_MAIN_CONF_OFFSET,
    NGX_HTTP_MODULE, NGX_HTTP_SRV_CONF, NGX_HTTP_SRV_CONF_OFFSET, NGX_HTTP_UPS_CONF, ngx_command_t,
    ngx_conf_t, ngx_cycle_t, ngx_http_module_t, ngx_int_t, ngx_module_t, ngx_uint_t,
};

use super::conf::{self, CONF_ERROR, Conf, ERROR, OK};
use super::cycle::Cycle;
use super::fence;
use crate::conf::{Loc, Main, Srv};
use crate::module;

/// nginx finds the module by this table, where nginx's own build has not made one.
#[cfg(feature = "export-modules")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static mut ngx_modules: [*mut ngx_module_t; 2] =
    [&raw mut ngx_http_peerage_module, ptr::null_mut()];

/// Its name, as nginx knows it.
#[cfg(feature = "export-modules")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static mut ngx_module_names: [*const c_char; 2] =
    [c"ngx_http_peerage_module".as_ptr(), ptr::null()];

/// It stands where nginx puts auxiliary filters: before the copy filter.
#[cfg(feature = "export-modules")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static mut ngx_module_order: [*const c_char; 3] =
    [c"ngx_http_peerage_module".as_ptr(), c"ngx_http_copy_filter_module".as_ptr(), ptr::null()];

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static mut ngx_http_peerage_module: ngx_module_t = ngx_module_t {
    ctx: CONTEXT.0.get().cast(),
    commands: COMMANDS.0.get().cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    init_module: Some(init_module),
    init_process: Some(init_process),
    exit_process: Some(exit_process),
    exit_master: Some(exit_master),
    ..ngx_module_t::default()
};

/// A table that nginx only reads, but takes as mutable.
struct Table<T>(UnsafeCell<T>);

// SAFETY: nobody writes it, and nginx reads it on one thread.
unsafe impl<T> Sync for Table<T> {}

static CONTEXT: Table<ngx_http_module_t> = Table(UnsafeCell::new(ngx_http_module_t {
    preconfiguration: Some(preconfiguration),
    postconfiguration: Some(postconfiguration),
    create_main_conf: Some(create_main_conf),
    init_main_conf: None,
    create_srv_conf: Some(create_srv_conf),
    merge_srv_conf: None,
    create_loc_conf: Some(create_loc_conf),
    merge_loc_conf: Some(merge_loc_conf),
}));

static COMMANDS: Table<[ngx_command_t; 19]> = Table(UnsafeCell::new([
    command(c"peerage_zone", NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, zone, NGX_HTTP_MAIN_CONF_OFFSET),
    command(c"peerage", NGX_HTTP_UPS_CONF | NGX_CONF_1MORE, peerage, NGX_HTTP_SRV_CONF_OFFSET),
    command(
        c"peerage_server",
        NGX_HTTP_UPS_CONF | NGX_CONF_1MORE,
        server,
        NGX_HTTP_SRV_CONF_OFFSET,
    ),
    command(
        c"peerage_defaults",
        NGX_HTTP_UPS_CONF | NGX_CONF_1MORE,
        defaults,
        NGX_HTTP_SRV_CONF_OFFSET,
    ),
    command(
        c"peerage_method",
        NGX_HTTP_UPS_CONF | NGX_CONF_TAKE123,
        method,
        NGX_HTTP_SRV_CONF_OFFSET,
    ),
    command(
        c"peerage_hash_key",
        NGX_HTTP_UPS_CONF | NGX_CONF_TAKE1,
        hash_key,
        NGX_HTTP_SRV_CONF_OFFSET,
    ),
    command(c"peerage_check", NGX_HTTP_UPS_CONF | NGX_CONF_ANY, check, NGX_HTTP_SRV_CONF_OFFSET),
    command(
        c"peerage_outlier",
        NGX_HTTP_UPS_CONF | NGX_CONF_ANY,
        outlier,
        NGX_HTTP_SRV_CONF_OFFSET,
    ),
    command(
        c"peerage_consul",
        NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE,
        consul,
        NGX_HTTP_MAIN_CONF_OFFSET,
    ),
    command(
        c"peerage_service",
        NGX_HTTP_UPS_CONF | NGX_CONF_2MORE,
        service,
        NGX_HTTP_SRV_CONF_OFFSET,
    ),
    command(
        c"peerage_redis",
        NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE,
        redis,
        NGX_HTTP_MAIN_CONF_OFFSET,
    ),
    command(c"peerage_log", NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1, log, NGX_HTTP_MAIN_CONF_OFFSET),
    command(
        c"peerage_route",
        NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_1MORE,
        route,
        NGX_HTTP_LOC_CONF_OFFSET,
    ),
    command(c"peerage_api", NGX_HTTP_LOC_CONF | NGX_CONF_ANY, api, NGX_HTTP_LOC_CONF_OFFSET),
    command(c"peerage_dyups", NGX_HTTP_LOC_CONF | NGX_CONF_ANY, dyups, NGX_HTTP_LOC_CONF_OFFSET),
    command(c"peerage_update", NGX_HTTP_LOC_CONF | NGX_CONF_ANY, update, NGX_HTTP_LOC_CONF_OFFSET),
    command(
        c"peerage_metrics",
        NGX_HTTP_LOC_CONF | NGX_CONF_ANY,
        metrics,
        NGX_HTTP_LOC_CONF_OFFSET,
    ),
    command(
        c"peerage_dashboard",
        NGX_HTTP_LOC_CONF | NGX_CONF_ANY,
        dashboard,
        NGX_HTTP_LOC_CONF_OFFSET,
    ),
    ngx_command_t::empty(),
]));

type Set = unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_command_t, *mut c_void) -> *mut c_char;

const fn command(
    name: &'static std::ffi::CStr,
    type_: u32,
    set: Set,
    conf: usize,
) -> ngx_command_t {
    ngx_command_t {
        name: conf::string(name),
        type_: type_ as ngx_uint_t,
        set: Some(set),
        conf: conf as ngx_uint_t,
        offset: 0,
        post: ptr::null_mut(),
    }
}

/// A directive's handler: nginx hands over its configuration, a safe function reads it.
macro_rules! directive {
    ($name:ident, $set:path) => {
        callback! {
            fn $name(cf: *mut ngx_conf_t, _cmd: *mut ngx_command_t, _conf: *mut c_void)
                -> *mut c_char,
            or CONF_ERROR;
            {
                // SAFETY: nginx calls with the configuration it reads, inside http{}.
                unsafe { Conf::from_raw(cf) }.run($set)
            }
        }
    };
}

directive!(zone, crate::conf::zone::set);
directive!(peerage, crate::conf::block::set);
directive!(server, crate::conf::block::server);
directive!(defaults, crate::conf::block::defaults);
directive!(method, crate::conf::block::method);
directive!(hash_key, crate::conf::block::hash_key);
directive!(check, crate::conf::check::check);
directive!(outlier, crate::conf::check::outlier);
directive!(consul, crate::conf::consul::consul);
directive!(service, crate::conf::consul::service);
directive!(redis, crate::conf::redis::set);
directive!(log, crate::conf::log::set);
directive!(route, crate::conf::route::set);
directive!(api, crate::conf::api::set);
directive!(dyups, crate::conf::door::dyups);
directive!(update, crate::conf::door::update);
directive!(metrics, crate::conf::metrics::set);
directive!(dashboard, crate::conf::dashboard::set);

callback! {
    fn preconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t, or ERROR;
    {
        fence::hook();
        // SAFETY: nginx calls with the configuration it is about to read, inside http{}.
        code(module::before(&unsafe { Conf::from_raw(cf) }))
    }
}

callback! {
    fn postconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t, or ERROR;
    {
        // SAFETY: nginx calls with the configuration it has read, inside http{}.
        code(module::after(&unsafe { Conf::from_raw(cf) }))
    }
}

callback! {
    fn create_main_conf(cf: *mut ngx_conf_t) -> *mut c_void, or ptr::null_mut();
    {
        // SAFETY: nginx calls with the configuration it is about to read.
        conf::create::<Main>(unsafe { (*cf).pool })
    }
}

callback! {
    fn create_srv_conf(cf: *mut ngx_conf_t) -> *mut c_void, or ptr::null_mut();
    {
        // SAFETY: as in create_main_conf.
        conf::create::<Srv>(unsafe { (*cf).pool })
    }
}

callback! {
    fn create_loc_conf(cf: *mut ngx_conf_t) -> *mut c_void, or ptr::null_mut();
    {
        // SAFETY: as in create_main_conf.
        conf::create::<Loc>(unsafe { (*cf).pool })
    }
}

callback! {
    fn merge_loc_conf(cf: *mut ngx_conf_t, parent: *mut c_void, _child: *mut c_void)
        -> *mut c_char,
    or CONF_ERROR;
    {
        // SAFETY: nginx calls with two configurations that create_loc_conf made; the location of
        // `cf` is the child's.
        let (cf, parent) = unsafe { (Conf::from_raw(cf), &*parent.cast::<Loc>()) };
        crate::conf::inherit(parent, &cf.location());
        ptr::null_mut()
    }
}

callback! {
    fn init_module(cycle: *mut ngx_cycle_t) -> ngx_int_t, or OK;
    {
        // SAFETY: nginx calls with the cycle that begins.
        module::started(unsafe { Cycle::from_raw(cycle) });
        OK
    }
}

callback! {
    fn init_process(cycle: *mut ngx_cycle_t) -> ngx_int_t, or OK;
    {
        // SAFETY: nginx calls with the cycle that runs.
        module::forked(unsafe { Cycle::from_raw(cycle) });
        OK
    }
}

callback! {
    fn exit_process(cycle: *mut ngx_cycle_t) -> (), or ();
    {
        // SAFETY: nginx calls with the cycle that ends.
        module::leaving(unsafe { Cycle::from_raw(cycle) });
    }
}

callback! {
    fn exit_master(cycle: *mut ngx_cycle_t) -> (), or ();
    {
        // SAFETY: nginx calls with the cycle that ends.
        module::ended(unsafe { Cycle::from_raw(cycle) });
    }
}

fn code(result: Result<(), ()>) -> ngx_int_t {
    if result.is_ok() { OK } else { ERROR }
}
