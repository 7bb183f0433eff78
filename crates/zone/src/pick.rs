//! Choosing a peer: the path of every request.
//!
//! A pick happens inside one read section, so the table and the records it names stay; the count
//! of the chosen peer is raised inside it too, so that once a change is published and a grace
//! period has passed, nobody can begin a request that the change forbids.

use peerage_core::passive::Passive;
use peerage_core::select::{EXACT_PEERS, round_robin};
use peerage_core::upstream::Method;
use peerage_shm::{Held, NO_LIMIT, Refusal, point};

use crate::address::Address;
use crate::choice::{Choice, Clock, FoundUp, Holding, Input, Key, NoPeer, Target};
use crate::layout::{Entry, Peer, Table, Up, get, set};
use crate::search::{Balancer, Group};
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

/// What came of a pick.
#[derive(Clone, Copy)]
pub enum Pick {
    /// A peer.
    Peer(Picked),
    /// The method chooses by something that the request was not asked: to be called again with it.
    Wants(Input),
    /// No peer.
    None(NoPeer),
}

impl Worker {
    /// Chooses a peer of the upstream and holds it, for a request that has no key.
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
            None => match self.pick_at_length(choice, target, Key::None, clock) {
                Pick::Peer(picked) => Ok(picked),
                Pick::Wants(_) => Err(NoPeer::AllUnavailable),
                Pick::None(error) => Err(error),
            },
        }
    }

    /// The common case of [`Self::pick`], of which this much alone is worth its caller's room: the
    /// first try of a request, by the cycle or by a method that asks nothing of the request. `None`:
    /// it takes [`Self::pick_at_length`].
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
        let known = match target {
            Target::Known(_) => choice.upstream.and_then(|found| Some((found, found.again()?))),
            _ => None,
        };
        let (found, up) = match known {
            Some(known) => known,
            None => self.find(target)?,
        };
        choice.upstream = Some(found);
        point!("pick.found");
        let table = up.table(self.zone())?;
        let Some(peer) = turn::next(up, table, self.region()) else {
            return self.pick_first(choice, up, &clock());
        };
        let held = self.slot().acquire_counted(peer.at, peer.in_flight(), NO_LIMIT).ok()?;
        let Some(address) = Address::at(self.region(), peer.address()) else {
            self.slot().release(held);
            return None;
        };
        hold(choice, peer, held, clock().msec);
        Some(Picked { address, tries: table.tries() })
    }

    /// The first try where there is no cycle, or it was left.
    #[inline(never)]
    fn pick_first(&self, choice: &mut Choice, up: Up, clock: &Clock) -> Option<Picked> {
        let table = up.table(self.zone())?;
        if input(table.method()).is_some() {
            return None;
        }
        self.pick_slowly(choice, up, table, Key::None, clock).ok()
    }

    /// The rest of [`Self::pick`]: any case, but the cycle is not looked at.
    #[cold]
    pub fn pick_at_length(
        &self,
        choice: &mut Choice,
        target: &Target<'_>,
        key: Key<'_>,
        clock: &Clock,
    ) -> Pick {
        let _section = self.enter();
        let unknown = Pick::None(NoPeer::UnknownUpstream);
        let up = if choice.is_first() {
            let Some((found, up)) = self.find(target) else { return unknown };
            choice.upstream = Some(found);
            up
        } else {
            // With the upstream as it is now, if it is still there.
            let Some(up) = choice.upstream.and_then(FoundUp::again) else { return unknown };
            up
        };
        let Some(table) = up.table(self.zone()) else { return unknown };
        if key == Key::Unasked
            && table.primaries() > 1
            && let Some(input) = input(table.method())
        {
            return Pick::Wants(input);
        }
        if !choice.is_first() {
            choice.again();
        }
        match self.pick_slowly(choice, up, table, key, clock) {
            Ok(picked) => Pick::Peer(picked),
            Err(error) => Pick::None(error),
        }
    }

    #[inline(always)]
    pub(crate) fn find(&self, target: &Target<'_>) -> Option<(FoundUp, Up)> {
        match target {
            Target::Fixed(fixed) => self.zone().find_fixed(fixed),
            Target::Name(name) | Target::Known(name) => {
                self.zone().find(name).map(|up| (FoundUp::new(up), up))
            }
        }
    }

    /// Looks at all peers: there is no cycle, or it was left.
    #[inline(always)]
    fn pick_slowly(
        &self,
        choice: &mut Choice,
        up: Up,
        table: Table,
        key: Key<'_>,
        clock: &Clock,
    ) -> Result<Picked, NoPeer> {
        let method = table.method();
        choice.timed = is_timed(method);
        let balancer = Balancer { worker: self, up, table, method, key, clock };
        for _ in 0..RACES {
            let Some(entry) = table.entries().get(balancer.search(choice)?).map(Entry::read) else {
                break;
            };
            let Some(peer) = Peer::at(self.region(), entry.peer) else { break };
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

    /// Counts a primary that a session chose as if it had been its turn, where turns are nginx's.
    pub(crate) fn charge(
        &self,
        choice: &Choice,
        up: Up,
        table: Table,
        clock: &Clock,
        chosen: Peer,
    ) {
        let (entries, _) = table.entries().split_at(table.primaries().min(table.entries().len()));
        if table.method() != Method::RoundRobin || !(2..=EXACT_PEERS).contains(&entries.len()) {
            return;
        }
        let all = || entries.iter().map(Entry::read);
        let Some(i) = all().position(|entry| entry.peer == chosen.at) else { return };
        turn::loosen(self.zone(), up, table, clock.secs);
        // No new cycle begins while sessions come.
        set(up.loose_since(), u64::from(clock.secs));
        let group = Group::new(self, (table, entries), choice, clock, false);
        round_robin::charge(&group, i, all().map(|entry| i64::from(entry.weight)).sum());
    }
}

/// What a method has to be told of the request.
const fn input(method: Method) -> Option<Input> {
    match method {
        Method::Hash | Method::HashConsistent => Some(Input::Text),
        Method::IpHash => Some(Input::Address),
        _ => None,
    }
}

/// Whether a method goes by what its requests have taken.
pub(crate) const fn is_timed(method: Method) -> bool {
    matches!(method, Method::LeastTimeHeader | Method::LeastTimeLastByte)
}

#[inline]
pub(crate) fn hold(choice: &mut Choice, peer: Peer, held: Held, now: u64) {
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
