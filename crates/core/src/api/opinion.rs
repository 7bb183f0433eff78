//! What an outside checker says of a server: `POST …/unhealthy` and `…/healthy`.

use crate::api::error::Problem;
use crate::api::model::{At, Wrong, duration, text};
use crate::api::params;
use crate::api::query::Query;
use crate::check::external::Opinion;
use crate::field;
use crate::json;

/// A verdict as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    /// What is said.
    pub opinion: Opinion,
    /// For how long it holds, ms; without an end where nothing is said of it.
    pub ttl: Option<u64>,
    /// Why, for the log and the event.
    pub reason: Option<String>,
}

/// What the query says.
pub(super) fn of_query(opinion: Opinion, query: &mut Query) -> Result<Saying, Problem> {
    let ttl = params::value(query, "ttl", |text| field::ttl(&text))?;
    let reason = params::value(query, "reason", params::reason)?;
    Ok(Saying { opinion, ttl, reason })
}

impl Saying {
    /// With what the body says; it may be empty.
    pub fn with_body(mut self, body: &[u8]) -> Result<Self, Problem> {
        if body.is_empty() {
            return Ok(self);
        }
        let (at, value) = (At(""), json::parse(body)?);
        let in_query = (self.ttl.is_some(), self.reason.is_some());
        for (key, value) in at.object(&value)? {
            let twice = match key.as_str() {
                "ttl" => in_query.0,
                "reason" => in_query.1,
                _ => return Err(at.unknown(key)),
            };
            if twice {
                let wrong = Wrong("is in the query and in the body".to_owned());
                return Err(at.bad(key, &wrong));
            }
            if *value == json::Value::Null {
                continue;
            }
            let read = match key.as_str() {
                "ttl" => duration(value, field::ttl).map(|ttl| self.ttl = Some(ttl)),
                _ => text(value)
                    .and_then(|text| Ok(field::reason(text)?.to_owned()))
                    .map(|reason| self.reason = Some(reason)),
            };
            read.map_err(|wrong| at.bad(key, &wrong))?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::error::Code;

    fn read(query: &str, body: &str) -> Result<Saying, Problem> {
        let mut query = Query::parse(query.as_bytes())?;
        let saying = of_query(Opinion::Unhealthy, &mut query)?;
        query.end()?;
        saying.with_body(body.as_bytes())
    }

    #[test]
    fn query_and_body_say_the_same() {
        let wanted = Saying {
            opinion: Opinion::Unhealthy,
            ttl: Some(30_000),
            reason: Some("disk is slow".into()),
        };
        assert_eq!(read("ttl=30s&reason=disk+is+slow", ""), Ok(wanted.clone()));
        assert_eq!(read("", r#"{"ttl":30,"reason":"disk is slow"}"#), Ok(wanted.clone()));
        assert_eq!(read("ttl=30s", r#"{"reason":"disk is slow"}"#), Ok(wanted.clone()));
        let bare = Saying { ttl: None, reason: None, ..wanted };
        assert_eq!(read("", r#"{"ttl":null,"reason":null}"#), Ok(bare.clone()));
        assert_eq!(read("", ""), Ok(bare));
    }

    #[test]
    fn errors_name_the_parameter() {
        let table = [
            ("ttl=5x", "", Code::BadValue, "ttl"),
            ("ttl=0", "", Code::BadValue, "ttl"),
            ("wait=5s", "", Code::BadParameter, "wait"),
            ("", r#"{"ttl":"x"}"#, Code::BadValue, "ttl"),
            ("", r#"{"ttl":true}"#, Code::BadValue, "ttl"),
            ("", r#"{"reason":5}"#, Code::BadValue, "reason"),
            ("", r#"{"min_up":1}"#, Code::UnknownField, "min_up"),
            ("ttl=5s", r#"{"ttl":"5s"}"#, Code::BadValue, "ttl"),
        ];
        for (query, body, code, field) in table {
            let problem = read(query, body).unwrap_err();
            let got = (problem.code, problem.field.as_deref());
            assert_eq!(got, (code, Some(field)), "{query} {body}");
        }
        assert_eq!(read("", "[").unwrap_err().code, Code::BadJson);
    }
}
