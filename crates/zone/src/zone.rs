//! A zone: one region of shared memory and what lies in it.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

use peerage_shm::{AtomicU64, AttachError, FormatError, Region, Shared};

use crate::directory::bucket_count;
use crate::layout::{granules, pack, root, set};
use crate::numbers::Numbers;
use crate::size;
use crate::trace::Reachable;
use crate::worker::Worker;

/// How a new zone is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Build that lays it out; another build does not read it.
    pub build: u64,
    /// Processes that may use it at a time, before more room is taken for them.
    pub slots: u16,
    /// Requests that one process may have in flight.
    pub connections: u32,
}

/// A handle on a zone; copies are equal.
#[derive(Clone, Copy)]
pub struct Zone {
    shared: Shared,
}

/// What a report of a zone says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes of the zone.
    pub total: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes free, the reserve included.
    pub free: u64,
    /// Bytes kept for `up`, `down`, `drain` and weights.
    pub reserve: u64,
    /// The longest run of free bytes.
    pub largest: u64,
    /// Revision in force.
    pub revision: u64,
    /// Number of the last event.
    pub seq: u64,
    /// Upstreams.
    pub upstreams: u64,
    /// Servers in all of them.
    pub servers: u64,
    /// Routes.
    pub routes: u64,
    /// Upstreams that they name.
    pub apps: u64,
    /// Bytes of routes, which may take half of the zone.
    pub route_bytes: u64,
    /// Changes refused for lack of room.
    pub no_room: u64,
    /// Processes that use the zone: pid and slot.
    pub workers: Vec<(u32, u16)>,
}

impl Zone {
    /// Lays out an empty zone.
    pub fn format(
        region: Region,
        lock: &'static AtomicU64,
        format: &Format,
    ) -> Result<Self, FormatError> {
        let (have, need) = (region.bytes(), format.size_for(0, size::GRANULE, &|bytes| bytes));
        let too_small = || FormatError { need: need as usize, have };
        if (have as u64) < need {
            return Err(too_small());
        }
        let shared = Shared::format(region, lock, format.config())?;
        let zone = Self { shared };
        let buckets = bucket_count(have);
        let trace = Reachable(zone);
        let mut writer = shared.try_write(std::process::id(), &trace).map_err(|_| too_small())?;
        writer.set_reserve(size::kept(0, 0));
        let at = writer.alloc(granules(buckets)).ok_or_else(too_small)?;
        for word in region.words(at, buckets).unwrap_or_default() {
            set(word, 0);
        }
        set(zone.root(root::NEXT_ID), 1);
        set(zone.root(root::NEXT_UID), 1);
        zone.set_numbers(Numbers::OF_ZONES);
        zone.begin_ends();
        set(zone.root(root::ROUTES_SEED), RandomState::new().hash_one(have));
        zone.root(root::BUCKETS).store(pack(at.raw(), buckets as u32 - 1), Ordering::Release);
        zone.lay_out_events(&mut writer).ok_or_else(too_small)?;
        zone.lay_out_journal(&mut writer).ok_or_else(too_small)?;
        zone.lay_out_shut(&mut writer).ok_or_else(too_small)?;
        zone.durable().set_instance(RandomState::new().hash_one(std::process::id()));
        drop(writer);
        Ok(zone)
    }

    /// Uses a zone that is laid out already.
    pub fn attach(
        region: Region,
        lock: &'static AtomicU64,
        build: u64,
    ) -> Result<Self, AttachError> {
        Ok(Self { shared: Shared::attach(region, lock, build)? })
    }

    /// Takes a place among the processes that use the zone; none: try again a little later.
    pub fn worker(&self, pid: u32, start: u64, format: &Format) -> Option<Worker> {
        let claim = || self.shared.claim_with(pid, start, format.connections);
        let slot = claim().or_else(|| {
            let trace = Reachable(*self);
            let mut writer = self.shared.try_write(pid, &trace).ok()?;
            let added = writer.add_slots(1, format.connections);
            drop(writer);
            // Without room for one of its own, a slot with a shorter list is better than none.
            if added == 0 { self.shared.claim(pid, start) } else { claim() }
        })?;
        Some(Worker::new(*self, slot, pid))
    }

    /// Frees places of dead processes, for one that found none, see [`Self::worker`].
    pub fn free_idle(&self, pid: u32, start: u64, alive: &dyn Fn(u32, u64) -> bool) {
        self.shared.free_idle(pid, start, alive);
    }

    /// Revision of the last change in force.
    pub fn revision(&self) -> u64 {
        self.root(root::REVISION).load(Ordering::Acquire)
    }

    /// Whether the state was loaded and the configuration merged.
    pub fn is_loaded(&self) -> bool {
        self.root(root::LOADED).load(Ordering::Acquire) != 0
    }

    /// Says that the state was loaded and the configuration merged.
    pub fn set_loaded(&self) {
        self.root(root::LOADED).store(1, Ordering::Release);
    }

    /// Whether another zone has taken the contents over: nothing changes here any more.
    pub fn is_moved(&self) -> bool {
        // After a publication, too: see `inherit`.
        self.root(root::MOVED).load(Ordering::SeqCst) != 0
    }

    /// Figures of the zone.
    pub fn report(&self) -> Report {
        let usage = self.shared.usage();
        let number = |i| self.root(i).load(Ordering::Relaxed);
        let mut workers = Vec::new();
        self.shared.each_slot(|slot, pid| workers.push((pid, slot)));
        Report {
            total: usage.total,
            used: usage.used,
            free: usage.free,
            reserve: usage.reserve,
            largest: usage.largest,
            revision: self.revision(),
            seq: number(root::SEQ),
            upstreams: number(root::UPSTREAMS),
            servers: number(root::SERVERS),
            routes: self.route_counts().routes.into(),
            apps: self.route_counts().apps.into(),
            route_bytes: number(root::ROUTES_GRANULES) * size::GRANULE,
            no_room: number(root::NO_ROOM),
            workers,
        }
    }

    /// Probes that began later than they should, counted by who probes.
    pub fn checks_late(&self) -> &AtomicU64 {
        self.root(root::CHECKS_LATE)
    }

    /// Id that the next new server gets.
    pub fn next_id(&self) -> u64 {
        self.root(root::NEXT_ID).load(Ordering::Relaxed)
    }

    /// Gives no server an id below this one any more.
    pub fn raise_next_id(&self, next_id: u64) {
        self.root(root::NEXT_ID).fetch_max(next_id, Ordering::Relaxed);
    }

    /// A number that no other peer or board, nor hosts, of this zone have had.
    pub(crate) fn fresh_uid(&self) -> u32 {
        // 2^32 of them.
        self.root(root::NEXT_UID).fetch_add(1, Ordering::Relaxed) as u32
    }

    /// An id that no server of this zone has had.
    pub(crate) fn fresh_id(&self) -> u64 {
        self.root(root::NEXT_ID).fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        self.shared.region()
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    #[inline]
    pub(crate) fn root(&self, i: usize) -> &'static AtomicU64 {
        self.shared.root(i)
    }
}
