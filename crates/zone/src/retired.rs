//! What a change takes out of reach.

use peerage_shm::Ref;

use crate::layout::{Blob, Entry, Table, Up, low};
use crate::stored::Stored;

/// Blocks, and peers that go when nobody holds them.
#[derive(Default)]
pub(crate) struct Retired {
    pub(crate) blocks: Vec<(Ref, u32)>,
    pub(crate) peers: Vec<Ref>,
}

impl Retired {
    /// What the new table no longer names.
    pub(crate) fn replaced(&mut self, stored: Option<&Stored>, cold: Blob, table: Table) {
        let Some(stored) = stored else { return };
        let mut kept: Vec<Ref> = table
            .entries()
            .iter()
            .map(Entry::read)
            .flat_map(|entry| [entry.peer, entry.cold])
            .collect();
        kept.sort_unstable();
        let gone = |at: Ref| !at.is_none() && kept.binary_search(&at).is_err();
        self.table(stored);
        if table.part().at != stored.part.at {
            self.part(stored);
        }
        if stored.cold != cold {
            self.blocks.push((stored.cold.at, stored.cold.granules()));
        }
        if stored.texts != table.texts() {
            self.texts(stored);
        }
        for server in &stored.servers {
            if gone(server.cold.at) {
                self.blocks.push((server.cold.at, server.cold.granules()));
            }
            self.peers.extend(server.entries.iter().map(|e| e.peer).filter(|&at| gone(at)));
        }
    }

    /// Everything of an upstream.
    pub(crate) fn everything(&mut self, stored: &Stored) {
        self.table(stored);
        self.part(stored);
        self.blocks.push((stored.cold.at, stored.cold.granules()));
        self.texts(stored);
        let name = stored.upstream.name.as_str().len();
        self.blocks.push((stored.at, Up::granules(name)));
        for server in &stored.servers {
            self.blocks.push((server.cold.at, server.cold.granules()));
            self.peers.extend(server.entries.iter().map(|e| e.peer).filter(|at| !at.is_none()));
        }
    }

    fn texts(&mut self, stored: &Stored) {
        if stored.texts.len != 0 {
            self.blocks.push((stored.texts.at, stored.texts.granules()));
        }
    }

    fn table(&mut self, stored: &Stored) {
        let at = Ref::from_raw((stored.word >> 32) as u32);
        self.blocks.push((at, Table::granules(low(stored.word) as usize)));
    }

    fn part(&mut self, stored: &Stored) {
        if !stored.part.at.is_none() {
            self.blocks.push((stored.part.at, stored.part.granules(stored.primaries)));
        }
    }
}
