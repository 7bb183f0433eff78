//! Every refusal of the module, as `nginx -t` tells it.

mod support;

use support::*;

const ZONE: &str = "peerage_zone main 1m;";

/// Tests each text inside http{}: it must be refused with an [emerg] line that has these words.
#[track_caller]
fn refused(before: &str, cases: &[(&str, &str)]) {
    let conf = Nginx::builder();
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let (good, output) = conf.clone().http(format!("{before}\n{text}")).test();
        let line = output.lines().find(|line| line.contains("[emerg]")).unwrap_or_default();
        if good || !line.contains(expected) {
            wrong.push(format!("{text}\n  expected: {expected}\n  got: {output}"));
        } else if !line.contains("test.conf:") && !expected.starts_with("unknown \"") {
            // (nginx itself names no place for an unknown variable.)
            wrong.push(format!("{text}\n  no place in: {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same inside a server{}.
#[track_caller]
fn refused_in_servers(cases: &[(&str, &str)]) {
    let servers: Vec<String> =
        cases.iter().map(|(text, _)| format!("server {{ listen {{web}}; {text} }}")).collect();
    let cases: Vec<(&str, &str)> =
        servers.iter().zip(cases).map(|(text, (_, expected))| (text.as_str(), *expected)).collect();
    refused(ZONE, &cases);
}

#[test]
fn consuls() {
    refused(
        ZONE,
        &[
            ("peerage_consul dc1;", "invalid number of arguments in \"peerage_consul\""),
            ("peerage_consul dc1 wait=5m;", "\"peerage_consul\""),
            (
                "peerage_consul a/b server=http://127.0.0.1;",
                "invalid value \"a/b\" in \"peerage_consul\" directive",
            ),
            (
                "peerage_consul dc1 server=127.0.0.1:8500;",
                "invalid value \"server=127.0.0.1:8500\" in \"peerage_consul\" directive",
            ),
            (
                "peerage_consul dc1 server=http://nowhere.invalid:8500;",
                "invalid value \"server=http://nowhere.invalid:8500\" in \"peerage_consul\"",
            ),
            (
                "peerage_consul dc1 server=http://127.0.0.1 token_file=none;",
                "conf/none\": No such file or directory",
            ),
            ("peerage_consul dc1 server=https://127.0.0.1 ca=none.pem;", "conf/none.pem\": "),
            (
                "peerage_consul dc1 server=http://127.0.0.1; peerage_consul dc1 server=http://[::1];",
                "consul \"dc1\" is duplicate",
            ),
            (
                "peerage_consul dc1 server=http://127.0.0.1;
                 upstream a { peerage main; peerage_service web consul=dc1; }
                 upstream b { peerage main; peerage_service web consul=dc1; }",
                "source \"dc1:web\" is followed already in zone \"main\"",
            ),
            (
                "peerage_consul dc1 server=http://127.0.0.1;
                 upstream a { peerage main name=$arg_a; peerage_service tag:lb consul=dc1; }
                 upstream b { peerage main; peerage_service web tag=lb consul=dc1; }",
                "source \"dc1:web,tag=lb\" is followed already in zone \"main\"",
            ),
            (
                "peerage_consul dc1 server=http://127.0.0.1 token_file=/dev/null;",
                "\"/dev/null\" is no regular file",
            ),
        ],
    );
}

#[test]
fn stores() {
    let long = format!("peerage_redis r server=unix:/{};", "a".repeat(107));
    refused(
        ZONE,
        &[
            ("peerage_redis r;", "invalid number of arguments in \"peerage_redis\""),
            ("peerage_redis r db=1;", "invalid value \"server=\" in \"peerage_redis\" directive"),
            (
                "peerage_redis a/b server=127.0.0.1;",
                "invalid value \"a/b\" in \"peerage_redis\" directive: not a name of a redis",
            ),
            (
                "peerage_redis r server=127.0.0.1:0;",
                "invalid value \"127.0.0.1:0\" in \"peerage_redis\" directive",
            ),
            (
                "peerage_redis r server=nowhere.invalid;",
                "invalid value \"server=nowhere.invalid:6379\" in \"peerage_redis\" directive: ",
            ),
            (
                &long,
                "in \"peerage_redis\" directive: a unix socket has an absolute path of at most 107",
            ),
            (
                "peerage_redis r server=127.0.0.1 server=127.0.0.1:6379;",
                "duplicate parameter \"server=127.0.0.1:6379\" in \"peerage_redis\" directive",
            ),
            (
                "peerage_redis r server=127.0.0.1 port=1;",
                "invalid parameter \"port=1\" in \"peerage_redis\" directive",
            ),
            (
                "peerage_redis r server=127.0.0.1 timeout=0;",
                "invalid value \"timeout=0\" in \"peerage_redis\" directive",
            ),
            (
                "peerage_redis r server=127.0.0.1 cache=1k;",
                "invalid value \"cache=1k\" in \"peerage_redis\" directive",
            ),
            (
                "peerage_redis r server=127.0.0.1 ca=ca.pem;",
                "invalid value \"ca=ca.pem\" in \"peerage_redis\" directive",
            ),
            ("peerage_redis r server=127.0.0.1 tls ca=none.pem;", "conf/none.pem\": "),
            (
                "peerage_redis r server=127.0.0.1 password_file=none;",
                "conf/none\": No such file or directory",
            ),
            (
                "peerage_redis r server=127.0.0.1 password_file=/dev/zero;",
                "\"/dev/zero\" is no regular file",
            ),
            ("peerage_redis r server=127.0.0.1 password_file=/tmp;", "\"/tmp\" is no regular file"),
            (
                "peerage_redis r server=127.0.0.1; peerage_redis r server=[::1];",
                "redis \"r\" is duplicate",
            ),
        ],
    );
}

#[test]
fn zones() {
    refused(
        "",
        &[
            ("peerage_zone main;", "invalid number of arguments in \"peerage_zone\""),
            (
                "peerage_zone \"\" 1m;",
                "invalid value \"\" in \"peerage_zone\" directive: not a zone name",
            ),
            ("peerage_zone a/b 1m;", "invalid value \"a/b\" in \"peerage_zone\" directive"),
            (
                "peerage_zone main big;",
                "invalid value \"big\" in \"peerage_zone\" directive: not a size",
            ),
            ("peerage_zone main 1x;", "invalid value \"1x\" in \"peerage_zone\" directive"),
            ("peerage_zone main 4k;", "zone \"main\" is too small, at least 32k"),
            (
                "peerage_zone main 1m state=;",
                "invalid value \"state=\" in \"peerage_zone\" directive: no path",
            ),
            (
                "peerage_zone main 1m flush=soon;",
                "invalid value \"flush=soon\" in \"peerage_zone\" directive",
            ),
            (
                "peerage_zone main 1m flush=0;",
                "invalid value \"flush=0\" in \"peerage_zone\" directive: must be",
            ),
            (
                "peerage_zone main 1m orphans=x;",
                "invalid value \"orphans=x\" in \"peerage_zone\" directive",
            ),
            (
                "peerage_zone main 1m orphans=0s;",
                "invalid value \"orphans=0s\" in \"peerage_zone\"",
            ),
            (
                "peerage_zone main 1m flush=1s flush=2s;",
                "duplicate parameter \"flush\" in \"peerage_zone\"",
            ),
            ("peerage_zone main 1m orphans=off orphans=1s;", "duplicate parameter \"orphans\""),
            ("peerage_zone main 1m state=a state=b;", "duplicate parameter \"state\""),
            (
                "peerage_zone main 1m stat=a;",
                "invalid parameter \"stat=a\" in \"peerage_zone\" directive",
            ),
            ("peerage_zone main 1m; peerage_zone main 2m;", "duplicate peerage zone \"main\""),
            (
                "peerage_zone main 1m state=s.json; peerage_zone other 1m state=s.json;",
                "of peerage zone \"other\" is already used by zone \"main\"",
            ),
            ("limit_req_zone $uri zone=main:1m rate=1r/s; peerage_zone main 1m;", "\"main\""),
            ("server { peerage_zone main 1m; }", "\"peerage_zone\" directive is not allowed here"),
        ],
    );
}

#[test]
fn zone_without_room_for_its_workers() {
    let conf = Nginx::builder().workers(8).http("peerage_zone main 32k;");
    let (good, text) = conf.test();
    let expected = "peerage zone \"main\" is too small: 32k, at least ";
    assert!(!good && text.contains(expected), "{text}");
    assert!(text.contains("for 8 workers of 1024 connections"), "{text}");
    // What it asks for is enough.
    let need = text.split(expected).nth(1).and_then(|rest| rest.split('k').next()).unwrap();
    let (good, text) = conf.http(format!("peerage_zone main {need}k;")).test();
    assert!(good, "{need}k: {text}");
}

#[test]
fn blocks() {
    let mut cases = vec![
        ("peerage main; server 10.0.0.1; peerage main;", "\"peerage\" directive is duplicate"),
        ("peerage none; server 10.0.0.1;", "unknown peerage zone \"none\" in upstream \"app\""),
        ("peerage main name=a name=b;", "duplicate parameter \"name\" in \"peerage\" directive"),
        ("peerage main name=$uri match=a match=b;", "duplicate parameter \"match\""),
        ("peerage main match=a*;", "invalid value \"match=a*\" in \"peerage\" directive: needs a"),
        (
            "peerage main name=$uri match=a/b;",
            "invalid value \"match=a/b\" in \"peerage\" directive",
        ),
        ("peerage main name=a/b;", "invalid value \"name=a/b\" in \"peerage\" directive"),
        ("peerage main name=;", "invalid value \"name=\" in \"peerage\" directive"),
        ("peerage main nam=a;", "invalid parameter \"nam=a\" in \"peerage\" directive"),
        ("peerage main name=$nobody_knows;", "unknown \"nobody_knows\" variable"),
        ("peerage;", "invalid number of arguments in \"peerage\" directive"),
        ("zone z 1m; peerage main; server 10.0.0.1;", "\"zone\" directive cannot stand beside"),
        ("peerage main; zone z 1m; server 10.0.0.1;", "\"zone\" directive cannot stand beside"),
        (
            "least_conn; peerage main; server 10.0.0.1;",
            "load balancing method redefined by \"peerage\"",
        ),
        (
            "peerage main; least_conn; server 10.0.0.1;",
            "load balancing method redefined after \"peerage\" in upstream \"app\"",
        ),
        ("peerage main; hash $uri; server 10.0.0.1;", "redefined after \"peerage\""),
        ("peerage main; server 10.0.0.1; server 10.0.0.1:80;", "duplicate server \"10.0.0.1:80\""),
        (
            "peerage main; server 10.0.0.1; peerage_server 10.0.0.1;",
            "duplicate server \"10.0.0.1:80\" in upstream \"app\"",
        ),
        (
            "peerage main name=$uri; server 10.0.0.1;",
            "\"server\" directive is not allowed where the name holds variables",
        ),
        (
            "peerage main name=$uri; peerage_server 10.0.0.1;",
            "\"peerage_server\" directive is not allowed in upstream \"app\"",
        ),
        ("peerage main; server 10.0.0.1 slow_start=5s;", "invalid parameter \"slow_start=5s\""),
        (
            "peerage main; server 10.0.0.1 weight=70000;",
            "invalid value \"weight=70000\" in \"server\"",
        ),
        ("peerage main; server 10.0.0.1 max_conns=2000000;", "invalid value \"max_conns=2000000\""),
        ("peerage main; server 10.0.0.1 max_fails=70000;", "invalid value \"max_fails=70000\""),
        ("peerage_server 10.0.0.1;", "\"peerage_server\" directive needs \"peerage\" before it"),
        (
            "peerage_defaults weight=1;",
            "\"peerage_defaults\" directive needs \"peerage\" before it",
        ),
        ("peerage_method round_robin;", "\"peerage_method\" directive needs \"peerage\" before it"),
        (
            "peerage main; peerage_method best;",
            "invalid value \"best\" in \"peerage_method\" directive",
        ),
        (
            "peerage main; peerage_method hash twice;",
            "invalid value \"hash twice\" in \"peerage_method\" directive: not a method",
        ),
        (
            "peerage main; peerage_method least_time;",
            "invalid value \"least_time\" in \"peerage_method\" directive",
        ),
        (
            "peerage main; peerage_method random two least_conn more;",
            "invalid number of arguments in \"peerage_method\" directive",
        ),
        ("peerage_hash_key $uri;", "\"peerage_hash_key\" directive needs \"peerage\" before it"),
        (
            "peerage main; peerage_hash_key $uri; peerage_hash_key $uri;",
            "\"peerage_hash_key\" directive is duplicate",
        ),
        (
            "peerage main; peerage_hash_key $no_such_variable;",
            "unknown \"no_such_variable\" variable",
        ),
        (
            "peerage main; peerage_method round_robin; peerage_method round_robin;",
            "\"peerage_method\" directive is duplicate",
        ),
        (
            "peerage main; peerage_defaults weight=1; peerage_defaults weight=1;",
            "\"peerage_defaults\" directive is duplicate",
        ),
        (
            "peerage main; peerage_defaults weight;",
            "invalid parameter \"weight\" in \"peerage_defaults\"",
        ),
        ("peerage main; peerage_defaults backup=1;", "invalid parameter \"backup=1\""),
        ("peerage_check;", "\"peerage_check\" directive needs \"peerage\" before it"),
        ("peerage_outlier;", "\"peerage_outlier\" directive needs \"peerage\" before it"),
        ("peerage main; peerage_check; peerage_check;", "\"peerage_check\" directive is duplicate"),
        (
            "peerage main; peerage_outlier; peerage_outlier;",
            "\"peerage_outlier\" directive is duplicate",
        ),
        (
            "peerage main name=$arg_name; peerage_check;",
            "\"peerage_check\" directive is not allowed in upstream \"",
        ),
        (
            "peerage main name=$arg_name; peerage_outlier;",
            "\"peerage_outlier\" directive is not allowed in upstream \"",
        ),
        (
            "peerage main; peerage_check rise=2;",
            "invalid parameter \"rise=2\" in \"peerage_check\" directive",
        ),
        (
            "peerage main; peerage_check fails=1 fails=2;",
            "duplicate parameter \"fails\" in \"peerage_check\" directive",
        ),
        (
            "peerage main; peerage_check interval=5x;",
            "invalid value \"interval=5x\" in \"peerage_check\" directive: it is not a time",
        ),
        (
            "peerage main; peerage_check type=tcp uri=/;",
            "invalid value \"uri=/\" in \"peerage_check\" directive: \
             it has no meaning where the type is \"tcp\"",
        ),
        (
            "peerage main; peerage_check type=https ca=none.pem;",
            "conf/none.pem\" in \"peerage_check\" directive: No such file or directory",
        ),
        (
            "peerage_service web consul=dc1;",
            "\"peerage_service\" directive needs \"peerage\" before it",
        ),
        ("peerage main; peerage_service web consul=none;", "unknown consul \"none\""),
        (
            "peerage main; peerage_service tag:lb consul=dc1;",
            "invalid value \"tag:lb\" in \"peerage_service\" directive",
        ),
        (
            "peerage main name=$arg_name; peerage_service web consul=dc1;",
            "invalid value \"web\" in \"peerage_service\" directive",
        ),
        (
            "peerage main; peerage_outlier max=1s;",
            "invalid value \"max=1s\" in \"peerage_outlier\" directive: it must be at least the base",
        ),
        ("peerage main; peerage_defaults weight=1 weight=2;", "duplicate parameter \"weight\""),
        (
            "peerage main; peerage_defaults weight=-1;",
            "invalid value \"weight=-1\" in \"peerage_defaults\"",
        ),
        (
            "peerage main; peerage_defaults fail_timeout=soon;",
            "invalid value \"fail_timeout=soon\"",
        ),
    ];
    // Since 1.29.7 nginx puts `keepalive` around what the block has in the end.
    cases.push(if is_nginx([1, 29, 7]) {
        ("sticky cookie s; peerage main; server 10.0.0.1;", "\"sticky\" after \"peerage\"")
    } else {
        ("keepalive 4; peerage main; server 10.0.0.1;", "put \"keepalive\" after \"peerage\"")
    });
    let blocks: Vec<String> =
        cases.iter().map(|(text, _)| format!("upstream app {{ {text} }}")).collect();
    let cases: Vec<(&str, &str)> = blocks
        .iter()
        .zip(&cases)
        .map(|(block, (_, expected))| (block.as_str(), *expected))
        .collect();
    refused(ZONE, &cases);
}

#[test]
fn servers() {
    let cases = [
        ("10.0.0.1:0", "invalid value \"10.0.0.1:0\" in \"peerage_server\" directive: the port"),
        ("10.0.0.1:99999", "the port is not a number from 1 to 65535"),
        ("\"\"", "invalid value \"\" in \"peerage_server\" directive: an address may not be empty"),
        ("::1", "an IPv6 address stands in brackets"),
        ("[::1", "not an IPv6 address in brackets"),
        ("unix:relative", "a unix socket has an absolute path"),
        ("a_b/c:80", "neither an IP address nor a host name"),
        (
            "Backend.example.com resolve",
            "no resolver defined to resolve \"backend.example.com:80\" in upstream",
        ),
        (
            "10.0.0.1 weight=x",
            "invalid value \"weight=x\" in \"peerage_server\" directive: it must be",
        ),
        ("10.0.0.1 weight=65536", "it must be a whole number from 0 to 65535"),
        ("10.0.0.1 max_conns=1048576", "it must be a whole number from 0 to 1048575"),
        ("10.0.0.1 max_fails=65536", "it must be a whole number from 0 to 65535"),
        ("10.0.0.1 fail_timeout=1x", "invalid value \"fail_timeout=1x\""),
        (
            "10.0.0.1 slow_start=5h",
            "invalid value \"slow_start=5h\" in \"peerage_server\" directive",
        ),
        ("10.0.0.1 slow_start=4h1s", "it must be at most 4h"),
        (
            "10.0.0.1 weight=1 weight=1",
            "duplicate parameter \"weight\" in \"peerage_server\" directive",
        ),
        ("10.0.0.1 down down", "duplicate parameter \"down\""),
        ("10.0.0.1 downn", "invalid parameter \"downn\" in \"peerage_server\" directive"),
        ("10.0.0.1 down=yes", "invalid parameter \"down=yes\""),
        ("10.0.0.1 label=:x", "it must have keys that are not empty and have no colon"),
        ("10.0.0.1 label=a:b label=a:c", "duplicate parameter \"label=a\""),
        ("10.0.0.1 route=123456789012345678901234567890123", "it must have at most 32 bytes"),
        ("10.0.0.1 \"label=a:b\tc\"", "it must not have control characters"),
    ];
    let blocks: Vec<String> = cases
        .iter()
        .map(|(text, _)| format!("upstream app {{ peerage main; peerage_server {text}; }}"))
        .collect();
    let cases: Vec<(&str, &str)> = blocks
        .iter()
        .zip(&cases)
        .map(|(block, (_, expected))| (block.as_str(), *expected))
        .collect();
    refused(ZONE, &cases);
    let labels: String = (0..17).map(|n| format!(" label=k{n}:v")).collect();
    let block = format!("upstream app {{ peerage main; peerage_server 10.0.0.1{labels}; }}");
    refused(ZONE, &[(&block, "it must have at most 16 labels")]);
}

#[test]
fn blocks_that_do_not_agree() {
    refused(
        ZONE,
        &[
            (
                "upstream a { peerage main name=app; server 10.0.0.1; }
                 upstream b { peerage main name=app; server 10.0.0.2; }",
                "upstream \"app\" of peerage zone \"main\" is declared otherwise in",
            ),
            (
                "upstream a { peerage main name=app; server 10.0.0.1; }
                 upstream APP { peerage main; server 10.0.0.1; peerage_defaults max_fails=2; }",
                "is declared otherwise in",
            ),
            (
                "upstream a { peerage main name=$uri; peerage_defaults weight=2; }
                 upstream b { peerage main name=$host; peerage_defaults weight=3; }",
                "\"peerage_defaults\" or \"peerage_method\" differ from those of upstream \"a\", \
                 which serves names of the same zone \"main\",",
            ),
            (
                "upstream a { peerage main name=$uri; peerage_defaults weight=2; }
                 upstream b { peerage main name=$host; }",
                "differ from those of upstream \"a\"",
            ),
        ],
    );
    let good = "peerage_zone other 1m;
        upstream a { peerage main name=$uri; peerage_defaults weight=2; }
        upstream b { peerage main name=$host; peerage_defaults weight=2; }
        upstream c { peerage other name=$host; peerage_defaults weight=3; }";
    let (good, text) = Nginx::builder().http(format!("{ZONE}\n{good}")).test();
    assert!(good, "{text}");
}

#[test]
fn locations_of_the_api() {
    let cases = [
        (
            "location /api { peerage_api wirte=on; }",
            "invalid parameter \"wirte=on\" in \"peerage_api\"",
        ),
        (
            "location /api { peerage_api write=yes; }",
            "invalid value \"write=yes\" in \"peerage_api\"",
        ),
        ("location /api { peerage_api write=on write=on; }", "duplicate parameter \"write\""),
        ("location /api { peerage_api zone=main zone=main; }", "duplicate parameter \"zone\""),
        ("location /api { peerage_api zone=; }", "invalid parameter \"zone=\" in \"peerage_api\""),
        (
            "location /api { peerage_api zone=none; }",
            "unknown peerage zone \"none\" in \"peerage_api\" directive",
        ),
        (
            "location /api { peerage_api origin=example.com; }",
            "invalid value \"origin=example.com\" in \"peerage_api\" directive",
        ),
        (
            "location /api { peerage_api; peerage_api write=on; }",
            "\"peerage_api\" directive is duplicate",
        ),
        (
            "location ~ ^/api { peerage_api; }",
            "\"peerage_api\" directive is not allowed in the regex location \"^/api\"",
        ),
        (
            "location @api { peerage_api; }",
            "\"peerage_api\" directive is not allowed in the named location \"@api\"",
        ),
        ("peerage_api;", "\"peerage_api\" directive is not allowed here"),
    ];
    refused_in_servers(&cases);
}

#[test]
fn doors_of_other_systems() {
    refused_in_servers(&[
        (
            "location / { peerage_dyups write=on; }",
            "invalid parameter \"write=on\" in \"peerage_dyups\"",
        ),
        ("location / { peerage_dyups zone=; }", "invalid parameter \"zone=\" in \"peerage_dyups\""),
        ("location / { peerage_update main; }", "invalid parameter \"main\" in \"peerage_update\""),
        ("location / { peerage_update zone=main zone=main; }", "duplicate parameter \"zone\""),
        (
            "location / { peerage_dyups zone=none; }",
            "unknown peerage zone \"none\" in \"peerage_dyups\" directive",
        ),
        (
            "location / { peerage_update zone=none; }",
            "unknown peerage zone \"none\" in \"peerage_update\" directive",
        ),
        (
            "location / { peerage_dyups; peerage_dyups; }",
            "\"peerage_dyups\" directive is duplicate",
        ),
        (
            "location / { peerage_dyups; peerage_update; }",
            "\"peerage_update\" directive conflicts with \"peerage_dyups\"",
        ),
        (
            "location / { peerage_api; peerage_update; }",
            "\"peerage_update\" directive conflicts with \"peerage_api\"",
        ),
        (
            "location / { peerage_dyups; peerage_api; }",
            "\"peerage_api\" directive conflicts with \"peerage_dyups\"",
        ),
        (
            "location ~ ^/d { peerage_dyups; }",
            "\"peerage_dyups\" directive is not allowed in the regex location \"^/d\"",
        ),
        (
            "location @d { peerage_dyups; }",
            "\"peerage_dyups\" directive is not allowed in the named location \"@d\"",
        ),
        ("peerage_update;", "\"peerage_update\" directive is not allowed here"),
    ]);
}

#[test]
fn locations_of_metrics() {
    refused_in_servers(&[
        (
            "location /m { peerage_metrics server=on; }",
            "invalid parameter \"server=on\" in \"peerage_metrics\" directive",
        ),
        (
            "location /m { peerage_metrics on; }",
            "invalid parameter \"on\" in \"peerage_metrics\" directive",
        ),
        (
            "location /m { peerage_metrics servers=yes; }",
            "invalid value \"servers=yes\" in \"peerage_metrics\" directive: on or off",
        ),
        (
            "location /m { peerage_metrics servers=on servers=off; }",
            "duplicate parameter \"servers\" in \"peerage_metrics\" directive",
        ),
        (
            "location /m { peerage_metrics; peerage_metrics; }",
            "\"peerage_metrics\" directive is duplicate",
        ),
        (
            "location /m { peerage_api; peerage_metrics; }",
            "\"peerage_metrics\" directive conflicts with \"peerage_api\"",
        ),
        (
            "location /m { peerage_dyups; peerage_metrics; }",
            "\"peerage_metrics\" directive conflicts with \"peerage_dyups\"",
        ),
        (
            "location /m { peerage_metrics; peerage_api; }",
            "\"peerage_api\" directive conflicts with \"peerage_metrics\"",
        ),
        ("peerage_metrics;", "\"peerage_metrics\" directive is not allowed here"),
    ]);
}

#[test]
fn locations_of_the_dashboard() {
    let path = "not like \"/api\" or \"../api\"";
    let value =
        |word: &str| format!("invalid value \"{word}\" in \"peerage_dashboard\" directive: {path}");
    let words =
        ["api=", "api=api", "api=//evil.test", "api=http://evil.test/api", "api=/a?b", "api=/<b>"];
    let cases: Vec<(String, String)> = words
        .iter()
        .map(|word| (format!("location /d/ {{ peerage_dashboard {word}; }}"), value(word)))
        .collect();
    let cases: Vec<(&str, &str)> = cases.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    refused_in_servers(&cases);
    refused_in_servers(&[
        (
            "location /d/ { peerage_dashboard on; }",
            "invalid parameter \"on\" in \"peerage_dashboard\" directive",
        ),
        (
            "location /d/ { peerage_dashboard api=/a api=/b; }",
            "duplicate parameter \"api\" in \"peerage_dashboard\" directive",
        ),
        (
            "location /d/ { peerage_dashboard; peerage_dashboard; }",
            "\"peerage_dashboard\" directive is duplicate",
        ),
        (
            "location /d/ { peerage_api; peerage_dashboard; }",
            "\"peerage_dashboard\" directive conflicts with \"peerage_api\"",
        ),
        (
            "location /d/ { peerage_dashboard; peerage_metrics; }",
            "\"peerage_metrics\" directive conflicts with \"peerage_dashboard\"",
        ),
        (
            "location = /d/ { peerage_dashboard; }",
            "\"peerage_dashboard\" directive is not allowed in the exact location \"/d/\"",
        ),
        (
            "location ~ ^/d/ { peerage_dashboard; }",
            "\"peerage_dashboard\" directive is not allowed in the regex location \"^/d/\"",
        ),
        (
            "location @d { peerage_dashboard; }",
            "\"peerage_dashboard\" directive is not allowed in the named location \"@d\"",
        ),
        ("peerage_dashboard;", "\"peerage_dashboard\" directive is not allowed here"),
    ]);
}

#[test]
fn routes() {
    refused_in_servers(&[
        ("peerage_route;", "invalid number of arguments in \"peerage_route\" directive"),
        ("peerage_route off $host;", "invalid parameter \"$host\" in \"peerage_route\" directive"),
        (
            "peerage_route $host table=x;",
            "invalid parameter \"table=x\" in \"peerage_route\" directive",
        ),
        (
            "peerage_route $host zone=a zone=b;",
            "duplicate parameter \"zone\" in \"peerage_route\" directive",
        ),
        ("peerage_route $host; peerage_route $host;", "\"peerage_route\" directive is duplicate"),
        ("peerage_route off; peerage_route off;", "\"peerage_route\" directive is duplicate"),
        (
            "peerage_route \"\";",
            "invalid value \"\" in \"peerage_route\" directive: a key may not be empty",
        ),
        (
            "peerage_route $host status=moved:200;",
            "invalid value \"status=moved:200\" in \"peerage_route\" directive: it must be \
             STATUS:CODE, codes from 400 to 599, with commas between, not \"moved:200\"",
        ),
        (
            "peerage_route $host status=active:403;",
            "in \"peerage_route\" directive: it has \"active\", which routes",
        ),
        (
            "peerage_route $host zone=other;",
            "unknown peerage zone \"other\" in \"peerage_route\" directive",
        ),
        (
            "peerage_route $host redis=routes;",
            "unknown redis \"routes\" in \"peerage_route\" directive",
        ),
        (
            "peerage_route $host valid=5s;",
            "invalid value \"valid=5s\" in \"peerage_route\" directive: it needs a \"redis\"",
        ),
        ("peerage_route $nowhere;", "unknown \"nowhere\" variable"),
        (
            "location / { if ($arg_x) { peerage_route a; } }",
            "\"peerage_route\" directive is not allowed here",
        ),
    ]);
    let server = "server { listen {web}; peerage_route $host; }";
    refused("", &[(server, "no \"peerage_zone\" for \"peerage_route\" directive")]);
    refused(
        "peerage_zone main 1m; peerage_zone other 1m;",
        &[(
            server,
            "several zones, and parameter \"zone\" is missing in \"peerage_route\" directive",
        )],
    );
}

#[test]
fn text_that_is_not_utf8() {
    let conf = Nginx::builder().http("include {prefix}/conf/odd.conf;");
    let conf = conf.file("conf/odd.conf", b"peerage_zone m\xff 1m;\n");
    let (good, text) = conf.test();
    assert!(!good && text.contains("in \"peerage_zone\" directive: not UTF-8"), "{text}");
}
