#!/bin/bash
# Starts the job; to be run on every host, with MASTER_ADDR, and NODE_RANK 0, 1, ...
# Written by gtplan 0.1.0 for megatron-core@d98e8a64. GTP is experimental upstream.
# 32 ranks = TP 1 x GTP_remat 4 x CP 1 x DP 8 x PP 1; experts: ETP 1 x EP 8 x EGTP_remat 2 x DP 2 x PP 1
# shellcheck disable=SC1003,SC2016
set -euo pipefail
folder=${BASH_SOURCE[0]%/*}
[ "$folder" != "${BASH_SOURCE[0]}" ] || folder=.
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
# shellcheck source=/dev/null
. "$folder/env.sh"

script=pretrain_gpt.py
arguments=(
  --expert-model-parallel-size 8
  --expert-tensor-parallel-num-weight-shards 2
  --expert-tensor-parallel-size 1
  --tensor-model-parallel-size 1
  --tensor-parallel-num-weight-shards 4
  --disable-bias-linear
  --calculate-per-token-loss
  --ffn-hidden-size 6144
  --group-query-attention
  --hidden-size 2048
  --kv-channels 128
  --max-position-embeddings 4096
  --moe-aux-loss-coeff 0.001
  --moe-ffn-hidden-size 768
  --moe-grouped-gemm
  --moe-permute-fusion
  --moe-router-dtype fp32
  --moe-router-topk 8
  --moe-token-dispatcher-type alltoall
  --normalization RMSNorm
  --num-attention-heads 32
  --num-experts 128
  --num-layers 48
  --num-query-groups 4
  --position-embedding-type rope
  --qk-layernorm
  --rotary-base 1000000
  --swiglu
  --untie-embeddings-and-output-weights
  --vocab-size 151936
  --global-batch-size 256
  --micro-batch-size 1
  --train-iters 1000
  --bf16
  --overlap-grad-reduce
  --overlap-param-gather
  --use-distributed-optimizer
  --lr 3e-04
  --lr-decay-iters 1000
  --lr-warmup-iters 100
  --min-lr 3e-05
  --cuda-graph-warmup-steps 3
  --recompute-granularity selective
  --recompute-modules moe_act layernorm
  --save checkpoints
  --save-interval 500
  --mock-data
  --seq-length 4096
  --tokenizer-type NullTokenizer
  --log-interval 10
  --log-throughput
  --nccl-communicator-config-path "$folder/nccl_comm.yaml"
)

exec torchrun --nnodes=4 --nproc-per-node=8 --node-rank="${NODE_RANK:?set NODE_RANK to the number of this host, from 0}" \
  --master-addr="${MASTER_ADDR:?set MASTER_ADDR to the name of host 0}" --master-port="${MASTER_PORT:-29500}" \
  "$script" "${arguments[@]}"
