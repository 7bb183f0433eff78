//! `If-Match` and `If-None-Match: *` of a write.

use peerage_core::api::error::{Code, Problem};
use peerage_core::api::render;
use peerage_core::upstream::{ServerSel, Upstream};

/// What must hold before a write.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Entity tags, one of which must be the upstream's; `*` is any.
    tags: Option<String>,
    /// It must not be there yet.
    absent: bool,
}

impl Guard {
    /// Reads the headers.
    pub(super) fn of(if_match: Option<&[u8]>, if_none_match: Option<&[u8]>) -> Self {
        Self {
            tags: if_match.map(|tags| String::from_utf8_lossy(tags).into_owned()),
            absent: if_none_match.is_some_and(|tags| tags.trim_ascii() == b"*"),
        }
    }

    /// Checks against the upstream as it is; `sel` is the server that the write is about.
    pub(super) fn check(
        &self,
        now: Option<&Upstream>,
        sel: Option<&ServerSel>,
    ) -> Result<(), Problem> {
        let there = now.is_some_and(|now| sel.is_none_or(|sel| now.find(sel).is_some()));
        if self.absent && there {
            return Err(Problem::new(Code::Exists, "it exists, and If-None-Match is *"));
        }
        let Some(tags) = &self.tags else { return Ok(()) };
        let tag = now.map(render::etag);
        let fits = tags.split(',').map(str::trim).any(|asked| match &tag {
            Some(tag) => asked == "*" || asked.strip_prefix("W/").unwrap_or(asked) == tag,
            None => false,
        });
        if fits {
            return Ok(());
        }
        let problem = Problem::new(Code::Stale, "the upstream is not the one that If-Match names");
        Err(match tag {
            Some(tag) => problem.with("etag", tag),
            None => problem,
        })
    }
}
