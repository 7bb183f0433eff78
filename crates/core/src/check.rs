//! Health: what is checked of a server, how the answer is judged, and what follows from it.
//!
//! A [`Check`] says how servers of an upstream are probed. Its results move a [`verdict::Verdict`],
//! of which each peer has one; [`schedule`] says when which peer is probed, [`answer`] and [`grpc`]
//! what an answer means. An [`outlier::Outlier`] bars peers by the errors of requests instead, see
//! [`ejection`]; an outside checker may have its say as [`external::External`]. What all of it
//! means for a request is a [`bar::Bar`].

pub mod answer;
pub mod bar;
pub mod body;
pub mod ejection;
pub mod external;
mod find;
pub mod grpc;
pub mod outlier;
pub mod peer;
pub mod reason;
pub mod results;
pub mod schedule;
pub mod status;
pub mod verdict;
pub(crate) mod words;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::body::CheckBody;
use self::status::Statuses;
use self::verdict::Thresholds;
use crate::crc::crc32c;
use crate::declare::DeclareError;
use crate::field::FieldError;
use crate::units::Millis;

/// How a server is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// By an HTTP request.
    #[default]
    Http,
    /// The same over TLS.
    Https,
    /// By a connection.
    Tcp,
    /// By a call of `grpc.health.v1.Health/Check`.
    Grpc,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Http, Self::Https, Self::Tcp, Self::Grpc];
    /// The words of all, for messages.
    pub const WORDS: &'static str = "http, https, tcp, grpc";

    /// The word of the API and of the directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Grpc => "grpc",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether an answer has a status and a body that are looked at.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// What requests get where every server that could take them failed its check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnAllDown {
    /// One of these servers.
    #[default]
    Use,
    /// None.
    Refuse,
}

impl OnAllDown {
    /// The words of all, for messages.
    pub const WORDS: &'static str = "use, refuse";

    /// The word of the API and of the directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Refuse => "refuse",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Use, Self::Refuse].into_iter().find(|word| word.as_str() == text)
    }
}

/// How servers of an upstream are checked. Made by [`CheckBody::build`] alone, or read back from
/// what one was written as: what does not go together is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Check {
    /// How they are asked.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// From one probe of a peer to its next.
    pub interval: Millis,
    /// By how much of the interval a probe may come later, in hundredths.
    pub jitter: u8,
    /// How long a probe may take, connecting included.
    pub timeout: Millis,
    /// Failures in a row that make a peer unhealthy.
    pub fails: u8,
    /// Passes in a row that make it healthy again.
    pub passes: u8,
    /// The path of the request; of gRPC the service, where nothing is the server as a whole.
    pub uri: String,
    /// The `Host` of the request; by default the upstream's.
    pub host: Option<String>,
    /// The port that is asked; by default the server's own.
    pub port: Option<u16>,
    /// The name that the certificate is asked for; by default the upstream's.
    pub sni: Option<String>,
    /// Whether the certificate must be good.
    pub verify: bool,
    /// The file of the certificates that it is verified by.
    pub ca: Option<String>,
    /// Statuses that pass.
    pub status: Statuses,
    /// A text that the beginning of the body must have.
    pub body: Option<String>,
    /// Whether a new server waits for its first pass.
    pub mandatory: bool,
    /// Whether probes keep their connection.
    pub reuse: bool,
    /// What requests get where all servers are unhealthy.
    pub on_all_down: OnAllDown,
}

impl Default for Check {
    fn default() -> Self {
        Self {
            kind: Kind::Http,
            interval: Self::INTERVAL,
            jitter: Self::JITTER,
            timeout: Self::TIMEOUT,
            fails: Self::FAILS,
            passes: Self::PASSES,
            uri: "/".to_owned(),
            host: None,
            port: None,
            sni: None,
            verify: false,
            ca: None,
            status: Statuses::default(),
            body: None,
            mandatory: false,
            reuse: true,
            on_all_down: OnAllDown::Use,
        }
    }
}

impl Check {
    /// The interval where none is said.
    pub const INTERVAL: Millis = Millis(5_000);
    /// The jitter where none is said, in hundredths of the interval.
    pub const JITTER: u8 = 10;
    /// The time-out where none is said, and the interval is no shorter.
    pub const TIMEOUT: Millis = Millis(1_000);
    /// Failures in a row where nothing is said.
    pub const FAILS: u8 = 2;
    /// Passes in a row where nothing is said.
    pub const PASSES: u8 = 2;

    /// Reads the words of `peerage_check`.
    pub fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let body = CheckBody::parse(words)?;
        body.build().map_err(|CheckError { field, error }| {
            let said = |word: &&&str| word.split('=').next() == Some(field);
            let word = words.iter().find(said).map_or(field, |word| word);
            DeclareError::Value { word: word.to_owned(), error }
        })
    }

    /// What was read back, if it is as it would be made.
    pub fn kept(self) -> Result<Self, CheckError> {
        self.said().build()
    }

    /// What has to be said to get it: what is not at its default.
    pub fn said(&self) -> CheckBody {
        CheckBody::of(self)
    }

    /// How many results in a row decide.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds { fails: self.fails, passes: self.passes }
    }

    /// A number for what is probed, never 0: a verdict belongs to it, and begins anew where it
    /// changes. How often is probed, and what follows from it, is not part of it.
    pub fn identity(&self) -> u32 {
        let Self { kind, uri, host, port, sni, verify, ca, status, body, .. } = self;
        let texts = [Some(uri), host.as_ref(), sni.as_ref(), ca.as_ref(), body.as_ref()];
        let mut bytes = vec![*kind as u8, u8::from(*verify)];
        bytes.extend(port.unwrap_or(0).to_le_bytes());
        bytes.extend(status.to_string().as_bytes());
        for text in texts {
            bytes.push(0);
            bytes.extend(text.map_or(&b"\0"[..], |text| text.as_bytes()));
        }
        crc32c(&bytes).max(1)
    }

    /// Every field with the word that a directive has for its value; what has no meaning for the
    /// kind, or is not said, is left out.
    pub(crate) fn words(&self) -> Vec<(&'static str, String)> {
        let Self { kind, interval, jitter, timeout, fails, passes, uri, .. } = self;
        let mut words = vec![
            ("type", kind.as_str().to_owned()),
            ("interval", interval.to_string()),
            ("jitter", format!("{jitter}%")),
            ("timeout", timeout.to_string()),
            ("fails", fails.to_string()),
            ("passes", passes.to_string()),
        ];
        if *kind != Kind::Tcp && !uri.is_empty() {
            words.push(("uri", uri.clone()));
        }
        words.extend(self.host.clone().map(|host| ("host", host)));
        words.extend(self.port.map(|port| ("port", port.to_string())));
        words.extend(self.sni.clone().map(|sni| ("sni", sni)));
        let on = |flag: bool| if flag { "on" } else { "off" }.to_owned();
        if *kind == Kind::Https {
            words.push(("verify", on(self.verify)));
        }
        words.extend(self.ca.clone().map(|ca| ("ca", ca)));
        if kind.is_http() {
            words.push(("status", self.status.to_string()));
        }
        words.extend(self.body.clone().map(|body| ("body", body)));
        if self.mandatory {
            words.push(("mandatory", String::new()));
        }
        if *kind != Kind::Tcp {
            words.push(("reuse", on(self.reuse)));
        }
        words.push(("on_all_down", self.on_all_down.as_str().to_owned()));
        words
    }
}

/// The words of the directive that are not as they would be without being said.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.said();
        let plain = CheckBody { kind: said.kind.clone(), ..CheckBody::default() };
        let plain = plain.build().map(|plain| plain.words()).unwrap_or_default();
        write!(f, "type={}", self.kind.as_str())?;
        for (name, value) in self.words() {
            let is_unsaid = match name {
                "type" => true,
                // A file to verify by turns it on.
                "verify" => !said.verify.is_given(),
                _ => plain.contains(&(name, value.clone())),
            };
            if is_unsaid {
                continue;
            }
            match name {
                "mandatory" => f.write_str(" mandatory")?,
                _ => write!(f, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

/// Why a check is none: a field that does not fit, by itself or with others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{field}\" {error}")]
pub struct CheckError {
    /// Which.
    pub field: &'static str,
    /// Why.
    pub error: FieldError,
}

#[cfg(test)]
mod tests;
