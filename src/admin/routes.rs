//! `v1/routes`: one route, pages of them, and their writes.

mod bulk;
mod write;

use std::rc::Rc;
use std::vec::IntoIter;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::routes;
use peerage_core::name::UpstreamName;
use peerage_core::route::{Route, RouteKey};
use peerage_zone::{RoutePage, Worker};

pub(super) use self::bulk::Bulk;
pub(super) use self::write::Write;
use super::answer;
use crate::conf::Zone;
use crate::ffi::output::{Answer, Producer, Step};

/// `GET v1/routes/{key}`
pub(super) fn one(zone: &Zone, key: &RouteKey) -> Result<Answer, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    let revision = worker.zone().revision();
    let Some(route) = worker.read_route(key) else {
        return Err(Problem::new(Code::RouteNotFound, format!("route \"{key}\" not found")));
    };
    let mut body = Vec::with_capacity(256);
    routes::show(&mut body, &route);
    let mut answer = answer::at_revision(answer::json(200, Box::new(body)), revision);
    answer.headers.push(("ETag", routes::etag(&route)));
    Ok(answer)
}

/// `GET v1/routes`
pub(super) fn list(
    zone: &Rc<Zone>,
    upstream: Option<UpstreamName>,
    after: Option<RouteKey>,
    limit: u32,
) -> Result<Answer, Problem> {
    let worker = zone.worker().ok_or_else(super::no_place)?;
    let revision = worker.zone().revision();
    let stage = Stage::Looking(RoutePage::new(upstream, after, limit as usize));
    let list = List { worker, stage, first: true };
    Ok(answer::at_revision(answer::json(200, Box::new(list)), revision))
}

/// A page of routes: looked for in the whole table, then written.
struct List {
    worker: &'static Worker,
    stage: Stage,
    first: bool,
}

enum Stage {
    Looking(RoutePage),
    Writing(IntoIter<Route>),
}

impl Producer for List {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        match &mut self.stage {
            Stage::Looking(page) => {
                if !page.go_on(self.worker, BUCKETS) {
                    let page = std::mem::replace(page, RoutePage::new(None, None, 0));
                    self.stage = Stage::Writing(page.end(self.worker).into_iter());
                    out.push(b'{');
                }
                Step::More
            }
            Stage::Writing(routes) => {
                for route in routes.by_ref().take(PIECE) {
                    routes::list_entry(out, &route, self.first);
                    self.first = false;
                }
                if routes.len() > 0 {
                    return Step::More;
                }
                out.push(b'}');
                Step::End
            }
        }
    }
}

/// Buckets of the table looked at in one go.
const BUCKETS: usize = 512;
/// Routes written in one go.
const PIECE: usize = 64;
