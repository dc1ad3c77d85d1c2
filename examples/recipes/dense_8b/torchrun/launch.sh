#!/bin/bash
# Starts the job on this host
# Written by gtplan 0.1.0 for megatron-core@d98e8a64. GTP is experimental upstream.
# 8 ranks = TP 1 x GTP_remat 8 x CP 1 x DP 1 x PP 1; experts: ETP 1 x EP 1 x EGTP_remat 1 x DP 8 x PP 1
# shellcheck disable=SC1003,SC2016
set -euo pipefail
folder=${BASH_SOURCE[0]%/*}
[ "$folder" != "${BASH_SOURCE[0]}" ] || folder=.
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
# shellcheck source=/dev/null
. "$folder/env.sh"

script=pretrain_gpt.py
arguments=(
  --tensor-model-parallel-size 1
  --tensor-parallel-num-weight-shards 8
  --disable-bias-linear
  --ffn-hidden-size 14336
  --group-query-attention
  --hidden-size 4096
  --max-position-embeddings 8192
  --normalization RMSNorm
  --num-attention-heads 32
  --num-layers 32
  --num-query-groups 8
  --position-embedding-type rope
  --rotary-base 500000
  --swiglu
  --untie-embeddings-and-output-weights
  --vocab-size 128256
  --global-batch-size 128
  --micro-batch-size 1
  --train-iters 1000
  --bf16
  --fp8-format e4m3
  --fp8-param-gather
  --fp8-recipe mxfp8
  --reuse-grad-buf-for-mxfp8-param-ag
  --high-priority-stream-groups gtp_remat
  --overlap-grad-reduce
  --overlap-param-gather
  --use-distributed-optimizer
  --lr 3e-04
  --lr-decay-iters 1000
  --lr-warmup-iters 100
  --min-lr 3e-05
  --cuda-graph-warmup-steps 3
  --recompute-granularity selective
  --recompute-modules layernorm
  --save checkpoints
  --save-interval 500
  --mock-data
  --seq-length 8192
  --tokenizer-type NullTokenizer
  --log-interval 10
  --log-throughput
  --nccl-communicator-config-path "$folder/nccl_comm.yaml"
)

exec torchrun --nnodes=1 --nproc-per-node=8 --node-rank=0 \
  --master-addr="${MASTER_ADDR:-127.0.0.1}" --master-port="${MASTER_PORT:-29500}" \
  "$script" "${arguments[@]}"
