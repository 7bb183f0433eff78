//! The lines of an import: those of an [export](super::export), or written by hand.
//!
//! The first line and the last may be left out; a text with the first must have the last, so that
//! one that was cut off is refused.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::api::error::{Code, Problem};
use crate::api::export::FORMAT;
use crate::api::model::{self, At, Form, Wrong};
use crate::api::route;
use crate::api::routes;
use crate::body::{AdminBody, End, Field, UpstreamBody, VerbOpts};
use crate::host::HostVerb;
use crate::json::{self, Value};
use crate::name::UpstreamName;
use crate::route::RouteKey;
use crate::route::change::RouteBody;
use crate::server::AdminState;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The first line of an export.
    Header,
    /// Nothing.
    Blank,
    /// A whole upstream.
    Upstream {
        /// Which.
        name: UpstreamName,
        /// What it is.
        body: UpstreamBody,
    },
    /// What stands on a host.
    Host {
        /// Its address.
        ip: IpAddr,
        /// What stands.
        admin: AdminBody,
    },
    /// A whole route.
    Route {
        /// Its key.
        key: RouteKey,
        /// What it is.
        body: RouteBody,
    },
    /// The last line of an export: how many upstreams, servers and routes there were.
    End {
        /// Upstreams.
        upstreams: u64,
        /// Their servers.
        servers: u64,
        /// Routes.
        routes: u64,
    },
}

/// What is to be known of the lines before.
#[derive(Debug, Default)]
pub struct Checker {
    names: HashSet<UpstreamName>,
    hosts: HashSet<IpAddr>,
    keys: HashSet<RouteKey>,
    lines: u64,
    servers: u64,
    begun: bool,
    headed: bool,
    ended: bool,
}

impl Checker {
    /// Reads the next line, and refuses one that does not fit those before; errors name it.
    pub fn line(&mut self, text: &[u8]) -> Result<Line, Problem> {
        self.lines += 1;
        let place = format!("lines[{}]", self.lines);
        line(text)
            .and_then(|line| self.fit(&line).map(|()| line))
            .map_err(|problem| problem.within(&place))
    }

    /// Upstreams that are named.
    pub fn names(&self) -> &HashSet<UpstreamName> {
        &self.names
    }

    /// Routes that are named.
    pub fn keys(&self) -> &HashSet<RouteKey> {
        &self.keys
    }

    /// Tells whether the text may end here.
    pub fn end(&self) -> Result<(), Problem> {
        if !self.begun {
            // With `prune` it would remove everything: a client that lost its file says this.
            let detail = "there is no line; even an empty zone's export has two";
            return Err(Problem::new(Code::BadValue, detail));
        }
        if self.headed && !self.ended {
            let detail = "the last line of the export is missing: it was cut off";
            return Err(Problem::new(Code::BadValue, detail).field("end"));
        }
        Ok(())
    }

    fn fit(&mut self, line: &Line) -> Result<(), Problem> {
        let bad = |detail: &str| Err(Problem::new(Code::BadValue, detail));
        if *line == Line::Blank {
            return Ok(());
        }
        if self.ended {
            return bad("there is something after the last line of the export");
        }
        match line {
            Line::Header if self.begun => return bad("the first line of an export is not first"),
            Line::Header => self.headed = true,
            Line::Upstream { name, body } => {
                self.servers += body.servers.as_ref().map_or(0, Vec::len) as u64;
                if !self.names.insert(name.clone()) {
                    return bad(&format!("upstream \"{name}\" comes twice"));
                }
            }
            Line::Host { ip, .. } => {
                if !self.hosts.insert(*ip) {
                    return bad(&format!("host {ip} comes twice"));
                }
            }
            Line::Route { key, .. } => {
                if !self.keys.insert(key.clone()) {
                    return bad(&format!("route \"{key}\" comes twice"));
                }
            }
            Line::End { routes, .. } if *routes != self.keys.len() as u64 => {
                let have = self.keys.len();
                return bad(&format!("{have} routes where {routes} were written"));
            }
            Line::End { upstreams, servers, .. } => {
                let have = (self.names.len() as u64, self.servers);
                if have != (*upstreams, *servers) {
                    return bad(&format!(
                        "{} upstreams and {} servers where {upstreams} and {servers} were written",
                        have.0, have.1
                    ));
                }
                self.ended = true;
            }
            Line::Blank => {}
        }
        self.begun = true;
        Ok(())
    }
}

/// Reads one line, as one that follows no other.
pub fn line(text: &[u8]) -> Result<Line, Problem> {
    if text.trim_ascii().is_empty() {
        return Ok(Line::Blank);
    }
    let Value::Obj(mut entries) = json::parse(text)? else {
        return Err(Problem::new(Code::BadValue, "a line must be an object"));
    };
    let at = At("");
    if let Some(key) = model::take(&mut entries, "route") {
        let key = model::text(&key).map_err(|wrong| at.bad("route", &wrong))?;
        let key = routes::key(key).map_err(|problem| problem.field("route"))?;
        let body = routes::route_body(&at, &Value::Obj(entries))?;
        return Ok(Line::Route { key, body });
    }
    if let Some(name) = model::take(&mut entries, "upstream") {
        let name = model::text(&name).map_err(|wrong| at.bad("upstream", &wrong))?;
        let name = route::upstream(name)?;
        return Ok(Line::Upstream { name, body: upstream(&Value::Obj(entries))? });
    }
    if let Some(host) = model::take(&mut entries, "host") {
        let host = model::text(&host).map_err(|wrong| at.bad("host", &wrong))?;
        let ip = route::address(host)?;
        let admin = model::take(&mut entries, "admin").unwrap_or(Value::Obj(Vec::new()));
        only(&entries)?;
        return Ok(Line::Host { ip, admin: model::admin(&at, &admin, Form::Put)? });
    }
    if let Some(end) = model::take(&mut entries, "end") {
        let servers = model::take(&mut entries, "servers").unwrap_or(Value::Int(-1));
        let routes = model::take(&mut entries, "routes").unwrap_or(Value::Int(0));
        only(&entries)?;
        return Ok(Line::End {
            upstreams: count("end", &end)?,
            servers: count("servers", &servers)?,
            routes: count("routes", &routes)?,
        });
    }
    if let Some(format) = model::take(&mut entries, "format") {
        let format = count("format", &format)?;
        if format > u64::from(FORMAT) {
            let detail = format!("format {format} is later than {FORMAT}");
            return Err(Problem::new(Code::BadValue, detail).field("format"));
        }
        return Ok(Line::Header);
    }
    Err(at.bad("upstream", &Wrong("is missing".to_owned())))
}

/// An upstream stated to the last: what a line leaves out of admin is up.
fn upstream(body: &Value) -> Result<UpstreamBody, Problem> {
    let mut body = model::upstream_body(body, Form::Put)?;
    for server in body.servers.get_or_insert_default() {
        if server.admin.is_absent() {
            server.admin = Field::Default;
        }
    }
    Ok(body)
}

/// The verb that makes a host what a line says; `None` = its time is over.
pub fn host_verb(ip: IpAddr, admin: &AdminBody, now: u64) -> Option<HostVerb> {
    let ttl = match admin.end {
        End::Never => None,
        End::After(ms) => Some(ms),
        End::At(at) => Some(at.checked_sub(now).filter(|&ms| ms > 0)?),
    };
    let close = match admin.close {
        End::Never => None,
        End::After(ms) => Some(ms),
        // What is past has been closed.
        End::At(at) => at.checked_sub(now),
    };
    let reason = Some(admin.reason.clone());
    let opts = VerbOpts { ttl, close, reason, ..VerbOpts::default() };
    let verb = admin.state.unwrap_or(AdminState::Up);
    Some(HostVerb { ip, verb, opts, missing_ok: true })
}

fn only(entries: &[(String, Value)]) -> Result<(), Problem> {
    match entries.first() {
        Some((key, _)) => Err(At("").unknown(key)),
        None => Ok(()),
    }
}

fn count(name: &str, value: &Value) -> Result<u64, Problem> {
    match value {
        Value::Int(number) if *number >= 0 => Ok(number.unsigned_abs()),
        _ => Err(At("").bad(name, &Wrong("must be a whole number".to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::export;
    use crate::change::{Actor, Applied, Change, Context, apply};
    use crate::route::change::{RouteApplied, RouteChange, RouteContext};
    use crate::route::{Route, Status};
    use crate::server::{Admin, Origin};
    use crate::upstream::{Defaults, Upstream};

    fn put(name: &str, body: UpstreamBody) -> Upstream {
        let mut id = 0;
        let mut fresh = || {
            id += 1;
            id
        };
        let mut context = Context {
            now: 5_000,
            actor: Actor::new("ann", "10.1.1.1"),
            fresh_id: &mut fresh,
            eligible: &|_| true,
            origin: Origin::Api,
            named_by_block: false,
            keyed: Defaults { weight: Some(77), ..Defaults::default() },
            resolves: true,
        };
        let name = UpstreamName::parse(name).unwrap();
        match apply(None, &name, &Change::PutUpstream { body }, &mut context) {
            Ok(Applied::Set(upstream)) => upstream,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_exported_is_imported_with_the_same_digest() {
        let body = r#"{"upstream":"app","defaults":{"max_fails":3},"servers":[
            {"server":"10.0.0.1"},{"server":"[::1]:80","weight":4,"backup":true,"route":"r",
             "labels":{"rack":"a"},"admin":{"state":"down","reason":"disk"}},
            {"server":"unix:/run/a","admin":{"state":"up","reason":"back"}},
            {"server":"App.Example:8080"}]}"#;
        let Line::Upstream { body, .. } = line(body.replace('\n', " ").as_bytes()).unwrap() else {
            panic!("an upstream");
        };
        let before = put("app", body);
        let mut text = Vec::new();
        export::header(&mut text, "main", 9);
        let down = Admin { state: AdminState::Down, reason: "x".into(), ..Admin::default() };
        export::host(&mut text, "10.0.0.9".parse().unwrap(), &down);
        export::upstream(&mut text, &before);
        let route = Route {
            status: Status::Suspended,
            reason: "unpaid".into(),
            labels: [("tier".to_owned(), "a".to_owned())].into(),
            ..Route::new(RouteKey::parse("acme").unwrap(), UpstreamName::parse("app").unwrap())
        };
        export::route(&mut text, &route);
        export::end(&mut text, 1, 4, 1);
        let mut checker = Checker::default();
        let lines: Vec<Line> =
            text.split_inclusive(|&b| b == b'\n').map(|text| checker.line(text).unwrap()).collect();
        checker.end().unwrap();
        let [
            Line::Header,
            Line::Host { admin, .. },
            Line::Upstream { name, body },
            Line::Route { key, body: stated },
            Line::End { .. },
        ] = &lines[..]
        else {
            panic!("{lines:?}");
        };
        assert_eq!((admin.state, admin.reason.as_str()), (Some(AdminState::Down), "x"));
        assert_eq!(name.as_str(), "app");
        assert_eq!(put("app", body.clone()).digest(), before.digest());
        let change = RouteChange::Put { body: stated.clone(), force: false };
        let context = RouteContext { now: 1, origin: Origin::Api, knows: &|_| true };
        let again = crate::route::change::apply(None, key, &change, &context);
        assert_eq!(again, Ok(RouteApplied::Set(route)));
    }

    #[test]
    fn a_line_that_does_not_fit_is_named() {
        let table: [(&[&str], &str); 15] = [
            (&["{\"route\":\"a\",\"upstream\":\"b\"}", "{\"route\":\"a\"}"], "lines[2]"),
            (&["{\"route\":\"\"}"], "lines[1].route"),
            (&["{\"route\":\"a\",\"upstream\":\"b c\"}"], "lines[1].upstream"),
            (&["{\"end\":0,\"servers\":0,\"routes\":1}"], "lines[1]"),
            (&["x"], "lines[1]"),
            (&["{\"upstream\":\"a\"}", "{\"upstream\":\"A\"}"], "lines[2]"),
            (&["{\"upstream\":\"a\",\"x\":1}"], "lines[1].x"),
            (&["", "{\"upstream\":\"a\",\"servers\":[{}]}"], "lines[2].servers[0].server"),
            (&["{\"upstream\":\"a\"}", "{\"format\":1}"], "lines[2]"),
            (&["{\"format\":2}"], "lines[1].format"),
            (&["{\"format\":1}", "{\"end\":1,\"servers\":0}"], "lines[2]"),
            (&["{\"end\":0,\"servers\":0}", "{\"upstream\":\"a\"}"], "lines[2]"),
            (&["{\"host\":\"a\"}"], "lines[1].host"),
            (&["{\"host\":\"1.1.1.1\",\"x\":1}"], "lines[1].x"),
            (&["{}"], "lines[1].upstream"),
        ];
        for (lines, field) in table {
            let mut checker = Checker::default();
            let problem = lines.iter().find_map(|line| checker.line(line.as_bytes()).err());
            assert_eq!(problem.unwrap().field.as_deref(), Some(field), "{lines:?}");
        }
        let mut checker = Checker::default();
        checker.line(b" ").unwrap();
        assert!(checker.end().is_err());
        checker.line(b"{\"format\":1}").unwrap();
        assert!(checker.end().is_err());
    }

    #[test]
    fn a_host_whose_time_is_over_is_left_out() {
        let ip = "10.0.0.1".parse().unwrap();
        let admin = AdminBody {
            state: Some(AdminState::Down),
            end: End::At(9_000),
            close: End::At(8_500),
            ..AdminBody::default()
        };
        let opts = host_verb(ip, &admin, 8_000).unwrap().opts;
        assert_eq!((opts.ttl, opts.close), (Some(1_000), Some(500)));
        assert_eq!(host_verb(ip, &admin, 9_000), None);
    }
}
