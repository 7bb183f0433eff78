//! A write of a zone with `flush=always`: answered when what it did is on the disk.

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};

use super::{answer, flush};
use crate::conf::Zone;
use crate::conf::zone::Flush;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{Task, Turn};
use crate::ffi::timer;
use crate::worker;

/// A write, and its answer while that waits.
pub(super) struct Durably {
    zone: Rc<Zone>,
    task: Box<dyn Task>,
    held: Option<Held>,
}

struct Held {
    answer: Answer,
    revision: u64,
    /// Failed writes before it.
    errors: u64,
    since: u64,
}

/// The write as the zone wants it answered.
pub(super) fn durably(zone: &Rc<Zone>, task: Box<dyn Task>) -> Box<dyn Task> {
    if zone.flush != Flush::Always || zone.state.is_none() {
        return task;
    }
    Box::new(Durably { zone: Rc::clone(zone), task, held: None })
}

impl Durably {
    /// Whether the answer may go.
    fn look(&self, held: &Held) -> Turn {
        let Some(memory) = self.zone.memory() else {
            return Turn::Answer(answer::problem(&super::no_place()));
        };
        let durable = memory.zone.durable();
        let failed = durable.errors() != held.errors;
        if !failed && timer::now() - held.since < PATIENCE_MS {
            return Turn::Wait(LOOK_MS);
        }
        let text = flush::error_text(durable);
        let detail = match text.filter(|_| failed) {
            Some(text) => format!("in force, but the state file cannot be written: {text}"),
            None => "in force, but the disk has not taken it yet".to_owned(),
        };
        let problem = Problem::new(Code::NotDurable, detail)
            .with("changed", true)
            .with("durable", false)
            .with("revision", held.revision)
            .with("durable_revision", durable.revision());
        Turn::Answer(answer::at_revision(answer::problem(&problem), held.revision))
    }
}

impl Task for Durably {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let held = match self.held.take() {
            Some(held) => held,
            None => match self.task.turn(r) {
                Turn::Answer(answer) => {
                    // What names no revision has changed nothing.
                    let Some(revision) = answer::revision(&answer) else {
                        return Turn::Answer(answer);
                    };
                    let Some(memory) = self.zone.memory() else { return Turn::Answer(answer) };
                    let durable = memory.zone.durable();
                    if durable.revision() < revision {
                        durable.want(revision);
                        worker::wake_all();
                    }
                    Held { answer, revision, errors: durable.errors(), since: timer::now() }
                }
                wait @ Turn::Wait(_) => return wait,
            },
        };
        let is_there =
            |memory: crate::conf::zone::Memory| memory.zone.durable().revision() >= held.revision;
        if self.zone.memory().is_some_and(is_there) {
            return Turn::Answer(held.answer);
        }
        let turn = self.look(&held);
        self.held = Some(held);
        turn
    }
}

/// Between two looks; a wake-up comes earlier.
const LOOK_MS: u64 = 20;
/// How long a disk may take.
const PATIENCE_MS: u64 = 10_000;
