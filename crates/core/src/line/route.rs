//! The text form of a route.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::is_default;
use super::server::origin;
use crate::name::UpstreamName;
use crate::route::{Route, RouteKey, Status};
use crate::server::Origin;

/// A route, whole. Times are unix ms.
#[derive(Serialize, Deserialize)]
pub(crate) struct RouteLine {
    key: RouteKey,
    upstream: UpstreamName,
    #[serde(default, skip_serializing_if = "is_default")]
    status: Status,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Left out: `api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

impl RouteLine {
    pub(crate) fn of(route: &Route) -> Self {
        let Route { key, upstream, status, reason, until, labels, origin } = route.clone();
        let origin = (origin != Origin::Api).then(|| origin.to_string());
        Self { key, upstream, status, reason, until, labels, origin }
    }

    pub(crate) fn into_route(self) -> Result<Route, String> {
        let Self { key, upstream, status, reason, until, labels, origin: from } = self;
        let origin = from.map_or(Ok(Origin::Api), |text| origin(&text))?;
        let route = Route { key, upstream, status, reason, until, labels, origin };
        route.check().map_err(|error| format!("route \"{}\" {error}", route.key))?;
        Ok(route)
    }
}
