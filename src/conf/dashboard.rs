//! `peerage_dashboard [api=path]`.

use super::content::{self, Content};
use super::words;
use crate::dashboard::Dashboard;
use crate::ffi::conf::{Conf, Refused};

pub(super) const DIRECTIVE: &str = "peerage_dashboard";

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let location = cf.location();
    content::is_free(&location, DIRECTIVE)?;
    // The page is a directory of files, whose names follow that of the location.
    let wrong = match () {
        () if location.is_named() => Some("named"),
        () if location.is_regex() => Some("regex"),
        () if location.is_exact() => Some("exact"),
        () => None,
    };
    if let Some(kind) = wrong {
        return Err(Refused::because(format!(
            "\"{DIRECTIVE}\" directive is not allowed in the {kind} location \"{}\"",
            location.name()
        )));
    }
    let mut api = None;
    for &word in &args[1..] {
        let ("api", Some(path)) = words::pair(word) else {
            return Err(words::unknown(DIRECTIVE, word));
        };
        if !is_path(path) {
            return Err(words::invalid(DIRECTIVE, word, "not like \"/api\" or \"../api\""));
        }
        if api.replace(path).is_some() {
            return Err(words::twice(DIRECTIVE, "api"));
        }
    }
    let name = location.name();
    if name.ends_with('/') {
        location.redirect_to_slash();
    }
    let dashboard = Dashboard::new(&name, api.unwrap_or(API));
    content::serve(&location, Content::Dashboard(dashboard.into()));
    Ok(())
}

/// A path of this server, from its root or relative to the page: it is written into the page, whose
/// browser asks no other server.
fn is_path(path: &str) -> bool {
    let begins = ["/", "./", "../"].iter().any(|begin| path.starts_with(begin));
    begins
        && !path.starts_with("//")
        && path.bytes().all(|c| c.is_ascii_graphic() && !br#""'<>&?#\`"#.contains(&c))
}

/// Where the API is unless said.
const API: &str = "/api";
