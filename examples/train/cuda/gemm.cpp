#include "examples/train/cuda/gemm.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/error.hpp"

namespace gtp::train {

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20U;
constexpr std::size_t kWantedAlignment = 16;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw RuntimeError(RuntimeStatus::kCollectiveFailed, std::string(what) + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t type_of(ElementType type) { return type == ElementType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F; }

std::size_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return std::min<std::size_t>(kWantedAlignment, address & (~address + 1));
}

cublasLtMatrixLayout_t make_layout(cudaDataType_t type, std::size_t rows, std::size_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, rows, cols, static_cast<std::int64_t>(rows)), "a matrix layout");
  return layout;
}

void set_transposed(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, bool transposed) {
  const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value), "a transposition");
}

class Preference {
 public:
  Preference() { check(cublasLtMatmulPreferenceCreate(&handle_), "a preference"); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle_); }

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t which, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(handle_, which, &value, sizeof value), "a preference");
  }
  cublasLtMatmulPreference_t get() const noexcept { return handle_; }

 private:
  cublasLtMatmulPreference_t handle_ = nullptr;
};

}  // namespace

Gemm::Gemm() {
  workspace_.get<std::byte>(kWorkspaceBytes);
  check(cublasLtCreate(&handle_), "cuBLASLt");
}

Gemm::~Gemm() {
  for (auto& [key, plan] : plans_) {
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(plan.operation);
  }
  cublasLtDestroy(handle_);
}

void Gemm::choose_algorithm(const Key& key, Plan& plan) const {
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    preference.set(which, static_cast<std::uint32_t>(key.second));
  }
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.d, plan.d, preference.get(), 1,
                                       &found, &count),
        "choosing a matrix product");
  if (count == 0) throw RuntimeError(RuntimeStatus::kInvalidUse, "cuBLASLt has no matrix product of this shape");
  plan.algorithm = found.algo;
}

const Gemm::Plan& Gemm::plan_for(const Key& key) {
  const auto [place, is_new] = plans_.try_emplace(key);
  Plan& plan = place->second;
  if (!is_new) return plan;
  const GemmShape& shape = key.first;
  check(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a matrix product");
  set_transposed(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a);
  set_transposed(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b);
  plan.a = shape.transpose_a ? make_layout(CUDA_R_16BF, shape.k, shape.m) : make_layout(CUDA_R_16BF, shape.m, shape.k);
  plan.b = shape.transpose_b ? make_layout(CUDA_R_16BF, shape.n, shape.k) : make_layout(CUDA_R_16BF, shape.k, shape.n);
  plan.d = make_layout(type_of(shape.type), shape.m, shape.n);
  choose_algorithm(key, plan);
  return plan;
}

void Gemm::run(const GemmShape& shape, const void* a, const void* b, void* d, cudaStream_t stream) {
  const Plan& plan = plan_for({shape, std::min({alignment_of(a), alignment_of(b), alignment_of(d)})});
  const float alpha = 1.0F;
  const float beta = shape.accumulate ? 1.0F : 0.0F;
  check(cublasLtMatmul(handle_, plan.operation, &alpha, a, plan.a, b, plan.b, &beta, d, plan.d, d, plan.d,
                       &plan.algorithm, workspace_.get<std::byte>(kWorkspaceBytes).data(), kWorkspaceBytes, stream),
        "a matrix product");
}

}  // namespace gtp::train
