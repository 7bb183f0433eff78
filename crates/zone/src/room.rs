//! Memory for a change, taken before anything of it can be seen.

use peerage_core::host::Hosts;
use peerage_core::record;
use peerage_shm::{Ref, Region, Writer};

use crate::commit::Unfit;
use crate::hosts;
use crate::layout::{Blob, granules, set, words_of};
use crate::size::GRANULE;

/// Blocks taken for a change, given back together if it does not fit.
pub(crate) struct Room<'a, 'w> {
    writer: &'a mut Writer<'w>,
    privileged: bool,
    taken: Vec<(Ref, u32)>,
    /// Granules that the change needs in all.
    need: u64,
}

impl<'a, 'w> Room<'a, 'w> {
    /// `need` is what the change takes in all, granules.
    pub(crate) const fn new(writer: &'a mut Writer<'w>, privileged: bool, need: u64) -> Self {
        Self { writer, privileged, taken: Vec::new(), need }
    }

    pub(crate) fn take(&mut self, granules: u32) -> Result<Ref, Unfit> {
        let at = if self.privileged {
            self.writer.alloc_reserved(granules)
        } else {
            self.writer.alloc(granules)
        };
        let at = at.ok_or_else(|| self.no_room())?;
        self.taken.push((at, granules));
        Ok(at)
    }

    pub(crate) fn write(&mut self, region: &Region, bytes: &[u8]) -> Result<Blob, Unfit> {
        let at = self.take(granules(words_of(bytes.len())))?;
        region.write_bytes(at, 0, bytes);
        Ok(Blob { at, len: bytes.len() as u32 })
    }

    /// A block with these words; none where there are none.
    pub(crate) fn words(&mut self, region: &Region, values: &[u64]) -> Result<Ref, Unfit> {
        if values.is_empty() {
            return Ok(Ref::NONE);
        }
        let at = self.take(granules(values.len()))?;
        let words = region.words(at, values.len()).unwrap_or_default();
        for (word, &value) in words.iter().zip(values) {
            set(word, value);
        }
        Ok(at)
    }

    pub(crate) fn hosts(
        &mut self,
        region: &Region,
        hosts: &Hosts,
        revision: u64,
        stamp: u64,
    ) -> Result<Blob, Unfit> {
        let bytes = record::encode_hosts(hosts);
        let blob = Blob { at: Ref::NONE, len: bytes.len() as u32 };
        let blob = Blob { at: self.take(hosts::granules(blob))?, ..blob };
        hosts::write(region, blob, &bytes, revision, stamp);
        Ok(blob)
    }

    pub(crate) fn limbo(&mut self, n: usize) -> Option<peerage_shm::Limbo> {
        self.writer.limbo(n)
    }

    pub(crate) fn no_room(&self) -> Unfit {
        let taken: u64 = self.taken.iter().map(|&(_, n)| u64::from(n)).sum();
        let (free, reserve) = self.writer.room();
        let kept = if self.privileged { 0 } else { reserve };
        let (need, mut free) = (self.need, (free + taken).saturating_sub(kept));
        if need <= free {
            // There is enough, in pieces that are too short.
            free = free.min(self.writer.longest(self.privileged));
        }
        Unfit::NoRoom { need: need * GRANULE, free: free * GRANULE }
    }

    pub(crate) fn give_back(self) {
        for (at, granules) in self.taken {
            self.writer.free(at, granules);
        }
    }
}
