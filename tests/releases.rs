//! The releases of examples/: servers one by one, whole machines, canaries; from a shell, Ansible,
//! and a pipeline.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::*;

#[test]
fn a_rolling_release_replaces_all_but_what_somebody_has_down() {
    let app = App::start(3);
    let api = app.nginx.api();
    api.verb("app", app.server(1), "down?reason=disk");
    let load = Load::to(app.nginx.web()).threads(2).rate(60).start();
    let run = app.release("rolling.sh", &["app", "deploy-2"]);
    assert_eq!(run.code, 0, "{run:?}");
    load.stop().all_ok();
    assert_eq!(app.versions(), ["v2", "v1", "v2"]);
    assert!(run.text.contains(&format!("{}: left alone", app.server(1))), "{run:?}");
    assert_eq!(api.server("app", app.server(1))["admin"]["reason"], "disk");

    // One that fails stays down and ends the release; said again, it comes first.
    api.verb("app", app.server(1), "up");
    let broken = app.script("broken", "exit 7");
    let run = app.run("rolling.sh", &["app", "deploy-3", &broken]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(api.server("app", app.server(0))["admin"]["reason"], "deploy-3");
    let run = app.release("rolling.sh", &["app", "deploy-3"]);
    assert_eq!((run.code, run.text.matches(": back").count()), (0, 3), "{run:?}");
    assert!(run.text.starts_with(app.server(0)), "{run:?}");
    assert_eq!(app.versions(), ["v2", "v2", "v2"]);
}

#[test]
fn the_jobs_of_the_pipeline_release_the_first_server_and_then_the_others() {
    let app = App::start(3);
    let file = include_str!("../examples/pipeline/gitlab-ci.yml");
    let jobs: Vec<Vec<&str>> = file
        .split("  script:\n")
        .skip(1)
        .map(|job| job.lines().map_while(|line| line.strip_prefix("    - ")).collect())
        .collect();
    assert_eq!(jobs.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    let load = Load::to(app.nginx.web()).threads(2).rate(60).start();
    let after = [(["v2", "v1", "v1"], 1), (["v2", "v2", "v2"], 2)];
    for (job, (versions, backs)) in jobs.iter().zip(after) {
        let mut shell = Command::new("bash");
        shell.arg("-euc").arg(job.join("\n")).env("PEERAGE_API", app.api());
        shell.env("UPSTREAM", "app").env("FIRST", app.server(0));
        shell.env("REASON", "deploy-1a2b3c").env("DEPLOY", app.replace());
        let run = Run::of(&mut shell);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(app.versions(), versions);
        assert_eq!(run.text.matches(": back").count(), backs, "{run:?}");
    }
    load.stop().all_ok();
}

#[test]
fn the_playbook_releases_one_server_after_the_other_and_stops_at_a_failure() {
    let app = App::start(3);
    let api = app.nginx.api();
    let inventory = app.inventory();
    let play = |more: &[&str]| {
        let mut command = Command::new(ansible());
        command.args(["-i", &inventory, "examples/ansible/release.yml"]).args(more);
        // Its own files stay out of the user's.
        command.env("ANSIBLE_HOME", app.dir()).env("ANSIBLE_NOCOLOR", "1");
        command.env("ANSIBLE_LOCAL_TEMP", app.dir().join("tmp")).env("HOME", app.dir());
        Run::of(&mut command)
    };
    let load = Load::to(app.nginx.web()).threads(2).rate(60).start();
    let run = play(&["-e", "release=2"]);
    assert_eq!(run.code, 0, "{run:?}");
    load.stop().all_ok();
    assert_eq!(app.versions(), ["v2", "v2", "v2"]);

    // The second one is an operator's: the first is released, the others are as they were.
    api.verb("app", app.server(1), "down?reason=disk");
    let run = play(&["-e", "release=3", "-e", "version=v3"]);
    assert!(run.code != 0 && run.text.contains("if-reason"), "{run:?}");
    assert_eq!(app.versions(), ["v3", "v2", "v2"]);
    assert_eq!(api.server("app", app.server(1))["admin"]["reason"], "disk");
    assert_eq!(api.server("app", app.server(2))["admin"]["state"], "up");
}

#[test]
fn a_canary_gets_its_share_step_by_step_and_loses_it_when_it_is_not_well() {
    let backends = Backend::several(2);
    let new = Backend::new("new");
    let nginx = pair(&backends);
    let (api, root, addr) = (nginx.api(), root_of(&nginx), new.addr());
    for server in &backends {
        api.ok("PATCH", &format!("upstreams/app/servers/{server}"), Some(&json!({"weight": 100})));
    }
    // Well: nginx has its weight each time it is asked.
    let seen = nginx.path("seen");
    let look = format!(
        "curl -sS {root}/v1/upstreams/app/servers/$1 | grep -o '\"weight\":[0-9]*' >>{}",
        seen.display()
    );
    let well = script(&nginx.path("well"), &look);
    let canary = |judge: &str| {
        let mut command = Command::new("examples/canary.sh");
        command.args([&root, "app", &addr, judge]).env("PAUSE", "0").env("STEPS", "1 50 100");
        Run::of(&mut command)
    };
    let done = canary(&well);
    assert_eq!(done.code, 0, "{done:?}");
    let seen = fs::read_to_string(seen).unwrap();
    assert_eq!(seen, "\"weight\":1\n\"weight\":50\n\"weight\":100\n");
    assert_eq!(hit(nginx.web(), "/", 30).backend("new"), 10, "a third of it");

    let ill = script(&nginx.path("ill"), "exit 1");
    let back = canary(&ill);
    assert_eq!(back.code, 1, "{back:?}");
    assert_eq!(api.server("app", &addr)["weight"], 0);
    let report = hit(nginx.web(), "/", 30);
    report.all_ok();
    assert_eq!(report.backend("new"), 0);
}

#[test]
fn a_whole_machine_is_out_while_the_command_runs() {
    let (b1, b2) = (Backend::on("b1", [127, 0, 0, 2]), Backend::on("b2", [127, 0, 0, 3]));
    let other = Backend::on("other", [127, 0, 0, 2]);
    let nginx = Nginx::builder()
        .http(
            "peerage_zone main 1m;
             upstream app { peerage main; server {b1}; server {b2}; }
             upstream web { peerage main; server {other}; server {b2}; }
             server { listen {web}; location / { proxy_pass http://app; }
                      location /web/ { proxy_pass http://web; } }",
        )
        .with_api("write=on")
        .set("b1", &b1)
        .set("b2", &b2)
        .set("other", &other)
        .start();
    let root = root_of(&nginx);
    let look = format!(
        "for i in 1 2 3 4 5 6; do curl -sS http://{0}/ http://{0}/web/; done >{1}",
        nginx.web(),
        nginx.path("answers").display()
    );
    let look = script(&nginx.path("look"), &look);
    let out = run("machine.sh", &[&root, "127.0.0.2", "kernel", &look]);
    assert_eq!(out.code, 0, "{out:?}");
    let answers = fs::read_to_string(nginx.path("answers")).unwrap();
    assert_eq!(answers.matches("b2").count(), 12, "{answers}");
    let report = hit(nginx.web(), "/", 10);
    assert_eq!(report.backend("b1"), 5, "it is back");

    // Another one's, and the last one of an upstream, stay as they are.
    let api = nginx.api();
    api.ok("POST", "hosts/127.0.0.2/drain?reason=disk", None);
    let refused = run("machine.sh", &[&root, "127.0.0.2", "kernel", &look]);
    assert!(refused.code == 1 && refused.text.contains("if-reason"), "{refused:?}");
    let refused = run("machine.sh", &[&root, "127.0.0.3", "kernel", &look]);
    assert!(refused.code == 1 && refused.text.contains("min-up"), "{refused:?}");
    assert_eq!(api.ok("GET", "hosts/127.0.0.2", None)["admin"]["state"], "drain");
}

/// An nginx with an application of `examples/instance.sh`, which is replaced by other versions.
struct App {
    nginx: Nginx,
    ports: Vec<Port>,
    servers: Vec<String>,
}

impl App {
    fn start(n: usize) -> Self {
        let ports: Vec<Port> = (0..n).map(|_| Port::reserve()).collect();
        let servers: Vec<String> = ports.iter().map(|port| port.addr().to_string()).collect();
        let lines: String = servers.iter().map(|server| format!("server {server};")).collect();
        let nginx = Nginx::builder()
            .workers(2)
            .http(format!(
                "peerage_zone main 1m; upstream app {{ peerage main; {lines} }}
                 server {{ listen {{web}}; location / {{ proxy_pass http://app; }} }}"
            ))
            .with_api("write=on")
            .start();
        let app = Self { nginx, ports, servers };
        for port in &app.ports {
            let run = app.instance("start", port.number(), "v1");
            assert_eq!(run.code, 0, "{run:?}");
        }
        app
    }

    fn instance(&self, what: &str, port: u16, version: &str) -> Run {
        let mut command = Command::new("examples/instance.sh");
        command.arg(what).arg(self.dir()).arg(port.to_string());
        command.arg(format!("b{port}")).arg(version);
        Run::of(&mut command)
    }

    fn dir(&self) -> &Path {
        self.nginx.prefix()
    }

    fn server(&self, i: usize) -> &str {
        &self.servers[i]
    }

    fn api(&self) -> String {
        root_of(&self.nginx)
    }

    /// A command that replaces the instance whose address it gets last, by `v2` unless `VERSION`
    /// says otherwise.
    fn replace(&self) -> String {
        let (tool, dir) = (root().join("examples/instance.sh"), self.dir().display());
        let text = format!(
            "port=${{@: -1}} port=${{port##*:}}\n\
             exec {} replace {dir} $port b$port ${{VERSION:-v2}}",
            tool.display()
        );
        self.script("replace", &text)
    }

    fn script(&self, name: &str, text: &str) -> String {
        script(&self.dir().join(name), text)
    }

    fn run(&self, example: &str, words: &[&str]) -> Run {
        let api = self.api();
        run(example, &[&[api.as_str()], words].concat())
    }

    /// The same, with the command that replaces an instance.
    fn release(&self, example: &str, words: &[&str]) -> Run {
        let replace = self.replace();
        self.run(example, &[words, &[&replace]].concat())
    }

    /// What answers behind each of the servers.
    fn versions(&self) -> Vec<String> {
        let version = |port: &Port| {
            let reply = get(port.addr(), "/").unwrap();
            reply.header("x-version").unwrap().to_owned()
        };
        self.ports.iter().map(version).collect()
    }

    /// The inventory of the example, for what runs here.
    fn inventory(&self) -> String {
        let text = fs::read_to_string("examples/ansible/inventory.ini").unwrap();
        let mut text = text
            .replace("http://10.0.0.10:8081/api", &self.api())
            .replace("/usr/local/bin/deploy {{ release }}", "env VERSION={{ version }} {{ tool }}");
        for (i, server) in self.servers.iter().enumerate() {
            text = text.replace(&format!("10.0.0.{}:8080", i + 1), server);
        }
        text += &format!(
            "ansible_connection=local\nansible_python_interpreter={}\nversion=v2\n\
             tool={} {{{{ server }}}}\n",
            ansible().with_file_name("python").display(),
            self.replace()
        );
        let path = self.dir().join("inventory.ini");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        for port in &self.ports {
            if self.dir().join(format!("b{}.pid", port.number())).exists() {
                self.instance("stop", port.number(), "");
            }
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
