//! Choosing a peer: the path of every request.
//!
//! A pick happens inside one read section, so the table and the records it names stay; the count
//! of the chosen peer is raised inside it too, so that once a change is published and a grace
//! period has passed, nobody can begin a request that the change forbids.

use peerage_core::passive::Passive;
use peerage_core::select::{Candidate, EXACT_PEERS, Level, View, round_robin, spread};
use peerage_shm::{AtomicU64, Ordering, Refusal, Region, count};

use crate::address::Address;
use crate::choice::{Choice, Clock, NoPeer, Target};
use crate::layout::{Entry, Peer, Table, Up, get, high, low, set};
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
    #[inline]
    pub fn pick(
        &self,
        choice: &mut Choice,
        target: &Target<'_>,
        clock: &Clock,
    ) -> Result<Picked, NoPeer> {
        debug_assert!(!choice.held());
        let _section = self.enter();
        let region = self.region();
        let up = if choice.stamp == 0 {
            match target {
                Target::Fixed(fixed) => self.zone().find_fixed(fixed),
                Target::Name(name) => self.zone().find(name),
            }
        } else {
            Up::at(region, choice.upstream).filter(|up| up.stamp() == choice.stamp)
        };
        let up = up.ok_or(NoPeer::UnknownUpstream)?;
        let table = up.table(region).ok_or(NoPeer::UnknownUpstream)?;
        choice.upstream = up.at;
        choice.stamp = up.stamp();
        for _ in 0..RACES {
            let (entry, peer) = self.choose(choice, up, table, clock)?;
            match self.slot().acquire(peer.at, entry.max_conns) {
                Ok(held) => {
                    choice.held = Some(held);
                    choice.server_id = peer.server_id();
                    choice.weight = entry.weight;
                    choice.max_fails = entry.max_fails;
                    choice.fail_timeout = entry.fail_timeout;
                    choice.lone = table.entries.len() == 1;
                    choice.note(peer.uid());
                    if !choice.lone
                        && let Some(next) = passive(peer).chosen(entry.rules(), clock.secs)
                    {
                        // Another worker's word is as good: both chose the peer this second.
                        peer.passive().store(next.word(), Ordering::Relaxed);
                    }
                    set(peer.selected(), clock.msec);
                    let (at, granules) = peer.address();
                    let Some(address) = Address::at(region, at, granules) else {
                        self.abandon(choice);
                        return Err(NoPeer::AllUnavailable);
                    };
                    return Ok(Picked { address, tries: table.usable().max(1) });
                }
                // Another worker took the last place of `max_conns`: choose again.
                Err(Refusal::Full) => {}
                Err(Refusal::NoEntry) => return Err(NoPeer::Busy),
            }
        }
        Err(NoPeer::AllUnavailable)
    }

    /// The primary, else the backup, whose turn it is.
    #[inline]
    fn choose(
        &self,
        choice: &Choice,
        up: Up,
        table: Table,
        clock: &Clock,
    ) -> Result<(Entry, Peer), NoPeer> {
        let (primaries, backups) =
            table.entries.split_at_checked(table.primaries()).unwrap_or_default();
        let group = Group {
            region: self.region(),
            entries: primaries,
            choice,
            now: clock.secs,
            single: table.usable() <= 1,
        };
        let chosen = if primaries.len() <= EXACT_PEERS {
            round_robin::pick(&group)
        } else {
            self.choose_of_many(&group, up, Some(table))
        };
        if let Some(i) = chosen {
            return group.at(i);
        }
        if table.entries.is_empty() {
            return Err(NoPeer::NoServers);
        }
        let group = Group { entries: backups, ..group };
        let chosen = if backups.len() <= EXACT_PEERS {
            round_robin::pick(&group)
        } else {
            self.choose_of_many(&group, up, None)
        };
        group.at(chosen.ok_or(NoPeer::AllUnavailable)?)
    }

    /// The turn of a group too large to look at every peer.
    #[cold]
    fn choose_of_many(&self, group: &Group<'_>, up: Up, table: Option<Table>) -> Option<usize> {
        let turn = up.cursor().fetch_add(1, Ordering::Relaxed);
        let (at, places) = table.map(Table::sequence).unwrap_or_default();
        if places == 0 {
            let open = |i| group.open(i).is_some();
            return spread::pick(group.len(), turn, self.random(), open);
        }
        let sequence = group.region.words(at, (places as usize).div_ceil(2))?;
        let peer_at = |place: usize| {
            let word = get(&sequence[place / 2]);
            if place % 2 == 0 { high(word) as usize } else { low(word) as usize }
        };
        let open = |place| group.open(peer_at(place)).is_some();
        spread::pick(places as usize, turn, self.random(), open).map(peer_at)
    }
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
