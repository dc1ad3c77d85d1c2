#!/bin/sh
# run_example.sh GTPLAN TRAIN CONFIG RANKS [trained-as-processes]: plans CONFIG and trains it with every rank a thread;
# then, if asked, again with every rank a process as torchrun would start it, and compares what both print.
set -eu
gtplan=$1 train=$2 config=$3 ranks=$4 processes=${5:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$gtplan" plan "$config" -o "$folder/plan.json"
"$train" "$folder/plan.json" --chains --trace "$folder/trace.json" | tee "$folder/threads"
grep -q '^evaluation after' "$folder/threads"
grep -q '"ph":"X"' "$folder/trace.json"
[ -n "$processes" ] || exit 0
port=$((20000 + $$ % 10000)) rank=0 started=""
while [ "$rank" -lt "$ranks" ]; do
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$train" "$folder/plan.json" --chains >"$folder/rank$rank" &
  started="$started $!" rank=$((rank + 1))
done
for process in $started; do wait "$process"; done
cmp "$folder/threads" "$folder/rank0"
echo "$ranks processes print what $ranks threads print"
