//! Prometheus's own tools.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `ci/promtool.sh` has put them: the program `promtool`, and the client library of Python
/// in `python`.
pub fn promtool() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let tools = target.map_or_else(|| root.join("target"), |dir| root.join(dir)).join("promtool");
    assert!(tools.join("promtool").is_file(), "no {}: run ci/promtool.sh", tools.display());
    tools
}

/// What a command says of its input; fails the story where it does not take it.
#[track_caller]
pub fn said_of(command: &mut Command, input: &[u8]) -> String {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("it is installed");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    let out = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{said}");
    said
}
