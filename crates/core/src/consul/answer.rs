//! The body of `/v1/health/service/NAME`: the instances of a service.

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;
use thiserror::Error;

use crate::addr::ServerAddr;
use crate::consul::{MAX_BODY, MAX_ENTRIES};
use crate::crc::crc32c;

/// An instance that requests can be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its node.
    pub node: String,
    /// What it is called on its node.
    pub id: String,
    /// Where it listens.
    pub addr: ServerAddr,
    /// Its weight, by the state of its checks.
    pub weight: u16,
    /// A check is critical.
    pub critical: bool,
    /// It, or its node, is in maintenance.
    pub maintenance: bool,
}

/// Entries of an answer that were left out, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// What is no instance at all.
    pub malformed: u32,
    /// No port, or none that there is.
    pub port: u32,
    /// No address that a server can have.
    pub address: u32,
    /// One that was there already: the same instance, or another at the same address.
    pub repeated: u32,
}

impl Skipped {
    /// How many in all.
    pub fn total(&self) -> u32 {
        let Self { malformed, port, address, repeated } = *self;
        malformed + port + address + repeated
    }
}

/// What an answer holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The instances, in the answer's order.
    pub instances: Vec<Instance>,
    /// What was left out.
    pub skipped: Skipped,
}

/// Why a body is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// More bytes than an answer may have.
    #[error("the body has more than {MAX_BODY} bytes")]
    TooLarge,
    /// Cut off, or something else.
    #[error("the body is not what Consul answers: {0}")]
    Other(String),
}

impl Answer {
    /// Reads a body; one bad entry is left out, a body that does not end as it should is none.
    pub fn read(body: &[u8]) -> Result<Self, BodyError> {
        if body.len() > MAX_BODY {
            return Err(BodyError::TooLarge);
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let answer = json.deserialize_seq(Entries).and_then(|answer| {
            json.end()?;
            Ok(answer)
        });
        answer.map_err(|error| BodyError::Other(error.to_string()))
    }
}

impl Instance {
    /// A number that stays as long as the node and the name on it; 0 where there is none.
    pub fn identity(&self) -> u32 {
        if self.id.is_empty() {
            return 0;
        }
        crc32c(format!("{}\0{}", self.node, self.id).as_bytes()).max(1)
    }

    fn read(entry: &Value, skipped: &mut Skipped) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (node, service) = (&entry["Node"], &entry["Service"]);
        if !service.is_object() {
            skipped.malformed += 1;
            return None;
        }
        let port = service["Port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let Some(port) = port.filter(|&port| port > 0) else {
            skipped.port += 1;
            return None;
        };
        let own = service["Address"].as_str().filter(|address| !address.is_empty());
        let host = own.or_else(|| node["Address"].as_str()).unwrap_or_default();
        let Some(addr) = address(host, port) else {
            skipped.address += 1;
            return None;
        };
        let checks = Checks::read(&entry["Checks"]);
        let weight = if checks.warning { "Warning" } else { "Passing" };
        Some(Self {
            node: text(&node["Node"]),
            id: text(&service["ID"]),
            addr,
            weight: self::weight(&service["Weights"][weight]),
            critical: checks.critical,
            maintenance: checks.maintenance,
        })
    }
}

/// An address that is an IP address or a name; one that means any is none.
fn address(host: &str, port: u16) -> Option<ServerAddr> {
    if let Ok(ip) = host.parse::<std::net::IpAddr>() {
        let addr = ServerAddr::Inet((ip, port).into());
        return (!ip.is_unspecified()).then_some(addr);
    }
    let is_name = !host.is_empty() && !host.contains([':', '/', '[', ']']);
    is_name.then(|| ServerAddr::parse(&format!("{host}:{port}")).ok()).flatten()
}

/// What Consul's own rule is where nothing is said: 1.
fn weight(value: &Value) -> u16 {
    match value.as_u64() {
        Some(weight) => u16::try_from(weight).unwrap_or(u16::MAX),
        None => 1,
    }
}

/// The states of an instance's checks, those of its node among them.
#[derive(Default)]
struct Checks {
    maintenance: bool,
    critical: bool,
    warning: bool,
}

impl Checks {
    fn read(checks: &Value) -> Self {
        let mut found = Self::default();
        for check in checks.as_array().into_iter().flatten() {
            let id = check["CheckID"].as_str().unwrap_or_default();
            // Maintenance is a check that is critical while it lasts.
            if id == "_node_maintenance" || id.starts_with("_service_maintenance:") {
                found.maintenance = true;
                continue;
            }
            match check["Status"].as_str() {
                Some("critical") => found.critical = true,
                Some("warning") => found.warning = true,
                _ => {}
            }
        }
        found
    }
}

/// Reads the entries one by one: only one of them is whole in memory.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Answer;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of instances")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Answer, A::Error> {
        let mut answer = Answer::default();
        let mut seen = std::collections::HashSet::new();
        let mut entries = 0;
        while let Some(entry) = list.next_element::<Value>()? {
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(A::Error::custom(format_args!("more than {MAX_ENTRIES} entries")));
            }
            let Some(instance) = Instance::read(&entry, &mut answer.skipped) else { continue };
            let named = !instance.id.is_empty();
            if named && !seen.insert((instance.node.clone(), instance.id.clone())) {
                answer.skipped.repeated += 1;
                continue;
            }
            answer.instances.push(instance);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(id: &str, address: &str, port: Value) -> Value {
        json!({"Node": {"Node": "n1", "Address": "10.0.0.9"},
            "Service": {"ID": id, "Address": address, "Port": port}, "Checks": []})
    }

    fn read(entries: Value) -> Answer {
        Answer::read(entries.to_string().as_bytes()).expect("an answer")
    }

    #[test]
    fn rule_7_one_bad_entry_is_left_out_and_never_the_whole() {
        let mut bare = entry("bare", "10.0.0.1", json!(80));
        bare["Service"]["Meta"] = Value::Null;
        bare["Service"]["Tags"] = json!(["a", "a", "a"]);
        bare["Service"]["Weights"] = Value::Null;
        bare["Checks"] = Value::Null;
        let answer = read(json!([
            bare,
            entry("node's", "", json!(80)),
            entry("v6", "2001:db8::1", json!(80)),
            entry("name", "App.internal", json!(80)),
            entry("none", "10.0.0.2", json!(0)),
            entry("absent", "10.0.0.2", Value::Null),
            entry("text", "10.0.0.2", json!("80")),
            entry("much", "10.0.0.2", json!(65536)),
            entry("any", "0.0.0.0", json!(80)),
            entry("path", "unix:/run/a.sock", json!(80)),
            entry("space", "a b", json!(80)),
            entry("bare", "10.0.0.3", json!(80)),
            {"Node": {"Node": "n1"}, "Checks": []},
            null,
            42,
        ]));
        let addrs: Vec<String> = answer.instances.iter().map(|i| i.addr.to_string()).collect();
        let good = ["10.0.0.1:80", "10.0.0.9:80", "[2001:db8::1]:80", "app.internal:80"];
        assert_eq!(addrs, good);
        let skipped = Skipped { malformed: 3, port: 4, address: 3, repeated: 1 };
        assert_eq!((answer.skipped, answer.skipped.total()), (skipped, 11));
        assert_eq!(answer.instances[0].weight, 1);
    }

    #[test]
    fn rule_9_checks_give_health_weight_and_maintenance() {
        let with = |checks: &[(&str, &str)]| {
            let mut entry = entry("web-1", "10.0.0.1", json!(80));
            entry["Service"]["Weights"] = json!({"Passing": 9, "Warning": 2});
            entry["Checks"] = checks
                .iter()
                .map(|(id, status)| json!({"CheckID": id, "Status": status}))
                .collect();
            let instance = &read(json!([entry])).instances[0];
            (instance.weight, instance.critical, instance.maintenance)
        };
        let table: [(&[(&str, &str)], _); 7] = [
            (&[], (9, false, false)),
            (&[("serfHealth", "passing"), ("a", "passing")], (9, false, false)),
            (&[("serfHealth", "passing"), ("a", "warning")], (2, false, false)),
            (&[("serfHealth", "critical"), ("a", "passing")], (9, true, false)),
            (&[("a", "warning"), ("b", "critical")], (2, true, false)),
            (&[("_service_maintenance:web-1", "critical"), ("a", "passing")], (9, false, true)),
            (&[("_node_maintenance", "critical"), ("a", "critical")], (9, true, true)),
        ];
        for (checks, expected) in table {
            assert_eq!(with(checks), expected, "{checks:?}");
        }
    }

    #[test]
    fn rule_5_what_is_cut_off_or_something_else_is_no_answer() {
        let whole = json!([entry("a", "10.0.0.1", json!(80))]).to_string();
        for end in 0..whole.len() {
            assert!(Answer::read(&whole.as_bytes()[..end]).is_err(), "{}", &whole[..end]);
        }
        for other in ["null", "{}", "\"\"", "[] []", "<html>", "[,]", "[NaN]", "\u{feff}[]"] {
            assert!(Answer::read(other.as_bytes()).is_err(), "{other}");
        }
        assert!(Answer::read("[".repeat(100_000).as_bytes()).is_err());
        assert_eq!(Answer::read(&vec![b' '; MAX_BODY + 1]), Err(BodyError::TooLarge));
        let many = format!("[{}0]", "0,".repeat(MAX_ENTRIES));
        assert!(Answer::read(many.as_bytes()).is_err());
        assert_eq!(Answer::read(b" [] \n"), Ok(Answer::default()));
    }

    #[test]
    fn rule_8_a_name_on_a_node_is_an_identity() {
        let one = &read(json!([entry("web-1", "10.0.0.1", json!(80))])).instances[0];
        let moved = &read(json!([entry("web-1", "10.0.0.2", json!(81))])).instances[0];
        let other = &read(json!([entry("web-2", "10.0.0.1", json!(80))])).instances[0];
        let none = &read(json!([entry("", "10.0.0.1", json!(80))])).instances[0];
        assert_eq!(one.identity(), moved.identity());
        assert_ne!(one.identity(), other.identity());
        assert_eq!(none.identity(), 0);
        // Without a name nobody is the same as anybody.
        let two = read(json!([entry("", "10.0.0.1", json!(80)), entry("", "10.0.0.2", json!(80))]));
        assert_eq!(two.instances.len(), 2);
    }
}
