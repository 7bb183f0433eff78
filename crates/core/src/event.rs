//! Events: what changed, from what to what, and who did it.
//!
//! An event is about one thing. A change of a whole upstream gives one event for the upstream and
//! one for each server that came, went or became another; an admin state is an event of its own.
//! `from` and `to` are short texts: states, parameters in the words of a server line, or
//! [`ABSENT`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use serde::Serialize;

use crate::addr::ServerAddr;
use crate::change::Actor;
use crate::host::Hosts;
use crate::name::UpstreamName;
use crate::route::{Route, RouteKey, Status};
use crate::server::{Admin, Limits, Server};
use crate::state::State;
use crate::time::iso;
use crate::upstream::Upstream;

/// What is not there.
pub const ABSENT: &str = "absent";

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The operator's will for a server.
    Admin,
    /// A server and its parameters.
    Server,
    /// An upstream and its settings.
    Upstream,
    /// The operator's will for a host.
    Host,
    /// What a check, or traffic, shows of a server.
    Health,
    /// A route.
    Route,
    /// What a source says of a server: the addresses of its name, its standing in a registry.
    Source,
    /// The state file.
    State,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Admin,
        Self::Server,
        Self::Upstream,
        Self::Host,
        Self::Health,
        Self::Route,
        Self::Source,
        Self::State,
    ];

    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Server => "server",
            Self::Upstream => "upstream",
            Self::Host => "host",
            Self::Health => "health",
            Self::Route => "route",
            Self::Source => "source",
            Self::State => "state",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub kind: Kind,
    /// In which upstream.
    pub upstream: Option<UpstreamName>,
    /// Which server.
    pub server: Option<ServerAddr>,
    /// Which host.
    pub host: Option<IpAddr>,
    /// Which route.
    pub route: Option<RouteKey>,
    /// Before.
    pub from: String,
    /// After.
    pub to: String,
    /// Who.
    pub by: String,
    /// From which address.
    pub address: String,
    /// Why.
    pub reason: String,
}

/// The members of an event that do not depend on when it is told.
#[derive(Serialize)]
struct Json<'a> {
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    from: &'a str,
    to: &'a str,
    by: &'a str,
    address: &'a str,
    reason: &'a str,
}

impl Event {
    fn new(kind: Kind, from: String, to: String, actor: &Actor) -> Self {
        Self {
            kind,
            upstream: None,
            server: None,
            host: None,
            route: None,
            from,
            to,
            by: actor.by.clone(),
            address: actor.from.clone(),
            reason: String::new(),
        }
    }

    /// A server's state changed by its health; `by` names who found out.
    pub fn health(
        upstream: &UpstreamName,
        server: &ServerAddr,
        (from, to): (State, State),
        by: &str,
        reason: &str,
    ) -> Self {
        let (from, to) = (from.as_str().to_owned(), to.as_str().to_owned());
        let mut event = Self::new(Kind::Health, from, to, &Actor::new(by, ""));
        event.upstream = Some(upstream.clone());
        event.server = Some(server.clone());
        reason.clone_into(&mut event.reason);
        event
    }

    /// The JSON object, without number, revision and time.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(200);
        let json = Json {
            kind: self.kind,
            upstream: self.upstream.as_ref().map(UpstreamName::as_str),
            server: self.server.as_ref().map(ToString::to_string),
            host: self.host,
            route: self.route.as_ref().map(RouteKey::as_str),
            from: &self.from,
            to: &self.to,
            by: &self.by,
            address: &self.address,
            reason: &self.reason,
        };
        // A vector takes everything, and texts can always be written.
        let _ = serde_json::to_writer(&mut out, &json);
        out
    }
}

/// Writes an event as a stream, a poll and the log show it; `zone` is for the log, where several
/// zones meet.
pub fn write(
    out: &mut Vec<u8>,
    zone: Option<&str>,
    seq: u64,
    revision: u64,
    time: u64,
    json: &[u8],
) {
    out.extend_from_slice(format!("{{\"seq\":{seq},\"revision\":{revision},").as_bytes());
    out.extend_from_slice(format!("\"time\":\"{}\",", iso(time)).as_bytes());
    if let Some(zone) = zone {
        out.extend_from_slice(b"\"zone\":");
        // As above.
        let _ = serde_json::to_writer(&mut *out, zone);
        out.push(b',');
    }
    out.extend_from_slice(json.get(1..).unwrap_or_default());
}

/// The kind that stands in an event's JSON object.
pub fn kind(json: &[u8]) -> &str {
    let rest = json.strip_prefix(b"{\"kind\":\"").unwrap_or_default();
    let word = rest.split(|&b| b == b'"').next().unwrap_or_default();
    std::str::from_utf8(word).unwrap_or_default()
}

/// What a change of an upstream tells.
pub fn of_change(before: Option<&Upstream>, after: Option<&Upstream>, actor: &Actor) -> Vec<Event> {
    let mut events = Vec::new();
    let Some(name) = after.or(before).map(|upstream| &upstream.name) else { return events };
    let mut tell = |kind, server: Option<&Server>, from: String, to: String, reason: &str| {
        let mut event = Event::new(kind, from, to, actor);
        event.upstream = Some(name.clone());
        event.server = server.map(|server| server.addr.clone());
        reason.clone_into(&mut event.reason);
        events.push(event);
    };
    let (from, to) = (before.map_or_else(absent, settings), after.map_or_else(absent, settings));
    if from != to && after.is_some() {
        tell(Kind::Upstream, None, from.clone(), to.clone(), "");
    }
    let kept: HashMap<u64, &Server> = before.iter().flat_map(|u| by_id(u)).collect();
    let stay: HashSet<u64> = after.iter().flat_map(|u| u.servers.iter().map(|s| s.id)).collect();
    if let Some(before) = before {
        for server in before.servers.iter().filter(|server| !stay.contains(&server.id)) {
            let from = parameters(before, server).join(" ");
            tell(Kind::Server, Some(server), from, absent(), "");
        }
    }
    let up = Admin::default();
    for (after, server) in after.iter().flat_map(|u| u.servers.iter().map(move |s| (u, s))) {
        let was = kept.get(&server.id).copied().zip(before);
        match was {
            None => {
                let to = parameters(after, server).join(" ");
                tell(Kind::Server, Some(server), absent(), to, "");
            }
            Some((was, before)) if was.params != server.params => {
                let (from, to) = (parameters(before, was), parameters(after, server));
                let (from, to) = (only(&from, &to), only(&to, &from));
                if from != to {
                    tell(Kind::Server, Some(server), from, to, "");
                }
            }
            Some(_) => {}
        }
        if let Some((was, _)) = was.filter(|(was, _)| server.resolve && was.addrs != server.addrs) {
            let (from, to) = (addresses(was), addresses(server));
            tell(Kind::Source, Some(server), from, to, "");
        }
        if let Some((was, _)) = was.filter(|(was, _)| words(was) != words(server)) {
            tell(Kind::Source, Some(server), words(was), words(server), "");
        }
        let was = was.map_or(&up, |(was, _)| &was.admin);
        if is_told(was, &server.admin) {
            let (from, to) = (was.state.as_str(), server.admin.state.as_str());
            tell(Kind::Admin, Some(server), from.into(), to.into(), &server.admin.reason);
        }
    }
    if from != to && after.is_none() {
        tell(Kind::Upstream, None, from, to, "");
    }
    events
}

/// What a change of hosts tells.
pub fn of_hosts(before: &Hosts, after: &Hosts, actor: &Actor) -> Vec<Event> {
    let hosts = before.iter().chain(after.iter()).map(|(ip, _)| ip);
    let up = Admin::default();
    let mut events = Vec::new();
    for ip in hosts.collect::<BTreeSet<IpAddr>>() {
        let (was, is) = (before.get(ip).unwrap_or(&up), after.get(ip).unwrap_or(&up));
        if is_told(was, is) {
            let (from, to) = (was.state.as_str().to_owned(), is.state.as_str().to_owned());
            let mut event = Event::new(Kind::Host, from, to, actor);
            event.host = Some(ip);
            is.reason.clone_into(&mut event.reason);
            events.push(event);
        }
    }
    events
}

/// What a change of a route tells; `upstream` is the one it leads to, or led to.
pub fn of_route(before: Option<&Route>, after: Option<&Route>, actor: &Actor) -> Option<Event> {
    let route = after.or(before).filter(|_| before != after)?;
    let words = |route: Option<&Route>| route.map_or_else(absent, route_words);
    let mut event = Event::new(Kind::Route, words(before), words(after), actor);
    event.route = Some(route.key.clone());
    event.upstream = Some(route.upstream.clone());
    if let Some(after) = after {
        after.reason.clone_into(&mut event.reason);
    }
    Some(event)
}

/// A route's upstream, and what is not as by default.
fn route_words(route: &Route) -> String {
    let mut text = route.upstream.as_str().to_owned();
    if route.status != Status::Active {
        text = text + " " + route.status.as_str();
    }
    for (key, value) in &route.labels {
        text += &format!(" label={key}:{value}");
    }
    text
}

/// Whether an admin state became another; when and by whom it was set does not count.
fn is_told(was: &Admin, is: &Admin) -> bool {
    (was.state, was.until, was.close, &was.reason) != (is.state, is.until, is.close, &is.reason)
}

fn absent() -> String {
    ABSENT.to_owned()
}

fn by_id(upstream: &Upstream) -> impl Iterator<Item = (u64, &Server)> {
    upstream.servers.iter().map(|server| (server.id, server))
}

/// An upstream's settings, in the words of its directives.
fn settings(upstream: &Upstream) -> String {
    let mut words = vec![upstream.settings.method().as_str().to_owned()];
    words.extend(unusual(&upstream.settings.defaults.limits()));
    let texts = upstream.settings.texts.given();
    words.extend(texts.map(|(name, text)| format!("{name}={text}")));
    words.extend(upstream.settings.check.as_ref().map(|check| format!("check({check})")));
    words.extend(upstream.settings.outlier.map(|outlier| format!("outlier({outlier})")));
    if upstream.orphaned_at.is_some() {
        words.push("orphan".to_owned());
    }
    words.join(" ")
}

/// A server's parameters as they hold, in the words of a server line: its weight, and what is not
/// as built in.
fn parameters(upstream: &Upstream, server: &Server) -> Vec<String> {
    let (limits, params) = (upstream.limits(server), &server.params);
    let mut words = vec![format!("weight={}", limits.weight)];
    words.extend(unusual(&limits).filter(|word| !word.starts_with("weight=")));
    if params.backup {
        words.push("backup".to_owned());
    }
    if !params.route.is_empty() {
        words.push(format!("route={}", params.route));
    }
    words.extend(params.labels.iter().map(|(key, value)| format!("label={key}:{value}")));
    words
}

/// What its source says of a server; [`ABSENT`] where it has none.
fn words(server: &Server) -> String {
    server.source.map_or_else(absent, |said| said.words())
}

/// How many addresses a name has.
fn addresses(server: &Server) -> String {
    format!("addresses={}", server.addrs.len())
}

/// The words that only these have; the weight where they have none.
fn only(these: &[String], those: &[String]) -> String {
    let words: Vec<&str> =
        these.iter().filter(|word| !those.contains(word)).map(String::as_str).collect();
    if words.is_empty() { these.first().cloned().unwrap_or_default() } else { words.join(" ") }
}

fn unusual(limits: &Limits) -> impl Iterator<Item = String> {
    let words = limit_words(limits).into_iter().zip(limit_words(&Limits::BUILT_IN));
    words.filter(|(word, built_in)| word != built_in).map(|(word, _)| word)
}

fn limit_words(limits: &Limits) -> [String; 5] {
    let Limits { weight, max_conns, max_fails, fail_timeout, slow_start } = *limits;
    [
        format!("weight={weight}"),
        format!("max_conns={max_conns}"),
        format!("max_fails={max_fails}"),
        format!("fail_timeout={fail_timeout}"),
        format!("slow_start={slow_start}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{AdminState, Origin, Params};
    use crate::units::Secs;

    fn actor() -> Actor {
        Actor::new("ci", "10.1.1.1")
    }

    fn server(id: u64, params: Params) -> Server {
        Server {
            id,
            addr: ServerAddr::parse(&format!("10.0.0.{id}:80")).unwrap(),
            given: None,
            origin: Origin::Api,
            params,
            admin: Admin::default(),
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        }
    }

    fn app(servers: Vec<Server>) -> Upstream {
        let name = UpstreamName::parse("app").unwrap();
        Upstream { servers, ..Upstream::new(name, Origin::Api) }
    }

    /// `kind server from > to reason` of each event.
    fn told(before: Option<&Upstream>, after: Option<&Upstream>) -> Vec<String> {
        let line = |event: &Event| {
            assert_eq!((event.by.as_str(), event.address.as_str()), ("ci", "10.1.1.1"));
            assert_eq!(event.upstream.as_ref().unwrap().as_str(), "app");
            let server = event.server.as_ref().map(ToString::to_string).unwrap_or_default();
            let Event { kind, from, to, reason, .. } = event;
            format!("{} {server} {from} > {to} {reason}", kind.as_str()).trim().to_owned()
        };
        of_change(before, after, &actor()).iter().map(line).collect()
    }

    #[test]
    fn what_comes_goes_and_changes_is_told() {
        let plain = || server(1, Params::default());
        let heavy = || server(1, Params { weight: Some(5), ..Params::default() });
        let backup = || server(1, Params { backup: true, ..Params::default() });
        let labelled = |value: &str| {
            let labels = [("zone".to_owned(), value.to_owned())].into();
            server(1, Params { labels, ..Params::default() })
        };
        let down = |reason: &str| {
            let admin = Admin {
                state: AdminState::Down,
                since: 7,
                reason: reason.into(),
                ..Admin::default()
            };
            Server { admin, ..plain() }
        };
        let one = |server: Server| Some(app(vec![server]));
        let mut slow = app(vec![]);
        slow.settings.defaults.slow_start = Some(Secs(30));
        let orphan = Upstream { orphaned_at: Some(1), ..app(vec![]) };
        let table: [(Option<Upstream>, Option<Upstream>, &[&str]); 13] = [
            (None, None, &[]),
            (one(plain()), one(plain()), &[]),
            (
                None,
                one(heavy()),
                &["upstream  absent > round_robin", "server 10.0.0.1:80 absent > weight=5"],
            ),
            (
                one(backup()),
                None,
                &["server 10.0.0.1:80 weight=1 backup > absent", "upstream  round_robin > absent"],
            ),
            (one(plain()), one(heavy()), &["server 10.0.0.1:80 weight=1 > weight=5"]),
            (one(heavy()), one(backup()), &["server 10.0.0.1:80 weight=5 > weight=1 backup"]),
            (
                one(labelled("a")),
                one(labelled("b")),
                &["server 10.0.0.1:80 label=zone:a > label=zone:b"],
            ),
            (one(plain()), one(down("disk")), &["admin 10.0.0.1:80 up > down disk"]),
            (one(down("disk")), one(down("fan")), &["admin 10.0.0.1:80 down > down fan"]),
            (one(down("disk")), one(plain()), &["admin 10.0.0.1:80 down > up"]),
            (
                one(plain()),
                one(Server { id: 2, ..down("x") }),
                &[
                    "server 10.0.0.1:80 weight=1 > absent",
                    "server 10.0.0.1:80 absent > weight=1",
                    "admin 10.0.0.1:80 up > down x",
                ],
            ),
            (
                Some(app(vec![])),
                Some(slow),
                &["upstream  round_robin > round_robin slow_start=30s"],
            ),
            (Some(app(vec![])), Some(orphan), &["upstream  round_robin > round_robin orphan"]),
        ];
        for (before, after, expected) in table {
            assert_eq!(told(before.as_ref(), after.as_ref()), expected);
        }
    }

    #[test]
    fn hosts_tell_what_became_of_each() {
        let admin =
            |state, reason: &str| Admin { state, reason: reason.into(), ..Admin::default() };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (mut before, mut after) = (Hosts::default(), Hosts::default());
        before.set(ip("10.0.0.1"), admin(AdminState::Down, "disk"));
        before.set(ip("10.0.0.2"), admin(AdminState::Down, "disk"));
        after.set(ip("10.0.0.2"), admin(AdminState::Down, "disk"));
        after.set(ip("10.0.0.3"), admin(AdminState::Drain, "move"));
        let lines: Vec<String> = of_hosts(&before, &after, &actor())
            .iter()
            .map(|e| format!("{} {} > {} {}", e.host.unwrap(), e.from, e.to, e.reason))
            .collect();
        assert_eq!(lines, ["10.0.0.1 down > up ", "10.0.0.3 up > drain move"]);
    }

    #[test]
    fn a_route_tells_where_it_leads_and_why() {
        let key = RouteKey::parse("acme").unwrap();
        let route = Route::new(key, UpstreamName::parse("orders").unwrap());
        let mut held = Route { status: Status::Suspended, ..route.clone() };
        held.reason = "unpaid".into();
        held.labels.insert("tier".into(), "a".into());
        let line = |before, after| {
            let event = of_route(before, after, &actor())?;
            assert_eq!(event.route.as_ref().unwrap().as_str(), "acme");
            assert_eq!(event.upstream.as_ref().unwrap().as_str(), "orders");
            let json = String::from_utf8(event.to_bytes()).unwrap();
            assert!(json.contains(r#""kind":"route","upstream":"orders","route":"acme","#));
            Some(format!("{} > {} {}", event.from, event.to, event.reason))
        };
        assert_eq!(line(None, Some(&route)).as_deref(), Some("absent > orders "));
        assert_eq!(
            line(Some(&route), Some(&held)).as_deref(),
            Some("orders > orders suspended label=tier:a unpaid")
        );
        assert_eq!(line(Some(&route), None).as_deref(), Some("orders > absent "));
        assert_eq!(line(Some(&held), Some(&held)), None);
    }

    #[test]
    fn an_event_is_shown_with_its_number_first() {
        let mut event = Event::new(Kind::Admin, "up".into(), "down".into(), &actor());
        event.upstream = Some(UpstreamName::parse("app").unwrap());
        event.server = Some(ServerAddr::parse("10.0.0.1:80").unwrap());
        event.reason = "say \"x\"".into();
        let json = event.to_bytes();
        assert_eq!(kind(&json), "admin");
        let text = |zone| {
            let mut out = Vec::new();
            write(&mut out, zone, 9, 4, 1_795_986_307_000, &json);
            String::from_utf8(out).unwrap()
        };
        let tail = r#""kind":"admin","upstream":"app","server":"10.0.0.1:80","from":"up","to":"down","by":"ci","address":"10.1.1.1","reason":"say \"x\""}"#;
        let head = r#"{"seq":9,"revision":4,"time":"2026-11-29T21:05:07Z","#;
        assert_eq!(text(None), format!("{head}{tail}"));
        assert_eq!(text(Some("main")), format!("{head}\"zone\":\"main\",{tail}"));
        assert_eq!(Kind::ALL.map(Kind::as_str).len(), 8);
    }
}
