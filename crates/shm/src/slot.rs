//! One place for each process that uses the region.
//!
//! A slot's block holds who owns it, the epoch of its read section, and everything that is needed
//! to take its references back when the owner dies: the intent of its current step, and the list
//! of what it holds. A process claims a slot by one compare-and-swap and keeps it until it exits.

use std::cell::Cell;

use crate::head::{self, EPOCH, SLOTS};
use crate::inflight::{MAX_ENTRIES, record_of, tag_of};
use crate::places::Places;
use crate::point;
use crate::region::{Ref, Region};
use crate::shared::{Epoch, Shared};
use crate::sync::{AtomicU64, Ordering, order};

/// Owner: pid and the low half of its start time; 0 = nobody. Claimed by CAS, cleared by the
/// owner at a clean exit or by whoever swept it.
pub(crate) const OWNER: usize = 0;
/// Epoch of the read section its owner is in; 0 = outside. Written by the owner.
pub(crate) const SECTION: usize = 1;
/// The owner's step in progress, or the tag of its last one. See inflight.
pub(crate) const INTENT: usize = 2;
/// Tag of a step of this slot that happened, noted by whoever replaced it meanwhile.
pub(crate) const DONE: usize = 3;
/// Who sweeps it after its owner's death: the sweeper's owner word; 0 = nobody.
pub(crate) const SWEEPER: usize = 4;
/// What its owner wants to be woken for; the user's bits.
pub(crate) const WAITING: usize = 5;
/// Entries of its list.
pub(crate) const CAPACITY: usize = 6;
/// The list: what the owner holds. A word is left, so that it begins with a granule.
pub(crate) const LIST: usize = 8;

/// Granules of the block of a slot.
pub(crate) const fn granules(capacity: u32) -> u32 {
    (LIST as u32 + capacity).div_ceil(4)
}

/// The words of the slot at `i`; none where there is none.
#[inline]
pub(crate) fn words(region: &Region, i: usize) -> Option<&'static [AtomicU64]> {
    let at = head::slot_at(region, i);
    let capacity = region.words(at, LIST)?[CAPACITY].load(Ordering::Relaxed);
    region.words(at, LIST + capacity as usize)
}

/// Every slot there is, with its words.
pub(crate) fn each(region: &Region) -> impl Iterator<Item = (usize, &'static [AtomicU64])> {
    let region = *region;
    // SeqCst: who saw an epoch sees every slot whose owner saw an earlier one.
    let n = head::word(&region, SLOTS).load(Ordering::SeqCst) as usize;
    (0..n).filter_map(move |i| Some((i, words(&region, i)?)))
}

/// The owner word of a process.
pub(crate) const fn owner_word(pid: u32, start: u64) -> u64 {
    (pid as u64) << 32 | start & 0xffff_ffff
}

/// Lays out a slot's block. Under the lock, before it is entered in the directory.
pub(crate) fn fill(region: &Region, at: Ref, capacity: u32) {
    for word in region.words(at, LIST + capacity as usize).unwrap_or_default() {
        word.store(0, Ordering::Relaxed);
    }
    if let Some(words) = region.words(at, LIST) {
        words[CAPACITY].store(u64::from(capacity), Ordering::Relaxed);
    }
}

/// The slot of this process. One thread only.
pub struct Slot {
    pub(crate) shared: Shared,
    pub(crate) index: u16,
    pub(crate) w: &'static [AtomicU64; LIST],
    /// The list, and which entries of it are free.
    pub(crate) free: Places,
    /// Tag of the last step.
    pub(crate) step: Cell<u64>,
    epoch: &'static AtomicU64,
    owner: u64,
}

impl Shared {
    /// Takes a free slot for the process `pid` that started at `start`.
    ///
    /// `start` parts a process from an earlier one of the same pid; any unit will do.
    pub fn claim(&self, pid: u32, start: u64) -> Option<Slot> {
        self.claim_with(pid, start, 0)
    }

    /// The same, of slots whose list has at least `capacity` entries.
    pub fn claim_with(&self, pid: u32, start: u64, capacity: u32) -> Option<Slot> {
        let owner = owner_word(pid, start);
        let large = |w: &[AtomicU64]| w.len() - LIST >= capacity as usize;
        for (i, w) in each(self.region()).filter(|(_, w)| large(w)) {
            let claimed = w[OWNER].compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed);
            if claimed.is_err() {
                continue;
            }
            w[SECTION].store(0, Ordering::SeqCst);
            w[WAITING].store(0, Ordering::Relaxed);
            let last = w[INTENT].load(Ordering::Relaxed);
            let (w, list) = w.split_first_chunk()?;
            return Some(Slot {
                shared: *self,
                index: i as u16,
                w,
                free: Places::new(&list[..list.len().min(MAX_ENTRIES)]),
                step: Cell::new(tag_of(i as u16, last)),
                epoch: head::word(self.region(), EPOCH),
                owner,
            });
        }
        None
    }

    /// Calls `seen` with index and pid of every slot that is owned.
    pub fn each_slot(&self, mut seen: impl FnMut(u16, u32)) {
        for (i, w) in each(self.region()) {
            let owner = w[OWNER].load(Ordering::Relaxed);
            if owner != 0 {
                seen(i as u16, (owner >> 32) as u32);
            }
        }
    }

    /// Calls `seen` with index and bits of every slot whose owner waits for something.
    pub fn each_waiting(&self, mut seen: impl FnMut(u16, u64)) {
        for (i, w) in each(self.region()) {
            let bits = w[WAITING].load(Ordering::SeqCst);
            if bits != 0 {
                seen(i as u16, bits);
            }
        }
    }

    /// Begins a new epoch; what was unreachable before is unseen once it has passed.
    pub fn advance(&self) -> Epoch {
        order();
        Epoch(head::word(self.region(), EPOCH).fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Whether every process has been outside a read section since the epoch began.
    pub fn passed(&self, epoch: Epoch) -> bool {
        epoch.0 <= self.oldest().0
    }

    /// The newest epoch that has passed.
    pub(crate) fn oldest(&self) -> Epoch {
        let now = head::word(self.region(), EPOCH).load(Ordering::SeqCst);
        order();
        let sections = each(self.region()).map(|(_, w)| w[SECTION].load(Ordering::SeqCst));
        Epoch(sections.filter(|&epoch| epoch != 0).fold(now, u64::min))
    }
}

impl Slot {
    /// The region it is a slot of.
    pub const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Its place in the directory.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Begins a read section: what is reachable stays until it is dropped.
    ///
    /// Sections of one slot do not nest, and none may last over a return to the event loop.
    #[inline]
    pub fn enter(&self) -> Section<'_> {
        let section = &self.w[SECTION];
        debug_assert_eq!(section.load(Ordering::Relaxed), 0, "sections do not nest");
        section.swap(self.epoch.load(Ordering::SeqCst), Ordering::SeqCst);
        order();
        point!("section.entered");
        Section { slot: self }
    }

    /// Says what its owner waits for; others see it in [`Shared::each_waiting`].
    pub fn wait_for(&self, bits: u64) {
        self.w[WAITING].store(bits, Ordering::SeqCst);
    }

    /// Gives the slot back at a clean exit; false while something is held.
    pub fn leave_for_good(&self) -> bool {
        let held = |entry: &AtomicU64| !record_of(entry.load(Ordering::Relaxed)).is_none();
        if self.free.list().iter().any(held) {
            return false;
        }
        self.w[WAITING].store(0, Ordering::Relaxed);
        self.w[SECTION].store(0, Ordering::Release);
        self.w[OWNER].compare_exchange(self.owner, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Its owner word.
    pub(crate) const fn owner(&self) -> u64 {
        self.owner
    }
}

/// A read section; dropping it ends it.
pub struct Section<'a> {
    slot: &'a Slot,
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.w[SECTION].store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Config;
    use crate::trial::{publish, region, shared, writer};

    #[test]
    fn each_process_has_a_slot_of_its_own() {
        let shared = shared();
        let slots: Vec<Slot> = (1..=4).map(|pid| shared.claim(pid, 0).expect("a slot")).collect();
        assert!(shared.claim(5, 0).is_none());
        assert_eq!(writer(&shared).add_slots(2, 8), 2);
        assert_eq!(shared.claim(5, 0).map(|slot| slot.index()), Some(4));
        assert!(slots[2].leave_for_good());
        assert_eq!(shared.claim(6, 0).map(|slot| slot.index()), Some(2));
        let mut pids = Vec::new();
        shared.each_slot(|_, pid| pids.push(pid));
        assert_eq!(pids, [1, 2, 6, 4, 5]);
    }

    #[test]
    fn a_list_has_no_entry_that_an_intent_cannot_name() {
        let lock = Box::leak(Box::new(AtomicU64::new(0)));
        let list_capacity = MAX_ENTRIES as u32 + 1;
        let config = Config { build: 1, slots: 1, list_capacity, record_granules: 2 };
        let shared = Shared::format(region(4 << 20), lock, config).expect("it fits");
        let slot = shared.claim_with(1, 0, list_capacity).expect("a slot");
        assert_eq!(slot.free.list().len(), MAX_ENTRIES);
    }

    #[test]
    fn who_holds_something_does_not_leave() {
        let shared = shared();
        let record = publish(&shared, 0);
        let slot = shared.claim(1, 0).expect("a slot");
        let held = slot.acquire(record, 0).expect("no limit");
        assert!(!slot.leave_for_good());
        slot.release(held);
        assert!(slot.leave_for_good());
    }

    #[test]
    fn an_epoch_passes_when_all_have_been_outside() {
        let shared = shared();
        let [a, b] = [1, 2].map(|pid| shared.claim(pid, 0).expect("a slot"));
        let first = a.enter();
        let epoch = shared.advance();
        let second = b.enter();
        assert!(!shared.passed(epoch));
        drop(first);
        // The second began after it.
        assert!(shared.passed(epoch));
        assert!(!shared.passed(shared.advance()));
        drop(second);
    }

    #[test]
    fn who_waits_is_seen_until_he_leaves() {
        let shared = shared();
        let slot = shared.claim(1, 0).expect("a slot");
        let waiting = || {
            let mut seen = Vec::new();
            shared.each_waiting(|slot, bits| seen.push((slot, bits)));
            seen
        };
        slot.wait_for(5);
        assert_eq!(waiting(), [(0, 5)]);
        slot.leave_for_good();
        assert_eq!(waiting(), []);
    }
}
