//! What the scripts of examples/ leave behind when a server is not to be had, or they are stopped.

mod support;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::*;

const SECONDS: Duration = Duration::from_secs(10);

#[test]
fn a_server_whose_requests_do_not_end_is_up_again_and_nothing_was_replaced() {
    let scene = Scene::new();
    let _held = scene.hold();
    let run = scene.release("true");
    assert!(run.code == 1 && run.text.contains("drained"), "{run:?}");
    assert_eq!(scene.admin(), ("up".into(), String::new()));

    let mut machine = Command::new("examples/machine.sh");
    machine.args([&*scene.root, "127.0.0.1", "deploy-1", "true"]).env("WAIT", "200ms");
    let run = Run::of(machine.env("MIN_UP", "0"));
    assert!(run.code == 1 && run.text.contains("drained"), "{run:?}");
    let host = scene.nginx.api().ok("GET", "hosts/127.0.0.1", None);
    assert_eq!(host["admin"]["state"], "up");

    // What an earlier run left down may be broken: it stays so.
    scene.nginx.api().verb("app", &scene.server, "down?reason=deploy-1");
    assert_eq!(scene.release("true").code, 1);
    assert_eq!(scene.admin(), ("down".into(), "deploy-1".into()));
}

#[test]
fn who_sets_a_server_up_meanwhile_is_heard() {
    let scene = Scene::new();
    let _held = scene.hold();
    let mut run = scene.begin("60s");
    scene.nginx.api().verb("app", &scene.server, "up");
    assert_eq!(run.wait().unwrap().code(), Some(1));
    assert_eq!(scene.admin().0, "up");
    assert!(!scene.replaced());
}

#[test]
fn a_signal_while_it_waits_leaves_the_server_up() {
    let scene = Scene::new();
    let _held = scene.hold();
    for (sent, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut run = scene.begin("60s");
        signal(run.id(), sent);
        assert_eq!(run.wait().unwrap().code(), Some(code));
        assert_eq!(scene.admin().0, "up");
    }
    assert!(!scene.replaced());
}

#[test]
fn a_server_that_cannot_be_brought_back_is_told_of() {
    let scene = Scene::new();
    let _held = scene.hold();
    let door = format!("http://{}/door/api", scene.nginx.web());
    let mut release = scene.command(&door, "200ms");
    let run = Run::of(release.arg("true"));
    assert!(run.code == 4 && run.text.contains("it may be down"), "{run:?}");
    assert_eq!(scene.admin().0, "down");
}

#[test]
fn the_playbook_leaves_a_server_as_it_was() {
    let scene = Scene::new();
    let held = scene.hold();
    let play = |replace: &str| {
        let inventory = format!(
            "[app]\none server={}\n[app:vars]\nupstream=app\nask_from=localhost\n\
             peerage_api={}\nreplace={replace}\nansible_connection=local\n\
             ansible_python_interpreter={}\n",
            scene.server,
            scene.root,
            ansible().with_file_name("python").display(),
        );
        let path = scene.nginx.path("inventory.ini");
        fs::write(&path, inventory).unwrap();
        let mut command = Command::new(ansible());
        command.arg("-i").arg(&path).arg("examples/ansible/release.yml");
        command.args(["-e", "release=1 drain_wait=1"]).env("ANSIBLE_NOCOLOR", "1");
        command.env("ANSIBLE_HOME", scene.nginx.prefix()).env("HOME", scene.nginx.prefix());
        Run::of(command.env("ANSIBLE_LOCAL_TEMP", scene.nginx.path("tmp")))
    };
    let run = play("true");
    assert!(run.code != 0 && run.text.contains("drained"), "{run:?}");
    assert_eq!(scene.admin().0, "up");

    // One that is not replaced stays down.
    scene.backends[0].release();
    drop(held);
    let run = play("false");
    assert_ne!(run.code, 0, "{run:?}");
    assert_eq!(scene.admin(), ("down".into(), "deploy-1".into()));
}

#[test]
fn a_canary_that_is_stopped_has_no_share_and_one_that_is_down_gets_none() {
    let scene = Scene::new();
    let canary = |steps: &str| {
        let mut command = Command::new("env");
        command.args(["--default-signal", "examples/canary.sh"]);
        command.args([&*scene.root, "app", &scene.server, "true"]).env("STEPS", steps);
        command
    };
    let mut run = canary("5").env("PAUSE", "60").stdout(Stdio::null()).spawn().unwrap();
    let weight = || scene.nginx.api().server("app", &scene.server)["weight"].clone();
    eventually(SECONDS, || weight() == 5);
    signal(run.id(), Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert_eq!(weight(), 0);

    scene.nginx.api().verb("app", &scene.server, "down?reason=disk");
    let run = Run::of(canary("7").env("PAUSE", "0"));
    assert!(run.code == 2 && run.text.contains("somebody has it down"), "{run:?}");
    assert_eq!(weight(), 0);
}

/// Two servers, of which the first holds its requests where it is told to.
struct Scene {
    backends: Vec<Backend>,
    nginx: Nginx,
    root: String,
    server: String,
}

impl Scene {
    fn new() -> Self {
        let backends = Backend::several(2);
        let nginx = Nginx::builder()
            .http(
                "peerage_zone main 1m; upstream app { peerage main; server {b1}; server {b2}; }
                 server { listen {web};
                          location / { proxy_pass http://app; }
                          location /door/ { proxy_pass http://{api}/; }
                          location ~ ^/door/.*/up$ { return 403 'not now'; } }",
            )
            .with_api("write=on")
            .set("b1", &backends[0])
            .set("b2", &backends[1])
            .start();
        let (root, server) = (root_of(&nginx), backends[0].addr());
        Self { backends, nginx, root, server }
    }

    /// Requests that go on until they are released, one of them to the server.
    fn hold(&self) -> Vec<Conn> {
        self.backends[0].mode(Mode::Hold);
        let begin = |_| {
            let mut conn = Conn::open(self.nginx.web()).unwrap();
            conn.begin(&Request::get("/")).unwrap();
            conn
        };
        let held = (0..2).map(begin).collect();
        eventually(SECONDS, || self.backends[0].held() == 1);
        held
    }

    fn command(&self, api: &str, wait: &str) -> Command {
        // A shell cannot trap what is ignored when it begins, as in a job in the background.
        let mut command = Command::new("env");
        command.args(["--default-signal", "examples/release.sh"]);
        command.args([api, "app", &self.server, "deploy-1"]).env("WAIT", wait);
        command
    }

    fn release(&self, command: &str) -> Run {
        Run::of(self.command(&self.root, "200ms").arg(command))
    }

    /// A release that has the server down, and waits.
    fn begin(&self, wait: &str) -> Child {
        let mut command = self.command(&self.root, wait);
        command.arg("touch").arg(self.nginx.path("replaced"));
        let run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually(SECONDS, || self.admin().0 == "down");
        run
    }

    fn replaced(&self) -> bool {
        self.nginx.path("replaced").exists()
    }

    /// State and reason of the server.
    fn admin(&self) -> (String, String) {
        let admin = self.nginx.api().server("app", &self.server)["admin"].clone();
        let text = |name: &str| admin[name].as_str().unwrap().to_owned();
        (text("state"), text("reason"))
    }
}
