//! What a Redis replied, as an outcome of a look-up.
//!
//! A key is asked for by `HMGET tenant:KEY app status`, an app by `GET app:NAME`. Every error of
//! Redis is an outage, but for a value of another type: nothing that it says when it cannot answer
//! may be read as "no such key".

use super::decide::Down;
use super::{Status, app};
use crate::addr::ServerAddr;
use crate::name::UpstreamName;

/// A reply, as far as look-ups know replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A text.
    Text(&'a [u8]),
    /// Nothing.
    Null,
    /// Texts, or nothing in the place of one.
    List(&'a [Option<&'a [u8]>]),
    /// An error: its whole line.
    Error(&'a [u8]),
    /// Anything else.
    Other,
}

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// This.
    There(T),
    /// The key is not there.
    Absent,
    /// The value is none.
    Malformed,
    /// No answer.
    Down(Down),
}

/// A tenant of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its app; nothing where its status lets no request pass that could go there.
    pub app: Option<App>,
    /// Its status.
    pub status: Status,
}

/// An app, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// As the store writes it, and has it in its own key.
    pub name: Box<str>,
    /// The upstream of that name.
    pub upstream: UpstreamName,
}

/// The reply to `HMGET … app status`. A tenant without a status is not active.
pub fn tenant(reply: Reply<'_>) -> Found<Tenant> {
    let (name, status) = match reply {
        Reply::List([None, None]) => return Found::Absent,
        Reply::List([name, status]) => (*name, *status),
        Reply::Error(line) => return of_error(line),
        _ => return Found::Down(Down::Protocol),
    };
    let status = match status {
        None => Status::Other(UNSET.into()),
        Some(word) => match std::str::from_utf8(word).ok().and_then(|w| Status::parse(w).ok()) {
            Some(status) => status,
            None => return Found::Malformed,
        },
    };
    let app = match name.map(app_of) {
        Some(None) => return Found::Malformed,
        Some(app) => app,
        None => None,
    };
    if app.is_none() && status == Status::Active {
        return Found::Malformed;
    }
    Found::There(Tenant { app, status })
}

/// The reply to `GET app:…`.
pub fn app(reply: Reply<'_>) -> Found<Vec<ServerAddr>> {
    match reply {
        Reply::Null => Found::Absent,
        Reply::Text(value) => app::parse(value).map_or(Found::Malformed, Found::There),
        Reply::Error(line) => of_error(line),
        _ => Found::Down(Down::Protocol),
    }
}

/// The reply to `EXISTS` of the marker: whether it is there.
pub fn marker(reply: Reply<'_>) -> Found<bool> {
    match reply {
        Reply::Text(b"1") => Found::There(true),
        Reply::Text(b"0") => Found::There(false),
        Reply::Error(line) => of_error(line),
        _ => Found::Down(Down::Protocol),
    }
}

/// Why a connection cannot be used, by an error in reply to what opens it.
pub fn reason(line: &[u8]) -> Down {
    match line.split(|&b| b == b' ').next().unwrap_or_default() {
        b"LOADING" => Down::Loading,
        b"MASTERDOWN" => Down::MasterDown,
        b"CLUSTERDOWN" | b"TRYAGAIN" | b"MOVED" | b"ASK" => Down::ClusterDown,
        b"BUSY" => Down::Busy,
        b"NOAUTH" => Down::NoAuth,
        b"WRONGPASS" => Down::WrongPass,
        b"NOPERM" => Down::NoPerm,
        b"NOPROTO" => Down::Protocol,
        _ => Down::Error,
    }
}

/// The status of a tenant that has none.
const UNSET: &str = "unset";

fn of_error<T>(line: &[u8]) -> Found<T> {
    if line.starts_with(b"WRONGTYPE") { Found::Malformed } else { Found::Down(reason(line)) }
}

fn app_of(name: &[u8]) -> Option<App> {
    let name = std::str::from_utf8(name).ok()?;
    Some(App { name: name.into(), upstream: UpstreamName::parse(name).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash<'a>(fields: &'a [Option<&'a [u8]>; 2]) -> Reply<'a> {
        Reply::List(fields)
    }

    #[test]
    fn the_published_layout_is_read() {
        let orders = || App {
            name: "Orders-v2".into(),
            upstream: UpstreamName::parse("orders-v2").unwrap(),
        };
        let there = |app, status: &str| {
            Found::There(Tenant { app, status: Status::parse(status).unwrap() })
        };
        type Fields = [Option<&'static [u8]>; 2];
        let table: [(Fields, Found<Tenant>); 9] = [
            ([Some(b"Orders-v2"), Some(b"active")], there(Some(orders()), "active")),
            ([Some(b"Orders-v2"), Some(b"suspended")], there(Some(orders()), "suspended")),
            ([Some(b"Orders-v2"), None], there(Some(orders()), "unset")),
            ([None, Some(b"suspended")], there(None, "suspended")),
            ([None, Some(b"active")], Found::Malformed),
            ([None, None], Found::Absent),
            ([Some(b"a b"), Some(b"active")], Found::Malformed),
            ([Some(b"\xff"), Some(b"active")], Found::Malformed),
            ([Some(b"orders"), Some(b"a b")], Found::Malformed),
        ];
        for (fields, found) in table {
            assert_eq!(tenant(hash(&fields)), found, "{fields:?}");
        }
        assert_eq!(tenant(Reply::Null), Found::Down(Down::Protocol));
        assert_eq!(tenant(Reply::List(&[None])), Found::Down(Down::Protocol));
        let addr = ServerAddr::parse("10.0.0.1:80").unwrap();
        assert_eq!(app(Reply::Text(b"10.0.0.1:80")), Found::There(vec![addr]));
        assert_eq!(app(Reply::Text(b"")), Found::Malformed);
        assert_eq!(app(Reply::Null), Found::Absent);
        assert_eq!(app(Reply::Other), Found::Down(Down::Protocol));
        assert_eq!(marker(Reply::Text(b"1")), Found::There(true));
        assert_eq!(marker(Reply::Text(b"0")), Found::There(false));
        assert_eq!(marker(Reply::Null), Found::Down(Down::Protocol));
    }

    #[test]
    fn no_error_is_read_as_no_such_key() {
        let table: [(&[u8], Down); 11] = [
            (b"LOADING Redis is loading the dataset in memory", Down::Loading),
            (b"MASTERDOWN Link with MASTER is down", Down::MasterDown),
            (b"CLUSTERDOWN Hash slot not served", Down::ClusterDown),
            (b"MOVED 3999 127.0.0.1:6381", Down::ClusterDown),
            (b"BUSY Redis is busy running a script", Down::Busy),
            (b"NOAUTH Authentication required.", Down::NoAuth),
            (b"WRONGPASS invalid username-password pair", Down::WrongPass),
            (b"NOPERM this user has no permissions", Down::NoPerm),
            (b"NOPROTO unsupported protocol version", Down::Protocol),
            (b"ERR unknown command", Down::Error),
            (b"", Down::Error),
        ];
        for (line, reason) in table {
            assert_eq!(tenant(Reply::Error(line)), Found::Down(reason));
            assert_eq!(app(Reply::Error(line)), Found::Down(reason));
            assert_eq!(marker(Reply::Error(line)), Found::Down(reason));
        }
        let wrong = b"WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(tenant(Reply::Error(wrong)), Found::Malformed);
        assert_eq!(app(Reply::Error(wrong)), Found::Malformed);
    }
}
