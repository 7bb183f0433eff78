//! The address of a server, which is its key in an upstream.
//!
//! `ip:port`, `[v6]:port`, `unix:/path` or `name:port`, port 80 where absent. Two texts of one
//! address parse to equal values; [`fmt::Display`] gives the canonical text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Address of a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerAddr {
    /// An IPv4 or IPv6 address with its port.
    Inet(SocketAddr),
    /// The absolute path of a unix socket.
    Unix(Box<str>),
    /// A name to resolve, in lower case, with its port.
    Name {
        /// The name, without a dot at its end.
        host: Box<str>,
        /// The port.
        port: u16,
    },
}

/// Why a text is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddrError {
    /// No text at all.
    #[error("an address may not be empty")]
    Empty,
    /// Port is no number of 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// What stands in brackets is no IPv6 address.
    #[error("not an IPv6 address in brackets")]
    V6,
    /// An IPv6 address without brackets.
    #[error("an IPv6 address stands in brackets")]
    Brackets,
    /// The path of a unix socket is not absolute, too long, or has control characters.
    #[error("a unix socket has an absolute path of at most {MAX_UNIX_PATH} bytes")]
    UnixPath,
    /// Neither an IP address nor a host name.
    #[error("neither an IP address nor a host name")]
    Host,
}

/// The longest path that fits in `sockaddr_un` with its NUL.
pub const MAX_UNIX_PATH: usize = 107;

const DEFAULT_PORT: u16 = 80;

impl ServerAddr {
    /// Reads an address; nothing is looked up.
    pub fn parse(text: &str) -> Result<Self, AddrError> {
        if text.is_empty() {
            return Err(AddrError::Empty);
        }
        if text.len() >= 5 && text.as_bytes()[..5].eq_ignore_ascii_case(b"unix:") {
            return unix(&text[5..]);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (ip, rest) = rest.split_once(']').ok_or(AddrError::V6)?;
            let ip: Ipv6Addr = ip.parse().map_err(|_| AddrError::V6)?;
            return Ok(Self::Inet(SocketAddr::new(IpAddr::V6(ip), port(rest)?)));
        }
        let (host, rest) = match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        if rest.get(1..).is_some_and(|rest| rest.contains(':')) {
            let bare = text.parse::<Ipv6Addr>().is_ok();
            return Err(if bare { AddrError::Brackets } else { AddrError::Port });
        }
        let port = port(rest)?;
        if let Ok(ip) = host.parse::<Ipv4Addr>() {
            return Ok(Self::Inet(SocketAddr::new(IpAddr::V4(ip), port)));
        }
        Ok(Self::Name { host: host_name(host)?, port })
    }

    /// Tells whether the address is a name, which has to be resolved.
    pub fn is_name(&self) -> bool {
        matches!(self, Self::Name { .. })
    }
}

/// A port with its colon, or nothing.
fn port(text: &str) -> Result<u16, AddrError> {
    if text.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    let digits = text.strip_prefix(':').ok_or(AddrError::Port)?;
    if digits.is_empty() || digits.len() > 5 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AddrError::Port);
    }
    match digits.parse::<u16>() {
        Ok(0) | Err(_) => Err(AddrError::Port),
        Ok(port) => Ok(port),
    }
}

fn unix(path: &str) -> Result<ServerAddr, AddrError> {
    let fits = path.starts_with('/')
        && path.len() > 1
        && path.len() <= MAX_UNIX_PATH
        && !path.chars().any(char::is_control);
    if fits { Ok(ServerAddr::Unix(path.into())) } else { Err(AddrError::UnixPath) }
}

fn host_name(text: &str) -> Result<Box<str>, AddrError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // A last label of digits is a mistyped IPv4 address, never a name.
    let numeric = text.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
    if text.len() > 253 || numeric || !text.split('.').all(label) {
        return Err(AddrError::Host);
    }
    Ok(text.to_ascii_lowercase().into_boxed_str())
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
            // Without a dot it would read as a path, and as the id of a server.
            Self::Name { host, port } if matches!(&**host, "unix" | "id") => {
                write!(f, "{host}.:{port}")
            }
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Debug for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl FromStr for ServerAddr {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        Self::parse(text)
    }
}

/// The form in binary records.
#[derive(Serialize, Deserialize)]
enum Packed<'a> {
    V4(u32, u16),
    V6(u128, u16),
    Unix(&'a str),
    Name(&'a str, u16),
}

impl Serialize for ServerAddr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        let packed = match self {
            Self::Inet(SocketAddr::V4(v4)) => Packed::V4(v4.ip().to_bits(), v4.port()),
            Self::Inet(SocketAddr::V6(v6)) => Packed::V6(v6.ip().to_bits(), v6.port()),
            Self::Unix(path) => Packed::Unix(path),
            Self::Name { host, port } => Packed::Name(host, *port),
        };
        packed.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ServerAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_str(TextVisitor);
        }
        Ok(match Packed::deserialize(deserializer)? {
            Packed::V4(ip, port) => {
                Self::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(ip)), port))
            }
            Packed::V6(ip, port) => {
                Self::Inet(SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(ip)), port))
            }
            Packed::Unix(path) => Self::Unix(path.into()),
            Packed::Name(host, port) => Self::Name { host: host.into(), port },
        })
    }
}

struct TextVisitor;

impl serde::de::Visitor<'_> for TextVisitor {
    type Value = ServerAddr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address of a server")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ServerAddr, E> {
        ServerAddr::parse(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_one_address_have_one_canonical_text() {
        let table = [
            ("10.0.0.1:8080", "10.0.0.1:8080"),
            ("10.0.0.1", "10.0.0.1:80"),
            ("10.0.0.1:080", "10.0.0.1:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("[::1]", "[::1]:80"),
            ("[0:0::1]:1", "[::1]:1"),
            ("[::FFFF:10.0.0.1]:1", "[::ffff:10.0.0.1]:1"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("UNIX:/run/a.sock", "unix:/run/a.sock"),
            ("unix:/run/a:b", "unix:/run/a:b"),
            ("App.Example.COM.:8080", "app.example.com:8080"),
            ("app", "app:80"),
            ("a_b-c.d:1", "a_b-c.d:1"),
            ("Unix", "unix.:80"),
            ("id:7", "id.:7"),
        ];
        for (given, canonical) in table {
            let addr = ServerAddr::parse(given).unwrap();
            assert_eq!(addr.to_string(), canonical, "{given}");
            assert_eq!(ServerAddr::parse(canonical), Ok(addr), "{given}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_reason() {
        let long = format!("unix:/{}", "a".repeat(107));
        let table = [
            ("", AddrError::Empty),
            ("10.0.0.1:0", AddrError::Port),
            ("10.0.0.1:65536", AddrError::Port),
            ("10.0.0.1:", AddrError::Port),
            ("10.0.0.1:+80", AddrError::Port),
            ("10.0.0.1:80:80", AddrError::Port),
            ("10.0.0.1:8080/x", AddrError::Port),
            ("010.0.0.1", AddrError::Host),
            ("10.0.0", AddrError::Host),
            ("256.0.0.1", AddrError::Host),
            ("::1", AddrError::Brackets),
            ("[::1", AddrError::V6),
            ("[fe80::1%eth0]:80", AddrError::V6),
            ("[::1]80", AddrError::Port),
            ("unix:", AddrError::UnixPath),
            ("unix:/", AddrError::UnixPath),
            ("unix:run/a", AddrError::UnixPath),
            ("unix:/a\0b", AddrError::UnixPath),
            (long.as_str(), AddrError::UnixPath),
            ("a b", AddrError::Host),
            ("a..b", AddrError::Host),
            (".", AddrError::Host),
            ("/etc/passwd", AddrError::Host),
            ("$host", AddrError::Host),
            ("é", AddrError::Host),
        ];
        for (text, error) in table {
            assert_eq!(ServerAddr::parse(text), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_reads_back(v4: [u8; 4], v6: u128, port in 1u16.., name in "[a-z][a-z0-9_-]{0,20}(\\.[a-z]{1,5}){0,3}") {
            for addr in [
                ServerAddr::Inet(SocketAddr::new(v4.into(), port)),
                ServerAddr::Inet(SocketAddr::new(Ipv6Addr::from_bits(v6).into(), port)),
                ServerAddr::Name { host: name.clone().into(), port },
                ServerAddr::Unix(format!("/{name}").into()),
            ] {
                prop_assert_eq!(ServerAddr::parse(&addr.to_string()), Ok(addr.clone()));
                let packed = postcard::to_allocvec(&addr).unwrap();
                prop_assert_eq!(postcard::from_bytes::<ServerAddr>(&packed).unwrap(), addr);
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}") {
            if let Ok(addr) = ServerAddr::parse(&text) {
                prop_assert_eq!(ServerAddr::parse(&addr.to_string()), Ok(addr));
            }
        }
    }
}
