//! nginx's configuration while it is read, and what the module hangs on it.
//!
//! Each `*_conf` of the module is a Rust box owned by the configuration's pool. Directives get
//! shared references and change what they own through cells: nothing else runs meanwhile.

use std::any::type_name;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use nginx_sys::{
    NGX_ERROR, NGX_LOG_EMERG, NGX_OK, ngx_conf_full_name, ngx_conf_log_error, ngx_conf_open_file,
    ngx_conf_t, ngx_http_compile_complex_value, ngx_http_compile_complex_value_t,
    ngx_http_complex_value, ngx_http_complex_value_t, ngx_http_conf_ctx_t,
    ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_get_flushed_variable, ngx_http_module,
    ngx_http_request_t, ngx_http_upstream_module, ngx_http_upstream_srv_conf_t, ngx_msec_t,
    ngx_palloc, ngx_pcalloc, ngx_pool_t, ngx_resolver_t, ngx_str_t, ngx_uint_t,
};

use super::cycle::{Cycle, Home};
use super::file::File;
use super::log::printable;
use super::module::ngx_http_peerage_module;
use super::request::Request;
use super::resolve::Resolver;
use super::{admin, bits, dashboard, fence, metrics};
use crate::conf::{Content, Loc, Main, Srv};
use crate::variables::Variable;

/// Why a directive is refused: the text of the `[emerg]` line, or nothing when nginx said it.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Option<String>);

impl Refused {
    pub(crate) fn because(text: impl Into<String>) -> Self {
        Self(Some(text.into()))
    }
}

/// The configuration at the place nginx is reading.
pub(crate) struct Conf<'a> {
    cf: NonNull<ngx_conf_t>,
    life: PhantomData<&'a ()>,
}

impl<'a> Conf<'a> {
    /// Takes what nginx hands to a directive or a hook.
    ///
    /// # Safety
    ///
    /// - `cf` is not null, is nginx's, and lives during `'a`
    /// - it stands inside http{}: `cf->ctx` is a ngx_http_conf_ctx_t
    pub(super) unsafe fn from_raw(cf: *mut ngx_conf_t) -> Self {
        debug_assert!(!cf.is_null());
        // SAFETY: not null, the caller says so.
        Self { cf: unsafe { NonNull::new_unchecked(cf) }, life: PhantomData }
    }

    pub(super) fn as_ptr(&self) -> *mut ngx_conf_t {
        self.cf.as_ptr()
    }

    /// The directive's name and its arguments.
    pub(crate) fn args(&self) -> Result<Vec<&'a str>, Refused> {
        // SAFETY: nginx fills `args` with strings that live as long as the configuration's pool.
        let args = unsafe { (*(*self.as_ptr()).args).as_slice::<ngx_str_t>() };
        let name = args.first().map_or(&b""[..], |s| s.as_bytes());
        args.iter()
            .map(|s| {
                // SAFETY: the bytes live as long as the pool, hence during 'a.
                let bytes: &'a [u8] = unsafe { bytes(s) };
                std::str::from_utf8(bytes).map_err(|_| {
                    Refused::because(format!(
                        "invalid value \"{}\" in \"{}\" directive: not UTF-8",
                        String::from_utf8_lossy(bytes),
                        String::from_utf8_lossy(name)
                    ))
                })
            })
            .collect()
    }

    /// "FILE:LINE" of the directive, for errors found later.
    pub(crate) fn position(&self) -> String {
        // SAFETY: while a directive is read, `conf_file` is the file it stands in.
        unsafe {
            let Some(file) = (*self.as_ptr()).conf_file.as_ref() else { return String::new() };
            format!("{}:{}", String::from_utf8_lossy(file.file.name.as_bytes()), file.line)
        }
    }

    /// A path as nginx takes it: relative ones are below the prefix.
    pub(crate) fn full_name(&self, path: &str) -> Result<String, Refused> {
        self.below(path, 0)
    }

    /// The path of a file that belongs to the configuration: relative ones are below the directory
    /// of nginx.conf, as those of certificates are.
    pub(crate) fn conf_name(&self, path: &str) -> Result<String, Refused> {
        self.below(path, 1)
    }

    fn below(&self, path: &str, conf: ngx_uint_t) -> Result<String, Refused> {
        let mut copy = path.as_bytes().to_vec();
        copy.push(0);
        let mut name = ngx_str_t { len: path.len(), data: copy.as_mut_ptr() };
        // SAFETY: the name is null-terminated and lives during the call; nginx replaces it by a
        // string in the cycle's pool, or leaves it.
        let rc = unsafe { ngx_conf_full_name((*self.as_ptr()).cycle, &raw mut name, conf) };
        if rc != NGX_OK as isize {
            return Err(Refused(None));
        }
        Ok(String::from_utf8_lossy(name.as_bytes()).into_owned())
    }

    /// A file that is opened with this configuration, and anew at USR1; relative paths are below
    /// the prefix.
    pub(crate) fn open_file(&self, path: &str) -> Result<File, Refused> {
        // SAFETY: the name is copied into the configuration's pool, where nginx may keep it; the
        // file is in the list of the cycle that this configuration becomes.
        unsafe {
            let mut name = copy((*self.as_ptr()).pool, path.as_bytes()).ok_or(Refused(None))?;
            let file = ngx_conf_open_file((*self.as_ptr()).cycle, &raw mut name);
            Ok(File::from_raw(NonNull::new(file).ok_or(Refused(None))?))
        }
    }

    /// The cycle that this configuration becomes.
    pub(crate) fn cycle(&self) -> Cycle<'a> {
        // SAFETY: the cycle being built lives as long as its configuration.
        unsafe { Cycle::from_raw((*self.as_ptr()).cycle) }
    }

    /// The same, for what this configuration owns.
    pub(crate) fn home(&self) -> Home {
        self.cycle().home()
    }

    /// Writes an `[emerg]` line with the place of the directive.
    fn emerg(&self, text: &str) {
        let text = printable(text);
        // SAFETY: "%*s" takes a length and that many bytes, which `text` has.
        unsafe {
            ngx_conf_log_error(
                NGX_LOG_EMERG as ngx_uint_t,
                self.as_ptr(),
                0,
                c"%*s".as_ptr(),
                text.len(),
                text.as_ptr(),
            );
        }
    }

    /// The module's part of http{}.
    pub(crate) fn main(&self) -> &'a Main {
        // SAFETY: `main_conf` has an entry a module, and ours is what `create` made.
        unsafe {
            let ctx = (*self.as_ptr()).ctx.cast::<ngx_http_conf_ctx_t>();
            own::<Main>((*ctx).main_conf)
        }
    }

    /// The module's part of the upstream{} that is read.
    pub(crate) fn srv(&self) -> &'a Srv {
        // SAFETY: as in `main`; `srv_conf` is the upstream's own while its block is read.
        unsafe {
            let ctx = (*self.as_ptr()).ctx.cast::<ngx_http_conf_ctx_t>();
            own::<Srv>((*ctx).srv_conf)
        }
    }

    /// The upstream{} that is read.
    pub(crate) fn upstream(&self) -> super::upstream::Upstream<'a> {
        // SAFETY: while an upstream{} is read, `srv_conf` holds the upstream module's entry, which
        // ngx_http_upstream put there itself.
        unsafe {
            let ctx = (*self.as_ptr()).ctx.cast::<ngx_http_conf_ctx_t>();
            let index = ngx_http_upstream_module.ctx_index;
            let us = (*(*ctx).srv_conf.add(index)).cast::<ngx_http_upstream_srv_conf_t>();
            super::upstream::Upstream::from_raw(us)
        }
    }

    /// The location that is read.
    pub(crate) fn location(&self) -> Location<'a> {
        // SAFETY: `loc_conf` has an entry a module; the core module's is a ngx_http_core_loc_conf_t.
        unsafe {
            let ctx = (*self.as_ptr()).ctx.cast::<ngx_http_conf_ctx_t>();
            let index = ngx_http_core_module.ctx_index;
            let clcf = (*(*ctx).loc_conf.add(index)).cast::<ngx_http_core_loc_conf_t>();
            let loc = own::<Loc>((*ctx).loc_conf);
            Location { clcf: NonNull::new_unchecked(clcf), loc, life: PhantomData }
        }
    }

    /// Whether http{} has a `resolver`.
    pub(crate) fn has_resolver(&self) -> bool {
        self.http_resolver().is_some()
    }

    /// The `resolver` of http{}, with its `resolver_timeout`; to be asked for when all of http{} is
    /// read.
    pub(crate) fn resolver(&self) -> Option<Resolver> {
        let (resolver, timeout) = self.http_resolver()?;
        // SAFETY: nginx made the resolver when it read the directive, in this configuration's pool.
        unsafe { Resolver::of_pool(resolver, timeout, (*self.as_ptr()).pool) }
    }

    fn http_resolver(&self) -> Option<(NonNull<ngx_resolver_t>, ngx_msec_t)> {
        // SAFETY: `loc_conf` of http{} has an entry a module; the core module's is a
        // ngx_http_core_loc_conf_t. Where a location has none, nginx puts a resolver without
        // servers there.
        unsafe {
            let ctx = (*self.as_ptr()).ctx.cast::<ngx_http_conf_ctx_t>();
            let index = ngx_http_core_module.ctx_index;
            let clcf = &*(*(*ctx).loc_conf.add(index)).cast::<ngx_http_core_loc_conf_t>();
            let resolver = NonNull::new(clcf.resolver)?;
            let timeout = match clcf.resolver_timeout {
                // Not said: nginx's own default.
                ngx_msec_t::MAX => 30_000,
                timeout => timeout,
            };
            (resolver.as_ref().connections.nelts != 0).then_some((resolver, timeout))
        }
    }

    /// Compiles a value that may hold variables.
    pub(crate) fn complex(&self, text: &str) -> Result<Complex, Refused> {
        // SAFETY: value and text are copied into the configuration's pool, where nginx expects
        // them to stay.
        unsafe {
            let pool = (*self.as_ptr()).pool;
            let mut value = copy(pool, text.as_bytes()).ok_or(Refused(None))?;
            let cv = ngx_pcalloc(pool, size_of::<ngx_http_complex_value_t>())
                .cast::<ngx_http_complex_value_t>();
            let Some(found) = NonNull::new(cv) else { return Err(Refused(None)) };
            let mut ccv: ngx_http_compile_complex_value_t = std::mem::zeroed();
            ccv.cf = self.as_ptr();
            ccv.value = &raw mut value;
            ccv.complex_value = cv;
            if ngx_http_compile_complex_value(&raw mut ccv) != NGX_OK as isize {
                return Err(Refused(None));
            }
            Ok(Complex::new(found))
        }
    }

    /// Runs a directive and turns its answer into nginx's.
    pub(super) fn run(&self, f: impl FnOnce(&Self) -> Result<(), Refused>) -> *mut c_char {
        match f(self) {
            Ok(()) => ptr::null_mut(),
            Err(Refused(text)) => {
                if let Some(text) = text {
                    self.emerg(&text);
                }
                CONF_ERROR
            }
        }
    }

    /// Writes an `[emerg]` line about something that was read earlier.
    pub(crate) fn emerg_at(&self, position: &str, text: &str) {
        // SAFETY: `cf->log` is the log of the configuration being read.
        let log = unsafe { super::log::Log::from_raw((*self.as_ptr()).log) };
        log.write(super::log::Level::Emerg, 0, format_args!("{text} in {position}"));
    }
}

/// NGX_CONF_ERROR, which nginx defines as a cast.
pub(super) const CONF_ERROR: *mut c_char = ptr::without_provenance_mut(usize::MAX);

/// A value with variables, evaluated for each request; lives as long as its configuration.
pub(crate) struct Complex {
    value: NonNull<ngx_http_complex_value_t>,
    /// The variable that is all there is.
    variable: Option<ngx_uint_t>,
    /// That is `$peerage_route`.
    is_route: bool,
}

impl Complex {
    fn new(value: NonNull<ngx_http_complex_value_t>) -> Self {
        let variable = Self::variable(value);
        // SAFETY: just compiled, with its text.
        let text = unsafe { bytes(&value.as_ref().value) };
        let route = Variable::Route.name().as_bytes();
        let is_route = text.split_first().is_some_and(|(_, name)| name.eq_ignore_ascii_case(route));
        Self { value, variable, is_route: variable.is_some() && is_route }
    }

    /// Whether it is `$peerage_route` and no more.
    pub(super) const fn is_route(&self) -> bool {
        self.is_route
    }

    /// The index of the variable that is all there is, as in `name=$service`.
    fn variable(value: NonNull<ngx_http_complex_value_t>) -> Option<ngx_uint_t> {
        // SAFETY: just compiled; nginx notes the variables of a value in the order of the
        // text, and an end.
        unsafe {
            let value = value.as_ref();
            let (dollar, rest) = bytes(&value.value).split_first()?;
            let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
            let is_one = *dollar == b'$' && !value.flushes.is_null() && rest.iter().all(word);
            // A capture of a regular expression is no variable.
            (is_one && !rest.first()?.is_ascii_digit()).then(|| *value.flushes)
        }
    }

    /// Whether the text holds no variable.
    pub(crate) fn is_constant(&self) -> bool {
        // SAFETY: made by `Conf::complex` in the pool of the configuration that owns this.
        unsafe { self.value.as_ref() }.lengths.is_null()
    }

    /// The value for a request, in the request's pool or the request itself.
    pub(super) fn evaluate(&self, r: *mut ngx_http_request_t) -> Option<ngx_str_t> {
        if let Some(index) = self.variable {
            // SAFETY: a living request of the configuration whose variable this is.
            let value = unsafe { ngx_http_get_flushed_variable(r, index).as_ref() };
            let Some(value) = value.filter(|value| value.not_found() == 0) else {
                return Some(ngx_str_t::empty());
            };
            return Some(ngx_str_t { len: bits::value_len(value), data: value.data });
        }
        let mut out = ngx_str_t::empty();
        // SAFETY: a living request of the configuration that owns this value; nginx does not
        // change the compiled value.
        let rc = unsafe { ngx_http_complex_value(r, self.value.as_ptr(), &raw mut out) };
        (rc == NGX_OK as isize).then_some(out)
    }
}

/// A location while it is read or merged.
pub(crate) struct Location<'a> {
    clcf: NonNull<ngx_http_core_loc_conf_t>,
    pub(crate) loc: &'a Loc,
    life: PhantomData<&'a ()>,
}

impl Location<'_> {
    pub(crate) fn name(&self) -> String {
        // SAFETY: nginx's location lives as long as its configuration.
        String::from_utf8_lossy(unsafe { self.clcf.as_ref() }.name.as_bytes()).into_owned()
    }

    /// `location @name`.
    pub(crate) fn is_named(&self) -> bool {
        // SAFETY: as in `name`.
        unsafe { self.clcf.as_ref() }.named() != 0
    }

    /// `location ~ pattern`.
    pub(crate) fn is_regex(&self) -> bool {
        #[cfg(ngx_feature = "pcre")]
        {
            // SAFETY: as in `name`.
            !unsafe { self.clcf.as_ref() }.regex.is_null()
        }
        #[cfg(not(ngx_feature = "pcre"))]
        false
    }

    /// `location = name`.
    pub(crate) fn is_exact(&self) -> bool {
        // SAFETY: as in `name`.
        unsafe { self.clcf.as_ref() }.exact_match() != 0
    }

    /// The body of a `limit_except`.
    pub(crate) fn is_limit_except(&self) -> bool {
        // SAFETY: as in `name`.
        unsafe { self.clcf.as_ref() }.lmt_excpt() != 0
    }

    /// Whether something answers here already.
    pub(crate) fn has_handler(&self) -> bool {
        // SAFETY: as in `name`.
        unsafe { self.clcf.as_ref() }.handler.is_some()
    }

    /// Has nginx ask for an answer here.
    pub(crate) fn serve(&self, content: &Content) {
        let handler = match content {
            Content::Api(_) => admin::handler,
            Content::Door(_) => admin::door,
            Content::Metrics(_) => metrics::handler,
            Content::Dashboard(_) => dashboard::handler,
        };
        // SAFETY: only the thread that reads the configuration touches it.
        unsafe { (*self.clcf.as_ptr()).handler = Some(handler) };
    }

    /// Has nginx lead from the name without its last slash to the location, as it does for those
    /// that are proxied.
    pub(crate) fn redirect_to_slash(&self) {
        // SAFETY: as in `serve`.
        unsafe { (*self.clcf.as_ptr()).set_auto_redirect(1) };
    }
}

/// What modules have in http{}, an entry each.
pub(super) fn http_main(cf: &Conf<'_>) -> *mut *mut c_void {
    // SAFETY: inside http{} `ctx` is a ngx_http_conf_ctx_t.
    unsafe { (*(*cf.as_ptr()).ctx.cast::<ngx_http_conf_ctx_t>()).main_conf }
}

/// The module's part of the location that a request is in.
pub(crate) fn loc(r: Request<'_>) -> &Loc {
    // SAFETY: a living request has `loc_conf` with an entry a module; the configuration outlives
    // its requests.
    unsafe { own::<Loc>((*r.as_ptr()).loc_conf) }
}

/// The module's part of http{} for a request.
pub(crate) fn main(r: Request<'_>) -> &Main {
    // SAFETY: as in `loc`.
    unsafe { own::<Main>((*r.as_ptr()).main_conf) }
}

/// The module's entry of a table of configurations.
///
/// # Safety
///
/// - `table` is nginx's array with an entry a module, ours made by [`create`] of `T`
/// - the configuration lives during `'a`
pub(super) unsafe fn own<'a, T>(table: *mut *mut c_void) -> &'a T {
    // SAFETY: the caller says so; nginx has set ctx_index before any configuration was made.
    unsafe {
        let index = ngx_http_peerage_module.ctx_index;
        let own = (*table.add(index)).cast::<T>();
        debug_assert!(!own.is_null(), "{}", type_name::<T>());
        &*own
    }
}

/// The module's part of http{} in a cycle; `None` where the cycle has no http{}.
///
/// # Safety
///
/// - `conf_ctx` is a cycle's, which lives during `'a`
pub(super) unsafe fn main_of<'a>(conf_ctx: *mut *mut *mut *mut c_void) -> Option<&'a Main> {
    // SAFETY: `conf_ctx` has an entry a module, the http module's being a ngx_http_conf_ctx_t or
    // null.
    unsafe {
        let index = ngx_http_module.index;
        let ctx = (*conf_ctx.add(index)).cast::<ngx_http_conf_ctx_t>();
        if ctx.is_null() || ngx_http_peerage_module.ctx_index == usize::MAX {
            return None;
        }
        Some(own::<Main>((*ctx).main_conf))
    }
}

/// Makes one of the module's configurations, which the pool drops.
pub(super) fn create<T: Default + 'static>(pool: *mut ngx_pool_t) -> *mut c_void {
    unsafe extern "C" fn free<T>(data: *mut c_void) {
        // SAFETY: `create` put the box there, and a pool runs each cleanup once.
        fence::guard("cleanup", (), || drop(unsafe { Box::from_raw(data.cast::<T>()) }));
    }
    // SAFETY: the pool is the configuration's.
    unsafe {
        let cleanup = nginx_sys::ngx_pool_cleanup_add(pool, 0);
        if cleanup.is_null() {
            return ptr::null_mut();
        }
        let data = Box::into_raw(Box::<T>::default()).cast::<c_void>();
        (*cleanup).handler = Some(free::<T>);
        (*cleanup).data = data;
        data
    }
}

/// A copy of some bytes in a pool.
pub(super) fn copy(pool: *mut ngx_pool_t, bytes: &[u8]) -> Option<ngx_str_t> {
    // SAFETY: the pool is a living one; the memory has room for the bytes and a null behind them.
    unsafe {
        let data = ngx_palloc(pool, bytes.len() + 1).cast::<u8>();
        if data.is_null() {
            return None;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
        *data.add(bytes.len()) = 0;
        Some(ngx_str_t { len: bytes.len(), data })
    }
}

/// The bytes of one of nginx's strings.
///
/// # Safety
///
/// - the bytes live and do not change during `'a`
pub(super) unsafe fn bytes<'a>(s: &ngx_str_t) -> &'a [u8] {
    if s.len == 0 || s.data.is_null() {
        return &[];
    }
    // SAFETY: nginx's string has `len` bytes at `data`.
    unsafe { std::slice::from_raw_parts(s.data, s.len) }
}

/// A literal as one of nginx's strings.
pub(super) const fn string(text: &'static CStr) -> ngx_str_t {
    ngx_str_t { len: text.count_bytes(), data: text.as_ptr().cast_mut().cast() }
}

/// NGX_ERROR and NGX_OK as callbacks give them.
pub(super) const ERROR: isize = NGX_ERROR as isize;
pub(super) const OK: isize = NGX_OK as isize;
