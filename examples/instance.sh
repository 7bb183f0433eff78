#!/usr/bin/env bash
# One instance of the quickstart's application: stands for your own way to start and to replace.
#
#   instance.sh start|replace|stop DIRECTORY PORT NAME VERSION
#
# Its pid is kept in DIRECTORY/NAME.pid. Returns when the instance answers, or has ended.
set -euo pipefail
here=$(dirname "$0") dir=$2 port=$3 name=$4 version=${5:-}

# A zombie counts as gone: in a container there may be nobody to reap it.
gone() { [ ! -e "/proc/$1" ] || grep -qs '^State:.*Z' "/proc/$1/status"; }
answers() { [ "$(curl -sS -m 5 "http://127.0.0.1:$port/")" = "$name $version" ]; }

until_ok() {
    for _ in $(seq 100); do
        if "$@" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "instance: not so within 10 s: $*" >&2
    return 1
}

stop() {
    local pid
    pid=$(cat "$dir/$name.pid")
    kill "$pid"
    until_ok gone "$pid"
    rm -f "$dir/$name.pid"
}

start() {
    python3 "$here/backend.py" "$port" "$name" "$version" </dev/null >>"$dir/$name.log" 2>&1 &
    echo $! >"$dir/$name.pid"
    until_ok answers
}

case $1 in
    start) start ;;
    stop) stop ;;
    replace)
        stop
        start
        ;;
esac
