//! What is known of the health of a server, peer by peer.

use peerage_core::check::ejection::Ejection;
use peerage_core::check::external::External;
use peerage_core::check::peer::PeerHealth;
use peerage_core::check::results::{Counts, Last};
use peerage_core::check::verdict::Verdict;
use peerage_core::name::UpstreamName;
use peerage_core::record;

use crate::address::Address;
use crate::choice::Clock;
use crate::health::bar;
use crate::layout::{Entry, Peer, get};
use crate::worker::Worker;

impl Worker {
    /// The health of each peer of a server, in the order of its addresses; none where there is no
    /// such server, or it has no address.
    pub fn diagnose(&self, name: &UpstreamName, server_id: u64, clock: &Clock) -> Vec<PeerHealth> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes());
        let Some(table) = up.and_then(|up| up.table(self.zone())) else { return Vec::new() };
        let region = self.region();
        let Ok(cold) = record::decode_upstream_cold(&table.cold().read(region)) else {
            // Only another build's memory could cause it.
            return Vec::new();
        };
        let identity = cold.settings.check.map(|check| check.identity());
        let has_rules = cold.settings.outlier.is_some();
        let mut peers = Vec::new();
        for entry in table.entries().iter().map(Entry::read) {
            let peer = Peer::at(region, entry.peer).filter(|peer| peer.server_id() == server_id);
            let Some(peer) = peer else { continue };
            let Some(address) = Address::at(region, peer.address()) else { continue };
            let verdict = Verdict::from_word(get(peer.verdict()));
            peers.push(PeerHealth {
                address: address.text(),
                bar: bar(peer, clock.msec),
                // That of a former check says nothing any more.
                verdict: identity.map(|identity| match verdict.check() == identity {
                    true => verdict,
                    false => Verdict::new(identity),
                }),
                counts: Counts::from_word(get(peer.checks())),
                last: Last::from_word(get(peer.checked())),
                external: External::from_word(get(peer.external())),
                ejection: has_rules.then(|| Ejection::from_word(get(peer.ejection()))),
            });
        }
        peers
    }
}
