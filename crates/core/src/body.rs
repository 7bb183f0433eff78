//! What a request states: bodies of `PUT` and `PATCH`, options of verbs.
//!
//! Every field is absent, the default (`null`) or given; [`crate::change`] decides what that means
//! for a `PUT`, where absent is the default, and for a `PATCH`, where absent stays.

use crate::addr::ServerAddr;
use crate::check::body::CheckBody;
use crate::check::outlier::body::OutlierBody;
use crate::server::AdminState;
use crate::template::Template;
use crate::units::Secs;
use crate::upstream::Method;

/// A field of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// Not named.
    #[default]
    Absent,
    /// `null`.
    Default,
    /// A value.
    Given(T),
}

impl<T> Field<T> {
    /// Tells whether the body does not name it.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Tells whether the body has a value for it.
    pub fn is_given(&self) -> bool {
        matches!(self, Self::Given(_))
    }

    /// This, or `under` where the body does not name it.
    pub fn over(self, under: Self) -> Self {
        if self.is_absent() { under } else { self }
    }
}

/// Fields that servers and the defaults of an upstream share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsBody {
    /// See [`crate::server::Params::weight`].
    pub weight: Field<u16>,
    /// See [`crate::server::Params::max_conns`].
    pub max_conns: Field<u32>,
    /// See [`crate::server::Params::max_fails`].
    pub max_fails: Field<u32>,
    /// See [`crate::server::Params::fail_timeout`].
    pub fail_timeout: Field<Secs>,
    /// See [`crate::server::Params::slow_start`].
    pub slow_start: Field<Secs>,
}

/// When an admin state ends, or what goes with it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It does not.
    #[default]
    Never,
    /// After so many ms from now.
    After(u64),
    /// At a unix time in ms, of whole seconds.
    At(u64),
}

/// The object `admin` of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminBody {
    /// What is wanted; where absent a `PUT` says up and a `PATCH` leaves it.
    pub state: Option<AdminState>,
    /// Why.
    pub reason: String,
    /// Until when.
    pub end: End,
    /// When connections still open are closed.
    pub close: End,
}

/// A server as a body states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerBody {
    /// Its address.
    pub addr: Option<ServerAddr>,
    /// The text of the address, where that is not the canonical one.
    pub given: Option<String>,
    /// Its limits.
    pub limits: LimitsBody,
    /// See [`crate::server::Params::backup`].
    pub backup: Field<bool>,
    /// See [`crate::server::Params::route`].
    pub route: Field<String>,
    /// Labels by key; a `PATCH` removes those that are `None`.
    pub labels: Field<Vec<(String, Option<String>)>>,
    /// Its admin state.
    pub admin: Field<AdminBody>,
}

impl ServerBody {
    /// Tells whether it names nothing but the weight: all that `write=operate` lets a `PATCH` do.
    pub fn is_weight_only(&self) -> bool {
        let mut rest = self.clone();
        rest.limits.weight = Field::Absent;
        rest.addr = None;
        rest.given = None;
        rest == Self::default()
    }
}

/// An upstream as a body states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamBody {
    /// How peers are chosen.
    pub method: Field<Method>,
    /// For servers that do not say.
    pub defaults: Field<LimitsBody>,
    /// See [`crate::texts::Texts::hash_key`].
    pub hash_key: Field<Template>,
    /// See [`crate::texts::Texts::host`].
    pub host: Field<String>,
    /// See [`crate::texts::Texts::tls_name`].
    pub tls_name: Field<String>,
    /// How servers are checked.
    pub check: Field<Box<CheckBody>>,
    /// How those that err are ejected.
    pub outlier: Field<OutlierBody>,
    /// The whole set.
    pub servers: Option<Vec<ServerBody>>,
}

/// Options of `up`, `down` and `drain`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerbOpts {
    /// How long the answer may wait, ms.
    pub wait: Option<u64>,
    /// How long the state holds, ms.
    pub ttl: Option<u64>,
    /// After what time connections still open are closed, ms.
    pub close: Option<u64>,
    /// Why.
    pub reason: Option<String>,
    /// How many eligible servers must remain.
    pub min_up: Option<u32>,
    /// Whose reason may be overridden.
    pub if_reason: Option<String>,
}

impl VerbOpts {
    /// When the state ends, and when connections are closed.
    pub(crate) fn times(&self) -> (End, End) {
        let time = |ms: Option<u64>| ms.map_or(End::Never, End::After);
        (time(self.ttl), time(self.close))
    }
}
