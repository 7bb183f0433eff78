//! `peerage_metrics [servers=on|off]`.

use super::content::{self, Content};
use super::words;
use crate::ffi::conf::{Conf, Refused};

pub(super) const DIRECTIVE: &str = "peerage_metrics";

/// A page of metrics of the configuration.
#[derive(Clone, Copy)]
pub(crate) struct Metrics {
    /// Whether it has families about servers.
    pub(crate) servers: bool,
}

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let location = cf.location();
    content::is_free(&location, DIRECTIVE)?;
    let mut servers = None;
    for &word in &args[1..] {
        let on = match words::pair(word) {
            ("servers", Some("on")) => true,
            ("servers", Some("off")) => false,
            ("servers", Some(_)) => return Err(words::invalid(DIRECTIVE, word, "on or off")),
            _ => return Err(words::unknown(DIRECTIVE, word)),
        };
        if servers.replace(on).is_some() {
            return Err(words::twice(DIRECTIVE, "servers"));
        }
    }
    let metrics = Metrics { servers: servers.unwrap_or(true) };
    content::serve(&location, Content::Metrics(metrics));
    Ok(())
}
