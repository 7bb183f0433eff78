//! Writes that go through a batch: batches, verbs of hosts, and what a write would change.

use std::net::IpAddr;
use std::rc::Rc;

use peerage_core::api::batch;
use peerage_core::api::error::{Code, Problem};
use peerage_core::api::render;
use peerage_core::change::Actor;
use peerage_core::diff::{self, Entry};
use peerage_core::host::HostVerb;
use peerage_core::name::UpstreamName;
use peerage_core::server::{AdminState, Origin};
use peerage_core::state;
use peerage_core::upstream::{ServerSel, Upstream};
use peerage_zone::{
    Batch as InForce, BatchAttempt, Checks, Env, Op, RouteAttempt, RouteChecks, RouteOp, Worker,
};
use serde_json::Value;

use super::guard::Guard;
use super::wait::{self, Look, Next, Wait};
use super::{answer, read, write};
use crate::conf::Zone;
use crate::ffi::conf;
use crate::ffi::output::Answer;
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer;
use crate::{worker, zone};

/// What the answer is about.
pub(super) enum What {
    /// One upstream, or a server of it.
    Upstream(UpstreamName, Option<ServerSel>),
    /// A host, and how long to wait for it, ms.
    Host(HostVerb),
    /// Any number.
    Several,
}

/// A write on its way.
pub(super) struct Batch {
    zone: Rc<Zone>,
    ops: Vec<Op>,
    what: What,
    if_revision: Option<u64>,
    dry_run: bool,
    actor: Actor,
    guard: Guard,
    stage: Stage,
}

enum Stage {
    /// Tries since then, monotonic ms.
    Trying { since: u64 },
    /// Is in force since then, unix ms, and waits until then.
    Waiting { done: Box<InForce>, since: u64, until: u64 },
}

impl Batch {
    /// `POST v1/batch`
    pub(super) fn several(
        zone: Rc<Zone>,
        batch: batch::Batch,
        actor: Actor,
        guard: Guard,
        dry_run: bool,
    ) -> Result<Self, Problem> {
        let batch::Batch { if_revision, ops } = batch;
        let ops = ops.into_iter().map(op).collect();
        let mut batch = Self::new(zone, ops, What::Several, actor, guard, dry_run)?;
        batch.if_revision = if_revision;
        Ok(batch)
    }

    /// Any other write.
    pub(super) fn new(
        zone: Rc<Zone>,
        ops: Vec<Op>,
        what: What,
        actor: Actor,
        guard: Guard,
        dry_run: bool,
    ) -> Result<Self, Problem> {
        if !matches!(what, What::Upstream(..)) {
            guard.refuse()?;
        }
        let stage = Stage::Trying { since: timer::now() };
        Ok(Self { zone, ops, what, if_revision: None, dry_run, actor, guard, stage })
    }

    fn attempt(&mut self, r: Request<'_>, since: u64) -> Turn {
        let Some(worker) = self.zone.worker() else { return write::later(&self.zone, since) };
        let holds = |_: &UpstreamName, now: Option<&Upstream>| self.holds(now).is_ok();
        let (if_revision, dry_run) = (self.if_revision, self.dry_run);
        let checks = Checks { if_revision, holds: &holds, dry_run, ..Checks::NONE };
        match put_in_force(worker, &self.zone, r, &self.actor, &self.ops, &checks) {
            BatchAttempt::Busy => write::later(&self.zone, since),
            BatchAttempt::NotWriter => Turn::Answer(answer::problem(&write::not_writer())),
            BatchAttempt::Refused { op, error } => {
                let problem = Problem::from(error);
                Turn::Answer(answer::problem(&match self.what {
                    What::Several => problem.within(&format!("changes[{op}]")),
                    _ => problem,
                }))
            }
            BatchAttempt::Unmet { upstream, .. } => match self.holds(upstream.as_deref()) {
                Ok(()) => write::later(&self.zone, since),
                Err(problem) => Turn::Answer(answer::problem(&problem)),
            },
            BatchAttempt::Stale { name, revision } => {
                let detail = format!("upstream \"{name}\" was changed at revision {revision}");
                let problem = Problem::new(Code::Stale, detail)
                    .field("if_revision")
                    .with("upstream", name.as_str())
                    .with("revision", revision);
                Turn::Answer(answer::problem(&problem))
            }
            BatchAttempt::NoRoom { need, free } => {
                let what = self.named();
                let problem = write::no_room(&self.zone, &what, need, free);
                Turn::Answer(answer::problem(&problem))
            }
            BatchAttempt::Done(done) => {
                if done.changed && !self.dry_run {
                    let text = self.describe(&done);
                    log!(Notice, "{text}");
                    task::note(r, text);
                    worker::wake_all();
                }
                match (&self.what, self.dry_run) {
                    (What::Host(HostVerb { opts, .. }), false) if opts.wait.is_some() => {
                        let until = timer::now() + opts.wait.unwrap_or(0);
                        self.waiting(worker, done, process::clock().msec, until)
                    }
                    _ => Turn::Answer(self.answer(&done, None)),
                }
            }
        }
    }

    fn holds(&self, now: Option<&Upstream>) -> Result<(), Problem> {
        match &self.what {
            What::Upstream(_, sel) => self.guard.check(now, sel.as_ref()),
            What::Host(_) | What::Several => Ok(()),
        }
    }

    /// Looks whether what the client waits for has come to the host.
    fn waiting(&mut self, worker: &Worker, done: Box<InForce>, since: u64, until: u64) -> Turn {
        let What::Host(HostVerb { ip, verb, .. }) = &self.what else {
            return Turn::Answer(self.answer(&done, None));
        };
        let wait = Wait::of(*verb);
        let looked = match wait {
            Wait::Ready => self.ready(worker, *ip, since),
            Wait::Drained => {
                let up = worker.hosts().get(*ip).is_none();
                let undone = up.then_some("the host was set up meanwhile");
                wait::drained(&self.zone, worker, &done.mark, undone)
            }
        };
        let problem = match looked.next(until) {
            Next::Answer => {
                return Turn::Answer(self.answer(&done, Some((wait.member(), true.into()))));
            }
            Next::Again(ms) => {
                self.stage = Stage::Waiting { done, since, until };
                return Turn::Wait(ms);
            }
            Next::GiveUp(problem) => problem,
        };
        let problem = problem
            .with("revision", done.revision)
            .with("changed", done.changed)
            .with("host", ip.to_string());
        Turn::Answer(answer::at_revision(answer::problem(&problem), done.revision))
    }

    /// Whether every server of the host takes requests that nobody took down or gave no weight.
    fn ready(&self, worker: &Worker, ip: IpAddr, since: u64) -> Look {
        for (name, id, addr) in worker.on_host(ip) {
            let Some(seen) = worker.read(&name, &process::clock()) else { continue };
            let at = seen.upstream.position(&ServerSel::Id(id));
            let shown = read::shown(&self.zone, &seen);
            let Some(line) = at.and_then(|at| shown.server(at)) else { continue };
            if line.server.wanted() != AdminState::Up || line.limits.weight == 0 {
                continue;
            }
            let is_ready = write::is_ready(line.server, &line.limits, line.live, line.host);
            if !is_ready || !write::has_passed(worker, &name, id, since) {
                let facts = &line.live.facts;
                let why = if is_ready {
                    Some(write::NOT_PASSED.to_owned())
                } else {
                    let why = state::verdict(line.server, line.host, &line.limits, facts).1;
                    why.map(|why| why.text)
                };
                let why = why.map_or_else(String::new, |text| format!(": {text}"));
                return Look::NotYet(Wait::Ready.missed(format!(
                    "server \"{addr}\" of upstream \"{name}\" is not eligible{why}"
                )));
            }
        }
        Look::Come
    }

    fn answer(&self, done: &InForce, member: Option<(&str, Value)>) -> Answer {
        let mut extra: Vec<(&str, Value)> = Vec::new();
        match &self.what {
            What::Upstream(..) => {}
            What::Host(HostVerb { ip, .. }) => {
                extra.push(("host", ip.to_string().into()));
                let hosts = done.hosts.as_ref().map(|(_, after)| after.clone());
                let hosts = hosts.or_else(|| Some(self.zone.worker()?.hosts()));
                let admin = hosts.as_ref().and_then(|hosts| hosts.get(*ip));
                extra.push(("admin", render::admin_value(admin)));
            }
            What::Several => {
                let results = done.results.iter().map(|result| {
                    serde_json::json!({"changed": result.changed, "created": result.created})
                });
                extra.push(("results", results.collect()));
            }
        }
        extra.extend(member);
        if self.dry_run {
            extra.push(("dry_run", true.into()));
            let entries =
                diff_of(done).map(|entry| serde_json::to_value(entry).unwrap_or_default());
            extra.push(("diff", entries.collect()));
        } else if let Some(text) = super::flush::trouble(&self.zone) {
            extra.push(("warning", format!("in force, not on disk yet: {text}").into()));
        }
        let upstream = match &self.what {
            What::Upstream(name, _) => Some(name),
            What::Host(_) | What::Several => None,
        };
        let mut body = Vec::with_capacity(1024);
        let answer = render::Answer {
            revision: done.revision,
            changed: done.changed,
            upstream,
            server: None,
            extra: &extra,
        };
        render::answer(&mut body, &answer);
        answer::at_revision(answer::json(200, Box::new(body)), done.revision)
    }

    /// What it is about, for the log.
    fn named(&self) -> String {
        match &self.what {
            What::Upstream(name, _) => format!("upstream \"{name}\""),
            What::Host(HostVerb { ip, .. }) => format!("host \"{ip}\""),
            What::Several => format!("what a batch of {} names", self.ops.len()),
        }
    }

    /// The change in one line.
    fn describe(&self, done: &InForce) -> String {
        let (by, zone) = (&self.actor.by, &self.zone.name);
        match &self.what {
            What::Host(HostVerb { ip, verb, opts, .. }) => {
                let reason = match opts.reason.as_deref() {
                    None | Some("") => String::new(),
                    Some(reason) => format!(": {reason}"),
                };
                format!(
                    "host \"{ip}\" is set {} by \"{by}\"{reason}, zone \"{zone}\"",
                    verb.as_str()
                )
            }
            What::Upstream(name, _) => format!("set by \"{by}\", upstream \"{name}\""),
            What::Several => {
                let (n, m) = (self.ops.len(), done.touched.len());
                format!("batch of {n} changes by \"{by}\", {m} upstreams, zone \"{zone}\"")
            }
        }
    }
}

impl Task for Batch {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        match std::mem::replace(&mut self.stage, Stage::Trying { since: 0 }) {
            Stage::Trying { since } => {
                self.stage = Stage::Trying { since };
                self.attempt(r, since)
            }
            Stage::Waiting { done, since, until } => match self.zone.worker() {
                Some(worker) => self.waiting(worker, done, since, until),
                None => Turn::Answer(answer::problem(&super::no_place())),
            },
        }
    }
}

/// Tries once to put changes of routes in force.
pub(super) fn put_routes_in_force(
    worker: &Worker,
    zone: &Zone,
    r: Request<'_>,
    actor: &Actor,
    ops: &[RouteOp],
    checks: &RouteChecks<'_>,
) -> RouteAttempt {
    in_terms(zone, r, actor, |env| worker.put_routes(ops, env, checks))
}

/// Tries once to put steps in force.
pub(super) fn put_in_force(
    worker: &Worker,
    zone: &Zone,
    r: Request<'_>,
    actor: &Actor,
    ops: &[Op],
    checks: &Checks<'_>,
) -> BatchAttempt {
    in_terms(zone, r, actor, |env| worker.batch(ops, env, checks))
}

/// Tries something in the terms of the configuration.
fn in_terms<T>(
    zone: &Zone,
    r: Request<'_>,
    actor: &Actor,
    attempt: impl FnOnce(&Env<'_>) -> T,
) -> T {
    let clock = process::clock();
    let main = conf::main(r);
    attempt(&Env {
        clock: &clock,
        actor: actor.clone(),
        origin: Origin::Api,
        named: &|name| main.names(zone, name.as_str()),
        keyed: zone::keyed_defaults(zone, main),
        resolves: main.resolver().is_some(),
    })
}

/// What a batch changes, hosts first.
pub(super) fn diff_of(done: &InForce) -> impl Iterator<Item = Entry> {
    let hosts = done.hosts.iter().flat_map(|(before, after)| diff::hosts(before, after));
    let upstreams = done
        .touched
        .iter()
        .flat_map(|touched| diff::upstream(touched.before.as_ref(), touched.after.as_ref()));
    hosts.chain(upstreams)
}

fn op(op: batch::Op) -> Op {
    match op {
        batch::Op::Upstream { name, change } => Op::Upstream { name, change },
        batch::Op::Host(verb) => Op::Host(verb),
    }
}
