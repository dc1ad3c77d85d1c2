// bf16 matrix products with fp32 sums through cuBLASLt, repeatable bit for bit: an algorithm is chosen once a shape,
// never one that splits a sum over blocks, and runs in a workspace of its own.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <tuple>

#include "examples/train/cuda/memory.hpp"
#include "kernels/element_type.hpp"

namespace gtp::train {

/// D[m, n] = (or, with `accumulate`, +=) op(A) op(B), column-major as BLAS has it: A is [m, k], or [k, m] transposed.
struct GemmShape {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  ElementType type = ElementType::kFloat32;  ///< Of D.
  bool accumulate = false;

  friend constexpr auto operator<=>(const GemmShape&, const GemmShape&) = default;
};

/// Of one stream: calls share the workspace.
class Gemm {
 public:
  Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  /// Matrices without gaps between columns.
  void run(const GemmShape& shape, const void* a, const void* b, void* d, cudaStream_t stream);

 private:
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  using Key = std::pair<GemmShape, std::size_t>;  ///< With the alignment of the matrices in bytes.
  const Plan& plan_for(const Key& key);
  void choose_algorithm(const Key& key, Plan& plan) const;

  cublasLtHandle_t handle_ = nullptr;
  DeviceMemory workspace_;
  std::map<Key, Plan> plans_;
};

}  // namespace gtp::train
