#!/bin/sh
# on_gpu.sh RANKS PROGRAM [ARGUMENT...]: runs the program if this machine can, else says why not and exits with 77.
# Ranks may share a GPU where GTP_TEST_SHARED_GPU is set: that takes NCCL 2.30 or later.
ranks=$1
shift
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
if [ "$gpus" -eq 0 ]; then
  echo "skipped: there is no NVIDIA GPU here"
  exit 77
fi
if [ "$gpus" -lt "$ranks" ] && [ -z "${GTP_TEST_SHARED_GPU:-}" ]; then
  echo "skipped: needs $ranks GPUs, or NCCL 2.30 and GTP_TEST_SHARED_GPU=1"
  exit 77
fi
exec "$@"
