//! `peerage_log file`.

use super::words;
use crate::ffi::conf::{Conf, Refused};

const DIRECTIVE: &str = "peerage_log";

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let path = args[1];
    if path.is_empty() {
        return Err(words::invalid(DIRECTIVE, path, "no path"));
    }
    let main = cf.main();
    if main.log.get().is_some() {
        return Err(words::duplicate(DIRECTIVE));
    }
    // Looked at above: there is none yet.
    let _ = main.log.set(cf.open_file(path)?.into());
    Ok(())
}
