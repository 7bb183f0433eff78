//! What a Sentinel says about a master.

use std::net::{IpAddr, SocketAddr};

use super::resp::{Value, command};
use crate::route::decide::Down;
use crate::route::reply::reason;

/// Appends the question where a master is.
pub fn ask(name: &str, out: &mut Vec<u8>) {
    command(out, &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()]);
}

/// The address of the master; else why there is none, and in which words.
pub fn master(answer: &Value) -> Result<SocketAddr, (Down, String)> {
    let items = match answer {
        Value::List(items) => items,
        Value::Null => return Err((Down::MasterDown, "it knows no such master".to_owned())),
        Value::Error(line) => {
            let down = if line.starts_with(b"IDONTKNOW") { Down::MasterDown } else { reason(line) };
            return Err((down, String::from_utf8_lossy(line).into_owned()));
        }
        _ => return Err((Down::Protocol, "an answer of another kind".to_owned())),
    };
    let [Value::Text(ip), Value::Text(port)] = &items[..] else {
        return Err((Down::Protocol, "an answer of another kind".to_owned()));
    };
    let (ip, port) = (String::from_utf8_lossy(ip), String::from_utf8_lossy(port));
    match (ip.parse::<IpAddr>(), port.parse()) {
        (Ok(ip), Ok(port)) => Ok(SocketAddr::new(ip, port)),
        _ => Err((Down::Protocol, format!("\"{ip}:{port}\" is no address"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_knows_where_the_master_is_or_not() {
        let pair = |ip: &str, port: &str| {
            Value::List(vec![Value::Text(ip.into()), Value::Text(port.into())])
        };
        let found = |answer| master(&answer).map(|at| at.to_string()).map_err(|(down, _)| down);
        assert_eq!(found(pair("10.0.0.1", "6379")).as_deref(), Ok("10.0.0.1:6379"));
        assert_eq!(found(pair("::1", "6379")).as_deref(), Ok("[::1]:6379"));
        assert_eq!(found(Value::Null), Err(Down::MasterDown));
        assert_eq!(found(Value::Error(b"IDONTKNOW I have".to_vec())), Err(Down::MasterDown));
        assert_eq!(found(Value::Error(b"NOAUTH".to_vec())), Err(Down::NoAuth));
        for odd in [pair("host", "6379"), pair("10.0.0.1", "x"), Value::List(vec![]), Value::Other]
        {
            assert_eq!(found(odd), Err(Down::Protocol));
        }
    }
}
