//! nginx's resolver: a name is asked for on the event loop, and a closure is told what came of it.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};

use nginx_sys::{
    NGX_OK, ngx_int_t, ngx_msec_t, ngx_pool_cleanup_add, ngx_pool_t, ngx_resolve_name,
    ngx_resolve_name_done, ngx_resolve_start, ngx_resolver_addr_t, ngx_resolver_ctx_t,
    ngx_resolver_strerror, ngx_resolver_t, ngx_str_t,
};

use super::{fence, process};

/// The resolver of a configuration; once that has gone, it answers nothing any more.
#[derive(Clone)]
pub(crate) struct Resolver(Rc<Shared>);

struct Shared {
    /// `None`: its configuration has gone.
    resolver: Cell<Option<NonNull<ngx_resolver_t>>>,
    timeout: ngx_msec_t,
    /// Those that nginx may still tell.
    asked: RefCell<Vec<Weak<Inner>>>,
}

/// A name that is being asked for; dropping it, nobody is told any more.
///
/// Not to be dropped while nginx tells another one: it may hold both in one list then.
pub(crate) struct Lookup(Rc<Inner>);

struct Inner {
    /// Null when nginx does not know it, or no longer.
    ctx: Cell<*mut ngx_resolver_ctx_t>,
    /// nginx writes it in lower case in its place.
    name: UnsafeCell<Box<[u8]>>,
    told: Cell<Option<Told>>,
}

type Told = Box<dyn FnOnce(Result<Answer, Failure>)>;

/// What a name has.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) ips: Vec<IpAddr>,
    /// How long nginx gives this answer to whoever asks, ms.
    pub(crate) good: u64,
}

/// Why a name has none: nginx's number and text.
#[derive(Debug)]
pub(crate) struct Failure(ngx_int_t);

impl Resolver {
    /// Takes the resolver of a configuration.
    ///
    /// # Safety
    ///
    /// - `resolver` is of the configuration of that pool, and was made before this call: pools run
    ///   what was added last first, so that its memory goes after this
    pub(super) unsafe fn of_pool(
        resolver: NonNull<ngx_resolver_t>,
        timeout: ngx_msec_t,
        pool: *mut ngx_pool_t,
    ) -> Option<Self> {
        unsafe extern "C" fn gone(data: *mut c_void) {
            fence::guard("cleanup", (), || {
                // SAFETY: `of_pool` gave this count of the Rc to the pool, which calls once.
                let shared = unsafe { Rc::from_raw(data.cast::<Shared>().cast_const()) };
                shared.resolver.set(None);
                for inner in shared.asked.take().iter().filter_map(Weak::upgrade) {
                    inner.cancel();
                }
            });
        }
        // SAFETY: the pool is the configuration's.
        let cleanup = unsafe { ngx_pool_cleanup_add(pool, 0).as_mut() }?;
        let shared = Rc::new(Shared {
            resolver: Cell::new(Some(resolver)),
            timeout,
            asked: RefCell::default(),
        });
        cleanup.data = Rc::into_raw(Rc::clone(&shared)).cast_mut().cast();
        cleanup.handler = Some(gone);
        Some(Self(shared))
    }

    /// Asks for a name. `told` is called once, perhaps at once, perhaps by nginx while it has
    /// others to tell: it only takes the answer.
    pub(crate) fn look_up(
        &self,
        name: &str,
        told: impl FnOnce(Result<Answer, Failure>) + 'static,
    ) -> Lookup {
        let inner = Rc::new(Inner {
            ctx: Cell::new(ptr::null_mut()),
            name: UnsafeCell::new(name.as_bytes().into()),
            told: Cell::new(Some(Box::new(told))),
        });
        if !self.ask(&inner) {
            inner.tell(Err(Failure(NO_MEMORY)));
        }
        Lookup(inner)
    }

    fn ask(&self, inner: &Rc<Inner>) -> bool {
        let Some(resolver) = self.0.resolver.get() else { return false };
        {
            let mut asked = self.0.asked.borrow_mut();
            asked.retain(|inner| inner.strong_count() != 0);
            asked.push(Rc::downgrade(inner));
        }
        // SAFETY: the configuration has not gone, hence the resolver lives. A literal address is
        // no name here, so there is no temporary context.
        let ctx = unsafe { ngx_resolve_start(resolver.as_ptr(), ptr::null_mut()) };
        // The other answer is NGX_NO_RESOLVER, -1.
        if ctx.is_null() || ctx.addr() == usize::MAX {
            return false;
        }
        inner.ctx.set(ctx);
        // SAFETY: nginx made the context for us to fill. The name lives and stays in its place as
        // long as `inner`, which takes the context back when it goes.
        let rc = unsafe {
            let name = &mut *inner.name.get();
            (*ctx).name = ngx_str_t { len: name.len(), data: name.as_mut_ptr() };
            (*ctx).handler = Some(resolved);
            (*ctx).data = Rc::as_ptr(inner).cast_mut().cast();
            (*ctx).timeout = self.0.timeout;
            // An exiting worker does not wait for it.
            (*ctx).set_cancelable(1);
            ngx_resolve_name(ctx)
        };
        if rc != NGX_OK as ngx_int_t {
            // nginx has freed it, and has told nobody.
            inner.ctx.set(ptr::null_mut());
            return false;
        }
        true
    }
}

impl Inner {
    fn tell(&self, outcome: Result<Answer, Failure>) {
        if let Some(told) = self.told.take() {
            told(outcome);
        }
    }

    fn cancel(&self) {
        self.told.take();
        let ctx = self.ctx.replace(ptr::null_mut());
        if !ctx.is_null() {
            // SAFETY: nginx has neither freed the context nor told us: both set it to null. It is
            // in the list of its name, not in one that nginx goes through now.
            unsafe { ngx_resolve_name_done(ctx) };
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == NO_MEMORY {
            return f.write_str("the resolver does not take it");
        }
        // SAFETY: nginx gives a static text for every number.
        let text = unsafe { CStr::from_ptr(ngx_resolver_strerror(self.0)) };
        write!(f, "{}: {}", self.0, text.to_string_lossy())
    }
}

callback! {
    /// There is an answer, or there will be none.
    fn resolved(ctx: *mut ngx_resolver_ctx_t) -> (), or (); {
        // SAFETY: `data` is an Inner that lives as long as nginx knows the context; the added
        // count keeps it through the call.
        let inner = unsafe {
            let data = (*ctx).data.cast::<Inner>().cast_const();
            Rc::increment_strong_count(data);
            Rc::from_raw(data)
        };
        inner.ctx.set(ptr::null_mut());
        // SAFETY: nginx calls with a context that is complete.
        let outcome = unsafe { outcome(&*ctx) };
        // SAFETY: nginx expects to be told so once, and forgets the context.
        unsafe { ngx_resolve_name_done(ctx) };
        inner.tell(outcome);
    }
}

/// Reads what nginx found.
///
/// # Safety
///
/// - nginx has called with this context and not been told that it is done with
unsafe fn outcome(ctx: &ngx_resolver_ctx_t) -> Result<Answer, Failure> {
    if ctx.state != NGX_OK as ngx_int_t {
        return Err(Failure(ctx.state));
    }
    let addrs = if ctx.naddrs == 0 {
        &[][..]
    } else {
        // SAFETY: `addrs` has so many entries.
        unsafe { std::slice::from_raw_parts(ctx.addrs, ctx.naddrs) }
    };
    // SAFETY: each names an address of its family.
    let ips: Vec<IpAddr> = addrs.iter().filter_map(|addr| unsafe { ip(addr) }).collect();
    if ips.is_empty() {
        return Err(Failure(NOT_FOUND));
    }
    // nginx gives the same answer through the whole of the second in which it ends.
    let end = u64::try_from(ctx.valid).unwrap_or(0).saturating_add(1).saturating_mul(1000);
    Ok(Answer { ips, good: end.saturating_sub(process::clock().msec) })
}

/// # Safety
///
/// - `addr.sockaddr` is an address of its family
unsafe fn ip(addr: &ngx_resolver_addr_t) -> Option<IpAddr> {
    // SAFETY: the caller says so; each family's struct is read after its family was seen.
    unsafe {
        match i32::from((*addr.sockaddr).sa_family) {
            libc::AF_INET => {
                let a = &*addr.sockaddr.cast::<libc::sockaddr_in>();
                Some(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let a = &*addr.sockaddr.cast::<libc::sockaddr_in6>();
                Some(Ipv6Addr::from(a.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// NGX_RESOLVE_NXDOMAIN.
const NOT_FOUND: ngx_int_t = nginx_sys::NGX_RESOLVE_NXDOMAIN as ngx_int_t;
/// No number of nginx's.
const NO_MEMORY: ngx_int_t = -1;
