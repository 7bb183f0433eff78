//! One connection for questions: many may be out at once, and their answers come in order.
//!
//! A question that its asker gives up keeps its place in the order. One that is not answered in time
//! ends the connection: what hangs holds back all that come after. With the connection all its
//! questions end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use peerage_core::redis::resp::{RespError, Value};

use super::fault::Fault;
use super::open::Opened;
use super::wire::Wire;
use crate::ffi::{process, timer};
use crate::net::error::{Doing, Error};
use crate::net::executor::{self, Handle};
use crate::net::time::{Sleep, sleep};

/// A connection; it is closed when nobody has it any more.
pub(super) struct Line {
    /// The place of the configuration by which it was opened.
    pub(super) place: usize,
    /// Where it leads, as the log shows it.
    pub(super) at: String,
    /// The lines of a store are numbered in the order in which they were opened.
    pub(super) number: u64,
    inner: Rc<Inner>,
    _driver: Handle,
}

/// What the driver and those who ask share.
struct Inner {
    /// What is to be sent.
    out: RefCell<Vec<u8>>,
    questions: RefCell<VecDeque<Question>>,
    /// Why it is over.
    end: RefCell<Option<Fault>>,
    waker: RefCell<Option<Waker>>,
    /// How long an answer may take, ms.
    limit: u64,
    /// Whoever had it opened has asked.
    used: Cell<bool>,
}

/// A question that is out.
struct Question {
    answers: usize,
    /// When it is to be answered, monotonic ms.
    until: u64,
    asked: Rc<Asked>,
}

/// What an asker waits for.
#[derive(Default)]
struct Asked {
    got: RefCell<Vec<Value>>,
    over: RefCell<Option<Result<(), Lost>>>,
    waker: RefCell<Option<Waker>>,
    /// Something of an answer came.
    begun: Cell<bool>,
}

/// Why a question has no answer.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) fault: Fault,
    /// The connection was closed before anything of an answer came: another one may answer.
    pub(super) again: bool,
}

/// The answers to come; dropping it gives them up.
pub(super) struct Answers {
    asked: Rc<Asked>,
    /// The connection lives as long as anybody waits for it.
    _line: Rc<Line>,
}

impl Line {
    /// Begins to move the bytes of a connection.
    pub(super) fn begin(opened: Opened, place: usize, number: u64, limit: u64) -> Rc<Self> {
        let inner = Rc::new(Inner {
            out: RefCell::default(),
            questions: RefCell::default(),
            end: RefCell::default(),
            waker: RefCell::default(),
            limit,
            used: Cell::new(false),
        });
        let (end, wire) = (End(Rc::clone(&inner)), opened.wire);
        let driver = executor::spawn(drive(end, wire));
        Rc::new(Self { place, at: opened.at, number, inner, _driver: driver })
    }

    /// Whether it takes no more questions.
    pub(super) fn is_over(&self) -> bool {
        self.inner.end.borrow().is_some()
    }

    /// How many questions are out.
    pub(super) fn busy(&self) -> usize {
        self.inner.questions.borrow().len()
    }

    /// Asks: `say` appends as many commands as there are answers.
    pub(super) fn ask(self: &Rc<Self>, answers: usize, say: impl FnOnce(&mut Vec<u8>)) -> Answers {
        let (inner, asked) = (&self.inner, Rc::new(Asked::default()));
        match &*inner.end.borrow() {
            Some(fault) => asked.end(Err(Lost { fault: fault.clone(), again: true })),
            None => {
                say(&mut inner.out.borrow_mut());
                let until = timer::now() + inner.limit;
                let question = Question { answers, until, asked: Rc::clone(&asked) };
                inner.questions.borrow_mut().push_back(question);
                inner.used.set(true);
                if let Some(waker) = inner.waker.take() {
                    waker.wake();
                }
            }
        }
        Answers { asked, _line: Rc::clone(self) }
    }
}

impl Future for Answers {
    type Output = Result<Vec<Value>, Lost>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.asked.over.take() {
            Some(Ok(())) => Poll::Ready(Ok(self.asked.got.take())),
            Some(Err(lost)) => Poll::Ready(Err(lost)),
            None => {
                self.asked.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Asked {
    fn end(&self, how: Result<(), Lost>) {
        self.over.replace(Some(how));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Ends all questions with the driver, however that ends.
struct End(Rc<Inner>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.over(Error::Closed.into());
    }
}

async fn drive(end: End, mut wire: Wire) {
    let mut alarm = None;
    let fault = poll_fn(|cx| end.0.poll(&mut wire, &mut alarm, cx)).await;
    if let Some(front) = end.0.questions.borrow().front().filter(|_| wire.is_amid()) {
        front.asked.begun.set(true);
    }
    drop(wire);
    end.0.over(fault);
}

impl Inner {
    /// Moves bytes until the connection is over.
    fn poll(
        &self,
        wire: &mut Wire,
        alarm: &mut Option<Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<Fault> {
        wire.out().append(&mut self.out.borrow_mut());
        loop {
            match wire.poll_next(cx) {
                // Nobody asked for it, and it changes no order.
                Poll::Ready(Ok(Value::Push(_))) => {}
                Poll::Ready(Ok(value)) => {
                    if !self.answer(value) {
                        return Poll::Ready(RespError::Malformed.into());
                    }
                }
                Poll::Ready(Err(fault)) => return Poll::Ready(fault),
                Poll::Pending => break,
            }
        }
        let rests = self.questions.borrow().is_empty();
        wire.rest(rests);
        // One that ended before its first question would be opened again and again.
        if rests && self.used.get() && process::exiting() {
            return Poll::Ready(Error::Exiting.into());
        }
        if self.is_late(alarm, cx) {
            return Poll::Ready(Fault::timeout(Doing::Exchange));
        }
        self.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Gives a value to whom it is for; false: nobody has asked.
    fn answer(&self, value: Value) -> bool {
        let mut questions = self.questions.borrow_mut();
        let Some(front) = questions.front() else { return false };
        front.asked.begun.set(true);
        let mut got = front.asked.got.borrow_mut();
        got.push(value);
        if got.len() == front.answers {
            drop(got);
            if let Some(front) = questions.pop_front() {
                front.asked.end(Ok(()));
            }
        }
        true
    }

    /// Whether the question that was asked first waits for too long.
    fn is_late(&self, alarm: &mut Option<Sleep>, cx: &mut Context<'_>) -> bool {
        loop {
            let until = self.questions.borrow().front().map(|front| front.until);
            // It may ring for one that has its answer.
            if alarm.as_mut().is_some_and(|alarm| Pin::new(alarm).poll(cx).is_ready()) {
                *alarm = None;
            }
            let Some(until) = until else { return false };
            let left = until.saturating_sub(timer::now());
            if left == 0 {
                return true;
            }
            if alarm.is_some() {
                return false;
            }
            *alarm = Some(sleep(left));
        }
    }

    /// It is over, and with it all that is out.
    fn over(&self, fault: Fault) {
        if self.end.borrow().is_some() {
            return;
        }
        self.end.replace(Some(fault.clone()));
        for question in mem::take(&mut *self.questions.borrow_mut()) {
            let again = fault.is_stale() && !question.asked.begun.get();
            question.asked.end(Err(Lost { fault: fault.clone(), again }));
        }
    }
}
