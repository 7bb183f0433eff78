//! Choosing a peer: the path of every request.
//!
//! A pick happens inside one read section, so the table and the records it names stay; the count
//! of the chosen peer is raised inside it too, so that once a change is published and a grace
//! period has passed, nobody can begin a request that the change forbids.

use peerage_core::passive::Passive;
use peerage_core::select::{
    Candidate, EXACT_PEERS, Level, View, consistent, hash, ip_hash, least_conn, least_time, ramp,
    random, round_robin, spread, weights,
};
use peerage_core::upstream::Method;
use peerage_shm::{AtomicU64, Held, NO_LIMIT, Ordering, Ref, Refusal, count, point};

use crate::address::Address;
use crate::choice::{Choice, Clock, Found, Holding, Input, Key, NoPeer, Target};
use crate::layout::{Entry, Peer, Table, Up, get, high, low, set};
use crate::part::{self, Kind};
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
            let Some(up) = choice.upstream.and_then(Found::again) else { return unknown };
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
        key: Key<'_>,
        clock: &Clock,
    ) -> Result<Picked, NoPeer> {
        let method = table.method();
        choice.timed = is_timed(method);
        let balancer = Balancer { worker: self, up, table, method, key, clock };
        for _ in 0..RACES {
            let (entry, peer) = balancer.search(choice)?;
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
        let single = table.tries() <= 1;
        let (is_young, is_ramped) = (false, false);
        let group = Group { worker: self, entries, choice, clock, single, is_young, is_ramped };
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

/// One look for a peer that does not go by the cycle.
struct Balancer<'a> {
    worker: &'a Worker,
    up: Up,
    table: Table,
    method: Method,
    key: Key<'a>,
    clock: &'a Clock,
}

impl Balancer<'_> {
    /// The primary, else the backup, that the method chooses.
    fn search(&self, choice: &Choice) -> Result<(Entry, Peer), NoPeer> {
        let Self { worker, table, .. } = *self;
        let primaries = table.primaries().min(table.entries().len());
        let (primaries, backups) = table.entries().split_at(primaries);
        let is_young = self.clock.msec < get(self.up.young_until()) && self.method.ramps();
        let group = Group {
            worker,
            entries: primaries,
            choice,
            clock: self.clock,
            single: table.tries() <= 1,
            is_young,
            is_ramped: is_young,
        };
        if let Some(i) = self.of_any(&group, Self::of_primaries) {
            return group.at(i);
        }
        if table.entries().is_empty() {
            return Err(NoPeer::NoServers);
        }
        let group = Group { entries: backups, ..group };
        group.at(self.of_any(&group, Self::of_backups).ok_or(NoPeer::AllUnavailable)?)
    }

    /// Chooses; where only peers that ramp up are left, of these.
    #[inline]
    fn of_any(
        &self,
        group: &Group<'_>,
        choose: impl Fn(&Self, &Group<'_>) -> Option<usize>,
    ) -> Option<usize> {
        match choose(self, group) {
            None if group.is_ramped => choose(self, &Group { is_ramped: false, ..*group }),
            chosen => chosen,
        }
    }

    #[inline]
    fn of_primaries(&self, group: &Group<'_>) -> Option<usize> {
        let random = || self.worker.random();
        let chosen = match (self.method, self.key) {
            (Method::RoundRobin, _) => return self.turn_of_primaries(group),
            (Method::LeastConn, _) => return least_conn::pick(group, self.start(group)),
            (Method::LeastTimeHeader, _) => return self.least_time(group, Peer::header_average),
            (Method::LeastTimeLastByte, _) => {
                return self.least_time(group, Peer::response_average);
            }
            // As in nginx, one of one is no choice.
            _ if group.entries.len() == 1 => None,
            (Method::Random, _) => random::pick(group, &self.ranges(), random),
            (Method::RandomTwo, _) => random::pick_two(group, &self.ranges(), random),
            (Method::Hash, Key::Text(key)) => hash::pick(group, &self.ranges(), key),
            (Method::IpHash, Key::Address(key)) => ip_hash::pick(group, &self.ranges(), key),
            (Method::HashConsistent, Key::Text(key)) => self.on_ring(group, key),
            // The method changed since the request was asked.
            (Method::Hash | Method::IpHash | Method::HashConsistent, _) => None,
        };
        chosen.or_else(|| self.turn(group, (Ref::NONE, 0)))
    }

    #[inline]
    fn of_backups(&self, group: &Group<'_>) -> Option<usize> {
        let start = || self.start_of(group, (Ref::NONE, 0));
        match self.method {
            Method::LeastConn => least_conn::pick(group, start()),
            Method::LeastTimeHeader => {
                least_time::pick(group, start(), |i| group.time(i, Peer::header_average))
            }
            Method::LeastTimeLastByte => {
                least_time::pick(group, start(), |i| group.time(i, Peer::response_average))
            }
            _ => self.turn(group, (Ref::NONE, 0)),
        }
    }

    fn least_time(
        &self,
        group: &Group<'_>,
        average: impl Fn(Peer) -> &'static AtomicU64,
    ) -> Option<usize> {
        least_time::pick(group, self.start(group), |i| group.time(i, &average))
    }

    #[inline]
    fn turn_of_primaries(&self, group: &Group<'_>) -> Option<usize> {
        if group.entries.len() <= EXACT_PEERS {
            turn::loosen(self.worker.zone(), self.up, self.table, self.clock.secs);
        }
        let part = self.table.part();
        self.turn(group, (part.at, part.number))
    }

    /// Round robin.
    #[inline]
    fn turn(&self, group: &Group<'_>, order: (Ref, u32)) -> Option<usize> {
        if group.entries.len() <= EXACT_PEERS {
            round_robin::pick(group)
        } else {
            self.turn_of_many(group, order)
        }
    }

    /// The turn of a group too large to look at every peer.
    fn turn_of_many(&self, group: &Group<'_>, order: (Ref, u32)) -> Option<usize> {
        let (turn, random) = (self.next_turn(), self.worker.random());
        let Some((order, places)) = self.wide(order) else {
            return spread::pick(group.len(), turn, random, |i| group.open(i).is_some());
        };
        let open = |place| group.open(turn::wide(order, place)).is_some();
        let place = spread::pick(places, turn, random, open)?;
        Some(turn::wide(order, place))
    }

    /// Where the search for the least begins in a group too large for nginx's own way with ties.
    #[inline]
    fn start(&self, group: &Group<'_>) -> Option<usize> {
        let part = self.table.part();
        self.start_of(group, (part.at, part.number))
    }

    #[inline]
    fn start_of(&self, group: &Group<'_>, order: (Ref, u32)) -> Option<usize> {
        if group.entries.len() <= EXACT_PEERS {
            return None;
        }
        let turn = self.next_turn();
        Some(match self.wide(order) {
            None => (turn % group.entries.len() as u64) as usize,
            Some((order, places)) => turn::wide(order, (turn % places as u64) as usize),
        })
    }

    fn next_turn(&self) -> u64 {
        self.up.cursor().fetch_add(1, Ordering::Relaxed) & !turn::LOOSE
    }

    /// The words of an order of a large group, and its places.
    fn wide(&self, (at, places): (Ref, u32)) -> Option<(&'static [AtomicU64], usize)> {
        let places = places as usize;
        let words = self.worker.region().words(at, places.div_ceil(2));
        words.filter(|words| !words.is_empty()).map(|words| (words, places))
    }

    /// The weights of the primaries.
    fn ranges(&self) -> weights::Ranges<impl Fn(usize) -> u64> {
        let part = self.table.part();
        debug_assert!(part::kind(self.method) == Kind::Weights);
        let sums = self.worker.region().words(part.at, part.number as usize);
        match (part.at.is_none(), part.number, sums) {
            (false, _, Some(sums)) => weights::Ranges::Sums(|i| sums.get(i).map_or(0, get)),
            (_, 1.., _) => weights::Ranges::Equal(part.number),
            _ => weights::Ranges::Walk,
        }
    }

    fn on_ring(&self, group: &Group<'_>, key: &[u8]) -> Option<usize> {
        let part = self.table.part();
        let words = self.worker.region().words(part.at, part.number as usize)?;
        let (head, ring) = words.split_first()?;
        let point = |i: usize| {
            let word = ring.get(i).map_or(0, get);
            (high(word), low(word))
        };
        consistent::pick(group, low(get(head)) as usize, point, |i| group.siblings(i), key)
    }
}

/// The primaries or the backups of a table, as one request sees them.
#[derive(Clone, Copy)]
struct Group<'a> {
    worker: &'a Worker,
    entries: &'static [[AtomicU64; Entry::WORDS]],
    choice: &'a Choice,
    clock: &'a Clock,
    /// Nobody else could serve: failures bar nobody.
    single: bool,
    /// Some peer may ramp up or be new.
    is_young: bool,
    /// Peers that ramp up take part only now and then.
    is_ramped: bool,
}

impl Group<'_> {
    #[inline]
    fn at(&self, i: usize) -> Result<(Entry, Peer), NoPeer> {
        let (entry, peer) = self.look(i).ok_or(NoPeer::AllUnavailable)?;
        Ok((entry, peer))
    }

    #[inline(always)]
    fn look(&self, i: usize) -> Option<(Entry, Peer)> {
        let entry = Entry::read(self.entries.get(i)?);
        Some((entry, Peer::at(self.worker.region(), entry.peer)?))
    }

    /// What the peer's average time counts for.
    fn time(&self, i: usize, average: impl Fn(Peer) -> &'static AtomicU64) -> Option<u64> {
        let (_, peer) = self.look(i)?;
        let since = self.clock.msec.saturating_sub(get(peer.selected()));
        least_time::known(get(average(peer)), since)
    }

    /// How many peers the server has of which this is the first.
    fn siblings(&self, first: usize) -> usize {
        let order = |i: usize| self.entries.get(i).map(|words| Entry::read(words).order);
        let of = order(first);
        1 + (first + 1..self.entries.len()).take_while(|&i| order(i) == of).count()
    }

    /// Whether a peer that ramps up takes part this time.
    #[cold]
    fn takes_part(&self, entry: Entry, peer: Peer) -> bool {
        let (start, now) = (get(peer.start()), self.clock.msec);
        ramp::takes_part(start, now, entry.ramp_ms(), self.worker.random())
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
        let peer = Peer::at(self.worker.region(), entry.peer)?;
        let passive = passive(peer);
        if passive.fails != 0 && !self.single && passive.barred(entry.rules(), self.clock.secs) {
            return None;
        }
        let active = count(get(peer.in_flight()));
        if entry.max_conns != 0 && active >= entry.max_conns {
            return None;
        }
        // The only one is tried again after a kept connection turned out closed, as in nginx.
        if !self.choice.is_first() && !self.single && self.choice.tried(peer.uid()) {
            return None;
        }
        if self.is_ramped && entry.slow_start != 0 && !self.takes_part(entry, peer) {
            return None;
        }
        let now = self.clock.msec;
        Some(Candidate {
            weight: i64::from(entry.weight),
            current: Level::new(peer.current()),
            effective: Level::new(peer.effective()),
            active,
            fresh: if self.is_young { ramp::freshness(get(peer.start()), now) } else { 0 },
        })
    }

    #[inline(always)]
    fn again(&self, i: usize) -> Option<Candidate<'_>> {
        let (entry, peer) = self.look(i)?;
        Some(Candidate {
            weight: i64::from(entry.weight),
            current: Level::new(peer.current()),
            effective: Level::new(peer.effective()),
            active: 0,
            fresh: 0,
        })
    }

    fn tried(&self, i: usize) -> bool {
        self.look(i).is_some_and(|(_, peer)| self.choice.tried(peer.uid()))
    }

    fn weight(&self, i: usize) -> u32 {
        self.entries.get(i).map_or(0, |words| u32::from(Entry::read(words).weight))
    }
}
