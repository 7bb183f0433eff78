#!/usr/bin/env bash
# What the story tests/releases.rs runs examples/ with beside the machine's own: Ansible, from the
# Python package index, in target/examples. Also has it check the files that it reads.
#
#   ci/examples.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/scratch.sh
tools=$target/examples/python
mkdir -p "$target/examples"
python_tools "$tools" ci/examples/requirements.txt
"$tools/bin/ansible-playbook" --version | head -1
"$tools/bin/ansible-playbook" -i examples/ansible/inventory.ini --syntax-check \
    -e release=1 examples/ansible/release.yml
"$tools/bin/python" - examples/pipeline/gitlab-ci.yml <<'PYTHON'
import sys, yaml
jobs = yaml.safe_load(open(sys.argv[1]))
scripts = [job["script"] for job in jobs.values() if "script" in job]
assert scripts and all(isinstance(line, str) for script in scripts for line in script), scripts
print(f"{sys.argv[1]}: {len(scripts)} jobs")
PYTHON
