//! Directives as nginx's configuration writes them, cut into words.
//!
//! As ngx_conf_read_token: words end at white space, `;` and `{`; a word that begins with a quote
//! ends with it, and something must stand between it and the next; a backslash takes its meaning
//! from the next byte; `${` does not end a word; `#` begins a comment where a word could. Blocks
//! and control characters, which no directive of ours has, are refused.

use thiserror::Error;

/// A directive with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its words, the first being its name.
    pub words: Vec<String>,
    /// The line of its first word, from 1.
    pub line: usize,
}

/// Why a text is no list of directives.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} in line {line}")]
pub struct SyntaxError {
    /// What is wrong.
    pub what: What,
    /// In which line, from 1.
    pub line: usize,
}

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum What {
    /// It is no UTF-8.
    #[error("not UTF-8")]
    Utf8,
    /// It has a control character.
    #[error("a control character")]
    Control,
    /// It has a character where none of its kind may stand.
    #[error("unexpected \"{0}\"")]
    Unexpected(char),
    /// It ends inside a directive.
    #[error("unexpected end, expecting \";\"")]
    End,
    /// It ends inside quotes.
    #[error("missing terminating \"{0}\" character")]
    Quote(char),
}

/// Cuts a text into directives.
pub fn statements(text: &[u8]) -> Result<Vec<Statement>, SyntaxError> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return Err(at(text, error.valid_up_to(), What::Utf8)),
    };
    if let Some((i, _)) = text.char_indices().find(|&(_, c)| c.is_control() && !is_space(c)) {
        return Err(at(text.as_bytes(), i, What::Control));
    }
    let mut reader = Reader { text, at: 0, line: 1 };
    let mut statements = Vec::new();
    let mut words = Vec::new();
    let mut line = 1;
    loop {
        reader.skip();
        match reader.peek() {
            None if words.is_empty() => return Ok(statements),
            None => return Err(reader.error(What::End)),
            Some(c @ ('{' | '}')) => return Err(reader.error(What::Unexpected(c))),
            Some(c @ ';') => {
                if words.is_empty() {
                    return Err(reader.error(What::Unexpected(c)));
                }
                reader.next();
                statements.push(Statement { words: std::mem::take(&mut words), line });
            }
            Some(c) => {
                if words.is_empty() {
                    line = reader.line;
                }
                words.push(if matches!(c, '"' | '\'') {
                    reader.quoted(c)?
                } else {
                    reader.bare()?
                });
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    /// Goes over white space and comments.
    fn skip(&mut self) {
        let mut comment = false;
        while let Some(c) = self.peek() {
            comment = c != '\n' && (comment || c == '#');
            if !comment && !is_space(c) {
                return;
            }
            self.next();
        }
    }

    /// A word that ends with the quote it begins with.
    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let line = self.line;
        self.next();
        let start = self.at;
        let mut escaped = false;
        while let Some(c) = self.next() {
            if !escaped && c == quote {
                let word = unescaped(&self.text[start..self.at - 1]);
                return match self.peek() {
                    Some(c) if !is_space(c) && !matches!(c, ';' | '{' | ')') => {
                        Err(self.error(What::Unexpected(c)))
                    }
                    _ => Ok(word),
                };
            }
            escaped = !escaped && c == '\\';
        }
        Err(SyntaxError { what: What::Quote(quote), line })
    }

    /// A word without quotes.
    fn bare(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let (mut escaped, mut dollar) = (false, false);
        while let Some(c) = self.peek() {
            if escaped {
                escaped = false;
            } else if c == '{' && dollar {
                // Of a variable, as any more that follow it.
            } else if is_space(c) || matches!(c, ';' | '{') {
                return Ok(unescaped(&self.text[start..self.at]));
            } else {
                (escaped, dollar) = (c == '\\', c == '$');
            }
            self.next();
        }
        Err(self.error(What::End))
    }

    fn error(&self, what: What) -> SyntaxError {
        SyntaxError { what, line: self.line }
    }
}

/// What a word means: quotes and backslashes lose their backslash, `\t`, `\r` and `\n` are
/// characters, any other backslash stands for itself.
fn unescaped(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('\\') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let meant = match after.as_bytes().get(1) {
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'n') => '\n',
            Some(&c @ (b'"' | b'\'' | b'\\')) => char::from(c),
            _ => {
                out.push('\\');
                rest = &after[1..];
                continue;
            }
        };
        out.push(meant);
        rest = &after[2..];
    }
    out.push_str(rest);
    out
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// The error at a place of the text.
fn at(text: &[u8], place: usize, what: What) -> SyntaxError {
    SyntaxError { what, line: 1 + text[..place].iter().filter(|&&b| b == b'\n').count() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        statements(text.as_bytes()).unwrap().into_iter().map(|s| s.words).collect()
    }

    #[test]
    fn words_are_cut_as_nginx_cuts_them() {
        let table: [(&str, &[&[&str]]); 21] = [
            ("", &[]),
            (" \t\r\n# all of it; a comment {\n#", &[]),
            ("a;", &[&["a"]]),
            ("a b;c d;", &[&["a", "b"], &["c", "d"]]),
            ("server\n127.0.0.1:80\n weight=2 ;", &[&["server", "127.0.0.1:80", "weight=2"]]),
            ("a # b;\n c;", &[&["a", "c"]]),
            ("a#b;", &[&["a#b"]]),
            ("a \"b c\" 'd;e' ;", &[&["a", "b c", "d;e"]]),
            ("a 'it\\'s' \"say \\\"x\\\"\";", &[&["a", "it's", "say \"x\""]]),
            ("a \"#{}\";", &[&["a", "#{}"]]),
            ("a b\"c;", &[&["a", "b\"c"]]),
            ("a '';", &[&["a", ""]]),
            ("hash $a${b}c;", &[&["hash", "$a${b}c"]]),
            ("hash ${b;", &[&["hash", "${b"]]),
            ("hash ${{b};", &[&["hash", "${{b}"]]),
            ("a b}c;", &[&["a", "b}c"]]),
            ("a b\\ c\\;d;", &[&["a", "b\\ c\\;d"]]),
            ("a \\n\\t\\x\\\\;", &[&["a", "\n\t\\x\\"]]),
            ("a \"b\"\n;", &[&["a", "b"]]),
            ("a \"b\")c;", &[&["a", "b", ")c"]]),
            ("a é;", &[&["a", "é"]]),
        ];
        for (text, shown) in table {
            assert_eq!(words(text), shown, "{text:?}");
        }
        let lines: Vec<usize> =
            statements(b"a;\n\nb\nc; d;").unwrap().iter().map(|s| s.line).collect();
        assert_eq!(lines, [1, 3, 4]);
    }

    #[test]
    fn what_nginx_does_not_read_is_refused_with_its_line() {
        let table: [(&[u8], &str); 15] = [
            (b";", "unexpected \";\" in line 1"),
            (b"a;;", "unexpected \";\" in line 1"),
            (b"a", "unexpected end, expecting \";\" in line 1"),
            (b"a b\n", "unexpected end, expecting \";\" in line 2"),
            (b"a \"b\"", "unexpected end, expecting \";\" in line 1"),
            (b"a \"b;\n\n", "missing terminating \"\"\" character in line 1"),
            (b"a;\nb 'c\\'", "missing terminating \"'\" character in line 2"),
            (b"a \"b\"c;", "unexpected \"c\" in line 1"),
            (b"a \"b\"#;", "unexpected \"#\" in line 1"),
            (b"{", "unexpected \"{\" in line 1"),
            (b"}", "unexpected \"}\" in line 1"),
            (b"a {{ b; }}", "unexpected \"{\" in line 1"),
            (b"a;\n b }", "unexpected \"}\" in line 2"),
            (b"a\n\0;", "a control character in line 2"),
            (b"a\n\n\xff;", "not UTF-8 in line 3"),
        ];
        for (text, error) in table {
            let shown = statements(text).unwrap_err().to_string();
            assert_eq!(shown, error, "{:?}", String::from_utf8_lossy(text));
        }
    }

    /// A word in quotes; none of nginx's words has control characters but those with escapes.
    fn quoted(word: &str) -> String {
        let mut out = String::from("\"");
        for c in word.chars() {
            match c {
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                '\n' => out.push_str("\\n"),
                '"' | '\\' => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
        out + "\""
    }

    proptest! {
        #[test]
        fn written_words_read_back(
            all in prop::collection::vec(prop::collection::vec("[ -~\\t\\n\\ré]{0,9}", 1..5), 0..5),
        ) {
            let text: String = all
                .iter()
                .map(|words| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
                .map(|line| line + ";\n")
                .collect();
            prop_assert_eq!(words(&text), all);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a${}\"'\\\\;# \\n\u{0}é]{0,24}") {
            if let Ok(read) = statements(text.as_bytes()) {
                for statement in read {
                    prop_assert!(!statement.words.is_empty());
                    prop_assert!(statement.line <= 1 + text.matches('\n').count());
                }
            }
        }
    }
}
