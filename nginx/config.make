# The library, made again when a source, or what nginx is configured with, is newer. The files are
# named here, so that "make install" has no need of cargo.

peerage_sources=`cd "$peerage_root" && find Cargo.toml Cargo.lock build.rs src crates/*/Cargo.toml \
    crates/*/src ui docs/openapi.json -type f | sort | sed -e "s#^#$peerage_root/#" -e '$!s#$# \\\\#'`

if [ $peerage_link = DYNAMIC ]; then
    peerage_linked=$NGX_OBJS/$ngx_addon_name$ngx_modext
else
    peerage_linked=$NGX_OBJS/nginx$ngx_binext
fi

case $NGX_OBJS in
    /*) peerage_objs=$NGX_OBJS ;;
    *)  peerage_objs=`pwd`/$NGX_OBJS ;;
esac

cat << END                                                    >> $NGX_MAKEFILE

$peerage_linked:	$peerage_library

$peerage_library:	$NGX_OBJS/ngx_auto_config.h $NGX_MAKEFILE \$(CORE_DEPS) \$(HTTP_DEPS) \\
	$peerage_sources
	cd '$peerage_root' \\
		&& NGINX_SOURCE_DIR='`pwd`' NGINX_BUILD_DIR='$peerage_objs' \\
		env -u CARGO_BUILD_TARGET '$peerage_cargo' rustc --release --locked --package peerage --lib \\
			--crate-type staticlib --no-default-features \\
			--target-dir '$peerage_objs/peerage'
	test -s $peerage_library && touch $peerage_library

END
