//! Peers one by one, as a listing shows them: a server at each of its addresses. And their
//! counters set to zero.

use std::collections::{HashMap, HashSet};

use peerage_core::check::results::Last;
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::server::{Admin, Limits, Server};
use peerage_core::state::Live;
use peerage_shm::Ordering::Relaxed;
use peerage_shm::point;

use crate::address::Address;
use crate::along::Along;
use crate::choice::Clock;
use crate::done::COUNT_MASK;
use crate::layout::{Entry, Peer, set};
use crate::live;
use crate::worker::Worker;

/// A peer.
#[derive(Clone, Debug)]
pub struct SeenPeer {
    /// Its server.
    pub server: Server,
    /// What holds for it.
    pub limits: Limits,
    /// Its address, where it is not the server's own.
    pub address: Option<Box<str>>,
    /// What is live. Whether a backup is idle, and how many connections are upgraded, is not told.
    pub live: Live,
    /// What stands on its machine.
    pub host: Option<Admin>,
}

/// Some peers of an upstream.
#[derive(Clone, Debug)]
pub struct Page {
    /// Primaries come before backups; a server whose name has no address is one without.
    pub peers: Vec<SeenPeer>,
    /// Whether there are more.
    pub more: bool,
    /// Revision of the upstream's last change.
    pub revision: u64,
}

/// Where a listing of an upstream's peers stands.
#[derive(Clone, Debug, Default)]
pub struct PeerCursor {
    along: Along,
    /// Peers that it has shown, by number; where another table has come, it begins there anew.
    shown: HashSet<u64>,
}

impl Worker {
    /// The next peers of an upstream, `most` of its table looked at; `None`: there is no such
    /// upstream, or none any more.
    ///
    /// Peers that are there all the time are met once, others at most once.
    pub fn peers(
        &self,
        name: &UpstreamName,
        cursor: &mut PeerCursor,
        most: usize,
        clock: &Clock,
    ) -> Option<Page> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        point!("read.found");
        let (region, table) = (self.region(), up.table(self.zone())?);
        cursor.along.look(table);
        let cold = record::decode_upstream_cold(&table.cold().read(region)).ok()?;
        let mut known = self.known_hosts.borrow_mut();
        let hosts = known.look(self.zone());
        let (method, upgraded) = (table.part().method, HashMap::new());
        let entries = table.entries().get(cursor.along.next..).unwrap_or_default();
        let mut peers = Vec::with_capacity(most.min(entries.len()));
        for entry in entries.iter().take(most).map(Entry::read) {
            cursor.along.next += 1;
            let peer = Peer::at(region, entry.peer);
            if peer.is_some_and(|peer| !cursor.shown.insert(peer.uid().into())) {
                continue;
            }
            let server: Server = record::decode_server(&entry.cold().read(region)).ok()?;
            // Numbers have 32 bits; a server without a peer has its id.
            if peer.is_none() && !cursor.shown.insert(server.id | 1 << 63) {
                continue;
            }
            let own = peer.filter(|_| server.addr.is_name());
            let address = own.and_then(|peer| Address::at(region, peer.address()));
            let host = match &address {
                Some(address) => address.ip().and_then(|ip| hosts.get(ip)),
                None => hosts.covering(&server),
            };
            peers.push(SeenPeer {
                limits: server.limits(&cold.settings.defaults),
                address: address.map(|address| address.text().into_boxed_str()),
                live: live::live(region, method, &[entry], &upgraded, clock),
                host: host.cloned(),
                server,
            });
        }
        let more = cursor.along.next < table.entries().len();
        Some(Page { peers, more, revision: table.revision() })
    }

    /// Sets to zero what was counted of an upstream's peers; false: there is no such upstream.
    ///
    /// Requests in flight, what balancing goes by, and the time since when a peer is unavailable
    /// stay. A try that ends meanwhile may be counted in part, or be lost.
    pub fn reset(&self, name: &UpstreamName) -> bool {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes());
        let Some(table) = up.and_then(|up| up.table(self.zone())) else { return false };
        let entries = table.entries().iter().map(Entry::read);
        entries.filter_map(|entry| Peer::at(self.region(), entry.peer)).for_each(forget);
        true
    }
}

fn forget(peer: Peer) {
    // Sums before the numbers that they are divided by: an average is too low for a moment, never
    // too high.
    let sums = [peer.header_sum(), peer.response_sum()];
    let counts = [peer.headerless(), peer.unanswered(), peer.sent(), peer.received()];
    let failures = [peer.fails(), peer.unavail(), peer.downtime()];
    for counter in sums.into_iter().chain(counts).chain(peer.classes()).chain(failures) {
        set(counter, 0);
    }
    set(peer.checks(), 0);
    // When the last result came stays: probes go by it.
    let forget = |word| Some(Last { unhealthy: 0, ..Last::from_word(word) }.word());
    let _ = peer.checked().fetch_update(Relaxed, Relaxed, forget);
    for cell in peer.codes() {
        // The cell stays its code's: who counts at this moment has looked at it.
        cell.fetch_and(!COUNT_MASK, Relaxed);
    }
}
