//! Why a connection of our own, or what is spoken over it, came to nothing.

use std::fmt;
use std::io;

/// The step in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    Connect,
    /// The handshake of TLS.
    Handshake,
    Read,
    Write,
    /// A request, from its first byte to the response's last.
    Exchange,
}

/// What went wrong; the text completes "cannot …: ".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Error {
    /// This worker is on its way out. Says nothing about the server.
    Exiting,
    /// Connections, descriptors or ports of this worker are used up: nginx's own words. Says
    /// nothing about the server.
    Short(String),
    /// The time was over.
    Timeout(Doing),
    /// The kernel's word.
    System(Doing, i32),
    /// The other side closed the connection before it had said all.
    Closed,
    /// What is to be said cannot be: of our own side.
    Unfit(String),
    /// What TLS does not like, in OpenSSL's words or those of a certificate's verification.
    Tls(String),
    /// The certificate is not good, or for another name.
    #[cfg(ngx_feature = "http_ssl")]
    Certificate(String),
    /// A file of certificates or of a key cannot be used.
    #[cfg(ngx_feature = "http_ssl")]
    File(String),
    /// It does not speak HTTP, or not properly, or says more than is allowed: hyper's words.
    Protocol(String),
}

impl Error {
    /// Reads the line that nginx would have logged: `connect() to … failed (111: Connection
    /// refused)`, `SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version
    /// number)`, `16 worker_connections are not enough`.
    pub(crate) fn of_line(doing: Doing, line: &str) -> Self {
        if let Some((_, rest)) = line.split_once("(SSL:") {
            return Self::Tls(reason(rest));
        }
        if line.contains("peer closed connection in SSL handshake") {
            return errno(line).map_or(Self::Closed, |errno| Self::System(doing, errno));
        }
        match errno(line) {
            // A socket that cannot be made, a port that cannot be had.
            Some(errno) if is_own(errno) => Self::Short(text(line).to_owned()),
            Some(errno) => Self::System(doing, errno),
            None if doing == Doing::Connect => Self::Short(text(line).to_owned()),
            None => Self::Closed,
        }
    }

    /// Whether it may come of nothing but the age of a connection that was kept: a server may close
    /// it at any time.
    pub(crate) fn is_stale(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::System(_, errno) => [libc::ECONNRESET, libc::EPIPE].contains(errno),
            _ => false,
        }
    }

    /// Whether it says something about this worker alone, nothing about the server.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Self::Exiting | Self::Short(_) | Self::Unfit(_) => true,
            #[cfg(ngx_feature = "http_ssl")]
            Self::File(_) => true,
            _ => false,
        }
    }
}

/// Errors of the kernel for which no server can do anything.
fn is_own(errno: i32) -> bool {
    let own = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::ENOSPC];
    own.contains(&errno) || errno == libc::EADDRNOTAVAIL
}

/// What stands behind nginx's `time [level] pid#tid: *number `.
fn text(line: &str) -> &str {
    let rest = line.split_once("] ").map_or(line, |(_, rest)| rest);
    let rest = rest.split_once(": ").map_or(rest, |(_, rest)| rest);
    match rest.split_once(' ') {
        Some((number, rest)) if number.starts_with('*') => rest,
        _ => rest,
    }
}

/// The number in nginx's ` (111: Connection refused)`, the last one of a line.
fn errno(line: &str) -> Option<i32> {
    let (_, rest) = line.rsplit_once(" (")?;
    rest.split_once(": ")?.0.parse().ok()
}

/// The reason in OpenSSL's `error:CODE:LIBRARY:FUNCTION:REASON[:DATA]`, the first one of several.
fn reason(entries: &str) -> String {
    let first = entries.trim().trim_end_matches(')');
    let first = first.split(" error:").next().unwrap_or(first);
    let reason = first.split(':').nth(4).filter(|reason| !reason.is_empty());
    reason.unwrap_or(first).to_owned()
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Handshake => "the TLS handshake",
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Exchange => "the response",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exiting => f.write_str("the worker is exiting"),
            Self::Timeout(doing) => write!(f, "{doing} timed out"),
            Self::System(doing, errno) => {
                write!(f, "{doing} failed ({})", io::Error::from_raw_os_error(*errno))
            }
            Self::Closed => f.write_str("the connection was closed too early"),
            Self::Tls(reason) => write!(f, "TLS: {reason}"),
            #[cfg(ngx_feature = "http_ssl")]
            Self::Certificate(reason) => write!(f, "TLS: {reason}"),
            #[cfg(ngx_feature = "http_ssl")]
            Self::File(text) => f.write_str(text),
            Self::Short(text) | Self::Unfit(text) | Self::Protocol(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// For hyper, which hands it on.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
