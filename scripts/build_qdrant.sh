#!/bin/sh
# Builds the Qdrant server from its public source, once, into the user's cache, for the tests that want a real server.
#
#   sh scripts/build_qdrant.sh            # an hour or more on two cores, 15 GB of disk while it builds
#   make test-qdrant                      # every test that asks a Qdrant server, with that one
#
# Tests use it from then on; QDRANT_BIN names another, and an empty QDRANT_BIN the tests' stand-in.
# Needs git, a Rust toolchain of 1.97 or later (also a nightly one), clang, cmake and protoc (Debian: clang cmake
# libunwind-dev protobuf-compiler). QDRANT_SOURCE and RAFT_SOURCE name local clones where GitHub cannot be reached;
# PROFILE=release builds for measuring, where the default builds quickly.
set -eu

version=1.19.0
# The raft-rs that this version of Qdrant pins.
raft_revision=aafb07c7bab439c6139926a77dfafc5b10e9bc84
profile=${PROFILE:-dev}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hippocube
binary=$cache/qdrant-$version-$profile
[ "${1:-}" != --path ] || { echo "$binary"; exit 0; }
[ ! -x "$binary" ] || { echo "$binary is there already."; exit 0; }
for command in git cargo clang cmake protoc; do
  command -v "$command" >/dev/null || { echo "$command is missing: see the first lines of $0." >&2; exit 1; }
done

work=${QDRANT_BUILD:-$cache/qdrant-build}
mkdir -p "$cache" "$work"
[ -d "$work/qdrant" ] || git clone --quiet "${QDRANT_SOURCE:-https://github.com/qdrant/qdrant}" "$work/qdrant"
[ -d "$work/raft-rs" ] || git clone --quiet "${RAFT_SOURCE:-https://github.com/tikv/raft-rs}" "$work/raft-rs"
git -C "$work/raft-rs" checkout --quiet --force "$raft_revision"
git -C "$work/qdrant" checkout --quiet --force "v$version"

cd "$work/qdrant"
# Dependencies that Qdrant takes from git, from the clone and from the released tonic, of which its fork differs by one
# method that a server on one machine does not need.
sed -i \
  -e 's|git = "https://github.com/tikv/raft-rs", rev = "[0-9a-f]*"|path = "../raft-rs"|' \
  -e '/^raft-proto/s|path = "../raft-rs"|path = "../raft-rs/proto"|' \
  -e '/^tonic = { git = /d' Cargo.toml
sed -i 's|^ *\.http2_max_local_error_reset_streams(None);|;|' lib/api/src/grpc/dynamic_channel_pool.rs

toolchain=
rustup toolchain list 2>/dev/null | grep -q '^nightly' && toolchain=+nightly
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
# shellcheck disable=SC2086
nice -n "${NICE:-5}" cargo $toolchain build --ignore-rust-version --bin qdrant --profile "$profile" -j "$(nproc)"
folder=$profile
[ "$profile" != dev ] || folder=debug
cp "target/$folder/qdrant" "$binary.new"
mv "$binary.new" "$binary"
echo "$binary"
