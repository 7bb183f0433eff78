//! `peerage_consul`, `peerage_service`: registries, and the services that upstreams follow.

use std::cell::RefCell;
use std::fs;
use std::net::ToSocketAddrs;
use std::rc::Rc;

use peerage_core::consul::service::{Of, Service, service_of};
use peerage_core::consul::settings::Consul as Settings;
use peerage_core::consul::token;
use peerage_core::name::{Glob, UpstreamName};

use super::block::{Block, Name, taken_over};
use super::{Main, Zone, words};
use crate::ffi::conf::{Conf, Refused};
#[cfg(ngx_feature = "http_ssl")]
use crate::ffi::tls::{Files, Trust};
use crate::net::address::Address;

/// A Consul of the configuration, with what was read and resolved for it.
pub(crate) struct Consul {
    pub(crate) settings: Settings,
    /// Its addresses, and which of the settings' each is of: a name may have several.
    pub(crate) addresses: Vec<(usize, Address)>,
    token: RefCell<Option<String>>,
    /// Made here, where keys can be read that a worker may not.
    #[cfg(ngx_feature = "http_ssl")]
    pub(crate) trust: Option<Trust>,
}

/// A service that an upstream follows, or all that have a tag.
#[derive(Clone)]
pub(crate) struct Follow {
    pub(crate) consul: Rc<Consul>,
    pub(crate) service: Service,
    pub(crate) into: Into,
}

/// Where the servers go.
#[derive(Clone)]
pub(crate) enum Into {
    /// Into an upstream that the block names.
    Upstream(UpstreamName),
    /// Into one for each service, as far as its name fits.
    Services(Option<Glob>),
}

impl Consul {
    /// The token, as it was read last.
    pub(crate) fn token(&self) -> Option<String> {
        self.token.borrow().clone()
    }

    /// Reads the file of the token again; what was read last stays where that fails.
    pub(crate) fn read_token(&self) -> Result<(), String> {
        let Some(path) = &self.settings.token_file else { return Ok(()) };
        // Anything else may have a worker wait for whoever writes to it.
        if !fs::metadata(path).map_err(|e| format!("\"{path}\": {e}"))?.is_file() {
            return Err(format!("\"{path}\" is no regular file"));
        }
        let bytes = fs::read(path).map_err(|e| format!("\"{path}\": {e}"))?;
        let token = token::parse(&bytes).map_err(|e| format!("\"{path}\": {e}"))?;
        self.token.replace(Some(token));
        Ok(())
    }
}

/// `peerage_consul name server=url [parameters]`.
pub(crate) fn consul(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_consul";
    let args = cf.args()?;
    let mut settings =
        Settings::parse(args[1], &args[2..]).map_err(|e| words::refused(DIRECTIVE, &e))?;
    let main = cf.main();
    if main.consul(&settings.name).is_some() {
        return Err(Refused::because(format!("consul \"{}\" is duplicate", settings.name)));
    }
    let files = [&mut settings.token_file, &mut settings.ca, &mut settings.cert, &mut settings.key];
    for path in files.into_iter().flatten() {
        *path = cf.conf_name(path)?;
    }
    let mut addresses = Vec::new();
    for (i, server) in settings.servers.iter().enumerate() {
        let found = server.addr.to_string().to_socket_addrs();
        let found = found.map_err(|e| words::invalid(DIRECTIVE, &format!("server={server}"), e))?;
        addresses.extend(found.map(|at| (i, Address::from(at))));
    }
    let is_tls = settings.servers.iter().any(|server| server.tls);
    #[cfg(ngx_feature = "http_ssl")]
    let trust = if is_tls {
        let pair = settings.cert.clone().zip(settings.key.clone());
        let files = Files { ca: settings.ca.clone(), certificate: pair };
        Some(Trust::new(&files).map_err(|e| Refused::because(e.to_string()))?)
    } else {
        None
    };
    #[cfg(not(ngx_feature = "http_ssl"))]
    if is_tls {
        return Err(Refused::because("\"https\" needs an nginx with TLS"));
    }
    let consul = Rc::new(Consul {
        settings,
        addresses,
        token: RefCell::default(),
        #[cfg(ngx_feature = "http_ssl")]
        trust,
    });
    consul.read_token().map_err(Refused::because)?;
    main.consuls.borrow_mut().push(consul);
    Ok(())
}

/// `peerage_service name|tag:name consul=name [parameters]`.
pub(crate) fn service(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_service";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    let service = Service::parse(args[1], &args[2..]).map_err(|e| words::refused(DIRECTIVE, &e))?;
    match (&service.of, block.is_keyed()) {
        (Of::Name(_), false) | (Of::Tag(_), true) => {}
        (Of::Name(_), true) => {
            let why = "an upstream that requests name follows \"tag:\" alone";
            return Err(words::invalid(DIRECTIVE, args[1], why));
        }
        (Of::Tag(_), false) => {
            let why = "needs a \"name=\" with variables in \"peerage\"";
            return Err(words::invalid(DIRECTIVE, args[1], why));
        }
    }
    block.services.borrow_mut().push((service, cf.position()));
    Ok(())
}

/// Finds the Consul of each service; no source may be followed twice in a zone.
pub(super) fn finish(cf: &Conf<'_>, main: &Main) -> Result<(), ()> {
    let mut seen: Vec<(String, String)> = Vec::new();
    for block in main.blocks.borrow().iter() {
        for (service, position) in block.services.borrow().iter() {
            let source = service.source();
            let clashes = |(zone, other): &(String, String)| {
                zone == block.zone_name()
                    && (*other == source
                        || service_of(other, &source).is_some()
                        || service_of(&source, other).is_some())
            };
            let wrong = if main.consul(&service.consul).is_none() {
                format!("unknown consul \"{}\" in \"peerage_service\"", service.consul)
            } else if seen.iter().any(clashes) {
                let zone = block.zone_name();
                format!("source \"{source}\" is followed already in zone \"{zone}\"")
            } else {
                seen.push((block.zone_name().to_owned(), source));
                continue;
            };
            cf.emerg_at(position, &wrong);
            return Err(());
        }
    }
    Ok(())
}

impl Main {
    pub(crate) fn consul(&self, name: &str) -> Option<Rc<Consul>> {
        self.consuls.borrow().iter().find(|consul| consul.settings.name == name).cloned()
    }

    /// What upstreams of a zone follow.
    pub(crate) fn follows(&self, zone: &Zone) -> Vec<Follow> {
        let blocks = self.blocks.borrow();
        let here = blocks.iter().filter(|block| block.zone().is_some_and(|z| z.name == zone.name));
        here.flat_map(|block| self.of_block(block)).collect()
    }

    fn of_block(&self, block: &Block) -> Vec<Follow> {
        let into = match &block.name {
            Name::Fixed(_, name) => Into::Upstream(name.clone()),
            Name::Keyed(_, glob) => Into::Services(glob.clone()),
        };
        let services = block.services.borrow();
        let follow = |service: &Service| {
            let consul = self.consul(&service.consul)?;
            Some(Follow { consul, service: service.clone(), into: into.clone() })
        };
        services.iter().filter_map(|(service, _)| follow(service)).collect()
    }
}
