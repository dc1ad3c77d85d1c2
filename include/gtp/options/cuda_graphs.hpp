// CUDA graphs.
#pragma once

#include <gtp/option.hpp>

namespace gtp::options {

inline constexpr Option kCudaGraphs[] = {
    {"cuda_graph_impl", Section::CudaGraphs, Type::String, "none",
     "How graphs are captured: none, per layer by Megatron (local) or by TE, or one full_iteration",
     "none local transformer_engine full_iteration", "", "model.cuda_graph_impl"},
    {"cuda_graph_modules", Section::CudaGraphs, Type::Words, "",
     "Parts of each layer captured in training graphs; an empty list captures whole layers", "", "",
     "model.cuda_graph_modules", Arity::OneOrMore},
    {"cuda_graph_scope_deprecated", Section::CudaGraphs, Type::Words, kNone,
     "Old spelling of cuda_graph_modules, copied there with a warning; null when unused", "", "--cuda-graph-scope", "",
     Arity::OneOrMore},
    {"cuda_graph_warmup_steps", Section::CudaGraphs, Type::Int, 3,
     "Eager steps run before capture; weight sharding by GTP raises it to at least 2", "", "",
     "model.cuda_graph_warmup_steps"},
    {"decode_only_cuda_graphs", Section::CudaGraphs, Type::Bool, false,
     "Limits inference graphs to pure decode steps, so prefill and mixed steps run eagerly"},
    {"enable_cuda_graph", Section::CudaGraphs, Type::Bool, false, "Deprecated; acts as cuda_graph_impl set to local",
     "", "", "model.enable_cuda_graph"},
    {"external_cuda_graph", Section::CudaGraphs, Type::Bool, false,
     "Deprecated; acts as cuda_graph_impl set to transformer_engine", "", "", "model.external_cuda_graph"},
    {"inference_cuda_graph_all_prefills", Section::CudaGraphs, Type::Bool, false,
     "Captures inference graphs for prefill and mixed steps of any size up to the engine's token limit"},
    {"inference_cuda_graph_max_tokens", Section::CudaGraphs, Type::Int, 512,
     "Tokens in the biggest prefill or mixed step that gets an inference CUDA graph"},
    {"inference_cuda_graph_scope", Section::CudaGraphs, Type::String, kNone,
     "Unit captured per inference graph: none, layer or block; null means layer for the local impl, else none",
     "none layer block", "", "model.inference_cuda_graph_scope"},
    {"inference_dynamic_batching_cuda_graph_mixed_prefill_count", Section::CudaGraphs, Type::Int, 16,
     "Prefill requests included in each captured inference graph that mixes prefill and decode"},
    {"inference_dynamic_batching_cuda_graph_sizing_distribution", Section::CudaGraphs, Type::String, "exponential",
     "How token counts of the inference graphs are spaced: by repeated halving or by linear strides",
     "exponential linear"},
    {"inference_dynamic_batching_num_cuda_graphs", Section::CudaGraphs, Type::Int, 16,
     "Upper bound on captured inference graphs of different batch sizes; -1 picks the count automatically"},
    {"moe_pad_experts_for_cuda_graph_inference", Section::CudaGraphs, Type::Bool, false,
     "Pads expert inputs to the worst case in decode, so that MoE inference needs no host sync", "", "",
     "model.moe_pad_experts_for_cuda_graph_inference"},
    {"optimizer_cuda_graph", Section::CudaGraphs, Type::Bool, false,
     "Record the optimizer step as a CUDA graph and replay it", "", "", "optimizer.optimizer_cuda_graph"},
};

}  // namespace gtp::options
