//! Whether a server that was taken out has no request any more.

use std::collections::BTreeSet;
use std::net::IpAddr;

use peerage_core::server::Server;
use peerage_shm::{Epoch, Ref};

use crate::address::Address;
use crate::layout::Peer;
use crate::worker::Worker;

/// The time since which a change is in force, and the servers it concerns.
#[derive(Clone, Debug)]
pub struct Mark {
    epoch: Epoch,
    concerned: Concerned,
}

/// Servers that a change concerns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Concerned {
    peers: Vec<(Ref, u32)>,
    /// Their socket addresses, with their upstreams' numbers inside.
    sockets: BTreeSet<Vec<u8>>,
    /// Ids of those that are names: they may have had other addresses.
    names: Vec<u64>,
    /// Peers of other servers of the same upstream, where names may have the same addresses.
    others: BTreeSet<(Ref, u32)>,
    /// Machines that all servers on are concerned of.
    hosts: Vec<IpAddr>,
}

/// How far a server is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// No process has a request to it, and none can begin one.
    pub drained: bool,
    /// Requests in flight.
    pub active: u32,
    /// Upgraded connections among them.
    pub upgraded: u32,
}

impl Mark {
    pub(crate) const fn new(epoch: Epoch, concerned: Concerned) -> Self {
        Self { epoch, concerned }
    }
}

impl Concerned {
    /// Adds a server with its peers.
    pub(crate) fn server(
        &mut self,
        worker: &Worker,
        server: &Server,
        peers: impl IntoIterator<Item = Peer>,
    ) {
        if server.addr.is_name() {
            self.names.push(server.id);
        }
        for peer in peers {
            self.peers.push((peer.at, peer.uid()));
            self.sockets.extend(socket(worker, peer).map(|socket| socket.sockaddr()));
        }
    }

    /// Adds the peers of servers that it is not about.
    pub(crate) fn others(&mut self, peers: impl IntoIterator<Item = Peer>) {
        self.others.extend(peers.into_iter().map(|peer| (peer.at, peer.uid())));
    }

    /// Adds the peers of a machine.
    pub(crate) fn host(&mut self, ip: IpAddr, peers: impl IntoIterator<Item = Peer>) {
        self.hosts.push(ip.to_canonical());
        self.peers.extend(peers.into_iter().map(|peer| (peer.at, peer.uid())));
    }

    fn has(&self, record: Ref) -> bool {
        self.peers.iter().any(|&(at, _)| at == record)
    }

    fn covers(&self, socket: &Address) -> bool {
        let on_host = || socket.ip().is_some_and(|ip| self.hosts.contains(&ip));
        self.sockets.contains(&socket.sockaddr()) || on_host()
    }
}

impl Worker {
    /// How far the servers that a change concerned are drained since that change.
    ///
    /// True only after a grace period, and then for good as long as they stay down: the count is
    /// raised inside the read section in which the server was found open.
    pub fn drain(&self, mark: &Mark) -> Drain {
        // Whether nobody can begin a request first, the count second: the other way around one
        // could begin in between.
        let passed = self.zone().shared().passed(mark.epoch);
        let concerned = &mark.concerned;
        let region = self.region();
        let lives = |&(at, uid): &(Ref, u32)| Peer::at(region, at).filter(|p| p.uid() == uid);
        let mut active: u32 = concerned.peers.iter().filter_map(lives).map(Peer::active).sum();
        if passed && active == 0 {
            active = self.of_former(concerned);
        }
        let mut upgraded = 0;
        if active > 0 {
            self.zone().shared().each_marked(|record| {
                upgraded += u32::from(concerned.has(record));
            });
        }
        Drain { drained: passed && active == 0, active, upgraded: upgraded.min(active) }
    }

    /// Requests to servers of the same address that were removed before: one that was removed and
    /// added again is another to the zone, and the same to whoever waits for its last request. And
    /// those to addresses that a name had before.
    fn of_former(&self, concerned: &Concerned) -> u32 {
        let mut held = BTreeSet::new();
        self.zone().shared().each_held(|record| {
            if !concerned.has(record) {
                held.insert(record);
            }
        });
        let peers = held.into_iter().filter_map(|at| Peer::at(self.region(), at));
        let covered = |peer: &Peer| {
            if concerned.others.contains(&(peer.at, peer.uid())) {
                return false;
            }
            concerned.names.contains(&peer.server_id())
                || socket(self, *peer).is_some_and(|s| concerned.covers(&s))
        };
        peers.filter(covered).map(Peer::active).sum()
    }
}

/// Where a peer listens. What is held is not reused; what is let go meanwhile may read as anything.
fn socket(worker: &Worker, peer: Peer) -> Option<Address> {
    Address::at(worker.region(), peer.address())
}
