//! What is said of a check, field by field, and what that makes.

use std::net::Ipv6Addr;

use crate::body::Field;
use crate::check::status::Statuses;
use crate::check::words::{
    MAX_JITTER, MAX_RUN, PORT, RUN, bad, each, flag, kind, millis, on_all_down, or, percent, port,
    run, text, within,
};
use crate::check::{Check, CheckError, Kind, OnAllDown};
use crate::declare::{DeclareError, number};
use crate::field::{self, FieldError};
use crate::units::Millis;

/// The shortest and the longest interval.
const INTERVAL: (Millis, Millis) = (Millis(100), Millis(3_600_000));
/// The shortest and the longest time-out.
const TIMEOUT: (Millis, Millis) = (Millis(1), Millis(3_600_000));
/// The longest `uri` or `ca`, in bytes.
const MAX_PATH: usize = 1024;
/// The longest `body`, in bytes.
pub const MAX_TEXT: usize = 255;

/// The object `check` of a body, or the words of `peerage_check`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckBody {
    /// See [`Check::kind`].
    pub kind: Field<Kind>,
    /// See [`Check::interval`].
    pub interval: Field<Millis>,
    /// See [`Check::jitter`].
    pub jitter: Field<u8>,
    /// See [`Check::timeout`].
    pub timeout: Field<Millis>,
    /// See [`Check::fails`].
    pub fails: Field<u8>,
    /// See [`Check::passes`].
    pub passes: Field<u8>,
    /// See [`Check::uri`].
    pub uri: Field<String>,
    /// See [`Check::host`].
    pub host: Field<String>,
    /// See [`Check::port`].
    pub port: Field<u16>,
    /// See [`Check::sni`].
    pub sni: Field<String>,
    /// See [`Check::verify`].
    pub verify: Field<bool>,
    /// See [`Check::ca`].
    pub ca: Field<String>,
    /// See [`Check::status`].
    pub status: Field<Statuses>,
    /// See [`Check::body`].
    pub body: Field<String>,
    /// See [`Check::mandatory`].
    pub mandatory: Field<bool>,
    /// See [`Check::reuse`].
    pub reuse: Field<bool>,
    /// See [`Check::on_all_down`].
    pub on_all_down: Field<OnAllDown>,
}

impl CheckBody {
    /// What is not at its default.
    pub(super) fn of(check: &Check) -> Self {
        let kind = Field::Given(check.kind);
        let plain = Self { kind, interval: Field::Given(check.interval), ..Self::default() };
        let Ok(plain) = plain.build() else { return Self::default() };
        fn differs<T: Clone + PartialEq>(is: &T, plain: &T) -> Field<T> {
            if is == plain { Field::Absent } else { Field::Given(is.clone()) }
        }
        fn given<T: Clone>(is: &Option<T>) -> Field<T> {
            is.clone().map_or(Field::Absent, Field::Given)
        }
        // It is on by itself where there is something to verify by.
        let verifies = check.ca.is_some();
        Self {
            kind: differs(&check.kind, &Kind::Http),
            interval: differs(&check.interval, &Check::INTERVAL),
            jitter: differs(&check.jitter, &plain.jitter),
            timeout: differs(&check.timeout, &plain.timeout),
            fails: differs(&check.fails, &plain.fails),
            passes: differs(&check.passes, &plain.passes),
            uri: differs(&check.uri, &plain.uri),
            host: given(&check.host),
            port: given(&check.port),
            sni: given(&check.sni),
            verify: differs(&check.verify, &verifies),
            ca: given(&check.ca),
            status: differs(&check.status, &plain.status),
            body: given(&check.body),
            mandatory: differs(&check.mandatory, &false),
            reuse: differs(&check.reuse, &plain.reuse),
            on_all_down: differs(&check.on_all_down, &plain.on_all_down),
        }
    }

    /// The check that this says.
    pub fn build(&self) -> Result<Check, CheckError> {
        let kind = or(&self.kind, Kind::Http);
        self.fits(kind)?;
        let interval = or(&self.interval, Check::INTERVAL);
        within("interval", interval, INTERVAL)?;
        let timeout = or(&self.timeout, Check::TIMEOUT.min(interval));
        within("timeout", timeout, TIMEOUT)?;
        if timeout > interval {
            return Err(bad("timeout", FieldError::OverInterval));
        }
        let jitter = or(&self.jitter, Check::JITTER);
        if jitter > MAX_JITTER {
            return Err(bad("jitter", FieldError::Percent { max: MAX_JITTER }));
        }
        let run = |field, said: &Field<u8>, unsaid: u8| {
            let run = or(said, unsaid);
            let fits = (1..=MAX_RUN).contains(&run);
            if fits { Ok(run) } else { Err(bad(field, RUN)) }
        };
        let ca = text("ca", &self.ca, file)?;
        let verify = or(&self.verify, ca.is_some());
        if verify && ca.is_none() {
            return Err(bad("verify", FieldError::NeedsCa));
        }
        let uri = text("uri", &self.uri, |text| uri(kind, text))?;
        let port = match self.port {
            Field::Given(0) => return Err(bad("port", PORT)),
            Field::Given(port) => Some(port),
            Field::Absent | Field::Default => None,
        };
        Ok(Check {
            kind,
            interval,
            jitter,
            timeout,
            fails: run("fails", &self.fails, Check::FAILS)?,
            passes: run("passes", &self.passes, Check::PASSES)?,
            uri: uri.unwrap_or_else(|| if kind.is_http() { "/" } else { "" }.to_owned()),
            host: text("host", &self.host, |text| host(kind, text))?,
            port,
            sni: text("sni", &self.sni, |text| field::tls_name(text).map(drop))?,
            verify,
            ca,
            status: or(&self.status, Statuses::default()),
            body: text("body", &self.body, |text| field::text(text, MAX_TEXT).map(drop))?,
            mandatory: or(&self.mandatory, false),
            reuse: or(&self.reuse, matches!(kind, Kind::Http | Kind::Grpc)),
            on_all_down: or(&self.on_all_down, OnAllDown::Use),
        })
    }

    /// Refuses what has no meaning for the kind.
    fn fits(&self, kind: Kind) -> Result<(), CheckError> {
        let (of_http, of_tls) = (kind.is_http(), kind == Kind::Https);
        let talks = kind != Kind::Tcp;
        let fields = [
            ("uri", self.uri.is_given(), talks),
            ("host", self.host.is_given(), talks),
            ("sni", self.sni.is_given(), of_tls),
            ("verify", self.verify.is_given(), of_tls),
            ("ca", self.ca.is_given(), of_tls),
            ("status", self.status.is_given(), of_http),
            ("body", self.body.is_given(), of_http),
            ("reuse", self.reuse.is_given(), talks),
        ];
        match fields.into_iter().find(|(_, given, has)| *given && !has) {
            Some((field, ..)) => Err(bad(field, FieldError::NotOf(kind.as_str()))),
            None => Ok(()),
        }
    }

    /// What is said, and of the rest what `under` says.
    pub(crate) fn over(self, under: Self) -> Self {
        Self {
            kind: self.kind.over(under.kind),
            interval: self.interval.over(under.interval),
            jitter: self.jitter.over(under.jitter),
            timeout: self.timeout.over(under.timeout),
            fails: self.fails.over(under.fails),
            passes: self.passes.over(under.passes),
            uri: self.uri.over(under.uri),
            host: self.host.over(under.host),
            port: self.port.over(under.port),
            sni: self.sni.over(under.sni),
            verify: self.verify.over(under.verify),
            ca: self.ca.over(under.ca),
            status: self.status.over(under.status),
            body: self.body.over(under.body),
            mandatory: self.mandatory.over(under.mandatory),
            reuse: self.reuse.over(under.reuse),
            on_all_down: self.on_all_down.over(under.on_all_down),
        }
    }

    /// Reads the words of `peerage_check`.
    pub(super) fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let mut body = Self::default();
        each(words, |name, value| {
            if name == "mandatory" && value.is_none() {
                body.mandatory = Field::Given(true);
                return Ok(true);
            }
            let Some(value) = value else { return Ok(false) };
            match name {
                "type" => body.kind = Field::Given(kind(value)?),
                "interval" => body.interval = Field::Given(millis(value)?),
                "jitter" => body.jitter = Field::Given(percent(value)?),
                "timeout" => body.timeout = Field::Given(millis(value)?),
                "fails" => body.fails = Field::Given(run(number(value))?),
                "passes" => body.passes = Field::Given(run(number(value))?),
                "uri" => body.uri = Field::Given(value.to_owned()),
                "host" => body.host = Field::Given(value.to_owned()),
                "port" => body.port = Field::Given(port(number(value))?),
                "sni" => body.sni = Field::Given(value.to_owned()),
                "verify" => body.verify = Field::Given(flag(value)?),
                "ca" => body.ca = Field::Given(value.to_owned()),
                "status" => body.status = Field::Given(value.parse()?),
                "body" => body.body = Field::Given(value.to_owned()),
                "reuse" => body.reuse = Field::Given(flag(value)?),
                "on_all_down" => body.on_all_down = Field::Given(on_all_down(value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(body)
    }
}

fn uri(kind: Kind, text: &str) -> Result<(), FieldError> {
    match kind {
        Kind::Grpc if text.is_empty() => Ok(()),
        Kind::Grpc => {
            let is_name = text.len() <= field::MAX_HOST
                && text
                    .bytes()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'));
            is_name.then_some(()).ok_or(FieldError::Service)
        }
        _ => path(text).then_some(()).ok_or(FieldError::Uri),
    }
}

/// HTTP/1.1 says it as it is; HTTP/2 has it among the parts of a URI.
fn host(kind: Kind, text: &str) -> Result<(), FieldError> {
    field::host(text)?;
    let fits = kind != Kind::Grpc || authority(text).is_some();
    fits.then_some(()).ok_or(FieldError::Authority)
}

fn authority(text: &str) -> Option<()> {
    let port = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) }
        }
        None => {
            let (name, port) = match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            };
            let is_part = |c: u8| c.is_ascii_alphanumeric() || b"-._~".contains(&c);
            (!name.is_empty() && name.bytes().all(is_part)).then_some(port)?
        }
    };
    port.is_none_or(|port| port.parse::<u16>().is_ok()).then_some(())
}

fn file(text: &str) -> Result<(), FieldError> {
    field::text(text, MAX_PATH)?;
    text.starts_with('/').then_some(()).ok_or(FieldError::Path)
}

fn path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= MAX_PATH && text.bytes().all(is_sent)
}

/// What a request line has; `#` begins what is not sent.
fn is_sent(c: u8) -> bool {
    c.is_ascii_graphic() && !b"\"`<>#".contains(&c)
}
