//! Waiting, and not waiting for too long.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::error::{Doing, Error};
use crate::ffi::timer::{self, Kind, Timer};

/// A time to be waited for. It does not hold an exiting worker.
pub(crate) struct Sleep {
    bell: Rc<Bell>,
    /// Dropped, it rings no more.
    _timer: Timer,
}

#[derive(Default)]
struct Bell {
    rung: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Waits so many milliseconds from now on.
pub(crate) fn sleep(ms: u64) -> Sleep {
    let bell = Rc::new(Bell::default());
    let timer = Timer::new(Kind::Cancelable, {
        let bell = Rc::clone(&bell);
        move || {
            bell.rung.set(true);
            if let Some(waker) = bell.waker.take() {
                waker.wake();
            }
        }
    });
    timer.set(ms);
    Sleep { bell, _timer: timer }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.bell.rung.get() {
            return Poll::Ready(());
        }
        self.bell.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// When something is to be over, however many steps it takes: monotonic ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(u64);

impl Deadline {
    /// So many milliseconds from now on.
    pub(crate) fn after(ms: u64) -> Self {
        Self(timer::now().saturating_add(ms))
    }

    /// Does a step; if the time is over before, the step is dropped.
    pub(crate) async fn within<T>(
        self,
        doing: Doing,
        step: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let left = self.0.saturating_sub(timer::now());
        timeout(left, step).await.unwrap_or(Err(Error::Timeout(doing)))
    }
}

/// Does something for at most so many milliseconds; `None`: it has not come to its end.
pub(crate) async fn timeout<F: Future>(ms: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut sleep = None;
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        // No timer for what does not wait at all.
        let sleep = sleep.get_or_insert_with(|| self::sleep(ms));
        Pin::new(sleep).poll(cx).map(|()| None)
    })
    .await
}
