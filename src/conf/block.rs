//! `peerage`, `peerage_server`, `peerage_defaults`, `peerage_method`, `peerage_hash_key`: an upstream{}
//! taken over.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use peerage_core::addr::ServerAddr;
use peerage_core::check::Check;
use peerage_core::check::outlier::Outlier;
use peerage_core::consul::service::Service;
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::field;
use peerage_core::name::{Glob, UpstreamName};
use peerage_core::server::AdminState;
use peerage_core::texts::Texts;
use peerage_core::units::Secs;
use peerage_core::upstream::{Defaults, Method, Settings};
use peerage_zone::{Fixed, Worker};

use super::zone::Zone;
use super::{Srv, words};
use crate::ffi::conf::{Complex, Conf, Refused};
use crate::ffi::upstream::{Address, Line, Upstream};

/// A block taken over.
pub(crate) struct Block {
    /// The block's own name.
    pub(crate) upstream: String,
    pub(crate) name: Name,
    zone_name: String,
    position: String,
    zone: OnceCell<Rc<Zone>>,
    method: Cell<Option<Method>>,
    hash_key: OnceCell<Complex>,
    defaults: OnceCell<Defaults>,
    pub(super) check: OnceCell<Box<Check>>,
    pub(super) outlier: OnceCell<Outlier>,
    servers: RefCell<Vec<DeclaredServer>>,
    /// What it follows, and where that stands.
    pub(super) services: RefCell<Vec<(Service, String)>>,
    declared: OnceCell<DeclaredUpstream>,
    finished: Cell<bool>,
    /// Another directive's hook stands around ours: the one of `sticky`, or an older nginx's
    /// `keepalive`.
    pub(crate) wrapped: Cell<bool>,
}

/// Which upstream the block's requests go to.
pub(crate) enum Name {
    /// One, known while the configuration is read.
    Fixed(Fixed, UpstreamName),
    /// One that the request names, if it fits the glob.
    Keyed(Complex, Option<Glob>),
}

impl Block {
    /// The zone.
    #[inline]
    pub(crate) fn zone(&self) -> Option<&Rc<Zone>> {
        self.zone.get()
    }

    /// This process's place in the zone.
    #[inline]
    pub(crate) fn worker(&self) -> Option<&'static Worker> {
        self.zone.get()?.worker()
    }

    /// What the block declares; `None` for a keyed one.
    pub(crate) fn declared(&self) -> Option<&DeclaredUpstream> {
        self.declared.get()
    }

    /// `peerage_defaults`, `peerage_method`, `peerage_check` and `peerage_outlier`.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            method: self.method.get(),
            defaults: self.defaults.get().copied().unwrap_or_default(),
            texts: Texts::default(),
            check: self.check.get().cloned(),
            outlier: self.outlier.get().copied(),
        }
    }

    /// `peerage_hash_key`; `None` is `$remote_addr`.
    pub(crate) fn hash_key(&self) -> Option<&Complex> {
        self.hash_key.get()
    }

    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.name, Name::Keyed(..))
    }

    /// Whether nginx has called [`finish`]: no other directive put itself in our place.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.get()
    }

    /// The name of its zone.
    pub(super) fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// "FILE:LINE" of `peerage`.
    pub(super) fn position(&self) -> &str {
        &self.position
    }
}

/// `peerage zone [name=value] [match=glob]`.
pub(crate) fn set(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage";
    let args = cf.args()?;
    let (srv, upstream) = (cf.srv(), cf.upstream());
    if srv.block.get().is_some() {
        return Err(words::duplicate(DIRECTIVE));
    }
    let host = upstream.name();
    if upstream.has_method() {
        return Err(Refused::because(format!(
            "load balancing method redefined by \"peerage\" in upstream \"{host}\"; \
             put {AROUND} after \"peerage\""
        )));
    }
    let (mut value, mut glob) = (None, None);
    for &word in &args[2..] {
        match words::pair(word) {
            ("name", Some(text)) => {
                if value.replace((word, text)).is_some() {
                    return Err(words::twice(DIRECTIVE, "name"));
                }
            }
            ("match", Some(text)) => {
                let parsed = Glob::parse(text).map_err(|e| words::invalid(DIRECTIVE, word, e))?;
                if glob.replace((word, parsed)).is_some() {
                    return Err(words::twice(DIRECTIVE, "match"));
                }
            }
            _ => return Err(words::unknown(DIRECTIVE, word)),
        }
    }
    let fixed = |text: &str, word: &str| {
        UpstreamName::parse(text)
            .map(|name| Name::Fixed(Fixed::new(name.as_str()), name))
            .map_err(|e| words::invalid(DIRECTIVE, word, e))
    };
    let name = match value {
        None => fixed(&host, &host)?,
        Some((word, text)) => {
            let complex = cf.complex(text)?;
            if complex.is_constant() {
                fixed(text, word)?
            } else {
                let glob = glob.take().map(|(_, glob)| glob);
                Name::Keyed(complex, glob.filter(|glob| glob.as_str() != "*"))
            }
        }
    };
    if let Some((word, _)) = glob {
        return Err(words::invalid(DIRECTIVE, word, "needs a \"name=\" with variables"));
    }
    let block = Rc::new(Block {
        upstream: host,
        name,
        zone_name: args[1].to_owned(),
        position: cf.position(),
        zone: OnceCell::new(),
        method: Cell::new(None),
        hash_key: OnceCell::new(),
        defaults: OnceCell::new(),
        check: OnceCell::new(),
        outlier: OnceCell::new(),
        servers: RefCell::default(),
        services: RefCell::default(),
        declared: OnceCell::new(),
        finished: Cell::new(false),
        wrapped: Cell::new(false),
    });
    upstream.take_over(cf)?;
    cf.main().blocks.borrow_mut().push(Rc::clone(&block));
    // Looked at above: the block has none yet.
    let _ = srv.block.set(block);
    Ok(())
}

/// `peerage_server address [parameters]`.
pub(crate) fn server(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_server";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    let server =
        DeclaredServer::parse(args[1], &args[2..]).map_err(|e| words::refused(DIRECTIVE, &e))?;
    if block.is_keyed() {
        return Err(keyed(DIRECTIVE, &block.upstream));
    }
    block.servers.borrow_mut().push(server);
    Ok(())
}

/// `peerage_defaults [weight=] [max_conns=] [max_fails=] [fail_timeout=] [slow_start=]`.
pub(crate) fn defaults(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_defaults";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    let defaults = Defaults::parse(&args[1..]).map_err(|e| words::refused(DIRECTIVE, &e))?;
    block.defaults.set(defaults).map_err(|_| words::duplicate(DIRECTIVE))
}

/// `peerage_method words`.
pub(crate) fn method(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_method";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    let Some(method) = Method::parse_words(&args[1..]) else {
        return Err(words::invalid(DIRECTIVE, &args[1..].join(" "), "not a method"));
    };
    if block.method.replace(Some(method)).is_some() {
        return Err(words::duplicate(DIRECTIVE));
    }
    Ok(())
}

/// `peerage_hash_key value`.
pub(crate) fn hash_key(cf: &Conf<'_>) -> Result<(), Refused> {
    const DIRECTIVE: &str = "peerage_hash_key";
    let args = cf.args()?;
    let block = taken_over(cf.srv(), DIRECTIVE)?;
    block.hash_key.set(cf.complex(args[1])?).map_err(|_| words::duplicate(DIRECTIVE))
}

/// Directives that put themselves around what the block has so far.
const AROUND: &str = if cfg!(nginx_sid) { "\"keepalive\" and \"sticky\"" } else { "\"keepalive\"" };

pub(super) fn taken_over<'a>(srv: &'a Srv, directive: &str) -> Result<&'a Rc<Block>, Refused> {
    srv.block.get().ok_or_else(|| {
        Refused::because(format!("\"{directive}\" directive needs \"peerage\" before it"))
    })
}

pub(super) fn keyed(directive: &str, upstream: &str) -> Refused {
    Refused::because(format!(
        "\"{directive}\" directive is not allowed in upstream \"{upstream}\", \
         whose name holds variables"
    ))
}

/// Ends the reading of a block: finds its zone, takes in the plain `server` lines, compares it
/// with the blocks before. What is wrong has been logged.
pub(crate) fn finish(
    cf: &Conf<'_>,
    upstream: Upstream<'_>,
    srv: &Srv,
    lines: Vec<Line>,
) -> Result<(), ()> {
    let Some(block) = srv.block.get() else { return Err(()) };
    build(cf, upstream, block, lines).map_err(|text| {
        cf.emerg_at(&block.position, &format!("{text} in upstream \"{}\"", block.upstream));
    })?;
    block.finished.set(true);
    Ok(())
}

fn build(
    cf: &Conf<'_>,
    upstream: Upstream<'_>,
    block: &Rc<Block>,
    lines: Vec<Line>,
) -> Result<(), String> {
    let main = cf.main();
    if upstream.has_zone() {
        return Err("\"zone\" directive cannot stand beside \"peerage\"".into());
    }
    let Some(zone) = main.zone(&block.zone_name) else {
        return Err(format!("unknown peerage zone \"{}\"", block.zone_name));
    };
    // Set once: nginx finishes each block once.
    let _ = block.zone.set(zone);

    let name = match &block.name {
        Name::Fixed(_, name) => name,
        Name::Keyed(..) => {
            if !lines.is_empty() {
                return Err(
                    "\"server\" directive is not allowed where the name holds variables".into()
                );
            }
            let blocks = main.blocks.borrow();
            let differs = |o: &&Rc<Block>| {
                o.is_keyed()
                    && o.is_finished()
                    && o.zone_name == block.zone_name
                    && o.settings() != block.settings()
            };
            if let Some(other) = blocks.iter().find(differs) {
                return Err(format!(
                    "\"peerage_defaults\" or \"peerage_method\" differ from those of upstream \
                     \"{}\", which serves names of the same zone \"{}\",",
                    other.upstream, block.zone_name
                ));
            }
            return Ok(());
        }
    };
    let mut servers = Vec::with_capacity(lines.len() + block.servers.borrow().len());
    for line in lines {
        servers.push(plain(line)?);
    }
    servers.append(&mut block.servers.borrow_mut());
    let declared = DeclaredUpstream { name: name.clone(), settings: block.settings(), servers };
    if let Some(addr) = declared.duplicate() {
        return Err(format!("duplicate server \"{addr}\""));
    }
    let resolved = declared.servers.iter().find(|server| server.resolve);
    if let Some(server) = resolved.filter(|_| !cf.has_resolver()) {
        return Err(format!("no resolver defined to resolve \"{}\"", server.addr));
    }
    let mut named = main.named.borrow_mut();
    let first = named
        .entry(super::key(&block.zone_name, name.as_str()))
        .or_insert_with(|| Rc::clone(block));
    if let Some(other) = first.declared.get()
        && *other != declared
    {
        return Err(format!(
            "upstream \"{name}\" of peerage zone \"{}\" is declared otherwise in {}, again",
            block.zone_name, first.position
        ));
    }
    // Set once: nginx finishes each block once.
    let _ = block.declared.set(declared);
    Ok(())
}

/// A plain `server` line. nginx does not tell whether a parameter was written: one that has
/// nginx's default counts as not said.
fn plain(line: Line) -> Result<DeclaredServer, String> {
    let Line { name, addrs, weight, max_conns, max_fails, fail_timeout, .. } = line;
    let mut server = DeclaredServer::new(&name).map_err(|error| error.to_string())?;
    if server.addr.is_name() {
        server.addrs = addrs
            .iter()
            .filter_map(|addr| match addr {
                Address::Inet(addr) => Some(*addr),
                Address::Unix(_) => None,
            })
            .collect();
    } else {
        // nginx reads some addresses in more ways than we do; what it connects to counts.
        let same = match (&server.addr, addrs.first()) {
            (ServerAddr::Inet(ours), Some(Address::Inet(its))) => ours == its,
            (ServerAddr::Unix(ours), Some(Address::Unix(its))) => **ours == **its,
            _ => false,
        };
        if !same {
            return Err(format!("invalid address \"{name}\" in \"server\" directive"));
        }
    }
    let bad = |word: String, error: field::FieldError| {
        format!("invalid value \"{word}\" in \"server\" directive: it {error}")
    };
    let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    if weight != 1 {
        let value =
            field::weight(number(weight)).map_err(|e| bad(format!("weight={weight}"), e))?;
        server.params.weight = Some(value);
    }
    if max_conns != 0 {
        let value = field::max_conns(number(max_conns))
            .map_err(|e| bad(format!("max_conns={max_conns}"), e))?;
        server.params.max_conns = Some(value);
    }
    if max_fails != 1 {
        let value = field::max_fails(number(max_fails))
            .map_err(|e| bad(format!("max_fails={max_fails}"), e))?;
        server.params.max_fails = Some(value);
    }
    if fail_timeout != 10 {
        let value = Secs::new(fail_timeout).map_err(|e| {
            format!("invalid value \"fail_timeout={fail_timeout}\" in \"server\" directive: {e}")
        })?;
        server.params.fail_timeout = Some(value);
    }
    server.params.backup = line.backup;
    server.params.route =
        field::route(&line.route).map_err(|e| bad(format!("route={}", line.route), e))?.to_owned();
    if line.down {
        server.admin = AdminState::Down;
    } else if line.drain {
        server.admin = AdminState::Drain;
    }
    Ok(server)
}
