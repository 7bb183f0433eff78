//! The name by which a session knows its server, as nginx's `sticky` gives and takes it.

use crate::field::MAX_ROUTE;
use crate::md5::md5;

/// A server's route, or what nginx makes of the address of one that has none: the digits of its
/// MD5. No two of the latter are equal in an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sid {
    text: [u8; MAX_ROUTE],
    len: usize,
}

impl Sid {
    /// The most bytes it has, and as many as it has of an address.
    pub const MAX: usize = MAX_ROUTE;

    /// Of a server with this route, of which no more than a route's length counts.
    pub fn of_route(route: &str) -> Self {
        let len = route.len().min(MAX_ROUTE);
        let mut text = [0; MAX_ROUTE];
        text[..len].copy_from_slice(&route.as_bytes()[..len]);
        Self { text, len }
    }

    /// Of a peer without a route, by its address as `$upstream_addr` shows it.
    pub fn of_address(address: &str) -> Self {
        let mut text = [0; MAX_ROUTE];
        let digits = b"0123456789abcdef";
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(md5(address.as_bytes())) {
            *pair = [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]];
        }
        Self { text, len: MAX_ROUTE }
    }

    /// Its text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_taken_as_they_are_and_addresses_as_nginx_digests_them() {
        assert_eq!(Sid::of_route("a1").as_bytes(), b"a1");
        let longest = "r".repeat(MAX_ROUTE);
        assert_eq!(Sid::of_route(&longest).as_bytes(), longest.as_bytes());
        // printf %s 127.0.0.1:8081 | md5sum
        assert_eq!(
            Sid::of_address("127.0.0.1:8081").as_bytes(),
            b"df2b80dc43705d28db9be6f29fe58da3"
        );
    }
}
