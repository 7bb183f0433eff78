//! Which upstream a request goes to, and what is said when one of its servers is barred.

use peerage_core::name::{self, Case};
use peerage_zone::{NoPeer, Target};

use crate::conf::Block;
use crate::conf::block::Name;
use crate::ffi::log::{Level, Log};

/// Whether a keyed block serves the name that a request gave, and how that is written.
#[inline]
pub(crate) fn serves(block: &Block, given: &[u8]) -> Result<Case, NoPeer> {
    let case = name::case(given).ok_or(NoPeer::NameRefused)?;
    match &block.name {
        Name::Keyed(_, Some(glob)) => {
            let name = str::from_utf8(given).map_err(|_| NoPeer::NameRefused)?;
            let fits = match case {
                Case::Folded => glob.matches(name),
                Case::Mixed => glob.matches(&name.to_ascii_lowercase()),
            };
            if fits { Ok(case) } else { Err(NoPeer::NameRefused) }
        }
        _ => Ok(case),
    }
}

/// The upstream of a request; `folded` is a keyed block's value in lower case.
#[inline]
pub(crate) fn target<'a>(block: &'a Block, folded: impl FnOnce() -> &'a [u8]) -> Target<'a> {
    match &block.name {
        Name::Fixed(fixed, _) => Target::Fixed(fixed),
        Name::Keyed(..) => Target::Name(folded()),
    }
}

/// Says that `max_fails` bars a server, as nginx's round robin does; the request's log adds which.
#[cold]
pub(crate) fn disabled(log: Log<'_>) {
    log.write(Level::Warn, 0, format_args!("upstream server temporarily disabled"));
}
