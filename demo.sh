#!/usr/bin/env bash
# Installs what is missing, builds the program, and shows the small demo model at work with its KV cache in host memory.
# Exit code 0 only when everything shown holds: same output with and without offload, and the fact is recalled.
set -euo pipefail
cd "$(dirname "$0")"
tools/install_deps.sh demo
cmake --preset cpu >/dev/null
cmake --build --preset cpu --target tidepool
exec python3 tools/demo.py --program build/cpu/tidepool --model models/demo
