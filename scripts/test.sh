#!/bin/sh
# Installs what the tests need, builds with clang under AddressSanitizer and UndefinedBehaviorSanitizer, runs every test
# and fuzzes every reader for a short while, builds the programs with g++ under ThreadSanitizer and runs what is
# concurrent, and checks the format. The last line is `N passed, N failed[, N skipped]`.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh
# shellcheck disable=SC2086  # one word a package
install_packages $build_packages $test_packages
build=${GTPLAN_BUILD_FOLDER:-build-test}
compiler() { if command -v ccache >/dev/null; then echo "ccache $1"; else echo "$1"; fi; }
failed=0

# Line numbers are all that reports need of debug information, which takes a third of the time of compiling. The fuzz
# targets share this build, so that no file is compiled a third time.
checks="-gline-tables-only -fno-sanitize-recover=all -fsanitize=fuzzer-no-link"
[ -f "$build/build.ninja" ] ||
  CC=$(compiler clang) CXX=$(compiler clang++) meson setup "$build" -Dbuildtype=plain -Doptimization=0 \
    -Db_sanitize=address,undefined -Db_lundef=false -Dfuzzers=enabled -Dbenchmarks=disabled \
    "-Dcpp_args=$checks" "-Dc_args=$checks" "-Dcpp_link_args=$checks" "-Dc_link_args=$checks" >/dev/null
meson compile -C "$build"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_stack_use_after_return=1
meson test -C "$build" --print-errorlogs || true
if GTPLAN_FUZZ_FOLDER=$build tests/fuzz/run.sh 5; then :; else failed=$((failed + 1)); fi

threads="$build-threads"
[ -f "$threads/build.ninja" ] ||
  CC=$(compiler gcc) CXX=$(compiler g++) meson setup "$threads" -Dbuildtype=plain -Doptimization=0 -Db_sanitize=thread \
    -Db_lundef=false -Dbenchmarks=disabled >/dev/null
concurrent="kernel_runtime_tests c_api_test"
# shellcheck disable=SC2086  # one word a target
if meson compile -C "$threads" gtplan train compare_runs $concurrent; then echo "g++: no warnings"; else failed=$((failed + 1)); fi
TSAN_OPTIONS=halt_on_error=1 meson test -C "$threads" --no-rebuild --suite concurrent --print-errorlogs || true

if git ls-files '*.cpp' '*.hpp' '*.h' '*.c' '*.cu' '*.cuh' | xargs -r clang-format --dry-run -Werror; then
  echo "format: clean"
else
  failed=$((failed + 1))
fi
python3 scripts/count_tests.py "$build/meson-logs/testlog.json" "$threads/meson-logs/testlog.json" \
  --also-passed $((3 - failed)) --also-failed "$failed"
