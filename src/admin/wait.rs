//! What a write waits for once its change is in force: a look tells whether it has come.

use peerage_core::api::error::{Code, Problem};
use peerage_core::server::AdminState;
use peerage_zone::{Drain, Mark, Worker};

use crate::conf::Zone;
use crate::ffi::timer;
use crate::zone;

/// What a verb waits for.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    Drained,
    Ready,
}

impl Wait {
    /// What a verb with this outcome waits for.
    pub(super) const fn of(verb: AdminState) -> Self {
        match verb {
            AdminState::Up => Self::Ready,
            AdminState::Drain | AdminState::Down => Self::Drained,
        }
    }

    /// The member of an answer that says whether it has come.
    pub(super) const fn member(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Ready => "ready",
        }
    }

    /// The problem where it has not.
    pub(super) fn missed(self, detail: String) -> Problem {
        Problem::new(Code::WaitExpired, detail).with(self.member(), false)
    }
}

/// What a look gave.
pub(super) enum Look {
    /// It has come.
    Come,
    /// Not yet; the problem that says so when the time is over.
    NotYet(Problem),
    /// It cannot come any more.
    Never(Problem),
}

/// What a request that waits does after a look.
pub(super) enum Next {
    Answer,
    /// Looks again in so many ms.
    Again(u64),
    GiveUp(Problem),
}

impl Look {
    /// What to do now, where the wait ends at `until`, monotonic ms.
    pub(super) fn next(self, until: u64) -> Next {
        let now = timer::now();
        match self {
            Self::Come => Next::Answer,
            Self::NotYet(_) if now < until => Next::Again((until - now).clamp(1, LOOK_MS)),
            Self::NotYet(problem) | Self::Never(problem) => Next::GiveUp(problem),
        }
    }
}

/// Whether none of the requests that a change concerned is in flight, and none can begin; `undone`
/// says how the change was taken back, where it was.
pub(super) fn drained(zone: &Zone, worker: &Worker, mark: &Mark, undone: Option<&str>) -> Look {
    let Drain { drained, active, upgraded } = worker.drain(mark);
    let problem = |detail: String| {
        Wait::Drained.missed(detail).with("active", active).with("upgraded", upgraded)
    };
    if let Some(undone) = undone {
        return Look::Never(problem(undone.to_owned()));
    }
    if !drained {
        return Look::NotYet(problem(format!("requests in flight: {active}")));
    }
    match zone::elders(zone) {
        0 => Look::Come,
        n => Look::NotYet(problem(format!(
            "{n} workers of before the zone's size was changed may have requests in flight"
        ))),
    }
}

/// Between two looks; a wake-up comes earlier.
const LOOK_MS: u64 = 50;
