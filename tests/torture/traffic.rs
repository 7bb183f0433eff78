//! Traffic: requests to every upstream, each held to what the board says.

use std::sync::atomic::Ordering;

use crate::support::*;

use super::rng::Rng;
use super::site::Site;

/// One request; `Err` says what is wrong with its answer.
pub(crate) fn request(site: &Site, upstream: &str, slow: bool) -> Result<(), String> {
    let place = if upstream.starts_with("fix") || upstream == "edit" { upstream } else { "k" };
    let path = match slow {
        // Long enough that a worker dies with it now and then.
        true => format!("/{place}/slow?u={upstream}&ms=150"),
        false => format!("/{place}?u={upstream}"),
    };
    let before = site.board.of(upstream);
    let (still, begin) = (site.still(), Instant::now());
    let reply = match Request::get(&path).send(site.web) {
        Ok(reply) => reply,
        Err(_) if site.excused(begin) => {
            site.count("broken");
            return Ok(());
        }
        Err(error) => {
            return Err(format!(
                "{path}: {error} after {:?}, and nobody was killed",
                begin.elapsed()
            ));
        }
    };
    site.count(format!("traffic {}", reply.status));
    if still.is_none() || site.still() != still {
        return Ok(());
    }
    let wrong = site.board.wrong(upstream, &before, &reply);
    let worker = reply.header("x-worker").unwrap_or_default();
    wrong.map_or(Ok(()), |wrong| Err(format!("{wrong} (worker {worker}, {:?})", begin.elapsed())))
}

/// Sends requests until the run is over.
pub(crate) fn run(site: &Site, index: u64, upstreams: &[String]) {
    for nth in 0.. {
        if site.over() {
            return;
        }
        let mut rng = Rng::of(site.seed, 1000 + index, nth);
        // First it counts as busy, then it looks whether it may be.
        site.busy.fetch_add(1, Ordering::SeqCst);
        if !site.paused.load(Ordering::SeqCst) {
            // Two that are quick, and others whose requests are under way most of the time.
            let (slow, upstream) =
                (rng.chance(if index < 2 { 10 } else { 90 }), rng.pick(upstreams));
            if let Err(wrong) = request(site, upstream, slow) {
                site.fail(wrong);
            }
        }
        site.busy.fetch_sub(1, Ordering::SeqCst);
        let_pass(ms(25 + rng.below(30)));
    }
}
