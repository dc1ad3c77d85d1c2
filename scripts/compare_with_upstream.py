"""Compares `gtplan check` with upstream's own start-up checks on random configurations.

    MEGATRON_SRC=<a checkout of Megatron-LM> scripts/compare_with_upstream.py --oracle ORACLE.py
        [--gtplan PROGRAM] [--rows N] [--seed N] [--target NAME] [--workers N] [--python PROGRAM] [--keep FOLDER]

ORACLE.py reads one flat JSON configuration a line (options, world_size, gpu_arch, te_version, env) and writes one JSON
line with `errors`, `derived`. Each row is a plausible job with one to four options changed. What is compared: valid or
not, counting errors of the phase `startup`; and for valid rows the derived sizes. Prints the share that agrees, then
each kind of disagreement with its rows. Needs upstream, so it is no part of the tests; docs/fidelity.md has the results.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import tempfile

DENSE = [  # layers, hidden, ffn, heads, query groups, vocabulary
    (32, 4096, 14336, 32, 8, 128256),
    (48, 2048, 6144, 16, 4, 151936),
    (64, 8192, 24576, 64, 8, 256000),
    (24, 1024, 4096, 16, None, 50257),
    (36, 2560, 9728, 32, 8, 151936),
]
MOE = [  # the same, then experts, top-k, expert ffn
    (48, 2048, 6144, 32, 4, 151936, 128, 8, 768),
    (32, 4096, 14336, 32, 8, 32000, 8, 2, None),
    (94, 4096, 12288, 64, 4, 151936, 128, 8, 1536),
    (16, 2048, 8192, 16, 16, 50257, 64, 6, 1408),
]

ON = [True]
SWITCH = [True, False]
MUTATIONS = {
    "account_for_embedding_in_pipeline_split": ON,
    "account_for_loss_in_pipeline_split": ON,
    "accumulate_allreduce_grads_in_fp32": ON,
    "add_bias_linear": SWITCH,
    "add_qkv_bias": ON,
    "apply_rope_fusion": SWITCH,
    "async_save": ON,
    "attention_softmax_in_fp32": ON,
    "calculate_per_token_loss": SWITCH,
    "check_for_nan_in_loss_and_grad": SWITCH,
    "ckpt_format": ["torch", "torch_dist", "torch_dcp", "fsdp_dtensor"],
    "context_parallel_size": [1, 2, 3, 4, 8, 16],
    "cp_comm_type": [["p2p"], ["a2a"], ["allgather"], ["a2a+p2p"]],
    "cuda_graph_impl": ["none", "local", "transformer_engine", "full_iteration"],
    "cuda_graph_modules": [[], ["attn"], ["attn", "mlp"], ["moe"], ["moe_router"], ["moe_router", "moe_preprocess"]],
    "data_parallel_sharding_strategy": ["no_shard", "optim", "optim_grads", "optim_grads_params"],
    "ddp_average_in_collective": ON,
    "decoder_first_pipeline_num_layers": [1, 4, 6, 7, 11, 12],
    "decoder_last_pipeline_num_layers": [1, 4, 6, 7, 11, 12],
    "decrease_batch_size_if_needed": ON,
    "deterministic_mode": ON,
    "disable_symmetric_registration": ON,
    "distribute_saved_activations": ON,
    "eval_global_batch_size": [8, 16, 64, 100, 256],
    "eval_iters": [0, 14, 32],
    "expert_model_parallel_size": [1, 2, 3, 4, 8, 16, 32],
    "expert_tensor_parallel_num_weight_shards": [1, 2, 3, 4, 8],
    "expert_tensor_parallel_size": [1, 2, 4, None],
    "external_cuda_graph": ON,
    "enable_cuda_graph": ON,
    "ffn_hidden_size": [None, 4096, 14336],
    "fp16": ON,
    "fp32_residual_connection": ON,
    "fp4": ["e2m1"],
    "fp4_param_gather": SWITCH,
    "fp4_recipe": ["nvfp4"],
    "fp8": ["e4m3", "hybrid"],
    "fp8_param_gather": SWITCH,
    "fp8_recipe": ["delayed", "tensorwise", "mxfp8", "blockwise"],
    "global_batch_size": [None, 8, 16, 60, 64, 256, 512],
    "gpu_arch": ["ampere", "hopper", "blackwell"],
    "grad_reduce_in_bf16": ON,
    "group_query_attention": SWITCH,
    "gtp_remat_nccl_ub": ON,
    "gtp_remat_opt_in_modules": [["moe_latent_proj"], ["linear_qkv"]],
    "gtp_remat_reduce_scatter_with_fp32_accumulation": ON,
    "hierarchical_context_parallel_sizes": [[2, 2], [2, 1], [2, 4]],
    "high_priority_stream_groups": [["gtp_remat"], ["ep"], ["nonsense"]],
    "kv_channels": [64, 128, 256, None],
    "lr_decay_iters": [9000],
    "lr_warmup_iters": [0, 100, 9000],
    "main_grads_dtype": ["fp32", "bf16"],
    "main_params_dtype": ["fp32", "fp16"],
    "make_vocab_size_divisible_by": [1, 128, 3232],
    "max_position_embeddings": [2048, 4096, 8192],
    "micro_batch_size": [1, 2, 3, 4],
    "microbatch_group_size_per_vp_stage": [1, 2, 4, 6],
    "moe_expert_capacity_factor": [1.0, 1.25, -1.0],
    "moe_grouped_gemm": SWITCH,
    "moe_layer_freq": [1, 2],
    "moe_layer_recompute": ON,
    "moe_pad_expert_input_to_capacity": ON,
    "moe_permute_fusion": ON,
    "moe_router_dtype": ["fp32", "fp64"],
    "moe_router_force_load_balancing": ON,
    "moe_router_fusion": ON,
    "moe_router_group_topk": [2, 4],
    "moe_router_load_balancing_type": [["aux_loss"], ["seq_aux_loss"], ["sinkhorn"], ["none"]],
    "moe_router_num_groups": [4, 8],
    "moe_router_padding_for_fp8": ON,
    "moe_router_score_function": ["sigmoid", "softmax"],
    "moe_router_topk": [1, 2, 4, 8],
    "moe_shared_expert_intermediate_size": [1024, 2048],
    "moe_shared_expert_overlap": ON,
    "moe_token_dispatcher_type": ["alltoall", "allgather", "flex"],
    "mtp_num_layers": [1, 2],
    "multi_latent_attention": ON,
    "nccl_ub": ON,
    "num_attention_heads": [12, 16, 24, 32, 40],
    "num_distributed_optimizer_instances": [1, 2, 4],
    "num_experts": [None, 8, 60, 64, 128],
    "num_layers": [1, 7, 12, 24, 32, 61],
    "num_layers_per_virtual_pipeline_stage": [1, 2, 3, 4, 5],
    "num_query_groups": [1, 2, 4, 8, 3],
    "num_virtual_stages_per_pipeline_rank": [1, 2, 3, 4, 8],
    "optimizer": ["adam", "sgd", "muon", "dist_muon"],
    "optimizer_cpu_offload": ON,
    "overlap_grad_reduce": SWITCH,
    "overlap_moe_expert_parallel_comm": ON,
    "overlap_p2p_comm": SWITCH,
    "overlap_param_gather": SWITCH,
    "overlap_param_gather_with_optimizer_step": ON,
    "pipeline_model_parallel_layout": ["Et|tt|tt|tttL", "Et*14|t*13L", "E|(t|)*30L"],
    "pipeline_model_parallel_size": [1, 2, 3, 4, 8],
    "position_embedding_type": ["rope", "learned_absolute", "none"],
    "qk_layernorm": ON,
    "rampup_batch_size": [[16, 8, 300000]],
    "recompute_granularity": ["full", "selective"],
    "recompute_method": ["uniform", "block"],
    "recompute_modules": [["core_attn"], ["mlp"], ["moe_act"], ["layernorm", "mlp"], ["mla_up_proj"], ["moe"]],
    "recompute_num_layers": [1, 2, 4, 64],
    "reuse_grad_buf_for_mxfp8_param_ag": SWITCH,
    "save_interval": [1000],
    "seq_length": [1024, 2048, 4096, 4100, 8192],
    "sequence_parallel": SWITCH,
    "squared_relu": ON,
    "step_batch_size_schedule": ["0:64 64:128 64:256", "0:64 1B:128", "10:64", "0:32 64K:64 128K:128"],
    "swiglu": SWITCH,
    "te_rng_tracker": ON,
    "te_version": ["2.3.0", "2.8.0", "2.14.0", "2.19.0"],
    "tensor_model_parallel_size": [1, 2, 3, 4, 8],
    "tensor_parallel_num_weight_shards": [1, 2, 3, 4, 8, 16, 64],
    "tp_comm_overlap": ON,
    "train_samples": [19531250],
    "transformer_impl": ["local", "transformer_engine"],
    "untie_embeddings_and_output_weights": SWITCH,
    "use_distributed_optimizer": SWITCH,
    "use_megatron_fsdp": ON,
    "use_persistent_ckpt_worker": SWITCH,
    "use_precision_aware_optimizer": ON,
    "use_torch_fsdp2": ON,
    "use_tp_pp_dp_mapping": ON,
    "vocab_size": [32000, 50257, 128256, None],
    "world_size": [4, 6, 8, 16, 32, 64, 128],
}
ENVIRONMENTS = [
    {},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "8"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_PROTO": "simple"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "CUDA_GRAPHS_USE_NODE_PRIORITY": "1"},
]
#: What the oracle calls a value, and what `derived` of gtplan calls it.
DERIVED = {
    "data_parallel_size": "data_parallel_size",
    "gtp": "gtp_weight_remat_size",
    "egtp": "expert_gtp_weight_remat_size",
    "global_batch_size": "global_batch_size",
    "eval_global_batch_size": "eval_global_batch_size",
    "etp": "expert_tensor_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "sequence_parallel": "sequence_parallel",
    "expert_data_parallel_size": "expert_data_parallel_size",
    "num_microbatches": "num_microbatches",
    "running_global_batch_size": "running_global_batch_size",
    "layers": "layers_per_stage",
}


def job(rng):
    """A job that upstream would start."""
    moe = rng.random() < 0.4
    layers, hidden, ffn, heads, groups, vocabulary, *experts = rng.choice(MOE if moe else DENSE)
    tp, pp = rng.choice([1, 1, 2, 2, 4, 8]), rng.choice([1, 1, 1, 2, 4])
    if groups is not None:
        tp = min(tp, groups)
    gtp = rng.choice([1, 1, 2, 4]) if rng.random() < 0.6 else 1
    config = {
        "world_size": 1,
        "gpus_per_node": 8,
        "gpu_arch": "hopper",
        "env": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "context_parallel_size": rng.choice([1, 1, 1, 2]),
        "micro_batch_size": rng.choice([1, 1, 2]),
        "bf16": True,
        "use_distributed_optimizer": True,
        "position_embedding_type": "rope",
        "num_layers": layers // pp * pp,
        "hidden_size": hidden,
        "ffn_hidden_size": ffn,
        "num_attention_heads": heads,
        "vocab_size": vocabulary,
        "seq_length": 4096,
        "max_position_embeddings": 4096,
        "swiglu": True,
        "normalization": "RMSNorm",
        "add_bias_linear": False,
        "untie_embeddings_and_output_weights": True,
        "sequence_parallel": tp > 1,
    }
    if groups is not None:
        config |= {"group_query_attention": True, "num_query_groups": groups}
    if hidden % heads:
        config["kv_channels"] = 128
    if gtp > 1:
        config["tensor_parallel_num_weight_shards"] = tp * gtp
    lanes = gtp * rng.choice([1, 2, 4])
    config["world_size"] = tp * pp * config["context_parallel_size"] * lanes
    if moe:
        number, topk, width = experts
        expert_ranks = config["world_size"] // pp
        config |= {
            "num_experts": number,
            "moe_router_topk": topk,
            "moe_token_dispatcher_type": "alltoall",
            "moe_grouped_gemm": True,
            "expert_model_parallel_size": max(e for e in (1, 2, 4, 8) if expert_ranks % e == 0),
            "expert_tensor_parallel_size": 1,
        }
        if width is not None:
            config["moe_ffn_hidden_size"] = width
    config["global_batch_size"] = config["micro_batch_size"] * lanes * rng.choice([4, 8, 16])
    return config


def mutated(rng):
    config = job(rng)
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        if rng.random() < 0.06:
            config["env"] = rng.choice(ENVIRONMENTS)
            continue
        option = rng.choice(list(MUTATIONS))
        value = rng.choice(MUTATIONS[option])
        if value is None:
            config.pop(option, None)
        else:
            config[option] = value
    if config.get("fp16"):
        config["bf16"] = False
    return config


def ask_upstream(configs, arguments):
    """The oracle's answers, in order; a share for each worker."""
    share = -(-len(configs) // arguments.workers)
    parts = [configs[i : i + share] for i in range(0, len(configs), share)]

    def run(part):
        lines = "".join(json.dumps(config) + "\n" for config in part)
        done = subprocess.run(
            [arguments.python, "-W", "ignore", arguments.oracle, "--jsonl"],
            input=lines, capture_output=True, text=True, check=True, env=os.environ,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
        return [answer for answers in pool.map(run, parts) for answer in answers]


def ask_gtplan(configs, folder, arguments):
    for i, config in enumerate(configs):
        (folder / f"{i:06}.json").write_text(json.dumps(config, indent=1))
    done = subprocess.run(
        [arguments.gtplan, "check", "--no-project", "--format", "json", "--target", arguments.target, folder],
        capture_output=True, text=True, check=False,
    )
    by_name = {pathlib.Path(c["file"]).name: c for c in json.loads(done.stdout)["configs"]}
    return [by_name[f"{i:06}.json"] for i in range(len(configs))]


#: Where the harness's stand-ins for einops (no ranks come back) and TransformerEngine (cannot be imported) are refused.
STAND_INS = (
    "megatron/core/parallel_state.py:435",
    "megatron/core/transformer/transformer_config.py:3000",
    "megatron/core/transformer/transformer_config.py:2518",
    "megatron/core/optimizer/optimizer_config.py:464",
)


def is_stub_failure(answer):
    """The harness stands in for torch and more; where a stand-in fails, upstream was not heard."""
    return any(error["type"] in ("TypeError", "AttributeError") or error["at"] in STAND_INS for error in answer["errors"])


def compare(config, answer, mine):
    """Nothing when both agree, else the kind of disagreement."""
    found = [d for d in mine["diagnostics"] if d["severity"] == "error" and d["phase"] == "startup"]
    if bool(answer["errors"]) != bool(found):
        if found:
            return "upstream starts; gtplan: " + ", ".join(sorted({f"{d['code']} {d['rule']}" for d in found}))
        return "gtplan accepts; upstream: " + answer["errors"][0]["at"]
    if answer["errors"]:
        return None
    for theirs, ours in DERIVED.items():
        if theirs in answer["derived"] and answer["derived"][theirs] != mine["derived"].get(ours):
            return f"derived {ours}"
    return None


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--oracle", required=True)
    parser.add_argument("--gtplan", default="build/tools/gtplan")
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="megatron-core@d98e8a64")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--python", default="python3")
    parser.add_argument("--keep", type=pathlib.Path, help="write the rows that disagree here")
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    configs = [mutated(rng) for _ in range(arguments.rows)]
    answers = ask_upstream(configs, arguments)
    with tempfile.TemporaryDirectory() as folder:
        mine = ask_gtplan(configs, pathlib.Path(folder), arguments)
    kinds = collections.defaultdict(list)
    judged = 0
    for i, (config, answer, ours) in enumerate(zip(configs, answers, mine)):
        if is_stub_failure(answer):
            continue
        judged += 1
        kind = compare(config, answer, ours)
        if kind:
            kinds[kind].append(i)
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                row = {"config": config, "upstream": answer, "kind": kind}
                (arguments.keep / f"{i:06}.json").write_text(json.dumps(row, indent=1))
    wrong = sum(map(len, kinds.values()))
    valid = sum(not answer["errors"] for answer in answers)
    print(f"{judged} rows judged ({valid} start, {len(configs) - judged} left out: a stand-in of the harness failed)")
    print(f"{judged - wrong} agree, {100 * (judged - wrong) / max(judged, 1):.2f} %")
    for kind, rows in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(rows):5}  {kind}  (rows {', '.join(map(str, rows[:4]))})")


if __name__ == "__main__":
    main()
