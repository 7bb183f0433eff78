//! `peerage_dyups [zone=name]` and `peerage_update [zone=name]`.

use std::cell::OnceCell;
use std::rc::Rc;

use super::content::{self, Content};
use super::words;
use super::zone::Zone;
use crate::ffi::conf::{Conf, Refused};

/// Whose requests a door understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those of the dyups module's clients.
    Dyups,
    /// Those that tell a balancer with a shared dictionary its peers.
    Update,
}

impl Kind {
    fn directive(self) -> &'static str {
        match self {
            Self::Dyups => "peerage_dyups",
            Self::Update => "peerage_update",
        }
    }
}

/// A door of the configuration.
pub(crate) struct Door {
    pub(crate) kind: Kind,
    zone_name: Option<String>,
    position: String,
    zone: OnceCell<Rc<Zone>>,
}

impl Door {
    /// The directive that makes it.
    pub(super) fn directive(&self) -> &'static str {
        self.kind.directive()
    }

    /// The zone of `zone=`.
    pub(crate) fn zone(&self) -> Option<&Rc<Zone>> {
        self.zone.get()
    }

    /// Finds the zone, which may stand further down in the configuration.
    pub(super) fn resolve(&self, cf: &Conf<'_>) -> Result<(), ()> {
        let Some(name) = &self.zone_name else { return Ok(()) };
        let Some(zone) = cf.main().zone(name) else {
            let directive = self.directive();
            cf.emerg_at(
                &self.position,
                &format!("unknown peerage zone \"{name}\" in \"{directive}\" directive"),
            );
            return Err(());
        };
        // Set once: the configuration is finished once.
        let _ = self.zone.set(zone);
        Ok(())
    }
}

/// The directive `peerage_dyups`.
pub(crate) fn dyups(cf: &Conf<'_>) -> Result<(), Refused> {
    let location = cf.location();
    if location.is_named() || location.is_regex() {
        // Its paths begin after the location's name.
        let kind = if location.is_named() { "named" } else { "regex" };
        return Err(Refused::because(format!(
            "\"peerage_dyups\" directive is not allowed in the {kind} location \"{}\"",
            location.name()
        )));
    }
    set(cf, Kind::Dyups)
}

/// The directive `peerage_update`.
pub(crate) fn update(cf: &Conf<'_>) -> Result<(), Refused> {
    set(cf, Kind::Update)
}

fn set(cf: &Conf<'_>, kind: Kind) -> Result<(), Refused> {
    let args = cf.args()?;
    let (location, directive) = (cf.location(), kind.directive());
    content::is_free(&location, directive)?;
    let mut zone_name = None;
    for &word in &args[1..] {
        match words::pair(word) {
            ("zone", Some(name)) if !name.is_empty() => {
                if zone_name.replace(name.to_owned()).is_some() {
                    return Err(words::twice(directive, "zone"));
                }
            }
            _ => return Err(words::unknown(directive, word)),
        }
    }
    let door = Rc::new(Door { kind, zone_name, position: cf.position(), zone: OnceCell::new() });
    cf.main().doors.borrow_mut().push(Rc::clone(&door));
    content::serve(&location, Content::Door(door));
    Ok(())
}
