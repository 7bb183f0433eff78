//! The connections of a store: how many there are, which one is asked, when one is made.
//!
//! The one with the fewest questions out is asked; another one is made where all have many. One is
//! made at a time, by the first place that has it; where none has, nothing is tried for a while, and
//! whoever asks meanwhile is told the reason at once.

use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem;
use std::rc::Rc;
use std::task::{Poll, Waker};

use peerage_core::redis::backoff;
use peerage_core::route::decide::Down;

use super::fault::Fault;
use super::line::Line;
use super::open::{Opened, Whom, open};
use super::{MAX_ANSWER, Store};
use crate::ffi::timer;
use crate::net::executor::{self, Handle};

/// See the module.
#[derive(Default)]
pub(super) struct Pool {
    lines: Vec<Rc<Line>>,
    /// What makes another one.
    opening: Option<Handle>,
    /// Who waits for that.
    wakers: Vec<Waker>,
    /// The place that is tried first.
    pub(super) place: usize,
    /// The number of the next line.
    next: u64,
    /// Times in a row that no place had a connection.
    failures: u32,
    /// Until when none is tried, monotonic ms, and why.
    pause: Option<(u64, Down)>,
    /// The process has left the configuration.
    pub(super) ended: bool,
}

impl Pool {
    /// Ends all, and begins nothing any more.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.lines.clear();
        self.opening = None;
        wake(&mut self.wakers);
    }

    /// The number that the next line will have.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Asks over the connections to a place no more; what is out over them has its answers.
    pub(super) fn leave(&mut self, place: usize) {
        self.lines.retain(|line| line.place != place);
    }

    /// Has the place after this one tried first, if this was it.
    pub(super) fn pass(&mut self, place: usize, places: usize) {
        // What has connections is not left for one that failed.
        if self.place == place && self.lines.iter().all(|line| line.place != place) {
            self.place = (place + 1) % places;
        }
    }

    /// Whether what is asked is asked there.
    pub(super) fn is_at(&self, place: usize, at: &str) -> bool {
        let mut lines = self.lines.iter().filter(|line| !line.is_over());
        self.place == place && lines.all(|line| line.at == at)
    }

    /// Makes room for another connection, where as many are there as may be.
    fn make_room(&mut self, most: usize) {
        if self.lines.len() < most {
            return;
        }
        let idlest = self.lines.iter().enumerate().min_by_key(|(_, line)| line.busy());
        if let Some((i, _)) = idlest {
            self.lines.swap_remove(i);
        }
    }
}

impl Store {
    /// A connection to ask, of a number from `least` on.
    pub(super) async fn line(self: &Rc<Self>, least: u64) -> Result<Rc<Line>, Down> {
        let most = self.redis.settings.keepalive as usize;
        poll_fn(|cx| {
            let mut pool = self.pool.borrow_mut();
            if pool.ended {
                return Poll::Ready(Err(Down::Closed));
            }
            pool.lines.retain(|line| !line.is_over());
            let fit = pool.lines.iter().filter(|line| line.number >= least);
            if let Some(line) = fit.min_by_key(|line| line.busy()).cloned() {
                if line.busy() >= BUSY && pool.lines.len() < most {
                    self.grow(&mut pool);
                }
                return Poll::Ready(Ok(line));
            }
            pool.make_room(most);
            if !self.grow(&mut pool) {
                let (_, down) = pool.pause.unwrap_or((0, Down::Connect));
                return Poll::Ready(Err(down));
            }
            pool.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Has another connection made, unless that is under way; false: it is not time for it.
    fn grow(self: &Rc<Self>, pool: &mut Pool) -> bool {
        // One that a panic has ended makes none any more.
        if pool.opening.as_ref().is_some_and(|opening| !opening.is_over()) {
            return true;
        }
        if pool.pause.is_some_and(|(until, _)| timer::now() < until) {
            return false;
        }
        let store = Rc::clone(self);
        pool.opening = Some(executor::spawn(async move { store.open().await }));
        true
    }

    /// Makes a connection by the first place that has one.
    async fn open(self: Rc<Self>) {
        #[cfg(feature = "panic")]
        assert_ne!(self.redis.name, "panics", "a test asks for it");
        let places = self.redis.places.len();
        let first = self.pool.borrow().place;
        let mut down = Down::Connect;
        for place in (0..places).map(|i| (first + i) % places) {
            match self.attempt(place).await {
                Ok(opened) => {
                    self.opened(opened, place);
                    return;
                }
                Err(fault) => down = fault.down(),
            }
        }
        let mut pool = self.pool.borrow_mut();
        pool.failures = pool.failures.saturating_add(1);
        let pause = backoff::after(pool.failures, random());
        pool.pause = Some((timer::now() + pause, down));
        pool.opening = None;
        wake(&mut pool.wakers);
    }

    fn opened(&self, opened: Opened, place: usize) {
        self.told.up(&self.redis.name, &opened.at);
        let mut pool = self.pool.borrow_mut();
        let number = pool.next;
        let line = Line::begin(opened, place, number, self.redis.settings.timeout);
        // What leads elsewhere is of a master that was, or of a place that failed.
        pool.lines.retain(|other| other.at == line.at);
        pool.lines.push(line);
        (pool.next, pool.place) = (number + 1, place);
        (pool.failures, pool.pause, pool.opening) = (0, None, None);
        wake(&mut pool.wakers);
    }

    async fn attempt(&self, place: usize) -> Result<Opened, Fault> {
        self.open_by(place, Whom::Requests, MAX_ANSWER).await
    }

    /// Opens a connection by a place; where the password is refused, by the one that its file has
    /// now.
    pub(super) async fn open_by(
        &self,
        place: usize,
        whom: Whom,
        limit: usize,
    ) -> Result<Opened, Fault> {
        let mut again = true;
        loop {
            let (fault, at) = match open(&self.redis, &self.redis.places[place], whom, limit).await
            {
                Ok(opened) => return Ok(opened),
                Err(failed) => failed,
            };
            let down = fault.down();
            if mem::take(&mut again) && self.has_another_password(down) {
                continue;
            }
            if !fault.is_exit() {
                self.told.down(&self.redis.name, &at, down, &fault.to_string());
            }
            return Err(fault);
        }
    }

    fn has_another_password(&self, down: Down) -> bool {
        if !matches!(down, Down::NoAuth | Down::WrongPass) {
            return false;
        }
        self.redis.read_again().unwrap_or_else(|error| {
            log!(Crit, "password of redis \"{}\" not read: {error}", self.redis.name);
            false
        })
    }
}

fn wake(wakers: &mut Vec<Waker>) {
    mem::take(wakers).into_iter().for_each(Waker::wake);
}

pub(super) fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// Questions that are out, where another connection is worth it.
const BUSY: usize = 16;
