//! What a source of servers says of one of them, apart from what the operator wants and from what
//! is seen of it here.

use serde::{Deserialize, Serialize};

use crate::addr::ServerAddr;
use crate::server::AdminState;

/// The longest name of a source, `dc1:web`, in bytes.
pub const MAX_NAME: usize = 128;

/// What its source says of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sourced {
    /// A number of what the source calls it, which it keeps at another address; 0 = none.
    pub identity: u32,
    /// Its weight, where nobody here says another.
    pub weight: Option<u16>,
    /// Its checks fail.
    pub failing: bool,
    /// Whether it is to take new requests.
    pub standing: Standing,
    /// The source does not name it any more, and is not believed.
    pub held: bool,
    /// An operator has said that it stays, until it is named again.
    pub discarded: bool,
}

/// Whether a server is to take new requests, as far as its source goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Standing {
    /// It is named.
    #[default]
    Named,
    /// It is named, and in maintenance: it drains.
    Maintenance,
    /// It is named no longer: it drains, and goes when it is idle.
    Vanished {
        /// Since when, unix ms.
        since: u64,
    },
}

impl Standing {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Maintenance => "maintenance",
            Self::Vanished { .. } => "vanished",
        }
    }
}

impl Sourced {
    /// What follows for the server, as an operator would say it.
    pub fn wanted(&self) -> AdminState {
        match self.standing {
            Standing::Named => AdminState::Up,
            Standing::Maintenance | Standing::Vanished { .. } => AdminState::Drain,
        }
    }

    /// Since when the source names it no longer and is believed, unix ms.
    pub fn vanished(&self) -> Option<u64> {
        match self.standing {
            Standing::Vanished { since } => Some(since),
            Standing::Named | Standing::Maintenance => None,
        }
    }

    /// The words of an event.
    pub fn words(&self) -> String {
        let mut words = vec![self.standing.as_str()];
        if self.failing {
            words.push("critical");
        }
        if self.held {
            words.push("held");
        }
        words.join(" ")
    }
}

/// A server as a source states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Its address.
    pub addr: ServerAddr,
    /// What is said of it.
    pub said: Sourced,
}
