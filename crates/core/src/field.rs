//! The rules of single fields, said once for the API, the configuration and every other source.

use thiserror::Error;

use crate::crc::crc32c;
use crate::route::StatusError;
use crate::units::{Millis, Secs, UnitError, parse_millis};

/// `max_conns` stops here: a peer's word in the zone counts requests in 20 bits.
pub const MAX_CONNS: u32 = (1 << 20) - 1;
/// The longest `reason`, in bytes.
pub const MAX_REASON: usize = 255;
/// What stays of a reason or an actor's name in a zone without room, in bytes.
pub const BRIEF: usize = 12;
/// The longest `host` or `tls_name`, in bytes.
pub const MAX_HOST: usize = 255;
/// The longest `route`, in bytes.
pub const MAX_ROUTE: usize = 32;
/// How many labels a server may have.
pub const MAX_LABELS: usize = 16;
/// The longest key or value of a label, in bytes.
pub const MAX_LABEL: usize = 64;
/// The longest `slow_start`: a peer's entry in the zone has 14 bits for its seconds.
pub const MAX_SLOW_START: Secs = Secs(4 * 3600);
/// The longest `wait`, in milliseconds: an hour.
pub const MAX_WAIT: u64 = 3_600_000;

/// Why a value does not fit its field; the text completes `field "…" …`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A number out of its range.
    #[error("must be a whole number from 0 to {max}")]
    Range {
        /// The largest.
        max: u32,
    },
    /// No time.
    #[error("is {0}")]
    Time(UnitError),
    /// A time that may not be zero.
    #[error("must be more than 0")]
    Zero,
    /// A ramp over four hours.
    #[error("must be at most 4h")]
    RampTooLong,
    /// A wait over an hour.
    #[error("must be at most 1h")]
    WaitTooLong,
    /// A text that is too long.
    #[error("must have at most {max} bytes")]
    TooLong {
        /// The most bytes.
        max: usize,
    },
    /// A control character.
    #[error("must not have control characters")]
    Control,
    /// No byte at all.
    #[error("must not be empty")]
    Empty,
    /// A byte that no `Host` header has.
    #[error("must have printable characters of ASCII only, and no spaces")]
    Host,
    /// No name of a host.
    #[error("must be the name of a host: labels of letters, digits, \"-\", \"_\"")]
    HostName,
    /// The key of a label is empty or has a colon.
    #[error("must have keys that are not empty and have no colon")]
    LabelKey,
    /// More labels than fit.
    #[error("must have at most {MAX_LABELS} labels")]
    Labels,
    /// An end of what has none.
    #[error("has no end while it is up")]
    EndOfUp,
    /// Connections to what takes requests are not closed.
    #[error("closes nothing while it is up")]
    CloseOfUp,
    /// A number out of a range that does not begin with 0.
    #[error("must be a whole number from {min} to {max}")]
    Between {
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// A time out of its range.
    #[error("must be a time from {min} to {max}")]
    Span {
        /// The shortest.
        min: Millis,
        /// The longest.
        max: Millis,
    },
    /// No share of a hundred.
    #[error("must be from 0% to {max}%")]
    Percent {
        /// The largest.
        max: u8,
    },
    /// None of the words.
    #[error("is none of: {0}")]
    Word(&'static str),
    /// No path of a request.
    #[error(
        "must begin with \"/\" and have printable characters of ASCII only, and no spaces, quotes, \"<\", \">\", or \"#\""
    )]
    Uri,
    /// Nobody to ask for by HTTP/2.
    #[error("must be a name or an address, with a port or without")]
    Authority,
    /// No path of a file that is the same everywhere.
    #[error("must be a path from the root, such as \"/etc/ssl/ca.pem\"")]
    Path,
    /// No name of a service.
    #[error("must be the name of a service like \"acme.Orders\"")]
    Service,
    /// No list of statuses.
    #[error("must be statuses from 100 to 599 like \"200-399,404\"")]
    Statuses,
    /// A time-out during which the next probe would be due.
    #[error("must be at most the interval")]
    OverInterval,
    /// No map of statuses.
    #[error("{0}")]
    Status(StatusError),
    /// Said of what is cached, where nothing is.
    #[error("needs a \"redis\"")]
    NeedsRedis,
    /// Said of certificates, where there are none.
    #[error("needs \"tls\"")]
    NeedsTls,
    /// TLS with servers that are told by their addresses.
    #[error("needs \"tls_name\" where there is \"tls\"")]
    NeedsTlsName,
    /// A cache that is too small.
    #[error("must be at least 512k")]
    CacheTooSmall,
    /// A time that is over.
    #[error("is past")]
    Past,
    /// A longest time below the first one.
    #[error("must be at least the base")]
    BelowBase,
    /// Said where it would do nothing.
    #[error("has no meaning where the type is \"{0}\"")]
    NotOf(&'static str),
    /// Nothing to verify by.
    #[error("needs a \"ca\"")]
    NeedsCa,
    /// No URL of a server that is asked over HTTP.
    #[error("must be a URL like \"http://127.0.0.1:8500\"")]
    Url,
    /// No name of a source.
    #[error("must be a name of letters, digits, \"-\", \"_\", \".\", at most 64")]
    SourceName,
}

/// A weight.
pub fn weight(value: i64) -> Result<u16, FieldError> {
    u16::try_from(value).map_err(|_| FieldError::Range { max: u32::from(u16::MAX) })
}

/// A limit of connections; 0 is none.
pub fn max_conns(value: i64) -> Result<u32, FieldError> {
    ranged(value, MAX_CONNS)
}

/// How many failures switch a peer off; 0 never does.
pub fn max_fails(value: i64) -> Result<u32, FieldError> {
    ranged(value, u32::from(u16::MAX))
}

/// How many eligible servers must remain.
pub fn min_up(value: i64) -> Result<u32, FieldError> {
    ranged(value, 1_000_000)
}

/// A time of nginx's form, in seconds.
pub fn seconds(text: &str) -> Result<Secs, FieldError> {
    Secs::parse(text).map_err(FieldError::Time)
}

/// The ramp of a new or recovered peer.
pub fn slow_start(value: Secs) -> Result<Secs, FieldError> {
    if value <= MAX_SLOW_START { Ok(value) } else { Err(FieldError::RampTooLong) }
}

/// How long an admin state holds, in milliseconds.
pub fn ttl(text: &str) -> Result<u64, FieldError> {
    match parse_millis(text).map_err(FieldError::Time)? {
        0 => Err(FieldError::Zero),
        ms => Ok(ms),
    }
}

/// How long connections to what takes no requests may stay open, in milliseconds.
pub fn close(text: &str) -> Result<u64, FieldError> {
    parse_millis(text).map_err(FieldError::Time)
}

/// How long a request waits, in milliseconds; 0 does not.
pub fn wait(text: &str) -> Result<u64, FieldError> {
    match parse_millis(text).map_err(FieldError::Time)? {
        ms if ms > MAX_WAIT => Err(FieldError::WaitTooLong),
        ms => Ok(ms),
    }
}

/// The reason of an admin state.
pub fn reason(text: &str) -> Result<&str, FieldError> {
    printable(text, MAX_REASON)
}

/// A text as a zone without room keeps it: how it begins, and a mark of the whole that tells it
/// from others; at most [`BRIEF`] bytes.
pub fn brief(text: &str) -> String {
    if text.len() <= BRIEF {
        return text.to_owned();
    }
    let mark = format!("~{:05x}", crc32c(text.as_bytes()) & 0xf_ffff);
    let end = (0..=BRIEF - mark.len()).rev().find(|&at| text.is_char_boundary(at));
    text[..end.unwrap_or(0)].to_owned() + &mark
}

/// Tells whether `kept` is what the zone has of `said`.
pub fn is_kept(kept: &str, said: &str) -> bool {
    kept == said || (said.len() > BRIEF && kept == brief(said))
}

/// The value of a `Host` header.
pub fn host(text: &str) -> Result<&str, FieldError> {
    within(text, MAX_HOST)?;
    if text.bytes().all(|c| c.is_ascii_graphic()) { Ok(text) } else { Err(FieldError::Host) }
}

/// The name that a certificate is asked for, and checked against.
pub fn tls_name(text: &str) -> Result<&str, FieldError> {
    within(text, MAX_HOST)?;
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
    };
    if text.split('.').all(is_label) { Ok(text) } else { Err(FieldError::HostName) }
}

/// What `sticky` calls a server.
pub fn route(text: &str) -> Result<&str, FieldError> {
    printable(text, MAX_ROUTE)
}

/// A text of so many bytes that is not empty.
pub fn text(text: &str, max: usize) -> Result<&str, FieldError> {
    within(text, max)?;
    printable(text, max)
}

/// The key of a label.
pub fn label_key(text: &str) -> Result<&str, FieldError> {
    if text.is_empty() || text.contains(':') {
        return Err(FieldError::LabelKey);
    }
    printable(text, MAX_LABEL)
}

/// The value of a label.
pub fn label_value(text: &str) -> Result<&str, FieldError> {
    printable(text, MAX_LABEL)
}

fn ranged(value: i64, max: u32) -> Result<u32, FieldError> {
    u32::try_from(value).ok().filter(|&n| n <= max).ok_or(FieldError::Range { max })
}

fn within(text: &str, max: usize) -> Result<(), FieldError> {
    match text.len() {
        0 => Err(FieldError::Empty),
        len if len > max => Err(FieldError::TooLong { max }),
        _ => Ok(()),
    }
}

fn printable(text: &str, max: usize) -> Result<&str, FieldError> {
    if text.len() > max {
        return Err(FieldError::TooLong { max });
    }
    if text.chars().any(char::is_control) {
        return Err(FieldError::Control);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range() {
        assert_eq!(weight(0), Ok(0));
        assert_eq!(weight(65_535), Ok(65_535));
        assert!(weight(-1).is_err() && weight(65_536).is_err());
        assert_eq!(max_conns(1_048_575), Ok(MAX_CONNS));
        let error = max_conns(1_048_576).unwrap_err();
        assert_eq!(error.to_string(), "must be a whole number from 0 to 1048575");
        assert!(max_fails(65_536).is_err());
    }

    #[test]
    fn texts_are_short_and_printable() {
        assert!(reason(&"é".repeat(127)).is_ok());
        assert_eq!(reason(&"é".repeat(128)), Err(FieldError::TooLong { max: 255 }));
        for bad in ["a\nb", "\0", "\u{7f}", "\u{85}"] {
            assert_eq!(reason(bad), Err(FieldError::Control));
        }
        assert!(label_key("").is_err() && label_key("a:b").is_err() && label_value("").is_ok());
        assert!(route(&"r".repeat(33)).is_err());
    }

    #[test]
    fn names_of_hosts_are_what_a_header_and_a_certificate_can_have() {
        for good in ["app.internal", "app.internal:8443", "[::1]:80", "x", "$host", "a_b"] {
            assert_eq!(host(good), Ok(good));
        }
        for bad in ["a b", "a\tb", "a\r\nX: y", "é", "\u{7f}"] {
            assert_eq!(host(bad), Err(FieldError::Host), "{bad:?}");
        }
        for good in ["app.internal", "A-1.b_2.c", "10.0.0.1", "x"] {
            assert_eq!(tls_name(good), Ok(good));
        }
        for bad in ["a b", ".a", "a.", "a..b", "a:443", "*.a", "$host", "é.a", &"a".repeat(64)] {
            assert_eq!(tls_name(bad), Err(FieldError::HostName), "{bad:?}");
        }
        let long = "a.".repeat(127) + "b";
        assert!(host(&long).is_ok() && tls_name(&long).is_ok());
        let longer = long + "c";
        let too_long = FieldError::TooLong { max: 255 };
        assert_eq!((host(&longer), tls_name(&longer)), (Err(too_long.clone()), Err(too_long)));
        assert_eq!((host(""), tls_name("")), (Err(FieldError::Empty), Err(FieldError::Empty)));
    }

    #[test]
    fn a_brief_text_is_told_from_others_that_begin_alike() {
        assert_eq!(brief("deploy-812"), "deploy-812");
        let (a, b) = ("release-2026-11-29-a", "release-2026-11-29-b");
        assert_eq!((brief(a).len(), &brief(a)[..7]), (BRIEF, "releas~"));
        assert!(is_kept(a, a) && is_kept(&brief(a), a));
        assert!(!is_kept(&brief(a), b) && !is_kept("", a) && !is_kept(a, &brief(a)));
        assert_eq!(brief(&brief(a)), brief(a));
        assert!(brief("ééééééé").len() <= BRIEF && brief(&"\u{10ffff}".repeat(9)).len() <= BRIEF);
    }

    #[test]
    fn times_of_verbs_have_their_bounds() {
        assert_eq!(wait("1h"), Ok(MAX_WAIT));
        assert_eq!(wait("3601"), Err(FieldError::WaitTooLong));
        assert_eq!(ttl("0"), Err(FieldError::Zero));
        assert_eq!(ttl("15m"), Ok(900_000));
    }
}
