//! The text form of an upstream, and of what it is without its servers.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::is_default;
use super::server::{DeclaredLine, ServerLine, origin};
use crate::addr::ServerAddr;
use crate::check::outlier::Outlier;
use crate::check::{Check, CheckError};
use crate::name::UpstreamName;
use crate::server::{Declared, Params, Server};
use crate::template::Template;
use crate::texts::Texts;
use crate::units::Secs;
use crate::upstream::{Defaults, Method, Settings, Upstream};

/// An upstream, whole. Times are unix ms.
#[derive(Serialize, Deserialize)]
pub(crate) struct UpstreamLine<'a> {
    upstream: UpstreamName,
    /// Left out in a journal: there it is the record's.
    #[serde(default, skip_serializing_if = "is_default")]
    revision: u64,
    #[serde(borrow)]
    origin: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    settings: SettingsLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared: Option<SettingsLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    orphaned_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    removed: Vec<RemovedLine<'a>>,
    #[serde(default, borrow)]
    servers: Vec<ServerLine<'a>>,
}

/// What an upstream is without its name and its servers; the fields are those of
/// [`UpstreamLine`], which does not flatten one because that would copy each line to read it.
#[derive(Serialize, Deserialize)]
pub(crate) struct ColdLine<'a> {
    #[serde(borrow)]
    origin: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "is_default")]
    settings: SettingsLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    declared: Option<SettingsLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    orphaned_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", borrow)]
    removed: Vec<RemovedLine<'a>>,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct SettingsLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<Method>,
    #[serde(default, skip_serializing_if = "is_default")]
    defaults: LimitsLine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash_key: Option<Template>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<Box<Check>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outlier: Option<Outlier>,
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct LimitsLine {
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
}

#[derive(Serialize, Deserialize)]
struct RemovedLine<'a> {
    server: ServerAddr,
    #[serde(default, borrow)]
    declared: DeclaredLine<'a>,
}

impl<'a> UpstreamLine<'a> {
    pub(crate) fn of(upstream: &'a Upstream, revision: u64) -> Self {
        let ColdLine { origin, settings, declared, orphaned_at, removed } = ColdLine::of(upstream);
        Self {
            upstream: upstream.name.clone(),
            revision,
            origin,
            settings,
            declared,
            orphaned_at,
            removed,
            servers: upstream.servers.iter().map(ServerLine::of).collect(),
        }
    }

    pub(crate) fn into_upstream(self) -> Result<(Upstream, u64), String> {
        let Self { upstream, revision, origin, settings, declared, orphaned_at, removed, servers } =
            self;
        let cold = ColdLine { origin, settings, declared, orphaned_at, removed };
        let mut upstream = cold.into_upstream(upstream)?;
        let servers: Result<Vec<Server>, String> =
            servers.into_iter().map(ServerLine::into_server).collect();
        upstream.servers = servers?;
        unique(&upstream.servers)?;
        Ok((upstream, revision))
    }
}

impl<'a> ColdLine<'a> {
    pub(crate) fn of(upstream: &'a Upstream) -> Self {
        Self {
            origin: upstream.origin.to_string().into(),
            settings: SettingsLine::of(&upstream.settings),
            declared: upstream.declared.as_ref().map(SettingsLine::of),
            orphaned_at: upstream.orphaned_at,
            removed: upstream.removed.iter().map(RemovedLine::of).collect(),
        }
    }

    /// The upstream; its list of servers is empty.
    pub(crate) fn into_upstream(self, name: UpstreamName) -> Result<Upstream, String> {
        let removed: Result<Vec<(ServerAddr, Declared)>, String> =
            self.removed.into_iter().map(RemovedLine::into_removed).collect();
        Ok(Upstream {
            name,
            origin: origin(&self.origin)?,
            settings: self.settings.into_settings()?,
            declared: self.declared.map(SettingsLine::into_settings).transpose()?,
            servers: Vec::new(),
            removed: removed?,
            orphaned_at: self.orphaned_at,
        })
    }
}

/// Ids and addresses are keys.
fn unique(servers: &[Server]) -> Result<(), String> {
    // Most stand in the order of their coming.
    if !servers.is_sorted_by(|a, b| a.id < b.id) {
        let mut ids = HashSet::with_capacity(servers.len());
        if let Some(server) = servers.iter().find(|server| !ids.insert(server.id)) {
            return Err(format!("id {} comes twice", server.id));
        }
    }
    let mut addrs = HashSet::with_capacity(servers.len());
    match servers.iter().find(|server| !addrs.insert(&server.addr)) {
        Some(server) => Err(format!("server \"{}\" comes twice", server.addr)),
        None => Ok(()),
    }
}

impl<'a> RemovedLine<'a> {
    fn of((addr, declared): &'a (ServerAddr, Declared)) -> Self {
        Self { server: addr.clone(), declared: DeclaredLine::of(declared) }
    }

    fn into_removed(self) -> Result<(ServerAddr, Declared), String> {
        Ok((self.server, self.declared.into_declared()?))
    }
}

impl SettingsLine {
    fn of(settings: &Settings) -> Self {
        let Defaults { weight, max_conns, max_fails, fail_timeout, slow_start } = settings.defaults;
        let defaults = LimitsLine { weight, max_conns, max_fails, fail_timeout, slow_start };
        let Texts { hash_key, host, tls_name } = settings.texts.clone();
        let (check, outlier) = (settings.check.clone(), settings.outlier);
        Self { method: settings.method, defaults, hash_key, host, tls_name, check, outlier }
    }

    fn into_settings(self) -> Result<Settings, String> {
        let Self { method, defaults, hash_key, host, tls_name, check, outlier } = self;
        let LimitsLine { weight, max_conns, max_fails, fail_timeout, slow_start } = defaults;
        let params = Params { max_conns, max_fails, slow_start, ..Params::default() };
        params.check().map_err(|error| format!("a default {error}"))?;
        let defaults = Defaults { weight, max_conns, max_fails, fail_timeout, slow_start };
        let texts = Texts { hash_key, host, tls_name };
        let texts = texts.check().map_err(|error| format!("a text {error}"))?;
        let bad = |what| move |error: CheckError| format!("a field of {what}: {error}");
        let check = check.map(|check| check.kept().map(Box::new)).transpose();
        let outlier = outlier.map(Outlier::kept).transpose();
        Ok(Settings {
            method,
            defaults,
            texts,
            check: check.map_err(bad("a check"))?,
            outlier: outlier.map_err(bad("outliers"))?,
        })
    }
}
