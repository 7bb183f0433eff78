//! Which sources of a zone this process watches: each is one process's, by a lease that it renews.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use peerage_core::change::Change;
use peerage_core::consul::service::Of;
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_zone::{Attempt, Boardless, Lead, Source, Vanished, Worker};

use super::scene::{Scene, Terms};
use super::tags::Tags;
use super::watch::{Aim, Watch};
use crate::conf::consul::{Follow, Into};
use crate::ffi::{process, timer};
use crate::worker;

/// What this process does for the sources of a zone.
pub(crate) struct Watchers {
    scene: Rc<Scene>,
    workers: usize,
    slots: Vec<Slot>,
    /// Sources that nobody follows any more, with the upstreams where they have servers, or which
    /// have a board alone; `None`: not looked yet.
    left: RefCell<Option<Left>>,
    swept: Cell<u64>,
    ended: Cell<bool>,
}

type Left = Vec<(Option<UpstreamName>, Origin)>;

/// What the configuration follows.
struct Slot {
    follow: Follow,
    board: Cell<Option<Source>>,
    running: RefCell<Option<Running>>,
}

/// A source that is this process's.
struct Running {
    watch: Rc<Watch>,
    tags: Option<Tags>,
}

impl Watchers {
    pub(crate) fn new(
        zone: &str,
        worker: &'static Worker,
        terms: &Rc<Terms>,
        workers: usize,
    ) -> Self {
        let slot = |follow: &Follow| Slot {
            follow: follow.clone(),
            board: Cell::new(None),
            running: RefCell::new(None),
        };
        let slots = terms.follows.iter().map(slot).collect();
        let scene = Scene::new(zone, worker, terms);
        Self {
            scene,
            workers,
            slots,
            left: RefCell::new(None),
            swept: Cell::new(0),
            ended: Cell::new(false),
        }
    }

    /// Looks whether there is something to do; `round`: it is time to look for processes that died.
    pub(crate) fn look(&self, round: bool) {
        if self.ended.get() {
            return;
        }
        let worker = self.scene.worker;
        let may = match worker.zone().durable().lead() {
            Lead::Free | Lead::Leads => !worker.zone().is_moved(),
            // Another nginx watches, or it is not known yet.
            Lead::Waiting | Lead::Follows => false,
        };
        if !may || process::exiting() {
            self.give_up();
            return;
        }
        for (i, slot) in self.slots.iter().enumerate() {
            // Spread over the workers; what is left over is whose who looks first.
            let is_mine = i % self.workers.max(1) == process::number();
            slot.look(&self.scene, round, is_mine);
        }
        if process::number() == 0 && round {
            self.sweep();
        }
    }

    /// Watches nothing any more.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.give_up();
    }

    /// Leaves all to others; true if there was anything.
    pub(crate) fn give_up(&self) -> bool {
        let worker = self.scene.worker;
        let mut any = false;
        for slot in &self.slots {
            if let Some(running) = slot.running.take() {
                running.end();
            }
            let lease = slot.board.get().and_then(|board| worker.source_lease(board));
            any |= lease.is_some_and(|lease| lease.take(process::pid(), 0));
        }
        any
    }

    /// Servers of sources that are followed no longer drain and go.
    fn sweep(&self) {
        if self.slots.is_empty() && self.left.borrow().as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        if timer::now() - self.swept.get() < SWEEP_MS && self.left.borrow().is_some() {
            return;
        }
        self.swept.set(timer::now());
        let mut left = self.left.borrow_mut();
        let left = left.get_or_insert_with(|| self.look_for_left());
        left.retain(|(upstream, origin)| match upstream {
            Some(upstream) => self.let_go(upstream, origin),
            None => !self.forget(origin),
        });
    }

    fn look_for_left(&self) -> Left {
        let worker = self.scene.worker;
        let servers = worker.followed().into_iter().map(|(upstream, of)| (Some(upstream), of));
        let mut left: Left =
            servers.filter(|(upstream, of)| !self.follows(upstream.as_ref(), of)).collect();
        for seen in worker.sources() {
            let of = Origin::Consul(seen.name);
            if !self.follows(None, &of) && left.iter().all(|(_, other)| *other != of) {
                left.push((None, of));
            }
        }
        left
    }

    /// Whether the configuration follows a source, in that upstream where one is given.
    fn follows(&self, upstream: Option<&UpstreamName>, origin: &Origin) -> bool {
        let Origin::Consul(source) = origin else { return true };
        self.slots.iter().any(|slot| match &slot.follow.into {
            Into::Upstream(name) => {
                upstream.is_none_or(|upstream| name == upstream)
                    && slot.follow.service.source() == *source
            }
            Into::Services(_) => {
                slot.follow.service.source() == *source || Tags::is_of(&slot.follow, source)
            }
        })
    }

    /// Takes the board from a source; false where that has to be tried again.
    fn forget(&self, origin: &Origin) -> bool {
        let Origin::Consul(source) = origin else { return true };
        let worker = self.scene.worker;
        worker.find_source(source).is_none_or(|board| worker.forget_source(board))
    }

    /// Whether each of these sources has been heard.
    fn are_heard(&self, sources: &[Origin]) -> bool {
        if sources.is_empty() {
            return true;
        }
        let seen = self.scene.worker.sources();
        sources.iter().all(|source| {
            let of = |name: &String| matches!(source, Origin::Consul(source) if source == name);
            seen.iter().any(|seen| of(&seen.name) && seen.status.last_success.is_some())
        })
    }

    /// Whether there is more to do for an upstream.
    fn let_go(&self, upstream: &UpstreamName, origin: &Origin) -> bool {
        let worker = self.scene.worker;
        let followed = self.scene.followed(upstream);
        // Until then its servers are all that there is.
        if !self.are_heard(&followed) {
            return true;
        }
        let change = Change::Unfollow { followed };
        let mut changed = match self.scene.change(upstream, &change, origin, None) {
            Attempt::Done { changed, .. } => changed,
            Attempt::Refused(_) => return false,
            _ => return true,
        };
        let Vanished { idle, more } = worker.vanished(upstream, &process::clock());
        if !more || !idle.is_empty() {
            let change = Change::Reap { idle, retire: true };
            match self.scene.change(upstream, &change, origin, None) {
                Attempt::Done { changed: more, .. } => changed |= more,
                _ => return true,
            }
        }
        if changed {
            worker::wake_all();
        }
        // Servers of it may be in other upstreams, where it is followed.
        more || !self.follows(None, origin) && !self.forget(origin)
    }
}

impl Slot {
    fn look(&self, scene: &Rc<Scene>, round: bool, is_mine: bool) {
        let Some(board) = self.board(scene) else { return };
        let lease = scene.worker.source_lease(board);
        let is_ours = lease.is_some_and(|lease| lease.owner() == process::pid());
        if !is_ours {
            if let Some(running) = self.running.take() {
                running.end();
            }
            if !(is_mine || round) {
                return;
            }
        }
        if !own(scene.worker, board, round) {
            return;
        }
        let mut running = self.running.borrow_mut();
        let running = running.get_or_insert_with(|| self.begin(scene, board));
        running.watch.look();
        if let Some(tags) = &running.tags {
            if let Some(found) = running.watch.take_services() {
                tags.take(found);
            }
            tags.look();
        }
    }

    fn board(&self, scene: &Scene) -> Option<Source> {
        if let Some(board) = self.board.get().filter(|&b| scene.worker.source_lease(b).is_some()) {
            return Some(board);
        }
        let name = self.follow.service.source();
        match scene.worker.source(&name) {
            Ok(board) => {
                self.board.set(Some(board));
                Some(board)
            }
            Err(Boardless::Busy) => None,
            Err(Boardless::NoRoom) => {
                let zone = &scene.zone;
                say_full(zone, &name);
                None
            }
        }
    }

    fn begin(&self, scene: &Rc<Scene>, board: Source) -> Running {
        let Follow { consul, service, into } = &self.follow;
        let (aim, tags) = match (&service.of, into) {
            (Of::Name(_), Into::Upstream(upstream)) => {
                (Aim::Servers { upstream: upstream.clone(), retires: false }, None)
            }
            (_, into) => {
                let glob = match into {
                    Into::Services(glob) => glob.clone(),
                    Into::Upstream(_) => None,
                };
                let tags = Tags::begin(scene, &self.follow, glob);
                (Aim::Services(RefCell::default()), Some(tags))
            }
        };
        Running { watch: Watch::begin(scene, consul, service, board, aim), tags }
    }
}

impl Running {
    fn end(&self) {
        self.watch.end();
        if let Some(tags) = &self.tags {
            tags.end();
        }
    }
}

/// Takes a source for this process where it is nobody's, and renews its word; whether it is its.
pub(super) fn own(worker: &Worker, board: Source, round: bool) -> bool {
    let Some(lease) = worker.source_lease(board) else { return false };
    let (owner, me, now) = (lease.owner(), process::pid(), timer::fresh());
    if owner != me {
        let is_free = owner == 0 || now >= lease.until() || round && !process::alive(owner, 0);
        if !is_free || !lease.take(owner, me) {
            return false;
        }
    }
    lease.renew(now + LEASE_MS);
    true
}

fn say_full(zone: &str, source: &str) {
    use crate::ffi::global::Global;
    static LAST: Global<Cell<Option<u64>>> = Global::new(Cell::new(None));
    let (last, now) = (LAST.get(), timer::now());
    if last.get().is_none_or(|at| now - at >= SILENCE_MS) {
        last.set(Some(now));
        log!(Crit, "zone \"{zone}\" is full, source \"consul/{source}\" not watched");
    }
}

/// How long a process that does not run keeps a source.
const LEASE_MS: u64 = 1_200;
/// Between two looks for servers whose source is followed no longer.
const SWEEP_MS: u64 = 1_000;
/// Between two lines about a full zone.
const SILENCE_MS: u64 = 60_000;
