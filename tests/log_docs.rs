//! docs/operations.md tells of every line that the module writes to nginx's error log with a level
//! of warn and above, and of no other.
//!
//! A line of the code is the constant text of its format, with "…" for what varies; a row of the
//! page may say in one place what the code leaves open. Each line has a row, and each row a line.
//! Refusals of a directive while the configuration is read are not among them: they name their
//! place, and each has its test in config_errors.rs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Level and text.
type Line = (String, String);

#[test]
fn every_log_line_of_warn_and_above_is_in_the_table_and_every_row_is_a_line() {
    let (code, rows) = (lines_of_code(), rows_of_page());
    assert!(code.len() > 40, "{code:#?}");
    let lacks_row = |line: &&Line| !rows.iter().any(|row| fits(line, row));
    let untold: Vec<&Line> = code.iter().filter(lacks_row).collect();
    assert!(untold.is_empty(), "not in docs/operations.md: {untold:#?}");
    let lacks_line = |row: &&Line| !code.iter().any(|line| fits(line, row));
    let unsaid: Vec<&Line> = rows.iter().filter(lacks_line).collect();
    assert!(unsaid.is_empty(), "no line of the code is: {unsaid:#?}");
}

#[test]
fn texts_are_found_however_they_are_passed_on() {
    let file = "a.rs";
    let found = |code: &str| {
        let (level, text) = lines(file, code).pop().unwrap();
        format!("{level}: {text}")
    };
    assert_eq!(
        found(r#"log!(Crit, "zone \"{zone}\" is full: {}", x)"#),
        "crit: zone \"…\" is full: …"
    );
    assert_eq!(found("log!(\n  Warn,\n  \"a {b} \\\n     c\"\n)"), "warn: a … c");
    assert_eq!(
        found("let text = format_args!(\"x {y}\"); log.write(Level::Alert, errno, text);"),
        "alert: x …"
    );
    assert_eq!(
        found("let text = \"b\"; log.write(Level::Warn, 0, format_args!(\"a {text}\"));"),
        "warn: a b"
    );
    assert!(lines(file, "log!(Notice, \"x\"); Level::Warn => 1").is_empty());
}

/// Whether a row says what a line of the code says.
fn fits((level, line): &Line, (of_row, row): &Line) -> bool {
    let mut pieces: Vec<&str> = line.split('…').collect();
    let last = pieces.pop().unwrap_or_default();
    let mut rest = row.as_str();
    for (i, piece) in pieces.iter().enumerate() {
        match rest.find(piece) {
            Some(at) if i != 0 || at == 0 => rest = &rest[at + piece.len()..],
            _ => return false,
        }
    }
    let ends = if pieces.is_empty() { rest == last } else { rest.ends_with(last) };
    level == of_row && ends
}

/// The rows of the page's tables of lines.
fn rows_of_page() -> Vec<Line> {
    let row = |line: &str| {
        let (level, rest) = line.strip_prefix("| ")?.split_once(" | `")?;
        let (text, _) = rest.split_once("` | ")?;
        LEVELS.contains(&level).then(|| (level.to_owned(), text.to_owned()))
    };
    read("docs/operations.md").lines().filter_map(row).collect()
}

fn lines_of_code() -> BTreeSet<Line> {
    let mut all = BTreeSet::new();
    for file in sources(Path::new("src")) {
        if !WRITERS.contains(&file.as_str()) {
            all.extend(lines(&file, &read(&file)));
        }
    }
    for (file, mark, level, after) in PASSED_ON {
        let texts = literals_after(&read(file), mark);
        assert!(!texts.is_empty(), "{file} has no {mark}");
        all.extend(texts.iter().map(|text| (level.to_owned(), constant(text) + after)));
    }
    all
}

/// What a file writes: `log!(Warn, "…")`, or `….write(Level::Warn, …)`.
fn lines(file: &str, code: &str) -> Vec<Line> {
    let mut all = Vec::new();
    for level in LEVELS {
        let name = format!("{}{}", level[..1].to_uppercase(), &level[1..]);
        for (at, _) in code.match_indices(&name) {
            let (before, call) = (code[..at].trim_end(), &code[at + name.len()..]);
            let is_call = before.ends_with("log!(") || before.ends_with("Level::");
            if is_call && call.starts_with(',') {
                let text = text_of(before, until_end(call));
                let text = text.unwrap_or_else(|| {
                    assert!(PASSED_ON.iter().any(|passed| passed.0 == file), "{file}: {call}");
                    String::new()
                });
                all.push((level.to_owned(), constant(&text)));
            }
        }
    }
    all.retain(|(_, text)| !text.is_empty());
    all
}

/// The format of a call, with that of a `text` that is made before it.
fn text_of(before: &str, call: &str) -> Option<String> {
    match literal(call) {
        Some(said) if !said.contains("{text}") => Some(said),
        Some(said) => Some(match made_before(before) {
            Some(text) => said.replacen("{text}", &text, 1),
            None => said,
        }),
        None => made_before(before),
    }
}

/// What `text` is at the end of some code, if it is made in the same function.
fn made_before(code: &str) -> Option<String> {
    let function = &code[code.rfind("\nfn ").max(code.rfind(" fn ")).unwrap_or(0)..];
    let mut made = function.rmatch_indices("let text =").map(|(at, _)| at);
    let at = made.find(|&at| is_seen_from_end(&function[at..]))?;
    let said = literal(&function[at..])?;
    match made_before(&function[..at]) {
        Some(text) if said.contains("{text}") => Some(said.replacen("{text}", &text, 1)),
        _ => Some(said),
    }
}

/// Whether the block in which some code begins is not over at its end.
fn is_seen_from_end(code: &str) -> bool {
    let mut depth = 0;
    code.chars().all(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth >= 0
    })
}

/// Up to the parenthesis that closes the call.
fn until_end(call: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in call.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => return &call[..at],
            ')' if !quoted => depth -= 1,
            _ => {}
        }
    }
    call
}

/// The first string of some code, as it reads.
fn literal(code: &str) -> Option<String> {
    let mut rest = code.split_once('"')?.1.chars();
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => match rest.next()? {
                '\n' => {
                    let trimmed = rest.as_str().trim_start();
                    rest = trimmed.chars();
                }
                c => text.push(c),
            },
            c => text.push(c),
        }
    }
}

fn literals_after(code: &str, mark: &str) -> Vec<String> {
    code.match_indices(mark).filter_map(|(at, _)| literal(&code[at..])).collect()
}

/// A format with "…" for each of its parameters.
fn constant(format: &str) -> String {
    let mut pieces = format.split('{');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push('…');
        text.push_str(piece.split_once('}').map_or("", |(_, after)| after));
    }
    text
}

/// All files of Rust below a directory of the tree.
fn sources(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path.display().to_string());
        }
    }
    all
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

const LEVELS: [&str; 4] = ["emerg", "alert", "crit", "warn"];

/// What others write by.
const WRITERS: [&str; 3] = ["src/log.rs", "src/ffi/log.rs", "src/ffi/conf.rs"];

/// Texts that reach the log through a function: file, what stands before each, level, and what is
/// added.
const PASSED_ON: [(&str, &str, &str, &str); 2] = [
    ("src/zone.rs", "fail(format_args!(", "emerg", ""),
    ("src/worker/state/load.rs", "Some(format!(", "warn", ", zone \"…\""),
];
