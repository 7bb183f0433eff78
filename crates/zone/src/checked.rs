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
use crate::choice::{Clock, FoundUp};
use crate::generation::Generation;
use crate::health::{bar, flip, fold, lapse};
use crate::layout::{Entry, Peer, Table, Up, get, root};
use crate::pick::passive;
use crate::texts;
use crate::worker::Worker;
use crate::zone::Zone;

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
    /// The id of its server.
    pub server_id: u64,
    /// Where it listens, as a socket address.
    pub sockaddr: Vec<u8>,
    /// The same as a text.
    pub address: String,
    /// It is taken down, or its host is: checks pause.
    pub paused: bool,
    /// What is known of it.
    pub verdict: Verdict,
    /// When its last probe by this check began, monotonic ms; `None`: there was none with a result,
    /// or it was taken down since.
    pub began: Option<u64>,
}

/// A peer and the check it is probed by, known over the ends of read sections.
#[derive(Clone, Copy)]
pub struct Handle {
    found: FoundUp,
    peer: Ref,
    uid: u32,
    check: u32,
    /// Where in the table it was found.
    at: usize,
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

    /// The check, see [`Check::identity`].
    pub fn check(&self) -> u32 {
        self.check
    }
}

impl Zone {
    /// Goes up when an upstream that is checked comes, goes or changes.
    pub fn checks(&self) -> Generation {
        Generation::new(self.root(root::CHECKS))
    }
}

impl Worker {
    /// The upstreams of bucket `i` that have a check; `None` past the last bucket.
    pub fn checked_upstreams(&self, i: usize) -> Option<Vec<CheckedUpstream>> {
        let _section = self.enter();
        let mut all = Vec::new();
        for up in self.zone().bucket_at(i)? {
            let table = up.table(self.zone()).filter(|table| table.health().checked);
            let Some(table) = table else { continue };
            let name = String::from_utf8(up.name(self.region())).ok();
            let name = name.and_then(|name| UpstreamName::parse(&name).ok());
            let revision = table.revision();
            all.extend(name.map(|name| CheckedUpstream { name, revision }));
        }
        Some(all)
    }

    /// The check of an upstream, and its peers with a wanted key; `None`: there is no such
    /// upstream, or no check.
    pub fn checked_peers(
        &self,
        name: &UpstreamName,
        wanted: impl Fn(u64) -> bool,
    ) -> Option<CheckedPeers> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        let (region, table) = (self.region(), up.table(self.zone())?);
        let cold = record::decode_upstream_cold(&table.cold().read(region)).ok()?;
        let check = *cold.settings.check?;
        let (found, identity) = (FoundUp::new(up), check.identity());
        let mut peers = Vec::new();
        for (at, entry) in table.entries().iter().map(Entry::read).enumerate() {
            let Some(peer) = Peer::at(region, entry.peer) else { continue };
            if !wanted(peer.uid().into()) {
                continue;
            }
            let Some(address) = Address::at(region, peer.address()) else { continue };
            let verdict = Verdict::from_word(get(peer.verdict()));
            let is_of = verdict.check() == identity;
            // Without a result yet, the moment may be a former check's.
            let began = Some(get(peer.probed()))
                .filter(|&began| is_of && verdict.last_passed().is_some() && began != 0);
            peers.push(CheckedPeer {
                handle: Handle { found, peer: peer.at, uid: peer.uid(), check: identity, at },
                server_id: peer.server_id(),
                sockaddr: address.sockaddr(),
                address: address.text(),
                paused: !entry.bound,
                verdict: if is_of { verdict } else { Verdict::new(identity) },
                began,
            });
        }
        let texts = texts::read(region, table.texts())?;
        Some(CheckedPeers { check, texts, revision: table.revision(), peers })
    }

    /// A probe of a peer begins, monotonic ms: whoever probes it next keeps to its moments. False:
    /// there is no such peer any more, or its checks pause.
    pub fn probing(&self, handle: &Handle, now: u64) -> bool {
        let _section = self.enter();
        let known = self.known(handle).filter(|(_, entry, _)| entry.bound);
        if let Some((.., peer)) = known {
            peer.probed().store(now, Relaxed);
        }
        known.is_some()
    }

    /// The server of a peer; `None`: it is gone.
    pub fn server_of(&self, handle: &Handle) -> Option<ServerAddr> {
        let _section = self.enter();
        let (_, entry, _) = self.known(handle)?;
        Some(record::decode_server(&entry.cold().read(self.region())).ok()?.addr)
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
        let was = lapse(peer, clock.msec).or_else(|| bar(peer, clock.msec));
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
        let (_, table, entry) = self.found(handle)?;
        let peer = Peer::at(self.region(), entry.peer).filter(|peer| peer.uid() == handle.uid)?;
        Some((table, entry, peer))
    }

    /// Where a peer stands now. Inside a section.
    pub(crate) fn found(&self, handle: &Handle) -> Option<(Up, Table, Entry)> {
        let up = handle.found.again()?;
        let table = up.table(self.zone())?;
        let is_it = |entry: &Entry| entry.peer == handle.peer;
        // As a rule it is where it was: there may be thousands.
        let entry = table.entries().get(handle.at).map(Entry::read).filter(is_it);
        let entry = entry.or_else(|| table.entries().iter().map(Entry::read).find(is_it))?;
        Some((up, table, entry))
    }

    /// Whether a table's upstream has this check.
    #[cold]
    fn is_of(&self, table: Table, check: u32) -> bool {
        let cold = record::decode_upstream_cold(&table.cold().read(self.region()));
        let now = cold.ok().and_then(|cold| cold.settings.check);
        now.is_some_and(|now| now.identity() == check)
    }
}
