#!/usr/bin/env bash
# Replays mutations: each patch in this folder takes one protection out of kernels/, and the test that guards it must
# then fail. Works on a copy; the project is not touched.
#   replay.sh [PATCH...]     all patches if none is named
# A patch begins with a line `# test: BINARY FILTER`: a test executable of the build and a doctest -tc filter.
# Prints one line a mutation (killed, survived or broken) and the sum. Exit status 0 if all were killed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

patches=("$@")
if [ ${#patches[@]} -eq 0 ]; then patches=("$here"/*.patch); fi
for index in "${!patches[@]}"; do patches[index]=$(realpath -- "${patches[index]}"); done

header() { sed -n '1s/^# test: //p' "$1"; }
binary_of() { header "$1" | cut -d' ' -f1; }
filter_of() { header "$1" | cut -s -d' ' -f2-; }

build() { (cd "$copy" && meson compile -C build "$1") >"$copy/build.log" 2>&1; }

# 0: at least one test ran and all passed. 1: a test failed, crashed or hung. 2: the filter selects nothing.
run_test() {
  local program status=0
  program=$(find "$copy/build" -type f -name "$1" -perm -u+x | head -n 1)
  timeout 300 "$program" --no-colors -tc="$2" >"$copy/test.log" 2>&1 || status=1
  if [ "$status" -eq 0 ] && grep -Eq 'test cases: *0 ' "$copy/test.log"; then return 2; fi
  return "$status"
}

tar -C "$root" --exclude='./.*' --exclude='./build*' -cf - . | tar -C "$copy" -xf -
(cd "$copy" && meson setup build -Dbuildtype=debug) >"$copy/setup.log" 2>&1 ||
  { cat "$copy/setup.log"; exit 2; }

killed=0 survived=0 broken=0
report() { printf '%-10s %s\n' "$1" "$(basename "$2" .patch)${3:+: $3}"; }
break_off() { report broken "$1" "$2"; broken=$((broken + 1)); }

replay() {
  local patch=$1 binary filter verdict=0
  binary=$(binary_of "$patch") filter=$(filter_of "$patch")
  if [ -z "$binary" ] || [ -z "$filter" ]; then break_off "$patch" 'no test named'; return; fi
  build "$binary" || { break_off "$patch" "$binary does not build unmutated"; return; }
  run_test "$binary" "$filter" || { break_off "$patch" 'the test fails, or selects nothing, unmutated'; return; }
  (cd "$copy" && patch -p1 --dry-run -s -f <"$patch" && patch -p1 -s -f --no-backup-if-mismatch <"$patch") \
    >/dev/null 2>&1 || { break_off "$patch" 'does not apply'; return; }
  if build "$binary"; then
    run_test "$binary" "$filter" || verdict=1
    case $verdict in
      0) report survived "$patch"; survived=$((survived + 1)) ;;
      *) report killed "$patch"; killed=$((killed + 1)) ;;
    esac
  else
    break_off "$patch" 'does not build'
  fi
  (cd "$copy" && patch -p1 -R -s -f --no-backup-if-mismatch <"$patch") >/dev/null
}

for patch in "${patches[@]}"; do replay "$patch"; done
if [ "$broken" -gt 0 ]; then echo "$broken broken"; fi
echo "$killed killed, $survived survived"
[ "$survived" -eq 0 ] && [ "$broken" -eq 0 ]
