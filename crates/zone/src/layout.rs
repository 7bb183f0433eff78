//! Where everything lies: the words of the records that make up a zone.
//!
//! All records are blocks of 64-bit atomic words; a `Ref` names a block by its granule. Words that
//! are written once, before the block is published, are read relaxed; the store that publishes a
//! block is the only ordering they need. Words that change while the block is visible say so.

use peerage_core::passive::Rules;
use peerage_core::select::EXACT_PEERS;
use peerage_shm::{AtomicU64, Ordering, Ref, Region};

use crate::address::Place;
use crate::zone::Zone;

/// Words of the zone's root, which the whole zone is reached from.
pub(crate) mod root {
    /// Numbers the words in order, so that no two are the same.
    macro_rules! words {
        ($($(#[$doc:meta])* $name:ident)*) => {
            #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of constants")]
            enum Place {
                $($name,)*
            }
            $($(#[$doc])* pub(crate) const $name: usize = Place::$name as usize;)*
        };
    }

    words! {
        /// Revision of the last change that is in force. Written under the lock, after publication.
        REVISION
        /// Number of the last event.
        SEQ
        /// Id that the next server gets. Raised by anybody, never lowered.
        NEXT_ID
        /// Number that the next upstream or peer gets; parts what memory reuse would mix up.
        NEXT_UID
        /// The bucket array: ref, and number of buckets less one.
        BUCKETS
        /// Upstreams in the directory. Under the lock.
        UPSTREAMS
        /// Servers in all upstreams. Under the lock.
        SERVERS
        /// Changes refused for lack of room.
        NO_ROOM
        /// 1 once the state was loaded and the configuration merged.
        LOADED
        /// No admin state ends before this time (unix ms). Lowered by writers, raised by the sweep.
        NEXT_TTL
        /// Granules of the largest table there has been.
        LARGEST
        /// Revision that is on disk.
        DURABLE
        /// Who writes the state file: pid, 0 = nobody.
        FILE_OWNER
        /// Until when the owner's word holds (monotonic ms).
        FILE_LEASE
        /// errno of the last failed write, 0 = none.
        FILE_ERROR
        /// Failed writes of the state file.
        FILE_ERRORS
        /// When the last failed write happened (unix ms).
        FILE_ERROR_AT
        /// No upstream is an orphan since before this time (unix ms). Lowered by writers, raised by
        /// the round.
        ORPHANS
        /// 1 once another zone has taken the contents over. Set under the lock, for good.
        MOVED
        /// 1 while the cycle of some upstream may have been left.
        LOOSE
        /// Revision that somebody waits for to be on disk. Raised by anybody.
        FLUSH_WANTED
        /// The ring of events: ref and words.
        EVENTS
        /// Where the next event goes. Under the lock; its store publishes.
        EVENTS_HEAD
        /// Where the oldest event lies. Under the lock.
        EVENTS_TAIL
        /// Admin states of hosts: ref and bytes of a blob.
        HOSTS
        /// The same, of a change that is not yet in force: the blob begins with its revision.
        HOSTS_NEXT
    }
}

/// Two halves of a word, high first.
pub(crate) const fn pack(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// The high half.
pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The low half.
pub(crate) const fn low(word: u64) -> u32 {
    word as u32
}

/// Granules of a block of so many words.
pub(crate) const fn granules(words: usize) -> u32 {
    words.div_ceil(4) as u32
}

/// Words that hold so many bytes.
pub(crate) const fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// A number kept in a word, read without ordering.
#[inline]
pub(crate) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// A word set before its block is published, or where no order matters.
#[inline]
pub(crate) fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// An upstream: found by name, keeps what outlives its tables.
#[derive(Clone, Copy)]
pub(crate) struct Up {
    pub(crate) at: Ref,
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
    const CURSOR: usize = 4;
    const LOOSE_SINCE: usize = 5;
    /// First word of the histogram of response times.
    pub(crate) const HISTOGRAM: usize = 8;

    #[inline]
    pub(crate) fn at(region: &Region, at: Ref) -> Option<Self> {
        Some(Self { at, w: region.array(at)? })
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
        region.write_bytes(self.at, Self::WORDS, name);
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

    /// Ends the record's life, before it is retired.
    pub(crate) fn end(self) {
        self.w[Self::ID].store(0, Ordering::SeqCst);
    }

    pub(crate) fn name(self, region: &Region) -> Vec<u8> {
        let mut name = Vec::new();
        region.read_bytes(self.at, Self::WORDS, self.name_len().min(255), &mut name);
        name
    }

    #[inline]
    pub(crate) fn is_named(self, region: &Region, name: &[u8]) -> bool {
        self.name_len() == name.len() && region.eq_bytes(self.at, Self::WORDS, name)
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

/// Upper bounds of the histogram's buckets, ms; one more bucket takes the rest.
pub const BUCKETS_MS: [u32; 12] = [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

/// The immutable list of an upstream's peers, replaced as a whole by each change.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) at: Ref,
    w: &'static [AtomicU64; Self::WORDS],
    pub(crate) entries: &'static [[AtomicU64; Entry::WORDS]],
}

/// What a table says beside its entries.
#[derive(Clone, Copy, Default)]
pub(crate) struct TableHead {
    pub(crate) revision: u64,
    pub(crate) primaries: u32,
    pub(crate) cold: Blob,
    /// Servers that the operator lets take requests.
    pub(crate) usable: u32,
    pub(crate) servers: u32,
    /// The precomputed order of the primaries: ref and places.
    pub(crate) sequence: (Ref, u32),
    /// The first time at which an admin state ends (unix ms), u64::MAX = none.
    pub(crate) until: u64,
    /// Since when no block names it though one did (unix ms), u64::MAX = it is no orphan.
    pub(crate) orphaned: u64,
    /// A block of the configuration names the upstream.
    pub(crate) declared: bool,
    /// The upstream is gone from this revision on.
    pub(crate) tomb: bool,
}

/// Bytes in a block of their own.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) at: Ref,
    pub(crate) len: u32,
}

impl Blob {
    pub(crate) const fn granules(self) -> u32 {
        granules(words_of(self.len as usize))
    }

    /// The word that names it.
    pub(crate) const fn word(self) -> u64 {
        pack(self.at.raw(), self.len)
    }

    /// What a word names.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self { at: Ref::from_raw(high(word)), len: low(word) }
    }

    pub(crate) fn read(self, region: &Region) -> Vec<u8> {
        let mut bytes = Vec::new();
        region.read_bytes(self.at, 0, self.len as usize, &mut bytes);
        bytes
    }
}

impl Table {
    /// Words before the entries.
    pub(crate) const WORDS: usize = 8;
    const REVISION: usize = 0;
    const COUNTS: usize = 1;
    const COLD: usize = 2;
    const USABLE: usize = 3;
    const SEQUENCE: usize = 4;
    const UNTIL: usize = 5;
    /// Bit of the places of an order that is no cycle of nginx's.
    const WIDE: u32 = 1 << 31;
    const ORPHANED: usize = 6;

    /// The table that a table word names.
    #[inline]
    pub(crate) fn at(region: &Region, word: u64) -> Option<Self> {
        let at = Ref::from_raw(high(word));
        let words = region.words(at, Self::WORDS + low(word) as usize * Entry::WORDS)?;
        let (head, entries) = words.split_first_chunk()?;
        Some(Self { at, w: head, entries: entries.as_chunks().0 })
    }

    pub(crate) const fn granules(entries: usize) -> u32 {
        granules(Self::WORDS + entries * Entry::WORDS)
    }

    /// The table word that publishes this table.
    pub(crate) const fn word(self) -> u64 {
        pack(self.at.raw(), self.entries.len() as u32)
    }

    #[inline]
    pub(crate) fn revision(self) -> u64 {
        get(&self.w[Self::REVISION])
    }

    /// Entries of primaries; those of backups follow.
    #[inline]
    pub(crate) fn primaries(self) -> usize {
        high(get(&self.w[Self::COUNTS])) as usize
    }

    /// Whether a block of the configuration names the upstream.
    pub(crate) fn is_declared(self) -> bool {
        low(get(&self.w[Self::COUNTS])) & 1 != 0
    }

    /// Whether it says that the upstream is gone.
    #[inline]
    pub(crate) fn is_tomb(&self) -> bool {
        low(get(&self.w[Self::COUNTS])) & 2 != 0
    }

    #[inline]
    pub(crate) fn usable(self) -> u32 {
        high(get(&self.w[Self::USABLE]))
    }

    pub(crate) fn servers(self) -> u32 {
        low(get(&self.w[Self::USABLE]))
    }

    pub(crate) fn cold(self) -> Blob {
        let word = get(&self.w[Self::COLD]);
        Blob { at: Ref::from_raw(high(word)), len: low(word) }
    }

    /// The precomputed order of the primaries, see `turn`.
    #[inline]
    pub(crate) fn sequence(self) -> (Ref, u32) {
        let word = get(&self.w[Self::SEQUENCE]);
        (Ref::from_raw(high(word)), low(word) & !Self::WIDE)
    }

    /// The same where it is nginx's own cycle; no places where it is not.
    #[inline]
    pub(crate) fn cycle(self) -> (Ref, u32) {
        let word = get(&self.w[Self::SEQUENCE]);
        let places = if low(word) & Self::WIDE == 0 { low(word) } else { 0 };
        (Ref::from_raw(high(word)), places)
    }

    pub(crate) fn until(self) -> u64 {
        get(&self.w[Self::UNTIL])
    }

    pub(crate) fn orphaned(self) -> u64 {
        get(&self.w[Self::ORPHANED])
    }

    pub(crate) fn fill_head(self, head: &TableHead) {
        set(&self.w[Self::REVISION], head.revision);
        set(
            &self.w[Self::COUNTS],
            pack(head.primaries, u32::from(head.declared) | u32::from(head.tomb) << 1),
        );
        set(&self.w[Self::COLD], pack(head.cold.at.raw(), head.cold.len));
        set(&self.w[Self::USABLE], pack(head.usable, head.servers));
        let wide = if head.primaries as usize > EXACT_PEERS { Self::WIDE } else { 0 };
        set(&self.w[Self::SEQUENCE], pack(head.sequence.0.raw(), head.sequence.1 | wide));
        set(&self.w[Self::UNTIL], head.until);
        set(&self.w[Self::ORPHANED], head.orphaned);
    }
}

/// One peer in a table.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The peer's record; none for a server without an address.
    pub(crate) peer: Ref,
    pub(crate) cold: Ref,
    pub(crate) cold_len: u16,
    /// Takes new requests, as far as the operator's wish and the weight go.
    pub(crate) open: bool,
    pub(crate) backup: bool,
    pub(crate) weight: u16,
    pub(crate) max_fails: u16,
    pub(crate) max_conns: u32,
    pub(crate) fail_timeout: u32,
    /// The server's place among its upstream's; peers of one server share it.
    pub(crate) order: u32,
    /// See `hosts::mark`: tells whether the peer may be on a machine.
    pub(crate) host: u32,
}

impl Entry {
    pub(crate) const WORDS: usize = 4;
    const OPEN: u64 = 1 << 63;
    const BACKUP: u64 = 1 << 62;

    pub(crate) fn words(self) -> [u64; Self::WORDS] {
        [
            pack(self.peer.raw(), self.cold.raw()),
            if self.open { Self::OPEN } else { 0 }
                | if self.backup { Self::BACKUP } else { 0 }
                | u64::from(self.weight) << 32
                | u64::from(self.max_fails) << 16
                | u64::from(self.cold_len),
            pack(self.max_conns, self.fail_timeout),
            pack(self.order, self.host),
        ]
    }

    #[inline]
    pub(crate) fn read(words: &[AtomicU64; Self::WORDS]) -> Self {
        let [w0, w1, w2, w3] = [get(&words[0]), get(&words[1]), get(&words[2]), get(&words[3])];
        Self {
            peer: Ref::from_raw(high(w0)),
            cold: Ref::from_raw(low(w0)),
            open: w1 & Self::OPEN != 0,
            backup: w1 & Self::BACKUP != 0,
            weight: (w1 >> 32) as u16,
            max_fails: (w1 >> 16) as u16,
            cold_len: w1 as u16,
            max_conns: high(w2),
            fail_timeout: low(w2),
            order: high(w3),
            host: low(w3),
        }
    }

    /// The peer's record, all that a pick by turns needs.
    #[inline]
    pub(crate) fn peer_of(words: &[AtomicU64; Self::WORDS]) -> Ref {
        Ref::from_raw(high(get(&words[0])))
    }

    pub(crate) fn cold(self) -> Blob {
        Blob { at: self.cold, len: u32::from(self.cold_len) }
    }

    /// What failures mean for it.
    #[inline]
    pub(crate) fn rules(self) -> Rules {
        Rules { max_fails: u32::from(self.max_fails), fail_timeout: self.fail_timeout }
    }
}

/// A peer: what lives on while tables change.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) at: Ref,
    w: &'static [AtomicU64; Self::WORDS],
}

impl Peer {
    /// Words of the record; all but the address block, which has its own.
    pub(crate) const WORDS: usize = 40;
    /// Granules of the record.
    pub(crate) const GRANULES: u32 = granules(Self::WORDS);
    /// Requests in flight: the exact word, see peerage-shm.
    const IN_FLIGHT: usize = 0;
    const CURRENT: usize = 1;
    const EFFECTIVE: usize = 2;
    const PASSIVE: usize = 3;
    const ADDRESS: usize = 4;
    const ID: usize = 5;
    const UID: usize = 6;
    // Word 7: verdicts of health checks.
    const REQUESTS: usize = 8;
    const CLASSES: usize = 9;
    const SENT: usize = 14;
    const RECEIVED: usize = 15;
    const FAILS: usize = 16;
    const UNAVAIL: usize = 17;
    const SELECTED: usize = 18;
    const HEADER_SUM: usize = 19;
    const HEADER_COUNT: usize = 20;
    const RESPONSE_SUM: usize = 21;
    const DOWNTIME: usize = 22;
    const DOWNSTART: usize = 23;
    // Words 24 to 27: results of health checks.
    const CODES: usize = 28;
    /// Distinct status codes counted one by one; classes count all.
    pub(crate) const CODE_CELLS: usize = 8;
    // Words 36 to 39: slow start, ejection.

    #[inline]
    pub(crate) fn at(region: &Region, at: Ref) -> Option<Self> {
        Some(Self { at, w: region.array(at)? })
    }

    /// Fills a new record, before it is published.
    pub(crate) fn fill(self, uid: u32, id: u64, address: Place, weight: u16) {
        // The in-flight word keeps the tag of its last step: only its count was, and stays, zero.
        for word in &self.w[1..] {
            set(word, 0);
        }
        set(&self.w[Self::IN_FLIGHT], 0);
        set(&self.w[Self::EFFECTIVE], u64::from(weight));
        set(&self.w[Self::ADDRESS], address.word());
        set(&self.w[Self::ID], id);
        set(&self.w[Self::UID], u64::from(uid));
    }

    #[inline]
    pub(crate) fn in_flight(self) -> &'static AtomicU64 {
        &self.w[Self::IN_FLIGHT]
    }
    #[inline]
    pub(crate) fn current(self) -> &'static AtomicU64 {
        &self.w[Self::CURRENT]
    }
    #[inline]
    pub(crate) fn effective(self) -> &'static AtomicU64 {
        &self.w[Self::EFFECTIVE]
    }
    #[inline]
    pub(crate) fn passive(self) -> &'static AtomicU64 {
        &self.w[Self::PASSIVE]
    }
    #[inline]
    pub(crate) fn address(self) -> Place {
        Place::from_word(get(&self.w[Self::ADDRESS]))
    }
    #[inline]
    pub(crate) fn server_id(self) -> u64 {
        get(&self.w[Self::ID])
    }
    #[inline]
    pub(crate) fn uid(self) -> u32 {
        low(get(&self.w[Self::UID]))
    }
    #[inline]
    pub(crate) fn requests(self) -> &'static AtomicU64 {
        &self.w[Self::REQUESTS]
    }
    /// Responses by class, 1xx first.
    #[inline]
    pub(crate) fn classes(self) -> &'static [AtomicU64] {
        &self.w[Self::CLASSES..Self::CLASSES + 5]
    }
    #[inline]
    pub(crate) fn sent(self) -> &'static AtomicU64 {
        &self.w[Self::SENT]
    }
    #[inline]
    pub(crate) fn received(self) -> &'static AtomicU64 {
        &self.w[Self::RECEIVED]
    }
    #[inline]
    pub(crate) fn fails(self) -> &'static AtomicU64 {
        &self.w[Self::FAILS]
    }
    #[inline]
    pub(crate) fn unavail(self) -> &'static AtomicU64 {
        &self.w[Self::UNAVAIL]
    }
    /// When the peer was last chosen, unix ms.
    #[inline]
    pub(crate) fn selected(self) -> &'static AtomicU64 {
        &self.w[Self::SELECTED]
    }
    #[inline]
    pub(crate) fn header_sum(self) -> &'static AtomicU64 {
        &self.w[Self::HEADER_SUM]
    }
    #[inline]
    pub(crate) fn header_count(self) -> &'static AtomicU64 {
        &self.w[Self::HEADER_COUNT]
    }
    #[inline]
    pub(crate) fn response_sum(self) -> &'static AtomicU64 {
        &self.w[Self::RESPONSE_SUM]
    }
    #[inline]
    pub(crate) fn downtime(self) -> &'static AtomicU64 {
        &self.w[Self::DOWNTIME]
    }
    /// Since when the peer is unavailable, unix ms; 0 = it is available.
    #[inline]
    pub(crate) fn downstart(self) -> &'static AtomicU64 {
        &self.w[Self::DOWNSTART]
    }
    /// Counts by status code: the code in the top 16 bits, the count below.
    #[inline]
    pub(crate) fn codes(self) -> &'static [AtomicU64] {
        &self.w[Self::CODES..Self::CODES + Self::CODE_CELLS]
    }
}
