// The one exception of the runtime: a driver call, a collective or a peer failed, or a caller broke a stated rule.
// Mistakes in a configuration are diagnostics of include/gtp and never come here.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace gtp {

enum class RuntimeStatus : std::uint8_t {
  kInvalidPlan,  ///< The topology, rank or weight that the runtime was given cannot be run.
  kInvalidUse,   ///< A call out of order, or on an object of another runtime.
  kOutOfMemory,  ///< The allocation callback returned nothing, or a capture needed memory that warm-up had not left.
  kCollectiveFailed,  ///< An operation of this rank failed, or ranks issued different operations.
  kTimeout,           ///< A peer did not arrive within the time limit.
  kAborted,           ///< A peer failed first; the text names it.
  kCaptureFailed,     ///< A graph could not be captured; the runtime remains usable.
};

/// `what()` says which rank, operation, group and weight, and what to do where one answer is right.
class RuntimeError : public std::exception {
 public:
  RuntimeError(RuntimeStatus status, std::string text) : status_(status), text_(std::move(text)) {}
  RuntimeStatus status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }
  const std::string& text() const noexcept { return text_; }

 private:
  RuntimeStatus status_;
  std::string text_;
};

}  // namespace gtp
