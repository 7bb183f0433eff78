#!/usr/bin/env bash
# Sends a real nginx what docs/openapi.json allows and what it forbids, and holds every answer
# against it: no error of the server, no status, field or type that is not in the document.
#
#   ci/schemathesis.sh [SECONDS]     for about so long, 45 unless said
#
# PEERAGE_MODULE names the module, else target/release/libpeerage.so is taken. Needs the Python
# package index once; what was installed stays in target/schemathesis.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-45}
. ci/scratch.sh
how=$PWD/ci/schema
document=$PWD/docs/openapi.json
tool=$target/schemathesis
python_tools "$tool" "$how/requirements.txt"

scratch schema
start_nginx app,web <<END
    log_format answer "\$status \$request_method \$request_uri";
    client_max_body_size 8m;
    peerage_zone main 4m state=$prefix/main.json;
    # Nothing is sent to them.
    upstream app { peerage main; server 10.0.0.1:8080 weight=3; server 10.0.0.2:8080; server 10.0.0.3:8080; }
    upstream web { peerage main; server 10.0.0.1:8080; server 10.0.0.3:8080; }
    server {
        listen 127.0.0.1:{port};
        access_log $prefix/answers.log answer;
        location /api { peerage_api write=on; }
    }
END
api=http://127.0.0.1:$port/api

cd "$prefix"
failed=0
PEERAGE_API=$api PYTHONPATH=$how PYTHONDONTWRITEBYTECODE=1 "$tool/bin/schemathesis" \
    --config-file "$how/schemathesis.toml" run "$document" --url "$api" \
    --max-time "$seconds" --warnings off --no-color || failed=$?
echo "answers: $(awk '{ n[$1]++ } END { for (s in n) print n[s], "x", s }' answers.log | sort -k3 | paste -sd, -)"
[ -z "${PEERAGE_KEEP:-}" ] || cp answers.log error.log "$target/"
check_log || failed=1
exit "$failed"
