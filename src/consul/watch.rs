//! One watched source: reads it without an end, and puts in force what its answers mean.
//!
//! The future that reads is one thing; what an operator wishes, or the time says, comes between by
//! [`Watch::look`], and has the future begin anew. What is decided is put in force by the future
//! alone, one after the other.

mod heard;
mod look;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;

use peerage_core::change::Change;
use peerage_core::consul::catalog::Tagged;
use peerage_core::consul::guard::{Guard, Rules};
use peerage_core::consul::query::{Query, What};
use peerage_core::consul::reader::{Failure, Reader};
use peerage_core::consul::service::{Of, Service};
use peerage_core::name::UpstreamName;
use peerage_core::server::Origin;
use peerage_core::source::Stated;
use peerage_zone::{Attempt, Source};

use super::fetch::Wire;
use super::scene::Scene;
use crate::conf::Consul;
use crate::duty;
use crate::ffi::process;
use crate::net::error::Error;
use crate::net::executor::{self, Handle};
use crate::net::time::sleep;
use crate::worker;

/// A source in the process that watches it.
pub(super) struct Watch {
    scene: Rc<Scene>,
    consul: Rc<Consul>,
    service: Service,
    name: String,
    origin: Origin,
    board: Source,
    aim: Aim,
    state: RefCell<State>,
    task: RefCell<Option<Handle>>,
    /// When idle servers were looked for last, monotonic ms.
    reaped: Cell<u64>,
    /// When somebody else's changes of the upstream were looked for last, monotonic ms.
    compared: Cell<u64>,
    /// Revision of the upstream as it was seen last.
    revision: Cell<Option<u64>>,
}

/// What comes of the answers.
pub(super) enum Aim {
    /// The servers of an upstream; and whether that goes with its last one.
    Servers { upstream: UpstreamName, retires: bool },
    /// Which services there are.
    Services(RefCell<Option<Tagged>>),
}

struct State {
    reader: Reader,
    guard: Guard,
    /// What is to be put in force yet.
    pending: Option<Vec<Stated>>,
    /// A wish that is fulfilled by that.
    wish: Option<u64>,
    /// When the guard is to be asked again, unix ms.
    wake_at: Option<u64>,
    /// There may be servers that go once they are idle.
    reaps: bool,
    /// What is pending did not fit.
    full: bool,
}

impl Watch {
    /// Begins where another process was, if one was.
    pub(super) fn begin(
        scene: &Rc<Scene>,
        consul: &Rc<Consul>,
        service: &Service,
        board: Source,
        aim: Aim,
    ) -> Rc<Self> {
        let name = service.source();
        let seen = scene.worker.seen_source(board);
        let status = seen.map(|seen| seen.status).unwrap_or_default();
        let state = State {
            reader: Reader::resume(consul.addresses.len(), status),
            guard: Guard::new(Rules::from(service)),
            pending: None,
            wish: None,
            wake_at: None,
            reaps: true,
            full: false,
        };
        let watch = Rc::new(Self {
            scene: Rc::clone(scene),
            consul: Rc::clone(consul),
            service: service.clone(),
            origin: Origin::Consul(name.clone()),
            name,
            board,
            aim,
            state: RefCell::new(state),
            task: RefCell::new(None),
            reaped: Cell::new(0),
            compared: Cell::new(0),
            revision: Cell::new(None),
        });
        watch.restart();
        watch
    }

    /// Reads no more.
    pub(super) fn end(&self) {
        drop(self.task.take());
    }

    pub(super) fn board(&self) -> Source {
        self.board
    }

    /// The services of the last answer, if one came since that was asked last.
    pub(super) fn take_services(&self) -> Option<Tagged> {
        match &self.aim {
            Aim::Services(found) => found.take(),
            Aim::Servers { .. } => None,
        }
    }

    /// Whether its upstream is gone.
    pub(super) fn is_over(&self) -> bool {
        let Aim::Servers { upstream, .. } = &self.aim else { return false };
        let state = self.state.borrow();
        state.pending.is_none() && self.scene.worker.read_wanted(upstream).is_none()
    }

    fn restart(self: &Rc<Self>) {
        let watch = Rc::clone(self);
        let task = executor::spawn(async move { watch.run().await });
        // What ran until now ends, and lets the watch go.
        self.task.replace(Some(task));
    }

    async fn run(self: Rc<Self>) {
        let mut wire = Wire::default();
        loop {
            if !self.settle().await {
                return;
            }
            let now = process::clock().msec;
            let read = self.state.borrow().reader.next(now);
            if read.at > now {
                sleep(read.at - now).await;
            }
            if !self.is_ours() {
                return;
            }
            let now = process::clock().msec;
            self.state.borrow_mut().reader.begin(now);
            if read.token_again
                && let Err(error) = self.consul.read_token()
            {
                log!(Crit, "token of consul \"{}\" not read: {error}", self.consul.settings.name);
            }
            let what = match &self.service.of {
                Of::Name(name) => What::Health(name),
                Of::Tag(_) => What::Catalog,
            };
            let token = self.consul.token();
            let (settings, service) = (&self.consul.settings, &self.service);
            let query = Query::new(settings, service, what, read.how, token.as_deref());
            let got = wire.read(&self.consul, read.server, &query).await;
            if !self.is_ours() {
                return;
            }
            let at = (process::clock().msec, random());
            let mut state = self.state.borrow_mut();
            match got {
                Ok(got) => self.answered(&mut state, read.how, &got, at),
                Err(Error::Exiting) => return,
                Err(error) => {
                    let failure = match error {
                        Error::Timeout(_) => Failure::Deadline,
                        error => Failure::Transport(error.to_string()),
                    };
                    let outcome = state.reader.failed::<()>(failure, at);
                    self.heard(&outcome);
                }
            }
            // What is decided is told of once it is in force.
            if state.pending.is_none() {
                self.note(&state);
            }
        }
    }

    /// Puts in force what was decided last; false: the source is not this process's any more.
    async fn settle(&self) -> bool {
        let Aim::Servers { upstream, .. } = &self.aim else { return self.is_ours() };
        loop {
            if !self.is_ours() {
                return false;
            }
            let Some(servers) = self.state.borrow().pending.clone() else { return true };
            let n = servers.len();
            let followed = self.scene.followed(upstream);
            let change = Change::Source { servers, followed };
            let pause = match self.scene.change(upstream, &change, &self.origin, Some(self.board)) {
                Attempt::Busy | Attempt::Unmet(_) => BUSY_MS,
                Attempt::NotWriter => PAUSE_MS,
                Attempt::NoRoom { .. } => {
                    let mut state = self.state.borrow_mut();
                    if !std::mem::replace(&mut state.full, true) {
                        let (zone, name) = (&self.scene.zone, &self.name);
                        log!(
                            Crit,
                            "zone \"{zone}\" is full, source \"consul/{name}\" not followed"
                        );
                    }
                    // What it says by then may fit.
                    state.reader.again(process::clock().msec + FULL_MS);
                    self.note(&state);
                    return true;
                }
                Attempt::Refused(error) => {
                    log!(Warn, "source \"consul/{}\" not followed: {error}", self.name);
                    self.done();
                    return true;
                }
                Attempt::Done { changed, .. } => {
                    self.done();
                    if changed {
                        log!(Info, "source \"consul/{}\" names {n} servers", self.name);
                        worker::wake_all();
                    }
                    return true;
                }
            };
            sleep(pause).await;
        }
    }

    /// What was decided is done, and with it what was wished.
    fn done(&self) {
        let mut state = self.state.borrow_mut();
        (state.pending, state.reaps, state.full) = (None, true, false);
        self.note(&state);
        if let Some(number) = state.wish.take() {
            self.scene.worker.fulfil(self.board, number, true);
        }
    }

    fn note(&self, state: &State) {
        self.scene.worker.note_source(self.board, state.reader.status(), state.guard.held());
    }

    /// Whether the source is still this process's, by a clock that has gone on while it was stopped.
    fn is_ours(&self) -> bool {
        self.scene.worker.source_lease(self.board).is_some_and(duty::is_ours)
    }
}

fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// Until the next try while another one writes.
const BUSY_MS: u64 = 20;
/// The same where that may take long.
const PAUSE_MS: u64 = 1_000;
/// Until a source is read again whose servers did not fit.
const FULL_MS: u64 = 5_000;
