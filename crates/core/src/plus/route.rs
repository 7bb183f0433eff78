//! From method, path and query to a call.
//!
//! The order of refusals is that of [`crate::api::route`]: unknown version or path 404, method not
//! there or writing off 405, then names and ids. Empty segments do not count, so that a slash more
//! or less at any place is the same path.

use crate::api::error::Code as Own;
use crate::api::params;
use crate::api::query::{Query, decode_segment};
use crate::api::route::{Http, WriteMode};
use crate::name::UpstreamName;
use crate::plus::error::{Code, Fault};
use crate::plus::fields::Fields;
use crate::plus::status::Status;

/// Versions of the interface; all are answered alike.
pub const VERSIONS: [u8; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The list of versions.
    Versions,
    /// What a version has.
    Root,
    /// What `http/` has.
    Http,
    /// What nginx knows of itself.
    Status {
        /// Which.
        status: Status,
        /// One of them, where there are several.
        item: Option<String>,
    },
    /// Every upstream with its peers.
    Upstreams,
    /// One upstream with its peers.
    Upstream(UpstreamName),
    /// Sets what was counted of an upstream to zero.
    Reset(UpstreamName),
    /// The servers of an upstream.
    Servers(UpstreamName),
    /// One of them.
    Server(UpstreamName, u64),
    /// Adds a server.
    Add(UpstreamName),
    /// Alters one.
    Patch(UpstreamName, u64),
    /// Removes one.
    Remove(UpstreamName, u64),
}

impl Call {
    /// The upstream it is about.
    pub fn upstream(&self) -> Option<&UpstreamName> {
        match self {
            Self::Versions | Self::Root | Self::Http => None,
            Self::Status { .. } | Self::Upstreams => None,
            Self::Upstream(name)
            | Self::Reset(name)
            | Self::Servers(name)
            | Self::Server(name, _)
            | Self::Add(name)
            | Self::Patch(name, _)
            | Self::Remove(name, _) => Some(name),
        }
    }

    /// Tells whether it may change something, so that other sites may not send it.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Reset(_) | Self::Add(_) | Self::Patch(..) | Self::Remove(..))
    }

    /// Tells whether its body is read.
    pub fn has_body(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Patch(..))
    }

    /// Tells whether it is about a zone.
    pub fn has_zone(&self) -> bool {
        matches!(self, Self::Upstreams) || self.upstream().is_some()
    }
}

/// A call and what its query says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// What is asked for.
    pub call: Call,
    /// Which members are shown.
    pub fields: Fields,
    /// `zone=`
    pub zone: Option<String>,
    /// Whether it only tells what it would change.
    pub dry_run: bool,
}

/// Tells whether a path is one of this interface: its first segment is a number, or there is none.
pub fn is_here(path: &[u8]) -> bool {
    let first = path.split(|&b| b == b'/').find(|segment| !segment.is_empty());
    first.is_none_or(|segment| segment.iter().all(u8::is_ascii_digit))
}

/// Routes a request; `path` is the raw path after the location's name, `query` what follows `?`.
pub fn route(method: Http, path: &[u8], query: &[u8], mode: WriteMode) -> Result<Routed, Fault> {
    let not_found = || Fault::new(Code::PathNotFound, "path not found");
    let segments = path.split(|&b| b == b'/').filter(|segment| !segment.is_empty());
    let segments: Option<Vec<String>> = segments.map(decode_segment).collect();
    // nginx goes up by dots, also between the slashes of a decoded segment.
    let moves = |segment: &String| segment.split('/').any(|part| matches!(part, "." | ".."));
    let segments = segments.filter(|all| !all.iter().any(moves)).ok_or_else(not_found)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let place = match &segments[..] {
        [] => Place::Versions,
        [version, rest @ ..] => {
            if !VERSIONS.iter().any(|known| known.to_string() == *version) {
                return Err(Fault::new(Code::UnknownVersion, "unknown version"));
            }
            place(rest).ok_or_else(not_found)?
        }
    };
    permit(&place, method, mode)?;
    let mut query = Query::parse(query)?;
    let fields = query.take("fields").map_or(Fields::All, |text| Fields::parse(&text));
    let zone = query.take("zone");
    let call = call(place, method)?;
    // Other parameters are ignored: clients of this interface may say more than we know.
    let dry_run = call.is_write() && params::flag(&mut query, "dry_run")?;
    Ok(Routed { call, fields, zone, dry_run })
}

/// A path that the interface has.
#[derive(Clone, Copy)]
enum Place<'a> {
    Versions,
    Root,
    Http,
    Status(Status, Option<&'a str>),
    Upstreams,
    Upstream(&'a str),
    Servers(&'a str),
    Server(&'a str, &'a str),
}

fn place<'a>(segments: &[&'a str]) -> Option<Place<'a>> {
    Some(match segments {
        [] => Place::Root,
        ["http"] => Place::Http,
        ["http", "upstreams"] => Place::Upstreams,
        ["http", "upstreams", name] => Place::Upstream(name),
        ["http", "upstreams", name, "servers"] => Place::Servers(name),
        ["http", "upstreams", name, "servers", id] => Place::Server(name, id),
        ["http", name] => Place::Status(Status::of_http(name)?, None),
        ["http", name, item] => Place::Status(several(Status::of_http(name)?)?, Some(item)),
        [name] => Place::Status(Status::of_root(name)?, None),
        [name, item] => Place::Status(several(Status::of_root(name)?)?, Some(item)),
        _ => return None,
    })
}

fn several(status: Status) -> Option<Status> {
    status.missing().map(|_| status)
}

impl Place<'_> {
    fn allow(self) -> &'static str {
        match self {
            Self::Upstream(_) => "GET, HEAD, DELETE",
            Self::Servers(_) => "GET, HEAD, POST",
            Self::Server(..) => "GET, HEAD, PATCH, DELETE",
            _ => READ,
        }
    }
}

fn permit(place: &Place<'_>, method: Http, mode: WriteMode) -> Result<(), Fault> {
    let known = match (place, method) {
        (_, Http::Get) => return Ok(()),
        (Place::Upstream(_), Http::Delete) => true,
        (Place::Servers(_), Http::Post) => true,
        (Place::Server(..), Http::Patch | Http::Delete) => true,
        _ => false,
    };
    match mode {
        _ if !known => Err(Fault::disabled(place.allow())),
        WriteMode::On => Ok(()),
        WriteMode::Operate if method == Http::Patch => Ok(()),
        WriteMode::Operate => {
            Err(Fault::new(Code::Own(Own::NotPermitted), "write=operate does not cover this"))
        }
        WriteMode::Off => Err(Fault::disabled(READ)),
    }
}

fn call(place: Place<'_>, method: Http) -> Result<Call, Fault> {
    // What cannot be the name of an upstream is the name of none.
    let name = |name| UpstreamName::parse(name).map_err(|_| Fault::no_upstream());
    Ok(match place {
        Place::Versions => Call::Versions,
        Place::Root => Call::Root,
        Place::Http => Call::Http,
        Place::Status(status, item) => Call::Status { status, item: item.map(str::to_owned) },
        Place::Upstreams => Call::Upstreams,
        Place::Upstream(text) if method == Http::Delete => Call::Reset(name(text)?),
        Place::Upstream(text) => Call::Upstream(name(text)?),
        Place::Servers(text) if method == Http::Post => Call::Add(name(text)?),
        Place::Servers(text) => Call::Servers(name(text)?),
        Place::Server(text, id) => {
            let (name, id) = (name(text)?, server_id(id)?);
            match method {
                Http::Patch => Call::Patch(name, id),
                Http::Delete => Call::Remove(name, id),
                _ => Call::Server(name, id),
            }
        }
    })
}

fn server_id(text: &str) -> Result<u64, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let id = if digits { text.parse().ok() } else { None };
    id.ok_or_else(|| Fault::new(Code::UpstreamBadServerId, "invalid server ID"))
}

const READ: &str = "GET, HEAD";

#[cfg(test)]
mod tests {
    use super::*;
    use Http::{Delete, Get, Other, Patch, Post, Put};
    use WriteMode::{Off, On, Operate};

    fn app() -> UpstreamName {
        UpstreamName::parse("app").unwrap()
    }

    #[test]
    fn a_number_or_nothing_is_of_this_interface() {
        for path in ["", "/", "//", "/1", "/9/http", "//9", "/10/x", "9"] {
            assert!(is_here(path.as_bytes()), "{path}");
        }
        for path in ["/v1/", "/x", "/9x", "/%39", "/-1"] {
            assert!(!is_here(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn paths_are_read_with_any_slashes() {
        let status = |status| Call::Status { status, item: None };
        let table = [
            (Get, "", Call::Versions),
            (Get, "/9", Call::Root),
            (Get, "//1//", Call::Root),
            (Get, "/3/http/", Call::Http),
            (Get, "/9/nginx/", status(Status::Nginx)),
            (Get, "/9//slabs", status(Status::Slabs)),
            (
                Get,
                "/9/slabs/ma%69n",
                Call::Status { status: Status::Slabs, item: Some("main".into()) },
            ),
            (Get, "/9/http/requests", status(Status::Requests)),
            (Get, "/9/http/upstreams/", Call::Upstreams),
            (Get, "/9/http/upstreams/APP//", Call::Upstream(app())),
            (Delete, "/9/http/upstreams/app/", Call::Reset(app())),
            (Get, "/9/http/upstreams/app/servers", Call::Servers(app())),
            (Post, "/9/http/upstreams/app/servers/", Call::Add(app())),
            (Get, "/9/http/upstreams/app/servers/7", Call::Server(app(), 7)),
            (Patch, "/9/http/upstreams/app/servers/7/", Call::Patch(app(), 7)),
            (Delete, "/9/http/upstreams/app/servers/7", Call::Remove(app(), 7)),
        ];
        for (method, path, call) in table {
            let routed = route(method, path.as_bytes(), b"", On);
            assert_eq!(routed.unwrap().call, call, "{method:?} {path}");
        }
    }

    #[test]
    fn the_query_names_members_and_a_zone_and_may_say_more() {
        let query = b"fields=peers,zone&zone=main&version=3&dry_run=1";
        let routed = route(Patch, b"/9/http/upstreams/app/servers/7", query, On).unwrap();
        assert_eq!(routed.fields, Fields::parse("peers,zone"));
        assert_eq!((routed.zone.as_deref(), routed.dry_run), (Some("main"), true));
        let routed = route(Get, b"/9/http/upstreams", b"fields=", Off).unwrap();
        assert_eq!(routed.fields, Fields::parse(""));
    }

    #[test]
    fn refusals_come_in_their_order() {
        let operate = Code::Own(Own::NotPermitted);
        let server = "/9/http/upstreams/app/servers/7";
        let table = [
            (Get, "/0/", On, Code::UnknownVersion, None),
            (Get, "/10/nginx", On, Code::UnknownVersion, None),
            (Get, "/09/nginx", On, Code::UnknownVersion, None),
            (Put, "/10/x", On, Code::UnknownVersion, None),
            (Get, "/9/stream", On, Code::PathNotFound, None),
            (Get, "/9/stream/upstreams/", On, Code::PathNotFound, None),
            (Get, "/9/license", On, Code::PathNotFound, None),
            (Get, "/9/nginx/x", On, Code::PathNotFound, None),
            (Get, "/9/http/requests/x", On, Code::PathNotFound, None),
            (Get, "/9/http/keyvals", On, Code::PathNotFound, None),
            (Get, "/9/http/upstreams/a%00b", On, Code::PathNotFound, None),
            (Get, "/9/http/upstreams/..", On, Code::PathNotFound, None),
            (Get, "/9/http/upstreams/a%2F%2e%2e%2Fb", On, Code::PathNotFound, None),
            (Get, "/9/http/upstreams/app/servers/7/x", On, Code::PathNotFound, None),
            (Post, "", On, Code::MethodDisabled, Some("GET, HEAD")),
            (Delete, "/9/connections", On, Code::MethodDisabled, Some("GET, HEAD")),
            (Put, server, On, Code::MethodDisabled, Some("GET, HEAD, PATCH, DELETE")),
            (Other, server, Off, Code::MethodDisabled, Some("GET, HEAD, PATCH, DELETE")),
            (Patch, server, Off, Code::MethodDisabled, Some("GET, HEAD")),
            (Patch, "/9/http/upstreams/a b/servers/x", Off, Code::MethodDisabled, Some(READ)),
            (Delete, server, Operate, operate, None),
            (Post, "/9/http/upstreams/app/servers", Operate, operate, None),
            (Delete, "/9/http/upstreams/app", Operate, operate, None),
            (Get, "/9/http/upstreams/a b", On, Code::UpstreamNotFound, None),
            (Get, "/9/http/upstreams/app/servers/x", On, Code::UpstreamBadServerId, None),
            (Get, "/9/http/upstreams/app/servers/+7", On, Code::UpstreamBadServerId, None),
            (Delete, "/9/http/upstreams/app/servers/-1", On, Code::UpstreamBadServerId, None),
        ];
        for (method, path, mode, code, allow) in table {
            let fault = route(method, path.as_bytes(), b"", mode).unwrap_err();
            assert_eq!((fault.code, fault.allow), (code, allow), "{method:?} {path}");
        }
        assert!(route(Patch, server.as_bytes(), b"", Operate).is_ok());
        let fault = route(Patch, server.as_bytes(), b"dry_run=yes", On).unwrap_err();
        assert_eq!(fault.code, Code::Own(Own::BadParameter));
    }
}
