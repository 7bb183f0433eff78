//! What comes between two answers: the time, an operator's wishes, other writers, idle servers.

use std::collections::HashSet;
use std::rc::Rc;

use peerage_core::change::Change;
use peerage_core::name::UpstreamName;
use peerage_zone::{Attempt, Vanished, Wish};

use super::{Aim, Watch};
use crate::ffi::process;
use crate::ffi::timer;
use crate::net::executor::Handle;
use crate::worker;

impl Watch {
    /// Does what the time or an operator asks for. The source is this process's.
    pub(in crate::consul) fn look(self: &Rc<Self>) {
        // What read has stopped where its time was over, and nobody has taken the place.
        let is_over = self.task.borrow().as_ref().is_none_or(Handle::is_over);
        if is_over {
            self.restart();
        }
        let Aim::Servers { upstream, .. } = &self.aim else { return };
        let (worker, clock) = (self.scene.worker, process::clock());
        let known = || worker.sourced(upstream, &self.origin, &clock);
        let mut anew = false;
        if let Some((wish, number)) = worker.wished(self.board) {
            let mut state = self.state.borrow_mut();
            if state.wish != Some(number) {
                let decision = match wish {
                    Wish::Apply => state.guard.apply(&known(), clock.msec),
                    Wish::Discard => state.guard.discard(&known(), clock.msec),
                };
                match decision {
                    Some(decision) => {
                        state.wish = Some(number);
                        self.decided(&mut state, decision);
                        anew = true;
                    }
                    None => worker.fulfil(self.board, number, false),
                }
            }
        }
        {
            let mut state = self.state.borrow_mut();
            if state.wake_at.is_some_and(|at| at <= clock.msec) {
                state.wake_at = None;
                if let Some(decision) = state.guard.wake(&known(), clock.msec) {
                    self.decided(&mut state, decision);
                    anew = true;
                }
            }
        }
        if !anew && self.is_undone(upstream) {
            let mut state = self.state.borrow_mut();
            if let Some(decision) = state.guard.wake(&known(), clock.msec) {
                self.decided(&mut state, decision);
                anew = true;
            }
        }
        if anew {
            self.restart();
        }
        self.reap();
    }

    /// Whether somebody else has changed the upstream so that it lacks a server which the source
    /// names: it was another's until now, who has let it go.
    fn is_undone(&self, upstream: &UpstreamName) -> bool {
        if timer::now() - self.compared.get() < COMPARE_MS {
            return false;
        }
        self.compared.set(timer::now());
        let revision = self.scene.worker.revision_of(upstream);
        if self.revision.replace(revision) == revision {
            return false;
        }
        let state = self.state.borrow();
        let Some(named) = state.guard.named().filter(|_| state.pending.is_none()) else {
            return false;
        };
        let Some((current, _)) = self.scene.worker.read_wanted(upstream) else {
            return !named.is_empty();
        };
        let there = current.servers.iter().filter(|server| !server.is_vanished());
        let there: HashSet<_> = there.map(|server| &server.addr).collect();
        let resolves = self.scene.resolves();
        named.iter().any(|s| !there.contains(&s.addr) && (resolves || !s.addr.is_name()))
    }

    /// Lets idle servers go that the source names no longer.
    fn reap(&self) {
        let Aim::Servers { upstream, retires } = &self.aim else { return };
        if !self.state.borrow().reaps || timer::now() - self.reaped.get() < REAP_MS {
            return;
        }
        self.reaped.set(timer::now());
        let Vanished { idle, more } = self.scene.worker.vanished(upstream, &process::clock());
        if idle.is_empty() && (more || !retires) {
            self.state.borrow_mut().reaps = more;
            return;
        }
        let change = Change::Reap { idle, retire: *retires };
        let attempt = self.scene.change(upstream, &change, &self.origin, Some(self.board));
        if let Attempt::Done { changed, .. } = attempt {
            self.state.borrow_mut().reaps = more;
            if changed {
                worker::wake_all();
            }
        }
    }
}

/// Between two looks for what others have changed.
const COMPARE_MS: u64 = 500;
/// Between two looks for idle servers.
const REAP_MS: u64 = 1_000;
