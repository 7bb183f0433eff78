//! What a server is doing and why, from what is declared, wanted and shown.

use serde::Serialize;

use crate::addr::ServerAddr;
use crate::check::bar::Bar;
use crate::counters::Counters;
use crate::server::{Admin, AdminState, Limits, Server};

/// The `state` of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It takes requests, or would when its turn comes.
    Up,
    /// It takes only what is bound to it.
    Draining,
    /// It is taken down.
    Down,
    /// It takes none for now.
    Unavail,
    /// Its first check is not over.
    Checking,
    /// Its check failed.
    Unhealthy,
}

impl State {
    /// Every state, in the order of listings.
    pub const ALL: [Self; 6] =
        [Self::Up, Self::Draining, Self::Down, Self::Unavail, Self::Checking, Self::Unhealthy];

    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Down => "down",
            Self::Unavail => "unavail",
            Self::Checking => "checking",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// The `code` of `why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyCode {
    /// An operator or the configuration took it down.
    DownBy,
    /// Its host is taken down.
    HostDownBy,
    /// It is set to drain.
    Draining,
    /// Its weight is 0.
    WeightZero,
    /// A backup while primaries are eligible.
    BackupIdle,
    /// As many requests as it may have.
    MaxConns,
    /// It failed too often of late.
    MaxFails,
    /// Its check failed.
    CheckFailed,
    /// Its first check is not over.
    Checking,
    /// It is ejected as an outlier.
    Ejected,
    /// It is ramping up.
    SlowStart,
    /// A source has dropped it and is not yet believed.
    Held,
    /// Its name has no address.
    NotResolved,
    /// An outside checker says so.
    External,
    /// Its source says that its checks fail.
    SourceDown,
}

/// Why a server is in its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// For tools.
    pub code: WhyCode,
    /// For people.
    pub text: String,
}

/// What health and load show of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `max_fails` was reached and `fail_timeout` is not over.
    pub failed: bool,
    /// `max_conns` requests are in flight.
    pub full: bool,
    /// A name without an address.
    pub unresolved: bool,
    /// A backup, while a primary is eligible.
    pub backup_idle: bool,
    /// It ramps up by `slow_start`.
    pub ramping: bool,
    /// Its health bars it from new requests.
    pub bar: Option<Bar>,
}

/// All that is live of a server, as a listing shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// What decides its state.
    pub facts: Facts,
    /// What was counted, requests in flight among it.
    pub counters: Counters,
}

/// Tells whether a server takes a new request that is not bound to it.
///
/// An idle backup does not count as out: it would take the request if its turn came.
pub fn eligible(admin: AdminState, limits: &Limits, facts: &Facts) -> bool {
    let Facts { failed, full, unresolved, backup_idle: _, ramping: _, bar } = *facts;
    let open = admin == AdminState::Up && limits.weight > 0;
    open && !failed && !full && !unresolved && bar.is_none()
}

/// The first of the facts that decide, in the order of the contract; `host` is what is wanted of
/// the server's machine.
pub fn reason(
    admin: AdminState,
    host: AdminState,
    limits: &Limits,
    facts: &Facts,
) -> Option<WhyCode> {
    match (admin, host) {
        (AdminState::Down, _) => return Some(WhyCode::DownBy),
        (_, AdminState::Down) => return Some(WhyCode::HostDownBy),
        (AdminState::Drain, _) | (_, AdminState::Drain) => return Some(WhyCode::Draining),
        (AdminState::Up, AdminState::Up) => {}
    }
    let barred = |code| facts.bar.is_some_and(|bar| why_barred(bar) == code);
    let order = [
        (barred(WhyCode::Checking), WhyCode::Checking),
        (barred(WhyCode::CheckFailed), WhyCode::CheckFailed),
        (barred(WhyCode::External), WhyCode::External),
        (barred(WhyCode::SourceDown), WhyCode::SourceDown),
        (facts.failed, WhyCode::MaxFails),
        (barred(WhyCode::Ejected), WhyCode::Ejected),
        (facts.full, WhyCode::MaxConns),
        (facts.unresolved, WhyCode::NotResolved),
        (limits.weight == 0, WhyCode::WeightZero),
        (facts.backup_idle, WhyCode::BackupIdle),
        (facts.ramping, WhyCode::SlowStart),
    ];
    order.into_iter().find_map(|(holds, code)| holds.then_some(code))
}

/// The code of what bars a server by its health.
const fn why_barred(bar: Bar) -> WhyCode {
    match bar {
        Bar::Checking => WhyCode::Checking,
        Bar::Failed(_) => WhyCode::CheckFailed,
        Bar::External => WhyCode::External,
        Bar::Source => WhyCode::SourceDown,
        Bar::Ejected => WhyCode::Ejected,
    }
}

/// The state that a reason gives.
pub fn state(reason: Option<WhyCode>) -> State {
    let Some(code) = reason else { return State::Up };
    match code {
        WhyCode::HostDownBy | WhyCode::DownBy => State::Down,
        WhyCode::Draining => State::Draining,
        WhyCode::Checking => State::Checking,
        WhyCode::CheckFailed | WhyCode::External | WhyCode::SourceDown => State::Unhealthy,
        WhyCode::MaxFails | WhyCode::Ejected | WhyCode::MaxConns | WhyCode::NotResolved => {
            State::Unavail
        }
        WhyCode::WeightZero | WhyCode::BackupIdle | WhyCode::SlowStart | WhyCode::Held => State::Up,
    }
}

/// The state that health alone gives: what a server would do if nobody wanted anything of it.
pub fn of_health(bar: Option<Bar>) -> State {
    state(bar.map(why_barred))
}

/// State and reason of a server, the reason with its text; `host` is what stands on its machine.
pub fn verdict(
    server: &Server,
    host: Option<&Admin>,
    limits: &Limits,
    facts: &Facts,
) -> (State, Option<Why>) {
    let admin = &server.admin;
    let of_host = host.map_or(AdminState::Up, |host| host.state);
    let held = server.source.is_some_and(|said| said.held).then_some(WhyCode::Held);
    let code = reason(server.wanted(), of_host, limits, facts).or(held);
    let why = code.map(|code| {
        let text = match (code, host) {
            (WhyCode::HostDownBy, Some(host)) => actor("host taken down", host),
            (WhyCode::Draining, Some(host))
                if admin.state == AdminState::Up && host.state == AdminState::Drain =>
            {
                actor("host set to drain", host)
            }
            (WhyCode::Draining, _) if admin.state == AdminState::Up => {
                let vanished = server.is_vanished();
                if vanished { "its source dropped it" } else { "in maintenance, says its source" }
                    .to_owned()
            }
            (WhyCode::CheckFailed, _) => check_failed(facts),
            _ => text(code, &server.addr, admin, limits),
        };
        Why { code, text }
    });
    (state(code), why)
}

fn text(code: WhyCode, addr: &ServerAddr, admin: &Admin, limits: &Limits) -> String {
    match code {
        WhyCode::DownBy if admin.is_config() => "down in the configuration".to_owned(),
        WhyCode::Draining if admin.is_config() => "drain in the configuration".to_owned(),
        WhyCode::DownBy => actor("taken down", admin),
        WhyCode::Draining => actor("set to drain", admin),
        WhyCode::WeightZero => "weight is 0".to_owned(),
        WhyCode::BackupIdle => "backup: primaries are eligible".to_owned(),
        WhyCode::MaxConns => format!("max_conns={} reached", limits.max_conns),
        WhyCode::MaxFails => format!(
            "max_fails={} reached, off for fail_timeout={}",
            limits.max_fails, limits.fail_timeout
        ),
        WhyCode::NotResolved => format!("\"{addr}\" has no address"),
        WhyCode::HostDownBy => "its host is taken down".to_owned(),
        WhyCode::CheckFailed => "its check failed".to_owned(),
        WhyCode::Checking => "its first check is not over".to_owned(),
        WhyCode::Ejected => "ejected as an outlier".to_owned(),
        WhyCode::SlowStart => format!("ramping up over slow_start={}", limits.slow_start),
        WhyCode::Held => "kept though its source dropped it".to_owned(),
        WhyCode::External => "an outside checker says so".to_owned(),
        WhyCode::SourceDown => "its checks fail, says its source".to_owned(),
    }
}

fn check_failed(facts: &Facts) -> String {
    match facts.bar {
        Some(Bar::Failed(Some(reason))) => format!("its check failed: {reason}"),
        _ => "its check failed".to_owned(),
    }
}

fn actor(what: &str, admin: &Admin) -> String {
    let mut text = what.to_owned();
    if !admin.by.is_empty() {
        text.push_str(" by ");
        text.push_str(&admin.by);
    }
    if !admin.reason.is_empty() {
        text.push_str(": ");
        text.push_str(&admin.reason);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::reason::Reason;
    use crate::server::{Origin, Params};

    fn server(admin: Admin) -> Server {
        Server {
            id: 7,
            addr: ServerAddr::parse("10.0.0.1:8080").unwrap(),
            given: None,
            origin: Origin::Api,
            params: Params::default(),
            admin,
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        }
    }

    #[test]
    fn the_first_fact_of_the_order_decides() {
        let all = Facts {
            failed: true,
            full: true,
            unresolved: true,
            backup_idle: true,
            ramping: true,
            bar: None,
        };
        let with = |bar| Facts { bar: Some(bar), ..all };
        let ejected = Facts { failed: false, ..with(Bar::Ejected) };
        let zero = Limits { weight: 0, ..Limits::BUILT_IN };
        let one = Limits::BUILT_IN;
        let none = Facts::default();
        let table = [
            (AdminState::Down, zero, all, State::Down, Some(WhyCode::DownBy)),
            (AdminState::Drain, zero, all, State::Draining, Some(WhyCode::Draining)),
            (
                AdminState::Drain,
                zero,
                with(Bar::Checking),
                State::Draining,
                Some(WhyCode::Draining),
            ),
            (AdminState::Up, zero, with(Bar::Checking), State::Checking, Some(WhyCode::Checking)),
            (
                AdminState::Up,
                zero,
                with(Bar::Failed(None)),
                State::Unhealthy,
                Some(WhyCode::CheckFailed),
            ),
            (AdminState::Up, zero, with(Bar::External), State::Unhealthy, Some(WhyCode::External)),
            (AdminState::Up, zero, with(Bar::Ejected), State::Unavail, Some(WhyCode::MaxFails)),
            (AdminState::Up, zero, ejected, State::Unavail, Some(WhyCode::Ejected)),
            (AdminState::Up, zero, all, State::Unavail, Some(WhyCode::MaxFails)),
            (
                AdminState::Up,
                zero,
                Facts { failed: false, ..all },
                State::Unavail,
                Some(WhyCode::MaxConns),
            ),
            (
                AdminState::Up,
                zero,
                Facts { unresolved: true, ..none },
                State::Unavail,
                Some(WhyCode::NotResolved),
            ),
            (AdminState::Up, zero, none, State::Up, Some(WhyCode::WeightZero)),
            (
                AdminState::Up,
                one,
                Facts { backup_idle: true, ..none },
                State::Up,
                Some(WhyCode::BackupIdle),
            ),
            (
                AdminState::Up,
                one,
                Facts { ramping: true, ..none },
                State::Up,
                Some(WhyCode::SlowStart),
            ),
            (AdminState::Up, one, none, State::Up, None),
        ];
        for (admin, limits, facts, state, code) in table {
            let server = server(Admin { state: admin, ..Admin::default() });
            let (is, why) = verdict(&server, None, &limits, &facts);
            assert_eq!((is, why.map(|why| why.code)), (state, code), "{admin:?} {facts:?}");
            let idle = matches!(code, Some(WhyCode::BackupIdle | WhyCode::SlowStart));
            let takes = code.is_none() || idle;
            assert_eq!(eligible(admin, &limits, &facts), takes);
        }
    }

    #[test]
    fn a_host_covers_its_servers_and_lifts_nothing() {
        use AdminState::{Down, Drain, Up};
        let table = [
            (Up, Up, State::Up, None),
            (Up, Drain, State::Draining, Some((WhyCode::Draining, "host set to drain by ann: x"))),
            (Up, Down, State::Down, Some((WhyCode::HostDownBy, "host taken down by ann: x"))),
            (Drain, Down, State::Down, Some((WhyCode::HostDownBy, "host taken down by ann: x"))),
            (Drain, Drain, State::Draining, Some((WhyCode::Draining, "set to drain by ci"))),
            (Down, Drain, State::Down, Some((WhyCode::DownBy, "taken down by ci"))),
            (Down, Up, State::Down, Some((WhyCode::DownBy, "taken down by ci"))),
        ];
        for (own, of_host, state, why) in table {
            let server = server(Admin { state: own, by: "ci".into(), ..Admin::default() });
            let (by, reason) = ("ann".into(), "x".into());
            let host = Admin { state: of_host, by, reason, ..Admin::default() };
            let (is, said) = verdict(&server, Some(&host), &Limits::BUILT_IN, &Facts::default());
            let said = said.as_ref().map(|why| (why.code, why.text.as_str()));
            assert_eq!((is, said), (state, why), "{own:?} on {of_host:?}");
        }
    }

    #[test]
    fn the_text_of_a_failed_check_says_how() {
        let (server, limits) = (server(Admin::default()), Limits::BUILT_IN);
        for (bar, text) in [
            (Bar::Failed(Some(Reason::Status(503))), "its check failed: status 503"),
            (Bar::Failed(None), "its check failed"),
            (Bar::Checking, "its first check is not over"),
            (Bar::External, "an outside checker says so"),
            (Bar::Ejected, "ejected as an outlier"),
        ] {
            let facts = Facts { bar: Some(bar), ..Facts::default() };
            let (_, why) = verdict(&server, None, &limits, &facts);
            assert_eq!(why.unwrap().text, text);
            assert!(!eligible(AdminState::Up, &limits, &facts));
        }
    }

    #[test]
    fn the_text_names_actor_and_reason() {
        let table = [
            ("ci", "deploy-812", "taken down by ci: deploy-812"),
            ("ci", "", "taken down by ci"),
            ("", "x", "taken down: x"),
            ("config", "", "down in the configuration"),
        ];
        for (by, reason, text) in table {
            let admin = Admin {
                state: AdminState::Down,
                by: by.into(),
                reason: reason.into(),
                ..Admin::default()
            };
            let (_, why) = verdict(&server(admin), None, &Limits::BUILT_IN, &Facts::default());
            assert_eq!(why.unwrap().text, text);
        }
    }
}
