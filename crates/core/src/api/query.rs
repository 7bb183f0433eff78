//! Percent-decoding and the query of a request.

use crate::api::error::{Code, Problem};

/// Decodes a segment of a path; `None` where an escape is invalid, or a byte is NUL, a control
/// character or no UTF-8.
pub fn decode_segment(raw: &[u8]) -> Option<String> {
    decode(raw, Plus::Literal)
}

/// What a plus stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Literal,
    Space,
}

fn decode(raw: &[u8], plus: Plus) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex(*rest.next()?)? << 4 | hex(*rest.next()?)?,
            b'+' if plus == Plus::Space => b' ',
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    if text.chars().any(char::is_control) { None } else { Some(text) }
}

pub(crate) fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The parameters of a query; each is taken once, what remains is unknown.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part after `?`.
    pub fn parse(raw: &[u8]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in raw.split(|&b| b == b'&').filter(|pair| !pair.is_empty()) {
            let at = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (name, value) = (&pair[..at], pair.get(at + 1..).unwrap_or_default());
            let Some(name) = decode(name, Plus::Space) else {
                return Err(Problem::new(Code::BadParameter, "the query cannot be decoded"));
            };
            let Some(value) = decode(value, Plus::Space) else {
                let detail = format!("the value of parameter \"{name}\" cannot be decoded");
                return Err(Problem::new(Code::BadParameter, detail).field(name));
            };
            if pairs.iter().any(|(seen, _)| *seen == name) {
                let detail = format!("parameter \"{name}\" comes twice");
                return Err(Problem::new(Code::BadParameter, detail).field(name));
            }
            if pairs.len() == MAX_PARAMETERS {
                return Err(Problem::new(Code::BadParameter, "too many parameters"));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Takes a parameter out.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(have, _)| have == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Refuses what nobody took.
    pub fn end(self) -> Result<(), Problem> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => {
                let detail = format!("unknown parameter \"{name}\"");
                Err(Problem::new(Code::BadParameter, detail).field(name))
            }
        }
    }
}

const MAX_PARAMETERS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_decode_one_by_one() {
        let table = [
            ("app", Some("app")),
            ("unix:%2Frun%2Fa.sock", Some("unix:/run/a.sock")),
            ("a+b", Some("a+b")),
            ("%C3%A9", Some("é")),
            ("%00", None),
            ("%0a", None),
            ("%7f", None),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%+4", None),
            ("%ff", None),
        ];
        for (raw, text) in table {
            assert_eq!(decode_segment(raw.as_bytes()).as_deref(), text, "{raw}");
        }
    }

    #[test]
    fn a_parameter_is_known_and_comes_once() {
        let mut query = Query::parse(b"reason=deploy+8%2B12&&wait=30s&flag").unwrap();
        assert_eq!(query.take("reason").as_deref(), Some("deploy 8+12"));
        assert_eq!(query.take("wait").as_deref(), Some("30s"));
        assert_eq!(query.end().unwrap_err().field.as_deref(), Some("flag"));
        assert_eq!(Query::parse(b"a=1&a=2").unwrap_err().field.as_deref(), Some("a"));
        assert!(Query::parse(b"a=%00").is_err() && Query::parse(b"%ff=1").is_err());
        assert!(Query::parse(b"").unwrap().end().is_ok());
    }
}
