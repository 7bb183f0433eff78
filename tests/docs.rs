//! The documents say what the code does: their examples run, their names are those of the code.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use peerage_core::metrics::{FAMILIES, Family};
use peerage_core::route::decide::Shown;
use support::*;

#[test]
fn every_example_of_the_api_page_runs_and_answers_as_shown() {
    run_page("docs/api.md");
}

#[test]
fn the_release_of_the_readme_runs() {
    run_page("README.md");
}

#[test]
fn the_examples_of_the_migrating_page_run() {
    run_page("docs/migrating.md");
}

#[test]
fn nginx_accepts_every_example_configuration() {
    let mut tried = 0;
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| block.language == "nginx") {
            if block.text.contains(" sticky ") && !is_nginx([1, 29, 6]) {
                continue;
            }
            let (good, said) = Nginx::builder().http(http_part(&block.text)).test();
            assert!(good, "{page}:{}: {said}", block.line);
            tried += 1;
        }
    }
    assert!(tried > 8, "{tried} examples");
}

#[test]
fn the_directives_of_the_page_are_those_of_the_module() {
    let page = read("docs/directives.md");
    let code = words(&read("src/ffi/module.rs"), "c\"peerage");
    let shown = words(&page, "\n## peerage");
    assert_eq!(shown, code, "left: docs/directives.md, right: src/ffi/module.rs");

    for section in page.split("\n## ").filter(|section| section.starts_with("peerage")) {
        let name = section.lines().next().unwrap_or_default();
        let parts = [
            format!("**Syntax:** `{name} "),
            "**Default:** ".into(),
            "**Context:** ".into(),
            "\nThis directive appeared in version ".into(),
            "\n```nginx\n".into(),
        ];
        for part in parts {
            assert!(section.contains(&part), "no \"{part}\" in the section of {name}");
        }
    }
}

#[test]
fn the_variables_of_the_page_are_those_of_the_module() {
    let page = read("docs/directives.md");
    let code = words(&read("src/variables.rs"), "=> \"peerage");
    assert_eq!(words(&page, "\n- `$peerage"), code, "left: docs, right: src/variables.rs");
    let errors = between(&read("crates/zone/src/choice.rs"), "pub const fn as_str", "\n    }\n");
    let mut errors = words(&errors, "=> \"");
    errors.extend(Shown::ALL.iter().filter_map(|shown| shown.error()).map(str::to_owned));
    assert_eq!(words(&page, "\n  - `"), errors, "left: docs, right: the zone and its routes");
}

#[test]
fn no_page_names_a_directive_a_variable_or_a_metric_that_is_not_there() {
    let mut known = words(&read("src/ffi/module.rs"), "c\"peerage");
    known.extend(words(&read("src/variables.rs"), "=> \"peerage"));
    known.extend(FAMILIES.iter().flat_map(Family::sample_names));
    known.extend(FAMILIES.iter().map(|family| family.name.to_owned()));
    for page in pages() {
        let text = read(&page);
        for name in words(&text, "peerage_") {
            // Neither a part of a longer word nor a path of Rust.
            let named = text.match_indices(&name).any(|(at, _)| {
                let (before, after) = (&text[..at], &text[at + name.len()..]);
                !before.ends_with('_') && !after.starts_with("::")
            });
            assert!(!named || known.contains(&name), "{page} names {name}");
        }
    }
}

#[test]
fn the_error_codes_of_the_page_are_those_of_the_code() {
    let code = read("crates/core/src/api/error.rs");
    let code: BTreeSet<String> = between(&code, "\ncodes! {", "\n}")
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(" = \"")?;
            let (name, rest) = rest.split_once("\", ")?;
            Some(format!("{name} {}", rest.split(',').next()?))
        })
        .collect();
    let page = read("docs/api.md");
    let shown: BTreeSet<String> = between(&page, "\n| code | status | |", "\n\n")
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            Some(format!("{name} {}", rest.split(' ').next()?))
        })
        .collect();
    assert!(code.len() > 20, "{code:?}");
    assert_eq!(shown, code, "left: docs/api.md, right: crates/core/src/api/error.rs");
}

#[test]
fn the_table_of_calls_is_that_of_the_openapi_document() {
    let document: Value = serde_json::from_str(&read("docs/openapi.json")).unwrap();
    let mut wanted = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let names = methods.as_object().unwrap().keys().map(|name| name.to_uppercase());
        let names = names.filter(|name| METHODS.contains(&name.as_str()));
        wanted.extend(names.map(|name| format!("{name} {}", path.trim_start_matches('/'))));
    }
    let page = read("docs/api.md");
    let mut shown = BTreeSet::new();
    for row in between(&page, "\n| request | |", "\n\n").lines() {
        let cell = row.trim_start_matches("| ").split(" | ").next().unwrap_or_default();
        let (mut methods, mut path): (Vec<&str>, String) = Default::default();
        // `PUT` `DELETE v1/a/{b}`, `/c`: the last is a sibling, by the same methods.
        for word in cell.split('`').skip(1).step_by(2).flat_map(|code| code.split(' ')) {
            if METHODS.contains(&word) {
                if !path.is_empty() {
                    (methods, path) = Default::default();
                }
                methods.push(word);
                continue;
            }
            let word = word.split('[').next().unwrap_or_default();
            path = match word.strip_prefix('/') {
                Some(last) => format!("{}/{last}", path.rsplit_once('/').unwrap_or_default().0),
                None => word.to_owned(),
            };
            shown.extend(methods.iter().map(|method| format!("{method} {path}")));
        }
    }
    assert!(wanted.len() > 30, "{wanted:?}");
    assert_eq!(shown, wanted, "left: docs/api.md, right: docs/openapi.json");
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    for page in pages() {
        let text = read(&page);
        let folder = root().join(&page).parent().map(Path::to_path_buf).unwrap_or_default();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(target.exists(), "{page} links to {link}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let found = text.lines().filter(|line| line.starts_with('#')).map(slug);
                assert!(found.into_iter().any(|slug| slug == anchor), "{page} links to {link}");
            }
        }
    }
}

/// Runs the `sh` blocks of a page, in their order, against an nginx with the page's first `nginx`
/// block, and compares answers with the `json` or `text` blocks that follow them.
///
/// The first `sh` block goes before every other one; `127.0.0.1:8081` is where the API listens.
fn run_page(page: &str) {
    let all = blocks(page);
    let conf = all.iter().find(|block| block.language == "nginx").expect("a configuration");
    let conf = http_part(&conf.text);
    let conf = conf.replace("127.0.0.1:8081", "{api}").replace("listen 8080;", "listen {web};");
    let nginx = Nginx::builder().workers(2).http(conf).start();
    let api = nginx.addr("api").to_string();

    let mut shell = all.iter().enumerate().filter(|(_, block)| block.language == "sh").peekable();
    let alone = all.iter().filter(|block| block.language == "sh").count() == 1;
    let setup = match shell.peek() {
        Some((_, block)) if !alone => block.text.clone(),
        _ => String::new(),
    };
    for (i, block) in shell {
        let text = block.text.replace("127.0.0.1:8081", &api);
        let script =
            format!("set -euo pipefail\ncurl() {{ command curl -m 90 \"$@\"; }}\n{setup}\n{text}");
        let mut command = Command::new("bash");
        command.args(["-c", &script]).env("PEERAGE_API", format!("http://{api}/api"));
        let out = command.output().expect("bash is installed");
        let said = String::from_utf8_lossy(&out.stdout);
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{page}:{}: {said}\n{errors}", block.line);
        let Some(shown) = all.get(i + 1) else { continue };
        if shown.language == "text" {
            assert_eq!(said.trim_end(), shown.text.trim_end(), "{page}:{}", shown.line);
        }
        if shown.language != "json" {
            continue;
        }
        let wanted = serde_json::from_str(&shown.text)
            .unwrap_or_else(|error| panic!("{page}:{}: {error}", shown.line));
        let answers = serde_json::Deserializer::from_str(&said).into_iter::<Value>();
        let got = answers.last().expect("an answer").expect("JSON");
        same(&wanted, &got, &format!("{page}:{}", shown.line), &got);
    }
}

/// Compares what a page shows with what was answered; `"…"` stands for anything, in an array for
/// all the rest.
fn same(shown: &Value, got: &Value, at: &str, whole: &Value) {
    if *shown == json!("…") {
        return;
    }
    match (shown, got) {
        (Value::Object(shown), Value::Object(got)) => {
            let names =
                |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(shown), names(got), "{at}: {whole}");
            for (name, value) in shown.iter().filter(|(name, _)| !VARYING.contains(&name.as_str()))
            {
                same(value, &got[name], &format!("{at}.{name}"), whole);
            }
        }
        (Value::Array(shown), Value::Array(got)) => {
            for (i, value) in shown.iter().enumerate() {
                if *value == json!("…") {
                    return;
                }
                let got = got.get(i).unwrap_or(&Value::Null);
                same(value, got, &format!("{at}[{i}]"), whole);
            }
            assert_eq!(shown.len(), got.len(), "{at}: {whole}");
        }
        _ => assert_eq!(shown, got, "{at}: {whole}"),
    }
}

const METHODS: [&str; 5] = ["GET", "PUT", "PATCH", "POST", "DELETE"];

/// Members that differ from run to run.
const VARYING: [&str; 15] = [
    "build",
    "build_on_disk",
    "nginx",
    "version",
    "bytes",
    "fits",
    "file",
    "durable_revision",
    "lag",
    "writer",
    "workers",
    "digest",
    "since",
    "until",
    "selected",
];

/// What stands inside `http { }`, or the whole where that is not shown.
fn http_part(text: &str) -> String {
    let text = text.replace("/var/lib/nginx/peerage/", "{prefix}/");
    let Some((before, rest)) = text.split_once("\nhttp {") else { return text };
    assert!(before.contains("load_module modules/ngx_http_peerage_module.so;"), "{before}");
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    });
    rest[..end.expect("a closing brace")].to_string()
}

/// A fenced block of a page.
struct Block {
    line: usize,
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let text = read(page);
    let mut all = Vec::new();
    let mut open: Option<Block> = None;
    for (i, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.to_string();
                open = Some(Block { line: i + 1, language, text: String::new() });
            }
            (Some(_), Some(_)) => all.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page} ends inside a block");
    all
}

/// The words that stand where `mark` does, from its last letters on: `c"peerage` finds every
/// `peerage_zone` of `c"peerage_zone"`.
fn words(text: &str, mark: &str) -> BTreeSet<String> {
    let start = mark.rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
    let found = text.match_indices(mark).map(|(at, _)| {
        let word = &text[at + start..];
        word[..word.find(|c| !is_word(c)).unwrap_or(word.len())].to_string()
    });
    found.collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn between(text: &str, from: &str, to: &str) -> String {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from:?}"));
    rest.split(to).next().unwrap_or_default().to_string()
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|&c| is_word(c) || c == ' ' || c == '-');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// README, CONTRIBUTING, that of examples/, and all of docs/.
fn pages() -> Vec<String> {
    let mut pages =
        ["README.md", "CONTRIBUTING.md", "examples/README.md"].map(str::to_owned).to_vec();
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
