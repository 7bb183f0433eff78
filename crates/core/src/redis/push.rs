//! What a Redis tells by itself: keys that are not any more what they were.

use super::resp::Value;

/// What a push says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push<'a> {
    /// These keys have changed.
    Keys(Vec<&'a [u8]>),
    /// All may have.
    All,
    /// Something else.
    Other,
}

/// Whose a key is; it may be both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose<'a> {
    /// A tenant's, by the rest of the key.
    pub tenant: Option<&'a [u8]>,
    /// An app's.
    pub app: Option<&'a [u8]>,
}

/// Reads a push.
pub fn read(items: &[Value]) -> Push<'_> {
    match items {
        [Value::Text(kind), what] if kind == b"invalidate" => match what {
            Value::Null => Push::All,
            Value::List(keys) => {
                let texts = keys.iter().map(|key| match key {
                    Value::Text(key) => Some(&key[..]),
                    _ => None,
                });
                // What cannot be read may be any key.
                texts.collect::<Option<Vec<_>>>().map_or(Push::All, Push::Keys)
            }
            _ => Push::All,
        },
        _ => Push::Other,
    }
}

/// Says whose a key is.
pub fn whose<'a>(key: &'a [u8], tenant_prefix: &str, app_prefix: &str) -> Whose<'a> {
    Whose {
        tenant: key.strip_prefix(tenant_prefix.as_bytes()),
        app: key.strip_prefix(app_prefix.as_bytes()),
    }
}

/// The command that has a Redis tell what changes below two prefixes. It refuses one that begins
/// with another one.
pub fn tracking<'a>(tenant_prefix: &'a str, app_prefix: &'a str) -> Vec<&'a [u8]> {
    let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON", b"BCAST"];
    let prefixes = if tenant_prefix.starts_with(app_prefix) {
        vec![app_prefix]
    } else if app_prefix.starts_with(tenant_prefix) {
        vec![tenant_prefix]
    } else {
        vec![tenant_prefix, app_prefix]
    };
    for prefix in prefixes.into_iter().filter(|prefix| !prefix.is_empty()) {
        words.extend([b"PREFIX", prefix.as_bytes()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_or_all() {
        let text = |text: &str| Value::Text(text.into());
        let of = |what| [text("invalidate"), what];
        let keys = Value::List(vec![text("tenant:a"), text("app:b")]);
        assert_eq!(read(&of(keys)), Push::Keys(vec![b"tenant:a", b"app:b"]));
        assert_eq!(read(&of(Value::Null)), Push::All);
        assert_eq!(read(&of(Value::List(vec![Value::Other]))), Push::All);
        assert_eq!(read(&of(Value::Other)), Push::All);
        assert_eq!(read(&[text("message"), text("a")]), Push::Other);
        assert_eq!(read(&[]), Push::Other);
    }

    #[test]
    fn a_key_is_whose_prefix_it_has() {
        let found = |key, tenant, app| {
            let Whose { tenant, app } = whose(key, tenant, app);
            (tenant, app)
        };
        assert_eq!(found(b"tenant:a", "tenant:", "app:"), (Some(&b"a"[..]), None));
        assert_eq!(found(b"app:", "tenant:", "app:"), (None, Some(&b""[..])));
        assert_eq!(found(b"other", "tenant:", "app:"), (None, None));
        assert_eq!(found(b"app:x", "", "app:"), (Some(&b"app:x"[..]), Some(&b"x"[..])));
    }

    #[test]
    fn prefixes_do_not_overlap() {
        let said = |tenant, app| {
            let words = tracking(tenant, app);
            let words: Vec<_> = words[4..].iter().map(|w| str::from_utf8(w).unwrap()).collect();
            words.join(" ")
        };
        assert_eq!(said("tenant:", "app:"), "PREFIX tenant: PREFIX app:");
        assert_eq!(said("t:", "t:app:"), "PREFIX t:");
        assert_eq!(said("app:t:", "app:"), "PREFIX app:");
        assert_eq!(said("t:", "t:"), "PREFIX t:");
        assert_eq!((said("", "app:"), said("t:", "")), (String::new(), String::new()));
    }
}
