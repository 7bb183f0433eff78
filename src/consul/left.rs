//! Sources that the configuration follows no longer: their servers drain and go, and their boards.

use std::cell::{Cell, RefCell};

use peerage_core::change::Change;
use peerage_core::consul::service::service_of;
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_zone::{Attempt, Vanished};

use super::scene::Scene;
use crate::conf::consul::Into;
use crate::ffi::{process, timer};
use crate::worker;

type Sources = Vec<(Option<UpstreamName>, Origin)>;

/// What is left of former configurations.
#[derive(Default)]
pub(super) struct Left {
    /// Sources, with the upstreams where they have servers, or which have a board alone; `None`: not
    /// looked yet.
    all: RefCell<Option<Sources>>,
    /// Monotonic ms.
    looked: Cell<u64>,
}

impl Left {
    /// Has what is left drain and go, a step a second.
    pub(super) fn look(&self, scene: &Scene) {
        let mut all = self.all.borrow_mut();
        if all
            .as_ref()
            .is_some_and(|all| all.is_empty() || timer::now() - self.looked.get() < LOOK_MS)
        {
            return;
        }
        self.looked.set(timer::now());
        all.get_or_insert_with(|| find(scene)).retain(|(upstream, origin)| match upstream {
            Some(upstream) => let_go(scene, upstream, origin),
            None => !forget(scene, origin),
        });
    }
}

/// What is left when the configuration is new.
fn find(scene: &Scene) -> Sources {
    let worker = scene.worker;
    let servers = worker.followed().into_iter().map(|(upstream, of)| (Some(upstream), of));
    let mut left: Sources =
        servers.filter(|(upstream, of)| !follows(scene, upstream.as_ref(), of)).collect();
    for seen in worker.sources() {
        let of = Origin::Consul(seen.name);
        if !follows(scene, None, &of) && left.iter().all(|(_, other)| *other != of) {
            left.push((None, of));
        }
    }
    left
}

/// Whether the configuration follows a source, in that upstream where one is given.
fn follows(scene: &Scene, upstream: Option<&UpstreamName>, origin: &Origin) -> bool {
    let Origin::Consul(source) = origin else { return true };
    scene.follows().iter().any(|follow| match &follow.into {
        Into::Upstream(name) => {
            upstream.is_none_or(|upstream| name == upstream) && follow.service.source() == *source
        }
        Into::Services(_) => {
            follow.service.source() == *source
                || service_of(&follow.service.source(), source).is_some()
        }
    })
}

/// Takes the board from a source; false where that has to be tried again.
fn forget(scene: &Scene, origin: &Origin) -> bool {
    let Origin::Consul(source) = origin else { return true };
    let worker = scene.worker;
    worker.find_source(source).is_none_or(|board| worker.forget_source(board))
}

/// Whether each of these sources has been heard.
fn are_heard(scene: &Scene, sources: &[Origin]) -> bool {
    if sources.is_empty() {
        return true;
    }
    let seen = scene.worker.sources();
    sources.iter().all(|source| {
        let of = |name: &String| matches!(source, Origin::Consul(source) if source == name);
        seen.iter().any(|seen| of(&seen.name) && seen.status.last_success.is_some())
    })
}

/// Whether there is more to do for an upstream.
fn let_go(scene: &Scene, upstream: &UpstreamName, origin: &Origin) -> bool {
    let worker = scene.worker;
    let followed = scene.followed(upstream);
    // Until then its servers are all that there is.
    if !are_heard(scene, &followed) {
        return true;
    }
    let change = Change::Unfollow { followed };
    let mut changed = match scene.change(upstream, &change, origin, None) {
        Attempt::Done { changed, .. } => changed,
        Attempt::Refused(_) => return false,
        _ => return true,
    };
    let Vanished { idle, more } = worker.vanished(upstream, &process::clock());
    if !more || !idle.is_empty() {
        let change = Change::Reap { idle, retire: true };
        match scene.change(upstream, &change, origin, None) {
            Attempt::Done { changed: more, .. } => changed |= more,
            _ => return true,
        }
    }
    if changed {
        worker::wake_all();
    }
    // Servers of it may be in other upstreams, where it is followed.
    more || !follows(scene, None, origin) && !forget(scene, origin)
}

/// Between two steps.
const LOOK_MS: u64 = 1_000;
