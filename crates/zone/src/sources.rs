//! Servers of sources as their watchers see them: which ones there are, which fail, which are idle.

use peerage_core::change::Change;
use peerage_core::check::bar::Bar;
use peerage_core::consul::guard::Known;
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_shm::Region;

use crate::batch::Checks;
use crate::board::Source;
use crate::change::{Attempt, Env};
use crate::choice::Clock;
use crate::health::{bar, bars_by_failures};
use crate::layout::Peer;
use crate::stored::StoredServer;
use crate::worker::Worker;

/// How long a server is kept that its source names no longer, ms: one that is named again by then
/// is the same server still.
const LINGER: u64 = 10_000;

/// Vanished servers of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vanished {
    /// Ids of those that may go: for `Change::Reap`.
    pub idle: Vec<u64>,
    /// Others may go later.
    pub more: bool,
}

impl Worker {
    /// The servers of a source in an upstream; none where there is no such upstream.
    pub fn sourced(&self, name: &UpstreamName, origin: &Origin, clock: &Clock) -> Vec<Known> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes());
        let Some(stored) = up.and_then(|up| self.zone().load(up)) else { return Vec::new() };
        let servers = stored.upstream.servers.iter().zip(&stored.servers);
        let own = servers.filter(|(server, _)| server.origin == *origin);
        own.filter_map(|(server, lies)| {
            let fails = fails(self.region(), lies, clock);
            Some(Known { addr: server.addr.clone(), said: server.source?, fails })
        })
        .collect()
    }

    /// Puts in force what follows from a source, as long as its watch is this process's. Busy where
    /// it is another's: whoever was stopped since it looked would bring back what is no longer so.
    pub fn change_of_source(
        &self,
        name: &UpstreamName,
        change: &Change,
        env: &Env<'_>,
        source: Source,
    ) -> Attempt {
        let lease = self.source_lease(source);
        let may = || lease.is_some_and(|lease| lease.owner() == self.pid());
        self.change_by(name, change, env, &Checks { may: &may, ..Checks::NONE })
    }

    /// Every source that servers of the zone are of, with the upstreams in which they are.
    pub fn followed(&self) -> Vec<(UpstreamName, Origin)> {
        let mut all = Vec::new();
        let mut bucket = 0;
        loop {
            let _section = self.enter();
            let Some(chain) = self.zone().bucket_at(bucket) else { return all };
            for stored in chain.filter_map(|up| self.zone().load(up)) {
                let servers = stored.upstream.servers.iter();
                let mut origins: Vec<&Origin> =
                    servers.filter(|s| s.source.is_some()).map(|s| &s.origin).collect();
                if !stored.upstream.origin.is_own() {
                    origins.push(&stored.upstream.origin);
                }
                origins.sort_unstable_by_key(ToString::to_string);
                origins.dedup();
                let name = &stored.upstream.name;
                all.extend(origins.into_iter().map(|origin| (name.clone(), origin.clone())));
            }
            bucket += 1;
        }
    }

    /// The vanished servers of an upstream, of whatever source. Those go that have had no request
    /// for a while; those that an operator has said something of stay until that is taken back.
    pub fn vanished(&self, name: &UpstreamName, clock: &Clock) -> Vanished {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes());
        let Some(stored) = up.and_then(|up| self.zone().load(up)) else {
            return Vanished::default();
        };
        let mut vanished = Vanished::default();
        for (server, lies) in stored.upstream.servers.iter().zip(&stored.servers) {
            let Some(since) = server.source.and_then(|said| said.vanished()) else { continue };
            let over = since.saturating_add(LINGER) <= clock.msec;
            let idle = || lies.peers(self.region()).all(|peer| peer.active() == 0);
            if server.is_spoken_of() || !over || !idle() {
                vanished.more = true;
            } else {
                vanished.idle.push(server.id);
            }
        }
        vanished
    }
}

/// Whether each of a server's peers does not answer: its check or an outside checker says so, or
/// the last request to it failed.
fn fails(region: &Region, server: &StoredServer, clock: &Clock) -> bool {
    let failing = |peer: Peer| {
        matches!(bar(peer, clock.msec), Some(Bar::Failed(_) | Bar::External | Bar::Ejected))
            || bars_by_failures(peer)
    };
    let mut peers = server.peers(region).peekable();
    peers.peek().is_some() && peers.all(failing)
}
