//! Peers whose requests err in a row are ejected for a while, as `peerage_outlier` says.
//!
//! An error is a try that nginx calls failed, or an answer with a status of 5xx. What is counted
//! lies in a word of the peer that only erring requests touch, and the first success after them.

use std::sync::atomic::Ordering::SeqCst;

use peerage_core::addr::ServerAddr;
use peerage_core::check::bar::Bar;
use peerage_core::check::ejection::Ejection;
use peerage_core::check::outlier::Outlier;
use peerage_core::name::UpstreamName;
use peerage_core::passive::{BARRED, ERRS};
use peerage_core::record;
use peerage_shm::Ordering::Relaxed;

use crate::choice::{Choice, Clock, FoundUp};
use crate::done::end_downtime;
use crate::health::{bar, flip, fold, lapse};
use crate::layout::{Entry, Peer, Table, Up, get};
use crate::pick::passive;
use crate::worker::Worker;

/// A peer that requests of this process ejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejected {
    /// Where.
    pub upstream: UpstreamName,
    /// Of which server.
    pub server: ServerAddr,
    /// The address of the peer.
    pub address: String,
    /// Errors in a row that did it.
    pub errors: u16,
    /// For how long, ms.
    pub lasts: u64,
    /// What barred it until a moment ago, which nobody has told.
    pub lapsed: Option<Bar>,
}

/// The first status that is an error.
pub(crate) const ERROR: u16 = 500;

impl Worker {
    /// A request to the peer has erred; whether it is ejected by that.
    #[cold]
    pub(crate) fn erred(&self, choice: &Choice, peer: Peer, clock: &Clock) -> bool {
        let _section = self.enter();
        let up = choice.upstream.and_then(FoundUp::again);
        let Some((up, table)) = up.and_then(|up| Some((up, up.table(self.zone())?))) else {
            return false;
        };
        let limit = table.health().errors;
        if limit == 0 {
            return false;
        }
        let mut entries = table.entries().iter().map(Entry::read);
        let Some(entry) = entries.find(|entry| entry.peer == peer.at) else { return false };
        let step = |word| Some(Ejection::from_word(word).erred().word());
        let word = peer.ejection().fetch_update(SeqCst, SeqCst, step).unwrap_or_default();
        let erred = Ejection::from_word(word).erred();
        flip(peer, ERRS, true);
        let is_over = erred.errors() >= limit && erred.until(clock.msec).is_none();
        is_over && entry.open && self.eject(up, table, (entry, peer), clock)
    }

    /// Ejects a peer, if so many may be.
    fn eject(&self, up: Up, table: Table, (entry, peer): (Entry, Peer), clock: &Clock) -> bool {
        if !self.may_eject(table, peer, clock) {
            return false;
        }
        let cold = record::decode_upstream_cold(&table.cold().read(self.region())).ok();
        let Some(outlier) = cold.and_then(|cold| cold.settings.outlier) else { return false };
        let lapsed = lapse(peer, clock.msec);
        // Whoever looks next tells of it where nothing comes of this.
        let untold = || {
            if lapsed.is_some() {
                flip(peer, BARRED, true);
            }
        };
        let out = |word| {
            let now = Ejection::from_word(word);
            let is_in = now.until(clock.msec).is_none();
            is_in.then(|| {
                let after = now.ejected(&outlier, clock.msec);
                // As for a verdict: before, and after.
                self.zone().barred_until(after.until(clock.msec).unwrap_or(0));
                after.word()
            })
        };
        // Another worker was faster where it is out already.
        let Ok(word) = peer.ejection().fetch_update(SeqCst, SeqCst, out) else {
            untold();
            return false;
        };
        let before = Ejection::from_word(word);
        let after = before.ejected(&outlier, clock.msec);
        // Another worker may have ejected another peer at the same moment: who sees that takes his
        // own back.
        if !self.may_eject(table, peer, clock) {
            let back = before.succeeded().unwrap_or(before).word();
            let _ = peer.ejection().compare_exchange(after.word(), back, SeqCst, SeqCst);
            untold();
            return false;
        }
        flip(peer, ERRS, false);
        if lapsed.is_some() {
            end_downtime(peer, clock.msec);
        }
        self.zone().barred_until(after.until(clock.msec).unwrap_or(0));
        if fold(peer, clock.msec).is_some() {
            self.zone().turned(up, table, (entry, peer), clock);
        }
        peer.unavail().fetch_add(1, Relaxed);
        let named = self.names_of(up, entry, peer);
        self.ejected.borrow_mut().extend(named.map(|(upstream, server, address)| Ejected {
            upstream,
            server,
            address,
            errors: before.errors(),
            lasts: after.end().saturating_sub(clock.msec),
            lapsed,
        }));
        true
    }

    /// The peers that requests of this process ejected since it was asked last.
    pub fn take_ejected(&self) -> Vec<Ejected> {
        self.ejected.take()
    }

    /// Whether one more peer may be ejected, which is this one.
    fn may_eject(&self, table: Table, peer: Peer, clock: &Clock) -> bool {
        let rules = Outlier { max_percent: table.health().max_percent, ..Outlier::default() };
        let (mut total, mut ejected, mut others) = (0, 0, 0);
        for entry in table.entries().iter().map(Entry::read).filter(|entry| entry.open) {
            let Some(other) = Peer::at(self.region(), entry.peer) else { continue };
            total += 1;
            if other.at == peer.at {
                continue;
            }
            let word = other.ejection().load(SeqCst);
            let is_out = Ejection::from_word(word).until(clock.msec).is_some();
            ejected += usize::from(is_out);
            let is_barred = bar(other, clock.msec).is_some()
                || passive(other).barred(entry.rules(), clock.secs);
            others += usize::from(!is_out && !is_barred);
        }
        rules.admits(ejected, total, others)
    }
}

/// A request to the peer has succeeded after others erred.
#[cold]
pub(crate) fn forgive(peer: Peer) {
    flip(peer, ERRS, false);
    let word = get(peer.ejection());
    if let Some(next) = Ejection::from_word(word).succeeded() {
        // An error that came in between counts more than this success.
        let _ = peer.ejection().compare_exchange(word, next.word(), SeqCst, SeqCst);
    }
}
