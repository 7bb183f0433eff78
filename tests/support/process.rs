//! Processes: starting those that must not outlive the tests, signals, and what /proc says.

use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// Starts `command` so that it gets SIGTERM when this process dies, however it dies.
///
/// The kernel ties that signal to the *thread* that forked, so one thread that lives as long as
/// the process does all of it.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                answer.send(command.spawn()).ok(); // the asker may have panicked
            }
        });
        orders
    });
    let (answer, child) = channel();
    starter.send((command, answer)).map_err(|_| io::Error::other("the starter has ended"))?;
    child.recv().map_err(io::Error::other)?
}

/// A command that runs `program` with SIGTERM at the death of the thread that starts it.
pub(super) fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", program]);
    command
}

/// Sends a signal; a process that is gone already is no error.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        kill_process(pid, signal).ok(); // gone already
    }
}

pub(super) fn signal_group(pgid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pgid.cast_signed()) {
        kill_process_group(pid, signal).ok(); // nobody left
    }
}

/// Whether this process exists and is no zombie.
pub fn alive(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|s| s.state != 'Z' && s.state != 'X')
}

/// Whether this process is stopped (SIGSTOP).
pub fn stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|s| s.state == 'T')
}

/// CPU time used so far, in clock ticks (100 a second).
pub fn cpu_ticks(pid: u32) -> u64 {
    Stat::of(pid).map_or(0, |s| s.ticks)
}

/// Resident memory in kB.
pub fn rss_kb(pid: u32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// How many descriptors are open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Where the descriptors of a process lead.
pub(super) fn open_files(pid: u32) -> Vec<String> {
    let Ok(dir) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = dir.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// What a process calls itself.
pub(super) fn title(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ")
}

/// The living members of a process group.
pub(super) fn group(pgid: u32) -> Vec<(u32, Stat)> {
    let Ok(dir) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = dir.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let members = pids.filter_map(|pid| Some((pid, Stat::of(pid)?)));
    members.filter(|(_, s)| s.group == pgid && s.state != 'Z' && s.state != 'X').collect()
}

/// The part of /proc/PID/stat that matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    pub state: char,
    pub parent: u32,
    pub group: u32,
    pub ticks: u64,
}

impl Stat {
    pub(super) fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; what follows its last one does not.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: number(1)? as u32,
            group: number(2)? as u32,
            ticks: number(11)? + number(12)?,
        })
    }
}
