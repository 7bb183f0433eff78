//! The table of an upstream's peers, and its entries.

use peerage_core::passive::Rules;
use peerage_core::select::EXACT_PEERS;
use peerage_core::upstream::Method;
use peerage_shm::{AtomicU64, Ref, Region};

use crate::layout::{Blob, get, granules, high, low, pack, set};
use crate::part::{self, Part};

/// The immutable list of an upstream's peers, replaced as a whole by each change.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    region: Region,
    pub(crate) at: Ref,
    w: &'static [AtomicU64; Self::WORDS],
    len: u32,
}

/// What a table says beside its entries.
#[derive(Clone, Copy, Default)]
pub(crate) struct TableHead {
    pub(crate) revision: u64,
    pub(crate) primaries: u32,
    pub(crate) cold: Blob,
    /// What requests are made with, see `texts`; none where nothing is said.
    pub(crate) texts: Blob,
    /// Servers that the operator lets take requests, at least 1: how often it is worth trying.
    pub(crate) tries: u32,
    pub(crate) servers: u32,
    /// What it has for its method.
    pub(crate) part: Part,
    /// The first time at which an admin state ends (unix ms), u64::MAX = none.
    pub(crate) until: u64,
    /// Since when no block names it though one did (unix ms), u64::MAX = it is no orphan.
    pub(crate) orphaned: u64,
    /// A block of the configuration names the upstream.
    pub(crate) declared: bool,
    /// The upstream is gone from this revision on.
    pub(crate) tomb: bool,
    /// A server is a name that is resolved at run time.
    pub(crate) names: bool,
    /// What requests and probes have to know of checks and outliers.
    pub(crate) rules: HealthRules,
}

/// What a table says of the health of its peers, without a look at the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HealthRules {
    /// They are checked.
    pub(crate) checked: bool,
    /// Where all are unhealthy no request is served.
    pub(crate) refuse: bool,
    /// Errors in a row that eject a peer, 0 = none do.
    pub(crate) errors: u16,
    /// How many of a hundred peers may be ejected.
    pub(crate) max_percent: u8,
}

impl HealthRules {
    const CHECKED: u32 = 1 << 8;
    const REFUSE: u32 = 1 << 9;
    const ERRORS: u32 = 12;
    const ERRORS_MASK: u32 = (1 << 10) - 1;
    const PERCENT: u32 = 22;
    const PERCENT_MASK: u32 = (1 << 7) - 1;

    fn bits(self) -> u32 {
        let flag = |flag: bool, bit: u32| if flag { bit } else { 0 };
        flag(self.checked, Self::CHECKED)
            | flag(self.refuse, Self::REFUSE)
            | (u32::from(self.errors) & Self::ERRORS_MASK) << Self::ERRORS
            | (u32::from(self.max_percent) & Self::PERCENT_MASK) << Self::PERCENT
    }

    fn from_bits(bits: u32) -> Self {
        Self {
            checked: bits & Self::CHECKED != 0,
            refuse: bits & Self::REFUSE != 0,
            errors: (bits >> Self::ERRORS & Self::ERRORS_MASK) as u16,
            max_percent: (bits >> Self::PERCENT & Self::PERCENT_MASK) as u8,
        }
    }
}

impl Table {
    /// Words before the entries.
    pub(crate) const WORDS: usize = 8;
    const REVISION: usize = 0;
    const COUNTS: usize = 1;
    const COLD: usize = 2;
    const TRIES: usize = 3;
    const PART: usize = 4;
    const UNTIL: usize = 5;
    /// Bit beside the number of a part that is no cycle of nginx's.
    const NO_CYCLE: u32 = 1 << 31;
    /// Where the method stands beside the flags.
    const METHOD: u32 = 4;
    const ORPHANED: usize = 6;
    const TEXTS: usize = 7;

    /// The table that a table word names.
    #[inline]
    pub(crate) fn at(region: &Region, word: u64) -> Option<Self> {
        let at = Ref::from_raw(high(word));
        Some(Self { region: *region, at, w: region.array(at)?, len: low(word) })
    }

    /// Its entries, primaries first.
    pub(crate) fn entries(self) -> &'static [[AtomicU64; Entry::WORDS]] {
        let words = self.region.words(self.at, Self::WORDS + self.len as usize * Entry::WORDS);
        words.map_or(&[], |words| words[Self::WORDS..].as_chunks().0)
    }

    /// The record of the peer of entry `i`, all that a pick by turns needs.
    #[inline]
    pub(crate) fn peer(self, i: usize) -> Option<Ref> {
        let entry = self.region.word(self.at, Self::WORDS + i * Entry::WORDS)?;
        Some(Ref::from_raw(high(get(entry))))
    }

    pub(crate) const fn granules(entries: usize) -> u32 {
        granules(Self::WORDS + entries * Entry::WORDS)
    }

    /// The table word that publishes this table.
    pub(crate) const fn word(self) -> u64 {
        pack(self.at.raw(), self.len)
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

    /// Whether a server is a name that is resolved at run time.
    pub(crate) fn has_names(self) -> bool {
        low(get(&self.w[Self::COUNTS])) & 4 != 0
    }

    /// What it says of the health of its peers.
    pub(crate) fn health(self) -> HealthRules {
        HealthRules::from_bits(low(get(&self.w[Self::COUNTS])))
    }

    #[inline]
    pub(crate) fn tries(self) -> u32 {
        high(get(&self.w[Self::TRIES]))
    }

    pub(crate) fn servers(self) -> u32 {
        low(get(&self.w[Self::TRIES]))
    }

    pub(crate) fn cold(self) -> Blob {
        let word = get(&self.w[Self::COLD]);
        Blob { at: Ref::from_raw(high(word)), len: low(word) }
    }

    pub(crate) fn texts(self) -> Blob {
        Blob::from_word(get(&self.w[Self::TEXTS]))
    }

    /// How its peers are chosen.
    #[inline]
    pub(crate) fn method(self) -> Method {
        part::method(low(get(&self.w[Self::COUNTS])) >> Self::METHOD)
    }

    /// What it has for that.
    #[inline]
    pub(crate) fn part(self) -> Part {
        let word = get(&self.w[Self::PART]);
        let (at, number) = (Ref::from_raw(high(word)), low(word) & !Self::NO_CYCLE);
        Part { method: self.method(), at, number }
    }

    /// The cycle of nginx's round robin: ref and places; no places where there is none.
    #[inline]
    pub(crate) fn cycle(self) -> (Ref, u32) {
        let word = get(&self.w[Self::PART]);
        let places = if low(word) & Self::NO_CYCLE == 0 { low(word) } else { 0 };
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
        let flags =
            u32::from(head.declared) | u32::from(head.tomb) << 1 | u32::from(head.names) << 2;
        let method = part::code(head.part.method) << Self::METHOD;
        let rules = head.rules.bits();
        set(&self.w[Self::COUNTS], pack(head.primaries, flags | method | rules));
        set(&self.w[Self::COLD], pack(head.cold.at.raw(), head.cold.len));
        set(&self.w[Self::TRIES], pack(head.tries, head.servers));
        let Part { method, at, number } = head.part;
        let is_cycle = method == Method::RoundRobin && head.primaries as usize <= EXACT_PEERS;
        let kind = if is_cycle { 0 } else { Self::NO_CYCLE };
        set(&self.w[Self::PART], pack(at.raw(), number | kind));
        set(&self.w[Self::UNTIL], head.until);
        set(&self.w[Self::ORPHANED], head.orphaned);
        set(&self.w[Self::TEXTS], head.texts.word());
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
    /// Takes requests of sessions that are bound to it.
    pub(crate) bound: bool,
    /// The server has a route, by which sessions know it.
    pub(crate) routed: bool,
    pub(crate) backup: bool,
    pub(crate) weight: u16,
    pub(crate) max_fails: u16,
    pub(crate) max_conns: u32,
    pub(crate) fail_timeout: u32,
    /// Seconds of its ramp; 14 bits.
    pub(crate) slow_start: u16,
    /// The server's place among its upstream's; peers of one server share it.
    pub(crate) order: u32,
    /// See `hosts::mark`: tells whether the peer may be on a machine.
    pub(crate) host: u32,
}

/// What a look at all peers wants of an open one: a few words less to read.
#[derive(Clone, Copy)]
pub(crate) struct Brief {
    pub(crate) peer: Ref,
    pub(crate) weight: u16,
    pub(crate) max_conns: u32,
}

impl Entry {
    pub(crate) const WORDS: usize = 4;
    const OPEN: u64 = 1 << 63;
    const BACKUP: u64 = 1 << 62;
    const SLOW_START: u32 = 48;
    const SLOW_START_BITS: u64 = (1 << 14) - 1;
    /// Beside the order.
    const BOUND: u32 = 1 << 31;
    const ROUTED: u32 = 1 << 30;

    pub(crate) fn words(self) -> [u64; Self::WORDS] {
        let bound = if self.bound { Self::BOUND } else { 0 };
        let routed = if self.routed { Self::ROUTED } else { 0 };
        [
            pack(self.peer.raw(), self.cold.raw()),
            if self.open { Self::OPEN } else { 0 }
                | if self.backup { Self::BACKUP } else { 0 }
                | (u64::from(self.slow_start) & Self::SLOW_START_BITS) << Self::SLOW_START
                | u64::from(self.weight) << 32
                | u64::from(self.max_fails) << 16
                | u64::from(self.cold_len),
            pack(self.max_conns, self.fail_timeout),
            pack(self.order | bound | routed, self.host),
        ]
    }

    #[inline]
    pub(crate) fn read(words: &[AtomicU64; Self::WORDS]) -> Self {
        let [w0, w1, w2, w3] = [get(&words[0]), get(&words[1]), get(&words[2]), get(&words[3])];
        Self {
            peer: Ref::from_raw(high(w0)),
            cold: Ref::from_raw(low(w0)),
            open: w1 & Self::OPEN != 0,
            bound: high(w3) & Self::BOUND != 0,
            routed: high(w3) & Self::ROUTED != 0,
            backup: w1 & Self::BACKUP != 0,
            weight: (w1 >> 32) as u16,
            max_fails: (w1 >> 16) as u16,
            slow_start: (w1 >> Self::SLOW_START & Self::SLOW_START_BITS) as u16,
            cold_len: w1 as u16,
            max_conns: high(w2),
            fail_timeout: low(w2),
            order: high(w3) & !(Self::BOUND | Self::ROUTED),
            host: low(w3),
        }
    }

    /// The part of it that says whether and how much its peer is chosen.
    #[inline]
    pub(crate) fn brief(words: &[AtomicU64; Self::WORDS]) -> Option<Brief> {
        let [w0, w1, w2] = [get(&words[0]), get(&words[1]), get(&words[2])];
        let peer = Ref::from_raw(high(w0));
        let brief = Brief { peer, weight: (w1 >> 32) as u16, max_conns: high(w2) };
        (w1 & Self::OPEN != 0).then_some(brief)
    }

    pub(crate) fn cold(self) -> Blob {
        Blob { at: self.cold, len: u32::from(self.cold_len) }
    }

    /// The time of its ramp, ms; 0 = none.
    #[inline]
    pub(crate) fn ramp_ms(self) -> u64 {
        u64::from(self.slow_start) * 1000
    }

    /// What failures mean for it.
    #[inline]
    pub(crate) fn rules(self) -> Rules {
        Rules { max_fails: u32::from(self.max_fails), fail_timeout: self.fail_timeout }
    }
}
