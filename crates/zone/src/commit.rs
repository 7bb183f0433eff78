//! Putting a change in force: the only code that alters what is reachable.
//!
//! Everything is computed before the lock is taken. Under it: is the upstream still as it was
//! read; is there room for all; write aside; one store; retire what it replaced. A writer may die
//! after any instruction: what is not reachable then is simply free again.

use std::sync::atomic::Ordering;

use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::passive::HINTS;
use peerage_core::select::round_robin;
use peerage_core::upstream::{Method, Upstream};
use peerage_shm::{Epoch, Ref, Region, Writer, point};

use crate::address::AddressBlock;
use crate::batch;
use crate::directory::hash;
use crate::done::end_downtime;
use crate::ends;
use crate::events::Said;
use crate::generation::Generation;
use crate::health;
use crate::hosts::{self, StoredHosts};
use crate::layout::{Blob, Entry, Peer, Table, TableHead, Up, get, pack, root, set};
use crate::retired::Retired;
use crate::room::Room;
use crate::size;
use crate::sketch::{NewPeer, Same, Sketch, named};
use crate::stored::Stored;
use crate::turn;
use crate::young::Young;
use crate::zone::Zone;

/// What a change makes of an upstream.
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a UpstreamName,
    pub(crate) stored: Option<&'a Stored>,
    /// `None`: the upstream goes.
    pub(crate) next: Option<Prepared>,
}

/// Plans that come in force together.
pub(crate) struct Batch<'a> {
    pub(crate) plans: Vec<Plan<'a>>,
    /// The hosts as they were when the plans were made.
    pub(crate) hosts: &'a StoredHosts,
    /// The hosts from now on, where that changes; then nothing else may have changed since.
    pub(crate) next_hosts: Option<(&'a Hosts, u64)>,
    /// Unix ms.
    pub(crate) now: u64,
    /// What is told of it, as JSON objects.
    pub(crate) events: Vec<Vec<u8>>,
    /// May use the reserve: it must not fail for lack of room.
    pub(crate) privileged: bool,
    pub(crate) revision: Revision,
}

/// The revision that a batch gets.
pub(crate) enum Revision {
    /// The next one, with what the journal says of it.
    Next(Vec<u8>),
    /// The state file's, where it all stands already.
    Known(u64),
}

impl Plan<'_> {
    /// Whether names that are resolved at run time come or go.
    fn moves_names(&self) -> bool {
        match &self.next {
            Some(next) => next.sketch.moves_names,
            None => named(self.stored.map(|stored| &stored.upstream)).next().is_some(),
        }
    }

    /// Whether the upstream comes or goes.
    const fn moves_upstreams(&self) -> bool {
        self.stored.is_none() || self.next.is_none()
    }

    /// Whether the upstream is checked, or was.
    fn moves_checks(&self) -> bool {
        let was = self.stored.is_some_and(|stored| stored.upstream.settings.check.is_some());
        was || self.next.as_ref().is_some_and(|next| next.sketch.checkup.rules.checked)
    }
}

impl Prepared {
    /// See [`Sketch::be_brief`].
    pub(crate) fn be_brief(mut self) -> Self {
        self.sketch.be_brief();
        self
    }
}

impl Batch<'_> {
    /// Granules that it takes in all.
    fn granules(&self) -> u64 {
        let plans = self.plans.iter().map(|plan| match &plan.next {
            Some(next) if plan.stored.is_some() => next.sketch.granules(),
            Some(next) => size::record_granules(plan.name) + next.sketch.granules(),
            None => Table::granules(0).into(),
        });
        plans.sum::<u64>() + self.next_hosts.map_or(0, |(hosts, _)| size::hosts_granules(hosts))
    }
}

/// A table computed beforehand, and the number of its upstream.
pub(crate) struct Prepared {
    sketch: Sketch,
    uid: u32,
}

impl Zone {
    /// Computes the table for `next`. Outside the lock.
    pub(crate) fn prepare(
        &self,
        next: &Upstream,
        stored: Option<&Stored>,
        hosts: &Hosts,
    ) -> Prepared {
        self.prepare_by(Same::Id, next, stored, hosts)
    }

    /// The same where it is told by what a server is one that is stored.
    pub(crate) fn prepare_by(
        &self,
        same: Same,
        next: &Upstream,
        stored: Option<&Stored>,
        hosts: &Hosts,
    ) -> Prepared {
        let uid = stored.map_or_else(|| self.fresh_number(), |stored| stored.up.uid());
        let mut sketch = Sketch::new(same, next, stored, hosts, self.region());
        sketch.draw();
        Prepared { sketch, uid }
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
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) revision: u64,
    pub(crate) epoch: Epoch,
    pub(crate) said: Vec<Said>,
}

/// A table built aside.
struct Built<'b> {
    up: Up,
    table: Table,
    plan: &'b Plan<'b>,
    /// `None`: the table is a tomb.
    sketch: Option<&'b Sketch>,
}

impl Zone {
    /// Puts plans in force, all or none.
    pub(crate) fn commit(
        &self,
        writer: &mut Writer<'_>,
        batch: &Batch<'_>,
    ) -> Result<Committed, Unfit> {
        if !self.is_fresh(batch) {
            return Err(Unfit::Stale);
        }
        let revision = match batch.revision {
            Revision::Next(_) => get(self.root(root::REVISION)) + 1,
            Revision::Known(revision) => revision,
        };
        if let ([Plan { next: None, stored: Some(stored), .. }], None) =
            (&batch.plans[..], batch.next_hosts)
        {
            return self.remove(writer, batch, stored, revision);
        }
        self.set(writer, batch, revision)
    }

    /// Whether everything is still as it was when the plans were made.
    fn is_fresh(&self, batch: &Batch<'_>) -> bool {
        let all = batch.next_hosts.is_none_or(|(_, seen)| get(self.root(root::REVISION)) == seen);
        let upstreams = batch.plans.iter().all(|plan| {
            let up = self.find(plan.name.as_str().as_bytes());
            match (up, plan.stored) {
                (None, None) => true,
                (Some(up), Some(stored)) => {
                    // The revision too: a later table may lie where the one that was read lay.
                    let revision = up.table(self).map(|table| table.revision());
                    up.stamp() == stored.stamp && revision == Some(stored.revision)
                }
                _ => false,
            }
        });
        all && upstreams && self.hosts_stamp() == batch.hosts.stamp
    }

    fn set(
        &self,
        writer: &mut Writer<'_>,
        batch: &Batch<'_>,
        revision: u64,
    ) -> Result<Committed, Unfit> {
        writer.set_reserve(self.kept_with(&batch.plans));
        let mut room = Room::new(writer, batch.privileged, batch.granules());
        let mut retired = Retired::default();
        let built = self.build_all(&mut room, batch, revision, &mut retired);
        let (built, hosts) = match built {
            Ok(built) => built,
            Err(unfit) => {
                room.give_back();
                writer.set_reserve(self.kept_with(&[]));
                return Err(unfit);
            }
        };
        let Some(limbo) = room.limbo(retired.blocks.len() + retired.peers.len()) else {
            let unfit = room.no_room();
            room.give_back();
            writer.set_reserve(self.kept_with(&[]));
            return Err(unfit);
        };
        // From here on nothing fails. Times first: a round may look too early, never too late.
        for sketch in built.iter().filter_map(|built| built.sketch) {
            self.ends(ends::TTL).lower(sketch.until);
            self.ends(ends::ORPHANS).lower(sketch.orphaned);
        }
        if let Some(until) = batch.next_hosts.and_then(|(hosts, _)| hosts.next_expiry()) {
            self.ends(ends::TTL).lower(until);
        }
        if let Revision::Known(_) = batch.revision {
            built.iter().for_each(|built| rename(built, self.region()));
        }
        let said = self.append(writer, revision, batch.now, &batch.events);
        let noted = self.note(writer, revision, &batch.revision);
        point!("journal.written");
        let moved = self.moved_by(batch);
        moved.iter().for_each(|generation| generation.begin());
        if built.len() == 1 && hosts.is_none() {
            self.publish_one(writer, &built[0]);
            point!("table.published");
            if let Revision::Next(_) = batch.revision {
                self.root(root::REVISION).store(revision, Ordering::SeqCst);
            }
        } else {
            self.publish_all(writer, &built, hosts, revision);
        }
        point!("journal.in_force");
        moved.iter().for_each(|generation| generation.end());
        self.tell(writer, noted);
        point!("journal.told");
        batch::settle(self, built.iter().map(|built| built.up));
        for built in &built {
            if let Some(sketch) = built.sketch {
                self.adjust(built, sketch, batch.now);
            }
            self.recount(built.plan.stored, built.sketch);
            if let Some(stored) = built.plan.stored
                && !retired.peers.is_empty()
            {
                self.shut_gone(writer, stored, &batch.hosts.hosts, built.sketch);
            }
            if let Some(sketch) = built.sketch {
                self.shut_kept(writer, sketch, batch.next_hosts.is_some());
            }
        }
        let epoch = writer.retire(limbo, &retired.blocks, &retired.peers);
        Ok(Committed { revision, epoch, said })
    }

    /// What goes up with these plans.
    fn moved_by(&self, batch: &Batch<'_>) -> Vec<Generation> {
        let plans = &batch.plans;
        let all = [
            (self.upstreams(), plans.iter().any(Plan::moves_upstreams)),
            (self.names().generation(), plans.iter().any(Plan::moves_names)),
            (self.checks(), plans.iter().any(Plan::moves_checks)),
        ];
        all.into_iter().filter_map(|(generation, moved)| moved.then_some(generation)).collect()
    }

    fn build_all<'b>(
        &self,
        room: &mut Room<'_, '_>,
        batch: &'b Batch<'_>,
        revision: u64,
        retired: &mut Retired,
    ) -> Result<(Vec<Built<'b>>, Option<Blob>), Unfit> {
        let mut all = Vec::with_capacity(batch.plans.len());
        for plan in &batch.plans {
            let sketch = plan.next.as_ref().map(|next| &next.sketch);
            let (up, table) = match &plan.next {
                Some(next) => {
                    let at = (revision, batch.now);
                    self.build(room, plan, &next.sketch, next.uid, at, retired)?
                }
                None => self.build_tomb(room, plan, revision, retired)?,
            };
            all.push(Built { up, table, plan, sketch });
        }
        let hosts = match batch.next_hosts {
            Some((hosts, _)) => {
                Some(room.hosts(self.region(), hosts, revision, self.fresh_uid().into())?)
            }
            None => None,
        };
        if hosts.is_some() && batch.hosts.blob.len != 0 {
            retired.blocks.push((batch.hosts.blob.at, hosts::granules(batch.hosts.blob)));
        }
        Ok((all, hosts))
    }

    /// One store puts one table in force.
    fn publish_one(&self, writer: &Writer<'_>, built: &Built<'_>) {
        writer.publish(built.up.table_word(), built.table.word());
        if built.plan.stored.is_none() {
            self.link(built.up);
        }
    }

    /// One store, of the revision, puts all tables in force.
    fn publish_all(
        &self,
        writer: &Writer<'_>,
        all: &[Built<'_>],
        hosts: Option<Blob>,
        revision: u64,
    ) {
        for built in all {
            writer.publish(built.up.next_word(), built.table.word());
            if built.plan.stored.is_none() {
                // Nobody finds a table in it yet.
                self.link(built.up);
            }
        }
        if let Some(blob) = hosts {
            writer.publish(self.root(root::HOSTS_NEXT), blob.word());
        }
        point!("batch.pending");
        // A file's revision may be an old one.
        writer.publish(self.root(root::REVISION), revision.max(get(self.root(root::REVISION))));
        point!("batch.committed");
    }

    fn build_tomb(
        &self,
        room: &mut Room<'_, '_>,
        plan: &Plan<'_>,
        revision: u64,
        retired: &mut Retired,
    ) -> Result<(Up, Table), Unfit> {
        let lost = || Unfit::NoRoom { need: 0, free: 0 };
        let stored = plan.stored.ok_or(Unfit::Stale)?;
        let at = room.take(Table::granules(0))?;
        let table = Table::at(self.region(), pack(at.raw(), 0)).ok_or_else(lost)?;
        table.fill_head(&TableHead { revision, tomb: true, ..TableHead::default() });
        retired.everything(stored);
        retired.blocks.push((at, Table::granules(0)));
        Ok((stored.up, table))
    }

    fn build(
        &self,
        room: &mut Room<'_, '_>,
        plan: &Plan<'_>,
        sketch: &Sketch,
        uid: u32,
        (revision, now): (u64, u64),
        retired: &mut Retired,
    ) -> Result<(Up, Table), Unfit> {
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
        let texts = match &sketch.texts {
            Some(bytes) if bytes.is_empty() => Blob::default(),
            Some(bytes) => room.write(&region, bytes)?,
            None => plan.stored.map(|stored| stored.texts).unwrap_or_default(),
        };
        let mut blobs = Vec::with_capacity(sketch.blobs.len());
        for bytes in &sketch.blobs {
            blobs.push(room.write(&region, bytes)?);
        }
        let part = sketch.part.write(sketch.method, room, &region)?;
        let n = sketch.entries.len();
        let at = room.take(Table::granules(n))?;
        let table = Table::at(&region, pack(at.raw(), n as u32)).ok_or_else(lost)?;
        for (entry, words) in sketch.entries.iter().zip(table.entries()) {
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
                peer.set_shut(entry.shut.0);
                sketch.checkup.begin(peer);
                health::begin_sourced(peer, entry.failing, now);
            }
            for (word, value) in words.iter().zip(filled.words()) {
                set(word, value);
            }
        }
        table.fill_head(&TableHead {
            revision,
            primaries: sketch.primaries as u32,
            cold,
            texts,
            tries: sketch.entries.iter().filter(|e| e.entry.open).count().max(1) as u32,
            servers: sketch.servers,
            part,
            until: sketch.until,
            orphaned: sketch.orphaned,
            declared: sketch.declared,
            tomb: false,
            names: sketch.names,
            rules: sketch.checkup.rules,
        });
        retired.replaced(plan.stored, cold, table);
        Ok((up, table))
    }

    fn remove(
        &self,
        writer: &mut Writer<'_>,
        batch: &Batch<'_>,
        stored: &Stored,
        revision: u64,
    ) -> Result<Committed, Unfit> {
        let mut retired = Retired::default();
        retired.everything(stored);
        let free = writer.room().0 * 32;
        let limbo = writer
            .limbo(retired.blocks.len() + retired.peers.len())
            .ok_or(Unfit::NoRoom { need: 32, free })?;
        let said = self.append(writer, revision, batch.now, &batch.events);
        let noted = self.note(writer, revision, &batch.revision);
        point!("journal.written");
        let moved = self.moved_by(batch);
        moved.iter().for_each(|generation| generation.begin());
        self.unlink(stored.up);
        point!("table.published");
        moved.iter().for_each(|generation| generation.end());
        self.recount(Some(stored), None);
        self.shut_gone(writer, stored, &batch.hosts.hosts, None);
        if let Revision::Next(_) = batch.revision {
            self.root(root::REVISION).store(revision, Ordering::SeqCst);
        }
        point!("journal.in_force");
        self.tell(writer, noted);
        point!("journal.told");
        writer.set_reserve(self.kept_with(&[]));
        let epoch = writer.retire(limbo, &retired.blocks, &retired.peers);
        Ok(Committed { revision, epoch, said })
    }

    /// Granules of what is kept once these plans are in force.
    fn kept_with(&self, plans: &[Plan<'_>]) -> u64 {
        let (mut tables, mut servers) =
            (get(self.root(root::TABLES)), get(self.root(root::SERVERS)));
        for plan in plans {
            if let Some(next) = &plan.next {
                tables += next.sketch.second_table();
                servers += u64::from(next.sketch.servers);
            }
            if let Some(stored) = plan.stored {
                tables = tables.saturating_sub(stored.second_table());
                servers = servers.saturating_sub(stored.servers.len() as u64);
            }
        }
        size::kept(tables, servers)
    }

    /// Counts an upstream anew.
    fn recount(&self, before: Option<&Stored>, after: Option<&Sketch>) {
        let add = |i, more: u64, less: u64| {
            set(self.root(i), (get(self.root(i)) + more).saturating_sub(less));
        };
        let (servers, table) =
            before.map_or((0, 0), |stored| (stored.servers.len() as u64, stored.second_table()));
        let (now, then) = after.map_or((0, 0), |next| (next.servers, next.second_table()));
        add(root::UPSTREAMS, u64::from(after.is_some()), u64::from(before.is_some()));
        add(root::SERVERS, u64::from(now), servers);
        add(root::TABLES, then, table);
    }
}

/// What outside checkers say of servers, from their peers that stay: it holds for the new ones too.
fn said_outside(sketch: &Sketch, region: &Region) -> Vec<(u64, u64)> {
    let kept = sketch.entries.iter().filter(|entry| matches!(entry.peer, NewPeer::Kept));
    let said = kept.filter_map(|entry| {
        let word = get(Peer::at(region, entry.entry.peer)?.external());
        (word != 0).then_some((entry.server_id, word))
    });
    said.collect()
}

/// Gives peers that stay the ids that the file has for their servers.
///
/// Before publication, for a writer that dies: whoever does its work again does this again.
fn rename(built: &Built<'_>, region: &Region) {
    let entries = built.sketch.iter().flat_map(|sketch| &sketch.entries);
    for entry in entries {
        if let Some(peer) = Peer::at(region, entry.entry.peer) {
            peer.set_server_id(entry.server_id);
        }
    }
}

impl Zone {
    /// Moves the live weights to what the new table says, and begins the ramps of newcomers.
    ///
    /// Done after publication, with plain stores: a pick that races moves a level at most once
    /// more.
    fn adjust(&self, built: &Built<'_>, sketch: &Sketch, now: u64) {
        let Built { up, table, .. } = *built;
        let region = self.region();
        let Some(stored) = built.plan.stored else { return };
        let before: Vec<(Ref, Entry)> = {
            let entries = stored.servers.iter().flat_map(|s| s.entries.iter().copied());
            let mut before: Vec<_> = entries.map(|e| (e.peer, e)).collect();
            before.sort_unstable_by_key(|&(at, _)| at);
            before
        };
        let find =
            |at: Ref| before.binary_search_by_key(&at, |&(at, _)| at).ok().map(|i| before[i].1);
        let total: i64 =
            sketch.entries.iter().filter(|e| e.entry.open).map(|e| i64::from(e.entry.weight)).sum();
        // Where the old cycle stood, as running weights.
        let tight = turn::leave(up, region, stored);
        let mut clean = true;
        // Where the whole set is new nobody is a newcomer.
        let stays = sketch.entries.iter().any(|new| matches!(new.peer, NewPeer::Kept));
        let mut young = Young::of(sketch.method, now);
        let said = said_outside(sketch, region);
        for (new, words) in sketch.entries.iter().zip(table.entries()) {
            let entry = Entry::read(words);
            let Some(peer) = Peer::at(region, entry.peer) else { continue };
            let old = find(entry.peer);
            if old.is_some() {
                health::go_on_sourced(peer, new.failing, now);
            }
            if entry.open && stays && old.is_none_or(|old| !old.open) {
                set(peer.start(), now);
            }
            young.look(peer, entry);
            let Some(old) = old else {
                if let Some(&(_, external)) = said.iter().find(|(id, _)| *id == new.server_id) {
                    health::also(peer, external, now);
                }
                continue;
            };
            if old.weight != entry.weight || new.revived {
                set(peer.effective(), u64::from(entry.weight));
            }
            if new.revived {
                // `up` forgets failures; what its checks say stays.
                peer.passive().fetch_and(HINTS, Ordering::Relaxed);
                end_downtime(peer, now);
            }
            sketch.checkup.go_on(peer, new.revived, now);
            if !entry.bound {
                // Its checks pause: when they go on, it is due at once, and late for nothing.
                set(peer.probed(), 0);
            }
            let current = get(peer.current()).cast_signed();
            let settled = round_robin::settle(current, i64::from(entry.weight), total);
            set(peer.current(), settled.cast_unsigned());
            clean &= turn::is_clean(peer, entry);
        }
        if young.note(up) && sketch.method == Method::RoundRobin {
            turn::stay_loose(self, up, (now / 1000) as u32);
        } else {
            turn::enter(up, tight || clean);
        }
    }
}
