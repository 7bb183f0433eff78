//! Checks as a prober sees them: which upstreams have one, which peers, and what came of a probe.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use peerage_core::addr::ServerAddr;
use peerage_core::check::Check;
use peerage_core::check::bar::Bar;
use peerage_core::check::results::{Counts, Last};
use peerage_core::check::verdict::{Outcome, Side, Turn, Verdict};
use peerage_core::name::UpstreamName;
use peerage_core::passive::WAITS;
use peerage_core::record;
use peerage_core::texts::Texts;
use peerage_shm::{Ref, point};

use crate::address::Address;
use crate::choice::{Clock, Found};
use crate::health::{bar, flip, fold};
use crate::layout::{Entry, Peer, Table, get};
use crate::pick::passive;
use crate::texts;
use crate::worker::Worker;

/// An upstream with a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedUpstream {
    /// Its name.
    pub name: UpstreamName,
    /// Revision of its last change: what was read of it holds until that is another one.
    pub revision: u64,
}

/// What a prober has to know of an upstream.
pub struct CheckedPeers {
    /// The check.
    pub check: Check,
    /// Texts of the upstream, where the check has none of its own.
    pub texts: Texts,
    /// Revision of the upstream's last change.
    pub revision: u64,
    /// Its peers.
    pub peers: Vec<CheckedPeer>,
}

/// A peer to be probed.
pub struct CheckedPeer {
    /// By which its results are told.
    pub handle: Handle,
    /// Its server.
    pub server: ServerAddr,
    /// The server's id.
    pub server_id: u64,
    /// Where it listens.
    pub address: Address,
    /// It is taken down, or its host is: checks pause.
    pub paused: bool,
    /// What is known of it.
    pub verdict: Verdict,
    /// When its last result came, unix ms; 0 = none did.
    pub last: u64,
}

/// A peer and the check it is probed by, known over the ends of read sections.
#[derive(Clone, Copy)]
pub struct Handle {
    found: Found,
    peer: Ref,
    uid: u32,
    check: u32,
}

/// What a result made of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The peer changed sides by it.
    pub turn: Option<Turn>,
    /// What is known of it now.
    pub verdict: Verdict,
    /// What barred it before. Where that is not what bars it now, there is something to tell, also
    /// where another process died over the turn.
    pub was: Option<Bar>,
    /// What bars it now.
    pub is: Option<Bar>,
}

impl Handle {
    /// A number that no other peer of this zone ever has.
    pub fn key(&self) -> u64 {
        self.uid.into()
    }
}

impl Worker {
    /// Every upstream with a check.
    pub fn checked_upstreams(&self) -> Vec<CheckedUpstream> {
        let mut all = Vec::new();
        let mut bucket = 0;
        loop {
            let _section = self.enter();
            let Some(chain) = self.zone().bucket_at(bucket) else { return all };
            for up in chain {
                let table = up.table(self.zone()).filter(|table| table.health().checked);
                let Some(table) = table else { continue };
                let name = String::from_utf8(up.name(self.region())).ok();
                let name = name.and_then(|name| UpstreamName::parse(&name).ok());
                let revision = table.revision();
                all.extend(name.map(|name| CheckedUpstream { name, revision }));
            }
            bucket += 1;
        }
    }

    /// The check and the peers of an upstream; `None`: there is no such upstream, or no check.
    pub fn checked_peers(&self, name: &UpstreamName) -> Option<CheckedPeers> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        let (region, table) = (self.region(), up.table(self.zone())?);
        let cold = record::decode_upstream_cold(&table.cold().read(region)).ok()?;
        let check = *cold.settings.check?;
        let (found, identity) = (Found::new(up), check.identity());
        let mut peers = Vec::with_capacity(table.entries().len());
        for entry in table.entries().iter().map(Entry::read) {
            let Some(peer) = Peer::at(region, entry.peer) else { continue };
            let Some(address) = Address::at(region, peer.address()) else { continue };
            let server = record::decode_server(&entry.cold().read(region)).ok()?;
            let verdict = Verdict::from_word(get(peer.verdict()));
            peers.push(CheckedPeer {
                handle: Handle { found, peer: peer.at, uid: peer.uid(), check: identity },
                server: server.addr,
                server_id: server.id,
                address,
                paused: !entry.bound,
                verdict: if verdict.check() == identity { verdict } else { Verdict::new(identity) },
                last: Last::from_word(get(peer.checked())).at,
            });
        }
        let texts = texts::read(region, table.texts())?;
        Some(CheckedPeers { check, texts, revision: table.revision(), peers })
    }

    /// What is known of a peer now; `None`: it is gone.
    pub fn verdict(&self, handle: &Handle) -> Option<Verdict> {
        let _section = self.enter();
        let (_, _, peer) = self.known(handle)?;
        Some(Verdict::from_word(get(peer.verdict())))
    }

    /// Takes the result of a probe by this check, in force in every process with the next choice of
    /// a peer.
    ///
    /// `None`: the peer is gone, or its check became another one while it was probed.
    pub fn observe(
        &self,
        handle: &Handle,
        check: &Check,
        outcome: Outcome,
        clock: &Clock,
    ) -> Option<Observed> {
        let _section = self.enter();
        let (table, entry, peer) = self.known(handle)?;
        let up = handle.found.again()?;
        let was = bar(peer, clock.msec);
        let mut word = peer.verdict().load(Acquire);
        let (verdict, turn) = loop {
            let mut verdict = Verdict::from_word(word);
            if verdict.check() != handle.check {
                if !self.is_of(table, handle.check) {
                    return None;
                }
                // Who put the check in force died before it said so here.
                verdict = Verdict::new(handle.check);
            }
            let turn = verdict.observe(outcome, check.thresholds());
            match peer.verdict().compare_exchange(word, verdict.word(), AcqRel, Acquire) {
                Ok(_) => break (verdict, turn),
                Err(now) => word = now,
            }
        };
        point!("check.judged");
        peer.checks().fetch_add(Counts::step(outcome.is_ok()), Relaxed);
        let worse = turn.is_some_and(|turn| turn.to == Side::Unhealthy);
        let seen = |word| Some(Last::from_word(word).seen(clock.msec, worse).word());
        let _ = peer.checked().fetch_update(Relaxed, Relaxed, seen);
        let waited = passive(peer).waits();
        if waited && verdict.side() != Side::Unknown {
            // From now on its side says what bars it.
            fold(peer, clock.msec);
            flip(peer, WAITS, false);
        }
        fold(peer, clock.msec);
        let is = bar(peer, clock.msec);
        if was.is_some() != is.is_some() || waited && is != was {
            let start = get(peer.start());
            self.zone().turned(up, table, (entry, peer), clock);
            if waited && start == 0 {
                // The whole set is new: nobody is a newcomer.
                peer.start().store(0, Relaxed);
            }
        }
        Some(Observed { turn, verdict, was, is })
    }

    fn known(&self, handle: &Handle) -> Option<(Table, Entry, Peer)> {
        let table = handle.found.again()?.table(self.zone())?;
        let mut entries = table.entries().iter().map(Entry::read);
        let entry = entries.find(|entry| entry.peer == handle.peer)?;
        let peer = Peer::at(self.region(), entry.peer).filter(|peer| peer.uid() == handle.uid)?;
        Some((table, entry, peer))
    }

    /// Whether a table's upstream has this check.
    #[cold]
    fn is_of(&self, table: Table, check: u32) -> bool {
        let cold = record::decode_upstream_cold(&table.cold().read(self.region()));
        let now = cold.ok().and_then(|cold| cold.settings.check);
        now.is_some_and(|now| now.identity() == check)
    }
}
