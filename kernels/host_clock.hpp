// Vector clocks: which operation of which virtual stream is known to have happened before. Index: the stream's number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gtp::host {

class Clock {
 public:
  std::uint32_t at(std::size_t index) const noexcept { return index < times_.size() ? times_[index] : 0; }
  void set(std::size_t index, std::uint32_t time) {
    if (index >= times_.size()) times_.resize(index + 1, 0);
    times_[index] = time;
  }
  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t index = 0; index < other.times_.size(); ++index) {
      times_[index] = std::max(times_[index], other.times_[index]);
    }
  }

 private:
  std::vector<std::uint32_t> times_;
};

}  // namespace gtp::host
