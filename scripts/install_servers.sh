#!/bin/sh
# Installs what the tests of PostgreSQL, Neo4j and the console run on, on Debian and Ubuntu, as far as it is missing.
set -eu

packages=""
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || packages="$packages postgresql"
command -v java >/dev/null 2>&1 || packages="$packages openjdk-17-jre-headless"
[ -n "${MEMOS_CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
command -v mvn >/dev/null 2>&1 || packages="$packages maven"
[ -n "$packages" ] || exit 0

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of names
$as_root apt-get install -yq --no-install-recommends $packages
