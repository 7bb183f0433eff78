//! `?fields=`: which members of an object are shown.

use serde::Serialize;

/// The members that a client asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fields {
    /// It did not say.
    #[default]
    All,
    /// These; none of them is an object with nothing in it.
    Some(Vec<String>),
}

impl Fields {
    /// Reads the value of the parameter: names between commas.
    pub fn parse(text: &str) -> Self {
        Self::Some(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Whether a member is shown.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.iter().any(|asked| asked == name),
        }
    }
}

/// An object that is being written, member by member.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    fields: &'a Fields,
    first: bool,
}

impl<'a> Object<'a> {
    /// Begins it.
    pub fn open(out: &'a mut Vec<u8>, fields: &'a Fields) -> Self {
        out.push(b'{');
        Self { out, fields, first: true }
    }

    /// Writes a member, if it is asked for.
    pub fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        if self.key(name) {
            // A vector takes everything, and no type here refuses to be written.
            let _ = serde_json::to_writer(&mut *self.out, value);
        }
    }

    /// The same of what may not be there.
    pub fn some<T: Serialize>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.member(name, &value);
        }
    }

    /// Ends it.
    pub fn close(self) {
        self.out.push(b'}');
    }

    fn key(&mut self, name: &str) -> bool {
        let shown = self.fields.has(name);
        if shown {
            key(self.out, name, self.first);
            self.first = false;
        }
        shown
    }
}

/// The key of an entry, with its comma where it is not the first.
pub fn key(out: &mut Vec<u8>, name: &str, first: bool) {
    if !first {
        out.push(b',');
    }
    // As in `member`.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_shown() {
        let table = [
            (Fields::All, r#"{"a":1,"b":"x"}"#),
            (Fields::parse("b"), r#"{"b":"x"}"#),
            (Fields::parse("b,a,c,"), r#"{"a":1,"b":"x"}"#),
            (Fields::parse(""), "{}"),
            (Fields::parse("A, b"), "{}"),
        ];
        for (fields, text) in table {
            let mut out = Vec::new();
            let mut object = Object::open(&mut out, &fields);
            object.member("a", &1);
            object.some("b", Some("x"));
            object.some("c", None::<u32>);
            object.close();
            assert_eq!(String::from_utf8(out).unwrap(), text, "{fields:?}");
        }
    }
}
