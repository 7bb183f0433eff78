//! Which names a keyed block serves, and what is said when a server is barred.

use peerage_core::name::{self, Case, Glob};
use peerage_zone::{NoPeer, Worker};

use crate::ffi::log::{Level, Log};
use crate::worker;

/// Whether a keyed block serves the name that a request gave, and how that is written.
#[inline]
pub(crate) fn serves(glob: Option<&Glob>, given: &[u8]) -> Result<Case, NoPeer> {
    let case = name::case(given).ok_or(NoPeer::NameRefused)?;
    if let Some(glob) = glob {
        let name = str::from_utf8(given).map_err(|_| NoPeer::NameRefused)?;
        let fits = match case {
            Case::Folded => glob.matches(name),
            Case::Mixed => glob.matches(&name.to_ascii_lowercase()),
        };
        if !fits {
            return Err(NoPeer::NameRefused);
        }
    }
    Ok(case)
}

/// Says that `max_fails` bars a server, as nginx's round robin does; the request's log adds which.
#[cold]
pub(crate) fn disabled(log: Log<'_>) {
    log.write(Level::Warn, 0, format_args!("upstream server temporarily disabled"));
}

/// Says that errors in a row eject a server; the request's log adds which.
#[cold]
pub(crate) fn ejected(log: Log<'_>, worker: &Worker) {
    log.write(Level::Warn, 0, format_args!("upstream server ejected as an outlier"));
    worker::tell_ejected(worker);
}
