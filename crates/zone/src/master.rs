//! What nginx's master does with a zone: load the state, merge the configuration.
//!
//! The master has no slot. It reads under the lock, where nothing is freed, and it waits for the
//! lock no longer than it is told to: what it could not do, a worker does.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use peerage_core::change::{Actor, Applied, Context};
use peerage_core::declare::DeclaredUpstream;
use peerage_core::merge::{Conflict, merge};
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_core::snapshot::Loaded;
use peerage_core::upstream::{Defaults, Upstream};
use peerage_shm::Writer;

use crate::choice::Clock;
use crate::commit::{Batch, Plan, Revision, Unfit};
use crate::events::{Said, told};
use crate::journal;
use crate::layout::{Table, get, root, set};
use crate::trace::Reachable;
use crate::worker::Worker;
use crate::zone::Zone;

/// Loads and merges, for a process without a slot.
pub struct Master {
    pub(crate) zone: Zone,
    pid: u32,
}

/// From where a new zone is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    File,
    OldZone,
}

/// What came of a merge.
#[derive(Debug, Default)]
pub struct Merged {
    /// Fields changed both in the file and at run time.
    pub conflicts: Vec<Conflict>,
    /// Upstreams that changed.
    pub changed: usize,
    /// Upstreams that did not fit.
    pub no_room: Vec<UpstreamName>,
    /// The lock was not to be had: not all is merged, do it again later.
    pub busy: bool,
    /// What was told of it.
    pub said: Vec<Said>,
}

impl Zone {
    /// For a process without a slot.
    pub const fn as_master(&self, pid: u32) -> Master {
        Master { zone: *self, pid }
    }
}

impl Worker {
    /// What the master could not do in its time.
    pub fn merge(
        &self,
        declared: &[DeclaredUpstream],
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
    ) -> Merged {
        let mut merged = self.zone().as_master(self.pid()).merge(declared, clock, wait);
        self.say(std::mem::take(&mut merged.said));
        merged
    }
}

impl Master {
    /// Fills a zone just laid out with what the state file held; upstreams that did not fit. The
    /// zone's report tells how many routes did.
    pub fn load(&self, loaded: &Loaded, clock: &Clock) -> Vec<UpstreamName> {
        self.fill(loaded, clock, Whose::File)
    }

    /// Fills a zone just laid out.
    pub(crate) fn fill(&self, loaded: &Loaded, clock: &Clock, whose: Whose) -> Vec<UpstreamName> {
        let mut left = Vec::new();
        let trace = Reachable(self.zone);
        let Ok(mut writer) = self.zone.shared().try_write(self.pid, &trace) else {
            return loaded.upstreams.iter().map(|(upstream, _)| upstream.name.clone()).collect();
        };
        let header = loaded.header.as_ref();
        // What was acknowledged is kept, in the reserve if need be.
        let privileged = whose == Whose::OldZone;
        if !loaded.hosts.is_empty() {
            let revision =
                header.map_or_else(|| self.zone.revision() + 1, |header| header.revision);
            let hosts = Batch {
                plans: Vec::new(),
                hosts: &self.zone.stored_hosts(),
                next_hosts: Some((&loaded.hosts, self.zone.revision())),
                now: clock.msec,
                events: Vec::new(),
                privileged,
                revision: Revision::Known(revision),
            };
            // A zone just laid out has room for them, or for nothing.
            let _ = self.zone.commit(&mut writer, &hosts);
        }
        let hosts = self.zone.stored_hosts();
        let mut next_id = 1;
        for (upstream, revision) in &loaded.upstreams {
            next_id = upstream.servers.iter().map(|s| s.id + 1).fold(next_id, u64::max);
            let next = Some(self.zone.prepare(upstream, None, &hosts.hosts));
            let plans = Batch {
                plans: vec![Plan { name: &upstream.name, stored: None, next }],
                hosts: &hosts,
                next_hosts: None,
                now: clock.msec,
                events: Vec::new(),
                privileged,
                revision: Revision::Known(*revision),
            };
            // Notes of what was retired take room too, which `fit` does not count.
            writer.collect();
            if self.zone.commit(&mut writer, &plans).is_err() {
                left.push(upstream.name.clone());
            }
            // Nobody reads yet.
            writer.collect();
        }
        self.zone.fill_routes(&mut writer, &loaded.routes, clock);
        let next_id = header.map_or(next_id, |header| header.next_id.max(next_id));
        let revisions = loaded.upstreams.iter().map(|&(_, revision)| revision);
        let newest = revisions.fold(header.map_or(0, |header| header.revision), u64::max);
        self.zone.raise_next_id(next_id);
        self.zone.raise_revision(&mut writer, newest);
        left
    }

    /// Merges what the configuration declares, upstream by upstream.
    ///
    /// `wait` is called when the lock is taken: it waits a little and tells whether to go on.
    pub fn merge(
        &self,
        declared: &[DeclaredUpstream],
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
    ) -> Merged {
        let mut merged = Merged::default();
        let named: HashSet<&str> = declared.iter().map(|u| u.name.as_str()).collect();
        let Some(gone) = self.locked(wait, |_| self.once_declared(&named)) else {
            return Merged { busy: true, ..merged };
        };
        let blocks = declared.iter().map(|upstream| (&upstream.name, Some(upstream)));
        for (name, declared) in blocks.chain(gone.iter().map(|name| (name, None))) {
            let one = |writer: &mut Writer<'_>| {
                writer.collect();
                self.merge_one(writer, name, declared, clock, &mut merged);
            };
            if self.locked(wait, one).is_none() {
                return Merged { busy: true, ..merged };
            }
        }
        self.zone.set_loaded();
        merged
    }

    /// Runs `act` under the lock; none where it was not to be had.
    pub(crate) fn locked<T>(
        &self,
        wait: &mut dyn FnMut() -> bool,
        act: impl FnOnce(&mut Writer<'_>) -> T,
    ) -> Option<T> {
        let trace = Reachable(self.zone);
        loop {
            match self.zone.shared().try_write(self.pid, &trace) {
                Ok(mut writer) => return Some(act(&mut writer)),
                Err(_) if wait() => {}
                Err(_) => return None,
            }
        }
    }

    fn merge_one(
        &self,
        writer: &mut Writer<'_>,
        name: &UpstreamName,
        declared: Option<&DeclaredUpstream>,
        clock: &Clock,
        merged: &mut Merged,
    ) {
        let up = self.zone.find(name.as_str().as_bytes());
        let stored = up.and_then(|up| self.zone.load(up));
        let current = stored.as_ref().map(|stored| &stored.upstream);
        let mut fresh_id = || self.zone.fresh_id();
        let (applied, conflicts) = Zone::merged(current, declared, clock.msec, &mut fresh_id);
        merged.conflicts.extend(conflicts);
        let next = match applied {
            Applied::Same => return,
            Applied::Set(next) => Some(next),
            Applied::Gone => None,
        };
        let hosts = self.zone.stored_hosts();
        let events = told(current, next.as_ref(), &Actor::config());
        let changes = journal::changes(&[(current, next.as_ref())], None);
        let prepare = |next| self.zone.prepare(next, stored.as_ref(), &hosts.hosts);
        let next = next.as_ref().map(prepare);
        let plans = Batch {
            plans: vec![Plan { name, stored: stored.as_ref(), next }],
            hosts: &hosts,
            next_hosts: None,
            now: clock.msec,
            events,
            privileged: false,
            revision: Revision::Next(changes),
        };
        match self.zone.commit(writer, &plans) {
            Ok(committed) => {
                merged.changed += 1;
                merged.said.extend(committed.said);
            }
            Err(Unfit::NoRoom { .. } | Unfit::Stale) => merged.no_room.push(name.clone()),
        }
    }

    /// Names of upstreams that a block declared at the last load and that none does now.
    fn once_declared(&self, named: &HashSet<&str>) -> Vec<UpstreamName> {
        let region = self.zone.region();
        let chains = (0..).map_while(|i| self.zone.bucket_at(i));
        chains
            .flatten()
            .filter(|up| up.table(&self.zone).is_some_and(Table::is_declared))
            .filter_map(|up| UpstreamName::parse(&String::from_utf8(up.name(region)).ok()?).ok())
            .filter(|name| !named.contains(name.as_str()))
            .collect()
    }
}

impl Zone {
    /// Says that what the state file holds up to this revision is in force.
    pub(crate) fn raise_revision(&self, _writer: &mut Writer<'_>, revision: u64) {
        self.root(root::REVISION).fetch_max(revision, Ordering::SeqCst);
    }

    /// What a load makes of an upstream as the state file has it, or the zone.
    pub(crate) fn merged(
        current: Option<&Upstream>,
        declared: Option<&DeclaredUpstream>,
        now: u64,
        fresh_id: &mut dyn FnMut() -> u64,
    ) -> (Applied, Vec<Conflict>) {
        let mut context = Context {
            now,
            actor: Actor::config(),
            fresh_id,
            eligible: &|_| true,
            origin: Origin::Config,
            named_by_block: declared.is_some(),
            keyed: Defaults::default(),
            resolves: true,
        };
        merge(current, declared, &mut context)
    }
}

/// Raises a word of the root.
pub(crate) fn raise(zone: &Zone, i: usize, value: u64) {
    let word = zone.root(i);
    if get(word) < value {
        set(word, value);
    }
}
