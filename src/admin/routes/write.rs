//! A write of one route: tried until the lock is free.

use std::rc::Rc;

use peerage_core::api::error::Problem;
use peerage_core::api::routes;
use peerage_core::change::Actor;
use peerage_core::diff;
use peerage_core::route::change::RouteChange;
use peerage_core::route::{Route, RouteKey, Status};
use peerage_zone::{RouteAttempt, RouteChecks, RouteDone, RouteOp};
use serde_json::Value;

use crate::admin::guard::Guard;
use crate::admin::{answer, batch, flush, write};
use crate::conf::Zone;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer;
use crate::worker;

/// A write on its way.
pub(in crate::admin) struct Write {
    zone: Rc<Zone>,
    op: RouteOp,
    actor: Actor,
    guard: Guard,
    dry_run: bool,
    /// Tries since then, monotonic ms.
    since: u64,
}

impl Write {
    pub(in crate::admin) fn new(
        zone: Rc<Zone>,
        key: RouteKey,
        change: RouteChange,
        actor: Actor,
        guard: Guard,
        dry_run: bool,
    ) -> Self {
        let op = RouteOp { key, change };
        Self { zone, op, actor, guard, dry_run, since: timer::now() }
    }

    fn answer(&self, done: &RouteDone) -> Answer {
        let touched = done.touched.first();
        let route = touched.and_then(|touched| touched.after.as_ref());
        let mut extra: Vec<(&str, Value)> = Vec::new();
        if self.dry_run {
            let entries = touched
                .map(|touched| diff::route(touched.before.as_ref(), touched.after.as_ref()))
                .unwrap_or_default();
            extra.push(("dry_run", true.into()));
            extra.push(("diff", serde_json::to_value(entries).unwrap_or_default()));
        } else if let Some(text) = flush::trouble(&self.zone) {
            extra.push(("warning", format!("in force, not on disk yet: {text}").into()));
        }
        let answer = routes::RouteAnswer {
            revision: done.revision,
            changed: done.changed,
            route: route.filter(|_| !self.dry_run),
            extra: &extra,
        };
        let mut body = Vec::with_capacity(256);
        routes::answer(&mut body, &answer);
        let created = touched.is_some_and(|touched| touched.is_created()) && !self.dry_run;
        let status = if created { 201 } else { 200 };
        answer::at_revision(answer::json(status, Box::new(body)), done.revision)
    }

    /// The change in one line.
    fn describe(&self, before: Option<&Route>, after: Option<&Route>) -> String {
        let (key, by) = (&self.op.key, &self.actor.by);
        let Some(Route { upstream, status, reason, .. }) = after else {
            let upstream = before.map_or("", |route| route.upstream.as_str());
            return format!("route \"{key}\" is removed by \"{by}\", upstream \"{upstream}\"");
        };
        let set = match status {
            Status::Active => String::new(),
            status => format!(" {status}"),
        };
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        format!("route \"{key}\" is set{set} by \"{by}\"{reason}, upstream \"{upstream}\"")
    }
}

impl Task for Write {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let refused = |problem: &Problem| Turn::Answer(answer::problem(problem));
        let Some(worker) = self.zone.worker() else { return write::later(&self.zone, self.since) };
        let holds = |_: &RouteKey, now: Option<&Route>| self.guard.check_route(now).is_ok();
        let checks = RouteChecks { holds: &holds, dry_run: self.dry_run, ..RouteChecks::NONE };
        let ops = std::slice::from_ref(&self.op);
        match batch::put_routes_in_force(worker, &self.zone, r, &self.actor, ops, &checks) {
            RouteAttempt::Busy => write::later(&self.zone, self.since),
            RouteAttempt::NotWriter => refused(&write::not_writer()),
            RouteAttempt::Refused { error, .. } => refused(&error.into()),
            RouteAttempt::Unmet { route, .. } => match self.guard.check_route(route.as_deref()) {
                Ok(()) => write::later(&self.zone, self.since),
                Err(problem) => refused(&problem),
            },
            RouteAttempt::NoRoom { need, free } => {
                let what = format!("route \"{}\"", self.op.key);
                refused(&write::no_room(&self.zone, &what, need, free))
            }
            RouteAttempt::Done(done) => {
                if done.changed && !self.dry_run {
                    let touched = done.touched.first();
                    let before = touched.and_then(|touched| touched.before.as_ref());
                    let after = touched.and_then(|touched| touched.after.as_ref());
                    let text = self.describe(before, after);
                    log!(Notice, "{text}");
                    task::note(r, text);
                    worker::wake_all();
                }
                Turn::Answer(self.answer(&done))
            }
        }
    }
}
