//! The hosts' layer of a zone: one blob, replaced as a whole together with the tables it covers.

use std::net::IpAddr;
use std::sync::atomic::Ordering::SeqCst;

use peerage_core::addr::ServerAddr;
use peerage_core::host::{Hosts, is_on};
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_shm::Region;

use crate::directory::hash;
use crate::layout::{Blob, Entry, Table, get, root, set, words_of};
use crate::worker::Worker;
use crate::zone::Zone;

/// The hosts as they lie in the zone.
#[derive(Default)]
pub(crate) struct StoredHosts {
    pub(crate) hosts: Hosts,
    pub(crate) blob: Blob,
    /// Revision of their last change.
    pub(crate) revision: u64,
    /// A number that no other hosts of this zone ever have; 0 = there never were any. What is taken
    /// over from a file may have the revision of what was there before.
    pub(crate) stamp: u64,
}

/// Words of a block before the bytes: the revision, and the stamp.
const HEAD: usize = 2;

/// Granules of the block.
pub(crate) const fn granules(blob: Blob) -> u32 {
    crate::layout::granules(HEAD + words_of(blob.len as usize))
}

/// Fills a block.
pub(crate) fn write(region: &Region, blob: Blob, bytes: &[u8], revision: u64, stamp: u64) {
    if let Some(head) = region.array::<HEAD>(blob.at) {
        set(&head[0], revision);
        set(&head[1], stamp);
    }
    region.write_bytes(blob.at, HEAD, bytes);
}

/// Revision of a block.
pub(crate) fn revision(region: &Region, blob: Blob) -> u64 {
    region.array::<HEAD>(blob.at).map_or(0, |head| get(&head[0]))
}

fn stamp(region: &Region, blob: Blob) -> u64 {
    region.array::<HEAD>(blob.at).map_or(0, |head| get(&head[1]))
}

impl Zone {
    /// The block in force. Inside a read section or under the lock.
    fn hosts_blob(&self) -> Blob {
        let next = Blob::from_word(self.root(root::HOSTS_NEXT).load(SeqCst));
        let in_force = self.root(root::REVISION).load(SeqCst);
        if !next.at.is_none() && revision(self.region(), next) <= in_force {
            return next;
        }
        Blob::from_word(self.root(root::HOSTS).load(SeqCst))
    }

    /// The stamp of the hosts. Inside a read section or under the lock.
    pub(crate) fn hosts_stamp(&self) -> u64 {
        stamp(self.region(), self.hosts_blob())
    }

    /// The hosts. Inside a read section or under the lock.
    pub(crate) fn stored_hosts(&self) -> StoredHosts {
        let blob = self.hosts_blob();
        if blob.at.is_none() {
            return StoredHosts::default();
        }
        let mut bytes = Vec::new();
        self.region().read_bytes(blob.at, HEAD, blob.len as usize, &mut bytes);
        // What this build wrote reads back.
        let hosts = record::decode_hosts(&bytes).unwrap_or_default();
        let region = self.region();
        StoredHosts { hosts, blob, revision: revision(region, blob), stamp: stamp(region, blob) }
    }
}

impl Worker {
    /// The admin states of hosts.
    pub fn hosts(&self) -> Hosts {
        self.hosts_at().0
    }

    /// The same with the revision of their last change.
    pub fn hosts_at(&self) -> (Hosts, u64) {
        let _section = self.enter();
        let stored = self.zone().stored_hosts();
        (stored.hosts, stored.revision)
    }

    /// Servers on a host: upstream, id and address.
    ///
    /// Looks at every table, but reads only upstreams that may have such a server.
    pub fn on_host(&self, ip: IpAddr) -> Vec<(UpstreamName, u64, ServerAddr)> {
        let wanted = mark(ip.to_canonical());
        let mut found = Vec::new();
        let mut bucket = 0;
        loop {
            let _section = self.enter();
            let Some(chain) = self.zone().bucket_at(bucket) else { return found };
            for up in chain {
                let table = up.table(self.zone());
                let may = |table: Table| {
                    table.entries().iter().any(|entry| Entry::read(entry).host == wanted)
                };
                if !table.is_some_and(may) {
                    continue;
                }
                let Some(stored) = self.zone().load(up) else { continue };
                let name = stored.upstream.name;
                let servers = stored.upstream.servers.into_iter().filter(|s| is_on(s, ip));
                found.extend(servers.map(|s| (name.clone(), s.id, s.addr)));
            }
            bucket += 1;
        }
    }
}

/// The hosts' layer as it was read last, to be read anew only when it has changed.
#[derive(Default)]
pub(crate) struct KnownHosts {
    stamp: u64,
    hosts: Hosts,
}

impl KnownHosts {
    /// The hosts of now. Inside a read section.
    pub(crate) fn look(&mut self, zone: &Zone) -> &Hosts {
        if self.stamp != zone.hosts_stamp() {
            let StoredHosts { hosts, stamp, .. } = zone.stored_hosts();
            *self = Self { stamp, hosts };
        }
        &self.hosts
    }
}

/// What entries keep of a machine's address: equal for equal addresses, 0 for none.
pub(crate) fn mark(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => hash(&ip.octets()).max(1),
        IpAddr::V6(ip) => hash(&ip.octets()).max(1),
    }
}
