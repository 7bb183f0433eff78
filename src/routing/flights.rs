//! One question at a time for each key: in this process all who want to know wait for the same
//! answer, and of the processes of nginx one asks.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use peerage_core::route::Status;
use peerage_core::route::decide::{Answer, Down};
use peerage_zone::cache::{Kind, Read};

use crate::net::executor::Handle;

/// What the store said.
pub(super) enum Got {
    Tenant {
        /// As the store writes it.
        app: Option<Vec<u8>>,
        status: Status,
    },
    /// An upstream has its servers.
    App,
    Absent,
    Malformed,
    Down(Down),
}

impl Got {
    /// As decisions know answers.
    pub(super) fn answer(&self) -> Answer<'_> {
        match self {
            Self::Tenant { status: Status::Active, .. } | Self::App => Answer::Active,
            Self::Tenant { status, .. } => Answer::Held(status),
            Self::Absent => Answer::Absent,
            Self::Malformed => Answer::Malformed,
            Self::Down(why) => Answer::Down(*why),
        }
    }
}

/// The questions of this process that are not answered yet.
#[derive(Default)]
pub(super) struct Flights(RefCell<HashMap<Key, Rc<Flight>>>);

type Key = (Kind, Box<[u8]>);

/// A question.
pub(super) struct Flight {
    /// When it was begun.
    pub(super) asked: Read,
    got: OnceCell<Rc<Got>>,
    wakers: RefCell<Vec<Waker>>,
    /// Whoever asks.
    task: Cell<Option<Handle>>,
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// The question for a key, if it is being asked.
    pub(super) fn find(&self, kind: Kind, key: &[u8]) -> Option<Rc<Flight>> {
        self.0.borrow().get(&(kind, key.into())).cloned()
    }

    /// Begins one.
    pub(super) fn begin(&self, kind: Kind, key: &[u8], asked: Read) -> Rc<Flight> {
        let (got, wakers, task) = <(OnceCell<_>, RefCell<_>, Cell<_>)>::default();
        let flight = Rc::new(Flight { asked, got, wakers, task });
        self.0.borrow_mut().insert((kind, key.into()), Rc::clone(&flight));
        flight
    }

    /// Ends one.
    pub(super) fn end(&self, kind: Kind, key: &[u8], got: Got) {
        let flight = self.0.borrow_mut().remove(&(kind, key.into()));
        if let Some(flight) = flight {
            // It ends once.
            let _ = flight.got.set(Rc::new(got));
            flight.wakers.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Flight {
    /// Says who asks.
    pub(super) fn asked_by(&self, task: Handle) {
        self.task.set(Some(task));
    }

    /// Waits for the answer.
    pub(super) async fn answer(&self) -> Rc<Got> {
        poll_fn(|cx| match self.got.get() {
            Some(got) => Poll::Ready(Rc::clone(got)),
            None => {
                self.wakers.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}
