//! What is live of an upstream's servers, read for a listing.

use std::collections::HashMap;

use peerage_core::check::results::{Counts, HealthChecks, Last};
use peerage_core::check::verdict::Verdict;
use peerage_core::name::UpstreamName;
use peerage_core::select::ramp;
use peerage_core::server::Admin;
use peerage_core::state::{Facts, Live};
use peerage_core::upstream::{Method, Upstream};
use peerage_shm::{Ref, Region, count, point};

use crate::choice::Clock;
use crate::done::{class, codes};
use crate::health;
use crate::layout::{Entry, Peer, get};
use crate::pick::passive;
use crate::stored::Stored;
use crate::worker::Worker;

/// An upstream with all that is live of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What is declared and wanted.
    pub upstream: Upstream,
    /// Beside `upstream.servers`, in the same order.
    pub live: Vec<Live>,
    /// The host's state that covers each server, in the same order.
    pub hosts: Vec<Option<Admin>>,
    /// Revision of its last change.
    pub revision: u64,
}

impl Peer {
    /// Requests in flight.
    pub(crate) fn active(self) -> u32 {
        count(get(self.in_flight()))
    }
}

impl Worker {
    /// Reads an upstream as it is now.
    pub fn read(&self, name: &UpstreamName, clock: &Clock) -> Option<Seen> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        point!("read.found");
        let stored = self.zone().load(up)?;
        Some(self.see(stored, clock))
    }

    /// The same without what is live, which costs less: the upstream and its revision.
    pub fn read_wanted(&self, name: &UpstreamName) -> Option<(Upstream, u64)> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        let stored = self.zone().load(up)?;
        Some((stored.upstream, stored.revision))
    }

    /// The revision of an upstream alone, which costs next to nothing.
    pub fn revision_of(&self, name: &UpstreamName) -> Option<u64> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        Some(up.table(self.zone())?.revision())
    }

    fn see(&self, stored: Stored, clock: &Clock) -> Seen {
        let upgraded = self.upgraded_of(&stored);
        let mut live: Vec<Live> = stored
            .servers
            .iter()
            .map(|server| {
                live(self.region(), stored.part.method, &server.entries, &upgraded, clock)
            })
            .collect();
        let servers = &stored.upstream.servers;
        let mut known = self.known_hosts.borrow_mut();
        let hosts = known.look(self.zone());
        let primary = servers.iter().zip(&live).any(|(server, live)| {
            let limits = stored.upstream.limits(server);
            let eligible = peerage_core::state::eligible;
            !server.params.backup
                && hosts.covering(server).is_none()
                && eligible(server.wanted(), &limits, &live.facts)
        });
        for (server, live) in servers.iter().zip(&mut live) {
            live.facts.backup_idle = server.params.backup && primary;
        }
        let hosts = servers.iter().map(|server| hosts.covering(server).cloned()).collect();
        Seen { upstream: stored.upstream, live, hosts, revision: stored.revision }
    }

    /// Upgraded connections by peer; looked for only where something is in flight.
    fn upgraded_of(&self, stored: &Stored) -> HashMap<Ref, u32> {
        let mut upgraded = HashMap::new();
        let mut peers = stored.servers.iter().flat_map(|server| server.peers(self.region()));
        if peers.any(|peer| peer.active() > 0) {
            self.zone().shared().each_marked(|at| *upgraded.entry(at).or_insert(0) += 1);
        }
        upgraded
    }
}

/// What decides the state of a server: all its peers together.
pub(crate) fn facts(region: &Region, method: Method, entries: &[Entry], clock: &Clock) -> Facts {
    let mut facts = Facts { failed: true, full: true, unresolved: true, ..Facts::default() };
    // Of a name, addresses on a host that is down count for nothing while there are others.
    let some = entries.iter().any(|entry| entry.open);
    // A server is barred where each of its peers is, by its health or by failures.
    let mut bars = Vec::new();
    let mut none_left = true;
    for entry in entries.iter().filter(|entry| entry.open || !some) {
        let Some(peer) = Peer::at(region, entry.peer) else { continue };
        facts.unresolved = false;
        let failed = passive(peer).barred(entry.rules(), clock.secs);
        let bar = health::bar(peer, clock.msec);
        facts.failed &= failed;
        none_left &= failed || bar.is_some();
        bars.extend(bar);
        facts.ramping |=
            method.ramps() && ramp::is_ramping(get(peer.start()), clock.msec, entry.ramp_ms());
        facts.full &= entry.max_conns != 0 && peer.active() >= entry.max_conns;
    }
    if none_left {
        facts.bar = bars.into_iter().min_by_key(|bar| bar.rank());
    }
    if facts.unresolved {
        facts.failed = false;
        facts.full = false;
    }
    facts
}

/// What is live of a server, or of some of its peers.
pub(crate) fn live(
    region: &Region,
    method: Method,
    entries: &[Entry],
    upgraded: &HashMap<Ref, u32>,
    clock: &Clock,
) -> Live {
    let mut live = Live { facts: facts(region, method, entries, clock), ..Live::default() };
    let counters = &mut live.counters;
    let (mut header_sum, mut header_count, mut response_sum) = (0, 0, 0);
    for peer in entries.iter().filter_map(|entry| Peer::at(region, entry.peer)) {
        counters.active += u64::from(peer.active());
        counters.upgraded += u64::from(upgraded.get(&peer.at).copied().unwrap_or(0));
        let mut classes = [0; 5];
        for (sum, class) in classes.iter_mut().zip(peer.classes()) {
            *sum = get(class);
        }
        for (code, n) in codes(peer.codes()) {
            if let Some(sum) = classes.get_mut(class(code)) {
                *sum += n;
            }
            match counters.codes.binary_search_by_key(&code, |&(code, _)| code) {
                Ok(i) => counters.codes[i].1 += n,
                Err(i) => counters.codes.insert(i, (code, n)),
            }
        }
        for (sum, n) in counters.responses.iter_mut().zip(classes) {
            *sum += n;
        }
        let requests = get(peer.unanswered()) + classes.iter().sum::<u64>();
        counters.requests += requests;
        counters.sent += get(peer.sent());
        counters.received += get(peer.received());
        counters.fails += get(peer.fails());
        counters.unavail += get(peer.unavail());
        counters.selected = counters.selected.max(get(peer.selected()));
        header_sum += get(peer.header_sum());
        header_count += requests.saturating_sub(get(peer.headerless()));
        response_sum += get(peer.response_sum());
        counters.health_checks.add(&health_checks(peer));
        counters.downtime += get(peer.downtime());
        let since = get(peer.downstart());
        if since != 0 {
            counters.downtime += clock.msec.saturating_sub(since);
            let first = counters.downstart.map_or(since, |other| other.min(since));
            counters.downstart = Some(first);
        }
    }
    counters.header_time = average(header_sum, header_count);
    counters.response_time = average(response_sum, header_count);
    live
}

/// Results of the checks of a peer.
pub(crate) fn health_checks(peer: Peer) -> HealthChecks {
    let Counts { checks, fails } = Counts::from_word(get(peer.checks()));
    HealthChecks {
        checks: checks.into(),
        fails: fails.into(),
        unhealthy: Last::from_word(get(peer.checked())).unhealthy.into(),
        last_passed: Verdict::from_word(get(peer.verdict())).last_passed().filter(|_| checks != 0),
    }
}

fn average(sum: u64, n: u64) -> u64 {
    (sum + n / 2).checked_div(n).unwrap_or(0)
}
