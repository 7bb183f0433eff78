//! Servers that are taken out, told to every process, so that each closes its connections to them.
//!
//! A ring of the zone has an entry for each peer that was taken out: what parts its address from
//! others with the number of its upstream, its record with its number, and when what is still open
//! is to be closed. Written under the lock after the change is in force; read by [`crate::Closing`].

use peerage_core::host::Hosts;
use peerage_core::record;
use peerage_core::server::{Admin, AdminState, Server};
use peerage_shm::{Ref, Writer};

use crate::address::{Address, known};
use crate::layout::{Entry, Peer, Shut, high, low, pack, root};
use crate::ring::{Lapped, Places, Ring};
use crate::size::shut_bytes;
use crate::sketch::Sketch;
use crate::stored::Stored;
use crate::zone::Zone;

/// A peer that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Taken {
    /// See [`known`].
    pub(crate) address: (u32, u32),
    /// Its record and its number.
    pub(crate) peer: (Ref, u32),
    /// When connections to it are closed, unix ms; 0 = they are not.
    pub(crate) close: u64,
}

/// What the operator and its source want of a server, and the operator of the host of one of its
/// addresses: how far that is taken out, and when what is open then is closed, 0 = never.
pub(crate) fn wanted(server: &Server, host: Option<&Admin>) -> (Shut, u64) {
    let shut = |admin: &Admin| match admin.state {
        AdminState::Up => Shut::Open,
        AdminState::Drain => Shut::Drain,
        AdminState::Down => Shut::Down,
    };
    let both = || [Some(&server.admin), host].into_iter().flatten();
    let close = both().filter_map(|admin| admin.close).min();
    let source = if server.wanted() == AdminState::Up { Shut::Open } else { Shut::Drain };
    (both().map(shut).chain([source]).max().unwrap_or_default(), close.map_or(0, |at| at.max(1)))
}

impl Taken {
    /// The peer, whose record lives.
    pub(crate) fn of(zone: &Zone, peer: Peer, close: u64) -> Option<Self> {
        let address = known(&Address::at(zone.region(), peer.address())?.sockaddr())?;
        Some(Self { address, peer: (peer.at, peer.uid()), close })
    }

    /// Its record and its number, in one word.
    pub(crate) fn key(self) -> u64 {
        let (at, uid) = self.peer;
        pack(at.raw(), uid)
    }

    fn words(self) -> [u64; 3] {
        let (address, upstream) = self.address;
        [pack(address, upstream), self.key(), self.close]
    }

    const fn from_words([address, peer, close]: [u64; 3]) -> Self {
        let peer = (Ref::from_raw(high(peer)), low(peer));
        Self { address: (high(address), low(address)), peer, close }
    }
}

impl Zone {
    /// When connections to a peer that drains are closed, 0 = they are not; `None` where it does not
    /// drain. Inside a read section.
    pub(crate) fn drains(&self, entry: Entry, peer: Peer) -> Option<u64> {
        if entry.open {
            return None;
        }
        let server = record::decode_server(&entry.cold().read(self.region())).ok()?;
        let hosts = self.stored_hosts().hosts;
        let address = Address::at(self.region(), peer.address());
        let host = address.and_then(|address| hosts.get(address.ip()?));
        let (shut, close) = wanted(&server, host);
        (shut == Shut::Drain).then_some(close)
    }

    /// Takes the ring, in a zone that is being laid out.
    pub(crate) fn lay_out_shut(&self, writer: &mut Writer<'_>) -> Option<()> {
        self.lay_out_ring(writer, PLACES, shut_bytes(self.region().bytes()))
    }

    /// The block of the ring, for the allocator's truth.
    pub(crate) fn shut_block(&self) -> (Ref, u32) {
        self.ring_block(PLACES)
    }

    /// A writer that died may not have told what it took out: whoever reads on looks for himself.
    /// Under the lock.
    pub(crate) fn forget_shut(&self) {
        self.shut_ring().cut();
    }

    fn shut_ring(&self) -> Ring<3> {
        Ring::new(self, PLACES)
    }

    /// Where the ring ends.
    pub(crate) fn shut_head(&self) -> u64 {
        self.shut_ring().head()
    }

    /// What was taken out since the ring ended at `*at`, which moves on.
    pub(crate) fn taken_since(&self, at: &mut u64) -> Result<Vec<Taken>, Lapped> {
        let ring = self.shut_ring();
        let head = ring.head();
        let mut taken = Vec::new();
        while *at < head {
            let (words, next) = ring.peek(*at)?;
            taken.push(Taken::from_words(words));
            *at = next;
        }
        Ok(taken)
    }

    /// Tells of peers that no table names any more, after a change that is in force. Under the lock;
    /// their records live, since readers may still see them.
    pub(crate) fn shut_gone(
        &self,
        _: &mut Writer<'_>,
        before: &Stored,
        hosts: &Hosts,
        after: Option<&Sketch>,
    ) {
        let entries = after.iter().flat_map(|sketch| &sketch.entries);
        let mut kept: Vec<Ref> = entries.map(|entry| entry.entry.peer).collect();
        kept.sort_unstable();
        for (server, stored) in before.upstream.servers.iter().zip(&before.servers) {
            let gone = stored.peers(self.region()).filter(|p| kept.binary_search(&p.at).is_err());
            for peer in gone {
                let address = Address::at(self.region(), peer.address());
                let host = address.and_then(|address| hosts.get(address.ip()?));
                peer.set_shut(Shut::Gone);
                self.tell_shut(peer, wanted(server, host).1);
            }
        }
    }

    /// Tells of peers that stay and are taken out, after a change that is in force. Under the lock.
    pub(crate) fn shut_kept(&self, _: &mut Writer<'_>, after: &Sketch, hosts_changed: bool) {
        for entry in &after.entries {
            // One that is new has no connections yet, and no record in the sketch.
            let Some(peer) = Peer::at(self.region(), entry.entry.peer) else { continue };
            let (shut, close) = entry.shut;
            let was = peer.shut(peer.uid());
            if was != shut {
                peer.set_shut(shut);
            }
            // Its time may be another one even if it stays as it was.
            if shut != Shut::Open && (was != shut || entry.blob.is_some() || hosts_changed) {
                self.tell_shut(peer, close);
            }
        }
    }

    fn tell_shut(&self, peer: Peer, close: u64) {
        let ring = self.shut_ring();
        let entry = Taken::of(self, peer, close).map(Taken::words);
        if let Some(head) = entry.and_then(|entry| ring.write(entry, &[], None)) {
            ring.publish(head);
        }
    }
}

/// Where the ring lies.
const PLACES: Places = Places { block: root::SHUT, head: root::SHUT_HEAD, tail: root::SHUT_TAIL };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::zone;

    #[test]
    fn what_is_told_reads_back_and_who_is_lapped_is_told_so() {
        let zone = zone(256 << 10);
        let mut at = zone.shut_head();
        let taken =
            |n: u32| Taken { address: (7, n), peer: (Ref::from_raw(9), n), close: u64::from(n) };
        let tell = |n: u32| {
            let ring = zone.shut_ring();
            ring.publish(ring.write(taken(n).words(), &[], None).expect("it fits"));
        };
        assert_eq!(zone.taken_since(&mut at).expect("kept"), []);
        tell(1);
        tell(2);
        assert_eq!(zone.taken_since(&mut at).expect("kept"), [taken(1), taken(2)]);
        let places = shut_bytes(256 << 10) as u32 / 32;
        (0..places).for_each(tell);
        assert_eq!(zone.taken_since(&mut at).expect("kept").len(), places as usize);
        (0..=places).for_each(tell);
        assert!(zone.taken_since(&mut at).is_err());
        at = zone.shut_head();
        zone.forget_shut();
        assert!(zone.taken_since(&mut at).is_err());
    }
}
