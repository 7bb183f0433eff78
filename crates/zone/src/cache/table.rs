//! Tables of sets: a row with the hash of each place of the set, and the places.
//!
//! A key may lie in any place of the two sets that its hash names; where both are full, the place
//! goes that was used longest ago. The row says where to look and no more: what counts is the key
//! in the place. A place begins with the [`Version`] that guards the rest of it and its hash.

use peerage_shm::{AtomicU64, Claim, Ordering, Version, point};

use super::Who;

/// Places of a set at most, and words of its row of hashes: two lines of the machine.
pub(super) const WAYS: usize = 16;

/// A table.
#[derive(Clone, Copy)]
pub(super) struct Table {
    words: &'static [AtomicU64],
    sets: usize,
    ways: usize,
    /// Words of a place.
    slot: usize,
    /// Words of a set.
    set: usize,
    tally: Tally,
}

/// Where is counted what a table holds. A place with a hash is counted; who dies over the step
/// from one state to the other may leave one too many.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    pub(super) entries: &'static AtomicU64,
    pub(super) evicted: &'static AtomicU64,
}

/// A set of a table.
#[derive(Clone, Copy)]
pub(super) struct Set {
    hashes: &'static [AtomicU64; WAYS],
    slots: &'static [AtomicU64],
    slot: usize,
}

/// The two sets where a key may lie. Their ways count on: those of the second follow the first's.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    sets: [Set; 2],
    /// Those of one set where it is both.
    ways: usize,
    tally: Tally,
}

/// A place to be written.
pub(super) struct Taken {
    pub(super) claim: Claim<'static>,
    pub(super) words: &'static [AtomicU64],
    pub(super) way: usize,
}

impl Table {
    pub(super) fn new(
        words: &'static [AtomicU64],
        sets: usize,
        ways: usize,
        slot: usize,
        tally: Tally,
    ) -> Self {
        let set = WAYS + ways * slot;
        debug_assert!(words.len() == sets * set && ways <= WAYS);
        Self { words, sets, ways, slot, set, tally }
    }

    /// Words of a place.
    pub(super) const fn slot(&self) -> usize {
        self.slot
    }

    pub(super) const fn sets(&self) -> usize {
        self.sets
    }

    /// Places.
    pub(super) const fn capacity(&self) -> usize {
        self.sets * self.ways
    }

    pub(super) const fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// The sets of a hash.
    pub(super) fn pair(&self, hash: u64) -> Option<Pair> {
        let [first, second] = sides(hash).map(|side| nth(side, self.sets));
        let sets = [self.set(first)?, self.set(second)?];
        let ways = if first == second { WAYS } else { 2 * WAYS };
        Some(Pair { sets, ways, tally: self.tally })
    }

    pub(super) fn set(&self, i: usize) -> Option<Set> {
        let words = self.words.get(i * self.set..)?.get(..self.set)?;
        let (hashes, slots) = words.split_first_chunk::<WAYS>()?;
        Some(Set { hashes, slots, slot: self.slot })
    }
}

/// What names a hash's first set and its second one: its upper bits, and its lower ones.
#[inline(always)]
pub(super) const fn sides(hash: u64) -> [u64; 2] {
    [hash, hash.rotate_left(32)]
}

/// Which one of so many sets that is.
#[inline(always)]
pub(super) const fn nth(side: u64, sets: usize) -> usize {
    ((side as u128 * sets as u128) >> 64) as usize
}

impl Set {
    pub(super) fn slot(&self, way: usize) -> Option<&'static [AtomicU64]> {
        self.slots.get(way * self.slot..)?.get(..self.slot)
    }

    /// The hash of a place; 0 = it is empty.
    pub(super) fn hash(&self, way: usize) -> u64 {
        self.hashes[way].load(Ordering::Relaxed)
    }

    fn filled(&self) -> usize {
        (0..WAYS).filter(|&way| self.hash(way) != 0).count()
    }
}

impl Pair {
    fn slot(&self, way: usize) -> Option<&'static [AtomicU64]> {
        self.sets[way / WAYS].slot(way % WAYS)
    }

    fn hash(&self, way: usize) -> u64 {
        self.sets[way / WAYS].hash(way % WAYS)
    }

    fn name(&self, way: usize, hash: u64) {
        self.sets[way / WAYS].hashes[way % WAYS].store(hash, Ordering::Relaxed);
    }

    /// The places that may have a key of this hash.
    pub(super) fn having(
        self,
        hash: u64,
    ) -> impl Iterator<Item = (usize, &'static [AtomicU64])> + use<> {
        let ways = (0..self.ways).filter(move |&way| self.hash(way) == hash);
        ways.filter_map(move |way| Some((way, self.slot(way)?)))
    }

    /// Which set a new key goes into: the emptier one. As long as half of the first is empty it
    /// is that, for what lies there is found sooner.
    fn emptier(&self) -> usize {
        let [first, second] = self.sets.map(|set| set.filled());
        usize::from(first >= WAYS / 2 && second < first)
    }

    /// Claims a place for a key of this hash: its own, else an empty one, else what a dead writer
    /// left, else the one that was used longest ago, and before `below`. What another writes, or
    /// writes first, is passed over.
    pub(super) fn take(
        &self,
        hash: u64,
        same: impl Fn(&[AtomicU64]) -> bool,
        used: impl Fn(&[AtomicU64]) -> u64,
        below: u64,
        who: &Who<'_>,
    ) -> Option<Taken> {
        const EMPTY: u64 = 1;
        const EMPTY_TOO: u64 = 2;
        const WRITTEN: u64 = 3;
        const IN_USE: u64 = 4;
        let mut order = [(u64::MAX, 0, Version::default()); 2 * WAYS];
        let mut n = 0;
        let emptier = self.emptier();
        for (way, words) in (0..self.ways).filter_map(|way| Some((way, self.slot(way)?))) {
            let version = Version::of(&words[0]);
            let rank = match self.hash(way) {
                _ if !version.is_whole() => WRITTEN,
                0 if way / WAYS == emptier => EMPTY,
                0 => EMPTY_TOO,
                there if there == hash && same(words) => 0,
                _ if used(words) < below => used(words).saturating_add(IN_USE),
                _ => continue,
            };
            order[n] = (rank, way, version);
            n += 1;
        }
        let order = &mut order[..n];
        order.sort_unstable_by_key(|&(rank, way, _)| (rank, way));
        let (rank, taken) = order.iter().find_map(|&(rank, way, version)| {
            let words = self.slot(way)?;
            let claim = version.claim(&words[0], who.pid, who.alive)?;
            Some((rank, Taken { claim, words, way }))
        })?;
        point!("cache.claimed");
        if rank >= IN_USE {
            self.tally.evicted.fetch_add(1, Ordering::Relaxed);
        }
        if self.hash(taken.way) == 0 {
            self.tally.entries.fetch_add(1, Ordering::Relaxed);
        }
        self.name(taken.way, hash);
        Some(taken)
    }

    /// Empties a place of this hash that has still what `same` knows, or ruins; tells whether it
    /// was the former.
    pub(super) fn empty(
        &self,
        way: usize,
        hash: u64,
        same: impl FnOnce(&[AtomicU64]) -> bool,
        who: &Who<'_>,
    ) -> bool {
        let Some(words) = self.slot(way) else { return false };
        let version = Version::of(&words[0]);
        let Some(claim) = version.claim(&words[0], who.pid, who.alive) else { return false };
        let was_whole = claim.was_whole();
        let there = self.hash(way);
        let found = was_whole && there == hash && same(words);
        if (found || !was_whole) && there != 0 {
            self.name(way, 0);
            self.tally.entries.fetch_sub(1, Ordering::Relaxed);
        }
        // What has another key by now stays, marked. Where it was taken over, it is another's.
        let _ = claim.publish();
        found
    }
}
