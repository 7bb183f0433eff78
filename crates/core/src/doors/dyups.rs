//! The interface of the dyups module: paths and methods, bodies of `server` lines, plain answers.
//!
//! Statuses and texts are those that its clients know; where it says nothing of the kind, the
//! status is that of the API. A body that it cannot read is 400 with the word that is wrong.

mod body;

pub use body::{BodyError, OWN, Posted, read};

use crate::api::error::{Code, Problem};
use crate::api::params;
use crate::api::query::Query;
use crate::api::route::{Http, segments};
use crate::name::UpstreamName;
use crate::upstream::Upstream;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `GET /list`
    List,
    /// `GET /detail`
    Detail,
    /// `GET /upstream/NAME`
    Show(UpstreamName),
    /// `POST /upstream/NAME`
    Post(UpstreamName),
    /// `DELETE /upstream/NAME`
    Delete {
        /// Which.
        upstream: UpstreamName,
        /// Also where a block names it.
        force: bool,
    },
}

impl Call {
    /// Tells whether it changes something.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Post(_) | Self::Delete { .. })
    }
}

/// A call, and the zone that the query names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// What is asked for.
    pub call: Call,
    /// `?zone=`
    pub zone: Option<String>,
}

/// An answer of plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its text.
    pub text: String,
    /// The header `Allow`.
    pub allow: Option<&'static str>,
    /// The header `Retry-After`, seconds.
    pub retry_after: Option<u32>,
}

impl Reply {
    /// An answer with a text of at most some hundred bytes.
    pub fn new(status: u16, text: impl AsRef<str>) -> Self {
        let (text, mut short) = (text.as_ref(), String::new());
        for c in text.chars() {
            if short.len() + c.len_utf8() > TEXT_MAX {
                break;
            }
            short.push(if c.is_control() && c != '\n' { '?' } else { c });
        }
        Self { status, text: short, allow: None, retry_after: None }
    }

    /// A change is in force, and this was left out of account.
    pub fn success(ignored: &[String]) -> Self {
        match ignored {
            [] => Self::new(200, "success"),
            ignored => Self::new(200, format!("success\nignored: {}\n", ignored.join(", "))),
        }
    }

    fn not_allowed(allow: &'static str, text: &str) -> Self {
        Self { allow: Some(allow), ..Self::new(405, text) }
    }
}

impl From<&Problem> for Reply {
    fn from(problem: &Problem) -> Self {
        let reply = match problem.code {
            // What its clients send again.
            Code::Busy | Code::Moving => Self::new(409, "wait and try again\n"),
            Code::UpstreamNotFound => Self::new(404, NOT_FOUND),
            // A 409 they would send again for ever.
            Code::NamedByBlock | Code::NamedByRoutes => Self::new(403, &problem.detail),
            Code::ZoneRequired => {
                let zones = problem.extra.get("zones").map(ToString::to_string);
                let zones = zones.unwrap_or_default();
                Self::new(problem.status(), format!("{}: {zones}", problem.detail))
            }
            Code::NoRoom => {
                let bytes =
                    |name| problem.extra.get(name).map_or_else(String::new, |n| n.to_string());
                let (needed, free) = (bytes("needed"), bytes("free"));
                let text = format!("{}: {needed} bytes needed, {free} free", problem.detail);
                Self::new(problem.status(), text)
            }
            _ => Self::new(problem.status(), &problem.detail),
        };
        Self { allow: problem.allow, retry_after: problem.retry_after(), ..reply }
    }
}

/// Routes a request; `path` is the raw path after the location's name, `query` what follows `?`.
pub fn route(method: Http, path: &[u8], query: &[u8]) -> Result<Routed, Reply> {
    let segments = segments(path).map_err(|problem| Reply::from(&problem))?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let is = |word: &str, wanted: &str| word.eq_ignore_ascii_case(wanted);
    let name = |text: &str| UpstreamName::parse(text);
    let mut query = Query::parse(query).map_err(|problem| Reply::from(&problem))?;
    let call = match (method, &segments[..]) {
        (Http::Get, [word]) if is(word, "list") => Call::List,
        (Http::Get, [word]) if is(word, "detail") => Call::Detail,
        (Http::Get, [word, upstream]) if is(word, "upstream") => {
            Call::Show(name(upstream).map_err(|_| Reply::new(404, ""))?)
        }
        (Http::Get, _) => return Err(Reply::new(404, "")),
        (Http::Post, [word, upstream]) if is(word, "upstream") => {
            Call::Post(name(upstream).map_err(|error| Reply::new(400, error.to_string()))?)
        }
        (Http::Post, [_, _]) => return Err(Reply::new(404, OTHER_API)),
        (Http::Post, _) => return Err(Reply::new(404, OTHER_INTERFACE)),
        (Http::Delete, [word, upstream]) if is(word, "upstream") => {
            let upstream = name(upstream).map_err(|_| Reply::new(404, NOT_FOUND))?;
            let force = params::flag(&mut query, "force");
            Call::Delete { upstream, force: force.map_err(|problem| Reply::from(&problem))? }
        }
        (Http::Delete, [_, _]) => return Err(Reply::not_allowed("", OTHER_API)),
        (Http::Delete, _) => return Err(Reply::not_allowed(allowed(&segments), OTHER_INTERFACE)),
        _ => return Err(Reply::not_allowed(allowed(&segments), "")),
    };
    let zone = query.take("zone");
    query.end().map_err(|problem| Reply::from(&problem))?;
    Ok(Routed { call, zone })
}

/// The methods of a path.
fn allowed(segments: &[&str]) -> &'static str {
    match segments {
        [word] if ["list", "detail"].iter().any(|known| word.eq_ignore_ascii_case(known)) => {
            "GET, HEAD"
        }
        [word, _] if word.eq_ignore_ascii_case("upstream") => "GET, HEAD, POST, DELETE",
        _ => "",
    }
}

/// The servers of an upstream, a line each.
pub fn servers(out: &mut Vec<u8>, upstream: &Upstream) {
    for server in &upstream.servers {
        out.extend_from_slice(format!("server {}\n", server.addr).as_bytes());
    }
}

/// An upstream of `/detail`.
pub fn detail(out: &mut Vec<u8>, upstream: &Upstream) {
    out.extend_from_slice(upstream.name.as_str().as_bytes());
    out.push(b'\n');
    servers(out, upstream);
    out.push(b'\n');
}

/// Bytes of a text at most.
const TEXT_MAX: usize = 512;

// Texts that its clients may look for, as it writes them.
const NOT_FOUND: &str = "not found uptream";
const OTHER_INTERFACE: &str = "not support this interface";
const OTHER_API: &str = "not support this api";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_calls() {
        let name = |text| UpstreamName::parse(text).unwrap();
        let delete = |force| Call::Delete { upstream: name("dyhost"), force };
        let table = [
            (Http::Get, "/list", "", Call::List),
            (Http::Get, "/LIST/", "", Call::List),
            (Http::Get, "/detail", "", Call::Detail),
            (Http::Get, "//upstream//DyHost", "", Call::Show(name("dyhost"))),
            (Http::Post, "/upstream/dyhost", "", Call::Post(name("dyhost"))),
            (Http::Post, "/upstream/a%2Eb/", "", Call::Post(name("a.b"))),
            (Http::Delete, "/upstream/dyhost", "", delete(false)),
            (Http::Delete, "/upstream/dyhost", "force=1", delete(true)),
        ];
        for (method, path, query, call) in table {
            let routed = route(method, path.as_bytes(), query.as_bytes());
            assert_eq!(routed, Ok(Routed { call, zone: None }), "{method:?} {path}");
        }
        let routed = route(Http::Get, b"/list", b"zone=main").unwrap();
        assert_eq!(routed.zone.as_deref(), Some("main"));
    }

    #[test]
    fn other_paths_and_methods_have_the_answers_of_dyups() {
        const ALL: &str = "GET, HEAD, POST, DELETE";
        let table = [
            (Http::Get, "", "", 404, "", None),
            (Http::Get, "/", "", 404, "", None),
            (Http::Get, "/lists", "", 404, "", None),
            (Http::Get, "/upstream", "", 404, "", None),
            (Http::Get, "/upstream/a/b", "", 404, "", None),
            (Http::Get, "/upstream/a%20b", "", 404, "", None),
            (Http::Post, "/upstream", "", 404, "not support this interface", None),
            (Http::Post, "/upstream/a/b", "", 404, "not support this interface", None),
            (Http::Post, "/streams/a", "", 404, "not support this api", None),
            (Http::Delete, "/list", "", 405, "not support this interface", Some("GET, HEAD")),
            (Http::Delete, "/", "", 405, "not support this interface", Some("")),
            (Http::Delete, "/streams/a", "", 405, "not support this api", Some("")),
            (Http::Delete, "/upstream/a%20b", "", 404, "not found uptream", None),
            (Http::Put, "/upstream/a", "", 405, "", Some(ALL)),
            (Http::Other, "/detail", "", 405, "", Some("GET, HEAD")),
            (Http::Patch, "/x", "", 405, "", Some("")),
        ];
        for (method, path, query, status, text, allow) in table {
            let reply = route(method, path.as_bytes(), query.as_bytes()).unwrap_err();
            let shown = (reply.status, reply.text.as_str(), reply.allow);
            assert_eq!(shown, (status, text, allow), "{method:?} {path}");
        }
        for (path, query) in [
            ("/upstream/a%20b", ""),
            ("/upstream/%zz", ""),
            ("/upstream/..", ""),
            ("/upstream/a", "dry_run=1"),
            ("/upstream/a", "force=1"),
        ] {
            let reply = route(Http::Post, path.as_bytes(), query.as_bytes()).unwrap_err();
            assert_eq!(reply.status, 400, "{path}?{query}");
            assert!(!reply.text.is_empty());
        }
    }

    #[test]
    fn problems_keep_their_status_but_where_dyups_has_its_own() {
        let table = [
            (Code::Busy, 409, "wait and try again\n", Some(1)),
            (Code::Moving, 409, "wait and try again\n", Some(1)),
            (Code::UpstreamNotFound, 404, "not found uptream", None),
            (Code::NamedByBlock, 403, "x", None),
            (Code::NotWriter, 503, "x", Some(1)),
            (Code::NotDurable, 503, "x", Some(1)),
            (Code::CrossSite, 403, "x", None),
            (Code::NoRoom, 507, "x: 7 bytes needed, 3 free", None),
        ];
        for (code, status, text, retry_after) in table {
            let problem = Problem::new(code, "x").with("needed", 7).with("free", 3);
            let reply = Reply::from(&problem);
            assert_eq!((reply.status, reply.text.as_str()), (status, text));
            assert_eq!(reply.retry_after, retry_after);
        }
        let long = Reply::new(400, "é".repeat(10_000) + "\0");
        assert_eq!(long.text.len(), TEXT_MAX);
    }
}
