//! A configuration in force, or about to be: what nginx calls a cycle.

use std::marker::PhantomData;
use std::ptr::NonNull;

use nginx_sys::{ngx_core_conf_t, ngx_core_module, ngx_cycle_t, ngx_shm_zone_t};

use super::conf;
use super::log::Log;
use super::shm;
use crate::conf::{Main, Zone};

/// The cycle that a part of the configuration belongs to, and lives as long as.
pub(crate) struct Home(NonNull<ngx_cycle_t>);

impl Home {
    pub(crate) fn cycle(&self) -> Cycle<'_> {
        // SAFETY: whoever owns a Home is owned by that cycle's pool.
        unsafe { Cycle::from_raw(self.0.as_ptr()) }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Cycle<'a> {
    cycle: NonNull<ngx_cycle_t>,
    life: PhantomData<&'a ()>,
}

impl<'a> Cycle<'a> {
    /// Takes a cycle from nginx.
    ///
    /// # Safety
    ///
    /// - `cycle` is not null and lives during `'a`
    pub(super) unsafe fn from_raw(cycle: *mut ngx_cycle_t) -> Self {
        debug_assert!(!cycle.is_null());
        // SAFETY: not null, the caller says so.
        Self { cycle: unsafe { NonNull::new_unchecked(cycle) }, life: PhantomData }
    }

    fn as_ref(&self) -> &'a ngx_cycle_t {
        // SAFETY: lives during 'a; nginx changes it only between callbacks.
        unsafe { self.cycle.as_ref() }
    }

    /// For what the cycle's pool owns.
    pub(super) fn home(self) -> Home {
        Home(self.cycle)
    }

    pub(crate) fn log(self) -> Log<'a> {
        // SAFETY: a cycle has its log from the start, and it lives as long as the cycle.
        unsafe { Log::from_raw(self.as_ref().log) }
    }

    /// Where nginx itself complains while it makes this cycle: the terminal at start and under
    /// `nginx -t`, the log in force at a reload.
    pub(crate) fn complaints(self) -> Log<'a> {
        // SAFETY: while a new cycle is being made, the old one and its log live.
        let old = unsafe { self.as_ref().old_cycle.as_ref() };
        match old {
            // SAFETY: as above.
            Some(old) if !old.log.is_null() => unsafe { Log::from_raw(old.log) },
            _ => self.log(),
        }
    }

    /// The module's part of http{}.
    pub(crate) fn main(self) -> Option<&'a Main> {
        // SAFETY: the cycle lives during 'a, and its configuration with it.
        unsafe { conf::main_of(self.as_ref().conf_ctx) }
    }

    fn core(self) -> &'a ngx_core_conf_t {
        // SAFETY: `conf_ctx` has an entry a module; the core module's is made first of all.
        unsafe {
            let index = ngx_core_module.index;
            &*(*self.as_ref().conf_ctx.add(index)).cast::<ngx_core_conf_t>()
        }
    }

    /// `worker_processes`; at least 1.
    pub(crate) fn workers(self) -> usize {
        if !self.has_master() {
            return 1;
        }
        usize::try_from(self.core().worker_processes).unwrap_or(1).max(1)
    }

    /// `worker_connections`; set by the events module before zones are made.
    pub(crate) fn connections(self) -> usize {
        self.as_ref().connection_n
    }

    /// Whether a master and workers run, or one process does everything.
    pub(crate) fn has_master(self) -> bool {
        self.core().master != 0
    }

    /// User and group that workers run as; both 0 when nobody changes them.
    pub(crate) fn user(self) -> (u32, u32) {
        let core = self.core();
        (core.user, core.group)
    }

    /// A zone of this place and kind, whatever its size, in the cycle that this one replaces.
    pub(crate) fn old_zone(self, like: &Zone) -> Option<&'a Zone> {
        let (place, tag) = (&like.place, shm::tag(like));
        // SAFETY: while a new cycle is being made, the old one and its zones live; the data of what
        // has either tag is a Zone.
        unsafe {
            let old = self.as_ref().old_cycle.as_ref()?;
            // The initial cycle, before the first configuration, has no list yet.
            if old.conf_ctx.is_null() {
                return None;
            }
            let mut part = &raw const old.shared_memory.part;
            while let Some(some) = part.as_ref() {
                let zones = some.elts.cast::<ngx_shm_zone_t>();
                for i in 0..some.nelts {
                    let zone = &*zones.add(i);
                    if zone.tag == tag && zone.shm.name.as_bytes() == place.as_bytes() {
                        return zone.data.cast::<Zone>().as_ref();
                    }
                }
                part = some.next;
            }
        }
        None
    }
}
