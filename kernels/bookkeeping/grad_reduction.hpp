// How the gradient of a sharded weight travels: element type on the wire and kind of collective.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/element_type.hpp"

namespace gtp {

enum class ReducePath : std::uint8_t {
  kRegisteredReduceScatter,  ///< From a send buffer of the registered pool.
  kFp32AllToAll,             ///< All-to-all, then a local sum in fp32.
  kReduceScatter,
};

struct GradReductionRequest {
  ElementType main_grad = ElementType::kFloat32;
  std::int64_t group_size = 1;
  bool pool_registered = false;
  bool reduce_scatter_with_fp32_accumulation = false;
};

struct GradReduction {
  ElementType wire = ElementType::kFloat32;  ///< Also what the weight-gradient GEMM must write.
  ReducePath path = ReducePath::kReduceScatter;

  friend constexpr bool operator==(const GradReduction&, const GradReduction&) = default;
};

/// The all-to-all gains nothing where the wire is fp32 already or two values meet, and a registered pool wins over it.
/// nullopt if `main_grad` is not a number type. generalized_tensor_parallelism.py:1978
constexpr std::optional<GradReduction> choose_grad_reduction(const GradReductionRequest& request) noexcept {
  if (request.main_grad == ElementType::kByte) return std::nullopt;
  const ElementType wire = request.main_grad;
  if (request.pool_registered) return GradReduction{wire, ReducePath::kRegisteredReduceScatter};
  const bool needs_fp32_sum = wire != ElementType::kFloat32 && request.group_size > 2;
  if (request.reduce_scatter_with_fp32_accumulation && needs_fp32_sum) {
    return GradReduction{wire, ReducePath::kFp32AllToAll};
  }
  return GradReduction{wire, ReducePath::kReduceScatter};
}

}  // namespace gtp
