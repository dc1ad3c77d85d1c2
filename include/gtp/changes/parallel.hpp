// What upstream turns off because a parallel size leaves it nothing to do.
#pragma once

#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kParallelChanges[] = {
    changes("GTP244", "no-vpp-disables-p2p-overlap", {"virtual_pipeline_model_parallel_size"_opt},
            "point-to-point overlap and aligned parameter gathers are turned off without interleaving",
            "Both overlap one virtual stage with another; with one stage a rank there is nothing to overlap.",
            "set a virtual pipeline size above 1, or leave the options out", "megatron/training/arguments.py:1012",
            [](const Facts& f) -> Changes {
              if (f.has("virtual_pipeline_model_parallel_size"_opt)) return {};
              Changes off;
              for (const OptionId option : {"overlap_p2p_comm"_opt, "align_param_gather"_opt})
                if (f.known(option)) off.push_back({option, false, "no virtual pipeline stages are set"});
              return off;
            }),
    changes("GTP261", "sp-disabled-when-tp1", {"tensor_model_parallel_size"_opt, "sequence_parallel"_opt},
            "sequence parallelism is turned off without tensor parallelism",
            "It splits the sequence over the tensor-parallel ranks; with one of them there is nothing to split.",
            "leave sequence_parallel out, or use TP above 1", "megatron/training/arguments.py:1433",
            [](const Facts& f) -> Changes {
              if (f.integer("tensor_model_parallel_size"_opt) != 1) return {};
              return {{"sequence_parallel"_opt, false, "TP is 1"}};
            }),
    changes("GTP305", "num-experts-zero", {"num_experts"_opt}, "no experts at all means a dense model",
            "Upstream reads 0 experts as the option left out.", "leave num_experts out",
            "megatron/training/arguments.py:1648",
            [](const Facts& f) -> Changes {
              if (f.integer("num_experts"_opt) != 0) return {};
              return {{"num_experts"_opt, Value{}, "0 experts is a dense model"}};
            }),
};

}  // namespace gtp::rules
