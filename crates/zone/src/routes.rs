//! The routes of a zone: from a key to the app that serves it, read without a lock.
//!
//! A table of chains, as the [`directory`](crate::directory) is, that grows and shrinks with what
//! it holds. It holds routes and, once each, the apps that they name. A route never changes: its
//! record is replaced by one store.
//!
//! Every record has two links, one for the table in force and one for the next table. The next one
//! is filled a few buckets at a time, with each change and each round, while everybody reads the
//! other; changes go into both. One store puts it in force. Until nobody reads the old one any
//! more, which its links are kept for, no other is begun. A writer that dies leaves the table in
//! force whole; the next one that was begun is given up then.

mod adopt;
mod buckets;
mod commit;
mod expire;
mod fill;
mod grow;
mod lookups;
mod page;
mod put;
mod sum;
mod trace;

use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::route::{Route, RouteKey, Status};
use peerage_shm::{Ordering, Ref, Words};

pub use self::adopt::AdoptedRoutes;
pub(crate) use self::buckets::Buckets;
pub(crate) use self::fill::bytes_of;
pub use self::lookups::Lookups;
pub use self::page::{RouteCursor, RoutePage};
pub use self::put::{ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteDone, RouteOp, RouteTouched};
pub use self::sum::RouteSum;
pub(crate) use self::trace::trace_routes;
use crate::choice::FoundUp;
use crate::directory::{Sought, mixed};
use crate::layout::{Kind, Node, get, high, low, root};
use crate::worker::Worker;
use crate::zone::Zone;

/// The hash of a key or a name: where its bucket is, and what its record is known by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hashed(u64);

impl Hashed {
    /// Where it lies among all: buckets are runs of positions, whatever their number.
    #[inline]
    pub(crate) const fn position(self) -> u32 {
        high(self.0)
    }

    #[inline]
    pub(crate) const fn tag(self) -> u16 {
        self.0 as u16
    }
}

/// Room for the name of an app, which has 255 bytes at most.
pub type AppName = [[u8; 8]; 32];

/// How many routes and apps there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) routes: u32,
    pub(crate) apps: u32,
}

impl Counts {
    pub(crate) const fn all(self) -> usize {
        self.routes as usize + self.apps as usize
    }
}

impl Zone {
    /// The hash by a number of the zone's own, which nobody outside knows: keys may come from
    /// tenants.
    #[inline]
    pub(crate) fn hashed(&self, kind: Kind, name: &[u8]) -> Hashed {
        self.hashed_words(kind, name.len(), Words::of(name))
    }

    #[inline(always)]
    fn hashed_words(&self, kind: Kind, len: usize, name: Words<'_>) -> Hashed {
        let seed = get(self.root(root::ROUTES_SEED));
        Hashed(mixed(if kind == Kind::App { !seed } else { seed }, len, name))
    }

    /// The table in force. Inside a read section or under the lock.
    #[inline]
    pub(crate) fn routes_table(&self) -> Option<Buckets> {
        Buckets::of(self.region(), self.root(root::ROUTES).load(Ordering::SeqCst))
    }

    /// Whether a key may have a route.
    #[inline]
    pub fn has_routes(&self) -> bool {
        self.root(root::ROUTES).load(Ordering::SeqCst) != 0
    }

    /// The record of a key or a name. Inside a read section or under the lock.
    #[inline]
    pub(crate) fn node(&self, kind: Kind, name: &[u8]) -> Option<Node> {
        let table = self.routes_table()?;
        let (len, name) = (name.len(), Words::of(name));
        let hash = self.hashed_words(kind, len, name);
        let mut at = table.first(table.index(hash));
        while let Some(node) = Node::at(self.region(), at) {
            if node.is(self.region(), at, kind, hash, (len, name)) {
                return Some(node);
            }
            at = node.next(table.side());
        }
        None
    }

    /// Reads a route. Inside a read section or under the lock; `None` where it does not read back,
    /// which only another build's memory could cause.
    pub(crate) fn load_route(&self, node: Node) -> Option<Route> {
        let region = self.region();
        let key = String::from_utf8(node.name(region)).ok()?;
        let app = String::from_utf8(Node::at(region, node.app())?.name(region)).ok()?;
        let (key, app) = (RouteKey::try_from(key).ok()?, UpstreamName::parse(&app).ok()?);
        let status = node.plain_status().unwrap_or_default();
        record::decode_route(key, app, status, &node.rest(region)).ok()
    }

    /// A route as it is now. Inside a read section or under the lock.
    pub(crate) fn route_now(&self, key: &RouteKey) -> Option<Route> {
        self.load_route(self.node(Kind::Route, key.as_str().as_bytes())?)
    }

    /// How many routes name an upstream. Inside a read section or under the lock.
    pub(crate) fn routes_to(&self, name: &UpstreamName) -> u64 {
        self.node(Kind::App, name.as_str().as_bytes()).map_or(0, |app| app.routes().into())
    }

    /// Whether there is such an upstream. Inside a read section or under the lock.
    pub(crate) fn has_upstream(&self, name: &UpstreamName) -> bool {
        let up = self.find(name.as_str().as_bytes());
        up.is_some_and(|up| up.table(self).is_some())
    }

    pub(crate) fn route_counts(&self) -> Counts {
        let word = get(self.root(root::ROUTES_COUNT));
        Counts { routes: high(word), apps: low(word) }
    }
}

impl Worker {
    /// Looks a key up, for a request: appends the name of its app and tells its status. What is no
    /// key is not found.
    pub fn route(&self, key: &[u8], app: &mut Vec<u8>) -> Option<Status> {
        let mut name = AppName::default();
        let (status, len) = self.route_to(key, &mut name)?;
        app.extend_from_slice(&name.as_flattened()[..len]);
        Some(status)
    }

    /// The same, with the name in memory of the caller's, and how many bytes it has.
    #[inline(always)]
    pub fn route_to(&self, key: &[u8], app: &mut AppName) -> Option<(Status, usize)> {
        if key.len() > Node::MAX_NAME {
            return None;
        }
        let _section = self.enter();
        let node = self.zone().node(Kind::Route, key)?;
        let len = Node::copy_name(self.region(), node.app(), app)?;
        match node.plain_status() {
            Some(status) => Some((status, len)),
            None => Some((self.status_in_rest(node)?, len)),
        }
    }

    #[cold]
    fn status_in_rest(&self, node: Node) -> Option<Status> {
        Some(self.zone().load_route(node)?.status)
    }

    /// Whether there is an upstream of this name, which is in lower case.
    #[inline]
    pub fn is_upstream(&self, name: &[u8]) -> bool {
        self.sought(&Sought::new(name)).is_some()
    }

    /// The upstream of a name that is looked for in several zones.
    #[inline]
    pub fn sought(&self, name: &Sought<'_>) -> Option<FoundUp> {
        let _section = self.enter();
        let up = self.zone().find_sought(name)?;
        up.table(self.zone())?;
        Some(FoundUp::new(up)).filter(|found| found.lives())
    }

    /// Whether any server of an upstream has an address; also where it has no servers.
    pub fn has_addresses(&self, name: &UpstreamName) -> bool {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes());
        let Some(table) = up.and_then(|up| up.table(self.zone())) else { return true };
        let entries = table.entries();
        entries.is_empty() || entries.iter().any(|entry| high(get(&entry[0])) != 0)
    }

    /// A route as it is declared and wanted.
    pub fn read_route(&self, key: &RouteKey) -> Option<Route> {
        let _section = self.enter();
        self.zone().route_now(key)
    }

    /// How many routes name an upstream.
    pub fn routes_of(&self, upstream: &UpstreamName) -> u64 {
        let _section = self.enter();
        self.zone().routes_to(upstream)
    }
}

/// The record at a place that the lock keeps.
fn node_at(zone: &Zone, at: Ref) -> Option<Node> {
    Node::at(zone.region(), at)
}
