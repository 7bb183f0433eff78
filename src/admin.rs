//! The API: a content handler that gathers what nginx knows of a request, lets `peerage-core` say
//! what it asks for, and answers.
//!
//! The order is that of the contract: path and method, who may write from where, the zone, then
//! the body. Access rules of nginx have run before.

pub(crate) mod answer;
mod batch;
pub(crate) mod build;
pub(crate) mod doors;
mod durably;
mod events;
mod export;
#[cfg(feature = "panic")]
mod fetch;
mod flush;
mod guard;
mod import;
mod opine;
mod plus;
mod probe;
mod read;
mod ready;
mod report;
mod routes;
mod servers;
mod sources;
#[cfg(feature = "panic")]
mod store;
mod wait;
mod write;

use std::rc::Rc;
use std::time::Duration;

use peerage_core::api::batch::batch as read_batch;
use peerage_core::api::error::{Code, Problem};
use peerage_core::api::model::{self, Form};
use peerage_core::api::route::{self, Call, Http, Routed, Slashes, WriteMode};
use peerage_core::api::routes::change as read_route;
use peerage_core::api::site::Site;
use peerage_core::change::Actor;
use peerage_core::route::RouteKey;
use peerage_core::route::change::RouteChange;
use peerage_zone::Op;

use self::batch::What;
use self::guard::Guard;
use crate::conf::{Write, Zone};
use crate::ffi::body::BodyError;
use crate::ffi::conf;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task, Turn};
use crate::ffi::template;

/// The change that a request made, in one line: `$peerage_change`.
pub(crate) fn change_of(r: Request<'_>) -> Option<String> {
    task::noted(r)
}

/// Answers a request to the API; the value goes back to nginx.
pub(crate) fn handle(r: Request<'_>) -> isize {
    #[cfg(feature = "panic")]
    if let Some(wish) = r.header("peerage-fetch") {
        return fetch::handle(r, wish);
    }
    #[cfg(feature = "panic")]
    if let Some(wish) = r.header("peerage-store") {
        return store::handle(r, wish);
    }
    if let Some(path) = plus::path(r) {
        return plus::handle(r, path);
    }
    let asked = ask(r);
    let body = match &asked {
        Ok(Asked { call: Call::Import { .. }, .. }) => Body::Keep,
        Ok(asked) if asked.call.has_body() => Body::Read(body_max(&asked.call)),
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
    dry_run: bool,
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
    let Routed { call, zone, dry_run } =
        route::route(Http::parse(r.method()), path, r.args(), mode)?;
    if call.is_write() {
        same_site(r, &api.origins)?;
    }
    let zone = match &call {
        Call::Root | Call::OpenApi => None,
        Call::Ready { .. } if zone.is_none() && api.zone().is_none() => None,
        Call::ZoneReport { zone }
        | Call::Flush { zone }
        | Call::Export { zone }
        | Call::Import { zone, .. } => Some(named_zone(r, api.zone(), zone)?),
        _ => Some(one_zone(r, api.zone(), zone.as_deref())?),
    };
    let max = body_max(&call);
    if call.has_body() && r.content_length().is_some_and(|length| length > max as u64) {
        return Err(too_large(max));
    }
    Ok(Asked { call, mode, zone, dry_run })
}

/// Refuses what a page of another site sent, but for those of `origins`.
fn same_site(r: Request<'_>, origins: &[String]) -> Result<(), Problem> {
    let site = Site {
        origin: r.header("Origin"),
        fetch_site: r.header("Sec-Fetch-Site"),
        host: r.header("Host"),
    };
    if site.may_write(origins) {
        return Ok(());
    }
    Err(Problem::new(Code::CrossSite, "a page of another site sent this"))
}

/// Makes the task once the body is there; what it writes is answered as its zone wants it.
fn begin(
    r: Request<'_>,
    asked: Asked,
    body: Result<Vec<u8>, BodyError>,
) -> Result<Box<dyn Task>, Problem> {
    // What is said of health is never on the disk, and a flush waits by itself.
    let writes = asked.call.is_write()
        && !asked.dry_run
        && !matches!(asked.call, Call::Flush { .. } | Call::Opine { .. } | Call::Check { .. });
    let zone = asked.zone.clone().filter(|_| writes);
    let task = task_of(r, asked, body)?;
    Ok(match zone {
        Some(zone) => durably::durably(&zone, task),
        None => task,
    })
}

fn task_of(
    r: Request<'_>,
    asked: Asked,
    body: Result<Vec<u8>, BodyError>,
) -> Result<Box<dyn Task>, Problem> {
    let Asked { call, mode, zone, dry_run } = asked;
    let body = body_of(body, body_max(&call))?;
    let Some(zone) = zone else {
        return Ok(Box::new(Ready(Some(match call {
            Call::OpenApi => report::document(),
            Call::Ready { require } => ready::ready(&conf::main(r).zones(), &require)?,
            _ => report::root(conf::main(r), bound_zone(r)),
        }))));
    };
    Ok(match call {
        Call::ZoneReport { .. } => Box::new(Ready(Some(report::zone(&zone)?))),
        Call::Events { since, wait } => events::task(r, &zone, since, wait)?,
        Call::Flush { .. } => Box::new(flush::Flush::new(&zone)?),
        Call::ListUpstreams { after, limit, servers } => {
            Box::new(Ready(Some(read::list(zone, after, limit, servers)?)))
        }
        Call::GetUpstream { upstream } => Box::new(Ready(Some(read::upstream(&zone, &upstream)?))),
        Call::GetServer { upstream, sel } => {
            Box::new(Ready(Some(read::server(&zone, &upstream, &sel)?)))
        }
        Call::GetCheck { upstream, sel } => {
            Box::new(Ready(Some(read::check(&zone, &upstream, &sel)?)))
        }
        Call::Check { upstream, sel } => Box::new(probe::Probe::new(zone, upstream, sel)?),
        Call::Opine { upstream, sel, saying } => {
            let saying = saying.with_body(&body)?;
            let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
            let of = (upstream, sel);
            Box::new(opine::Opine::new(zone, of, saying, actor(r), guard, dry_run))
        }
        Call::ListServers { filter, after, limit } => {
            Box::new(Ready(Some(servers::list(zone, filter, after, limit)?)))
        }
        Call::GetHost { ip } => Box::new(servers::Host::new(zone, ip)?),
        Call::Ready { require } => Box::new(Ready(Some(ready::ready(&[zone], &require)?))),
        Call::Export { .. } => Box::new(Ready(Some(export::export(&zone)?))),
        Call::ListSources => Box::new(Ready(Some(sources::list(&zone)?))),
        Call::GetSource { source } => Box::new(Ready(Some(sources::one(&zone, &source)?))),
        Call::DecideSource { source, decision } => {
            Box::new(sources::Decide::new(zone, &source, decision)?)
        }
        Call::Import { prune, .. } => {
            let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
            guard.refuse()?;
            Box::new(import::Import::new(zone, actor(r), prune, dry_run))
        }
        Call::HostVerb(verb) => {
            let verb = model::host_verb(verb, &body)?;
            let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
            let ops = vec![Op::Host(verb.clone())];
            Box::new(batch::Batch::new(zone, ops, What::Host(verb), actor(r), guard, dry_run)?)
        }
        Call::Batch => {
            let batch = read_batch(&body, mode)?;
            batch.check_variables(&|name| template::knows(r, name))?;
            let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
            Box::new(batch::Batch::several(zone, batch, actor(r), guard, dry_run)?)
        }
        Call::ListRoutes { upstream, after, limit } => {
            Box::new(Ready(Some(routes::list(&zone, upstream, after, limit)?)))
        }
        Call::GetRoute { key } => Box::new(Ready(Some(routes::one(&zone, &key)?))),
        Call::PutRoute { key, force } => {
            let change = read_route(&body, Form::Put, force)?;
            write_route(r, zone, key, change, dry_run)
        }
        Call::PatchRoute { key, force } => {
            let change = read_route(&body, Form::Patch, force)?;
            write_route(r, zone, key, change, dry_run)
        }
        Call::DeleteRoute { key } => write_route(r, zone, key, RouteChange::Delete, dry_run),
        Call::PutRoutes { force } => {
            Guard::of(r.header("If-Match"), r.header("If-None-Match")).refuse()?;
            Box::new(routes::Bulk::new(zone, body, actor(r), force, dry_run))
        }
        call => {
            let Some(name) = call.upstream().cloned() else {
                return Err(Problem::new(Code::Internal, "a write to no upstream"));
            };
            let Some(change) = model::change(call, &body, mode)? else {
                return Err(Problem::new(Code::Internal, "a write that changes nothing"));
            };
            model::check_variables(&change, &|name| template::knows(r, name))?;
            let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
            if dry_run {
                let what = What::Upstream(name.clone(), change.server().cloned());
                let ops = vec![Op::Upstream { name, change }];
                let batch = batch::Batch::new(zone, ops, what, actor(r), guard, dry_run)?;
                return Ok(Box::new(batch));
            }
            Box::new(write::Write::new(zone, name, change, actor(r), guard))
        }
    })
}

fn write_route(
    r: Request<'_>,
    zone: Rc<Zone>,
    key: RouteKey,
    change: RouteChange,
    dry_run: bool,
) -> Box<dyn Task> {
    let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
    Box::new(routes::Write::new(zone, key, change, actor(r), guard, dry_run))
}

/// Who writes: the user that nginx authenticated, else the certificate's subject, else the
/// address.
fn actor(r: Request<'_>) -> Actor {
    let from = String::from_utf8_lossy(r.address());
    let by = r.variable("remote_user").or_else(|| r.variable("ssl_client_s_dn"));
    let by = by.map_or_else(|| from.clone(), String::from_utf8_lossy);
    Actor::new(&by, &from)
}

/// The body that was read, of at most `max` bytes.
fn body_of(body: Result<Vec<u8>, BodyError>, max: usize) -> Result<Vec<u8>, Problem> {
    body.map_err(|error| match error {
        BodyError::TooLarge => too_large(max),
        BodyError::File(error) => {
            log!(Crit, "cannot read a request's body: {error}");
            Problem::new(Code::Internal, "the body cannot be read")
        }
    })
}

/// The zone that the location is bound to.
fn bound_zone(r: Request<'_>) -> Option<&Rc<Zone>> {
    conf::loc(r).api().and_then(|api| api.zone())
}

/// The zone of a path.
fn named_zone(r: Request<'_>, bound: Option<&Rc<Zone>>, name: &str) -> Result<Rc<Zone>, Problem> {
    let found = match bound {
        Some(zone) => (zone.name == name).then(|| Rc::clone(zone)),
        None => conf::main(r).zone(name),
    };
    found.ok_or_else(|| Problem::new(Code::ZoneNotFound, format!("zone \"{name}\" not found")))
}

/// The zone that the query names, or that the location is bound to, or the only one.
fn one_zone(
    r: Request<'_>,
    bound: Option<&Rc<Zone>>,
    name: Option<&str>,
) -> Result<Rc<Zone>, Problem> {
    if let Some(name) = name {
        return named_zone(r, bound, name);
    }
    if let Some(zone) = bound {
        return Ok(Rc::clone(zone));
    }
    let zones = conf::main(r).zones();
    match &zones[..] {
        [zone] => Ok(Rc::clone(zone)),
        [] => Err(Problem::new(Code::ZoneNotFound, "the configuration has no zone")),
        several => {
            let names: Vec<&str> = several.iter().map(|zone| zone.name.as_str()).collect();
            let detail = format!("there are several zones, say zone=NAME: {}", names.join(", "));
            Err(Problem::new(Code::ZoneRequired, detail).field("zone").with("zones", names))
        }
    }
}

/// The answer while this process has no place in the zone yet.
pub(crate) fn no_place() -> Problem {
    Problem::new(Code::Busy, "this worker has no place in the zone yet")
}

/// The answer where another zone has taken the contents over.
pub(crate) fn moving() -> Problem {
    Problem::new(Code::Moving, "the zone has moved, new connections reach it")
}

fn too_large(max: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("a body has at most {max} bytes"))
}

/// Bytes of a call's body at most; what is more is nginx's `client_max_body_size` to refuse.
fn body_max(call: &Call) -> usize {
    match call {
        Call::Import { .. } => usize::MAX,
        Call::Batch | Call::PutRoutes { .. } => BATCH_MAX,
        _ => BODY_MAX,
    }
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
/// Bytes of a batch at most.
const BATCH_MAX: usize = 8 << 20;
/// What a task does in one go before others have their turn.
const SLICE: Duration = Duration::from_millis(2);
