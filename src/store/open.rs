//! How a connection to a store begins: by its address or a Sentinel's, with TLS and login.

use peerage_core::redis::login::{Login, Step, Version};
use peerage_core::redis::sentinel;

use super::fault::Fault;
use super::wire::Wire;
use crate::conf::Redis;
use crate::conf::redis::Place;
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::tls::{Handshake, Protocol};
use crate::net::Stream;
use crate::net::error::Doing;
use crate::net::time::timeout;

/// A connection that has its login behind it.
pub(super) struct Opened {
    pub(super) wire: Wire,
    pub(super) version: Version,
    /// Where it leads, as the log shows it.
    pub(super) at: String,
}

/// Whom a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// For requests, which an exiting worker waits for.
    Requests,
    /// For the worker itself.
    Worker,
}

/// Opens one by a place of the configuration; answers have so many bytes at most. An error comes with
/// the address that it is about.
pub(super) async fn open(
    redis: &Redis,
    place: &Place,
    whom: Whom,
    limit: usize,
) -> Result<Opened, (Fault, String)> {
    let found;
    let place = match &redis.settings.sentinel {
        None => place,
        Some(name) => {
            let asked = within(redis, master(redis, place, name, whom)).await;
            found = asked.map_err(|fault| (fault, place.text.clone()))?;
            &found
        }
    };
    let at = place.text.clone();
    let opened = within(redis, async {
        let mut wire = connect(redis, place, whom, limit).await?;
        let version = login(redis, &mut wire).await?;
        Ok((wire, version))
    });
    match opened.await {
        Ok((wire, version)) => Ok(Opened { wire, version, at }),
        Err(fault) => Err((fault, at)),
    }
}

/// Does a step within the time that an answer may take.
async fn within<T>(
    redis: &Redis,
    step: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let done = timeout(redis.settings.timeout, step).await;
    done.unwrap_or_else(|| Err(Fault::timeout(Doing::Connect)))
}

async fn connect(redis: &Redis, place: &Place, whom: Whom, limit: usize) -> Result<Wire, Fault> {
    let stream = match whom {
        Whom::Requests => Stream::connect_for_requests(&place.address).await?,
        Whom::Worker => Stream::connect(&place.address).await?,
    };
    #[cfg(ngx_feature = "http_ssl")]
    let stream = match &redis.trust {
        Some(trust) => {
            let name = redis.settings.tls_name.as_deref().unwrap_or(&place.host);
            let (sni, verify) = (Some(name), Some(name));
            trust.shake(stream, Handshake { sni, verify, protocol: Protocol::Any }).await?
        }
        None => stream,
    };
    Ok(Wire::new(stream, limit))
}

async fn login(redis: &Redis, wire: &mut Wire) -> Result<Version, Fault> {
    let settings = &redis.settings;
    let password = redis.password();
    let login = Login {
        user: settings.user.as_deref(),
        password: password.as_deref(),
        db: settings.db,
        master: settings.sentinel.is_some(),
    };
    let mut version = Version::Three;
    let mut answers = login.say(version, wire.out());
    loop {
        match answers.take(&wire.next().await?) {
            Step::More => {}
            Step::Done => return Ok(version),
            Step::Older if version == Version::Three => {
                version = Version::Two;
                answers = login.say(version, wire.out());
            }
            Step::Older => return Err(peerage_core::redis::resp::RespError::Malformed.into()),
            Step::Refused(down, text) => return Err(Fault::Said(down, text)),
        }
    }
}

/// Asks a Sentinel where the master is.
async fn master(redis: &Redis, place: &Place, name: &str, whom: Whom) -> Result<Place, Fault> {
    let mut wire = connect(redis, place, whom, SENTINEL).await?;
    sentinel::ask(name, wire.out());
    let found = sentinel::master(&wire.next().await?);
    found.map(Place::at).map_err(|(down, text)| Fault::Said(down, text))
}

/// Bytes that a Sentinel's answer has at most.
const SENTINEL: usize = 4096;
