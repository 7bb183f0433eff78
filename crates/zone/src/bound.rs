//! Sessions: a request that is bound to a server goes there, as nginx's `sticky` asks for.
//!
//! Nothing here is on the path of other requests. A session names its server by what
//! [`Sid`] makes of its route or address; the entries are looked through for it.

use std::cell::{Cell, OnceCell};

use peerage_core::record;
use peerage_core::sid::Sid;
use peerage_shm::{AtomicU64, NO_LIMIT, Ref, count, point};

use crate::address::Address;
use crate::choice::{Choice, Clock, FoundUp, Target};
use crate::directory::hash;
use crate::health;
use crate::layout::{Entry, Peer, Table, Up, get, set};
use crate::pick::{Picked, hold, is_timed, passive};
use crate::shut::Taken;
use crate::worker::Worker;

impl Worker {
    /// Chooses the peer that a session is bound to and holds it, while it takes requests of
    /// sessions: it may be draining, and its weight may be 0.
    ///
    /// `None`: the request takes its turn by [`Self::pick`]. Else it is a pick like any other.
    #[cold]
    pub fn pick_bound(
        &self,
        choice: &mut Choice,
        target: &Target<'_>,
        clock: &Clock,
        sid: &[u8],
    ) -> Option<Picked> {
        debug_assert!(!choice.held());
        let _section = self.enter();
        let first = choice.is_first();
        let (found, up) = if first {
            self.find(target)?
        } else {
            // With the upstream as it is now, if it is still there.
            choice.upstream.and_then(|found| Some((found, found.again()?)))?
        };
        let table = up.table(self.zone())?;
        let (entry, peer) = Session::new(self, choice, up, table, clock, sid).server()?;
        self.charge(choice, up, table, clock, peer);
        let limit = if entry.max_conns == 0 { NO_LIMIT } else { entry.max_conns };
        point!("pick.chosen");
        let held = self.slot().acquire_counted(peer.at, peer.in_flight(), limit).ok()?;
        let Some(address) = Address::at(self.region(), peer.address()) else {
            self.slot().release(held);
            return None;
        };
        let_through(entry, peer, clock.secs);
        if !first {
            choice.again();
        }
        choice.upstream = Some(found);
        choice.timed = is_timed(table.method());
        hold(choice, peer, held, clock.msec);
        if let Some(close) = self.zone().drains(entry, peer) {
            // This process may be younger than what was told of it.
            self.draining.borrow_mut().extend(Taken::of(self.zone(), peer, close));
        }
        // Those that take requests, and this one where it is none of them.
        let tries = table.tries() + u32::from(is_open(table) && !entry.open);
        Some(Picked { address, tries })
    }

    /// What names the server of the last pick in sessions.
    #[cold]
    pub fn sid(&self, choice: &Choice) -> Option<Sid> {
        let peer = choice.held?.peer();
        let _section = self.enter();
        let table = choice.upstream.and_then(FoundUp::again).and_then(|up| up.table(self.zone()));
        let entry = table.and_then(|table| {
            table.entries().iter().map(Entry::read).find(|entry| entry.peer == peer.at)
        });
        // Of a server that was removed in between only the address is left.
        self.sid_of(entry.unwrap_or_default(), peer)
    }

    /// What names a peer in sessions.
    fn sid_of(&self, entry: Entry, peer: Peer) -> Option<Sid> {
        if entry.routed {
            let server = record::decode_server(&entry.cold().read(self.region())).ok()?;
            return Some(Sid::of_route(&server.params.route));
        }
        Some(Sid::of_address(&Address::at(self.region(), peer.address())?.text()))
    }
}

/// Whether any server takes new requests.
fn is_open(table: Table) -> bool {
    table.entries().iter().any(|words| Entry::read(words).open)
}

/// One look for the server that a session is bound to.
struct Session<'a> {
    worker: &'a Worker,
    choice: &'a Choice,
    table: Table,
    clock: &'a Clock,
    sid: &'a [u8],
    /// Where the sid led last.
    place: &'a Cell<Ref>,
    /// Nobody else could serve.
    alone: bool,
}

impl<'a> Session<'a> {
    fn new(
        worker: &'a Worker,
        choice: &'a Choice,
        up: Up,
        table: Table,
        clock: &'a Clock,
        sid: &'a [u8],
    ) -> Self {
        let place = worker.remembered.place(up.uid(), sid);
        Self { worker, choice, table, clock, sid, place, alone: !is_open(table) }
    }

    /// The primary that the sid names, or the backup while no primary can serve.
    fn server(&self) -> Option<(Entry, Peer)> {
        let primaries = self.table.primaries().min(self.table.entries().len());
        let (primaries, backups) = self.table.entries().split_at(primaries);
        self.of(primaries).or_else(|| {
            let mut peers = primaries.iter().filter_map(|words| self.read(words));
            let is_served = peers.any(|(entry, peer)| entry.open && self.can(entry, peer));
            if is_served { None } else { self.of(backups) }
        })
    }

    /// The first of the group that the sid names and that takes the request.
    fn of(&self, group: &[[AtomicU64; Entry::WORDS]]) -> Option<(Entry, Peer)> {
        let last = group.iter().find(|words| Entry::read(words).peer == self.place.get());
        let last = last.and_then(|words| self.read(words));
        if let Some((entry, peer)) = last.filter(|&(entry, peer)| self.names(entry, peer)) {
            if self.takes(entry, peer) {
                return last;
            }
            if !entry.routed {
                // Nobody else has this address.
                return None;
            }
        }
        let mut peers = group.iter().filter_map(|words| self.read(words));
        let found = peers.find(|&(entry, peer)| self.names(entry, peer) && self.takes(entry, peer));
        self.place.set(found?.1.at);
        found
    }

    fn read(&self, words: &[AtomicU64; Entry::WORDS]) -> Option<(Entry, Peer)> {
        let entry = Entry::read(words);
        Some((entry, Peer::at(self.worker.region(), entry.peer)?))
    }

    /// Whether the sid is this peer's.
    fn names(&self, entry: Entry, peer: Peer) -> bool {
        // An address makes a name of one length alone.
        (entry.routed || self.sid.len() == Sid::MAX)
            && self.worker.sid_of(entry, peer).is_some_and(|sid| sid.as_bytes() == self.sid)
    }

    /// Whether the peer takes requests of its sessions: while it drains, until its connections are
    /// closed.
    fn takes(&self, entry: Entry, peer: Peer) -> bool {
        let is_over = |close| close != 0 && close <= self.clock.msec;
        entry.bound
            && self.can(entry, peer)
            && !self.worker.zone().drains(entry, peer).is_some_and(is_over)
    }

    /// Whether the peer is able to, wanted or not.
    fn can(&self, entry: Entry, peer: Peer) -> bool {
        let passive = passive(peer);
        (passive.is_plain()
            || !passive.barred(entry.rules(), self.clock.secs)
                && health::bar_of(passive, peer, self.clock.msec).is_none())
            && (entry.max_conns == 0 || count(get(peer.in_flight())) < entry.max_conns)
            // The only one is tried again after a kept connection turned out closed.
            && (self.alone || self.choice.is_first() || !self.choice.tried(peer.uid()))
    }
}

/// Notes that a request is let through to a peer that had failed.
fn let_through(entry: Entry, peer: Peer, now: u32) {
    let failures = passive(peer);
    if failures.fails != 0
        && let Some(next) = failures.chosen(entry.rules(), now)
    {
        // Another worker's word is as good: both chose the peer this second.
        set(peer.passive(), next.word());
    }
}

/// Where the peers of sessions were found last: where to look first, no more.
#[derive(Default)]
pub(crate) struct Remembered(OnceCell<Box<[Cell<Ref>]>>);

impl Remembered {
    /// Sessions' servers that are remembered, at most.
    const PLACES: usize = 1024;

    fn place(&self, upstream: u32, sid: &[u8]) -> &Cell<Ref> {
        let places = self.0.get_or_init(|| vec![Cell::new(Ref::NONE); Self::PLACES].into());
        &places[(hash(sid) ^ upstream) as usize % Self::PLACES]
    }
}
