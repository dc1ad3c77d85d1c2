// Finds accesses to one rank's memory that no event orders, and reads of bytes nobody wrote. It judges the order that
// the program guarantees, not the order in which a run happened to go, so one run is enough to find a missing event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/host_backend.hpp"
#include "kernels/host_clock.hpp"

namespace gtp::host {

/// The operation that touches memory.
struct Toucher {
  std::string_view operation;
  std::string_view weight;
  std::string_view stream;
  std::size_t index = 0;  ///< Of the stream, in clocks.
  bool poisons = false;
};

class RaceDetector {
 public:
  /// Memory handed out by the backend: its bytes count as unwritten.
  void allocate(const void* data, std::size_t bytes);
  void forget(const void* data);
  /// Everything so far happened before everything to come.
  void settle();

  /// Records the accesses of an operation whose stream's clock, itself included, is `clock`. The text of a hazard.
  std::optional<std::string> touch(const Toucher& toucher, const std::vector<Access>& accesses, const Clock& clock);

 private:
  struct Past {
    std::size_t begin, end;
    bool write;
    std::size_t index;
    std::uint32_t time;
    const std::string* by;
  };
  struct Range {
    std::size_t begin, end;
  };
  struct Region {
    std::size_t bytes = 0;
    bool owned = false;  ///< By the backend.
    std::vector<Range> written;
    std::vector<Past> past;
  };
  using Regions = std::map<std::uintptr_t, Region>;

  Regions::iterator region_of(std::uintptr_t begin, std::size_t bytes, bool& out_of_bounds);
  static void mark(Region& region, Range range, bool written);
  static bool is_written(const Region& region, Range range);
  static const Past* conflict(const Region& region, Range range, bool write, std::size_t index, const Clock& clock);
  static void remember(Region& region, Past past);
  const std::string* describe(const Toucher& toucher);

  Regions regions_;
  std::set<std::string> names_;
};

}  // namespace gtp::host
