//! `POST …/unhealthy` and `…/healthy`: what an outside checker says of a server.
//!
//! It is no change of what is declared or wanted: it takes no lock, makes no revision, and is not
//! in the state file. It is in force with the next choice of every process; only its event waits
//! for the lock.

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::opinion::Saying;
use peerage_core::api::render;
use peerage_core::change::Actor;
use peerage_core::check::external::{External, Opinion};
use peerage_core::diff::Entry;
use peerage_core::event::Event;
use peerage_core::name::UpstreamName;
use peerage_core::server::Server;
use peerage_core::state::of_health;
use peerage_core::upstream::ServerSel;
use peerage_zone::{Lead, Opined, Worker};
use serde_json::Value;

use super::guard::Guard;
use super::{answer, read, write};
use crate::conf::Zone;
use crate::ffi::output::Answer;
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Task, Turn};
use crate::ffi::timer;
use crate::worker;

/// A verdict on its way.
pub(super) struct Opine {
    zone: Rc<Zone>,
    name: UpstreamName,
    sel: ServerSel,
    saying: Saying,
    actor: Actor,
    guard: Guard,
    dry_run: bool,
    /// Tries since then, monotonic ms.
    since: u64,
}

impl Opine {
    pub(super) fn new(
        zone: Rc<Zone>,
        (name, sel): (UpstreamName, ServerSel),
        saying: Saying,
        actor: Actor,
        guard: Guard,
        dry_run: bool,
    ) -> Self {
        Self { zone, name, sel, saying, actor, guard, dry_run, since: timer::now() }
    }

    fn say(&self, r: Request<'_>, worker: &Worker) -> Result<Answer, Problem> {
        let wanted = worker.read_wanted(&self.name);
        let upstream = wanted.as_ref().map(|(upstream, _)| upstream);
        self.guard.check(upstream, Some(&self.sel))?;
        let upstream = upstream.ok_or_else(|| read::no_upstream(&self.name))?;
        let server = upstream.find(&self.sel);
        let server = server.ok_or_else(|| read::no_server(&self.name, &self.sel))?;
        if self.dry_run {
            return self.would(worker, server);
        }
        let Saying { opinion, ttl, .. } = self.saying;
        let clock = process::clock();
        let said = External::new(opinion, ttl, clock.msec);
        let opined = worker.opine(&self.name, server.id, said, &clock);
        let opined = opined.ok_or_else(|| self.no_address())?;
        if worker.zone().is_moved() {
            // What the other zone has taken over may be what was said before.
            return Err(super::moving());
        }
        if opined.turned {
            self.tell(r, worker, server, &opined);
        }
        Ok(self.answer(worker, opined.turned, &[]))
    }

    /// Says that the verdict turned.
    fn tell(&self, r: Request<'_>, worker: &Worker, server: &Server, opined: &Opined) {
        let Saying { opinion, reason, .. } = &self.saying;
        let (name, by) = (&self.name, &self.actor.by);
        let why = match reason.as_deref() {
            None | Some("") => String::new(),
            Some(reason) => format!(": {reason}"),
        };
        let (addr, word) = (&server.addr, opinion.as_str());
        let text =
            format!("server \"{addr}\" is called {word} by \"{by}\"{why}, upstream \"{name}\"");
        match opinion {
            Opinion::Unhealthy => log!(Warn, "{text}"),
            Opinion::Healthy => log!(Notice, "{text}"),
        }
        task::note(r, text);
        let turn = (of_health(opined.was), of_health(opined.is));
        let reason = reason.as_deref().unwrap_or_default();
        let mut event = Event::health(name, addr, turn, by, reason);
        event.address.clone_from(&self.actor.from);
        worker::tell(worker, [event]);
    }

    /// What would come of it.
    fn would(&self, worker: &Worker, server: &Server) -> Result<Answer, Problem> {
        let clock = process::clock();
        let peers = worker.diagnose(&self.name, server.id, &clock);
        let first = peers.first().ok_or_else(|| self.no_address())?;
        let holds = first.external.holds(clock.msec);
        let is_bad = |opinion| opinion == Some(Opinion::Unhealthy);
        let changed = is_bad(holds) != is_bad(Some(self.saying.opinion));
        let mut diff = Vec::new();
        if changed {
            let path = format!("upstreams/{}/servers/{}/external", self.name, server.addr);
            let word = |opinion: Opinion| opinion.as_str().into();
            let from = holds.map_or(Value::Null, word);
            let entry = Entry { path, from, to: word(self.saying.opinion) };
            diff.push(serde_json::to_value(entry).unwrap_or_default());
        }
        let extra = [("dry_run", true.into()), ("diff", diff.into())];
        Ok(self.answer(worker, changed, &extra))
    }

    fn answer(&self, worker: &Worker, changed: bool, extra: &[(&str, Value)]) -> Answer {
        let revision = worker.zone().revision();
        let seen = worker.read(&self.name, &process::clock()).filter(|_| !self.dry_run);
        let server = seen.as_ref().and_then(|seen| {
            read::shown(&self.zone, seen).server(seen.upstream.position(&self.sel)?)
        });
        let upstream = Some(&self.name);
        let mut body = Vec::with_capacity(1024);
        render::answer(&mut body, &render::Answer { revision, changed, upstream, server, extra });
        answer::at_revision(answer::json(200, Box::new(body)), revision)
    }

    fn no_address(&self) -> Problem {
        let Self { name, sel, .. } = self;
        let detail = format!("server \"{sel}\" of upstream \"{name}\" has no address yet");
        Problem::new(Code::ServerNotFound, detail)
    }
}

impl Task for Opine {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        let Some(worker) = self.zone.worker() else { return write::later(&self.zone, self.since) };
        if worker.zone().is_moved() {
            return Turn::Answer(answer::problem(&super::moving()));
        }
        match worker.zone().durable().lead() {
            // That nginx's processes would not know of it.
            Lead::Follows => return Turn::Answer(answer::problem(&write::not_writer())),
            Lead::Waiting => return write::later(&self.zone, self.since),
            Lead::Free | Lead::Leads => {}
        }
        let answer = self.say(r, worker);
        Turn::Answer(answer.unwrap_or_else(|problem| answer::problem(&problem)))
    }
}
