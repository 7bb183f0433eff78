//! How much of a zone things take; docs/directives.md says the same in words, "Size of a zone".
//!
//! What is always there depends on the zone's own size, since some of it is a share of the whole.
//! What upstreams take does not. Figures are exact: they are what the allocator gives out.

use std::net::SocketAddr;

use peerage_core::addr::ServerAddr;
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::route::Route;
use peerage_core::server::{Admin, Origin, Params, Server};
use peerage_core::upstream::{Method, Settings, Upstream};
use peerage_shm::{Config, Region};

use crate::directory::bucket_count;
use crate::hosts;
use crate::layout::{Blob, Peer, Table, Up, granules};
use crate::part;
use crate::routes;
use crate::sketch::{Same, Sketch};
use crate::stored::Stored;
use crate::zone::{Format, Report};

/// Bytes of a granule, in which memory is given out.
pub(crate) const GRANULE: u64 = 32;

/// Granules kept for the admin state of each server: short texts always fit, see `Attempt`.
const ADMIN_GRANULES: u64 = 2;
/// Granules kept besides, for limbo blocks and what does not fit together exactly.
const SPARE_GRANULES: u64 = 128;
/// Bytes that a new zone has besides what is always there, at least.
const LEAST: u64 = 2 * SPARE_GRANULES * GRANULE;

/// Bytes that a zone needs for what it is to hold, besides what is always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Of upstreams, servers, hosts, and routes.
    pub content: u64,
    /// Kept in reserve for them.
    pub reserve: u64,
    /// Of routes alone, which may take half of a zone.
    pub routes: u64,
}

impl Need {
    /// Of these upstreams under these hosts, in a zone that holds nothing else.
    pub fn of<'a>(upstreams: impl IntoIterator<Item = &'a Upstream>, hosts: &Hosts) -> Self {
        let (mut content, mut tables, mut servers) = (hosts_granules(hosts), 0, 0);
        for upstream in upstreams {
            let sketch = Sketch::new(Same::Id, upstream, None, hosts, &Region::new(&[]));
            content += record_granules(&upstream.name) + sketch.granules();
            tables += sketch.second_table();
            servers += u64::from(sketch.servers);
        }
        Self { content: content * GRANULE, reserve: kept(tables, servers) * GRANULE, routes: 0 }
    }

    /// The same with these routes, which come without any of before.
    pub fn and_routes<'a>(self, routes: impl IntoIterator<Item = &'a Route>) -> Self {
        let routes = routes::bytes_of(routes);
        Self { content: self.content + routes, routes: self.routes + routes, ..self }
    }

    /// In all: as much as routes take is left to others.
    pub const fn bytes(self) -> u64 {
        let (all, twice) = (self.content + self.reserve, 2 * self.routes);
        if all > twice { all } else { twice }
    }
}

impl Format {
    /// Bytes of a region of that size that are given out when it is laid out, for good.
    pub fn fixed(&self, region: u64) -> u64 {
        let bytes = usize::try_from(region).unwrap_or(usize::MAX);
        let rings = [events_bytes(bytes), journal_bytes(bytes), shut_bytes(bytes)];
        let blocks = rings.into_iter().map(|bytes| bytes / 8).chain([bucket_count(bytes)]);
        let blocks: u64 = blocks.map(|words| u64::from(granules(words))).sum();
        self.config().laid_out(bytes) as u64 + blocks * GRANULE
    }

    /// The smallest size of a zone, in steps of `step`, that has room for so much besides what is
    /// always there; `region` tells how much of a size is the zone's own.
    pub fn size_for(&self, need: u64, step: u64, region: &dyn Fn(u64) -> u64) -> u64 {
        let need = need.max(LEAST);
        let mut size = need.next_multiple_of(step);
        loop {
            let region = region(size);
            let short = (self.fixed(region) + need).saturating_sub(region);
            if short == 0 {
                return size;
            }
            size += short.next_multiple_of(step);
        }
    }

    pub(crate) const fn config(&self) -> Config {
        Config {
            build: self.build,
            slots: self.slots,
            list_capacity: self.connections,
            record_granules: Peer::GRANULES,
        }
    }
}

impl Report {
    /// How many servers with short texts still fit, ten to an upstream, about.
    pub fn fits(&self) -> u64 {
        let need = Need::of(&ten_servers(), &Hosts::default());
        let ten = need.bytes() - SPARE_GRANULES * GRANULE;
        self.free.saturating_sub(self.reserve) * 10 / ten
    }
}

impl Sketch {
    /// See [`second_table`].
    pub(crate) fn second_table(&self) -> u64 {
        second_table(self.entries.len(), self.method, self.part_words())
    }
}

impl Stored {
    /// See [`second_table`].
    pub(crate) fn second_table(&self) -> u64 {
        let words = self.part.words(self.primaries);
        second_table(self.entries().count(), self.part.method, words)
    }
}

/// Granules of an upstream's own record.
pub(crate) fn record_granules(name: &UpstreamName) -> u64 {
    Up::granules(name.as_str().len()).into()
}

/// Granules of the hosts' block.
pub(crate) fn hosts_granules(hosts: &Hosts) -> u64 {
    if hosts.is_empty() {
        return 0;
    }
    let len = record::encode_hosts(hosts).len() as u32;
    hosts::granules(Blob { len, ..Blob::default() }).into()
}

/// Bytes of the ring of events: 1/32 of the zone, within bounds.
pub(crate) fn events_bytes(zone_bytes: usize) -> usize {
    (zone_bytes / 32).clamp(8 << 10, 1 << 20)
}

/// Bytes of the journal's ring: 1/16 of the zone, at most 4 MiB; a very small zone does without.
pub(crate) fn journal_bytes(zone_bytes: usize) -> usize {
    if zone_bytes < 60 << 10 { 0 } else { (zone_bytes / 16).next_multiple_of(32).min(4 << 20) }
}

/// Bytes of the ring of servers taken out: 1/64 of the zone, within bounds.
pub(crate) fn shut_bytes(zone_bytes: usize) -> usize {
    (zone_bytes / 64).next_multiple_of(32).clamp(1 << 10, 64 << 10)
}

/// Granules that changes out of the reserve take for an upstream of so many entries, which has so
/// many words for its method now: a new table beside the one in force, until that is freed, with
/// the record of what is retired; and where shares or keys do not hold without, a new order or
/// ring, larger perhaps than the one it has.
pub(crate) const fn second_table(entries: usize, method: Method, words: usize) -> u64 {
    let brief = granules(part::brief_words(entries, method, words)) as u64;
    Table::granules(entries) as u64 + 1 + brief + brief.saturating_sub(granules(words) as u64)
}

/// What is kept so that `up`, `down`, `drain`, of hosts too, and weights never fail for lack of
/// room: a second table of each upstream, since a host may have servers in all of them, and for
/// each server what its admin state adds to its cold part. Granules.
pub(crate) const fn kept(tables: u64, servers: u64) -> u64 {
    tables + servers * ADMIN_GRANULES + SPARE_GRANULES
}

/// Such as many have.
fn ten_servers() -> Option<Upstream> {
    let server = |i: u16| Server {
        id: 1000,
        addr: ServerAddr::Inet(SocketAddr::from(([10, 0, 0, 10], 8080 + i))),
        given: None,
        origin: Origin::Api,
        params: Params::default(),
        admin: Admin::default(),
        declared: None,
        source: None,
        resolve: false,
        addrs: Vec::new(),
    };
    Some(Upstream {
        name: UpstreamName::parse("upstream").ok()?,
        origin: Origin::Api,
        settings: Settings::default(),
        declared: None,
        servers: (0..10).map(server).collect(),
        removed: Vec::new(),
        orphaned_at: None,
    })
}

#[cfg(test)]
mod tests {
    use peerage_core::body::{Field, LimitsBody, ServerBody, UpstreamBody};
    use peerage_core::change::{Actor, Change};
    use peerage_core::upstream::{Defaults, ServerSel};
    use peerage_shm::AtomicU64;

    use super::*;
    use crate::change::{Attempt, Env};
    use crate::choice::Clock;
    use crate::worker::Worker;
    use crate::zone::Zone;

    fn change(worker: &Worker, name: &str, change: &Change) -> Attempt {
        let env = Env {
            clock: &Clock { secs: 1, msec: 1_000 },
            actor: Actor::new("test", "127.0.0.1"),
            origin: Origin::Api,
            named: &|_| false,
            keyed: Defaults::default(),
            resolves: false,
        };
        worker.change(&UpstreamName::parse(name).expect("a name"), change, &env)
    }

    fn put(servers: usize) -> Change {
        let addr = |i| ServerAddr::parse(&format!("10.0.0.1:{}", i + 1)).ok();
        let server = |i| ServerBody { addr: addr(i), ..ServerBody::default() };
        let servers = Some((0..servers).map(server).collect());
        Change::PutUpstream { body: UpstreamBody { servers, ..UpstreamBody::default() } }
    }

    #[test]
    fn what_the_last_change_took_out_of_the_reserve_is_waited_for() {
        let words: Box<[AtomicU64]> = (0..32 << 10).map(|_| AtomicU64::new(0)).collect();
        let lock = Box::leak(Box::new(AtomicU64::new(0)));
        let format = Format { build: 1, slots: 4, connections: 16 };
        let zone = Zone::format(Region::new(Box::leak(words)), lock, &format).expect("it fits");
        let worker = zone.worker(1, 1, &format).expect("a slot is free");
        change(&worker, "large", &put(200));
        let full =
            |i: usize| matches!(change(&worker, &format!("u{i}"), &put(1)), Attempt::NoRoom { .. });
        assert!((0..1000).any(full));
        let weigh = |weight: u16| {
            let limits = LimitsBody { weight: Field::Given(weight), ..LimitsBody::default() };
            let body = ServerBody { limits, ..ServerBody::default() };
            let sel = ServerSel::Addr(ServerAddr::parse("10.0.0.1:1").expect("an address"));
            change(&worker, "large", &Change::PatchServer { sel, body })
        };
        // A reader that does not go on.
        let reader = zone.worker(2, 1, &format).expect("a slot is free");
        let section = reader.enter();
        let refused = (2..100).map(weigh).position(|one| !matches!(one, Attempt::Done { .. }));
        assert!(refused > Some(0) && matches!(weigh(999), Attempt::Busy), "{refused:?}");
        drop(section);
        assert!(matches!(weigh(999), Attempt::Done { .. }));
    }
}
