//! Bodies of `POST` and `PATCH`: one flat object, whose scalars may also be strings.

use crate::addr::ServerAddr;
use crate::declare::given;
use crate::field::{self, FieldError};
use crate::json::{self, Value};
use crate::plus::error::{Code, Fault};
use crate::units::Secs;

/// What a body says of a server; what it does not name is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Its address.
    pub server: Option<ServerAddr>,
    /// The text of the address, where that is not the canonical one.
    pub given: Option<String>,
    /// See [`crate::server::Params::weight`].
    pub weight: Option<u16>,
    /// See [`crate::server::Params::max_conns`].
    pub max_conns: Option<u32>,
    /// See [`crate::server::Params::max_fails`].
    pub max_fails: Option<u32>,
    /// See [`crate::server::Params::fail_timeout`].
    pub fail_timeout: Option<Secs>,
    /// See [`crate::server::Params::slow_start`].
    pub slow_start: Option<Secs>,
    /// See [`crate::server::Params::route`].
    pub route: Option<String>,
    /// See [`crate::server::Params::backup`].
    pub backup: Option<bool>,
    /// Whether it takes no requests.
    pub down: Option<bool>,
    /// Whether it takes only requests that are bound to it.
    pub drain: Option<bool>,
}

impl Body {
    /// Reads a body.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let Value::Obj(entries) = json::parse(bytes)? else {
            return Err(format_error("the body must be an object"));
        };
        let mut body = Self::default();
        for (key, value) in &entries {
            body.take(key, value)?;
        }
        Ok(body)
    }

    /// Tells whether it names nothing but what an operator may change, and the address.
    pub fn is_operation(&self) -> bool {
        let operation = Self {
            server: self.server.clone(),
            given: self.given.clone(),
            weight: self.weight,
            down: self.down,
            drain: self.drain,
            ..Self::default()
        };
        *self == operation
    }

    fn take(&mut self, key: &str, value: &Value) -> Result<(), Fault> {
        let bad = |code: Code| Fault::new(code, format!("invalid \"{key}\""));
        match key {
            "server" => {
                let text = text(key, value)?;
                let addr = ServerAddr::parse(text).map_err(|error| {
                    let text = format!("invalid \"server\" \"{}\": {error}", short(text));
                    Fault::new(Code::UpstreamBadAddress, text)
                })?;
                self.given = given(&addr, text);
                self.server = Some(addr);
            }
            "weight" => {
                let weight = field::weight(whole(key, value)?);
                self.weight = Some(weight.map_err(|_| bad(Code::UpstreamBadWeight))?);
            }
            "max_conns" => {
                let max_conns = field::max_conns(whole(key, value)?);
                self.max_conns = Some(max_conns.map_err(|_| bad(Code::UpstreamBadMaxConns))?);
            }
            "max_fails" => {
                let max_fails = field::max_fails(whole(key, value)?);
                self.max_fails = Some(max_fails.map_err(|_| bad(Code::UpstreamBadMaxFails))?);
            }
            "fail_timeout" => {
                let time = seconds(key, value)?;
                self.fail_timeout = Some(time.map_err(|_| bad(Code::UpstreamBadFailTimeout))?);
            }
            "slow_start" => {
                let time = seconds(key, value)?.and_then(field::slow_start);
                self.slow_start = Some(time.map_err(|_| bad(Code::UpstreamBadSlowStart))?);
            }
            "route" => {
                let route = field::route(text(key, value)?).map_err(|error| {
                    Fault::new(Code::UpstreamBadRoute, format!("\"route\" {error}"))
                })?;
                self.route = Some(route.to_owned());
            }
            "backup" => self.backup = Some(flag(key, value)?),
            "down" => self.down = Some(flag(key, value)?),
            "drain" => self.drain = Some(flag(key, value)?),
            _ => return Err(format_error(format!("unknown parameter \"{}\"", short(key)))),
        }
        Ok(())
    }
}

fn format_error(text: impl Into<String>) -> Fault {
    Fault::new(Code::UpstreamConfFormatError, text)
}

fn invalid(key: &str, value: &Value) -> Fault {
    match value {
        Value::Arr(_) | Value::Obj(_) => format_error("nested object or list"),
        _ => format_error(format!("invalid \"{key}\" value")),
    }
}

fn text<'a>(key: &str, value: &'a Value) -> Result<&'a str, Fault> {
    match value {
        Value::Str(text) => Ok(text),
        value => Err(invalid(key, value)),
    }
}

fn flag(key: &str, value: &Value) -> Result<bool, Fault> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Str(text) if text == "true" => Ok(true),
        Value::Str(text) if text == "false" => Ok(false),
        value => Err(invalid(key, value)),
    }
}

/// A whole number, or the text of one; others are numbers out of every range.
fn whole(key: &str, value: &Value) -> Result<i64, Fault> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::Float(_) => Ok(-1),
        Value::Str(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(text.parse().unwrap_or(-1))
        }
        Value::Str(_) => Ok(-1),
        value => Err(invalid(key, value)),
    }
}

/// A time: nginx's text, or a whole number of seconds.
fn seconds(key: &str, value: &Value) -> Result<Result<Secs, FieldError>, Fault> {
    match value {
        Value::Str(text) => Ok(field::seconds(text)),
        Value::Int(number) => Ok(field::seconds(&number.to_string())),
        Value::Float(_) => Ok(Err(FieldError::Zero)),
        value => Err(invalid(key, value)),
    }
}

/// The beginning of a text that a client sent.
pub(super) fn short(text: &str) -> &str {
    let end = (0..=text.len().min(64)).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scalars_may_be_strings() {
        let texts = [
            r#"{"server":"10.0.0.1:80","weight":5,"max_conns":7,"max_fails":2,"fail_timeout":10,"slow_start":30,"route":"a","backup":true,"down":true,"drain":false}"#,
            r#"{"server":"10.0.0.1:80","weight":"5","max_conns":"7","max_fails":"2","fail_timeout":"10","slow_start":"30","route":"a","backup":"true","down":"true","drain":"false"}"#,
            r#"{"server":"10.0.0.1:80","weight":5.0,"max_conns":7e0,"max_fails":2,"fail_timeout":"10s","slow_start":"30s","route":"a","backup":true,"down":true,"drain":false}"#,
        ];
        let body = Body {
            server: Some(ServerAddr::parse("10.0.0.1").unwrap()),
            weight: Some(5),
            max_conns: Some(7),
            max_fails: Some(2),
            fail_timeout: Some(Secs(10)),
            slow_start: Some(Secs(30)),
            route: Some("a".into()),
            backup: Some(true),
            down: Some(true),
            drain: Some(false),
            given: None,
        };
        for text in texts {
            assert_eq!(Body::read(text.as_bytes()), Ok(body.clone()), "{text}");
        }
        assert_eq!(Body::read(b"{}"), Ok(Body::default()));
        let given = Body::read(br#"{"server":"App.Internal"}"#).unwrap();
        assert_eq!(given.given.as_deref(), Some("App.Internal"));
        assert_eq!(given.server.unwrap().to_string(), "app.internal:80");
    }

    #[test]
    fn hostile_bodies_are_refused_with_their_code() {
        let format = Code::UpstreamConfFormatError;
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let long = format!("{{\"{}\":1}}", "x".repeat(10_000));
        let table: &[(&str, Code)] = &[
            ("", Code::JsonError),
            ("{", Code::JsonError),
            ("{} {}", Code::JsonError),
            ("NaN", Code::JsonError),
            ("{'weight':1}", Code::JsonError),
            (&deep, Code::JsonError),
            ("[]", format),
            ("7", format),
            ("null", format),
            (&long, format),
            (r#"{"id":7}"#, format),
            (r#"{"a":1}"#, format),
            (r#"{"Weight":1}"#, format),
            (r#"{"service":"http"}"#, format),
            (r#"{"weight":1,"weight":2}"#, format),
            (r#"{"weight":null}"#, format),
            (r#"{"weight":true}"#, format),
            (r#"{"weight":{}}"#, format),
            (r#"{"weight":[1]}"#, format),
            (r#"{"server":7}"#, format),
            (r#"{"down":1}"#, format),
            (r#"{"down":"yes"}"#, format),
            (r#"{"drain":null}"#, format),
            (r#"{"backup":[]}"#, format),
            (r#"{"route":7}"#, format),
            (r#"{"fail_timeout":{}}"#, format),
            (r#"{"server":""}"#, Code::UpstreamBadAddress),
            (r#"{"server":"a b"}"#, Code::UpstreamBadAddress),
            (r#"{"server":"10.0.0.1:0"}"#, Code::UpstreamBadAddress),
            (r#"{"server":"10.0.0.1:80\n"}"#, Code::UpstreamBadAddress),
            (r#"{"weight":-1}"#, Code::UpstreamBadWeight),
            (r#"{"weight":65536}"#, Code::UpstreamBadWeight),
            (r#"{"weight":1e308}"#, Code::UpstreamBadWeight),
            (r#"{"weight":1.5}"#, Code::UpstreamBadWeight),
            (r#"{"weight":"5x"}"#, Code::UpstreamBadWeight),
            (r#"{"weight":"-5"}"#, Code::UpstreamBadWeight),
            (r#"{"weight":"99999999999999999999"}"#, Code::UpstreamBadWeight),
            (r#"{"max_conns":-1}"#, Code::UpstreamBadMaxConns),
            (r#"{"max_fails":"x"}"#, Code::UpstreamBadMaxFails),
            (r#"{"fail_timeout":"5x"}"#, Code::UpstreamBadFailTimeout),
            (r#"{"fail_timeout":1.5}"#, Code::UpstreamBadFailTimeout),
            (r#"{"fail_timeout":-1}"#, Code::UpstreamBadFailTimeout),
            (r#"{"slow_start":"5h"}"#, Code::UpstreamBadSlowStart),
            (r#"{"route":"123456789012345678901234567890123"}"#, Code::UpstreamBadRoute),
        ];
        for (text, code) in table {
            let fault = Body::read(text.as_bytes()).unwrap_err();
            assert_eq!(fault.code, *code, "{text}: {}", fault.text);
            assert!(fault.text.len() < 200, "{}", fault.text);
        }
        let fault = Body::read(br#"{"id":7}"#).unwrap_err();
        assert_eq!(fault.text, r#"unknown parameter "id""#);
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Body::read(&bytes);
        }

        #[test]
        fn what_is_accepted_is_in_its_range(
            key in "weight|max_conns|max_fails|fail_timeout|slow_start|route|down|server|id",
            value in "-?[0-9]{1,12}|\"[0-9a-z.:]{0,40}\"|true|false|null|\\[\\]|[0-9]\\.[0-9]",
        ) {
            if let Ok(body) = Body::read(format!("{{\"{key}\":{value}}}").as_bytes()) {
                prop_assert!(body.max_conns.is_none_or(|n| n <= field::MAX_CONNS));
                prop_assert!(body.slow_start.is_none_or(|time| time <= field::MAX_SLOW_START));
                prop_assert!(body.route.is_none_or(|route| route.len() <= field::MAX_ROUTE));
                prop_assert!(key != "id" && value != "null");
            }
        }
    }
}
