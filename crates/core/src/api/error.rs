//! Errors of the API: a closed list of codes, rendered as `application/problem+json`.

use serde_json::{Map, Value};

use crate::change::ChangeError;
use crate::json::JsonError;
use crate::route::change::RouteError;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident = $text:literal, $status:literal, $title:literal;)+) => {
        /// What went wrong; the `type` is `urn:peerage:` with its text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $code,)+ }

        impl Code {
            /// The closed list.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// The text in `type`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$code => $text,)+ }
            }

            /// The status of the answer.
            pub fn status(self) -> u16 {
                match self { $(Self::$code => $status,)+ }
            }

            /// The same words for every problem of the code.
            pub fn title(self) -> &'static str {
                match self { $(Self::$code => $title,)+ }
            }
        }
    };
}

codes! {
    /// The body is no JSON, or has a key twice, or nests too deep.
    BadJson = "bad-json", 400, "The body is not acceptable JSON";
    /// A field that the body may not have.
    UnknownField = "unknown-field", 400, "Unknown field";
    /// A value out of its rule, or of the wrong type.
    BadValue = "bad-value", 400, "Value not acceptable";
    /// A query parameter that is unknown or comes twice.
    BadParameter = "bad-parameter", 400, "Query parameter not acceptable";
    /// A name of an upstream out of the rules.
    BadName = "bad-name", 400, "Name not acceptable";
    /// An address of a server out of the rules.
    BadAddress = "bad-address", 400, "Address not acceptable";
    /// A path that cannot be decoded, or that nginx reads otherwise.
    BadPath = "bad-path", 400, "Path not acceptable";
    /// Several zones and none said.
    ZoneRequired = "zone-required", 400, "Which zone?";
    /// `write=operate` does not cover it.
    NotPermitted = "not-permitted", 403, "Not permitted here";
    /// A write from a page of another site.
    CrossSite = "cross-site", 403, "Cross-site write refused";
    /// The API has no such path.
    PathNotFound = "path-not-found", 404, "Path not found";
    /// There is no such zone.
    ZoneNotFound = "zone-not-found", 404, "Zone not found";
    /// There is no such upstream.
    UpstreamNotFound = "upstream-not-found", 404, "Upstream not found";
    /// There is no such server.
    ServerNotFound = "server-not-found", 404, "Server not found";
    /// There is no such route.
    RouteNotFound = "route-not-found", 404, "Route not found";
    /// No server is on the host.
    HostNotFound = "host-not-found", 404, "Host not found";
    /// There is no such source.
    SourceNotFound = "source-not-found", 404, "Source not found";
    /// The path has no such method here; `Allow` has those it has.
    MethodNotAllowed = "method-not-allowed", 405, "Method not allowed";
    /// The same address twice in an upstream.
    DuplicateServer = "duplicate-server", 409, "Server exists";
    /// It exists, and `If-None-Match: *` asked for it not to.
    Exists = "exists", 409, "It exists";
    /// The zone has no state file that is written.
    NoStateFile = "no-state-file", 409, "Nothing is written";
    /// The upstream has no check.
    NoCheck = "no-check", 409, "Nothing is checked";
    /// Too few eligible servers would remain.
    MinUp = "min-up", 409, "Too few servers would remain";
    /// The server is not up for another reason.
    IfReason = "if-reason", 409, "Another reason stands";
    /// The configuration names the upstream.
    NamedByBlock = "named-by-block", 409, "Named by the configuration";
    /// Routes name the upstream.
    NamedByRoutes = "named-by-routes", 409, "Named by routes";
    /// A route is to lead to an upstream that is not there.
    UnknownUpstream = "unknown-upstream", 409, "Upstream unknown";
    /// A source owns the server.
    OwnedBySource = "owned-by-source", 409, "Owned by a source";
    /// The source has no change that is held.
    NothingHeld = "nothing-held", 409, "Nothing is held";
    /// Events from there on are not kept any more.
    EventsGone = "events-gone", 410, "Events are gone";
    /// `If-Match` names another content.
    Stale = "stale", 412, "Changed meanwhile";
    /// The body is over the limit.
    BodyTooLarge = "body-too-large", 413, "Body too large";
    /// A name where only addresses are supported.
    NameNotSupported = "name-not-supported", 422, "Names are not resolved";
    /// Something inside failed; the log says what.
    Internal = "internal", 500, "Internal error";
    /// The writer is busy: nothing changed, try again.
    Busy = "busy", 503, "Cannot be applied now";
    /// Another master writes: nothing changed, try again.
    NotWriter = "not-writer", 503, "Another nginx writes";
    /// The zone is moving: nothing changed, try again.
    Moving = "moving", 503, "The zone is moving";
    /// The change is in force but not on disk.
    NotDurable = "not-durable", 503, "In force, not on disk";
    /// This process could not ask the server.
    NotProbed = "not-probed", 503, "Not probed";
    /// Something that is needed is not there yet; `reasons` says what.
    NotReady = "not-ready", 503, "Not ready";
    /// What was waited for did not come in time.
    WaitExpired = "wait-expired", 504, "The wait expired";
    /// The zone has no room: nothing changed.
    NoRoom = "no-room", 507, "The zone is full";
}

/// A problem as it is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What went wrong.
    pub code: Code,
    /// What exactly, for people.
    pub detail: String,
    /// Which field of the body or parameter of the query.
    pub field: Option<String>,
    /// Further members.
    pub extra: Map<String, Value>,
    /// The `Allow` header of a 405.
    pub allow: Option<&'static str>,
}

impl Problem {
    /// A problem with its detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, extra: Map::new(), allow: None }
    }

    /// Names the field.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Adds a member.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// Says where in a greater body it is.
    pub fn within(mut self, place: &str) -> Self {
        self.detail = format!("{place}: {}", self.detail);
        self.field = Some(match &self.field {
            Some(field) => format!("{place}.{field}"),
            None => place.to_owned(),
        });
        self
    }

    /// A 405 that names what is allowed.
    pub fn not_allowed(allow: &'static str, detail: impl Into<String>) -> Self {
        let mut problem = Self::new(Code::MethodNotAllowed, detail);
        problem.allow = Some(allow);
        problem
    }

    /// The status of the answer.
    pub fn status(&self) -> u16 {
        self.code.status()
    }

    /// Seconds for `Retry-After`, where trying again helps.
    pub fn retry_after(&self) -> Option<u32> {
        match self.code {
            Code::Busy | Code::NotWriter | Code::Moving | Code::NotDurable | Code::NotReady => {
                Some(1)
            }
            _ => None,
        }
    }

    /// The body.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        out.extend_from_slice(b"{\"type\":\"urn:peerage:");
        out.extend_from_slice(self.code.as_str().as_bytes());
        out.push(b'"');
        let mut member = |name: &str, value: &Value| {
            out.push(b',');
            // A vector takes everything and a JSON value can always be written.
            let _ = serde_json::to_writer(&mut out, name);
            out.push(b':');
            let _ = serde_json::to_writer(&mut out, value);
        };
        member("title", &self.code.title().into());
        member("status", &self.status().into());
        member("detail", &self.detail.as_str().into());
        if let Some(field) = &self.field {
            member("field", &field.as_str().into());
        }
        for (name, value) in &self.extra {
            member(name, value);
        }
        out.push(b'}');
        out
    }
}

impl From<JsonError> for Problem {
    fn from(error: JsonError) -> Self {
        let problem = Self::new(Code::BadJson, error.to_string());
        match error.key {
            Some(key) => problem.field(key),
            None => problem,
        }
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let detail = error.to_string();
        match error {
            ChangeError::NoUpstream(_) => Self::new(Code::UpstreamNotFound, detail),
            ChangeError::NoServer { .. } => Self::new(Code::ServerNotFound, detail),
            ChangeError::SameAddress(_) => {
                Self::new(Code::DuplicateServer, detail).field("servers")
            }
            ChangeError::NoResolver(_) => Self::new(Code::NameNotSupported, detail).field("server"),
            ChangeError::NoAddress(at) => {
                Self::new(Code::BadValue, detail).field(format!("servers[{at}].server"))
            }
            ChangeError::OtherAddress { .. } => Self::new(Code::BadValue, detail).field("server"),
            ChangeError::ServersMissing(_) => Self::new(Code::BadValue, detail).field("servers"),
            ChangeError::MinUp { upstream, left, .. } => Self::new(Code::MinUp, detail)
                .with("upstreams", vec![Value::from(upstream.as_str())])
                .with("eligible", left),
            ChangeError::IfReason { state, reason, by, .. } => Self::new(Code::IfReason, detail)
                .with("admin", state.as_str())
                .with("reason", reason)
                .with("by", by),
            ChangeError::HostIfReason { state, reason, by, .. } => {
                Self::new(Code::IfReason, detail)
                    .with("admin", state.as_str())
                    .with("reason", reason)
                    .with("by", by)
            }
            ChangeError::HostMinUp { upstreams, .. } => {
                let names: Vec<Value> = upstreams.iter().map(|n| Value::from(n.as_str())).collect();
                Self::new(Code::MinUp, detail).with("upstreams", names)
            }
            ChangeError::NoHost(_) => Self::new(Code::HostNotFound, detail),
            ChangeError::NamedByBlock(_) => Self::new(Code::NamedByBlock, detail),
            ChangeError::NamedByRoutes { routes, .. } => {
                Self::new(Code::NamedByRoutes, detail).with("routes", routes)
            }
            ChangeError::OwnedBySource { .. } => Self::new(Code::OwnedBySource, detail),
            ChangeError::Member { object, field, .. } => {
                Self::new(Code::BadValue, detail).field(format!("{object}.{field}"))
            }
            ChangeError::Field { field, .. } => Self::new(Code::BadValue, detail).field(field),
        }
    }
}

impl From<RouteError> for Problem {
    fn from(error: RouteError) -> Self {
        let detail = error.to_string();
        match error {
            RouteError::NoRoute(_) => Self::new(Code::RouteNotFound, detail),
            RouteError::NoUpstream => Self::new(Code::BadValue, detail).field("upstream"),
            RouteError::UnknownUpstream(_) => {
                Self::new(Code::UnknownUpstream, detail).field("upstream")
            }
            RouteError::Field { field, .. } => Self::new(Code::BadValue, detail).field(field),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_problem_has_the_members_of_the_contract_in_order() {
        let problem = Problem::new(Code::BadValue, "say \"x\"").field("weight").with("n", 1);
        assert_eq!(
            String::from_utf8(problem.to_bytes()).unwrap(),
            r#"{"type":"urn:peerage:bad-value","title":"Value not acceptable","status":400,"detail":"say \"x\"","field":"weight","n":1}"#
        );
        assert_eq!(Problem::new(Code::Busy, "").retry_after(), Some(1));
    }

    #[test]
    fn codes_are_distinct_words() {
        let codes: HashSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        assert!(codes.iter().all(|c| c.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }
}
