#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: the whole suite (golden cases included), then all unit tests
# with AddressSanitizer and UBSan, then those with threads with ThreadSanitizer. The last line says how many passed.
# Nothing is cached but compiled files: every test runs each time. TIDEPOOL_GOLDEN_DIR names other golden cases.
set -euo pipefail
cd "$(dirname "$0")"
tools/install_deps.sh

export TIDEPOOL_GOLDEN_DIR="${TIDEPOOL_GOLDEN_DIR:-$PWD/tests/golden}"
export CTEST_PARALLEL_LEVEL="${CTEST_PARALLEL_LEVEL:-$(nproc)}"
export UBSAN_OPTIONS=print_stacktrace=1
# What a sanitizer slows down by too much, and what it cannot tell anything about.
not_for_sanitizers='_NOT_BUILT$|layers_point_down|check_layers_|^Setting/Matrix|^Drafts\.sampled'
# The folders with threads; the schedules are in step_test.
tsan_targets=(base_test device_test graph_test ops_test cache_test engine_test step_test)

passed=0
failed=0

# Runs ctest with the given arguments and adds to the counts. Fails only by what it counts.
run_tests() {
  local title=$1 log summary
  shift
  log=$(mktemp)
  echo "== $title"
  ctest "$@" --output-on-failure --no-tests=error 2>&1 | tee "$log" || true
  summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" || true)
  rm -f "$log"
  if [[ $summary =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    failed=$((failed + BASH_REMATCH[1]))
    passed=$((passed + BASH_REMATCH[2] - BASH_REMATCH[1]))
  else
    failed=$((failed + 1))
  fi
}

build() {
  local preset=$1
  shift
  echo "== build: $preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" "$@"
}

# The targets of the list that this checkout has.
existing_targets() {
  local known
  known=$(ninja -C build/tsan -t targets all)
  for target in "${tsan_targets[@]}"; do
    if grep -q "^$target:" <<<"$known"; then echo "$target"; fi
  done
}

start=$SECONDS
build cpu
run_tests "all tests" --preset cpu

export TIDEPOOL_SCHEDULES=200
build asan
run_tests "unit tests, AddressSanitizer and UBSan" --preset asan -LE golden -E "$not_for_sanitizers"

cmake --preset tsan >/dev/null
mapfile -t targets < <(existing_targets)
build tsan --target "${targets[@]}"
run_tests "tests with threads, ThreadSanitizer" --preset tsan -LE golden -E "$not_for_sanitizers|_replays_its_corpus|^Cli"

echo "$((SECONDS - start)) s"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
