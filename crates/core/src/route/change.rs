//! What a change makes of a route.
//!
//! As for upstreams: [`apply`] takes the route as it is and gives it as it shall be, or says that
//! nothing changes, or why it cannot be done. What is so already changes nothing.

use thiserror::Error;

use super::{Route, RouteKey, Status, check_labels};
use crate::body::{End, Field};
use crate::field::FieldError;
use crate::name::UpstreamName;
use crate::server::Origin;

/// What alters a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// States the whole route; creates it where absent.
    Put {
        /// What is stated.
        body: RouteBody,
        /// Also to an upstream that is not there.
        force: bool,
    },
    /// Alters fields that are named.
    Patch {
        /// What is named.
        body: RouteBody,
        /// Also to an upstream that is not there.
        force: bool,
    },
    /// Removes the route.
    Delete,
    /// Removes the route if its time is over.
    Expire {
        /// Unix ms.
        now: u64,
    },
}

/// What a request states of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteBody {
    /// See [`Route::upstream`].
    pub upstream: Option<UpstreamName>,
    /// See [`Route::status`].
    pub status: Field<Status>,
    /// See [`Route::reason`].
    pub reason: Field<String>,
    /// See [`Route::until`].
    pub end: Field<End>,
    /// See [`Route::labels`]; without a value, a label goes.
    pub labels: Field<Vec<(String, Option<String>)>>,
}

/// What a change needs from outside.
pub struct RouteContext<'a> {
    /// Unix ms.
    pub now: u64,
    /// Origin of what the change creates.
    pub origin: Origin,
    /// Tells whether the zone has an upstream.
    pub knows: &'a dyn Fn(&UpstreamName) -> bool,
}

/// What becomes of the route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteApplied {
    /// Nothing changes.
    Same,
    /// It is this from now on.
    Set(Route),
    /// It is removed.
    Gone,
}

/// Why a change cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RouteError {
    /// There is no such route.
    #[error("route \"{0}\" not found")]
    NoRoute(RouteKey),
    /// It says no upstream.
    #[error("\"upstream\" is missing")]
    NoUpstream,
    /// The zone has no such upstream.
    #[error("upstream \"{0}\" not found; force=1 routes to one that is to come")]
    UnknownUpstream(UpstreamName),
    /// A field that does not fit together with what is there.
    #[error("field \"{field}\" {error}")]
    Field {
        /// Which.
        field: &'static str,
        /// Why.
        error: FieldError,
    },
}

impl RouteChange {
    /// The upstream that the zone must have for it, by what it says itself.
    pub fn needs(&self) -> Option<&UpstreamName> {
        match self {
            Self::Put { body, force: false } | Self::Patch { body, force: false } => {
                body.upstream.as_ref()
            }
            _ => None,
        }
    }
}

/// Applies a change to a route, or to the place where it could be.
pub fn apply(
    current: Option<&Route>,
    key: &RouteKey,
    change: &RouteChange,
    ctx: &RouteContext<'_>,
) -> Result<RouteApplied, RouteError> {
    let there = || current.ok_or_else(|| RouteError::NoRoute(key.clone()));
    let (next, force) = match change {
        RouteChange::Put { body, force } => (put(current, key, body, ctx)?, *force),
        RouteChange::Patch { body, force } => (patch(there()?, body, ctx)?, *force),
        RouteChange::Delete => return there().map(|_| RouteApplied::Gone),
        RouteChange::Expire { now } => {
            let over = current.is_some_and(|route| route.until.is_some_and(|until| until <= *now));
            return Ok(if over { RouteApplied::Gone } else { RouteApplied::Same });
        }
    };
    if current == Some(&next) {
        return Ok(RouteApplied::Same);
    }
    let moves = current.is_none_or(|current| current.upstream != next.upstream);
    if moves && !force && !(ctx.knows)(&next.upstream) {
        return Err(RouteError::UnknownUpstream(next.upstream));
    }
    Ok(RouteApplied::Set(next))
}

fn put(
    current: Option<&Route>,
    key: &RouteKey,
    body: &RouteBody,
    ctx: &RouteContext<'_>,
) -> Result<Route, RouteError> {
    let upstream = body.upstream.clone().ok_or(RouteError::NoUpstream)?;
    let mut next = Route::new(key.clone(), upstream);
    next.origin = current.map_or_else(|| ctx.origin.clone(), |current| current.origin.clone());
    // A time that is given as a listing shows it is the one that stands.
    next.until = current.and_then(|current| current.until);
    if !body.end.is_given() {
        next.until = None;
    }
    alter(&mut next, body, ctx)?;
    Ok(next)
}

fn patch(current: &Route, body: &RouteBody, ctx: &RouteContext<'_>) -> Result<Route, RouteError> {
    let mut next = current.clone();
    if let Some(upstream) = &body.upstream {
        next.upstream = upstream.clone();
    }
    alter(&mut next, body, ctx)?;
    Ok(next)
}

/// Sets what a body names beside the upstream.
fn alter(next: &mut Route, body: &RouteBody, ctx: &RouteContext<'_>) -> Result<(), RouteError> {
    match &body.status {
        Field::Absent => {}
        Field::Default => next.status = Status::Active,
        Field::Given(status) => next.status = status.clone(),
    }
    match &body.reason {
        Field::Absent => {}
        Field::Default => next.reason.clear(),
        Field::Given(reason) => next.reason.clone_from(reason),
    }
    next.until = match &body.end {
        Field::Absent => next.until,
        Field::Default | Field::Given(End::Never) => None,
        Field::Given(End::After(ms)) => Some(ctx.now.saturating_add(*ms)),
        Field::Given(End::At(at)) if next.until.is_some_and(|is| is / 1000 == at / 1000) => {
            next.until
        }
        Field::Given(End::At(at)) if *at <= ctx.now => {
            return Err(RouteError::Field { field: "until", error: FieldError::Past });
        }
        Field::Given(End::At(at)) => Some(*at),
    };
    match &body.labels {
        Field::Absent => {}
        Field::Default => next.labels.clear(),
        Field::Given(labels) => {
            for (key, value) in labels {
                match value {
                    Some(value) => next.labels.insert(key.clone(), value.clone()),
                    None => next.labels.remove(key),
                };
            }
        }
    }
    check_labels(&next.labels).map_err(|error| RouteError::Field { field: "labels", error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> UpstreamName {
        UpstreamName::parse(text).unwrap()
    }

    fn key() -> RouteKey {
        RouteKey::parse("acme").unwrap()
    }

    fn done(current: Option<&Route>, change: &RouteChange) -> Result<RouteApplied, RouteError> {
        let knows = |upstream: &UpstreamName| upstream.as_str() != "unknown";
        apply(
            current,
            &key(),
            change,
            &RouteContext { now: 5_000, origin: Origin::Api, knows: &knows },
        )
    }

    fn set(current: Option<&Route>, change: &RouteChange) -> Route {
        match done(current, change) {
            Ok(RouteApplied::Set(route)) => route,
            other => panic!("{change:?}: {other:?}"),
        }
    }

    fn to(upstream: &str) -> RouteBody {
        RouteBody { upstream: Some(name(upstream)), ..RouteBody::default() }
    }

    fn put(body: RouteBody) -> RouteChange {
        RouteChange::Put { body, force: false }
    }

    fn patch(body: RouteBody) -> RouteChange {
        RouteChange::Patch { body, force: false }
    }

    #[test]
    fn a_put_states_the_whole_and_a_patch_what_it_names() {
        let first = set(None, &put(to("orders")));
        assert_eq!(first, Route::new(key(), name("orders")));
        assert_eq!(done(Some(&first), &put(to("orders"))), Ok(RouteApplied::Same));
        let body = RouteBody {
            status: Field::Given(Status::Suspended),
            reason: Field::Given("unpaid".into()),
            end: Field::Given(End::After(1_000)),
            labels: Field::Given(vec![("tier".into(), Some("a".into()))]),
            upstream: None,
        };
        let held = set(Some(&first), &patch(body));
        assert_eq!((&held.status, held.until), (&Status::Suspended, Some(6_000)));
        let moved = set(Some(&held), &patch(to("orders-v2")));
        assert_eq!(moved, Route { upstream: name("orders-v2"), ..held.clone() });
        let body = RouteBody { labels: Field::Given(vec![("tier".into(), None)]), ..to("orders") };
        assert!(set(Some(&held), &patch(body)).labels.is_empty());
        assert_eq!(set(Some(&held), &put(to("orders"))), first);
        // As a listing shows it, to the second.
        let body = RouteBody { end: Field::Given(End::At(6_000)), ..RouteBody::default() };
        let precise = Route { until: Some(6_789), ..held };
        assert_eq!(done(Some(&precise), &patch(body)), Ok(RouteApplied::Same));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let route = Route::new(key(), name("orders"));
        let unknown = RouteError::UnknownUpstream(name("unknown"));
        assert_eq!(done(None, &put(to("unknown"))), Err(unknown.clone()));
        assert_eq!(done(Some(&route), &patch(to("unknown"))), Err(unknown));
        let lost = set(None, &RouteChange::Put { body: to("unknown"), force: true });
        // It is there, and may be held without its upstream.
        let body = RouteBody { status: Field::Given(Status::Suspended), ..RouteBody::default() };
        assert_eq!(set(Some(&lost), &patch(body.clone())).status, Status::Suspended);
        assert_eq!(done(None, &patch(body)), Err(RouteError::NoRoute(key())));
        assert_eq!(done(None, &RouteChange::Delete), Err(RouteError::NoRoute(key())));
        assert_eq!(done(None, &put(RouteBody::default())), Err(RouteError::NoUpstream));
        let body = RouteBody { end: Field::Given(End::At(5_000)), ..to("orders") };
        let past = RouteError::Field { field: "until", error: FieldError::Past };
        assert_eq!(done(None, &put(body)), Err(past));
        let labels = (0..17).map(|i| (format!("l{i}"), Some(String::new()))).collect();
        let body = RouteBody { labels: Field::Given(labels), ..to("orders") };
        let many = RouteError::Field { field: "labels", error: FieldError::Labels };
        assert_eq!(done(None, &put(body)), Err(many));
    }

    #[test]
    fn a_route_ends_when_its_time_is_over() {
        let route = Route { until: Some(5_000), ..Route::new(key(), name("orders")) };
        let expire = |now| RouteChange::Expire { now };
        assert_eq!(done(Some(&route), &expire(4_999)), Ok(RouteApplied::Same));
        assert_eq!(done(Some(&route), &expire(5_000)), Ok(RouteApplied::Gone));
        assert_eq!(done(None, &expire(5_000)), Ok(RouteApplied::Same));
        assert_eq!(done(Some(&route), &RouteChange::Delete), Ok(RouteApplied::Gone));
    }
}
