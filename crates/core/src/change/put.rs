//! What a stated upstream or server makes of the one that is there.

use std::collections::{HashMap, HashSet};

use crate::addr::ServerAddr;
use crate::body::{Field, LimitsBody, ServerBody, UpstreamBody};
use crate::change::admin::state_admin;
use crate::change::{Applied, ChangeError, Context, changed, find};
use crate::check::CheckError;
use crate::field::{FieldError, MAX_LABELS};
use crate::name::UpstreamName;
use crate::server::{Admin, AdminState, Limits, Origin, Params, Server};
use crate::upstream::{Defaults, ServerSel, Upstream};

/// Whether a body states the whole or only what it names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    Yes,
    No,
}

/// A `PUT` of a whole upstream.
pub(super) fn upstream(
    current: Option<&Upstream>,
    name: &UpstreamName,
    body: &UpstreamBody,
    ctx: &mut Context<'_>,
) -> Result<Applied, ChangeError> {
    let mut next = stated(current, name, ctx);
    settings(&mut next, body, Whole::Yes, ctx)?;
    match &body.servers {
        Some(servers) => put_servers(&mut next, servers, Whole::Yes, ctx)?,
        None if next.servers.is_empty() => {}
        None => return Err(ChangeError::ServersMissing(next.servers.len())),
    }
    Ok(match current {
        Some(current) => changed(current, next),
        None => Applied::Set(next),
    })
}

/// A set of servers, of which those that stay keep what is not named.
pub(super) fn set_servers(
    current: Option<&Upstream>,
    name: &UpstreamName,
    body: &UpstreamBody,
    own: Option<&str>,
    ctx: &mut Context<'_>,
) -> Result<Applied, ChangeError> {
    let mut next = stated(current, name, ctx);
    settings(&mut next, body, if current.is_some() { Whole::No } else { Whole::Yes }, ctx)?;
    let mut servers = body.servers.clone().unwrap_or_default();
    let stands: HashMap<&ServerAddr, &Admin> =
        next.servers.iter().map(|server| (&server.addr, &server.admin)).collect();
    for server in &mut servers {
        let Some(&admin) = server.addr.as_ref().and_then(|addr| stands.get(addr)) else { continue };
        server.admin = match std::mem::take(&mut server.admin) {
            Field::Absent if admin.state != AdminState::Up && Some(&*admin.reason) == own => {
                Field::Default
            }
            Field::Given(body) if body.state == Some(admin.state) => Field::Absent,
            said => said,
        };
    }
    put_servers(&mut next, &servers, Whole::No, ctx)?;
    Ok(match current {
        Some(current) => changed(current, next),
        None => Applied::Set(next),
    })
}

/// The upstream that is stated, as it was before.
pub(super) fn stated(
    current: Option<&Upstream>,
    name: &UpstreamName,
    ctx: &Context<'_>,
) -> Upstream {
    let mut next = match current {
        Some(current) => current.clone(),
        None => Upstream::new(name.clone(), ctx.origin.clone()),
    };
    if next.orphaned_at.is_some() {
        // Stated anew, it belongs to who states it.
        next.orphaned_at = None;
        next.origin = ctx.origin.clone();
    }
    next
}

/// A `PATCH` of the settings of an upstream.
pub(super) fn patch_upstream(
    current: &Upstream,
    body: &UpstreamBody,
    ctx: &Context<'_>,
) -> Result<Applied, ChangeError> {
    let mut next = current.clone();
    settings(&mut next, body, Whole::No, ctx)?;
    Ok(changed(current, next))
}

/// What a body leaves out of the defaults of an upstream that no block names is what the keyed
/// blocks say.
pub(super) fn settings(
    next: &mut Upstream,
    body: &UpstreamBody,
    whole: Whole,
    ctx: &Context<'_>,
) -> Result<(), ChangeError> {
    let unsaid = if ctx.named_by_block { Defaults::default() } else { ctx.keyed };
    next.settings.method = match body.method {
        Field::Absent if whole == Whole::No => next.settings.method,
        Field::Absent | Field::Default => None,
        Field::Given(method)
            if method == next.settings.method() && next.settings.method.is_none() =>
        {
            None
        }
        Field::Given(method) => Some(method),
    };
    let texts = &mut next.settings.texts;
    text(&mut texts.hash_key, &body.hash_key, whole);
    text(&mut texts.host, &body.host, whole);
    text(&mut texts.tls_name, &body.tls_name, whole);
    let defaults = &mut next.settings.defaults;
    match &body.defaults {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => *defaults = unsaid,
        Field::Given(body) => {
            let base = Limits::BUILT_IN;
            limits(defaults, body, (&unsaid, &base), whole, Known::Yes);
        }
    }
    let check = &mut next.settings.check;
    match &body.check {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => *check = None,
        Field::Given(body) => {
            let under = check.as_ref().filter(|_| whole == Whole::No).map(|check| check.said());
            let said = (**body).clone().over(under.unwrap_or_default());
            *check = Some(Box::new(said.build().map_err(|error| unfit("check", error))?));
        }
    }
    let outlier = &mut next.settings.outlier;
    match &body.outlier {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => *outlier = None,
        Field::Given(body) => {
            let under = outlier.filter(|_| whole == Whole::No).map(|outlier| outlier.said());
            let said = body.clone().over(under.unwrap_or_default());
            *outlier = Some(said.build().map_err(|error| unfit("outlier", error))?);
        }
    }
    Ok(())
}

fn unfit(object: &'static str, error: CheckError) -> ChangeError {
    ChangeError::Member { object, field: error.field, error: error.error }
}

fn text<T: Clone>(own: &mut Option<T>, field: &Field<T>, whole: Whole) {
    match field {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => *own = None,
        Field::Given(text) => *own = Some(text.clone()),
    }
}

/// Whether there is a server whose stored values may stay where they already hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Yes,
    No,
}

/// `unsaid` is what is stored of a field that is at its default, `base` what holds where nothing is.
fn limits(
    own: &mut Defaults,
    body: &LimitsBody,
    (unsaid, base): (&Defaults, &Limits),
    whole: Whole,
    known: Known,
) {
    fn one<T: Copy + PartialEq>(
        own: &mut Option<T>,
        field: &Field<T>,
        (unsaid, base): (Option<T>, T),
        whole: Whole,
        known: Known,
    ) {
        *own = match *field {
            Field::Absent if whole == Whole::No => *own,
            Field::Absent | Field::Default => unsaid,
            Field::Given(value) if known == Known::Yes && own.unwrap_or(base) == value => *own,
            Field::Given(value) => Some(value),
        };
    }
    one(&mut own.weight, &body.weight, (unsaid.weight, base.weight), whole, known);
    one(&mut own.max_conns, &body.max_conns, (unsaid.max_conns, base.max_conns), whole, known);
    one(&mut own.max_fails, &body.max_fails, (unsaid.max_fails, base.max_fails), whole, known);
    one(
        &mut own.fail_timeout,
        &body.fail_timeout,
        (unsaid.fail_timeout, base.fail_timeout),
        whole,
        known,
    );
    one(&mut own.slow_start, &body.slow_start, (unsaid.slow_start, base.slow_start), whole, known);
}

/// `whole` is for the servers that stay.
fn put_servers(
    next: &mut Upstream,
    bodies: &[ServerBody],
    whole: Whole,
    ctx: &mut Context<'_>,
) -> Result<(), ChangeError> {
    let mut seen = HashSet::with_capacity(bodies.len());
    for (i, body) in bodies.iter().enumerate() {
        let Some(addr) = &body.addr else { return Err(ChangeError::NoAddress(i)) };
        if !seen.insert(addr) {
            return Err(ChangeError::SameAddress(addr.clone()));
        }
    }
    let before: Vec<ServerAddr> = next.servers.iter().map(|s| s.addr.clone()).collect();
    let mut staying: HashMap<ServerAddr, Server> =
        next.servers.drain(..).map(|server| (server.addr.clone(), server)).collect();
    let defaults = next.settings.defaults;
    for body in bodies {
        let Some(addr) = &body.addr else { continue };
        let server = match staying.remove(addr) {
            Some(mut server) => {
                restate(&mut server, body, &defaults, whole, ctx)?;
                server
            }
            None => create(next, addr, body, ctx)?,
        };
        next.servers.push(server);
    }
    // What is not named goes, but for the servers of a source.
    for addr in &before {
        match staying.remove(addr) {
            Some(server) if server.origin.is_own() => remember(next, server),
            Some(server) => next.servers.push(server),
            None => {}
        }
    }
    if !next.settings.method().is_ordered() {
        keep_order(&before, &mut next.servers);
    }
    Ok(())
}

/// An equal set in another order keeps the order it has.
fn keep_order(before: &[ServerAddr], servers: &mut [Server]) {
    if before.len() != servers.len() {
        return;
    }
    let places: HashMap<&ServerAddr, usize> =
        before.iter().enumerate().map(|(at, addr)| (addr, at)).collect();
    if servers.iter().all(|server| places.contains_key(&server.addr)) {
        servers.sort_by_key(|server| places.get(&server.addr).copied());
    }
}

/// A `PUT` of a server.
pub(super) fn server(
    current: &Upstream,
    sel: &ServerSel,
    body: &ServerBody,
    ctx: &mut Context<'_>,
) -> Result<Applied, ChangeError> {
    let mut next = current.clone();
    if let Some(at) = current.position(sel) {
        same_address(body, &current.servers[at])?;
        let defaults = next.settings.defaults;
        restate(&mut next.servers[at], body, &defaults, Whole::Yes, ctx)?;
        return Ok(changed(current, next));
    }
    let ServerSel::Addr(addr) = sel else {
        let server = sel.to_string();
        return Err(ChangeError::NoServer { upstream: current.name.clone(), server });
    };
    if let Some(body) = &body.addr
        && body != addr
    {
        return Err(ChangeError::OtherAddress { body: body.clone(), path: addr.to_string() });
    }
    let server = create(&mut next, addr, body, ctx)?;
    next.servers.push(server);
    Ok(Applied::Set(next))
}

/// A `PATCH` of a server.
pub(super) fn patch_server(
    current: &Upstream,
    sel: &ServerSel,
    body: &ServerBody,
    ctx: &Context<'_>,
) -> Result<Applied, ChangeError> {
    let at = find(current, sel)?;
    same_address(body, &current.servers[at])?;
    let mut next = current.clone();
    let defaults = next.settings.defaults;
    restate(&mut next.servers[at], body, &defaults, Whole::No, ctx)?;
    Ok(changed(current, next))
}

/// A server that was not there; one that the configuration names is the configuration's again.
fn create(
    next: &mut Upstream,
    addr: &ServerAddr,
    body: &ServerBody,
    ctx: &mut Context<'_>,
) -> Result<Server, ChangeError> {
    if addr.is_name() && !ctx.resolves {
        return Err(ChangeError::NoResolver(addr.clone()));
    }
    let removed = next.removed.iter().position(|(removed, _)| removed == addr);
    let declared = removed.map(|at| next.removed.remove(at).1);
    let origin = if declared.is_some() { Origin::Config } else { ctx.origin.clone() };
    let mut server = Server {
        id: (ctx.fresh_id)(),
        addr: addr.clone(),
        given: body.given.clone(),
        origin,
        params: Params::default(),
        admin: Admin::default(),
        declared,
        // A plain line's too, until the next load.
        source: None,
        resolve: addr.is_name(),
        addrs: Vec::new(),
    };
    state_params(&mut server.params, body, &next.settings.defaults, Whole::Yes, Known::No)?;
    server.admin = state_admin(&server.admin, &body.admin, Whole::Yes, ctx)?;
    Ok(server)
}

/// States a server that is there: id and admin stay, unless the body names the latter.
fn restate(
    server: &mut Server,
    body: &ServerBody,
    defaults: &Defaults,
    whole: Whole,
    ctx: &Context<'_>,
) -> Result<(), ChangeError> {
    if body.given.is_some() {
        server.given.clone_from(&body.given);
    }
    let unsaid = server.unsaid(defaults);
    state_params(&mut server.params, body, &unsaid, whole, Known::Yes)?;
    server.admin = state_admin(&server.admin, &body.admin, whole, ctx)?;
    Ok(())
}

fn state_params(
    params: &mut Params,
    body: &ServerBody,
    defaults: &Defaults,
    whole: Whole,
    known: Known,
) -> Result<(), ChangeError> {
    let Params { weight, max_conns, max_fails, fail_timeout, slow_start, .. } = *params;
    let mut own = Defaults { weight, max_conns, max_fails, fail_timeout, slow_start };
    limits(&mut own, &body.limits, (&Defaults::default(), &defaults.limits()), whole, known);
    params.weight = own.weight;
    params.max_conns = own.max_conns;
    params.max_fails = own.max_fails;
    params.fail_timeout = own.fail_timeout;
    params.slow_start = own.slow_start;
    match body.backup {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => params.backup = false,
        Field::Given(backup) => params.backup = backup,
    }
    match &body.route {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => params.route.clear(),
        Field::Given(route) => params.route.clone_from(route),
    }
    match &body.labels {
        Field::Absent if whole == Whole::No => {}
        Field::Absent | Field::Default => params.labels.clear(),
        Field::Given(labels) => {
            if whole == Whole::Yes {
                params.labels.clear();
            }
            for (key, value) in labels {
                match value {
                    Some(value) => params.labels.insert(key.clone(), value.clone()),
                    None => params.labels.remove(key),
                };
            }
        }
    }
    if params.labels.len() > MAX_LABELS {
        return Err(ChangeError::Field { field: "labels", error: FieldError::Labels });
    }
    Ok(())
}

fn same_address(body: &ServerBody, server: &Server) -> Result<(), ChangeError> {
    match &body.addr {
        Some(addr) if *addr != server.addr => {
            Err(ChangeError::OtherAddress { body: addr.clone(), path: server.addr.to_string() })
        }
        _ => Ok(()),
    }
}

/// Notes a server of the configuration as removed at run time.
pub(super) fn remember(next: &mut Upstream, server: Server) {
    if let Some(declared) = server.declared {
        next.removed.push((server.addr, declared));
    }
}
