//! The value of an app in a store: `10.0.0.1:8080`, or several with commas between.

use thiserror::Error;

use crate::addr::{AddrError, ServerAddr};

/// Addresses of an app at most.
pub const MAX_ADDRS: usize = 256;

/// Why a value is none of an app.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppError {
    /// It is no text.
    #[error("it is not UTF-8")]
    Text,
    /// Something between the commas is no address.
    #[error("\"{text}\": {error}")]
    Addr {
        /// What.
        text: String,
        /// Why.
        error: AddrError,
    },
    /// Too many.
    #[error("it has more than {MAX_ADDRS} addresses")]
    Many,
}

/// The servers of an app, each once, in the order of the value.
pub fn parse(value: &[u8]) -> Result<Vec<ServerAddr>, AppError> {
    let text = std::str::from_utf8(value).map_err(|_| AppError::Text)?;
    let mut addrs: Vec<ServerAddr> = Vec::new();
    for text in text.split(',').map(str::trim) {
        let addr = ServerAddr::parse(text).map_err(|error| {
            let text = text.chars().take(64).map(|c| if c.is_control() { '?' } else { c });
            AppError::Addr { text: text.collect(), error }
        })?;
        if addrs.contains(&addr) {
            continue;
        }
        if addrs.len() == MAX_ADDRS {
            return Err(AppError::Many);
        }
        addrs.push(addr);
    }
    Ok(addrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_address_or_several() {
        let table: [(&[u8], &[&str]); 5] = [
            (b"10.0.0.1:8080", &["10.0.0.1:8080"]),
            (b"10.0.0.1:8080,10.0.0.2:8080", &["10.0.0.1:8080", "10.0.0.2:8080"]),
            (b" 10.0.0.1 , [::1]:81\n", &["10.0.0.1:80", "[::1]:81"]),
            (b"Orders-v2.internal:8080", &["orders-v2.internal:8080"]),
            (b"10.0.0.1:80,10.0.0.1", &["10.0.0.1:80"]),
        ];
        for (value, addrs) in table {
            let got: Vec<String> = parse(value).unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(got, addrs);
        }
        for bad in [&b""[..], b",", b"10.0.0.1:80,", b"a b", b"\xff", b"10.0.0.1:0:0", b"x\0:80"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        let many: Vec<String> = (0..300).map(|i| format!("10.0.{}.1:80", i % 257)).collect();
        assert!(parse(many[..257].join(",").as_bytes()).is_err());
        assert!(parse(b"10.0.0.1:99999\n\n").unwrap_err().to_string().contains("10.0.0.1:99999"));
    }
}
