//! `peerage_route key [zone=name] [redis=name] [parameters] | off`.

use std::cell::OnceCell;
use std::rc::Rc;

use peerage_core::route::RouteKey;
use peerage_core::route::conf::RouteConf;

use super::store::Store;
use super::words;
use super::zone::Zone;
use crate::ffi::conf::{Complex, Conf, Refused};

const DIRECTIVE: &str = "peerage_route";

/// How requests of a location are routed.
pub(crate) struct Route {
    /// What is looked up.
    pub(crate) key: Complex,
    /// What else it says.
    pub(crate) conf: RouteConf,
    position: String,
    zone: OnceCell<Rc<Zone>>,
    store: OnceCell<Rc<Store>>,
}

impl Route {
    /// The zone whose routes these are.
    #[inline]
    pub(crate) fn zone(&self) -> Option<&Rc<Zone>> {
        self.zone.get()
    }

    /// The store that knows what the zone does not.
    #[inline]
    pub(crate) fn store(&self) -> Option<&Rc<Store>> {
        self.store.get()
    }

    /// Finds zone and store, which may stand further down in the configuration.
    pub(super) fn resolve(&self, cf: &Conf<'_>) -> Result<(), ()> {
        let zones = cf.main().zones();
        let found = match (&self.conf.zone, &zones[..]) {
            (Some(name), _) => cf.main().zone(name).ok_or_else(|| {
                format!("unknown peerage zone \"{name}\" in \"{DIRECTIVE}\" directive")
            }),
            (None, [only]) => Ok(Rc::clone(only)),
            (None, []) => Err(format!("no \"peerage_zone\" for \"{DIRECTIVE}\" directive")),
            (None, _) => Err(format!(
                "several zones, and parameter \"zone\" is missing in \"{DIRECTIVE}\" directive"
            )),
        };
        let zone = found.map_err(|text| cf.emerg_at(&self.position, &text))?;
        // Set once: the configuration is finished once.
        let _ = self.zone.set(zone);
        if let Some(name) = &self.conf.redis {
            let Some(store) = cf.main().store(name) else {
                let text = format!("unknown redis \"{name}\" in \"{DIRECTIVE}\" directive");
                cf.emerg_at(&self.position, &text);
                return Err(());
            };
            let _ = self.store.set(store);
        }
        Ok(())
    }
}

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let place = &cf.location().loc.route;
    if place.get().is_some() {
        return Err(words::duplicate(DIRECTIVE));
    }
    let (key, rest) = (args[1], &args[2..]);
    if key == "off" {
        if let Some(word) = rest.first() {
            return Err(words::unknown(DIRECTIVE, word));
        }
        // Looked at above: nothing is there yet.
        let _ = place.set(None);
        return Ok(());
    }
    let conf = RouteConf::parse(rest).map_err(|e| words::refused(DIRECTIVE, &e))?;
    let complex = cf.complex(key)?;
    if complex.is_constant()
        && let Err(error) = RouteKey::parse(key)
    {
        return Err(words::invalid(DIRECTIVE, key, format!("a key {error}")));
    }
    let route = Rc::new(Route {
        key: complex,
        conf,
        position: cf.position(),
        zone: OnceCell::new(),
        store: OnceCell::new(),
    });
    cf.main().routes.borrow_mut().push(Rc::clone(&route));
    // Looked at above: nothing is there yet.
    let _ = place.set(Some(route));
    Ok(())
}
