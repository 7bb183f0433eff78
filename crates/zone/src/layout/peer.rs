//! A peer's record.

use peerage_shm::{AtomicU64, Ordering, Ref, Region};

use crate::address::Place;
use crate::layout::{get, granules, high, low, pack, set};

/// Whether a peer was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shut {
    /// It was not.
    #[default]
    Open,
    /// Connections to it are kept until its last request ends.
    Drain,
    /// They are kept no longer.
    Down,
    /// The same, and no table names it any more.
    Gone,
}

impl Shut {
    const fn from_bits(bits: u32) -> Self {
        match bits & !CRITICAL {
            0 => Self::Open,
            1 => Self::Drain,
            2 => Self::Down,
            _ => Self::Gone,
        }
    }
}

/// Among the bits above a peer's number: its source says that its checks fail.
const CRITICAL: u32 = 4;

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
    /// Its number, and above it whether it is shut, see [`Shut`], and [`CRITICAL`].
    const UID: usize = 6;
    /// From here on nothing but what was counted or shown.
    const SHOWN: usize = Self::VERDICT;
    const VERDICT: usize = 7;
    const UNANSWERED: usize = 8;
    const CLASSES: usize = 9;
    const SENT: usize = 14;
    const RECEIVED: usize = 15;
    const FAILS: usize = 16;
    const UNAVAIL: usize = 17;
    const SELECTED: usize = 18;
    const HEADER_SUM: usize = 19;
    const HEADERLESS: usize = 20;
    const RESPONSE_SUM: usize = 21;
    const DOWNTIME: usize = 22;
    const DOWNSTART: usize = 23;
    const CHECKS: usize = 24;
    const CHECKED: usize = 25;
    const PROBED: usize = 26;
    const EXTERNAL: usize = 27;
    const CODES: usize = 28;
    /// Distinct status codes counted one by one; of others only the class is.
    pub(crate) const CODE_CELLS: usize = 8;
    const START: usize = 36;
    const HEADER_AVERAGE: usize = 37;
    const RESPONSE_AVERAGE: usize = 38;
    const EJECTION: usize = 39;

    #[inline]
    pub(crate) fn at(region: &Region, at: Ref) -> Option<Self> {
        Some(Self { at, w: region.array(at)? })
    }

    /// The record at `at` whose words these are.
    #[inline]
    pub(crate) const fn of(at: Ref, w: &'static [AtomicU64; Self::WORDS]) -> Self {
        Self { at, w }
    }

    /// Its words.
    #[inline]
    pub(crate) const fn words(self) -> &'static [AtomicU64; Self::WORDS] {
        self.w
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

    /// Takes over what another zone's record of the same peer has counted and shown. Requests in
    /// flight are counted where they began.
    pub(crate) fn inherit(self, old: Self) {
        for i in (Self::CURRENT..=Self::PASSIVE).chain(Self::SHOWN..Self::WORDS) {
            set(&self.w[i], get(&old.w[i]));
        }
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
    /// Says which server it is of; the same, but where a state file has another id for it.
    pub(crate) fn set_server_id(self, id: u64) {
        set(&self.w[Self::ID], id);
    }
    #[inline]
    pub(crate) fn uid(self) -> u32 {
        low(get(&self.w[Self::UID]))
    }
    /// Whether it was taken out, as far as has been told; of the peer of that number.
    pub(crate) fn shut(self, uid: u32) -> Shut {
        let word = get(&self.w[Self::UID]);
        if low(word) == uid { Shut::from_bits(high(word)) } else { Shut::Gone }
    }
    /// Says that it is taken out, or not. Under the lock, or before it is published.
    pub(crate) fn set_shut(self, shut: Shut) {
        let critical = high(get(&self.w[Self::UID])) & CRITICAL;
        set(&self.w[Self::UID], pack(shut as u32 | critical, self.uid()));
    }
    /// Says that no table names the peer of that number any more, by anybody who knows.
    pub(crate) fn set_gone(self, uid: u32) {
        let word = get(&self.w[Self::UID]);
        if low(word) == uid {
            // Where that fails, the record is another's by now.
            let gone = pack(Shut::Gone as u32, uid);
            let _ = self.w[Self::UID].compare_exchange(
                word,
                gone,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
    /// Tries that ended without a status of a class.
    #[inline]
    pub(crate) fn unanswered(self) -> &'static AtomicU64 {
        &self.w[Self::UNANSWERED]
    }
    /// Responses by class, 1xx first, whose codes have found no cell.
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
    /// Tries that ended without a time to the header.
    #[inline]
    pub(crate) fn headerless(self) -> &'static AtomicU64 {
        &self.w[Self::HEADERLESS]
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
    /// When the last probe of it began, monotonic ms; 0 = there was none.
    #[inline]
    pub(crate) fn probed(self) -> &'static AtomicU64 {
        &self.w[Self::PROBED]
    }
    /// What its checks say, see [`peerage_core::check::verdict`]. Moved by who probes it; a change
    /// of the check begins it anew.
    #[inline]
    pub(crate) fn verdict(self) -> &'static AtomicU64 {
        &self.w[Self::VERDICT]
    }
    /// Probes and failed ones, see [`peerage_core::check::results::Counts`].
    #[inline]
    pub(crate) fn checks(self) -> &'static AtomicU64 {
        &self.w[Self::CHECKS]
    }
    /// When the last result came, see [`peerage_core::check::results::Last`].
    #[inline]
    pub(crate) fn checked(self) -> &'static AtomicU64 {
        &self.w[Self::CHECKED]
    }
    /// What an outside checker says, see [`peerage_core::check::external`].
    #[inline]
    pub(crate) fn external(self) -> &'static AtomicU64 {
        &self.w[Self::EXTERNAL]
    }
    /// Whether its source says that its checks fail, as the table's record says it too.
    #[inline]
    pub(crate) fn is_critical(self) -> bool {
        high(get(&self.w[Self::UID])) & CRITICAL != 0
    }
    /// Says that, or not; what it was. Under the lock, or before it is published.
    pub(crate) fn set_critical(self, critical: bool) -> bool {
        let was = self.is_critical();
        let flag = if critical { CRITICAL } else { 0 };
        let shut = high(get(&self.w[Self::UID])) & !CRITICAL;
        set(&self.w[Self::UID], pack(shut | flag, self.uid()));
        was
    }
    /// Errors of requests, see [`peerage_core::check::ejection`]. Moved by requests.
    #[inline]
    pub(crate) fn ejection(self) -> &'static AtomicU64 {
        &self.w[Self::EJECTION]
    }
    /// Counts by status code: the code in the top 16 bits, the count below.
    #[inline]
    pub(crate) fn codes(self) -> &'static [AtomicU64] {
        &self.w[Self::CODES..Self::CODES + Self::CODE_CELLS]
    }
    /// Since when the peer is there, or there again, unix ms; 0 = since the set is.
    #[inline]
    pub(crate) fn start(self) -> &'static AtomicU64 {
        &self.w[Self::START]
    }
    /// The moving average of times to the header, see `least_time`. Moved by requests that were
    /// chosen by it.
    #[inline]
    pub(crate) fn header_average(self) -> &'static AtomicU64 {
        &self.w[Self::HEADER_AVERAGE]
    }
    /// The same of whole responses.
    #[inline]
    pub(crate) fn response_average(self) -> &'static AtomicU64 {
        &self.w[Self::RESPONSE_AVERAGE]
    }
}
