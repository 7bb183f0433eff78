//! What a source states of its servers: it owns those it brought, and no others.
//!
//! What an operator says of them (admin state, weight, limits) lies over what the source says, and
//! outlives each of its answers. A server that the configuration or the API has at the same address
//! stays theirs.

use std::collections::{HashMap, HashSet};

use crate::addr::ServerAddr;
use crate::body::UpstreamBody;
use crate::change::put::{self, Whole};
use crate::change::{Applied, ChangeError, Context, changed};
use crate::name::UpstreamName;
use crate::server::{Admin, Origin, Params, Server};
use crate::source::{Sourced, Standing, Stated};
use crate::upstream::Upstream;

/// The source says which servers it has.
pub(super) fn state(
    current: Option<&Upstream>,
    name: &UpstreamName,
    (stated, followed): (&[Stated], &[Origin]),
    ctx: &mut Context<'_>,
) -> Result<Applied, ChangeError> {
    if current.is_none() && stated.is_empty() {
        return Ok(Applied::Same);
    }
    let mut next = put::stated(current, name, ctx);
    if current.is_none() {
        put::settings(&mut next, &UpstreamBody::default(), Whole::Yes, ctx)?;
    }
    let says: HashMap<&ServerAddr, &Sourced> =
        stated.iter().map(|server| (&server.addr, &server.said)).collect();
    let mut there = HashSet::with_capacity(next.servers.len());
    for server in &mut next.servers {
        there.insert(server.addr.clone());
        let said = says.get(&server.addr);
        if server.origin != ctx.origin {
            let is_left = server.source.is_some()
                && (server.is_vanished() || !followed.contains(&server.origin));
            let Some(said) = said.filter(|_| is_left) else { continue };
            // Whose it was names it no longer, or is not heard any more.
            server.origin = ctx.origin.clone();
            server.source = Some(**said);
            continue;
        }
        match said {
            Some(said) => server.source = Some(**said),
            None => vanish(server, ctx.now),
        }
    }
    for Stated { addr, said } in stated {
        if there.insert(addr.clone()) && (!addr.is_name() || ctx.resolves) {
            let server = create(&mut next, addr, *said, ctx);
            next.servers.push(server);
        }
    }
    Ok(match current {
        Some(current) => changed(current, next),
        None => Applied::Set(next),
    })
}

/// Servers of sources that the upstream does not follow any more vanish.
pub(super) fn unfollow(current: &Upstream, followed: &[Origin], ctx: &Context<'_>) -> Applied {
    let mut next = current.clone();
    for server in &mut next.servers {
        if server.source.is_some() && !followed.contains(&server.origin) {
            vanish(server, ctx.now);
        }
    }
    changed(current, next)
}

/// Vanished servers go.
pub(super) fn reap(current: &Upstream, idle: &[u64], retire: bool, ctx: &Context<'_>) -> Applied {
    let mut next = current.clone();
    next.servers.retain(|server| {
        !server.is_vanished() || server.is_spoken_of() || !idle.contains(&server.id)
    });
    let retires = retire && !ctx.named_by_block && next.origin == ctx.origin;
    if retires && next.servers.is_empty() {
        return Applied::Gone;
    }
    changed(current, next)
}

/// Its source names it no longer. What the configuration names too is the configuration's again.
fn vanish(server: &mut Server, now: u64) {
    if server.declared.is_some() {
        server.origin = Origin::Config;
        server.source = None;
        return;
    }
    if !server.is_vanished() {
        let said = server.source.unwrap_or_default();
        let standing = Standing::Vanished { since: now };
        server.source = Some(Sourced { standing, held: false, discarded: false, ..said });
    }
}

fn create(next: &mut Upstream, addr: &ServerAddr, said: Sourced, ctx: &mut Context<'_>) -> Server {
    // The next load knows by it that an operator removed the configuration's own.
    let removed = next.removed.iter().position(|(removed, _)| removed == addr);
    let declared = removed.map(|at| next.removed.remove(at).1);
    Server {
        id: (ctx.fresh_id)(),
        addr: addr.clone(),
        given: None,
        origin: ctx.origin.clone(),
        params: Params::default(),
        admin: Admin::default(),
        declared,
        source: Some(said),
        resolve: addr.is_name(),
        addrs: Vec::new(),
    }
}
