//! A peer that a process remembers something of: whether it is still there.

use peerage_shm::Ref;

use crate::choice::{Choice, FoundUp};
use crate::layout::{Entry, Peer, get, high};
use crate::worker::Worker;

/// A peer, to be looked for later.
#[derive(Clone, Copy)]
pub struct Known {
    upstream: FoundUp,
    at: Ref,
    uid: u32,
    /// Revision of the upstream's table in which it was seen.
    revision: u64,
}

impl Choice {
    /// A number that no other peer of the zone ever has, of the peer of the last try.
    pub const fn number(&self) -> Option<u32> {
        if self.last == 0 { None } else { Some(self.last) }
    }

    /// The peer that is held.
    pub fn known(&self) -> Option<Known> {
        let (upstream, held) = (self.upstream?, self.held.as_ref()?);
        Some(Known { upstream, at: held.peer().at, uid: self.last, revision: 0 })
    }
}

impl Worker {
    /// Whether the peer is still one of its upstream's. Looks at the upstream's entries only where
    /// something of it has changed, and at none beyond the budget: then the peer counts as there.
    pub fn knows(&self, known: &mut Known, budget: &mut usize) -> bool {
        let _section = self.enter();
        let table = known.upstream.again().and_then(|up| up.table(self.zone()));
        let Some(table) = table else { return false };
        if table.revision() == known.revision {
            return true;
        }
        let entries = table.entries();
        let Some(left) = budget.checked_sub(entries.len()) else { return true };
        *budget = left;
        known.revision = table.revision();
        let is_it = |entry: &[_; Entry::WORDS]| high(get(&entry[0])) == known.at.raw();
        entries.iter().any(is_it)
            && Peer::at(self.region(), known.at).is_some_and(|peer| peer.uid() == known.uid)
    }
}
