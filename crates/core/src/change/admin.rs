//! The operator's will: verbs, the object `admin`, and the end of a `ttl`.

use crate::body::{AdminBody, End, Field, VerbOpts};
use crate::change::put::Whole;
use crate::change::{Applied, ChangeError, Context, find};
use crate::field::{self, FieldError};
use crate::server::{Admin, AdminState};
use crate::upstream::{ServerSel, Upstream};

/// What the object `admin` of a body makes of the admin state.
pub(super) fn state_admin(
    admin: &Admin,
    body: &Field<AdminBody>,
    whole: Whole,
    ctx: &Context<'_>,
) -> Result<Admin, ChangeError> {
    let up = AdminBody { state: Some(AdminState::Up), ..AdminBody::default() };
    let body = match body {
        Field::Absent => return Ok(admin.clone()),
        Field::Default => &up,
        Field::Given(body) => body,
    };
    let otherwise = if whole == Whole::Yes { AdminState::Up } else { admin.state };
    let state = body.state.unwrap_or(otherwise);
    if state == AdminState::Up && body.end != End::Never {
        return Err(ChangeError::Field { field: "admin", error: FieldError::EndOfUp });
    }
    if state == AdminState::Up && body.close != End::Never {
        return Err(ChangeError::Field { field: "admin", error: FieldError::CloseOfUp });
    }
    Ok(set_admin(admin, state, &body.reason, (body.end, body.close), ctx))
}

/// Sets state, reason, end, and when connections are closed, together; what is already so stays
/// with its actor and time.
pub(crate) fn set_admin(
    admin: &Admin,
    state: AdminState,
    reason: &str,
    (end, close): (End, End),
    ctx: &Context<'_>,
) -> Admin {
    // A state whose end has passed is over.
    let (state, reason) = match end {
        End::At(at) if at <= ctx.now => (AdminState::Up, ""),
        _ => (state, reason),
    };
    let time = |end: End, stands: Option<u64>| match end {
        _ if state == AdminState::Up => (None, stands.is_none()),
        End::Never => (None, stands.is_none()),
        End::After(ms) => (Some(ctx.now.saturating_add(ms)), false),
        // Such a time comes from a listing, which shows whole seconds.
        End::At(at) => (Some(at), stands.is_some_and(|stands| stands / 1000 == at / 1000)),
    };
    let (until, same_end) = time(end, admin.until);
    let (close, same_close) = time(close, admin.close);
    let same = state == admin.state && field::is_kept(&admin.reason, reason);
    if same && same_end && same_close {
        return admin.clone();
    }
    Admin {
        state,
        since: ctx.now,
        until,
        close,
        reason: reason.to_owned(),
        by: ctx.actor.by.clone(),
        from: ctx.actor.from.clone(),
    }
}

/// `up`, `drain`, `down`.
pub(super) fn verb(
    current: &Upstream,
    sel: &ServerSel,
    verb: AdminState,
    opts: &VerbOpts,
    ctx: &Context<'_>,
) -> Result<Applied, ChangeError> {
    let at = find(current, sel)?;
    let server = &current.servers[at];
    let stands = &server.admin;
    if let Some(reason) = &opts.if_reason
        && stands.state != AdminState::Up
        && !field::is_kept(&stands.reason, reason)
    {
        return Err(ChangeError::IfReason {
            server: server.addr.clone(),
            state: stands.state,
            reason: stands.reason.clone(),
            by: stands.by.clone(),
        });
    }
    let wanted = set_admin(stands, verb, opts.reason.as_deref().unwrap_or(""), opts.times(), ctx);
    if wanted == *stands {
        return Ok(Applied::Same);
    }
    if let Some(min_up) = opts.min_up
        && verb != AdminState::Up
    {
        let others = current.servers.iter().enumerate().filter(|&(i, _)| i != at);
        let left = others.filter(|(_, server)| (ctx.eligible)(server)).count();
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        if left < min_up {
            return Err(ChangeError::MinUp { upstream: current.name.clone(), min_up, left });
        }
    }
    let mut next = current.clone();
    next.servers[at].admin = wanted;
    Ok(Applied::Set(next))
}

/// The end of every `ttl` that has come.
pub(super) fn expire(current: &Upstream, now: u64, ctx: &Context<'_>) -> Applied {
    let over = |admin: &Admin| admin.until.is_some_and(|until| until <= now);
    if !current.servers.iter().any(|server| over(&server.admin)) {
        return Applied::Same;
    }
    let mut next = current.clone();
    for server in next.servers.iter_mut().filter(|server| over(&server.admin)) {
        server.admin = set_admin(&server.admin, AdminState::Up, "", (End::Never, End::Never), ctx);
    }
    Applied::Set(next)
}
