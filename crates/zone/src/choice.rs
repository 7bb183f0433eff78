//! A request's choice of peers: what it holds now, and what it tried before.

use std::cell::Cell;

use peerage_shm::{AtomicU64, Held};

use crate::layout::{Peer, Up};

/// Peers a request remembers inline; more go to the heap.
const INLINE: usize = 2;

/// The balancer's memory of one request; small, since every request has one.
///
/// Plain data: dropping it releases nothing in the zone, `Worker::abandon` does.
pub struct Choice {
    /// That of the last try; before the first, the one that it is known to be for.
    pub(crate) upstream: Option<FoundUp>,
    pub(crate) server_id: u64,
    pub(crate) held: Option<Holding>,
    /// `Peer::uid` of the last peer; 0 before the first.
    pub(crate) last: u32,
    tries: u8,
    /// The last peer was chosen by its times, which are measured then.
    pub(crate) timed: bool,
    /// Peers before the last.
    tried: [u32; INLINE],
    #[expect(clippy::box_collection, reason = "a word instead of three, and hardly ever there")]
    more: Option<Box<Vec<u32>>>,
}

impl Choice {
    /// Nothing chosen yet.
    pub const fn new() -> Self {
        Self {
            upstream: None,
            server_id: 0,
            held: None,
            last: 0,
            tries: 0,
            timed: false,
            tried: [0; INLINE],
            more: None,
        }
    }

    /// Says which upstream it is for, as found before: see [`Target::Known`].
    #[inline]
    pub fn is_for(&mut self, upstream: FoundUp) {
        self.upstream = Some(upstream);
    }

    /// Whether a peer is held: chosen and not yet given back.
    #[inline]
    pub const fn held(&self) -> bool {
        self.held.is_some()
    }

    /// Id of the server of the last try.
    pub const fn server_id(&self) -> Option<u64> {
        if self.server_id == 0 { None } else { Some(self.server_id) }
    }

    /// Whether this request never chose a peer.
    #[inline]
    pub(crate) const fn is_first(&self) -> bool {
        self.last == 0
    }

    /// Whether a try went to the peer of this number.
    pub(crate) fn tried(&self, uid: u32) -> bool {
        self.last == uid
            || self.tried[..usize::from(self.tries)].contains(&uid)
            || self.more.as_ref().is_some_and(|more| more.contains(&uid))
    }

    /// Remembers the last peer among those tried, before the next is chosen.
    pub(crate) fn again(&mut self) {
        match self.tried.get_mut(usize::from(self.tries)) {
            Some(place) => {
                *place = self.last;
                self.tries += 1;
            }
            None => self.more.get_or_insert_default().push(self.last),
        }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::new()
    }
}

/// A peer held, with its words at hand.
#[derive(Clone, Copy)]
pub(crate) struct Holding {
    pub(crate) words: &'static [AtomicU64; Peer::WORDS],
    pub(crate) held: Held,
}

impl Holding {
    #[inline]
    pub(crate) const fn peer(&self) -> Peer {
        Peer::of(self.held.record(), self.words)
    }
}

/// An upstream found inside a read section, to be known again inside a later one.
#[derive(Clone, Copy)]
pub struct FoundUp {
    up: Up,
    stamp: u64,
}

impl FoundUp {
    #[inline]
    pub(crate) fn new(up: Up) -> Self {
        // One that has just ended never lives again, whatever comes into its memory.
        Self { up, stamp: up.stamp().max(1) }
    }

    /// The upstream, if its record lives; until the end of the section if it does.
    #[inline]
    pub(crate) fn again(self) -> Option<Up> {
        self.lives().then_some(self.up)
    }

    /// Whether its record lives; outside a section it may end at any moment.
    #[inline]
    pub fn lives(self) -> bool {
        self.up.stamp() == self.stamp
    }
}

/// A name known while the configuration is read, with the last look-up of this process.
///
/// For one zone: its answer is a place there.
pub struct Fixed {
    pub(crate) name: Vec<u8>,
    pub(crate) seen: Cell<Option<FoundUp>>,
}

impl Fixed {
    /// For the upstream of this name, in lower case.
    pub fn new(name: &str) -> Self {
        Self { name: name.as_bytes().to_vec(), seen: Cell::new(None) }
    }
}

/// Which upstream a request goes to.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The block's own.
    Fixed(&'a Fixed),
    /// Named by the request; in lower case.
    Name(&'a [u8]),
    /// The same, where the choice may know the upstream.
    Known(&'a [u8]),
}

/// What a method chooses by, beside the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The client's address.
    Address,
    /// The value of the hash key.
    Text,
}

/// What the request says of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// It was not asked.
    Unasked,
    /// It says nothing: the request goes by round robin.
    None,
    /// See [`peerage_core::select::ip_hash::pick`].
    Address(&'a [u8]),
    /// The value of the hash key.
    Text(&'a [u8]),
}

/// Why a request gets no peer: the values of `$peerage_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPeer {
    /// The zone has no upstream of that name.
    UnknownUpstream,
    /// The block does not serve names like this.
    NameRefused,
    /// The upstream has no server at all.
    NoServers,
    /// No server takes requests now.
    AllUnavailable,
    /// This worker has no entry left for a request in flight.
    Busy,
}

impl NoPeer {
    /// As `$peerage_error` shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownUpstream => "unknown_upstream",
            Self::NameRefused => "name_refused",
            Self::NoServers => "no_servers",
            Self::AllUnavailable => "all_unavailable",
            Self::Busy => "busy",
        }
    }
}

/// The time of nginx's event loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Seconds, as `ngx_time()`.
    pub secs: u32,
    /// Milliseconds since the epoch.
    pub msec: u64,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// nginx calls the peer failed.
    pub failed: bool,
    /// Status of the response; 0 where there was none.
    pub status: u16,
    /// Time to the response's header, ms.
    pub header_ms: Option<u64>,
    /// Time to its end, ms.
    pub response_ms: u64,
    /// Bytes sent to the server.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}

/// What the end of a try changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The peer is barred from now on by `max_fails`; said once.
    pub disabled: bool,
    /// The peer is ejected from now on as an outlier; said once.
    pub ejected: bool,
}

#[cfg(test)]
mod tests {
    use peerage_shm::Ref;

    use super::*;
    use crate::trial::zone;

    #[test]
    fn what_ended_while_it_was_found_is_not_taken_for_living() {
        let zone = zone(64 << 10);
        let at = Ref::from_raw(1_000);
        let up = Up::at(zone.region(), at).expect("the zone is larger");
        up.fill(zone.region(), 7, 9, b"app");
        let found = FoundUp::new(up);
        assert!(found.lives());
        up.end();
        assert!(!found.lives() && !FoundUp::new(up).lives());
        up.fill(zone.region(), 7, 10, b"app");
        assert!(!found.lives() && FoundUp::new(up).lives());
    }
}
