//! `PUT v1/zones/{zone}/import`: the whole is validated, then applied upstream by upstream.
//!
//! Both passes take the body in pieces from where nginx keeps it, and go on in slices of time.
//! Nothing changes unless every line could be applied; what is applied then is in force at once.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::import::{self, Checker, Line};
use peerage_core::api::model;
use peerage_core::api::render;
use peerage_core::body::{End, Field};
use peerage_core::change::{Actor, Change};
use peerage_core::diff::{self, Entry};
use peerage_core::name::UpstreamName;
use peerage_core::route::RouteKey;
use peerage_core::route::change::RouteChange;
use peerage_core::server::{Admin, AdminState, Origin};
use peerage_zone::{
    BatchAttempt, Checks, Cursor, Op, RouteAttempt, RouteChecks, RouteCursor, RouteOp, Worker,
};
use serde_json::Value;

use super::{answer, batch, write};
use crate::conf::Zone;
use crate::ffi::body::{self, BodyError};
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::template;
use crate::ffi::timer;
use crate::worker;

/// An import on its way.
pub(super) struct Import {
    zone: Rc<Zone>,
    actor: Actor,
    prune: bool,
    dry_run: bool,
    pass: Pass,
    lines: Lines,
    checker: Checker,
    /// A step that found the zone busy, and since when.
    again: Option<(Wish, u64)>,
    done: Tally,
    /// Its entries as JSON, with commas between.
    diff: Vec<u8>,
    told: usize,
    left_off: u64,
}

enum Pass {
    /// Every line is read and tried.
    Check,
    /// Every line is applied.
    Apply,
    /// Routes that no line names are removed: they may name upstreams that go next.
    PruneRoutes { cursor: RouteCursor, keys: VecDeque<RouteKey> },
    /// What else no line names is removed.
    Prune { cursor: Cursor, names: VecDeque<UpstreamName> },
}

/// What a line asks for.
enum Wish {
    Op(Op),
    Route(RouteOp),
}

#[derive(Default)]
struct Tally {
    revision: u64,
    upstreams: u64,
    changed: u64,
    created: u64,
    removed: u64,
    hosts: u64,
    routes: u64,
}

impl Tally {
    const fn applied(&self) -> u64 {
        self.upstreams + self.hosts + self.routes + self.removed
    }
}

/// What one step of a pass came to.
enum Next {
    More,
    /// The pass is over.
    End,
    Wait,
}

impl Import {
    pub(super) fn new(zone: Rc<Zone>, actor: Actor, prune: bool, dry_run: bool) -> Self {
        Self {
            zone,
            actor,
            prune,
            dry_run,
            pass: Pass::Check,
            lines: Lines::default(),
            checker: Checker::default(),
            again: None,
            done: Tally::default(),
            diff: Vec::new(),
            told: 0,
            left_off: 0,
        }
    }

    fn step(&mut self, r: Request<'_>, worker: &Worker) -> Result<Next, Problem> {
        if let Some((wish, since)) = self.again.take() {
            return self.put(r, worker, wish, since);
        }
        if matches!(self.pass, Pass::PruneRoutes { .. }) {
            return self.prune_routes(r, worker);
        }
        if matches!(self.pass, Pass::Prune { .. }) {
            return self.prune(r, worker);
        }
        let Some(text) = self.lines.next(r)? else {
            if matches!(self.pass, Pass::Check) {
                self.checker.end()?;
            }
            return Ok(Next::End);
        };
        let line = match self.pass {
            Pass::Check => self.checker.line(&text)?,
            // It was read before; the body cannot have changed.
            _ => import::line(&text)?,
        };
        let op = match line {
            Line::Header | Line::Blank | Line::End { .. } => return Ok(Next::More),
            Line::Upstream { name, body } => {
                let change = Change::PutUpstream { body };
                let known = |name: &str| template::knows(r, name);
                model::check_variables(&change, &known)
                    .map_err(|problem| problem.within(&format!("lines[{}]", self.lines.number)))?;
                Op::Upstream { name, change }
            }
            Line::Route { key, body } => {
                let now = process::clock().msec;
                if matches!(body.end, Field::Given(End::At(at)) if at <= now) {
                    return Ok(Next::More);
                }
                // As it was: also to an upstream that is not there.
                let change = RouteChange::Put { body, force: true };
                return self.put(r, worker, Wish::Route(RouteOp { key, change }), timer::now());
            }
            Line::Host { ip, admin } => {
                let now = process::clock().msec;
                let Some(verb) = import::host_verb(ip, &admin, now) else { return Ok(Next::More) };
                let stands = worker.hosts().get(ip).cloned().unwrap_or_default();
                // A time that is given as it stands is no change.
                let until = verb.opts.ttl.map(|ttl| (now + ttl) / 1000);
                let close = match admin.close {
                    End::At(at) => Some(at / 1000),
                    End::Never | End::After(_) => None,
                };
                let secs = |ms: Option<u64>| ms.map(|ms| ms / 1000);
                let same = |stands: &Admin| {
                    stands.state == verb.verb
                        && (stands.state == AdminState::Up
                            || Some(&stands.reason) == verb.opts.reason.as_ref()
                                && (secs(stands.until), secs(stands.close)) == (until, close))
                };
                if same(&stands) {
                    return Ok(Next::More);
                }
                Op::Host(verb)
            }
        };
        self.put(r, worker, Wish::Op(op), timer::now())
    }

    /// Tries a step, or does it.
    fn put(
        &mut self,
        r: Request<'_>,
        worker: &Worker,
        wish: Wish,
        since: u64,
    ) -> Result<Next, Problem> {
        let op = match wish {
            Wish::Op(op) => op,
            Wish::Route(op) => return self.put_route(r, worker, op, since),
        };
        let trying = matches!(self.pass, Pass::Check) || self.dry_run;
        let checks = Checks { dry_run: trying, ..Checks::NONE };
        let ops = std::slice::from_ref(&op);
        match batch::put_in_force(worker, &self.zone, r, &self.actor, ops, &checks) {
            BatchAttempt::Done(done) => {
                let counts = !matches!(self.pass, Pass::Check) || self.dry_run;
                if counts {
                    self.count(&op, &done);
                }
                if self.dry_run {
                    self.tell_diff(batch::diff_of(&done));
                }
                Ok(Next::More)
            }
            BatchAttempt::Busy | BatchAttempt::Unmet { .. } | BatchAttempt::Stale { .. } => {
                self.later(Wish::Op(op), since)
            }
            BatchAttempt::NotWriter => Err(write::not_writer()),
            BatchAttempt::Refused { error, .. } => {
                let place = format!("lines[{}]", self.lines.number);
                Err(Problem::from(error).within(&place))
            }
            BatchAttempt::NoRoom { need, free } => {
                Err(write::no_room(&self.zone, "all that an import names", need, free))
            }
        }
    }

    /// The same of a route.
    fn put_route(
        &mut self,
        r: Request<'_>,
        worker: &Worker,
        op: RouteOp,
        since: u64,
    ) -> Result<Next, Problem> {
        let trying = matches!(self.pass, Pass::Check) || self.dry_run;
        let checks = RouteChecks { dry_run: trying, ..RouteChecks::NONE };
        let ops = std::slice::from_ref(&op);
        match batch::put_routes_in_force(worker, &self.zone, r, &self.actor, ops, &checks) {
            RouteAttempt::Done(done) => {
                if !matches!(self.pass, Pass::Check) || self.dry_run {
                    self.done.revision = done.revision;
                    self.done.changed += u64::from(done.changed);
                    match op.change {
                        RouteChange::Delete => self.done.removed += u64::from(done.changed),
                        _ => self.done.routes += 1,
                    }
                }
                if self.dry_run {
                    let touched = done.touched.iter();
                    self.tell_diff(
                        touched.flat_map(|t| diff::route(t.before.as_ref(), t.after.as_ref())),
                    );
                }
                Ok(Next::More)
            }
            RouteAttempt::Busy | RouteAttempt::Unmet { .. } => self.later(Wish::Route(op), since),
            RouteAttempt::NotWriter => Err(write::not_writer()),
            RouteAttempt::Refused { error, .. } => {
                let place = format!("lines[{}]", self.lines.number);
                Err(Problem::from(error).within(&place))
            }
            RouteAttempt::NoRoom { need, free } => {
                Err(write::no_room(&self.zone, "all that an import names", need, free))
            }
        }
    }

    /// Tries a step again, for a while.
    fn later(&mut self, wish: Wish, since: u64) -> Result<Next, Problem> {
        let moved = self.zone.memory().is_some_and(|memory| memory.zone.is_moved());
        if moved {
            let text = "the zone has moved, new connections reach it";
            return Err(Problem::new(Code::Moving, text));
        }
        if timer::now() - since >= PATIENCE_MS {
            return Err(Problem::new(Code::Busy, "another writer holds the zone"));
        }
        self.again = Some((wish, since));
        Ok(Next::Wait)
    }

    fn tell_diff(&mut self, entries: impl Iterator<Item = Entry>) {
        for entry in entries {
            if self.told == DIFF {
                self.left_off += 1;
                continue;
            }
            if self.told > 0 {
                self.diff.push(b',');
            }
            self.told += 1;
            // A vector takes everything and an entry can always be written.
            let _ = serde_json::to_writer(&mut self.diff, &entry);
        }
    }

    fn count(&mut self, op: &Op, done: &peerage_zone::Batch) {
        self.done.revision = done.revision;
        let created = done.results.iter().filter(|result| result.created).count() as u64;
        let changed = u64::from(done.changed);
        match op {
            Op::Upstream { change: Change::DeleteUpstream { .. }, .. } => {
                self.done.removed += changed;
            }
            Op::Upstream { .. } => {
                self.done.upstreams += 1;
                self.done.created += created;
            }
            _ => self.done.hosts += changed,
        }
        self.done.changed += changed;
    }

    /// Removes the next route that no line names.
    fn prune_routes(&mut self, r: Request<'_>, worker: &Worker) -> Result<Next, Problem> {
        let Pass::PruneRoutes { cursor, keys } = &mut self.pass else { return Ok(Next::End) };
        let Some(key) = keys.pop_front() else {
            let (routes, _) = worker.walk_routes(cursor, NAMES);
            let next = if routes.is_empty() { Next::End } else { Next::More };
            let own = routes.into_iter().filter(|route| route.origin == Origin::Api);
            keys.extend(own.map(|route| route.key));
            return Ok(next);
        };
        if self.checker.keys().contains(&key) {
            return Ok(Next::More);
        }
        let op = RouteOp { key, change: RouteChange::Delete };
        match self.put(r, worker, Wish::Route(op), timer::now()) {
            // It went by itself.
            Err(problem) if problem.code == Code::RouteNotFound => Ok(Next::More),
            next => next,
        }
    }

    /// Removes the next upstream that no line names.
    fn prune(&mut self, r: Request<'_>, worker: &Worker) -> Result<Next, Problem> {
        let Pass::Prune { cursor, names } = &mut self.pass else { return Ok(Next::End) };
        let Some(name) = names.pop_front() else {
            names.extend(worker.walk(cursor, NAMES));
            return Ok(if names.is_empty() { Next::End } else { Next::More });
        };
        if self.checker.names().contains(&name) {
            return Ok(Next::More);
        }
        let is_own = |origin: &Origin| *origin == Origin::Api;
        let origin = worker.read_wanted(&name).map(|(upstream, _)| upstream.origin);
        if !origin.as_ref().is_some_and(is_own) {
            return Ok(Next::More);
        }
        let change = Change::DeleteUpstream { force: false };
        match self.put(r, worker, Wish::Op(Op::Upstream { name, change }), timer::now()) {
            // It went by itself, or a block or a route has come to name it: none of them is the
            // import's to undo.
            Err(problem)
                if matches!(
                    problem.code,
                    Code::UpstreamNotFound | Code::NamedByBlock | Code::NamedByRoutes
                ) =>
            {
                Ok(Next::More)
            }
            next => next,
        }
    }

    /// Goes on to the next pass; true at the end.
    fn end_pass(&mut self) -> bool {
        let routes = Pass::PruneRoutes { cursor: RouteCursor::default(), keys: VecDeque::new() };
        let prune = Pass::Prune { cursor: Cursor::default(), names: VecDeque::new() };
        self.pass = match self.pass {
            Pass::Check if !self.dry_run => {
                self.lines = Lines::default();
                Pass::Apply
            }
            Pass::Check | Pass::Apply if self.prune => routes,
            Pass::PruneRoutes { .. } => prune,
            _ => return true,
        };
        false
    }

    fn refuse(&self, r: Request<'_>, problem: Problem) -> Turn {
        let problem = match self.pass {
            Pass::Check => problem,
            _ if self.dry_run => problem,
            _ => {
                self.tell(r);
                problem.with("changed", self.done.changed > 0).with("applied", self.done.applied())
            }
        };
        Turn::Answer(answer::problem(&problem))
    }

    fn tell(&self, r: Request<'_>) {
        if self.done.changed == 0 || self.dry_run {
            return;
        }
        let Tally { upstreams, removed, .. } = self.done;
        let (by, zone) = (&self.actor.by, &self.zone.name);
        let text = format!(
            "import of {upstreams} upstreams by \"{by}\", {removed} removed, zone \"{zone}\""
        );
        log!(Notice, "{text}");
        task::note(r, text);
        worker::wake_all();
    }

    fn answer(&mut self, worker: &Worker) -> Answer {
        let Tally { upstreams, changed, created, removed, hosts, routes, revision } = self.done;
        let revision = if revision == 0 { worker.zone().revision() } else { revision };
        let mut extra: Vec<(&str, Value)> = vec![
            ("upstreams", upstreams.into()),
            ("created", created.into()),
            ("removed", removed.into()),
            ("hosts", hosts.into()),
        ];
        if routes > 0 {
            extra.push(("routes", routes.into()));
        }
        if self.dry_run {
            extra.push(("dry_run", true.into()));
            extra.push(("diff_left_off", self.left_off.into()));
        } else if let Some(text) = super::flush::trouble(&self.zone) {
            extra.push(("warning", format!("in force, not on disk yet: {text}").into()));
        }
        let mut body = Vec::with_capacity(256);
        let answer = render::Answer {
            revision,
            changed: changed > 0,
            upstream: None,
            server: None,
            extra: &extra,
        };
        render::answer(&mut body, &answer);
        if self.dry_run {
            body.pop();
            body.extend_from_slice(b",\"diff\":[");
        }
        let text = Pieces { head: body, diff: std::mem::take(&mut self.diff), at: 0 };
        let body: Box<dyn Producer> =
            if self.dry_run { Box::new(text) } else { Box::new(text.head) };
        answer::at_revision(answer::json(200, body), revision)
    }
}

/// The answer to a dry run: its diff may be long.
struct Pieces {
    head: Vec<u8>,
    diff: Vec<u8>,
    at: usize,
}

impl Producer for Pieces {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        out.append(&mut self.head);
        let rest = self.diff.get(self.at..).unwrap_or_default();
        let piece = &rest[..rest.len().min(PIECE)];
        out.extend_from_slice(piece);
        self.at += piece.len();
        if self.at < self.diff.len() {
            return Step::More;
        }
        out.extend_from_slice(b"]}");
        Step::End
    }
}

impl Task for Import {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let Some(worker) = self.zone.worker() else {
            return Turn::Answer(answer::problem(&super::no_place()));
        };
        let begun = Instant::now();
        loop {
            match self.step(r, worker) {
                Err(problem) => return self.refuse(r, problem),
                Ok(Next::Wait) => return Turn::Wait(1),
                Ok(Next::More) => {}
                Ok(Next::End) => {
                    if self.end_pass() {
                        self.tell(r);
                        return Turn::Answer(self.answer(worker));
                    }
                }
            }
            if begun.elapsed() >= super::SLICE {
                if self.done.changed > 0 && !self.dry_run {
                    worker::wake_all();
                }
                return Turn::Wait(1);
            }
        }
    }
}

/// The lines of a request's body, from the first.
#[derive(Default)]
struct Lines {
    /// Of the line that was taken last, from 1.
    number: u64,
    /// Bytes of the body that were taken from nginx.
    taken: u64,
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer.
    at: usize,
    ended: bool,
}

impl Lines {
    fn next(&mut self, r: Request<'_>) -> Result<Option<Vec<u8>>, Problem> {
        let mut looked = self.at;
        loop {
            let rest = self.buffer.get(looked..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|&b| b == b'\n') {
                let line = self.buffer[self.at..looked + end].to_vec();
                self.at = looked + end + 1;
                self.number += 1;
                return Ok(Some(line));
            }
            if self.ended {
                let line = self.buffer.split_off(self.at);
                self.number += 1;
                return Ok((!line.is_empty()).then_some(line));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            looked = self.buffer.len();
            if looked > LINE_MAX {
                let detail = format!("a line has at most {LINE_MAX} bytes");
                let place = format!("lines[{}]", self.number + 1);
                return Err(Problem::new(Code::BodyTooLarge, detail).within(&place));
            }
            let piece = body::piece(r, self.taken, PIECE, &mut self.buffer);
            let taken = piece.map_err(|error| {
                if let BodyError::File(error) = error {
                    log!(Crit, "cannot read a request's body: {error}");
                }
                Problem::new(Code::Internal, "the body cannot be read")
            })?;
            self.taken += taken as u64;
            self.ended = taken == 0;
        }
    }
}

/// Bytes taken from nginx at a time.
const PIECE: usize = 64 << 10;
/// Bytes of a line at most.
const LINE_MAX: usize = 8 << 20;
/// Entries of a diff at most.
const DIFF: usize = 10_000;
/// Names taken from the zone at a time.
const NAMES: usize = 64;
/// How long a step tries while another writer holds the zone.
const PATIENCE_MS: u64 = 2_000;
