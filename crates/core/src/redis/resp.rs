//! The protocol of Redis, RESP2 and RESP3, as far as a client of look-ups needs it.
//!
//! A [`Parser`] takes bytes as they come and gives values. What it keeps is bounded by the limit of
//! an answer, whatever counts and lengths the other side announces: nothing is set aside for what
//! has not come. It does not recurse. What it refuses ends the connection: no answer can be found in
//! what follows.

use thiserror::Error;

use crate::route::reply::Reply;

/// Lists in each other at most.
pub const MAX_NEST: usize = 4;
/// The longest line, in bytes: of an error, a status, a number, a count.
const MAX_LINE: usize = 4096;

/// Something that was answered, or pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text, a status, or a number by its digits.
    Text(Vec<u8>),
    /// Nothing.
    Null,
    /// An error: its line.
    Error(Vec<u8>),
    /// A list or set; a map as keys and values in turn.
    List(Vec<Self>),
    /// What nobody asked for.
    Push(Vec<Self>),
    /// Another value, which no answer to a look-up has.
    Other,
}

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RespError {
    /// Not of the protocol.
    #[error("it does not speak the protocol of Redis")]
    Malformed,
    /// More than may be taken.
    #[error("an answer is too large")]
    TooLarge,
    /// Lists in lists in lists.
    #[error("an answer has more than {MAX_NEST} lists in each other")]
    Nest,
}

impl Value {
    /// Reads it as a reply.
    pub fn with<T>(&self, read: impl FnOnce(Reply<'_>) -> T) -> T {
        match self {
            Self::Text(text) => read(Reply::Text(text)),
            Self::Null => read(Reply::Null),
            Self::Error(line) => read(Reply::Error(line)),
            Self::List(items) => {
                let texts = items.iter().map(|item| match item {
                    Self::Text(text) => Some(Some(&text[..])),
                    Self::Null => Some(None),
                    _ => None,
                });
                match texts.collect::<Option<Vec<_>>>() {
                    Some(texts) => read(Reply::List(&texts)),
                    None => read(Reply::Other),
                }
            }
            Self::Push(_) | Self::Other => read(Reply::Other),
        }
    }
}

/// Appends a command of these words.
pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend_from_slice(word);
        out.extend(b"\r\n");
    }
}

/// Reads what comes over a connection.
#[derive(Debug)]
pub struct Parser {
    bytes: Vec<u8>,
    /// What of them was read.
    at: usize,
    /// Lists that are not complete, the outermost first.
    open: Vec<Open>,
    /// Bytes of the answer that is not complete.
    taken: usize,
    limit: usize,
}

/// A list that is not complete.
#[derive(Debug)]
struct Open {
    kind: Kind,
    left: usize,
    items: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    List,
    Push,
    /// About the value that follows; nobody wants it.
    Attribute,
}

/// What begins at a place.
enum Piece {
    /// A value without others in it.
    Whole(Value),
    Begin(Kind, usize),
}

impl Parser {
    /// Takes answers of so many bytes at most.
    pub const fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), at: 0, open: Vec::new(), taken: 0, limit }
    }

    /// Takes bytes that came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a part of an answer came that is not complete.
    pub fn is_amid(&self) -> bool {
        self.taken > 0 || self.at < self.bytes.len()
    }

    /// The next value, once it is complete.
    pub fn value(&mut self) -> Result<Option<Value>, RespError> {
        loop {
            let Some((piece, len)) = self.piece()? else { return Ok(None) };
            self.at += len;
            self.taken += len;
            if self.taken > self.limit {
                return Err(RespError::TooLarge);
            }
            let value = match piece {
                Piece::Whole(value) => value,
                Piece::Begin(..) if self.open.len() == MAX_NEST => return Err(RespError::Nest),
                Piece::Begin(kind, 0) => match finished(kind, Vec::new()) {
                    Some(value) => value,
                    None => continue,
                },
                Piece::Begin(kind, left) => {
                    // A value has three bytes at least.
                    if left > (self.limit - self.taken) / 3 {
                        return Err(RespError::TooLarge);
                    }
                    self.open.push(Open { kind, left, items: Vec::new() });
                    continue;
                }
            };
            if let Some(value) = self.put(value) {
                self.taken = 0;
                return Ok(Some(value));
            }
        }
    }

    /// Puts a value where it belongs; gives the outermost one that is complete by it.
    fn put(&mut self, mut value: Value) -> Option<Value> {
        loop {
            let Some(open) = self.open.last_mut() else { return Some(value) };
            open.items.push(value);
            open.left -= 1;
            if open.left > 0 {
                return None;
            }
            let Open { kind, items, .. } = self.open.pop()?;
            value = finished(kind, items)?;
        }
    }

    /// What begins where reading stopped, and its length in bytes; `None`: not all of it came.
    fn piece(&self) -> Result<Option<(Piece, usize)>, RespError> {
        let rest = &self.bytes[self.at..];
        let Some(&first) = rest.first() else { return Ok(None) };
        let Some(end) = rest.iter().take(MAX_LINE).position(|&b| b == b'\n') else {
            return if rest.len() < MAX_LINE { Ok(None) } else { Err(RespError::Malformed) };
        };
        let line = rest[1..end.max(1)].strip_suffix(b"\r").ok_or(RespError::Malformed)?;
        let len = end + 1;
        let whole = |value| Ok(Some((Piece::Whole(value), len)));
        let begin = |kind, times: usize| match count(line)? {
            None => Ok(Some((Piece::Whole(Value::Null), len))),
            Some(n) => {
                let n = n.checked_mul(times).ok_or(RespError::TooLarge)?;
                Ok(Some((Piece::Begin(kind, n), len)))
            }
        };
        match first {
            b'+' | b':' | b',' | b'(' => whole(Value::Text(line.to_vec())),
            b'-' => whole(Value::Error(line.to_vec())),
            b'_' if line.is_empty() => whole(Value::Null),
            b'#' if matches!(line, b"t" | b"f") => whole(Value::Other),
            b'*' | b'~' => begin(Kind::List, 1),
            b'%' => begin(Kind::List, 2),
            b'>' => begin(Kind::Push, 1),
            b'|' => begin(Kind::Attribute, 2),
            b'$' | b'=' | b'!' => {
                let Some(n) = count(line)? else { return whole(Value::Null) };
                if self.taken.saturating_add(len).saturating_add(n).saturating_add(2) > self.limit {
                    return Err(RespError::TooLarge);
                }
                let Some(text) = rest.get(len..len + n + 2) else { return Ok(None) };
                let text = text.strip_suffix(b"\r\n").ok_or(RespError::Malformed)?.to_vec();
                let value = if first == b'!' { Value::Error(text) } else { Value::Text(text) };
                Ok(Some((Piece::Whole(value), len + n + 2)))
            }
            _ => Err(RespError::Malformed),
        }
    }
}

fn finished(kind: Kind, items: Vec<Value>) -> Option<Value> {
    match kind {
        Kind::List => Some(Value::List(items)),
        Kind::Push => Some(Value::Push(items)),
        Kind::Attribute => None,
    }
}

/// A length or count; `None` is the -1 of what is not there.
fn count(line: &[u8]) -> Result<Option<usize>, RespError> {
    if line == b"-1" {
        return Ok(None);
    }
    if !(1..=10).contains(&line.len()) || !line.iter().all(u8::is_ascii_digit) {
        return Err(RespError::Malformed);
    }
    // At most ten digits.
    Ok(Some(line.iter().fold(0, |n, &digit| n * 10 + usize::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 64 << 10;

    fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    /// All values of what comes in pieces of so many bytes.
    fn values(bytes: &[u8], piece: usize) -> Result<Vec<Value>, RespError> {
        let (mut parser, mut all) = (Parser::new(LIMIT), Vec::new());
        for piece in bytes.chunks(piece) {
            parser.feed(piece);
            while let Some(value) = parser.value()? {
                all.push(value);
            }
        }
        Ok(all)
    }

    #[test]
    fn every_kind_of_value_is_read_however_it_comes() {
        let table: [(&str, Value); 19] = [
            ("+OK\r\n", text("OK")),
            (":-12\r\n", text("-12")),
            (",1.5\r\n", text("1.5")),
            ("(123456789012345678901234567890\r\n", text("123456789012345678901234567890")),
            ("-ERR a b\r\n", Value::Error(b"ERR a b".to_vec())),
            ("!5\r\nERR a\r\n", Value::Error(b"ERR a".to_vec())),
            ("$0\r\n\r\n", text("")),
            ("$4\r\na\r\nb\r\n", text("a\r\nb")),
            ("=6\r\ntxt:ab\r\n", text("txt:ab")),
            ("$-1\r\n", Value::Null),
            ("*-1\r\n", Value::Null),
            ("_\r\n", Value::Null),
            ("#t\r\n", Value::Other),
            ("*0\r\n", Value::List(vec![])),
            ("*2\r\n$1\r\na\r\n$-1\r\n", Value::List(vec![text("a"), Value::Null])),
            ("~1\r\n:1\r\n", Value::List(vec![text("1")])),
            (
                "%1\r\n+k\r\n*1\r\n_\r\n",
                Value::List(vec![text("k"), Value::List(vec![Value::Null])]),
            ),
            (">2\r\n+a\r\n*0\r\n", Value::Push(vec![text("a"), Value::List(vec![])])),
            ("|1\r\n+k\r\n*1\r\n+v\r\n+OK\r\n", text("OK")),
        ];
        for (bytes, value) in &table {
            let twice = format!("{bytes}{bytes}");
            for piece in 1..twice.len() {
                let all = values(twice.as_bytes(), piece);
                assert_eq!(all, Ok(vec![value.clone(), value.clone()]), "{bytes:?} by {piece}");
            }
            // Inside of a list it is the same.
            let inside = format!("*1\r\n{bytes}");
            assert_eq!(values(inside.as_bytes(), 3), Ok(vec![Value::List(vec![value.clone()])]));
        }
    }

    #[test]
    fn what_is_none_or_too_much_is_refused_before_it_came() {
        for bad in [
            "HTTP/1.1 400\r\n",
            "\n",
            "\r\n",
            "+OK\n",
            "*x\r\n",
            "*-2\r\n",
            "$\r\n",
            "$?\r\n",
            "$1\r\nabc",
            "#x\r\n",
            "_x\r\n",
            ":1\r\n?\r\n",
            "*+1\r\n",
            "$99999999999\r\n",
        ] {
            assert_eq!(values(bad.as_bytes(), 1), Err(RespError::Malformed), "{bad:?}");
        }
        let long = format!("+{}", "a".repeat(MAX_LINE));
        assert_eq!(values(long.as_bytes(), 100), Err(RespError::Malformed));
        for large in ["$65537\r\n", "$65530\r\n", "*30000\r\n", "%9999999999\r\n", ">22000\r\n"] {
            assert_eq!(values(large.as_bytes(), 1), Err(RespError::TooLarge), "{large:?}");
        }
        let many = format!("*100\r\n{}", format!("$1000\r\n{}\r\n", "a".repeat(1000)).repeat(100));
        assert_eq!(values(many.as_bytes(), 512), Err(RespError::TooLarge));
        let whole = format!("$65000\r\n{}\r\n", "a".repeat(65_000));
        assert_eq!(values(whole.repeat(5).as_bytes(), 999).map(|all| all.len()), Ok(5));
        assert!(values(b"*1\r\n*1\r\n*1\r\n*1\r\n_\r\n", 1).is_ok());
        assert_eq!(values("*1\r\n".repeat(5).as_bytes(), 1), Err(RespError::Nest));
        assert_eq!(values(b"*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n", 1), Err(RespError::Nest));
    }

    #[test]
    fn it_knows_whether_it_is_amid_an_answer() {
        let mut parser = Parser::new(LIMIT);
        assert!(!parser.is_amid());
        for (bytes, amid) in [("+O", true), ("K\r\n", false), ("*1\r\n", true), ("_\r\n", false)] {
            parser.feed(bytes.as_bytes());
            parser.value().unwrap();
            assert_eq!(parser.is_amid(), amid, "{bytes:?}");
        }
    }

    #[test]
    fn a_command_is_a_list_of_texts() {
        let mut out = Vec::new();
        command(&mut out, &[b"GET", b"a\r\nb", b""]);
        assert_eq!(out, b"*3\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n");
    }

    proptest! {
        #[test]
        fn a_command_reads_back(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..9), piece in 1usize..50) {
            let mut out = Vec::new();
            command(&mut out, &words.iter().map(|word| &word[..]).collect::<Vec<_>>());
            let list = Value::List(words.into_iter().map(Value::Text).collect());
            prop_assert_eq!(values(&out, piece), Ok(vec![list]));
        }

        #[test]
        fn whatever_comes_is_read_alike_in_any_pieces(bytes in "[*$+>%|_:\\-#0-9\r\nab]{0,60}", piece in 1usize..20) {
            let (whole, some) = (values(bytes.as_bytes(), 1_000), values(bytes.as_bytes(), piece));
            prop_assert_eq!(whole.is_ok(), some.is_ok());
            if let (Ok(whole), Ok(some)) = (whole, some) {
                prop_assert_eq!(whole, some);
            }
        }
    }
}
