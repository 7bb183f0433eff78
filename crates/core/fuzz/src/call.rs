//! Requests as text, and the one text of what they ask for.

use peerage_core::api::error::Problem;
use peerage_core::api::route::{Call, Decision, Http, Routed, WriteMode, route};
use peerage_core::body::VerbOpts;
use peerage_core::upstream::ServerSel;

/// Routes `METHOD /path?query`.
pub fn routed(line: &str) -> Result<Routed, Problem> {
    let (method, target) = line.split_once(' ').unwrap_or((line, ""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    route(Http::parse(method.as_bytes()), path.as_bytes(), query.as_bytes(), WriteMode::On)
}

/// The request that asks for it; `None` for a filter of servers, which has no text.
pub fn text(routed: &Routed) -> Option<String> {
    let mut query = Vec::new();
    let mut say = |name: &str, value: &str| query.push(format!("{name}={}", escaped(value)));
    let of = |sel: &ServerSel| escaped(&sel.to_string());
    let (method, path) = match &routed.call {
        Call::Root => ("GET", String::new()),
        Call::OpenApi => ("GET", "openapi.json".into()),
        Call::ZoneReport { zone } => ("GET", format!("zones/{}", escaped(zone))),
        Call::Flush { zone } => ("POST", format!("zones/{}/flush", escaped(zone))),
        Call::Export { zone } => ("GET", format!("zones/{}/export", escaped(zone))),
        Call::Import { zone, prune } => {
            prune.then(|| say("prune", "origin:api"));
            ("PUT", format!("zones/{}/import", escaped(zone)))
        }
        Call::Events { since, wait } => {
            since.inspect(|since| say("since", &since.to_string()));
            say("wait", &millis(*wait));
            ("GET", "events".into())
        }
        Call::ListUpstreams { after, limit, servers } => {
            after.iter().for_each(|name| say("after", name.as_str()));
            say("limit", &limit.to_string());
            servers.then(|| say("fields", "servers"));
            ("GET", "upstreams".into())
        }
        Call::ListServers { .. } => return None,
        Call::GetUpstream { upstream } => ("GET", format!("upstreams/{upstream}")),
        Call::PutUpstream { upstream } => ("PUT", format!("upstreams/{upstream}")),
        Call::PatchUpstream { upstream } => ("PATCH", format!("upstreams/{upstream}")),
        Call::DeleteUpstream { upstream, force } => {
            force.then(|| say("force", "1"));
            ("DELETE", format!("upstreams/{upstream}"))
        }
        Call::GetServer { upstream, sel } => server("GET", upstream.as_str(), &of(sel)),
        Call::PutServer { upstream, sel } => server("PUT", upstream.as_str(), &of(sel)),
        Call::PatchServer { upstream, sel } => server("PATCH", upstream.as_str(), &of(sel)),
        Call::DeleteServer { upstream, sel } => server("DELETE", upstream.as_str(), &of(sel)),
        Call::Verb { upstream, sel, verb, opts } => {
            options(opts, say);
            let (_, path) = server("POST", upstream.as_str(), &of(sel));
            ("POST", format!("{path}/{}", verb.as_str()))
        }
        Call::Opine { upstream, sel, saying } => {
            saying.ttl.inspect(|&ttl| say("ttl", &millis(ttl)));
            saying.reason.iter().for_each(|reason| say("reason", reason));
            let (_, path) = server("POST", upstream.as_str(), &of(sel));
            ("POST", format!("{path}/{}", saying.opinion.as_str()))
        }
        Call::GetCheck { upstream, sel } => {
            let (_, path) = server("GET", upstream.as_str(), &of(sel));
            ("GET", format!("{path}/check"))
        }
        Call::Check { upstream, sel } => {
            let (_, path) = server("POST", upstream.as_str(), &of(sel));
            ("POST", format!("{path}/check"))
        }
        Call::GetHost { ip } => ("GET", format!("hosts/{ip}")),
        Call::HostVerb(verb) => {
            verb.missing_ok.then(|| say("missing", "ok"));
            options(&verb.opts, say);
            ("POST", format!("hosts/{}/{}", verb.ip, verb.verb.as_str()))
        }
        Call::ListRoutes { upstream, after, limit } => {
            upstream.iter().for_each(|name| say("upstream", name.as_str()));
            after.iter().for_each(|key| say("after", key.as_str()));
            say("limit", &limit.to_string());
            ("GET", "routes".into())
        }
        Call::GetRoute { key } => ("GET", format!("routes/{}", escaped(key.as_str()))),
        Call::PutRoute { key, force } => {
            force.then(|| say("force", "1"));
            ("PUT", format!("routes/{}", escaped(key.as_str())))
        }
        Call::PatchRoute { key, force } => {
            force.then(|| say("force", "1"));
            ("PATCH", format!("routes/{}", escaped(key.as_str())))
        }
        Call::DeleteRoute { key } => ("DELETE", format!("routes/{}", escaped(key.as_str()))),
        Call::PutRoutes { force } => {
            force.then(|| say("force", "1"));
            ("POST", "routes".into())
        }
        Call::Batch => ("POST", "batch".into()),
        Call::Ready { require } => {
            let names: Vec<&str> = require.iter().map(|name| name.as_str()).collect();
            (!names.is_empty()).then(|| say("require", &names.join(",")));
            ("GET", "ready".into())
        }
        Call::ListSources => ("GET", "sources".into()),
        Call::GetSource { source } => ("GET", format!("sources/consul/{}", escaped(source))),
        Call::DecideSource { source, decision } => {
            let word = match decision {
                Decision::Apply => "apply",
                Decision::Discard => "discard",
            };
            ("POST", format!("sources/consul/{}/{word}", escaped(source)))
        }
    };
    routed.zone.iter().for_each(|zone| query.push(format!("zone={}", escaped(zone))));
    routed.dry_run.then(|| query.push("dry_run=1".into()));
    Some(format!("{method} /v1/{path}?{}", query.join("&")))
}

fn server(method: &'static str, upstream: &str, server: &str) -> (&'static str, String) {
    (method, format!("upstreams/{upstream}/servers/{server}"))
}

fn options(opts: &VerbOpts, mut say: impl FnMut(&str, &str)) {
    let VerbOpts { wait, ttl, close, reason, min_up, if_reason } = opts;
    wait.inspect(|&wait| say("wait", &millis(wait)));
    ttl.inspect(|&ttl| say("ttl", &millis(ttl)));
    close.inspect(|&close| say("close", &millis(close)));
    min_up.inspect(|min_up| say("min_up", &min_up.to_string()));
    reason.iter().for_each(|reason| say("reason", reason));
    if_reason.iter().for_each(|reason| say("if_reason", reason));
}

fn millis(ms: u64) -> String {
    format!("{ms}ms")
}

/// Every byte that is no letter and no digit as its escape.
fn escaped(text: &str) -> String {
    let escape = |b: u8| match b {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(escape).collect()
}
