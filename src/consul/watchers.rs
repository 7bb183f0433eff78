//! Which sources of a zone this process watches: each is one process's, by a lease that it renews.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use peerage_core::consul::service::Of;
use peerage_zone::{Boardless, Source, Worker};

use super::left::Left;
use super::scene::{Scene, Terms};
use super::tags::Tags;
use super::watch::{Aim, Watch};
use crate::conf::consul::{Follow, Into};
use crate::duty::{self, Whose};
use crate::ffi::process;
use crate::log::Seldom;

/// What this process does for the sources of a zone.
pub(crate) struct Watchers {
    scene: Rc<Scene>,
    workers: usize,
    slots: Vec<Slot>,
    left: Left,
    ended: Cell<bool>,
}

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
        Self { scene, workers, slots, left: Left::default(), ended: Cell::new(false) }
    }

    /// Looks whether there is something to do; `round`: it is time to look for processes that died.
    pub(crate) fn look(&self, round: bool) {
        if self.ended.get() {
            return;
        }
        if !duty::may(self.scene.worker) {
            self.give_up();
            return;
        }
        for (i, slot) in self.slots.iter().enumerate() {
            // Spread over the workers; what is left over is whose who looks first.
            let is_mine = i % self.workers.max(1) == process::number();
            slot.look(&self.scene, round, is_mine);
        }
        if process::number() == 0 && round {
            self.left.look(&self.scene);
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
            any |= lease.is_some_and(duty::leave);
        }
        any
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
                static FULL: Seldom = Seldom::new();
                if FULL.may() {
                    let zone = &scene.zone;
                    log!(Crit, "zone \"{zone}\" is full, source \"consul/{name}\" not watched");
                }
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
    let lease = worker.source_lease(board);
    lease.is_some_and(|lease| duty::take(lease, round) != Whose::Another)
}
