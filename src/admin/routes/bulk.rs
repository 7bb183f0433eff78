//! `POST v1/routes`: many routes, the whole checked first, then put in force a hundred at a time.
//!
//! Both passes read the lines and go on in slices of time, so that requests and other writers have
//! their turns. What only the second pass finds, since somebody changed the zone meanwhile, ends it
//! where it is; the answer says how much is in force.

use std::rc::Rc;
use std::time::Instant;

use peerage_core::api::error::Problem;
use peerage_core::api::routes::{self, Lines};
use peerage_core::change::Actor;
use peerage_core::diff::{self, Entry};
use peerage_zone::{
    ROUTES_AT_ONCE, RouteAttempt, RouteChecks, RouteDone, RouteOp, RouteSum, RouteTouched, Worker,
};
use serde_json::Value;

use crate::admin::{SLICE, answer, batch, flush, no_place, write};
use crate::conf::Zone;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer;
use crate::worker;

/// A bulk on its way.
pub(in crate::admin) struct Bulk {
    zone: Rc<Zone>,
    body: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    lines: Lines,
    /// Of the line that was read last, from 1.
    number: u64,
    force: bool,
    dry_run: bool,
    actor: Actor,
    pass: Pass,
    /// Those that are tried, each with its line, and since when, monotonic ms.
    portion: Vec<(u64, RouteOp)>,
    since: u64,
    done: Tally,
    diff: Vec<Entry>,
    left_off: u64,
}

enum Pass {
    /// Every line is read and tried.
    Check(RouteSum),
    /// Every line is put in force.
    Apply,
}

/// What was done, or by a dry run would be.
#[derive(Default)]
struct Tally {
    revision: u64,
    routes: u64,
    changed: u64,
    created: u64,
    removed: u64,
}

/// What one step came to.
enum Next {
    More,
    End,
    Wait,
}

impl Bulk {
    pub(in crate::admin) fn new(
        zone: Rc<Zone>,
        body: Vec<u8>,
        actor: Actor,
        force: bool,
        dry_run: bool,
    ) -> Self {
        Self {
            zone,
            body,
            at: 0,
            lines: Lines::default(),
            number: 0,
            force,
            dry_run,
            actor,
            pass: Pass::Check(RouteSum::default()),
            portion: Vec::new(),
            since: 0,
            done: Tally::default(),
            diff: Vec::new(),
            left_off: 0,
        }
    }

    /// Reads lines until a portion is full; false where there are no more.
    fn read(&mut self) -> Result<bool, Problem> {
        while self.portion.len() < ROUTES_AT_ONCE && self.at < self.body.len() {
            let rest = &self.body[self.at..];
            let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            let line = self.lines.line(&rest[..end], self.force);
            self.at += end + 1;
            self.number += 1;
            if let Some((key, change)) = line? {
                self.portion.push((self.number, RouteOp { key, change }));
            }
        }
        Ok(!self.portion.is_empty())
    }

    fn step(&mut self, r: Request<'_>, worker: &Worker) -> Result<Next, Problem> {
        if self.portion.is_empty() {
            if !self.read()? {
                return self.end_pass(worker);
            }
            self.since = timer::now();
        }
        let trying = matches!(self.pass, Pass::Check(_));
        let checks = RouteChecks { dry_run: trying, ..RouteChecks::NONE };
        let (numbers, ops): (Vec<u64>, Vec<RouteOp>) = self.portion.drain(..).unzip();
        match batch::put_routes_in_force(worker, &self.zone, r, &self.actor, &ops, &checks) {
            RouteAttempt::Done(done) => {
                if let Pass::Check(sum) = &mut self.pass {
                    sum.add(worker, &done);
                }
                if !trying || self.dry_run {
                    self.count(&done);
                }
                Ok(Next::More)
            }
            RouteAttempt::Busy | RouteAttempt::Unmet { .. } => {
                self.portion = numbers.into_iter().zip(ops).collect();
                write::patience(&self.zone, self.since).map(|()| Next::Wait)
            }
            RouteAttempt::NotWriter => Err(write::not_writer()),
            RouteAttempt::Refused { op, error } => {
                let number = numbers.get(op).copied().unwrap_or(self.number);
                Err(Problem::from(error).within(&format!("lines[{number}]")))
            }
            RouteAttempt::NoRoom { need, free } => Err(self.no_room(need, free)),
        }
    }

    fn no_room(&self, need: u64, free: u64) -> Problem {
        write::no_room(&self.zone, "routes of many lines", need, free)
    }

    /// Goes on to the next pass, or ends.
    fn end_pass(&mut self, worker: &Worker) -> Result<Next, Problem> {
        let Pass::Check(sum) = &self.pass else { return Ok(Next::End) };
        if let Some((need, free)) = sum.lacks(worker) {
            return Err(self.no_room(need, free));
        }
        if self.dry_run {
            return Ok(Next::End);
        }
        (self.pass, self.lines, self.at, self.number) = (Pass::Apply, Lines::default(), 0, 0);
        Ok(Next::More)
    }

    fn count(&mut self, done: &RouteDone) {
        let of = |is: fn(&RouteTouched) -> bool| {
            done.touched.iter().filter(|touched| is(touched)).count() as u64
        };
        self.done.revision = done.revision;
        self.done.routes += done.touched.len() as u64;
        self.done.changed += of(RouteTouched::is_changed);
        self.done.created += of(RouteTouched::is_created);
        self.done.removed += of(|touched| touched.before.is_some() && touched.after.is_none());
        if !self.dry_run {
            return;
        }
        for touched in &done.touched {
            for entry in diff::route(touched.before.as_ref(), touched.after.as_ref()) {
                if self.diff.len() < DIFF {
                    self.diff.push(entry);
                } else {
                    self.left_off += 1;
                }
            }
        }
    }

    /// Says what was done, once.
    fn tell(&self, r: Request<'_>) {
        if self.done.changed == 0 || self.dry_run {
            return;
        }
        let Tally { changed, removed, .. } = self.done;
        let (by, zone, set) = (&self.actor.by, &self.zone.name, changed - removed);
        let text = format!("{set} routes set and {removed} removed by \"{by}\", zone \"{zone}\"");
        log!(Notice, "{text}");
        task::note(r, text);
        worker::wake_all();
    }

    fn answer(&mut self, worker: &Worker) -> Answer {
        let Tally { revision, routes, changed, created, removed } = self.done;
        let revision = if revision == 0 { worker.zone().revision() } else { revision };
        let mut extra: Vec<(&str, Value)> = vec![
            ("routes", routes.into()),
            ("created", created.into()),
            ("removed", removed.into()),
        ];
        if self.dry_run {
            let diff = std::mem::take(&mut self.diff);
            extra.push(("dry_run", true.into()));
            extra.push(("diff", serde_json::to_value(diff).unwrap_or_default()));
            extra.push(("diff_left_off", self.left_off.into()));
        } else if let Some(text) = flush::trouble(&self.zone) {
            extra.push(("warning", format!("in force, not on disk yet: {text}").into()));
        }
        let answer =
            routes::RouteAnswer { revision, changed: changed > 0, route: None, extra: &extra };
        let mut body = Vec::with_capacity(256);
        routes::answer(&mut body, &answer);
        answer::at_revision(answer::json(200, Box::new(body)), revision)
    }

    fn refuse(&self, r: Request<'_>, problem: Problem) -> Turn {
        let problem = if matches!(self.pass, Pass::Check(_)) {
            problem
        } else {
            self.tell(r);
            let (changed, applied) = (self.done.changed > 0, self.done.routes);
            problem.with("changed", changed).with("applied", applied)
        };
        Turn::Answer(answer::problem(&problem))
    }
}

impl Task for Bulk {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let Some(worker) = self.zone.worker() else {
            return Turn::Answer(answer::problem(&no_place()));
        };
        let begun = Instant::now();
        loop {
            match self.step(r, worker) {
                Err(problem) => return self.refuse(r, problem),
                Ok(Next::Wait) => return Turn::Wait(1),
                Ok(Next::More) => {}
                Ok(Next::End) => {
                    self.tell(r);
                    return Turn::Answer(self.answer(worker));
                }
            }
            if begun.elapsed() >= SLICE {
                if self.done.changed > 0 && !self.dry_run {
                    worker::wake_all();
                }
                return Turn::Wait(1);
            }
        }
    }
}

/// Entries of a diff at most.
const DIFF: usize = 10_000;
