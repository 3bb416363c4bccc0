#!/bin/sh
# Installs what the tests of PostgreSQL with pgvector, Neo4j, S3 and the console run on, on Debian and Ubuntu, as far as
# it is missing. pgvector is built from its source, in a minute, since most releases have a package that is too old or
# none: from GitHub, from the folder PGVECTOR_SOURCE, or else from the source package of a newer Debian.
set -eu

packages=""
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || packages="$packages postgresql"
command -v java >/dev/null 2>&1 || packages="$packages openjdk-17-jre-headless"
[ -n "${MEMOS_CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || packages="$packages chromium"
command -v mvn >/dev/null 2>&1 || packages="$packages maven"

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
  "${PYTHON:-python3}" -m venv "$moto"
  "$moto/bin/pip" install -q 'moto[s3,server]==5.2.5'
fi

# The newest server, which the tests start.
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
version=$(basename "$(dirname "$bin")")
[ ! -e "/usr/share/postgresql/$version/extension/vector--0.7.4--0.8.0.sql" ] || exit 0
# Whose name is in the list has 0.8 or later.
case $(apt-cache policy "postgresql-$version-pgvector" 2>/dev/null | sed -n 's/^ *Candidate: //p') in
  0.[89].* | [1-9]*) install "postgresql-$version-pgvector"; exit 0 ;;
esac
install "postgresql-server-dev-$version" build-essential git
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! git clone --quiet --depth 1 --branch v0.8.6 "${PGVECTOR_SOURCE:-https://github.com/pgvector/pgvector}" "$work/pgvector"; then
  # Of the mirror that this system uses, Debian's trixie.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | sort -u | grep '/debian/*$' | head -n 1)
  keys=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb-src [signed-by=$keys] $mirror trixie main" >"$work/sources"
  mkdir -p "$work/lists/partial"
  (
    cd "$work"
    for command in update "source --download-only pgvector"; do
      # shellcheck disable=SC2086 # a command and its arguments
      apt-get -q -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$work/lists" -o APT::Sandbox::User=root $command
    done
    mkdir pgvector
    tar -xf pgvector_*.orig.tar.gz -C pgvector --strip-components 1
  )
fi
for target in all install; do
  # Without flags for this machine's processor alone.
  $as_root make -s -C "$work/pgvector" OPTFLAGS="" with_llvm=no PG_CONFIG="$bin/pg_config" "$target"
done
