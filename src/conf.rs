//! The module's configuration: zones, blocks and locations, as directives leave them.
//!
//! Everything hangs on nginx's configuration and goes with it. While it is read, directives fill
//! cells; afterwards only a zone's own state (its memory, this process's place in it) changes.

pub(crate) mod api;
pub(crate) mod block;
pub(crate) mod check;
pub(crate) mod consul;
pub(crate) mod content;
pub(crate) mod dashboard;
pub(crate) mod door;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod redis;
pub(crate) mod route;
pub(crate) mod store;
pub(crate) mod words;
pub(crate) mod zone;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use peerage_core::declare::DeclaredUpstream;

pub(crate) use api::Api;
pub(crate) use block::{Block, finish as finish_block};
pub(crate) use consul::Consul;
pub(crate) use content::Content;
pub(crate) use door::Door;
pub(crate) use metrics::Metrics;
pub(crate) use peerage_core::api::route::WriteMode as Write;
pub(crate) use redis::Redis;
pub(crate) use route::Route;
pub(crate) use store::Store;
pub(crate) use zone::Zone;

use crate::dashboard::Dashboard;
use crate::ffi::conf::{Conf, Location};
use crate::ffi::file::File;
use crate::ffi::global::Global;
use crate::ffi::resolve::Resolver;
use crate::module;

/// What stands in http{}.
#[derive(Default)]
pub(crate) struct Main {
    zones: RefCell<Vec<Rc<Zone>>>,
    blocks: RefCell<Vec<Rc<Block>>>,
    /// The first block that names an upstream, by [`key`].
    named: RefCell<BTreeMap<String, Rc<Block>>>,
    apis: RefCell<Vec<Rc<Api>>>,
    doors: RefCell<Vec<Rc<Door>>>,
    consuls: RefCell<Vec<Rc<Consul>>>,
    routes: RefCell<Vec<Rc<Route>>>,
    stores: RefCell<Vec<Rc<Store>>>,
    log: OnceCell<Rc<File>>,
    resolver: OnceCell<Resolver>,
    _counted: Counted,
}

/// Counts the configurations of this process that have the module.
struct Counted;

static COUNT: Global<Cell<usize>> = Global::new(Cell::new(0));

impl Default for Counted {
    fn default() -> Self {
        COUNT.get().update(|n| n + 1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        COUNT.get().update(|n| n - 1);
        module::ended_conf();
        if COUNT.get().get() == 0 {
            module::unused();
        }
    }
}

/// What stands in an upstream{}.
#[derive(Default)]
pub(crate) struct Srv {
    block: OnceCell<Rc<Block>>,
}

/// What stands in a location.
#[derive(Default)]
pub(crate) struct Loc {
    content: OnceCell<Content>,
    /// `None` inside is `off`.
    route: OnceCell<Option<Rc<Route>>>,
}

impl Main {
    /// The zones, in the order of their directives.
    pub(crate) fn zones(&self) -> Vec<Rc<Zone>> {
        self.zones.borrow().clone()
    }

    /// A zone by name.
    pub(crate) fn zone(&self, name: &str) -> Option<Rc<Zone>> {
        self.zones.borrow().iter().find(|zone| zone.name == name).cloned()
    }

    /// The stores of routes, in the order of their directives.
    pub(crate) fn stores(&self) -> Vec<Rc<Store>> {
        self.stores.borrow().clone()
    }

    /// A store by name.
    pub(crate) fn store(&self, name: &str) -> Option<Rc<Store>> {
        self.stores.borrow().iter().find(|store| store.name() == name).cloned()
    }

    /// What has this state file: its kind and name, for a message.
    fn keeps(&self, state: &str) -> Option<String> {
        let (zones, stores) = (self.zones.borrow(), self.stores.borrow());
        let zone = zones.iter().find(|zone| zone.state.as_deref() == Some(state));
        let store = stores.iter().find(|store| store.conf().state.as_deref() == Some(state));
        let store = store.map(|store| format!("redis \"{}\"", store.name()));
        zone.map(|zone| format!("zone \"{}\"", zone.name)).or(store)
    }

    /// The zones, and those of the stores' apps behind them.
    pub(crate) fn all_zones(&self) -> Vec<Rc<Zone>> {
        let mut all = self.zones();
        all.extend(self.stores.borrow().iter().map(|store| Rc::clone(&store.apps)));
        all
    }

    /// The file of `peerage_log`.
    pub(crate) fn log(&self) -> Option<Rc<File>> {
        self.log.get().cloned()
    }

    /// What resolves names at run time, if http{} says so.
    pub(crate) fn resolver(&self) -> Option<&Resolver> {
        self.resolver.get()
    }

    /// The blocks taken over.
    pub(crate) fn blocks(&self) -> Vec<Rc<Block>> {
        self.blocks.borrow().clone()
    }

    /// Whether requests are routed.
    pub(crate) fn has_routes(&self) -> bool {
        !self.routes.borrow().is_empty()
    }

    /// Whether requests are routed by the zone.
    pub(crate) fn routes_by(&self, zone: &Zone) -> bool {
        let routes = self.routes.borrow();
        routes.iter().any(|route| route.zone().is_some_and(|z| z.name == zone.name))
    }

    /// Whether a block names this upstream of the zone.
    pub(crate) fn names(&self, zone: &Zone, upstream: &str) -> bool {
        self.named.borrow().contains_key(&key(&zone.name, upstream))
    }

    /// The blocks of a zone that declare an upstream, one for each.
    pub(crate) fn declared(&self, zone: &Zone) -> Vec<DeclaredUpstream> {
        let named = self.named.borrow();
        let blocks = self.blocks.borrow();
        let here = blocks.iter().filter(|block| block.zone().is_some_and(|z| z.name == zone.name));
        here.filter_map(|block| {
            let declared = block.declared()?;
            let first = named.get(&key(&zone.name, declared.name.as_str()))?;
            Rc::ptr_eq(first, block).then(|| declared.clone())
        })
        .collect()
    }
}

/// An upstream of a zone; neither name may hold a slash.
fn key(zone: &str, upstream: &str) -> String {
    format!("{zone}/{upstream}")
}

impl Srv {
    /// The block, if `peerage` stands in it.
    #[inline]
    pub(crate) fn block(&self) -> Option<&Rc<Block>> {
        self.block.get()
    }
}

impl Loc {
    /// The API that answers here.
    pub(crate) fn api(&self) -> Option<&Rc<Api>> {
        match self.content.get()? {
            Content::Api(api) => Some(api),
            _ => None,
        }
    }

    /// The door of another system that is here.
    pub(crate) fn door(&self) -> Option<&Rc<Door>> {
        match self.content.get()? {
            Content::Door(door) => Some(door),
            _ => None,
        }
    }

    /// The page of metrics that answers here.
    pub(crate) fn metrics(&self) -> Option<Metrics> {
        match self.content.get()? {
            Content::Metrics(metrics) => Some(*metrics),
            _ => None,
        }
    }

    /// The page for operators that answers here.
    pub(crate) fn dashboard(&self) -> Option<&Dashboard> {
        match self.content.get()? {
            Content::Dashboard(dashboard) => Some(dashboard),
            _ => None,
        }
    }

    /// How requests are routed here.
    #[inline]
    pub(crate) fn route(&self) -> Option<&Rc<Route>> {
        self.route.get()?.as_ref()
    }

    /// The zone that what answers here is bound to.
    pub(crate) fn zone(&self) -> Option<&Rc<Zone>> {
        self.content.get()?.zone()
    }
}

/// Checks what only shows when all of http{} is read.
pub(crate) fn finish(cf: &Conf<'_>) -> Result<(), ()> {
    let main = cf.main();
    for block in main.blocks.borrow().iter() {
        if !block.is_finished() {
            cf.emerg_at(
                block.position(),
                &format!(
                    "load balancing method redefined after \"peerage\" in upstream \"{}\"",
                    block.upstream
                ),
            );
            return Err(());
        }
    }
    consul::finish(cf, main)?;
    for api in main.apis.borrow().iter() {
        api.resolve(cf)?;
    }
    for door in main.doors.borrow().iter() {
        door.resolve(cf)?;
    }
    for route in main.routes.borrow().iter() {
        route.resolve(cf)?;
    }
    if let Some(resolver) = cf.resolver() {
        // Set once: the configuration is finished once.
        let _ = main.resolver.set(resolver);
    }
    Ok(())
}

/// A location takes over from the one around it.
pub(crate) fn inherit(parent: &Loc, location: &Location<'_>) {
    content::inherit(parent.content.get(), location);
    // The API, and what else of ours answers in a location, is there for operators: tenants come to
    // it only where the location itself says so.
    if let Some(route) = parent.route.get().filter(|_| location.loc.content.get().is_none()) {
        // What the location says itself holds.
        let _ = location.loc.route.set(route.clone());
    }
}
