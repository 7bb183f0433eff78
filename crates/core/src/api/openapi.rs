//! What the API is, as data: its paths with their methods, and the OpenAPI document that describes
//! them.
//!
//! The router takes methods from [`PATHS`] alone, so that a path that is missing here is refused
//! everywhere; the tests hold the document against the list.

/// The OpenAPI document, `GET v1/openapi.json`.
pub const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

/// The value of `Allow` where there is only reading.
pub const READ: &str = "GET, HEAD";
const WHOLE: &str = "GET, HEAD, PUT, PATCH, DELETE";

/// Every path, as the document writes it, and the value of `Allow` of its 405.
pub const PATHS: &[(&str, &str)] = &[
    ("/v1/", READ),
    ("/v1/openapi.json", READ),
    ("/v1/zones/{zone}", READ),
    ("/v1/zones/{zone}/flush", "POST"),
    ("/v1/zones/{zone}/export", READ),
    ("/v1/zones/{zone}/import", "PUT"),
    ("/v1/ready", READ),
    ("/v1/events", READ),
    ("/v1/upstreams", READ),
    ("/v1/upstreams/{upstream}", WHOLE),
    ("/v1/upstreams/{upstream}/servers/{server}", WHOLE),
    ("/v1/upstreams/{upstream}/servers/{server}/up", "POST"),
    ("/v1/upstreams/{upstream}/servers/{server}/drain", "POST"),
    ("/v1/upstreams/{upstream}/servers/{server}/down", "POST"),
    ("/v1/upstreams/{upstream}/servers/{server}/healthy", "POST"),
    ("/v1/upstreams/{upstream}/servers/{server}/unhealthy", "POST"),
    ("/v1/upstreams/{upstream}/servers/{server}/check", "GET, HEAD, POST"),
    ("/v1/servers", READ),
    ("/v1/hosts/{ip}", READ),
    ("/v1/hosts/{ip}/up", "POST"),
    ("/v1/hosts/{ip}/drain", "POST"),
    ("/v1/hosts/{ip}/down", "POST"),
    ("/v1/batch", "POST"),
    ("/v1/sources", READ),
    ("/v1/sources/consul/{source}", READ),
    ("/v1/sources/consul/{source}/apply", "POST"),
    ("/v1/sources/consul/{source}/discard", "POST"),
    ("/v1/routes", "GET, HEAD, POST"),
    ("/v1/routes/{key}", WHOLE),
];

/// The methods of a path of [`PATHS`]; none of any other.
pub fn allow(path: &str) -> &'static str {
    PATHS.iter().find(|(template, _)| *template == path).map_or("", |(_, allow)| allow)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::{Map, Value};

    use super::*;
    use crate::api::error::Code;
    use crate::state::State;
    use crate::upstream::Method;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).expect("the document is JSON")
    }

    fn object(value: &Value) -> &Map<String, Value> {
        value.as_object().unwrap_or_else(|| panic!("no object: {value}"))
    }

    fn words(value: &Value) -> BTreeSet<&str> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Every operation with its path.
    fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
        let mut operations = Vec::new();
        for (path, item) in object(&document["paths"]) {
            for (method, operation) in object(item).iter().filter(|(key, _)| *key != "parameters") {
                operations.push((path.as_str(), method.as_str(), operation));
            }
        }
        operations
    }

    /// Calls `look` with every reference.
    fn references<'a>(value: &'a Value, look: &mut impl FnMut(&'a str)) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match value.as_str() {
                        Some(to) if key == "$ref" => look(to),
                        _ => references(value, look),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, look)),
            _ => {}
        }
    }

    #[test]
    fn the_document_is_of_this_version_and_has_the_paths_of_the_router() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let mut shown: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (path, method, _) in operations(&document) {
            shown.entry(path).or_default().insert(method.to_uppercase());
        }
        let known: BTreeMap<&str, BTreeSet<String>> = PATHS
            .iter()
            .map(|(path, allow)| {
                let methods = allow.split(", ").filter(|method| *method != "HEAD");
                (*path, methods.map(str::to_owned).collect())
            })
            .collect();
        assert_eq!(shown, known, "left: docs/openapi.json, right: PATHS");
    }

    #[test]
    fn every_operation_says_what_it_takes_and_how_it_may_end() {
        let document = document();
        let mut ids = BTreeSet::new();
        for (path, method, operation) in operations(&document) {
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(!id.is_empty() && ids.insert(id), "{method} {path}: operationId \"{id}\"");
            let shared = &document["paths"][path]["parameters"];
            let mut taken = BTreeSet::new();
            let parameters = [shared, &operation["parameters"]];
            for parameter in parameters.iter().filter_map(|list| list.as_array()).flatten() {
                let to = parameter["$ref"].as_str().expect("parameters are components");
                let parameter = document.pointer(&to[1..]).expect("it is there");
                let place = (parameter["in"].as_str(), parameter["name"].as_str());
                assert!(taken.insert(place), "{method} {path}: {place:?} twice");
                if let (Some("path"), Some(name)) = place {
                    assert!(path.contains(&format!("{{{name}}}")), "{path}: {name}");
                }
            }
            let holes = path.matches('{').count();
            let filled = taken.iter().filter(|(place, _)| *place == Some("path")).count();
            assert_eq!(holes, filled, "{method} {path}");
            let statuses = object(&operation["responses"]);
            for status in ["200", "400", "500"] {
                assert!(statuses.contains_key(status), "{method} {path}: no {status}");
            }
            if method != "get" {
                for status in ["403", "405", "503"] {
                    assert!(statuses.contains_key(status), "{method} {path}: no {status}");
                }
            }
        }
    }

    #[test]
    fn the_errors_of_the_document_are_the_closed_list() {
        let document = document();
        let urn = |code: &Code| format!("urn:peerage:{}", code.as_str());
        let all: BTreeSet<String> = Code::ALL.iter().map(urn).collect();
        let shown =
            words(&document["components"]["schemas"]["Problem"]["properties"]["type"]["enum"]);
        assert_eq!(shown.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), all);

        let mut of_status: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for code in Code::ALL {
            of_status.entry(code.status().into()).or_default().insert(urn(code));
        }
        let mut shown: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        for (name, response) in object(&document["components"]["responses"]) {
            let schema = &response["content"]["application/problem+json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let own = &schema["allOf"][1]["properties"];
            let status = own["status"]["const"].as_u64().unwrap_or_else(|| panic!("{name}"));
            let types = words(&own["type"]["enum"]).into_iter().map(str::to_owned).collect();
            assert!(shown.insert(status, types).is_none(), "{status} twice");
        }
        assert_eq!(shown, of_status, "left: docs/openapi.json, right: the codes");
        for (path, method, operation) in operations(&document) {
            for (status, response) in object(&operation["responses"]) {
                let Some(to) = response["$ref"].as_str() else { continue };
                let schema = &document.pointer(&to[1..]).expect("it is there")["content"];
                let own = &schema["application/problem+json"]["schema"]["allOf"][1]["properties"];
                let said = own["status"]["const"].as_u64().map(|status| status.to_string());
                assert!(said.is_none_or(|said| said == *status), "{method} {path}: {status}");
            }
        }
    }

    #[test]
    fn words_of_the_document_are_those_of_the_code() {
        let document = document();
        let states: BTreeSet<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
        let server = &document["components"]["schemas"]["Server"]["properties"];
        assert_eq!(words(&server["state"]["enum"]), states);
        let methods: BTreeSet<&str> = Method::ALL.iter().map(|method| method.as_str()).collect();
        assert_eq!(words(&document["components"]["schemas"]["Method"]["enum"]), methods);
    }

    #[test]
    fn references_lead_somewhere_and_every_component_is_used() {
        let document = document();
        let mut used = BTreeSet::new();
        references(&document, &mut |to| {
            let found = to.strip_prefix('#').and_then(|to| document.pointer(to));
            assert!(found.is_some(), "{to} is not there");
            used.insert(to.to_owned());
        });
        for (kind, components) in object(&document["components"]) {
            for name in object(components).keys() {
                let to = format!("#/components/{kind}/{name}");
                assert!(used.contains(&to), "{to} is not used");
            }
        }
    }
}
