//! The texts of an upstream that requests to it are made with.

use serde::{Deserialize, Serialize};

use crate::field::{self, FieldError};
use crate::template::Template;

/// What an upstream says of the requests to it; `None` is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texts {
    /// What `hash` hashes; by default what the block says.
    pub hash_key: Option<Template>,
    /// The value of `$peerage_host`; by default the upstream's name.
    pub host: Option<String>,
    /// The value of `$peerage_tls_name`; by default that of `$peerage_host`.
    pub tls_name: Option<String>,
}

impl Texts {
    /// Tells whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The texts that are there, by the names of their fields.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self { hash_key, host, tls_name } = self;
        let all = [
            ("hash_key", hash_key.as_ref().map(Template::as_str)),
            ("host", host.as_deref()),
            ("tls_name", tls_name.as_deref()),
        ];
        all.into_iter().filter_map(|(name, text)| Some((name, text?)))
    }

    /// Texts that come from outside, if they are within the rules.
    pub fn check(self) -> Result<Self, FieldError> {
        self.host.as_deref().map(field::host).transpose()?;
        self.tls_name.as_deref().map(field::tls_name).transpose()?;
        Ok(self)
    }
}
