//! The configuration of a story's nginx: text with `{placeholders}`, kept so that a story can
//! change it and reload.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::nginx::Nginx;
use super::ports::Port;

/// What nginx is to be started with. Made by [`Nginx::builder`].
///
/// In all texts `{name}` is replaced: `{web}` and `{api}` are `127.0.0.1:port` of two ports of this
/// nginx, `{prefix}` is its directory, others come from [`Conf::set`] and [`Conf::port`].
#[derive(Clone, Debug)]
pub struct Conf {
    prefix: Arc<TempDir>,
    pub(super) workers: usize,
    pub(super) single: bool,
    pub(super) daemon: bool,
    user: String,
    pub(super) allowed: Vec<String>,
    pub(super) under: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    module: Option<PathBuf>,
    level: String,
    main: String,
    events: String,
    http: String,
    values: BTreeMap<String, String>,
    ports: BTreeMap<String, Arc<Port>>,
}

impl Conf {
    /// With `module` loaded, or stock.
    pub(super) fn new(module: Option<PathBuf>) -> Self {
        let keep = env::var_os("PEERAGE_KEEP").is_some();
        let prefix = tempfile::Builder::new().prefix("peerage-").disable_cleanup(keep).tempdir();
        let prefix = prefix.expect("a temporary directory can be made");
        for dir in ["conf", "logs", "tmp"] {
            fs::create_dir(prefix.path().join(dir)).expect("a new directory is empty");
        }
        let ports = ["web", "api"].map(|name| (name.to_string(), Arc::new(Port::reserve())));
        Self {
            prefix: Arc::new(prefix),
            workers: 1,
            single: false,
            daemon: false,
            user: "root".into(),
            allowed: Vec::new(),
            under: Vec::new(),
            env: Vec::new(),
            module,
            level: "notice".into(),
            main: String::new(),
            events: "worker_connections 1024;".into(),
            http: String::new(),
            values: BTreeMap::new(),
            ports: ports.into(),
        }
    }

    /// The text inside `http { }`; replaces what was there.
    pub fn http(mut self, text: impl Into<String>) -> Self {
        self.http = text.into();
        self
    }

    /// More text inside `http { }`, after what is there.
    pub fn http_more(mut self, text: &str) -> Self {
        self.http.push('\n');
        self.http.push_str(text);
        self
    }

    /// A server on `{api}` with the API at `/api`; `parameters` as of `peerage_api`.
    pub fn with_api(self, parameters: &str) -> Self {
        let text = format!(
            "server {{ listen {{api}}; location /api {{ peerage_api {parameters}; \
             client_max_body_size 8m; }} }}"
        );
        self.http_more(&text)
    }

    /// Text of the main level.
    pub fn main(mut self, text: impl Into<String>) -> Self {
        self.main = text.into();
        self
    }

    /// The text inside `events { }`, instead of `worker_connections 1024;`.
    pub fn events(mut self, text: impl Into<String>) -> Self {
        self.events = text.into();
        self
    }

    /// How many workers; one unless said.
    pub fn workers(mut self, n: usize) -> Self {
        self.workers = n;
        self
    }

    /// One process, no master: for valgrind and callgrind.
    pub fn single(mut self) -> Self {
        self.single = true;
        self
    }

    /// Detached from the story's process, as distributions run it: only then does nginx take USR2.
    pub fn daemon(mut self) -> Self {
        self.daemon = true;
        self
    }

    /// Whom workers run as, where nginx is started by root.
    pub fn user(mut self, user: &str) -> Self {
        self.user = user.into();
        self
    }

    /// The level of the error log, `notice` unless said.
    pub fn log_level(mut self, level: &str) -> Self {
        self.level = level.into();
        self
    }

    /// Says what `{name}` stands for.
    pub fn set(mut self, name: &str, value: impl Display) -> Self {
        self.values.insert(name.into(), value.to_string());
        self
    }

    /// One more port, `{name}`. Nothing need listen on it.
    pub fn port(mut self, name: &str) -> Self {
        self.ports.entry(name.into()).or_insert_with(|| Arc::new(Port::reserve()));
        self
    }

    /// An [alert], [emerg] or [crit] line with this text is expected in this story.
    pub fn allow(mut self, text: &str) -> Self {
        self.allowed.push(text.into());
        self
    }

    /// One process under memcheck, with these options besides; what it reports goes to
    /// logs/valgrind.log. What is only possibly lost are connections and pools that nginx itself
    /// keeps to the end.
    pub fn memcheck(self, options: &[&str]) -> Self {
        let log = format!("--log-file={}", self.prefix().join("logs/valgrind.log").display());
        let words = [
            "valgrind",
            "--num-callers=30",
            "--leak-check=full",
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
            &log,
        ];
        self.single().under(&[&words, options].concat())
    }

    /// Runs nginx under another program (`valgrind …`).
    pub fn under(mut self, command: &[&str]) -> Self {
        self.under = command.iter().map(ToString::to_string).collect();
        self
    }

    /// A variable of nginx's environment. (Workers keep only those that `env` in
    /// [`Conf::main`] names.)
    pub fn env(mut self, name: &str, value: impl Display) -> Self {
        self.env.push((name.into(), value.to_string()));
        self
    }

    /// Another module file to load, or none.
    pub fn module(mut self, file: Option<&Path>) -> Self {
        self.module = file.map(Path::to_owned);
        self
    }

    /// nginx's directory; also before it is started, to put files there.
    pub fn prefix(&self) -> &Path {
        self.prefix.path()
    }

    /// Writes a file under the prefix.
    pub fn file(self, name: &str, text: impl AsRef<[u8]>) -> Self {
        fs::write(self.prefix.path().join(name), text).expect("the prefix is writable");
        self
    }

    /// The address of a port by its name.
    pub fn addr(&self, port: &str) -> SocketAddr {
        let port =
            self.ports.get(port).unwrap_or_else(|| panic!("no port \"{port}\" in this conf"));
        port.addr()
    }

    /// Starts nginx and waits until every port it listens on accepts and all workers are up.
    #[track_caller]
    pub fn start(self) -> Nginx {
        match self.try_start() {
            Ok(nginx) => nginx,
            Err(text) => panic!("nginx does not start: {text}"),
        }
    }

    /// Like [`Conf::start`]; `Err` has what nginx wrote when it did not start.
    pub fn try_start(self) -> Result<Nginx, String> {
        Nginx::launch(self)
    }

    /// `nginx -t`: whether the configuration is good, and all that nginx wrote.
    pub fn test(&self) -> (bool, String) {
        self.run_test("-t")
    }

    /// `nginx -T`, which prints the configuration as well.
    pub fn dump(&self) -> (bool, String) {
        self.run_test("-T")
    }

    /// Writes nginx.conf anew, as a reload needs it.
    pub(super) fn write(&self) {
        let text = self.text("error.log");
        fs::write(self.prefix().join("conf/nginx.conf"), text).expect("the prefix is writable");
    }

    /// The ports that the configuration listens on.
    pub(super) fn listens(&self) -> Vec<SocketAddr> {
        let used = |name: &&String| self.http.contains(&format!("listen {{{name}}}"));
        self.ports.keys().filter(used).map(|name| self.addr(name)).collect()
    }

    /// `nginx -t` under strace, which writes the calls that touch files and sockets to a file.
    pub fn traced(&self, to: &Path) -> (bool, String) {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-e", "trace=%file,%network,%process", "-o"]).arg(to);
        strace.arg(super::nginx::program());
        self.run("-t", strace)
    }

    fn run_test(&self, flag: &str) -> (bool, String) {
        self.run(flag, Command::new(super::nginx::program()))
    }

    fn run(&self, flag: &str, mut command: Command) -> (bool, String) {
        // A log of its own: what a bad configuration says is no alert of the running nginx.
        let text = self.text("test.log");
        fs::write(self.prefix().join("conf/test.conf"), text).expect("the prefix is writable");
        command.arg("-p").arg(self.prefix()).args(["-e", "stderr", "-c", "conf/test.conf", flag]);
        let out = command.output().expect("nginx is installed");
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn text(&self, log: &str) -> String {
        let prefix = self.prefix().display();
        let mut text = String::new();
        if let Some(module) = &self.module {
            text += &format!("load_module {};\n", module.display());
        }
        if geteuid().is_root() {
            text += &format!("user {};\n", self.user);
        }
        text += &format!(
            "daemon {};\nmaster_process {};\nworker_processes {};\npid {prefix}/nginx.pid;\n\
             error_log {prefix}/logs/{log} {};\n{}\nevents {{ {} }}\nhttp {{\n    access_log off;\n",
            if self.daemon { "on" } else { "off" },
            if self.single { "off" } else { "on" },
            self.workers,
            self.level,
            self.main,
            self.events,
        );
        for (name, dir) in [("client_body", "body"), ("proxy", "proxy"), ("fastcgi", "fastcgi")] {
            text += &format!("    {name}_temp_path {prefix}/tmp/{dir};\n");
        }
        for name in ["uwsgi", "scgi"] {
            text += &format!("    {name}_temp_path {prefix}/tmp/{name};\n");
        }
        text += &self.http;
        text += "\n}\n";
        self.fill(&text)
    }

    /// Replaces `{name}`; nginx's own `${name}`, and braces around anything else, stay.
    fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            let name = after[1..].split('}').next().filter(|name| is_name(name));
            match name {
                Some(name) if !before.ends_with('$') => {
                    out.push_str(&self.value(name));
                    rest = &after[name.len() + 2..];
                }
                _ => {
                    out.push('{');
                    rest = &after[1..];
                }
            }
        }
        out.push_str(rest);
        out
    }

    fn value(&self, name: &str) -> String {
        if name == "prefix" {
            return self.prefix().display().to_string();
        }
        if let Some(value) = self.values.get(name) {
            return value.clone();
        }
        let Some(port) = self.ports.get(name) else {
            panic!("nothing set for {{{name}}} in the configuration")
        };
        port.addr().to_string()
    }
}

/// What has to be loaded of the module under test: nothing where `PEERAGE_MODULE` says "builtin".
pub(super) fn loaded() -> Option<PathBuf> {
    let builtin = env::var_os("PEERAGE_MODULE").is_some_and(|module| module == "builtin");
    (!builtin).then(module)
}

/// The module under test: `PEERAGE_MODULE`, or what `ci/build.sh` made.
pub fn module() -> PathBuf {
    built("PEERAGE_MODULE", "release/libpeerage.so")
}

/// The build with fault points: `PEERAGE_FAULTS_MODULE`, or what `ci/build.sh --faults` made.
pub fn faults_module() -> PathBuf {
    built("PEERAGE_FAULTS_MODULE", "faults/libpeerage.so")
}

fn built(variable: &str, path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        target.map_or_else(|| root.join("target"), |dir| root.join(dir)).join(path)
    });
    assert!(found.is_file(), "no module at {}: run ci/build.sh", found.display());
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
