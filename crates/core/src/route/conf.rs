//! The words of `peerage_route` beside the key.

use super::limiter::Rate;
use super::{Answers, StatusError};
use crate::check::words::{each, millis};
use crate::declare::DeclareError;
use crate::field::FieldError;

/// How long what is cached is used, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Fresh, where the store is not heard of by itself.
    pub valid: u64,
    /// Fresh, where the store tells what changes.
    pub valid_tracked: u64,
    /// Used while it is refreshed.
    pub stale: u64,
    /// Used while the store is away.
    pub stale_if_error: Keep,
    /// How long "no such key" is fresh.
    pub negative: u64,
}

/// How long something is kept in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is not.
    Off,
    /// For so many ms.
    For(u64),
    /// Without an end.
    Forever,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            valid: 5_000,
            valid_tracked: 300_000,
            stale: 30_000,
            stale_if_error: Keep::For(86_400_000),
            negative: 2_000,
        }
    }
}

impl Times {
    /// How long an answer is fresh, ms: up to a tenth less than it may be, by a number at random, so
    /// that what was read together is not read again together.
    pub const fn valid(&self, tracked: bool, random: u32) -> u64 {
        let most = if tracked { self.valid_tracked } else { self.valid };
        most - (most as u128 * random as u128 / (10 * (u32::MAX as u128 + 1))) as u64
    }

    /// A time, ms, for which it is fresh whatever the number: quickly computed.
    #[inline]
    pub const fn surely(&self, tracked: bool) -> u64 {
        let most = if tracked { self.valid_tracked } else { self.valid };
        most - most / 8
    }
}

/// What `peerage_route` says beside the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteConf {
    /// The store, by its name.
    pub redis: Option<String>,
    /// The zone whose routes there are; else the only one.
    pub zone: Option<String>,
    /// See [`Times`].
    pub times: Times,
    /// Look-ups of unknown keys.
    pub miss_limit: Rate,
    /// Answers by status.
    pub answers: Answers,
}

impl RouteConf {
    /// Reads the words after the key.
    pub fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let mut conf = Self::default();
        let mut of_store = None;
        each(words, |name, value| {
            let Some(value) = value else { return Ok(false) };
            let time = || Ok::<_, FieldError>(millis(value)?.0);
            match name {
                "redis" => conf.redis = Some(given(value)?),
                "zone" => conf.zone = Some(given(value)?),
                "valid" => conf.times.valid = time()?,
                "valid_tracked" => conf.times.valid_tracked = time()?,
                "stale" => conf.times.stale = time()?,
                "stale_if_error" => {
                    conf.times.stale_if_error = match value {
                        "off" => Keep::Off,
                        "forever" => Keep::Forever,
                        _ => Keep::For(time()?),
                    }
                }
                "negative" => conf.times.negative = time()?,
                "miss_limit" => conf.miss_limit = Rate::parse(value).map_err(FieldError::Time)?,
                "status" => conf.answers = Answers::parse(value).map_err(FieldError::Status)?,
                _ => return Ok(false),
            }
            if !matches!(name, "redis" | "zone" | "status") {
                of_store = Some(format!("{name}={value}"));
            }
            Ok(true)
        })?;
        match of_store {
            Some(word) if conf.redis.is_none() => {
                Err(DeclareError::Value { word, error: FieldError::NeedsRedis })
            }
            _ => Ok(conf),
        }
    }
}

pub(super) fn given(value: &str) -> Result<String, FieldError> {
    if value.is_empty() { Err(FieldError::Empty) } else { Ok(value.to_owned()) }
}

impl From<StatusError> for FieldError {
    fn from(error: StatusError) -> Self {
        Self::Status(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Status;

    #[test]
    fn words_of_a_route_are_read_over_its_defaults() {
        assert_eq!(RouteConf::parse(&[]), Ok(RouteConf::default()));
        let words = [
            "redis=routes",
            "zone=main",
            "valid=10s",
            "valid_tracked=1h",
            "stale=1m",
            "stale_if_error=forever",
            "negative=500ms",
            "miss_limit=50r/s",
            "status=moved:451",
        ];
        let conf = RouteConf::parse(&words).unwrap();
        let times = Times {
            valid: 10_000,
            valid_tracked: 3_600_000,
            stale: 60_000,
            stale_if_error: Keep::Forever,
            negative: 500,
        };
        assert_eq!((conf.redis.as_deref(), conf.zone.as_deref()), (Some("routes"), Some("main")));
        assert_eq!((conf.times, conf.miss_limit), (times, Rate::parse("50r/s").unwrap()));
        assert_eq!(conf.answers.code(&Status::parse("moved").unwrap()), 451);
        let off = RouteConf::parse(&["redis=r", "stale_if_error=off"]).unwrap();
        assert_eq!(off.times.stale_if_error, Keep::Off);
        let table = [
            ("valid", "invalid parameter \"valid\""),
            ("valid=x", "invalid value \"valid=x\": it is not a time like \"30s\" or \"1m30s\""),
            ("redis=", "invalid value \"redis=\": it must not be empty"),
            ("valid=5s", "invalid value \"valid=5s\": it needs a \"redis\""),
            ("miss_limit=5", "invalid value \"miss_limit=5\": it is not a rate like \"200r/s\""),
            (
                "status=a",
                "invalid value \"status=a\": it must be STATUS:CODE, codes from 400 to 599, with \
                 commas between, not \"a\"",
            ),
        ];
        for (word, text) in table {
            assert_eq!(RouteConf::parse(&[word]).unwrap_err().to_string(), text);
        }
        let twice = RouteConf::parse(&["zone=a", "zone=b"]).unwrap_err();
        assert_eq!(twice.to_string(), "duplicate parameter \"zone\"");
    }

    #[test]
    fn what_was_read_together_is_not_read_again_together() {
        let times = Times::default();
        assert_eq!(times.valid(false, 0), 5_000);
        assert_eq!(times.valid(false, u32::MAX), 4_501);
        assert_eq!(times.valid(true, u32::MAX / 2), 285_001);
        assert_eq!([times.surely(false), times.surely(true)], [4_375, 262_500]);
        for most in (0..1_000).chain([u64::from(u32::MAX), 1 << 50]) {
            let times = Times { valid: most, ..times };
            assert!(times.surely(false) <= times.valid(false, u32::MAX), "{most}");
        }
    }
}
