//! Shared memory as nginx hands it out: one zone is one region of our own.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use nginx_sys::{
    ngx_int_t, ngx_pagesize, ngx_shared_memory_add, ngx_shm_zone_t, ngx_slab_alloc_locked,
    ngx_slab_page_t, ngx_slab_pool_t,
};
use peerage_zone::Region;

use super::conf::{self, Conf, ERROR, OK, Refused};
use super::log::Log;
use super::module::ngx_http_peerage_module;
use crate::conf::{Store, Zone};
use crate::routing;

/// A region and the word that says who may write in it: nginx's own mutex of the zone, which the
/// master frees when its holder dies.
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) lock: &'static AtomicU64,
    /// Nobody has formatted it yet.
    pub(crate) fresh: bool,
}

/// The least a zone may have, as in nginx's own modules.
pub(crate) fn least_size() -> usize {
    8 * page_size()
}

/// Bytes of a page, in which nginx counts a zone.
pub(crate) fn page_size() -> usize {
    // SAFETY: nginx sets the page size at start.
    unsafe { ngx_pagesize }
}

/// Bytes of a zone of that size that nginx's slab pool leaves, as ngx_slab_init counts: a header, a
/// slot and statistics for each size that divides a page, and an entry for each page.
pub(crate) fn usable(size: usize) -> usize {
    let page = page_size();
    let entry = size_of::<ngx_slab_page_t>();
    let sizes = page.trailing_zeros() as usize - MIN_SHIFT;
    let head =
        size_of::<ngx_slab_pool_t>() + sizes * (entry + size_of::<nginx_sys::ngx_slab_stat_t>());
    let pages = size.saturating_sub(head) / (page + entry);
    let start = (head + pages * entry).next_multiple_of(page);
    size.saturating_sub(start) / page * page
}

/// What tells nginx whose a zone is: one of a store's apps has another tag, so that neither kind ever
/// takes the place of the other.
pub(super) fn tag(zone: &Zone) -> *mut c_void {
    if zone.of_store {
        (&raw const OF_APPS).cast_mut().cast()
    } else {
        (&raw mut ngx_http_peerage_module).cast()
    }
}

/// Asks nginx for a zone; [`crate::zone::open`] is called for it once the configuration is read.
pub(crate) fn add(cf: &Conf<'_>, size: usize, zone: &Rc<Zone>) -> Result<(), Refused> {
    let (name, tag) = (&zone.place, tag(zone));
    // SAFETY: the data is alive as long as the cycle: the configuration owns the Rc.
    unsafe { add_as(cf, name, size, tag, Rc::as_ptr(zone).cast_mut().cast(), init) }
}

/// The same for what a store said; [`routing::open`] is called for it.
pub(crate) fn add_cache(
    cf: &Conf<'_>,
    name: &str,
    size: usize,
    store: &Rc<Store>,
) -> Result<(), Refused> {
    // Any address of our own that is not that of zones.
    let tag = (&raw const OF_CACHE).cast_mut().cast::<c_void>();
    // SAFETY: as above.
    unsafe { add_as(cf, name, size, tag, Rc::as_ptr(store).cast_mut().cast(), init_cache) }
}

/// Has its address as the tag of memory that is no zone's.
static OF_CACHE: u8 = 0;
/// As that of zones of stores.
static OF_APPS: u8 = 0;

/// Asks nginx for memory.
///
/// # Safety
///
/// - `data` is what `init` takes it for, as long as the cycle lives
unsafe fn add_as(
    cf: &Conf<'_>,
    name: &str,
    size: usize,
    tag: *mut c_void,
    data: *mut c_void,
    init: unsafe extern "C" fn(*mut ngx_shm_zone_t, *mut c_void) -> ngx_int_t,
) -> Result<(), Refused> {
    // SAFETY: the name is copied into the configuration's pool; nginx's answer is a zone in the
    // new cycle's list.
    unsafe {
        let pool = (*cf.as_ptr()).pool;
        let mut name = conf::copy(pool, name.as_bytes()).ok_or(Refused(None))?;
        let shm = ngx_shared_memory_add(cf.as_ptr(), &raw mut name, size, tag);
        let Some(shm) = shm.as_mut() else { return Err(Refused(None)) };
        if !shm.data.is_null() {
            return Err(Refused::because(format!("duplicate zone \"{name}\"")));
        }
        shm.init = Some(init);
        shm.data = data;
    }
    Ok(())
}

callback! {
    /// nginx calls it in the master, for a new mapping or for one that old workers run on.
    fn init_cache(shm: *mut ngx_shm_zone_t, _old: *mut c_void) -> ngx_int_t, or ERROR;
    {
        // SAFETY: as in `init`, of what `add_cache` set up.
        let (store, memory, log) = unsafe {
            let store = &*(*shm).data.cast::<Store>();
            (store, memory((*shm).shm.addr.cast()), Log::from_raw((*shm).shm.log))
        };
        match routing::open(store, memory, log) {
            Ok(()) => OK,
            Err(()) => ERROR,
        }
    }
}

callback! {
    /// nginx calls it in the master, for a new mapping or for one that old workers run on.
    fn init(shm: *mut ngx_shm_zone_t, _old: *mut c_void) -> ngx_int_t, or ERROR;
    {
        // SAFETY: nginx calls with a zone that `add` set up: `data` is the configuration's, the
        // memory is mapped and begins with nginx's slab pool.
        let (zone, memory, log) = unsafe {
            let zone = &*(*shm).data.cast::<Zone>();
            let log = Log::from_raw((*shm).shm.log);
            (zone, memory((*shm).shm.addr.cast()), log)
        };
        match crate::zone::open(zone, memory, log) {
            Ok(()) => OK,
            Err(()) => ERROR,
        }
    }
}

/// The region of a zone; taken from the slab pool as one run of pages when the zone is new.
///
/// # Safety
///
/// - `pool` is the slab pool of a mapped zone of ours, and stays mapped as long as the process
///   uses what is returned
unsafe fn memory(pool: *mut ngx_slab_pool_t) -> Option<Memory> {
    // SAFETY: nginx set the pool up before it calls `init`; only this process knows a new zone, and
    // in a reused one nothing is written. A mutex's lock is an aligned word in the mapping, used
    // by nginx only through atomic instructions, as by us.
    unsafe {
        let page = ngx_pagesize;
        let fresh = (*pool).data.is_null();
        if fresh {
            let run = ngx_slab_alloc_locked(pool, (*pool).pfree * page);
            if run.is_null() {
                return None;
            }
            let bytes = ((*pool).end.addr() - run.addr()) / page * page;
            // A fresh mapping is zero, unless nginx was built to fill it with junk.
            if *run.cast::<u64>() != 0 {
                run.cast::<u8>().write_bytes(0, bytes);
            }
            (*pool).data = run;
        }
        let start = (*pool).data;
        let bytes = ((*pool).end.addr() - start.addr()) / page * page;
        debug_assert_eq!(bytes, usable((*pool).end.addr() - pool.addr()));
        let region = Region::from_raw(start.cast(), bytes);
        let lock = AtomicU64::from_ptr((*pool).mutex.lock.cast());
        Some(Memory { region, lock, fresh })
    }
}

/// nginx's smallest slab is 8 bytes.
const MIN_SHIFT: usize = 3;
