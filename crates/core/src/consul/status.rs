//! What is known of a source: whether its last answer stands, since when, and what went wrong last.
//!
//! Times are unix ms.

/// Whether a source is heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// There was no answer yet, and no failure.
    #[default]
    Waiting,
    /// Its last read was answered.
    Up,
    /// It was not: what it said last stands.
    Stale,
}

impl Health {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Up => "up",
            Self::Stale => "stale",
        }
    }
}

/// What is known of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether it is heard.
    pub health: Health,
    /// Since when; 0 = it was never asked.
    pub since: u64,
    /// The index of the last good answer; 0 = there was none.
    pub index: u64,
    /// When the last good answer came.
    pub last_success: Option<u64>,
    /// What went wrong last, which stays to be seen, and when.
    pub last_error: Option<(String, u64)>,
    /// Good answers.
    pub answers: u64,
    /// Reads that failed.
    pub failures: u64,
    /// Entries that the last good answer had and nobody can use.
    pub skipped: u32,
}

/// A source came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What it was.
    pub from: Health,
    /// What it is.
    pub to: Health,
}

impl Status {
    /// A read was answered well.
    pub fn succeed(&mut self, index: u64, now: u64) -> Option<Turn> {
        self.index = index;
        self.last_success = Some(now);
        self.answers += 1;
        self.turn(Health::Up, now)
    }

    /// A read failed.
    pub fn fail(&mut self, error: String, now: u64) -> Option<Turn> {
        self.last_error = Some((error, now));
        self.failures += 1;
        self.turn(Health::Stale, now)
    }

    /// How old what it said last is, ms; `None`: it said nothing.
    pub fn age(&self, now: u64) -> Option<u64> {
        match self.health {
            // It waits to be told of a change.
            Health::Up => self.last_success.map(|_| 0),
            Health::Waiting | Health::Stale => self.last_success.map(|at| now.saturating_sub(at)),
        }
    }

    fn turn(&mut self, to: Health, now: u64) -> Option<Turn> {
        let from = std::mem::replace(&mut self.health, to);
        if from == to {
            return None;
        }
        self.since = now;
        Some(Turn { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_stale_from_its_first_failure_to_its_next_answer() {
        let mut status = Status::default();
        assert_eq!(status.age(5), None);
        let turn = status.succeed(7, 10);
        assert_eq!(turn, Some(Turn { from: Health::Waiting, to: Health::Up }));
        assert_eq!((status.succeed(8, 20), status.since, status.age(99)), (None, 10, Some(0)));
        assert!(status.fail("refused".into(), 30).is_some());
        assert!(status.fail("refused".into(), 40).is_none());
        assert_eq!((status.since, status.age(50), status.index), (30, Some(30), 8));
        assert!(status.succeed(9, 60).is_some());
        assert_eq!(status.last_error, Some(("refused".into(), 40)));
    }
}
