#!/bin/sh
# Installs into a virtual environment, within the versions of CONSTRAINTS (constraints.txt): VENV, then what to install.
# uv does in seconds what takes pip minutes. It reads no settings of pip (a mirror, say), so where it fails pip goes on.
set -eu
python=$1/bin/python
constraints=${CONSTRAINTS:-constraints.txt}
shift

if "$python" -m pip install --quiet --constraint "$constraints" uv &&
    "$python" -m uv pip install --quiet --python "$python" --constraint "$constraints" "$@"; then
    exit 0
fi
echo "uv could not; pip installs instead." >&2
exec "$python" -m pip install --quiet --constraint "$constraints" "$@"
