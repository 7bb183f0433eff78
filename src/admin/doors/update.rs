//! `peerage_update`: `POST {"service":"hr","peers":["10.0.1.5:8080"]}`, answered as the API does.

use std::rc::Rc;

use peerage_core::api::error::Problem;
use peerage_core::api::model;
use peerage_core::api::query::Query;
use peerage_core::api::route::Http;
use peerage_core::doors::update;

use crate::admin::guard::Guard;
use crate::admin::write::Write;
use crate::admin::{
    BODY_MAX, Ready, actor, answer, body_of, durably, one_zone, same_site, too_large,
};
use crate::conf::Zone;
use crate::ffi::body::BodyError;
use crate::ffi::conf;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task};
use crate::ffi::template;

/// Answers a request.
pub(super) fn handle(r: Request<'_>) -> isize {
    let asked = ask(r);
    let body = if asked.is_ok() { Body::Read(BODY_MAX) } else { Body::Discard };
    task::run(r, body, move |r, body| match asked.and_then(|zone| begin(r, &zone, body)) {
        Ok(task) => task,
        Err(problem) => Box::new(Ready(Some(answer::problem(&problem)))),
    })
}

/// The zone that a request may change.
fn ask(r: Request<'_>) -> Result<Rc<Zone>, Problem> {
    if Http::parse(r.method()) != Http::Post {
        return Err(Problem::not_allowed("POST", "peers are set by POST"));
    }
    same_site(r, &[])?;
    let mut query = Query::parse(r.args())?;
    let name = query.take("zone");
    query.end()?;
    let bound = conf::loc(r).zone();
    let zone = one_zone(r, bound, name.as_deref())?;
    if r.content_length().is_some_and(|length| length > BODY_MAX as u64) {
        return Err(too_large(BODY_MAX));
    }
    Ok(zone)
}

fn begin(
    r: Request<'_>,
    zone: &Rc<Zone>,
    body: Result<Vec<u8>, BodyError>,
) -> Result<Box<dyn Task>, Problem> {
    let (name, change) = update::read(&body_of(body, BODY_MAX)?)?;
    model::check_variables(&change, &|name| template::knows(r, name))?;
    let guard = Guard::of(r.header("If-Match"), r.header("If-None-Match"));
    let write = Write::new(Rc::clone(zone), name, change, actor(r), guard);
    Ok(durably::durably(zone, Box::new(write)))
}
