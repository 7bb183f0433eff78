//! A table before it has a place: everything that a change needs, computed outside the lock.

use std::collections::HashMap;
use std::net::IpAddr;

use peerage_core::addr::ServerAddr;
use peerage_core::field;
use peerage_core::host::Hosts;
use peerage_core::record;
use peerage_core::server::{AdminState, Server};
use peerage_core::upstream::{Method, Upstream};
use peerage_shm::{Ref, Region};

use crate::address::{AddressBlock, Socket};
use crate::health::Checkup;
use crate::hosts;
use crate::layout::{Blob, Entry, Peer, Shut, Table, granules, words_of};
use crate::part::{NewPart, Weighted};
use crate::shut;
use crate::stored::{Stored, StoredServer};
use crate::texts;

/// What a new table will hold.
pub(crate) struct Sketch {
    /// Primaries first.
    pub(crate) entries: Vec<SketchEntry>,
    pub(crate) primaries: usize,
    pub(crate) servers: u32,
    /// The settings; `None` where the stored ones stay.
    pub(crate) cold: Option<Vec<u8>>,
    /// The texts, no bytes where it has none; `None` where the stored ones stay.
    pub(crate) texts: Option<Vec<u8>>,
    pub(crate) method: Method,
    pub(crate) part: NewPart,
    /// Words that the stored table has for the same method.
    had: usize,
    pub(crate) until: u64,
    pub(crate) orphaned: u64,
    pub(crate) declared: bool,
    /// A server is a name that is resolved at run time.
    pub(crate) names: bool,
    /// What the settings mean for the health of peers.
    pub(crate) checkup: Checkup,
    /// Such servers came or went.
    pub(crate) moves_names: bool,
    /// Cold parts to write, by number.
    pub(crate) blobs: Vec<Vec<u8>>,
}

/// One entry, with what it still lacks.
pub(crate) struct SketchEntry {
    pub(crate) entry: Entry,
    /// The cold part to write, where the entry has no stored one.
    pub(crate) blob: Option<usize>,
    pub(crate) peer: NewPeer,
    pub(crate) server_id: u64,
    /// The server was not up before and is now: failures are forgotten.
    pub(crate) revived: bool,
    /// Whether the server is taken out, and when its connections are closed then, 0 = never.
    pub(crate) shut: (Shut, u64),
    /// Its source says that its checks fail.
    pub(crate) failing: bool,
}

/// Whether an entry's peer exists.
pub(crate) enum NewPeer {
    Kept,
    /// A server without an address has none.
    None,
    Make(Socket),
}

impl Sketch {
    /// Computes the table for `next`, keeping from `stored` what stays.
    pub(crate) fn new(
        same: Same,
        next: &Upstream,
        stored: Option<&Stored>,
        hosts: &Hosts,
        region: &Region,
    ) -> Self {
        let mut sketch = Self {
            entries: Vec::with_capacity(next.servers.len()),
            primaries: 0,
            servers: next.servers.len() as u32,
            cold: None,
            texts: None,
            method: next.settings.method(),
            part: NewPart::Number(0),
            had: 0,
            until: next.next_expiry().unwrap_or(u64::MAX),
            orphaned: next.orphaned_at.unwrap_or(u64::MAX),
            declared: next.declared.is_some(),
            names: named(Some(next)).next().is_some(),
            checkup: Checkup::of(next),
            moves_names: !named(Some(next)).eq(named(stored.map(|stored| &stored.upstream))),
            blobs: Vec::new(),
        };
        let cold = record::encode_upstream_cold(next);
        if !stored.is_some_and(|s| {
            s.cold.len as usize == cold.len() && region.eq_bytes(s.cold.at, 0, &cold)
        }) {
            sketch.cold = Some(cold);
        }
        if stored.is_none_or(|s| s.upstream.settings.texts != next.settings.texts) {
            sketch.texts = Some(texts::encode(&next.settings.texts));
        }
        let before = Before::new(same, stored);
        let mut backups = Vec::new();
        for (order, server) in next.servers.iter().enumerate() {
            let entries =
                sketch.server(next, server, order as u32, before.find(server), (hosts, region));
            if server.params.backup { &mut backups } else { &mut sketch.entries }.extend(entries);
        }
        sketch.primaries = sketch.entries.len();
        sketch.entries.extend(backups);
        sketch.had = stored
            .filter(|stored| stored.part.method == sketch.method)
            .map_or(0, |stored| stored.part.words(stored.primaries));
        let weighted = |e: &SketchEntry| {
            let Entry { weight, open, max_conns, .. } = e.entry;
            Weighted { weight: weight.into(), open, is_limited: max_conns != 0 }
        };
        let peers: Vec<Weighted> =
            sketch.entries[..sketch.primaries].iter().map(weighted).collect();
        sketch.part = NewPart::new(next, &peers, stored, region);
        sketch
    }

    /// Computes what only the table itself needs, not its size.
    pub(crate) fn draw(&mut self) {
        self.part.draw();
    }

    /// Makes do with what is kept in reserve.
    pub(crate) fn be_brief(&mut self) {
        self.part.be_brief(self.method, self.entries.len(), self.had);
    }

    /// Words of what it has for its method, what is there already included.
    pub(crate) fn part_words(&self) -> usize {
        self.part.words(self.primaries)
    }

    fn server(
        &mut self,
        next: &Upstream,
        server: &Server,
        order: u32,
        stored: Option<(&Server, &StoredServer)>,
        (down, region): (&Hosts, &Region),
    ) -> Vec<SketchEntry> {
        let limits = next.limits(server);
        let kept = stored.filter(|(before, _)| *before == server).map(|(_, s)| s.cold);
        let (cold, blob) = match kept {
            Some(cold) => (cold, None),
            None => {
                let bytes = record::encode_server(server);
                let cold = Blob { at: Ref::NONE, len: bytes.len() as u32 };
                self.blobs.push(bytes);
                (cold, Some(self.blobs.len() - 1))
            }
        };
        let base = Entry {
            peer: Ref::NONE,
            cold: cold.at,
            cold_len: cold.len as u16,
            open: false,
            bound: false,
            routed: !server.params.route.is_empty(),
            backup: server.params.backup,
            weight: limits.weight,
            max_fails: limits.max_fails.min(u32::from(u16::MAX)) as u16,
            max_conns: limits.max_conns,
            fail_timeout: limits.fail_timeout.0,
            slow_start: limits.slow_start.0.min(field::MAX_SLOW_START.0) as u16,
            order,
            host: 0,
        };
        let was_up = stored.is_none_or(|(before, _)| before.wanted() == AdminState::Up);
        // Of a name, only the addresses on a host that is down are closed.
        let entry = |ip: Option<IpAddr>, old: Option<Entry>, new: NewPeer| {
            let host = ip.and_then(|ip| down.get(ip));
            let wanted = match host {
                Some(host) if server.wanted() == AdminState::Up => host.state,
                _ => server.wanted(),
            };
            let up = wanted == AdminState::Up;
            let shut = shut::wanted(server, host);
            let is_down = |state| state == AdminState::Down;
            let bound = !is_down(server.admin.state) && !host.is_some_and(|h| is_down(h.state));
            let was_up = was_up && old.is_none_or(|old| old.open || old.weight == 0);
            SketchEntry {
                entry: Entry {
                    peer: old.map_or(Ref::NONE, |old| old.peer),
                    open: up && limits.weight > 0,
                    bound,
                    host: ip.map_or(0, hosts::mark),
                    ..base
                },
                blob,
                peer: new,
                server_id: server.id,
                revived: !was_up && up,
                shut,
                failing: server.source.is_some_and(|said| said.failing),
            }
        };
        let sockets = sockets(server);
        if sockets.is_empty() {
            let none = SketchEntry { entry: base, ..entry(None, None, NewPeer::None) };
            return vec![none];
        }
        let before = stored.map(|(before, stored)| (self::sockets(before), stored));
        let find = |socket: &Socket| {
            let (before, stored) = before.as_ref()?;
            let place = before.iter().position(|s| s == socket)?;
            stored.entries.get(place).copied().filter(|e| Peer::at(region, e.peer).is_some())
        };
        sockets
            .into_iter()
            .map(|socket| match find(&socket) {
                Some(old) => entry(socket.ip(), Some(old), NewPeer::Kept),
                None => entry(socket.ip(), None, NewPeer::Make(socket)),
            })
            .collect()
    }

    /// Granules that the change needs beside the upstream's own record.
    pub(crate) fn granules(&self) -> u64 {
        let blobs = self.blobs.iter().chain(&self.cold).chain(&self.texts);
        let blobs = blobs.map(|b| granules(words_of(b.len())));
        let peers = self.entries.iter().map(|e| match &e.peer {
            NewPeer::Make(socket) => Peer::GRANULES + AddressBlock::new(socket, 0).granules(),
            NewPeer::Kept | NewPeer::None => 0,
        });
        u64::from(Table::granules(self.entries.len()))
            + u64::from(granules(self.part.new_words()))
            + blobs.chain(peers).map(u64::from).sum::<u64>()
    }
}

/// By what a server is one that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Same {
    /// By its id: one that was removed and added again is another.
    Id,
    /// By its address: ids were given by another zone.
    Addr,
}

/// Stored servers, to be found.
struct Before<'a> {
    stored: Option<&'a Stored>,
    places: Places<'a>,
}

enum Places<'a> {
    ById(Vec<(u64, usize)>),
    ByAddr(HashMap<&'a ServerAddr, usize>),
}

impl<'a> Before<'a> {
    fn new(same: Same, stored: Option<&'a Stored>) -> Self {
        let servers = stored.map_or(&[][..], |s| &s.upstream.servers).iter().enumerate();
        let places = match same {
            Same::Id => {
                let mut places: Vec<_> = servers.map(|(i, s)| (s.id, i)).collect();
                places.sort_unstable();
                Places::ById(places)
            }
            Same::Addr => Places::ByAddr(servers.map(|(i, s)| (&s.addr, i)).collect()),
        };
        Self { stored, places }
    }

    fn find(&self, server: &Server) -> Option<(&'a Server, &'a StoredServer)> {
        let i = match &self.places {
            Places::ById(places) => {
                places[places.binary_search_by_key(&server.id, |&(id, _)| id).ok()?].1
            }
            Places::ByAddr(places) => *places.get(&server.addr)?,
        };
        let stored = self.stored?;
        Some((&stored.upstream.servers[i], &stored.servers[i]))
    }
}

/// The servers that are resolved at run time.
pub(crate) fn named(upstream: Option<&Upstream>) -> impl Iterator<Item = (u64, &ServerAddr)> {
    let servers = upstream.into_iter().flat_map(|upstream| &upstream.servers);
    servers.filter(|server| server.resolvable().is_some()).map(|server| (server.id, &server.addr))
}

/// Where a server's peers listen: one place, or each address of its name.
pub(crate) fn sockets(server: &Server) -> Vec<Socket> {
    match &server.addr {
        ServerAddr::Inet(addr) => vec![Socket::Inet(*addr)],
        ServerAddr::Unix(path) => vec![Socket::Unix(path.to_string())],
        ServerAddr::Name { .. } => server.addrs.iter().copied().map(Socket::Inet).collect(),
    }
}
