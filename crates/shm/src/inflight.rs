//! Exact counts of references, through the death of their holders.
//!
//! A record's word 0 holds how often it is referenced, and a tag: which slot moved the count last,
//! and the number of that step. Before a step its owner writes down what it is about to do (the
//! intent): up or down, and for which entry of a list. The entry names the record from before the
//! step that raises its count until after the one that lowers it; then the intent ends. Whoever
//! replaces another slot's tag while that step is still in progress notes it in that slot (`done`)
//! before. So after a death anybody can tell whether the last step happened: the tag is still in
//! the word, or in the note. If it happened as little as it should have, the entry goes. What the
//! list says is then undone, step by step, by steps of the sweeper that are as recoverable as any.
//!
//! Tags are only ever compared for equality, and a step takes none that the word or the note
//! carries at its beginning: that the numbers wrap after 2^34 steps does no harm.
//!
//! | bits | 63–30 | 29–20 | 19–0 |
//! |---|---|---|---|
//! | word 0 of a record | number | slot + 1 | count |
//! | intent | number | slot of the list + 1 | `VALID`, `MINUS`, entry |
//! | note | number | slot + 1 | 0 |

use crate::head;
use crate::point;
use crate::region::{Ref, Region};
use crate::slot::{self, DONE, INTENT, LIST, Slot};
use crate::sync::{AtomicU64, Ordering};

const COUNT_BITS: u32 = 20;
const SLOT_BITS: u32 = 10;
/// Most references at a time.
pub(crate) const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// No limit but what the word holds.
pub const NO_LIMIT: u32 = MAX_COUNT as u32;
/// Bits of the slot in a word.
const SLOT_MASK: u64 = ((1 << SLOT_BITS) - 1) << COUNT_BITS;
/// From one number to the next; they wrap by themselves.
pub(crate) const STEP: u64 = 1 << (COUNT_BITS + SLOT_BITS);

/// The intent holds.
pub(crate) const VALID: u64 = 1 << 19;
/// It lowers the count.
pub(crate) const MINUS: u64 = 1 << 18;
/// Entries of a list that can be used: what an intent can say.
pub(crate) const MAX_ENTRIES: usize = 1 << 18;

/// Marks an entry of a list.
pub(crate) const MARK: u64 = 1 << 31;

/// References to the record now.
#[inline]
pub const fn count(word: u64) -> u32 {
    (word & MAX_COUNT) as u32
}

/// Which slot moved the count last, and by which step.
#[inline]
pub(crate) const fn tag(word: u64) -> u64 {
    word & !MAX_COUNT
}

/// Slot of a tag, plus 1; 0 = none yet.
#[inline]
const fn slot_of(tag: u64) -> usize {
    ((tag & SLOT_MASK) >> COUNT_BITS) as usize
}

/// A slot's tag with the number of another tag.
pub(crate) const fn tag_of(slot: u16, number: u64) -> u64 {
    number & !(STEP - 1) | (slot as u64 + 1) << COUNT_BITS
}

/// What an entry of a list says that holds a reference to the record.
#[inline]
pub(crate) const fn entry_of(record: Ref) -> u64 {
    (record.raw() as u64) << 32
}

/// The record that an entry of a list names; none where the entry is free.
#[inline]
pub(crate) const fn record_of(entry: u64) -> Ref {
    Ref::from_raw((entry >> 32) as u32)
}

/// The entry that an intent is about.
pub(crate) fn place_of(region: &Region, intent: u64) -> Option<&'static AtomicU64> {
    let list = slot::words(region, slot_of(intent).checked_sub(1)?)?;
    list.get(LIST + (intent as usize & (MAX_ENTRIES - 1)))
}

/// A reference held: to be given back once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(u64);

impl Held {
    #[inline]
    const fn new(record: Ref, index: u32) -> Self {
        Self(entry_of(record) | index as u64)
    }

    /// What is held.
    #[inline]
    pub const fn record(self) -> Ref {
        record_of(self.0)
    }

    /// Its entry in the list.
    #[inline]
    const fn index(self) -> u32 {
        self.0 as u32
    }
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
        let seen = word.load(Ordering::SeqCst);
        if count(seen) >= limit {
            return Err(Refusal::Full);
        }
        let Some((index, place)) = self.free.take() else { return Err(Refusal::NoEntry) };
        let step = self.number(seen);
        self.intend(step | VALID | u64::from(index));
        // Release: who finds the step done, or the entry, finds the intent.
        place.store(entry_of(record), Ordering::Release);
        point!("acquire.listed");
        let held = Held::new(record, index);
        let next = move |seen| (count(seen) < limit).then(|| step | (u64::from(count(seen)) + 1));
        if !self.replace(held, word, seen, step, next) {
            self.free.give(index, place);
            self.end(step);
            return Err(Refusal::Full);
        }
        point!("acquire.counted");
        self.end(step);
        Ok(held)
    }

    /// Gives a reference back.
    pub fn release(&self, held: Held) {
        let Some([word]) = self.shared.region().array(held.record()) else { return };
        self.release_counted(held, word);
    }

    /// The same for who has the record's word 0 at hand.
    #[inline]
    pub fn release_counted(&self, held: Held, word: &AtomicU64) {
        let index = held.index();
        let Some(place) = self.free.place(index) else { return };
        let step = self.lower(held, word, |step| step | u64::from(index));
        self.free.give(index, place);
        point!("release.unlisted");
        self.end(step);
    }

    /// Marks a reference; see [`crate::Shared::each_marked`].
    pub fn mark(&self, held: &Held) {
        if let Some(place) = self.free.place(held.index()) {
            place.store(place.load(Ordering::Relaxed) | MARK, Ordering::Release);
        }
    }

    /// The same for entry `index` of the list of another slot, which the caller has emptied when
    /// it ends the step that this returns.
    pub(crate) fn release_of(&self, record: Ref, word: &AtomicU64, slot: u16, index: u32) -> u64 {
        let held = Held::new(record, index);
        self.lower(held, word, |step| tag_of(slot, step) | u64::from(index))
    }

    /// Lowers the count for the entry that `of` adds to the step, and returns the step, whose
    /// intent is still set: the caller clears the entry and ends it.
    #[inline]
    fn lower(&self, held: Held, word: &AtomicU64, of: impl FnOnce(u64) -> u64) -> u64 {
        let seen = word.load(Ordering::SeqCst);
        let step = self.number(seen);
        self.intend(of(step) | VALID | MINUS);
        point!("release.intent");
        self.replace(held, word, seen, step, move |seen| {
            debug_assert!(count(seen) > 0, "{held:?} is referenced");
            Some(step | u64::from(count(seen)).saturating_sub(1))
        });
        point!("release.counted");
        step
    }

    #[inline]
    fn intend(&self, intent: u64) {
        // Release: never before the end of the last step, whose intent it would belie.
        self.w[INTENT].store(intent, Ordering::Release);
        point!("acquire.intent");
    }

    /// The tag of a new step: one that neither the word seen carries nor the note.
    ///
    /// Nobody else writes this slot's tag: the word does not come to carry it before the step.
    #[inline]
    fn number(&self, seen: u64) -> u64 {
        let done = self.w[DONE].load(Ordering::SeqCst);
        let mut step = self.step.get().wrapping_add(STEP);
        if step == done || step == tag(seen) {
            step = number_beside(step, done, tag(seen));
        }
        self.step.set(step);
        step
    }

    /// Takes the step: replaces the word by what `next` makes of it. False, and nothing is done,
    /// where that is nothing.
    #[inline]
    fn replace(
        &self,
        held: Held,
        word: &AtomicU64,
        seen: u64,
        step: u64,
        next: impl Fn(u64) -> Option<u64>,
    ) -> bool {
        // The word as this slot left it: nobody has to be told.
        if (seen ^ step) & SLOT_MASK == 0
            && let Some(next) = next(seen)
            && word.compare_exchange(seen, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            return true;
        }
        replace_of_others(self.shared.region(), held, word, next)
    }

    /// Ends the step: its effects are all written.
    #[inline]
    pub(crate) fn end(&self, step: u64) {
        self.w[INTENT].store(step, Ordering::Release);
    }
}

/// The next number that is neither of these.
#[cold]
fn number_beside(mut step: u64, done: u64, seen: u64) -> u64 {
    while step == done || step == seen {
        step = step.wrapping_add(STEP);
    }
    step
}

/// Replaces a word that others move too, after the tag in it was made known.
#[inline(never)]
fn replace_of_others(
    region: &Region,
    held: Held,
    word: &AtomicU64,
    next: impl Fn(u64) -> Option<u64>,
) -> bool {
    let mut seen = word.load(Ordering::SeqCst);
    loop {
        let Some(next) = next(seen) else { return false };
        if (seen ^ next) & SLOT_MASK != 0 {
            make_known(region, held.record(), seen);
        }
        match word.compare_exchange(seen, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
}

/// Notes in the slot whose tag the word carries that this step happened, while it is in progress.
///
/// Before the tag is replaced, and before the record is freed.
pub(crate) fn make_known(region: &Region, record: Ref, word: u64) {
    let tag = tag(word);
    let Some(slot) = slot_of(tag).checked_sub(1) else { return };
    let Some(w) = region.words(head::slot_at(region, slot), LIST) else { return };
    loop {
        // The note first: one that was overtaken since must not replace a later one.
        let done = w[DONE].load(Ordering::SeqCst);
        let intent = w[INTENT].load(Ordering::SeqCst);
        if intent & VALID == 0 || (intent ^ tag) >= STEP || done == tag {
            return;
        }
        // An old tag of the same number, and a step that concerns another record; or a step whose
        // entry is gone, which is all there was to know.
        let entry = place_of(region, intent).map_or(0, |place| place.load(Ordering::SeqCst));
        if record_of(entry) != record {
            return;
        }
        if w[DONE].compare_exchange(done, tag, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
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
        let last = !(STEP - 1);
        let word = tag_of(1022, last) | MAX_COUNT;
        assert_eq!((u64::from(count(word)), slot_of(word), word & last), (MAX_COUNT, 1023, last));
        assert_eq!(tag(word), tag_of(1022, last));
        assert_eq!(slot_of(0), 0);
    }
}
