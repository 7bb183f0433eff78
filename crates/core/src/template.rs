//! A text with variables, as `hash_key` has it: `$name` and `${name}`, nginx's way.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest text, in bytes.
pub const MAX_LEN: usize = 255;

/// A text with variables: well-formed by construction, kept as given.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(Box<str>);

/// A piece of such a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// As it stands.
    Literal(&'a str),
    /// The value of the variable of this name, written in any case.
    Variable(&'a str),
}

/// Why a text is none; the text completes `field "…" …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// No byte at all.
    #[error("must not be empty")]
    Empty,
    /// More than 255 bytes.
    #[error("must have at most {MAX_LEN} bytes")]
    TooLong,
    /// A control character.
    #[error("must not have control characters")]
    Control,
    /// A dollar that names nothing.
    #[error("has a \"$\" without the name of a variable")]
    NoName,
    /// A brace that does not end.
    #[error("has a \"${{\" without its \"}}\"")]
    Open,
}

impl Template {
    /// Takes a text over.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > MAX_LEN {
            return Err(TemplateError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(TemplateError::Control);
        }
        for part in parts(text) {
            part?;
        }
        Ok(Self(text.into()))
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of its variables, as written.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        parts(&self.0).filter_map(|part| match part {
            Ok(Part::Variable(name)) => Some(name),
            _ => None,
        })
    }
}

/// The pieces of a text, up to what is wrong with it.
pub fn parts(text: &str) -> Parts<'_> {
    Parts(text)
}

/// See [`parts`].
#[derive(Clone, Debug)]
pub struct Parts<'a>(&'a str);

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Part<'a>, TemplateError>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = std::mem::take(&mut self.0);
        let Some(rest) = text.strip_prefix('$') else {
            let (literal, rest) = text.split_at(text.find('$').unwrap_or(text.len()));
            self.0 = rest;
            return (!literal.is_empty()).then_some(Ok(Part::Literal(literal)));
        };
        let (rest, braced) = match rest.strip_prefix('{') {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let rest = match (braced, rest.strip_prefix('}')) {
            (false, _) => rest,
            (true, Some(rest)) => rest,
            (true, None) => return Some(Err(TemplateError::Open)),
        };
        if name.is_empty() {
            return Some(Err(TemplateError::NoName));
        }
        self.0 = rest;
        Some(Ok(Part::Variable(name)))
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;
    fn try_from(text: String) -> Result<Self, TemplateError> {
        Self::parse(&text)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.0.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Part<'_>> {
        parts(text).map(Result::unwrap).collect()
    }

    #[test]
    fn variables_stand_bare_or_in_braces() {
        use Part::{Literal as L, Variable as V};
        assert_eq!(read("plain"), [L("plain")]);
        assert_eq!(read("$uri"), [V("uri")]);
        assert_eq!(read("$Uri$arg_x"), [V("Uri"), V("arg_x")]);
        assert_eq!(read("a-$uri-b"), [L("a-"), V("uri"), L("-b")]);
        assert_eq!(read("${uri}b{c}"), [V("uri"), L("b{c}")]);
        assert_eq!(read("é$a.é"), [L("é"), V("a"), L(".é")]);
        let template = Template::parse("$a/${B}/$a").unwrap();
        assert_eq!(template.variables().collect::<Vec<_>>(), ["a", "B", "a"]);
    }

    #[test]
    fn what_is_no_text_with_variables_is_refused() {
        for (text, error) in [
            ("", TemplateError::Empty),
            ("$", TemplateError::NoName),
            ("a$", TemplateError::NoName),
            ("$$a", TemplateError::NoName),
            ("$ a", TemplateError::NoName),
            ("${}", TemplateError::NoName),
            ("${", TemplateError::Open),
            ("${a", TemplateError::Open),
            ("${a-b}", TemplateError::Open),
            ("a\n$b", TemplateError::Control),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text:?}");
        }
        assert!(Template::parse(&"a".repeat(255)).is_ok());
        assert_eq!(Template::parse(&"a".repeat(256)), Err(TemplateError::TooLong));
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_text_are_all_of_it(text in "[$${}a-c é]{1,12}") {
            if Template::parse(&text).is_ok() {
                let length = |part| match part {
                    Part::Literal(text) => text.len(),
                    Part::Variable(name) => name.len() + 1,
                };
                let braces = 2 * text.matches("${").count();
                let all: usize = read(&text).into_iter().map(length).sum();
                prop_assert_eq!(all + braces, text.len());
            }
        }
    }
}
