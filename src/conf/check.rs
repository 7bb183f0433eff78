//! `peerage_check`, `peerage_outlier`: how the servers of an upstream{} are checked.

use std::borrow::Cow;
use std::fs::File;

use peerage_core::check::outlier::Outlier;
use peerage_core::check::{Check, Kind};

use super::block::{keyed, taken_over};
use super::words;
use crate::ffi::conf::{Conf, Refused};

/// `peerage_check [parameters]`.
pub(crate) fn check(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_check";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    let words = with_path(cf, &args[1..])?;
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let check = Check::parse(&words).map_err(|e| words::refused(DIRECTIVE, &e))?;
    if let Some(ca) = &check.ca {
        File::open(ca).map_err(|e| words::invalid(DIRECTIVE, &format!("ca={ca}"), e))?;
    }
    if cfg!(not(ngx_feature = "http_ssl")) && check.kind == Kind::Https {
        return Err(words::invalid(DIRECTIVE, "type=https", "this nginx has no TLS"));
    }
    if block.is_keyed() {
        return Err(keyed(DIRECTIVE, &block.upstream));
    }
    block.check.set(Box::new(check)).map_err(|_| words::duplicate(DIRECTIVE))
}

/// The words with the path of their `ca` in full.
fn with_path<'a>(cf: &Conf<'_>, words: &[&'a str]) -> Result<Vec<Cow<'a, str>>, Refused> {
    let full = |word: &&'a str| match word.strip_prefix("ca=").filter(|path| !path.is_empty()) {
        Some(path) => Ok(format!("ca={}", cf.conf_name(path)?).into()),
        None => Ok(Cow::Borrowed(*word)),
    };
    words.iter().map(full).collect()
}

/// `peerage_outlier [parameters]`.
pub(crate) fn outlier(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_outlier";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    let outlier = Outlier::parse(&args[1..]).map_err(|e| words::refused(DIRECTIVE, &e))?;
    if block.is_keyed() {
        return Err(keyed(DIRECTIVE, &block.upstream));
    }
    block.outlier.set(outlier).map_err(|_| words::duplicate(DIRECTIVE))
}
