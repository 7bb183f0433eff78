//! Whose turn it is: the cycle of nginx's round robin, computed with each table.
//!
//! While no peer fails, the order repeats, and a pick is one step of the upstream's cursor. When a
//! peer fails, or a request is tried again, the cycle is left (`LOOSE`): the running weights are
//! set to what nginx's algorithm would have at that step, and every pick looks at all peers, as
//! nginx does. Once all peers have been without failures for a while a new cycle begins.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use peerage_core::select::{EXACT_PEERS, cycle};
use peerage_core::upstream::Method;
use peerage_shm::{AtomicU64, Ref, Region};

use crate::choice::Clock;
use crate::layout::{Entry, Peer, Table, Up, get, high, low, pack, root, set};
use crate::pick::passive;
use crate::stored::Stored;
use crate::worker::Worker;
use crate::young;
use crate::zone::Zone;

/// The cursor's bit that says that the cycle was left.
pub(crate) const LOOSE: u64 = 1 << 63;

/// Seconds without a failure after which a new cycle begins.
const CALM: u32 = 10;

/// An order of peers as it lies in memory.
#[derive(Default)]
pub(crate) struct Order {
    pub(crate) words: Vec<u64>,
    pub(crate) places: u32,
}

impl Order {
    /// Of at most 64 peers: eight places a word.
    pub(crate) fn narrow(order: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        };
        Self { words: order.chunks(8).map(word).collect(), places: order.len() as u32 }
    }

    /// Of more: two places a word.
    pub(crate) fn wide(order: &[u32]) -> Self {
        let word = |pair: &[u32]| pack(pair[0], pair.get(1).copied().unwrap_or(0));
        Self { words: order.chunks(2).map(word).collect(), places: order.len() as u32 }
    }
}

/// Words of the order of a table with so many primaries.
pub(crate) const fn order_words(primaries: usize, places: u32) -> usize {
    (places as usize).div_ceil(if primaries <= EXACT_PEERS { 8 } else { 2 })
}

/// The peer at a place of a wide order.
#[inline]
pub(crate) fn wide(order: &[AtomicU64], place: usize) -> usize {
    let word = order.get(place / 2).map_or(0, get);
    (if place.is_multiple_of(2) { high(word) } else { low(word) }) as usize
}

/// The peer at a place of a narrow order, of which this is the word with the place.
#[inline]
fn narrow(word: u64, place: usize) -> usize {
    usize::from((word >> (place % 8 * 8)) as u8)
}

/// The peer whose turn it is, while the cycle holds.
#[inline]
pub(crate) fn next(up: Up, table: Table, region: &Region) -> Option<Peer> {
    let (at, places) = table.cycle();
    if places == 0 || get(up.cursor()) & LOOSE != 0 {
        return None;
    }
    let turn = up.cursor().fetch_add(1, Relaxed);
    // The turn is below 2^32 for as long as a zone lives in practice; where it is not, the order
    // begins anew once.
    let place = (turn as u32 % places) as usize;
    let order = get(region.word(at, place / 8)?);
    let peer = Peer::at(region, table.peer(narrow(order, place))?)?;
    // A failure leaves the cycle at once, as does a verdict: who finds one here raced with it.
    passive(peer).is_plain().then_some(peer)
}

/// Leaves the cycle, if it holds: from now on the running weights count.
#[cold]
pub(crate) fn loosen(zone: &Zone, up: Up, table: Table, now: u32) {
    let (at, places) = table.cycle();
    let turn = get(up.cursor());
    if turn & LOOSE != 0 || places == 0 {
        return;
    }
    set(up.loose_since(), u64::from(now));
    // Who changes the word sets the weights; picks of others meanwhile are as fair as any order.
    if up.cursor().compare_exchange(turn, turn | LOOSE, Relaxed, Relaxed).is_ok() {
        let entries: Vec<Entry> =
            table.entries().iter().take(table.primaries()).map(Entry::read).collect();
        set_levels(zone.region(), &entries, at, places, turn);
        zone.root(root::LOOSE).store(1, SeqCst);
    }
}

fn set_levels(region: &Region, entries: &[Entry], at: Ref, places: u32, turn: u64) {
    let weight = |entry: &Entry| if entry.open { u32::from(entry.weight) } else { 0 };
    let weights: Vec<u32> = entries.iter().map(weight).collect();
    let words = region.words(at, (places as usize).div_ceil(8)).unwrap_or_default();
    let order: Vec<u8> =
        (0..places as usize).map(|i| narrow(words.get(i / 8).map_or(0, get), i) as u8).collect();
    let step = (turn as u32).checked_rem(places).unwrap_or(0) as usize;
    for (entry, level) in entries.iter().zip(cycle::levels(&weights, &order, step)) {
        if let Some(peer) = Peer::at(region, entry.peer).filter(|_| entry.open) {
            set(peer.current(), level.cast_unsigned());
        }
    }
}

/// A table was replaced: where its cycle stood, as running weights; whether the cycle held.
pub(crate) fn leave(up: Up, region: &Region, stored: &Stored) -> bool {
    let turn = get(up.cursor());
    let (at, places) = (stored.part.at, stored.part.number);
    let is_cycle = stored.part.method == Method::RoundRobin && stored.primaries <= EXACT_PEERS;
    if turn & LOOSE != 0 || places == 0 || !is_cycle {
        return false;
    }
    let mut entries: Vec<Entry> = stored.entries().filter(|entry| !entry.backup).collect();
    entries.sort_unstable_by_key(|entry| entry.order);
    set_levels(region, &entries, at, places, turn);
    true
}

/// Keeps the cycle left while a peer ramps up: see `tighten`.
pub(crate) fn stay_loose(zone: &Zone, up: Up, now: u32) {
    set(up.loose_since(), u64::from(now));
    enter(up, false);
    zone.root(root::LOOSE).store(1, SeqCst);
}

/// The new table's cycle holds, or not yet.
pub(crate) fn enter(up: Up, holds: bool) {
    if holds {
        up.cursor().fetch_and(!LOOSE, Relaxed);
    } else {
        up.cursor().fetch_or(LOOSE, Relaxed);
    }
}

/// Whether a peer takes its full share.
pub(crate) fn is_clean(peer: Peer, entry: Entry) -> bool {
    passive(peer).is_plain() && get(peer.effective()) == u64::from(entry.weight)
}

impl Worker {
    /// Begins a new cycle where no peer has failed, nor ramped up, for a while.
    pub(crate) fn tighten(&self, clock: &Clock) {
        // Cleared first: who leaves a cycle meanwhile sets it again.
        if self.zone().root(root::LOOSE).swap(0, SeqCst) == 0 {
            return;
        }
        let mut bucket = 0;
        loop {
            let _section = self.enter();
            let Some(chain) = self.zone().bucket_at(bucket) else { return };
            for up in chain.filter(|up| get(up.cursor()) & LOOSE != 0) {
                let Some(table) = up.table(self.zone()) else { continue };
                // Far off is also what was noted before the clock was set back.
                let calm = clock.secs.abs_diff(get(up.loose_since()) as u32) > CALM
                    && !young::is_any(up, clock.msec);
                let clean = calm
                    && table.entries().iter().map(Entry::read).all(|entry| {
                        let peer = Peer::at(self.region(), entry.peer);
                        peer.is_none_or(|peer| is_clean(peer, entry))
                    });
                enter(up, clean);
                if !clean {
                    self.zone().root(root::LOOSE).store(1, SeqCst);
                }
            }
            bucket += 1;
        }
    }
}
