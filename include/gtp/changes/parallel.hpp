// What upstream turns off because a parallel size leaves it nothing to do.
#pragma once

#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kParallelChanges[] = {
    changes("GTP035", "fake-process-group-sets", {"fake_process_group"_opt},
            "a fake process group has no Gloo groups and checks no gradients",
            "Nothing is communicated, so values are meaningless.",
            "leave use_gloo_process_groups and check_for_nan_in_loss_and_grad out",
            "megatron/training/arguments.py:1759",
            [](const Facts& f) -> Changes {
              if (!f.on("fake_process_group"_opt)) return {};
              Changes off{{"use_gloo_process_groups"_opt, false, "fake_process_group is on"}};
              // A captured iteration with the check on is refused before this point.
              if (f.text("cuda_graph_impl"_opt) != "full_iteration")
                off.push_back({"check_for_nan_in_loss_and_grad"_opt, false, "fake_process_group is on"});
              return off;
            }),
    changes("GTP043", "gloo-disabled-by-gtp", {"use_gloo_process_groups"_opt, "gtp_weight_remat_size"_opt},
            "GTP creates no Gloo process groups",
            "Upstream turns them off without a word, as their ranks would leave the remat axis out.",
            "set use_gloo_process_groups to false, or leave it out", "megatron/core/parallel_state.py:951",
            [](const Facts& f) -> Changes {
              if (f.integer("gtp_weight_remat_size"_opt).value_or(1) <= 1) return {};
              return {{"use_gloo_process_groups"_opt, false, "GTP is on"}};
            }),
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
