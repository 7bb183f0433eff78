//! Where a server listens, as the kernel takes it.

use std::net::SocketAddr;

/// A socket address of any family: the bytes of its C structure.
///
/// Those that a zone keeps for its peers fit as they are: the kernel ignores the number in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(Box<[u8]>);

/// Room for any address, aligned as the kernel wants it.
#[repr(C, align(8))]
pub(crate) struct Storage([u8; MAX]);

impl Address {
    /// Takes the bytes of a `sockaddr`; `None` where they cannot be one.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        (2..=MAX).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// The path of a socket of the unix family; `None` where it is too long, or has a NUL.
    pub(crate) fn unix(path: &str) -> Option<Self> {
        if path.is_empty() || path.len() > UNIX_PATH || path.contains('\0') {
            return None;
        }
        let mut bytes = AF_UNIX.to_ne_bytes().to_vec();
        bytes.extend(path.as_bytes());
        bytes.push(0);
        Self::new(&bytes)
    }

    /// Whether it is of the unix family.
    pub(crate) fn is_unix(&self) -> bool {
        self.0.starts_with(&AF_UNIX.to_ne_bytes())
    }

    /// The same machine's, at another port; one of the unix family has none.
    pub(crate) fn at_port(mut self, port: u16) -> Self {
        if !self.is_unix()
            && let Some(at) = self.0.get_mut(2..4)
        {
            at.copy_from_slice(&port.to_be_bytes());
        }
        self
    }

    /// Bytes that the kernel is to look at.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A copy at a place that fits.
    pub(crate) fn storage(&self) -> Storage {
        let mut bytes = [0; MAX];
        bytes[..self.0.len()].copy_from_slice(&self.0);
        Storage(bytes)
    }
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Self {
        let mut bytes = Vec::with_capacity(28);
        match at {
            SocketAddr::V4(at) => {
                bytes.extend(AF_INET.to_ne_bytes());
                bytes.extend(at.port().to_be_bytes());
                bytes.extend(at.ip().octets());
                bytes.extend([0; 8]);
            }
            SocketAddr::V6(at) => {
                bytes.extend(AF_INET6.to_ne_bytes());
                bytes.extend(at.port().to_be_bytes());
                bytes.extend([0; 4]);
                bytes.extend(at.ip().octets());
                bytes.extend(at.scope_id().to_ne_bytes());
            }
        }
        Self(bytes.into())
    }
}

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Size of `struct sockaddr_storage`.
const MAX: usize = 128;
/// Longest path of a unix socket.
const UNIX_PATH: usize = 107;
