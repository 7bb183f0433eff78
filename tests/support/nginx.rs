//! A real nginx of a story's own: start, reload, stop, its processes and its logs.

use std::env;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use super::api::Api;
use super::conf::{self, Conf};
use super::http::{self, Reply};
use super::process::{self, Signal};
use super::wait::{eventually, within};

/// A running (or stopped) nginx with its prefix.
///
/// It runs in the foreground in a process group of its own. Dropping it ends that group, and fails
/// the story when the error log holds an [alert], [emerg] or [crit] that the story did not allow.
#[derive(Debug)]
pub struct Nginx {
    pub(super) conf: Conf,
    child: Option<Child>,
    /// Process group of all of it, 0 while it is stopped.
    group: u32,
}

/// A worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    pub pid: u32,
    /// It serves what it has and takes nothing new, since a reload or QUIT.
    pub leaving: bool,
}

impl Nginx {
    /// An nginx with the module, loaded or built in.
    pub fn builder() -> Conf {
        Conf::new(conf::loaded())
    }

    /// An nginx with the build that has fault points and panics on demand.
    pub fn faulty() -> Conf {
        Conf::new(Some(conf::faults_module()))
    }

    /// An nginx without the module.
    pub fn stock() -> Conf {
        Conf::new(None)
    }

    pub(super) fn launch(conf: Conf) -> Result<Self, String> {
        let mut nginx = Self { conf, child: None, group: 0 };
        nginx.try_start()?;
        Ok(nginx)
    }

    /// Starts it again after [`Nginx::stop`] or [`Nginx::kill`], on the same prefix and ports.
    #[track_caller]
    pub fn start(&mut self) {
        if let Err(text) = self.try_start() {
            panic!("nginx does not start: {text}");
        }
    }

    /// Like [`Nginx::start`]; `Err` has what nginx wrote when it did not start.
    pub fn try_start(&mut self) -> Result<(), String> {
        assert!(self.group == 0, "nginx is running already");
        self.conf.write();
        let prefix = self.conf.prefix();
        fs::remove_file(prefix.join("nginx.pid")).ok(); // there is one only after a kill
        let log = prefix.join("logs/stderr.log");
        let log = fs::File::create(log).map_err(|e| e.to_string())?;
        let words = self.conf.under.iter().cloned().chain([program()]).collect::<Vec<_>>();
        let mut command = process::mortal(&words[0]);
        command.args(&words[1..]).arg("-p").arg(prefix);
        command.args(["-e", "logs/error.log", "-c", "conf/nginx.conf"]);
        command.envs(self.conf.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let child = process::spawn(command).map_err(|e| e.to_string())?;
        self.group = child.id();
        self.child = Some(child);
        if let Err(text) = self.detach() {
            self.group = 0;
            return Err(text);
        }
        let ready =
            within(START, || self.exited().map(Err).or_else(|| self.ready().then_some(Ok(()))));
        match ready {
            Some(Ok(())) => Ok(()),
            Some(Err(status)) => {
                (self.child, self.group) = (None, 0);
                Err(format!("{status}\n{}", self.log("stderr.log")))
            }
            None => {
                self.kill();
                Err(format!("not ready within {START:?}\n{}", self.log("stderr.log")))
            }
        }
    }

    /// Changes the configuration; [`Nginx::reload`] or a restart applies it.
    pub fn change(&mut self, edit: impl FnOnce(Conf) -> Conf) {
        self.conf = edit(self.conf.clone());
        self.conf.write();
    }

    /// HUP, then waits until the new workers are up and the old ones are leaving or gone.
    #[track_caller]
    pub fn reload(&mut self) {
        if let Err(text) = self.try_reload() {
            panic!("reload failed: {text}");
        }
    }

    /// Like [`Nginx::reload`]; `Err` has the log when nginx refused the new configuration.
    pub fn try_reload(&mut self) -> Result<(), String> {
        assert!(!self.conf.single, "a single process has no reload to wait for");
        let old = self.worker_pids();
        let read = self.error_log().len();
        self.hup();
        let done = within(RELOAD, || {
            let log = self.error_log();
            let news = log.get(read..).unwrap_or_default();
            if news.contains("[emerg]") {
                return Some(Err(news.to_string()));
            }
            self.replaced(&old).then_some(Ok(()))
        });
        done.unwrap_or_else(|| {
            Err(format!("no new workers within {RELOAD:?}: {:?}", self.workers()))
        })
    }

    /// HUP alone, without waiting.
    pub fn hup(&self) {
        process::signal(self.master_pid(), Signal::HUP);
    }

    /// Moves error.log to error.log.1, sends USR1, and waits until no process has the old one open.
    #[track_caller]
    pub fn reopen(&self) {
        let log = self.conf.prefix().join("logs/error.log");
        let old = log.with_extension("log.1");
        fs::rename(&log, &old).expect("nginx has made its log");
        let old = old.to_string_lossy().into_owned();
        process::signal(self.master_pid(), Signal::USR1);
        eventually(RELOAD, || {
            let group = process::group(self.group());
            log.exists() && !group.iter().any(|(pid, _)| process::open_files(*pid).contains(&old))
        });
    }

    /// QUIT, and waits until all of it has ended. Fails the story after 30 s.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        let Some(status) = self.stop_within(STOP, Signal::QUIT) else {
            panic!("nginx did not end within {STOP:?} of QUIT")
        };
        status
    }

    /// Sends `signal` (QUIT, TERM) and waits; after `limit` it is killed and `None` returned.
    pub fn stop_within(&mut self, limit: Duration, signal: Signal) -> Option<ExitStatus> {
        let group = self.group();
        process::signal(self.master_pid(), signal);
        let status = within(limit, || self.exited());
        let gone = status.is_some() && within(limit, || process::group(group).is_empty()).is_some();
        if gone {
            (self.child, self.group) = (None, 0);
            return status;
        }
        self.kill();
        None
    }

    /// Waits until all of it has ended by itself.
    #[track_caller]
    pub fn ended(&mut self, limit: Duration) {
        let group = self.group();
        eventually(limit, || self.exited().is_some() && process::group(group).is_empty());
        (self.child, self.group) = (None, 0);
    }

    /// SIGKILL for master and workers at once, as a crash of the machine.
    pub fn kill(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group == 0 {
            return;
        }
        process::signal_group(group, Signal::KILL);
        if let Some(mut child) = self.child.take() {
            child.wait().ok(); // it has been killed
        }
        within(STOP, || process::group(group).is_empty());
    }

    /// Stop and start, by QUIT.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// What it runs with.
    pub fn conf(&self) -> &Conf {
        &self.conf
    }

    /// `nginx -t` with the present configuration, beside the running nginx.
    pub fn test(&self) -> (bool, String) {
        self.conf.test()
    }

    /// Master, or the single process.
    pub fn master_pid(&self) -> u32 {
        let text = fs::read_to_string(self.conf.prefix().join("nginx.pid")).unwrap_or_default();
        text.trim().parse().unwrap_or_else(|_| self.group())
    }

    /// All workers, leaving ones included; none with a single process.
    pub fn workers(&self) -> Vec<Worker> {
        let group = process::group(self.group());
        let workers = group.into_iter().filter_map(|(pid, _)| {
            let title = process::title(pid);
            let rest = title.strip_prefix("nginx: worker process")?;
            Some(Worker { pid, leaving: rest.contains("shutting down") })
        });
        workers.collect()
    }

    /// The workers that take new connections.
    pub fn worker_pids(&self) -> Vec<u32> {
        self.workers().iter().filter(|w| !w.leaving).map(|w| w.pid).collect()
    }

    /// Workers of before the last reload that still have something to do.
    pub fn leaving_pids(&self) -> Vec<u32> {
        self.workers().iter().filter(|w| w.leaving).map(|w| w.pid).collect()
    }

    /// Waits until `n` workers are up and none is leaving.
    #[track_caller]
    pub fn settled(&self, n: usize) {
        eventually(RELOAD, || {
            let workers = self.workers();
            workers.len() == n && workers.iter().all(|w| !w.leaving)
        });
    }

    /// The error log so far, also what was there before [`Nginx::reopen`].
    pub fn error_log(&self) -> String {
        self.log("error.log.1") + &self.log("error.log")
    }

    /// A file of the prefix's logs/; empty when there is none.
    pub fn log(&self, name: &str) -> String {
        let text = fs::read(self.conf.prefix().join("logs").join(name)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The lines of [alert], [emerg] and [crit] that the story did not allow.
    pub fn alerts(&self) -> Vec<String> {
        let grave = |line: &&str| GRAVE.iter().any(|level| line.contains(level));
        let known = |line: &&str| self.conf.allowed.iter().any(|text| line.contains(text.as_str()));
        let log = self.error_log();
        log.lines().filter(grave).filter(|line| !known(line)).map(str::to_string).collect()
    }

    /// From here on, a grave line with this text is expected.
    pub fn allow(&mut self, text: &str) {
        self.conf.allowed.push(text.into());
    }

    /// nginx's directory.
    pub fn prefix(&self) -> &Path {
        self.conf.prefix()
    }

    /// A path under the prefix.
    pub fn path(&self, name: &str) -> PathBuf {
        self.conf.prefix().join(name)
    }

    /// The address of a port by its name in the configuration.
    pub fn addr(&self, port: &str) -> SocketAddr {
        self.conf.addr(port)
    }

    /// The address of `{web}`.
    pub fn web(&self) -> SocketAddr {
        self.conf.addr("web")
    }

    /// The API of [`Conf::with_api`].
    pub fn api(&self) -> Api {
        Api::new(self.conf.addr("api"), "/api/v1")
    }

    /// GET from `{web}` on a fresh connection; fails the story when there is no answer.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        match http::get(self.web(), path) {
            Ok(reply) => reply,
            Err(error) => panic!("no answer to GET {path}: {error}"),
        }
    }

    fn ready(&self) -> bool {
        let listening = self.conf.listens().iter().all(|addr| TcpStream::connect(addr).is_ok());
        let workers = if self.conf.single { 0 } else { self.conf.workers };
        listening && self.path("nginx.pid").exists() && self.worker_pids().len() >= workers
    }

    fn replaced(&self, old: &[u32]) -> bool {
        let workers = self.workers();
        let staying = workers.iter().filter(|w| !w.leaving);
        let fresh = staying.clone().filter(|w| !old.contains(&w.pid)).count();
        // A stopped worker cannot say that it is leaving.
        let told = staying.filter(|w| old.contains(&w.pid)).all(|w| process::stopped(w.pid));
        fresh >= self.conf.workers && told
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        match self.child.as_mut() {
            Some(child) => child.try_wait().ok()?,
            None => process::group(self.group()).is_empty().then(ExitStatus::default),
        }
    }

    /// Waits until a daemon has detached itself: it leads a group of its own then.
    fn detach(&mut self) -> Result<(), String> {
        let Some(child) = self.child.as_mut().filter(|_| self.conf.daemon) else { return Ok(()) };
        let status = child.wait().map_err(|e| e.to_string())?;
        self.child = None;
        if !status.success() {
            return Err(format!("{status}\n{}", self.log("stderr.log")));
        }
        let file = self.conf.prefix().join("nginx.pid");
        // It may have its pid written before it leads its group.
        let group = within(START, || {
            let pid: u32 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            (!process::group(pid).is_empty()).then_some(pid)
        });
        self.group = group.ok_or("no pid file, or no process behind it")?;
        Ok(())
    }

    /// The process group of all of it, new masters included.
    pub(super) fn group(&self) -> u32 {
        assert!(self.group != 0, "nginx is running");
        self.group
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if self.group != 0 {
            self.stop_within(Duration::from_secs(2), Signal::TERM);
        }
        let alerts = self.alerts();
        if thread::panicking() {
            let log = self.error_log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.len().saturating_sub(40);
            eprintln!("error log of {}:\n{}", self.prefix().display(), lines[tail..].join("\n"));
        } else {
            assert!(alerts.is_empty(), "unexpected in the error log:\n{}", alerts.join("\n"));
        }
    }
}

/// The nginx to test with: `PEERAGE_NGINX`, or Debian's.
pub(super) fn program() -> String {
    env::var("PEERAGE_NGINX").unwrap_or_else(|_| "/usr/sbin/nginx".into())
}

/// Whether the nginx to test with is of this version or newer.
pub fn is_nginx(version: [u32; 3]) -> bool {
    let out = Command::new(program()).arg("-v").output().expect("nginx is installed");
    let text = String::from_utf8_lossy(&out.stderr);
    let (_, its) = text.trim().split_once("nginx/").expect("nginx says its version");
    let its: Vec<u32> = its.split(['.', ' ']).map_while(|part| part.parse().ok()).collect();
    its.as_slice() >= version.as_slice()
}

const GRAVE: [&str; 3] = ["[alert]", "[emerg]", "[crit]"];
const START: Duration = Duration::from_secs(30);
const RELOAD: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(30);
