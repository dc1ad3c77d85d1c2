// What upstream changes because a run does not train.
#pragma once

#include <gtp/rule.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr Rule kScheduleChanges[] = {
    changes("GTP470", "skip-train-no-optim", {"skip_train"_opt, "perform_rl_step"_opt, "no_load_optim"_opt},
            "the optimizer is not loaded when training is skipped", "A run that only evaluates has no use for it.",
            "set no_load_optim, or leave it out", "megatron/training/arguments.py:1875",
            [](const Facts& f) -> Changes {
              if (!f.on("skip_train"_opt) || f.on("perform_rl_step"_opt) || f.on("no_load_optim"_opt)) return {};
              return {{"no_load_optim"_opt, true, "skip_train is set"}};
            }),
};

}  // namespace gtp::rules
