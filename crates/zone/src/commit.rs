//! Putting a change in force: the only code that alters what is reachable.
//!
//! Everything is computed before the lock is taken. Under it: is the upstream still as it was
//! read; is there room for all; write aside; one store; retire what it replaced. A writer may die
//! after any instruction: what is not reachable then is simply free again.

use std::sync::atomic::Ordering;

use peerage_core::name::UpstreamName;
use peerage_core::select::round_robin;
use peerage_core::upstream::Upstream;
use peerage_shm::{Epoch, Ref, Region, Writer};

use crate::address::AddressBlock;
use crate::directory::hash;
use crate::done::end_downtime;
use crate::layout::{
    Blob, Entry, Peer, Table, TableHead, Up, get, granules, low, pack, root, set, words_of,
};
use crate::sketch::{NewPeer, Sketch};
use crate::stored::Stored;
use crate::turn::{self, Order};
use crate::zone::Zone;

/// Granules kept for the admin state of each server: short texts always fit, see `Attempt`.
const ADMIN_GRANULES: u64 = 2;
/// Granules kept besides, for limbo blocks and what does not fit together exactly.
const SPARE_GRANULES: u64 = 128;

/// What a change makes of an upstream.
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a UpstreamName,
    pub(crate) stored: Option<&'a Stored>,
    /// `None`: the upstream goes.
    pub(crate) next: Option<Prepared>,
    /// Unix ms.
    pub(crate) now: u64,
    /// May use the reserve: it must not fail for lack of room.
    pub(crate) privileged: bool,
    /// The revision to give, where it is known (state file); else the next one.
    pub(crate) revision: Option<u64>,
}

/// A table computed beforehand, and the number of its upstream.
pub(crate) struct Prepared {
    sketch: Sketch,
    uid: u32,
}

impl Prepared {
    /// Granules that it takes beside the upstream's own record.
    pub(crate) fn granules(&self) -> u64 {
        self.sketch.granules(self.uid)
    }
}

/// Granules kept in a zone of so many servers, of which the largest upstream has `largest`.
pub(crate) fn reserve(largest: usize, servers: u64) -> u64 {
    kept(u64::from(Table::granules(largest)), servers)
}

fn kept(largest_table: u64, servers: u64) -> u64 {
    2 * largest_table + servers * ADMIN_GRANULES + SPARE_GRANULES
}

impl Zone {
    /// Computes the table for `next`. Outside the lock.
    pub(crate) fn prepare(&self, next: &Upstream, stored: Option<&Stored>) -> Prepared {
        let uid = stored.map_or_else(|| self.fresh_uid(), |stored| stored.up.uid());
        Prepared { sketch: Sketch::new(next, stored, self.region()), uid }
    }
}

/// Why a plan is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The upstream changed since it was read.
    Stale,
    /// Bytes needed and free.
    NoRoom { need: u64, free: u64 },
}

/// A plan in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    pub(crate) revision: u64,
    pub(crate) epoch: Epoch,
}

impl Zone {
    /// Puts a plan in force.
    pub(crate) fn commit(
        &self,
        writer: &mut Writer<'_>,
        plan: &Plan<'_>,
    ) -> Result<Committed, Unfit> {
        let now = self.find(plan.name.as_str().as_bytes());
        let fresh = match (now, plan.stored) {
            (None, None) => true,
            (Some(up), Some(stored)) => {
                // The revision too: a later table may lie where the one that was read lay.
                let revision = up.table(self.region()).map(|table| table.revision());
                up.stamp() == stored.stamp && revision == Some(stored.revision)
            }
            _ => false,
        };
        if !fresh {
            return Err(Unfit::Stale);
        }
        let revision = plan.revision.unwrap_or_else(|| get(self.root(root::REVISION)) + 1);
        let epoch = match &plan.next {
            Some(next) => self.set(writer, plan, next, revision)?,
            None => self.remove(writer, plan)?,
        };
        if plan.revision.is_none() {
            self.root(root::REVISION).store(revision, Ordering::Release);
        }
        Ok(Committed { revision, epoch })
    }

    fn set(
        &self,
        writer: &mut Writer<'_>,
        plan: &Plan<'_>,
        next: &Prepared,
        revision: u64,
    ) -> Result<Epoch, Unfit> {
        let region = *self.region();
        let mut room = Room { writer, privileged: plan.privileged, taken: Vec::new(), need: 0 };
        let Prepared { sketch, uid } = next;
        self.reserve(room.writer, plan.stored, sketch);
        room.need = sketch.granules(*uid);
        let built = self.build(&mut room, plan, sketch, *uid, revision);
        let (up, table, retired) = match built {
            Ok(built) => built,
            Err(unfit) => {
                room.give_back();
                return Err(unfit);
            }
        };
        let limbo = room.limbo(retired.blocks.len() + retired.peers.len());
        let Some(limbo) = limbo else {
            let unfit = room.no_room();
            room.give_back();
            return Err(unfit);
        };
        // From here on nothing fails. Times first: a round may look too early, never too late.
        self.root(root::NEXT_TTL).fetch_min(sketch.until, Ordering::SeqCst);
        self.root(root::ORPHANS).fetch_min(sketch.orphaned, Ordering::SeqCst);
        writer.publish(up.table_word(), table.word());
        if plan.stored.is_none() {
            self.link(up);
        }
        adjust(up, &region, table, sketch, plan);
        self.recount(plan.stored, Some(sketch.servers));
        Ok(writer.retire(limbo, &retired.blocks, &retired.peers))
    }

    fn build(
        &self,
        room: &mut Room<'_, '_>,
        plan: &Plan<'_>,
        sketch: &Sketch,
        uid: u32,
        revision: u64,
    ) -> Result<(Up, Table, Retired), Unfit> {
        let region = *self.region();
        let lost = || Unfit::NoRoom { need: 0, free: 0 };
        let up = match plan.stored {
            Some(stored) => stored.up,
            None => {
                let name = plan.name.as_str().as_bytes();
                let at = room.take(Up::granules(name.len()))?;
                let up = Up::at(&region, at).ok_or_else(lost)?;
                up.fill(&region, hash(name), uid, name);
                up
            }
        };
        let cold = match &sketch.cold {
            Some(bytes) => room.write(&region, bytes)?,
            None => plan.stored.map(|stored| stored.cold).unwrap_or_default(),
        };
        let mut blobs = Vec::with_capacity(sketch.blobs.len());
        for bytes in &sketch.blobs {
            blobs.push(room.write(&region, bytes)?);
        }
        let sequence = room.order(&region, &sketch.order)?;
        let n = sketch.entries.len();
        let at = room.take(Table::granules(n))?;
        let table = Table::at(&region, pack(at.raw(), n as u32)).ok_or_else(lost)?;
        for (entry, words) in sketch.entries.iter().zip(table.entries) {
            let mut filled = entry.entry;
            if let Some(blob) = entry.blob.and_then(|i| blobs.get(i)) {
                filled.cold = blob.at;
            }
            if let NewPeer::Make(socket) = &entry.peer {
                let address = AddressBlock::new(socket, uid);
                let place = address.write(&region, room.take(address.granules())?);
                filled.peer = room.take(Peer::GRANULES)?;
                let peer = Peer::at(&region, filled.peer).ok_or_else(lost)?;
                let id = entry.server_id;
                peer.fill(self.fresh_uid(), id, place, filled.weight);
            }
            for (word, value) in words.iter().zip(filled.words()) {
                set(word, value);
            }
        }
        table.fill_head(&TableHead {
            revision,
            primaries: sketch.primaries as u32,
            cold,
            usable: sketch.entries.iter().filter(|e| e.entry.open).count() as u32,
            servers: sketch.servers,
            sequence,
            until: sketch.until,
            orphaned: sketch.orphaned,
            declared: sketch.declared,
        });
        Ok((up, table, Retired::replaced(plan.stored, cold, table)))
    }

    fn remove(&self, writer: &mut Writer<'_>, plan: &Plan<'_>) -> Result<Epoch, Unfit> {
        let Some(stored) = plan.stored else { return Err(Unfit::Stale) };
        let retired = Retired::all(self.region(), stored);
        let free = writer.room().0 * 32;
        let limbo = writer
            .limbo(retired.blocks.len() + retired.peers.len())
            .ok_or(Unfit::NoRoom { need: 32, free })?;
        self.unlink(stored.up);
        self.recount(plan.stored, None);
        Ok(writer.retire(limbo, &retired.blocks, &retired.peers))
    }

    /// What is kept so that `up`, `down`, `drain` and weights never fail for lack of room: a new
    /// table beside the old one, and for each server what its admin state adds to its cold part.
    fn reserve(&self, writer: &mut Writer<'_>, before: Option<&Stored>, next: &Sketch) {
        let table = u64::from(Table::granules(next.entries.len()));
        let largest = self.root(root::LARGEST);
        set(largest, get(largest).max(table));
        let gone = before.map_or(0, |stored| stored.servers.len() as u64);
        let servers = (get(self.root(root::SERVERS)) + u64::from(next.servers)) - gone;
        writer.set_reserve(kept(get(largest), servers));
    }

    fn recount(&self, before: Option<&Stored>, after: Option<u32>) {
        let add = |i, more: u64, less: u64| {
            set(self.root(i), (get(self.root(i)) + more).saturating_sub(less));
        };
        let servers = before.map_or(0, |stored| stored.servers.len() as u64);
        add(root::UPSTREAMS, u64::from(after.is_some()), u64::from(before.is_some()));
        add(root::SERVERS, u64::from(after.unwrap_or(0)), servers);
    }
}

/// Moves the live weights to what the new table says.
///
/// Done after publication, with plain stores: a pick that races moves a level at most once more.
fn adjust(up: Up, region: &Region, table: Table, sketch: &Sketch, plan: &Plan<'_>) {
    let Some(stored) = plan.stored else { return };
    let before: Vec<(Ref, Entry)> = {
        let entries = stored.servers.iter().flat_map(|s| s.entries.iter().copied());
        let mut before: Vec<_> = entries.map(|e| (e.peer, e)).collect();
        before.sort_unstable_by_key(|&(at, _)| at);
        before
    };
    let find = |at: Ref| before.binary_search_by_key(&at, |&(at, _)| at).ok().map(|i| before[i].1);
    let total: i64 =
        sketch.entries.iter().filter(|e| e.entry.open).map(|e| i64::from(e.entry.weight)).sum();
    // Where the old cycle stood, as running weights.
    let tight = turn::leave(up, region, stored);
    let mut clean = true;
    for (new, words) in sketch.entries.iter().zip(table.entries) {
        let entry = Entry::read(words);
        let Some(peer) = Peer::at(region, entry.peer) else { continue };
        let Some(old) = find(entry.peer) else { continue };
        if old.weight != entry.weight || new.revived {
            set(peer.effective(), u64::from(entry.weight));
        }
        if new.revived {
            // `up` forgets failures.
            set(peer.passive(), 0);
            end_downtime(peer, plan.now);
        }
        let current = get(peer.current()).cast_signed();
        let settled = round_robin::settle(current, i64::from(entry.weight), total);
        set(peer.current(), settled.cast_unsigned());
        clean &= turn::is_clean(peer, entry);
    }
    turn::enter(up, tight || clean);
}

/// What a change takes out of reach.
#[derive(Default)]
struct Retired {
    blocks: Vec<(Ref, u32)>,
    peers: Vec<Ref>,
}

impl Retired {
    /// What the new table no longer names.
    fn replaced(stored: Option<&Stored>, cold: Blob, table: Table) -> Self {
        let mut retired = Self::default();
        let Some(stored) = stored else { return retired };
        let mut kept: Vec<Ref> = table
            .entries
            .iter()
            .map(Entry::read)
            .flat_map(|entry| [entry.peer, entry.cold])
            .collect();
        kept.sort_unstable();
        let gone = |at: Ref| !at.is_none() && kept.binary_search(&at).is_err();
        retired.table(stored);
        if stored.cold != cold {
            retired.blocks.push((stored.cold.at, stored.cold.granules()));
        }
        for server in &stored.servers {
            if gone(server.cold.at) {
                retired.blocks.push((server.cold.at, server.cold.granules()));
            }
            retired.peers.extend(server.entries.iter().map(|e| e.peer).filter(|&at| gone(at)));
        }
        retired
    }

    /// Everything of an upstream.
    fn all(_region: &Region, stored: &Stored) -> Self {
        let mut retired = Self::default();
        retired.table(stored);
        retired.blocks.push((stored.cold.at, stored.cold.granules()));
        let name = stored.upstream.name.as_str().len();
        retired.blocks.push((stored.up.at, Up::granules(name)));
        for server in &stored.servers {
            retired.blocks.push((server.cold.at, server.cold.granules()));
            let peers = server.entries.iter().map(|e| e.peer).filter(|at| !at.is_none());
            retired.peers.extend(peers);
        }
        retired
    }

    fn table(&mut self, stored: &Stored) {
        let at = Ref::from_raw((stored.word >> 32) as u32);
        self.blocks.push((at, Table::granules(low(stored.word) as usize)));
        let (sequence, places) = stored.sequence;
        if places != 0 {
            self.blocks.push((sequence, granules(turn::order_words(stored.primaries, places))));
        }
    }
}

/// Blocks taken for a change, given back together if it does not fit.
struct Room<'a, 'w> {
    writer: &'a mut Writer<'w>,
    privileged: bool,
    taken: Vec<(Ref, u32)>,
    /// Granules that the change needs in all.
    need: u64,
}

impl Room<'_, '_> {
    fn take(&mut self, granules: u32) -> Result<Ref, Unfit> {
        let at = if self.privileged {
            self.writer.alloc_reserved(granules)
        } else {
            self.writer.alloc(granules)
        };
        let at = at.ok_or_else(|| self.no_room())?;
        self.taken.push((at, granules));
        Ok(at)
    }

    fn write(&mut self, region: &Region, bytes: &[u8]) -> Result<Blob, Unfit> {
        let at = self.take(granules(words_of(bytes.len())))?;
        region.write_bytes(at, 0, bytes);
        Ok(Blob { at, len: bytes.len() as u32 })
    }

    fn order(&mut self, region: &Region, order: &Order) -> Result<(Ref, u32), Unfit> {
        if order.words.is_empty() {
            return Ok((Ref::NONE, 0));
        }
        let at = self.take(granules(order.words.len()))?;
        let words = region.words(at, order.words.len()).unwrap_or_default();
        for (word, &value) in words.iter().zip(&order.words) {
            set(word, value);
        }
        Ok((at, order.places))
    }

    fn limbo(&mut self, n: usize) -> Option<peerage_shm::Limbo> {
        self.writer.limbo(n)
    }

    fn no_room(&self) -> Unfit {
        let taken: u64 = self.taken.iter().map(|&(_, n)| u64::from(n)).sum();
        let (free, reserve) = self.writer.room();
        let free = if self.privileged { free } else { free.saturating_sub(reserve) };
        Unfit::NoRoom { need: self.need * 32, free: (free + taken) * 32 }
    }

    fn give_back(self) {
        for (at, granules) in self.taken {
            self.writer.free(at, granules);
        }
    }
}
