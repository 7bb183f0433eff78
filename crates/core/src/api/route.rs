//! From method, path and query to a call.
//!
//! The order of refusals is fixed: unknown path 404, method not defined for it 405, write where
//! none is allowed 405, not covered by `write=operate` 403, then names, addresses and parameters
//! 400. Nothing is looked up here.

pub use crate::api::call::{Call, Decision, Routed};
pub use crate::api::path::{Slashes, after_location};

use std::net::IpAddr;

use crate::addr::ServerAddr;
use crate::api::error::{Code, Problem};
use crate::api::openapi;
use crate::api::opinion;
use crate::api::params;
use crate::api::query::{Query, decode_segment};
use crate::api::routes;
use crate::check::external::Opinion;
use crate::host::HostVerb;
use crate::name::UpstreamName;
use crate::server::AdminState;
use crate::upstream::ServerSel;

/// What `write=` of the location allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Reading only.
    #[default]
    Off,
    /// Everything.
    On,
    /// Verbs and weights.
    Operate,
}

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// `GET`, and `HEAD`, which the edge cuts short.
    Get,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
    /// `POST`
    Post,
    /// Any other.
    Other,
}

impl Http {
    /// Reads a method.
    pub fn parse(method: &[u8]) -> Self {
        match method {
            b"GET" | b"HEAD" => Self::Get,
            b"PUT" => Self::Put,
            b"PATCH" => Self::Patch,
            b"DELETE" => Self::Delete,
            b"POST" => Self::Post,
            _ => Self::Other,
        }
    }

    /// The word in `Allow`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Post => "POST",
            Self::Other => "other",
        }
    }
}

/// Routes a request; `path` is the raw path after the location's name, `query` what follows `?`.
pub fn route(method: Http, path: &[u8], query: &[u8], mode: WriteMode) -> Result<Routed, Problem> {
    let segments = segments(path)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let Some(place) = place(&segments) else {
        return Err(Problem::new(Code::PathNotFound, "the API has no such path"));
    };
    permit(&place, method, mode)?;
    let mut query = Query::parse(query)?;
    let call = call(place, method, &mut query)?;
    let zone = if call.may_say_zone() { query.take("zone") } else { None };
    let dry_run = call.can_be_dry() && params::flag(&mut query, "dry_run")?;
    query.end()?;
    Ok(Routed { call, zone, dry_run })
}

/// The segments of a path, decoded one by one; empty ones do not count, as in nginx's `$uri`.
/// Dots are refused also between the slashes of a decoded one, where nginx goes up by them.
pub(crate) fn segments(path: &[u8]) -> Result<Vec<String>, Problem> {
    if !path.is_empty() && path[0] != b'/' {
        return Err(Problem::new(Code::PathNotFound, "the API has no such path"));
    }
    let mut segments = Vec::with_capacity(6);
    for raw in path.split(|&b| b == b'/').filter(|raw| !raw.is_empty()) {
        match decode_segment(raw) {
            Some(segment) if !segment.split('/').any(|part| matches!(part, "." | "..")) => {
                segments.push(segment);
            }
            _ => return Err(Problem::new(Code::BadPath, "the path cannot be decoded")),
        }
    }
    Ok(segments)
}

/// A path that the API has.
#[derive(Clone, Copy)]
enum Place<'a> {
    Root,
    OpenApi,
    Zone(&'a str),
    Flush(&'a str),
    Events,
    Upstreams,
    Upstream(&'a str),
    Server(&'a str, &'a str),
    Verb(&'a str, &'a str, AdminState),
    Opinion(&'a str, &'a str, Opinion),
    Check(&'a str, &'a str),
    Servers,
    Host(&'a str),
    HostVerb(&'a str, AdminState),
    Batch,
    Ready,
    Export(&'a str),
    Import(&'a str),
    Sources,
    Source(&'a str),
    Decide(&'a str, Decision),
    Routes,
    Route(&'a str),
}

fn place<'a>(segments: &[&'a str]) -> Option<Place<'a>> {
    let ["v1", rest @ ..] = segments else { return None };
    Some(match rest {
        [] => Place::Root,
        ["openapi.json"] => Place::OpenApi,
        ["zones", zone] => Place::Zone(zone),
        ["zones", zone, "flush"] => Place::Flush(zone),
        ["events"] => Place::Events,
        ["upstreams"] => Place::Upstreams,
        ["upstreams", upstream] => Place::Upstream(upstream),
        ["upstreams", upstream, "servers", server] => Place::Server(upstream, server),
        ["upstreams", upstream, "servers", server, "check"] => Place::Check(upstream, server),
        ["upstreams", upstream, "servers", server, verb] => match Opinion::parse(verb) {
            Some(opinion) => Place::Opinion(upstream, server, opinion),
            None => Place::Verb(upstream, server, AdminState::parse(verb)?),
        },
        ["servers"] => Place::Servers,
        ["hosts", ip] => Place::Host(ip),
        ["hosts", ip, verb] => Place::HostVerb(ip, AdminState::parse(verb)?),
        ["batch"] => Place::Batch,
        ["ready"] => Place::Ready,
        ["zones", zone, "export"] => Place::Export(zone),
        ["zones", zone, "import"] => Place::Import(zone),
        ["sources"] => Place::Sources,
        ["sources", "consul", source] => Place::Source(source),
        ["sources", "consul", source, "apply"] => Place::Decide(source, Decision::Apply),
        ["sources", "consul", source, "discard"] => Place::Decide(source, Decision::Discard),
        ["routes"] => Place::Routes,
        ["routes", key] => Place::Route(key),
        _ => return None,
    })
}

impl Place<'_> {
    /// Its path as [`openapi::PATHS`] has it.
    fn template(&self) -> &'static str {
        match self {
            Self::Root => "/v1/",
            Self::OpenApi => "/v1/openapi.json",
            Self::Zone(_) => "/v1/zones/{zone}",
            Self::Flush(_) => "/v1/zones/{zone}/flush",
            Self::Events => "/v1/events",
            Self::Upstreams => "/v1/upstreams",
            Self::Upstream(_) => "/v1/upstreams/{upstream}",
            Self::Server(..) => "/v1/upstreams/{upstream}/servers/{server}",
            Self::Verb(_, _, verb) => match verb {
                AdminState::Up => "/v1/upstreams/{upstream}/servers/{server}/up",
                AdminState::Drain => "/v1/upstreams/{upstream}/servers/{server}/drain",
                AdminState::Down => "/v1/upstreams/{upstream}/servers/{server}/down",
            },
            Self::Opinion(_, _, opinion) => match opinion {
                Opinion::Healthy => "/v1/upstreams/{upstream}/servers/{server}/healthy",
                Opinion::Unhealthy => "/v1/upstreams/{upstream}/servers/{server}/unhealthy",
            },
            Self::Check(..) => "/v1/upstreams/{upstream}/servers/{server}/check",
            Self::Servers => "/v1/servers",
            Self::Host(_) => "/v1/hosts/{ip}",
            Self::HostVerb(_, verb) => match verb {
                AdminState::Up => "/v1/hosts/{ip}/up",
                AdminState::Drain => "/v1/hosts/{ip}/drain",
                AdminState::Down => "/v1/hosts/{ip}/down",
            },
            Self::Batch => "/v1/batch",
            Self::Ready => "/v1/ready",
            Self::Export(_) => "/v1/zones/{zone}/export",
            Self::Import(_) => "/v1/zones/{zone}/import",
            Self::Sources => "/v1/sources",
            Self::Source(_) => "/v1/sources/consul/{source}",
            Self::Decide(_, Decision::Apply) => "/v1/sources/consul/{source}/apply",
            Self::Decide(_, Decision::Discard) => "/v1/sources/consul/{source}/discard",
            Self::Routes => "/v1/routes",
            Self::Route(_) => "/v1/routes/{key}",
        }
    }
}

fn permit(place: &Place<'_>, method: Http, mode: WriteMode) -> Result<(), Problem> {
    let allow = openapi::allow(place.template());
    if !allow.split(", ").any(|word| word == method.as_str()) {
        return Err(Problem::not_allowed(allow, "the path has no such method"));
    }
    if method == Http::Get {
        return Ok(());
    }
    match mode {
        WriteMode::On => Ok(()),
        WriteMode::Off => {
            let reads = if allow.starts_with(openapi::READ) { openapi::READ } else { "" };
            Err(Problem::not_allowed(reads, "writing is off here"))
        }
        WriteMode::Operate => match (place, method) {
            (Place::Verb(..) | Place::Opinion(..) | Place::Check(..), _)
            | (Place::HostVerb(..) | Place::Batch, _)
            | (Place::Server(..), Http::Patch) => Ok(()),
            _ => Err(Problem::new(Code::NotPermitted, "write=operate does not cover this")),
        },
    }
}

fn call(place: Place<'_>, method: Http, query: &mut Query) -> Result<Call, Problem> {
    Ok(match place {
        Place::Root => Call::Root,
        Place::OpenApi => Call::OpenApi,
        Place::Zone(zone) => Call::ZoneReport { zone: zone.to_owned() },
        Place::Flush(zone) => Call::Flush { zone: zone.to_owned() },
        Place::Events => params::events(query)?,
        Place::Upstreams => params::upstreams(query)?,
        Place::Upstream(name) => {
            let upstream = upstream(name)?;
            match method {
                Http::Put => Call::PutUpstream { upstream },
                Http::Patch => Call::PatchUpstream { upstream },
                Http::Delete => {
                    Call::DeleteUpstream { upstream, force: params::flag(query, "force")? }
                }
                Http::Get | Http::Post | Http::Other => Call::GetUpstream { upstream },
            }
        }
        Place::Server(name, server) => {
            let (upstream, sel) = (upstream(name)?, selector(server)?);
            match method {
                Http::Put => Call::PutServer { upstream, sel },
                Http::Patch => Call::PatchServer { upstream, sel },
                Http::Delete => Call::DeleteServer { upstream, sel },
                Http::Get | Http::Post | Http::Other => Call::GetServer { upstream, sel },
            }
        }
        Place::Verb(name, server, verb) => {
            let (upstream, sel) = (upstream(name)?, selector(server)?);
            Call::Verb { upstream, sel, verb, opts: params::options(query)? }
        }
        Place::Opinion(name, server, opinion) => {
            let (upstream, sel) = (upstream(name)?, selector(server)?);
            Call::Opine { upstream, sel, saying: opinion::of_query(opinion, query)? }
        }
        Place::Check(name, server) => {
            let (upstream, sel) = (upstream(name)?, selector(server)?);
            match method {
                Http::Post => Call::Check { upstream, sel },
                _ => Call::GetCheck { upstream, sel },
            }
        }
        Place::Servers => params::servers(query)?,
        Place::Host(host) => Call::GetHost { ip: address(host)? },
        Place::HostVerb(host, verb) => {
            let missing_ok = params::missing_ok(query)?;
            let opts = params::options(query)?;
            Call::HostVerb(HostVerb { ip: address(host)?, verb, opts, missing_ok })
        }
        Place::Batch => Call::Batch,
        Place::Ready => Call::Ready { require: params::require(query)? },
        Place::Export(zone) => Call::Export { zone: zone.to_owned() },
        Place::Import(zone) => Call::Import { zone: zone.to_owned(), prune: params::prune(query)? },
        Place::Sources => Call::ListSources,
        Place::Source(source) => Call::GetSource { source: source.to_owned() },
        Place::Decide(source, decision) => {
            Call::DecideSource { source: source.to_owned(), decision }
        }
        Place::Routes if method == Http::Post => {
            Call::PutRoutes { force: params::flag(query, "force")? }
        }
        Place::Routes => params::routes(query)?,
        Place::Route(key) => {
            let key = routes::key(key)?;
            let mut force = || params::flag(query, "force");
            match method {
                Http::Put => Call::PutRoute { key, force: force()? },
                Http::Patch => Call::PatchRoute { key, force: force()? },
                Http::Delete => Call::DeleteRoute { key },
                Http::Get | Http::Post | Http::Other => Call::GetRoute { key },
            }
        }
    })
}

pub(super) fn upstream(name: &str) -> Result<UpstreamName, Problem> {
    UpstreamName::parse(name)
        .map_err(|error| Problem::new(Code::BadName, error.to_string()).field("upstream"))
}

/// The address of a host, a v6 one with or without brackets.
pub(super) fn address(text: &str) -> Result<IpAddr, Problem> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().map(|ip: IpAddr| ip.to_canonical()).map_err(|_| {
        Problem::new(Code::BadAddress, format!("\"{text}\" is no address of a host")).field("host")
    })
}

/// A server of a path or a batch.
pub(super) fn selector(text: &str) -> Result<ServerSel, Problem> {
    let bad = |detail: String| Problem::new(Code::BadAddress, detail).field("server");
    if let Some(id) = text.strip_prefix("id:") {
        let digits = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        return match id.parse() {
            Ok(id) if digits => Ok(ServerSel::Id(id)),
            _ => Err(bad(format!("\"{text}\" is no id of a server"))),
        };
    }
    ServerAddr::parse(text)
        .map(ServerSel::Addr)
        .map_err(|error| bad(format!("\"{text}\": {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::VerbOpts;

    fn name(text: &str) -> UpstreamName {
        UpstreamName::parse(text).unwrap()
    }

    fn sel(text: &str) -> ServerSel {
        ServerSel::Addr(ServerAddr::parse(text).unwrap())
    }

    fn get(path: &str) -> Result<Call, Problem> {
        route(Http::Get, path.as_bytes(), b"", WriteMode::Off).map(|routed| routed.call)
    }

    #[test]
    fn paths_become_calls() {
        let list = Call::ListUpstreams { after: None, limit: 100, servers: false };
        assert_eq!(get("/v1"), Ok(Call::Root));
        assert_eq!(get("/v1/"), Ok(Call::Root));
        assert_eq!(get("/v1/zones/main/"), Ok(Call::ZoneReport { zone: "main".into() }));
        assert_eq!(get("/v1/upstreams"), Ok(list.clone()));
        assert_eq!(get("//v1//upstreams/"), Ok(list));
        assert_eq!(get("/v1/upstreams/APP"), Ok(Call::GetUpstream { upstream: name("app") }));
        let table = [
            ("10.0.0.1:8080", sel("10.0.0.1:8080")),
            ("unix:%2Frun%2Fa.sock", sel("unix:/run/a.sock")),
            ("%5B::1%5D:8080", sel("[::1]:8080")),
            ("[::1]:8080/", sel("[::1]:8080")),
            ("id:7", ServerSel::Id(7)),
        ];
        for (server, sel) in table {
            let call = get(&format!("/v1/upstreams/app/servers/{server}"));
            assert_eq!(call, Ok(Call::GetServer { upstream: name("app"), sel }));
        }
    }

    #[test]
    fn every_path_has_the_methods_of_the_list() {
        for (path, allow) in openapi::PATHS {
            let path = path
                .replace("{server}", "10.0.0.1:8080")
                .replace("{zone}", "main")
                .replace("{ip}", "10.0.0.1")
                .replace("{source}", "dc1:web")
                .replace("{key}", "acme")
                .replace("{upstream}", "app");
            for method in [Http::Get, Http::Put, Http::Patch, Http::Delete, Http::Post] {
                let routed = route(method, path.as_bytes(), b"", WriteMode::On);
                if allow.contains(method.as_str()) {
                    assert!(routed.is_ok(), "{method:?} {path}: {routed:?}");
                } else {
                    let problem = routed.unwrap_err();
                    assert_eq!(problem.code, Code::MethodNotAllowed, "{method:?} {path}");
                    assert_eq!(problem.allow, Some(*allow), "{method:?} {path}");
                }
            }
        }
    }

    #[test]
    fn routes_are_called_by_key_and_in_pages() {
        let key = |text: &str| crate::route::RouteKey::parse(text).unwrap();
        let call = |method, path: &str, query: &str| {
            route(method, path.as_bytes(), query.as_bytes(), WriteMode::On).map(|r| r.call)
        };
        let list = Call::ListRoutes { upstream: None, after: None, limit: 100 };
        assert_eq!(get("/v1/routes"), Ok(list));
        assert_eq!(
            call(Http::Get, "/v1/routes", "upstream=APP&after=Acme&limit=5"),
            Ok(Call::ListRoutes {
                upstream: Some(name("app")),
                after: Some(key("Acme")),
                limit: 5
            })
        );
        assert_eq!(get("/v1/routes/a%2Fb%20c"), Ok(Call::GetRoute { key: key("a/b c") }));
        let put = Call::PutRoute { key: key("acme"), force: true };
        assert_eq!(call(Http::Put, "/v1/routes/acme", "force=1"), Ok(put));
        let delete = Call::DeleteRoute { key: key("acme") };
        assert_eq!(call(Http::Delete, "/v1/routes/acme", ""), Ok(delete));
        let many = Call::PutRoutes { force: false };
        assert_eq!(call(Http::Post, "/v1/routes", ""), Ok(many));
        let long = format!("/v1/routes/{}", "x".repeat(256));
        let table = [
            (call(Http::Get, &long, ""), Code::BadValue, Some("key")),
            (call(Http::Get, "/v1/routes", "upstream=a+b"), Code::BadParameter, Some("upstream")),
            (call(Http::Get, "/v1/routes", "after="), Code::BadParameter, Some("after")),
            (call(Http::Delete, "/v1/routes/a", "force=1"), Code::BadParameter, Some("force")),
            (call(Http::Get, "/v1/routes/a/b", ""), Code::PathNotFound, None),
        ];
        for (got, code, field) in table {
            let problem = got.unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (code, field));
        }
        let held = route(Http::Put, b"/v1/routes/acme", b"", WriteMode::Operate).unwrap_err();
        assert_eq!(held.code, Code::NotPermitted);
    }

    #[test]
    fn a_verb_takes_its_options() {
        let query = b"wait=30s&ttl=15m&close=5m&min_up=1&reason=deploy-812&if_reason=a+b&zone=main";
        let path = b"/v1/upstreams/app/servers/10.0.0.1:8080/down";
        let routed = route(Http::Post, path, query, WriteMode::Operate).unwrap();
        assert_eq!(routed.zone.as_deref(), Some("main"));
        let opts = VerbOpts {
            wait: Some(30_000),
            ttl: Some(900_000),
            close: Some(300_000),
            reason: Some("deploy-812".into()),
            min_up: Some(1),
            if_reason: Some("a b".into()),
        };
        let (upstream, sel) = (name("app"), sel("10.0.0.1:8080"));
        assert_eq!(routed.call, Call::Verb { upstream, sel, verb: AdminState::Down, opts });
    }

    #[test]
    fn an_outside_verdict_is_an_operators_too() {
        let path = b"/v1/upstreams/app/servers/id:7/unhealthy";
        let routed = route(Http::Post, path, b"ttl=30s&zone=main", WriteMode::Operate).unwrap();
        let saying =
            opinion::Saying { opinion: Opinion::Unhealthy, ttl: Some(30_000), reason: None };
        let sel = ServerSel::Id(7);
        assert_eq!(routed.call, Call::Opine { upstream: name("app"), sel, saying });
        assert!(routed.call.is_write() && routed.call.can_be_dry());
        let looked = get("/v1/upstreams/app/servers/id:7/check").unwrap();
        assert!(!looked.is_write() && looked.upstream() == Some(&name("app")));
    }

    #[test]
    fn refusals_come_in_their_order() {
        use Http::{Delete, Get, Other, Patch, Post, Put};
        use WriteMode::{Off, On, Operate};
        let table = [
            (Get, "", "", On, Code::PathNotFound, None),
            (Get, "/", "", On, Code::PathNotFound, None),
            (Get, "/v2/upstreams", "", On, Code::PathNotFound, None),
            (Get, "v1", "", On, Code::PathNotFound, None),
            (Get, "/v1/hosts", "", On, Code::PathNotFound, None),
            (Post, "/v1/hosts/10.0.0.1/kick", "", On, Code::PathNotFound, None),
            (Get, "/v1/hosts/app", "", On, Code::BadAddress, None),
            (Get, "/v1/hosts/10.0.0.1:80", "", On, Code::BadAddress, None),
            (Post, "/v1/hosts/x/down", "", Off, Code::MethodNotAllowed, Some("")),
            (Post, "/v1/hosts/10.0.0.1/down", "missing=no", On, Code::BadParameter, None),
            (Get, "/v1/batch", "", On, Code::MethodNotAllowed, Some("POST")),
            (Get, "/v1/zones/main/import", "", On, Code::MethodNotAllowed, Some("PUT")),
            (Put, "/v1/zones/main/import", "", Operate, Code::NotPermitted, None),
            (Put, "/v1/zones/main/import", "prune=all", On, Code::BadParameter, None),
            (Put, "/v1/zones/main/export", "", On, Code::MethodNotAllowed, Some("GET, HEAD")),
            (Get, "/v1/upstreams/app", "dry_run=1", On, Code::BadParameter, None),
            (Delete, "/v1/upstreams/app", "dry_run=yes", On, Code::BadParameter, None),
            (Post, "/v1/zones/main/flush", "dry_run=1", On, Code::BadParameter, None),
            (Get, "/v1/servers", "state=on", On, Code::BadParameter, None),
            (Get, "/v1/servers", "after=a%2Fb", On, Code::BadParameter, None),
            (Get, "/v1/ready", "require=a,,b", On, Code::BadParameter, None),
            (Get, "/v1/upstreams/app/servers", "", On, Code::PathNotFound, None),
            (Post, "/v1/upstreams/app/servers/x/kick", "", Off, Code::PathNotFound, None),
            (Get, "/v1/upstreams/%00", "", On, Code::BadPath, None),
            (Get, "/v1/upstreams/%zz", "", On, Code::BadPath, None),
            (Get, "/v1/upstreams/..", "", On, Code::BadPath, None),
            (Get, "/v1/upstreams/%2e%2e", "", On, Code::BadPath, None),
            (Get, "/v1/upstreams/a%0ab", "", On, Code::BadPath, None),
            (Post, "/v1/upstreams/a/servers/unix:%2F..%2F..%2Fb/down", "", On, Code::BadPath, None),
            (Put, "/v1/upstreams/a/servers/unix:%2Frun%2F%2e%2Fb", "", On, Code::BadPath, None),
            (
                Post,
                "/v1/upstreams/app",
                "",
                Off,
                Code::MethodNotAllowed,
                Some("GET, HEAD, PUT, PATCH, DELETE"),
            ),
            (
                Other,
                "/v1/upstreams/a%2Fb",
                "",
                Off,
                Code::MethodNotAllowed,
                Some("GET, HEAD, PUT, PATCH, DELETE"),
            ),
            (Get, "/v1/upstreams/app/servers/x/down", "", On, Code::MethodNotAllowed, Some("POST")),
            (Put, "/v1/upstreams", "", On, Code::MethodNotAllowed, Some("GET, HEAD")),
            (Put, "/v1/upstreams/a%2Fb", "", Off, Code::MethodNotAllowed, Some("GET, HEAD")),
            (Post, "/v1/upstreams/app/servers/x y/down", "", Off, Code::MethodNotAllowed, Some("")),
            (Post, "/v1/upstreams/a/servers/x/healthy", "", Off, Code::MethodNotAllowed, Some("")),
            (
                Get,
                "/v1/upstreams/a/servers/x/unhealthy",
                "",
                On,
                Code::MethodNotAllowed,
                Some("POST"),
            ),
            (Post, "/v1/upstreams/a/servers/x/unhealthy", "ttl=5x", On, Code::BadValue, None),
            (Post, "/v1/upstreams/a/servers/x/healthy", "wait=5s", On, Code::BadParameter, None),
            (Post, "/v1/zones/main/flush", "", Operate, Code::NotPermitted, None),
            (Post, "/v1/sources/consul/dc1:web/apply", "", Operate, Code::NotPermitted, None),
            (Post, "/v1/sources/consul/dc1:web/apply", "dry_run=1", On, Code::BadParameter, None),
            (Post, "/v1/sources/consul/dc1:web/undo", "", On, Code::PathNotFound, None),
            (Get, "/v1/sources/redis/routes", "", On, Code::PathNotFound, None),
            (Put, "/v1/upstreams/app", "", Operate, Code::NotPermitted, None),
            (Delete, "/v1/upstreams/app/servers/x", "", Operate, Code::NotPermitted, None),
            (Patch, "/v1/upstreams/app", "", Operate, Code::NotPermitted, None),
            (Get, "/v1/upstreams/a%2Fb", "", On, Code::BadName, None),
            (Get, "/v1/upstreams/app/servers/a%20b", "", On, Code::BadAddress, None),
            (Get, "/v1/upstreams/app/servers/id:x", "", On, Code::BadAddress, None),
            (Get, "/v1/upstreams/app/servers/id:+7", "", On, Code::BadAddress, None),
            (Get, "/v1/upstreams", "limit=0", On, Code::BadParameter, None),
            (Get, "/v1/upstreams", "limit=1001", On, Code::BadParameter, None),
            (Get, "/v1/upstreams", "fields=x", On, Code::BadParameter, None),
            (Get, "/v1/upstreams", "after=a%2Fb", On, Code::BadParameter, None),
            (Get, "/v1/upstreams/app", "x=1", On, Code::BadParameter, None),
            (Get, "/v1/", "zone=main", On, Code::BadParameter, None),
            (Get, "/v1/zones/main", "zone=other", On, Code::BadParameter, None),
            (Delete, "/v1/upstreams/app", "force=yes", On, Code::BadParameter, None),
            (Post, "/v1/upstreams/app/servers/x/down", "wiat=30s", On, Code::BadParameter, None),
            (Post, "/v1/upstreams/app/servers/x/down", "close=5x", On, Code::BadValue, None),
            (Post, "/v1/upstreams/app/servers/x/down", "wait=2h", On, Code::BadValue, None),
            (
                Post,
                "/v1/upstreams/app/servers/x/down",
                "wait=1s&wait=2s",
                On,
                Code::BadParameter,
                None,
            ),
            (Post, "/v1/upstreams/app/servers/x/down", "min_up=-1", On, Code::BadValue, None),
            (
                Post,
                "/v1/upstreams/app/servers/x/down",
                "reason=a%0Ab",
                On,
                Code::BadParameter,
                None,
            ),
        ];
        for (method, path, query, mode, code, allow) in table {
            let problem = route(method, path.as_bytes(), query.as_bytes(), mode).unwrap_err();
            assert_eq!((problem.code, problem.allow), (code, allow), "{method:?} {path}?{query}");
        }
    }
}
