#!/usr/bin/env bash
# Who may know whom, and what stands only where: what neither the compiler nor clippy checks.
#
#   ci/lint.sh                    the sources
#   ci/lint.sh --symbols FILE     what a built module exports
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0

# Says that a rule is broken, where there are lines that break it.
none() {
    local rule=$1 lines=$2
    [ -n "$lines" ] || return 0
    printf 'lint: %s:\n%s\n' "$rule" "$lines" >&2
    bad=1
}

# Lines of Rust that match, comments aside: PATTERN FILE-OR-DIR ...
code() {
    local pattern=$1 where=() path
    shift
    for path in "$@"; do
        [ -e "$path" ] && where+=("$path")
    done
    [ ${#where[@]} -gt 0 ] || return 0
    grep -rnE --include='*.rs' "$pattern" "${where[@]}" | grep -vE '^[^:]+:[0-9]+:\s*//' || true
}

outside() {
    grep -vE "^($1)" || true
}

if [ "${1:-}" = --symbols ]; then
    names=$(nm -D --defined-only "$2" | awk '{print $3}')
    none "the module exports more than ngx_http_peerage_module" \
        "$(grep -vxE 'ngx_http_peerage_module|ngx_modules|ngx_module_names|ngx_module_order' <<<"$names" || true)"
    grep -qx ngx_http_peerage_module <<<"$names" || none "no such symbol" ngx_http_peerage_module
    exit $bad
fi

none "only src/ffi* may name nginx" \
    "$(code '\b(nginx_sys|ngx)::|\bngx_[a-z_]+!?\(' src crates | outside 'src/ffi')"
none "unsafe stands only in src/ffi* and crates/shm" \
    "$(code '\bunsafe\s*(\{|fn\b|impl\b|extern\b|trait\b|\()' src crates tests | outside 'src/ffi|crates/shm/')"
grep -q 'forbid(unsafe_code)' crates/core/src/lib.rs || none "must forbid unsafe_code" crates/core
grep -q 'forbid(unsafe_code)' crates/zone/src/lib.rs || none "must forbid unsafe_code" crates/zone
grep -q 'deny(unsafe_code)' src/lib.rs || none "must deny unsafe_code" src
none "a lock that waits, or an allocation that logs (try and _locked instead)" \
    "$(grep -rnE '\bngx_(shmtx_lock|slab_alloc|slab_calloc)\b' src nginx 2>/dev/null |
        grep -vE ':\s*(//|\*|/\*)' || true)"
none "the core reads no clock and no environment" \
    "$(code '\b(Instant|SystemTime)::now\b|\benv::var|\bthread::spawn' crates/core/src crates/zone/src)"
none "wait on a condition (tests/support/wait.rs)" \
    "$(code 'thread::sleep' tests | outside 'tests/support/')"

# What may not be in a crate's tree of dependencies, tests aside.
depends() {
    local crate=$1 forbidden=$2 tree
    tree=$(cargo tree -q -p "$crate" -e normal,build --prefix none) || { bad=1; return; }
    none "$crate must not depend on" "$(awk '{print $1}' <<<"$tree" | sort -u | grep -xE "$forbidden" || true)"
}
depends peerage-core 'peerage-shm|peerage-zone|peerage|nginx-sys|ngx|libc'
depends peerage-shm 'peerage-core|peerage-zone|peerage|nginx-sys|ngx'
depends peerage-zone 'peerage|nginx-sys|ngx'

# Of the versions of Rust that crates ask for, the newest is not above that of Cargo.toml.
ours=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
newest=$(cargo metadata --locked --format-version 1 \
    --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" |
    grep -o '"rust_version":"[^"]*"' | cut -d'"' -f4 | sort -Vu | tail -n 1)
none "a crate needs a newer Rust than rust-version of Cargo.toml, $ours" \
    "$(printf '%s\n' "$ours.0" "${newest:-unknown}" | sort -V | tail -n 1 | grep -vxF "$ours.0" |
        grep -vxF "$ours" || true)"

for script in .ci/run ci/*.sh ci/*/*.sh examples/*.sh; do
    bash -n "$script" || bad=1
done
exit $bad
