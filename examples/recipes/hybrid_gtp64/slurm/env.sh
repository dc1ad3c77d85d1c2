# shellcheck shell=sh disable=SC1003,SC2016
# Environment of every process of the job
# Written by gtplan 0.1.0 for megatron-core@d98e8a64. GTP is experimental upstream.
# 128 ranks = TP 1 x GTP_remat 64 x CP 1 x DP 2 x PP 1; experts: ETP 1 x EP 64 x EGTP_remat 2 x DP 1 x PP 1
# given in the input: from Blackwell on, overlap needs no single queue, and collectives run beside GEMMs
export CUDA_DEVICE_MAX_CONNECTIONS=32
# given in the input
export NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64
# given in the input: HybridEP: NVLink spans a rack of 18 nodes
export NVLINK_DOMAIN_SIZE=72
# leaves SMs to kernels that communicate
export NVTE_BWD_LAYERNORM_SM_MARGIN=20
# leaves SMs to kernels that communicate
export NVTE_FWD_LAYERNORM_SM_MARGIN=20
# collectives start ahead of the GEMMs that they hide behind
export TORCH_NCCL_HIGH_PRIORITY=1
# given in the input: HybridEP: NVLink spans a rack of 18 nodes
export USE_MNNVL=1
