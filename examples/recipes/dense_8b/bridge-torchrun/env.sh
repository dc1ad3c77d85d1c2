# shellcheck shell=sh disable=SC1003,SC2016
# Environment of every process of the job
# Written by gtplan 0.1.0 for megatron-bridge@2026-09. GTP is experimental upstream.
# 8 ranks = TP 1 x GTP_remat 8 x CP 1 x DP 1 x PP 1; experts: ETP 1 x EP 1 x EGTP_remat 1 x DP 8 x PP 1
# WARNING: Megatron-Bridge has no place for max_position_embeddings, mock_data: a recipe decides them
# given in the input: from Blackwell on, overlap needs no single queue, and collectives run beside GEMMs
export CUDA_DEVICE_MAX_CONNECTIONS=32
# collectives start ahead of the GEMMs that they hide behind
export TORCH_NCCL_HIGH_PRIORITY=1
