//! Writes: tried until the lock is free, as changes like those of `v1/`.

use std::rc::Rc;

use peerage_core::api::error::{Code as Own, Problem};
use peerage_core::change::{Actor, Change};
use peerage_core::name::UpstreamName;
use peerage_core::plus::change::Write as Wanted;
use peerage_core::plus::error::Fault;
use peerage_core::plus::object;
use peerage_core::upstream::Upstream;
use peerage_zone::{Batch, BatchAttempt, Checks, Op};

use super::super::guard::Guard;
use super::super::{answer, batch, moving, no_place, write};
use super::{missing, read};
use crate::conf::Zone;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer;
use crate::worker;

/// `DELETE http/upstreams/{u}`: what was counted is forgotten.
pub(super) fn reset(
    r: Request<'_>,
    zone: &Zone,
    name: &UpstreamName,
    dry_run: bool,
) -> Result<Answer, Fault> {
    let worker = zone.worker().ok_or_else(no_place)?;
    if worker.zone().is_moved() {
        return Err(moving().into());
    }
    let there = if dry_run { worker.read_wanted(name).is_some() } else { worker.reset(name) };
    if there { Ok(super::whole(204, Vec::new())) } else { Err(missing(r, name.as_str())) }
}

/// A write to the servers of an upstream.
pub(super) struct Write {
    zone: Rc<Zone>,
    name: UpstreamName,
    wanted: Wanted,
    actor: Actor,
    guard: Guard,
    dry_run: bool,
    /// When it was tried first, monotonic ms.
    since: u64,
}

impl Write {
    pub(super) fn new(
        zone: Rc<Zone>,
        name: UpstreamName,
        wanted: Wanted,
        actor: Actor,
        guard: Guard,
        dry_run: bool,
    ) -> Self {
        Self { zone, name, wanted, actor, guard, dry_run, since: timer::now() }
    }

    /// Tries once; `None`: again in a moment.
    fn attempt(&self, r: Request<'_>) -> Result<Option<Answer>, Fault> {
        let Some(worker) = self.zone.worker() else { return Ok(None) };
        let Some((now, _)) = worker.read_wanted(&self.name) else {
            return Err(missing(r, self.name.as_str()));
        };
        let changes = self.wanted.changes(&now)?;
        let sel = self.wanted.server();
        self.guard.check(Some(&now), sel.as_ref())?;
        // What it is as changes was decided by what was there: they go in where that still holds.
        let holds = |_: &UpstreamName, now: Option<&Upstream>| {
            self.guard.check(now, sel.as_ref()).is_ok()
                && now.is_some_and(|now| self.wanted.changes(now).as_ref() == Ok(&changes))
        };
        let ops: Vec<Op> = changes.iter().map(|change| self.op(change)).collect();
        let checks = Checks { holds: &holds, dry_run: self.dry_run, ..Checks::NONE };
        match batch::put_in_force(worker, &self.zone, r, &self.actor, &ops, &checks) {
            BatchAttempt::Busy | BatchAttempt::Unmet { .. } | BatchAttempt::Stale { .. } => {
                Ok(None)
            }
            BatchAttempt::NotWriter => Err(write::not_writer().into()),
            BatchAttempt::Refused { error, .. } => Err(error.into()),
            BatchAttempt::NoRoom { need, free } => {
                let what = format!("upstream \"{}\"", self.name);
                let mut fault = Fault::from(write::no_room(&self.zone, &what, need, free));
                fault.text = format!("upstream \"{}\" memory exhausted", self.name);
                Err(fault)
            }
            BatchAttempt::Done(done) => {
                if done.changed && !self.dry_run {
                    let text = self.describe(&now);
                    log!(Notice, "{text}");
                    task::note(r, text);
                    worker::wake_all();
                }
                self.answer(*done, now).map(Some)
            }
        }
    }

    fn op(&self, change: &Change) -> Op {
        Op::Upstream { name: self.name.clone(), change: change.clone() }
    }

    /// What the server, or the rest of the servers, is now; `before` where nothing changed.
    fn answer(&self, done: Batch, before: Upstream) -> Result<Answer, Fault> {
        let now = match done.touched.into_iter().next() {
            Some(touched) => touched.after.ok_or_else(Fault::no_upstream)?,
            None => before,
        };
        let answer = match &self.wanted {
            Wanted::Remove(_) => read::list(200, now),
            Wanted::Add(_) | Wanted::Patch(..) => {
                let server = self.wanted.server().and_then(|sel| now.find(&sel));
                let server = server.ok_or_else(|| {
                    Fault::from(Problem::new(Own::ServerNotFound, "the server is gone"))
                })?;
                let mut body = Vec::with_capacity(256);
                object::server(&mut body, server, &now.limits(server));
                let status = if matches!(self.wanted, Wanted::Add(_)) { 201 } else { 200 };
                super::whole(status, body)
            }
        };
        Ok(answer::at_revision(answer, done.revision))
    }

    /// The change in one line.
    fn describe(&self, before: &Upstream) -> String {
        let (name, by) = (&self.name, &self.actor.by);
        let sel = self.wanted.server();
        let server = sel.as_ref().and_then(|sel| before.find(sel));
        let server = match (server, &sel) {
            (Some(server), _) => server.addr.to_string(),
            (None, Some(sel)) => sel.to_string(),
            (None, None) => String::new(),
        };
        let what = match &self.wanted {
            Wanted::Add(_) => "added",
            Wanted::Patch(..) => "set",
            Wanted::Remove(_) => "removed",
        };
        format!("server \"{server}\" is {what} by \"{by}\", upstream \"{name}\"")
    }
}

impl Task for Write {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        match self.attempt(r) {
            Ok(Some(answer)) => Turn::Answer(answer),
            Ok(None) => write::later(&self.zone, self.since),
            Err(fault) => Turn::Answer(super::refusal(r, &fault)),
        }
    }
}
