//! Why a probe failed: a closed list, in 16 bits.

use std::fmt;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nobody listens there.
    ConnectRefused,
    /// There was no connection within the time-out.
    ConnectTimeout,
    /// There is no way there, or no socket to go it.
    ConnectFailed,
    /// There was no whole answer within the time-out.
    Timeout,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the answer was whole.
    Closed,
    /// No TLS session came about.
    Tls,
    /// The certificate is not good, or another's.
    Certificate,
    /// A status that does not pass.
    Status(u16),
    /// The text is not in the body.
    Body,
    /// What came is no answer of that kind.
    Protocol,
    /// gRPC: the service says that it is not serving.
    NotServing,
    /// gRPC: the call ended with this status.
    Grpc(u8),
    /// An error of our own side, which is none of the peer's.
    Internal,
}

/// Where the kind stands beside a status.
const KIND: u32 = 10;

impl Reason {
    /// The word for tools.
    pub const fn code(self) -> &'static str {
        match self {
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectFailed => "connect_failed",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Tls => "tls",
            Self::Certificate => "certificate",
            Self::Status(_) => "status",
            Self::Body => "body",
            Self::Protocol => "protocol",
            Self::NotServing => "not_serving",
            Self::Grpc(_) => "grpc_status",
            Self::Internal => "internal",
        }
    }

    /// Its bits, never 0.
    pub const fn bits(self) -> u16 {
        let (kind, detail) = match self {
            Self::ConnectRefused => (1, 0),
            Self::ConnectTimeout => (2, 0),
            Self::ConnectFailed => (3, 0),
            Self::Timeout => (4, 0),
            Self::Reset => (5, 0),
            Self::Closed => (6, 0),
            Self::Tls => (7, 0),
            Self::Certificate => (8, 0),
            Self::Status(status) => (9, status),
            Self::Body => (10, 0),
            Self::Protocol => (11, 0),
            Self::NotServing => (12, 0),
            Self::Grpc(status) => (13, status as u16),
            Self::Internal => (14, 0),
        };
        kind << KIND | detail & ((1 << KIND) - 1)
    }

    /// The reason of these bits; `None` where they are none.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        let detail = bits & ((1 << KIND) - 1);
        Some(match bits >> KIND {
            1 => Self::ConnectRefused,
            2 => Self::ConnectTimeout,
            3 => Self::ConnectFailed,
            4 => Self::Timeout,
            5 => Self::Reset,
            6 => Self::Closed,
            7 => Self::Tls,
            8 => Self::Certificate,
            9 => Self::Status(detail),
            10 => Self::Body,
            11 => Self::Protocol,
            12 => Self::NotServing,
            13 => Self::Grpc(detail as u8),
            14 => Self::Internal,
            _ => return None,
        })
    }
}

/// For people and the log: `status 503`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectRefused => f.write_str("connection refused"),
            Self::ConnectTimeout => f.write_str("connecting timed out"),
            Self::ConnectFailed => f.write_str("connecting failed"),
            Self::Timeout => f.write_str("timed out"),
            Self::Reset => f.write_str("connection reset"),
            Self::Closed => f.write_str("connection closed"),
            Self::Tls => f.write_str("TLS handshake failed"),
            Self::Certificate => f.write_str("certificate not accepted"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Body => f.write_str("text not in the body"),
            Self::Protocol => f.write_str("no answer of its protocol"),
            Self::NotServing => f.write_str("not serving"),
            Self::Grpc(status) => write!(f, "gRPC status {status}"),
            Self::Internal => f.write_str("probing failed"),
        }
    }
}

#[cfg(test)]
pub(crate) fn any_reason() -> impl proptest::strategy::Strategy<Value = Reason> {
    use proptest::prelude::*;
    (1u16..15, 0u16..600).prop_map(|(kind, detail)| {
        let detail = match kind {
            9 => detail,
            13 => detail % 256,
            _ => 0,
        };
        Reason::from_bits(kind << KIND | detail).unwrap_or(Reason::Internal)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_keep_it(reason in any_reason()) {
            prop_assert_ne!(reason.bits(), 0);
            prop_assert_eq!(Reason::from_bits(reason.bits()), Some(reason));
        }

        #[test]
        fn any_bits_are_a_reason_or_none(bits in any::<u16>()) {
            if let Some(reason) = Reason::from_bits(bits) {
                prop_assert_eq!(Reason::from_bits(reason.bits()), Some(reason));
                prop_assert!(!reason.to_string().is_empty() && !reason.code().is_empty());
            }
        }
    }

    #[test]
    fn no_bits_are_no_reason() {
        assert_eq!(Reason::from_bits(0), None);
        assert_eq!(Reason::Status(503).to_string(), "status 503");
        assert_eq!(Reason::Grpc(14).to_string(), "gRPC status 14");
    }
}
