//! What one process has still to close of servers that were taken out.
//!
//! A process looks when it is woken and every half second. What it closes of a server: idle
//! connections, at once where it is down or gone and when its last request has ended where it
//! drains; and again whenever a request to it has ended since, because nginx keeps the connection
//! of that request. Once its count is 0 nothing of this process can become idle any more: nginx
//! gives a connection to its cache before the balancer gives the server back. When the time of
//! `close` comes, connections with requests too.

use std::collections::{HashMap, HashSet};

use peerage_core::record;
use peerage_shm::{Ref, count};

use crate::address::{Address, is_unix, known};
use crate::choice::Choice;
use crate::layout::{Entry, Peer, Shut, get, pack};
use crate::shut::{Taken, wanted};
use crate::worker::Worker;

/// Servers that were taken out and to which this process may have connections.
#[derive(Debug)]
pub struct Closing {
    /// How far the zone's ring is read.
    at: u64,
    /// By record and number of the peer.
    left: HashMap<u64, Left>,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    taken: Taken,
    /// Its count when idle connections were closed last; `None`: they have not been.
    seen: Option<u64>,
    /// When its connections were shut, unix ms.
    shut_at: Option<u64>,
}

/// How a request ends whose connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As if the server had closed the connection.
    Shut,
    /// As if its time were over: it did not look at its connection, a while after that was shut.
    Expire,
}

/// What is to be closed now.
#[derive(Debug, Default)]
pub struct Due {
    /// Addresses, each with the numbers of its upstreams.
    closed: HashMap<u32, Vec<u32>>,
    /// Addresses with the number of the upstream that are not closed, where all others are.
    open: Option<HashSet<(u32, u32)>>,
    /// Peers whose requests are to end.
    requests: HashMap<u64, How>,
}

/// ms that a request has to see that its connection was shut.
const PATIENCE: u64 = 400;

impl Closing {
    /// For a process that has no connections yet.
    pub fn new(worker: &Worker) -> Self {
        Self { at: worker.zone().shut_head(), left: HashMap::new() }
    }

    /// Looks what is to be closed; `now` in unix ms.
    pub fn look(&mut self, worker: &Worker, now: u64) -> Due {
        let mut due = Due::default();
        if self.at == worker.zone().shut_head() && self.left.is_empty() {
            return due;
        }
        let region = worker.region();
        match worker.zone().taken_since(&mut self.at) {
            Ok(taken) => taken.into_iter().for_each(|taken| self.take(taken)),
            Err(_) => due.open = Some(self.look_at_all(worker)),
        }
        let _section = worker.enter();
        self.left.retain(|&key, left| {
            let (at, uid) = left.taken.peer;
            let peer = Peer::at(region, at);
            let shut = peer.map_or(Shut::Gone, |peer| peer.shut(uid));
            // A record that has another number is another's: nobody holds this one any more.
            let word =
                peer.filter(|peer| peer.uid() == uid).map_or(0, |peer| get(peer.in_flight()));
            let idle = match shut {
                Shut::Open => return false,
                Shut::Drain => count(word) == 0 && left.seen != Some(word),
                Shut::Down | Shut::Gone => left.seen != Some(word),
            };
            if idle {
                let (address, upstream) = left.taken.address;
                due.closed.entry(address).or_default().push(upstream);
                left.seen = Some(word);
            }
            if count(word) != 0 && left.taken.close != 0 && left.taken.close <= now {
                let since = *left.shut_at.get_or_insert(now);
                let how = if now < since + PATIENCE { How::Shut } else { How::Expire };
                due.requests.insert(key, how);
            }
            // Requests that are bound to one that drains may still begin.
            count(word) != 0 || shut == Shut::Drain
        });
        due
    }

    fn take(&mut self, taken: Taken) {
        let (at, uid) = taken.peer;
        self.left.insert(pack(at.raw(), uid), Left { taken, seen: None, shut_at: None });
    }

    /// After not all was told: finds what is taken out and still has requests, and gives what is
    /// not taken out.
    fn look_at_all(&mut self, worker: &Worker) -> HashSet<(u32, u32)> {
        let zone = worker.zone();
        self.at = zone.shut_head();
        let hosts = worker.hosts();
        let mut held: HashMap<Ref, u32> = HashMap::new();
        zone.shared().each_held(|record| {
            held.extend(Peer::at(worker.region(), record).map(|peer| (record, peer.uid())));
        });
        let mut open = HashSet::new();
        let mut bucket = 0;
        loop {
            let _section = worker.enter();
            let Some(chain) = zone.bucket_at(bucket) else { break };
            for entry in chain.filter_map(|up| up.table(zone)).flat_map(|table| table.entries()) {
                let entry = Entry::read(entry);
                let Some(peer) = Peer::at(worker.region(), entry.peer) else { continue };
                held.remove(&peer.at);
                let shut = peer.shut(peer.uid());
                let Some(taken) = Taken::of(zone, peer, 0) else { continue };
                if shut == Shut::Open || shut == Shut::Drain && peer.active() != 0 {
                    open.insert(taken.address);
                }
                if shut == Shut::Drain || shut != Shut::Open && peer.active() != 0 {
                    let server = record::decode_server(&entry.cold().read(worker.region()));
                    let address = Address::at(worker.region(), peer.address());
                    let host = address.and_then(|address| hosts.get(address.ip()?));
                    let close = server.map_or(0, |server| wanted(&server, host).1);
                    self.take(Taken { close, ..taken });
                }
            }
            bucket += 1;
        }
        // What no table names any more, as long as it is held. Nobody else marks it now: a writer
        // does so when he takes it out of the table, or he died.
        let _section = worker.enter();
        for (at, uid) in held {
            let peer = Peer::at(worker.region(), at).filter(|peer| peer.uid() == uid);
            if !self.left.contains_key(&pack(at.raw(), uid))
                && let Some(peer) = peer
                && let Some(taken) = Taken::of(zone, peer, 0)
            {
                peer.set_gone(uid);
                self.take(taken);
            }
        }
        open
    }
}

impl Due {
    /// Whether idle connections are to be closed.
    pub fn has_idle(&self) -> bool {
        !self.closed.is_empty() || self.open.is_some()
    }

    /// Whether connections with requests are to be closed.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether an idle connection to that address may have to be closed.
    pub fn may_cover(&self, peer: &[u8]) -> bool {
        let Some((address, _)) = known(peer) else { return false };
        self.open.is_some() || self.closed.contains_key(&address) || is_unix(peer)
    }

    /// Whether an idle connection to the address `peer` (as the kernel gives it) is to be closed.
    ///
    /// nginx's cache of idle connections has each with the address that was dialled, and our number
    /// of the upstream inside. `memory` is what lies where the connection's data points to: where
    /// the address is found in it, that number decides; where it is not, the address does.
    pub fn covers(&self, peer: &[u8], memory: &[u8]) -> bool {
        let Some((address, _)) = known(peer) else { return false };
        let family = peer.get(..2);
        let found = (0..memory.len()).step_by(4).find_map(|at| {
            let bytes = &memory[at..];
            let found = known(bytes).filter(|_| bytes.get(..2) == family)?;
            // A unix socket may have been dialled by another path than it is bound to.
            (found.0 == address || is_unix(bytes) && bytes[2] == b'/').then_some(found)
        });
        match (found, &self.open) {
            (Some((_, 0)), _) => false,
            (Some(found), Some(open)) => !open.contains(&found),
            (None, Some(_)) => memory.is_empty(),
            (Some((address, upstream)), None) => {
                self.closed.get(&address).is_some_and(|ours| ours.contains(&upstream))
            }
            (None, None) => self.closed.contains_key(&address),
        }
    }

    /// Whether the request that made this choice is to end, and how.
    pub fn wants(&self, choice: &Choice) -> Option<How> {
        let record = choice.held.as_ref()?.held.record();
        self.requests.get(&pack(record.raw(), choice.last)).copied()
    }
}
