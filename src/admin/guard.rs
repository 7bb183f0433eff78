//! `If-Match` and `If-None-Match` of a write.

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::{render, routes};
use peerage_core::route::Route;
use peerage_core::upstream::{ServerSel, Upstream};

/// What must hold before a write.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Entity tags, one of which must be the upstream's; `*` is any.
    tags: Option<String>,
    /// Entity tags, none of which may be the upstream's.
    other: Option<String>,
    /// It must not be there yet.
    absent: bool,
}

impl Guard {
    /// Reads the headers.
    pub(super) fn of(if_match: Option<&[u8]>, if_none_match: Option<&[u8]>) -> Self {
        let text = |tags: &[u8]| String::from_utf8_lossy(tags).trim().to_owned();
        let other = if_none_match.map(text);
        let absent = other.as_deref() == Some("*");
        Self { tags: if_match.map(text), other: other.filter(|_| !absent), absent }
    }

    /// Refuses what is asked of a write that is neither to one upstream nor to one route.
    pub(super) fn refuse(&self) -> Result<(), Problem> {
        if self.tags.is_none() && self.other.is_none() && !self.absent {
            return Ok(());
        }
        let detail = "If-Match and If-None-Match are for writes to one upstream or one route; a \
                      batch has \"if_revision\"";
        Err(Problem::new(Code::BadParameter, detail))
    }

    /// Checks against the upstream as it is; `sel` is the server that the write is about.
    pub(super) fn check(
        &self,
        now: Option<&Upstream>,
        sel: Option<&ServerSel>,
    ) -> Result<(), Problem> {
        let there = now.is_some_and(|now| sel.is_none_or(|sel| now.find(sel).is_some()));
        self.holds("upstream", there, || now.map(render::etag))
    }

    /// Checks against the route as it is.
    pub(super) fn check_route(&self, now: Option<&Route>) -> Result<(), Problem> {
        self.holds("route", now.is_some(), || now.map(routes::etag))
    }

    fn holds(
        &self,
        what: &str,
        there: bool,
        tag: impl FnOnce() -> Option<String>,
    ) -> Result<(), Problem> {
        if self.absent && there {
            return Err(Problem::new(Code::Exists, "it exists, and If-None-Match is *"));
        }
        if self.tags.is_none() && self.other.is_none() {
            return Ok(());
        }
        let tag = tag();
        let detail = match (&self.tags, &self.other) {
            (Some(tags), _) if !names(tags, tag.as_deref()) => {
                format!("the {what} is not the one that If-Match names")
            }
            (_, Some(tags)) if names(tags, tag.as_deref()) => {
                format!("the {what} is one that If-None-Match names")
            }
            _ => return Ok(()),
        };
        let problem = Problem::new(Code::Stale, detail);
        Err(match tag {
            Some(tag) => problem.with("etag", tag),
            None => problem,
        })
    }
}

/// Tells whether a list of entity tags has this one; `*` is any, and nothing has none.
fn names(tags: &str, tag: Option<&str>) -> bool {
    let Some(tag) = tag else { return false };
    let mut tags = tags.split(',').map(str::trim);
    tags.any(|asked| asked == "*" || asked.strip_prefix("W/").unwrap_or(asked) == tag)
}
