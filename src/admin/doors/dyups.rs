//! `peerage_dyups`: the interface of the dyups module, in plain text.
//!
//! What a write answers is made by the API's own tasks; [`Plain`] says it in dyups' words.

use std::rc::Rc;
use std::vec::IntoIter;

use peerage_core::api::error::Problem;
use peerage_core::api::model;
use peerage_core::api::route::{self, Http, Slashes};
use peerage_core::change::Change;
use peerage_core::doors::dyups::{self, Call, Posted, Reply, Routed};
use peerage_core::name::UpstreamName;
use peerage_zone::Worker;

use crate::admin::guard::Guard;
use crate::admin::write::Write;
use crate::admin::{
    BODY_MAX, Ready, actor, answer, body_of, durably, flush, no_place, one_zone, same_site,
    too_large,
};
use crate::conf::Zone;
use crate::ffi::body::BodyError;
use crate::ffi::conf;
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task, Turn};
use crate::ffi::template;

/// Answers a request.
pub(super) fn handle(r: Request<'_>) -> isize {
    let asked = ask(r);
    let body = match &asked {
        Ok((Call::Post(_), _)) => Body::Read(BODY_MAX),
        _ => Body::Discard,
    };
    let begun = move |r: Request<'_>, body| {
        let (call, zone) = asked?;
        begin(r, call, &zone, body)
    };
    task::run(r, body, move |r, body| match begun(r, body) {
        Ok(task) => task,
        Err(reply) => Box::new(Ready(Some(text(reply)))),
    })
}

/// What a request asks for, and of which zone.
fn ask(r: Request<'_>) -> Result<(Call, Rc<Zone>), Reply> {
    let said = |problem: Problem| Reply::from(&problem);
    let slashes = if r.merges_slashes() { Slashes::Merge } else { Slashes::Keep };
    let path = route::after_location(r.unparsed_uri(), r.uri(), r.location(), slashes);
    let method = Http::parse(r.method());
    let Routed { call, zone } = dyups::route(method, path.map_err(said)?, r.args())?;
    if call.is_write() {
        same_site(r, &[]).map_err(said)?;
    }
    let bound = conf::loc(r).zone();
    let zone = one_zone(r, bound, zone.as_deref()).map_err(said)?;
    if matches!(call, Call::Post(_))
        && r.content_length().is_some_and(|length| length > BODY_MAX as u64)
    {
        return Err(said(too_large(BODY_MAX)));
    }
    Ok((call, zone))
}

fn begin(
    r: Request<'_>,
    call: Call,
    zone: &Rc<Zone>,
    body: Result<Vec<u8>, BodyError>,
) -> Result<Box<dyn Task>, Reply> {
    let said = |problem: Problem| Reply::from(&problem);
    let (name, change, ignored) = match call {
        Call::List | Call::Detail | Call::Show(_) => {
            return Ok(Box::new(Ready(Some(listing(zone, &call)?))));
        }
        Call::Delete { upstream, force } => {
            (upstream, Change::DeleteUpstream { force }, Vec::new())
        }
        Call::Post(upstream) => {
            let body = body_of(body, BODY_MAX).map_err(said)?;
            if body.is_empty() {
                return Err(Reply::new(204, ""));
            }
            let posted = dyups::read(&body).map_err(|error| said(error.into()))?;
            let Posted { change, ignored } = posted;
            model::check_variables(&change, &|name| template::knows(r, name)).map_err(said)?;
            (upstream, change, ignored)
        }
    };
    let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
    let mut write = Write::new(Rc::clone(zone), name, change, actor(r), guard);
    if !ignored.is_empty() {
        write = write.noting(format!("ignored: {}", ignored.join(", ")));
    }
    let task = durably::durably(zone, Box::new(write));
    Ok(Box::new(Plain { zone: Rc::clone(zone), task, ignored }))
}

/// An answer of plain text.
fn text(reply: Reply) -> Answer {
    let Reply { status, text, allow, retry_after } = reply;
    let mut answer = plain(status, Box::new(text.into_bytes()));
    if let Some(allow) = allow {
        answer.headers.push(("Allow", allow.to_owned()));
    }
    if let Some(seconds) = retry_after {
        answer.headers.push(("Retry-After", seconds.to_string()));
    }
    answer
}

fn plain(status: u16, body: Box<dyn Producer>) -> Answer {
    let headers = vec![("Cache-Control", "no-store".to_owned())];
    Answer { status, content_type: "text/plain", headers, body }
}

/// A write, whose answer is said in dyups' words.
struct Plain {
    zone: Rc<Zone>,
    task: Box<dyn Task>,
    ignored: Vec<String>,
}

impl Task for Plain {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let answer = match self.task.turn(r) {
            Turn::Answer(answer) => answer,
            wait @ Turn::Wait(_) => return wait,
        };
        let reply = match answer.body.problem() {
            Some(problem) => Reply::from(problem),
            None => {
                let mut reply = Reply::success(&self.ignored);
                if let Some(trouble) = flush::trouble(&self.zone) {
                    let line = format!("in force, not on disk yet: {trouble}\n");
                    let gap = if reply.text.ends_with('\n') { "" } else { "\n" };
                    reply.text.extend([gap, &line]);
                }
                reply
            }
        };
        let revision = answer::revision(&answer);
        let answer = text(reply);
        Turn::Answer(match revision {
            Some(revision) => answer::at_revision(answer, revision),
            None => answer,
        })
    }
}

/// What a `GET` shows.
fn listing(zone: &Zone, call: &Call) -> Result<Answer, Reply> {
    let worker = zone.worker().ok_or_else(|| Reply::from(&no_place()))?;
    let body: Box<dyn Producer> = match call {
        Call::Show(name) => {
            let (upstream, _) = worker.read_wanted(name).ok_or_else(|| Reply::new(404, ""))?;
            let mut out = Vec::new();
            dyups::servers(&mut out, &upstream);
            if out.is_empty() {
                return Err(Reply::new(204, ""));
            }
            Box::new(out)
        }
        call => {
            let names = worker.names(None, PAGE);
            if names.is_empty() {
                return Err(Reply::new(204, ""));
            }
            let detail = *call == Call::Detail;
            Box::new(List { worker, last: None, names: names.into_iter(), detail })
        }
    };
    Ok(plain(200, body))
}

/// Every upstream of a zone, by name.
struct List {
    worker: &'static Worker,
    /// The name that was written last.
    last: Option<UpstreamName>,
    /// The next ones of it.
    names: IntoIter<UpstreamName>,
    detail: bool,
}

impl Producer for List {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        if self.names.len() == 0 {
            self.names = self.worker.names(self.last.as_ref(), PAGE).into_iter();
        }
        let Some(name) = self.names.next() else { return Step::End };
        if !self.detail {
            out.extend_from_slice(name.as_str().as_bytes());
            out.push(b'\n');
        } else if let Some((upstream, _)) = self.worker.read_wanted(&name) {
            dyups::detail(out, &upstream);
        }
        self.last = Some(name);
        Step::More
    }
}

/// Names that are looked up in one go.
const PAGE: usize = 1000;
