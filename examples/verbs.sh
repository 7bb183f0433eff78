# shellcheck shell=bash disable=SC2154
# What release.sh and machine.sh have in common: takes a server or a machine out, and brings it back.
# Sourced by them, which set
#
#   me        who speaks
#   name      of whom, for people
#   at        its address in the API
#   reason    what this release is called

work=$(mktemp -d)
calling='' was='' status=''
trap 'rm -rf "$work"' EXIT

# Seconds after which an answer that takes up to this time is no longer waited for.
limit() {
    local n=${1//[!0-9]/}
    case $1 in
        *h*) echo $((n * 3600 + 60)) ;;
        *ms) echo $((n / 1000 + 60)) ;;
        *m*) echo $((n * 60 + 60)) ;;
        *) echo $((${n:-0} + 60)) ;;
    esac
}

# In the background, so that a signal does not wait for the answer.
call() {
    : >"$work/answer"
    curl -sS --connect-timeout 10 -o "$work/answer" -w '%{http_code}' "$@" >"$work/status" &
    calling=$!
    wait "$calling" || true
    calling=''
    status=$(cat "$work/status")
}

# Says a verb, with a time that it may take. Again where others write just now (503), or nobody
# answers (000): said twice it changes nothing. A wait that ends without success (504) is an answer.
verb() {
    local verb=$1 time=$2 try
    shift 2
    for try in 1 2 3 4 5; do
        [ "$try" = 1 ] || sleep 2
        call -m "$(limit "$time")" -X POST -G --data-urlencode "if_reason=$reason" "$@" "$at/$verb"
        case $status in
            000 | 503) ;;
            *) break ;;
        esac
    done
    [[ $status == 2?? ]]
}

refused() {
    printf '%s: %s: %s: %s\n' "$me" "$name" "$1" "$(tr -d '\n' <"$work/answer")" >&2
}

# What is said of it before: "up", or "down" where anybody has it so. One that is not known is
# refused later.
look() {
    call -m 60 "$at"
    case $status in
        200) was=$(python3 -c '
import json, sys
admin = json.load(sys.stdin)["admin"]
print("up" if not admin or admin["state"] == "up" else "down")' <"$work/answer") ;;
        4??) was=up ;;
        *) return 1 ;;
    esac
}

# As it was. What an earlier run of this release left down may be broken: it stays so.
back() {
    [ "$was" = up ] || return 0
    trap '' INT TERM
    verb up 0s || {
        refused "not brought back, it may be down"
        exit 4
    }
}

stopped() {
    echo "$me: $name: stopped while it waited" >&2
    [ -z "$calling" ] || kill "$calling" 2>/dev/null || true
    back
    exit "$1"
}

# Ends with 1 where it is not to be had, as it was before.
take_out() {
    local wait=${WAIT:-30s}
    look || {
        refused "not taken down, no answer"
        exit 1
    }
    trap 'stopped 130' INT
    trap 'stopped 143' TERM
    echo "$name: down, waiting for its last request"
    if ! verb down "$wait" -d "wait=$wait" -d "min_up=${MIN_UP:-1}" --data-urlencode "reason=$reason"; then
        refused "not taken down"
        # What was refused changed nothing.
        [[ $status == 4?? ]] || back
        exit 1
    fi
    trap - INT TERM
}

# Ends with 3 where it takes no requests in time.
bring_back() {
    local wait=${UP_WAIT:-60s}
    if ! verb up "$wait" -d "wait=$wait"; then
        refused "not up"
        exit 3
    fi
    echo "$name: back"
}
