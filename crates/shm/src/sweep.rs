//! Taking back what dead processes hold.
//!
//! One process sweeps a dead slot at a time, known by its own owner word; should it die too, its
//! slot is swept first, which settles its last step in the other's list, and then the work goes on.

use crate::inflight::{MARK, MINUS, VALID, place_of, record_of, tag, tag_of};
use crate::point;
use crate::region::{Ref, Region};
use crate::shared::Shared;
use crate::slot::{self, DONE, INTENT, LIST, OWNER, SECTION, SWEEPER, Slot, WAITING, owner_word};
use crate::sync::{AtomicU64, Ordering};

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Slots of dead owners that are free again.
    pub slots: usize,
    /// References taken back.
    pub references: usize,
}

/// Sweepers that died one over the other before the sweep gives up until the next time.
const DEPTH: u32 = 16;

impl Shared {
    /// Frees the slots of dead owners and takes their references back.
    ///
    /// `alive` tells whether a process of this pid, with these low 32 bits of its start time,
    /// runs. Any number of processes may sweep at a time, and die doing so.
    pub fn sweep(&self, me: &Slot, alive: &dyn Fn(u32, u64) -> bool) -> Swept {
        let mut swept = Swept::default();
        for (i, w) in slot::each(self.region()) {
            let owner = w[OWNER].load(Ordering::SeqCst);
            if owner != 0 && owner != me.owner() && !lives(owner, alive) {
                self.sweep_slot(me, i, w, owner, alive, DEPTH, &mut swept);
            }
        }
        swept
    }

    /// Frees the slots of dead owners that hold nothing; for a process that has found none free.
    ///
    /// A sweep needs a slot. Where so many processes died that no slot is free, there may be nobody
    /// left who has one.
    pub fn free_idle(&self, pid: u32, start: u64, alive: &dyn Fn(u32, u64) -> bool) -> usize {
        let me = owner_word(pid, start);
        let mut freed = 0;
        for (i, w) in slot::each(self.region()) {
            let owner = w[OWNER].load(Ordering::SeqCst);
            if owner == 0 || lives(owner, alive) {
                continue;
            }
            // Where somebody is at it, or died over it, a step of his may concern this list.
            if w[SWEEPER].compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            if w[OWNER].load(Ordering::SeqCst) == owner {
                resolve(self.region(), i, w);
                let holds = |entry: &AtomicU64| !record_of(entry.load(Ordering::SeqCst)).is_none();
                if !w[LIST..].iter().any(holds) && leave(w, owner) {
                    freed += 1;
                }
            }
            let _ = w[SWEEPER].compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        freed
    }

    #[expect(clippy::too_many_arguments, reason = "one recursive step, nowhere else called")]
    fn sweep_slot(
        &self,
        me: &Slot,
        i: usize,
        w: &'static [AtomicU64],
        owner: u64,
        alive: &dyn Fn(u32, u64) -> bool,
        depth: u32,
        swept: &mut Swept,
    ) {
        if !self.claim_sweep(me, w, alive, depth, swept) {
            return;
        }
        point!("sweep.claimed");
        // Somebody may have finished it, and a new process taken it, before the claim.
        if w[OWNER].load(Ordering::SeqCst) == owner {
            resolve(self.region(), i, w);
            point!("sweep.resolved");
            swept.references += undo(me, i, w);
            swept.slots += usize::from(leave(w, owner));
            point!("sweep.freed");
        }
        // Only our own claim: after the line above the slot may have a new owner and a new fate.
        let _ = w[SWEEPER].compare_exchange(me.owner(), 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    fn claim_sweep(
        &self,
        me: &Slot,
        w: &'static [AtomicU64],
        alive: &dyn Fn(u32, u64) -> bool,
        depth: u32,
        swept: &mut Swept,
    ) -> bool {
        let mut sweeper = w[SWEEPER].load(Ordering::SeqCst);
        loop {
            if sweeper == me.owner() {
                return true;
            }
            if sweeper != 0 {
                if depth == 0 || lives(sweeper, alive) {
                    return false;
                }
                // Its slot, if it has not been swept yet, holds a step that concerns this list.
                let theirs = slot::each(self.region())
                    .find(|(_, w)| w[OWNER].load(Ordering::SeqCst) == sweeper);
                if let Some((j, theirs)) = theirs {
                    self.sweep_slot(me, j, theirs, sweeper, alive, depth - 1, swept);
                    if theirs[OWNER].load(Ordering::SeqCst) == sweeper {
                        return false;
                    }
                }
            }
            let claim = w[SWEEPER].compare_exchange(
                sweeper,
                me.owner(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match claim {
                Ok(_) => return true,
                Err(now) => sweeper = now,
            }
        }
    }

    /// Calls `seen` with the record of every marked reference that is held.
    pub fn each_marked(&self, mut seen: impl FnMut(Ref)) {
        for (_, w) in slot::each(self.region()) {
            if w[OWNER].load(Ordering::Relaxed) == 0 {
                continue;
            }
            for entry in &w[LIST..] {
                let entry = entry.load(Ordering::Acquire);
                if entry & MARK != 0 {
                    seen(record_of(entry));
                }
            }
        }
    }

    /// Calls `seen` with every record that a list names.
    pub fn each_held(&self, mut seen: impl FnMut(Ref)) {
        for (_, w) in slot::each(self.region()) {
            let entries = w[LIST..].iter().map(|entry| record_of(entry.load(Ordering::SeqCst)));
            entries.filter(|record| !record.is_none()).for_each(&mut seen);
        }
    }
}

/// Ends a dead owner's hold on its slot. By who has claimed its sweep.
fn leave(w: &[AtomicU64], owner: u64) -> bool {
    w[SECTION].store(0, Ordering::SeqCst);
    w[WAITING].store(0, Ordering::SeqCst);
    w[OWNER].compare_exchange(owner, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

fn lives(owner: u64, alive: &dyn Fn(u32, u64) -> bool) -> bool {
    alive((owner >> 32) as u32, owner & 0xffff_ffff)
}

/// Settles the last step of a dead owner: after it, its list says exactly what it held.
fn resolve(region: &Region, i: usize, w: &[AtomicU64]) {
    let intent = w[INTENT].load(Ordering::SeqCst);
    if intent & VALID == 0 {
        return;
    }
    let step = tag_of(i as u16, intent);
    if let Some(place) = place_of(region, intent) {
        let record = record_of(place.load(Ordering::SeqCst));
        let word = region.words(record, 1).map_or(0, |words| words[0].load(Ordering::SeqCst));
        // In this order: who replaces the tag writes the note first.
        let happened = tag(word) == step || w[DONE].load(Ordering::SeqCst) == step;
        // Listed for a step that did not happen, or still listed after one that did.
        if happened == (intent & MINUS != 0) {
            place.store(0, Ordering::SeqCst);
        }
        point!("sweep.settled");
    }
    w[INTENT].store(step, Ordering::SeqCst);
}

/// Gives back everything in a dead owner's list, each by a step of ours.
fn undo(me: &Slot, i: usize, w: &[AtomicU64]) -> usize {
    let mut undone = 0;
    for (index, place) in w[LIST..].iter().enumerate() {
        let record = record_of(place.load(Ordering::SeqCst));
        let Some([word]) = me.shared.region().array(record) else { continue };
        let step = me.release_of(record, word, i as u16, index as u32);
        place.store(0, Ordering::SeqCst);
        point!("sweep.undone");
        me.end(step);
        undone += 1;
    }
    undone
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::inflight::{STEP, entry_of};
    use crate::trial::{in_flight, publish, shared, word};

    /// Pids from 100 on are dead.
    fn alive(pid: u32, _: u64) -> bool {
        pid < 100
    }

    /// As if it had died in a step that takes a reference by its first entry.
    fn intent(slot: &Slot, record: Ref, step: u64) {
        slot.free.list()[0].store(entry_of(record), Ordering::SeqCst);
        slot.w[INTENT].store(step | VALID, Ordering::SeqCst);
    }

    #[test]
    fn what_the_dead_held_is_taken_back() {
        let shared = shared();
        let record = publish(&shared, 0);
        let [me, dead] = [1, 100].map(|pid| shared.claim(pid, 0).expect("a slot"));
        let mine = me.acquire(record, 0).expect("no limit");
        for _ in 0..3 {
            let held = dead.acquire(record, 0).expect("no limit");
            dead.mark(&held);
        }
        dead.wait_for(1);
        assert_eq!(in_flight(&shared, record), 4);
        assert_eq!(shared.sweep(&me, &alive), Swept { slots: 1, references: 3 });
        assert_eq!(in_flight(&shared, record), 1);
        shared.each_waiting(|slot, _| panic!("{slot} waits"));
        shared.each_marked(|record| panic!("{record:?} is marked"));
        assert_eq!(shared.sweep(&me, &alive), Swept::default());
        me.release(mine);
        assert_eq!(in_flight(&shared, record), 0);
    }

    #[test]
    fn a_step_that_did_not_happen_is_not_undone() {
        let shared = shared();
        let record = publish(&shared, 0);
        let [me, dead] = [1, 100].map(|pid| shared.claim(pid, 0).expect("a slot"));
        let mine = me.acquire(record, 0).expect("no limit");
        intent(&dead, record, dead.step.get() + STEP);
        assert_eq!(shared.sweep(&me, &alive), Swept { slots: 1, references: 0 });
        assert_eq!(in_flight(&shared, record), 1);
        me.release(mine);
    }

    #[test]
    fn a_step_that_happened_is_known_by_its_tag_and_after_it() {
        for replaced in [false, true] {
            let shared = shared();
            let record = publish(&shared, 0);
            let [me, dead] = [1, 100].map(|pid| shared.claim(pid, 0).expect("a slot"));
            dead.acquire(record, 0).expect("no limit");
            // As if it had died before the end.
            let step = dead.step.get();
            intent(&dead, record, step);
            let mine = replaced.then(|| me.acquire(record, 0).expect("no limit"));
            assert_eq!(tag(word(&shared, record).load(Ordering::SeqCst)) == step, !replaced);
            assert_eq!(shared.sweep(&me, &alive), Swept { slots: 1, references: 1 });
            assert_eq!(in_flight(&shared, record), u32::from(replaced));
            mine.into_iter().for_each(|held| me.release(held));
        }
    }

    #[test]
    fn a_release_that_happened_is_not_done_again() {
        let shared = shared();
        let record = publish(&shared, 0);
        let [me, dead] = [1, 100].map(|pid| shared.claim(pid, 0).expect("a slot"));
        let mine = me.acquire(record, 0).expect("no limit");
        dead.acquire(record, 0).expect("no limit");
        // Dies between the step and clearing the entry.
        dead.release_of(record, word(&shared, record), dead.index, 0);
        assert_eq!(shared.sweep(&me, &alive), Swept { slots: 1, references: 0 });
        assert_eq!(in_flight(&shared, record), 1);
        me.release(mine);
    }

    /// A record that nobody touched while its last user took 2^33 other steps and more.
    #[test]
    fn an_old_tag_says_nothing_about_the_step_in_progress() {
        let shared = shared();
        let [record, other] = [0, 1].map(|i| publish(&shared, i));
        let [me, dead] = [1, 100].map(|pid| shared.claim(pid, 0).expect("a slot"));
        dead.step.set(tag_of(1, (STEP << 33) + 10 * STEP));
        let held = dead.acquire(record, 0).expect("no limit");
        dead.release(held);
        dead.step.set(tag_of(1, 20 * STEP));
        let held = dead.acquire(other, 0).expect("no limit");
        dead.release(held);
        let mine = [record, other].map(|at| me.acquire(at, 0).expect("no limit"));
        intent(&dead, other, dead.step.get() + STEP);
        assert_eq!(shared.sweep(&me, &alive), Swept { slots: 1, references: 0 });
        assert_eq!([record, other].map(|at| in_flight(&shared, at)), [1, 1]);
        mine.into_iter().for_each(|held| me.release(held));
    }

    /// Numbers come round: one that the word or the note carries is left out.
    #[test]
    fn a_step_has_a_number_of_its_own() {
        let shared = shared();
        let record = publish(&shared, 0);
        let slot = shared.claim(1, 0).expect("a slot");
        let numbered = |number: u64| tag_of(0, number.wrapping_mul(STEP));
        let last = u64::MAX;
        slot.step.set(numbered(last - 1));
        let held = slot.acquire(record, 0).expect("no limit");
        assert_eq!(slot.step.get(), numbered(last));
        slot.step.set(numbered(last - 1));
        slot.w[DONE].store(numbered(0), Ordering::SeqCst);
        slot.release(held);
        assert_eq!(slot.step.get(), numbered(1));
    }

    #[test]
    fn a_dead_sweepers_work_is_finished() {
        let shared = shared();
        let record = publish(&shared, 0);
        let [me, dead, sweeper] = [1, 100, 101].map(|pid| shared.claim(pid, 0).expect("a slot"));
        let mine = me.acquire(record, 0).expect("no limit");
        for _ in 0..2 {
            dead.acquire(record, 0).expect("no limit");
        }
        // It dies between its step and clearing the entry.
        dead.w[SWEEPER].store(sweeper.owner(), Ordering::SeqCst);
        sweeper.release_of(record, word(&shared, record), dead.index, 0);
        assert_eq!(shared.sweep(&me, &alive), Swept { slots: 2, references: 1 });
        assert_eq!(in_flight(&shared, record), 1);
        me.release(mine);
    }

    #[test]
    fn who_has_no_slot_frees_those_of_the_dead_that_hold_nothing() {
        let shared = shared();
        let record = publish(&shared, 0);
        let [idle, holds, swept, lives] =
            [100, 101, 102, 1].map(|pid| shared.claim(pid, 0).expect("a slot"));
        holds.acquire(record, 0).expect("no limit");
        // It died over a step that did not happen, in a section.
        intent(&idle, record, idle.step.get() + STEP);
        std::mem::forget(idle.enter());
        swept.w[SWEEPER].store(lives.owner(), Ordering::SeqCst);
        assert!(shared.claim(2, 0).is_none());
        assert_eq!(shared.free_idle(2, 0, &alive), 1);
        assert!(shared.passed(shared.advance()));
        let me = shared.claim(2, 0).expect("a slot");
        assert_eq!(shared.free_idle(3, 0, &alive), 0);
        assert_eq!(in_flight(&shared, record), 1);
        lives.w[SWEEPER].store(0, Ordering::SeqCst);
        swept.w[SWEEPER].store(0, Ordering::SeqCst);
        assert_eq!(shared.sweep(&me, &alive), Swept { slots: 2, references: 1 });
    }

    #[test]
    fn a_live_sweeper_is_left_to_its_work() {
        let shared = shared();
        let [me, dead, sweeper] = [1, 100, 2].map(|pid| shared.claim(pid, 0).expect("a slot"));
        dead.w[SWEEPER].store(sweeper.owner(), Ordering::SeqCst);
        assert_eq!(shared.sweep(&me, &alive), Swept::default());
        assert_eq!(shared.sweep(&sweeper, &alive), Swept { slots: 1, references: 0 });
    }
}
