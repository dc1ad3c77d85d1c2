// Memory, communicators, waiting, giving up.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_backend_impl.hpp"

namespace gtp {

namespace {

using cuda::Clock;
using cuda::cuda_check;

/// For a device whose collectives were just aborted to come to rest.
constexpr std::chrono::milliseconds kRest{3000};
constexpr std::chrono::milliseconds kTeardown{60000};

cudaStream_t in(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

CudaBackend::Impl::Impl(CudaBackendOptions given, std::shared_ptr<cuda::FailureCell> cell,
                        std::unique_ptr<cuda::Transport> carrier)
    : options(given), failure(std::move(cell)), spans(given.rank), transport(std::move(carrier)) {}

void CudaBackend::Impl::give_up(RuntimeStatus status, std::string text) noexcept {
  try {
    failure->set(status, std::move(text));
  } catch (...) {  // no memory for the text
    return;
  }
  capture.abort();
  come_to_rest();
}

bool CudaBackend::Impl::streams_idle() noexcept {
  return std::ranges::all_of(streams, [](const cuda::NamedStream& each) {
    const cudaError_t state = cudaStreamQuery(each.stream.get());
    if (state != cudaSuccess) cudaGetLastError();
    return state != cudaErrorNotReady;
  });
}

bool CudaBackend::Impl::may_free() noexcept {
  if (failure->get() == nullptr) return true;
  come_to_rest();
  return rests_after_failure;
}

/// Once: what did not end then is not waited for again at every buffer.
void CudaBackend::Impl::come_to_rest() noexcept {
  if (std::exchange(tried_to_rest, true)) return;
  transport->give_up();
  try {
    rests_after_failure = !capture.active() && drain_device(kRest);
  } catch (...) {  // not at rest, as far as can be told
  }
}

bool CudaBackend::Impl::drain_device(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  if (!cuda::poll_until(deadline, [&] { return streams_idle(); })) return false;
  // Streams of the caller's cannot be listed, and the only call that covers them may hang.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  const auto wait_for_device = [device = options.device] {
    cuda_check(cudaSetDevice(device), "selecting the device");
    cuda_check(cudaDeviceSynchronize(), "draining the device");
  };
  return cuda::run_bounded(std::max(left, std::chrono::milliseconds(1)), wait_for_device) == cuda::BoundedEnd::kDone;
}

CudaBackend::CudaBackend(CudaBackendOptions options, std::shared_ptr<cuda::FailureCell> failure,
                         std::unique_ptr<cuda::Transport> transport)
    : impl_(std::make_unique<Impl>(options, std::move(failure), std::move(transport))) {}

CudaBackend::~CudaBackend() {
  impl_->capture.abort();
  if (failure() == nullptr && !synchronize_all(kTeardown)) abort("it left with work under way");
}

int CudaBackend::device() const noexcept { return impl_->options.device; }
std::int64_t CudaBackend::rank() const noexcept { return impl_->options.rank; }
std::int64_t CudaBackend::abandoned() const noexcept { return impl_->abandoned; }

void* CudaBackend::allocate(std::size_t bytes, MemoryKind kind) {
  impl_->failure->check();
  if (impl_->capture.active()) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "memory was asked for during capture");
  }
  const cuda::DeviceScope scope(impl_->options.device);
  if (kind == MemoryKind::kWindow) return impl_->transport->allocate_window(bytes);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  cuda_check(error, "cudaMalloc");
  return data;
}

void CudaBackend::deallocate(void* data, std::size_t, MemoryKind kind) noexcept {
  if (data == nullptr) return;
  if (!impl_->may_free()) {
    ++impl_->abandoned;
    return;
  }
  if (kind == MemoryKind::kWindow) {
    impl_->transport->free_window(data);
  } else if (cudaFree(data) != cudaSuccess) {
    cudaGetLastError();
  }
}

Communicator CudaBackend::create_communicator(const CommunicatorSpec& spec) {
  impl_->failure->check();
  if (impl_->capture.active()) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "a communicator was asked for during capture");
  }
  const cuda::DeviceScope scope(impl_->options.device);
  return impl_->transport->create(spec);
}
void CudaBackend::destroy_communicator(Communicator communicator) noexcept { impl_->transport->destroy(communicator); }

void* CudaBackend::register_window(Communicator communicator, void* data, std::size_t bytes) {
  impl_->failure->check();
  if (impl_->capture.active()) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "a window was asked for during capture");
  }
  const cuda::DeviceScope scope(impl_->options.device);
  return impl_->transport->register_window(communicator, data, bytes);
}
void CudaBackend::deregister_window(Communicator communicator, void* window) noexcept {
  if (window != nullptr) impl_->transport->deregister_window(communicator, window);
}

const BackendFailure* CudaBackend::failure() const noexcept { return impl_->failure->get(); }

void CudaBackend::synchronize(Stream stream, std::chrono::milliseconds limit) {
  if (impl_->captures(in(stream))) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "a stream cannot be waited for during its capture");
  }
  impl_->transport->flush();
  cudaError_t state = cudaErrorNotReady;
  const bool drained = cuda::poll_until(Clock::now() + limit, [&] {
    impl_->failure->check();
    state = cudaStreamQuery(in(stream));
    return state != cudaErrorNotReady;
  });
  if (!drained) {
    cudaGetLastError();
    throw RuntimeError(RuntimeStatus::kTimeout, fmt::format("rank {}: stream {} was not done within {} ms", rank(),
                                                            impl_->name_of(in(stream)), limit.count()));
  }
  if (state != cudaSuccess) {
    impl_->operation("synchronize", {}, "", in(stream), [&](bool) { cuda_check(state, "waiting for a stream"); });
  }
  if (impl_->spans.active()) impl_->spans.report();
}

bool CudaBackend::synchronize_all(std::chrono::milliseconds limit) noexcept {
  try {
    if (failure() != nullptr) return impl_->may_free();
    if (impl_->capture.active()) return false;
    impl_->transport->flush();
    const auto deadline = Clock::now() + limit;
    const bool idle = cuda::poll_until(deadline, [&] { return failure() != nullptr || impl_->streams_idle(); });
    if (!idle || failure() != nullptr) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (!impl_->drain_device(std::max(left, std::chrono::milliseconds(1)))) return false;
    if (impl_->spans.active()) impl_->spans.report();
    return true;
  } catch (const std::exception& error) {
    impl_->give_up(RuntimeStatus::kCollectiveFailed, fmt::format("rank {}: {}", rank(), error.what()));
    return false;
  }
}

void CudaBackend::abort(std::string_view reason) noexcept {
  if (failure() != nullptr) return;
  try {
    impl_->give_up(RuntimeStatus::kAborted, fmt::format("rank {} gave up: {}", rank(), reason));
  } catch (...) {  // no memory for the text: peers run into their time limit
  }
}

void CudaBackend::set_trace(TraceSink* sink) {
  const cuda::DeviceScope scope(impl_->options.device);
  impl_->spans.attach(sink);
}

}  // namespace gtp
