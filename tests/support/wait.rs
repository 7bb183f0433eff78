//! Waiting on conditions: the only place in the tests that sleeps.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until `check` gives `true` or `Some`, and returns what it gave.
///
/// Fails the story, at the caller's line, when `limit` has passed.
#[track_caller]
pub fn eventually<F: Found>(limit: Duration, check: impl FnMut() -> F) -> F::Value {
    match within(limit, check) {
        Some(value) => value,
        None => panic!("not so within {limit:?}"),
    }
}

/// Waits until `check` gives `true` or `Some`; `None` when `limit` has passed.
pub fn within<F: Found>(limit: Duration, mut check: impl FnMut() -> F) -> Option<F::Value> {
    let end = Instant::now() + limit;
    let mut step = Duration::from_micros(500);
    loop {
        let late = Instant::now() >= end;
        if let Some(value) = check().found() {
            return Some(value);
        }
        if late {
            return None;
        }
        thread::sleep(step);
        step = (step * 2).min(Duration::from_millis(20));
    }
}

/// Fails the story if `check` is ever false during `time`.
#[track_caller]
pub fn holds_for(time: Duration, mut check: impl FnMut() -> bool) {
    let broken = within(time, || !check());
    assert!(broken.is_none(), "did not stay so for {time:?}");
}

/// Lets `time` pass, where time itself is the condition (`fail_timeout`, a `ttl`).
pub fn let_pass(time: Duration) {
    thread::sleep(time);
}

/// An answer of a check: `bool`, or an `Option` with something to hand on.
pub trait Found {
    type Value;

    fn found(self) -> Option<Self::Value>;
}

impl Found for bool {
    type Value = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Found for Option<T> {
    type Value = T;

    fn found(self) -> Self {
        self
    }
}
