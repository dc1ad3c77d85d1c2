// Between the structs of include/gtp/runtime.h and the values of the C++ runtime: checks what C cannot, translates, and
// calls nothing of the runtime. Private to c_api.cpp.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "gtp/runtime.h"
#include "kernels/c_handles.hpp"

namespace gtp::capi {

inline constexpr std::int64_t kMaxHostRanks = 1024;
/// About eleven days: what can be added to a clock in nanoseconds without care.
inline constexpr std::int64_t kMaxMilliseconds = 1'000'000'000;

template <class T>
void require_pointer(const T* pointer, std::string_view name) {
  if (pointer == nullptr) throw InvalidArgument(fmt::format("{} is NULL", name));
}

/// The sizes that earlier headers had will be accepted here; so far there is one.
template <class T>
requires(!std::is_pointer_v<T>) const T& require_size(const T& given, std::string_view type) {
  if (given.size != sizeof(T)) {
    throw InvalidArgument(fmt::format("`size` of {} is {}, not {}", type, given.size, sizeof(T)));
  }
  return given;
}

template <class T>
requires(!std::is_pointer_v<T>) const T& require_size(const T* given, std::string_view type) {
  if (given == nullptr) throw InvalidArgument(fmt::format("the {} is NULL", type));
  return require_size(*given, type);
}

inline std::string_view text_of(const char* text, std::string_view name) {
  require_pointer(text, name);
  return text;
}

inline std::chrono::milliseconds milliseconds(std::int64_t value, std::string_view name, std::int64_t fallback) {
  if (value < 0 || value > kMaxMilliseconds) {
    throw InvalidArgument(fmt::format("{} is {}, not between 0 and {}", name, value, kMaxMilliseconds));
  }
  return std::chrono::milliseconds(value == 0 ? fallback : value);
}

/// `Enum` counts from 0 up to `last`, in the order of the C constants.
template <class Enum>
Enum enumerator(std::int32_t value, Enum last, std::string_view name) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    throw InvalidArgument(fmt::format("{} is no {}", value, name));
  }
  return static_cast<Enum>(value);
}

inline Use use(gtp_use value) { return enumerator(value, Use::kRecompute, "gtp_use"); }
inline WeightDomain domain(gtp_domain value) { return enumerator(value, WeightDomain::kExpert, "gtp_domain"); }
inline WeightFormat format(gtp_format value) { return enumerator(value, WeightFormat::kNvfp4, "gtp_format"); }
inline ChainRole chain_role(gtp_chain_role value) { return enumerator(value, ChainRole::kExpertFc2, "gtp_chain_role"); }

static_assert(static_cast<int>(Use::kRecompute) == GTP_USE_RECOMPUTE && static_cast<int>(Use::kDgrad) == GTP_USE_DGRAD);
static_assert(static_cast<int>(WeightDomain::kExpert) == GTP_DOMAIN_EXPERT);
static_assert(static_cast<int>(WeightFormat::kMxfp8) == GTP_FORMAT_MXFP8);
static_assert(static_cast<int>(WeightFormat::kNvfp4) == GTP_FORMAT_NVFP4);
static_assert(static_cast<int>(ChainRole::kExpertFc1) == GTP_ROLE_EXPERT_FC1);
static_assert(static_cast<int>(ChainRole::kExpertFc2) == GTP_ROLE_EXPERT_FC2);
static_assert(static_cast<int>(MemoryKind::kWindow) == GTP_MEMORY_WINDOW);
static_assert(kComponentCount == GTP_COMPONENT_COUNT && static_cast<int>(Component::kAmax) == GTP_AMAX);
static_assert(static_cast<int>(Component::kRowScale) == GTP_ROW_SCALE &&
              static_cast<int>(Component::kColScale) == GTP_COL_SCALE);

inline std::optional<ElementType> gradient_type(gtp_type value) {
  switch (value) {
    case GTP_TYPE_DEFAULT:
      return std::nullopt;
    case GTP_TYPE_FLOAT32:
      return ElementType::kFloat32;
    case GTP_TYPE_BFLOAT16:
      return ElementType::kBFloat16;
    default:
      throw InvalidArgument(fmt::format("{} is no gtp_type", value));
  }
}

inline HostWorldOptions world_options(const gtp_host_world_options* options) {
  const gtp_host_world_options& given = require_size(options, "gtp_host_world_options");
  if (given.ranks < 1 || given.ranks > kMaxHostRanks) {
    throw InvalidArgument(fmt::format("ranks is {}, not between 1 and {}", given.ranks, kMaxHostRanks));
  }
  HostWorldOptions result;
  result.ranks = given.ranks;
  result.seed = given.seed;
  result.time_limit = milliseconds(given.time_limit_ms, "time_limit_ms", result.time_limit.count());
  result.detect_races = given.skip_race_detection == 0;
  return result;
}

inline TopologyOptions topology_options(const gtp_runtime_options& given, std::int64_t world_size) {
  const auto size = [](std::int64_t value) { return value == 0 ? 1 : value; };
  const auto absent = [](std::int64_t value) { return value == 0 ? std::nullopt : std::optional(value); };
  TopologyOptions result;
  result.world_size = world_size;
  result.tensor_model_parallel_size = size(given.tensor_model_parallel_size);
  result.tensor_parallel_num_weight_shards = absent(given.tensor_parallel_num_weight_shards);
  result.context_parallel_size = size(given.context_parallel_size);
  result.pipeline_model_parallel_size = size(given.pipeline_model_parallel_size);
  result.expert_model_parallel_size = size(given.expert_model_parallel_size);
  result.expert_tensor_parallel_size = absent(given.expert_tensor_parallel_size);
  result.expert_tensor_parallel_num_weight_shards = absent(given.expert_tensor_parallel_num_weight_shards);
  result.use_tp_pp_dp_mapping = given.use_tp_pp_dp_mapping != 0;
  return result;
}

inline RuntimeOptions runtime_options(const gtp_runtime_options& given) {
  RuntimeOptions result;
  if (given.prefetch_depth != 0) result.prefetch_depth = given.prefetch_depth;
  if (given.gather_on_demand != 0) result.prefetch_depth = 0;
  if (given.graph_wgrad_ring_size != 0) result.graph_wgrad_ring_size = given.graph_wgrad_ring_size;
  result.async_reduction = given.synchronous_reduction == 0;
  result.calculate_per_token_loss = given.calculate_per_token_loss != 0;
  result.gtp_remat_reduce_scatter_with_fp32_accumulation = given.gtp_remat_reduce_scatter_with_fp32_accumulation != 0;
  result.gtp_remat_nccl_ub = given.gtp_remat_nccl_ub != 0;
  result.gtp_expert_remat_nccl_ub = given.gtp_expert_remat_nccl_ub != 0;
  result.register_gather_outputs = given.register_gather_outputs != 0;
  result.poison_free_buffers = given.poison_free_buffers != 0;
  result.teardown_limit = milliseconds(given.teardown_limit_ms, "teardown_limit_ms", result.teardown_limit.count());
  return result;
}

inline gtp_memory_request to_c(const MemoryRequest& request) {
  return {request.bytes, static_cast<gtp_memory_kind>(request.kind), request.graphed ? 1 : 0};
}

inline MemoryCallbacks memory_callbacks(const gtp_runtime_options& given) {
  if ((given.allocate == nullptr) != (given.deallocate == nullptr)) {
    throw InvalidArgument("allocate and deallocate are given together or not at all");
  }
  MemoryCallbacks result;
  if (given.allocate == nullptr) return result;
  void* const user = given.memory_user;
  result.allocate = [user, allocate = given.allocate](const MemoryRequest& request) {
    const gtp_memory_request wanted = to_c(request);
    return allocate(user, &wanted);
  };
  result.deallocate = [user, deallocate = given.deallocate](void* data, const MemoryRequest& request) {
    const gtp_memory_request was = to_c(request);
    deallocate(user, data, &was);
  };
  return result;
}

inline ShardLayout layout(const gtp_weight_options& given, const Group& group) {
  const WeightFormat stored = format(given.format);
  if (given.pad_for_alignment < -1) {
    throw InvalidArgument(fmt::format("pad_for_alignment is {}, not -1 or more", given.pad_for_alignment));
  }
  std::int64_t alignment = given.pad_for_alignment;
  if (alignment == 0) {
    alignment = default_pad_for_alignment(stored);
  } else if (alignment == -1) {
    alignment = 0;
  }
  const LayoutRequest request{given.rows, given.cols, stored, alignment, group.size()};
  LayoutRefusal refusal;
  const auto made = make_shard_layout(request, refusal);
  if (!made) {
    throw RuntimeError(RuntimeStatus::kInvalidPlan,
                       fmt::format("weight `{}`: {} ({} over {} ranks of {})", given.name != nullptr ? given.name : "",
                                   describe(refusal.problem), refusal.value, group.size(), group.name()));
  }
  return *made;
}

inline WeightSpec weight_spec(const gtp_weight_options& given, const Group& group) {
  WeightSpec spec{
      .name = std::string(text_of(given.name, "the name of the weight")), .layout = layout(given, group), .shards = {}};
  if (given.shard_count > 0) require_pointer(given.shards, "shards");
  for (std::size_t index = 0; index < given.shard_count; ++index) {
    const gtp_shard& shard = require_size(given.shards[index], "gtp_shard");
    ShardSpec& made = spec.shards.emplace_back();
    std::copy_n(shard.data, kComponentCount, made.data.begin());
    made.main_grad = shard.main_grad;
  }
  spec.domain = domain(given.domain);
  spec.chain = {given.model_chunk, given.graphed != 0, chain_role(given.role)};
  spec.main_grad_type = gradient_type(given.main_grad_type).value_or(ElementType::kFloat32);
  spec.wire_type = gradient_type(given.wire_type);
  spec.needs_dgrad = given.no_dgrad == 0;
  spec.zero_out_wgrad = given.zero_out_wgrad != 0;
  spec.bucket = static_cast<ReadyBucket>(given.bucket);
  return spec;
}

inline void write(gtp_weight_layout& out, const ShardLayout& layout, const Group& group) {
  out.group_size = group.size();
  out.position = group.position();
  out.shard_rows = layout.shard_rows();
  out.padded_rows = layout.padded_rows();
  out.row_begin = layout.row_begin(group.position());
  out.shard_elements = layout.shard_elements();
  for (std::size_t index = 0; index < kComponentCount; ++index) {
    out.shard_bytes[index] = layout.extent(kComponents[index]).shard_bytes;
    out.gathered_bytes[index] = layout.extent(kComponents[index]).gathered_bytes;
  }
}

inline void write(gtp_gathered_view& out, const GatheredView& view) {
  std::copy(view.data.begin(), view.data.end(), out.data);
  out.rows = view.rows;
  out.padded_rows = view.padded_rows;
  out.cols = view.cols;
  out.swizzled = view.swizzled ? 1 : 0;
  out.version = view.version;
  out.generation = view.generation;
}

inline void write(gtp_wgrad_view& out, const WgradView& view) {
  out.data = view.data;
  out.type = view.type == ElementType::kFloat32 ? GTP_TYPE_FLOAT32 : GTP_TYPE_BFLOAT16;
  out.accumulate = view.accumulate ? 1 : 0;
  out.rows = view.rows;
  out.cols = view.cols;
}

inline void write(gtp_counters& out, const Counters& counters) {
  out.consumes = counters.consumes;
  out.gathers = counters.gathers;
  out.prefetched_gathers = counters.prefetched_gathers;
  out.head_gathers = counters.head_gathers;
  out.recording_gathers = counters.recording_gathers;
  out.on_demand_gathers = counters.on_demand_gathers;
  out.stale_gathers = counters.stale_gathers;
  out.gathered_bytes = counters.gathered_bytes;
  out.reduce_scatters = counters.reduce_scatters;
  out.fp32_reduce_scatters = counters.fp32_reduce_scatters;
  out.reduced_bytes = counters.reduced_bytes;
  out.finalizes = counters.finalizes;
  out.deferred_finalizes = counters.deferred_finalizes;
  out.copied_wgrads = counters.copied_wgrads;
  out.replicated_reductions = counters.replicated_reductions;
  out.param_ready_calls = counters.param_ready_calls;
  out.grad_ready_calls = counters.grad_ready_calls;
  out.buffer_allocations = counters.buffer_allocations;
  out.buffer_bytes = counters.buffer_bytes;
  out.buffer_spills = counters.buffer_spills;
  out.captures = counters.captures;
  out.replays = counters.replays;
}
/// A counter that is added over there must be added here.
static_assert(sizeof(gtp_counters) == sizeof(std::size_t) + sizeof(Counters));

}  // namespace gtp::capi
