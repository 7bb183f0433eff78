//! What nginx's hooks do, in the order in which nginx calls them.

use crate::admin::build;
use crate::conf;
use crate::ffi::conf::Conf;
use crate::ffi::cycle::Cycle;
use crate::ffi::process::{self, Role};
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::session;
use crate::ffi::{filter, routed, variable, wake};
use crate::log::Level;
use crate::variables::Variable;
use crate::{audit, loads, routing, store, worker, zone};

/// Before http{} is read: variables that its directives may use.
pub(crate) fn before(cf: &Conf<'_>) -> Result<(), ()> {
    for which in Variable::ALL {
        variable::add(cf, which).map_err(|_| ())?;
    }
    Ok(())
}

/// After http{} was read.
pub(crate) fn after(cf: &Conf<'_>) -> Result<(), ()> {
    conf::finish(cf)?;
    filter::install();
    if cf.main().has_routes() {
        routed::install(cf)?;
    }
    Ok(())
}

/// A configuration has been accepted; in the master, before it starts its workers.
pub(crate) fn started(cycle: Cycle<'_>) {
    if !process::testing() {
        audit::to(cycle.main().and_then(conf::Main::log));
        worker::reloaded();
        store::end();
        loads::count();
    }
    let Some(main) = cycle.main() else { return };
    if process::testing() {
        for zone in main.zones() {
            zone::check_state(&zone, cycle);
            zone::check_size(&zone, cycle);
        }
        return;
    }
    build::check(cycle.log());
    if main.zones().is_empty() {
        return;
    }
    if let Err(error) = worker::prepare(cycle) {
        let errno = error.raw_os_error().unwrap_or(0);
        cycle.log().write(Level::Alert, errno, format_args!("eventfd() failed"));
    }
    for zone in main.all_zones() {
        zone::check_state(&zone, cycle);
        zone::load(&zone, main, cycle);
    }
    for store in main.stores() {
        routing::load(&store, cycle);
    }
}

/// A process begins its work.
pub(crate) fn forked(cycle: Cycle<'_>) {
    if process::role() == Role::Other {
        return;
    }
    #[cfg(feature = "points")]
    crate::ffi::faults::points::arm();
    if let Some(main) = cycle.main()
        && !main.zones().is_empty()
    {
        worker::begin(main, cycle);
    }
}

/// A configuration goes, and its SSL contexts with it.
pub(crate) fn ended_conf() {
    #[cfg(ngx_feature = "http_ssl")]
    session::forget();
}

/// No configuration has the module any more: its code may be unloaded next, so nothing may point
/// to it and nothing of it may stay open.
pub(crate) fn unused() {
    store::end();
    worker::end();
    wake::release();
    audit::to(None);
}

/// A process ends.
pub(crate) fn leaving(_cycle: Cycle<'_>) {
    store::end();
    worker::end();
}

/// The master ends, after its last process.
pub(crate) fn ended(cycle: Cycle<'_>) {
    if let Some(main) = cycle.main() {
        worker::ended(main, cycle.user());
    }
}
