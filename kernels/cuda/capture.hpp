// One stream capture at a time, and the rule that it is always over afterwards, whatever went wrong in it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/owners.hpp"

namespace gtp::cuda {

/// Captures are thread-local: calls that a capture does not allow fail on the thread that began it, and other threads
/// are left alone. Begin, end and abort on one thread.
class StreamCapture {
 public:
  StreamCapture() = default;
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;
  ~StreamCapture() { abort(); }

  bool active() const noexcept { return origin_ != nullptr; }
  /// Of the capture under way or the latest, from 1.
  std::uint64_t number() const noexcept { return number_; }

  /// Throws kCaptureFailed if one is under way, or if the stream cannot be captured (the null stream).
  void begin(cudaStream_t origin);
  /// Whether what is enqueued on `stream` becomes part of the capture, or of its failure.
  bool has(cudaStream_t stream) const noexcept;
  /// For the text of an error: a stream that waited for the capture.
  void note_joined(cudaStream_t stream, std::string_view name);
  /// Notes what went wrong first; it goes into the error of `end`.
  void note_error(std::string text);
  /// Throws kCaptureFailed, with the capture over.
  UniqueGraphExec end(cudaStream_t origin);
  void abort() noexcept;

 private:
  [[noreturn]] void refuse_unjoined() const;

  struct Joined {
    cudaStream_t stream;
    std::string name;
  };
  cudaStream_t origin_ = nullptr;
  unsigned long long id_ = 0;
  std::uint64_t number_ = 0;
  std::vector<Joined> joined_;
  std::string error_;
};

}  // namespace gtp::cuda
