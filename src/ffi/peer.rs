//! The balancer as nginx calls it: init once a request, get and free once a try.

mod naming;
#[cfg(any(ngx_feature = "ssl", ngx_feature = "compat"))]
mod tls;
mod tried;

use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{self, NonNull};

use nginx_sys::{
    NGX_BUSY, NGX_PEER_FAILED, ngx_current_msec, ngx_http_request_t, ngx_http_upstream_srv_conf_t,
    ngx_http_upstream_t, ngx_int_t, ngx_msec_t, ngx_peer_connection_t, ngx_pool_cleanup_t,
    ngx_str_t, ngx_uint_t,
};
use peerage_shm::point;
use peerage_zone::{CHUNK, Choice, Key, NoPeer, Outcome, Pick, Picked, Target, Worker};

use self::naming::{name_by_route, name_it, target};
#[cfg(any(ngx_feature = "ssl", ngx_feature = "compat"))]
use self::tls::{save_session, set_session};
use self::tried::{INLINE, Try, hand_over};
use super::conf::{self, ERROR, OK};
use super::fence;
use super::global::Global;
use super::key::Said;
use super::log::Log;
use super::process;
use super::request::Request;
use super::spare::Spare;
use crate::balancer;
use crate::conf::block::Name;
use crate::conf::{Block, Srv};

/// What a request holds of the balancer, until its pool's cleanup.
#[repr(C)]
pub(crate) struct Peer {
    cleanup: ngx_pool_cleanup_t,
    /// `None` where the worker has no slot in the zone yet, and where no peer can be had.
    worker: Option<&'static Worker>,
    /// The place in the zone of a store, where the request's app is there and not in the block's.
    elsewhere: Option<&'static Worker>,
    pub(crate) choice: Choice,
    block: NonNull<Block>,
    r: NonNull<ngx_http_request_t>,
    /// The upstream's name, for the log and `$upstream_addr` when no peer can be had; the
    /// configuration's, or the request's where it names the upstream.
    name: ngx_str_t,
    /// The last try; null before the first.
    last: *const Try,
    /// What the request said that the method chooses by; null as long as it was not asked.
    key: *const Said,
    pub(crate) error: Option<NoPeer>,
    /// The first try, and room for its address if that is an IPv4 one; not filled before.
    first: MaybeUninit<(Try, [[u64; CHUNK]; INLINE])>,
}

impl Peer {
    /// The block that chose, and its zone.
    pub(crate) fn block(&self) -> &Block {
        // SAFETY: the configuration outlives its requests.
        unsafe { self.block.as_ref() }
    }

    /// The place in the zone by which a server is held, if one is.
    #[inline]
    pub(crate) fn worker(&self) -> Option<&'static Worker> {
        self.worker
    }

    /// The request's pool.
    #[cfg(nginx_sid)]
    pub(super) fn pool(&self) -> *mut nginx_sys::ngx_pool_t {
        // SAFETY: the request lives as long as what its pool holds.
        unsafe { (*self.r.as_ptr()).pool }
    }

    /// Says why no server can be had, for good.
    fn refuse(&mut self, error: NoPeer) {
        self.error = Some(error);
        self.worker = None;
    }

    /// The value that named the upstream, in lower case if it is a name, or the block's own name.
    pub(crate) fn name(&self) -> &[u8] {
        // SAFETY: in the request's pool, or the configuration's.
        unsafe { conf::bytes(&self.name) }
    }

    /// The address of the last try, as `$upstream_addr` has it.
    pub(crate) fn server(&self) -> Option<&[u8]> {
        // SAFETY: null, or what `hand_over` wrote into this request's memory.
        unsafe { self.last.as_ref().map(|last| conf::bytes(&last.name)) }
    }
}

static SPARE: Global<Spare<Peer>> = Global::new(Spare::new());

#[cfg(nginx_sid)]
type Get = unsafe extern "C" fn(*mut ngx_peer_connection_t, *mut c_void) -> ngx_int_t;

callback! {
    /// Prepares a request, or a subrequest, for its tries.
    pub(super) fn init(r: *mut ngx_http_request_t, us: *mut ngx_http_upstream_srv_conf_t)
        -> ngx_int_t,
    or ERROR;
    {
        // SAFETY: nginx calls with a living request that has its upstream, and with a block in
        // which `init_upstream` has set this function; what is written lives until the cleanup of
        // the request's pool, and each field is written before a reference to the whole is made.
        unsafe {
            let srv = conf::own::<Srv>((*us).srv_conf);
            let Some(block) = srv.block() else { return ERROR };
            let pool = (*r).pool;
            let Some(peer) = SPARE.get().take() else { return ERROR };
            let peer = peer.as_ptr();
            // As ngx_pool_cleanup_add, with its memory and ours in one.
            (&raw mut (*peer).cleanup).write(ngx_pool_cleanup_t {
                handler: Some(cleaned),
                data: peer.cast(),
                next: (*pool).cleanup,
            });
            (*pool).cleanup = &raw mut (*peer).cleanup;
            (&raw mut (*peer).worker).write(block.worker());
            (&raw mut (*peer).elsewhere).write(None);
            (&raw mut (*peer).choice).write(Choice::new());
            (&raw mut (*peer).block).write(NonNull::from(&**block));
            (&raw mut (*peer).r).write(NonNull::new_unchecked(r));
            (&raw mut (*peer).name).write((*us).host);
            (&raw mut (*peer).last).write(ptr::null());
            (&raw mut (*peer).key).write(ptr::null());
            (&raw mut (*peer).error).write(None);

            // Whoever stands around our hooks may be `sticky`.
            #[cfg(nginx_sid)]
            let (get, get_named, get_known): (Get, Get, Get) = if block.wrapped.get() {
                (super::sticky::get, super::sticky::get, super::sticky::get)
            } else {
                (get, get_named, get_known)
            };
            // The name, which error logs show, comes with the first `get`.
            let pc = &raw mut (*(*r).upstream).peer;
            (*pc).data = peer.cast();
            (*pc).get = Some(get);
            (*pc).free = Some(free);
            #[cfg(any(ngx_feature = "ssl", ngx_feature = "compat"))]
            {
                (*pc).set_session = Some(set_session);
                (*pc).save_session = Some(save_session);
            }
            // How many there are is known at the first `get`; here nginx only lowers it to
            // proxy_next_upstream_tries.
            (*pc).tries = UNKNOWN;

            #[cfg(feature = "panic")]
            super::faults::panic_on_demand(Request::from_raw(r), "init");

            if let Name::Keyed(value, glob) = &block.name {
                if value.is_route() && glob.is_none() && name_by_route(r, peer) {
                    (*pc).get = Some(get_known);
                    return OK;
                }
                (*pc).get = Some(get_named);
                return name_it(r, peer, value, glob.as_ref());
            }
        }
        OK
    }
}

callback! {
    /// Gives nginx the next server to try.
    fn get(pc: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t, or NGX_BUSY as _;
    {
        // SAFETY: nginx calls with the connection of a request and the data that `init` set, which
        // lives in that request's pool.
        unsafe {
            get_of(&mut *pc, &mut *data.cast::<Peer>(), |block, _| match &block.name {
                Name::Fixed(fixed, _) => Some(Target::Fixed(fixed)),
                Name::Keyed(..) => None,
            })
        }
    }
}

callback! {
    /// The same where the request names the upstream.
    fn get_named(pc: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t, or NGX_BUSY as _;
    {
        // SAFETY: as in `get`; the name is of the request's pool.
        unsafe {
            get_of(&mut *pc, &mut *data.cast::<Peer>(), |_, name| {
                Some(Target::Name(conf::bytes(name)))
            })
        }
    }
}

callback! {
    /// The same where the request's route does, and may have found it.
    fn get_known(pc: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t, or NGX_BUSY as _;
    {
        // SAFETY: as in `get`; the name is of the request's pool.
        unsafe {
            get_of(&mut *pc, &mut *data.cast::<Peer>(), |_, name| {
                Some(Target::Known(conf::bytes(name)))
            })
        }
    }
}

/// Gives the next server of the upstream that `of` says.
///
/// # Safety
///
/// - the request of `peer` lives
#[inline(always)]
unsafe fn get_of(
    pc: &mut ngx_peer_connection_t,
    peer: &mut Peer,
    of: impl for<'a> FnOnce(&'a Block, &'a ngx_str_t) -> Option<Target<'a>>,
) -> ngx_int_t {
    #[cfg(feature = "panic")]
    // SAFETY: the request that `init` was called with.
    super::faults::panic_on_demand(unsafe { Request::from_raw(peer.r.as_ptr()) }, "get");
    pc.set_cached(0);
    pc.connection = ptr::null_mut();
    // SAFETY: the configuration outlives its requests.
    let block = unsafe { peer.block.as_ref() };
    if let Some(worker) = peer.worker
        && let Some(target) = of(block, &peer.name)
        && let Some(picked) = worker.pick_in_turn(&mut peer.choice, &target, process::clock)
    {
        // SAFETY: the caller's request.
        return unsafe { hand_over(pc, peer, &picked) };
    }
    // SAFETY: the caller's request.
    unsafe { get_at_length(pc, peer) }
}

/// `get` where it is more than a turn of the upstream's cycle.
///
/// # Safety
///
/// - the request of `peer` lives
#[cold]
unsafe fn get_at_length(pc: &mut ngx_peer_connection_t, peer: &mut Peer) -> ngx_int_t {
    // SAFETY: the configuration outlives its requests.
    let block = unsafe { peer.block.as_ref() };
    let picked = match (peer.error, peer.elsewhere.or_else(|| block.worker())) {
        (Some(error), _) => Err(error),
        (None, None) => Err(NoPeer::Busy),
        (None, Some(worker)) => {
            peer.worker = Some(worker);
            // SAFETY: the caller's request.
            match unsafe { pick(peer, block, worker) } {
                Some(picked) => picked,
                None => return ERROR,
            }
        }
    };
    match picked {
        // SAFETY: the caller's request.
        Ok(picked) => unsafe { hand_over(pc, peer, &picked) },
        Err(error) => {
            peer.refuse(error);
            pc.name = &raw mut peer.name;
            NGX_BUSY as _
        }
    }
}

/// Picks by whatever the method wants to know; `None` where there is no memory for that.
///
/// # Safety
///
/// - the request of `peer` lives
unsafe fn pick(peer: &mut Peer, block: &Block, worker: &Worker) -> Option<Result<Picked, NoPeer>> {
    // SAFETY: the caller's request.
    let target = unsafe { target(block, &peer.name) };
    loop {
        // SAFETY: the caller's request.
        let key = unsafe { peer.key.as_ref().map_or(Key::Unasked, |said| said.key()) };
        match worker.pick_at_length(&mut peer.choice, &target, key, &process::clock()) {
            Pick::Peer(picked) => return Some(Ok(picked)),
            Pick::None(error) => return Some(Err(error)),
            // Asked once: then it has a key.
            Pick::Wants(input) => {
                // SAFETY: the caller's request, of the block's configuration.
                peer.key = unsafe { Said::ask(peer.r.as_ptr(), (block, worker), &target, input)? };
            }
        }
    }
}

/// `get` for whatever the block's name is.
///
/// # Safety
///
/// - the request of `peer` lives
#[cfg(nginx_sid)]
pub(super) unsafe fn get_next(pc: &mut ngx_peer_connection_t, peer: &mut Peer) -> ngx_int_t {
    // SAFETY: the caller's request; the name is of its pool.
    unsafe { get_of(pc, peer, |block, name| Some(target(block, name))) }
}

/// Gives the server that a session is bound to, if it takes the session's requests.
///
/// # Safety
///
/// - the request of `peer` lives
#[cfg(nginx_sid)]
pub(super) unsafe fn get_bound(
    pc: &mut ngx_peer_connection_t,
    peer: &mut Peer,
    sid: &[u8],
) -> Option<ngx_int_t> {
    // SAFETY: the configuration outlives its requests; the name is of the request's pool.
    let target = unsafe { target(peer.block.as_ref(), &peer.name) };
    let picked = peer.worker?.pick_bound(&mut peer.choice, &target, &process::clock(), sid)?;
    pc.set_cached(0);
    pc.connection = ptr::null_mut();
    // SAFETY: the caller's request.
    Some(unsafe { hand_over(pc, peer, &picked) })
}

/// More tries than any request makes.
const UNKNOWN: ngx_uint_t = 1 << 20;

callback! {
    /// Takes back what `get` gave, with what nginx has measured.
    fn free(pc: *mut ngx_peer_connection_t, data: *mut c_void, state: ngx_uint_t) -> (), or ();
    {
        // SAFETY: as in `get`; the connection is a part of the request's upstream, as `init` found
        // it, and the state, if any, is in the request's pool.
        let (pc, peer, measured, started) = unsafe {
            let u = pc.byte_sub(offset_of!(ngx_http_upstream_t, peer)).cast::<ngx_http_upstream_t>();
            (&mut *pc, &mut *data.cast::<Peer>(), (*u).state.as_ref(), &(*u).start_time)
        };
        #[cfg(feature = "panic")]
        // SAFETY: the request that `init` was called with.
        super::faults::panic_on_demand(unsafe { Request::from_raw(peer.r.as_ptr()) }, "free");
        pc.tries = pc.tries.saturating_sub(1);
        let Some(worker) = peer.worker else { return };
        let failed = state & NGX_PEER_FAILED as ngx_uint_t != 0;
        let outcome = match measured {
            None => Outcome { failed, ..Outcome::default() },
            Some(state) => Outcome {
                failed,
                status: state.status as u16,
                header_ms: (state.header_time != NONE).then_some(state.header_time as u64),
                response_ms: match state.response_time {
                    NONE => since(*started),
                    ms => ms as u64,
                },
                sent: state.bytes_sent as u64,
                received: state.bytes_received as u64,
            },
        };
        let done = worker.done(&mut peer.choice, &outcome, process::clock);
        if done.disabled || done.ejected {
            // SAFETY: a connection that is being made has its request's log.
            let log = unsafe { Log::from_raw(pc.log) };
            if done.disabled {
                balancer::disabled(log);
            }
            if done.ejected {
                balancer::ejected(log, worker);
            }
        }
        point!("peer.freed");
    }
}

/// The time since then, ms, of a response that is not at its end.
#[cold]
fn since(started: ngx_msec_t) -> u64 {
    // SAFETY: nginx's cached time, an integer that its one thread writes.
    (unsafe { ngx_current_msec }).wrapping_sub(started) as u64
}

/// A time that nginx has not measured.
const NONE: ngx_msec_t = ngx_msec_t::MAX;

/// The request's pool goes: a server that `free` was never called for is given back.
unsafe extern "C" fn cleaned(data: *mut c_void) {
    // SAFETY: `init` registered this with its Peer, which the pool still holds.
    let peer = unsafe { &mut *data.cast::<Peer>() };
    if peer.choice.held()
        && let Some(worker) = peer.worker()
    {
        fence::guard("cleanup of a request", (), || worker.abandon(&mut peer.choice));
    }
    // SAFETY: nobody looks at the choice after the pool's cleanup, and at the rest only nginx does,
    // which reads on which cleanup comes next. No request begins before it has.
    unsafe {
        ptr::drop_in_place(&raw mut peer.choice);
        // Whoever reads on past the pool's end finds nothing it could go on with.
        #[cfg(feature = "points")]
        {
            const READ_ON: usize = size_of::<ngx_pool_cleanup_t>();
            let rest = ptr::from_mut(peer).cast::<u8>().add(READ_ON);
            rest.write_bytes(0xdd, size_of::<Peer>() - READ_ON);
        }
        SPARE.get().give(NonNull::from(peer));
    }
}

/// The server that a request has chosen last.
///
/// Kept in no context of the request, which an internal redirect to a named location clears: the
/// pool's cleanups know, the last one first. The pool is shared with subrequests, hence the look at
/// `r`.
pub(crate) fn of<'a>(r: Request<'a>) -> Option<&'a Peer> {
    // SAFETY: a living request's cleanups; one with our handler holds a Peer.
    unsafe {
        let r = r.as_ptr();
        let mut cleanup = (*(*r).pool).cleanup;
        while let Some(one) = cleanup.as_ref() {
            if one.handler.is_some_and(|h| ptr::fn_addr_eq(h, cleaned as Cleaned)) {
                let peer = &*one.data.cast::<Peer>();
                if peer.r.as_ptr() == r {
                    return Some(peer);
                }
            }
            cleanup = one.next;
        }
    }
    None
}

type Cleaned = unsafe extern "C" fn(*mut c_void);
