//! The body of a batch: changes of any number of upstreams and hosts, done together or not at all.
//!
//! ```text
//! {"if_revision":811,"changes":[
//!   {"op":"down","upstream":"app","server":"10.0.0.1:8080","ttl":"15m"},
//!   {"op":"drain","host":"10.0.0.2"},
//!   {"op":"patch","upstream":"app","server":"id:7","body":{"weight":5}},
//!   {"op":"put","upstream":"b","body":{"servers":[]}},
//!   {"op":"delete","upstream":"c","force":true}]}
//! ```

use crate::api::error::{Code, Problem};
use crate::api::model::{self, At, Form, Wrong};
use crate::api::route::{self, WriteMode};
use crate::body::VerbOpts;
use crate::change::Change;
use crate::host::HostVerb;
use crate::json::{self, Value};
use crate::name::UpstreamName;
use crate::server::AdminState;
use crate::upstream::ServerSel;

/// Changes of a batch at most.
pub const MAX: usize = 10_000;

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Of an upstream.
    Upstream {
        /// Which.
        name: UpstreamName,
        /// What.
        change: Change,
    },
    /// Of a host.
    Host(HostVerb),
}

/// A batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The latest revision that the upstreams it touches may have.
    pub if_revision: Option<u64>,
    /// What it does, in order.
    pub ops: Vec<Op>,
}

impl Batch {
    /// Refuses the batch for a variable that nobody knows, as [`model::check_variables`].
    pub fn check_variables(&self, known: &dyn Fn(&str) -> bool) -> Result<(), Problem> {
        for (i, op) in self.ops.iter().enumerate() {
            if let Op::Upstream { change, .. } = op {
                model::check_variables(change, known)
                    .map_err(|problem| problem.within("body").within(&format!("changes[{i}]")))?;
            }
        }
        Ok(())
    }
}

/// Reads a body.
pub fn batch(body: &[u8], mode: WriteMode) -> Result<Batch, Problem> {
    let body = json::parse(body)?;
    let at = At("");
    let mut batch = Batch::default();
    let mut changes = None;
    for (key, value) in at.object(&body)? {
        match key.as_str() {
            "if_revision" => batch.if_revision = revision(&at, key, value)?,
            "changes" => changes = Some(value),
            _ => return Err(at.unknown(key)),
        }
    }
    let changes = match changes {
        Some(Value::Arr(changes)) => changes,
        Some(value) => return Err(at.bad("changes", &Wrong::kind("an array", value))),
        None => return Err(at.bad("changes", &Wrong("is missing".to_owned()))),
    };
    if changes.len() > MAX {
        return Err(at.bad("changes", &Wrong(format!("may have {MAX} entries at most"))));
    }
    batch.ops.reserve(changes.len());
    for (i, change) in changes.iter().enumerate() {
        let op = op(change, mode).map_err(|problem| problem.within(&format!("changes[{i}]")))?;
        batch.ops.push(op);
    }
    Ok(batch)
}

fn revision(at: &At<'_>, key: &str, value: &Value) -> Result<Option<u64>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::Int(number) if *number >= 0 => Ok(Some(number.unsigned_abs())),
        Value::Int(_) | Value::Float(_) => {
            Err(at.bad(key, &Wrong("must be a revision".to_owned())))
        }
        value => Err(at.bad(key, &Wrong::kind("a number", value))),
    }
}

/// What an operation has beside its kind.
#[derive(Default)]
struct Parts<'a> {
    upstream: Option<&'a str>,
    server: Option<&'a str>,
    host: Option<&'a str>,
    body: Option<&'a Value>,
    force: Option<bool>,
    /// What only verbs have.
    rest: Vec<(String, Value)>,
}

fn op(value: &Value, mode: WriteMode) -> Result<Op, Problem> {
    let at = At("");
    let mut kind = None;
    let mut parts = Parts::default();
    if !matches!(value, Value::Obj(_)) {
        let detail = format!("must be an object, not {}", value.kind());
        return Err(Problem::new(Code::BadValue, detail));
    }
    for (key, value) in at.object(value)? {
        let word = |value| model::text(value).map_err(|wrong| at.bad(key, &wrong));
        match key.as_str() {
            "op" => kind = Some(word(value)?),
            "upstream" => parts.upstream = Some(word(value)?),
            "server" => parts.server = Some(word(value)?),
            "host" => parts.host = Some(word(value)?),
            "body" => parts.body = Some(value),
            "force" => parts.force = Some(model::flag(value).map_err(|wrong| at.bad(key, &wrong))?),
            "ttl" | "close" | "reason" | "min_up" | "if_reason" | "missing" => {
                parts.rest.push((key.clone(), value.clone()));
            }
            _ => return Err(at.unknown(key)),
        }
    }
    let Some(kind) = kind else { return Err(at.bad("op", &Wrong("is missing".to_owned()))) };
    match (AdminState::parse(kind), kind) {
        (Some(verb), _) => verb_op(verb, parts),
        (None, "put" | "patch" | "delete") => write_op(kind, parts, mode),
        (None, _) => {
            let known = "is none of: up, down, drain, put, patch, delete";
            Err(at.bad("op", &Wrong(known.to_owned())))
        }
    }
}

fn verb_op(verb: AdminState, mut parts: Parts<'_>) -> Result<Op, Problem> {
    let at = At("");
    unwanted(verb.as_str(), &[("body", parts.body.is_some()), ("force", parts.force.is_some())])?;
    let missing = model::take(&mut parts.rest, "missing");
    let opts = model::verb_opts(verb, VerbOpts::default(), Some(&Value::Obj(parts.rest)))?;
    let Some(host) = parts.host else {
        unwanted("a server", &[("missing", missing.is_some())])?;
        let (name, sel) = (upstream(parts.upstream)?, selector(parts.server)?);
        return Ok(Op::Upstream { name, change: Change::Admin { sel, verb, opts } });
    };
    unwanted(
        "a host",
        &[("upstream", parts.upstream.is_some()), ("server", parts.server.is_some())],
    )?;
    let missing_ok = match &missing {
        Some(value) => model::missing(&at, value)?,
        None => false,
    };
    let opts = model::with_min_up(verb, opts);
    Ok(Op::Host(HostVerb { ip: route::address(host)?, verb, opts, missing_ok }))
}

fn write_op(kind: &str, parts: Parts<'_>, mode: WriteMode) -> Result<Op, Problem> {
    if let Some((key, _)) = parts.rest.first() {
        unwanted(kind, &[(key.as_str(), true)])?;
    }
    unwanted(kind, &[("host", parts.host.is_some())])?;
    let deletes = kind == "delete";
    let forces = deletes && parts.server.is_none();
    unwanted(
        kind,
        &[("body", deletes && parts.body.is_some()), ("force", !forces && parts.force.is_some())],
    )?;
    let name = upstream(parts.upstream)?;
    let sel = parts.server.map(|server| selector(Some(server))).transpose()?;
    let form = if kind == "put" { Form::Put } else { Form::Patch };
    let body = match parts.body {
        Some(body) => body,
        None if deletes => &Value::Null,
        None => return Err(At("").bad("body", &Wrong("is missing".to_owned()))),
    };
    let within = |problem: Problem| problem.within("body");
    let server = || model::server_body(body, form).map_err(within);
    let whole = || model::upstream_body(body, form).map_err(within);
    let change = match (kind, sel) {
        ("put", Some(sel)) => Change::PutServer { sel, body: server()? },
        ("put", None) => Change::PutUpstream { body: whole()? },
        ("patch", Some(sel)) => {
            let body = server()?;
            if mode == WriteMode::Operate && !body.is_weight_only() {
                let detail = "write=operate lets a patch change nothing but the weight";
                return Err(Problem::new(Code::NotPermitted, detail));
            }
            return Ok(Op::Upstream { name, change: Change::PatchServer { sel, body } });
        }
        ("patch", None) => Change::PatchUpstream { body: whole()? },
        (_, Some(sel)) => Change::DeleteServer { sel },
        (_, None) => Change::DeleteUpstream { force: parts.force.unwrap_or(false) },
    };
    if mode == WriteMode::Operate {
        return Err(Problem::new(Code::NotPermitted, "write=operate does not cover this"));
    }
    Ok(Op::Upstream { name, change })
}

/// Refuses the first of the fields that is there.
fn unwanted(what: &str, fields: &[(&str, bool)]) -> Result<(), Problem> {
    match fields.iter().find(|(_, there)| *there) {
        None => Ok(()),
        Some((field, _)) => {
            let detail = format!("{what} has no \"{field}\"");
            Err(Problem::new(Code::UnknownField, detail).field(*field))
        }
    }
}

fn upstream(name: Option<&str>) -> Result<UpstreamName, Problem> {
    match name {
        Some(name) => route::upstream(name),
        None => Err(At("").bad("upstream", &Wrong("is missing".to_owned()))),
    }
}

fn selector(server: Option<&str>) -> Result<ServerSel, Problem> {
    match server {
        Some(server) => route::selector(server),
        None => Err(At("").bad("server", &Wrong("is missing".to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ops: &str, mode: WriteMode) -> Result<Batch, Problem> {
        batch(format!("{{\"if_revision\":811,\"changes\":[{ops}]}}").as_bytes(), mode)
    }

    #[test]
    fn ops_are_those_of_the_calls() {
        let ops = r#"{"op":"down","upstream":"APP","server":"10.0.0.1","ttl":"15m"},
            {"op":"drain","host":"[::1]","missing":"ok"},
            {"op":"up","host":"10.0.0.2"},
            {"op":"patch","upstream":"app","server":"id:7","body":{"weight":5}},
            {"op":"put","upstream":"b","body":{"servers":[]}},
            {"op":"put","upstream":"b","server":"10.0.0.3:80","body":{}},
            {"op":"delete","upstream":"b","server":"10.0.0.3:80"},
            {"op":"delete","upstream":"b","force":true}"#;
        let Batch { if_revision, ops } = read(ops, WriteMode::On).unwrap();
        assert_eq!((if_revision, ops.len()), (Some(811), 8));
        let Op::Upstream { name, change: Change::Admin { opts, verb, .. } } = &ops[0] else {
            panic!("{:?}", ops[0])
        };
        assert_eq!((name.as_str(), *verb, opts.ttl), ("app", AdminState::Down, Some(900_000)));
        assert_eq!(opts.min_up, None);
        let Op::Host(drain) = &ops[1] else { panic!("{:?}", ops[1]) };
        assert!(drain.missing_ok && drain.opts.min_up == Some(1));
        let Op::Host(up) = &ops[2] else { panic!("{:?}", ops[2]) };
        assert!(!up.missing_ok && up.opts.min_up.is_none());
        let forced = Change::DeleteUpstream { force: true };
        assert!(matches!(&ops[7], Op::Upstream { change, .. } if *change == forced));
    }

    #[test]
    fn errors_name_the_op_and_its_field() {
        use WriteMode::{On, Operate};
        let weight = r#"{"op":"patch","upstream":"a","server":"b","body":{"weight":1}}"#;
        let table = [
            (r#"{"op":"kick"}"#, On, Code::BadValue, "op"),
            (r#"{"upstream":"a"}"#, On, Code::BadValue, "op"),
            (r#"{"op":5}"#, On, Code::BadValue, "op"),
            ("7", On, Code::BadValue, ""),
            (r#"{"op":"down","wait":"5s"}"#, On, Code::UnknownField, "wait"),
            (r#"{"op":"down","server":"a"}"#, On, Code::BadValue, "upstream"),
            (r#"{"op":"down","upstream":"a"}"#, On, Code::BadValue, "server"),
            (r#"{"op":"down","upstream":"a b","server":"c"}"#, On, Code::BadName, "upstream"),
            (r#"{"op":"down","host":"app"}"#, On, Code::BadAddress, "host"),
            (r#"{"op":"down","host":"1.1.1.1","server":"a"}"#, On, Code::UnknownField, "server"),
            (
                r#"{"op":"up","upstream":"a","server":"b","missing":"ok"}"#,
                On,
                Code::UnknownField,
                "missing",
            ),
            (
                r#"{"op":"put","upstream":"a","body":{"servers":[{"server":"b","weight":-1}]}}"#,
                On,
                Code::BadValue,
                "body.servers[0].weight",
            ),
            (r#"{"op":"put","upstream":"a"}"#, On, Code::BadValue, "body"),
            (r#"{"op":"put","upstream":"a","ttl":"1s"}"#, On, Code::UnknownField, "ttl"),
            (r#"{"op":"delete","upstream":"a","body":{}}"#, On, Code::UnknownField, "body"),
            (
                r#"{"op":"delete","upstream":"a","server":"b","force":true}"#,
                On,
                Code::UnknownField,
                "force",
            ),
            (r#"{"op":"delete","upstream":"a"}"#, Operate, Code::NotPermitted, ""),
            (r#"{"op":"put","upstream":"a","body":{}}"#, Operate, Code::NotPermitted, ""),
            (
                r#"{"op":"patch","upstream":"a","server":"b","body":{"backup":true}}"#,
                Operate,
                Code::NotPermitted,
                "",
            ),
        ];
        for (op, mode, code, field) in table {
            let problem = read(&format!("{weight},{op}"), mode).unwrap_err();
            let dot = if field.is_empty() { "" } else { "." };
            let field = format!("changes[1]{dot}{field}");
            assert_eq!((problem.code, problem.field.as_deref()), (code, Some(&*field)), "{op}");
        }
        assert!(read(weight, Operate).is_ok());
        let many = vec![weight; MAX + 1].join(",");
        assert_eq!(read(&many, On).unwrap_err().field.as_deref(), Some("changes"));
        assert!(batch(b"{}", On).is_err() && batch(b"[]", On).is_err());
    }
}
