//! Doors that other systems have: their requests, put in force as the API's are.

mod dyups;
mod update;

use crate::conf::door::Kind;
use crate::ffi::conf;
use crate::ffi::request::Request;

/// Answers a request in a location that is such a door; the value goes back to nginx.
pub(crate) fn handle(r: Request<'_>) -> isize {
    match conf::loc(r).door().map(|door| door.kind) {
        Some(Kind::Dyups) => dyups::handle(r),
        Some(Kind::Update) | None => update::handle(r),
    }
}
