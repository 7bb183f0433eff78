#!/usr/bin/env bash
# Builds a Debian package of the module, for the nginx that is installed, and prints its path.
#
#   ci/package.sh [--revision N]     target/package/libnginx-mod-http-peerage_VERSION-N_ARCH.deb
#
# No root is needed where ci/prepare.sh has nothing to install. PEERAGE_MODULE names the module
# instead of building it; DEBFULLNAME and DEBEMAIL say who makes the package. Symbols for a debugger
# are in a package of their own beside it. lintian looks at both, where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

revision=1
if [ $# = 2 ] && [ "$1" = --revision ]; then
    revision=$2
elif [ $# != 0 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
# The package says that it is for Debian's nginx.
unset NGINX_SOURCE_DIR NGINX_BUILD_DIR
export PEERAGE_PACKAGES="debhelper dpkg-dev python3 ${PEERAGE_PACKAGES:-}"
. ci/prepare.sh
module=$(realpath "${PEERAGE_MODULE:-$(ci/build.sh)}")
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/package
tree=$out/build
version=$(sed -n '0,/^version = /s/^version = "\(.*\)"/\1/p' Cargo.toml)-$revision
nginx=$(sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$NGINX_SOURCE_DIR/src/core/nginx.h")
# The same sources give the same package: the time is that of the change log.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct -- CHANGELOG.md 2>/dev/null ||
    stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH
who="${DEBFULLNAME:-peerage} <${DEBEMAIL:-peerage@$(hostname -f 2>/dev/null || hostname)}>"

rm -rf "$tree"
mkdir -p "$tree"
# What Debian's nginx does not load would keep it from starting.
mkdir "$tree/try"
{
    echo "load_module $module; pid pid; error_log stderr; events {} http { peerage_zone z 1m;"
    # Whoever makes packages may not write where Debian's nginx does.
    printf '%s_temp_path temp; ' client_body proxy fastcgi uwsgi scgi
    echo "}"
} >"$tree/try/nginx.conf"
"$(command -v nginx || echo /usr/sbin/nginx)" -e stderr -t -q -p "$tree/try" -c "$tree/try/nginx.conf" || {
    echo "package: Debian's nginx does not load $module" >&2
    exit 1
}
rm -r "$tree/try"
cp -R README.md CHANGELOG.md docs examples "$tree"
cp -R ci/package/debian "$tree/debian"
install -m 644 "$module" "$tree/ngx_http_peerage_module.so"
sed -i "s|@MAINTAINER@|$who|" "$tree/debian/control"
cat >"$tree/debian/changelog" <<END
peerage ($version) unstable; urgency=medium

  * Of nginx $nginx; what is new is said in CHANGELOG.md.

 -- $who  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
crates() {
    cargo metadata --locked --format-version 1 \
        --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" | python3 ci/package/crates.py "$@"
}
crates sbom "$nginx" >"$tree/sbom.cdx.json"
crates copyright >"$tree/debian/copyright"

rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
# -d: nothing is compiled, which build-essential would be for.
(cd "$tree" && dpkg-buildpackage -d -b -us -uc) >"$out/build.log" 2>&1 || {
    tail -n 30 "$out/build.log" >&2
    echo "package: not built, see $out/build.log" >&2
    exit 1
}
package=$(echo "$out"/libnginx-mod-http-peerage_*.deb)
if command -v lintian >/dev/null; then
    suppress=()
    # Who has not said an address has that of the machine, which may have no domain.
    [ -n "${DEBEMAIL:-}" ] || suppress=(--suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog)
    lintian --allow-root --fail-on error "${suppress[@]}" "$out"/peerage_*.changes >&2
fi
echo "$package"
