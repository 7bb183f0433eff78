//! The text form of a server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::is_default;
use crate::addr::ServerAddr;
use crate::server::{Admin, AdminState, Declared, Origin, Params, Server};
use crate::source::{Sourced, Standing};
use crate::units::Secs;

/// A server, whole. Times are unix ms.
#[derive(Serialize, Deserialize)]
pub(crate) struct ServerLine<'a> {
    id: u64,
    server: ServerAddr,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    given: Option<Cow<'a, str>>,
    /// Left out: `config` where the configuration declares it, else `api`.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    origin: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_conns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_fails: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<Secs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_start: Option<Secs>,
    #[serde(default, skip_serializing_if = "is_default")]
    backup: bool,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    route: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "no_labels")]
    labels: Cow<'a, BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    admin: Option<AdminLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    declared: Option<DeclaredLine<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceLine>,
    #[serde(default, skip_serializing_if = "is_default")]
    resolve: bool,
    #[serde(default, skip_serializing_if = "no_addrs")]
    addrs: Cow<'a, [SocketAddr]>,
}

/// What the configuration said of a server.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct DeclaredLine<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_conns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_fails: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fail_timeout: Option<Secs>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slow_start: Option<Secs>,
    #[serde(default, skip_serializing_if = "is_default")]
    backup: bool,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    route: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "no_labels")]
    labels: Cow<'a, BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "is_default")]
    admin: AdminState,
}

#[derive(Serialize, Deserialize)]
struct AdminLine<'a> {
    state: AdminState,
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    close: Option<u64>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    reason: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    by: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty", borrow)]
    from: Cow<'a, str>,
}

/// What a source says of a server.
#[derive(Default, Serialize, Deserialize)]
struct SourceLine {
    #[serde(default, skip_serializing_if = "is_default")]
    identity: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "is_default")]
    critical: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    maintenance: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vanished: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    held: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    discarded: bool,
}

impl SourceLine {
    fn of(said: &Sourced) -> Self {
        Self {
            identity: said.identity,
            weight: said.weight,
            critical: said.failing,
            maintenance: said.standing == Standing::Maintenance,
            vanished: said.vanished(),
            held: said.held,
            discarded: said.discarded,
        }
    }

    fn into_sourced(self) -> Sourced {
        let standing = match self.vanished {
            Some(since) => Standing::Vanished { since },
            None if self.maintenance => Standing::Maintenance,
            None => Standing::Named,
        };
        let Self { identity, weight, critical, held, discarded, .. } = self;
        Sourced { identity, weight, failing: critical, standing, held, discarded }
    }
}

impl<'a> ServerLine<'a> {
    pub(crate) fn of(server: &'a Server) -> Self {
        let params = &server.params;
        let implied = implied_origin(server.declared.is_some());
        let admin = &server.admin;
        let admin = (*admin != Admin::default()).then(|| AdminLine {
            state: admin.state,
            since: admin.since,
            until: admin.until,
            close: admin.close,
            reason: Cow::Borrowed(&admin.reason),
            by: Cow::Borrowed(&admin.by),
            from: Cow::Borrowed(&admin.from),
        });
        Self {
            id: server.id,
            server: server.addr.clone(),
            given: server.given.as_deref().map(Cow::Borrowed),
            origin: (server.origin != implied).then(|| server.origin.to_string().into()),
            weight: params.weight,
            max_conns: params.max_conns,
            max_fails: params.max_fails,
            fail_timeout: params.fail_timeout,
            slow_start: params.slow_start,
            backup: params.backup,
            route: Cow::Borrowed(&params.route),
            labels: Cow::Borrowed(&params.labels),
            admin,
            declared: server.declared.as_ref().map(DeclaredLine::of),
            source: server.source.as_ref().map(SourceLine::of),
            resolve: server.resolve,
            addrs: Cow::Borrowed(&server.addrs),
        }
    }

    pub(crate) fn into_server(self) -> Result<Server, String> {
        let implied = implied_origin(self.declared.is_some());
        let origin = self.origin.as_deref().map_or(Ok(implied), origin)?;
        let admin = self.admin.map(|admin| Admin {
            state: admin.state,
            since: admin.since,
            until: admin.until,
            close: admin.close,
            reason: admin.reason.into_owned(),
            by: admin.by.into_owned(),
            from: admin.from.into_owned(),
        });
        let params = Params {
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            slow_start: self.slow_start,
            backup: self.backup,
            route: self.route.into_owned(),
            labels: self.labels.into_owned(),
        };
        let server = Server {
            id: self.id,
            addr: self.server,
            given: self.given.map(Cow::into_owned),
            origin,
            params,
            admin: admin.unwrap_or_default(),
            declared: self.declared.map(DeclaredLine::into_declared).transpose()?,
            source: self.source.map(SourceLine::into_sourced),
            resolve: self.resolve,
            addrs: self.addrs.into_owned(),
        };
        let Server { addr, given, params, admin, .. } = &server;
        if given.as_ref().is_some_and(|given| ServerAddr::parse(given).as_ref() != Ok(addr)) {
            return Err(format!("server \"{addr}\" was given as another"));
        }
        let kept = params.check().and_then(|()| admin.check());
        kept.map_err(|error| format!("a field of server \"{addr}\" {error}"))?;
        Ok(server)
    }
}

impl<'a> DeclaredLine<'a> {
    pub(crate) fn of(declared: &'a Declared) -> Self {
        let params = &declared.params;
        Self {
            weight: params.weight,
            max_conns: params.max_conns,
            max_fails: params.max_fails,
            fail_timeout: params.fail_timeout,
            slow_start: params.slow_start,
            backup: params.backup,
            route: Cow::Borrowed(&params.route),
            labels: Cow::Borrowed(&params.labels),
            admin: declared.admin,
        }
    }

    pub(crate) fn into_declared(self) -> Result<Declared, String> {
        let params = Params {
            weight: self.weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            slow_start: self.slow_start,
            backup: self.backup,
            route: self.route.into_owned(),
            labels: self.labels.into_owned(),
        };
        params.check().map_err(|error| format!("a declared field {error}"))?;
        Ok(Declared { params, admin: self.admin })
    }
}

/// Reads the text of an origin.
pub(super) fn origin(text: &str) -> Result<Origin, String> {
    Origin::parse(text).ok_or_else(|| format!("unknown origin \"{text}\""))
}

fn implied_origin(declared: bool) -> Origin {
    if declared { Origin::Config } else { Origin::Api }
}

fn no_addrs(addrs: &[SocketAddr]) -> bool {
    addrs.is_empty()
}

fn no_labels(labels: &BTreeMap<String, String>) -> bool {
    labels.is_empty()
}
