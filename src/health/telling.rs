//! What this process sees of the health of peers, as lines of the log and events.

use peerage_core::addr::ServerAddr;
use peerage_core::check::bar::Bar;
use peerage_core::event::Event;
use peerage_core::state::{State, of_health};
use peerage_core::units::Millis;
use peerage_zone::{Ejected, Observed, Relieved};

use super::roster::Peer;

/// The time of what barred a peer is over.
pub(crate) fn relieved(of: &Relieved) -> Event {
    let Relieved { upstream, server, address, was } = of;
    log!(Notice, "peer \"{address}\" of upstream \"{upstream}\" takes requests again");
    let by = match was {
        Bar::Ejected => OUTLIER,
        Bar::Checking | Bar::Failed(_) | Bar::External | Bar::Source => TTL,
    };
    let turn = (of_health(Some(*was)), State::Up);
    Event::health(upstream, server, turn, by, &of_peer(server, address, ""))
}

/// Errors of requests ejected a peer; the log has it with the request.
pub(crate) fn ejected(of: Ejected) -> Vec<Event> {
    let Ejected { upstream, server, address, errors, lasts, lapsed } = of;
    let reason = format!("{errors} errors in a row, out for {}", Millis(lasts));
    let turn = (State::Up, of_health(Some(Bar::Ejected)));
    let event =
        Event::health(&upstream, &server, turn, OUTLIER, &of_peer(&server, &address, &reason));
    let before = lapsed.map(|was| relieved(&Relieved { upstream, server, address, was }));
    before.into_iter().chain([event]).collect()
}

/// A probe turned a peer.
pub(super) fn probed(peer: &Peer, server: &ServerAddr, seen: &Observed) -> Event {
    let (upstream, address) = (&*peer.upstream, &peer.address);
    let said = match (seen.was, seen.is) {
        (_, Some(Bar::Failed(Some(reason)))) => {
            log!(Warn, "peer \"{address}\" of upstream \"{upstream}\" is unhealthy: {reason}");
            reason.to_string()
        }
        (Some(Bar::External | Bar::Ejected), None) => {
            log!(Notice, "peer \"{address}\" of upstream \"{upstream}\" takes requests again");
            String::new()
        }
        (_, None) => {
            log!(Notice, "peer \"{address}\" of upstream \"{upstream}\" is healthy");
            String::new()
        }
        (_, Some(_)) => {
            log!(Notice, "peer \"{address}\" of upstream \"{upstream}\" passes its check");
            String::new()
        }
    };
    let by = match (seen.was, seen.is) {
        (Some(Bar::Ejected), None) => OUTLIER,
        (Some(Bar::External), None) => TTL,
        _ => "check",
    };
    let turn = (of_health(seen.was), of_health(seen.is));
    Event::health(upstream, server, turn, by, &of_peer(server, address, &said))
}

/// The reason of an event; of a server that is a name, with the peer that it is about.
fn of_peer(server: &ServerAddr, address: &str, reason: &str) -> String {
    match (server.is_name(), reason) {
        (false, reason) => reason.to_owned(),
        (true, "") => format!("peer {address}"),
        (true, reason) => format!("peer {address}: {reason}"),
    }
}

/// Who ejects peers, and lets them in again.
const OUTLIER: &str = "outlier";
/// What an outside checker said had an end.
const TTL: &str = "ttl";
