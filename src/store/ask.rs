//! The questions: a tenant by its key, an app by its name.
//!
//! An answer is there within the directive's `timeout`, whatever has to be made for it first. They
//! are reads: one whose connection was closed before anything of its answer came is asked once more,
//! over a connection that is made after that.

use std::rc::Rc;

use peerage_core::addr::ServerAddr;
use peerage_core::redis::resp::{Value, command};
use peerage_core::route::decide::Down;
use peerage_core::route::reply::{self, Found, Reply, Tenant};

use super::Store;
use super::fault::Fault;
use super::line::Line;
use crate::net::error::Doing;
use crate::net::time::timeout;

impl Store {
    /// A tenant, by its key.
    pub(crate) async fn tenant(self: &Rc<Self>, key: &[u8]) -> Found<Tenant> {
        let full = [self.redis.settings.tenant_prefix.as_bytes(), key].concat();
        self.ask(&[b"HMGET", &full, b"app", b"status"], reply::tenant).await.0
    }

    /// The servers of an app, by its name as the store writes it, and the value that says so: empty
    /// where there is none.
    pub(crate) async fn app(self: &Rc<Self>, name: &str) -> (Found<Vec<ServerAddr>>, Vec<u8>) {
        let full = format!("{}{name}", self.redis.settings.app_prefix);
        let (found, value) = self.ask(&[b"GET", full.as_bytes()], reply::app).await;
        match value {
            Some(Value::Text(value)) => (found, value),
            _ => (found, Vec::new()),
        }
    }

    /// Asks one question, and whether the marker is there.
    async fn ask<T>(
        self: &Rc<Self>,
        words: &[&[u8]],
        read: impl Fn(Reply<'_>) -> Found<T>,
    ) -> (Found<T>, Option<Value>) {
        let answers = timeout(self.redis.settings.timeout, self.answers(words)).await;
        let mut values = match answers {
            Some(Ok(values)) => values.into_iter(),
            Some(Err(down)) => return (Found::Down(down), None),
            None => {
                self.is_late();
                return (Found::Down(Down::Timeout), None);
            }
        };
        let Some(first) = values.next() else { return (Found::Down(Down::Protocol), None) };
        let found = first.with(read);
        if self.redis.settings.epoch_key.is_some() && !matches!(found, Found::Down(_)) {
            match values.next().map_or(Found::Absent, |marker| marker.with(reply::marker)) {
                Found::There(true) => {}
                Found::There(false) => return (Found::Down(Down::Wiped), None),
                Found::Down(down) => return (Found::Down(down), None),
                Found::Absent | Found::Malformed => return (Found::Down(Down::Protocol), None),
            }
        }
        (found, Some(first))
    }

    /// The answers to a question, and to that for the marker.
    async fn answers(self: &Rc<Self>, words: &[&[u8]]) -> Result<Vec<Value>, Down> {
        let epoch = self.redis.settings.epoch_key.as_deref().map(str::as_bytes);
        let (mut least, mut again) = (0, true);
        loop {
            let line = self.line(least).await?;
            let asked = line.ask(1 + usize::from(epoch.is_some()), |out| {
                command(out, words);
                if let Some(epoch) = epoch {
                    command(out, &[b"EXISTS", epoch]);
                }
            });
            let may_again = std::mem::take(&mut again);
            match asked.await {
                Ok(values) => match self.trouble(&line, &values) {
                    Some(Trouble::Elsewhere) if may_again => {}
                    _ => return Ok(values),
                },
                Err(lost) if lost.again && may_again => {}
                Err(lost) => {
                    let down = lost.fault.down();
                    if !lost.fault.is_exit() {
                        let why = lost.fault.to_string();
                        self.told.down(&self.redis.name, &line.at, down, &why);
                    }
                    return Err(down);
                }
            }
            least = self.pool.borrow().next();
        }
    }

    /// Looks whether a server cannot answer now: others are asked then, where there are any.
    fn trouble(&self, line: &Rc<Line>, values: &[Value]) -> Option<Trouble> {
        let error = values.iter().find_map(|value| match value {
            // Of the value alone.
            Value::Error(line) if !line.starts_with(b"WRONGTYPE") => Some(&line[..]),
            _ => None,
        });
        let Some(error) = error else {
            self.told.up(&self.redis.name, &line.at);
            return None;
        };
        let down = reply::reason(error);
        self.told.down(&self.redis.name, &line.at, down, &String::from_utf8_lossy(error));
        let places = self.redis.places.len();
        let mut pool = self.pool.borrow_mut();
        match down {
            Down::Loading | Down::MasterDown | Down::ClusterDown if places > 1 => {
                pool.leave(line.place);
                pool.pass(line.place, places);
                Some(Trouble::Elsewhere)
            }
            // Its login is over, or was never there.
            Down::NoAuth => {
                pool.leave(line.place);
                Some(Trouble::Elsewhere)
            }
            _ => Some(Trouble::Stays),
        }
    }

    /// A question was not answered in time, wherever it was.
    fn is_late(&self) {
        let place = self.pool.borrow().place;
        let (at, why) = (&self.redis.places[place].text, Fault::timeout(Doing::Exchange));
        self.told.down(&self.redis.name, at, Down::Timeout, &why.to_string());
    }
}

/// What an error of a server means for the next question.
enum Trouble {
    /// Another connection may answer.
    Elsewhere,
    /// None would.
    Stays,
}
