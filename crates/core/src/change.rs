//! The one door: what a change makes of an upstream.
//!
//! [`apply`] takes the upstream as it is and gives it as it shall be, or says that nothing changes,
//! or why it cannot be done. It never undoes the operator but by name: servers that stay keep id
//! and admin. Setting what is already so changes nothing.
//!
//! A value given that already holds, by default or not, leaves what is stored as it is; so feeding
//! an upstream with its own listing changes nothing.

pub(crate) mod admin;
mod put;
mod resolve;
mod source;

use std::net::IpAddr;

use thiserror::Error;

use crate::addr::ServerAddr;
use crate::body::{ServerBody, UpstreamBody, VerbOpts};
use crate::declare::DeclaredUpstream;
use crate::field::FieldError;
use crate::merge::merge;
use crate::name::UpstreamName;
use crate::server::{AdminState, CONFIG, Origin, Server};
use crate::source::Stated;
use crate::upstream::{Defaults, ServerSel, Upstream};

/// What alters what is declared or wanted of one upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// States the whole upstream; creates it where absent.
    PutUpstream {
        /// What is stated.
        body: UpstreamBody,
    },
    /// States which servers there are; creates the upstream where absent.
    ///
    /// Of the settings, and of servers that stay, only what is named changes. An admin state that
    /// stands already stays with its reason and author.
    SetServers {
        /// What is stated; no servers are none.
        body: UpstreamBody,
        /// The reason by which who states it knows what it took down itself: a server that is so
        /// and is named without an admin state is up again.
        own: Option<&'static str>,
    },
    /// Alters settings that are named.
    PatchUpstream {
        /// What is named.
        body: UpstreamBody,
    },
    /// Removes the upstream.
    DeleteUpstream {
        /// Also where a block names it.
        force: bool,
    },
    /// States one server; creates it where absent.
    PutServer {
        /// Which.
        sel: ServerSel,
        /// What is stated.
        body: ServerBody,
    },
    /// Alters fields of a server that are named.
    PatchServer {
        /// Which.
        sel: ServerSel,
        /// What is named.
        body: ServerBody,
    },
    /// Removes a server.
    DeleteServer {
        /// Which.
        sel: ServerSel,
    },
    /// `up`, `drain`, `down`.
    Admin {
        /// Which.
        sel: ServerSel,
        /// What is wanted.
        verb: AdminState,
        /// How.
        opts: VerbOpts,
    },
    /// Ends what a `ttl` has limited.
    ExpireTtl {
        /// Unix ms.
        now: u64,
    },
    /// A load of the configuration; `None` = no block names the upstream any more.
    Declare(Option<DeclaredUpstream>),
    /// Removes the upstream if it is an orphan since then or longer.
    ExpireOrphan {
        /// Unix ms.
        since: u64,
    },
    /// A name has these addresses: those of every server of that name which is resolved at run
    /// time.
    Resolve {
        /// The name, in lower case.
        host: Box<str>,
        /// Its addresses; an answer has at least one.
        ips: Vec<IpAddr>,
    },
    /// The source, which is the context's origin, states its servers; creates the upstream where
    /// absent. Those that it stated before and does not now vanish: they drain. It takes over those
    /// that another source names no longer, or that the upstream does not follow any more.
    Source {
        /// Its servers, one for each address.
        servers: Vec<Stated>,
        /// Sources that a block has the upstream follow.
        followed: Vec<Origin>,
    },
    /// A load: servers of other sources than these, which the upstream follows, vanish.
    Unfollow {
        /// Sources that the upstream follows.
        followed: Vec<Origin>,
    },
    /// Vanished servers are idle: they go, but for those that an operator has said something of.
    Reap {
        /// Ids of the servers.
        idle: Vec<u64>,
        /// The upstream goes too, where the context's origin made it, and no server is left.
        retire: bool,
    },
}

impl Change {
    /// Tells whether it creates what it is about: a 201.
    pub fn creates(&self, current: Option<&Upstream>) -> bool {
        match self {
            Self::PutUpstream { .. } | Self::SetServers { .. } | Self::Source { .. } => {
                current.is_none()
            }
            Self::PutServer { sel, .. } => current.is_some_and(|c| c.find(sel).is_none()),
            _ => false,
        }
    }

    /// The server it is about.
    pub fn server(&self) -> Option<&ServerSel> {
        match self {
            Self::PutServer { sel, .. }
            | Self::PatchServer { sel, .. }
            | Self::DeleteServer { sel }
            | Self::Admin { sel, .. } => Some(sel),
            Self::PutUpstream { .. }
            | Self::SetServers { .. }
            | Self::PatchUpstream { .. }
            | Self::DeleteUpstream { .. }
            | Self::ExpireTtl { .. }
            | Self::Declare(_)
            | Self::ExpireOrphan { .. }
            | Self::Resolve { .. }
            | Self::Source { .. }
            | Self::Unfollow { .. }
            | Self::Reap { .. } => None,
        }
    }
}

/// Who does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// User, certificate, address or source.
    pub by: String,
    /// Address of the client.
    pub from: String,
}

impl Actor {
    /// Takes texts from a request: control characters become `?`, 255 bytes at most.
    pub fn new(by: &str, from: &str) -> Self {
        Self { by: clean(by), from: clean(from) }
    }

    /// The configuration.
    pub fn config() -> Self {
        Self { by: CONFIG.to_owned(), from: String::new() }
    }
}

fn clean(text: &str) -> String {
    let mut clean = String::new();
    for c in text.chars().map(|c| if c.is_control() { '?' } else { c }) {
        if clean.len() + c.len_utf8() > 255 {
            break;
        }
        clean.push(c);
    }
    clean
}

/// What a change needs from outside.
pub struct Context<'a> {
    /// Unix ms.
    pub now: u64,
    /// Who does it.
    pub actor: Actor,
    /// Gives ids that the zone never gave before.
    pub fresh_id: &'a mut dyn FnMut() -> u64,
    /// Tells whether a server takes new requests now.
    pub eligible: &'a dyn Fn(&Server) -> bool,
    /// Origin of what the change creates.
    pub origin: Origin,
    /// Whether a block of the configuration names the upstream.
    pub named_by_block: bool,
    /// What holds for upstreams that no block names, where they do not say.
    pub keyed: Defaults,
    /// Whether names can be resolved at run time.
    pub resolves: bool,
}

/// What becomes of the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one a change, and taken apart at once")]
pub enum Applied {
    /// Nothing changes: same revision, nothing written.
    Same,
    /// It is this from now on.
    Set(Upstream),
    /// It is removed.
    Gone,
}

/// Why a change cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// There is no such upstream.
    #[error("upstream \"{0}\" not found")]
    NoUpstream(UpstreamName),
    /// There is no such server.
    #[error("server \"{server}\" not found in upstream \"{upstream}\"")]
    NoServer {
        /// Where.
        upstream: UpstreamName,
        /// As asked.
        server: String,
    },
    /// An address comes twice.
    #[error("server \"{0}\" comes twice")]
    SameAddress(ServerAddr),
    /// A name where none can be resolved.
    #[error("no resolver defined to resolve \"{0}\"")]
    NoResolver(ServerAddr),
    /// A server of the set has no address.
    #[error("servers[{0}] has no \"server\"")]
    NoAddress(usize),
    /// The body names another address than the path.
    #[error("the body names server \"{body}\", the path \"{path}\"")]
    OtherAddress {
        /// In the body.
        body: ServerAddr,
        /// In the path.
        path: String,
    },
    /// The whole is stated without servers, while there are some.
    #[error("\"servers\" is missing; say [] to remove all {0}, or PATCH to keep them")]
    ServersMissing(usize),
    /// Too few would remain.
    #[error("{left} eligible servers would remain in upstream \"{upstream}\", min_up={min_up}")]
    MinUp {
        /// Where.
        upstream: UpstreamName,
        /// As asked.
        min_up: u32,
        /// How many.
        left: u32,
    },
    /// Another reason stands.
    #[error("server \"{server}\" is {} for another reason: \"{reason}\" by \"{by}\"", .state.as_str())]
    IfReason {
        /// Which.
        server: ServerAddr,
        /// Its admin state.
        state: AdminState,
        /// The reason that stands.
        reason: String,
        /// Who gave it.
        by: String,
    },
    /// Another reason stands on the host.
    #[error("host {host} is {} for another reason: \"{reason}\" by \"{by}\"", .state.as_str())]
    HostIfReason {
        /// Which.
        host: IpAddr,
        /// Its admin state.
        state: AdminState,
        /// The reason that stands.
        reason: String,
        /// Who gave it.
        by: String,
    },
    /// Too few would remain beside the host.
    #[error("fewer than {min_up} eligible servers would remain in {}", names(.upstreams))]
    HostMinUp {
        /// Where.
        upstreams: Vec<UpstreamName>,
        /// As asked.
        min_up: u32,
    },
    /// No server is on the host.
    #[error("no server is on host {0}; missing=ok sets it for servers to come")]
    NoHost(IpAddr),
    /// A block names it.
    #[error(
        "upstream \"{0}\" is named by a block of the configuration; force=1 removes it until the next reload"
    )]
    NamedByBlock(UpstreamName),
    /// Routes name it.
    #[error("upstream \"{upstream}\" is named by {routes} routes; force=1 leaves them without one")]
    NamedByRoutes {
        /// Which.
        upstream: UpstreamName,
        /// How many.
        routes: u64,
    },
    /// A source owns it.
    #[error("server \"{server}\" is owned by {origin}; use down")]
    OwnedBySource {
        /// Which.
        server: ServerAddr,
        /// By whom.
        origin: Origin,
    },
    /// A field of an object that does not fit together with the others.
    #[error("\"{object}.{field}\" {error}")]
    Member {
        /// In which object.
        object: &'static str,
        /// Which.
        field: &'static str,
        /// Why.
        error: FieldError,
    },
    /// A field that does not fit together with what is there.
    #[error("field \"{field}\" {error}")]
    Field {
        /// Which.
        field: &'static str,
        /// Why.
        error: FieldError,
    },
}

/// Applies a change to an upstream, or to the place where it could be.
pub fn apply(
    current: Option<&Upstream>,
    name: &UpstreamName,
    change: &Change,
    ctx: &mut Context<'_>,
) -> Result<Applied, ChangeError> {
    match change {
        Change::PutUpstream { body } => put::upstream(current, name, body, ctx),
        Change::SetServers { body, own } => put::set_servers(current, name, body, *own, ctx),
        Change::PatchUpstream { body } => put::patch_upstream(there(current, name)?, body, ctx),
        Change::DeleteUpstream { force } => {
            there(current, name)?;
            if ctx.named_by_block && !force {
                return Err(ChangeError::NamedByBlock(name.clone()));
            }
            Ok(Applied::Gone)
        }
        Change::PutServer { sel, body } => put::server(there(current, name)?, sel, body, ctx),
        Change::PatchServer { sel, body } => {
            put::patch_server(there(current, name)?, sel, body, ctx)
        }
        Change::DeleteServer { sel } => delete_server(there(current, name)?, sel),
        Change::Admin { sel, verb, opts } => {
            admin::verb(there(current, name)?, sel, *verb, opts, ctx)
        }
        Change::ExpireTtl { now } => {
            Ok(current.map_or(Applied::Same, |current| admin::expire(current, *now, ctx)))
        }
        Change::Declare(declared) => Ok(merge(current, declared.as_ref(), ctx).0),
        Change::ExpireOrphan { since } => {
            let orphaned_at = current.and_then(|current| current.orphaned_at);
            let over = orphaned_at.is_some_and(|at| at <= *since);
            Ok(if over { Applied::Gone } else { Applied::Same })
        }
        Change::Resolve { host, ips } => {
            Ok(current.map_or(Applied::Same, |current| resolve::resolve(current, host, ips)))
        }
        Change::Source { servers, followed } => {
            source::state(current, name, (servers, followed), ctx)
        }
        Change::Unfollow { followed } => {
            Ok(current.map_or(Applied::Same, |current| source::unfollow(current, followed, ctx)))
        }
        Change::Reap { idle, retire } => {
            Ok(current.map_or(Applied::Same, |current| source::reap(current, idle, *retire, ctx)))
        }
    }
}

/// Keeps an upstream that so many routes name: it is not removed by the way.
pub fn spare_routed(
    applied: Applied,
    name: &UpstreamName,
    change: &Change,
    routes: u64,
) -> Result<Applied, ChangeError> {
    match (&applied, change) {
        (Applied::Gone, Change::DeleteUpstream { force: false }) if routes > 0 => {
            Err(ChangeError::NamedByRoutes { upstream: name.clone(), routes })
        }
        (Applied::Gone, Change::ExpireOrphan { .. }) if routes > 0 => Ok(Applied::Same),
        _ => Ok(applied),
    }
}

/// The first of the names, for a person.
fn names(upstreams: &[UpstreamName]) -> String {
    let first: Vec<String> = upstreams.iter().take(10).map(|n| format!("\"{n}\"")).collect();
    let more = upstreams.len() - first.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", first.join(", "))
}

fn there<'a>(
    current: Option<&'a Upstream>,
    name: &UpstreamName,
) -> Result<&'a Upstream, ChangeError> {
    current.ok_or_else(|| ChangeError::NoUpstream(name.clone()))
}

fn changed(current: &Upstream, next: Upstream) -> Applied {
    if next == *current { Applied::Same } else { Applied::Set(next) }
}

fn find(current: &Upstream, sel: &ServerSel) -> Result<usize, ChangeError> {
    current.position(sel).ok_or_else(|| ChangeError::NoServer {
        upstream: current.name.clone(),
        server: sel.to_string(),
    })
}

fn delete_server(current: &Upstream, sel: &ServerSel) -> Result<Applied, ChangeError> {
    let at = find(current, sel)?;
    let server = &current.servers[at];
    let Server { addr, origin, .. } = server;
    if !origin.is_own() && !server.is_vanished() {
        let (server, origin) = (addr.clone(), origin.clone());
        return Err(ChangeError::OwnedBySource { server, origin });
    }
    let mut next = current.clone();
    let server = next.servers.remove(at);
    put::remember(&mut next, server);
    Ok(Applied::Set(next))
}
