//! One process listens for what changes in the store, for the whole nginx.
//!
//! Whatever may have been missed, before it listened or after it did not any more, is marked: it is
//! used on as stale, and asked anew. As long as nobody listens, what is cached is fresh for the
//! shorter time.

use std::cell::RefCell;
use std::rc::Rc;

use peerage_zone::cache::{Cache, Kind};

use super::clock;
use super::desk::Desk;
use crate::duty::{self, Whose};
use crate::ffi::process;
use crate::net::executor::{self, Handle};
use crate::store::{Invalidate, Store as Client};

/// Whether this process listens.
#[derive(Default)]
pub(super) struct Tracking(RefCell<Option<Handle>>);

impl Tracking {
    /// Listens, where nobody else does.
    pub(super) fn look(&self, desk: &Rc<Desk>, round: bool) {
        if process::exiting() || duty::take(desk.cache.tracking(), round) == Whose::Another {
            self.0.take();
            return;
        }
        let mut running = self.0.borrow_mut();
        if running.as_ref().is_none_or(Handle::is_over) {
            *running = Some(executor::spawn(listen(desk.client(), desk.cache)));
        }
    }

    /// Leaves it to others; whether it was this process's.
    pub(super) fn give_up(&self, cache: &Cache) -> bool {
        self.0.take();
        if duty::is_ours(cache.tracking()) {
            // Until another one listens nobody does.
            cache.track(0);
        }
        duty::leave(cache.tracking())
    }
}

async fn listen(client: Rc<Client>, cache: Cache) {
    // A word comes every 400 ms, and says what was so when it was asked for.
    let span = 800 + 2 * client.redis.settings.timeout;
    let ear = Ear { cache, span };
    client.track(&ear, &|| ear.is_ours()).await;
}

/// Marks what the store says has changed.
struct Ear {
    cache: Cache,
    /// How long it counts as listening without a word from it, ms.
    span: u64,
}

impl Ear {
    fn is_ours(&self) -> bool {
        duty::is_ours(self.cache.tracking())
    }
}

impl Invalidate for Ear {
    fn tenant(&self, key: &[u8]) {
        self.cache.invalidate(Kind::Tenant, key);
    }

    fn app(&self, name: &[u8]) {
        self.cache.invalidate(Kind::App, name);
    }

    fn all(&self) {
        self.cache.mark_all();
    }

    fn alive(&self) {
        // Who has been stopped for too long has missed what the next one marks.
        if self.is_ours() {
            self.cache.track(clock::now() + self.span);
        }
    }

    fn lost(&self) {
        if self.is_ours() {
            self.cache.track(0);
        }
    }
}
