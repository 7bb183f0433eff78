//! A look for a peer where it is more than a turn of the cycle: what the method says, of primaries
//! and then of backups.

use peerage_core::check::OnAllDown;
use peerage_core::select::{
    Candidate, EXACT_PEERS, Level, View, consistent, hash, ip_hash, least_conn, least_time, ramp,
    random, round_robin, spread, weights,
};
use peerage_core::upstream::Method;
use peerage_shm::{AtomicU64, Ordering, Ref, Region, count};

use crate::choice::{Choice, Clock, Key, NoPeer};
use crate::health;
use crate::layout::{Entry, Peer, Table, Up, get, high, low};
use crate::part::{self, Kind};
use crate::pick::passive;
use crate::turn;
use crate::worker::Worker;
use crate::young;

/// One look for a peer that does not go by the cycle.
pub(crate) struct Balancer<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) up: Up,
    pub(crate) table: Table,
    pub(crate) method: Method,
    pub(crate) key: Key<'a>,
    pub(crate) clock: &'a Clock,
}

impl Balancer<'_> {
    /// The primary, else the backup, that the method chooses: which entry of the table.
    #[inline(never)]
    pub(crate) fn search(&self, choice: &Choice) -> Result<usize, NoPeer> {
        let Self { worker, table, .. } = *self;
        let primaries = table.primaries().min(table.entries().len());
        let (primaries, backups) = table.entries().split_at(primaries);
        let is_young = young::is_any(self.up, self.clock.msec) && self.method.ramps();
        let group = Group::new(worker, (table, primaries), choice, self.clock, is_young);
        if let Some(i) = self.of_any(&group, Self::of_primaries) {
            return Ok(i);
        }
        if table.entries().is_empty() {
            return Err(NoPeer::NoServers);
        }
        let group = Group { entries: backups, ..group };
        if let Some(i) = self.of_any(&group, Self::of_backups) {
            return Ok(primaries.len() + i);
        }
        self.at_last(primaries, backups, &group).ok_or(NoPeer::AllUnavailable)
    }

    /// Where nothing else is left: peers that their health bars, as far as the upstream says.
    #[cold]
    fn at_last(
        &self,
        primaries: &'static [[AtomicU64; Entry::WORDS]],
        backups: &'static [[AtomicU64; Entry::WORDS]],
        group: &Group<'_>,
    ) -> Option<usize> {
        let barred = |words| {
            let peer = Peer::at(self.worker.region(), Entry::read(words).peer);
            peer.is_some_and(|peer| passive(peer).may_be_barred())
        };
        if !primaries.iter().chain(backups).any(barred) {
            return None;
        }
        let on_all_down =
            if self.table.health().refuse { OnAllDown::Refuse } else { OnAllDown::Use };
        let group = Group { entries: primaries, at_last: Some(on_all_down), ..*group };
        self.of_any(&group, Self::of_primaries).or_else(|| {
            let group = Group { entries: backups, ..group };
            Some(primaries.len() + self.of_any(&group, Self::of_backups)?)
        })
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
pub(crate) struct Group<'a> {
    worker: &'a Worker,
    region: Region,
    entries: &'static [[AtomicU64; Entry::WORDS]],
    choice: &'a Choice,
    clock: &'a Clock,
    /// The first try of a request, and no peer is young.
    is_plain: bool,
    /// Nobody else could serve: failures bar nobody.
    single: bool,
    /// Some peer may ramp up or be new.
    is_young: bool,
    /// Peers that ramp up take part only now and then.
    is_ramped: bool,
    /// Nothing else is left: what bars peers by their health counts only so far.
    at_last: Option<OnAllDown>,
}

impl<'a> Group<'a> {
    /// Entries of a table.
    #[inline]
    pub(crate) fn new(
        worker: &'a Worker,
        (table, entries): (Table, &'static [[AtomicU64; Entry::WORDS]]),
        choice: &'a Choice,
        clock: &'a Clock,
        is_young: bool,
    ) -> Self {
        let is_plain = choice.is_first() && !is_young;
        let single = table.tries() <= 1;
        let region = *worker.region();
        Self {
            worker,
            region,
            entries,
            choice,
            clock,
            is_plain,
            single,
            is_young,
            is_ramped: is_young,
            at_last: None,
        }
    }

    #[inline(always)]
    fn look(&self, i: usize) -> Option<(Entry, Peer)> {
        let entry = Entry::read(self.entries.get(i)?);
        Some((entry, Peer::at(&self.region, entry.peer)?))
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

    /// Whether its health or failures bar a peer.
    #[cold]
    fn is_barred(&self, i: usize) -> bool {
        let Some((entry, peer)) = self.look(i) else { return false };
        let word = passive(peer);
        if let Some(bar) = health::bar_of(word, peer, self.clock.msec)
            && self.at_last.is_none_or(|on_all_down| bar.holds_at_last(on_all_down))
        {
            return true;
        }
        !self.single && word.barred(entry.rules(), self.clock.secs)
    }

    /// Whether this request may go to an open peer: how new the peer is.
    #[cold]
    fn admits(&self, i: usize) -> Option<u32> {
        let (entry, peer) = self.look(i)?;
        // The only one is tried again after a kept connection turned out closed, as in nginx.
        if !self.choice.is_first() && !self.single && self.choice.tried(peer.uid()) {
            return None;
        }
        if self.is_ramped && entry.slow_start != 0 && !self.takes_part(entry, peer) {
            return None;
        }
        let start = || get(peer.start());
        Some(if self.is_young { ramp::freshness(start(), self.clock.msec) } else { 0 })
    }

    /// Whether a peer that ramps up takes part this time.
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
        let entry = Entry::brief(self.entries.get(i)?)?;
        let peer = Peer::at(&self.region, entry.peer)?;
        if !passive(peer).is_plain() && self.is_barred(i) {
            return None;
        }
        let active = count(get(peer.in_flight()));
        if entry.max_conns != 0 && active >= entry.max_conns {
            return None;
        }
        let fresh = if self.is_plain { 0 } else { self.admits(i)? };
        Some(Candidate {
            weight: i64::from(entry.weight),
            current: Level::new(peer.current()),
            effective: Level::new(peer.effective()),
            active,
            fresh,
        })
    }

    #[inline(always)]
    fn again(&self, i: usize) -> Option<Candidate<'_>> {
        let entry = Entry::brief(self.entries.get(i)?)?;
        let peer = Peer::at(&self.region, entry.peer)?;
        Some(Candidate {
            weight: i64::from(entry.weight),
            current: Level::new(peer.current()),
            effective: Level::new(peer.effective()),
            active: 0,
            fresh: 0,
        })
    }

    #[inline]
    fn has_newcomers(&self) -> bool {
        self.is_young
    }

    fn tried(&self, i: usize) -> bool {
        self.look(i).is_some_and(|(_, peer)| self.choice.tried(peer.uid()))
    }

    fn weight(&self, i: usize) -> u32 {
        self.entries.get(i).map_or(0, |words| u32::from(Entry::read(words).weight))
    }
}
