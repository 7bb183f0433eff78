//! `peerage_dashboard`: the page on which an operator sees and steers upstreams.
//!
//! Its files are part of the module. The browser loads them from the location and asks the API for
//! everything else, as the user who is logged in there.

use peerage_core::api::error::{Code, Problem};
use peerage_core::crc::{crc32, crc32c};

use crate::admin::answer;
use crate::ffi::conf;
use crate::ffi::output::Answer;
use crate::ffi::request::Request;
use crate::ffi::task::{self, Body, Task, Turn};

/// The page of a location.
pub(crate) struct Dashboard {
    /// Where the location is without a slash at its end, from where that is: `./dashboard/`.
    slash: String,
    files: Vec<File>,
}

/// A file of the page.
struct File {
    name: &'static str,
    content_type: &'static str,
    text: Vec<u8>,
    etag: String,
}

/// What a request asks for.
enum Asked<'a> {
    File(&'a File),
    /// The page without its slash, from which the names of its files would lead elsewhere.
    Slash,
}

impl Dashboard {
    /// The page of a location of this name, whose browsers find the API at a path.
    pub(crate) fn new(location: &str, api: &str) -> Self {
        let last = location.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let mut slash = "./".to_owned();
        for byte in last.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                slash.push(char::from(byte));
            } else {
                slash += &format!("%{byte:02X}");
            }
        }
        slash.push('/');
        let files = FILES.iter().map(|&(name, text)| File::new(name, text, api)).collect();
        Self { slash, files }
    }

    /// The file of what follows the location's name in a path.
    fn find(&self, rest: &[u8]) -> Option<&File> {
        let name = if rest.is_empty() { INDEX.as_bytes() } else { rest };
        self.files.iter().find(|file| file.name.as_bytes() == name)
    }
}

impl File {
    fn new(name: &'static str, text: &'static str, api: &str) -> Self {
        let text = if name == INDEX { text.replace(API, api) } else { text.to_owned() };
        let text = text.into_bytes();
        let content_type = match name.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        let etag = format!("\"{:08x}{:08x}\"", crc32c(&text), crc32(&text));
        Self { name, content_type, text, etag }
    }
}

/// Answers a request for the page; the value goes back to nginx.
pub(crate) fn handle(r: Request<'_>) -> isize {
    task::run(r, Body::Discard, |_, _| Box::new(Serve))
}

struct Serve;

impl Task for Serve {
    fn turn(&mut self, r: Request<'_>) -> Turn {
        Turn::Answer(answer(r).unwrap_or_else(|problem| answer::problem(&problem)))
    }
}

fn answer(r: Request<'_>) -> Result<Answer, Problem> {
    if !matches!(r.method(), b"GET" | b"HEAD") {
        return Err(Problem::not_allowed("GET, HEAD", "the page is only read"));
    }
    let none = || Problem::new(Code::PathNotFound, "the page has no such file");
    let dashboard = conf::loc(r).dashboard().ok_or_else(none)?;
    let file = match asked(dashboard, r.uri(), r.location()).ok_or_else(none)? {
        Asked::File(file) => file,
        Asked::Slash => return Ok(redirect(r, &dashboard.slash)),
    };
    let header = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
    let mut headers: Vec<_> = HEADERS.iter().map(header).collect();
    headers.push(("ETag", file.etag.clone()));
    let body = Box::new(file.text.clone());
    Ok(Answer { status: 200, content_type: file.content_type, headers, body })
}

fn asked<'a>(dashboard: &'a Dashboard, uri: &[u8], location: &[u8]) -> Option<Asked<'a>> {
    let rest = uri.strip_prefix(location)?;
    let rest = match (location.ends_with(b"/"), rest) {
        (true, rest) => rest,
        (false, []) => return Some(Asked::Slash),
        (false, rest) => rest.strip_prefix(b"/")?,
    };
    dashboard.find(rest).map(Asked::File)
}

/// Leads to the page's directory, as nginx does for one, by a reference that is true behind a proxy
/// that has the page under another path, too.
fn redirect(r: Request<'_>, slash: &str) -> Answer {
    let mut to = slash.to_owned();
    if !r.args().is_empty() && r.args().iter().all(u8::is_ascii_graphic) {
        to.push('?');
        to.push_str(&String::from_utf8_lossy(r.args()));
    }
    let headers = vec![("Location", to)];
    Answer { status: 301, content_type: "text/plain", headers, body: Box::new(Vec::new()) }
}

/// What every file is sent with. A browser asks whether it has the newest one each time, so that
/// all files of a page are of one module.
const HEADERS: [(&str, &str); 5] = [
    ("Cache-Control", "no-cache"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

const INDEX: &str = "index.html";
/// Stands for the API's path in it.
const API: &str = "{api}";

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../ui/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] = files! {
    "index.html" "style.css" "icon.svg"
    "app.js" "actions.js" "api.js" "chart.js" "dialog.js" "dom.js" "events.js" "forms.js"
    "health.js" "host.js" "list.js" "live.js" "moves.js" "overview.js" "routes.js" "sources.js" "store.js"
    "upstream.js" "weights.js" "zone.js"
};
