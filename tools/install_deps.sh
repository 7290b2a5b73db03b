#!/usr/bin/env bash
# Installs the Debian 12 packages that building and testing need; with the argument "demo" those of ./demo.sh too.
# Packages that are there already are left alone; when nothing is missing, nothing is run and the network is not touched.
set -euo pipefail

packages=(g++ cmake ninja-build ccache pkg-config python3
  libfmt-dev libhwy-dev libsimdjson-dev libpcre2-dev libutf8proc-dev libyaml-cpp-dev zlib1g-dev
  libgtest-dev)
if [ "${1:-}" = demo ]; then packages+=(bible-kjv bible-kjv-text); fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "missing packages: ${missing[*]} (run as root, or install sudo)" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
