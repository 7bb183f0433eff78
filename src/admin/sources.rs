//! `v1/sources`: how the sources of a zone's servers stand, and decisions about what is held.
//!
//! What is shown is on the zone's boards, which whoever watches a source keeps. A decision is a wish
//! on its board: it is answered once the watcher, in whatever process, has done it.

use std::collections::BTreeMap;
use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::render;
use peerage_core::api::route::Decision;
use peerage_core::api::source::{Held, SourceJson};
use peerage_zone::{SeenSource, Source, Wish, Worker};
use serde::Serialize;

use super::answer;
use crate::conf::Zone;
use crate::ffi::output::Answer;
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{Task, Turn};
use crate::ffi::timer;
use crate::worker;

/// `GET v1/sources`
pub(super) fn list(zone: &Zone) -> Result<Answer, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    let seen = worker.sources();
    let sources: BTreeMap<String, SourceJson> =
        seen.iter().map(|seen| (format!("consul/{}", seen.name), shown(seen))).collect();
    Ok(answer::at_revision(json(&sources), worker.zone().revision()))
}

/// `GET v1/sources/consul/{source}`
pub(super) fn one(zone: &Zone, name: &str) -> Result<Answer, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    let seen = find(worker, name)?;
    Ok(answer::at_revision(json(&shown(&seen)), worker.zone().revision()))
}

/// Every source of a zone, for its report.
pub(super) fn all(worker: &Worker) -> Vec<SourceJson> {
    worker.sources().iter().map(shown).collect()
}

fn find(worker: &Worker, name: &str) -> Result<SeenSource, Problem> {
    worker.sources().into_iter().find(|seen| seen.name == name).ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> Problem {
    Problem::new(Code::SourceNotFound, format!("source \"consul/{name}\" not found"))
}

fn shown(seen: &SeenSource) -> SourceJson {
    let held = seen.held.map(|held| Held {
        why: held.why,
        since: held.since,
        until: held.until,
        servers: held.servers,
    });
    let now = process::clock().msec;
    SourceJson::consul(&seen.name, &seen.status, held.as_ref(), seen.watcher, now)
}

fn json<T: Serialize>(value: &T) -> Answer {
    let mut body = Vec::with_capacity(512);
    // A vector takes everything, and these types can always be written.
    let _ = serde_json::to_writer(&mut body, value);
    answer::json(200, Box::new(body))
}

/// `POST v1/sources/consul/{source}/apply`, `/discard`
pub(super) struct Decide {
    zone: Rc<Zone>,
    name: String,
    source: Source,
    /// Of the wish.
    number: u64,
    since: u64,
}

impl Decide {
    pub(super) fn new(zone: Rc<Zone>, name: &str, decision: Decision) -> Result<Self, Problem> {
        let wish = match decision {
            Decision::Apply => Wish::Apply,
            Decision::Discard => Wish::Discard,
        };
        let worker = zone.worker().ok_or_else(super::no_place)?;
        let source = worker.find_source(name).ok_or_else(|| not_found(name))?;
        if find(worker, name)?.held.is_none() {
            return Err(nothing_held(name));
        }
        let number = worker.wish(source, wish).ok_or_else(|| not_found(name))?;
        worker::wake_all();
        let name = name.to_owned();
        Ok(Self { zone, name, source, number, since: timer::now() })
    }

    fn look(&self) -> Result<Option<Answer>, Problem> {
        let worker = self.zone.worker().ok_or_else(super::no_place)?;
        match worker.fulfilled(self.source, self.number) {
            Some(false) => Err(nothing_held(&self.name)),
            Some(true) => {
                let source = shown(&find(worker, &self.name)?);
                let source = serde_json::to_value(source).unwrap_or_default();
                let revision = worker.zone().revision();
                let extra = [("source", source)];
                let answer = render::Answer {
                    revision,
                    changed: true,
                    upstream: None,
                    server: None,
                    extra: &extra,
                };
                let mut body = Vec::new();
                render::answer(&mut body, &answer);
                let answer = answer::json(200, Box::new(body));
                Ok(Some(answer::at_revision(answer, revision)))
            }
            None if timer::now() - self.since >= PATIENCE_MS => {
                let detail = format!("nobody watches source \"consul/{}\" just now", self.name);
                Err(Problem::new(Code::Busy, detail))
            }
            None => Ok(None),
        }
    }
}

impl Task for Decide {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        match self.look() {
            Ok(Some(answer)) => Turn::Answer(answer),
            Ok(None) => Turn::Wait(LOOK_MS),
            Err(problem) => Turn::Answer(answer::problem(&problem)),
        }
    }
}

fn nothing_held(name: &str) -> Problem {
    Problem::new(Code::NothingHeld, format!("nothing of source \"consul/{name}\" is held"))
}

const LOOK_MS: u64 = 10;
/// How long the watcher may take: another one takes its place within this time if it has died.
const PATIENCE_MS: u64 = 5_000;
