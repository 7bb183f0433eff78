//! The state file of a store: what was cached of it, a line of JSON for each tenant and app.
//!
//! ```text
//! {"peerage_store":1,"db":0,"tenant_prefix":"tenant:","app_prefix":"app:"}
//! {"tenant":"acme","app":"orders-v2","status":"active","at":1795986307000}
//! {"app":"orders-v2","servers":"10.0.0.1:8080,10.0.0.2:8080","at":1795986307000}
//! ```
//!
//! Each line stands by itself and is checked as what a store replies is: it may be missing, and
//! none can be wrong. So the file needs no checksum and no end; what does not read well is left
//! out and counted. Unknown fields are ignored, for later versions of the same format. The first line
//! says what keys mean: the file of another database is not that of this one.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::redis::RedisConf;
use super::{Status, app, key};
use crate::name::UpstreamName;

/// The format that is written, and the latest that is read.
pub const FORMAT: u32 = 1;

/// The longest line that is looked at: a value of 8 KiB with each byte escaped.
const MAX_LINE: usize = 64 << 10;

/// What is known of a tenant or an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved<'a> {
    /// A tenant.
    Tenant {
        /// Its key.
        key: Cow<'a, str>,
        /// The name of its app, as the store writes it.
        app: Option<Cow<'a, str>>,
        /// Its status.
        status: Status,
        /// When the store said so, ms.
        at: u64,
    },
    /// An app.
    App {
        /// Its name, as the store writes it.
        name: Cow<'a, str>,
        /// Its value, as the store has it.
        value: Cow<'a, str>,
        /// When the store said so, ms.
        at: u64,
    },
}

impl Saved<'_> {
    /// When the store said so, ms.
    pub const fn at(&self) -> u64 {
        match self {
            Self::Tenant { at, .. } | Self::App { at, .. } => *at,
        }
    }

    /// The same by another clock, so many ms ahead of this one.
    #[must_use]
    pub const fn shifted(mut self, ms: i64) -> Self {
        match &mut self {
            Self::Tenant { at, .. } | Self::App { at, .. } => *at = at.saturating_add_signed(ms),
        }
        self
    }

    /// Whether a store may say so.
    fn is_good(&self) -> bool {
        let is_name = |name: &str| UpstreamName::parse(name).is_ok();
        match self {
            Self::Tenant { key, app, status, .. } => {
                key::is_key(key.as_bytes())
                    && app.as_deref().map_or(*status != Status::Active, is_name)
            }
            Self::App { name, value, .. } => is_name(name) && app::parse(value.as_bytes()).is_ok(),
        }
    }
}

/// Begins a file of such a store.
pub fn begin(out: &mut Vec<u8>, conf: &RedisConf) {
    push(out, &Head { peerage_store: FORMAT, of: Some(Meaning::of(conf)) });
}

/// Appends a line; its time is unix ms.
pub fn line(out: &mut Vec<u8>, saved: &Saved<'_>) {
    let text = |text: &'_ Cow<'_, str>| Some(Cow::Owned(String::from(&**text)));
    let at = saved.at();
    let line = match saved {
        Saved::Tenant { key, app, status, .. } => Line {
            tenant: text(key),
            app: app.as_ref().and_then(text),
            status: Some(Cow::Borrowed(status.as_str())),
            servers: None,
            at,
        },
        Saved::App { name, value, .. } => {
            Line { tenant: None, app: text(name), status: None, servers: text(value), at }
        }
    };
    push(out, &line);
}

/// Reads a file, some lines at a time.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The next line is the first one.
    first: bool,
    of: Meaning<'a>,
    skipped: usize,
    foreign: bool,
}

impl<'a> Reader<'a> {
    /// Of a file's bytes, for such a store.
    pub fn new(bytes: &'a [u8], conf: &'a RedisConf) -> Self {
        Self { rest: bytes, first: true, of: Meaning::of(conf), skipped: 0, foreign: false }
    }

    /// Whether the file is of another database, or of other keys; then nothing of it is read.
    pub const fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Lines that were left out so far. A file of a later format has but one.
    pub const fn skipped(&self) -> usize {
        self.skipped
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == b'\n');
        let (line, rest) = self.rest.split_at(end.map_or(self.rest.len(), |end| end + 1));
        self.rest = rest;
        Some(line)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Saved<'a>;

    /// The next line that reads well; times are unix ms.
    fn next(&mut self) -> Option<Saved<'a>> {
        loop {
            let line = self.line()?;
            if std::mem::take(&mut self.first)
                && let Ok(head) = serde_json::from_slice::<Head<'_>>(line)
            {
                self.skipped += usize::from(head.peerage_store > FORMAT);
                self.foreign = head.of.is_some_and(|of| of != self.of);
                if head.peerage_store > FORMAT || self.foreign {
                    self.rest = &[];
                }
                continue;
            }
            match read(line) {
                Some(saved) => return Some(saved),
                None => self.skipped += 1,
            }
        }
    }
}

/// A line that was not cut off, and says what there can be.
fn read(line: &[u8]) -> Option<Saved<'_>> {
    if line.len() > MAX_LINE {
        return None;
    }
    let Line { tenant, app, status, servers, at } =
        serde_json::from_slice(line.strip_suffix(b"\n")?).ok()?;
    let saved = match (tenant, app, status, servers) {
        (Some(key), app, Some(status), None) => {
            Saved::Tenant { key, app, status: Status::parse(&status).ok()?, at }
        }
        (None, Some(name), None, Some(value)) => Saved::App { name, value, at },
        _ => return None,
    };
    saved.is_good().then_some(saved)
}

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    peerage_store: u32,
    #[serde(flatten, borrow)]
    of: Option<Meaning<'a>>,
}

/// What keys mean.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Meaning<'a> {
    db: u32,
    #[serde(borrow)]
    tenant_prefix: Cow<'a, str>,
    #[serde(borrow)]
    app_prefix: Cow<'a, str>,
}

impl<'a> Meaning<'a> {
    fn of(conf: &'a RedisConf) -> Self {
        Self {
            db: conf.db,
            tenant_prefix: conf.tenant_prefix.as_str().into(),
            app_prefix: conf.app_prefix.as_str().into(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tenant: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    app: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    servers: Option<Cow<'a, str>>,
    at: u64,
}

fn push(out: &mut Vec<u8>, line: &impl Serialize) {
    // A vector takes everything and no line refuses to be written.
    let _ = serde_json::to_writer(&mut *out, line);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn tenant(key: &str, app: Option<&str>, status: &str, at: u64) -> Saved<'static> {
        let app = app.map(|app| app.to_owned().into());
        Saved::Tenant {
            key: key.to_owned().into(),
            app,
            status: Status::parse(status).unwrap(),
            at,
        }
    }

    fn app(name: &str, value: &str, at: u64) -> Saved<'static> {
        Saved::App { name: name.to_owned().into(), value: value.to_owned().into(), at }
    }

    fn all() -> Vec<Saved<'static>> {
        vec![
            tenant("acme", Some("Orders-v2"), "active", 1_795_986_307_000),
            tenant("é \"x\" \\", Some("b"), "trial-ended", 0),
            tenant("gone", None, "suspended", u64::MAX),
            app("Orders-v2", "10.0.0.1:8080, a.test", 7),
        ]
    }

    static CONF: LazyLock<RedisConf> = LazyLock::new(RedisConf::default);

    fn reading(bytes: &[u8]) -> Reader<'_> {
        Reader::new(bytes, &CONF)
    }

    fn file() -> Vec<u8> {
        let mut out = Vec::new();
        begin(&mut out, &RedisConf::default());
        all().iter().for_each(|saved| line(&mut out, saved));
        out
    }

    #[test]
    fn the_file_of_another_database_is_not_read() {
        let file = file();
        let mut others = [RedisConf::default(), RedisConf::default(), RedisConf::default()];
        others[0].db = 1;
        others[1].tenant_prefix = "t:".to_owned();
        others[2].app_prefix = String::new();
        for other in &others {
            let mut reader = Reader::new(&file, other);
            assert_eq!((reader.next(), reader.is_foreign(), reader.skipped()), (None, true, 0));
        }
        let mut old =
            reading(b"{\"peerage_store\":1}\n{\"app\":\"a\",\"servers\":\"b\",\"at\":1}\n");
        assert!(old.next().is_some() && !old.is_foreign(), "which said nothing of it");
    }

    #[test]
    fn what_is_written_reads_back() {
        let file = file();
        assert!(file.starts_with(
            b"{\"peerage_store\":1,\"db\":0,\"tenant_prefix\":\"tenant:\",\"app_prefix\":\"app:\"}\n\
              {\"tenant\":\"acme\",\"app\":\"Orders-v2\",\
              \"status\":\"active\",\"at\":1795986307000}\n"
        ));
        let mut reader = reading(&file);
        assert_eq!(reader.by_ref().collect::<Vec<_>>(), all());
        assert_eq!(reader.skipped(), 0);
        assert_eq!(app("a", "b", 7).shifted(3).at(), 10);
        assert_eq!(app("a", "b", 7).shifted(-9).at(), 0);
    }

    #[test]
    fn a_file_that_is_cut_anywhere_loses_what_is_cut() {
        let file = file();
        let head = file.iter().position(|&b| b == b'\n').unwrap();
        for end in 0..file.len() {
            let mut reader = reading(&file[..end]);
            let lines = file[..end].iter().filter(|&&b| b == b'\n').count();
            let got: Vec<_> = reader.by_ref().collect();
            assert_eq!(got, all()[..lines.saturating_sub(1)], "{end}");
            let torn = file[..end].last().is_some_and(|&b| b != b'\n') && end != head;
            assert_eq!(reader.skipped(), usize::from(torn), "{end}");
        }
    }

    #[test]
    fn what_no_store_may_say_is_left_out_and_counted() {
        let long = "x".repeat(256);
        let bad = [
            "".to_owned(),
            "hello".to_owned(),
            "{}".to_owned(),
            r#"{"tenant":"a","app":"b","status":"active"}"#.to_owned(),
            r#"{"tenant":"a","app":"b","at":1}"#.to_owned(),
            r#"{"tenant":"a","status":"active","at":1}"#.to_owned(),
            r#"{"tenant":"","app":"b","status":"active","at":1}"#.to_owned(),
            r#"{"tenant":"a\u0000","app":"b","status":"active","at":1}"#.to_owned(),
            format!(r#"{{"tenant":"{long}","app":"b","status":"active","at":1}}"#),
            format!(r#"{{"tenant":"a","app":"{long}","status":"active","at":1}}"#),
            r#"{"tenant":"a","app":"b c","status":"active","at":1}"#.to_owned(),
            r#"{"tenant":"a","app":"b","status":"a b","at":1}"#.to_owned(),
            r#"{"tenant":"a","app":"b","status":"active","at":-1}"#.to_owned(),
            r#"{"tenant":"a","tenant":"b","app":"b","status":"active","at":1}"#.to_owned(),
            r#"{"tenant":"a","app":"b","status":"active","servers":"c","at":1}"#.to_owned(),
            r#"{"app":"a","servers":"","at":1}"#.to_owned(),
            r#"{"app":"a","servers":"10.0.0.1:0:0","at":1}"#.to_owned(),
            r#"{"app":"a b","servers":"10.0.0.1","at":1}"#.to_owned(),
            r#"{"servers":"10.0.0.1","at":1}"#.to_owned(),
            format!(r#"{{"app":"a","servers":"10.0.0.1","x":"{}","at":1}}"#, "x".repeat(MAX_LINE)),
        ];
        let mut file = file();
        let good = all().len();
        for line in &bad {
            file.extend_from_slice(line.as_bytes());
            file.push(b'\n');
        }
        file.extend_from_slice(b"\xff\n{\"app\":\"a\",\"servers\":\"b\",\"at\":1,\"new\":[1]}\n");
        let mut reader = reading(&file);
        let got: Vec<_> = reader.by_ref().collect();
        assert_eq!((got.len(), reader.skipped()), (good + 1, bad.len() + 1));
        assert_eq!(got[good], app("a", "b", 1));
        // A later format is not guessed at, a missing first line is not missed.
        let mut later =
            reading(b"{\"peerage_store\":2}\n{\"app\":\"a\",\"servers\":\"b\",\"at\":1}\n");
        assert_eq!((later.next(), later.skipped()), (None, 1));
        let mut bare = reading(b"{\"app\":\"a\",\"servers\":\"b\",\"at\":1}\n");
        assert!(bare.next().is_some() && bare.skipped() == 0);
    }
}
