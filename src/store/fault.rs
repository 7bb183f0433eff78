//! Why a connection to a store came to nothing.

use std::fmt;

use peerage_core::redis::resp::RespError;
use peerage_core::route::decide::Down;

use crate::net::error::{Doing, Error};

/// What went wrong.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The connection itself, or this worker.
    Net(Error),
    /// It speaks another language, or too much.
    Resp(RespError),
    /// It said so: the reason, and the words.
    Said(Down, String),
}

impl Fault {
    /// What a look-up makes of it.
    pub(super) fn down(&self) -> Down {
        match self {
            Self::Said(down, _) => *down,
            Self::Resp(_) | Self::Net(Error::Protocol(_)) => Down::Protocol,
            Self::Net(error) => match error {
                Error::Timeout(_) => Down::Timeout,
                Error::Closed | Error::Exiting | Error::System(Doing::Read | Doing::Write, _) => {
                    Down::Closed
                }
                _ => Down::Connect,
            },
        }
    }

    /// Whether it may come of nothing but the age of a connection that was kept.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Net(error) if error.is_stale() || *error == Error::Exiting)
    }

    /// Whether the store is without blame: this worker ends.
    pub(super) fn is_exit(&self) -> bool {
        matches!(self, Self::Net(Error::Exiting))
    }

    pub(super) fn timeout(doing: Doing) -> Self {
        Self::Net(Error::Timeout(doing))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(error) => error.fmt(f),
            Self::Resp(error) => error.fmt(f),
            Self::Said(_, text) => f.write_str(text),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Net(error)
    }
}

impl From<RespError> for Fault {
    fn from(error: RespError) -> Self {
        Self::Resp(error)
    }
}
