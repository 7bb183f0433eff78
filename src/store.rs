//! A store of routes, a Redis: asked over connections that this process keeps, on nginx's events.
//!
//! [`ask`] has the questions; [`pool`] keeps the connections, each a [`line`] of questions in order;
//! [`open`] makes them. [`tracker`] follows what the store tells of changes. What answers mean,
//! `core::route` decides, and how a Redis is spoken with, `core::redis` knows.

mod ask;
mod fault;
mod line;
mod open;
mod pool;
mod told;
mod tracker;
mod wire;

use std::cell::RefCell;
use std::rc::Rc;

use self::pool::Pool;
use self::told::Told;
pub(crate) use self::tracker::Invalidate;
use crate::conf::Redis;
use crate::ffi::global::Global;

/// What this process has of a store.
pub(crate) struct Store {
    pub(crate) redis: Rc<Redis>,
    pool: RefCell<Pool>,
    told: Told,
}

static STORES: Global<RefCell<Vec<Rc<Store>>>> = Global::new(RefCell::new(Vec::new()));

/// The store of a directive.
pub(crate) fn of(redis: &Rc<Redis>) -> Rc<Store> {
    let mut stores = STORES.get().borrow_mut();
    if let Some(store) = stores.iter().find(|store| Rc::ptr_eq(&store.redis, redis)) {
        return Rc::clone(store);
    }
    let store =
        Rc::new(Store { redis: Rc::clone(redis), pool: RefCell::default(), told: Told::default() });
    stores.push(Rc::clone(&store));
    store
}

/// Closes all connections and ends all questions, before the process leaves the configuration.
pub(crate) fn end() {
    for store in STORES.get().take() {
        store.pool.borrow_mut().end();
    }
}

/// Bytes of an answer at most.
const MAX_ANSWER: usize = 64 << 10;
