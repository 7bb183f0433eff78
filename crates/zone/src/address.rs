//! Socket addresses as the kernel and nginx take them, with the upstream's number inside.
//!
//! nginx's keepalive cache compares whole socket addresses. The kernel ignores the padding of
//! `sockaddr_in`, the flow information of `sockaddr_in6` and what follows the NUL of a unix path,
//! so the number of the upstream goes there: connections of two upstreams of one nginx block are
//! never taken for each other, even where their servers have one address.

use std::net::{IpAddr, SocketAddr};

use peerage_shm::{AtomicU64, Ref, Region};

use crate::directory::hash;
use crate::layout::{get, granules, high, pack, words_of};

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

    /// The address of its machine.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Inet(addr) => Some(addr.ip().to_canonical()),
            Self::Unix(_) => None,
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

/// What parts a socket address from others, as 32 bits, and the number of the upstream in it.
///
/// Reads whatever bytes: as this module makes them, as the kernel gives them (then the number is
/// 0), or as they lie in somebody's memory.
pub(crate) fn known(bytes: &[u8]) -> Option<(u32, u32)> {
    let (family, _) = bytes.split_first_chunk()?;
    let (key, mark) = match u16::from_ne_bytes(*family) {
        AF_INET => (bytes.get(..8)?.to_vec(), bytes.get(8..)?),
        AF_INET6 => ([bytes.get(..4)?, bytes.get(8..24)?].concat(), bytes.get(4..)?),
        AF_UNIX => {
            let path = bytes.get(2..)?.iter().take(UNIX_PATH).take_while(|&&byte| byte != 0);
            let end = 2 + path.count();
            if end == 2 {
                return None;
            }
            (bytes[..end].to_vec(), bytes.get(end + 1..).unwrap_or_default())
        }
        _ => return None,
    };
    let mark = mark.first_chunk().map_or(0, |mark| u32::from_ne_bytes(*mark));
    Some((hash(&key), mark))
}

/// Whether a socket address is of the unix family.
pub(crate) fn is_unix(bytes: &[u8]) -> bool {
    bytes.get(..2) == Some(&AF_UNIX.to_ne_bytes())
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
        granules(words_of(self.bytes.len()))
    }

    /// Writes it at `at` and returns what names it.
    pub(crate) fn write(&self, region: &Region, at: Ref) -> Place {
        region.write_bytes(at, 0, &self.bytes);
        let lengths = [
            self.granules() as u8,
            words_of(self.socklen) as u8,
            self.socklen as u8,
            self.namelen as u8,
        ];
        Place(pack(at.raw(), u32::from_le_bytes(lengths)))
    }
}

/// Where an address lies, and how long its parts are; one word.
#[derive(Clone, Copy)]
pub(crate) struct Place(u64);

impl Place {
    #[inline]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Its block.
    #[inline]
    pub(crate) const fn block(self) -> (Ref, u32) {
        (Ref::from_raw(high(self.0)), self.0 as u8 as u32)
    }

    /// Words of the socket address, before the text.
    #[inline]
    const fn sockwords(self) -> usize {
        (self.0 >> 8) as u8 as usize
    }

    #[inline]
    const fn socklen(self) -> usize {
        (self.0 >> 16) as u8 as usize
    }

    #[inline]
    const fn namelen(self) -> usize {
        (self.0 >> 24) as u8 as usize
    }
}

/// The address of a chosen peer, readable while the choice is held.
#[derive(Clone, Copy)]
pub struct Address {
    /// Socket address and text in one: a copy of this and of `rest` has both, the text at
    /// [`Self::name_at`] bytes.
    pub first: &'static [AtomicU64; CHUNK],
    /// What does not fit into the first chunk.
    pub rest: &'static [[AtomicU64; CHUNK]],
    place: Place,
}

/// Words that an address is copied by.
pub const CHUNK: usize = 4;

impl Address {
    #[inline]
    pub(crate) fn at(region: &Region, place: Place) -> Option<Self> {
        let (at, granules) = place.block();
        let words = region.words(at, granules as usize * CHUNK)?;
        let (first, rest) = words.as_chunks().0.split_first()?;
        Some(Self { first, rest, place })
    }

    /// Where the text begins among the bytes.
    #[inline]
    pub const fn name_at(&self) -> usize {
        self.place.sockwords() * 8
    }

    /// Bytes of the socket address.
    #[inline]
    pub const fn sockaddr_len(&self) -> usize {
        self.place.socklen()
    }

    /// Bytes of the text.
    #[inline]
    pub const fn name_len(&self) -> usize {
        self.place.namelen()
    }

    /// The address of its machine.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        Some(self.text().parse::<SocketAddr>().ok()?.ip().to_canonical())
    }

    /// The text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes(self.place.sockwords(), self.name_len())).into_owned()
    }

    /// The bytes of the socket address.
    pub(crate) fn sockaddr(&self) -> Vec<u8> {
        self.bytes(0, self.sockaddr_len())
    }

    fn bytes(&self, from: usize, len: usize) -> Vec<u8> {
        let words = self.first.iter().chain(self.rest.as_flattened()).skip(from);
        words.flat_map(|word| get(word).to_ne_bytes()).take(len).collect()
    }
}
