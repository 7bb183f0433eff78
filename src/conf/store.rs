//! What the workers of nginx share about a store: what it said, and the apps that no zone has.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use peerage_core::route::redis::RedisConf;
use peerage_zone::cache::Cache;

use super::Redis;
use super::zone::Zone;
use crate::ffi::conf::{Conf, Refused};
use crate::ffi::shm;
use crate::routing;

/// A store of routes.
pub(crate) struct Store {
    pub(crate) redis: Rc<Redis>,
    /// Upstreams of apps that the store alone has.
    pub(crate) apps: Rc<Zone>,
    cache: OnceCell<Cache>,
    /// The memory was laid out for this configuration.
    fresh: Cell<bool>,
    /// The store as this process asks it.
    desk: OnceCell<Rc<routing::Desk>>,
}

impl Store {
    /// Asks nginx for the memory: three quarters for what the store said, the rest for apps.
    pub(super) fn add(cf: &Conf<'_>, redis: Redis) -> Result<Rc<Self>, Refused> {
        let name = redis.name.clone();
        let main = cf.main();
        if main.zone(&name).is_some() {
            let text = format!("redis \"{name}\" has the name of a peerage zone");
            return Err(Refused::because(text));
        }
        let size = usize::try_from(redis.settings.cache).unwrap_or(usize::MAX);
        let page = shm::page_size();
        let of_apps = (size / 4).next_multiple_of(page).max(shm::least_size());
        // Pages are larger elsewhere.
        let Some(of_cache) = size.checked_sub(of_apps).filter(|&rest| rest >= shm::least_size())
        else {
            let least = (of_apps + shm::least_size()) / 1024;
            let text = format!("cache of redis \"{name}\" is too small, at least {least}k");
            return Err(Refused::because(text));
        };
        // Other memory where keys mean something else, or sizes differ: nothing of before is here.
        let RedisConf { db, tenant_prefix, app_prefix, .. } = &redis.settings;
        // The length tells where the first prefix ends.
        let ends = tenant_prefix.len();
        let place = format!("{name}:{size}:{db}:{ends}:{tenant_prefix}:{app_prefix}");
        let store = Rc::new(Self {
            redis: Rc::new(redis),
            apps: Rc::new(Zone::unkept(cf, &name, &format!("{place}:apps"), of_apps)),
            cache: OnceCell::new(),
            fresh: Cell::new(false),
            desk: OnceCell::new(),
        });
        shm::add(cf, of_apps, &store.apps)?;
        shm::add_cache(cf, &format!("{place}:cache"), of_cache, &store)?;
        Ok(store)
    }

    pub(crate) fn name(&self) -> &str {
        &self.redis.name
    }

    pub(crate) fn conf(&self) -> &RedisConf {
        &self.redis.settings
    }

    /// What the store said; `None` until nginx has mapped it.
    #[inline]
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.get()
    }

    /// Says where that is, once.
    pub(crate) fn set_cache(&self, cache: Cache) {
        // A cache of the configuration is initialised once; a second time would be the same memory.
        let _ = self.cache.set(cache);
    }

    /// Whether that was laid out for this configuration.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh.get()
    }

    pub(crate) fn set_fresh(&self, fresh: bool) {
        self.fresh.set(fresh);
    }

    /// The store as this process asks it.
    pub(crate) fn desk(&self) -> Option<&Rc<routing::Desk>> {
        self.desk.get()
    }

    /// Says how this process asks it, once.
    pub(crate) fn set_desk(&self, desk: Rc<routing::Desk>) {
        // A worker begins once.
        let _ = self.desk.set(desk);
    }
}
