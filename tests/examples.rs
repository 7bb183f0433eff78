//! What is in examples/ does what it says: moves, doors, fleets; releases are in releases.rs.

mod support;

use std::fs;
use std::process::Command;

use support::*;

#[test]
fn an_alias_moves_between_blue_and_green_in_one_write() {
    let (blue, green) = (Backend::new("blue"), Backend::new("green"));
    let conf = example("blue-green.conf")
        .replace("10.0.0.1:8080", &blue.addr())
        .replace("10.0.0.2:8080", "127.0.0.1:1 down")
        .replace("10.0.0.1:8090", &green.addr())
        .replace("10.0.0.2:8090", "127.0.0.1:2 down");
    let nginx = Nginx::builder().workers(2).http(conf).start();
    let api = nginx.api();
    assert_eq!(nginx.get("/").status, 404, "no alias yet");
    api.ok("PUT", "routes/shop", Some(&json!({"upstream": "blue"})));
    assert_eq!(nginx.get("/").backend(), "blue");
    let tried = get(nginx.addr("api"), "/green/").unwrap();
    assert_eq!(tried.backend(), "green", "for who tries it before");

    let load = Load::to(nginx.web()).threads(4).rate(200).start();
    let root = root_of(&nginx);
    let moved = run("blue-green.sh", &[&root, "shop", "green"]);
    assert_eq!((moved.code, moved.text.trim()), (0, "shop: green, was blue"), "{moved:?}");
    let report = hit(nginx.web(), "/", 20);
    assert_eq!(report.backend("green"), 20);
    load.stop().all_ok();

    // Nobody serves there: nothing moves.
    api.verb("blue", &blue, "down");
    let refused = run("blue-green.sh", &[&root, "shop", "blue"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.text.contains("0 servers take requests"), "{refused:?}");
    assert_eq!(nginx.get("/").backend(), "green");
    let refused = run("blue-green.sh", &[&root, "shop", "red"]);
    assert!(refused.code == 1 && refused.text.contains("upstream-not-found"), "{refused:?}");
}

#[test]
fn two_zones_know_nothing_of_each_other() {
    let b1 = Backend::new("b1");
    let conf = example("two-zones.conf")
        .replace("10.0.0.1:8080", &b1.addr())
        .replace("10.0.0.2:8080", "127.0.0.1:1 down");
    let nginx = Nginx::builder().http(conf).start();
    let api = |zone: &str| Api::new(nginx.addr("api"), &format!("/{zone}/api/v1"));
    let body = json!({"servers": [{"server": b1.addr()}]});
    api("lab").ok("PUT", "upstreams/lab-7", Some(&body));
    assert_eq!(api("shop").get("upstreams/lab-7").0, 404);
    assert_eq!(api("lab").get("upstreams/shop").0, 404);
    assert_eq!(nginx.get("/").backend(), "b1");
    let lab = Request::get("/").header("Host", "lab-7.example.com");
    assert_eq!(lab.send(nginx.web()).unwrap().backend(), "b1");
    for zone in ["shop", "lab"] {
        api(zone).ok("POST", &format!("zones/{zone}/flush"), None);
        assert!(nginx.path(&format!("{zone}.json")).exists());
        let other = if zone == "shop" { "lab" } else { "shop" };
        assert_eq!(api(zone).get(&format!("zones/{other}")).0, 404);
    }
    let page = get(nginx.addr("api"), "/metrics").unwrap().text();
    assert!(page.contains("zone=\"shop\"") && page.contains("zone=\"lab\""), "{page}");
}

#[test]
fn each_door_lets_in_whom_it_is_for_and_lets_them_do_no_more() {
    let conf = Nginx::builder().port("tls").port("metrics").file("staff", "anna:{PLAIN}secret\n");
    let (prefix, b1) = (conf.prefix().to_path_buf(), Backend::new("b1"));
    Certificate::make(&prefix, &["lb"]);
    Certificate::make(&prefix, &["ci"]);
    let text = example("access.conf")
        .replace("listen 8443 ssl", "listen {tls} ssl")
        .replace("listen 9113", "listen {metrics}")
        .replace("unix:/run/nginx-api/", "unix:{prefix}/")
        .replace("/etc/nginx/staff", "{prefix}/staff")
        .replace("/etc/nginx/lb.crt", "{prefix}/lb.pem")
        .replace("/etc/nginx/lb.key", "{prefix}/lb.key")
        .replace("/etc/nginx/operators-ca.crt", "{prefix}/ci.pem")
        .replace("10.0.0.1:8080", &b1.addr())
        .replace("10.0.0.2:8080", "127.0.0.1:1");
    let mut nginx = conf.http(text.clone()).start();
    let file = |name: &str| prefix.join(name).display().to_string();
    let tls = format!("https://{}", nginx.addr("tls"));
    let curl = |words: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sSk", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}"]).args(words);
        Run::of(&mut command).text.trim().to_owned()
    };
    let socket = file("api.sock");
    let here = |words: &[&str]| curl(&[&["--unix-socket", &socket], words].concat());
    let put = ["-X", "PUT", "-d", "{\"servers\":[]}"];
    assert_eq!(here(&[&put[..], &["http://lb/api/v1/upstreams/new"]].concat()), "201");

    let (cert, key) = (file("ci.pem"), file("ci.key"));
    let server = format!("{tls}/operate/v1/upstreams/app/servers/{}", b1.addr());
    let down = format!("{server}/down?reason=v2");
    let with = |words: &[&str]| curl(&[&["--cert", &cert, "--key", &key], words].concat());
    assert_eq!(curl(&["-X", "POST", &down]), "403", "no certificate");
    assert_eq!(with(&["-X", "POST", &down]), "200");
    assert_eq!(with(&["-X", "DELETE", &server]), "403", "verbs alone");
    let listing = Command::new("curl")
        .args(["-sS", "--unix-socket", &socket])
        .arg(format!("http://lb/api/v1/upstreams/app/servers/{}", b1.addr()))
        .output()
        .unwrap();
    let listing: Value = serde_json::from_slice(&listing.stdout).unwrap();
    assert_eq!(listing["admin"]["by"], "CN=ci", "whose certificate it was");

    let upstreams = format!("{tls}/api/v1/upstreams/app");
    assert_eq!(curl(&[&upstreams]), "401");
    assert_eq!(curl(&["-u", "anna:secret", &upstreams]), "200");
    assert_eq!(curl(&["-u", "anna:secret", "-X", "DELETE", &upstreams]), "405");
    let metrics = format!("http://{}/metrics", nginx.addr("metrics"));
    assert_eq!(curl(&[&metrics]), "403");
    nginx.change(|conf| conf.http(text.replace("allow 10.1.0.5", "allow 127.0.0.1")));
    nginx.reload();
    assert_eq!(curl(&[&metrics]), "200");
}

#[test]
fn a_fleet_of_three_is_told_one_thing_and_compared() {
    let backends = Backend::several(2);
    let fleet: Vec<Nginx> = (0..3).map(|_| pair(&backends)).collect();
    let roots: Vec<String> = fleet.iter().map(root_of).collect();
    let all: Vec<&str> = roots.iter().map(String::as_str).collect();
    let tell = |words: &[&str]| run("fleet.sh", &[words, &all].concat());
    let same = tell(&["compare"]);
    assert_eq!((same.code, same.text.matches(": as http").count()), (0, 2), "{same:?}");

    // A machine that only one of them knows.
    let body = json!({"servers": [{"server": "127.0.0.9:80"}]});
    fleet[2].api().ok("PUT", "upstreams/extra", Some(&body));
    let call = "hosts/127.0.0.9/down?wait=10s&min_up=0&missing=ok&reason=disk&if_reason=disk";
    for _ in 0..2 {
        let told = tell(&["say", call]);
        assert_eq!((told.code, told.text.matches(": done").count()), (0, 3), "{told:?}");
    }
    for nginx in &fleet {
        assert_eq!(nginx.api().ok("GET", "hosts/127.0.0.9", None)["admin"]["reason"], "disk");
    }
    let other = tell(&["compare"]);
    assert!(other.code == 1 && other.text.contains("+extra "), "{other:?}");
    fleet[2].api().ok("DELETE", "upstreams/extra", None);
    assert_eq!(tell(&["compare"]).code, 0);

    // One that refuses is named, and those after it are not told.
    fleet[1].api().ok("POST", "hosts/127.0.0.9/down?reason=mine", None);
    let told = tell(&["say", &call.replace("disk", "other")]);
    assert!(told.code == 1 && told.text.contains("if-reason"), "{told:?}");
    assert_eq!(fleet[2].api().ok("GET", "hosts/127.0.0.9", None)["admin"]["reason"], "disk");

    // One that does not answer is no equal one.
    let none = format!("http://{}/nowhere", fleet[0].web());
    let run = run("fleet.sh", &["compare", &roots[0], &none]);
    assert!(run.code == 1 && run.text.contains(&format!("{none}: no answer")), "{run:?}");
    let unlike = tell(&["compare", &none]);
    assert!(unlike.code == 1 && !unlike.text.contains("Traceback"), "{unlike:?}");
}

#[test]
fn what_consul_template_has_rendered_is_put_by_the_command_of_its_configuration() {
    let backends = Backend::several(2);
    let nginx = pair(&backends);
    let rendered = nginx.path("app.json");
    let text = json!({"servers": [{"server": backends[0].addr()}]}).to_string();
    fs::write(&rendered, text).unwrap();
    let conf = fs::read_to_string("examples/consul-template/peerage.hcl").unwrap();
    let command = conf.lines().find_map(|line| line.trim().strip_prefix("command     = "));
    let command = command.unwrap().trim_matches('"');
    assert!(conf.contains("destination = \"/run/peerage/app.json\""), "what the command sends");
    let command = command
        .replace("/usr/local/bin/put.sh", "examples/consul-template/put.sh")
        .replace("/run/peerage/app.json", &rendered.display().to_string())
        .replace("http://127.0.0.1:8081/api", &root_of(&nginx));
    let run = Run::of(Command::new("bash").args(["-c", &command]));
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(nginx.api().upstream("app")["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn every_example_is_run_by_a_test_and_told_of_in_a_document() {
    let (mut tests, mut pages) = (texts("tests"), texts("docs"));
    tests += &texts("ci");
    for name in ["README.md", "CONTRIBUTING.md", "examples/README.md"] {
        pages += &fs::read_to_string(name).unwrap();
    }
    for file in files("examples") {
        let name = file.strip_prefix("examples/").unwrap();
        if name == "README.md" {
            continue;
        }
        // An image needs who builds images; ci/package/try.sh runs what is in it.
        let is_run = !name.starts_with("docker/Dockerfile");
        // What another example runs is run with it.
        let last = name.rsplit('/').next().unwrap();
        let others = files("examples").into_iter().filter(|other| *other != file);
        let by_other = others.filter(|other| other.ends_with(".sh")).any(|other| {
            let text = fs::read_to_string(other).unwrap();
            text.contains(&format!("/{last}"))
        });
        assert!(!is_run || tests.contains(last) || by_other, "no test runs {file}");
        assert!(pages.contains(name), "no document tells of {file}");
    }
}

/// All files below a directory of the tree.
fn files(dir: &str) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            all.extend(files(&name));
        } else {
            all.push(name);
        }
    }
    all
}

fn texts(dir: &str) -> String {
    files(dir).iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
}
