//! The body of `/v1/catalog/services`: which services there are, and their tags.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::consul::MAX_BODY;
use crate::consul::answer::BodyError;
use crate::name::UpstreamName;

/// The services that have a tag, and are fit to be upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tagged {
    /// Upstreams by name, with the service as the Consul calls it: names of upstreams are in lower
    /// case. Of two that differ in nothing else, the first one counts.
    pub services: BTreeMap<UpstreamName, String>,
    /// Services whose name no upstream can have.
    pub refused: Vec<String>,
}

impl Tagged {
    /// Reads a body.
    pub fn read(body: &[u8], tag: &str) -> Result<Self, BodyError> {
        if body.len() > MAX_BODY {
            return Err(BodyError::TooLarge);
        }
        let services: BTreeMap<String, Value> =
            serde_json::from_slice(body).map_err(|error| BodyError::Other(error.to_string()))?;
        let mut tagged = Self::default();
        for (service, tags) in services {
            let has = |tags: &Vec<Value>| tags.iter().any(|one| one.as_str() == Some(tag));
            if !tags.as_array().is_some_and(has) {
                continue;
            }
            match UpstreamName::parse(&service) {
                Ok(name) if !tagged.services.contains_key(&name) => {
                    tagged.services.insert(name, service);
                }
                _ => tagged.refused.push(service),
            }
        }
        Ok(tagged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_with_the_tag_become_upstreams() {
        let body = br#"{"consul":[],"Web":["lb"],"web":["lb"],"a/b":["lb"],"db":["v1"],
            "api":["v1","lb","lb"],"odd":null,"odder":[1,"lb"]}"#;
        let tagged = Tagged::read(body, "lb").unwrap();
        let services: Vec<&str> = tagged.services.values().map(String::as_str).collect();
        assert_eq!(services, ["api", "odder", "Web"]);
        assert_eq!(tagged.refused, ["a/b", "web"]);
        assert!(Tagged::read(b"[]", "lb").is_err() && Tagged::read(b"{\"a\":", "lb").is_err());
    }
}
