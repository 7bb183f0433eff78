//! What another master wrote into the state file, taken over: by a zone that follows, and by one
//! that begins to lead.
//!
//! The file is the truth. An upstream becomes what a load would make of the file's image and this
//! process's own configuration, with the file's revision; the journal and [`crate::Lead`] are not
//! asked. Peers are kept by address, since ids are the file's: what the merge has to make up (ids
//! of servers that only the own configuration names, times) stays as the zone has it already, so
//! that the same file adopted twice changes nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use peerage_core::addr::ServerAddr;
use peerage_core::change::{Actor, Applied};
use peerage_core::declare::DeclaredUpstream;
use peerage_core::event::{self, Kind};
use peerage_core::host::Hosts;
use peerage_core::merge::Conflict;
use peerage_core::name::UpstreamName;
use peerage_core::server::{Admin, Server};
use peerage_core::upstream::Upstream;

use crate::change::shorten;
use crate::choice::Clock;
use crate::commit::{Batch, Plan, Revision, Unfit};
use crate::sketch::Same;
use crate::stored::{Stored, Unread};
use crate::worker::Worker;
use crate::zone::Zone;

/// What the file and the configuration say of an upstream.
#[derive(Clone, Copy, Debug)]
pub struct Adoptee<'a> {
    /// Its name.
    pub name: &'a UpstreamName,
    /// As the file has it; `None`: it has none.
    pub file: Option<&'a Upstream>,
    /// Revision with which the file set or deleted it.
    pub revision: u64,
    /// As a block of this process's configuration declares it.
    pub declared: Option<&'a DeclaredUpstream>,
}

/// What came of adopting.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Upstreams that changed.
    pub changed: Vec<UpstreamName>,
    /// Fields changed both in this process's configuration and in the file.
    pub conflicts: Vec<Conflict>,
    /// Upstreams that did not fit.
    pub no_room: Vec<UpstreamName>,
    /// How many of the first were done; the rest is left, since somebody else writes.
    pub done: usize,
}

/// Why something was not adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unadopted {
    /// Somebody else writes: to be tried again a little later.
    #[error("another writer holds the zone")]
    Busy,
    /// It does not fit.
    #[error("the zone is full")]
    NoRoom,
}

impl Worker {
    /// Makes upstreams what the file and the configuration say, one after the other.
    ///
    /// Hosts come first, see [`Worker::adopt_hosts`], and [`Worker::adopt_head`] at the end.
    /// `wait` is called while somebody else holds the lock, and says whether to go on.
    pub fn adopt(
        &self,
        adoptees: &[Adoptee<'_>],
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
    ) -> Adopted {
        // Ids that are made up lie above the file's.
        let servers = adoptees.iter().filter_map(|one| one.file).flat_map(|u| &u.servers);
        self.zone().raise_next_id(servers.map(|server| server.id + 1).max().unwrap_or(0));
        let mut adopted = Adopted::default();
        for one in adoptees {
            match self.adopt_one(one, clock, wait, &mut adopted.conflicts) {
                Ok(true) => adopted.changed.push(one.name.clone()),
                Ok(false) => {}
                Err(Unadopted::NoRoom) => adopted.no_room.push(one.name.clone()),
                Err(Unadopted::Busy) => break,
            }
            adopted.done += 1;
        }
        adopted
    }

    /// Makes the admin states of hosts the file's; whether they changed.
    ///
    /// To be done before upstreams are adopted, so that a server of a host that is down is never
    /// seen open.
    pub fn adopt_hosts(
        &self,
        hosts: &Hosts,
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Unadopted> {
        for _ in 0..RACES {
            let revision = self.zone().revision();
            let before = {
                let _section = self.enter();
                self.zone().stored_hosts()
            };
            if before.hosts == *hosts {
                return Ok(false);
            }
            let ips = before.hosts.iter().chain(hosts.iter()).map(|(ip, _)| ip);
            let changed = ips.filter(|&ip| before.hosts.get(ip) != hosts.get(ip));
            let changed: BTreeSet<IpAddr> = changed.collect();
            let on = changed.into_iter().flat_map(|ip| self.on_host(ip));
            let names: BTreeSet<UpstreamName> = on.map(|(name, ..)| name).collect();
            let read = |name| Some((name, self.stored(name).ok()??));
            let covered: Vec<(&UpstreamName, Stored)> = names.iter().filter_map(read).collect();
            let plans = covered.iter().map(|(name, stored)| Plan {
                name,
                stored: Some(stored),
                next: Some(self.zone().prepare(&stored.upstream, Some(stored), hosts)),
            });
            let mut events = event::of_hosts(&before.hosts, hosts, &file());
            for event in &mut events {
                sign(event, event.host.and_then(|ip| hosts.get(ip)));
            }
            let batch = Batch {
                plans: plans.collect(),
                hosts: &before,
                next_hosts: Some((hosts, revision)),
                now: clock.msec,
                events: events.iter().map(event::Event::to_bytes).collect(),
                privileged: true,
                // In force at once: the file's is not yet, since upstreams come later.
                revision: Revision::Known(revision),
            };
            match self.put(&batch, wait) {
                Ok(()) => return Ok(true),
                Err(Some(unadopted)) => return Err(unadopted),
                Err(None) => {}
            }
        }
        Err(Unadopted::Busy)
    }

    /// Says that the zone is what the file holds up to a revision; false where somebody else held
    /// the lock.
    pub fn adopt_head(&self, revision: u64, next_id: u64, wait: &mut dyn FnMut() -> bool) -> bool {
        self.zone().raise_next_id(next_id);
        let master = self.zone().as_master(self.pid());
        master.locked(wait, |writer| self.zone().raise_revision(writer, revision)).is_some()
    }

    fn adopt_one(
        &self,
        one: &Adoptee<'_>,
        clock: &Clock,
        wait: &mut dyn FnMut() -> bool,
        conflicts: &mut Vec<Conflict>,
    ) -> Result<bool, Unadopted> {
        let mut brief = false;
        for _ in 0..RACES {
            let stored = self.stored(one.name).map_err(|Unread| Unadopted::Busy)?;
            let before = stored.as_ref().map(|stored| &stored.upstream);
            let (mut next, found) = self.target(one, before, clock);
            if let Some(next) = next.as_mut().filter(|_| brief) {
                shorten(next, before);
            }
            if next.as_ref() == before {
                conflicts.extend(found);
                return Ok(false);
            }
            let hosts = {
                let _section = self.enter();
                self.zone().stored_hosts()
            };
            let prepare =
                |next| self.zone().prepare_by(Same::Addr, next, stored.as_ref(), &hosts.hosts);
            let prepared = next.as_ref().map(prepare);
            let batch = Batch {
                plans: vec![Plan { name: one.name, stored: stored.as_ref(), next: prepared }],
                hosts: &hosts,
                next_hosts: None,
                now: clock.msec,
                events: told(before, next.as_ref()),
                privileged: brief,
                revision: Revision::Known(one.revision),
            };
            match self.put(&batch, wait) {
                Ok(()) => {
                    conflicts.extend(found);
                    return Ok(true);
                }
                // The reserve is for what the other master took out of its own.
                Err(Some(Unadopted::NoRoom)) if !brief && !adds(before, next.as_ref()) => {
                    brief = true;
                }
                Err(Some(unadopted)) => return Err(unadopted),
                Err(None) => {}
            }
        }
        Err(Unadopted::Busy)
    }

    /// Puts a batch in force; `None`: it is to be made anew.
    fn put(
        &self,
        batch: &Batch<'_>,
        wait: &mut dyn FnMut() -> bool,
    ) -> Result<(), Option<Unadopted>> {
        let master = self.zone().as_master(self.pid());
        let committed = master.locked(wait, |writer| {
            writer.collect();
            self.zone().commit(writer, batch)
        });
        match committed {
            Some(Ok(committed)) => {
                self.say(committed.said);
                Ok(())
            }
            Some(Err(Unfit::Stale)) => Err(None),
            Some(Err(Unfit::NoRoom { .. })) => Err(Some(Unadopted::NoRoom)),
            None => Err(Some(Unadopted::Busy)),
        }
    }

    /// What an upstream shall be.
    fn target(
        &self,
        one: &Adoptee<'_>,
        stored: Option<&Upstream>,
        clock: &Clock,
    ) -> (Option<Upstream>, Vec<Conflict>) {
        let (applied, conflicts) = Zone::merged(one.file, one.declared, clock.msec, &mut || NO_ID);
        let mut next = match applied {
            Applied::Same => one.file.cloned(),
            Applied::Set(next) => Some(next),
            Applied::Gone => None,
        };
        if let Some(next) = &mut next {
            keep_given(next, one.file, stored, &mut || self.zone().fresh_id());
        }
        (next, conflicts)
    }
}

/// Takes over what a merge makes up anew each time and the zone has given already: ids, and times.
fn keep_given(
    next: &mut Upstream,
    file: Option<&Upstream>,
    stored: Option<&Upstream>,
    fresh_id: &mut dyn FnMut() -> u64,
) {
    let before = by_addr(stored);
    let in_file = by_addr(file);
    let mut taken: HashSet<u64> = next.servers.iter().map(|server| server.id).collect();
    for server in &mut next.servers {
        let was = before.get(&server.addr);
        if server.id == NO_ID {
            let given = was.map(|was| was.id).filter(|&id| taken.insert(id));
            server.id = given.unwrap_or_else(&mut *fresh_id);
        }
        // Nor has the file the addresses of a name that only this configuration has.
        if server.resolve
            && server.addrs.is_empty()
            && let Some(was) = was.filter(|was| was.resolve)
        {
            server.addrs.clone_from(&was.addrs);
        }
        let is_files = in_file.get(&server.addr).is_some_and(|file| file.admin == server.admin);
        if let Some(was) = was.filter(|_| !is_files)
            && was.admin == (Admin { since: was.admin.since, ..server.admin.clone() })
        {
            server.admin.since = was.admin.since;
        }
    }
    if next.orphaned_at != file.and_then(|file| file.orphaned_at)
        && let Some(since) = stored.and_then(|stored| stored.orphaned_at)
    {
        next.orphaned_at = Some(since);
    }
}

/// What is told of an adopted change: servers are the same by their address.
fn told(before: Option<&Upstream>, after: Option<&Upstream>) -> Vec<Vec<u8>> {
    let servers = by_addr(after);
    let mut before = before.cloned();
    for server in before.iter_mut().flat_map(|before| &mut before.servers) {
        server.id = servers.get(&server.addr).map_or(NO_ID, |after| after.id);
    }
    let mut events = event::of_change(before.as_ref(), after, &file());
    for event in events.iter_mut().filter(|event| event.kind == Kind::Admin) {
        let server = event.server.as_ref().and_then(|addr| servers.get(addr));
        sign(event, server.map(|server| &server.admin));
    }
    events.iter().map(event::Event::to_bytes).collect()
}

/// An admin state keeps who set it.
fn sign(event: &mut event::Event, admin: Option<&Admin>) {
    if let Some(admin) = admin.filter(|admin| !admin.by.is_empty()) {
        event.by.clone_from(&admin.by);
        event.address.clone_from(&admin.from);
    }
}

/// Whether an upstream gets servers that it did not have.
fn adds(before: Option<&Upstream>, after: Option<&Upstream>) -> bool {
    let before = by_addr(before);
    by_addr(after).keys().any(|addr| !before.contains_key(addr))
}

fn by_addr(upstream: Option<&Upstream>) -> HashMap<&ServerAddr, &Server> {
    upstream.iter().flat_map(|u| &u.servers).map(|server| (&server.addr, server)).collect()
}

/// Who does it, where nobody is known.
fn file() -> Actor {
    Actor::new("file", "")
}

/// No server has it: ids begin with 1.
const NO_ID: u64 = 0;
/// Times that something is computed anew because another change came first.
const RACES: usize = 8;
