//! Turns what nginx was built with into cfgs, and names the build.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");

    // Features that the nginx was configured with: cfg(ngx_feature = "debug") and so on.
    println!("cargo::rerun-if-env-changed=DEP_NGINX_FEATURES");
    let known = env::var("DEP_NGINX_FEATURES_CHECK").unwrap_or_default();
    println!("cargo::rustc-check-cfg=cfg(ngx_feature, values({known}))");
    for feature in env::var("DEP_NGINX_FEATURES").unwrap_or_default().split(',') {
        if !feature.is_empty() {
            println!("cargo::rustc-cfg=ngx_feature=\"{feature}\"");
        }
    }

    // Whether nginx has names of servers in sessions, for its `sticky` (since 1.29.6).
    println!("cargo::rustc-check-cfg=cfg(nginx_sid)");
    let objs = env::var("DEP_NGINX_BUILD_DIR").unwrap_or_default();
    let config = fs::read_to_string(Path::new(&objs).join("ngx_auto_config.h")).unwrap_or_default();
    if config.lines().any(|line| line.contains("define NGX_HTTP_UPSTREAM_SID ")) {
        println!("cargo::rustc-cfg=nginx_sid");
    }

    // Whether nginx counts connections and requests, as its `stub_status` shows them.
    println!("cargo::rustc-check-cfg=cfg(nginx_stat)");
    if config.lines().any(|line| line.contains("define NGX_STAT_STUB ")) {
        println!("cargo::rustc-cfg=nginx_stat");
    }

    compile();

    // One build does not read what another has laid out in shared memory: its number is a hash of
    // all that may decide the layout.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(env::var("CARGO_PKG_VERSION").unwrap_or_default().as_bytes());
    add(env::var("DEP_NGINX_VERSION").unwrap_or_default().as_bytes());
    for feature in ["POINTS", "PANIC"] {
        if env::var_os(format!("CARGO_FEATURE_{feature}")).is_some() {
            add(feature.as_bytes());
        }
    }
    for source in ["src", "crates/core/src", "crates/shm/src", "crates/zone/src"] {
        println!("cargo::rerun-if-changed={source}");
        files(Path::new(source), &mut |bytes| add(bytes));
    }
    println!("cargo::rustc-env=PEERAGE_BUILD={hash:016x}");
}

/// Compiles what is C, with nginx's headers.
fn compile() {
    let mut build = cc::Build::new();
    build.file("src/ffi/bits.c").std("gnu11");
    // nginx's own headers may do what a compiler warns of; it is not ours to say.
    build.warnings(false).extra_warnings(false);
    let include = env::var_os("DEP_NGINX_INCLUDE").unwrap_or_default();
    build.includes(env::split_paths(&include));
    for flag in env::var("DEP_NGINX_CFLAGS").unwrap_or_default().split_whitespace() {
        build.flag(flag);
    }
    build.compile("peerage_bits");
}

/// Gives the contents of every file below a directory, in an order that is the same everywhere.
fn files(directory: &Path, each: &mut dyn FnMut(&[u8])) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, each);
        } else if let Ok(bytes) = fs::read(&path) {
            each(&bytes);
        }
    }
}
