//! Routes in the API: bodies, the JSON lines of many at once, and how they are shown.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value as Json;

use crate::api::error::{Code, Problem};
use crate::api::model::{self, At, Form, Wrong};
use crate::body::{End, Field};
use crate::field;
use crate::json::{self, Value};
use crate::name::UpstreamName;
use crate::route::change::{RouteBody, RouteChange};
use crate::route::{Route, RouteKey, Status};
use crate::time::iso;

/// The key of a path or a line.
pub(super) fn key(text: &str) -> Result<RouteKey, Problem> {
    RouteKey::parse(text).map_err(|error| {
        let detail = format!("the key of a route {error}: \"{}\"", model::short(text));
        Problem::new(Code::BadValue, detail).field("key")
    })
}

/// The change that a call's body states.
pub fn change(body: &[u8], form: Form, force: bool) -> Result<RouteChange, Problem> {
    let body = route_body(&At(""), &json::parse(body)?)?;
    Ok(match form {
        Form::Put => RouteChange::Put { body, force },
        Form::Patch => RouteChange::Patch { body, force },
    })
}

/// The body of a route; what a GET shows and nobody sets is ignored.
pub(super) fn route_body(at: &At<'_>, value: &Value) -> Result<RouteBody, Problem> {
    let mut body = RouteBody::default();
    let mut ends = 0;
    for (key, value) in at.object(value)? {
        match key.as_str() {
            "upstream" => {
                let name = model::text(value).map_err(|wrong| at.bad(key, &wrong))?;
                let name = UpstreamName::parse(name).map_err(|error| {
                    Problem::new(Code::BadName, error.to_string()).field(at.path(key))
                })?;
                body.upstream = Some(name);
            }
            "status" => {
                body.status = at.field(key, value, |value| {
                    let word = model::text(value)?;
                    Status::parse(word)
                        .map_err(|error| Wrong(format!("{error}: \"{}\"", model::short(word))))
                })?;
            }
            "reason" => {
                body.reason =
                    at.field(key, value, |v| Ok(field::reason(model::text(v)?)?.to_owned()))?;
            }
            "labels" => {
                body.labels = match value {
                    Value::Null => Field::Default,
                    value => Field::Given(model::labels(at, value)?),
                }
            }
            "ttl" | "until" => {
                let end = match key.as_str() {
                    "ttl" => {
                        at.field(key, value, |v| Ok(End::After(model::duration(v, field::ttl)?)))?
                    }
                    _ => at.field(key, value, |v| Ok(End::At(model::moment(v)?)))?,
                };
                ends += usize::from(end.is_given());
                if ends > 1 {
                    return Err(at.bad(key, &Wrong("may not come with its like".to_owned())));
                }
                // `null` beside the other one says nothing.
                if end.is_given() || !body.end.is_given() {
                    body.end = end;
                }
            }
            "key" | "origin" | "digest" => {}
            _ => return Err(at.unknown(key)),
        }
    }
    Ok(body)
}

/// Reads the lines of `POST v1/routes`, each a route with its `key`, one after the other.
///
/// `op` says what is done with it: `put`, which may be left out, `patch`, or `delete`.
#[derive(Debug, Default)]
pub struct Lines {
    keys: HashSet<RouteKey>,
    lines: u64,
}

impl Lines {
    /// Reads the next line; nothing where it is blank. Errors name it.
    pub fn line(
        &mut self,
        text: &[u8],
        force: bool,
    ) -> Result<Option<(RouteKey, RouteChange)>, Problem> {
        self.lines += 1;
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        let place = format!("lines[{}]", self.lines);
        let (key, change) = line(text, force).map_err(|problem| problem.within(&place))?;
        if !self.keys.insert(key.clone()) {
            let detail = format!("route \"{key}\" comes twice");
            return Err(Problem::new(Code::BadValue, detail).field("key").within(&place));
        }
        Ok(Some((key, change)))
    }

    /// Routes that were named.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no route was named.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

fn line(text: &[u8], force: bool) -> Result<(RouteKey, RouteChange), Problem> {
    let at = At("");
    let value = json::parse(text)?;
    let mut entries = at.object(&value)?.to_vec();
    let Some(name) = model::take(&mut entries, "key") else {
        return Err(at.bad("key", &Wrong("is missing".to_owned())));
    };
    let key = key(model::text(&name).map_err(|wrong| at.bad("key", &wrong))?)?;
    let op = model::take(&mut entries, "op").unwrap_or_else(|| Value::Str("put".to_owned()));
    let op = model::text(&op).map_err(|wrong| at.bad("op", &wrong))?;
    let change = match op {
        "put" => RouteChange::Put { body: route_body(&at, &Value::Obj(entries))?, force },
        "patch" => RouteChange::Patch { body: route_body(&at, &Value::Obj(entries))?, force },
        "delete" => match entries.first() {
            None => RouteChange::Delete,
            Some((field, _)) => {
                let detail = format!("delete has no \"{field}\"");
                return Err(Problem::new(Code::UnknownField, detail).field(model::short(field)));
            }
        },
        _ => return Err(at.bad("op", &Wrong("is none of: put, patch, delete".to_owned()))),
    };
    Ok((key, change))
}

/// A route as a GET shows it.
pub fn show(out: &mut Vec<u8>, route: &Route) {
    json(out, &RouteJson::of(route));
}

/// An entry of a list, with its comma where it is not the first.
pub fn list_entry(out: &mut Vec<u8>, route: &Route, first: bool) {
    if !first {
        out.push(b',');
    }
    json(out, route.key.as_str());
    out.push(b':');
    show(out, route);
}

/// The entity tag of a route.
pub fn etag(route: &Route) -> String {
    format!("\"{}\"", route.digest_text())
}

/// The answer to a write of routes; `route` is the one it was about, as it is now.
#[derive(Clone, Debug)]
pub struct RouteAnswer<'a> {
    /// The revision that is in force.
    pub revision: u64,
    /// Whether this write made it.
    pub changed: bool,
    /// The route it was about.
    pub route: Option<&'a Route>,
    /// Further members: `diff`, `warning`, …
    pub extra: &'a [(&'a str, Json)],
}

/// An answer to a write.
pub fn answer(out: &mut Vec<u8>, answer: &RouteAnswer<'_>) {
    json(out, answer);
}

impl Serialize for RouteAnswer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("revision", &self.revision)?;
        map.serialize_entry("changed", &self.changed)?;
        for (name, value) in self.extra {
            map.serialize_entry(name, value)?;
        }
        if let Some(route) = self.route {
            map.serialize_entry("route", &RouteJson::of(route))?;
        }
        map.end()
    }
}

/// A vector takes everything, and no type here refuses to be written.
fn json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

#[derive(Serialize)]
struct RouteJson<'a> {
    key: &'a str,
    upstream: &'a str,
    status: &'a str,
    reason: &'a str,
    until: Option<String>,
    labels: &'a BTreeMap<String, String>,
    origin: String,
    digest: String,
}

impl<'a> RouteJson<'a> {
    fn of(route: &'a Route) -> Self {
        let Route { key, upstream, status, reason, until, labels, origin } = route;
        Self {
            key: key.as_str(),
            upstream: upstream.as_str(),
            status: status.as_str(),
            reason,
            until: until.map(iso),
            labels,
            origin: origin.to_string(),
            digest: route.digest_text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_feeds_back() {
        let body = br#"{"upstream":"Orders","status":"moved","reason":"x","labels":{"a":"b"},
            "until":"2026-11-29T21:05:07Z"}"#;
        let RouteChange::Put { body, force: true } = change(body, Form::Put, true).unwrap() else {
            panic!("a put");
        };
        let route = Route {
            status: Status::parse("moved").unwrap(),
            reason: "x".into(),
            until: Some(1_795_986_307_000),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            ..Route::new(key("acme").unwrap(), UpstreamName::parse("orders").unwrap())
        };
        let mut shown = Vec::new();
        show(&mut shown, &route);
        assert_eq!(
            String::from_utf8_lossy(&shown),
            format!(
                "{{\"key\":\"acme\",\"upstream\":\"orders\",\"status\":\"moved\",\"reason\":\"x\",\
                 \"until\":\"2026-11-29T21:05:07Z\",\"labels\":{{\"a\":\"b\"}},\
                 \"origin\":\"api\",\"digest\":\"{}\"}}",
                route.digest_text()
            )
        );
        assert_eq!(route_body(&At(""), &json::parse(&shown).unwrap()).unwrap(), body);
        let mut out = Vec::new();
        answer(&mut out, &RouteAnswer { revision: 7, changed: true, route: None, extra: &[] });
        assert_eq!(out, br#"{"revision":7,"changed":true}"#);
    }

    #[test]
    fn errors_name_the_line_and_its_field() {
        let table = [
            ("x", Code::BadJson, "lines[2]"),
            ("7", Code::BadValue, "lines[2]"),
            ("{}", Code::BadValue, "lines[2].key"),
            (r#"{"key":7}"#, Code::BadValue, "lines[2].key"),
            (r#"{"key":""}"#, Code::BadValue, "lines[2].key"),
            (r#"{"key":"a\u0000"}"#, Code::BadValue, "lines[2].key"),
            (r#"{"key":"acme","upstream":"a"}"#, Code::BadValue, "lines[2].key"),
            (r#"{"key":"b","upstream":"a b"}"#, Code::BadName, "lines[2].upstream"),
            (r#"{"key":"b","upstream":null}"#, Code::BadValue, "lines[2].upstream"),
            (r#"{"key":"b","status":"a b"}"#, Code::BadValue, "lines[2].status"),
            (r#"{"key":"b","ttl":"0"}"#, Code::BadValue, "lines[2].ttl"),
            (
                r#"{"key":"b","ttl":"1s","until":"2026-11-29T21:05:07Z"}"#,
                Code::BadValue,
                "lines[2].until",
            ),
            (r#"{"key":"b","until":"soon"}"#, Code::BadValue, "lines[2].until"),
            (r#"{"key":"b","labels":{"a:b":"c"}}"#, Code::BadValue, "lines[2].labels"),
            (r#"{"key":"b","weight":1}"#, Code::UnknownField, "lines[2].weight"),
            (r#"{"key":"b","op":"move"}"#, Code::BadValue, "lines[2].op"),
            (
                r#"{"key":"b","op":"delete","upstream":"a"}"#,
                Code::UnknownField,
                "lines[2].upstream",
            ),
        ];
        for (text, code, field) in table {
            let mut lines = Lines::default();
            let first = lines.line(br#"{"key":"acme","upstream":"orders"}"#, false).unwrap();
            assert!(matches!(first, Some((_, RouteChange::Put { force: false, .. }))));
            let problem = lines.line(text.as_bytes(), false).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (code, Some(field)), "{text}");
        }
        let mut lines = Lines::default();
        assert_eq!(lines.line(b" \n", false), Ok(None));
        let gone = lines.line(br#"{"key":"a","op":"delete"}"#, false).unwrap();
        assert_eq!(gone, Some((key("a").unwrap(), RouteChange::Delete)));
        assert!(lines.len() == 1 && !lines.is_empty());
    }
}
