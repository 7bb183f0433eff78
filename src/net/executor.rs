//! Runs the futures that belong to this process, on nginx's event loop.
//!
//! A future that was woken has its turn from a posted event, never inside whoever woke it: no
//! future is polled while another one is, and none runs inside a handler of nginx's. A round ends
//! after 2 ms, and what is left has its turn after nginx has looked at its events. A panic ends the
//! future in which it happens.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::ffi::fence;
use crate::ffi::global::Global;
use crate::ffi::timer::{Kind, Timer};

/// A future's owner: dropping it drops the future, unless that has come to its end.
#[must_use = "dropping it ends the future"]
pub(crate) struct Handle(u64);

struct Task {
    number: u64,
    /// Not there while it is polled.
    future: RefCell<Option<Boxed>>,
    queued: Cell<bool>,
    waker: Waker,
}

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

struct State {
    tasks: RefCell<BTreeMap<u64, Rc<Task>>>,
    queue: RefCell<VecDeque<Rc<Task>>>,
    next: Cell<u64>,
    /// A round is under way: who is queued needs no event.
    running: Cell<bool>,
    timer: RefCell<Option<Timer>>,
}

static STATE: Global<State> = Global::new(State {
    tasks: RefCell::new(BTreeMap::new()),
    queue: RefCell::new(VecDeque::new()),
    next: Cell::new(0),
    running: Cell::new(false),
    timer: RefCell::new(None),
});

/// Takes a future over; its first turn comes soon, not now.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> Handle {
    let state = STATE.get();
    let number = state.next.get();
    state.next.set(number + 1);
    let task = Rc::new(Task {
        number,
        future: RefCell::new(Some(Box::pin(future))),
        queued: Cell::new(false),
        waker: Waker::from(Arc::new(Bell(number))),
    });
    state.tasks.borrow_mut().insert(number, task);
    wake(number);
    Handle(number)
}

/// Drops all futures, before the process leaves what they use.
pub(crate) fn end() {
    let state = STATE.get();
    loop {
        // A future that ends may end others.
        let first = state.tasks.borrow_mut().pop_first();
        let Some((_, task)) = first else { break };
        task.end();
    }
    drop((state.tasks.take(), state.queue.take(), state.timer.take()));
}

#[cfg(feature = "panic")]
/// How many futures there are.
pub(crate) fn count() -> usize {
    STATE.get().tasks.borrow().len()
}

/// Lets others have their turn: for what has much to do.
pub(crate) async fn pass() {
    let mut passed = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Handle {
    /// Whether the future has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        !STATE.get().tasks.borrow().contains_key(&self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let task = STATE.get().tasks.borrow_mut().remove(&self.0);
        if let Some(task) = task {
            task.end();
        }
    }
}

/// Wakes a future by its number, which no other one ever has. Unlike the future, it may be sent to
/// other threads, as a waker must; whoever wakes there is told by a panic.
struct Bell(u64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        wake(self.0);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        wake(self.0);
    }
}

fn wake(number: u64) {
    let state = STATE.get();
    let Some(task) = state.tasks.borrow().get(&number).cloned() else { return };
    if task.queued.replace(true) {
        return;
    }
    state.queue.borrow_mut().push_back(task);
    if !state.running.get() {
        post(state);
    }
}

/// Has a round run in the next turn of the event loop.
fn post(state: &State) {
    let mut timer = state.timer.borrow_mut();
    let timer = timer.get_or_insert_with(|| Timer::new(Kind::Cancelable, round));
    if !timer.is_posted() {
        timer.post();
    }
}

fn round() {
    let state = STATE.get();
    state.running.set(true);
    let began = Instant::now();
    while began.elapsed() < SLICE {
        let next = state.queue.borrow_mut().pop_front();
        let Some(task) = next else { break };
        task.turn(state);
    }
    state.running.set(false);
    if !state.queue.borrow().is_empty() {
        post(state);
    }
}

impl Task {
    fn turn(&self, state: &State) {
        self.queued.set(false);
        let Some(mut future) = self.future.take() else { return };
        let poll = || future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready();
        let over = fence::guard("a background task", true, poll);
        // Whoever owns it may have dropped it meanwhile.
        if !over && state.tasks.borrow().contains_key(&self.number) {
            self.future.replace(Some(future));
            return;
        }
        state.tasks.borrow_mut().remove(&self.number);
        fence::guard("a background task's end", (), move || drop(future));
    }

    /// Drops the future; one that is being polled is dropped afterwards.
    fn end(&self) {
        let future = self.future.take();
        fence::guard("a background task's end", (), move || drop(future));
    }
}

/// What futures do in one go before nginx looks at its events.
const SLICE: Duration = Duration::from_millis(2);
