//! `GET v1/events`: what changes, as a stream of server-sent events or poll by poll.
//!
//! A listener costs nothing while nothing happens: it is woken with all others of its worker when
//! something was told, reads on in the zone's ring, and waits again. Whoever takes events slower
//! than the ring is overwritten is told where they are now, and begins anew.

use std::rc::Rc;

use peerage_core::api::error::{Code, Problem};
use peerage_core::event;
use peerage_zone::{Gone, Reader};

use super::answer;
use crate::conf::Zone;
use crate::ffi::output::{Answer, Producer, Step};
use crate::ffi::process;
use crate::ffi::request::Request;
use crate::ffi::task::{Task, Turn};
use crate::ffi::timer;

/// Makes the task: a stream where the client accepts one, else a poll.
pub(super) fn task(
    r: Request<'_>,
    zone: &Rc<Zone>,
    since: Option<u64>,
    wait: u64,
) -> Result<Box<dyn Task>, Problem> {
    let events = zone.memory().ok_or_else(super::no_place)?.zone.events();
    let streams = r.header("Accept").is_some_and(accepts_stream);
    // A browser that comes back sends where it was, beside the address it had first.
    let last = r.header("Last-Event-ID").filter(|_| streams);
    let last = last.and_then(|id| std::str::from_utf8(id).ok()?.trim().parse().ok());
    let reader = match last.or(since) {
        None => events.now(),
        Some(seq) => events.after(seq).map_err(gone)?,
    };
    Ok(if streams {
        Box::new(super::Ready(Some(stream(reader))))
    } else {
        let until = timer::now() + wait;
        Box::new(Poll { reader: Some(reader), until })
    })
}

fn accepts_stream(accept: &[u8]) -> bool {
    let types = accept.split(|&b| b == b',' || b == b';');
    types.into_iter().any(|name| name.trim_ascii().eq_ignore_ascii_case(STREAM.as_bytes()))
}

fn gone(gone: Gone) -> Problem {
    let detail = "events after that one are not kept any more: read what you follow, then go on \
                  from \"seq\"";
    Problem::new(Code::EventsGone, detail).with("seq", gone.last)
}

/// A poll that waits for the first event.
struct Poll {
    reader: Option<Reader>,
    until: u64,
}

impl Task for Poll {
    fn turn(&mut self, _: Request<'_>) -> Turn {
        let Some(reader) = &mut self.reader else {
            let problem = Problem::new(Code::Internal, "answered already");
            return Turn::Answer(answer::problem(&problem));
        };
        let now = timer::now();
        if reader.is_at_end() && now < self.until && !process::exiting() {
            return Turn::Wait(self.until - now);
        }
        if let Err(lost) = reader.check() {
            return Turn::Answer(answer::problem(&gone(lost)));
        }
        let page = self.reader.take().map(|reader| Page { reader, told: 0 });
        Turn::Answer(answer::json(200, Box::new(page)))
    }
}

/// The events of a poll: `{"events":[…],"seq":9001}`.
struct Page {
    reader: Reader,
    told: usize,
}

impl Producer for Option<Page> {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        let Some(Page { reader, told }) = self else { return Step::End };
        if *told == 0 {
            out.extend_from_slice(b"{\"events\":[");
        }
        while *told < PAGE {
            // What is overwritten meanwhile is missed by the next poll.
            let Ok(Some(said)) = reader.next_event() else { break };
            if *told > 0 {
                out.push(b',');
            }
            said.write(out);
            *told += 1;
            if told.is_multiple_of(PIECE) {
                return Step::More;
            }
        }
        out.extend_from_slice(format!("],\"seq\":{}}}", reader.last()).as_bytes());
        Step::End
    }
}

fn stream(reader: Reader) -> Answer {
    let body = Box::new(Stream { reader, begun: false, said_at: 0 });
    Answer {
        status: 200,
        content_type: STREAM,
        headers: vec![
            ("Cache-Control", "no-store".to_owned()),
            // A proxying nginx in front does not hold events back.
            ("X-Accel-Buffering", "no".to_owned()),
        ],
        body,
    }
}

/// Server-sent events, until the client goes away or the worker exits.
struct Stream {
    reader: Reader,
    begun: bool,
    /// When something was last said, monotonic ms.
    said_at: u64,
}

impl Producer for Stream {
    fn fill(&mut self, out: &mut Vec<u8>) -> Step {
        let now = timer::now();
        let before = out.len();
        if !self.begun {
            self.begun = true;
            // Says where it begins, so that a client knows what to ask for next.
            out.extend_from_slice(format!("id: {}\n: peerage\n\n", self.reader.last()).as_bytes());
        }
        for _ in 0..PIECE {
            match self.reader.next_event() {
                Ok(Some(said)) => {
                    let head =
                        format!("id: {}\nevent: {}\ndata: ", said.seq, event::kind(&said.json));
                    out.extend_from_slice(head.as_bytes());
                    said.write(out);
                    out.extend_from_slice(b"\n\n");
                }
                Ok(None) if process::exiting() => return Step::End,
                Ok(None) => {
                    if out.len() == before && now - self.said_at >= HEARTBEAT_MS {
                        out.extend_from_slice(b":\n\n");
                    }
                    if out.len() > before {
                        self.said_at = now;
                    }
                    return Step::Wait((self.said_at + HEARTBEAT_MS).saturating_sub(now).max(1));
                }
                // It comes back with an id that is too old, and gets a 410.
                Err(_) => return Step::End,
            }
        }
        self.said_at = now;
        Step::More
    }

    fn is_endless(&self) -> bool {
        true
    }
}

const STREAM: &str = "text/event-stream";
/// Events of a poll at most.
const PAGE: usize = 1000;
/// Events in one go.
const PIECE: usize = 16;
/// How long a stream is silent.
const HEARTBEAT_MS: u64 = 15_000;
