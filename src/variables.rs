//! The variables of requests that went through a block taken over, were routed, or went to the API.

use peerage_core::texts::Texts;
use peerage_zone::{NoPeer, Target};

use crate::admin;
use crate::balancer;
use crate::conf::block::Name;
use crate::ffi::destination::{self, Destination};
use crate::ffi::request::Request;
use crate::ffi::{conf, peer, routed, template};

/// One of the module's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Variable {
    Upstream,
    Server,
    ServerId,
    Error,
    Revision,
    Change,
    HashKey,
    Host,
    TlsName,
    Route,
    RouteStatus,
}

impl Variable {
    pub(crate) const ALL: [Self; 11] = [
        Self::Upstream,
        Self::Server,
        Self::ServerId,
        Self::Error,
        Self::Revision,
        Self::Change,
        Self::HashKey,
        Self::Host,
        Self::TlsName,
        Self::Route,
        Self::RouteStatus,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Upstream => "peerage_upstream",
            Self::Server => "peerage_server",
            Self::ServerId => "peerage_server_id",
            Self::Error => "peerage_error",
            Self::Revision => "peerage_revision",
            Self::Change => "peerage_change",
            Self::HashKey => "peerage_hash_key",
            Self::Host => "peerage_host",
            Self::TlsName => "peerage_tls_name",
            Self::Route => "peerage_route",
            Self::RouteStatus => "peerage_route_status",
        }
    }

    pub(crate) fn from_index(index: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|which| *which as usize == index)
    }
}

/// Appends the value; false where there is none: nothing was chosen, nothing went wrong.
pub(crate) fn write(which: Variable, r: Request<'_>, out: &mut Vec<u8>) -> bool {
    match which {
        Variable::Revision => return revision(r, out),
        Variable::Change => {
            let Some(change) = admin::change_of(r) else { return false };
            out.extend_from_slice(change.as_bytes());
            return true;
        }
        Variable::Error => return error(r, out),
        Variable::Route => {
            let Some(routed) = routed::of(r) else { return false };
            out.extend_from_slice(routed.app());
            return true;
        }
        Variable::RouteStatus => {
            let Some(routed) = routed::of(r) else { return false };
            out.extend_from_slice(routed.found.shown.as_str().as_bytes());
            return true;
        }
        Variable::HashKey | Variable::Host | Variable::TlsName => return text(which, r, out),
        _ => {}
    }
    let Some(peer) = peer::of(r) else { return false };
    let (Some(id), Some(server)) = (peer.choice.server_id(), peer.server()) else {
        return false;
    };
    match which {
        Variable::ServerId => out.extend_from_slice(id.to_string().as_bytes()),
        Variable::Server => out.extend_from_slice(server),
        _ => match &peer.block().name {
            Name::Fixed(_, name) => out.extend_from_slice(name.as_str().as_bytes()),
            Name::Keyed(..) => out.extend_from_slice(peer.name()),
        },
    }
    true
}

/// Why no server could be chosen, or no route. A subrequest that was not refused has no name to go
/// by: its route says why.
fn error(r: Request<'_>, out: &mut Vec<u8>) -> bool {
    let of_peer = peer::of(r).and_then(|peer| peer.error);
    let of_route = routed::of(r).and_then(|routed| routed.found.error());
    let error = match (of_peer, of_route) {
        (Some(NoPeer::NameRefused) | None, Some(error)) => error,
        (Some(error), _) => error.as_str(),
        (None, None) => return false,
    };
    out.extend_from_slice(error.as_bytes());
    true
}

/// What the upstream says of requests to it, which may be asked for before a server is chosen.
fn text(which: Variable, r: Request<'_>, out: &mut Vec<u8>) -> bool {
    let (block, value) = match destination::of(r) {
        None => return false,
        Some(Destination::Other(_)) if which == Variable::HashKey => return false,
        Some(Destination::Other(host)) => {
            out.extend_from_slice(host);
            return true;
        }
        Some(Destination::Block(block, value)) => (block, value),
    };
    let folded;
    let (target, name) = match &block.name {
        Name::Fixed(fixed, name) => (Target::Fixed(fixed), name.as_str().as_bytes()),
        Name::Keyed(_, glob) => {
            let given = value.unwrap_or_default();
            if balancer::serves(glob.as_ref(), given).is_err() {
                return false;
            }
            folded = given.to_ascii_lowercase();
            (Target::Name(&folded), &folded[..])
        }
    };
    let worker = block.worker();
    if which == Variable::HashKey {
        let mut key = Vec::new();
        let found = worker.is_some_and(|worker| worker.hash_key(&target, &mut key));
        template::evaluate(r, str::from_utf8(&key).unwrap_or_default(), out);
        return found;
    }
    let Texts { host, tls_name, .. } =
        worker.and_then(|worker| worker.texts(&target)).unwrap_or_default();
    let text = if which == Variable::TlsName { tls_name.or(host) } else { host };
    out.extend_from_slice(text.as_deref().map_or(name, str::as_bytes));
    true
}

/// The revision of the zone that the request has to do with: its block's, its API's, or the only
/// one there is.
fn revision(r: Request<'_>, out: &mut Vec<u8>) -> bool {
    let of_block = || peer::of(r).and_then(|peer| peer.block().zone().cloned());
    let of_api = || conf::loc(r).zone().cloned();
    let only = || {
        let zones = conf::main(r).zones();
        if zones.len() == 1 { zones.into_iter().next() } else { None }
    };
    let zone = of_block().or_else(of_api).or_else(only);
    let Some(memory) = zone.and_then(|zone| zone.memory()) else { return false };
    out.extend_from_slice(memory.zone.revision().to_string().as_bytes());
    true
}
