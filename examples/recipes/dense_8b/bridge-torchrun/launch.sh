#!/bin/bash
# Starts the job on this host
# Written by gtplan 0.1.0 for megatron-bridge@2026-09. GTP is experimental upstream.
# 8 ranks = TP 1 x GTP_remat 8 x CP 1 x DP 1 x PP 1; experts: ETP 1 x EP 1 x EGTP_remat 1 x DP 8 x PP 1
# WARNING: Megatron-Bridge has no place for max_position_embeddings, mock_data: a recipe decides them
# shellcheck disable=SC1003,SC2016
set -euo pipefail
folder=${BASH_SOURCE[0]%/*}
[ "$folder" != "${BASH_SOURCE[0]}" ] || folder=.
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
# shellcheck source=/dev/null
. "$folder/env.sh"

script=scripts/training/run_recipe.py
arguments=(
  --recipe llama3_8b_pretrain_8gpu_b200_fp8mx_config
  model.context_parallel_size=1
  model.expert_model_parallel_size=1
  model.pipeline_model_parallel_size=1
  model.sequence_parallel=false
  model.tensor_model_parallel_size=1
  model.tensor_parallel_num_weight_shards=8
  model.add_bias_linear=false
  model.ffn_hidden_size=14336
  model.hidden_size=4096
  model.normalization=RMSNorm
  model.num_attention_heads=32
  model.num_layers=32
  model.num_query_groups=8
  model.position_embedding_type=rope
  model.rotary_base=500000
  model.gated_linear_unit=true
  model.activation_func=silu
  model.share_embeddings_and_output_weights=false
  tokenizer.vocab_size=128256
  train.global_batch_size=128
  train.micro_batch_size=1
  train.train_iters=1000
  mixed_precision.bf16=true
  mixed_precision.fp8=e4m3
  mixed_precision.fp8_param_gather=true
  mixed_precision.fp8_recipe=mxfp8
  mixed_precision.reuse_grad_buf_for_mxfp8_param_ag=true
  'dist.high_priority_stream_groups=[gtp_remat]'
  ddp.overlap_grad_reduce=true
  ddp.overlap_param_gather=true
  ddp.use_distributed_optimizer=true
  optimizer.lr=0.0003
  scheduler.lr_decay_iters=1000
  scheduler.lr_warmup_iters=100
  optimizer.min_lr=3e-05
  model.cuda_graph_warmup_steps=3
  model.recompute_granularity=selective
  'model.recompute_modules=[layernorm]'
  checkpoint.save=checkpoints
  checkpoint.save_interval=500
  model.seq_length=8192
  dataset.seq_length=8192
  tokenizer.tokenizer_type=NullTokenizer
  logger.log_interval=10
  logger.log_throughput=true
  "dist.nccl_communicator_config_path='${folder//\'/\\\'}/nccl_comm.yaml'"
)

exec torchrun --nnodes=1 --nproc-per-node=8 --node-rank=0 \
  --master-addr="${MASTER_ADDR:-127.0.0.1}" --master-port="${MASTER_PORT:-29500}" \
  "$script" "${arguments[@]}"
