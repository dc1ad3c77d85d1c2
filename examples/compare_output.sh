#!/bin/sh
# Runs PROGRAM and compares what it prints with FILE: compare_output.sh PROGRAM FILE
set -eu
"$1" | diff "$2" -
