#!/bin/sh
# Installs into a virtual environment, within the versions of CONSTRAINTS (constraints.txt): VENV, then what to install.
# uv does in seconds what takes pip minutes, and takes no file whose digest differs from that in constraints-hashes.txt
# (scripts/lock.py); then nothing is installed. It reads no settings of pip (a mirror, say), so where it fails otherwise
# pip goes on, which cannot mix files with and without known digests.
set -eu
python=$1/bin/python
constraints=${CONSTRAINTS:-constraints.txt}
shift

digests=
[ "$constraints" != constraints.txt ] || digests="--constraint constraints-hashes.txt"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# shellcheck disable=SC2086 # two words, or none
if "$python" -m pip install --quiet --constraint "$constraints" uv &&
    "$python" -m uv pip install --quiet --python "$python" --constraint "$constraints" $digests "$@" 2>"$said"; then
    exit 0
fi
cat "$said" >&2
if grep -q "Hash mismatch" "$said"; then
    echo "A file is not the one that constraints-hashes.txt knows; nothing was installed." >&2
    exit 1
fi
echo "uv could not; pip installs instead." >&2
"$python" -m pip install --quiet --constraint "$constraints" "$@"
