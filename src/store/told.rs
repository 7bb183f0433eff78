//! What the log is told of a store: of each reason a line a second.

use std::cell::{Cell, RefCell};

use peerage_core::route::decide::Down;

use crate::ffi::timer;

/// When what was told last, monotonic ms.
#[derive(Default)]
pub(super) struct Told {
    last: RefCell<Vec<(Down, u64)>>,
    /// The last line was of that: for each such line one says that it is up.
    down: Cell<bool>,
}

impl Told {
    /// Tells why it has no answer.
    pub(super) fn down(&self, name: &str, at: &str, down: Down, why: &str) {
        let (mut last, now) = (self.last.borrow_mut(), timer::now());
        match last.iter_mut().find(|(told, _)| *told == down) {
            Some((_, when)) if now.saturating_sub(*when) < QUIET_MS => return,
            Some((_, when)) => *when = now,
            None => last.push((down, now)),
        }
        self.down.set(true);
        log!(Warn, "redis \"{name}\" is down: {why}, server \"{at}\"");
    }

    /// Tells that it has answers again, where it had none.
    pub(super) fn up(&self, name: &str, at: &str) {
        if self.down.replace(false) {
            log!(Notice, "redis \"{name}\" is up, server \"{at}\"");
        }
    }
}

const QUIET_MS: u64 = 1_000;
