//! How much of a zone things take; docs/directives.md says the same in words, "Size of a zone".
//!
//! What is always there depends on the zone's own size, since some of it is a share of the whole.
//! What upstreams take does not. Figures are exact: they are what the allocator gives out.

use std::net::SocketAddr;

use peerage_core::addr::ServerAddr;
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::select::EXACT_PEERS;
use peerage_core::server::{Admin, Origin, Params, Server};
use peerage_core::upstream::{Settings, Upstream};
use peerage_shm::{Config, Region};

use crate::directory::bucket_count;
use crate::hosts;
use crate::layout::{Blob, Peer, Table, Up, get, granules, root, set};
use crate::sketch::{PLACES, Sketch};
use crate::trace::Reachable;
use crate::worker::Worker;
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
    /// Of upstreams, servers, and hosts.
    pub content: u64,
    /// Kept in reserve for them.
    pub reserve: u64,
}

impl Need {
    /// Of these upstreams under these hosts, in a zone that holds nothing else.
    pub fn of<'a>(upstreams: impl IntoIterator<Item = &'a Upstream>, hosts: &Hosts) -> Self {
        let (mut content, mut largest, mut servers) = (hosts_granules(hosts), 0, 0);
        for upstream in upstreams {
            let sketch = Sketch::new(upstream, None, hosts, &Region::new(&[]));
            content += record_granules(&upstream.name) + sketch.granules();
            largest = largest.max(kept_table(sketch.entries.len()));
            servers += u64::from(sketch.servers);
        }
        Self { content: content * GRANULE, reserve: kept(largest, servers) * GRANULE }
    }

    /// In all.
    pub const fn bytes(self) -> u64 {
        self.content + self.reserve
    }
}

impl Format {
    /// Bytes of a region of that size that are given out when it is laid out, for good.
    pub fn fixed(&self, region: u64) -> u64 {
        let bytes = usize::try_from(region).unwrap_or(usize::MAX);
        let blocks = [bucket_count(bytes), ring_words(bytes)];
        let blocks: u64 = blocks.into_iter().map(|words| u64::from(granules(words))).sum();
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
        let ten = Need::of(&ten_servers(), &Hosts::default()).content + 10 * SERVER_RESERVE;
        self.free.saturating_sub(self.reserve) * 10 / ten
    }
}

impl Worker {
    /// Gives back what was kept for a large upstream that is gone.
    pub(crate) fn measure(&self) {
        let zone = self.zone();
        if get(zone.root(root::SHRUNK)) == 0 {
            return;
        }
        let (revision, mut largest) = (zone.revision(), 0);
        for bucket in 0.. {
            let _section = self.enter();
            let Some(chain) = zone.bucket_at(bucket) else { break };
            let tables = chain.filter_map(|up| up.table(zone));
            largest = tables.map(|table| kept_table(table.entries.len())).fold(largest, u64::max);
        }
        let trace = Reachable(*zone);
        let Ok(mut writer) = zone.shared().try_write(self.pid(), &trace) else { return };
        // What changed meanwhile may be larger: the next round looks again.
        if zone.revision() == revision {
            set(zone.root(root::SHRUNK), 0);
            set(zone.root(root::LARGEST), largest);
            writer.set_reserve(kept(largest, get(zone.root(root::SERVERS))));
        }
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

/// Words of the ring of events: 1/32 of the zone, within bounds.
pub(crate) fn ring_words(zone_bytes: usize) -> usize {
    (zone_bytes / 32).clamp(8 << 10, 1 << 20) / 8
}

/// Granules kept for a new table of so many entries: with the order of a large group, whose shares
/// do not hold without.
pub(crate) const fn kept_table(entries: usize) -> u64 {
    let places = if entries <= EXACT_PEERS {
        0
    } else if entries > PLACES {
        2 * entries
    } else {
        PLACES + entries
    };
    Table::granules(entries) as u64 + granules(places.div_ceil(2)) as u64
}

/// What is kept so that `up`, `down`, `drain` and weights never fail for lack of room: two new
/// tables beside the largest one, see [`kept_table`], and for each server what its admin state adds
/// to its cold part. Granules.
pub(crate) const fn kept(largest_table: u64, servers: u64) -> u64 {
    2 * largest_table + servers * ADMIN_GRANULES + SPARE_GRANULES
}

/// Bytes that are kept for each server.
const SERVER_RESERVE: u64 = ADMIN_GRANULES * GRANULE;

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
