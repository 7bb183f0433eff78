//! Changes over several upstreams and hosts: all or nothing, one revision.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::SeqCst;

use peerage_core::change::{self, Actor, Applied, Change, ChangeError, Context};
use peerage_core::event;
use peerage_core::host::{HostVerb, Hosts, is_on};
use peerage_core::name::UpstreamName;
use peerage_core::server::AdminState;
use peerage_core::upstream::Upstream;

use crate::change::{Env, created, is_privileged, shorten};
use crate::commit::{Batch as Plans, Plan, Revision, Unfit};
use crate::drain::{Concerned, Mark};
use crate::events::told;
use crate::hosts::StoredHosts;
use crate::journal;
use crate::layout::{Table, Up, get, root, set};
use crate::stored::{Stored, Unread};
use crate::trace::Reachable;
use crate::worker::Worker;
use crate::zone::Zone;

/// Times that a batch is computed anew because another change came first.
const RACES: usize = 8;

/// One step of a batch.
#[derive(Clone, Debug)]
pub enum Op {
    /// A change of an upstream.
    Upstream {
        /// Which.
        name: UpstreamName,
        /// What.
        change: Change,
    },
    /// A host goes up, down or drains.
    Host(HostVerb),
    /// Ends host states whose time has come (unix ms).
    ExpireHosts(u64),
}

/// What must hold for a batch to be put in force.
pub struct Checks<'a> {
    /// Upstreams it touches are as they were at this revision.
    pub if_revision: Option<u64>,
    /// An upstream it touches is as asked.
    pub holds: &'a dyn Fn(&UpstreamName, Option<&Upstream>) -> bool,
    /// Asked under the lock: whether who asks for it still may.
    pub may: &'a dyn Fn() -> bool,
    /// Only tells what it would do.
    pub dry_run: bool,
}

impl Checks<'_> {
    /// Nothing is asked.
    pub const NONE: Self =
        Self { if_revision: None, holds: &|_, _| true, may: &|| true, dry_run: false };
}

/// What came of a batch.
#[derive(Debug)]
pub enum BatchAttempt {
    /// In force in every process; of a dry run: possible.
    Done(Box<Batch>),
    /// Somebody else writes: try again a little later.
    Busy,
    /// Another master writes the state file: the change is to be asked of that one, or later.
    NotWriter,
    /// It does not fit.
    NoRoom {
        /// Bytes it needs.
        need: u64,
        /// Bytes there are.
        free: u64,
    },
    /// A step cannot be done; nothing changed.
    Refused {
        /// Which.
        op: usize,
        /// Why.
        error: ChangeError,
    },
    /// An upstream is not as asked.
    Unmet {
        /// Which.
        name: UpstreamName,
        /// As it is.
        upstream: Option<Box<Upstream>>,
    },
    /// An upstream changed after `if_revision`.
    Stale {
        /// Which.
        name: UpstreamName,
        /// Revision of its last change.
        revision: u64,
    },
}

/// A batch in force.
#[derive(Debug)]
pub struct Batch {
    /// Revision of the zone.
    pub revision: u64,
    /// Whether anything changed.
    pub changed: bool,
    /// What each step did.
    pub results: Vec<OpResult>,
    /// Upstreams that changed.
    pub touched: Vec<Touched>,
    /// Hosts before and after, where they changed.
    pub hosts: Option<(Hosts, Hosts)>,
    /// For [`Worker::drain`].
    pub mark: Mark,
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpResult {
    /// Whether anything changed.
    pub changed: bool,
    /// Whether an upstream or a server was created.
    pub created: bool,
}

/// An upstream that changed.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Its name.
    pub name: UpstreamName,
    /// As it was; `None` = there was none.
    pub before: Option<Upstream>,
    /// As it is; `None` = it is gone.
    pub after: Option<Upstream>,
    /// Only the state of a host that covers it changed.
    pub covered: bool,
}

/// An upstream while a batch is computed.
struct Work {
    stored: Option<Stored>,
    now: Option<Upstream>,
    covered: bool,
}

impl Work {
    fn before(&self) -> Option<&Upstream> {
        self.stored.as_ref().map(|stored| &stored.upstream)
    }

    fn is_changed(&self) -> bool {
        // One that the batch makes and takes away again was never there, whatever covered it.
        self.covered && self.now.is_some() || self.now.as_ref() != self.before()
    }
}

/// A batch as computed so far.
struct Draft {
    work: BTreeMap<UpstreamName, Work>,
    hosts: StoredHosts,
    next_hosts: Hosts,
    /// Revision of the zone before anything was read.
    revision: u64,
    results: Vec<OpResult>,
    concerned: Concerned,
    /// Upstreams that go only because no route names them.
    unrouted: Vec<UpstreamName>,
}

impl Worker {
    /// Applies steps one after the other, all or none.
    pub fn batch(&self, ops: &[Op], env: &Env<'_>, checks: &Checks<'_>) -> BatchAttempt {
        let mut brief = false;
        for _ in 0..RACES {
            // Nothing is said of a state that is another's, unless it is only looked at.
            if let Some(barred) = self.barred().filter(|_| !checks.dry_run) {
                return barred;
            }
            let mut draft = match self.draft(ops, env, checks) {
                Ok(draft) => draft,
                Err(attempt) => return *attempt,
            };
            let changes_hosts = draft.next_hosts != draft.hosts.hosts;
            if !changes_hosts {
                // What was set on a host and taken back covers nobody.
                draft.work.values_mut().for_each(|work| work.covered = false);
            }
            let changed = changes_hosts || draft.work.values().any(Work::is_changed);
            if !changed || checks.dry_run {
                if self.zone().is_moved() {
                    return BatchAttempt::Busy;
                }
                let epoch = self.zone().shared().advance();
                let revision = self.zone().revision();
                return BatchAttempt::Done(Box::new(draft.end(revision, changed, epoch)));
            }
            if brief {
                for work in draft.work.values_mut() {
                    let before = work.stored.as_ref().map(|stored| &stored.upstream);
                    if let Some(now) = &mut work.now {
                        shorten(now, before);
                    }
                }
            }
            // Names are looked through for a number that none has.
            let section = self.enter();
            let plans = draft.work.iter().filter(|(_, work)| work.is_changed());
            let plans = plans.map(|(name, work)| Plan {
                name,
                stored: work.stored.as_ref(),
                next: work.now.as_ref().map(|next| {
                    let stored = work.stored.as_ref();
                    let prepared = self.zone().prepare(next, stored, &draft.next_hosts);
                    if brief { prepared.be_brief() } else { prepared }
                }),
            });
            let plans = Plans {
                plans: plans.collect(),
                hosts: &draft.hosts,
                next_hosts: changes_hosts.then_some((&draft.next_hosts, draft.revision)),
                now: env.clock.msec,
                events: draft.events(&env.actor),
                privileged: brief,
                revision: Revision::Next(draft.changes()),
            };
            drop(section);
            let trace = Reachable(*self.zone());
            let Ok(mut writer) = self.zone().shared().try_write(self.pid(), &trace) else {
                return BatchAttempt::Busy;
            };
            if let Some(barred) = self.barred() {
                return barred;
            }
            if !(checks.may)() {
                return BatchAttempt::Busy;
            }
            writer.collect();
            if draft.unrouted.iter().any(|name| self.zone().routes_to(name) > 0) {
                continue;
            }
            match self.zone().commit(&mut writer, &plans) {
                // Another zone may have been filled without it: refused, whatever it shows here.
                Ok(_) if self.zone().is_moved() => return BatchAttempt::Busy,
                Ok(committed) => {
                    drop(writer);
                    drop(plans);
                    self.say(committed.said);
                    // Where the zone was handed over meanwhile, the change may be lost with it.
                    if let Some(barred) = self.barred() {
                        return barred;
                    }
                    let done = draft.end(committed.revision, true, committed.epoch);
                    return BatchAttempt::Done(Box::new(done));
                }
                Err(Unfit::Stale) => {}
                // Only short texts come out of the reserve: it lasts for every server.
                Err(Unfit::NoRoom { .. }) if !brief && ops.iter().all(is_reserved_for) => {
                    brief = true;
                }
                // What the last one took out of the reserve comes back once nobody sees it.
                Err(Unfit::NoRoom { .. }) if brief && writer.awaits_readers() => {
                    return BatchAttempt::Busy;
                }
                Err(Unfit::NoRoom { need, free }) => {
                    let refused = self.zone().root(root::NO_ROOM);
                    set(refused, get(refused) + 1);
                    return BatchAttempt::NoRoom { need, free };
                }
            }
        }
        BatchAttempt::Busy
    }

    fn draft(
        &self,
        ops: &[Op],
        env: &Env<'_>,
        checks: &Checks<'_>,
    ) -> Result<Draft, Box<BatchAttempt>> {
        let revision = self.zone().revision();
        let hosts = {
            let _section = self.enter();
            self.zone().stored_hosts()
        };
        let next_hosts = hosts.hosts.clone();
        let mut draft = Draft {
            work: BTreeMap::new(),
            hosts,
            next_hosts,
            revision,
            results: Vec::with_capacity(ops.len()),
            concerned: Concerned::default(),
            unrouted: Vec::new(),
        };
        for (i, op) in ops.iter().enumerate() {
            let result = match op {
                Op::Upstream { name, change } => {
                    self.load_into(&mut draft, name, checks)?;
                    self.upstream_op(&mut draft, name, change, env)
                }
                Op::Host(verb) => {
                    let on = self.load_host(&mut draft, verb.ip, checks)?;
                    self.host_op(&mut draft, verb, on, env)
                }
                Op::ExpireHosts(now) => {
                    let (ended, next) = draft.next_hosts.expire(*now);
                    for ip in &ended {
                        self.load_host(&mut draft, *ip, checks)?;
                    }
                    draft.next_hosts = next;
                    ended.iter().for_each(|&ip| draft.cover(ip));
                    Ok(OpResult { changed: !ended.is_empty(), created: false })
                }
            };
            let refused = |error| Box::new(BatchAttempt::Refused { op: i, error });
            draft.results.push(result.map_err(refused)?);
        }
        Ok(draft)
    }

    /// Reads an upstream for the batch, once, and checks it.
    fn load_into(
        &self,
        draft: &mut Draft,
        name: &UpstreamName,
        checks: &Checks<'_>,
    ) -> Result<(), Box<BatchAttempt>> {
        if draft.work.contains_key(name) {
            return Ok(());
        }
        let stored = self.stored(name).map_err(|Unread| Box::new(BatchAttempt::Busy))?;
        let now = stored.as_ref().map(|stored| stored.upstream.clone());
        if !(checks.holds)(name, now.as_ref()) {
            let upstream = now.map(Box::new);
            return Err(Box::new(BatchAttempt::Unmet { name: name.clone(), upstream }));
        }
        let revision = stored.as_ref().map_or(0, |stored| stored.revision);
        if checks.if_revision.is_some_and(|seen| revision > seen) {
            return Err(Box::new(BatchAttempt::Stale { name: name.clone(), revision }));
        }
        draft.work.insert(name.clone(), Work { stored, now, covered: false });
        Ok(())
    }

    /// Reads every upstream with a server on the host; how many such servers there are.
    fn load_host(
        &self,
        draft: &mut Draft,
        ip: IpAddr,
        checks: &Checks<'_>,
    ) -> Result<usize, Box<BatchAttempt>> {
        for (name, ..) in self.on_host(ip) {
            self.load_into(draft, &name, checks)?;
        }
        let servers = draft.work.values().filter_map(|work| work.now.as_ref());
        Ok(servers.flat_map(|u| &u.servers).filter(|server| is_on(server, ip)).count())
    }

    fn upstream_op(
        &self,
        draft: &mut Draft,
        name: &UpstreamName,
        change: &Change,
        env: &Env<'_>,
    ) -> Result<OpResult, ChangeError> {
        let Some(work) = draft.work.get(name) else { return Ok(OpResult::default()) };
        let stored = work.stored.as_ref();
        let applied =
            self.decide(name, change, env, (work.now.as_ref(), stored, &draft.next_hosts))?;
        let applied = if applied == Applied::Gone {
            let applied = change::spare_routed(applied, name, change, self.routes_of(name))?;
            if applied == Applied::Gone && !is_forced(change) {
                draft.unrouted.push(name.clone());
            }
            applied
        } else {
            applied
        };
        if let Some(stored) = stored {
            self.concern(stored, change, &mut draft.concerned);
        }
        let Some(work) = draft.work.get_mut(name) else { return Ok(OpResult::default()) };
        let before = work.now.take();
        let (now, changed) = match applied {
            Applied::Same => (before.clone(), false),
            Applied::Set(next) => (Some(next), true),
            Applied::Gone => (None, true),
        };
        let created = created(before.as_ref(), now.as_ref(), change);
        work.now = now;
        Ok(OpResult { changed, created })
    }

    fn host_op(
        &self,
        draft: &mut Draft,
        verb: &HostVerb,
        on: usize,
        env: &Env<'_>,
    ) -> Result<OpResult, ChangeError> {
        let next =
            draft.next_hosts.apply(verb, on, &self.context(env, None, &|_| true, &mut || 0))?;
        let all = draft.work.values().filter_map(|work| work.stored.as_ref());
        let on_it = all.flat_map(|stored| {
            let servers = stored.upstream.servers.iter().zip(&stored.servers);
            let on_it = servers.filter(|(server, _)| is_on(server, verb.ip));
            on_it.flat_map(|(_, server)| server.peers_on(verb.ip, self.region()))
        });
        draft.concerned.host(verb.ip, on_it);
        let Some(next) = next else { return Ok(OpResult::default()) };
        if let Some(min_up) = verb.opts.min_up.filter(|_| verb.verb != AdminState::Up) {
            let short = self.short_of(draft, (verb.ip, &next), min_up, env);
            if !short.is_empty() {
                return Err(ChangeError::HostMinUp { upstreams: short, min_up });
            }
        }
        draft.next_hosts = next;
        draft.cover(verb.ip);
        Ok(OpResult { changed: true, created: false })
    }

    /// Upstreams with a server on the host in which fewer than `min_up` are eligible under the
    /// hosts as they are to be.
    fn short_of(
        &self,
        draft: &Draft,
        (ip, hosts): (IpAddr, &Hosts),
        min_up: u32,
        env: &Env<'_>,
    ) -> Vec<UpstreamName> {
        let short = draft.work.iter().filter(|(_, work)| {
            // As the steps before have left it.
            let Some(now) = work.now.as_ref() else { return false };
            if !now.servers.iter().any(|server| is_on(server, ip)) {
                return false;
            }
            let left = now.servers.iter().filter(|server| {
                hosts.covering(server).is_none()
                    && self.takes(server, &now.limits(server), work.stored.as_ref(), env)
            });
            left.count() < min_up as usize
        });
        short.map(|(name, _)| name.clone()).collect()
    }
}

impl Draft {
    /// What the batch tells.
    fn events(&self, actor: &Actor) -> Vec<Vec<u8>> {
        let changed = self.work.values().filter(|work| work.is_changed());
        let mut events: Vec<Vec<u8>> =
            changed.flat_map(|work| told(work.before(), work.now.as_ref(), actor)).collect();
        let hosts = event::of_hosts(&self.hosts.hosts, &self.next_hosts, actor);
        events.extend(hosts.iter().map(event::Event::to_bytes));
        events
    }

    /// What the journal says of the batch.
    fn changes(&self) -> Vec<u8> {
        let ends = self.work.values().map(|work| (work.before(), work.now.as_ref()));
        let changed: Vec<_> = ends.filter(|(before, after)| before != after).collect();
        let hosts = (self.next_hosts != self.hosts.hosts).then_some(&self.next_hosts);
        journal::changes(&changed, hosts)
    }

    /// Tables of upstreams with a server on the host are made anew.
    fn cover(&mut self, ip: IpAddr) {
        for work in self.work.values_mut() {
            let now = work.now.as_ref();
            work.covered |= now.is_some_and(|u| u.servers.iter().any(|server| is_on(server, ip)));
        }
    }

    fn end(self, revision: u64, changed: bool, epoch: peerage_shm::Epoch) -> Batch {
        let touched = self.work.into_iter().filter(|(_, work)| work.is_changed());
        let touched = touched.map(|(name, work)| {
            let before = work.stored.map(|stored| stored.upstream);
            let covered = before == work.now;
            Touched { name, before, after: work.now, covered }
        });
        let (before, after) = (self.hosts.hosts, self.next_hosts);
        let hosts = (before != after).then_some((before, after));
        Batch {
            revision,
            changed,
            results: self.results,
            touched: touched.collect(),
            hosts,
            mark: Mark::new(epoch, self.concerned),
        }
    }
}

/// Whether an upstream goes whichever routes name it.
const fn is_forced(change: &Change) -> bool {
    !matches!(change, Change::DeleteUpstream { force: false } | Change::ExpireOrphan { .. })
}

/// Steps that never fail for lack of room.
fn is_reserved_for(op: &Op) -> bool {
    match op {
        Op::Upstream { change, .. } => is_privileged(change),
        Op::Host(_) | Op::ExpireHosts(_) => true,
    }
}

/// Makes what a batch put in force the plain state again, and takes back what it did not.
///
/// After the store of the revision, and after a writer died anywhere in a batch. Under the lock.
pub(crate) fn settle(zone: &Zone, ups: impl IntoIterator<Item = Up>) {
    let in_force = zone.root(root::REVISION).load(SeqCst);
    for up in ups {
        let next = up.next_word().load(SeqCst);
        let table = Table::at(zone.region(), next).filter(|_| next != 0);
        if let Some(table) = table.filter(|table| table.revision() <= in_force) {
            if table.is_tomb() {
                zone.unlink(up);
                continue;
            }
            up.table_word().store(next, SeqCst);
        }
        up.next_word().store(0, SeqCst);
        if get(up.table_word()) == 0 {
            zone.unlink(up);
        }
    }
    let next = zone.root(root::HOSTS_NEXT).load(SeqCst);
    if next != 0 {
        let blob = crate::layout::Blob::from_word(next);
        if crate::hosts::revision(zone.region(), blob) <= in_force {
            zone.root(root::HOSTS).store(next, SeqCst);
        }
        zone.root(root::HOSTS_NEXT).store(0, SeqCst);
    }
}

impl Worker {
    /// Everything a decision needs beside the upstream.
    pub(crate) fn context<'a>(
        &self,
        env: &Env<'_>,
        name: Option<&UpstreamName>,
        eligible: &'a dyn Fn(&peerage_core::server::Server) -> bool,
        fresh_id: &'a mut dyn FnMut() -> u64,
    ) -> Context<'a> {
        Context {
            now: env.clock.msec,
            actor: env.actor.clone(),
            fresh_id,
            eligible,
            origin: env.origin.clone(),
            named_by_block: name.is_some_and(|name| (env.named)(name)),
            keyed: env.keyed,
            resolves: env.resolves,
        }
    }
}
