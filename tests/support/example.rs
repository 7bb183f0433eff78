//! What is in examples/, run beside a story's nginx.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::backend::Backend;
use super::nginx::Nginx;

/// How a command ended, and all that it said.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub text: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("it is installed");
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        Self { code: status.code().unwrap_or(-1), text }
    }
}

pub fn run(example: &str, words: &[&str]) -> Run {
    Run::of(Command::new(Path::new("examples").join(example)).args(words))
}

/// An nginx with one upstream of two servers.
pub fn pair(backends: &[Backend]) -> Nginx {
    Nginx::builder()
        .http(
            "peerage_zone main 1m; upstream app { peerage main; server {b1}; server {b2}; }
             server { listen {web}; location / { proxy_pass http://app; } }",
        )
        .with_api("write=on")
        .set("b1", &backends[0])
        .set("b2", &backends[1])
        .start()
}

/// What scripts call API.
pub fn root_of(nginx: &Nginx) -> String {
    format!("http://{}/api", nginx.addr("api"))
}

/// A configuration of examples/, with ports and files of a story's nginx.
pub fn example(name: &str) -> String {
    fs::read_to_string(Path::new("examples").join(name))
        .unwrap()
        .replace("/var/lib/nginx/peerage/", "{prefix}/")
        .replace("listen 8080", "listen {web}")
        .replace("listen 80;", "listen {web};")
        .replace("listen 127.0.0.1:8081", "listen {api}")
}

pub fn script(path: &Path, text: &str) -> String {
    fs::write(path, format!("#!/usr/bin/env bash\nset -eu\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Where `ci/examples.sh` has put Ansible.
pub fn ansible() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(target)
        .join("examples/python/bin/ansible-playbook");
    assert!(path.is_file(), "no {}: run ci/examples.sh", path.display());
    path
}
