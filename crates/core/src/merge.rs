//! The three-way merge of a load: what the file changed is applied, what run time changed is kept.
//!
//! The base is what the configuration declared at the last accepted load, which every declared
//! upstream and server carries with it. Field by field: equal to the base in the file → what run
//! time made of it stays; changed in the file → the file's value. Both changed, and differently →
//! the file's value and a [`Conflict`].
//!
//! `down` in the file is the first admin state: only a change of the flag itself acts, and taking
//! it away raises a server only where the configuration, not an operator, had it down.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use serde::Serialize;

use crate::addr::ServerAddr;
use crate::change::{Applied, Context};
use crate::declare::{DeclaredServer, DeclaredUpstream};
use crate::name::UpstreamName;
use crate::server::{Admin, AdminState, CONFIG, Declared, Origin, Params, Server};
use crate::texts::Texts;
use crate::upstream::{Defaults, Settings, Upstream};

/// A field changed in the file and at run time; the file's value holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Where.
    pub upstream: UpstreamName,
    /// Of which server; `None` = a setting of the upstream.
    pub server: Option<ServerAddr>,
    /// Which field.
    pub field: &'static str,
    /// The value of the file, which holds.
    pub file: String,
    /// The value of run time, which is lost.
    pub runtime: String,
}

/// Merges what a load declares; `declared` is `None` where no block names the upstream any more.
pub fn merge(
    current: Option<&Upstream>,
    declared: Option<&DeclaredUpstream>,
    ctx: &mut Context<'_>,
) -> (Applied, Vec<Conflict>) {
    let Some(declared) = declared else {
        return (current.map_or(Applied::Same, |current| undeclare(current, ctx)), Vec::new());
    };
    let mut conflicts = Vec::new();
    let mut next = match current {
        Some(current) => current.clone(),
        None => Upstream::new(declared.name.clone(), Origin::Config),
    };
    next.orphaned_at = None;
    let base = next.declared.take().unwrap_or_default();
    let mut fields = Fields { upstream: &declared.name, server: None, out: &mut conflicts };
    next.settings = fields.settings(&base, &next.settings, &declared.settings);
    next.declared = Some(declared.settings.clone());
    servers(&mut next, declared, &mut conflicts, ctx);
    match current {
        Some(current) if *current == next => (Applied::Same, conflicts),
        _ => (Applied::Set(next), conflicts),
    }
}

/// The block is gone: so is what it declared; what run time added stays.
fn undeclare(current: &Upstream, ctx: &Context<'_>) -> Applied {
    if current.declared.is_none() {
        return Applied::Same;
    }
    let mut next = current.clone();
    next.declared = None;
    next.removed.clear();
    next.servers.retain(|server| server.declared.is_none() || !server.origin.is_own());
    for server in &mut next.servers {
        server.declared = None;
    }
    match next.origin {
        Origin::Config if next.servers.is_empty() => Applied::Gone,
        Origin::Config => {
            next.orphaned_at = Some(ctx.now);
            Applied::Set(next)
        }
        // It was there before the block and lives on without it.
        _ => Applied::Set(next),
    }
}

fn servers(
    next: &mut Upstream,
    declared: &DeclaredUpstream,
    conflicts: &mut Vec<Conflict>,
    ctx: &mut Context<'_>,
) {
    let lines: HashMap<&ServerAddr, &DeclaredServer> =
        declared.servers.iter().rev().map(|line| (&line.addr, line)).collect();
    let mut present: HashSet<ServerAddr> = HashSet::with_capacity(next.servers.len());
    next.servers.retain_mut(|server| {
        let Some(line) = lines.get(&server.addr) else {
            let stays = server.declared.is_none() || !server.origin.is_own();
            server.declared = None;
            return stays;
        };
        let mut fields =
            Fields { upstream: &declared.name, server: Some(&server.addr), out: &mut *conflicts };
        let first = server.declared.is_none();
        let base = server.declared.take().unwrap_or_default();
        server.params = fields.params(&base.params, &server.params, &line.params);
        if !first {
            server.admin = fields.admin(base.admin, &server.admin, line.admin, ctx);
        }
        if server.origin == Origin::Api {
            server.origin = Origin::Config;
        }
        server.given.clone_from(&line.given);
        server.resolve = line.resolve;
        // What was resolved at run time stays until the next answer.
        if !line.resolve && !same_set(&server.addrs, &line.addrs) {
            server.addrs.clone_from(&line.addrs);
        }
        server.declared = Some(line.declared());
        present.insert(server.addr.clone());
        true
    });
    let removed: HashMap<ServerAddr, Declared> = next.removed.drain(..).collect();
    for line in &declared.servers {
        if present.contains(&line.addr) {
            continue;
        }
        present.insert(line.addr.clone());
        match removed.get(&line.addr) {
            // Removed at run time, and its line is as it was.
            Some(base) if *base == line.declared() => {
                next.removed.push((line.addr.clone(), base.clone()));
            }
            _ => next.servers.push(first_contact(line, ctx)),
        }
    }
}

fn first_contact(line: &DeclaredServer, ctx: &mut Context<'_>) -> Server {
    let admin = match line.admin {
        AdminState::Up => Admin::default(),
        state => by_config(state, ctx),
    };
    Server {
        id: (ctx.fresh_id)(),
        addr: line.addr.clone(),
        given: line.given.clone(),
        origin: Origin::Config,
        params: line.params.clone(),
        admin,
        declared: Some(line.declared()),
        source: None,
        resolve: line.resolve,
        addrs: line.addrs.clone(),
    }
}

fn by_config(state: AdminState, ctx: &Context<'_>) -> Admin {
    Admin { state, since: ctx.now, by: CONFIG.to_owned(), ..Admin::default() }
}

/// Answers of a name come in any order.
pub(crate) fn same_set(a: &[SocketAddr], b: &[SocketAddr]) -> bool {
    a.len() == b.len() && {
        let set: HashSet<&SocketAddr> = a.iter().collect();
        b.iter().all(|addr| set.contains(addr))
    }
}

fn or_default<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "default".to_owned(), T::to_string)
}

/// Merges fields of one server or of the settings, collecting conflicts.
struct Fields<'a> {
    upstream: &'a UpstreamName,
    server: Option<&'a ServerAddr>,
    out: &'a mut Vec<Conflict>,
}

impl Fields<'_> {
    fn one<T: Clone + PartialEq>(
        &mut self,
        field: &'static str,
        (base, mine, file): (&T, &T, &T),
        text: fn(&T) -> String,
    ) -> T {
        if file == base {
            return mine.clone();
        }
        if mine != base && mine != file {
            self.conflict(field, text(file), text(mine));
        }
        file.clone()
    }

    fn conflict(&mut self, field: &'static str, file: String, runtime: String) {
        let (upstream, server) = (self.upstream.clone(), self.server.cloned());
        self.out.push(Conflict { upstream, server, field, file, runtime });
    }

    fn params(&mut self, base: &Params, mine: &Params, file: &Params) -> Params {
        macro_rules! limit {
            ($f:ident) => {
                self.one(stringify!($f), (&base.$f, &mine.$f, &file.$f), or_default)
            };
        }
        Params {
            weight: limit!(weight),
            max_conns: limit!(max_conns),
            max_fails: limit!(max_fails),
            fail_timeout: limit!(fail_timeout),
            slow_start: limit!(slow_start),
            backup: self.one("backup", (&base.backup, &mine.backup, &file.backup), bool::to_string),
            route: self.one("route", (&base.route, &mine.route, &file.route), String::clone),
            labels: self.one("labels", (&base.labels, &mine.labels, &file.labels), |labels| {
                let text: Vec<String> = labels.iter().map(|(k, v)| format!("{k}:{v}")).collect();
                text.join(",")
            }),
        }
    }

    fn settings(&mut self, base: &Settings, mine: &Settings, file: &Settings) -> Settings {
        macro_rules! text {
            ($f:ident) => {
                self.one(
                    stringify!($f),
                    (&base.texts.$f, &mine.texts.$f, &file.texts.$f),
                    or_default,
                )
            };
        }
        macro_rules! limit {
            ($f:ident) => {
                self.one(
                    concat!("defaults.", stringify!($f)),
                    (&base.defaults.$f, &mine.defaults.$f, &file.defaults.$f),
                    or_default,
                )
            };
        }
        Settings {
            method: self.one("method", (&base.method, &mine.method, &file.method), |method| {
                method.map_or_else(|| "default".to_owned(), |method| method.as_str().to_owned())
            }),
            defaults: Defaults {
                weight: limit!(weight),
                max_conns: limit!(max_conns),
                max_fails: limit!(max_fails),
                fail_timeout: limit!(fail_timeout),
                slow_start: limit!(slow_start),
            },
            texts: Texts {
                hash_key: text!(hash_key),
                host: text!(host),
                tls_name: text!(tls_name),
            },
            check: self.one("check", (&base.check, &mine.check, &file.check), |check| {
                check.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
            }),
            outlier: self.one(
                "outlier",
                (&base.outlier, &mine.outlier, &file.outlier),
                |outlier| outlier.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
            ),
        }
    }

    fn admin(
        &mut self,
        base: AdminState,
        mine: &Admin,
        file: AdminState,
        ctx: &Context<'_>,
    ) -> Admin {
        if file == base || file == mine.state {
            return mine.clone();
        }
        if file == AdminState::Up {
            return if mine.is_config() { by_config(AdminState::Up, ctx) } else { mine.clone() };
        }
        if mine.state != base {
            self.conflict("admin", file.as_str().to_owned(), mine.state.as_str().to_owned());
        }
        by_config(file, ctx)
    }
}
