//! A server of an upstream: what is declared of it and what the operator wants of it.
//!
//! Live facts (requests in flight, failures, counters) are not here: they are the zone's.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::addr::ServerAddr;
use crate::field::{self, FieldError};
use crate::source::Sourced;
use crate::units::Secs;
use crate::upstream::Defaults;

/// What is declared of a server; `None` is the default of its upstream.
#[derive(Clone, Debug, Default, Eq, Serialize, Deserialize)]
pub struct Params {
    /// Share of requests; 0 takes none that is not bound to it.
    pub weight: Option<u16>,
    /// Most requests at a time; 0 is no limit.
    pub max_conns: Option<u32>,
    /// Failures within `fail_timeout` that switch it off; 0 is never.
    pub max_fails: Option<u32>,
    /// Time in which failures count, and for which it is off.
    pub fail_timeout: Option<Secs>,
    /// Ramp of a new or recovered peer.
    pub slow_start: Option<Secs>,
    /// Used when no primary is eligible.
    pub backup: bool,
    /// What `sticky` calls it.
    pub route: String,
    /// Free texts, by key.
    pub labels: BTreeMap<String, String>,
}

impl Params {
    /// Tells whether it keeps the rules of fields, for who reads it from a file.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        let Self { max_conns, max_fails, slow_start, route, labels, .. } = self;
        field::max_conns(max_conns.unwrap_or(0).into())?;
        field::max_fails(max_fails.unwrap_or(0).into())?;
        field::slow_start(slow_start.unwrap_or(Secs(0)))?;
        field::route(route)?;
        if labels.len() > field::MAX_LABELS {
            return Err(FieldError::Labels);
        }
        for (key, value) in labels {
            field::label_key(key)?;
            field::label_value(value)?;
        }
        Ok(())
    }
}

impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        let Self { weight, max_conns, max_fails, fail_timeout, slow_start, backup, route, labels } =
            self;
        (weight, max_conns, max_fails) == (&other.weight, &other.max_conns, &other.max_fails)
            && (fail_timeout, slow_start) == (&other.fail_timeout, &other.slow_start)
            && *backup == other.backup
            && is_same(route, &other.route)
            && *labels == other.labels
    }
}

/// What holds for a server: its own parameters over its upstream's over what is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`Params::weight`].
    pub weight: u16,
    /// See [`Params::max_conns`].
    pub max_conns: u32,
    /// See [`Params::max_fails`].
    pub max_fails: u32,
    /// See [`Params::fail_timeout`].
    pub fail_timeout: Secs,
    /// See [`Params::slow_start`].
    pub slow_start: Secs,
}

impl Limits {
    /// What holds where nobody says anything.
    pub const BUILT_IN: Self =
        Self { weight: 1, max_conns: 0, max_fails: 1, fail_timeout: Secs(10), slow_start: Secs(0) };

    /// What holds for a server with `params` in an upstream with `defaults`.
    pub fn of(params: &Params, defaults: &Defaults) -> Self {
        let base = defaults.limits();
        Self {
            weight: params.weight.unwrap_or(base.weight),
            max_conns: params.max_conns.unwrap_or(base.max_conns),
            max_fails: params.max_fails.unwrap_or(base.max_fails),
            fail_timeout: params.fail_timeout.unwrap_or(base.fail_timeout),
            slow_start: params.slow_start.unwrap_or(base.slow_start),
        }
    }
}

/// What the operator wants of a server.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum AdminState {
    /// It takes requests.
    #[default]
    Up,
    /// It takes only requests that are bound to it.
    Drain,
    /// It takes none.
    Down,
}

impl AdminState {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Drain => "drain",
            Self::Down => "down",
        }
    }

    /// Reads the word of the API.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Up, Self::Drain, Self::Down].into_iter().find(|state| state.as_str() == text)
    }
}

/// The admin state with who set it, when and why.
#[derive(Clone, Debug, Default, Eq, Serialize, Deserialize)]
pub struct Admin {
    /// What is wanted.
    pub state: AdminState,
    /// Since when, unix ms; 0 = it was never set.
    pub since: u64,
    /// When it goes back to up, unix ms.
    pub until: Option<u64>,
    /// When connections that are still open to it then are closed, unix ms.
    pub close: Option<u64>,
    /// Why; up to 255 bytes.
    pub reason: String,
    /// Who.
    pub by: String,
    /// From where.
    pub from: String,
}

impl PartialEq for Admin {
    fn eq(&self, other: &Self) -> bool {
        let Self { state, since, until, close, reason, by, from } = self;
        (state, since, until, close) == (&other.state, &other.since, &other.until, &other.close)
            && is_same(reason, &other.reason)
            && is_same(by, &other.by)
            && is_same(from, &other.from)
    }
}

/// Whether texts are equal. Most are empty, and point nowhere: there, glibc's `memcmp` for AVX-512
/// takes 100 ns for no byte at all, since its masked load faults and is suppressed.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && (a.is_empty() || a == b)
}

impl Admin {
    /// Tells whether it is as a change would make it, for who reads it from a file.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        for text in [&self.reason, &self.by, &self.from] {
            field::reason(text)?;
        }
        if self.state == AdminState::Up && self.until.is_some() {
            return Err(FieldError::EndOfUp);
        }
        if self.state == AdminState::Up && self.close.is_some() {
            return Err(FieldError::CloseOfUp);
        }
        Ok(())
    }

    /// Tells whether it stands as the configuration set it, not an operator.
    ///
    /// An operator may be called "config" too, but comes from somewhere.
    pub fn is_config(&self) -> bool {
        self.by == CONFIG && self.from.is_empty()
    }
}

/// The actor of `down` and `drain` in a server line.
pub const CONFIG: &str = "config";

/// Who declared a server or an upstream first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// nginx's configuration.
    Config,
    /// The API.
    Api,
    /// A Consul, by its name.
    Consul(String),
    /// A Redis, by its name.
    Redis(String),
}

impl Origin {
    /// Tells whether the configuration or the API owns it, so that the API may remove it.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Config | Self::Api)
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "config" => Some(Self::Config),
            None if text == "api" => Some(Self::Api),
            Some(("consul", name)) => Some(Self::Consul(name.to_owned())),
            Some(("redis", name)) => Some(Self::Redis(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str("config"),
            Self::Api => f.write_str("api"),
            Self::Consul(name) => write!(f, "consul:{name}"),
            Self::Redis(name) => write!(f, "redis:{name}"),
        }
    }
}

/// What the configuration said of a server at the last accepted load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// The parameters of its line.
    pub params: Params,
    /// Its first admin state.
    pub admin: AdminState,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Stable over reload and restart, never reused in the zone's life.
    pub id: u64,
    /// Its key in the upstream.
    pub addr: ServerAddr,
    /// The address as given, where that differs from the canonical text.
    pub given: Option<String>,
    /// Who declared it first.
    pub origin: Origin,
    /// What holds for it now.
    pub params: Params,
    /// What the operator wants of it.
    pub admin: Admin,
    /// What the configuration said at the last accepted load; `None` = it does not name it.
    pub declared: Option<Declared>,
    /// What its source says of it, where it is a source's.
    pub source: Option<Sourced>,
    /// Whether it is a name that is resolved at run time.
    pub resolve: bool,
    /// The addresses of a name: of the last answer where it is resolved at run time, else of load.
    pub addrs: Vec<SocketAddr>,
}

impl Server {
    /// The host to resolve at run time, with the port of its peers.
    pub fn resolvable(&self) -> Option<(&str, u16)> {
        match &self.addr {
            ServerAddr::Name { host, port } if self.resolve => Some((host, *port)),
            _ => None,
        }
    }

    /// The text as given, else the canonical one: what `hash consistent` hashes.
    pub fn text(&self) -> String {
        self.given.clone().unwrap_or_else(|| self.addr.to_string())
    }

    /// What holds for it in an upstream with `defaults`.
    pub fn limits(&self, defaults: &Defaults) -> Limits {
        Limits::of(&self.params, &self.unsaid(defaults))
    }

    /// The same where nobody here says anything: its source, then its upstream.
    pub(crate) fn unsaid(&self, defaults: &Defaults) -> Defaults {
        let weight = self.source.and_then(|said| said.weight);
        Defaults { weight: weight.or(defaults.weight), ..*defaults }
    }

    /// What is wanted of it: by the operator, and by its source, which may let it drain.
    pub fn wanted(&self) -> AdminState {
        let source = self.source.map_or(AdminState::Up, |said| said.wanted());
        self.admin.state.max(source)
    }

    /// Whether its source names it no longer, and is believed.
    pub fn is_vanished(&self) -> bool {
        self.source.is_some_and(|said| said.vanished().is_some())
    }

    /// Whether an operator has said something of it that would be lost with it.
    pub fn is_spoken_of(&self) -> bool {
        self.admin.state != AdminState::Up || self.params != Params::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_goes_over_the_default_over_what_is_built_in() {
        let defaults = Defaults { weight: Some(5), max_fails: Some(7), ..Defaults::default() };
        let params = Params { weight: Some(3), ..Params::default() };
        let limits = Limits::of(&params, &defaults);
        assert_eq!((limits.weight, limits.max_fails, limits.fail_timeout), (3, 7, Secs(10)));
        assert_eq!(Limits::of(&Params::default(), &Defaults::default()), Limits::BUILT_IN);
    }

    #[test]
    fn origins_read_back() {
        for text in ["config", "api", "consul:dc1:web", "redis:routes"] {
            assert_eq!(Origin::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Origin::parse("file"), None);
    }
}
