//! The reader of one thing in a Consul: what each answer means for the next read.
//!
//! A read is a blocking query: it waits in the Consul until something has changed beyond an index.
//! The status of an answer is looked at before its index, since every error has index 1. What an
//! answer holds counts only if the index did not go back; if it did, the Consul may have lost its
//! memory, and is asked anew, with a leader that is sure of itself.
//!
//! All times are unix ms. Whoever reads calls [`Reader::next`], waits until then, calls
//! [`Reader::begin`], reads, and tells what came of it.

use thiserror::Error;

use crate::consul::answer::BodyError;
use crate::consul::backoff;
use crate::consul::pace::Pace;
use crate::consul::query::How;
use crate::consul::status::{Status, Turn};

/// A read to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// When, at the earliest.
    pub at: u64,
    /// Which of the Consul's addresses, by its place.
    pub server: usize,
    /// How.
    pub how: How,
    /// The file of the token is to be read again before.
    pub token_again: bool,
}

/// An answer, as far as it counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reply<'a> {
    /// Its status.
    pub status: u16,
    /// `X-Consul-Index`.
    pub index: Option<u64>,
    /// `X-Consul-KnownLeader`.
    pub led: Option<bool>,
    /// `X-Consul-Results-Filtered-By-ACLs`, or a default policy of deny.
    pub denied: bool,
    /// Its body.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Reads the headers that count; `header` finds one by its name in any case.
    pub fn new<'h>(status: u16, header: impl Fn(&str) -> Option<&'h str>, body: &'a [u8]) -> Self {
        let is = |name: &str, word: &str| {
            header(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
        };
        let led = header("X-Consul-KnownLeader").map(str::trim);
        Self {
            status,
            index: header("X-Consul-Index").and_then(|index| index.trim().parse().ok()),
            led: led.map(|led| led.eq_ignore_ascii_case("true")),
            denied: is("X-Consul-Results-Filtered-By-ACLs", "true")
                || is("X-Consul-Default-ACL-Policy", "deny"),
            body,
        }
    }
}

/// Why a read brought nothing. What was known stays.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// The whole answer was not there in time.
    #[error("no answer in time")]
    Deadline,
    /// Another status than 200.
    #[error("status {status}{}", said(.text))]
    Status {
        /// Which.
        status: u16,
        /// The beginning of its body.
        text: String,
    },
    /// An answer from before the cluster lost its leader.
    #[error("the cluster has no leader")]
    NoLeader,
    /// A body that is no answer.
    #[error("{0}")]
    Body(#[from] BodyError),
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// What an answer is worth beside what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The leader made sure that it was one.
    pub consistent: bool,
    /// The token may not have been let see all.
    pub denied: bool,
}

/// What came of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It says this.
    Answer {
        /// What its body holds.
        what: T,
        /// What it is worth.
        evidence: Evidence,
        /// The source was not heard before.
        turn: Option<Turn>,
    },
    /// Its index went back: what it says is not looked at, and asked for again.
    WentBack {
        /// The index that was known.
        from: u64,
        /// The index of the answer.
        to: u64,
    },
    /// It failed; what was said before stands.
    Failed {
        /// Why.
        failure: Failure,
        /// The source was heard before.
        turn: Option<Turn>,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Reader {
    servers: usize,
    server: usize,
    /// To wait beyond; 0 = not to wait.
    index: u64,
    /// Of the last good answer, also after failures.
    seen: u64,
    /// The next read is to be consistent.
    consistent: bool,
    /// When a consistent read is to be made, whatever comes until then.
    confirm_at: Option<u64>,
    /// Reads in a row that failed.
    failures: u32,
    /// Of those, how many were refused for the token.
    refused: u32,
    /// Not before then.
    at: u64,
    pace: Pace,
    status: Status,
}

/// How long after an index that went back to ask again: from and to, ms.
const AGAIN: (u64, u64) = (200, 1_000);
/// What is shown of the body of an error, in bytes.
const SHOWN: usize = 160;

impl Reader {
    /// Begins with nothing; `servers` is how many addresses the Consul has, at least one.
    pub fn new(servers: usize) -> Self {
        Self {
            servers: servers.max(1),
            server: 0,
            index: 0,
            seen: 0,
            consistent: false,
            confirm_at: None,
            failures: 0,
            refused: 0,
            at: 0,
            pace: Pace::default(),
            status: Status::default(),
        }
    }

    /// Goes on where another reader was that knew this of the source: what is there is read at once,
    /// and an index lower than that of its last good answer is an index that went back.
    pub fn resume(servers: usize, status: Status) -> Self {
        Self { seen: status.index, status, ..Self::new(servers) }
    }

    /// What is known of the source.
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// Notes how many entries of the last answer nobody can use.
    pub fn skipped(&mut self, entries: u32) {
        self.status.skipped = entries;
    }

    /// The next read.
    pub fn next(&self, now: u64) -> Read {
        // Later than that only where the clock was set back.
        let at = self.at.min(now + backoff::LONGEST);
        let at = self.pace.earliest(now).max(at);
        let due = self.confirm_at.is_some_and(|confirm| confirm <= at + NEAR);
        let how = if self.consistent || due {
            How { index: 0, consistent: true, ..How::default() }
        } else {
            let wait = self.confirm_at.map(|confirm| confirm - at);
            How { index: self.index, consistent: false, wait }
        };
        let at = if due { at.max(self.confirm_at.unwrap_or(0)) } else { at };
        Read { at, server: self.server, how, token_again: self.refused > 0 }
    }

    /// That read is being made.
    pub fn begin(&mut self, now: u64) {
        self.pace.spend(now);
    }

    /// Asks for a consistent read at that time. Until then reads wait for changes as ever.
    pub fn confirm(&mut self, at: Option<u64>) {
        self.confirm_at = at;
    }

    /// What was answered cannot be put in force: it is read again then, without waiting for a change.
    pub fn again(&mut self, at: u64) {
        self.index = 0;
        self.at = at;
    }

    /// A whole answer came to a read; `read` reads its body, `random` is any number.
    pub fn answered<T>(
        &mut self,
        how: How,
        reply: &Reply<'_>,
        read: impl FnOnce(&[u8]) -> Result<T, BodyError>,
        (now, random): (u64, u32),
    ) -> Outcome<T> {
        if reply.status != 200 {
            let text = beginning(reply.body);
            return self.failed(Failure::Status { status: reply.status, text }, (now, random));
        }
        if reply.led == Some(false) {
            return self.failed(Failure::NoLeader, (now, random));
        }
        let index = reply.index.unwrap_or(0).max(1);
        // The answer to a confirmation counts, that of another consistent read does not.
        if index < self.seen && !self.consistent {
            let from = self.seen;
            let (least, most) = AGAIN;
            self.index = 0;
            self.consistent = true;
            self.at = now + least + ((u64::from(random) * (most - least)) >> 32);
            return Outcome::WentBack { from, to: index };
        }
        let what = match read(reply.body) {
            Ok(what) => what,
            Err(error) => return self.failed(error.into(), (now, random)),
        };
        self.index = index;
        self.seen = index;
        self.consistent = false;
        self.failures = 0;
        self.refused = 0;
        self.at = now;
        let evidence = Evidence { consistent: how.consistent, denied: reply.denied };
        Outcome::Answer { what, evidence, turn: self.status.succeed(index, now) }
    }

    /// A read failed: the next one does not wait in the Consul, and is made elsewhere, after a
    /// while once every address has failed.
    pub fn failed<T>(&mut self, failure: Failure, (now, random): (u64, u32)) -> Outcome<T> {
        self.index = 0;
        self.failures = self.failures.saturating_add(1);
        let refused = matches!(failure, Failure::Status { status: 403, .. });
        self.refused = if refused { self.refused.saturating_add(1) } else { 0 };
        let untried = if refused {
            // Where the token was replaced, the same place is asked with the new one.
            u32::from(self.refused == 1)
        } else {
            self.server = (self.server + 1) % self.servers;
            u32::from((self.failures as usize) < self.servers)
        };
        let rounds = self.failures.saturating_sub(self.servers as u32 - 1).max(1);
        self.at = if untried > 0 { now } else { now + backoff::after(rounds, random) };
        let turn = self.status.fail(failure.to_string(), now);
        Outcome::Failed { failure, turn }
    }
}

/// A wait that is not worth a read of its own, ms.
const NEAR: u64 = 100;

/// The beginning of a body as a text for the log.
fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests;
