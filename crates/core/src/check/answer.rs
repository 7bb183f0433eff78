//! What an answer of HTTP means: its status, and a text in the beginning of its body.

use crate::check::Check;
use crate::check::find::Find;
use crate::check::reason::Reason;
use crate::check::status::Statuses;
use crate::check::verdict::Outcome;

/// How far into a body a text is looked for, in bytes.
pub const BODY: usize = 256 * 1024;

/// How far an answer has been judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There has to be more of it.
    More,
    /// Whatever follows changes nothing.
    Done(Outcome),
}

/// An answer that is being judged.
#[derive(Clone, Debug)]
pub struct Answer {
    statuses: Statuses,
    find: Option<Find>,
    read: usize,
}

impl Answer {
    /// For an answer to a probe of this check.
    pub fn new(check: &Check) -> Self {
        let find = check.body.as_ref().map(|text| Find::new(text.as_bytes()));
        Self { statuses: check.status.clone(), find, read: 0 }
    }

    /// The head of an answer; interim ones, which another follows, decide nothing.
    pub fn head(&self, status: u16) -> Step {
        if (100..200).contains(&status) && status != SWITCHING {
            return Step::More;
        }
        match (self.statuses.has(status), &self.find) {
            (false, _) => Step::Done(Err(Reason::Status(status))),
            (true, None) => Step::Done(Ok(())),
            (true, Some(_)) => Step::More,
        }
    }

    /// The next piece of the body.
    pub fn body(&mut self, piece: &[u8]) -> Step {
        let Some(find) = &mut self.find else { return Step::Done(Ok(())) };
        let piece = &piece[..piece.len().min(BODY - self.read)];
        self.read += piece.len();
        match find.look(piece) {
            true => Step::Done(Ok(())),
            false if self.read == BODY => Step::Done(Err(Reason::Body)),
            false => Step::More,
        }
    }

    /// The answer is whole, its head included.
    pub fn end(mut self) -> Outcome {
        match self.body(&[]) {
            Step::Done(outcome) => outcome,
            Step::More => Err(Reason::Body),
        }
    }
}

/// No other answer follows this one of its class.
const SWITCHING: u16 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str]) -> Check {
        Check::parse(words).unwrap()
    }

    #[test]
    fn a_status_in_no_list_is_a_failure() {
        let answer = Answer::new(&check(&["status=200-299,404"]));
        for (status, step) in [
            (200, Step::Done(Ok(()))),
            (404, Step::Done(Ok(()))),
            (302, Step::Done(Err(Reason::Status(302)))),
            (503, Step::Done(Err(Reason::Status(503)))),
            (100, Step::More),
            (103, Step::More),
            (101, Step::Done(Err(Reason::Status(101)))),
            (0, Step::Done(Err(Reason::Status(0)))),
        ] {
            assert_eq!(answer.head(status), step, "{status}");
        }
    }

    #[test]
    fn a_text_is_found_over_pieces_and_only_in_the_beginning() {
        let check = check(&["body=all is well"]);
        let mut answer = Answer::new(&check);
        assert_eq!(answer.head(503), Step::Done(Err(Reason::Status(503))));
        assert_eq!(answer.head(200), Step::More);
        assert_eq!(answer.body(b"<p>all is "), Step::More);
        assert_eq!(answer.body(b"well</p>"), Step::Done(Ok(())));
        assert_eq!(answer.end(), Ok(()));
        let mut answer = Answer::new(&check);
        assert_eq!(answer.body(b"all is not well"), Step::More);
        assert_eq!(answer.end(), Err(Reason::Body));

        let text = b"all is well";
        for (before, outcome) in [(BODY - text.len(), Ok(())), (BODY - 10, Err(Reason::Body))] {
            let mut body = vec![b'x'; before];
            body.extend(text);
            let mut answer = Answer::new(&check);
            let steps: Vec<Step> = body.chunks(4096).map(|piece| answer.body(piece)).collect();
            assert_eq!(steps.last(), Some(&Step::Done(outcome)));
            assert_eq!(answer.body(&body), Step::Done(outcome), "and so it stays");
        }
    }
}
