//! The objects `check` and `outlier` of an upstream: read from a body, and shown in full.

use serde::Serialize;
use serde_json::Value as Json;

use crate::api::error::Problem;
use crate::api::model::{At, Form, Wrong, duration, flag, text, whole};
use crate::body::Field;
use crate::check::body::CheckBody;
use crate::check::outlier::Outlier;
use crate::check::outlier::body::OutlierBody;
use crate::check::words::{errors, kind, millis, on_all_down, percent, port, run, share};
use crate::check::{Check, Kind};
use crate::json::Value;

/// The object `check`; one that states the whole must go together.
pub(super) fn check(value: &Value, form: Form) -> Result<Field<Box<CheckBody>>, Problem> {
    if *value == Value::Null {
        return Ok(Field::Default);
    }
    let at = At("check");
    let mut body = Box::new(CheckBody::default());
    let owned = |value: &Value| Ok(text(value)?.to_owned());
    for (key, value) in at.object(value)? {
        match key.as_str() {
            "type" => body.kind = at.field(key, value, |v| Ok(kind(text(v)?)?))?,
            "interval" => body.interval = at.field(key, value, |v| duration(v, millis))?,
            "jitter" => body.jitter = at.field(key, value, |v| Ok(percent(text(v)?)?))?,
            "timeout" => body.timeout = at.field(key, value, |v| duration(v, millis))?,
            "fails" => body.fails = at.field(key, value, |v| Ok(run(whole(v)?)?))?,
            "passes" => body.passes = at.field(key, value, |v| Ok(run(whole(v)?)?))?,
            "uri" => body.uri = at.field(key, value, owned)?,
            "host" => body.host = at.field(key, value, owned)?,
            "port" => body.port = at.field(key, value, |v| Ok(port(whole(v)?)?))?,
            "sni" => body.sni = at.field(key, value, owned)?,
            "verify" => body.verify = at.field(key, value, flag)?,
            "ca" => body.ca = at.field(key, value, owned)?,
            "status" => {
                let read = |v: &Value| text(v)?.parse().map_err(Wrong::from);
                body.status = at.field(key, value, read)?;
            }
            "body" => body.body = at.field(key, value, owned)?,
            "mandatory" => body.mandatory = at.field(key, value, flag)?,
            "reuse" => body.reuse = at.field(key, value, flag)?,
            "on_all_down" => {
                body.on_all_down = at.field(key, value, |v| Ok(on_all_down(text(v)?)?))?;
            }
            _ => return Err(at.unknown(key)),
        }
    }
    if form == Form::Put {
        body.build().map_err(|error| at.bad(error.field, &error.error))?;
    }
    Ok(Field::Given(body))
}

/// The object `outlier`; one that states the whole must go together.
pub(super) fn outlier(value: &Value, form: Form) -> Result<Field<OutlierBody>, Problem> {
    if *value == Value::Null {
        return Ok(Field::Default);
    }
    let at = At("outlier");
    let mut body = OutlierBody::default();
    for (key, value) in at.object(value)? {
        match key.as_str() {
            "consecutive_errors" => {
                body.consecutive_errors = at.field(key, value, |v| Ok(errors(whole(v)?)?))?;
            }
            "base" => body.base = at.field(key, value, |v| duration(v, millis))?,
            "max" => body.max = at.field(key, value, |v| duration(v, millis))?,
            "max_percent" => body.max_percent = at.field(key, value, |v| Ok(share(whole(v)?)?))?,
            _ => return Err(at.unknown(key)),
        }
    }
    if form == Form::Put {
        body.build().map_err(|error| at.bad(error.field, &error.error))?;
    }
    Ok(Field::Given(body))
}

/// A check as it is shown: what has no meaning for its type is `null`.
#[derive(Serialize)]
pub(crate) struct CheckJson<'a> {
    r#type: &'static str,
    interval: String,
    jitter: String,
    timeout: String,
    fails: u8,
    passes: u8,
    uri: Option<&'a str>,
    host: Option<&'a str>,
    port: Option<u16>,
    sni: Option<&'a str>,
    verify: Option<bool>,
    ca: Option<&'a str>,
    status: Option<String>,
    body: Option<&'a str>,
    mandatory: bool,
    reuse: Option<bool>,
    on_all_down: &'static str,
}

/// The rules of outliers as they are shown.
#[derive(Serialize)]
pub(crate) struct OutlierJson {
    consecutive_errors: u16,
    base: String,
    max: String,
    max_percent: u8,
}

impl<'a> CheckJson<'a> {
    pub(super) fn of(check: &'a Check) -> Self {
        let talks = check.kind != Kind::Tcp;
        Self {
            r#type: check.kind.as_str(),
            interval: check.interval.to_string(),
            jitter: format!("{}%", check.jitter),
            timeout: check.timeout.to_string(),
            fails: check.fails,
            passes: check.passes,
            uri: talks.then_some(check.uri.as_str()),
            host: check.host.as_deref(),
            port: check.port,
            sni: check.sni.as_deref(),
            verify: (check.kind == Kind::Https).then_some(check.verify),
            ca: check.ca.as_deref(),
            status: check.kind.is_http().then(|| check.status.to_string()),
            body: check.body.as_deref(),
            mandatory: check.mandatory,
            reuse: talks.then_some(check.reuse),
            on_all_down: check.on_all_down.as_str(),
        }
    }
}

impl OutlierJson {
    pub(super) fn of(outlier: &Outlier) -> Self {
        let Outlier { consecutive_errors, base, max, max_percent } = *outlier;
        let (base, max) = (base.to_string(), max.to_string());
        Self { consecutive_errors, base, max, max_percent }
    }
}

/// A check as a value.
pub(crate) fn check_value(check: &Check) -> Json {
    serde_json::to_value(CheckJson::of(check)).unwrap_or_default()
}

/// The rules of outliers as a value.
pub(crate) fn outlier_value(outlier: &Outlier) -> Json {
    serde_json::to_value(OutlierJson::of(outlier)).unwrap_or_default()
}
