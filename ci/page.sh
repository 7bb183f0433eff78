#!/usr/bin/env bash
# Drives the page of peerage_dashboard in a real browser, against a real nginx: each action, two
# browsers in conflict, 10,000 upstreams, events that are cut off, hostile names, a phone.
#
#   ci/page.sh [STORY ...]     all, or these: access actions health hostile live look routes scale
#   ci/page.sh --pictures      only takes the pictures of docs/page.md anew
#
# PEERAGE_MODULE names the module, else target/release/libpeerage.so is taken. PEERAGE_UI=ui takes
# the scripts and styles of the tree in place of the module's. Needs the package indexes of Debian
# and of Node.js once; what was fetched stays in target/page, nothing is installed but Node.js where
# there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! { command -v node && command -v npm; } >/dev/null; then
    export PEERAGE_PACKAGES="nodejs npm ${PEERAGE_PACKAGES:-}"
fi
. ci/prepare.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/page
how=$PWD/ci/page
export PEERAGE_MODULE
PEERAGE_MODULE=$(realpath "${PEERAGE_MODULE:-$target/release/libpeerage.so}")
[ -z "${PEERAGE_UI:-}" ] || PEERAGE_UI=$(realpath "$PEERAGE_UI")

# Debian's browser, with those of its libraries that this machine has not, and a font.
browser() {
    local new package sudo=()
    [ ! -x "$tools/root/usr/lib/chromium/chromium" ] || return 0
    echo "page: unpacking chromium" >&2
    [ "$(id -u)" = 0 ] || sudo=(sudo -n)
    mkdir -p "$tools"
    new=$(mktemp -d "$tools/new.XXXXXX")
    mkdir -p "$new/debs/partial"
    fetch() {
        "${sudo[@]}" apt-get -qq -y -o APT::Sandbox::User=root -o Dir::Cache::archives="$new/debs" \
            install --download-only --reinstall --no-install-recommends chromium fonts-dejavu-core \
            >&2
    }
    fetch || { "${sudo[@]}" apt-get -qq update >&2 && fetch; }
    for package in "$new"/debs/*.deb; do
        dpkg -x "$package" "$new/root"
    done
    rm -rf "$tools/root"
    mv "$new/root" "$tools/root"
    rm -rf "$new"
}

# What drives it, and judges it.
scripts() {
    [ "$(cat "$tools/stamp" 2>/dev/null)" != "$(cat "$how/package.json")" ] || return 0
    rm -rf "$tools/node_modules"
    mkdir -p "$tools"
    cp "$how/package.json" "$tools/"
    (cd "$tools" && npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts \
        --cache "$tools/npm")
    rm -rf "$tools/npm"
    cp "$how/package.json" "$tools/stamp"
}

browser
scripts
libraries=$tools/root/usr/lib/$(gcc -print-multiarch)
export PEERAGE_PAGE_TOOLS=$tools
export PEERAGE_CHROMIUM=$tools/root/usr/lib/chromium/chromium
export PEERAGE_CHROMIUM_LIBRARIES=$libraries:$libraries/pulseaudio
# Its own font, so that pictures are the same on every machine.
export FONTCONFIG_FILE=$tools/fonts.conf
cat >"$FONTCONFIG_FILE" <<END
<?xml version="1.0"?>
<fontconfig>
<dir>$tools/root/usr/share/fonts</dir><cachedir>$tools/fonts</cachedir>
<alias binding="same">
<family>system-ui</family><prefer><family>DejaVu Sans</family></prefer>
</alias>
</fontconfig>
END

if [ "${1:-}" = --pictures ]; then
    mkdir -p docs/page
    export PEERAGE_PICTURES=$PWD/docs/page
    exec node --test --test-name-pattern=pictures "$how/look.test.mjs"
fi
stories=("$@")
[ $# != 0 ] || stories=(access actions health hostile live look routes scale)
# One after the other: what is measured is measured alone.
for story in "${stories[@]}"; do
    begun=$SECONDS
    node --test --test-reporter=spec "$how/$story.test.mjs"
    echo "page: $story ok, $((SECONDS - begun)) s"
done
