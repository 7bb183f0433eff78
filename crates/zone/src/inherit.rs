//! A zone takes over what one of another size holds, which old workers still run on.
//!
//! No acknowledged change is lost, whoever holds the old zone's lock and even if he is stopped:
//! the old zone is marked as moved first and read afterwards, and a writer looks for the mark
//! before he publishes and again after. Either he sees it, and his change is refused; or he
//! published before it was set, and what he published is read here. With the lock there is no such
//! race: nothing is published any more when reading begins.
//!
//! Everything moves but requests in flight, which are counted where they began.

use std::sync::atomic::Ordering::SeqCst;

use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::route::Route;
use peerage_core::snapshot::{Header, Loaded};

use crate::choice::Clock;
use crate::layout::{Entry, Peer, Up, get, root, set};
use crate::master::{Master, Whose, raise};
use crate::size::Need;
use crate::stored::Stored;
use crate::turn::LOOSE;
use crate::zone::{Format, Zone};

/// Words of the root that stay as they are.
///
/// Others are the new zone's own (where things lie, who writes now), or are raised to what the old
/// zone had: see [`RAISED`].
const KEPT: [usize; 17] = [
    root::SNAPSHOT,
    root::NO_ROOM,
    root::LOADED,
    root::DURABLE,
    root::FILE_ERROR,
    root::FILE_ERRORS,
    root::FILE_ERROR_AT,
    root::LEAD,
    root::FILE_EPOCH,
    root::INSTANCE,
    root::FILE_GENERATION,
    root::FILE_SEEN,
    root::FILE_PLACE,
    root::REACHED,
    root::BARS,
    root::BARS_LOOK,
    root::CHECKS_LATE,
];

/// Words of the root that never go back.
const RAISED: [usize; 5] =
    [root::REVISION, root::NEXT_ID, root::NEXT_UID, root::NUMBERS_GIVEN, root::FLUSH_WANTED];

/// How often a zone is read again that changes meanwhile.
const RACES: usize = 8;

/// What a zone holds, as it lies there.
struct Contents {
    hosts: Hosts,
    stored: Vec<Stored>,
    routes: Vec<Route>,
}

/// What came of taking a zone over.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Upstreams that are there now; of routes, the zone's report tells.
    pub upstreams: usize,
    /// Upstreams that did not fit.
    pub left: Vec<UpstreamName>,
}

impl Zone {
    /// What another zone needs to take over what this one holds now, and its upstreams.
    ///
    /// `None` where it cannot be read: there is no place for this process, and the lock was not to
    /// be had.
    pub fn need(
        &self,
        (pid, start): (u32, u64),
        format: &Format,
        wait: &mut dyn FnMut() -> bool,
    ) -> Option<(Need, usize)> {
        let contents = match self.worker(pid, start, format) {
            Some(reader) => {
                let section = reader.enter();
                let contents = Contents::read(self);
                drop(section);
                reader.leave();
                contents
            }
            None => self.as_master(pid).locked(wait, |_| Contents::read(self))?,
        };
        let upstreams = contents.stored.iter().map(|stored| &stored.upstream);
        let need = Need::of(upstreams, &contents.hosts).and_routes(&contents.routes);
        Some((need, contents.stored.len()))
    }
}

impl Master {
    /// Ends all changes of a zone whose contents another one takes over; false where the lock was
    /// not to be had, whose holder may publish one more change and will refuse it then.
    pub fn end(&self, wait: &mut dyn FnMut() -> bool) -> bool {
        let end = || self.zone.root(root::MOVED).store(1, SeqCst);
        let locked = self.locked(wait, |_| end()).is_some();
        if !locked {
            end();
        }
        locked
    }

    /// Fills a zone just laid out with all that an old one holds, which was ended before.
    pub fn inherit(&self, old: &Zone, clock: &Clock) -> Inherited {
        debug_assert!(old.is_moved());
        let contents = Contents::read(old);
        let number = |i| get(old.root(i));
        let header = Header::new("", number(root::REVISION), number(root::NEXT_ID), clock.msec);
        let wanted = contents.stored.iter().map(|one| (one.upstream.clone(), one.revision));
        let loaded = Loaded {
            header: Some(header),
            hosts: contents.hosts,
            hosts_revision: number(root::REVISION),
            upstreams: wanted.collect(),
            routes: contents.routes.into_iter().map(|route| (route, 0)).collect(),
            damage: None,
        };
        let left = self.fill(&loaded, clock, Whose::OldZone);
        for stored in &contents.stored {
            self.inherit_live(old, stored);
        }
        self.zone.events().inherit(&self.zone, old.events());
        for i in KEPT {
            set(self.zone.root(i), number(i));
        }
        for i in RAISED {
            raise(&self.zone, i, number(i));
        }
        self.zone.inherit_lookups(&old.lookups());
        Inherited { upstreams: contents.stored.len() - left.len(), left }
    }

    /// Takes over what requests have moved and counted of an upstream.
    fn inherit_live(&self, old: &Zone, stored: &Stored) {
        let name = stored.upstream.name.as_str().as_bytes();
        let Some(up) = self.zone.find(name) else { return };
        let Some(table) = up.table(&self.zone) else { return };
        up.inherit(stored.up);
        if get(up.cursor()) & LOOSE != 0 {
            set(self.zone.root(root::LOOSE), 1);
        }
        let mut entries: Vec<Entry> = table.entries().iter().map(Entry::read).collect();
        entries.sort_by_key(|entry| entry.order);
        // Both tables were made of the same servers in the same order.
        for (new, before) in entries.iter().zip(stored.entries()) {
            let new = Peer::at(self.zone.region(), new.peer);
            let before = Peer::at(old.region(), before.peer);
            if let (Some(new), Some(before)) = (new, before)
                && new.server_id() == before.server_id()
            {
                new.inherit(before);
            }
        }
    }
}

impl Contents {
    /// Reads a zone inside a read section, under the lock, or after its end.
    ///
    /// A change that comes in force meanwhile may be read in part: it is read again then.
    fn read(zone: &Zone) -> Self {
        let mut races = 0;
        loop {
            let revision = zone.root(root::REVISION).load(SeqCst);
            let contents = Self::once(zone);
            races += 1;
            if zone.root(root::REVISION).load(SeqCst) == revision || races == RACES {
                return contents;
            }
        }
    }

    fn once(zone: &Zone) -> Self {
        let chains = (0..).map_while(|i| zone.bucket_at(i));
        let ups: Vec<Up> = chains.flatten().collect();
        let stored = ups.into_iter().filter_map(|up| zone.load(up)).collect();
        Self { hosts: zone.stored_hosts().hosts, stored, routes: zone.all_routes() }
    }
}
