//! An upstream's record.

use peerage_core::counters::BUCKETS_MS;
use peerage_shm::{AtomicU64, Ordering, Ref, Region, Words};

use crate::layout::{Table, get, granules, high, low, pack, root, set, words_of};
use crate::zone::Zone;

/// An upstream: found by name, keeps what outlives its tables.
#[derive(Clone, Copy)]
pub(crate) struct Up {
    w: &'static [AtomicU64; Self::WORDS],
}

impl Up {
    /// Words before the name.
    pub(crate) const WORDS: usize = 24;
    const CHAIN: usize = 0;
    const ID: usize = 1;
    const TABLE: usize = 2;
    /// Parts the id word from what else may lie in reused memory.
    const MAGIC: u32 = 0x5550_0000;
    const NEXT: usize = 3;
    /// From here on nothing but what requests move.
    const CURSOR: usize = 4;
    const LOOSE_SINCE: usize = 5;
    const YOUNG_UNTIL: usize = 6;
    /// First word of the histogram of response times.
    pub(crate) const HISTOGRAM: usize = 8;

    #[inline]
    pub(crate) fn at(region: &Region, at: Ref) -> Option<Self> {
        Some(Self { w: region.array(at)? })
    }

    /// Its record.
    #[inline]
    pub(crate) fn place(self, region: &Region) -> Ref {
        region.place(self.w)
    }

    /// Granules of the record of a name of `len` bytes.
    pub(crate) const fn granules(len: usize) -> u32 {
        granules(Self::WORDS + words_of(len))
    }

    /// Fills a new record, before it is linked.
    pub(crate) fn fill(self, region: &Region, hash: u32, uid: u32, name: &[u8]) {
        for word in self.w {
            set(word, 0);
        }
        set(&self.w[Self::CHAIN], pack(0, hash));
        set(&self.w[Self::ID], pack(uid, Self::MAGIC | name.len() as u32));
        region.write_bytes(self.place(region), Self::WORDS, name);
    }

    /// Takes over what requests have moved in another zone's record of the same upstream.
    pub(crate) fn inherit(self, old: Self) {
        for (word, old) in self.w[Self::CURSOR..].iter().zip(&old.w[Self::CURSOR..]) {
            set(word, get(old));
        }
    }

    /// The next record of the same bucket. Changes by one store, under the lock.
    #[inline]
    pub(crate) fn next(self) -> Ref {
        Ref::from_raw(high(self.w[Self::CHAIN].load(Ordering::SeqCst)))
    }

    /// Links the next record.
    pub(crate) fn set_next(self, next: Ref) {
        self.w[Self::CHAIN].store(pack(next.raw(), self.hash()), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn hash(self) -> u32 {
        low(get(&self.w[Self::CHAIN]))
    }

    /// A number that no other upstream of this zone ever has.
    #[inline]
    pub(crate) fn uid(self) -> u32 {
        high(get(&self.w[Self::ID]))
    }

    #[inline]
    pub(crate) fn name_len(self) -> usize {
        (low(get(&self.w[Self::ID])) & 0xffff) as usize
    }

    /// The word that no other record of this zone ever has at this place.
    ///
    /// A process that kept a `Ref` over the end of a read section compares it inside the next one:
    /// equal means that the record is alive, and stays so until the section ends.
    #[inline]
    pub(crate) fn stamp(self) -> u64 {
        self.w[Self::ID].load(Ordering::SeqCst)
    }

    /// Ends the record's life: nobody finds it by its name any more.
    pub(crate) fn end(self) {
        self.w[Self::ID].store(0, Ordering::SeqCst);
    }

    /// Whether that has happened; its memory is as it was until it is retired.
    #[inline]
    pub(crate) fn has_ended(self) -> bool {
        self.stamp() == 0
    }

    pub(crate) fn name(self, region: &Region) -> Vec<u8> {
        let mut name = Vec::new();
        region.read_bytes(self.place(region), Self::WORDS, self.name_len().min(255), &mut name);
        name
    }

    /// Whether it is the record of this name of `len` bytes; `at` is its place.
    #[inline]
    pub(crate) fn is_named(self, region: &Region, at: Ref, len: usize, name: Words<'_>) -> bool {
        self.name_len() == len && region.eq_words(at, Self::WORDS, name)
    }

    /// The word that names the current table and its number of entries; publication is a store
    /// to it.
    #[inline]
    pub(crate) fn table_word(self) -> &'static AtomicU64 {
        &self.w[Self::TABLE]
    }

    /// The word of a table that comes in force with its revision, 0 = none.
    #[inline]
    pub(crate) fn next_word(self) -> &'static AtomicU64 {
        &self.w[Self::NEXT]
    }

    /// The table in force; none where there is no such upstream yet, or any more.
    #[inline]
    pub(crate) fn table(self, zone: &Zone) -> Option<Table> {
        // Parts of the single order by which the grace period is known to cover these reads.
        let next = self.w[Self::NEXT].load(Ordering::SeqCst);
        if next != 0
            && let Some(table) = self.table_of_batch(zone, next)
        {
            return Some(table).filter(|table| !table.is_tomb());
        }
        Table::at(zone.region(), self.w[Self::TABLE].load(Ordering::SeqCst))
    }

    #[cold]
    fn table_of_batch(self, zone: &Zone, next: u64) -> Option<Table> {
        let table = Table::at(zone.region(), next)?;
        let revision = zone.root(root::REVISION).load(Ordering::SeqCst);
        (table.revision() <= revision).then_some(table)
    }

    /// When the cycle was left last, seconds.
    pub(crate) fn loose_since(self) -> &'static AtomicU64 {
        &self.w[Self::LOOSE_SINCE]
    }

    /// Until when some peer may ramp up, or count as new, unix ms. Only ever raised.
    #[inline]
    pub(crate) fn young_until(self) -> &'static AtomicU64 {
        &self.w[Self::YOUNG_UNTIL]
    }

    /// Whose turn it is, see `turn`. Moved by every pick.
    #[inline]
    pub(crate) fn cursor(self) -> &'static AtomicU64 {
        &self.w[Self::CURSOR]
    }

    /// Words of the histogram of response times: a count per bucket, then the sum in ms.
    #[inline]
    pub(crate) fn histogram(self) -> &'static [AtomicU64] {
        &self.w[Self::HISTOGRAM..=Self::HISTOGRAM + BUCKETS_MS.len() + 1]
    }
}
