//! What an answer means, and what is said of it.

use peerage_core::consul::answer::Answer;
use peerage_core::consul::catalog::Tagged;
use peerage_core::consul::desired::{Names, desired};
use peerage_core::consul::guard::Decision;
use peerage_core::consul::query::How;
use peerage_core::consul::reader::{Outcome, Reply};
use peerage_core::consul::service::Of;
use peerage_core::consul::status::Turn;

use super::{Aim, State, Watch};
use crate::consul::fetch::Got;
use crate::ffi::process;
use crate::worker;

impl Watch {
    pub(super) fn answered(&self, state: &mut State, how: How, got: &Got, at: (u64, u32)) {
        let reply = Reply::new(got.status, |name| got.header(name), &got.body);
        match &self.aim {
            Aim::Servers { upstream, .. } => {
                let outcome = state.reader.answered(how, &reply, Answer::read, at);
                self.heard(&outcome);
                let Outcome::Answer { what, evidence, .. } = outcome else { return };
                let names = if self.scene.resolves() { Names::Resolved } else { Names::Refused };
                let (named, skipped) = desired(what, names);
                state.reader.skipped(skipped.total());
                let clock = process::clock();
                let known = self.scene.worker.sourced(upstream, &self.origin, &clock);
                let decision = state.guard.look(named, &known, evidence, clock.msec);
                self.decided(state, decision);
            }
            Aim::Services(found) => {
                let Of::Tag(tag) = &self.service.of else { return };
                let read = |body: &[u8]| Tagged::read(body, tag);
                let outcome = state.reader.answered(how, &reply, read, at);
                self.heard(&outcome);
                let Outcome::Answer { what, .. } = outcome else { return };
                found.replace(Some(what));
                // Who has the services looks at them.
                worker::wake_all();
            }
        }
    }

    pub(super) fn decided(&self, state: &mut State, decision: Decision) {
        let Decision { servers, confirm_at, wake_at, began, ended } = decision;
        state.reader.confirm(confirm_at);
        (state.pending, state.wake_at) = (Some(servers), wake_at);
        let name = &self.name;
        if let Some(why) = began {
            log!(Warn, "servers of source \"consul/{name}\" are held: {why}");
        }
        if ended {
            log!(Notice, "no servers of source \"consul/{name}\" are held any more");
        }
    }

    /// Says what came of a read, where that is news.
    pub(super) fn heard<T>(&self, outcome: &Outcome<T>) {
        let name = &self.name;
        match outcome {
            Outcome::Answer { turn: Some(Turn { .. }), .. } => {
                log!(Notice, "source \"consul/{name}\" answers");
            }
            Outcome::WentBack { from, to } => {
                log!(Warn, "index of source \"consul/{name}\" went back from {from} to {to}");
            }
            Outcome::Failed { failure, turn: Some(_) } => {
                log!(Warn, "source \"consul/{name}\" is stale: {failure}");
            }
            Outcome::Answer { .. } | Outcome::Failed { .. } => {}
        }
    }
}
