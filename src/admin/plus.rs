//! The API that clients of NGINX Plus know: `1/` to `9/`, in the same location and over the same
//! changes as `v1/`.

mod read;
mod status;
mod write;

use std::rc::Rc;

use peerage_core::api::error::{Code as Own, Problem};
use peerage_core::api::route::{self, Http, Slashes};
use peerage_core::plus::body::Body as Stated;
use peerage_core::plus::change::Write as Wanted;
use peerage_core::plus::error::{Code, Fault};
use peerage_core::plus::fields::Fields;
use peerage_core::plus::route::{Call, Routed, is_here, route as route_plus};

use super::guard::Guard;
use super::{BODY_MAX, Ready, durably};
use crate::conf::{Write, Zone};
use crate::ffi::body::BodyError;
use crate::ffi::output::{Answer, Producer};
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task, Turn};
use crate::ffi::{conf, destination};

/// The path after the location's name, where it is one of this interface.
pub(super) fn path(r: Request<'_>) -> Option<&[u8]> {
    conf::loc(r).api()?;
    let slashes = if r.merges_slashes() { Slashes::Merge } else { Slashes::Keep };
    let path = route::after_location(r.unparsed_uri(), r.uri(), r.location(), slashes).ok()?;
    is_here(path).then_some(path)
}

/// Answers a request to it; the value goes back to nginx.
pub(super) fn handle(r: Request<'_>, path: &[u8]) -> isize {
    let asked = ask(r, path);
    let body = match &asked {
        Ok(asked) if asked.call.has_body() => Body::Read(BODY_MAX),
        _ => Body::Discard,
    };
    task::run(r, body, move |r, body| match asked.and_then(|asked| begin(r, asked, body)) {
        Ok(task) => task,
        Err(fault) => ready(refusal(r, &fault)),
    })
}

/// What a request asks for, and of whom.
struct Asked {
    call: Call,
    fields: Fields,
    dry_run: bool,
    /// Whether only what an operator may do is allowed.
    operate: bool,
    zone: Option<Rc<Zone>>,
}

fn ask(r: Request<'_>, path: &[u8]) -> Result<Asked, Fault> {
    let Some(api) = conf::loc(r).api() else {
        return Err(Fault::new(Code::PathNotFound, "no API in this location"));
    };
    let Routed { call, fields, zone, dry_run } =
        route_plus(Http::parse(r.method()), path, r.args(), api.write)?;
    if call.is_write() {
        super::same_site(r, &api.origins)?;
    }
    let zone = match call.has_zone() || zone.is_some() {
        true => Some(super::one_zone(r, api.zone(), zone.as_deref())?),
        false => api.zone().cloned(),
    };
    if call.has_body() && r.content_length().is_some_and(|length| length > BODY_MAX as u64) {
        return Err(super::too_large(BODY_MAX).into());
    }
    Ok(Asked { call, fields, dry_run, operate: api.write == Write::Operate, zone })
}

fn begin(
    r: Request<'_>,
    asked: Asked,
    body: Result<Vec<u8>, BodyError>,
) -> Result<Box<dyn Task>, Fault> {
    let Asked { call, fields, dry_run, operate, zone } = asked;
    let body = super::body_of(body, BODY_MAX)?;
    let Some(name) = call.upstream().cloned() else {
        let answer = match (&call, zone) {
            (Call::Upstreams, Some(zone)) => read::upstreams(zone, fields)?,
            (_, zone) => status::answer(r, &call, &fields, zone.as_ref())?,
        };
        return Ok(ready(answer));
    };
    let Some(zone) = zone else { return Err(Fault::no_upstream()) };
    let wanted = match call {
        Call::Upstream(_) => return Ok(ready(read::upstream(r, &zone, &name, fields)?)),
        Call::Servers(_) => return Ok(ready(read::servers(r, &zone, &name)?)),
        Call::Server(_, id) => return Ok(ready(read::server(r, &zone, &name, id)?)),
        Call::Reset(_) => return Ok(ready(write::reset(r, &zone, &name, dry_run)?)),
        Call::Add(_) => Wanted::Add(Stated::read(&body)?),
        Call::Remove(_, id) => Wanted::Remove(id),
        Call::Patch(_, id) => {
            let body = Stated::read(&body)?;
            if operate && !body.is_operation() {
                let text = "write=operate lets a PATCH change nothing but down, drain and weight";
                return Err(Fault::new(Code::Own(Own::NotPermitted), text));
            }
            Wanted::Patch(id, body)
        }
        Call::Versions | Call::Root | Call::Http | Call::Status { .. } | Call::Upstreams => {
            return Err(Problem::new(Own::Internal, "a write to no upstream").into());
        }
    };
    let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
    let write = write::Write::new(Rc::clone(&zone), name, wanted, super::actor(r), guard, dry_run);
    let task: Box<dyn Task> = match dry_run {
        true => Box::new(write),
        false => durably::durably(&zone, Box::new(write)),
    };
    Ok(Box::new(Worded(task)))
}

/// A write whose errors are said in the interface's form.
struct Worded(Box<dyn Task>);

impl Task for Worded {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let answer = match self.0.turn(r) {
            Turn::Answer(answer) => answer,
            wait @ Turn::Wait(_) => return wait,
        };
        let Some(problem) = answer.body.problem() else { return Turn::Answer(answer) };
        let refused = refusal(r, &problem.clone().into());
        Turn::Answer(match super::answer::revision(&answer) {
            Some(revision) => super::answer::at_revision(refused, revision),
            None => refused,
        })
    }
}

/// The upstream is none of the zone.
fn missing(r: Request<'_>, name: &str) -> Fault {
    if destination::is_static(r, name) {
        return Fault::new(Code::UpstreamStatic, "upstream is static");
    }
    Fault::no_upstream()
}

/// An error.
fn refusal(r: Request<'_>, fault: &Fault) -> Answer {
    let id = r.variable("request_id").unwrap_or_default();
    let body = fault.to_bytes(&String::from_utf8_lossy(id));
    let mut answer = super::answer::json(fault.status(), Box::new(body));
    if let Some(allow) = fault.allow {
        answer.headers.push(("Allow", allow.to_owned()));
    }
    if let Some(seconds) = fault.retry_after {
        answer.headers.push(("Retry-After", seconds.to_string()));
    }
    answer
}

fn ready(answer: Answer) -> Box<dyn Task> {
    Box::new(Ready(Some(answer)))
}

/// An answer that is whole.
fn whole(status: u16, body: Vec<u8>) -> Answer {
    super::answer::json(status, Box::new(body) as Box<dyn Producer>)
}
