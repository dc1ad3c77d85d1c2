#include "kernels/cuda/capture.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gtp::cuda {

namespace {

[[noreturn]] void refuse(std::string text) { throw RuntimeError(RuntimeStatus::kCaptureFailed, std::move(text)); }

struct Info {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
};

Info info_of(cudaStream_t stream) noexcept {
  Info info;
#if CUDART_VERSION >= 13000
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &info.status, &info.id, nullptr, nullptr, nullptr, nullptr);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &info.status, &info.id, nullptr, nullptr, nullptr);
#endif
  if (error != cudaSuccess) cudaGetLastError();
  return info;
}

}  // namespace

void StreamCapture::begin(cudaStream_t origin) {
  if (active()) refuse("a capture is already under way");
  if (origin == nullptr) refuse("the null stream cannot be captured: use a stream of the backend or your own");
  const cudaError_t error = cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) {
    cudaGetLastError();
    refuse(fmt::format("the capture could not begin: {}", cudaGetErrorString(error)));
  }
  origin_ = origin;
  id_ = info_of(origin).id;
  ++number_;
  joined_.clear();
  error_.clear();
}

bool StreamCapture::has(cudaStream_t stream) const noexcept {
  if (!active()) return false;
  if (stream == origin_) return true;
  const Info info = info_of(stream);
  return info.status == cudaStreamCaptureStatusInvalidated ||
         (info.status == cudaStreamCaptureStatusActive && info.id == id_);
}

void StreamCapture::note_joined(cudaStream_t stream, std::string_view name) {
  if (stream == origin_ || std::ranges::any_of(joined_, [&](const Joined& each) { return each.stream == stream; })) {
    return;
  }
  joined_.push_back({stream, std::string(name)});
}

void StreamCapture::note_error(std::string text) {
  if (error_.empty()) error_ = std::move(text);
}

void StreamCapture::refuse_unjoined() const {
  if (joined_.size() == 1) {
    refuse(fmt::format("stream {} joined the capture and was not joined back", joined_[0].name));
  }
  std::vector<std::string_view> names;
  for (const Joined& each : joined_) names.push_back(each.name);
  refuse(fmt::format("one of the streams {} joined the capture and was not joined back", fmt::join(names, ", ")));
}

UniqueGraphExec StreamCapture::end(cudaStream_t origin) {
  if (!active() || origin != origin_) refuse("no capture began on this stream");
  origin_ = nullptr;
  cudaGraph_t raw = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(origin, &raw);
  const UniqueGraph graph(raw);
  if (ended != cudaSuccess) cudaGetLastError();
  if (ended == cudaErrorStreamCaptureUnjoined && error_.empty()) refuse_unjoined();
  if (ended != cudaSuccess || !error_.empty()) {
    refuse(fmt::format("the capture failed: {}", error_.empty() ? cudaGetErrorString(ended) : error_.c_str()));
  }
  cudaGraphExec_t exec = nullptr;
  // Priorities of the captured streams, not that of the stream it is launched on.
  const cudaError_t made = cudaGraphInstantiate(&exec, graph.get(), cudaGraphInstantiateFlagUseNodePriority);
  if (made != cudaSuccess) {
    cudaGetLastError();
    refuse(fmt::format("the captured graph cannot be instantiated: {}", cudaGetErrorString(made)));
  }
  return UniqueGraphExec(exec);
}

void StreamCapture::abort() noexcept {
  if (!active()) return;
  cudaGraph_t raw = nullptr;
  cudaStreamEndCapture(origin_, &raw);
  const UniqueGraph graph(raw);
  cudaGetLastError();
  origin_ = nullptr;
}

}  // namespace gtp::cuda
