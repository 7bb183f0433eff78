//! Errors in the form that clients of NGINX Plus read.
//!
//! What has a code there has that code; what has none there has ours, written in the same way.

use serde::Serialize;

use crate::api::error::{Code as Own, Problem};
use crate::change::ChangeError;
use crate::json::JsonError;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $code:ident = $status:literal;)+) => {
        /// What went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $code,)+
            /// One of `v1/`, which NGINX Plus has no word for.
            Own(Own),
        }

        impl Code {
            /// Those of NGINX Plus.
            pub const ALL: &[Self] = &[$(Self::$code,)+];

            /// The status of the answer.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$code => $status,)+
                    Self::Own(code) => code.status(),
                }
            }

            /// The word in the answer.
            pub fn word(self) -> String {
                match self {
                    $(Self::$code => stringify!($code).to_owned(),)+
                    Self::Own(code) => camel(code.as_str()),
                }
            }
        }
    };
}

codes! {
    /// No version of the interface.
    UnknownVersion = 404;
    /// It has no such path.
    PathNotFound = 404;
    /// There is no such upstream.
    UpstreamNotFound = 404;
    /// It has no such server.
    UpstreamServerNotFound = 404;
    /// No zone of nginx has that name.
    SlabNotFound = 404;
    /// No worker has that number.
    WorkerNotFound = 404;
    /// No server zone has that name.
    ServerZoneNotFound = 404;
    /// No location zone has that name.
    LocationZoneNotFound = 404;
    /// No cache has that name.
    CacheNotFound = 404;
    /// No limit of connections has that name.
    LimitConnNotFound = 404;
    /// No limit of requests has that name.
    LimitReqNotFound = 404;
    /// No resolver has that name.
    ResolverZoneNotFound = 404;
    /// An id that is no number.
    UpstreamBadServerId = 400;
    /// A block without `peerage`.
    UpstreamStatic = 400;
    /// A field that is unknown, missing, twice, or of the wrong kind.
    UpstreamConfFormatError = 400;
    /// A name where no `resolver` stands in http{}.
    UpstreamConfNoResolver = 400;
    /// Something of a server that cannot be changed.
    UpstreamServerImmutable = 400;
    /// An address out of the rules.
    UpstreamBadAddress = 400;
    /// A weight out of its range.
    UpstreamBadWeight = 400;
    /// A limit of connections out of its range.
    UpstreamBadMaxConns = 400;
    /// A limit of failures out of its range.
    UpstreamBadMaxFails = 400;
    /// No time.
    UpstreamBadFailTimeout = 400;
    /// No time, or too long a one.
    UpstreamBadSlowStart = 400;
    /// A route that is too long.
    UpstreamBadRoute = 400;
    /// The path has no such method here.
    MethodDisabled = 405;
    /// The address is in the upstream already.
    EntryExists = 409;
    /// The body is no JSON.
    JsonError = 415;
    /// The zone has no room: nothing changed.
    UpstreamOutOfMemory = 500;
}

/// `not-writer` as `NotWriter`.
fn camel(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    let mut upper = true;
    for c in text.chars() {
        match c {
            '-' => upper = true,
            c if upper => {
                word.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => word.push(c),
        }
    }
    word
}

/// An error as it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub code: Code,
    /// What exactly, for people.
    pub text: String,
    /// The `Allow` header of a 405.
    pub allow: Option<&'static str>,
    /// Seconds for `Retry-After`, where trying again helps.
    pub retry_after: Option<u32>,
}

impl Fault {
    /// An error with its text.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), allow: None, retry_after: None }
    }

    /// A 405 that names what is allowed.
    pub fn disabled(allow: &'static str) -> Self {
        Self { allow: Some(allow), ..Self::new(Code::MethodDisabled, "method disabled") }
    }

    /// There is no such upstream.
    pub fn no_upstream() -> Self {
        Self::new(Code::UpstreamNotFound, "upstream not found")
    }

    /// The upstream has no server with that id.
    pub fn no_server(id: u64) -> Self {
        let text = format!("server with ID \"{id}\" does not exist");
        Self::new(Code::UpstreamServerNotFound, text)
    }

    /// The status of the answer.
    pub fn status(&self) -> u16 {
        self.code.status()
    }

    /// The body; `id` is nginx's number of the request.
    pub fn to_bytes(&self, id: &str) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Error<'a>,
            request_id: &'a str,
            href: &'a str,
        }
        #[derive(Serialize)]
        struct Error<'a> {
            status: u16,
            text: &'a str,
            code: String,
        }
        let error = Error { status: self.status(), text: &self.text, code: self.code.word() };
        let mut out = Vec::with_capacity(200);
        // A vector takes everything, and these types can always be written.
        let _ = serde_json::to_writer(&mut out, &Body { error, request_id: id, href: HREF });
        out
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        let code = match problem.code {
            Own::PathNotFound | Own::BadPath => Code::PathNotFound,
            Own::UpstreamNotFound => return Self::no_upstream(),
            Own::ServerNotFound => Code::UpstreamServerNotFound,
            Own::MethodNotAllowed => return Self::disabled(problem.allow.unwrap_or_default()),
            Own::DuplicateServer | Own::Exists => Code::EntryExists,
            Own::NameNotSupported => Code::UpstreamConfNoResolver,
            Own::OwnedBySource => Code::UpstreamServerImmutable,
            Own::NoRoom => Code::UpstreamOutOfMemory,
            code => Code::Own(code),
        };
        let retry_after = problem.retry_after();
        Self { code, text: problem.detail, allow: None, retry_after }
    }
}

impl From<ChangeError> for Fault {
    fn from(error: ChangeError) -> Self {
        Problem::from(error).into()
    }
}

impl From<JsonError> for Fault {
    fn from(error: JsonError) -> Self {
        match &error.key {
            Some(key) => {
                let text = format!("duplicate parameter \"{}\"", super::body::short(key));
                Self::new(Code::UpstreamConfFormatError, text)
            }
            None => Self::new(Code::JsonError, format!("json error: {error}")),
        }
    }
}

/// Where the interface is described.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_members_of_the_interface_in_order() {
        let fault = Fault::no_upstream();
        let text = r#"{"error":{"status":404,"text":"upstream not found","code":"UpstreamNotFound"},"request_id":"ab","href":"https://nginx.org/en/docs/http/ngx_http_api_module.html"}"#;
        assert_eq!(String::from_utf8(fault.to_bytes("ab")).unwrap(), text);
    }

    #[test]
    fn what_the_interface_has_no_word_for_keeps_ours() {
        let table = [
            (Own::NotWriter, "NotWriter", 503, Some(1)),
            (Own::CrossSite, "CrossSite", 403, None),
            (Own::BodyTooLarge, "BodyTooLarge", 413, None),
            (Own::NoRoom, "UpstreamOutOfMemory", 500, None),
            (Own::NameNotSupported, "UpstreamConfNoResolver", 400, None),
            (Own::MethodNotAllowed, "MethodDisabled", 405, None),
            (Own::DuplicateServer, "EntryExists", 409, None),
        ];
        for (own, word, status, retry_after) in table {
            let fault = Fault::from(Problem::new(own, "x"));
            assert_eq!(fault.code.word(), word);
            assert_eq!((fault.status(), fault.retry_after), (status, retry_after), "{word}");
        }
    }
}
