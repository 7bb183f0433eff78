//! From bodies to what they state; every error names the field and says what it may be.
//!
//! Fields that a GET shows and nobody may set (`id`, `state`, `counters`, …) are accepted and
//! ignored, so that a listing can be fed back. Fields of later versions are accepted as a GET shows
//! them: `null`.

use crate::addr::ServerAddr;
use crate::api::check;
use crate::api::error::{Code, Problem};
use crate::api::route::{Call, WriteMode};
use crate::body::{AdminBody, End, Field, LimitsBody, ServerBody, UpstreamBody, VerbOpts};
use crate::change::Change;
use crate::declare::given;
use crate::field::{self, FieldError};
use crate::host::HostVerb;
use crate::json::{self, Value};
use crate::server::AdminState;
use crate::template::Template;
use crate::time::parse_iso;
use crate::units::Secs;
use crate::upstream::Method;

/// Whether a body states the whole or alters what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
}

/// The change of an upstream that a writing call asks for; `None` for other calls.
pub fn change(call: Call, body: &[u8], mode: WriteMode) -> Result<Option<Change>, Problem> {
    Ok(Some(match call {
        Call::PutUpstream { .. } => {
            Change::PutUpstream { body: upstream_body(&json::parse(body)?, Form::Put)? }
        }
        Call::PatchUpstream { .. } => {
            Change::PatchUpstream { body: upstream_body(&json::parse(body)?, Form::Patch)? }
        }
        Call::DeleteUpstream { force, .. } => Change::DeleteUpstream { force },
        Call::PutServer { sel, .. } => {
            Change::PutServer { sel, body: server_body(&json::parse(body)?, Form::Put)? }
        }
        Call::PatchServer { sel, .. } => {
            let body = server_body(&json::parse(body)?, Form::Patch)?;
            if mode == WriteMode::Operate && !body.is_weight_only() {
                let detail = "write=operate lets a PATCH change nothing but the weight";
                return Err(Problem::new(Code::NotPermitted, detail));
            }
            Change::PatchServer { sel, body }
        }
        Call::DeleteServer { sel, .. } => Change::DeleteServer { sel },
        Call::Verb { sel, verb, opts, .. } => {
            let body = if body.is_empty() { None } else { Some(json::parse(body)?) };
            Change::Admin { sel, verb, opts: verb_opts(verb, opts, body.as_ref())? }
        }
        Call::Root
        | Call::OpenApi
        | Call::Events { .. }
        | Call::ZoneReport { .. }
        | Call::Flush { .. }
        | Call::ListUpstreams { .. }
        | Call::GetUpstream { .. }
        | Call::GetServer { .. }
        | Call::ListServers { .. }
        | Call::GetCheck { .. }
        | Call::Opine { .. }
        | Call::Check { .. }
        | Call::GetHost { .. }
        | Call::HostVerb(_)
        | Call::Batch
        | Call::Ready { .. }
        | Call::Export { .. }
        | Call::Import { .. }
        | Call::ListSources
        | Call::GetSource { .. }
        | Call::DecideSource { .. }
        | Call::ListRoutes { .. }
        | Call::GetRoute { .. }
        | Call::PutRoute { .. }
        | Call::PatchRoute { .. }
        | Call::DeleteRoute { .. }
        | Call::PutRoutes { .. } => return Ok(None),
    }))
}

/// The verb of a host: what the query says and what the body says.
pub fn host_verb(verb: HostVerb, body: &[u8]) -> Result<HostVerb, Problem> {
    let body = if body.is_empty() { None } else { Some(json::parse(body)?) };
    let HostVerb { ip, verb, opts, mut missing_ok } = verb;
    let body = match body {
        Some(Value::Obj(mut entries)) => {
            if let Some(value) = take(&mut entries, "missing") {
                if missing_ok {
                    let twice = Wrong("is in the query and in the body".to_owned());
                    return Err(At("").bad("missing", &twice));
                }
                missing_ok = missing(&At(""), &value)?;
            }
            Some(Value::Obj(entries))
        }
        body => body,
    };
    let opts = with_min_up(verb, verb_opts(verb, opts, body.as_ref())?);
    Ok(HostVerb { ip, verb, opts, missing_ok })
}

/// A host taken away leaves one server in each of its upstreams, unless something else is said.
pub(super) fn with_min_up(verb: AdminState, mut opts: VerbOpts) -> VerbOpts {
    if verb != AdminState::Up {
        opts.min_up.get_or_insert(1);
    }
    opts
}

/// `"missing":"ok"`
pub(super) fn missing(at: &At<'_>, value: &Value) -> Result<bool, Problem> {
    match value {
        Value::Null => Ok(false),
        Value::Str(text) if text == "ok" => Ok(true),
        _ => Err(at.bad("missing", &Wrong("may only be \"ok\"".to_owned()))),
    }
}

/// Takes an entry out of an object.
pub(super) fn take(entries: &mut Vec<(String, Value)>, name: &str) -> Option<Value> {
    let at = entries.iter().position(|(key, _)| key == name)?;
    Some(entries.remove(at).1)
}

/// The body of an upstream.
pub fn upstream_body(value: &Value, form: Form) -> Result<UpstreamBody, Problem> {
    let at = At("");
    let mut body = UpstreamBody::default();
    for (key, value) in at.object(value)? {
        match key.as_str() {
            "method" => body.method = at.field(key, value, method)?,
            "defaults" => {
                body.defaults = match value {
                    Value::Null => Field::Default,
                    value => Field::Given(defaults(value)?),
                }
            }
            "servers" if form == Form::Patch => {
                let detail = "\"servers\" cannot be patched; PUT the upstream or a server";
                return Err(Problem::new(Code::UnknownField, detail).field("servers"));
            }
            "servers" => body.servers = Some(servers(value)?),
            "hash_key" => body.hash_key = at.field(key, value, template)?,
            "host" => {
                body.host = at.field(key, value, |v| Ok(field::host(text(v)?)?.to_owned()))?;
            }
            "tls_name" => {
                body.tls_name =
                    at.field(key, value, |v| Ok(field::tls_name(text(v)?)?.to_owned()))?;
            }
            "check" => body.check = check::check(value, form)?,
            "outlier" => body.outlier = check::outlier(value, form)?,
            "name" | "zone" | "origin" | "eligible" | "counts" | "revision" | "digest" => {}
            _ => return Err(at.unknown(key)),
        }
    }
    Ok(body)
}

fn method(value: &Value) -> Result<Method, Wrong> {
    let word = text(value)?;
    Method::parse(word).ok_or_else(|| {
        let known: Vec<&str> = Method::ALL.iter().map(|method| method.as_str()).collect();
        Wrong(format!("is \"{}\", which is none of: {}", short(word), known.join(", ")))
    })
}

fn template(value: &Value) -> Result<Template, Wrong> {
    let text = text(value)?;
    Template::parse(text).map_err(|error| Wrong(format!("{error}: \"{}\"", short(text))))
}

/// Refuses a change with a variable that nobody knows; `known` is given names in lower case.
pub fn check_variables(change: &Change, known: &dyn Fn(&str) -> bool) -> Result<(), Problem> {
    let (Change::PutUpstream { body }
    | Change::PatchUpstream { body }
    | Change::SetServers { body, .. }) = change
    else {
        return Ok(());
    };
    let Field::Given(template) = &body.hash_key else { return Ok(()) };
    let unknown = |name: &&str| !known(&name.to_ascii_lowercase());
    match template.variables().find(unknown) {
        Some(name) => {
            let wrong = format!("has the variable \"${name}\", which is unknown");
            Err(At("").bad("hash_key", &Wrong(wrong)))
        }
        None => Ok(()),
    }
}

fn defaults(value: &Value) -> Result<LimitsBody, Problem> {
    let at = At("defaults");
    let mut body = LimitsBody::default();
    for (key, value) in at.object(value)? {
        if !limit(&at, &mut body, key, value)? {
            return Err(at.unknown(key));
        }
    }
    Ok(body)
}

fn servers(value: &Value) -> Result<Vec<ServerBody>, Problem> {
    let Value::Arr(items) = value else {
        return Err(At("").bad("servers", &Wrong::kind("an array", value)));
    };
    let mut servers = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let path = format!("servers[{i}]");
        let body = server_at(&At(&path), item, Form::Put)?;
        if body.addr.is_none() {
            return Err(At(&path).bad("server", &Wrong("is missing".to_owned())));
        }
        servers.push(body);
    }
    Ok(servers)
}

/// The body of a server.
pub fn server_body(value: &Value, form: Form) -> Result<ServerBody, Problem> {
    server_at(&At(""), value, form)
}

fn server_at(at: &At<'_>, value: &Value, form: Form) -> Result<ServerBody, Problem> {
    let mut body = ServerBody::default();
    for (key, value) in at.object(value)? {
        if limit(at, &mut body.limits, key, value)? {
            continue;
        }
        match key.as_str() {
            "server" => {
                let word = text(value).map_err(|wrong| at.bad(key, &wrong))?;
                let addr = ServerAddr::parse(word).map_err(|error| {
                    let detail = format!("\"{}\": \"{}\": {error}", at.path(key), short(word));
                    Problem::new(Code::BadAddress, detail).field(at.path(key))
                })?;
                body.given = given(&addr, word);
                body.addr = Some(addr);
            }
            "backup" => body.backup = at.field(key, value, flag)?,
            "route" => {
                body.route =
                    at.field(key, value, |value| Ok(field::route(text(value)?)?.to_owned()))?;
            }
            "labels" => {
                body.labels = match value {
                    Value::Null => Field::Default,
                    value => Field::Given(labels(at, value)?),
                }
            }
            "admin" => {
                body.admin = match value {
                    Value::Null => Field::Default,
                    value => Field::Given(admin(at, value, form)?),
                }
            }
            "id" | "origin" | "source" | "state" | "why" | "active" | "upgraded" | "counters"
            | "host_admin" | "eligible" => {}
            _ => return Err(at.unknown(key)),
        }
    }
    Ok(body)
}

/// Reads a limit; `false` where the field is none.
fn limit(at: &At<'_>, body: &mut LimitsBody, key: &str, value: &Value) -> Result<bool, Problem> {
    match key {
        "weight" => body.weight = at.field(key, value, |v| Ok(field::weight(whole(v)?)?))?,
        "max_conns" => {
            body.max_conns = at.field(key, value, |v| Ok(field::max_conns(whole(v)?)?))?
        }
        "max_fails" => {
            body.max_fails = at.field(key, value, |v| Ok(field::max_fails(whole(v)?)?))?
        }
        "fail_timeout" => body.fail_timeout = at.field(key, value, seconds)?,
        "slow_start" => {
            body.slow_start = at.field(key, value, |v| Ok(field::slow_start(seconds(v)?)?))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

pub(super) fn labels(at: &At<'_>, value: &Value) -> Result<Vec<(String, Option<String>)>, Problem> {
    let path = at.path("labels");
    let inner = At(&path);
    let entries = inner.object(value)?;
    // A PATCH may name as many to remove as it adds.
    if entries.len() > 2 * field::MAX_LABELS {
        return Err(at.bad("labels", &FieldError::Labels));
    }
    let mut labels = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        field::label_key(key).map_err(|error| at.bad("labels", &error))?;
        let value = match value {
            Value::Null => None,
            value => {
                let read = text(value).and_then(|text| Ok(field::label_value(text)?.to_owned()));
                Some(read.map_err(|wrong| inner.bad(key, &wrong))?)
            }
        };
        labels.push((key.clone(), value));
    }
    if labels.iter().filter(|(_, value)| value.is_some()).count() > field::MAX_LABELS {
        return Err(at.bad("labels", &FieldError::Labels));
    }
    Ok(labels)
}

pub(super) fn admin(at: &At<'_>, value: &Value, form: Form) -> Result<AdminBody, Problem> {
    let path = at.path("admin");
    let at = At(&path);
    let mut body = AdminBody::default();
    for (key, value) in at.object(value)? {
        if *value == Value::Null {
            match key.as_str() {
                "state" | "since" | "until" | "ttl" | "close" | "reason" | "by" | "from" => {
                    continue;
                }
                _ => return Err(at.unknown(key)),
            }
        }
        let end = match key.as_str() {
            "state" => {
                let word = text(value).map_err(|wrong| at.bad(key, &wrong))?;
                let state = AdminState::parse(word).ok_or_else(|| {
                    let known = "is none of: up, drain, down".to_owned();
                    at.bad(key, &Wrong(known))
                })?;
                body.state = Some(state);
                continue;
            }
            "reason" => {
                let read = text(value).and_then(|text| Ok(field::reason(text)?.to_owned()));
                body.reason = read.map_err(|wrong| at.bad(key, &wrong))?;
                continue;
            }
            "close" => {
                body.close = End::At(moment(value).map_err(|wrong| at.bad(key, &wrong))?);
                continue;
            }
            "until" => End::At(moment(value).map_err(|wrong| at.bad(key, &wrong))?),
            "ttl" => End::After(duration(value, field::ttl).map_err(|wrong| at.bad(key, &wrong))?),
            "since" | "by" | "from" => continue,
            _ => return Err(at.unknown(key)),
        };
        if body.end != End::Never {
            return Err(at.bad(key, &Wrong("may not come with its like".to_owned())));
        }
        body.end = end;
    }
    let up = match body.state {
        Some(state) => state == AdminState::Up,
        None => form == Form::Put,
    };
    if up && body.end != End::Never {
        return Err(at.bad("state", &Wrong("is up, which has no end".to_owned())));
    }
    if up && body.close != End::Never {
        return Err(at.bad("close", &FieldError::CloseOfUp));
    }
    Ok(body)
}

/// The options of a verb: what the query says and what the body says, no field by both.
pub fn verb_opts(
    verb: AdminState,
    query: VerbOpts,
    body: Option<&Value>,
) -> Result<VerbOpts, Problem> {
    let at = At("");
    let mut opts = query.clone();
    let entries = match body {
        Some(value) => at.object(value)?,
        None => &[],
    };
    for (key, value) in entries {
        let in_query = match key.as_str() {
            "wait" => query.wait.is_some(),
            "ttl" => query.ttl.is_some(),
            "close" => query.close.is_some(),
            "reason" => query.reason.is_some(),
            "min_up" => query.min_up.is_some(),
            "if_reason" => query.if_reason.is_some(),
            _ => return Err(at.unknown(key)),
        };
        if in_query {
            return Err(at.bad(key, &Wrong("is in the query and in the body".to_owned())));
        }
        if *value == Value::Null {
            continue;
        }
        let reason = |value| text(value).and_then(|text| Ok(field::reason(text)?.to_owned()));
        let read = match key.as_str() {
            "wait" => duration(value, field::wait).map(|wait| opts.wait = Some(wait)),
            "ttl" => duration(value, field::ttl).map(|ttl| opts.ttl = Some(ttl)),
            "close" => duration(value, field::close).map(|close| opts.close = Some(close)),
            "reason" => reason(value).map(|reason| opts.reason = Some(reason)),
            "min_up" => whole(value)
                .and_then(|n| Ok(field::min_up(n)?))
                .map(|min_up| opts.min_up = Some(min_up)),
            _ => reason(value).map(|reason| opts.if_reason = Some(reason)),
        };
        read.map_err(|wrong| at.bad(key, &wrong))?;
    }
    if verb == AdminState::Up && opts.ttl.is_some() {
        return Err(at.bad("ttl", &Wrong("has no meaning for up, which has no end".to_owned())));
    }
    if verb == AdminState::Up && opts.close.is_some() {
        let wrong = "has no meaning for up, which closes nothing".to_owned();
        return Err(at.bad("close", &Wrong(wrong)));
    }
    Ok(opts)
}

/// Why a value is refused; completes `"field" …`.
pub(crate) struct Wrong(pub(crate) String);

impl Wrong {
    pub(crate) fn kind(wanted: &str, value: &Value) -> Self {
        Self(format!("must be {wanted}, not {}", value.kind()))
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<FieldError> for Wrong {
    fn from(error: FieldError) -> Self {
        Self(error.to_string())
    }
}

pub(crate) fn text(value: &Value) -> Result<&str, Wrong> {
    match value {
        Value::Str(text) => Ok(text),
        value => Err(Wrong::kind("a string", value)),
    }
}

pub(super) fn flag(value: &Value) -> Result<bool, Wrong> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        value => Err(Wrong::kind("true or false", value)),
    }
}

/// A whole number; others are numbers out of every range.
pub(super) fn whole(value: &Value) -> Result<i64, Wrong> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::Float(_) => Ok(-1),
        value => Err(Wrong::kind("a number", value)),
    }
}

fn seconds(value: &Value) -> Result<Secs, Wrong> {
    duration(value, field::seconds)
}

/// A time: nginx's text, or a whole number of seconds.
/// A time as a listing shows it.
pub(super) fn moment(value: &Value) -> Result<u64, Wrong> {
    let wrong = || Wrong("is not a time like \"2026-11-29T21:05:07Z\"".to_owned());
    text(value).ok().and_then(parse_iso).ok_or_else(wrong)
}

pub(super) fn duration<T>(
    value: &Value,
    read: fn(&str) -> Result<T, FieldError>,
) -> Result<T, Wrong> {
    match value {
        Value::Str(text) => Ok(read(text)?),
        Value::Int(number) => Ok(read(&number.to_string())?),
        Value::Float(_) => Err(Wrong("must be a time like \"30s\" or whole seconds".to_owned())),
        value => Err(Wrong::kind("a time like \"30s\"", value)),
    }
}

pub(crate) fn short(text: &str) -> &str {
    text.get(..64).unwrap_or(text).trim_end_matches(char::is_control)
}

/// Where in the body a field is.
pub(crate) struct At<'a>(pub(crate) &'a str);

impl At<'_> {
    pub(super) fn path(&self, key: &str) -> String {
        if self.0.is_empty() { key.to_owned() } else { format!("{}.{key}", self.0) }
    }

    pub(crate) fn object<'v>(&self, value: &'v Value) -> Result<&'v [(String, Value)], Problem> {
        if let Value::Obj(entries) = value {
            return Ok(entries);
        }
        let what = if self.0.is_empty() { "the body" } else { self.0 };
        let detail = format!("{what} must be an object, not {}", value.kind());
        let problem = Problem::new(Code::BadValue, detail);
        Err(if self.0.is_empty() { problem } else { problem.field(self.0) })
    }

    pub(super) fn field<T>(
        &self,
        key: &str,
        value: &Value,
        read: impl Fn(&Value) -> Result<T, Wrong>,
    ) -> Result<Field<T>, Problem> {
        if *value == Value::Null {
            return Ok(Field::Default);
        }
        read(value).map(Field::Given).map_err(|wrong| self.bad(key, &wrong))
    }

    pub(crate) fn bad(&self, key: &str, wrong: &dyn std::fmt::Display) -> Problem {
        let path = self.path(short(key));
        Problem::new(Code::BadValue, format!("\"{path}\" {wrong}")).field(path)
    }

    pub(crate) fn unknown(&self, key: &str) -> Problem {
        let path = self.path(short(key));
        Problem::new(Code::UnknownField, format!("unknown field \"{path}\"")).field(path)
    }
}
