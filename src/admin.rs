//! The API: a content handler that gathers what nginx knows of a request, lets `peerage-core` say
//! what it asks for, and answers.
//!
//! The order is that of the contract: path and method, who may write from where, the zone, then
//! the body. Access rules of nginx have run before.

mod answer;
mod build;
mod flush;
mod guard;
mod read;
mod report;
mod write;

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::model;
use peerage_core::api::route::{self, Call, Http, Routed, Slashes, WriteMode};
use peerage_core::api::site::Site;
use peerage_core::change::Actor;

use self::guard::Guard;
use crate::conf::{Api, Write, Zone};
use crate::ffi::body::BodyError;
use crate::ffi::conf;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task, Turn};

/// The change that a request made, in one line: `$peerage_change`.
pub(crate) fn change_of(r: Request<'_>) -> Option<String> {
    task::noted(r)
}

/// Answers a request to the API; the value goes back to nginx.
pub(crate) fn handle(r: Request<'_>) -> isize {
    let asked = ask(r);
    let body = match &asked {
        Ok(asked) if asked.call.has_body() => Body::Read(BODY_MAX),
        _ => Body::Discard,
    };
    task::run(r, body, move |r, body| match asked.and_then(|asked| begin(r, asked, body)) {
        Ok(task) => task,
        Err(problem) => Box::new(Ready(Some(answer::problem(&problem)))),
    })
}

/// What a request asks for, and of whom.
struct Asked {
    call: Call,
    mode: WriteMode,
    /// Not there for a call that is about none.
    zone: Option<Rc<Zone>>,
}

fn ask(r: Request<'_>) -> Result<Asked, Problem> {
    let Some(api) = conf::loc(r).api() else {
        return Err(Problem::new(Code::PathNotFound, "no API in this location"));
    };
    let mode = match api.write {
        Write::Off => WriteMode::Off,
        Write::On => WriteMode::On,
        Write::Operate => WriteMode::Operate,
    };
    let slashes = if r.merges_slashes() { Slashes::Merge } else { Slashes::Keep };
    let path = route::after_location(r.unparsed_uri(), r.uri(), r.location(), slashes)?;
    let Routed { call, zone } = route::route(Http::parse(r.method()), path, r.args(), mode)?;
    if call.is_write() {
        let site = Site {
            origin: r.header("Origin"),
            fetch_site: r.header("Sec-Fetch-Site"),
            host: r.header("Host"),
        };
        if !site.may_write(&api.origins) {
            return Err(Problem::new(Code::CrossSite, "a page of another site sent this"));
        }
    }
    let zone = match &call {
        Call::Root => None,
        Call::ZoneReport { zone } | Call::Flush { zone } => Some(named_zone(r, api, zone)?),
        _ => Some(one_zone(r, api, zone.as_deref())?),
    };
    if call.has_body() && r.content_length().is_some_and(|length| length > BODY_MAX as u64) {
        return Err(too_large());
    }
    Ok(Asked { call, mode, zone })
}

/// Makes the task once the body is there.
fn begin(
    r: Request<'_>,
    asked: Asked,
    body: Result<Vec<u8>, BodyError>,
) -> Result<Box<dyn Task>, Problem> {
    let Asked { call, mode, zone } = asked;
    let body = body.map_err(|error| match error {
        BodyError::TooLarge => too_large(),
        BodyError::File(error) => {
            log!(Crit, "cannot read a request's body: {error}");
            Problem::new(Code::Internal, "the body cannot be read")
        }
    })?;
    let Some(zone) = zone else {
        return Ok(Box::new(Ready(Some(report::root(conf::main(r), bound_zone(r))))));
    };
    Ok(match call {
        Call::ZoneReport { .. } => Box::new(Ready(Some(report::zone(&zone)?))),
        Call::Flush { .. } => Box::new(flush::Flush::new(&zone)?),
        Call::ListUpstreams { after, limit, servers } => {
            Box::new(Ready(Some(read::list(zone, after, limit, servers)?)))
        }
        Call::GetUpstream { upstream } => Box::new(Ready(Some(read::upstream(&zone, &upstream)?))),
        Call::GetServer { upstream, sel } => {
            Box::new(Ready(Some(read::server(&zone, &upstream, &sel)?)))
        }
        call => {
            let Some(name) = call.upstream().cloned() else {
                return Err(Problem::new(Code::Internal, "a write to no upstream"));
            };
            let Some(change) = model::change(call, &body, mode)? else {
                return Err(Problem::new(Code::Internal, "a write that changes nothing"));
            };
            let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
            Box::new(write::Write::new(zone, name, change, actor(r), guard))
        }
    })
}

/// Who writes: the user that nginx authenticated, else the certificate's subject, else the
/// address.
fn actor(r: Request<'_>) -> Actor {
    let from = String::from_utf8_lossy(r.address());
    let by = r.variable("remote_user").or_else(|| r.variable("ssl_client_s_dn"));
    let by = by.map_or_else(|| from.clone(), String::from_utf8_lossy);
    Actor::new(&by, &from)
}

/// The zone that the location is bound to.
fn bound_zone(r: Request<'_>) -> Option<&Rc<Zone>> {
    conf::loc(r).api().and_then(|api| api.zone())
}

/// The zone of a path.
fn named_zone(r: Request<'_>, api: &Api, name: &str) -> Result<Rc<Zone>, Problem> {
    let found = match api.zone() {
        Some(zone) => (zone.name == name).then(|| Rc::clone(zone)),
        None => conf::main(r).zone(name),
    };
    found.ok_or_else(|| Problem::new(Code::ZoneNotFound, format!("zone \"{name}\" not found")))
}

/// The zone that the query names, or that the location is bound to, or the only one.
fn one_zone(r: Request<'_>, api: &Api, name: Option<&str>) -> Result<Rc<Zone>, Problem> {
    if let Some(name) = name {
        return named_zone(r, api, name);
    }
    if let Some(zone) = api.zone() {
        return Ok(Rc::clone(zone));
    }
    let zones = conf::main(r).zones();
    match &zones[..] {
        [zone] => Ok(Rc::clone(zone)),
        [] => Err(Problem::new(Code::ZoneNotFound, "the configuration has no zone")),
        several => {
            let names: Vec<&str> = several.iter().map(|zone| zone.name.as_str()).collect();
            Err(Problem::new(Code::ZoneRequired, "there are several zones, say zone=NAME")
                .field("zone")
                .with("zones", names))
        }
    }
}

/// The answer while this process has no place in the zone yet.
fn no_place() -> Problem {
    Problem::new(Code::Busy, "this worker has no place in the zone yet")
}

fn too_large() -> Problem {
    Problem::new(Code::BodyTooLarge, format!("a body has at most {BODY_MAX} bytes"))
}

/// An answer that needs no waiting.
struct Ready(Option<Answer>);

impl Task for Ready {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        let gone = || answer::problem(&Problem::new(Code::Internal, "answered already"));
        Turn::Answer(self.0.take().unwrap_or_else(gone))
    }
}

/// Bytes of a body at most.
const BODY_MAX: usize = 1 << 20;
