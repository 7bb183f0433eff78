//! The answer of `GET …/servers/{server}/check`: what is known of the health of each peer.

use serde::Serialize;

use crate::api::render::Line;
use crate::check::ejection::Ejection;
use crate::check::external::External;
use crate::check::peer::PeerHealth;
use crate::check::reason::Reason;
use crate::check::verdict::Side;
use crate::name::UpstreamName;
use crate::state::{State, Why, of_health, verdict};
use crate::time::iso;

/// Writes it, as it is at `now`, unix ms.
pub fn server(
    out: &mut Vec<u8>,
    upstream: &UpstreamName,
    line: &Line<'_>,
    peers: &[PeerHealth],
    now: u64,
) {
    let Line { server, limits, live, host } = *line;
    let (state, why) = verdict(server, host, &limits, &live.facts);
    let whole = ServerJson {
        upstream: upstream.as_str(),
        id: server.id,
        server: server.addr.to_string(),
        state,
        why,
        peers: peers.iter().map(|peer| PeerJson::of(peer, now)).collect(),
    };
    // A vector takes everything, and no type here refuses to be written.
    let _ = serde_json::to_writer(out, &whole);
}

#[derive(Serialize)]
struct ServerJson<'a> {
    upstream: &'a str,
    id: u64,
    server: String,
    state: State,
    why: Option<Why>,
    peers: Vec<PeerJson<'a>>,
}

#[derive(Serialize)]
struct PeerJson<'a> {
    peer: &'a str,
    state: State,
    check: Option<CheckJson>,
    external: Option<ExternalJson>,
    outlier: Option<OutlierJson>,
}

#[derive(Serialize)]
struct CheckJson {
    verdict: &'static str,
    checks: u32,
    fails: u32,
    unhealthy: u32,
    last_passed: Option<bool>,
    last: Option<String>,
    in_a_row: u8,
    failure: Option<FailureJson>,
}

#[derive(Serialize)]
struct FailureJson {
    code: &'static str,
    text: String,
}

#[derive(Serialize)]
struct ExternalJson {
    verdict: &'static str,
    until: Option<String>,
}

#[derive(Serialize)]
struct OutlierJson {
    errors: u16,
    ejected_until: Option<String>,
}

impl<'a> PeerJson<'a> {
    fn of(peer: &'a PeerHealth, now: u64) -> Self {
        Self {
            peer: &peer.address,
            state: of_health(peer.bar),
            check: CheckJson::of(peer),
            external: ExternalJson::of(peer.external, now),
            outlier: peer.ejection.map(|ejection| OutlierJson::of(ejection, now)),
        }
    }
}

impl CheckJson {
    fn of(peer: &PeerHealth) -> Option<Self> {
        let verdict = peer.verdict?;
        let last_passed = verdict.last_passed();
        Some(Self {
            verdict: match verdict.side() {
                Side::Unknown => "unknown",
                Side::Healthy => "healthy",
                Side::Unhealthy => "unhealthy",
            },
            checks: peer.counts.checks,
            fails: peer.counts.fails,
            unhealthy: peer.last.unhealthy,
            last_passed,
            // What came before the check became another one is not of it.
            last: last_passed.map(|_| iso(peer.last.at)),
            in_a_row: verdict.run(),
            failure: verdict.reason().map(FailureJson::of),
        })
    }
}

impl FailureJson {
    fn of(reason: Reason) -> Self {
        Self { code: reason.code(), text: reason.to_string() }
    }
}

impl ExternalJson {
    fn of(external: External, now: u64) -> Option<Self> {
        let verdict = external.holds(now)?.as_str();
        Some(Self { verdict, until: external.until().map(iso) })
    }
}

impl OutlierJson {
    fn of(ejection: Ejection, now: u64) -> Self {
        Self { errors: ejection.errors(), ejected_until: ejection.until(now).map(iso) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check::bar::Bar;
    use crate::check::external::Opinion;
    use crate::check::outlier::Outlier;
    use crate::check::results::{Counts, Last};
    use crate::check::verdict::{Thresholds, Verdict};

    const NOW: u64 = 1_795_986_307_000;

    fn shown(peer: &PeerHealth) -> Value {
        serde_json::to_value(PeerJson::of(peer, NOW)).unwrap()
    }

    #[test]
    fn a_peer_of_which_nothing_is_known_shows_so() {
        let bare = PeerHealth {
            address: "10.0.0.1:80".into(),
            bar: None,
            verdict: None,
            counts: Counts::default(),
            last: Last::default(),
            external: External::default(),
            ejection: None,
        };
        let nothing = json!({"peer":"10.0.0.1:80","state":"up","check":null,"external":null,
            "outlier":null});
        assert_eq!(shown(&bare), nothing);
        let checked = PeerHealth {
            bar: Some(Bar::Checking),
            verdict: Some(Verdict::new(7)),
            last: Last { at: NOW - 5, unhealthy: 2 },
            ejection: Some(Ejection::default()),
            ..bare
        };
        assert_eq!(
            shown(&checked),
            json!({"peer":"10.0.0.1:80","state":"checking",
                "check":{"verdict":"unknown","checks":0,"fails":0,"unhealthy":2,
                    "last_passed":null,"last":null,"in_a_row":0,"failure":null},
                "external":null,"outlier":{"errors":0,"ejected_until":null}})
        );
    }

    #[test]
    fn each_verdict_is_shown_beside_the_others() {
        let mut verdict = Verdict::new(7);
        let rules = Thresholds { fails: 2, passes: 2 };
        for _ in 0..3 {
            verdict.observe(Err(Reason::Status(503)), rules);
        }
        let peer = PeerHealth {
            address: "[::1]:80".into(),
            bar: Some(Bar::Failed(verdict.reason())),
            verdict: Some(verdict),
            counts: Counts { checks: 9, fails: 3 },
            last: Last { at: NOW, unhealthy: 1 },
            external: External::new(Opinion::Unhealthy, Some(30_000), NOW),
            ejection: Some(Ejection::default().ejected(&Outlier::default(), NOW)),
        };
        let until = "2026-11-29T21:05:37Z";
        assert_eq!(
            shown(&peer),
            json!({"peer":"[::1]:80","state":"unhealthy",
                "check":{"verdict":"unhealthy","checks":9,"fails":3,"unhealthy":1,
                    "last_passed":false,"last":"2026-11-29T21:05:07Z","in_a_row":3,
                    "failure":{"code":"status","text":"status 503"}},
                "external":{"verdict":"unhealthy","until":until},
                "outlier":{"errors":0,"ejected_until":until}})
        );
        let over = PeerJson::of(&peer, NOW + 30_000);
        assert!(over.external.is_none() && over.outlier.unwrap().ejected_until.is_none());
    }
}
