//! What a table has for its method beside its entries: an order of turns, sums of weights, a ring.
//!
//! It is computed outside the lock and lies in a block of its own, which the next table takes over
//! where nothing changed that it derives from: a server of a large ring that goes down writes no
//! ring.

use peerage_core::select::consistent::{self, Share};
use peerage_core::select::{EXACT_PEERS, cycle, sequence, weights};
use peerage_core::server::Server;
use peerage_core::upstream::{Method, Upstream};
use peerage_shm::{Ref, Region};

use crate::commit::Unfit;
use crate::layout::{get, granules, high, pack};
use crate::room::Room;
use crate::stored::Stored;
use crate::turn::{Order, order_words};

/// Places of a precomputed order, at most, unless there are more peers.
pub(crate) const PLACES: usize = 4096;
/// Places or points for each peer in what comes out of the reserve, at most.
const BRIEF_PLACES: usize = 4;
/// Points of a ring, at most, unless there are more servers: nginx's own up to a sum of weights of
/// 1,024.
const RING_POINTS: usize = 1024 * consistent::POINTS as usize;

/// What a table has for its method.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) method: Method,
    /// Where it lies, if it has a block.
    pub(crate) at: Ref,
    /// The places of an order; the words of sums or of a ring; without a block, where weights
    /// matter, the weight that all primaries have, 0 where they differ.
    pub(crate) number: u32,
}

impl Part {
    /// Words of the block of a table with so many primaries.
    pub(crate) fn words(self, primaries: usize) -> usize {
        if self.at.is_none() {
            return 0;
        }
        match kind(self.method) {
            Kind::Order => order_words(primaries, self.number),
            Kind::Weights | Kind::Ring => self.number as usize,
        }
    }

    pub(crate) fn granules(self, primaries: usize) -> u32 {
        granules(self.words(primaries))
    }
}

/// What a method goes by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An order of turns: all of round robin, the start of a search in large groups of others.
    Order,
    /// Ranges of weights.
    Weights,
    /// A ring of points.
    Ring,
}

pub(crate) const fn kind(method: Method) -> Kind {
    match method {
        Method::RoundRobin
        | Method::LeastConn
        | Method::LeastTimeHeader
        | Method::LeastTimeLastByte => Kind::Order,
        Method::Random | Method::RandomTwo | Method::Hash | Method::IpHash => Kind::Weights,
        Method::HashConsistent => Kind::Ring,
    }
}

/// The number of a method in a table.
pub(crate) const fn code(method: Method) -> u32 {
    method as u32
}

/// The method of a number.
#[inline]
pub(crate) const fn method(code: u32) -> Method {
    let i = (code & 0xf) as usize;
    if i < Method::ALL.len() { Method::ALL[i] } else { Method::RoundRobin }
}

/// Words that may come out of the reserve for an upstream of so many entries that has so many now.
pub(crate) const fn brief_words(entries: usize, method: Method, words: usize) -> usize {
    match kind(method) {
        // Groups of up to 64 have the same shares without an order, only slower.
        Kind::Order if entries <= EXACT_PEERS => 0,
        Kind::Order => {
            // Each peer has a place at least, which may come on top.
            let limit =
                if BRIEF_PLACES * entries < PLACES { BRIEF_PLACES * entries } else { PLACES };
            let limit = if limit < entries { entries } else { limit };
            (limit + entries).div_ceil(2)
        }
        // One peer after the other is looked at, with the same answer.
        Kind::Weights => 0,
        Kind::Ring => 1 + brief_points(entries, words),
    }
}

/// Points of a ring that comes out of the reserve: as many as the one in force has.
const fn brief_points(entries: usize, words: usize) -> usize {
    let (now, least) = (words.saturating_sub(1), BRIEF_PLACES * entries);
    if now > least { now } else { least }
}

/// What a new table will have for its method.
pub(crate) enum NewPart {
    /// What the table before has.
    Kept(Part),
    /// No block.
    Number(u32),
    /// An order, and of whom.
    Order(Order, Vec<Weighted>),
    /// Sums of weights.
    Sums(Vec<u64>),
    Ring(NewRing),
}

/// A primary peer, as far as a part hangs on it.
#[derive(Clone, Copy)]
pub(crate) struct Weighted {
    /// Configured.
    pub(crate) weight: u32,
    pub(crate) open: bool,
    /// It has a `max_conns`.
    pub(crate) is_limited: bool,
}

impl NewPart {
    /// For the primaries of an upstream whose table before is that of `stored`.
    pub(crate) fn new(
        next: &Upstream,
        peers: &[Weighted],
        stored: Option<&Stored>,
        region: &Region,
    ) -> Self {
        let method = next.settings.method();
        if let Some(stored) = stored.filter(|stored| is_kept(next, method, stored, region)) {
            return Self::Kept(stored.part);
        }
        match kind(method) {
            Kind::Order => Self::Order(order(method, peers, PLACES), peers.to_vec()),
            Kind::Weights => {
                let weights = peers.iter().map(|peer| peer.weight);
                match peers.first() {
                    None => Self::Number(0),
                    Some(first) if weights.clone().all(|w| w == first.weight) => {
                        Self::Number(first.weight)
                    }
                    Some(_) => Self::Sums(weights::sums(weights)),
                }
            }
            Kind::Ring => Self::Ring(NewRing::new(next, ring_limit(next.servers.len()))),
        }
    }

    /// Makes do with what is kept in reserve.
    pub(crate) fn be_brief(&mut self, method: Method, entries: usize, had: usize) {
        match self {
            Self::Kept(_) | Self::Number(_) => {}
            // A small group has the same shares without an order; a large one has coarser ones.
            Self::Order(_, peers) if peers.len() <= EXACT_PEERS => *self = Self::Number(0),
            Self::Order(order, peers) => {
                *order = self::order(method, peers, PLACES.min(BRIEF_PLACES * peers.len()));
            }
            Self::Sums(_) => *self = Self::Number(0),
            Self::Ring(ring) => {
                ring.limit_to(brief_points(entries, had));
                ring.draw();
            }
        }
    }

    /// Computes what only the table itself needs, not its size.
    pub(crate) fn draw(&mut self) {
        if let Self::Ring(ring) = self {
            ring.draw();
        }
    }

    /// Words of its block.
    pub(crate) fn words(&self, primaries: usize) -> usize {
        match self {
            Self::Kept(part) => part.words(primaries),
            _ => self.new_words(),
        }
    }

    /// The same, but for what is there already.
    pub(crate) fn new_words(&self) -> usize {
        match self {
            Self::Kept(_) | Self::Number(_) => 0,
            Self::Order(order, _) => order.words.len(),
            Self::Sums(sums) => sums.len(),
            Self::Ring(ring) => ring.words_len(),
        }
    }

    pub(crate) fn write(
        &self,
        method: Method,
        room: &mut Room<'_, '_>,
        region: &Region,
    ) -> Result<Part, Unfit> {
        let (number, words): (u32, &[u64]) = match self {
            Self::Kept(part) => return Ok(*part),
            Self::Number(number) => (*number, &[]),
            Self::Order(order, _) => (order.places, &order.words),
            Self::Sums(sums) => (sums.len() as u32, sums),
            Self::Ring(ring) => (ring.words.len() as u32, &ring.words),
        };
        Ok(Part { method, at: room.words(region, words)?, number })
    }
}

/// The order in which peers take turns.
fn order(method: Method, peers: &[Weighted], limit: usize) -> Order {
    let weight = |peer: &Weighted| if peer.open { peer.weight } else { 0 };
    let weights: Vec<u32> = peers.iter().map(weight).collect();
    if peers.len() > EXACT_PEERS {
        // Equal weights take turns as they stand.
        let equal = weights.iter().all(|&w| w == weights[0]);
        return if equal {
            Order::default()
        } else {
            Order::wide(&sequence::build(&weights, limit))
        };
    }
    // A peer at its limit would leave the cycle at every turn.
    let is_cycle = method == Method::RoundRobin && peers.len() > 1;
    if !is_cycle || peers.iter().any(|peer| peer.is_limited) {
        return Order::default();
    }
    Order::narrow(&cycle::build(&weights, limit))
}

/// Whether what the table before has is what the new one would get.
fn is_kept(next: &Upstream, method: Method, stored: &Stored, region: &Region) -> bool {
    if stored.part.method != method || stored.part.at.is_none() {
        return false;
    }
    let by_text = match kind(method) {
        Kind::Order => return false,
        Kind::Weights => false,
        Kind::Ring => true,
    };
    // One that came out of the reserve is coarser.
    let limit = || high(region.word(stored.part.at, 0).map_or(0, get)) as usize;
    if by_text && limit() != ring_limit(next.servers.len()) {
        return false;
    }
    let before = &stored.upstream;
    let is_same = |(new, old): (&Server, &Server)| {
        next.limits(new).weight == before.limits(old).weight
            && new.addrs.len() == old.addrs.len()
            && (!by_text || (&new.addr, &new.given) == (&old.addr, &old.given))
    };
    let (new, old) = (primaries(next), primaries(before));
    new.clone().count() == old.clone().count() && new.zip(old).all(is_same)
}

fn primaries(upstream: &Upstream) -> impl Iterator<Item = &Server> + Clone {
    upstream.servers.iter().filter(|server| !server.params.backup)
}

const fn ring_limit(servers: usize) -> usize {
    let least = 2 * servers;
    if RING_POINTS > least { RING_POINTS } else { least }
}

/// A ring before it has a place. Its block begins with the limit of its points, and how many of
/// them are at places of their own; each point is its place and the first peer of its server.
pub(crate) struct NewRing {
    /// Text, first peer and weight of each primary server.
    servers: Vec<(String, u32, u32)>,
    points: Vec<u32>,
    limit: usize,
    words: Vec<u64>,
}

impl NewRing {
    fn new(next: &Upstream, limit: usize) -> Self {
        let mut peer = 0;
        let servers = primaries(next).map(|server| {
            let first = peer;
            peer += server.addrs.len().max(1) as u32;
            (server.text(), first, u32::from(next.limits(server).weight))
        });
        let mut ring =
            Self { servers: servers.collect(), points: Vec::new(), limit, words: Vec::new() };
        ring.limit_to(limit);
        ring
    }

    fn limit_to(&mut self, limit: usize) {
        let weights: Vec<u32> = self.servers.iter().map(|&(_, _, weight)| weight).collect();
        self.points = consistent::points(&weights, limit);
        self.limit = limit;
        self.words.clear();
    }

    fn words_len(&self) -> usize {
        match self.points.iter().map(|&points| points as usize).sum::<usize>() {
            0 => 0,
            points => 1 + points,
        }
    }

    fn draw(&mut self) {
        let len = self.words_len();
        if len == 0 {
            return;
        }
        let servers = self.servers.iter().zip(&self.points);
        let shares: Vec<Share<'_>> =
            servers.map(|((text, peer, _), &points)| Share { text, peer: *peer, points }).collect();
        let ring = consistent::ring(&shares);
        self.words = Vec::with_capacity(len);
        self.words.push(pack(self.limit as u32, ring.len() as u32));
        self.words.extend(ring.into_iter().map(|(place, peer)| pack(place, peer)));
        self.words.resize(len, 0);
    }
}
