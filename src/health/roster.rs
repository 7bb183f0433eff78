//! Which peers are to be probed, of the parts that are this process's.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use peerage_core::check::schedule::{Probed, Standing, Timing};
use peerage_core::name::UpstreamName;
use peerage_zone::{CheckedPeer, CheckedPeers, CheckedUpstream, Handle, Worker};

use super::holding::Parts;
use super::probe::{Question, Target};
use crate::ffi::timer;

/// A peer that is probed.
pub(crate) struct Peer {
    pub(crate) handle: Handle,
    pub(crate) target: Target,
    pub(super) upstream: Rc<UpstreamName>,
    pub(super) address: String,
}

/// The peers by their keys, and what is known of their upstreams.
#[derive(Default)]
pub(super) struct Roster {
    peers: HashMap<u64, Peer>,
    upstreams: HashMap<UpstreamName, Known>,
    parts: Parts,
    /// Goes up with other parts: all is read again then.
    epoch: u64,
    /// Generation and epoch that were read last.
    read: Option<(u64, u64)>,
    scan: Option<Scan>,
    scans: u64,
    /// Not before this time, monotonic ms, is anything read again.
    rest: u64,
}

/// An upstream as it was read last.
struct Known {
    revision: u64,
    epoch: u64,
    keys: Vec<u64>,
    /// The scan that has seen it last.
    scan: u64,
}

/// A walk over all upstreams, a slice at a time.
struct Scan {
    generation: u64,
    epoch: u64,
    bucket: usize,
    took: Duration,
}

/// What a look has changed.
#[derive(Default)]
pub(super) struct News {
    /// Peers that are probed no more, or by another check: what runs of them is over.
    pub(super) gone: Vec<u64>,
    /// Peers to be probed from now on, or at other times than before.
    pub(super) put: Vec<Probed>,
}

impl Roster {
    pub(super) fn peer(&self, key: u64) -> Option<&Peer> {
        self.peers.get(&key)
    }

    /// These are the parts from now on, at once; what is known of the lost ones is forgotten.
    pub(super) fn set_parts(&mut self, parts: Parts, lost: Parts) -> News {
        (self.parts, self.epoch, self.rest) = (parts, self.epoch + 1, 0);
        let gone: Vec<u64> = self.peers.keys().copied().filter(|&key| lost.has_peer(key)).collect();
        for key in &gone {
            self.peers.remove(key);
        }
        News { gone, ..News::default() }
    }

    /// Looks what has changed, if anything has, until about `end`.
    pub(super) fn look(&mut self, worker: &Worker, is_round: bool, end: Instant) -> News {
        let mut news = News::default();
        let now = (worker.zone().checks().now(), self.epoch);
        // An odd number is not final, and stays so until somebody repairs what a dead writer left.
        let is_new = self.read != Some(now) || is_round && !now.0.is_multiple_of(2);
        let is_stale = self.scan.as_ref().is_some_and(|scan| scan.epoch != self.epoch);
        if is_stale || self.scan.is_none() && is_new && timer::now() >= self.rest {
            self.scans += 1;
            let (generation, epoch) = now;
            self.scan = Some(Scan { generation, epoch, bucket: 0, took: Duration::ZERO });
        }
        let Some(mut scan) = self.scan.take() else { return news };
        let began = Instant::now();
        while let Some(some) = worker.checked_upstreams(scan.bucket) {
            scan.bucket += 1;
            for upstream in some {
                self.learn(worker, upstream, &mut news);
            }
            if scan.bucket.is_multiple_of(BUCKETS) && Instant::now() >= end {
                scan.took += began.elapsed();
                self.scan = Some(scan);
                return news;
            }
        }
        self.forget_unseen(&mut news);
        self.read = Some((scan.generation, scan.epoch));
        let took = u64::try_from((scan.took + began.elapsed()).as_millis()).unwrap_or(0);
        self.rest = timer::now() + (took * SHARE).max(REST_MS);
        news
    }

    /// In how many ms there is something to look at, as far as is known.
    pub(super) fn next(&self, worker: &Worker) -> Option<u64> {
        if self.scan.is_some() {
            return Some(1);
        }
        let is_new = self.read != Some((worker.zone().checks().now(), self.epoch));
        is_new.then(|| self.rest.saturating_sub(timer::now()).max(1))
    }

    fn learn(&mut self, worker: &Worker, seen: CheckedUpstream, news: &mut News) {
        let CheckedUpstream { name, revision } = seen;
        if let Some(known) = self.upstreams.get_mut(&name)
            && (known.revision, known.epoch) == (revision, self.epoch)
        {
            known.scan = self.scans;
            return;
        }
        let parts = self.parts;
        // One that is gone meanwhile is not seen.
        let Some(read) = worker.checked_peers(&name, |key| parts.has_peer(key)) else { return };
        let (epoch, scan, revision) = (self.epoch, self.scans, read.revision);
        let keys = self.take(&name, read, news);
        let stay: HashSet<u64> = keys.iter().copied().collect();
        let before = self.upstreams.insert(name, Known { revision, epoch, keys, scan });
        let before = before.into_iter().flat_map(|known| known.keys);
        self.forget(before.filter(|key| !stay.contains(key)), news);
    }

    /// Takes the peers of an upstream; gives their keys.
    fn take(&mut self, name: &UpstreamName, read: CheckedPeers, news: &mut News) -> Vec<u64> {
        let timing = Timing::of(&read.check);
        let mut keys = Vec::with_capacity(read.peers.len());
        for (read, peer) in peers(name, read).filter(|(read, _)| !read.paused) {
            let (key, standing) = (read.handle.key(), Standing::of(read.verdict));
            keys.push(key);
            news.put.push(Probed { key, timing, began: read.began, standing });
            let former = self.peers.insert(key, peer);
            if former.is_some_and(|former| former.handle.check() != read.handle.check()) {
                news.gone.push(key);
            }
        }
        keys
    }

    fn forget(&mut self, keys: impl Iterator<Item = u64>, news: &mut News) {
        for key in keys {
            self.peers.remove(&key);
            news.gone.push(key);
        }
    }

    /// Forgets the upstreams that the scan has not seen.
    fn forget_unseen(&mut self, news: &mut News) {
        let scans = self.scans;
        let unseen = self.upstreams.extract_if(|_, known| known.scan != scans);
        let keys: Vec<u64> = unseen.flat_map(|(_, known)| known.keys).collect();
        self.forget(keys.into_iter(), news);
    }
}

/// The peers of an upstream as they are asked, beside what was read of them.
pub(super) fn peers(
    name: &UpstreamName,
    read: CheckedPeers,
) -> impl Iterator<Item = (CheckedPeer, Peer)> {
    let question = Rc::new(Question::new(read.check, name, &read.texts));
    let upstream = Rc::new(name.clone());
    read.peers.into_iter().filter_map(move |read| {
        let target = Target::new(&question, &read.sockaddr)?;
        let (handle, address) = (read.handle, read.address.clone());
        let peer = Peer { handle, target, upstream: Rc::clone(&upstream), address };
        Some((read, peer))
    })
}

/// Buckets between two looks at the clock.
const BUCKETS: usize = 16;
/// Between two looks at all upstreams, at least.
const REST_MS: u64 = 20;
/// And so many times as long as the last one took.
const SHARE: u64 = 20;
