//! Writes what fuzzing begins with: a directory of real examples for each target.
//!
//! `cargo run -p peerage-core --example fuzz_seeds -- DIR`: requests and bodies are those of
//! docs/api.md, words are of the kinds in docs/directives.md, files and records are made by the
//! code that writes them.

use std::fs;
use std::io::Result;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use peerage_core::addr::ServerAddr;
use peerage_core::api::export;
use peerage_core::api::model::{Form, upstream_body};
use peerage_core::change::{Actor, Applied, Change, Context, apply};
use peerage_core::declare::{DeclaredServer, DeclaredUpstream};
use peerage_core::host::Hosts;
use peerage_core::journal::{self, Head};
use peerage_core::json;
use peerage_core::name::UpstreamName;
use peerage_core::record;
use peerage_core::server::{Admin, AdminState, Origin};
use peerage_core::snapshot::{Header, Writer};
use peerage_core::upstream::{Defaults, Settings, Upstream};

fn main() -> Result<()> {
    let dir: PathBuf = std::env::args_os().nth(1).expect("a directory is named").into();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let calls = calls(&fs::read_to_string(page)?);
    let lines = |location: &str| -> Vec<String> {
        calls.iter().map(|(method, target, _)| format!("{method} {location}{target}")).collect()
    };
    write(&dir, "path", &lines("/api"), |line| format!("{line}\n/api").into())?;
    write(&dir, "path-strange", PATHS, |path| format!("GET {path}\n/").into())?;
    let bodies: Vec<String> = lines("")
        .iter()
        .zip(&calls)
        .map(|(line, (_, _, body))| format!("{line}\n{body}"))
        .collect();
    write(&dir, "body", &bodies, |text| text.clone().into())?;
    // Most change a server that an earlier one makes, or a block.
    write(&dir, "body-after", &bodies, |text| format!("{APP}\n{text}").into())?;
    write(&dir, "body-block", &bodies, |text| format!("{BLOCK}\n{text}\n{RELOADS}").into())?;
    let queries: Vec<&str> =
        calls.iter().filter_map(|call| Some(call.1.split_once('?')?.1)).collect();
    write(&dir, "query", &queries, |query| (*query).into())?;
    write(&dir, "query-more", QUERIES, |query| (*query).into())?;
    write(&dir, "directive", WORDS, |words| (*words).into())?;
    write(&dir, "answer", ANSWERS, |answer| (*answer).into())?;
    write(&dir, "door", DOORS, |text| (*text).into())?;
    write(&dir, "plus", PLUS, |text| (*text).into())?;
    write(&dir, "saved", SAVED, |text| (*text).into())?;
    // What was known, and what is answered then.
    let pair =
        |(before, after): &(&str, &str)| [body_of(before), "\0", body_of(after)].concat().into();
    write(&dir, "consul", CONSUL, pair)?;
    write(&dir, "redis", REDIS, |said| [&[7], said.as_bytes()].concat())?;

    let (mut upstream, hosts) = (upstream(), hosts());
    let mut export = Vec::new();
    export::header(&mut export, "main", 812);
    hosts.iter().for_each(|(ip, admin)| export::host(&mut export, ip, admin));
    export::upstream(&mut export, &upstream);
    export::end(&mut export, 1, upstream.servers.len() as u64, 0);
    write(&dir, "import", &[export], Clone::clone)?;

    let mut snapshot = Vec::new();
    let mut writer = Writer::begin(&mut snapshot, &Header::new("main", 812, 99, 1_795_986_307_000));
    writer.hosts(&mut snapshot, &hosts, 790);
    writer.upstream(&mut snapshot, &upstream, 811);
    writer.end(&mut snapshot);
    let recorded = include_bytes!("../tests/recorded/format-1.json").to_vec();
    write(&dir, "snapshot", &[snapshot, recorded], Clone::clone)?;

    let servers: Vec<Vec<u8>> = upstream.servers.iter().map(record::encode_server).collect();
    write(&dir, "record", &servers, Clone::clone)?;
    let cold = [record::encode_upstream_cold(&upstream), record::encode_hosts(&hosts)];
    write(&dir, "record-cold", &cold, Clone::clone)?;

    let mut lines = Vec::new();
    Head::new("main", 1, 1, 7, 0, 0).write(&mut lines);
    let before = upstream.clone();
    journal::record(&mut lines, 1, 9, &journal::changes(&[(None, Some(&before))], Some(&hosts)));
    upstream.servers[0].params.weight = Some(7);
    upstream.servers.pop();
    let parts = journal::changes(&[(Some(&before), Some(&upstream))], None);
    journal::record(&mut lines, 2, 9, &parts);
    journal::record(&mut lines, 3, 9, &journal::changes(&[(Some(&upstream), None)], None));
    // The other way of reading its bytes: as choices of a story.
    let story = |n: &u8| (0..96u8).map(|i| i.wrapping_mul(*n)).collect();
    write(&dir, "journal-story", &[1, 37, 91], story)?;
    write(&dir, "journal", &[lines], Clone::clone)
}

/// The body of a recorded answer.
fn body_of(recorded: &str) -> &str {
    recorded.split_once("\n\n").map_or(recorded, |(_, body)| body.trim_end())
}

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../tests/data/consul/", $name, ".http"))
    };
}

const CONSUL: &[(&str, &str)] = &[
    (recorded!("registered"), recorded!("critical")),
    (recorded!("registered"), recorded!("warning")),
    (recorded!("registered"), recorded!("maintenance")),
    (recorded!("registered"), recorded!("deregistered")),
    (recorded!("registered"), recorded!("empty_restart")),
    (recorded!("tagged"), recorded!("services")),
];

/// A login with its `HELLO`, `SELECT`, `ROLE`, `PING`; look-ups; pushes; what refuses; a Sentinel.
const REDIS: &[&str] = &[
    "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*0\r\n+OK\r\n\
     *3\r\n$6\r\nmaster\r\n:98\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n$4\r\n6380\r\n$2\r\n98\r\n\
     +PONG\r\n",
    "*2\r\n$9\r\norders-v2\r\n$6\r\nactive\r\n*2\r\n$-1\r\n_\r\n$13\r\n10.0.0.1:8080\r\n:1\r\n",
    ">2\r\n$10\r\ninvalidate\r\n*2\r\n$8\r\ntenant:a\r\n$5\r\napp:b\r\n>2\r\n$10\r\ninvalidate\r\n_\r\n",
    "-NOPROTO unsupported protocol version\r\n+OK\r\n-LOADING Redis is loading\r\n!5\r\nERR a\r\n",
    "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n*-1\r\n-IDONTKNOW I have not enough\r\n",
    "|1\r\n+ttl\r\n:1\r\n=6\r\ntxt:ab\r\n~1\r\n#t\r\n(12345678901234567890\r\n,1.5\r\n",
];

/// The name up to a dash is the target.
fn write<T>(dir: &Path, name: &str, seeds: &[T], bytes: impl Fn(&T) -> Vec<u8>) -> Result<()> {
    let dir = dir.join(name.split('-').next().unwrap_or(name));
    fs::create_dir_all(&dir)?;
    for (n, seed) in seeds.iter().enumerate() {
        fs::write(dir.join(format!("{name}-{n}")), bytes(seed))?;
    }
    Ok(())
}

/// Method, path with query, and body of every curl of the page.
fn calls(page: &str) -> Vec<(String, String, String)> {
    let page = page.replace("\\\n", " ");
    let server = "/v1/upstreams/app/servers/10.0.0.1:8080";
    let call = |text: &str| {
        let text = text.split("\n```").next()?;
        let (_, target) = text.split_once("\"$")?;
        let (base, target) = target.split_once('"')?.0.split_at(1);
        let target = if base == "S" { format!("{server}{target}") } else { target.to_owned() };
        let method = match text.split_once("-X ") {
            Some((_, method)) => method.split(' ').next()?,
            None if text.contains("-T ") => "PUT",
            None => "GET",
        };
        let body = text.split_once("-d '").and_then(|(_, body)| body.split_once('\''));
        let body = body.map_or(String::new(), |(body, _)| body.replace('\n', " "));
        Some((method.to_owned(), target, body))
    };
    let calls: Vec<_> = page.split("curl -").skip(1).filter_map(call).collect();
    assert!(calls.len() > 25, "{} calls", calls.len());
    calls
}

/// An upstream of a block, changed since.
fn upstream() -> Upstream {
    let name = UpstreamName::parse("app").expect("a name");
    let lines =
        ["10.0.0.1:8080 weight=3 label=rack:a", "[2001:db8::7]:80 down", "unix:/run/a backup"];
    let servers = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        DeclaredServer::parse(words[0], &words[1..]).expect("a line of a server")
    });
    let settings = Settings::default();
    let declared = DeclaredUpstream { name: name.clone(), settings, servers: servers.to_vec() };
    let body =
        br#"{"defaults":{"max_fails":2},"check":{"uri":"/up","body":"ok"},"outlier":{},"servers":[
        {"server":"10.0.0.1:8080","weight":5,"admin":{"state":"drain","reason":"disk","ttl":"5m"}},
        {"server":"10.0.0.9","route":"a","fail_timeout":"30s","labels":{"rack":"b"}},
        {"server":"unix:/run/a","backup":true,"admin":{"state":"down"}}]}"#;
    let body = upstream_body(&json::parse(body).expect("JSON"), Form::Put).expect("a body");
    let mut id = 0;
    let mut current = None;
    for change in [Change::Declare(Some(declared)), Change::PutUpstream { body }] {
        let mut ctx = Context {
            now: 1_795_986_307_000,
            actor: Actor::new("ci", "10.1.1.1"),
            fresh_id: &mut || {
                id += 1;
                id
            },
            eligible: &|_| true,
            origin: Origin::Api,
            named_by_block: true,
            keyed: Defaults::default(),
            resolves: true,
        };
        let applied = apply(current.as_ref(), &name, &change, &mut ctx);
        let Ok(Applied::Set(next)) = applied else { panic!("{applied:?}") };
        current = Some(next);
    }
    let mut upstream = current.expect("it was set");
    upstream.servers[0].given = Some("10.0.0.1:08080".into());
    assert!(ServerAddr::parse("10.0.0.1:08080").as_ref() == Ok(&upstream.servers[0].addr));
    upstream
}

fn hosts() -> Hosts {
    let mut hosts = Hosts::default();
    for (ip, state) in [([10, 0, 0, 9], AdminState::Down), ([10, 0, 0, 8], AdminState::Drain)] {
        let (by, from) = ("ci".into(), "10.1.1.1".into());
        let until = Some(1_795_990_000_000);
        let admin = Admin { state, since: 7, until, close: until, reason: "x".into(), by, from };
        hosts.set(IpAddr::from(ip), admin);
    }
    hosts
}

const APP: &str = "PUT /v1/upstreams/app
{\"servers\":[{\"server\":\"10.0.0.1:8080\",\"weight\":3},{\"server\":\"10.0.0.2:8080\"},{\"server\":\"10.0.0.3:8080\"}]}";

const BLOCK: &str = "CONF app\n10.0.0.1:8080 weight=3,10.0.0.2:8080 down,app.example:80";
const RELOADS: &str = "CONF app\n10.0.0.3:8080 backup,10.0.0.1:8080\nCONF app\n";

const PLUS: &[&str] = &[
    "POST /9/http/upstreams/app/servers/\n{\"server\":\"10.0.0.1\",\"weight\":\"5\",\"down\":true}\n\
     PATCH /9/http/upstreams/app/servers/1\n{\"down\":\"false\",\"max_conns\":7,\"route\":\"a\"}\n\
     DELETE //1/http/upstreams/app/servers/1/?dry_run=1\n",
    "POST /9/http/upstreams/app/servers\n{\"server\":\"a.example:80\",\"fail_timeout\":\"21s\",\
     \"slow_start\":30,\"backup\":\"true\",\"drain\":true,\"max_fails\":2}\n\
     PATCH /9/http/upstreams/app/servers/1\n{\"drain\":false,\"backup\":true}",
    "GET /9/http/upstreams?fields=peers,zone&zone=main\n\nGET /9/slabs/ma%69n",
];

const SAVED: &[&str] = &[
    "{\"peerage_store\":1,\"db\":0,\"tenant_prefix\":\"tenant:\",\"app_prefix\":\"app:\"}\n\
     {\"tenant\":\"acme\",\"app\":\"orders-v2\",\"status\":\"active\",\"at\":1795986307000}\n\
     {\"tenant\":\"é \\u0022\",\"status\":\"suspended\",\"at\":0}\n\
     {\"app\":\"orders-v2\",\"servers\":\"10.0.0.1:8080, [::1]\",\"at\":1795986307000}\n",
    "{\"peerage_store\":2,\"new\":[]}\n{\"app\":\"a\",\"servers\":\"b\",\"at\":1}\n",
    "{\"tenant\":\"a\",\"app\":\"b\",\"status\":\"moved\",\"at\":1,\"x\":null}\n{\"tenant\":\"b",
];

const PATHS: &[&str] = &[
    "/%61pi/./v1//upstreams/../upstreams/a%2Db",
    "/v1/upstreams/a/servers/unix:%2Frun%2F..%2Fa",
    "/v1/./upstreams//app%2Fservers/../?zone=main#x",
];

const QUERIES: &[&str] = &[
    "after=app/7&limit=10&state=up,draining&admin=down&label=rack:a&address=10.0.0.1&zone=main",
    "wait=30s&ttl=15m&reason=deploy+8%2B12&min_up=2&if_reason=caf%C3%A9&dry_run=1",
    "since=12&wait=500ms",
    "require=app,b&zone=z",
    "prune=origin:api&dry_run=1",
    "after=app&fields=servers&limit=1000",
    "force=1&missing=ok",
];

/// The length of pieces, a text or a status, an answer.
const ANSWERS: &[&[u8]] = &[
    b"\x03all is well\n<p>all is not well, all is well</p>",
    b"\x43aab\naaaab",
    b"\x020\n\x00\x00\x00\x00\x02\x08\x01",
    b"\x020\n\x00\x00\x00\x00\x08\x08\x02\x12\x02\x08\x01\x08\x01",
    b"\x0112\n",
];

const WORDS: &[&str] = &[
    "10.0.0.1:8080 weight=3 max_conns=100 max_fails=2 fail_timeout=1m30s slow_start=0 backup",
    "10.0.0.1:08080 down route=a label=rack:a label=zone",
    "[2001:db8::7]:80 drain",
    "unix:/run/app.sock",
    "Backend.Example.:80 resolve",
    "weight=3 max_conns=100 max_fails=2 fail_timeout=1m30s",
    "type=https interval=500ms jitter=5% timeout=200ms fails=3 passes=1 uri=/health host=a.test:80",
    "type=https port=81 sni=a.test verify=off ca=/etc/ca.pem status=200-299,404 body=ok mandatory",
    "type=grpc uri=acme.Orders reuse=off on_all_down=refuse",
    "type=tcp",
    "consecutive_errors=3 base=10s max=1m max_percent=50",
    "1y2M3w4d5h6m7s8ms",
    "16m",
    "dc1~App:web@a-b_c\nApp",
    "app-*-?\napp-x-y",
];

const DOORS: &[&str] = &[
    "POST /upstream/dyhost\nserver 127.0.0.1:8089;server 127.0.0.1:8088;",
    "POST /upstream/a%2Db\nleast_conn; # all\nserver 10.0.0.1 weight=3 max_fails=2 fail_timeout=1m backup;\nserver unix:/run/a down;",
    "GET /upstream/app\nhash '$uri \\'x\\'' consistent; keepalive 8; check_http_send \"GET / HTTP/1.0\\r\\n\";\nserver App.Example. label=rack:a route=r;",
    "DELETE /upstream/app?force=1\nrandom two least_conn; server [::1]:80 drain; server ${x};",
    "GET /list?zone=main\n{\"service\":\"hr\",\"peers\":[\"10.0.1.5:8080\",\"10.0.1.6\"]}",
];
