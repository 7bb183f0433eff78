//! Choosing a peer: the path of every request.
//!
//! A pick happens inside one read section, so the table and the records it names stay; the count
//! of the chosen peer is raised inside it too, so that once a change is published and a grace
//! period has passed, nobody can begin a request that the change forbids.

use peerage_core::passive::Passive;
use peerage_core::select::{Candidate, EXACT_PEERS, Level, View, round_robin, spread};
use peerage_shm::{AtomicU64, Held, NO_LIMIT, Ordering, Ref, Refusal, Region, count, point};

use crate::address::Address;
use crate::choice::{Choice, Clock, Found, Holding, NoPeer, Target};
use crate::layout::{Entry, Peer, Table, Up, get, set};
use crate::turn;
use crate::worker::Worker;

/// Tries of a pick whose choice was taken away by another worker in between.
const RACES: u32 = 8;

/// A peer chosen and held.
#[derive(Clone, Copy)]
pub struct Picked {
    /// Where it listens.
    pub address: Address,
    /// Peers that the upstream lets take requests, at least 1: how often it is worth trying.
    pub tries: u32,
}

impl Worker {
    /// Chooses a peer of the upstream and holds it.
    ///
    /// `target` counts at the first try of a request; later ones stay with the upstream found
    /// then. To be answered by exactly one `done` or `abandon`.
    pub fn pick(
        &self,
        choice: &mut Choice,
        target: &Target<'_>,
        clock: &Clock,
    ) -> Result<Picked, NoPeer> {
        match self.pick_in_turn(choice, target, || *clock) {
            Some(picked) => Ok(picked),
            None => self.pick_at_length(choice, target, clock),
        }
    }

    /// The common case of [`Self::pick`], of which this much alone is worth its caller's room: the
    /// first try of a request, while the cycle holds. `None`: it takes [`Self::pick_at_length`].
    #[inline(always)]
    pub fn pick_in_turn(
        &self,
        choice: &mut Choice,
        target: &Target<'_>,
        clock: impl FnOnce() -> Clock,
    ) -> Option<Picked> {
        debug_assert!(!choice.held());
        if !choice.is_first() {
            return None;
        }
        let _section = self.enter();
        let (found, up) = self.find(target)?;
        choice.upstream = Some(found);
        point!("pick.found");
        let table = up.table(self.zone())?;
        let peer = turn::next(up, table, self.region())?;
        let held = self.slot().acquire_counted(peer.at, peer.in_flight(), NO_LIMIT).ok()?;
        let Some(address) = Address::at(self.region(), peer.address()) else {
            self.slot().release(held);
            return None;
        };
        hold(choice, peer, held, clock().msec);
        Some(Picked { address, tries: table.tries() })
    }

    /// The rest of [`Self::pick`]: any case, but the cycle is not looked at.
    #[cold]
    pub fn pick_at_length(
        &self,
        choice: &mut Choice,
        target: &Target<'_>,
        clock: &Clock,
    ) -> Result<Picked, NoPeer> {
        let _section = self.enter();
        let up = if choice.is_first() {
            let (found, up) = self.find(target).ok_or(NoPeer::UnknownUpstream)?;
            choice.upstream = Some(found);
            up
        } else {
            // With the upstream as it is now, if it is still there.
            let up = choice.upstream.and_then(Found::again).ok_or(NoPeer::UnknownUpstream)?;
            choice.again();
            up
        };
        let table = up.table(self.zone()).ok_or(NoPeer::UnknownUpstream)?;
        self.pick_slowly(choice, up, table, clock)
    }

    #[inline(always)]
    pub(crate) fn find(&self, target: &Target<'_>) -> Option<(Found, Up)> {
        match target {
            Target::Fixed(fixed) => self.zone().find_fixed(fixed),
            Target::Name(name) => self.zone().find(name).map(|up| (Found::new(up), up)),
        }
    }

    /// Looks at all peers: there is no cycle, or it was left.
    fn pick_slowly(
        &self,
        choice: &mut Choice,
        up: Up,
        table: Table,
        clock: &Clock,
    ) -> Result<Picked, NoPeer> {
        for _ in 0..RACES {
            let (entry, peer) = self.search(choice, up, table, clock)?;
            let limit = if entry.max_conns == 0 { NO_LIMIT } else { entry.max_conns };
            point!("pick.chosen");
            match self.slot().acquire_counted(peer.at, peer.in_flight(), limit) {
                Ok(held) => {
                    let failures = passive(peer);
                    if failures.fails != 0
                        && table.entries().len() > 1
                        && let Some(next) = failures.chosen(entry.rules(), clock.secs)
                    {
                        // Another worker's word is as good: both chose the peer this second.
                        set(peer.passive(), next.word());
                    }
                    hold(choice, peer, held, clock.msec);
                    let Some(address) = Address::at(self.region(), peer.address()) else {
                        self.abandon(choice);
                        return Err(NoPeer::AllUnavailable);
                    };
                    return Ok(Picked { address, tries: table.tries() });
                }
                // Another worker took the last place of `max_conns`: choose again.
                Err(Refusal::Full) => {}
                Err(Refusal::NoEntry) => return Err(NoPeer::Busy),
            }
        }
        Err(NoPeer::AllUnavailable)
    }

    /// The primary, else the backup, whose turn it is.
    fn search(
        &self,
        choice: &Choice,
        up: Up,
        table: Table,
        clock: &Clock,
    ) -> Result<(Entry, Peer), NoPeer> {
        let primaries = table.primaries().min(table.entries().len());
        let (primaries, backups) = table.entries().split_at(primaries);
        let group = Group {
            region: self.region(),
            entries: primaries,
            choice,
            now: clock.secs,
            single: table.tries() <= 1,
        };
        let chosen = if primaries.len() <= EXACT_PEERS {
            turn::loosen(self.zone(), up, table, clock.secs);
            round_robin::pick(&group)
        } else {
            self.search_many(&group, up, table.sequence())
        };
        if let Some(i) = chosen {
            return group.at(i);
        }
        if table.entries().is_empty() {
            return Err(NoPeer::NoServers);
        }
        let group = Group { entries: backups, ..group };
        let chosen = if backups.len() <= EXACT_PEERS {
            round_robin::pick(&group)
        } else {
            self.search_many(&group, up, (Ref::NONE, 0))
        };
        group.at(chosen.ok_or(NoPeer::AllUnavailable)?)
    }

    /// The turn of a group too large to look at every peer.
    fn search_many(&self, group: &Group<'_>, up: Up, order: (Ref, u32)) -> Option<usize> {
        let turn = up.cursor().fetch_add(1, Ordering::Relaxed) & !turn::LOOSE;
        let (at, places) = order;
        if places == 0 {
            let open = |i| group.open(i).is_some();
            return spread::pick(group.len(), turn, self.random(), open);
        }
        let order = group.region.words(at, (places as usize).div_ceil(2))?;
        let open = |place| group.open(turn::wide(order, place)).is_some();
        let place = spread::pick(places as usize, turn, self.random(), open)?;
        Some(turn::wide(order, place))
    }
}

#[inline]
fn hold(choice: &mut Choice, peer: Peer, held: Held, now: u64) {
    point!("pick.counted");
    choice.held = Some(Holding { words: peer.words(), held });
    choice.server_id = peer.server_id();
    choice.last = peer.uid();
    set(peer.selected(), now);
}

/// What the peer's failures say now.
#[inline]
pub(crate) fn passive(peer: Peer) -> Passive {
    Passive::from_word(get(peer.passive()))
}

/// The primaries or the backups of a table, as one request sees them.
#[derive(Clone, Copy)]
struct Group<'a> {
    region: &'a Region,
    entries: &'static [[AtomicU64; Entry::WORDS]],
    choice: &'a Choice,
    now: u32,
    /// Nobody else could serve: failures bar nobody.
    single: bool,
}

impl Group<'_> {
    #[inline]
    fn at(&self, i: usize) -> Result<(Entry, Peer), NoPeer> {
        let entry = self.entries.get(i).map(Entry::read).ok_or(NoPeer::AllUnavailable)?;
        let peer = Peer::at(self.region, entry.peer).ok_or(NoPeer::AllUnavailable)?;
        Ok((entry, peer))
    }
}

impl View for Group<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn open(&self, i: usize) -> Option<Candidate<'_>> {
        let entry = Entry::read(self.entries.get(i)?);
        if !entry.open {
            return None;
        }
        let peer = Peer::at(self.region, entry.peer)?;
        let passive = passive(peer);
        if passive.fails != 0 && !self.single && passive.barred(entry.rules(), self.now) {
            return None;
        }
        if entry.max_conns != 0 && count(get(peer.in_flight())) >= entry.max_conns {
            return None;
        }
        // The only one is tried again after a kept connection turned out closed, as in nginx.
        if !self.choice.is_first() && !self.single && self.choice.tried(peer.uid()) {
            return None;
        }
        Some(Candidate {
            weight: i64::from(entry.weight),
            current: Level::new(peer.current()),
            effective: Level::new(peer.effective()),
        })
    }
}
