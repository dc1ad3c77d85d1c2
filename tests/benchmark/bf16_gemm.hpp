// Bf16 matrix products with fp32 accumulation (cuBLASLt), column-major. For benchmarks.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "kernels/cuda/owners.hpp"

namespace gtp::bench {

inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

class Bf16Gemm {
 public:
  Bf16Gemm() : workspace_(kWorkspace) { check(cublasLtCreate(&handle_), "cublasLtCreate"); }
  ~Bf16Gemm() {
    for (auto& [shape, plan] : plans_) destroy(plan);
    cublasLtDestroy(handle_);
  }
  Bf16Gemm(const Bf16Gemm&) = delete;
  Bf16Gemm& operator=(const Bf16Gemm&) = delete;

  /// c[m, n] = op(a)[m, k] * op(b)[k, n], all dense.
  void run(const void* a, bool transpose_a, const void* b, bool transpose_b, void* c, std::int64_t m, std::int64_t n,
           std::int64_t k, cudaStream_t stream) {
    const Plan& plan = plan_for({transpose_a, transpose_b, m, n, k});
    const float one = 1;
    const float zero = 0;
    check(cublasLtMatmul(handle_, plan.operation, &one, a, plan.a, b, plan.b, &zero, c, plan.c, c, plan.c,
                         &plan.heuristic.algo, workspace_.get(), kWorkspace, stream),
          "cublasLtMatmul");
  }

 private:
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;
  using Shape = std::tuple<bool, bool, std::int64_t, std::int64_t, std::int64_t>;
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr;
    cublasLtMatrixLayout_t b = nullptr;
    cublasLtMatrixLayout_t c = nullptr;
    cublasLtMatmulHeuristicResult_t heuristic{};
  };

  static cublasLtMatrixLayout_t layout(std::int64_t rows, std::int64_t cols) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), rows),
          "cublasLtMatrixLayoutCreate");
    return made;
  }
  const Plan& plan_for(const Shape& shape) {
    const auto known = plans_.find(shape);
    if (known != plans_.end()) return known->second;
    const auto [ta, tb, m, n, k] = shape;
    Plan& plan = plans_[shape];
    check(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    plan.a = ta ? layout(k, m) : layout(m, k);
    plan.b = tb ? layout(n, k) : layout(k, n);
    plan.c = layout(m, n);
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::size_t workspace = kWorkspace;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof workspace);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.c,
                                                                 plan.c, preference, 1, &plan.heuristic, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for this shape");
    return plan;
  }
  static void destroy(Plan& plan) {
    cublasLtMatrixLayoutDestroy(plan.a);
    cublasLtMatrixLayoutDestroy(plan.b);
    cublasLtMatrixLayoutDestroy(plan.c);
    cublasLtMatmulDescDestroy(plan.operation);
  }

  cublasLtHandle_t handle_ = nullptr;
  cuda::DeviceMemory workspace_;
  std::map<Shape, Plan> plans_;
};

}  // namespace gtp::bench
