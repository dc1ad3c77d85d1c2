#!/bin/sh
# Starts a program once per rank on this host, as torchrun would: launch.sh RANKS PROGRAM [ARGUMENT...]
# All are ended when one fails or GTP_LAUNCH_LIMIT seconds (300) are over. A rank named in GTP_EXPECT_KILLED is expected
# to be killed. Exit status: 0 if every rank ended as expected, 1 if one did not, 2 for wrong use, 3 at the limit.
set -u
if [ $# -lt 2 ]; then
  echo "usage: $0 RANKS PROGRAM [ARGUMENT...]" >&2
  exit 2
fi
ranks=$1
shift
limit=${GTP_LAUNCH_LIMIT:-300}
killed=${GTP_EXPECT_KILLED:--1}
port=${MASTER_PORT:-$((20000 + $$ % 30000))}
state=$(mktemp -d) || exit 2

stop_all() {
  for file in "$state"/pid.*; do
    [ -f "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null
  done
}
trap 'stop_all; rm -rf "$state"' EXIT
trap 'exit 1' INT TERM

rank=0
while [ "$rank" -lt "$ranks" ]; do
  (
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" &
    echo $! >"$state/pid.$rank"
    wait $!
    echo $? >"$state/new.$rank"
    mv "$state/new.$rank" "$state/end.$rank"
    rm -f "$state/pid.$rank"
  ) &
  rank=$((rank + 1))
done
# 137: ended by SIGKILL.
expected() {
  if [ "$1" -eq "$killed" ]; then [ "$2" -eq 137 ]; else [ "$2" -eq 0 ]; fi
}

start=$(date +%s)
while :; do
  ended=0
  rank=0
  while [ "$rank" -lt "$ranks" ]; do
    if [ -f "$state/end.$rank" ]; then
      ended=$((ended + 1))
      status=$(cat "$state/end.$rank")
      if ! expected "$rank" "$status"; then
        echo "rank $rank ended with $status" >&2
        sleep 2 # others may have something to say
        exit 1
      fi
    fi
    rank=$((rank + 1))
  done
  [ "$ended" -eq "$ranks" ] && exit 0
  if [ $(($(date +%s) - start)) -ge "$limit" ]; then
    echo "not done after $limit seconds" >&2
    exit 3
  fi
  sleep 0.1
done
