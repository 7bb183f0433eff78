//! What requests ask for.

use std::net::IpAddr;

use crate::api::filter::{Place, ServerFilter};
use crate::api::opinion::Saying;
use crate::body::VerbOpts;
use crate::host::HostVerb;
use crate::name::UpstreamName;
use crate::route::RouteKey;
use crate::server::AdminState;
use crate::upstream::ServerSel;

/// What an operator decides of the changes of a source that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// They are put in force.
    Apply,
    /// They are not, and nobody waits for that any more.
    Discard,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `GET v1/`
    Root,
    /// `GET v1/openapi.json`
    OpenApi,
    /// `GET v1/zones/{zone}`
    ZoneReport {
        /// Its name.
        zone: String,
    },
    /// `POST v1/zones/{zone}/flush`
    Flush {
        /// Its name.
        zone: String,
    },
    /// `GET v1/events`
    Events {
        /// Number of the event after which they begin; `None` = from now on, 0 = all there are.
        since: Option<u64>,
        /// How long a poll waits for the first one, ms.
        wait: u64,
    },
    /// `GET v1/upstreams`
    ListUpstreams {
        /// Names after this one.
        after: Option<UpstreamName>,
        /// Entries of a page.
        limit: u32,
        /// Whether with servers.
        servers: bool,
    },
    /// `GET v1/upstreams/{u}`
    GetUpstream {
        /// Which.
        upstream: UpstreamName,
    },
    /// `PUT v1/upstreams/{u}`
    PutUpstream {
        /// Which.
        upstream: UpstreamName,
    },
    /// `PATCH v1/upstreams/{u}`
    PatchUpstream {
        /// Which.
        upstream: UpstreamName,
    },
    /// `DELETE v1/upstreams/{u}`
    DeleteUpstream {
        /// Which.
        upstream: UpstreamName,
        /// Also where a block names it.
        force: bool,
    },
    /// `GET v1/upstreams/{u}/servers/{server}`
    GetServer {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
    },
    /// `PUT v1/upstreams/{u}/servers/{server}`
    PutServer {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
    },
    /// `PATCH v1/upstreams/{u}/servers/{server}`
    PatchServer {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
    },
    /// `DELETE v1/upstreams/{u}/servers/{server}`
    DeleteServer {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
    },
    /// `POST v1/upstreams/{u}/servers/{server}/up`, `/drain`, `/down`
    Verb {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
        /// What is wanted.
        verb: AdminState,
        /// What the query says; the body may say more.
        opts: VerbOpts,
    },
    /// `POST v1/upstreams/{u}/servers/{server}/unhealthy`, `/healthy`
    Opine {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
        /// What the query says; the body may say more.
        saying: Saying,
    },
    /// `GET v1/upstreams/{u}/servers/{server}/check`
    GetCheck {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
    },
    /// `POST v1/upstreams/{u}/servers/{server}/check`
    Check {
        /// Where.
        upstream: UpstreamName,
        /// Which.
        sel: ServerSel,
    },
    /// `GET v1/servers`
    ListServers {
        /// Which.
        filter: ServerFilter,
        /// Those after this one.
        after: Option<Place>,
        /// Entries of a page.
        limit: u32,
    },
    /// `GET v1/hosts/{ip}`
    GetHost {
        /// Which.
        ip: IpAddr,
    },
    /// `POST v1/hosts/{ip}/up`, `/drain`, `/down`; the body may say more than the query.
    HostVerb(HostVerb),
    /// `GET v1/routes`
    ListRoutes {
        /// Only those to this upstream.
        upstream: Option<UpstreamName>,
        /// Keys after this one.
        after: Option<RouteKey>,
        /// Entries of a page.
        limit: u32,
    },
    /// `GET v1/routes/{key}`
    GetRoute {
        /// Which.
        key: RouteKey,
    },
    /// `PUT v1/routes/{key}`
    PutRoute {
        /// Which.
        key: RouteKey,
        /// Also to an upstream that is not there.
        force: bool,
    },
    /// `PATCH v1/routes/{key}`
    PatchRoute {
        /// Which.
        key: RouteKey,
        /// Also to an upstream that is not there.
        force: bool,
    },
    /// `DELETE v1/routes/{key}`
    DeleteRoute {
        /// Which.
        key: RouteKey,
    },
    /// `POST v1/routes`: a line for each, see [`crate::api::routes::Lines`].
    PutRoutes {
        /// Also to upstreams that are not there.
        force: bool,
    },
    /// `POST v1/batch`
    Batch,
    /// `GET v1/ready`
    Ready {
        /// Upstreams that must exist.
        require: Vec<UpstreamName>,
    },
    /// `GET v1/sources`
    ListSources,
    /// `GET v1/sources/consul/{source}`
    GetSource {
        /// Its name after the kind.
        source: String,
    },
    /// `POST v1/sources/consul/{source}/apply`, `/discard`
    DecideSource {
        /// Its name after the kind.
        source: String,
        /// What becomes of what is held.
        decision: Decision,
    },
    /// `GET v1/zones/{zone}/export`
    Export {
        /// Its name.
        zone: String,
    },
    /// `PUT v1/zones/{zone}/import`
    Import {
        /// Its name.
        zone: String,
        /// Whether upstreams of the API that it does not name are removed.
        prune: bool,
    },
}

impl Call {
    /// The upstream it is about.
    pub fn upstream(&self) -> Option<&UpstreamName> {
        match self {
            Self::Root | Self::OpenApi | Self::ZoneReport { .. } | Self::Flush { .. } => None,
            Self::Events { .. } => None,
            Self::ListUpstreams { .. } | Self::ListServers { .. } => None,
            Self::GetHost { .. } | Self::HostVerb(_) | Self::Batch => None,
            Self::Ready { .. } | Self::Export { .. } | Self::Import { .. } => None,
            Self::ListSources | Self::GetSource { .. } | Self::DecideSource { .. } => None,
            Self::ListRoutes { .. } | Self::GetRoute { .. } | Self::PutRoute { .. } => None,
            Self::PatchRoute { .. } | Self::DeleteRoute { .. } | Self::PutRoutes { .. } => None,
            Self::GetUpstream { upstream }
            | Self::PutUpstream { upstream }
            | Self::PatchUpstream { upstream }
            | Self::DeleteUpstream { upstream, .. }
            | Self::GetServer { upstream, .. }
            | Self::PutServer { upstream, .. }
            | Self::PatchServer { upstream, .. }
            | Self::DeleteServer { upstream, .. }
            | Self::Verb { upstream, .. }
            | Self::Opine { upstream, .. }
            | Self::Check { upstream, .. }
            | Self::GetCheck { upstream, .. } => Some(upstream),
        }
    }

    /// Tells whether it may change something, so that other sites may not send it.
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Root
                | Self::OpenApi
                | Self::ZoneReport { .. }
                | Self::Events { .. }
                | Self::ListUpstreams { .. }
                | Self::GetUpstream { .. }
                | Self::GetServer { .. }
                | Self::GetCheck { .. }
                | Self::ListServers { .. }
                | Self::GetHost { .. }
                | Self::ListRoutes { .. }
                | Self::GetRoute { .. }
                | Self::Ready { .. }
                | Self::Export { .. }
                | Self::ListSources
                | Self::GetSource { .. }
        )
    }

    /// Tells whether the query may name its zone: not where the path does, or it is about none.
    pub fn may_say_zone(&self) -> bool {
        !matches!(
            self,
            Self::Root
                | Self::OpenApi
                | Self::ZoneReport { .. }
                | Self::Flush { .. }
                | Self::Export { .. }
                | Self::Import { .. }
        )
    }

    /// Tells whether it can say what it would change without changing it.
    pub fn can_be_dry(&self) -> bool {
        let never =
            matches!(self, Self::Flush { .. } | Self::Check { .. } | Self::DecideSource { .. });
        self.is_write() && !never
    }

    /// Tells whether its body is read.
    pub fn has_body(&self) -> bool {
        matches!(
            self,
            Self::PutUpstream { .. }
                | Self::PatchUpstream { .. }
                | Self::PutServer { .. }
                | Self::PatchServer { .. }
                | Self::Verb { .. }
                | Self::Opine { .. }
                | Self::HostVerb(_)
                | Self::Batch
                | Self::Import { .. }
                | Self::PutRoute { .. }
                | Self::PatchRoute { .. }
                | Self::PutRoutes { .. }
        )
    }
}

/// A call and the zone that the query names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// What is asked for.
    pub call: Call,
    /// `zone=` of the query.
    pub zone: Option<String>,
    /// Whether it only tells what it would change.
    pub dry_run: bool,
}
