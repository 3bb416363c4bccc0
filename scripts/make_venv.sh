#!/bin/sh
# Makes a virtual environment; Debian and Ubuntu ship Python without the part that does, so it is fetched there.
set -eu
target=$1
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "hippocube needs Python 3.11 or newer; '$python' is $("$python" -V). Set PYTHON=/path/to/python3.11." >&2
    exit 1
}
[ -x "$target/bin/python" ] && "$target/bin/python" -m pip --version >/dev/null 2>&1 && exit 0
rm -rf "$target"
if ! "$python" -m venv "$target" 2>/dev/null; then
    rm -rf "$target"
    version=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    echo "Installing $version: this Python cannot make virtual environments without it."
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
    $sudo apt-get update -qq && $sudo apt-get install -y -qq "$version" || {
        echo "Install it by hand and repeat: apt-get install $version" >&2
        exit 1
    }
    "$python" -m venv "$target"
fi
