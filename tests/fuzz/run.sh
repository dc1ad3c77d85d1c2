#!/bin/sh
# Builds the fuzz targets with clang under AddressSanitizer and UndefinedBehaviorSanitizer and runs each one for a while:
#   tests/fuzz/run.sh [SECONDS_EACH [TARGET...]]
# Seeds are the golden configurations, the examples, the inputs that once crashed (tests/data/fuzz) and, where it is
# there, the corpus beside the project. What is found stays in build-fuzz/found. Ends with 1 if anything crashed.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-20}
[ $# -gt 0 ] && shift
build=${GTPLAN_FUZZ_FOLDER:-build-fuzz}
compiler() { if command -v ccache >/dev/null; then echo "ccache $1"; else echo "$1"; fi; }

# Line tables are all that a stack trace needs; code that is not optimized would try a third as many inputs.
[ -f "$build/build.ninja" ] ||
  CC=$(compiler clang) CXX=$(compiler clang++) meson setup "$build" -Dbuildtype=plain -Doptimization=1 \
    -Db_sanitize=address,undefined -Db_lundef=false -Dfuzzers=enabled -Dtests=disabled -Dbenchmarks=disabled \
    -Dgloo=disabled -Dcpp_args='-gline-tables-only -fno-sanitize-recover=all -fsanitize=fuzzer-no-link' >/dev/null
targets=${*:-$(meson introspect --targets "$build" | grep -o '"name": "fuzz_[a-z_]*"' | cut -d'"' -f4 | sort -u)}
# shellcheck disable=SC2086  # one word a target
meson compile -C "$build" $targets

seeds="$build/seeds"
mkdir -p "$seeds" "$build/found"
for file in tests/cli/golden/*/config.* examples/*.yaml examples/*.json tests/data/fuzz/*; do
  [ -f "$file" ] && cp "$file" "$seeds/$(echo "$file" | tr / _)"
done
if [ -d ../shared/data/corpus ]; then
  find ../shared/data/corpus -type f -size -64k | while read -r file; do cp "$file" "$seeds/$(echo "$file" | tr / _)"; done
fi

# To read more than a thousand seeds takes minutes: a short run starts from what once crashed and some of the others.
if [ "$seconds" -lt 60 ]; then
  few="$build/few-seeds"
  rm -rf "$few" && mkdir "$few"
  { find "$seeds" -name 'tests_data_fuzz_*'; find "$seeds" -type f -size -8k | shuf -n 40; } | sort -u |
    while read -r file; do cp "$file" "$few"; done
  seeds=$few
fi

# Entropic scheduling takes most of the time, because one input meets thousands of rules.
failed=0
for target in $targets; do
  echo "$target: $seconds s"
  mkdir -p "$build/inputs/$target"
  "$build/tests/fuzz/$target" -max_total_time="$seconds" -entropic=0 -max_len=65536 -timeout=20 -rss_limit_mb=2560 \
    -artifact_prefix="$build/found/$target-" -print_final_stats=1 -verbosity=0 "$build/inputs/$target" "$seeds" \
    2>"$build/found/$target.log" || { failed=1; tail -40 "$build/found/$target.log"; }
  grep -E "number_of_executed_units|average_exec_per_sec|peak_rss_mb" "$build/found/$target.log" || true
done
[ "$failed" -eq 0 ] && echo "fuzz: no crash"
exit "$failed"
