//! What a write of this interface is as changes of ours, against the upstream as it stands.
//!
//! `down` and `drain` are flags there and one state here, and what already holds is no change: not
//! its reason either. So the changes depend on what is there, and who puts them in force makes sure
//! that it still is.

use crate::body::{AdminBody, Field, LimitsBody, ServerBody, VerbOpts};
use crate::change::Change;
use crate::plus::body::Body;
use crate::plus::error::{Code, Fault};
use crate::server::{AdminState, Server};
use crate::upstream::{ServerSel, Upstream};

/// A write to the servers of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// `POST …/servers`
    Add(Body),
    /// `PATCH …/servers/{id}`
    Patch(u64, Body),
    /// `DELETE …/servers/{id}`
    Remove(u64),
}

impl Write {
    /// The server it is about.
    pub fn server(&self) -> Option<ServerSel> {
        match self {
            Self::Add(body) => body.server.clone().map(ServerSel::Addr),
            Self::Patch(id, _) | Self::Remove(id) => Some(ServerSel::Id(*id)),
        }
    }

    /// The changes, at least one; one that changes nothing where nothing is to be changed.
    pub fn changes(&self, now: &Upstream) -> Result<Vec<Change>, Fault> {
        match self {
            Self::Add(body) => add(now, body).map(|change| vec![change]),
            Self::Patch(id, body) => patch(now, find(now, *id)?, body),
            Self::Remove(id) => {
                let server = find(now, *id)?;
                if !server.origin.is_own() {
                    let text = format!("server \"{id}\" not removable");
                    return Err(Fault::new(Code::UpstreamServerImmutable, text));
                }
                Ok(vec![Change::DeleteServer { sel: ServerSel::Id(*id) }])
            }
        }
    }
}

fn find(now: &Upstream, id: u64) -> Result<&Server, Fault> {
    now.find(&ServerSel::Id(id)).ok_or_else(|| Fault::no_server(id))
}

fn add(now: &Upstream, body: &Body) -> Result<Change, Fault> {
    let Some(addr) = &body.server else {
        let text = "missing \"server\" argument";
        return Err(Fault::new(Code::UpstreamConfFormatError, text));
    };
    let sel = ServerSel::Addr(addr.clone());
    if now.find(&sel).is_some() {
        return Err(Fault::new(Code::EntryExists, format!("server \"{addr}\" exists")));
    }
    let mut stated = ServerBody {
        addr: Some(addr.clone()),
        given: body.given.clone(),
        limits: limits(body, |_| true),
        backup: field(body.backup),
        route: field(body.route.clone()),
        ..ServerBody::default()
    };
    match wanted(body, AdminState::Up) {
        AdminState::Up => {}
        state => {
            let admin = AdminBody { state: Some(state), ..AdminBody::default() };
            stated.admin = Field::Given(admin);
        }
    }
    Ok(Change::PutServer { sel, body: stated })
}

fn patch(now: &Upstream, server: &Server, body: &Body) -> Result<Vec<Change>, Fault> {
    if body.server.as_ref().is_some_and(|addr| *addr != server.addr) {
        let text = format!("server \"{}\" address is immutable", server.id);
        return Err(Fault::new(Code::UpstreamServerImmutable, text));
    }
    if body.backup.is_some_and(|backup| backup != server.params.backup) {
        let text = "unknown parameter \"backup\"";
        return Err(Fault::new(Code::UpstreamConfFormatError, text));
    }
    let sel = ServerSel::Id(server.id);
    let holds = now.limits(server);
    // Each kind of change has room kept for it only where it comes alone.
    let mut changes = Vec::new();
    let state = wanted(body, server.admin.state);
    if state != server.admin.state {
        let sel = sel.clone();
        changes.push(Change::Admin { sel, verb: state, opts: VerbOpts::default() });
    }
    let mut rest = ServerBody {
        limits: limits(body, |limit| match limit {
            Limit::Weight(weight) => weight != holds.weight,
            Limit::MaxConns(n) => n != holds.max_conns,
            Limit::MaxFails(n) => n != holds.max_fails,
            Limit::FailTimeout(time) => time != holds.fail_timeout,
            Limit::SlowStart(time) => time != holds.slow_start,
        }),
        ..ServerBody::default()
    };
    if body.route.as_ref().is_some_and(|route| *route != server.params.route) {
        rest.route = field(body.route.clone());
    }
    if changes.is_empty() || rest != ServerBody::default() {
        changes.push(Change::PatchServer { sel, body: rest });
    }
    Ok(changes)
}

/// The state that the flags ask for, where it is this now.
fn wanted(body: &Body, now: AdminState) -> AdminState {
    match (body.down, body.drain) {
        (Some(true), _) => AdminState::Down,
        (_, Some(true)) => AdminState::Drain,
        (Some(false), _) => AdminState::Up,
        (None, Some(false)) if now == AdminState::Drain => AdminState::Up,
        (None, _) => now,
    }
}

/// A limit that a body names.
enum Limit {
    Weight(u16),
    MaxConns(u32),
    MaxFails(u32),
    FailTimeout(crate::units::Secs),
    SlowStart(crate::units::Secs),
}

/// The limits of a body that are to be stated.
fn limits(body: &Body, stated: impl Fn(Limit) -> bool) -> LimitsBody {
    LimitsBody {
        weight: field(body.weight.filter(|&n| stated(Limit::Weight(n)))),
        max_conns: field(body.max_conns.filter(|&n| stated(Limit::MaxConns(n)))),
        max_fails: field(body.max_fails.filter(|&n| stated(Limit::MaxFails(n)))),
        fail_timeout: field(body.fail_timeout.filter(|&time| stated(Limit::FailTimeout(time)))),
        slow_start: field(body.slow_start.filter(|&time| stated(Limit::SlowStart(time)))),
    }
}

fn field<T>(value: Option<T>) -> Field<T> {
    value.map_or(Field::Absent, Field::Given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::ServerAddr;
    use crate::name::UpstreamName;
    use crate::server::{Admin, Origin, Params};

    fn app(state: AdminState) -> Upstream {
        let mut app = Upstream::new(UpstreamName::parse("app").unwrap(), Origin::Api);
        app.settings.defaults.max_fails = Some(3);
        app.servers.push(Server {
            id: 7,
            addr: ServerAddr::parse("10.0.0.1:80").unwrap(),
            given: None,
            origin: Origin::Config,
            params: Params { weight: Some(5), ..Params::default() },
            admin: Admin { state, reason: "deploy".into(), ..Admin::default() },
            declared: None,
            source: None,
            resolve: false,
            addrs: Vec::new(),
        });
        app
    }

    fn patched(state: AdminState, body: &str) -> Result<Vec<Change>, Fault> {
        Write::Patch(7, Body::read(body.as_bytes()).unwrap()).changes(&app(state))
    }

    #[test]
    fn flags_are_one_state() {
        use AdminState::{Down, Drain, Up};
        let table = [
            (Up, r#"{"down":true}"#, Down),
            (Up, r#"{"drain":"true"}"#, Drain),
            (Up, r#"{"down":true,"drain":true}"#, Down),
            (Up, r#"{"down":false,"drain":true}"#, Drain),
            (Up, r#"{"down":false}"#, Up),
            (Up, r#"{"drain":false}"#, Up),
            (Drain, r#"{"down":false}"#, Up),
            (Drain, r#"{"drain":false}"#, Up),
            (Drain, r#"{"down":true}"#, Down),
            (Drain, r#"{"weight":9}"#, Drain),
            (Down, r#"{"down":"false"}"#, Up),
            (Down, r#"{"drain":false}"#, Down),
            (Down, r#"{"drain":true}"#, Drain),
            (Down, r#"{"down":false,"drain":false}"#, Up),
        ];
        for (now, body, next) in table {
            let changes = patched(now, body).unwrap();
            let verbs = changes.iter().filter_map(|change| match change {
                Change::Admin { verb, .. } => Some(*verb),
                _ => None,
            });
            let wanted = (next != now).then_some(next);
            assert_eq!(verbs.collect::<Vec<_>>(), Vec::from_iter(wanted), "{now:?} {body}");
        }
    }

    #[test]
    fn what_holds_already_is_no_change() {
        let nothing =
            vec![Change::PatchServer { sel: ServerSel::Id(7), body: ServerBody::default() }];
        let bodies = [
            "{}",
            r#"{"server":"10.0.0.1","max_conns":0,"max_fails":3,"fail_timeout":"10s","slow_start":"0s"}"#,
            r#"{"weight":5,"backup":false,"route":"","down":true}"#,
        ];
        for body in bodies {
            assert_eq!(patched(AdminState::Down, body).unwrap(), nothing, "{body}");
        }
    }

    #[test]
    fn what_has_room_kept_for_it_comes_alone() {
        let changes = patched(AdminState::Up, r#"{"down":true,"weight":9}"#).unwrap();
        let [Change::Admin { .. }, Change::PatchServer { body, .. }] = &changes[..] else {
            panic!("{changes:?}")
        };
        assert!(body.is_weight_only());
        let changes = patched(AdminState::Up, r#"{"down":true,"weight":5}"#).unwrap();
        assert!(matches!(&changes[..], [Change::Admin { .. }]), "{changes:?}");
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        let table = [
            (r#"{"server":"10.0.0.2:80"}"#, Code::UpstreamServerImmutable),
            (r#"{"backup":true}"#, Code::UpstreamConfFormatError),
        ];
        for (body, code) in table {
            assert_eq!(patched(AdminState::Up, body).unwrap_err().code, code, "{body}");
        }
        let app = app(AdminState::Up);
        let add = |body: &str| Write::Add(Body::read(body.as_bytes()).unwrap()).changes(&app);
        assert_eq!(add("{}").unwrap_err().code, Code::UpstreamConfFormatError);
        assert_eq!(add(r#"{"server":"10.0.0.1"}"#).unwrap_err().code, Code::EntryExists);
        assert_eq!(Write::Remove(8).changes(&app).unwrap_err(), Fault::no_server(8));
        let mut held = app.clone();
        held.servers[0].origin = Origin::Consul("dc1:web".into());
        let fault = Write::Remove(7).changes(&held).unwrap_err();
        assert_eq!(fault.code, Code::UpstreamServerImmutable);
    }

    #[test]
    fn a_server_is_added_with_its_state() {
        let app = app(AdminState::Up);
        let body = r#"{"server":"10.0.0.2","weight":"0","backup":true,"drain":true}"#;
        let changes = Write::Add(Body::read(body.as_bytes()).unwrap()).changes(&app).unwrap();
        let [Change::PutServer { sel, body }] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(*sel, ServerSel::Addr(ServerAddr::parse("10.0.0.2:80").unwrap()));
        assert_eq!((&body.limits.weight, &body.backup), (&Field::Given(0), &Field::Given(true)));
        let Field::Given(admin) = &body.admin else { panic!("no state") };
        assert_eq!(admin.state, Some(AdminState::Drain));
    }
}
