//! The one process that changes the region at a time.

use crate::arena::Arena;
use crate::head::{self, DIRTY, MAX_SLOTS, QUARANTINE, RECORD, SLOTS};
use crate::limbo;
use crate::lock::{Busy, Guard};
use crate::point;
use crate::region::Ref;
use crate::shared::{Epoch, Shared};
use crate::slot;
use crate::sync::{AtomicU64, Ordering};

/// What the user's data reaches: the truth after a writer died.
pub trait Trace {
    /// Calls `mark` with every block reachable from the root words, and its granules.
    fn trace(&self, shared: &Shared, mark: &mut dyn FnMut(Ref, u32));

    /// The block that is freed together with a record, if any.
    fn companion(&self, shared: &Shared, record: Ref) -> Option<(Ref, u32)>;
}

/// The right to change the region, until dropped.
pub struct Writer<'a> {
    pub(crate) shared: Shared,
    arena: Arena,
    trace: &'a dyn Trace,
    _guard: Guard,
}

impl Shared {
    /// Becomes the writer, if nobody else is.
    ///
    /// Where the last writer died inside, what is given out is found anew from `trace`; nothing is
    /// given out then until a grace period has passed, for which `Busy` is answered as well.
    pub fn try_write<'a>(&self, pid: u32, trace: &'a dyn Trace) -> Result<Writer<'a>, Busy> {
        let guard = Guard::try_lock(self.lock(), pid)?;
        let region = self.region();
        let died = head::word(region, DIRTY).swap(1, Ordering::SeqCst) != 0;
        point!("lock.taken");
        let mut writer = Writer { shared: *self, arena: self.arena(), trace, _guard: guard };
        if died {
            writer.rebuild();
        }
        let quarantine = head::get(region, QUARANTINE);
        if quarantine != 0 {
            if !self.passed(Epoch(quarantine)) {
                return Err(Busy);
            }
            writer.adopt();
            head::set(region, QUARANTINE, 0);
        }
        Ok(writer)
    }
}

impl Writer<'_> {
    /// Gives out a block; none where it would touch the reserve, or lie in the end of the region,
    /// which is the reserve's as long as it is free.
    pub fn alloc(&mut self, granules: u32) -> Option<Ref> {
        self.arena.alloc_unreserved(granules)
    }

    /// Gives out a block, from the reserve if need be.
    pub fn alloc_reserved(&mut self, granules: u32) -> Option<Ref> {
        self.arena.alloc(granules)
    }

    /// Takes back a block that was never published.
    pub fn free(&mut self, at: Ref, granules: u32) {
        self.arena.free(at, granules);
    }

    /// Free granules, the reserve included, and the reserve.
    pub fn room(&self) -> (u64, u64) {
        (self.arena.free_granules(), self.arena.reserve())
    }

    /// The longest run of granules that [`Self::alloc_reserved`], or [`Self::alloc`], may find.
    pub fn longest(&self, reserved: bool) -> u64 {
        self.arena.longest_of(reserved)
    }

    /// Keeps so many granules from ordinary allocations.
    pub fn set_reserve(&mut self, granules: u64) {
        head::set(self.shared.region(), head::RESERVE, granules);
    }

    /// Makes a value visible to readers, with everything written before.
    pub fn publish(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::SeqCst);
    }

    /// The region written to.
    pub const fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Adds slots with lists of `capacity` entries; how many there was room for.
    pub fn add_slots(&mut self, n: u16, capacity: u32) -> u16 {
        let region = *self.shared.region();
        for added in 0..n {
            let index = head::get(&region, SLOTS) as usize;
            if index >= MAX_SLOTS {
                return added;
            }
            // From the reserve if need be: a process without a slot cannot serve at all.
            let Some(at) = self.alloc_reserved(slot::granules(capacity)) else { return added };
            slot::fill(&region, at, capacity);
            head::set_slot(&region, index, at);
            point!("slots.entered");
            head::word(&region, SLOTS).store(index as u64 + 1, Ordering::SeqCst);
        }
        n
    }

    pub(crate) fn record_granules(&self) -> u32 {
        head::get(self.shared.region(), RECORD) as u32
    }

    pub(crate) fn companion(&self, record: Ref) -> Option<(Ref, u32)> {
        self.trace.companion(&self.shared, record)
    }

    /// Finds anew what is given out; what was retired is simply no longer reachable.
    fn rebuild(&mut self) {
        let region = *self.shared.region();
        self.arena.clear();
        point!("recover.cleared");
        limbo::forget(&region);
        for (i, w) in slot::each(&region) {
            let capacity = w[slot::CAPACITY].load(Ordering::Relaxed) as u32;
            self.arena.mark(head::slot_at(&region, i), slot::granules(capacity));
        }
        let arena = self.arena;
        self.trace.trace(&self.shared, &mut |at, granules| {
            let fresh = arena.mark(at, granules);
            debug_assert!(fresh, "{at:?}+{granules} is reachable twice");
        });
        point!("recover.marked");
        head::set(&region, QUARANTINE, self.shared.advance().0);
    }

    /// After the quarantine: records that are held but not reachable are given out too, and
    /// retired, since whoever retired them died.
    fn adopt(&mut self) {
        let mut orphans: Vec<Ref> = Vec::new();
        let granules = self.record_granules();
        let shared = self.shared;
        shared.each_held(|record| {
            if !self.arena.is_used(record) && self.arena.mark(record, granules) {
                if let Some((at, n)) = self.companion(record) {
                    self.arena.mark(at, n);
                }
                orphans.push(record);
            }
        });
        point!("recover.adopted");
        if orphans.is_empty() {
            return;
        }
        // Without room they stay given out; the next writer that dies brings them up again.
        if let Some(limbo) = self.limbo(orphans.len()) {
            self.retire(limbo, &[], &orphans);
        }
    }

    /// Tells what is wrong with the allocator, for tests: each block reachable or retired is given
    /// out once, and nothing else is.
    pub fn check(&mut self) -> Result<(), String> {
        let region = *self.shared.region();
        let retired = [head::LIMBO_FIRST, head::LINGERING_FIRST];
        while retired.iter().any(|&first| head::get(&region, first) != 0) {
            let before = self.arena.free_granules();
            self.collect();
            if self.arena.free_granules() == before {
                return Err("what was retired is seen or held".into());
            }
        }
        let free = self.arena.free_granules();
        self.rebuild();
        head::set(&region, QUARANTINE, 0);
        let rebuilt = self.arena.free_granules();
        if rebuilt == free { Ok(()) } else { Err(format!("{free} granules free, not {rebuilt}")) }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // A change that a panic cut off is as good as one whose writer died.
        if std::thread::panicking() {
            return;
        }
        head::word(self.shared.region(), DIRTY).store(0, Ordering::Release);
        point!("unlock.clean");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::trial::{Roots, publish, retire, root, shared, writer};

    /// A writer that dies: the master frees the lock, nothing else happens.
    fn die(shared: &Shared, writer: Writer<'_>) {
        std::mem::forget(writer);
        shared.lock().store(0, Ordering::SeqCst);
    }

    #[test]
    fn ordinary_changes_leave_the_reserve() {
        let shared = shared();
        let mut writer = writer(&shared);
        while writer.alloc(1).is_some() {}
        let (free, reserve) = writer.room();
        assert!(free == reserve && reserve > 0);
        assert!(writer.alloc_reserved(1).is_some() && writer.limbo(1).is_some());
    }

    #[test]
    fn what_a_dead_writer_took_is_free_again() {
        let shared = shared();
        let record = publish(&shared, 0);
        let free = writer(&shared).room().0;
        let mut dying = writer(&shared);
        dying.alloc(30).expect("there is room");
        die(&shared, dying);
        let slot = shared.claim(1, 0).expect("a slot");
        let section = slot.enter();
        // Somebody may see what the dead one had retired.
        assert!(shared.try_write(2, &Roots).is_err());
        assert!(shared.try_write(2, &Roots).is_err());
        drop(section);
        let mut after = writer(&shared);
        assert_eq!(after.room().0, free);
        assert_eq!(root(&shared, 0), record);
        assert_eq!(after.check(), Ok(()));
    }

    #[test]
    fn what_is_held_outlives_a_dead_writer() {
        let shared = shared();
        let free = writer(&shared).room().0;
        let record = publish(&shared, 0);
        let slot = shared.claim(1, 0).expect("a slot");
        let held = slot.acquire(record, 0).expect("no limit");
        retire(&shared, 0);
        die(&shared, writer(&shared));
        let mut after = writer(&shared);
        assert!(after.arena.is_used(record));
        after.collect();
        assert!(after.arena.is_used(record));
        slot.release(held);
        after.collect();
        assert_eq!(after.room().0, free);
        assert_eq!(after.check(), Ok(()));
    }

    #[test]
    fn a_panic_inside_is_a_death() {
        let shared = shared();
        let free = writer(&shared).room().0;
        let cut = catch_unwind(AssertUnwindSafe(|| {
            let mut writer = writer(&shared);
            writer.alloc(30).expect("there is room");
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(cut.is_err());
        assert_eq!(writer(&shared).room().0, free);
    }
}
