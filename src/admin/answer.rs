//! Answers: what every one of them carries.

use peerage_core::api::error::{CONTENT_TYPE, Problem};

use crate::ffi::output::{Answer, Producer, Step};

/// An answer with a JSON body.
pub(super) fn json(status: u16, body: Box<dyn Producer>) -> Answer {
    Answer {
        status,
        content_type: "application/json",
        headers: vec![("Cache-Control", "no-store".to_owned())],
        body,
    }
}

/// An error.
pub(crate) fn problem(problem: &Problem) -> Answer {
    let mut headers = vec![("Cache-Control", "no-store".to_owned())];
    if let Some(allow) = problem.allow {
        headers.push(("Allow", allow.to_owned()));
    }
    if let Some(seconds) = problem.retry_after() {
        headers.push(("Retry-After", seconds.to_string()));
    }
    Answer {
        status: problem.status(),
        content_type: CONTENT_TYPE,
        headers,
        body: Box::new(Said(problem.clone())),
    }
}

/// A problem as the API says it.
struct Said(Problem);

impl Producer for Said {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        out.append(&mut self.0.to_bytes());
        Step::End
    }

    fn problem(&self) -> Option<&Problem> {
        Some(&self.0)
    }
}

/// The answer with the revision that it speaks of.
pub(super) fn at_revision(mut answer: Answer, revision: u64) -> Answer {
    answer.headers.push((REVISION, revision.to_string()));
    answer
}

/// The revision that an answer speaks of.
pub(super) fn revision(answer: &Answer) -> Option<u64> {
    let header = answer.headers.iter().find(|(name, _)| *name == REVISION);
    header.and_then(|(_, value)| value.parse().ok())
}

const REVISION: &str = "Peerage-Revision";
