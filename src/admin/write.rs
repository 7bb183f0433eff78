//! A write: the change, tried until the lock is free, and what it is to wait for.

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::render::{self, Line};
use peerage_core::change::{Actor, Change};
use peerage_core::name::UpstreamName;
use peerage_core::server::{Admin, AdminState, Limits, Origin, Server};
use peerage_core::state::{self, Live, Why, WhyCode};
use peerage_core::upstream::{ServerSel, Upstream};
use peerage_zone::{Attempt, Env, Mark, Worker};
use serde_json::Value;

use super::guard::Guard;
use super::wait::{self, Look, Next, Wait};
use super::{answer, read};
use crate::conf::Zone;
use crate::ffi::conf;
use crate::ffi::output::Answer;
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer;
use crate::{worker, zone};

/// A write on its way.
pub(super) struct Write {
    zone: Rc<Zone>,
    name: UpstreamName,
    change: Change,
    actor: Actor,
    guard: Guard,
    /// More for the log.
    note: Option<String>,
    stage: Stage,
}

enum Stage {
    /// Tries since then, monotonic ms.
    Trying { since: u64 },
    /// Is in force, and waits until then.
    Waiting { done: Done, until: u64 },
}

/// A change in force.
struct Done {
    revision: u64,
    changed: bool,
    created: bool,
    /// The server that it waits for.
    id: Option<u64>,
    /// When, unix ms.
    since: u64,
    mark: Mark,
}

impl Write {
    pub(super) fn new(
        zone: Rc<Zone>,
        name: UpstreamName,
        change: Change,
        actor: Actor,
        guard: Guard,
    ) -> Self {
        let stage = Stage::Trying { since: timer::now() };
        Self { zone, name, change, actor, guard, note: None, stage }
    }

    /// Has the line in the log say this too.
    pub(super) fn noting(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }

    fn attempt(&mut self, r: Request<'_>, since: u64) -> Turn {
        let Some(worker) = self.zone.worker() else { return later(&self.zone, since) };
        let clock = process::clock();
        let main = conf::main(r);
        let env = Env {
            clock: &clock,
            actor: self.actor.clone(),
            origin: Origin::Api,
            named: &|name| main.names(&self.zone, name.as_str()),
            keyed: zone::keyed_defaults(&self.zone, main),
            resolves: main.resolver().is_some(),
        };
        let holds = |now: Option<&Upstream>| self.guard.check(now, self.sel()).is_ok();
        match worker.change_if(&self.name, &self.change, &env, &holds) {
            Attempt::Busy => later(&self.zone, since),
            Attempt::NotWriter => Turn::Answer(answer::problem(&not_writer())),
            Attempt::Refused(error) => Turn::Answer(answer::problem(&error.into())),
            Attempt::Unmet(now) => match self.guard.check(now.as_deref(), self.sel()) {
                Ok(()) => later(&self.zone, since),
                Err(problem) => Turn::Answer(answer::problem(&problem)),
            },
            Attempt::NoRoom { need, free } => {
                let what = format!("upstream \"{}\"", self.name);
                Turn::Answer(answer::problem(&no_room(&self.zone, &what, need, free)))
            }
            Attempt::Done { revision, changed, created, upstream, mark } => {
                let server = self.sel().and_then(|sel| upstream.as_ref()?.find(sel));
                let id = server.map(|server| server.id);
                if changed {
                    let text = self.describe(server);
                    log!(Notice, "{text}");
                    task::note(r, text);
                    worker::wake_all();
                }
                let since = clock.msec;
                let done = Done { revision, changed, created, id, since, mark };
                match self.wait() {
                    Some((_, ms)) => {
                        let until = timer::now() + ms;
                        self.waiting(worker, done, until)
                    }
                    None => Turn::Answer(self.answer(worker, &done, None)),
                }
            }
        }
    }

    /// Looks whether what the client waits for has come.
    fn waiting(&mut self, worker: &Worker, done: Done, until: u64) -> Turn {
        let (Some((wait, _)), Some(id)) = (self.wait(), done.id) else {
            return Turn::Answer(self.answer(worker, &done, None));
        };
        let looked = match wait {
            Wait::Drained => self.drained(worker, id, &done.mark),
            Wait::Ready => self.ready(worker, id, done.since),
        };
        let problem = match looked.next(until) {
            Next::Answer => {
                let member = (wait.member(), true.into());
                return Turn::Answer(self.answer(worker, &done, Some(member)));
            }
            Next::Again(ms) => {
                self.stage = Stage::Waiting { done, until };
                return Turn::Wait(ms);
            }
            Next::GiveUp(problem) => problem,
        };
        let problem = problem
            .with("revision", done.revision)
            .with("changed", done.changed)
            .with("upstream", self.name.as_str());
        Turn::Answer(answer::at_revision(answer::problem(&problem), done.revision))
    }

    fn drained(&self, worker: &Worker, id: u64, mark: &Mark) -> Look {
        let seen = worker.read(&self.name, &process::clock());
        let up = seen.is_some_and(|seen| {
            let server = seen.upstream.find(&ServerSel::Id(id));
            server.is_some_and(|server| server.admin.state == AdminState::Up)
        });
        wait::drained(&self.zone, worker, mark, up.then_some("the server was set up meanwhile"))
    }

    fn ready(&self, worker: &Worker, id: u64, since: u64) -> Look {
        let problem = |detail: String| Wait::Ready.missed(detail);
        let seen = worker.read(&self.name, &process::clock());
        let found = seen.as_ref().and_then(|seen| {
            let at = seen.upstream.position(&ServerSel::Id(id))?;
            read::shown(&self.zone, seen).server(at)
        });
        let Some(Line { server, limits, live, host }) = found else {
            return Look::Never(problem("the server was removed meanwhile".to_owned()));
        };
        if is_ready(server, &limits, live, host) {
            if has_passed(worker, &self.name, id, since) {
                return Look::Come;
            }
            let why = Why { code: WhyCode::Checking, text: NOT_PASSED.to_owned() };
            let why = serde_json::to_value(&why).unwrap_or_default();
            return Look::NotYet(problem(NOT_PASSED.to_owned()).with("why", why));
        }
        let Some(why) = state::verdict(server, host, &limits, &live.facts).1 else {
            return Look::NotYet(problem("the server is not eligible".to_owned()));
        };
        let detail = format!("the server is not eligible: {}", why.text);
        let why = serde_json::to_value(&why).unwrap_or_default();
        Look::NotYet(problem(detail).with("why", why))
    }

    fn answer(&self, worker: &Worker, done: &Done, member: Option<(&str, Value)>) -> Answer {
        let seen = worker.read(&self.name, &process::clock());
        let server = seen.as_ref().and_then(|seen| {
            read::shown(&self.zone, seen).server(seen.upstream.position(self.sel()?)?)
        });
        let mut extra: Vec<(&str, Value)> = member.into_iter().collect();
        if let Some(text) = super::flush::trouble(&self.zone) {
            extra.push(("warning", format!("in force, not on disk yet: {text}").into()));
        }
        let mut body = Vec::with_capacity(1024);
        let answer = render::Answer {
            revision: done.revision,
            changed: done.changed,
            upstream: Some(&self.name),
            server,
            extra: &extra,
        };
        render::answer(&mut body, &answer);
        let status = if done.created { 201 } else { 200 };
        answer::at_revision(answer::json(status, Box::new(body)), done.revision)
    }

    /// The server that the change is about.
    fn sel(&self) -> Option<&ServerSel> {
        match &self.change {
            Change::PutServer { sel, .. }
            | Change::PatchServer { sel, .. }
            | Change::DeleteServer { sel }
            | Change::Admin { sel, .. } => Some(sel),
            _ => None,
        }
    }

    fn wait(&self) -> Option<(Wait, u64)> {
        let Change::Admin { verb, opts, .. } = &self.change else { return None };
        Some((Wait::of(*verb), opts.wait?))
    }

    /// The change in one line.
    fn describe(&self, server: Option<&Server>) -> String {
        let (name, by) = (&self.name, &self.actor.by);
        let text = match (&self.change, server) {
            (Change::Admin { verb, .. }, Some(server)) => {
                let reason = match server.admin.reason.as_str() {
                    "" => String::new(),
                    reason => format!(": {reason}"),
                };
                let verb = verb.as_str();
                format!("server \"{}\" is set {verb} by \"{by}\"{reason}", server.addr)
            }
            (Change::DeleteServer { sel }, _) => format!("server \"{sel}\" is removed by \"{by}\""),
            (Change::DeleteUpstream { .. }, _) => format!("removed by \"{by}\""),
            (_, Some(server)) => format!("server \"{}\" is set by \"{by}\"", server.addr),
            _ => format!("set by \"{by}\""),
        };
        let note = self.note.as_ref().map_or_else(String::new, |note| format!(", {note}"));
        format!("{text}{note}, upstream \"{name}\"")
    }
}

impl Task for Write {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        match std::mem::replace(&mut self.stage, Stage::Trying { since: 0 }) {
            Stage::Trying { since } => {
                self.stage = Stage::Trying { since };
                self.attempt(r, since)
            }
            Stage::Waiting { done, until } => match self.zone.worker() {
                Some(worker) => self.waiting(worker, done, until),
                None => Turn::Answer(answer::problem(&super::no_place())),
            },
        }
    }
}

/// Tells whether a server takes new requests.
pub(super) fn is_ready(
    server: &Server,
    limits: &Limits,
    live: &Live,
    host: Option<&Admin>,
) -> bool {
    host.is_none() && state::eligible(server.wanted(), limits, &live.facts)
}

/// Tells whether a peer of a server has passed its check since then, unix ms, if it has one.
pub(super) fn has_passed(worker: &Worker, name: &UpstreamName, id: u64, since: u64) -> bool {
    let peers = worker.diagnose(name, id, &process::clock());
    peers.iter().any(|peer| peer.has_passed_since(since))
}

/// Tries again in a moment, for 2 s in all.
pub(super) fn later(zone: &Zone, since: u64) -> Turn {
    match patience(zone, since) {
        Ok(()) => Turn::Wait(1),
        Err(problem) => Turn::Answer(answer::problem(&problem)),
    }
}

/// Whether what has been tried since then, monotonic ms, is to be tried again.
pub(super) fn patience(zone: &Zone, since: u64) -> Result<(), Problem> {
    if zone.memory().is_some_and(|memory| memory.zone.is_moved()) {
        return Err(super::moving());
    }
    if timer::now() - since < PATIENCE_MS {
        return Ok(());
    }
    Err(Problem::new(Code::Busy, "another writer holds the zone"))
}

/// The answer where another master writes the state file.
pub(super) fn not_writer() -> Problem {
    Problem::new(Code::NotWriter, "another master writes the state file of this zone")
}

/// The answer where the zone is full, with one line a minute in the log.
pub(super) fn no_room(zone: &Zone, what: &str, need: u64, free: u64) -> Problem {
    report_full(&zone.name, what);
    Problem::new(Code::NoRoom, "the zone has no room for this")
        .with("needed", need)
        .with("free", free)
}

fn report_full(zone: &str, what: &str) {
    use std::cell::Cell;

    use crate::ffi::global::Global;

    static LAST: Global<Cell<Option<u64>>> = Global::new(Cell::new(None));
    let (last, now) = (LAST.get(), timer::now());
    if last.get().is_none_or(|at| now - at >= 60_000) {
        last.set(Some(now));
        log!(Crit, "zone \"{zone}\" is full, {what} not changed");
    }
}

/// Why a server is not ready that would take requests.
pub(super) const NOT_PASSED: &str = "its check has not passed since then";
/// How long a write tries while another one holds the zone.
const PATIENCE_MS: u64 = 2_000;
