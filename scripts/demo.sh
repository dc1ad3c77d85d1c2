#!/bin/sh
# Builds gtplan and runs the main job on the shipped examples: what is wrong with one, the rank map of another.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh
# shellcheck disable=SC2086  # one word a package
install_packages $build_packages
[ -f build/build.ninja ] || meson setup build --buildtype=release -Dtests=disabled >/dev/null
meson compile -C build gtplan >/dev/null
echo "\$ gtplan check examples/invalid.yaml"
build/tools/gtplan check examples/invalid.yaml || [ $? -eq 1 ]
echo
echo "\$ gtplan check examples/dense_gtp.yaml"
build/tools/gtplan check examples/dense_gtp.yaml
echo
echo "\$ gtplan ranks examples/dense_gtp.yaml"
build/tools/gtplan ranks examples/dense_gtp.yaml
