// Streams that upstream gives a high priority on its own.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gtp/hardware.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/word_lists.hpp>

namespace gtp::rules {

using namespace literals;

inline constexpr OptionId kPriorityGroups = "high_priority_stream_groups"_opt, kFsdp2 = "use_torch_fsdp2"_opt;

namespace detail {

/// Major number of the compute capability; 0 when the GPU is not known.
inline int gpu_major(const Facts& f) { return arch_major(f.text("gpu_arch"_opt).value_or("")).value_or(0); }

inline bool before_blackwell(const Facts& f) { return gpu_major(f) != 0 && gpu_major(f) < 10; }
inline bool blackwell_or_later(const Facts& f) { return gpu_major(f) >= 10; }

/// The list with one more group, if it lacks it.
inline Changes with_priority_group(const Facts& f, std::string_view group, std::string because) {
  const auto before = words(f, kPriorityGroups);
  if (contains(before, group)) return {};
  StringList groups(before.begin(), before.end());
  groups.emplace_back(group);
  return {{kPriorityGroups, std::move(groups), std::move(because)}};
}

}  // namespace detail

inline constexpr Rule kEnvironmentChanges[] = {
    changes("GTP631", "fsdp-high-priority-streams",
            {kFsdp2, kMegatronFsdp, "gpu_arch"_opt, "expert_model_parallel_size"_opt, kPriorityGroups},
            "FSDP communicators get high-priority streams",
            "Communication that overlaps with GEMMs should be scheduled first. By the precedence of its operators the "
            "condition does not ask torch FSDP2 for Blackwell.",
            "leave the groups out", "megatron/training/arguments.py:1484",
            [](const Facts& f) -> Changes {
              if (!f.on(kFsdp2) && !(f.on(kMegatronFsdp) && detail::blackwell_or_later(f))) return {};
              const auto before = words(f, kPriorityGroups);
              StringList groups(before.begin(), before.end());
              if (!contains(before, "dp_cp")) groups.emplace_back("dp_cp");
              if (f[kEp] > 1 && !contains(before, "ep_dp")) groups.emplace_back("ep_dp");
              return {{kPriorityGroups, std::move(groups), "FSDP is on"}};
            }),
    changes("GTP632", "gtp-high-priority-stream", {kGtpRemat, kEgtpRemat, "gpu_arch"_opt, kPriorityGroups},
            "the GTP communicator gets a high-priority stream",
            "From Blackwell on, weight gathers should be scheduled ahead of the GEMMs they overlap with. The dense "
            "group is added even when only experts are sharded.",
            "leave the group out", "megatron/training/arguments.py:1529",
            [](const Facts& f) -> Changes {
              if ((f[kGtpRemat] <= 1 && f[kEgtpRemat] <= 1) || !detail::blackwell_or_later(f)) return {};
              return detail::with_priority_group(f, "gtp_remat", "GTP is on and the GPU is Blackwell or later");
            }),
    changes("GTP633", "egtp-high-priority-stream", {kEgtpRemat, "gpu_arch"_opt, kPriorityGroups},
            "the expert GTP communicator gets a high-priority stream",
            "From Blackwell on, gathers of expert weights should be scheduled ahead of the GEMMs they overlap with.",
            "leave the group out", "megatron/training/arguments.py:1532",
            [](const Facts& f) -> Changes {
              if (f[kEgtpRemat] <= 1 || !detail::blackwell_or_later(f)) return {};
              return detail::with_priority_group(f, "expt_gtp_remat",
                                                 "expert GTP is on and the GPU is Blackwell or later");
            }),
};

}  // namespace gtp::rules
