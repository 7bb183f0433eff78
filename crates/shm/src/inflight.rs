//! Exact counts of references, through the death of their holders.
//!
//! A record's word 0 holds how often it is referenced, and a tag: which slot moved the count last,
//! and the number of that step. Before a step its owner writes down what it is about to do (the
//! intent); after it, the owner's list says what it holds, and the intent ends. Whoever replaces
//! another slot's tag while that step is still in progress notes its number in that slot (`done`)
//! before. So after a death anybody can tell whether the last step happened: the tag is still in
//! the word, or the number is noted. What the list says is then undone, step by step, by steps of
//! the sweeper that are as recoverable as any.
//!
//! Numbers are only ever compared for equality, and a step takes none that the word or the note
//! carries at its beginning: that they wrap after 2^34 steps does no harm.

use crate::head;
use crate::point;
use crate::region::{Ref, Region};
use crate::slot::{DONE, INTENT, INTENT_WHAT, LIST, Slot};
use crate::sync::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 20;
const SLOT_BITS: u32 = 10;
const SEQ_BITS: u32 = 64 - COUNT_BITS - SLOT_BITS;
/// Most references at a time.
pub(crate) const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// No limit but what the word holds.
pub const NO_LIMIT: u32 = MAX_COUNT as u32;
pub(crate) const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// The intent holds.
pub(crate) const VALID: u64 = 1 << 63;
/// It lowers the count.
pub(crate) const MINUS: u64 = 1 << 62;
/// Bits of the slot whose list is concerned, above the number.
pub(crate) const LIST_SHIFT: u32 = SEQ_BITS;

/// Marks an entry of a list.
pub(crate) const MARK: u64 = 1 << 31;

/// References to the record now.
#[inline]
pub const fn count(word: u64) -> u32 {
    (word & MAX_COUNT) as u32
}

/// Slot of the tag, plus 1; 0 = none yet.
#[inline]
pub(crate) const fn tag_slot(word: u64) -> u64 {
    word >> COUNT_BITS & ((1 << SLOT_BITS) - 1)
}

#[inline]
pub(crate) const fn tag_seq(word: u64) -> u64 {
    word >> (COUNT_BITS + SLOT_BITS)
}

/// Whether the word carries the tag of this step of this slot.
#[inline]
pub(crate) const fn tagged(word: u64, slot: u16, seq: u64) -> bool {
    word & !MAX_COUNT == pack(0, tag_of(slot), seq)
}

/// What a slot's tags have in common.
pub(crate) const fn tag_of(slot: u16) -> u64 {
    (slot as u64 + 1) << COUNT_BITS
}

#[inline]
const fn pack(count: u64, tag: u64, seq: u64) -> u64 {
    count | tag | seq << (COUNT_BITS + SLOT_BITS)
}

/// Bits of the slot in a word.
const SLOT_MASK: u64 = ((1 << SLOT_BITS) - 1) << COUNT_BITS;

/// The record that an entry of a list, or the first word of an intent, names.
#[inline]
pub(crate) const fn record_of(entry: u64) -> Ref {
    Ref::from_raw((entry >> 32) as u32)
}

/// A reference held: to be given back once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What is held.
    pub record: Ref,
    index: u32,
}

/// Why a reference is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The record has as many as it may.
    Full,
    /// This slot's list is full.
    NoEntry,
}

impl Slot {
    /// Takes a reference to the record, unless it has `limit` already; 0 is no limit.
    ///
    /// Inside the read section in which the record was found.
    pub fn acquire(&self, record: Ref, limit: u32) -> Result<Held, Refusal> {
        let Some([word]) = self.shared.region().array(record) else { return Err(Refusal::Full) };
        self.acquire_counted(record, word, if limit == 0 { NO_LIMIT } else { limit })
    }

    /// The same for who has the record's word 0 at hand; [`NO_LIMIT`] is no limit.
    #[inline]
    pub fn acquire_counted(
        &self,
        record: Ref,
        word: &AtomicU64,
        limit: u32,
    ) -> Result<Held, Refusal> {
        // Beyond it the count would run into the tag.
        let limit = limit.min(NO_LIMIT);
        let mut seen = word.load(Ordering::SeqCst);
        if count(seen) >= limit {
            return Err(Refusal::Full);
        }
        let Some(index) = self.free.take() else { return Err(Refusal::NoEntry) };
        let seq = self.begin(record, index, self.index, 0, seen);
        loop {
            let next = pack(u64::from(count(seen)) + 1, self.tag, seq);
            match self.replace(record, word, seen, next) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
            if count(seen) >= limit {
                self.end(seq);
                self.free.give(index);
                return Err(Refusal::Full);
            }
        }
        point!("acquire.counted");
        self.note(index, u64::from(record.raw()) << 32 | seq & (MARK - 1));
        point!("acquire.listed");
        self.end(seq);
        Ok(Held { record, index })
    }

    /// Gives a reference back.
    pub fn release(&self, held: Held) {
        let Some([word]) = self.shared.region().array(held.record) else { return };
        self.release_counted(held, word);
    }

    /// The same for who has the record's word 0 at hand.
    #[inline]
    pub fn release_counted(&self, held: Held, word: &AtomicU64) {
        let Held { record, index } = held;
        self.lower_counted(record, word, self.index, index);
        self.note(index, 0);
        point!("release.unlisted");
        self.end(self.seq.get());
        self.free.give(index);
    }

    /// Marks a reference; see [`crate::Shared::each_marked`].
    pub fn mark(&self, held: &Held) {
        if let Some(place) = self.list.get(held.index as usize) {
            place.store(place.load(Ordering::Relaxed) | MARK, Ordering::Release);
        }
    }

    /// Lowers the count for entry `index` of the list of slot `list`, and leaves the intent set:
    /// the caller clears the entry and ends it.
    pub(crate) fn lower(&self, record: Ref, list: u16, index: u32) {
        let Some([word]) = self.shared.region().array(record) else { return };
        self.lower_counted(record, word, list, index);
    }

    #[inline]
    fn lower_counted(&self, record: Ref, word: &AtomicU64, list: u16, index: u32) {
        let mut seen = word.load(Ordering::SeqCst);
        let seq = self.begin(record, index, list, MINUS, seen);
        point!("release.intent");
        loop {
            debug_assert!(count(seen) > 0, "{record:?} is referenced");
            let next = pack(u64::from(count(seen)).saturating_sub(1), self.tag, seq);
            match self.replace(record, word, seen, next) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        point!("release.counted");
    }

    /// Sets the intent of a new step and returns its number.
    #[inline]
    fn begin(&self, record: Ref, index: u32, list: u16, flags: u64, seen: u64) -> u64 {
        let seq = self.number(seen);
        let what = u64::from(record.raw()) << 32 | u64::from(index);
        // Release: never before the end of the last step, whose intent it would belie.
        self.w[INTENT_WHAT].store(what, Ordering::Release);
        let list = u64::from(list) << LIST_SHIFT;
        self.w[INTENT].store(VALID | flags | list | seq, Ordering::Release);
        point!("acquire.intent");
        seq
    }

    /// A number that neither the word seen carries for this slot nor the note.
    ///
    /// Nobody else writes this slot's tag: the word does not come to carry it before the step.
    #[inline]
    fn number(&self, seen: u64) -> u64 {
        let done = self.w[DONE].load(Ordering::SeqCst);
        let mut seq = self.seq.get();
        loop {
            seq = (seq + 1) & SEQ_MASK;
            if seq != done && seen & !MAX_COUNT != pack(0, self.tag, seq) {
                break;
            }
        }
        self.seq.set(seq);
        seq
    }

    /// Replaces the word, after the tag in it was made known.
    #[inline]
    fn replace(&self, record: Ref, word: &AtomicU64, seen: u64, next: u64) -> Result<u64, u64> {
        if seen & SLOT_MASK != self.tag {
            make_known(self.shared.region(), record, seen);
        }
        word.compare_exchange(seen, next, Ordering::SeqCst, Ordering::SeqCst)
    }

    #[inline]
    fn note(&self, index: u32, entry: u64) {
        if let Some(place) = self.list.get(index as usize) {
            place.store(entry, Ordering::Release);
        }
    }

    /// Ends the step: its effects are all written.
    #[inline]
    pub(crate) fn end(&self, seq: u64) {
        self.w[INTENT].store(seq, Ordering::Release);
    }
}

/// Notes in the slot whose tag the word carries that this step happened, while it is in progress.
///
/// Before the tag is replaced, and before the record is freed.
#[inline]
pub(crate) fn make_known(region: &Region, record: Ref, word: u64) {
    let (slot, seq) = (tag_slot(word), tag_seq(word));
    if slot == 0 {
        return;
    }
    let at = head::slot_at(region, slot as usize - 1);
    let Some(w) = region.words(at, LIST) else { return };
    loop {
        // The note first: one that was overtaken since must not replace a later one.
        let done = w[DONE].load(Ordering::SeqCst);
        let intent = w[INTENT].load(Ordering::SeqCst);
        if intent & VALID == 0 || intent & SEQ_MASK != seq || done == seq {
            return;
        }
        // An old tag of the same number, and a step that concerns another record.
        if record_of(w[INTENT_WHAT].load(Ordering::SeqCst)) != record {
            return;
        }
        if w[DONE].compare_exchange(done, seq, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            point!("tag.known");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn the_count_never_runs_into_the_tag() {
        let shared = crate::trial::shared();
        let record = crate::trial::publish(&shared, 0);
        let slot = shared.claim(1, 0).expect("a slot");
        crate::trial::word(&shared, record).store(MAX_COUNT, Ordering::SeqCst);
        for limit in [0, NO_LIMIT, u32::MAX] {
            assert_eq!(slot.acquire(record, limit), Err(Refusal::Full));
        }
    }

    #[test]
    fn the_word_keeps_its_three_parts() {
        let word = pack(MAX_COUNT, tag_of(1022), SEQ_MASK);
        assert_eq!(
            (u64::from(count(word)), tag_slot(word), tag_seq(word)),
            (MAX_COUNT, 1023, SEQ_MASK)
        );
        assert_eq!(tag_slot(0), 0);
    }
}
