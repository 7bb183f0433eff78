//! `POST {"service":"hr","peers":["10.0.1.5:8080"]}`: what balancers in scripts with a shared
//! dictionary are told.

use std::collections::HashSet;

use crate::addr::ServerAddr;
use crate::api::error::{Code, Problem};
use crate::api::model::{At, Wrong, short, text};
use crate::body::{ServerBody, UpstreamBody};
use crate::change::Change;
use crate::declare::given;
use crate::json::{self, Value};
use crate::name::UpstreamName;

/// The upstream that a body names, and what it states of it.
pub fn read(body: &[u8]) -> Result<(UpstreamName, Change), Problem> {
    let at = At("");
    let value = json::parse(body)?;
    let (mut service, mut servers) = (None, None);
    for (key, value) in at.object(&value)? {
        match key.as_str() {
            "service" => {
                let word = text(value).map_err(|wrong| at.bad(key, &wrong))?;
                let name = UpstreamName::parse(word).map_err(|error| {
                    let detail = format!("\"service\": \"{}\": {error}", short(word));
                    Problem::new(Code::BadName, detail).field(key)
                })?;
                service = Some(name);
            }
            "peers" => servers = Some(peers(value)?),
            _ => return Err(at.unknown(key)),
        }
    }
    let missing = |key| at.bad(key, &Wrong("is missing".to_owned()));
    let service = service.ok_or_else(|| missing("service"))?;
    let servers = servers.ok_or_else(|| missing("peers"))?;
    let body = UpstreamBody { servers: Some(servers), ..UpstreamBody::default() };
    Ok((service, Change::SetServers { body, own: None }))
}

fn peers(value: &Value) -> Result<Vec<ServerBody>, Problem> {
    let Value::Arr(items) = value else {
        return Err(At("").bad("peers", &Wrong::kind("an array", value)));
    };
    let mut seen = HashSet::with_capacity(items.len());
    let mut servers = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let field = format!("peers[{i}]");
        let word = text(item).map_err(|wrong| At("").bad(&field, &wrong))?;
        let addr = ServerAddr::parse(word).map_err(|error| {
            let detail = format!("\"{field}\": \"{}\": {error}", short(word));
            Problem::new(Code::BadAddress, detail).field(&*field)
        })?;
        if !seen.insert(addr.clone()) {
            let detail = format!("server \"{addr}\" comes twice");
            return Err(Problem::new(Code::DuplicateServer, detail).field(field));
        }
        let given = given(&addr, word);
        servers.push(ServerBody { given, addr: Some(addr), ..ServerBody::default() });
    }
    Ok(servers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_become_servers_that_say_nothing_else() {
        let (name, change) =
            read(br#"{"service":"HR","peers":["10.0.1.5:8080","10.0.1.6"]}"#).unwrap();
        assert_eq!(name.as_str(), "hr");
        let Change::SetServers { body, own: None } = change else { panic!("{change:?}") };
        let servers = body.servers.as_deref().unwrap();
        assert_eq!(servers[0].addr, ServerAddr::parse("10.0.1.5:8080").ok());
        assert_eq!(servers[1].given.as_deref(), Some("10.0.1.6"));
        let plain = ServerBody { addr: servers[0].addr.clone(), ..ServerBody::default() };
        assert_eq!(servers[0], plain);
        assert_eq!(UpstreamBody { servers: None, ..body.clone() }, UpstreamBody::default());
        assert!(read(br#"{"service":"hr","peers":[]}"#).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            (r#"{"peers":[]}"#, Code::BadValue, Some("service")),
            (r#"{"service":"hr"}"#, Code::BadValue, Some("peers")),
            (r#"{"service":"hr","peers":null}"#, Code::BadValue, Some("peers")),
            (r#"{"service":"hr","peers":"a:1"}"#, Code::BadValue, Some("peers")),
            (r#"{"service":"hr","peers":[{"server":"a:1"}]}"#, Code::BadValue, Some("peers[0]")),
            (r#"{"service":"hr","peers":["a:1","$a"]}"#, Code::BadAddress, Some("peers[1]")),
            (r#"{"service":"hr","peers":["a:80","A"]}"#, Code::DuplicateServer, Some("peers[1]")),
            (r#"{"service":"a/b","peers":[]}"#, Code::BadName, Some("service")),
            (r#"{"service":7,"peers":[]}"#, Code::BadValue, Some("service")),
            (r#"{"service":"a","service":"b","peers":[]}"#, Code::BadJson, Some("service")),
            (r#"{"service":"a","peers":[],"weight":1}"#, Code::UnknownField, Some("weight")),
            ("[]", Code::BadValue, None),
            ("server 10.0.0.1;", Code::BadJson, None),
            ("", Code::BadJson, None),
        ];
        for (body, code, field) in table {
            let problem = read(body.as_bytes()).unwrap_err();
            assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{body}");
        }
    }
}
