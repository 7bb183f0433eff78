//! The directive `peerage_service`: which servers of a Consul an upstream follows, and how far.

use crate::check::words::{each, millis};
use crate::consul::settings::MAX_TEXT;
use crate::declare::{DeclareError, number};
use crate::field::{self, FieldError};
use crate::source::MAX_NAME;
use crate::units::Millis;

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    /// One service, by its name.
    Name(String),
    /// Every service that has the tag, each in an upstream of its own.
    Tag(String),
}

/// What becomes of servers once their source names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEmpty {
    /// Those that fail go, after `empty_hold`; those that answer stay.
    #[default]
    Hold,
    /// All go, after `empty_hold`.
    Apply,
    /// All stay.
    Keep,
}

/// A service that an upstream follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// What is followed.
    pub of: Of,
    /// The name of the Consul.
    pub consul: String,
    /// The tag that instances must have.
    pub tag: Option<String>,
    /// An expression that instances must match, as Consul has them.
    pub filter: Option<String>,
    /// The node by whose distance Consul sorts.
    pub near: Option<String>,
    /// As few servers as an answer may leave without being confirmed.
    pub min_servers: u32,
    /// As many of a hundred servers as an answer may remove without being confirmed.
    pub max_removal: u8,
    /// How long an answer without servers is not believed.
    pub empty_hold: Millis,
    /// What is done then.
    pub on_empty: OnEmpty,
}

const EMPTY_HOLD: (Millis, Millis) = (Millis(0), Millis(24 * 3_600_000));
const MAX_SERVERS: u32 = super::MAX_ENTRIES as u32;
/// What parts a tag from the service in a source's name.
const TAG: &str = ",tag=";
/// The longest filter, in bytes.
const MAX_FILTER: usize = 1024;

impl OnEmpty {
    const WORDS: &'static str = "hold, apply, keep";

    /// The word of the directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Apply => "apply",
            Self::Keep => "keep",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Hold, Self::Apply, Self::Keep].into_iter().find(|word| word.as_str() == text)
    }
}

impl Service {
    /// Reads the words of the directive: what is followed and the parameters.
    pub fn parse(of: &str, words: &[&str]) -> Result<Self, DeclareError> {
        let (name, is_tag) = of.strip_prefix("tag:").map_or((of, false), |tag| (tag, true));
        field::text(name, MAX_TEXT)
            .map_err(|error| DeclareError::Value { word: of.to_owned(), error })?;
        let name = name.to_owned();
        let mut service = Self {
            of: if is_tag { Of::Tag(name) } else { Of::Name(name) },
            consul: String::new(),
            tag: None,
            filter: None,
            near: None,
            min_servers: 1,
            max_removal: 50,
            empty_hold: Millis(60_000),
            on_empty: OnEmpty::Hold,
        };
        each(words, |name, value| {
            let Some(value) = value else { return Ok(false) };
            let text = |max| field::text(value, max).map(str::to_owned);
            match name {
                "consul" => service.consul = text(MAX_TEXT)?,
                "tag" if !is_tag => service.tag = Some(text(MAX_TEXT)?),
                "filter" => service.filter = Some(text(MAX_FILTER)?),
                "near" => service.near = Some(text(MAX_TEXT)?),
                "min_servers" => {
                    let servers = u32::try_from(number(value)).ok();
                    let servers = servers.filter(|&n| n <= MAX_SERVERS);
                    service.min_servers = servers.ok_or(FieldError::Range { max: MAX_SERVERS })?;
                }
                "max_removal" => {
                    let share = value.strip_suffix('%').map(number);
                    let share = share.and_then(|n| u8::try_from(n).ok()).filter(|&n| n <= 100);
                    service.max_removal = share.ok_or(FieldError::Percent { max: 100 })?;
                }
                "empty_hold" => {
                    let (min, max) = EMPTY_HOLD;
                    service.empty_hold = Some(millis(value)?)
                        .filter(|hold| (min..=max).contains(hold))
                        .ok_or(FieldError::Span { min, max })?;
                }
                "on_empty" => {
                    service.on_empty =
                        OnEmpty::parse(value).ok_or(FieldError::Word(OnEmpty::WORDS))?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if service.consul.is_empty() {
            return Err(DeclareError::Missing("consul"));
        }
        if service.source().len() > MAX_NAME {
            let error = FieldError::TooLong { max: MAX_NAME - service.consul.len() - 1 };
            return Err(DeclareError::Value { word: of.to_owned(), error });
        }
        Ok(service)
    }

    /// The same for one service of those that have the tag: its instances that have it.
    pub fn of_service(&self, name: &str) -> Self {
        let tag = match &self.of {
            Of::Tag(tag) => Some(tag.clone()),
            Of::Name(_) => self.tag.clone(),
        };
        Self { of: Of::Name(name.to_owned()), tag, ..self.clone() }
    }

    /// Whether a service of those that have the tag can be a source: its name must be short enough.
    pub fn fits(&self, name: &str) -> bool {
        self.of_service(name).source().len() <= MAX_NAME
    }

    /// The source's name after its kind, as in `consul:dc1:web` and `consul/dc1:web`; with the tag
    /// where one is asked for, so that two upstreams may have parts of one service.
    pub fn source(&self) -> String {
        match (&self.of, &self.tag) {
            (Of::Name(name), None) => format!("{}:{name}", self.consul),
            (Of::Name(name), Some(tag)) => format!("{}:{name}{TAG}{tag}", self.consul),
            (Of::Tag(tag), _) => format!("{}:tag:{tag}", self.consul),
        }
    }
}

/// The service of a source, where it is one of those that have a tag; by the names of both sources.
pub fn service_of<'a>(tagged: &str, source: &'a str) -> Option<&'a str> {
    let (consul, tag) = tagged.split_once(":tag:")?;
    let rest = source.strip_prefix(consul)?.strip_prefix(':')?;
    rest.strip_suffix(tag)?.strip_suffix(TAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_directive_are_read() {
        let web = Service::parse("web", &["consul=dc1"]).unwrap();
        assert_eq!((&web.of, web.source().as_str()), (&Of::Name("web".into()), "dc1:web"));
        assert_eq!((web.min_servers, web.max_removal, web.empty_hold), (1, 50, Millis(60_000)));
        assert_eq!(web.on_empty, OnEmpty::Hold);
        let words = [
            "consul=dc1",
            "filter=Service.Meta.zone == \"a\"",
            "near=_agent",
            "min_servers=3",
            "max_removal=20%",
            "empty_hold=5m",
            "on_empty=keep",
        ];
        let all = Service::parse("tag:lb", &words).unwrap();
        assert_eq!((all.source().as_str(), all.max_removal), ("dc1:tag:lb", 20));
        let one = all.of_service("web");
        assert_eq!((one.source().as_str(), one.tag.as_deref()), ("dc1:web,tag=lb", Some("lb")));
        assert!(all.fits(&"a".repeat(117)) && !all.fits(&"a".repeat(118)));
        assert!(Service::parse(&"a".repeat(125), &["consul=dc1"]).is_err());
        assert_eq!(all.on_empty, OnEmpty::Keep);
        let part = Service::parse("web", &["consul=dc1", "tag=v2"]).unwrap();
        assert_eq!(part.source(), "dc1:web,tag=v2");
    }

    #[test]
    fn a_tag_is_known_by_the_names_of_its_services() {
        let all = Service::parse("tag:lb", &["consul=dc1"]).unwrap();
        assert_eq!(service_of(&all.source(), &all.of_service("web").source()), Some("web"));
        for (tagged, source) in
            [("dc1:tag:lb", "dc2:web,tag=lb"), ("dc1:tag:lb", "dc1:web"), ("dc1:web", "dc1:web")]
        {
            assert_eq!(service_of(tagged, source), None, "{tagged} {source}");
        }
    }

    #[test]
    fn a_bad_word_is_named() {
        let table = [
            ("web", vec![], "parameter \"consul\" is missing"),
            ("tag:", vec!["consul=a"], "invalid value \"tag:\": it must not be empty"),
            ("tag:lb", vec!["consul=a", "tag=b"], "invalid parameter \"tag=b\""),
            ("web", vec!["consul=a", "consul=b"], "duplicate parameter \"consul\""),
            (
                "web",
                vec!["consul=a", "max_removal=101%"],
                "invalid value \"max_removal=101%\": it must be from 0% to 100%",
            ),
            (
                "web",
                vec!["consul=a", "max_removal=5"],
                "invalid value \"max_removal=5\": it must be from 0% to 100%",
            ),
            (
                "web",
                vec!["consul=a", "min_servers=-1"],
                "invalid value \"min_servers=-1\": it must be a whole number from 0 to 10000",
            ),
            (
                "web",
                vec!["consul=a", "on_empty=drop"],
                "invalid value \"on_empty=drop\": it is none of: hold, apply, keep",
            ),
            (
                "web",
                vec!["consul=a", "empty_hold=x"],
                "invalid value \"empty_hold=x\": it is not a time like \"30s\" or \"1m30s\"",
            ),
            ("web", vec!["consul=a", "passing"], "invalid parameter \"passing\""),
        ];
        for (of, words, text) in table {
            assert_eq!(Service::parse(of, &words).unwrap_err().to_string(), text);
        }
    }
}
