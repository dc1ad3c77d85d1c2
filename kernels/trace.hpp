// What ran when, one lane a stream, and its Chrome trace form (chrome://tracing, Perfetto). Does not touch files: the
// text goes to a sink in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gtp {

/// One operation that has run. Times are the backend's microseconds from a common start; the host backend counts
/// scheduler steps.
struct TraceSpan {
  std::int64_t rank = 0;
  std::string_view lane;
  std::string_view operation;
  std::string_view weight;
  std::string_view group;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// Receives spans from a backend, one call at a time.
class TraceSink {
 public:
  TraceSink() = default;
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;
  virtual ~TraceSink() = default;
  virtual void span(const TraceSpan& span) = 0;
};

/// Keeps spans and writes them as a JSON object with `traceEvents`: a process a rank, a thread a lane.
class ChromeTrace final : public TraceSink {
 public:
  void span(const TraceSpan& span) override;
  std::size_t size() const noexcept { return spans_.size(); }
  /// Valid JSON whatever the names hold; bytes that are not ASCII text are escaped.
  void write(const std::function<void(std::string_view)>& sink) const;

 private:
  struct Span {
    std::int64_t rank;
    std::size_t lane;
    std::string operation, weight, group;
    std::int64_t start, end;
  };
  struct Lane {
    std::int64_t rank;
    std::string name;
  };
  std::size_t lane_of(const TraceSpan& span);

  std::vector<Span> spans_;
  std::vector<Lane> lanes_;
};

}  // namespace gtp
