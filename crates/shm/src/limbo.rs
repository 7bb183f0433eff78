//! What was retired and may still be seen.
//!
//! Each change brings one limbo block along, taken before the change is published: which blocks
//! it took out of reach, and the epoch since when. Blocks are freed once that epoch has passed;
//! records with an in-flight word once nobody holds them besides.

use crate::head::{self, LIMBO_FIRST, LIMBO_LAST, LINGERING_FIRST, LINGERING_LAST};
use crate::inflight::{count, make_known};
use crate::point;
use crate::region::{Ref, Region};
use crate::shared::Epoch;
use crate::sync::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use crate::writer::Writer;

const NEXT: usize = 0;
const EPOCH: usize = 1;
const ENTRIES: usize = 2;
/// An entry that is a record with an in-flight word.
const RECORD: u64 = 1 << 31;
/// Limbo blocks looked at in one go.
const BUDGET: usize = 64;

/// Room for what a change retires.
#[derive(Debug)]
pub struct Limbo {
    at: Ref,
    capacity: u32,
}

const fn granules(capacity: u32) -> u32 {
    (ENTRIES as u32 + capacity).div_ceil(4)
}

/// Words of a limbo block.
fn words(region: &Region, at: Ref) -> Option<&'static [AtomicU64]> {
    let n = region.words(at, ENTRIES)?[NEXT].load(Relaxed) as u32;
    region.words(at, ENTRIES + n as usize)
}

fn next(words: &[AtomicU64]) -> Ref {
    Ref::from_raw((words[NEXT].load(Relaxed) >> 32) as u32)
}

fn set_next(words: &[AtomicU64], next: Ref) {
    let n = words[NEXT].load(Relaxed) & 0xffff_ffff;
    words[NEXT].store(u64::from(next.raw()) << 32 | n, Relaxed);
}

/// Limbo blocks in a row: the words of the head that name the first and the last.
#[derive(Clone, Copy)]
struct Queue {
    first: usize,
    last: usize,
}

/// Not yet looked at, oldest first.
const LIMBO: Queue = Queue { first: LIMBO_FIRST, last: LIMBO_LAST };
/// Unseen, with records that are held.
const LINGERING: Queue = Queue { first: LINGERING_FIRST, last: LINGERING_LAST };

impl Queue {
    fn first(self, region: &Region) -> Ref {
        Ref::from_raw(head::get(region, self.first) as u32)
    }

    fn last(self, region: &Region) -> Ref {
        Ref::from_raw(head::get(region, self.last) as u32)
    }

    fn push(self, region: &Region, at: Ref, block: &[AtomicU64]) {
        set_next(block, Ref::NONE);
        match words(region, self.last(region)) {
            Some(last) => set_next(last, at),
            None => head::set(region, self.first, u64::from(at.raw())),
        }
        head::set(region, self.last, u64::from(at.raw()));
    }

    fn pop(self, region: &Region) {
        let Some(block) = words(region, self.first(region)) else { return };
        head::set(region, self.first, u64::from(next(block).raw()));
        if next(block).is_none() {
            head::set(region, self.last, 0);
        }
    }
}

/// Forgets what was retired: found out of reach, it is free.
pub(crate) fn forget(region: &Region) {
    for queue in [LIMBO, LINGERING] {
        head::set(region, queue.first, 0);
        head::set(region, queue.last, 0);
    }
}

impl Writer<'_> {
    /// Takes room to retire up to `n` blocks and records; may use the reserve.
    pub fn limbo(&mut self, n: usize) -> Option<Limbo> {
        let capacity = u32::try_from(n).ok()?;
        let at = self.alloc_reserved(granules(capacity))?;
        Some(Limbo { at, capacity })
    }

    /// Gives unused room back.
    pub fn drop_limbo(&mut self, limbo: Limbo) {
        self.free(limbo.at, granules(limbo.capacity));
    }

    /// Retires what the change just published took out of reach; at most as much as there is room.
    ///
    /// Once the epoch returned has passed nobody sees it any more.
    pub fn retire(&mut self, limbo: Limbo, blocks: &[(Ref, u32)], records: &[Ref]) -> Epoch {
        let region = *self.shared.region();
        let epoch = self.shared.advance();
        debug_assert!(blocks.len() + records.len() <= limbo.capacity as usize);
        let blocks = blocks.iter().map(|&(at, n)| u64::from(at.raw()) << 32 | u64::from(n));
        let records = records.iter().map(|at| u64::from(at.raw()) << 32 | RECORD);
        let Some(words) = region.words(limbo.at, ENTRIES + limbo.capacity as usize) else {
            return epoch;
        };
        words[NEXT].store(u64::from(limbo.capacity), Relaxed);
        words[EPOCH].store(epoch.0, Relaxed);
        for word in &words[ENTRIES..] {
            word.store(0, Relaxed);
        }
        for (word, entry) in words[ENTRIES..].iter().zip(blocks.chain(records)) {
            word.store(entry, Relaxed);
        }
        point!("limbo.filled");
        LIMBO.push(&region, limbo.at, words);
        point!("limbo.linked");
        epoch
    }

    /// Frees what nobody sees or holds any more; a bounded amount of work.
    pub fn collect(&mut self) {
        let region = *self.shared.region();
        self.collect_lingering(&region);
        let oldest = self.shared.oldest();
        for _ in 0..BUDGET {
            let at = LIMBO.first(&region);
            let Some(block) = words(&region, at) else { return };
            if block[EPOCH].load(Relaxed) > oldest.0 {
                return;
            }
            LIMBO.pop(&region);
            point!("collect.unlinked");
            self.settle(&region, at, block);
        }
    }

    /// Whether something is not free yet because a reader may see it, or was not looked at.
    pub fn awaits_readers(&self) -> bool {
        !LIMBO.first(self.shared.region()).is_none()
    }

    /// Looks at each once; those beyond the budget have their turn the next time.
    fn collect_lingering(&mut self, region: &Region) {
        let last = LINGERING.last(region);
        for _ in 0..BUDGET {
            let at = LINGERING.first(region);
            let Some(block) = words(region, at) else { return };
            LINGERING.pop(region);
            self.settle(region, at, block);
            if at == last {
                return;
            }
        }
    }

    /// Frees a limbo block, or keeps it for the records that are held.
    fn settle(&mut self, region: &Region, at: Ref, block: &[AtomicU64]) {
        if self.empty(block) {
            self.free(at, granules((block.len() - ENTRIES) as u32));
        } else {
            LINGERING.push(region, at, block);
        }
    }

    /// Frees the entries that can be freed; whether none is left.
    fn empty(&mut self, block: &[AtomicU64]) -> bool {
        let region = *self.shared.region();
        let mut left = false;
        for place in &block[ENTRIES..] {
            let entry = place.load(Relaxed);
            let at = Ref::from_raw((entry >> 32) as u32);
            if entry == 0 {
                continue;
            }
            if entry & RECORD == 0 {
                place.store(0, Relaxed);
                self.free(at, entry as u32 & 0x7fff_ffff);
            } else {
                let word = region.words(at, 1).map_or(0, |words| words[0].load(SeqCst));
                if count(word) != 0 {
                    left = true;
                    continue;
                }
                // Whoever moved the count last may die before its intent ends.
                make_known(&region, at, word);
                place.store(0, Relaxed);
                if let Some((companion, n)) = self.companion(at) {
                    self.free(companion, n);
                }
                self.free(at, self.record_granules());
            }
            point!("collect.freed");
        }
        !left
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::trial::{publish, retire, shared, word, writer};

    #[test]
    fn what_is_seen_is_kept() {
        let shared = shared();
        let free = writer(&shared).room().0;
        let slot = shared.claim(1, 0).expect("a slot");
        publish(&shared, 0);
        let section = slot.enter();
        retire(&shared, 0);
        writer(&shared).collect();
        assert!(writer(&shared).room().0 < free);
        drop(section);
        writer(&shared).collect();
        assert_eq!(writer(&shared).room().0, free);
    }

    #[test]
    fn what_is_held_is_kept_alone() {
        let shared = shared();
        let free = writer(&shared).room().0;
        let slot = shared.claim(1, 0).expect("a slot");
        let held = slot.acquire(publish(&shared, 0), 0).expect("no limit");
        publish(&shared, 1);
        let mut writer = writer(&shared);
        let block = writer.alloc(9).expect("there is room");
        let limbo = writer.limbo(3).expect("there is room");
        let records = [0, 1].map(|i| crate::trial::root(&shared, i));
        for i in [0, 1] {
            writer.publish(shared.root(i), 0);
        }
        writer.retire(limbo, &[(block, 9)], &records);
        writer.collect();
        // The record that is held, and the limbo block that remembers it.
        assert_eq!(writer.room().0, free - 2 - 2);
        slot.release(held);
        writer.collect();
        assert_eq!(writer.room().0, free);
        assert_eq!(writer.check(), Ok(()));
    }

    /// Its last user died before clearing the entry, and then the memory was given out again.
    #[test]
    fn what_is_reused_keeps_its_own_count() {
        let shared = shared();
        let [me, dead] = [1, 100].map(|pid| shared.claim(pid, 0).expect("a slot"));
        let record = publish(&shared, 0);
        dead.acquire(record, 0).expect("no limit");
        dead.release_of(record, word(&shared, record), dead.index, 0);
        retire(&shared, 0);
        writer(&shared).collect();
        assert_eq!(publish(&shared, 1), record);
        let held = me.acquire(record, 0).expect("no limit");
        shared.sweep(&me, &|pid, _| pid < 100);
        assert_eq!(crate::trial::in_flight(&shared, record), 1);
        me.release(held);
    }

    /// However many are held for long before it.
    #[test]
    fn what_was_let_go_is_freed_in_its_turn() {
        let shared = shared();
        let slot = shared.claim(1, 0).expect("a slot");
        let mut held = Vec::new();
        for _ in 0..90 {
            held.push(slot.acquire(publish(&shared, 0), 0).expect("no limit"));
            retire(&shared, 0);
            writer(&shared).collect();
        }
        let free = writer(&shared).room().0;
        let last = held.split_off(80);
        for held in held.drain(..10).chain(last) {
            slot.release(held);
        }
        for _ in 0..2 {
            writer(&shared).collect();
        }
        assert_eq!(writer(&shared).room().0, free + 20 * 3);
    }
}
