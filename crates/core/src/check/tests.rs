use proptest::prelude::*;

use super::*;

fn check(words: &[&str]) -> Check {
    Check::parse(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

#[test]
fn words_give_a_check_with_the_defaults_of_its_kind() {
    assert_eq!(check(&[]), Check::default());
    let tcp = check(&["type=tcp"]);
    assert_eq!((tcp.uri.as_str(), tcp.reuse), ("", false));
    let grpc = check(&["type=grpc"]);
    assert_eq!((grpc.uri.as_str(), grpc.reuse), ("", true));
    assert!(!check(&["type=https"]).reuse && check(&["type=https", "reuse=on"]).reuse);
    assert_eq!(check(&["type=grpc", "uri=acme.Orders"]).uri, "acme.Orders");
    assert_eq!(check(&["interval=500ms"]).timeout, Millis(500), "never above the interval");
    assert!(check(&["type=https", "ca=/etc/ca.pem"]).verify);
    assert!(!check(&["type=https", "ca=/etc/ca.pem", "verify=off"]).verify);
    let all = [
        "type=https",
        "interval=2s",
        "jitter=5%",
        "timeout=300ms",
        "fails=3",
        "passes=1",
        "uri=/health?x=1",
        "host=app.test:80",
        "port=8081",
        "sni=app.test",
        "verify=on",
        "ca=/ca.pem",
        "status=204,200",
        "body=all is well",
        "mandatory",
        "reuse=on",
        "on_all_down=refuse",
    ];
    let said = check(&all).to_string();
    let wanted = all.join(" ").replace(" verify=on", "").replace("204,200", "200,204");
    assert_eq!(said, wanted);
    assert_eq!(check(&["fails=2", "interval=5s"]).to_string(), "type=http");
}

#[test]
fn a_bad_word_is_named_with_what_it_may_be() {
    let table: [(&[&str], &str); 36] = [
        (&["type=ftp"], "\"type=ftp\": it is none of: http, https, tcp, grpc"),
        (&["interval=5x"], "\"interval=5x\": it is not a time like \"30s\" or \"1m30s\""),
        (&["interval=99ms"], "\"interval=99ms\": it must be a time from 100ms to 3600s"),
        (&["interval=2h"], "\"interval=2h\": it must be a time from 100ms to 3600s"),
        (&["jitter=10"], "\"jitter=10\": it must be from 0% to 50%"),
        (&["jitter=51%"], "\"jitter=51%\": it must be from 0% to 50%"),
        (&["timeout=0"], "\"timeout=0\": it must be a time from 1ms to 3600s"),
        (&["timeout=6s"], "\"timeout=6s\": it must be at most the interval"),
        (&["fails=0"], "\"fails=0\": it must be a whole number from 1 to 100"),
        (&["passes=101"], "\"passes=101\": it must be a whole number from 1 to 100"),
        (&["fails=x"], "\"fails=x\": it must be a whole number from 1 to 100"),
        (
            &["uri=health"],
            "\"uri=health\": it must begin with \"/\" and have printable characters of ASCII only, and no spaces, quotes, \"<\", \">\", or \"#\"",
        ),
        (
            &["uri=/a b"],
            "\"uri=/a b\": it must begin with \"/\" and have printable characters of ASCII only, and no spaces, quotes, \"<\", \">\", or \"#\"",
        ),
        (
            &["type=grpc", "uri=/x"],
            "\"uri=/x\": it must be the name of a service like \"acme.Orders\"",
        ),
        (&["type=tcp", "uri=/"], "\"uri=/\": it has no meaning where the type is \"tcp\""),
        (
            &["host=a b"],
            "\"host=a b\": it must have printable characters of ASCII only, and no spaces",
        ),
        (
            &["type=grpc", "host=a/b"],
            "\"host=a/b\": it must be a name or an address, with a port or without",
        ),
        (&["type=tcp", "host=a"], "\"host=a\": it has no meaning where the type is \"tcp\""),
        (&["port=0"], "\"port=0\": it must be a whole number from 1 to 65535"),
        (&["port=65536"], "\"port=65536\": it must be a whole number from 1 to 65535"),
        (&["sni=a.test"], "\"sni=a.test\": it has no meaning where the type is \"http\""),
        (
            &["type=https", "sni=a:1"],
            "\"sni=a:1\": it must be the name of a host: labels of letters, digits, \"-\", \"_\"",
        ),
        (&["verify=on"], "\"verify=on\": it has no meaning where the type is \"http\""),
        (&["type=https", "verify=on"], "\"verify=on\": it needs a \"ca\""),
        (&["type=https", "verify=1"], "\"verify=1\": it is none of: on, off"),
        (&["ca=/x"], "\"ca=/x\": it has no meaning where the type is \"http\""),
        (&["type=https", "ca="], "\"ca=\": it must not be empty"),
        (
            &["type=https", "ca=x.pem"],
            "\"ca=x.pem\": it must be a path from the root, such as \"/etc/ssl/ca.pem\"",
        ),
        (
            &["type=grpc", "status=200"],
            "\"status=200\": it has no meaning where the type is \"grpc\"",
        ),
        (
            &["status=2xx"],
            "\"status=2xx\": it must be statuses from 100 to 599 like \"200-399,404\"",
        ),
        (&["type=tcp", "body=x"], "\"body=x\": it has no meaning where the type is \"tcp\""),
        (&["body="], "\"body=\": it must not be empty"),
        (&["type=tcp", "reuse=off"], "\"reuse=off\": it has no meaning where the type is \"tcp\""),
        (&["on_all_down=drop"], "\"on_all_down=drop\": it is none of: use, refuse"),
        (
            &["type=grpc", "verify=off"],
            "\"verify=off\": it has no meaning where the type is \"grpc\"",
        ),
        (&["reuse=yes"], "\"reuse=yes\": it is none of: on, off"),
    ];
    for (words, text) in table {
        let error = Check::parse(words).unwrap_err();
        assert_eq!(error.to_string(), format!("invalid value {text}"), "{words:?}");
    }
    for (words, text) in [
        (&["mandatory=on"][..], "invalid parameter \"mandatory=on\""),
        (&["uri"], "invalid parameter \"uri\""),
        (&["rise=2"], "invalid parameter \"rise=2\""),
        (&["fails=2", "fails=2"], "duplicate parameter \"fails\""),
        (&["mandatory", "mandatory"], "duplicate parameter \"mandatory\""),
    ] {
        assert_eq!(Check::parse(words).unwrap_err().to_string(), text);
    }
}

#[test]
fn what_no_request_can_have_is_refused() {
    for uri in ["/<x>", "/a`b", "/?q=\"a\"", "/?a>b", "/a#b"] {
        let error = Check::parse(&[&format!("uri={uri}")]).unwrap_err();
        assert!(error.to_string().contains("quotes"), "{uri}: {error}");
    }
    let grpc = |host: &str| Check::parse(&["type=grpc", &format!("host={host}")]);
    for host in ["a", "a.b-c_d", "a:80", "10.0.0.1", "[::1]", "[::1]:50051"] {
        assert!(grpc(host).is_ok(), "{host}");
    }
    for host in ["a/b", "a@b", "a%b", "a:", "a:b:c", "a:65536", ":80", "[::1", "[x]", "[::1]80"] {
        assert!(grpc(host).is_err(), "{host}");
        assert!(Check::parse(&[&format!("host={host}")]).is_ok(), "HTTP/1.1 sends {host}");
    }
}

#[test]
fn identity_is_of_what_is_probed_and_of_nothing_else() {
    let base = check(&["type=https", "uri=/a"]);
    let same = ["interval=1s", "timeout=2s", "fails=5", "passes=1", "jitter=0%", "mandatory"];
    for word in same.into_iter().chain(["reuse=on", "on_all_down=refuse"]) {
        assert_eq!(check(&["type=https", "uri=/a", word]).identity(), base.identity(), "{word}");
    }
    let others = ["host=a", "port=81", "sni=a", "ca=/a", "status=200", "body=a"];
    let mut seen = std::collections::HashSet::from([base.identity()]);
    for word in others {
        let other = check(&["type=https", "uri=/a", word]).identity();
        assert!(other != 0 && seen.insert(other), "{word}");
    }
    assert!(seen.insert(check(&["uri=/a"]).identity()));
    assert!(seen.insert(check(&["type=https", "uri=/a/b"]).identity()));
    assert!(seen.insert(check(&["type=https", "ca=/a", "verify=off", "uri=/a"]).identity()));
}

proptest! {
    /// What is said of a check makes it again, as do its words and its forms in files.
    #[test]
    fn every_form_reads_back(check in any_check()) {
        prop_assert_eq!(check.said().build(), Ok(check.clone()));
        let words = check.words().into_iter().map(|(name, value)| match name {
            "mandatory" => name.to_owned(),
            _ => format!("{name}={value}"),
        });
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        prop_assert_eq!(Check::parse(&words), Ok(check.clone()));
        if !check.body.as_ref().is_some_and(|body| body.contains(' ')) {
            let said = check.to_string();
            let said: Vec<&str> = said.split(' ').collect();
            prop_assert_eq!(Check::parse(&said), Ok(check.clone()), "{:?}", said);
        }
        let json = serde_json::to_string(&check).unwrap();
        let read: Check = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(read.kept(), Ok(check.clone()));
        let bytes = postcard::to_allocvec(&check).unwrap();
        prop_assert_eq!(postcard::from_bytes(&bytes), Ok(check));
    }
}

/// Checks with something said of every field now and then.
pub(crate) fn any_check() -> impl Strategy<Value = Check> {
    let common = (
        prop::sample::select(&Kind::ALL),
        prop::option::of(100u64..10_000),
        prop::option::of(1u64..100),
        prop::option::of(0u8..=50),
        prop::option::of((1u8..5, 1u8..5)),
        any::<(bool, bool)>(),
        prop::option::of(1u16..),
    );
    let texts = (
        prop::option::of("[a-z]{1,4}"),
        prop::option::of("[a-z]{1,4}"),
        prop::option::of("/[a-z]{1,4}"),
        prop::option::of("[a-zé ]{1,4}"),
        any::<[Option<bool>; 2]>(),
        prop::option::of(prop::sample::select(&["200", "200-299,404", "100-599"][..])),
    );
    (common, texts).prop_map(|(common, texts)| {
        let (kind, interval, timeout, jitter, runs, (mandatory, refuse), port) = common;
        let (name, host, ca, body, [verify, reuse], status) = texts;
        let mut said = CheckBody::default();
        use crate::body::Field::{self, Given};
        fn given<T>(value: Option<T>) -> Field<T> {
            value.map_or(Field::Absent, Given)
        }
        said.kind = Given(kind);
        said.interval = given(interval.map(Millis));
        said.timeout = given(timeout.map(Millis));
        said.jitter = given(jitter);
        said.fails = given(runs.map(|runs| runs.0));
        said.passes = given(runs.map(|runs| runs.1));
        said.port = given(port);
        said.mandatory = Given(mandatory);
        said.on_all_down = given(refuse.then_some(OnAllDown::Refuse));
        if kind != Kind::Tcp {
            let path = |name| if kind.is_http() { format!("/{name}") } else { name };
            said.uri = given(name.map(path));
            said.host = given(host.clone());
            said.reuse = given(reuse);
        }
        if kind.is_http() {
            said.status = given(status.map(|text| text.parse().unwrap()));
            said.body = given(body);
        }
        if kind == Kind::Https {
            said.sni = given(host);
            said.verify = given(verify.filter(|verify| !verify || ca.is_some()));
            said.ca = given(ca);
        }
        said.build().unwrap()
    })
}
