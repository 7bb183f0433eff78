//! Follows what a store tells of changes, over a connection of its own.
//!
//! What changes is told by pushes, on the side of the answers and in one order with them: what was
//! changed before a `PING` was answered, was told before. So each answered `PING` says that nothing
//! was missed. A store that cannot tell is asked again now and then.

use std::rc::Rc;

use peerage_core::redis::backoff;
use peerage_core::redis::login::Version;
use peerage_core::redis::push::{self, Push};
use peerage_core::redis::resp::{RespError, Value, command};
use peerage_core::route::reply::reason;

use super::Store;
use super::fault::Fault;
use super::open::{Opened, Whom};
use super::pool::random;
use super::wire::Wire;
use crate::ffi::{process, timer};
use crate::net::error::{Doing, Error};
use crate::net::executor::pass;
use crate::net::time::{sleep, timeout};

/// Who is told.
pub(crate) trait Invalidate {
    /// A tenant may have changed: its key, without the prefix.
    fn tenant(&self, key: &[u8]);
    /// An app may have: its name, as the store writes it.
    fn app(&self, name: &[u8]);
    /// Anything may have.
    fn all(&self);
    /// Whatever has changed until less than the directive's `timeout` ago was told.
    fn alive(&self);
    /// From now on nothing is told.
    fn lost(&self);
}

/// Why it was followed no longer.
enum End {
    /// Another process does, or this one ends.
    Over,
    /// It was not to be had.
    Lost,
    /// It was there, and is gone.
    Broken(Fault, String),
    /// The store cannot tell.
    Refused(String, String),
}

impl Store {
    /// Tells of changes until it is dropped, or `is_ours` says that it is another process's work.
    ///
    /// When it begins to follow, also after a break, all is told to have changed: nobody knows what
    /// did before.
    pub(crate) async fn track(self: &Rc<Self>, to: &dyn Invalidate, is_ours: &dyn Fn() -> bool) {
        let is_ours = &|| !self.pool.borrow().ended && is_ours();
        let (mut failures, mut has_said) = (0_u32, false);
        loop {
            let began = timer::now();
            let pause = match self.follow(to, is_ours).await {
                End::Over => return,
                End::Broken(fault, at) => {
                    to.all();
                    to.lost();
                    self.told.down(&self.redis.name, &at, fault.down(), &fault.to_string());
                    // One that breaks again and again is not taken up at once each time.
                    let lasted = timer::now() - began >= backoff::LONGEST;
                    failures = if lasted { 1 } else { failures.saturating_add(1) };
                    has_said = false;
                    backoff::after(failures, random())
                }
                End::Lost => {
                    failures = failures.saturating_add(1);
                    backoff::after(failures, random())
                }
                End::Refused(why, at) => {
                    if !std::mem::replace(&mut has_said, true) {
                        let name = &self.redis.name;
                        log!(
                            Warn,
                            "redis \"{name}\" does not tell changes: {why}, server \"{at}\""
                        );
                    }
                    REFUSED_MS
                }
            };
            sleep(pause).await;
            if process::exiting() || !is_ours() {
                return;
            }
        }
    }

    /// Follows one connection to its end.
    async fn follow(self: &Rc<Self>, to: &dyn Invalidate, is_ours: &dyn Fn() -> bool) -> End {
        let settings = &self.redis.settings;
        let places = self.redis.places.len();
        let place = self.pool.borrow().place;
        let opened = match self.open_by(place, Whom::Worker, MAX_PUSH).await {
            Ok(opened) => opened,
            Err(fault) if fault.is_exit() => return End::Over,
            Err(_) => {
                self.pool.borrow_mut().pass(place, places);
                return End::Lost;
            }
        };
        let Opened { mut wire, version, at } = opened;
        if version == Version::Two {
            return End::Refused("it speaks the older protocol".to_owned(), at);
        }
        command(wire.out(), &push::tracking(&settings.tenant_prefix, &settings.app_prefix));
        let lost = |fault: Fault| {
            self.told.down(&self.redis.name, &at, fault.down(), &fault.to_string());
            End::Lost
        };
        match timeout(settings.timeout, answer(&mut wire)).await {
            None => return lost(Fault::timeout(Doing::Exchange)),
            Some(Err(fault)) => return lost(fault),
            Some(Ok(Value::Text(_))) => {}
            Some(Ok(Value::Error(line))) => {
                return End::Refused(String::from_utf8_lossy(&line).into_owned(), at);
            }
            Some(Ok(_)) => return lost(RespError::Malformed.into()),
        }
        if !is_ours() {
            return End::Over;
        }
        to.all();
        self.told.up(&self.redis.name, &at);
        match self.listen(&mut wire, place, &at, to, is_ours).await {
            Ok(()) => End::Over,
            Err(fault) if fault.is_exit() => End::Over,
            Err(fault) => End::Broken(fault, at),
        }
    }

    /// Tells what comes, until the connection breaks; without an error, until it is not ours to tell.
    async fn listen(
        &self,
        wire: &mut Wire,
        place: usize,
        at: &str,
        to: &dyn Invalidate,
        is_ours: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let limit = self.redis.settings.timeout;
        // When the last PING was sent, and whether it has its answer.
        let (mut asked, mut waits) = (timer::fresh(), true);
        command(wire.out(), &[b"PING"]);
        let mut in_a_row = 0;
        loop {
            let pause =
                if waits { limit } else { (asked + PING_MS).saturating_sub(timer::fresh()) };
            let next = timeout(pause, wire.next()).await;
            if !is_ours() {
                return Ok(());
            }
            match next {
                None if waits => return Err(Fault::timeout(Doing::Exchange)),
                None => {
                    if !self.pool.borrow().is_at(place, at) {
                        // What is asked elsewhere has changes of its own.
                        return Err(Error::Closed.into());
                    }
                    (asked, waits) = (timer::fresh(), true);
                    command(wire.out(), &[b"PING"]);
                }
                Some(Ok(Value::Push(items))) => {
                    let began = timer::fresh();
                    self.tell(&items, to).await;
                    // An answer that waited behind it is not late for that.
                    asked += (timer::fresh() - began).min(limit);
                }
                // The answer to a PING is a text in RESP3 whatever else is said.
                Some(Ok(Value::Text(_))) if waits => {
                    // This process may have been stopped meanwhile.
                    if timer::fresh() - asked > limit {
                        return Err(Fault::timeout(Doing::Exchange));
                    }
                    waits = false;
                    to.alive();
                }
                Some(Ok(Value::Error(line))) => {
                    let why = String::from_utf8_lossy(&line).into_owned();
                    return Err(Fault::Said(reason(&line), why));
                }
                Some(Ok(_)) => return Err(RespError::Malformed.into()),
                Some(Err(fault)) => return Err(fault),
            }
            in_a_row += 1;
            if in_a_row % IN_A_ROW == 0 {
                pass().await;
            }
        }
    }

    /// Tells what a push says, before anything that came after it is read: a command that changes
    /// very many keys makes a push of them all.
    async fn tell(&self, items: &[Value], to: &dyn Invalidate) {
        let settings = &self.redis.settings;
        match push::read(items) {
            Push::All => to.all(),
            Push::Other => {}
            Push::Keys(keys) => {
                for (i, key) in keys.into_iter().enumerate() {
                    if i % KEYS_AT_ONCE == KEYS_AT_ONCE - 1 {
                        pass().await;
                    }
                    let whose = push::whose(key, &settings.tenant_prefix, &settings.app_prefix);
                    if let Some(key) = whose.tenant {
                        to.tenant(key);
                    }
                    if let Some(name) = whose.app {
                        to.app(name);
                    }
                }
            }
        }
    }
}

/// The next value that is none of a push.
async fn answer(wire: &mut Wire) -> Result<Value, Fault> {
    loop {
        match wire.next().await? {
            Value::Push(_) => {}
            value => return Ok(value),
        }
    }
}

/// Between two PINGs; a changed place is seen by then, too.
const PING_MS: u64 = 400;
/// Until a store that cannot tell is asked again.
const REFUSED_MS: u64 = 30_000;
/// Bytes of a push at most: one has all keys that a command has changed. More of them are a break.
const MAX_PUSH: usize = 1 << 20;
/// Values that are taken before others have their turn.
const IN_A_ROW: u32 = 64;
/// Keys of a push, likewise.
const KEYS_AT_ONCE: usize = 256;
