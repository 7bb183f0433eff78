//! Which granules are given out: a bitmap, searched from hints, first fit.
//!
//! Nothing is kept inside blocks, so no stray write can break the allocator, neighbours of a freed
//! block join it by themselves, and after a writer's death the whole is rebuilt from what is
//! reachable.

use crate::head::{self, BITMAP, FREE, HINT_COUNT, HINTS, RESERVE, SPAN};
use crate::point;
use crate::region::{GRANULE, Ref, Region, WORDS_PER_GRANULE};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Figures of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The region.
    pub total: u64,
    /// Given out, with the head and the bitmap.
    pub used: u64,
    /// Free, the reserve included.
    pub free: u64,
    /// Kept for privileged allocations.
    pub reserve: u64,
    /// The longest free run.
    pub largest: u64,
}

/// Sizes that have a hint of their own; larger ones share one for each doubling.
const EXACT: u32 = if cfg!(loom) { 2 } else { 64 };

/// Granules that are looked at on either side of a freed block.
const NEAR: u32 = 4096;

/// The allocator of a region. All but `usage` under the lock.
#[derive(Clone, Copy)]
pub(crate) struct Arena {
    region: Region,
    bits: &'static [AtomicU64],
    first: u32,
    end: u32,
}

impl Arena {
    /// Lays out the bitmap after the head; everything beyond is free.
    pub(crate) fn format(region: Region) -> Option<Self> {
        let words = region.all().len();
        let total = words / WORDS_PER_GRANULE;
        let bitmap = total.div_ceil(64);
        let first = Self::first_of(words);
        if first >= total {
            return None;
        }
        // 64 GB: a block's length and a flag fit into half a word.
        let end = u32::try_from(total).ok().filter(|&end| end <= 1 << 31)?;
        head::set(&region, BITMAP, (head::WORDS as u64) << 32 | bitmap as u64);
        head::set(&region, SPAN, (first as u64) << 32 | u64::from(end));
        head::set(&region, RESERVE, u64::from(end - first as u32) / 16);
        let arena = Self::attach(region)?;
        arena.clear();
        Some(arena)
    }

    /// The first granule that is given out, in a region of so many words.
    pub(crate) const fn first_of(words: usize) -> usize {
        let bitmap = (words / WORDS_PER_GRANULE).div_ceil(64);
        (head::WORDS + bitmap).div_ceil(WORDS_PER_GRANULE)
    }

    pub(crate) fn attach(region: Region) -> Option<Self> {
        let bitmap = head::get(&region, BITMAP);
        let span = head::get(&region, SPAN);
        let start = (bitmap >> 32) as usize;
        let bits = region.all().get(start..start + bitmap as u32 as usize)?;
        Some(Self { region, bits, first: (span >> 32) as u32, end: span as u32 })
    }

    /// Forgets every block.
    pub(crate) fn clear(&self) {
        for word in self.bits {
            word.store(0, Relaxed);
        }
        // What lies before the first granule and behind the last is never free.
        self.set_run(0, self.first);
        let behind = self.bits.len() as u32 * 64;
        self.set_run(self.end, behind - self.end);
        head::set(&self.region, FREE, u64::from(self.end - self.first));
        for i in 0..HINT_COUNT {
            head::set(&self.region, HINTS + i, u64::from(self.first));
        }
    }

    /// Marks a block as given out; false if a part of it already is.
    pub(crate) fn mark(&self, at: Ref, n: u32) -> bool {
        let start = at.raw();
        let inside = start >= self.first && start.checked_add(n).is_some_and(|end| end <= self.end);
        if !inside || n == 0 || self.next_used(start, start + n) < start + n {
            return false;
        }
        self.set_run(start, n);
        self.add_free(-i64::from(n));
        true
    }

    /// Whether the block's first granule is given out.
    pub(crate) fn is_used(&self, at: Ref) -> bool {
        let at = at.raw();
        self.bits.get(at as usize / 64).is_some_and(|w| w.load(Relaxed) >> (at % 64) & 1 == 1)
    }

    pub(crate) fn free_granules(&self) -> u64 {
        head::get(&self.region, FREE)
    }

    pub(crate) fn reserve(&self) -> u64 {
        head::get(&self.region, RESERVE)
    }

    /// Gives out `n` granules, the lowest that fit.
    pub(crate) fn alloc(&self, n: u32) -> Option<Ref> {
        self.alloc_below(n, self.end)
    }

    /// The same without the reserve, nor a place in the end of the region that is as large: what
    /// is free below may lie in pieces, and the reserve is to hold large blocks as well.
    pub(crate) fn alloc_unreserved(&self, n: u32) -> Option<Ref> {
        let reserve = self.reserve();
        if self.free_granules() < u64::from(n) + reserve {
            return None;
        }
        self.alloc_below(n, self.end.checked_sub(u32::try_from(reserve).ok()?)?)
    }

    fn alloc_below(&self, n: u32, end: u32) -> Option<Ref> {
        if n == 0 || u64::from(n) > self.free_granules() {
            return None;
        }
        let i = hint_of(n);
        let hint = head::word(&self.region, HINTS + i);
        // The first run that is too short for n but not for the hint.
        let mut shorter = None;
        let mut at = hint.load(Relaxed) as u32;
        loop {
            at = self.next_free(at);
            if at + n > end {
                hint.store(u64::from(shorter.unwrap_or(at)), Relaxed);
                return None;
            }
            let used = self.next_used(at, at + n);
            if used == at + n {
                break;
            }
            if used - at >= hint_size(i) {
                shorter = shorter.or(Some(at));
            }
            at = used;
        }
        self.set_run(at, n);
        point!("alloc.marked");
        self.add_free(-i64::from(n));
        hint.store(u64::from(shorter.unwrap_or(at + n)), Relaxed);
        point!("alloc.counted");
        Some(Ref::from_raw(at))
    }

    /// Takes a block back.
    pub(crate) fn free(&self, at: Ref, n: u32) {
        let start = at.raw();
        let inside = start >= self.first && start.checked_add(n).is_some_and(|end| end <= self.end);
        if !inside || self.scan(start, start + n, |word| !word) < start + n {
            debug_assert!(false, "{at:?}+{n} is not given out");
            return;
        }
        self.clear_run(start, n);
        point!("free.cleared");
        self.add_free(i64::from(n));
        // Only searches for what the joined run can hold begin at it.
        let run = self.run_start(start);
        let longest = self.next_used(start + n, (start + n + NEAR).min(self.end)) - run;
        let near = longest < NEAR;
        for i in (0..HINT_COUNT).take_while(|&i| !near || hint_size(i) <= longest) {
            let hint = head::word(&self.region, HINTS + i);
            // How far a longer run goes is not known: searches for one begin anew.
            let lowest = if hint_size(i) <= NEAR { run } else { self.first };
            if hint.load(Relaxed) > u64::from(lowest) {
                hint.store(u64::from(lowest), Relaxed);
            }
        }
    }

    /// Where the free run that holds granule `at` begins, or a place not too far inside it.
    fn run_start(&self, at: u32) -> u32 {
        let lowest = at.saturating_sub(NEAR).max(self.first);
        let mut i = at as usize / 64;
        let mut keep = (1u64 << (at % 64)) - 1;
        loop {
            let word = self.bits.get(i).map_or(u64::MAX, |word| word.load(Relaxed)) & keep;
            if word != 0 {
                return (i as u32 * 64 + 64 - word.leading_zeros()).max(lowest);
            }
            if i as u32 * 64 <= lowest {
                return lowest;
            }
            keep = u64::MAX;
            i -= 1;
        }
    }

    /// The longest free run that ends before `end`, in granules.
    fn longest(&self, end: u32) -> u64 {
        let mut longest = 0;
        let mut at = self.first;
        while at < end {
            let start = self.next_free(at);
            let used = self.next_used(start, end);
            longest = longest.max(u64::from(used.saturating_sub(start)));
            at = used.max(start + 1);
        }
        longest
    }

    /// The longest run that may be given out, of the reserve too or not.
    pub(crate) fn longest_of(&self, reserved: bool) -> u64 {
        let reserve = if reserved { 0 } else { self.reserve() };
        self.longest(self.end.saturating_sub(u32::try_from(reserve).unwrap_or(u32::MAX)))
    }

    /// Figures, read without the lock.
    pub(crate) fn usage(&self) -> Usage {
        let granule = GRANULE as u64;
        let total = self.region.bytes() as u64;
        let free = self.free_granules() * granule;
        Usage {
            total,
            used: total.saturating_sub(free),
            free,
            reserve: self.reserve() * granule,
            largest: self.longest(self.end) * granule,
        }
    }

    fn add_free(&self, step: i64) {
        let free = self.free_granules().wrapping_add_signed(step);
        head::set(&self.region, FREE, free);
    }

    /// The first free granule from `at` on.
    fn next_free(&self, at: u32) -> u32 {
        self.scan(at, self.end, |word| !word)
    }

    /// The first granule from `at` on that is given out, or `limit`.
    fn next_used(&self, at: u32, limit: u32) -> u32 {
        self.scan(at, limit, |word| word)
    }

    /// The first granule from `at` on whose bit is set in the words as `view` sees them.
    fn scan(&self, at: u32, limit: u32, view: impl Fn(u64) -> u64) -> u32 {
        let mut i = at as usize / 64;
        let mut keep = u64::MAX << (at % 64);
        while (i as u32) * 64 < limit {
            let Some(word) = self.bits.get(i) else { return limit };
            let word = view(word.load(Relaxed)) & keep;
            if word != 0 {
                return ((i as u32) * 64 + word.trailing_zeros()).min(limit);
            }
            keep = u64::MAX;
            i += 1;
        }
        limit
    }

    fn set_run(&self, at: u32, n: u32) {
        self.each_word(at, n, |word, mask| word.store(word.load(Relaxed) | mask, Relaxed));
    }

    fn clear_run(&self, at: u32, n: u32) {
        self.each_word(at, n, |word, mask| word.store(word.load(Relaxed) & !mask, Relaxed));
    }

    fn each_word(&self, at: u32, n: u32, change: impl Fn(&AtomicU64, u64)) {
        let (mut at, end) = (at, at + n);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            if let Some(word) = self.bits.get(at as usize / 64) {
                change(word, mask);
            }
            at += bits;
        }
    }
}

/// The hint from which a run of `n` is searched: no run of `hint_size` begins below it.
fn hint_of(n: u32) -> usize {
    if n <= EXACT {
        return n as usize - 1;
    }
    // EXACT and those below its double share one; from there one hint a doubling.
    ((EXACT + n.ilog2() - EXACT.ilog2() - 1) as usize).min(HINT_COUNT - 1)
}

/// The smallest size that searches from hint `i`.
fn hint_size(i: usize) -> u32 {
    let i = i as u32;
    if i < EXACT { i + 1 } else { 1 << (EXACT.ilog2() + i - EXACT + 1).min(30) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::trial::region;

    fn arena() -> Arena {
        Arena::format(region(128 << 10)).expect("it fits")
    }

    #[test]
    fn the_lowest_run_that_fits_is_given_out() {
        let arena = arena();
        let [a, b, c] = [5, 3, 7].map(|n| arena.alloc(n).expect("there is room"));
        assert_eq!((b.raw() - a.raw(), c.raw() - b.raw()), (5, 3));
        arena.free(a, 5);
        assert_eq!(arena.alloc(6).map(|at| at.raw() > c.raw()), Some(true));
        assert_eq!(arena.alloc(2), Some(a));
        arena.free(b, 3);
        // What is left of a, and b, are one run.
        assert_eq!(arena.alloc(6).map(Ref::raw), Some(a.raw() + 2));
    }

    /// For every size, whatever was given out and freed before: what fits is found.
    #[test]
    fn hints_hide_no_run() {
        for n in (1..=70).chain([127, 128, 129, 255, 256, 400, 1000]) {
            let arena = arena();
            let all = arena.free_granules();
            let filling = std::iter::from_fn(|| arena.alloc(n)).collect::<Vec<_>>();
            assert_eq!(filling.len() as u64, all / u64::from(n));
            // A run that two freed blocks complete, the later one first.
            arena.free(filling[1], n);
            arena.free(filling[0], n);
            assert_eq!(arena.alloc(2 * n), Some(filling[0]), "{n}");
            arena.free(filling[0], 2 * n);
            assert_eq!([arena.alloc(n), arena.alloc(n)], [filling[0], filling[1]].map(Some));
            for at in filling {
                arena.free(at, n);
            }
            assert_eq!(arena.free_granules(), all);
            assert_eq!(arena.alloc(all as u32).map(Ref::raw), Some(arena.first));
            assert_eq!(arena.alloc(1), None);
        }
    }

    #[test]
    fn the_search_for_a_long_run_hides_no_shorter_one() {
        let arena = arena();
        let [a, _, b, _] = [70, 1, 120, 1].map(|n| arena.alloc(n).expect("there is room"));
        arena.free(a, 70);
        arena.free(b, 120);
        assert_eq!([arena.alloc(110), arena.alloc(70)], [b, a].map(Some));
        arena.free(a, 70);
        assert_eq!(arena.alloc(arena.free_granules() as u32 - 64), None);
        assert_eq!(arena.alloc(70), Some(a));
    }

    #[test]
    fn each_hint_is_for_its_size_and_more() {
        for n in 1..=1 << 24 {
            let i = hint_of(n);
            assert!(hint_size(i) <= n, "{n}");
            assert!(i + 1 == HINT_COUNT || n < hint_size(i + 1), "{n}");
        }
    }

    #[test]
    fn what_is_marked_is_given_out_once() {
        let arena = arena();
        let all = arena.free_granules();
        let at = Ref::from_raw(arena.first + 60);
        assert!(arena.mark(at, 10));
        assert!(arena.is_used(at) && !arena.is_used(Ref::from_raw(at.raw() + 10)));
        for (start, n) in [(0, 1), (9, 1), (9, 5), (10, 0)] {
            assert!(!arena.mark(Ref::from_raw(at.raw() + start), n));
        }
        assert!(!arena.mark(Ref::from_raw(1), 1), "the head");
        assert!(!arena.mark(Ref::from_raw(arena.end - 1), 2), "beyond the end");
        assert_eq!(arena.free_granules(), all - 10);
        let usage = arena.usage();
        assert_eq!(usage.largest, (all - 70) * GRANULE as u64);
        assert_eq!((usage.total, usage.free + usage.used), (128 << 10, 128 << 10));
    }
}
