//! `POST v1/zones/{zone}/flush`: a barrier, answered when what is in force is on the disk.

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::render;
use peerage_zone::{Durable, Lead};

use super::answer;
use crate::conf::Zone;
use crate::conf::zone::Flush as Interval;
use crate::ffi::request::Request;
use crate::ffi::task::{Task, Turn};
use crate::ffi::timer;
use crate::worker;

pub(super) struct Flush {
    zone: peerage_zone::Zone,
    durable: Durable,
    /// What is to be on the disk.
    revision: u64,
    /// Failed writes before it.
    errors: u64,
    since: u64,
}

impl Flush {
    pub(super) fn new(zone: &Zone) -> Result<Self, Problem> {
        let name = &zone.name;
        if zone.state.is_none() || zone.flush == Interval::Off {
            let what = if zone.state.is_none() { "no state file" } else { "flush=off" };
            let detail = format!("zone \"{name}\" has {what}: nothing is written");
            return Err(Problem::new(Code::NoStateFile, detail));
        }
        let memory = zone.memory().ok_or_else(super::no_place)?;
        let durable = memory.zone.durable();
        if durable.lead() == Lead::Follows {
            let detail = "the processes of another nginx write the state file";
            return Err(Problem::new(Code::NotWriter, detail));
        }
        durable.want(memory.zone.revision());
        worker::wake_all();
        Ok(Self {
            zone: memory.zone,
            revision: memory.zone.revision(),
            errors: durable.errors(),
            durable,
            since: timer::now(),
        })
    }
}

impl Task for Flush {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        let on_disk = self.durable.revision();
        if on_disk >= self.revision {
            let mut body = Vec::new();
            let extra = [("durable", true.into())];
            let answer = render::Answer {
                revision: self.revision,
                changed: false,
                upstream: None,
                server: None,
                extra: &extra,
            };
            render::answer(&mut body, &answer);
            let answer = answer::json(200, Box::new(body));
            return Turn::Answer(answer::at_revision(answer, self.revision));
        }
        if self.zone.is_moved() {
            // What it holds is on the disk when the new zone's owner has written it.
            return Turn::Answer(answer::problem(&super::moving()));
        }
        let failed = self.durable.errors() != self.errors;
        if failed || timer::now() - self.since >= PATIENCE_MS {
            let detail = match (failed, error_text(self.durable)) {
                (true, Some(text)) => format!("the state file cannot be written: {text}"),
                _ => "the disk has not taken it yet".to_owned(),
            };
            let problem = Problem::new(Code::NotDurable, detail)
                .with("durable", false)
                .with("revision", self.revision)
                .with("durable_revision", on_disk);
            let answer = answer::problem(&problem);
            return Turn::Answer(answer::at_revision(answer, self.revision));
        }
        Turn::Wait(LOOK_MS)
    }
}

/// What keeps the state of a zone off the disk.
pub(super) fn trouble(zone: &Zone) -> Option<String> {
    if zone.state.is_none() || zone.flush == Interval::Off {
        return None;
    }
    error_text(zone.memory()?.zone.durable())
}

/// The last error, as nginx writes errors: `28: No space left on device`.
pub(super) fn error_text(durable: Durable) -> Option<String> {
    match durable.error() {
        0 => None,
        errno => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            let text = text.split(" (os error").next().unwrap_or(&text);
            Some(format!("{errno}: {text}"))
        }
    }
}

const LOOK_MS: u64 = 10;
/// How long a disk may take.
const PATIENCE_MS: u64 = 30_000;
