//! Socket addresses as the kernel and nginx take them, with the upstream's number inside.
//!
//! nginx's keepalive cache compares whole socket addresses. The kernel ignores the padding of
//! `sockaddr_in`, the flow information of `sockaddr_in6` and what follows the NUL of a unix path,
//! so the number of the upstream goes there: connections of two upstreams of one nginx block are
//! never taken for each other, even where their servers have one address.

use std::net::SocketAddr;

use peerage_shm::{AtomicU64, Ref, Region};

use crate::layout::{get, granules, high, low, pack, set, words_of};

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Size of `struct sockaddr_un`, which nginx passes whole.
const SOCKADDR_UN: usize = 110;
/// Longest path of a unix socket.
const UNIX_PATH: usize = 107;

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Inet(SocketAddr),
    Unix(String),
}

impl Socket {
    /// The bytes of the C structure.
    fn sockaddr(&self, upstream: u32) -> Vec<u8> {
        let mark = upstream.to_ne_bytes();
        match self {
            Self::Inet(SocketAddr::V4(addr)) => {
                let mut bytes = AF_INET.to_ne_bytes().to_vec();
                bytes.extend(addr.port().to_be_bytes());
                bytes.extend(addr.ip().octets());
                bytes.extend(mark);
                bytes.resize(16, 0);
                bytes
            }
            Self::Inet(SocketAddr::V6(addr)) => {
                let mut bytes = AF_INET6.to_ne_bytes().to_vec();
                bytes.extend(addr.port().to_be_bytes());
                bytes.extend(mark);
                bytes.extend(addr.ip().octets());
                bytes.extend(addr.scope_id().to_ne_bytes());
                bytes
            }
            Self::Unix(path) => {
                let mut bytes = AF_UNIX.to_ne_bytes().to_vec();
                bytes.extend(path.as_bytes().iter().take(UNIX_PATH));
                bytes.push(0);
                bytes.extend(mark);
                bytes.resize(SOCKADDR_UN, 0);
                bytes
            }
        }
    }

    /// The text that `$upstream_addr` shows, as nginx writes it.
    fn text(&self) -> String {
        match self {
            Self::Inet(addr) => addr.to_string(),
            Self::Unix(path) => format!("unix:{path}"),
        }
    }
}

/// A block ready to be written: lengths, socket address, text.
pub(crate) struct AddressBlock {
    socklen: usize,
    namelen: usize,
    bytes: Vec<u8>,
}

impl AddressBlock {
    pub(crate) fn new(socket: &Socket, upstream: u32) -> Self {
        let mut bytes = socket.sockaddr(upstream);
        let socklen = bytes.len();
        bytes.resize(words_of(socklen) * 8, 0);
        let text = socket.text();
        bytes.extend(text.as_bytes());
        Self { socklen, namelen: text.len(), bytes }
    }

    pub(crate) fn granules(&self) -> u32 {
        granules(1 + words_of(self.bytes.len()))
    }

    pub(crate) fn write(&self, region: &Region, at: Ref) {
        if let Some(words) = region.words(at, 1) {
            set(&words[0], pack(self.socklen as u32, self.namelen as u32));
        }
        region.write_bytes(at, 1, &self.bytes);
    }
}

/// The address of a chosen peer, readable while the choice is held.
#[derive(Clone, Copy)]
pub struct Address {
    /// The socket address from the first word on, the text from a later one on.
    words: &'static [AtomicU64],
    socklen: usize,
    namelen: usize,
}

impl Address {
    #[inline]
    pub(crate) fn at(region: &Region, at: Ref, granules: u32) -> Option<Self> {
        let words = region.words(at, granules as usize * 4)?;
        let (head, rest) = words.split_first()?;
        let head = get(head);
        let (socklen, namelen) = (high(head) as usize, low(head) as usize);
        let words = rest.get(..words_of(socklen) + words_of(namelen))?;
        Some(Self { words, socklen, namelen })
    }

    /// Bytes of the socket address.
    #[inline]
    pub const fn sockaddr_len(&self) -> usize {
        self.socklen
    }

    /// Bytes of the text.
    #[inline]
    pub const fn name_len(&self) -> usize {
        self.namelen
    }

    /// Socket address and text in one: a copy of these words has both, the text at
    /// [`Self::name_at`] bytes.
    #[inline]
    pub const fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Where the text begins among the bytes of [`Self::words`].
    #[inline]
    pub const fn name_at(&self) -> usize {
        words_of(self.socklen) * 8
    }

    /// Copies the socket address into `to`, which has room for [`Self::sockaddr_len`] bytes.
    #[inline]
    pub fn copy_sockaddr(&self, to: &mut [u8]) {
        copy(self.words, &mut to[..self.socklen]);
    }

    /// Copies the text into `to`, which has room for [`Self::name_len`] bytes.
    #[inline]
    pub fn copy_name(&self, to: &mut [u8]) {
        copy(&self.words[words_of(self.socklen)..], &mut to[..self.namelen]);
    }
}

#[inline]
fn copy(from: &[AtomicU64], to: &mut [u8]) {
    for (word, bytes) in from.iter().zip(to.chunks_mut(8)) {
        let word = get(word).to_ne_bytes();
        if bytes.len() == 8 {
            bytes.copy_from_slice(&word);
        } else {
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}
