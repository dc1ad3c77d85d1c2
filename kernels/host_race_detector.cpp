#include "kernels/host_race_detector.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gtp::host {

void RaceDetector::allocate(const void* data, std::size_t bytes) {
  regions_[reinterpret_cast<std::uintptr_t>(data)] = Region{bytes, true, {}, {}};
}

void RaceDetector::forget(const void* data) { regions_.erase(reinterpret_cast<std::uintptr_t>(data)); }

void RaceDetector::settle() {
  std::erase_if(regions_, [](const auto& entry) { return !entry.second.owned; });
  for (auto& [begin, region] : regions_) region.past.clear();
}

/// Memory of the caller has no region until it is touched; touched ranges that overlap become one region.
RaceDetector::Regions::iterator RaceDetector::region_of(std::uintptr_t begin, std::size_t bytes, bool& out_of_bounds) {
  auto at = regions_.upper_bound(begin);
  if (at != regions_.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second.bytes > begin) at = before;
  }
  if (at != regions_.end() && at->first <= begin && begin + bytes <= at->first + at->second.bytes) return at;

  Region merged{bytes, false, {}, {}};
  std::uintptr_t low = begin;
  std::uintptr_t high = begin + bytes;
  auto last = at;
  for (; last != regions_.end() && last->first < high; ++last) {
    if (last->second.owned) {
      out_of_bounds = true;
      return last;
    }
    low = std::min(low, last->first);
    high = std::max(high, last->first + last->second.bytes);
  }
  for (auto part = at; part != last; ++part) {
    for (Past past : part->second.past) {
      past.begin += part->first - low;
      past.end += part->first - low;
      merged.past.push_back(past);
    }
  }
  merged.bytes = high - low;
  regions_.erase(at, last);
  return regions_.emplace(low, std::move(merged)).first;
}

void RaceDetector::mark(Region& region, Range range, bool written) {
  std::vector<Range> out;
  for (const Range old : region.written) {
    if (old.end < range.begin || old.begin > range.end ||
        (!written && (old.end == range.begin || old.begin == range.end))) {
      out.push_back(old);
    } else if (written) {
      range = {std::min(range.begin, old.begin), std::max(range.end, old.end)};
    } else {
      if (old.begin < range.begin) out.push_back({old.begin, range.begin});
      if (old.end > range.end) out.push_back({range.end, old.end});
    }
  }
  if (written) out.push_back(range);
  region.written = std::move(out);
}

bool RaceDetector::is_written(const Region& region, Range range) {
  return std::ranges::any_of(region.written,
                             [&](Range old) { return old.begin <= range.begin && range.end <= old.end; });
}

const RaceDetector::Past* RaceDetector::conflict(const Region& region, Range range, bool write, std::size_t index,
                                                 const Clock& clock) {
  for (const Past& past : region.past) {
    const bool overlaps = past.begin < range.end && range.begin < past.end;
    if (!overlaps || !(write || past.write) || past.index == index) continue;
    if (clock.at(past.index) < past.time) return &past;
  }
  return nullptr;
}

/// A write makes what it covers irrelevant: whoever is ordered after the write is ordered after that.
void RaceDetector::remember(Region& region, Past past) {
  std::erase_if(region.past, [&](const Past& old) {
    const bool covered = past.begin <= old.begin && old.end <= past.end;
    return covered && (past.write || (!old.write && old.index == past.index));
  });
  region.past.push_back(past);
}

const std::string* RaceDetector::describe(const Toucher& toucher) {
  std::string text = toucher.weight.empty()
                         ? fmt::format("{} on stream {}", toucher.operation, toucher.stream)
                         : fmt::format("{} of {} on stream {}", toucher.operation, toucher.weight, toucher.stream);
  return &*names_.insert(std::move(text)).first;
}

std::optional<std::string> RaceDetector::touch(const Toucher& toucher, const std::vector<Access>& accesses,
                                               const Clock& clock) {
  const std::string* by = describe(toucher);
  for (const Access& access : accesses) {
    if (access.bytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
    bool out_of_bounds = false;
    const auto found = region_of(begin, access.bytes, out_of_bounds);
    if (out_of_bounds) return fmt::format("hazard: {} reaches beyond its buffer", *by);
    Region& region = found->second;
    const Range range{begin - found->first, begin - found->first + access.bytes};
    if (const Past* past = conflict(region, range, access.write, toucher.index, clock)) {
      return fmt::format("hazard: {} {} memory that {} {}, and nothing orders the two", *by,
                         access.write ? "overwrites" : "reads", *past->by, past->write ? "writes" : "reads");
    }
    if (region.owned && !access.write && !is_written(region, range)) {
      return fmt::format("hazard: {} reads bytes that were never written, or were given back", *by);
    }
    if (region.owned && access.write) mark(region, range, !toucher.poisons);
    remember(region, {range.begin, range.end, access.write, toucher.index, clock.at(toucher.index), by});
  }
  return std::nullopt;
}

}  // namespace gtp::host
