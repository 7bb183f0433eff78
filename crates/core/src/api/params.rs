//! Parameters of queries, read into what they mean; every error names the parameter.

use crate::api::call::Call;
use crate::api::error::{Code, Problem};
use crate::api::filter::{Place, ServerFilter};
use crate::api::query::Query;
use crate::body::VerbOpts;
use crate::field::{self, FieldError};
use crate::name::UpstreamName;
use crate::route::RouteKey;

/// Entries of a page where the query does not say.
const PAGE: u32 = 100;
/// Entries of a page at most.
const PAGE_MAX: u32 = 1000;

/// Of `v1/upstreams`.
pub(super) fn upstreams(query: &mut Query) -> Result<Call, Problem> {
    let after = match query.take("after") {
        None => None,
        Some(name) => Some(name_of(&name, "after")?),
    };
    let limit = limit(query)?;
    let servers = match query.take("fields").as_deref() {
        None => false,
        Some("servers") => true,
        Some(_) => return Err(bad("fields", "\"fields\" may only be servers")),
    };
    Ok(Call::ListUpstreams { after, limit, servers })
}

/// Of `v1/servers`.
pub(super) fn servers(query: &mut Query) -> Result<Call, Problem> {
    let mut filter = ServerFilter::default();
    for name in ServerFilter::NAMES {
        if let Some(text) = query.take(name) {
            filter.read(name, &text).map_err(|detail| bad(name, &detail))?;
        }
    }
    let after = match query.take("after") {
        None => None,
        Some(text) => Some(Place::parse(&text).map_err(|detail| bad("after", &detail))?),
    };
    Ok(Call::ListServers { filter, after, limit: limit(query)? })
}

/// Of `v1/routes`.
pub(super) fn routes(query: &mut Query) -> Result<Call, Problem> {
    let upstream = match query.take("upstream") {
        None => None,
        Some(name) => Some(name_of(&name, "upstream")?),
    };
    let after = match query.take("after") {
        None => None,
        Some(text) => Some(
            RouteKey::parse(&text).map_err(|error| bad("after", &format!("\"after\" {error}")))?,
        ),
    };
    Ok(Call::ListRoutes { upstream, after, limit: limit(query)? })
}

/// Of `v1/events`.
pub(super) fn events(query: &mut Query) -> Result<Call, Problem> {
    let since = match query.take("since") {
        None => None,
        Some(text) => {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let since = text.parse().ok().filter(|_| digits);
            Some(since.ok_or_else(|| bad("since", "\"since\" must be the number of an event"))?)
        }
    };
    let wait = match query.take("wait") {
        None => 0,
        Some(text) => field::wait(&text).map_err(|error| {
            Problem::new(Code::BadValue, format!("\"wait\" {error}")).field("wait")
        })?,
    };
    Ok(Call::Events { since, wait })
}

/// `require=a,b` of `v1/ready`.
pub(super) fn require(query: &mut Query) -> Result<Vec<UpstreamName>, Problem> {
    let Some(text) = query.take("require") else { return Ok(Vec::new()) };
    text.split(',').map(|name| name_of(name, "require")).collect()
}

/// `prune=origin:api` of an import.
pub(super) fn prune(query: &mut Query) -> Result<bool, Problem> {
    match query.take("prune").as_deref() {
        None => Ok(false),
        Some("origin:api") => Ok(true),
        Some(_) => Err(bad("prune", "\"prune\" may only be origin:api")),
    }
}

/// `missing=ok` of a verb of a host.
pub(super) fn missing_ok(query: &mut Query) -> Result<bool, Problem> {
    match query.take("missing").as_deref() {
        None => Ok(false),
        Some("ok") => Ok(true),
        Some(_) => Err(bad("missing", "\"missing\" may only be ok")),
    }
}

/// A parameter that is 0 or 1, 0 where it is absent.
pub(crate) fn flag(query: &mut Query, name: &'static str) -> Result<bool, Problem> {
    match query.take(name).as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(bad(name, &format!("\"{name}\" must be 0 or 1"))),
    }
}

/// Of `up`, `drain`, `down`.
pub(super) fn options(query: &mut Query) -> Result<VerbOpts, Problem> {
    Ok(VerbOpts {
        wait: value(query, "wait", |text| field::wait(&text))?,
        ttl: value(query, "ttl", |text| field::ttl(&text))?,
        close: value(query, "close", |text| field::close(&text))?,
        reason: value(query, "reason", reason)?,
        min_up: value(query, "min_up", |text| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            field::min_up(if digits { text.parse().unwrap_or(-1) } else { -1 })
        })?,
        if_reason: value(query, "if_reason", reason)?,
    })
}

/// A parameter that means what a body's field means.
pub(super) fn value<T>(
    query: &mut Query,
    name: &str,
    read: impl Fn(String) -> Result<T, FieldError>,
) -> Result<Option<T>, Problem> {
    let Some(text) = query.take(name) else { return Ok(None) };
    read(text)
        .map(Some)
        .map_err(|error| Problem::new(Code::BadValue, format!("\"{name}\" {error}")).field(name))
}

/// The text of a reason.
pub(super) fn reason(text: String) -> Result<String, FieldError> {
    field::reason(&text).map(str::to_owned)
}

fn limit(query: &mut Query) -> Result<u32, Problem> {
    let Some(text) = query.take("limit") else { return Ok(PAGE) };
    match text.parse() {
        Ok(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        _ => Err(bad("limit", &format!("\"limit\" must be a whole number from 1 to {PAGE_MAX}"))),
    }
}

fn name_of(text: &str, parameter: &'static str) -> Result<UpstreamName, Problem> {
    UpstreamName::parse(text).map_err(|error| bad(parameter, &format!("{parameter}: {error}")))
}

fn bad(parameter: &str, detail: &str) -> Problem {
    Problem::new(Code::BadParameter, detail).field(parameter)
}
