//! What nginx counts by itself: connections and requests, and its zones of shared memory.

use std::ptr;

use nginx_sys::{ngx_cycle, ngx_pagesize_shift, ngx_shm_zone_t, ngx_slab_pool_t};
use peerage_core::plus::status::{Slab, Slot, Stub};

/// Connections and requests; `None` where this nginx is not built to count them.
pub(crate) fn stub() -> Option<Stub> {
    #[cfg(nginx_stat)]
    {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let read = |counter: *mut nginx_sys::ngx_atomic_t| {
            // SAFETY: nginx points each counter at a word of its shared memory, or of its own, before
            // it reads a configuration, and never takes it back; whoever writes it does so atomically.
            unsafe { AtomicUsize::from_ptr(counter.cast()) }.load(Ordering::Relaxed) as u64
        };
        // SAFETY: the pointers are written before any process that answers requests is made.
        let stub = unsafe {
            Stub {
                accepted: read(nginx_sys::ngx_stat_accepted),
                handled: read(nginx_sys::ngx_stat_handled),
                active: read(nginx_sys::ngx_stat_active),
                requests: read(nginx_sys::ngx_stat_requests),
                reading: read(nginx_sys::ngx_stat_reading),
                writing: read(nginx_sys::ngx_stat_writing),
                waiting: read(nginx_sys::ngx_stat_waiting),
            }
        };
        Some(stub)
    }
    #[cfg(not(nginx_stat))]
    None
}

/// The zones of this process's configuration, as their allocators show them: without their locks,
/// so that figures of one zone may be of different moments.
pub(crate) fn slabs() -> Vec<Slab> {
    let mut slabs = Vec::new();
    // SAFETY: the cycle in force and its list of zones live, and do not change while a request is
    // answered.
    unsafe {
        let mut part = &raw const (*ngx_cycle).shared_memory.part;
        while let Some(some) = part.as_ref() {
            let zones = some.elts.cast::<ngx_shm_zone_t>();
            for i in 0..some.nelts {
                let zone = &*zones.add(i);
                if let Some(pool) = ptr::NonNull::new(zone.shm.addr.cast::<ngx_slab_pool_t>()) {
                    let name = String::from_utf8_lossy(zone.shm.name.as_bytes()).into_owned();
                    slabs.push(slab(name, pool.as_ptr()));
                }
            }
            part = some.next;
        }
    }
    slabs
}

/// The figures of one zone.
///
/// # Safety
///
/// - `pool` is at the head of a zone that nginx has mapped and initialised
unsafe fn slab(name: String, pool: *const ngx_slab_pool_t) -> Slab {
    // SAFETY: the caller's pool. Other processes write these words while they are read: each is read
    // once, as it is at that moment. What the pool itself points at (`pages`, `last`, `stats`) was set
    // when the zone was made.
    unsafe {
        let first = (&raw const (*pool).pages).read_volatile();
        let last = (&raw const (*pool).last).read_volatile();
        let free = (&raw const (*pool).pfree).read_volatile() as u64;
        let pages = u64::try_from(last.offset_from(first)).unwrap_or(0);
        let shift = (*pool).min_shift;
        let slots = (0..ngx_pagesize_shift.saturating_sub(shift)).map(|i| {
            let stats = (*pool).stats.add(i);
            let total = (&raw const (*stats).total).read_volatile() as u64;
            let used = (&raw const (*stats).used).read_volatile() as u64;
            Slot {
                size: 1 << (shift + i),
                used,
                free: total.saturating_sub(used),
                reqs: (&raw const (*stats).reqs).read_volatile() as u64,
                fails: (&raw const (*stats).fails).read_volatile() as u64,
            }
        });
        Slab { name, used: pages.saturating_sub(free), free, slots: slots.collect() }
    }
}
