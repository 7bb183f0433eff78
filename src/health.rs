//! Health checks: peers are probed on nginx's event loop, each by one process of the whole nginx.
//!
//! [`prober`] is what a process does for the peers that are its own, [`holding`] says which parts of
//! them are, [`roster`] which peers these parts have, [`probe`] asks one, and [`telling`] has
//! the lines and events of what turned.

mod holding;
pub(crate) mod probe;
mod prober;
mod roster;
pub(crate) mod telling;

pub(crate) use self::prober::{Bounds, Prober};
pub(crate) use self::roster::Peer;

use peerage_core::check::verdict::{Outcome, Verdict};
use peerage_core::name::UpstreamName;
use peerage_zone::Worker;

use crate::ffi::process;
use crate::worker;

/// The peers of a server, to be asked; `None`: its upstream is not checked.
pub(crate) fn peers_of(of: &Worker, name: &UpstreamName, server: u64) -> Option<Vec<Peer>> {
    let read = of.checked_peers(name, |_| true)?;
    let peers = roster::peers(name, read).filter(|(read, _)| read.server_id == server);
    Some(peers.map(|(_, peer)| peer).collect())
}

/// Takes what came of a probe of a peer, and tells of it where it turns the peer. `None`: there is
/// no such peer any more, or it is checked in another way.
pub(crate) fn take(of: &'static Worker, peer: &Peer, outcome: Outcome) -> Option<Verdict> {
    let seen = of.observe(&peer.handle, &peer.target.question.check, outcome, &process::clock())?;
    if seen.was != seen.is {
        let event = of.server_of(&peer.handle).map(|server| telling::probed(peer, &server, &seen));
        worker::tell(of, event);
        worker::wake_all();
    }
    Some(seen.verdict)
}
