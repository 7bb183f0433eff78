//! An upstream as it lies in the zone: read into the model, with the records behind it.

use std::net::IpAddr;

use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::server::Server;
use peerage_core::upstream::Upstream;
use peerage_shm::{Ref, Region};

use crate::hosts;
use crate::layout::{Blob, Entry, Peer, Table, Up};
use crate::part::Part;
use crate::texts;
use crate::worker::Worker;
use crate::zone::Zone;

/// An upstream read from the zone.
pub(crate) struct Stored {
    pub(crate) up: Up,
    /// The upstream's record.
    pub(crate) at: Ref,
    /// `Up::stamp` when it was read.
    pub(crate) stamp: u64,
    /// The table word it was read from.
    pub(crate) word: u64,
    pub(crate) revision: u64,
    pub(crate) cold: Blob,
    pub(crate) texts: Blob,
    pub(crate) primaries: usize,
    pub(crate) part: Part,
    pub(crate) upstream: Upstream,
    /// Beside `upstream.servers`, in the same order.
    pub(crate) servers: Vec<StoredServer>,
}

/// Where a server lies.
pub(crate) struct StoredServer {
    pub(crate) cold: Blob,
    /// Its entries: one, or one for each address of a name.
    pub(crate) entries: Vec<Entry>,
}

impl StoredServer {
    /// Records of its peers on a machine.
    pub(crate) fn peers_on(&self, ip: IpAddr, region: &Region) -> impl Iterator<Item = Peer> {
        let wanted = hosts::mark(ip.to_canonical());
        let there = self.entries.iter().filter(move |entry| entry.host == wanted);
        there.filter_map(|entry| Peer::at(region, entry.peer))
    }

    /// Records of its peers.
    pub(crate) fn peers(&self, region: &Region) -> impl Iterator<Item = Peer> {
        self.entries.iter().filter_map(|entry| Peer::at(region, entry.peer))
    }
}

impl Stored {
    /// Every entry of the table.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.servers.iter().flat_map(|server| server.entries.iter().copied())
    }
}

impl Zone {
    /// Reads an upstream. To be called inside a read section or under the lock.
    ///
    /// `None` where the records do not read back, which only another build's memory could cause.
    pub(crate) fn load(&self, up: Up) -> Option<Stored> {
        let region = self.region();
        let stamp = up.stamp();
        let table = up.table(self)?;
        let mut upstream = record::decode_upstream_cold(&table.cold().read(region)).ok()?;
        upstream.settings.texts = texts::read(region, table.texts())?;
        let (servers, upstream) = read_servers(region, table, upstream)?;
        Some(Stored {
            up,
            at: up.place(region),
            stamp,
            word: table.word(),
            revision: table.revision(),
            cold: table.cold(),
            texts: table.texts(),
            primaries: table.primaries(),
            part: table.part(),
            upstream,
            servers,
        })
    }
}

/// The records do not read back.
pub(crate) struct Unread;

impl Worker {
    /// Reads an upstream; `None`: there is none.
    pub(crate) fn stored(&self, name: &UpstreamName) -> Result<Option<Stored>, Unread> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes());
        match up.filter(|up| up.table(self.zone()).is_some()) {
            Some(up) => self.zone().load(up).map(Some).ok_or(Unread),
            None => Ok(None),
        }
    }
}

fn read_servers(
    region: &Region,
    table: Table,
    mut upstream: Upstream,
) -> Option<(Vec<StoredServer>, Upstream)> {
    let mut entries: Vec<Entry> = table.entries().iter().map(Entry::read).collect();
    // Primaries come first in the table; the model keeps the order in which they were declared.
    entries.sort_by_key(|entry| entry.order);
    let mut servers: Vec<StoredServer> = Vec::with_capacity(entries.len());
    let mut order = None;
    for entry in entries {
        if order == Some(entry.order) {
            servers.last_mut()?.entries.push(entry);
            continue;
        }
        order = Some(entry.order);
        let server: Server = record::decode_server(&entry.cold().read(region)).ok()?;
        upstream.servers.push(server);
        servers.push(StoredServer { cold: entry.cold(), entries: vec![entry] });
    }
    Some((servers, upstream))
}
