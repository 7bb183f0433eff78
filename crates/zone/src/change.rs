//! The one door for changes of what is declared and wanted.

use peerage_core::addr::ServerAddr;
use peerage_core::body::Field;
use peerage_core::change::{self, Actor, Applied, Change, ChangeError, Context};
use peerage_core::field;
use peerage_core::name::UpstreamName;
use peerage_core::server::{Origin, Server};
use peerage_core::state;
use peerage_core::upstream::{Defaults, Upstream};
use peerage_shm::{Epoch, Ref};

use crate::choice::Clock;
use crate::commit::{Plan, Unfit};
use crate::layout::{Peer, get, root, set};
use crate::live::facts;
use crate::stored::Stored;
use crate::trace::Reachable;
use crate::worker::Worker;

/// Times that a change is computed anew because another came first, before it is put off.
const RACES: usize = 8;

/// Who changes something, and when.
pub struct Env<'a> {
    /// Now.
    pub clock: &'a Clock,
    /// Who.
    pub actor: Actor,
    /// Origin of what is created.
    pub origin: Origin,
    /// Whether a block of the configuration names the upstream.
    pub named: bool,
    /// What holds for upstreams that no block names, where they do not say.
    pub keyed: Defaults,
}

/// What came of a change.
#[derive(Debug)]
pub enum Attempt {
    /// It is in force in every process, or nothing had to change.
    Done {
        /// Revision of the zone.
        revision: u64,
        /// Whether anything changed.
        changed: bool,
        /// Whether the upstream or the server was created.
        created: bool,
        /// The upstream now; `None` = it is gone.
        upstream: Option<Box<Upstream>>,
        /// For [`Worker::drain`].
        mark: Mark,
    },
    /// Somebody else writes: try again a little later.
    Busy,
    /// It cannot be done.
    Refused(ChangeError),
    /// What the caller asked for does not hold; the upstream is as it was found.
    Unmet(Option<Box<Upstream>>),
    /// It does not fit.
    NoRoom {
        /// Bytes it needs.
        need: u64,
        /// Bytes there are.
        free: u64,
    },
}

/// The time since which a change is in force, and the peers it concerns.
#[derive(Clone, Debug)]
pub struct Mark {
    epoch: Epoch,
    peers: Vec<(Ref, u32)>,
}

/// How far a server is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// No process has a request to it, and none can begin one.
    pub drained: bool,
    /// Requests in flight.
    pub active: u32,
    /// Upgraded connections among them.
    pub upgraded: u32,
}

impl Worker {
    /// Applies a change to the upstream of this name.
    pub fn change(&self, name: &UpstreamName, change: &Change, env: &Env<'_>) -> Attempt {
        self.change_if(name, change, env, &|_| true)
    }

    /// Applies a change if the upstream, as it is when the change is put in force, is as asked.
    pub fn change_if(
        &self,
        name: &UpstreamName,
        change: &Change,
        env: &Env<'_>,
        holds: &dyn Fn(Option<&Upstream>) -> bool,
    ) -> Attempt {
        let mut brief = false;
        for _ in 0..RACES {
            let stored = {
                let _section = self.enter();
                self.zone().find(name.as_str().as_bytes()).map(|up| self.zone().load(up))
            };
            let stored = match stored {
                Some(None) => return Attempt::Busy,
                Some(stored) => stored,
                None => None,
            };
            let current = stored.as_ref().map(|stored| &stored.upstream);
            if !holds(current) {
                return Attempt::Unmet(current.cloned().map(Box::new));
            }
            let applied = match self.decide(name, change, env, stored.as_ref()) {
                Ok(applied) => applied,
                Err(error) => return Attempt::Refused(error),
            };
            let next = match applied {
                Applied::Same => {
                    return Attempt::Done {
                        revision: self.zone().revision(),
                        changed: false,
                        created: false,
                        upstream: current.cloned().map(Box::new),
                        mark: self.mark(stored.as_ref(), change, self.zone().shared().advance()),
                    };
                }
                Applied::Set(mut next) => {
                    if brief {
                        shorten(&mut next, current);
                    }
                    Some(next)
                }
                Applied::Gone => None,
            };
            let plan = Plan {
                name,
                stored: stored.as_ref(),
                next: next.as_ref().map(|next| self.zone().prepare(next, stored.as_ref())),
                now: env.clock.msec,
                privileged: brief,
                revision: None,
            };
            let trace = Reachable(*self.zone());
            let Ok(mut writer) = self.zone().shared().try_write(self.pid(), &trace) else {
                return Attempt::Busy;
            };
            if self.zone().is_moved() {
                return Attempt::Busy;
            }
            writer.collect();
            match self.zone().commit(&mut writer, &plan) {
                Ok(committed) => {
                    drop(writer);
                    return Attempt::Done {
                        revision: committed.revision,
                        changed: true,
                        created: created(current, next.as_ref(), change),
                        upstream: next.map(Box::new),
                        mark: self.mark(stored.as_ref(), change, committed.epoch),
                    };
                }
                Err(Unfit::Stale) => {}
                // Only short texts come out of the reserve: it lasts for every server.
                Err(Unfit::NoRoom { .. }) if is_privileged(change) && !brief => brief = true,
                Err(Unfit::NoRoom { need, free }) => {
                    let refused = self.zone().root(root::NO_ROOM);
                    set(refused, get(refused) + 1);
                    return Attempt::NoRoom { need, free };
                }
            }
        }
        Attempt::Busy
    }

    /// How far the server that a change concerned is drained since that change.
    ///
    /// True only after a grace period, and then for good as long as it stays down: the count is
    /// raised inside the read section in which the server was found open.
    pub fn drain(&self, mark: &Mark) -> Drain {
        // Whether nobody can begin a request first, the count second: the other way around one
        // could begin in between.
        let passed = self.zone().shared().passed(mark.epoch);
        let region = self.region();
        let lives = |&(at, uid): &(Ref, u32)| Peer::at(region, at).filter(|p| p.uid() == uid);
        let active: u32 = mark.peers.iter().filter_map(lives).map(Peer::active).sum();
        let mut upgraded = 0;
        if active > 0 {
            self.zone().shared().each_marked(|record| {
                upgraded += u32::from(mark.peers.iter().any(|&(at, _)| at == record));
            });
        }
        Drain { drained: passed && active == 0, active, upgraded: upgraded.min(active) }
    }

    fn decide(
        &self,
        name: &UpstreamName,
        change: &Change,
        env: &Env<'_>,
        stored: Option<&Stored>,
    ) -> Result<Applied, ChangeError> {
        let eligible = |server: &Server| {
            stored.is_some_and(|stored| {
                let place = stored.upstream.servers.iter().position(|s| s.id == server.id);
                let Some(place) = place else { return false };
                let _section = self.enter();
                let facts = facts(self.region(), &stored.servers[place], env.clock.secs);
                state::eligible(server.admin.state, &stored.upstream.limits(server), &facts)
            })
        };
        let mut context = Context {
            now: env.clock.msec,
            actor: env.actor.clone(),
            fresh_id: &mut || self.zone().fresh_id(),
            eligible: &eligible,
            origin: env.origin.clone(),
            named_by_block: env.named,
            keyed: env.keyed,
        };
        change::apply(stored.map(|stored| &stored.upstream), name, change, &mut context)
    }

    /// The peers that the change took requests from, with the time since when.
    fn mark(&self, stored: Option<&Stored>, change: &Change, epoch: Epoch) -> Mark {
        let peers = stored.zip(concerned(change)).and_then(|(stored, sel)| {
            let place = stored.upstream.position(sel)?;
            let peers = stored.servers.get(place)?.peers(self.region());
            Some(peers.map(|peer| (peer.at, peer.uid())).collect())
        });
        Mark { epoch, peers: peers.unwrap_or_default() }
    }
}

/// Cuts the texts of admin states that changed, so that they fit what is kept for them.
fn shorten(next: &mut Upstream, before: Option<&Upstream>) {
    for server in &mut next.servers {
        let stays = before
            .and_then(|before| before.servers.iter().find(|s| s.id == server.id))
            .is_some_and(|s| s.admin == server.admin);
        if !stays {
            server.admin.from.clear();
            for text in [&mut server.admin.reason, &mut server.admin.by] {
                *text = field::brief(text);
            }
        }
    }
}

/// The server that a change names.
fn concerned(change: &Change) -> Option<&peerage_core::upstream::ServerSel> {
    match change {
        Change::PutServer { sel, .. }
        | Change::PatchServer { sel, .. }
        | Change::DeleteServer { sel }
        | Change::Admin { sel, .. } => Some(sel),
        Change::PutUpstream { .. }
        | Change::PatchUpstream { .. }
        | Change::DeleteUpstream { .. }
        | Change::ExpireTtl { .. }
        | Change::Declare(_)
        | Change::ExpireOrphan { .. } => None,
    }
}

/// Changes that never fail for lack of room: admin states, weights, and what removes.
fn is_privileged(change: &Change) -> bool {
    match change {
        Change::Admin { .. }
        | Change::ExpireTtl { .. }
        | Change::ExpireOrphan { .. }
        | Change::DeleteServer { .. }
        | Change::DeleteUpstream { .. } => true,
        Change::PatchServer { body, .. } => {
            body.is_weight_only() && !matches!(body.limits.weight, Field::Absent)
        }
        _ => false,
    }
}

fn created(before: Option<&Upstream>, after: Option<&Upstream>, change: &Change) -> bool {
    let has = |upstream: Option<&Upstream>, addr: &ServerAddr| {
        upstream.is_some_and(|u| u.servers.iter().any(|s| s.addr == *addr))
    };
    match change {
        Change::PutServer { sel: peerage_core::upstream::ServerSel::Addr(addr), .. } => {
            !has(before, addr) && has(after, addr)
        }
        Change::PutUpstream { .. } => before.is_none() && after.is_some(),
        _ => false,
    }
}
