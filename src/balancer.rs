//! Which upstream a request goes to, and what is said when one of its servers is barred.

use peerage_core::name;
use peerage_zone::{NoPeer, Target};

use crate::conf::Block;
use crate::conf::block::Name;
use crate::ffi::log::{Level, Log};

/// The name that a request gave to a keyed block, in lower case, if the block serves it.
pub(crate) fn fold<'b>(
    block: &Block,
    given: &[u8],
    buffer: &'b mut [u8; name::MAX_LEN],
) -> Result<&'b str, NoPeer> {
    let folded = name::fold(given, buffer).ok_or(NoPeer::NameRefused)?;
    match &block.name {
        Name::Keyed(_, Some(glob)) if !glob.matches(folded) => Err(NoPeer::NameRefused),
        _ => Ok(folded),
    }
}

/// The upstream of a request; `folded` is what [`fold`] made of a keyed block's value.
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
