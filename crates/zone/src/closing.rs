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
use peerage_shm::{Ref, Region, count};

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

impl Left {
    const fn of(taken: Taken) -> Self {
        Self { taken, seen: None, shut_at: None }
    }
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

    /// Looks what is to be closed; `now` in unix ms. `ours` gives the numbers of upstreams to which
    /// this process has idle connections, where that is asked.
    pub fn look(&mut self, worker: &Worker, now: u64, ours: &dyn Fn() -> HashSet<u32>) -> Due {
        let mut due = Due::default();
        let draining = worker.draining.take();
        if self.at == worker.zone().shut_head() && self.left.is_empty() && draining.is_empty() {
            return due;
        }
        let region = worker.region();
        match worker.zone().taken_since(&mut self.at) {
            Ok(taken) => {
                taken.iter().for_each(|&taken| self.take(taken));
                self.reach_former(region, &taken);
            }
            Err(_) => due.open = Some(self.look_at_all(worker, &ours())),
        }
        for taken in draining {
            self.left.entry(taken.key()).or_insert_with(|| Left::of(taken));
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
        self.left.insert(taken.key(), Left::of(taken));
    }

    /// Gives peers that are gone the time of their server: addresses that a name had before, and
    /// servers that were removed and added again. A wait for the drain counts them as well.
    fn reach_former(&mut self, region: &Region, told: &[Taken]) {
        let is_gone = |taken: &Taken| {
            let (at, uid) = taken.peer;
            Peer::at(region, at).is_none_or(|peer| peer.shut(uid) == Shut::Gone)
        };
        let server = |taken: &Taken| {
            let (at, uid) = taken.peer;
            Peer::at(region, at).filter(|peer| peer.uid() == uid).map(Peer::server_id)
        };
        if told.is_empty() || !self.left.values().any(|left| is_gone(&left.taken)) {
            return;
        }
        // The last word of each.
        let (mut servers, mut addresses) = (HashMap::new(), HashMap::new());
        for taken in told {
            let close = (taken.close != 0 || !is_gone(taken)).then_some(taken.close);
            servers.extend(server(taken).map(|id| (id, close)));
            addresses.insert(taken.address, close);
        }
        for left in self.left.values_mut().filter(|left| is_gone(&left.taken)) {
            let by_server = server(&left.taken).and_then(|id| servers.get(&id).copied()?);
            let close = by_server.or_else(|| addresses.get(&left.taken.address).copied()?);
            if let Some(close) = close.filter(|&close| close != left.taken.close) {
                left.taken.close = close;
                left.shut_at = None;
            }
        }
    }

    /// After not all was told: finds what is taken out and still has requests, and gives what is
    /// not taken out of the upstreams of these numbers.
    fn look_at_all(&mut self, worker: &Worker, ours: &HashSet<u32>) -> HashSet<(u32, u32)> {
        let zone = worker.zone();
        self.at = zone.shut_head();
        let hosts = worker.hosts();
        let mut named: HashMap<Ref, u32> = HashMap::new();
        zone.shared().each_held(|record| {
            named.extend(Peer::at(worker.region(), record).map(|peer| (record, peer.uid())));
        });
        // A record may have been given back before its number was read, and be anything by then:
        // what is held still, or again, had a table when its number was read.
        let mut held: HashMap<Ref, u32> = HashMap::new();
        zone.shared().each_held(|record| {
            held.extend(named.get(&record).map(|&uid| (record, uid)));
        });
        let (mut open, mut told) = (HashSet::new(), Vec::new());
        let mut bucket = 0;
        loop {
            let _section = worker.enter();
            let Some(chain) = zone.bucket_at(bucket) else { break };
            let entries = chain.filter_map(|up| {
                let is_ours = ours.contains(&up.uid());
                Some(up.table(zone)?.entries().iter().map(move |words| (is_ours, words)))
            });
            for (is_ours, words) in entries.flatten() {
                let entry = Entry::read(words);
                if !held.is_empty() {
                    held.remove(&entry.peer);
                }
                // Of most peers nothing more is of interest: a look at each would take too long.
                if entry.open && !is_ours {
                    continue;
                }
                let Some(peer) = Peer::at(worker.region(), entry.peer) else { continue };
                let shut = peer.shut(peer.uid());
                let Some(taken) = Taken::of(zone, peer, 0) else { continue };
                if shut == Shut::Open || shut == Shut::Drain && peer.active() != 0 {
                    open.insert(taken.address);
                }
                if shut != Shut::Open {
                    let server = record::decode_server(&entry.cold().read(worker.region()));
                    let address = Address::at(worker.region(), peer.address());
                    let host = address.and_then(|address| hosts.get(address.ip()?));
                    let close = server.map_or(0, |server| wanted(&server, host).1);
                    let taken = Taken { close, ..taken };
                    told.push(taken);
                    if shut == Shut::Drain || peer.active() != 0 {
                        self.take(taken);
                    }
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
        self.reach_former(worker.region(), &told);
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
        match (find(address, peer, memory), &self.open) {
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

/// The number of the upstream that an idle connection to the address `peer` belongs to, as
/// [`Due::covers`] finds it; 0 where it is none of ours.
pub fn upstream_of(peer: &[u8], memory: &[u8]) -> u32 {
    let found = known(peer).and_then(|(address, _)| find(address, peer, memory));
    found.map_or(0, |(_, upstream)| upstream)
}

/// Finds the address `peer` in memory, as it was dialled.
fn find(address: u32, peer: &[u8], memory: &[u8]) -> Option<(u32, u32)> {
    let family = peer.get(..2);
    (0..memory.len()).step_by(4).find_map(|at| {
        let bytes = &memory[at..];
        let found = known(bytes).filter(|_| bytes.get(..2) == family)?;
        // A unix socket may have been dialled by another path than it is bound to.
        (found.0 == address || is_unix(bytes) && bytes[2] == b'/').then_some(found)
    })
}
