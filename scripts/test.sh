#!/bin/sh
# Installs what the tests need, builds with g++ under AddressSanitizer and UndefinedBehaviorSanitizer and runs every test,
# builds the programs with clang under ThreadSanitizer and runs what is concurrent, fuzzes every reader for a short while,
# and checks the format. The last line is `N passed, N failed[, N skipped]`.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh
# shellcheck disable=SC2086  # one word a package
install_packages $build_packages $test_packages
build=${GTPLAN_BUILD_FOLDER:-build-test}
compiler() { if command -v ccache >/dev/null; then echo "ccache $1"; else echo "$1"; fi; }
failed=0

# Line numbers are all that reports need of debug information, which takes a third of the time of compiling.
sanitizers="-Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debug -Doptimization=0 -Dbenchmarks=disabled
  -Dcpp_args=-g1 -Dc_args=-g1"
# shellcheck disable=SC2086
[ -f "$build/build.ninja" ] || CC=$(compiler gcc) CXX=$(compiler g++) meson setup "$build" $sanitizers >/dev/null
meson compile -C "$build"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_stack_use_after_return=1
meson test -C "$build" --print-errorlogs || true

clang="$build-clang"
[ -f "$clang/build.ninja" ] ||
  CC=$(compiler clang) CXX=$(compiler clang++) meson setup "$clang" -Dbuildtype=plain -Db_sanitize=thread -Db_lundef=false \
    -Dbenchmarks=disabled >/dev/null
concurrent="kernel_runtime_tests c_api_test"
# shellcheck disable=SC2086  # one word a target
if meson compile -C "$clang" gtplan train compare_runs $concurrent; then echo "clang: no warnings"; else failed=1; fi
TSAN_OPTIONS=halt_on_error=1 meson test -C "$clang" --no-rebuild --suite concurrent --print-errorlogs || true

if GTPLAN_FUZZ_FOLDER="$build-fuzz" tests/fuzz/run.sh 5; then :; else failed=$((failed + 1)); fi

if git ls-files '*.cpp' '*.hpp' '*.h' '*.c' '*.cu' '*.cuh' | xargs -r clang-format --dry-run -Werror; then
  echo "format: clean"
else
  failed=$((failed + 1))
fi
python3 scripts/count_tests.py "$build/meson-logs/testlog.json" "$clang/meson-logs/testlog.json" \
  --also-passed $((3 - failed)) --also-failed "$failed"
