//! What bars a peer by its health: words that probes, outside checkers and errors of requests write,
//! and a hint in the word that every choice reads.
//!
//! The hint says only that something may bar the peer; what does, and whether its time is over, the
//! other words tell. Who writes one of them sets the hint anew afterwards. A process that dies
//! in between leaves a hint that is wrong until the next of them is written, at the latest by the
//! next probe.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use peerage_core::addr::ServerAddr;
use peerage_core::check::bar::Bar;
use peerage_core::check::ejection::Ejection;
use peerage_core::check::external::{External, Opinion};
use peerage_core::check::verdict::{Side, Verdict};
use peerage_core::name::UpstreamName;
use peerage_core::passive::{BARRED, ERRS, Passive, WAITS};
use peerage_core::record;
use peerage_core::upstream::Upstream;

use crate::address::Address;
use crate::choice::Clock;
use crate::done::end_downtime;
use crate::ends;
use crate::layout::{Entry, HealthRules, Peer, Table, Up, get, set};
use crate::live::facts;
use crate::pick::passive;
use crate::turn;
use crate::worker::Worker;
use crate::young::Young;
use crate::zone::Zone;

/// A peer that nothing bars any more, since the time of what did is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relieved {
    /// Where.
    pub upstream: UpstreamName,
    /// Of which server.
    pub server: ServerAddr,
    /// The address of the peer.
    pub address: String,
    /// What barred it.
    pub was: Bar,
}

/// What came of what an outside checker said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opined {
    /// It said `unhealthy`, and does no more, or the other way round; a new end alone is no turn.
    pub turned: bool,
    /// What barred the server before.
    pub was: Option<Bar>,
    /// What bars it now.
    pub is: Option<Bar>,
}

/// What a change of settings means for the health of peers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checkup {
    /// The check, see `Check::identity`; 0 = none.
    pub(crate) check: u32,
    /// New servers wait for their first pass.
    pub(crate) mandatory: bool,
    pub(crate) rules: HealthRules,
}

impl Checkup {
    pub(crate) fn of(upstream: &Upstream) -> Self {
        let (check, outlier) = (&upstream.settings.check, upstream.settings.outlier);
        let refuse = check
            .as_ref()
            .is_some_and(|check| check.on_all_down == peerage_core::check::OnAllDown::Refuse);
        Self {
            check: check.as_ref().map_or(0, |check| check.identity()),
            mandatory: check.as_ref().is_some_and(|check| check.mandatory),
            rules: HealthRules {
                checked: check.is_some(),
                refuse,
                errors: outlier.map_or(0, |outlier| outlier.consecutive_errors),
                max_percent: outlier.map_or(0, |outlier| outlier.max_percent),
            },
        }
    }

    /// A new peer, before it is published.
    pub(crate) fn begin(self, peer: Peer) {
        set(peer.verdict(), Verdict::new(self.check).word());
        if self.mandatory {
            set(peer.passive(), WAITS);
        }
    }

    /// A peer that stays. Another check begins anew: a peer that takes requests goes on with that
    /// until there is a verdict, one that did not waits for its first pass where that is mandatory.
    pub(crate) fn go_on(self, peer: Peer, revived: bool, now: u64) {
        let waited = passive(peer).waits();
        let mut waits = waited;
        // Who observes at this moment does so of the former check.
        let anew = |word| {
            let is_former = Verdict::from_word(word).check() != self.check;
            is_former.then(|| Verdict::new(self.check).word())
        };
        if let Ok(former) = peer.verdict().fetch_update(AcqRel, Acquire, anew) {
            waits |= Verdict::from_word(former).side() == Side::Unhealthy;
        }
        waits &= self.mandatory;
        if waits != waited {
            flip(peer, WAITS, waits);
        }
        if (self.rules.errors == 0 || revived) && get(peer.ejection()) != 0 {
            set(peer.ejection(), Ejection::pardoned().word());
            flip(peer, ERRS, false);
        }
        let is_well = || bar(peer, now).is_none() && !bars_by_failures(peer);
        if (fold(peer, now) == Some(false) || waited && !waits) && is_well() {
            end_downtime(peer, now);
        }
    }
}

/// What bars the peer of this word now.
#[inline]
pub(crate) fn bar_of(passive: Passive, peer: Peer, now: u64) -> Option<Bar> {
    if passive.may_be_barred() { look(peer, passive.waits(), now) } else { None }
}

/// What bars a peer now.
#[inline]
pub(crate) fn bar(peer: Peer, now: u64) -> Option<Bar> {
    bar_of(passive(peer), peer, now)
}

#[cold]
fn look(peer: Peer, waits: bool, now: u64) -> Option<Bar> {
    Bar::of(
        Verdict::from_word(get(peer.verdict())),
        waits,
        External::from_word(get(peer.external())),
        peer.is_critical(),
        Ejection::from_word(get(peer.ejection())),
        now,
    )
}

/// Sets the hint of a peer by its words; whether that says another thing than before.
pub(crate) fn fold(peer: Peer, now: u64) -> Option<bool> {
    // The hint first: who changes it meanwhile has seen words that are at least as new.
    let mut word = peer.passive().load(Acquire);
    loop {
        let barred = look(peer, false, now).is_some();
        if barred == (word & BARRED != 0) {
            return None;
        }
        match peer.passive().compare_exchange(word, word ^ BARRED, AcqRel, Acquire) {
            Ok(_) => return Some(barred),
            Err(now) => word = now,
        }
    }
}

/// Takes the hint of a peer back where the time of what barred it is over; what that was. One
/// process alone is told.
pub(crate) fn lapse(peer: Peer, now: u64) -> Option<Bar> {
    if fold(peer, now) != Some(false) {
        return None;
    }
    let external = External::from_word(get(peer.external()));
    let said = external.until().filter(|&end| {
        let last = external.holds(end - 1);
        last == Some(Opinion::Unhealthy)
    });
    let ejected = Ejection::from_word(get(peer.ejection())).end();
    let ends = said.into_iter().chain([ejected]);
    let end = ends.filter(|end| (1..=now).contains(end)).max()?;
    look(peer, false, end - 1)
}

/// What its source says of a new peer, before that is published.
pub(crate) fn begin_sourced(peer: Peer, failing: bool, now: u64) {
    if failing {
        peer.set_critical(true);
        set(peer.downstart(), now.max(1));
        flip(peer, BARRED, true);
    }
}

/// What its source says of a peer that stays; the hint is set anew by who goes on.
pub(crate) fn go_on_sourced(peer: Peer, failing: bool, now: u64) {
    let failed = peer.set_critical(failing);
    if failing && !failed {
        // It may have been unavailable before.
        let _ = peer.downstart().compare_exchange(0, now.max(1), Relaxed, Relaxed);
    }
    if failed && !failing {
        // It comes back, and ramps up.
        set(peer.start(), now);
    }
}

/// What an outside checker says of a server holds for one more peer of it.
pub(crate) fn also(peer: Peer, external: u64, now: u64) {
    set(peer.external(), external);
    fold(peer, now);
}

/// Sets a hint or takes it back.
pub(crate) fn flip(peer: Peer, hint: u64, on: bool) {
    if on {
        peer.passive().fetch_or(hint, AcqRel);
    } else {
        peer.passive().fetch_and(!hint, AcqRel);
    }
}

/// Whether failures of requests may bar the peer too.
pub(crate) fn bars_by_failures(peer: Peer) -> bool {
    passive(peer).fails != 0
}

impl Zone {
    /// A peer is barred, or is so no more: the cycle is left; what it has missed is counted, and
    /// where it comes back it ramps up.
    pub(crate) fn turned(&self, up: Up, table: Table, (entry, peer): (Entry, Peer), clock: &Clock) {
        turn::loosen(self, up, table, clock.secs);
        if bar(peer, clock.msec).is_some() {
            let now = clock.msec.max(1);
            // It may have been unavailable before.
            let _ = peer.downstart().compare_exchange(0, now, Relaxed, Relaxed);
            return;
        }
        if !bars_by_failures(peer) {
            end_downtime(peer, clock.msec);
        }
        set(peer.start(), clock.msec);
        let mut young = Young::of(table.method(), clock.msec);
        young.look(peer, entry);
        young.note(up);
    }

    /// Something bars a peer until then, unix ms.
    pub(crate) fn barred_until(&self, until: u64) {
        self.ends(ends::BARS).lower(until);
    }
}

impl Worker {
    /// An outside checker says something of a server. `None`: there is no such server, or it has no
    /// peer.
    ///
    /// It holds for the peers that the server has, and for those that its name gets later.
    pub fn opine(
        &self,
        name: &UpstreamName,
        server_id: u64,
        said: External,
        clock: &Clock,
    ) -> Option<Opined> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        let table = up.table(self.zone())?;
        let of_server = |entry: &Entry| {
            let peer = Peer::at(self.region(), entry.peer);
            peer.is_some_and(|peer| peer.server_id() == server_id)
        };
        let entries: Vec<Entry> =
            table.entries().iter().map(Entry::read).filter(of_server).collect();
        if entries.is_empty() {
            return None;
        }
        let barred = || facts(self.region(), table.method(), &entries, clock).bar;
        let bad = |said: External| said.holds(clock.msec) == Some(Opinion::Unhealthy);
        let (mut was, mut turned) = (barred(), false);
        for &entry in &entries {
            let Some(peer) = Peer::at(self.region(), entry.peer) else { continue };
            let lapsed = lapse(peer, clock.msec);
            // Before, for who looks after this process died; and after, for who looks just now.
            let ends = said.until().filter(|_| bad(said));
            ends.inspect(|&until| self.zone().barred_until(until));
            let before = External::from_word(peer.external().swap(said.word(), SeqCst));
            turned |= bad(before) != bad(said) || lapsed == Some(Bar::External);
            was = was.or(lapsed);
            ends.inspect(|&until| self.zone().barred_until(until));
            if fold(peer, clock.msec).is_some() || lapsed.is_some() {
                self.zone().turned(up, table, (entry, peer), clock);
            }
        }
        Some(Opined { turned, was, is: barred() })
    }

    /// Looks for peers whose ejection or outside verdict is over, a slice of a large zone at a time,
    /// see [`Self::is_relieving`]. As cheap as one load where there is none; each is told by one
    /// process alone.
    pub fn relieve(&self, clock: &Clock) -> Vec<Relieved> {
        let mut relieved = Vec::new();
        let begins = || self.zone().ends(ends::BARS).look(clock.msec, clock.msec);
        let walk = self.relieving.take().or_else(|| Some((begins()?, 0)));
        let Some((mut look, mut bucket)) = walk else { return relieved };
        let mut looked = 0;
        loop {
            if looked >= PEERS {
                look.goes_on(clock.msec);
                self.relieving.set(Some((look, bucket)));
                return relieved;
            }
            let _section = self.enter();
            let Some(chain) = self.zone().bucket_at(bucket) else {
                look.end();
                return relieved;
            };
            for up in chain {
                let Some(table) = up.table(self.zone()) else { continue };
                looked += table.entries().len();
                for entry in table.entries().iter().map(Entry::read) {
                    let Some(peer) = Peer::at(self.region(), entry.peer) else { continue };
                    if get(peer.ejection()) | get(peer.external()) == 0 {
                        continue;
                    }
                    if let Some(until) = ends(peer, clock.msec) {
                        look.saw(until);
                    }
                    if let Some(was) = lapse(peer, clock.msec) {
                        self.zone().turned(up, table, (entry, peer), clock);
                        let named = self.names_of(up, entry, peer);
                        relieved.extend(named.map(|(upstream, server, address)| Relieved {
                            upstream,
                            server,
                            address,
                            was,
                        }));
                    }
                }
            }
            bucket += 1;
        }
    }

    /// Whether [`Self::relieve`] has not looked at all yet, and is to be called again soon.
    pub fn is_relieving(&self) -> bool {
        self.relieving.get().is_some()
    }

    /// What a peer is called: its upstream, its server, its address.
    pub(crate) fn names_of(
        &self,
        up: Up,
        entry: Entry,
        peer: Peer,
    ) -> Option<(UpstreamName, ServerAddr, String)> {
        let name = String::from_utf8(up.name(self.region())).ok()?;
        let server = record::decode_server(&entry.cold().read(self.region())).ok()?;
        let address = Address::at(self.region(), peer.address())?;
        Some((UpstreamName::parse(&name).ok()?, server.addr, address.text()))
    }
}

/// When the first of what has an end ends, of what holds now.
fn ends(peer: Peer, now: u64) -> Option<u64> {
    let external = External::from_word(get(peer.external()));
    let said = external.holds(now).and_then(|_| external.until());
    let ejected = Ejection::from_word(get(peer.ejection())).until(now);
    said.into_iter().chain(ejected).min()
}

/// Peers that are looked at in one go, about.
const PEERS: usize = 4096;
