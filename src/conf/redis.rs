//! `peerage_redis name server=address [parameters]`: stores that routes are looked up in.

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};

use peerage_core::addr::ServerAddr;
use peerage_core::redis::password;
use peerage_core::route::redis::{RedisConf, is_name};

use super::store::Store;
use super::words;
use crate::ffi::conf::{Conf, Refused};
use crate::ffi::timer;
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::tls::{Files, Trust};
use crate::net::address::Address;

const DIRECTIVE: &str = "peerage_redis";

/// A Redis of the configuration, with what was read and resolved for it.
pub(crate) struct Redis {
    pub(crate) name: String,
    /// What the directive says; paths are whole.
    pub(crate) settings: RedisConf,
    /// Where it is, in the order in which it is tried: a name may have several addresses.
    pub(crate) places: Vec<Place>,
    password: RefCell<Option<Vec<u8>>>,
    /// When the file of the password was read last by this process, monotonic ms.
    read_at: Cell<Option<u64>>,
    /// Made here, where files can be read that a worker may not.
    #[cfg(ngx_feature = "http_ssl")]
    pub(crate) trust: Option<Trust>,
}

/// One address.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: Address,
    /// As the log shows it.
    pub(crate) text: String,
    /// The name that its certificate must have.
    pub(crate) host: String,
}

impl Place {
    /// An address that was told at run time.
    pub(crate) fn at(at: SocketAddr) -> Self {
        Self { address: at.into(), text: at.to_string(), host: at.ip().to_string() }
    }
}

impl Redis {
    /// The password, as it was read last.
    pub(crate) fn password(&self) -> Option<Vec<u8>> {
        self.password.borrow().clone()
    }

    /// Reads the file of the password again, at most once a second; whether it has another one. What
    /// was read last stays where that fails.
    pub(crate) fn read_again(&self) -> Result<bool, String> {
        let now = timer::now();
        if self.read_at.get().is_some_and(|at| now - at < READ_MS) {
            return Ok(false);
        }
        self.read_at.set(Some(now));
        self.read_password()
    }

    fn read_password(&self) -> Result<bool, String> {
        let Some(path) = &self.settings.password_file else { return Ok(false) };
        // Anything else may have a process wait for whoever writes to it.
        if !fs::metadata(path).map_err(|e| format!("\"{path}\": {e}"))?.is_file() {
            return Err(format!("\"{path}\" is no regular file"));
        }
        let bytes = fs::read(path).map_err(|e| format!("\"{path}\": {e}"))?;
        let password = password::parse(&bytes).map_err(|e| format!("\"{path}\": {e}"))?;
        let last = self.password.replace(Some(password));
        Ok(last != *self.password.borrow())
    }
}

/// The directive.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    let args = cf.args()?;
    let (name, rest) = (args[1], &args[2..]);
    if !is_name(name) {
        return Err(words::invalid(DIRECTIVE, name, "not a name of a redis"));
    }
    let mut settings = RedisConf::parse(rest).map_err(|e| words::refused(DIRECTIVE, &e))?;
    let main = cf.main();
    if main.store(name).is_some() {
        return Err(Refused::because(format!("redis \"{name}\" is duplicate")));
    }
    for path in [&mut settings.password_file, &mut settings.ca].into_iter().flatten() {
        *path = cf.conf_name(path)?;
    }
    if let Some(path) = &mut settings.state {
        *path = cf.full_name(path)?;
        if let Some(whose) = main.keeps(path) {
            let text =
                format!("state file \"{path}\" of redis \"{name}\" is already used by {whose}");
            return Err(Refused::because(text));
        }
    }
    let mut places = Vec::new();
    for server in &settings.servers {
        resolve(server, &mut places)?;
    }
    #[cfg(ngx_feature = "http_ssl")]
    let trust = if settings.tls {
        let files = Files { ca: settings.ca.clone(), certificate: None };
        Some(Trust::new(&files).map_err(|e| Refused::because(e.to_string()))?)
    } else {
        None
    };
    #[cfg(not(ngx_feature = "http_ssl"))]
    if settings.tls {
        return Err(Refused::because("\"tls\" needs an nginx with TLS"));
    }
    let redis = Redis {
        name: name.to_owned(),
        settings,
        places,
        password: RefCell::default(),
        read_at: Cell::new(None),
        #[cfg(ngx_feature = "http_ssl")]
        trust,
    };
    redis.read_password().map_err(Refused::because)?;
    let store = Store::add(cf, redis)?;
    main.stores.borrow_mut().push(store);
    Ok(())
}

/// Adds the addresses of a server.
fn resolve(server: &ServerAddr, places: &mut Vec<Place>) -> Result<(), Refused> {
    let text = server.to_string();
    let refused = |cause: &str| words::invalid(DIRECTIVE, &format!("server={server}"), cause);
    if let ServerAddr::Unix(path) = server {
        let address = Address::unix(path).ok_or_else(|| refused("the path is too long"))?;
        places.push(Place { address, text, host: "localhost".to_owned() });
        return Ok(());
    }
    let host = text.rsplit_once(':').map_or(&*text, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let found = text.to_socket_addrs().map_err(|e| refused(&e.to_string()))?;
    let place = |at: SocketAddr| {
        let text = if server.is_name() { format!("{server} ({at})") } else { at.to_string() };
        Place { address: at.into(), text, host: host.clone() }
    };
    places.extend(found.map(place));
    Ok(())
}

/// Between two reads of a password.
const READ_MS: u64 = 1_000;
