//! The one door for changes of what is declared and wanted.

use crate::batch::{Batch, BatchAttempt, Checks, Op};
use crate::choice::Clock;
use crate::drain::{Concerned, Mark};
use crate::live::facts;
use crate::stored::Stored;
use crate::worker::Worker;
use peerage_core::addr::ServerAddr;
use peerage_core::body::Field;
use peerage_core::change::{self, Actor, Applied, Change, ChangeError};
use peerage_core::field;
use peerage_core::host::Hosts;
use peerage_core::name::UpstreamName;
use peerage_core::server::{Limits, Origin, Server};
use peerage_core::state;
use peerage_core::upstream::{Defaults, Upstream};

/// Who changes something, and when.
pub struct Env<'a> {
    /// Now.
    pub clock: &'a Clock,
    /// Who.
    pub actor: Actor,
    /// Origin of what is created.
    pub origin: Origin,
    /// Whether a block of the configuration names an upstream.
    pub named: &'a dyn Fn(&UpstreamName) -> bool,
    /// What holds for upstreams that no block names, where they do not say.
    pub keyed: Defaults,
    /// Whether names can be resolved at run time.
    pub resolves: bool,
}

impl<'a> Env<'a> {
    /// Of what ends by itself, since its time is over.
    pub(crate) fn of_time(clock: &'a Clock) -> Self {
        Self {
            clock,
            actor: Actor::new("ttl", ""),
            origin: Origin::Api,
            named: &|_| true,
            keyed: Defaults::default(),
            resolves: false,
        }
    }
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
    /// Another master writes the state file, see [`BatchAttempt::NotWriter`].
    NotWriter,
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
        let checks = Checks { holds: &|_, upstream| holds(upstream), ..Checks::NONE };
        self.change_by(name, change, env, &checks)
    }

    /// Applies a change of one upstream under these conditions.
    pub(crate) fn change_by(
        &self,
        name: &UpstreamName,
        change: &Change,
        env: &Env<'_>,
        checks: &Checks<'_>,
    ) -> Attempt {
        let op = Op::Upstream { name: name.clone(), change: change.clone() };
        match self.batch(&[op], env, checks) {
            BatchAttempt::Busy | BatchAttempt::Stale { .. } => Attempt::Busy,
            BatchAttempt::NotWriter => Attempt::NotWriter,
            BatchAttempt::NoRoom { need, free } => Attempt::NoRoom { need, free },
            BatchAttempt::Refused { error, .. } => Attempt::Refused(error),
            BatchAttempt::Unmet { upstream, .. } => Attempt::Unmet(upstream),
            BatchAttempt::Done(batch) => {
                let Batch { revision, changed, results, touched, mark, .. } = *batch;
                let upstream = match touched.into_iter().next() {
                    Some(touched) => touched.after,
                    None => self.declared(name),
                };
                let created = results.first().is_some_and(|result| result.created);
                Attempt::Done { revision, changed, created, upstream: upstream.map(Box::new), mark }
            }
        }
    }

    /// What is declared and wanted of an upstream now.
    fn declared(&self, name: &UpstreamName) -> Option<Upstream> {
        let _section = self.enter();
        let up = self.zone().find(name.as_str().as_bytes())?;
        self.zone().load(up).map(|stored| stored.upstream)
    }

    /// What a change makes of an upstream: as computed so far, as it lies, under these hosts.
    pub(crate) fn decide(
        &self,
        name: &UpstreamName,
        change: &Change,
        env: &Env<'_>,
        (now, stored, hosts): (Option<&Upstream>, Option<&Stored>, &Hosts),
    ) -> Result<Applied, ChangeError> {
        let eligible = |server: &Server| {
            let limits = now.map_or(Limits::BUILT_IN, |now| now.limits(server));
            hosts.covering(server).is_none() && self.takes(server, &limits, stored, env)
        };
        let mut fresh_id = || self.zone().fresh_id();
        let mut context = self.context(env, Some(name), &eligible, &mut fresh_id);
        change::apply(now, name, change, &mut context)
    }

    /// Whether a server takes new requests; one that was not there before has shown nothing yet.
    pub(crate) fn takes(
        &self,
        server: &Server,
        limits: &Limits,
        stored: Option<&Stored>,
        env: &Env<'_>,
    ) -> bool {
        let _section = self.enter();
        let shown = stored.and_then(|stored| {
            let place = stored.upstream.servers.iter().position(|s| s.id == server.id)?;
            let server = stored.servers.get(place)?;
            Some(facts(self.region(), stored.part.method, &server.entries, env.clock))
        });
        state::eligible(server.wanted(), limits, &shown.unwrap_or_default())
    }

    /// Adds the server that a change names.
    pub(crate) fn concern(&self, stored: &Stored, change: &Change, concerned: &mut Concerned) {
        let servers = &stored.upstream.servers;
        let Some(at) = concerned_server(change).and_then(|sel| stored.upstream.position(sel))
        else {
            return;
        };
        for (i, (server, lies)) in servers.iter().zip(&stored.servers).enumerate() {
            let peers = lies.peers(self.region());
            if i == at {
                concerned.server(self, server, peers);
            } else if server.addr.is_name() || servers[at].addr.is_name() {
                concerned.others(peers);
            }
        }
    }
}

/// Cuts the texts of admin states that changed, so that they fit what is kept for them.
pub(crate) fn shorten(next: &mut Upstream, before: Option<&Upstream>) {
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
fn concerned_server(change: &Change) -> Option<&peerage_core::upstream::ServerSel> {
    match change {
        Change::PutServer { sel, .. }
        | Change::PatchServer { sel, .. }
        | Change::DeleteServer { sel }
        | Change::Admin { sel, .. } => Some(sel),
        Change::PutUpstream { .. }
        | Change::SetServers { .. }
        | Change::PatchUpstream { .. }
        | Change::DeleteUpstream { .. }
        | Change::ExpireTtl { .. }
        | Change::Declare(_)
        | Change::ExpireOrphan { .. }
        | Change::Resolve { .. }
        | Change::Source { .. }
        | Change::Unfollow { .. }
        | Change::Reap { .. } => None,
    }
}

/// Changes that never fail for lack of room: admin states, weights, and what removes.
pub(crate) fn is_privileged(change: &Change) -> bool {
    match change {
        Change::Admin { .. }
        | Change::ExpireTtl { .. }
        | Change::ExpireOrphan { .. }
        | Change::Reap { .. }
        | Change::DeleteServer { .. }
        | Change::DeleteUpstream { .. } => true,
        Change::PatchServer { body, .. } => {
            body.is_weight_only() && !matches!(body.limits.weight, Field::Absent)
        }
        _ => false,
    }
}

pub(crate) fn created(
    before: Option<&Upstream>,
    after: Option<&Upstream>,
    change: &Change,
) -> bool {
    let has = |upstream: Option<&Upstream>, addr: &ServerAddr| {
        upstream.is_some_and(|u| u.servers.iter().any(|s| s.addr == *addr))
    };
    match change {
        Change::PutServer { sel: peerage_core::upstream::ServerSel::Addr(addr), .. } => {
            !has(before, addr) && has(after, addr)
        }
        Change::PutUpstream { .. } | Change::SetServers { .. } | Change::Source { .. } => {
            before.is_none() && after.is_some()
        }
        _ => false,
    }
}
