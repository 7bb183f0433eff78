//! Events: a stream, a poll and a log say what changed, in order, to everybody, at no cost while
//! nothing happens.

mod support;

use std::fs;
use std::time::Instant;

use serde_json::json;
use support::*;

const APP: &str = "
    peerage_zone main 1m;
    upstream app { peerage main; server 10.0.0.1:80; server 10.0.0.2:80; }";

fn nginx(workers: usize) -> Nginx {
    Nginx::builder().http(APP).with_api("write=on").workers(workers).start()
}

/// Events after that one, and the number to go on from.
fn poll(api: &Api, since: u64, more: &str) -> (Vec<Value>, u64) {
    let (status, body) = api.get(&format!("events?since={since}{more}"));
    assert_eq!(status, 200, "{body}");
    (body["events"].as_array().unwrap().clone(), body["seq"].as_u64().unwrap())
}

/// The number of the last event.
fn last(api: &Api) -> u64 {
    let (status, body) = api.get("events");
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["events"], json!([]), "without since a poll begins now");
    body["seq"].as_u64().unwrap()
}

/// `kind what from > to by reason` of each event, which follow on each other.
fn lines(events: &[Value]) -> Vec<String> {
    let seqs: Vec<u64> = events.iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|two| two[1] == two[0] + 1), "{seqs:?}");
    let text = |e: &Value, name: &str| e[name].as_str().unwrap_or("").to_owned();
    let line = |e: &Value| {
        assert!(text(e, "time").ends_with('Z') && e["revision"].is_u64(), "{e}");
        let what = if e["host"].is_string() { text(e, "host") } else { text(e, "server") };
        let (by, reason) = (text(e, "by"), text(e, "reason"));
        let line = format!(
            "{} {what} {} > {} {by} {reason}",
            text(e, "kind"),
            text(e, "from"),
            text(e, "to")
        );
        line.trim().replace("  ", " ")
    };
    events.iter().map(line).collect()
}

/// A stream of events whose head has been read.
struct Stream(Conn);

impl Stream {
    fn open(api: &Api, path: &str, last_id: Option<u64>) -> Self {
        let mut conn = Conn::open(api.addr()).unwrap();
        let mut request = api.request("GET", path, None).header("Accept", "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("Last-Event-ID", &id.to_string());
        }
        conn.begin(&request.timeout(secs(30))).unwrap();
        let reply = conn.head().unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        let mut stream = Self(conn);
        stream.until("\n\n");
        stream
    }

    /// What comes up to and with this text.
    fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.extend(self.0.read(1).unwrap());
        }
        String::from_utf8(bytes).unwrap()
    }

    /// The next event: its fields `id` and `event`, and its data.
    fn event(&mut self) -> (u64, String, Value) {
        let text = self.until("}\n\n");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {text:?}")).to_owned()
        };
        let data = serde_json::from_str(&field("data: ")).unwrap();
        (field("id: ").parse().unwrap(), field("event: "), data)
    }
}

#[test]
fn every_change_is_told_once_in_order_with_what_was_and_who_did_it() {
    let nginx = nginx(2);
    let api = nginx.api();
    let (begin, since) = poll(&api, 0, "");
    assert_eq!(
        lines(&begin),
        [
            "upstream absent > round_robin config",
            "server 10.0.0.1:80 absent > weight=1 config",
            "server 10.0.0.2:80 absent > weight=1 config",
        ]
    );
    api.verb("app", "10.0.0.1:80", "down?reason=disk");
    api.verb("app", "10.0.0.1:80", "down?reason=disk");
    api.verb("app", "10.0.0.1:80", "down?reason=fan");
    api.verb("app", "10.0.0.1:80", "up");
    api.ok("PATCH", "upstreams/app/servers/10.0.0.2:80", Some(&json!({"weight":5,"backup":true})));
    api.ok("PATCH", "upstreams/app", Some(&json!({"defaults":{"max_fails":3}})));
    let servers = json!({"servers":[{"server":"10.0.1.1:80","admin":{"state":"down"}}]});
    api.ok("PUT", "upstreams/b", Some(&servers));
    api.ok("DELETE", "upstreams/b", None);
    api.verb("app", "10.0.0.1:80", "drain?ttl=1s");
    let revision = api.upstream("app")["revision"].as_u64().unwrap();
    let events = eventually(secs(10), || {
        let (events, _) = poll(&api, since, "");
        (events.last().unwrap()["by"] == "ttl").then_some(events)
    });
    assert_eq!(
        lines(&events),
        [
            "admin 10.0.0.1:80 up > down 127.0.0.1 disk",
            "admin 10.0.0.1:80 down > down 127.0.0.1 fan",
            "admin 10.0.0.1:80 down > up 127.0.0.1",
            "server 10.0.0.2:80 weight=1 > weight=5 backup 127.0.0.1",
            "upstream round_robin > round_robin max_fails=3 127.0.0.1",
            "upstream absent > round_robin 127.0.0.1",
            "server 10.0.1.1:80 absent > weight=1 127.0.0.1",
            "admin 10.0.1.1:80 up > down 127.0.0.1",
            "server 10.0.1.1:80 weight=1 > absent 127.0.0.1",
            "upstream round_robin > absent 127.0.0.1",
            "admin 10.0.0.1:80 up > drain 127.0.0.1",
            "admin 10.0.0.1:80 drain > up ttl",
        ]
    );
    assert!(events.iter().all(|e| e["upstream"] == "app" || e["upstream"] == "b"));
    assert_eq!(events[10]["revision"].as_u64(), Some(revision));
    assert_eq!(events[0]["address"], "127.0.0.1");
    let seq = api.ok("GET", "zones/main", None)["seq"].as_u64();
    assert_eq!(seq, events.last().unwrap()["seq"].as_u64());
}

#[test]
fn hosts_and_batches_tell_too() {
    let nginx = nginx(2);
    let api = nginx.api();
    let since = last(&api);
    let (status, body) = api.post("hosts/10.0.0.1/down?reason=move");
    assert_eq!(status, 200, "{body}");
    let changes = json!({"changes":[
        {"op":"up","host":"10.0.0.1"},
        {"op":"down","upstream":"app","server":"10.0.0.2:80","reason":"deploy"},
    ]});
    let (status, body) = api.post_json("batch", &changes);
    assert_eq!(status, 200, "{body}");
    let (events, _) = poll(&api, since, "");
    let mut told = lines(&events);
    told[1..].sort();
    assert_eq!(
        told,
        [
            "host 10.0.0.1 up > down 127.0.0.1 move",
            "admin 10.0.0.2:80 up > down 127.0.0.1 deploy",
            "host 10.0.0.1 down > up 127.0.0.1",
        ]
    );
    assert_eq!(events[1]["revision"], events[2]["revision"]);
}

#[test]
fn a_poll_waits_for_the_first_event_and_no_longer() {
    let nginx = nginx(2);
    let api = nginx.api();
    let since = last(&api);
    let begun = Instant::now();
    assert_eq!(poll(&api, since, "&wait=200ms"), (vec![], since));
    assert!(begun.elapsed() >= ms(190));
    let mut conn = Conn::open(api.addr()).unwrap();
    conn.begin(&api.request("GET", &format!("events?since={since}&wait=30s"), None)).unwrap();
    assert!(conn.silent_for(ms(100)));
    let begun = Instant::now();
    api.verb("app", "10.0.0.1:80", "down");
    let reply = conn.reply().unwrap();
    println!("a poll is answered {:?} after the change began", begun.elapsed());
    assert!(begun.elapsed() < secs(2));
    assert_eq!(reply.json()["events"].as_array().unwrap().len(), 1);
    assert_eq!(reply.json()["seq"], since + 1);
    // The same poll again is answered at once.
    assert_eq!(poll(&api, since, "&wait=30s").1, since + 1);
}

#[test]
fn a_stream_goes_on_where_the_last_one_ended() {
    let nginx = nginx(2);
    let api = nginx.api();
    let since = last(&api);
    let mut stream = Stream::open(&api, "events", None);
    api.verb("app", "10.0.0.1:80", "down");
    let (id, kind, data) = stream.event();
    assert_eq!((id, kind.as_str(), &data["to"]), (since + 1, "admin", &json!("down")));
    assert_eq!(data["seq"], id);
    drop(stream);
    api.verb("app", "10.0.0.1:80", "up");
    api.verb("app", "10.0.0.2:80", "drain");
    // The header of a client that comes back goes over the address it had first.
    let mut stream = Stream::open(&api, "events?since=0", Some(id));
    assert_eq!(stream.event().2["to"], "up");
    assert_eq!(stream.event().2["to"], "drain");
    let mut stream = Stream::open(&api, &format!("events?since={since}"), None);
    assert_eq!(stream.event().0, since + 1);
}

#[test]
fn who_asks_for_what_is_not_kept_is_told_where_events_are() {
    let mut nginx = nginx(1);
    let api = nginx.api();
    let first = last(&api);
    let reason = "x".repeat(200);
    for i in 0..120 {
        api.verb("app", "10.0.0.1:80", &format!("down?reason={i}-{reason}"));
    }
    let now = last(&api);
    assert_eq!(now, first + 120);
    for since in [first, now + 1, 1] {
        for accept in ["application/json", "text/event-stream"] {
            let reply =
                api.with("Accept", accept).call("GET", &format!("events?since={since}"), None);
            assert_eq!(reply.status, 410, "{}", reply.text());
            assert_eq!(reply.json()["type"], "urn:peerage:events-gone");
            assert_eq!(reply.json()["seq"], now);
        }
    }
    let kept = poll(&api, 0, "").0.len();
    assert!((20..120).contains(&kept), "{kept}");
    for since in ["x", "-1", "", "1.5", "99999999999999999999999"] {
        assert_eq!(api.get(&format!("events?since={since}")).0, 400, "{since}");
    }
    // Numbers go on over a restart, so that nobody takes new events for old ones.
    nginx.restart();
    let reply = api.call("GET", &format!("events?since={now}"), None);
    assert_eq!(reply.status, 410, "{}", reply.text());
    assert!(reply.json()["seq"].as_u64().unwrap() > now);
}

#[test]
fn idle_listeners_cost_nothing_and_hear_at_once() {
    let n = scale(200, 1000);
    let nginx = Nginx::builder()
        .http(APP)
        .with_api("write=on")
        .events("worker_connections 4096;")
        .workers(2)
        .start();
    let api = nginx.api();
    let mut streams: Vec<Stream> = (0..n).map(|_| Stream::open(&api, "events", None)).collect();
    let workers = nginx.worker_pids();
    let ticks = || workers.iter().map(|&pid| cpu_ticks(pid)).sum::<u64>();
    let_pass(ms(200));
    let before = ticks();
    let_pass(secs(3));
    let idle = ticks() - before;
    println!("{n} idle listeners: {idle} ticks of 10 ms in 3 s");
    assert!(idle <= 2, "{idle} ticks");

    let begun = Instant::now();
    api.verb("app", "10.0.0.1:80", "down");
    let first = streams[0].event().0;
    for stream in &mut streams[1..] {
        assert_eq!(stream.event().0, first);
    }
    let took = begun.elapsed();
    println!("an event reaches {n} listeners in {took:?}");
    assert!(took < secs(2), "{took:?}");

    // Clients that go away leave nothing behind.
    let open = || workers.iter().map(|&pid| descriptors(pid)).sum::<usize>();
    let full = open();
    streams.truncate(n / 2);
    eventually(secs(5), || open() <= full - n / 2);
    api.verb("app", "10.0.0.1:80", "up");
    assert!(streams.iter_mut().all(|stream| stream.event().0 == first + 1));
}

#[test]
fn a_reload_ends_streams_and_polls_at_once() {
    let mut nginx = nginx(2);
    let api = nginx.api();
    let mut streams: Vec<Stream> =
        (0..20).map(|_| Stream::open(&api, "events?since=0", None)).collect();
    // It takes nothing: what is told fills its buffers.
    let mut deaf = Conn::open(api.addr()).unwrap();
    let request = api.request("GET", "events?since=0", None).header("Accept", "text/event-stream");
    deaf.begin(&request).unwrap();
    let mut poll = Conn::open(api.addr()).unwrap();
    poll.begin(&api.request("GET", "events?wait=1h", None)).unwrap();
    assert!(poll.silent_for(ms(100)));
    let old = nginx.worker_pids();
    let begun = Instant::now();
    nginx.reload();
    eventually(secs(5), || old.iter().all(|&pid| !alive(pid)));
    println!("old workers are gone {:?} after the reload began", begun.elapsed());
    assert_eq!(poll.reply().unwrap().json()["events"], json!([]));
    for stream in &mut streams {
        assert!(stream.until("0\r\n\r\n").contains("event: upstream"));
    }
}

#[test]
fn a_client_that_takes_nothing_holds_no_worker() {
    // A ring that holds what the sockets do not: the stream is stopped, not ended.
    let mut nginx = Nginx::builder()
        .http(APP.replace("main 1m", "main 32m"))
        .http_more("server { listen {small} sndbuf=8k; location /api { peerage_api; } }")
        .with_api("write=on")
        .port("small")
        .workers(1)
        .start();
    let api = nginx.api();
    let mut deaf = Conn::open(nginx.addr("small")).unwrap();
    let request = api.request("GET", "events", None).header("Accept", "text/event-stream");
    deaf.begin(&request).unwrap();
    let reason = "x".repeat(200);
    for i in 0..600 {
        api.verb("app", "10.0.0.1:80", &format!("down?reason={i}-{reason}"));
    }
    let old = nginx.worker_pids();
    nginx.reload();
    eventually(secs(5), || old.iter().all(|&pid| !alive(pid)));
    drop(deaf);
}

#[test]
fn the_log_has_a_line_for_each_event_and_is_opened_anew() {
    let mut nginx = Nginx::builder()
        .http("peerage_log logs/peerage.log;")
        .http_more(APP)
        .with_api("write=on")
        .workers(2)
        .start();
    let api = nginx.api();
    let lines_of = |nginx: &Nginx, name: &str| -> Vec<Value> {
        let text = nginx.log(name);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for i in 0..10 {
        api.verb("app", "10.0.0.1:80", &format!("down?reason=r{i}"));
    }
    let logged = lines_of(&nginx, "peerage.log");
    assert_eq!(logged.len(), 13, "three of the configuration, ten of ours");
    assert!(logged.iter().all(|line| line["zone"] == "main"));
    let (told, since) = poll(&api, 0, "");
    for (mut logged, told) in logged.into_iter().zip(told) {
        logged.as_object_mut().unwrap().remove("zone");
        assert_eq!(logged, told);
    }
    // Nothing changes, nothing is written.
    api.verb("app", "10.0.0.1:80", "down?reason=r9");
    assert_eq!(lines_of(&nginx, "peerage.log").len(), 13);

    let path = nginx.prefix().join("logs/peerage.log");
    let moved = nginx.prefix().join("logs/peerage.log.1");
    fs::rename(&path, &moved).unwrap();
    nginx.reopen();
    eventually(secs(5), || path.exists());
    // Every worker has its own descriptor, and opens anew on its own.
    let old = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == moved)
    };
    eventually(secs(5), || nginx.worker_pids().into_iter().all(|pid| !old(pid)));
    api.verb("app", "10.0.0.1:80", "up");
    let logged = lines_of(&nginx, "peerage.log");
    assert_eq!((logged.len(), &logged[0]["to"]), (1, &json!("up")));
    assert_eq!(logged[0]["seq"], since + 1);
    assert_eq!(lines_of(&nginx, "peerage.log.1").len(), 13);

    // What a reload changes is told by the master.
    nginx.change(|conf| {
        conf.http("peerage_log logs/peerage.log;")
            .http_more(&APP.replace("server 10.0.0.2:80;", "server 10.0.0.2:80 weight=3;"))
    });
    nginx.reload();
    let logged = lines_of(&nginx, "peerage.log");
    assert_eq!((logged.len(), &logged[1]["to"]), (2, &json!("weight=3")), "{logged:?}");
    assert_eq!(logged[1]["by"], "config");
}

#[test]
fn a_log_that_cannot_be_opened_refuses_the_configuration() {
    let (good, said) = Nginx::builder().http("peerage_log no/such/log;").test();
    assert!(!good && said.contains("no/such/log"), "{said}");
    let (good, said) = Nginx::builder().http("peerage_log a; peerage_log b;").test();
    assert!(!good && said.contains("\"peerage_log\" directive is duplicate"), "{said}");
}
