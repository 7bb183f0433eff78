//! The precontent phase: a request's key is looked up, and the request keeps where it leads.
//!
//! Where a store has to be asked the request waits, and the worker goes on: the handler runs again
//! when it is known. A client that goes away takes its wait with it.
//!
//! The handler runs after access control and before `mirror` and `try_files`, in every location that
//! a request comes to. A request that it refused is not refused again by the same directive, so that
//! a server's error pages need no `peerage_route off`. A subrequest that comes before its request's
//! own look-up by the same directive, as the one of `auth_request`, is not refused either: the
//! request will be.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use nginx_sys::{
    NGX_AGAIN, NGX_DECLINED, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_OK, ngx_array_push,
    ngx_handle_read_event, ngx_http_block_reading, ngx_http_core_main_conf_t, ngx_http_core_module,
    ngx_http_core_run_phases, ngx_http_handler_pt, ngx_http_log_ctx_t,
    ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE, ngx_http_request_empty_handler, ngx_http_request_t,
    ngx_http_run_posted_requests, ngx_http_test_reading, ngx_int_t, ngx_pool_cleanup_t,
};
use peerage_zone::{AppName, Worker};

use super::bits;
use super::conf::{self, Conf};
use super::fence;
use super::global::Global;
use super::output;
use super::request::Request;
use super::spare::Spare;
use super::timer::{Kind, Timer};
use crate::conf::Route;
use crate::net::executor::{self, Handle};
use crate::routing::{self, Found, Looked};

/// What a request keeps of a look-up, until its pool's cleanup.
#[repr(C)]
pub(crate) struct Routed {
    cleanup: ngx_pool_cleanup_t,
    r: NonNull<ngx_http_request_t>,
    /// The directive that looked up; only compared.
    route: *const Route,
    pub(crate) found: Found,
    /// `None`: it is known.
    waiting: Option<Rc<Waiting>>,
    len: usize,
    name: AppName,
}

impl Routed {
    /// The app that the route leads to; empty where the request does not pass.
    pub(crate) fn app(&self) -> &[u8] {
        &self.name.as_flattened()[..self.len]
    }

    fn is_of(&self, route: &Rc<Route>) -> bool {
        ptr::eq(self.route, Rc::as_ptr(route))
    }
}

/// A look-up that a request waits for.
struct Waiting {
    r: *mut ngx_http_request_t,
    found: RefCell<Option<(Found, Vec<u8>)>>,
    asked: Cell<Option<Handle>>,
    /// Has the request go on; armed as long as it waits, since an exiting worker waits for it.
    timer: Cell<Option<Timer>>,
}

/// What look-ups share.
struct Here {
    spare: Spare<Routed>,
    /// How many requests wait.
    wait: Cell<usize>,
}

static HERE: Global<Here> = Global::new(Here { spare: Spare::new(), wait: Cell::new(0) });

/// Has nginx call the handler, in a configuration that routes.
pub(crate) fn install(cf: &Conf<'_>) -> Result<(), ()> {
    // SAFETY: `main_conf` of http{} has an entry a module; the core module's has an array of
    // handlers for each phase, which nginx has made before it calls `postconfiguration`.
    unsafe {
        let index = ngx_http_core_module.ctx_index;
        let cmcf = conf::http_main(cf).add(index).read().cast::<ngx_http_core_main_conf_t>();
        let phase = ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE as usize;
        let handlers = &raw mut (*cmcf).phases[phase].handlers;
        let place = ngx_array_push(handlers).cast::<ngx_http_handler_pt>();
        if place.is_null() {
            return Err(());
        }
        place.write(Some(handler));
    }
    Ok(())
}

callback! {
    /// nginx calls it for every request that comes to its content.
    fn handler(r: *mut ngx_http_request_t) -> ngx_int_t,
    or NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    {
        // SAFETY: nginx calls with a living request.
        let r = unsafe { Request::from_raw(r) };
        match conf::loc(r).route() {
            Some(route) => look_up(r, route),
            None => DECLINED,
        }
    }
}

fn look_up(r: Request<'_>, route: &Rc<Route>) -> ngx_int_t {
    #[cfg(feature = "panic")]
    super::faults::panic_on_demand(r, "route");
    let here = HERE.get();
    if here.wait.get() != 0
        && let Some(known) = go_on(r, route)
    {
        return known.map_or(AGAIN, |found| answer(r, route, &found));
    }
    // SAFETY: a living request. Its pool has nothing to clean up, mostly: then it was not looked up.
    let internal =
        unsafe { !(*(*r.as_ptr()).pool).cleanup.is_null() && bits::is_internal(r.as_ptr()) };
    if internal && of(r).is_some_and(|last| last.found.code.is_some() && last.is_of(route)) {
        return DECLINED;
    }
    let Some(key) = route.key.evaluate(r.as_ptr()) else { return FAILED };
    // SAFETY: the value is of the request, of its pool, or of the configuration.
    let key = unsafe { conf::bytes(&key) };
    match keep(here, r, route, |app| routing::look_up(route, key, app)) {
        None => FAILED,
        Some(Looked::Found(found, _)) => answer(r, route, &found),
        Some(Looked::Ask) => wait(r, route, key),
    }
}

/// What the handler returns to nginx.
fn answer(r: Request<'_>, route: &Rc<Route>, found: &Found) -> ngx_int_t {
    // SAFETY: a living request.
    let internal = unsafe { bits::is_internal(r.as_ptr()) };
    if internal {
        // Of a look-up before this one, where an error page led here.
        output::drop_header(r, RETRY_AFTER);
    }
    let Some(code) = found.code else { return DECLINED };
    if internal && r.is_subrequest() && awaits(r.main(), route) {
        return DECLINED;
    }
    if let Some(seconds) = found.retry_after() {
        // Without memory for it the answer is without.
        let _ = output::add_header(r, RETRY_AFTER, &seconds.to_string());
    }
    code as ngx_int_t
}

/// Has a request wait until its key has been looked up.
#[cold]
fn wait(r: Request<'_>, route: &Rc<Route>, key: &[u8]) -> ngx_int_t {
    let raw = r.as_ptr();
    // SAFETY: a living request and its connection; as nginx's limit_req does. That of a subrequest
    // is read by its request.
    unsafe {
        if !r.is_subrequest() {
            if ngx_handle_read_event((*(*raw).connection).read, 0) != NGX_OK as ngx_int_t {
                return FAILED;
            }
            (*raw).read_event_handler = Some(ngx_http_test_reading);
        }
        (*raw).write_event_handler = Some(ngx_http_request_empty_handler);
    }
    let Some(routed) = mine(r) else { return FAILED };
    let waiting = Rc::new(Waiting {
        r: raw,
        found: RefCell::new(None),
        asked: Cell::new(None),
        timer: Cell::new(None),
    });
    let timer = Timer::new(Kind::Keeping, {
        let weak = Rc::downgrade(&waiting);
        move || {
            if let Some(waiting) = weak.upgrade() {
                waiting.wake();
            }
        }
    });
    timer.set(PATIENCE_MS);
    waiting.timer.set(Some(timer));
    let asked = executor::spawn({
        let (weak, route, key) = (Rc::downgrade(&waiting), Rc::clone(route), key.to_vec());
        async move {
            let found = routing::ask(&route, &key).await;
            if let Some(waiting) = weak.upgrade() {
                waiting.found.replace(Some(found));
                waiting.ring();
            }
        }
    });
    waiting.asked.set(Some(asked));
    // SAFETY: the request's, which lives; nobody else refers to it now.
    unsafe { (*routed.as_ptr()).waiting = Some(waiting) };
    HERE.get().wait.update(|n| n + 1);
    AGAIN
}

/// Goes on with a request that waited. `None`: it did not wait, not here; `Some(None)`: it still
/// does.
#[cold]
fn go_on(r: Request<'_>, route: &Rc<Route>) -> Option<Option<Found>> {
    let routed = mine(r)?;
    // SAFETY: the request's, which lives; nobody else refers to it now.
    let routed = unsafe { &mut *routed.as_ptr() };
    if !routed.is_of(route) {
        return None;
    }
    let known = routed.waiting.as_ref()?.found.take();
    let Some((found, app)) = known else { return Some(None) };
    routed.waiting = None;
    HERE.get().wait.update(|n| n - 1);
    routed.len = app.len().min(size_of::<AppName>());
    routed.name.as_flattened_mut()[..routed.len].copy_from_slice(&app[..routed.len]);
    routed.found = found;
    Some(Some(found))
}

impl Waiting {
    /// It is known: the request goes on in the next turn of the event loop.
    fn ring(&self) {
        let timer = self.timer.take();
        if let Some(timer) = &timer {
            timer.set(0);
        }
        self.timer.set(timer);
    }

    /// Has nginx go on with the request, which may be gone afterwards.
    fn wake(&self) {
        let raw = self.r;
        self.found.borrow_mut().get_or_insert_with(|| (Found::busy(), Vec::new()));
        // SAFETY: the request lives: the cleanup of its pool drops this, and its timer. As
        // ngx_http_limit_req_delay does, and nginx around any event of a request; it keeps a
        // connection's memory, and looks whether that was closed.
        unsafe {
            let connection = (*raw).connection;
            let context = (*(*connection).log).data.cast::<ngx_http_log_ctx_t>();
            (*context).current_request = raw;
            if !Request::from_raw(raw).is_subrequest() {
                (*raw).read_event_handler = Some(ngx_http_block_reading);
            }
            (*raw).write_event_handler = Some(ngx_http_core_run_phases);
            ngx_http_core_run_phases(raw);
            ngx_http_run_posted_requests(connection);
        }
    }
}

/// Whether the look-up of a request by this directive is still to come.
fn awaits(r: Request<'_>, route: &Rc<Route>) -> bool {
    conf::loc(r).route().is_some_and(|its| Rc::ptr_eq(its, route)) && of(r).is_none()
}

/// Looks up, and keeps with the request what is found.
#[inline]
fn keep(
    here: &Here,
    r: Request<'_>,
    route: &Rc<Route>,
    look_up: impl FnOnce(&mut AppName) -> Looked,
) -> Option<Looked> {
    let routed = here.spare.take()?.as_ptr();
    // SAFETY: memory for a Routed that nobody refers to, zeros or what was there: any bytes are a
    // name. Each other field is written before a reference to the whole is made. It stays until the
    // cleanup of the request's pool.
    unsafe {
        let looked = look_up(&mut (*routed).name);
        let (found, len) = match looked {
            Looked::Found(found, len) => (found, len),
            Looked::Ask => (Found::busy(), 0),
        };
        let pool = (*r.as_ptr()).pool;
        // As ngx_pool_cleanup_add, with its memory and ours in one.
        (&raw mut (*routed).cleanup).write(ngx_pool_cleanup_t {
            handler: Some(cleaned),
            data: routed.cast(),
            next: (*pool).cleanup,
        });
        (&raw mut (*routed).r).write(NonNull::new_unchecked(r.as_ptr()));
        (&raw mut (*routed).route).write(Rc::as_ptr(route));
        (&raw mut (*routed).found).write(found);
        (&raw mut (*routed).waiting).write(None);
        (&raw mut (*routed).len).write(len);
        (*pool).cleanup = &raw mut (*routed).cleanup;
        Some(looked)
    }
}

/// The last look-up of a request, once it is known.
pub(crate) fn of<'a>(r: Request<'a>) -> Option<&'a Routed> {
    // SAFETY: the request's own, which lives as long as it.
    let routed = unsafe { mine(r)?.as_ref() };
    routed.waiting.is_none().then_some(routed)
}

/// What the request keeps of its last look-up.
///
/// As [`super::peer::of`]: an internal redirect clears contexts, the pool's cleanups stay.
fn mine(r: Request<'_>) -> Option<NonNull<Routed>> {
    // SAFETY: a living request's cleanups; one with our handler holds a Routed.
    unsafe {
        let r = r.as_ptr();
        let mut cleanup = (*(*r).pool).cleanup;
        while let Some(one) = cleanup.as_ref() {
            if one.handler.is_some_and(|h| ptr::fn_addr_eq(h, cleaned as Cleaned)) {
                let routed = one.data.cast::<Routed>();
                if (*routed).r.as_ptr() == r {
                    return NonNull::new(routed);
                }
            }
            cleanup = one.next;
        }
    }
    None
}

/// The store's place for the app that a request was routed to, where its zone does not have it.
pub(super) fn elsewhere(r: Request<'_>, app: &[u8]) -> Option<&'static Worker> {
    let routed = of(r)?;
    routed.found.apps.filter(|_| routed.app() == app)
}

type Cleaned = unsafe extern "C" fn(*mut std::ffi::c_void);

/// The request's pool goes.
unsafe extern "C" fn cleaned(data: *mut std::ffi::c_void) {
    // SAFETY: `keep` registered this with its memory, which nobody refers to any more.
    let waiting = unsafe { (*data.cast::<Routed>()).waiting.take() };
    let here = HERE.get();
    if let Some(waiting) = waiting {
        here.wait.update(|n| n - 1);
        // Both hold on to what they are dropped from.
        fence::guard("cleanup of a request", (), || {
            drop((waiting.asked.take(), waiting.timer.take()));
        });
    }
    // SAFETY: nobody writes to it from now on; nginx reads on in it which cleanup comes next,
    // before a request begins.
    unsafe { here.spare.give(NonNull::new_unchecked(data.cast::<Routed>())) };
}

/// Known again by its address.
static RETRY_AFTER: &str = "Retry-After";
/// However long a store may take: a request that is not answered by then never is.
const PATIENCE_MS: u64 = 300_000;
const AGAIN: ngx_int_t = NGX_AGAIN as ngx_int_t;
const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
const FAILED: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
