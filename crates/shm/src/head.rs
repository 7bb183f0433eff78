//! The first words of a region: what it is, and where the rest lies.

use crate::region::{Ref, Region, WORDS_PER_GRANULE};
use crate::sync::{AtomicU64, Ordering};

/// "peerage" and a number that changes with the layout of this crate.
pub(crate) const MAGIC: u64 = 0x7065_6572_6167_6503;

pub(crate) const MAGIC_WORD: usize = 0;
/// Build of the user's layout.
pub(crate) const BUILD: usize = 1;
/// Words of the region.
pub(crate) const SIZE: usize = 2;
/// 1 while a writer is inside. Found set by the next: the last one died.
pub(crate) const DIRTY: usize = 3;
/// Global epoch, from 1 on. Raised by writers.
pub(crate) const EPOCH: usize = 4;
/// Nothing is allocated before this epoch has passed; 0 = none.
pub(crate) const QUARANTINE: usize = 5;
/// Free granules.
pub(crate) const FREE: usize = 6;
/// Granules that only privileged allocations may take.
pub(crate) const RESERVE: usize = 7;
/// First word of the bitmap, and its words.
pub(crate) const BITMAP: usize = 8;
/// First granule that is given out, and the one after the last.
pub(crate) const SPAN: usize = 9;
/// Retired blocks, oldest first: first and last limbo block.
pub(crate) const LIMBO_FIRST: usize = 10;
pub(crate) const LIMBO_LAST: usize = 11;
/// Limbo blocks whose records are still counted: first and last.
pub(crate) const LINGERING_FIRST: usize = 12;
pub(crate) const LINGERING_LAST: usize = 13;
/// Slots in the directory.
pub(crate) const SLOTS: usize = 14;
/// Granules of a record with an in-flight word.
pub(crate) const RECORD: usize = 15;
/// Where to search for runs of each size, see the arena.
pub(crate) const HINTS: usize = 16;
pub(crate) const HINT_COUNT: usize = if cfg!(loom) { 4 } else { 80 };
/// The user's own words.
pub(crate) const ROOT: usize = HINTS + HINT_COUNT;
pub(crate) const ROOT_COUNT: usize = if cfg!(loom) { 4 } else { 200 };
/// Refs of slot blocks, two a word.
pub(crate) const DIRECTORY: usize = ROOT + ROOT_COUNT;
/// Most slots: ten bits of a tag, one value standing for none. A model of loom's makes do with
/// few words.
pub(crate) const MAX_SLOTS: usize = if cfg!(loom) { 4 } else { 1023 };
const DIRECTORY_WORDS: usize = MAX_SLOTS.div_ceil(2);
/// Words of the head; the bitmap follows.
pub(crate) const WORDS: usize = (DIRECTORY + DIRECTORY_WORDS).next_multiple_of(WORDS_PER_GRANULE);

/// A word of the head.
#[inline]
pub(crate) fn word(region: &Region, i: usize) -> &'static AtomicU64 {
    &region.all()[i]
}

/// Reads a word that only lock holders change.
#[inline]
pub(crate) fn get(region: &Region, i: usize) -> u64 {
    word(region, i).load(Ordering::Relaxed)
}

/// Sets a word that only lock holders change.
pub(crate) fn set(region: &Region, i: usize, value: u64) {
    word(region, i).store(value, Ordering::Relaxed);
}

/// Block of slot `i`; none where there is no such slot.
#[inline]
pub(crate) fn slot_at(region: &Region, i: usize) -> Ref {
    if i >= MAX_SLOTS {
        return Ref::NONE;
    }
    let pair = word(region, DIRECTORY + i / 2).load(Ordering::Acquire);
    Ref::from_raw(if i.is_multiple_of(2) { pair as u32 } else { (pair >> 32) as u32 })
}

/// Enters the block of slot `i`. Under the lock.
pub(crate) fn set_slot(region: &Region, i: usize, at: Ref) {
    let place = word(region, DIRECTORY + i / 2);
    let pair = place.load(Ordering::Relaxed);
    let raw = u64::from(at.raw());
    let pair = if i.is_multiple_of(2) {
        pair & !0xffff_ffff | raw
    } else {
        pair & 0xffff_ffff | raw << 32
    };
    place.store(pair, Ordering::Release);
}
