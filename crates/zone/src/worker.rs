//! One process that uses a zone: its slot, its read sections.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use peerage_shm::{Region, Section, Slot};

use crate::bound::Remembered;
use crate::choice::Clock;
use crate::eject::Ejected;
use crate::ends::{self, Look};
use crate::events::Said;
use crate::hosts::KnownHosts;
use crate::shut::Taken;
use crate::trace::Reachable;
use crate::zone::Zone;

/// A process that uses a zone. One thread only.
pub struct Worker {
    zone: Zone,
    slot: Slot,
    pid: u32,
    random: Cell<u32>,
    said: RefCell<Vec<Said>>,
    /// Peers that were ejected here, until somebody asks.
    pub(crate) ejected: RefCell<Vec<Ejected>>,
    /// Its walk over all peers, and the bucket at which it goes on, see [`Worker::relieve`].
    pub(crate) relieving: Cell<Option<(Look, usize)>>,
    pub(crate) remembered: Remembered,
    /// The hosts as listings read them last: a listing asks for them with every few peers.
    pub(crate) known_hosts: RefCell<KnownHosts>,
    /// Peers that drain and got requests of sessions, until [`crate::Closing`] has looked.
    pub(crate) draining: RefCell<HashSet<Taken>>,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes that died.
    pub slots: usize,
    /// Requests of theirs that were taken back.
    pub references: usize,
}

impl Worker {
    pub(crate) fn new(zone: Zone, slot: Slot, pid: u32) -> Self {
        let said = RefCell::new(Vec::new());
        Self {
            zone,
            slot,
            pid,
            random: Cell::new(pid | 1),
            said,
            ejected: RefCell::default(),
            relieving: Cell::default(),
            remembered: Remembered::default(),
            known_hosts: RefCell::default(),
            draining: RefCell::default(),
        }
    }

    /// A number that is hard to tell from the last; never 0.
    pub(crate) fn random(&self) -> u32 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random.set(x);
        x
    }

    /// Keeps what this process told, for its log.
    pub(crate) fn say(&self, said: Vec<Said>) {
        self.said.borrow_mut().extend(said);
    }

    /// The events of changes that this process made since it was asked last.
    pub fn take_said(&self) -> Vec<Said> {
        self.said.take()
    }

    /// The zone.
    #[inline]
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Its pid, the owner of the lock while it writes.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Begins a read section: what is reachable now stays until the section is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Section<'_> {
        self.slot.enter()
    }

    #[inline]
    pub(crate) const fn slot(&self) -> &Slot {
        &self.slot
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        self.zone.region()
    }

    /// Takes back what dead processes left, and frees what nobody can see any more.
    ///
    /// To be called every half second in each process.
    pub fn sweep(&self, alive: &dyn Fn(u32, u64) -> bool, clock: &Clock) -> Swept {
        let swept = self.zone.shared().sweep(&self.slot, alive);
        if let Ok(mut writer) = self.zone.shared().try_write(self.pid, &Reachable(self.zone)) {
            writer.collect();
            self.zone.tend_routes_in_round(&mut writer);
        }
        if swept.slots != 0 {
            // Who died may have barred a peer and not said until when: needs no lock, so no writer's
            // death tells of it.
            self.zone.ends(ends::BARS).again();
        }
        self.tighten(clock);
        Swept { slots: swept.slots, references: swept.references }
    }

    /// Gives the slot back at a clean exit; false while requests are in flight.
    pub fn leave(&self) -> bool {
        self.slot.leave_for_good()
    }
}
