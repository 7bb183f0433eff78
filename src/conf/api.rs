//! `peerage_api [zone=name] [write=on|off|operate] [origin=url …]`.

use std::cell::OnceCell;
use std::rc::Rc;

use peerage_core::api::route::WriteMode;

use super::content::{self, Content};
use super::words;
use super::zone::Zone;
use crate::ffi::conf::{Conf, Refused};

pub(super) const DIRECTIVE: &str = "peerage_api";

/// An API of the configuration.
pub(crate) struct Api {
    /// What a client may change.
    pub(crate) write: WriteMode,
    /// Pages of other sites that may write.
    pub(crate) origins: Vec<String>,
    zone_name: Option<String>,
    position: String,
    zone: OnceCell<Rc<Zone>>,
}

impl Api {
    /// The zone of `zone=`.
    pub(crate) fn zone(&self) -> Option<&Rc<Zone>> {
        self.zone.get()
    }

    /// Finds the zone, which may stand further down in the configuration.
    pub(super) fn resolve(&self, cf: &Conf<'_>) -> Result<(), ()> {
        let Some(name) = &self.zone_name else { return Ok(()) };
        let Some(zone) = cf.main().zone(name) else {
            cf.emerg_at(
                &self.position,
                &format!("unknown peerage zone \"{name}\" in \"{DIRECTIVE}\" directive"),
            );
            return Err(());
        };
        // Set once: the configuration is finished once.
        let _ = self.zone.set(zone);
        Ok(())
    }
}

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let location = cf.location();
    content::is_free(&location, DIRECTIVE)?;
    if location.is_named() || location.is_regex() {
        let kind = if location.is_named() { "named" } else { "regex" };
        return Err(Refused::because(format!(
            "\"{DIRECTIVE}\" directive is not allowed in the {kind} location \"{}\"",
            location.name()
        )));
    }
    let (mut zone_name, mut write, mut origins) = (None, None, Vec::new());
    for &word in &args[1..] {
        match words::pair(word) {
            ("zone", Some(name)) if !name.is_empty() => {
                if zone_name.replace(name.to_owned()).is_some() {
                    return Err(words::twice(DIRECTIVE, "zone"));
                }
            }
            ("write", Some(value)) => {
                let value = match value {
                    "off" => WriteMode::Off,
                    "on" => WriteMode::On,
                    "operate" => WriteMode::Operate,
                    _ => return Err(words::invalid(DIRECTIVE, word, "on, off or operate")),
                };
                if write.replace(value).is_some() {
                    return Err(words::twice(DIRECTIVE, "write"));
                }
            }
            ("origin", Some(url)) => {
                if !url.contains("://") {
                    return Err(words::invalid(
                        DIRECTIVE,
                        word,
                        "not like \"https://example.com\"",
                    ));
                }
                origins.push(url.to_owned());
            }
            _ => return Err(words::unknown(DIRECTIVE, word)),
        }
    }
    let api = Rc::new(Api {
        write: write.unwrap_or_default(),
        origins,
        zone_name,
        position: cf.position(),
        zone: OnceCell::new(),
    });
    cf.main().apis.borrow_mut().push(Rc::clone(&api));
    content::serve(&location, Content::Api(api));
    Ok(())
}
