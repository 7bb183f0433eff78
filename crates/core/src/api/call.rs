//! What requests ask for.

use crate::body::VerbOpts;
use crate::name::UpstreamName;
use crate::server::AdminState;
use crate::upstream::ServerSel;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `GET v1/`
    Root,
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
}

impl Call {
    /// The upstream it is about.
    pub fn upstream(&self) -> Option<&UpstreamName> {
        match self {
            Self::Root | Self::ZoneReport { .. } | Self::Flush { .. } => None,
            Self::ListUpstreams { .. } => None,
            Self::GetUpstream { upstream }
            | Self::PutUpstream { upstream }
            | Self::PatchUpstream { upstream }
            | Self::DeleteUpstream { upstream, .. }
            | Self::GetServer { upstream, .. }
            | Self::PutServer { upstream, .. }
            | Self::PatchServer { upstream, .. }
            | Self::DeleteServer { upstream, .. }
            | Self::Verb { upstream, .. } => Some(upstream),
        }
    }

    /// Tells whether it may change something, so that other sites may not send it.
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Root
                | Self::ZoneReport { .. }
                | Self::ListUpstreams { .. }
                | Self::GetUpstream { .. }
                | Self::GetServer { .. }
        )
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
}
