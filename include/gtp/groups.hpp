// The 22 families of process groups that Megatron builds, computed from a grid on demand: nothing grows with the world.
// It decides who belongs together, not which communicators are created or when.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>

#include "gtp/grid.hpp"
#include "gtp/topology.hpp"

namespace gtp {

/// A set of axes.
class AxisMask {
 public:
  constexpr AxisMask(std::initializer_list<Axis> axes) noexcept {
    for (const Axis axis : axes) bits_ |= 1U << axis_index(axis);
  }
  constexpr bool contains(Axis axis) const noexcept { return (bits_ >> axis_index(axis) & 1U) != 0; }

 private:
  unsigned bits_ = 0;
};

/// Which of the ranks along the masked axes are members.
enum class MemberPick : std::uint8_t { kAll, kFirstAndLast, kFirst };

struct GroupFamilyRow {
  std::string_view name;
  GridKind grid;
  /// Along these axes the members of a group differ.
  AxisMask members;
  std::string_view meaning;
  MemberPick pick = MemberPick::kAll;
};

namespace detail {

constexpr std::array<GroupFamilyRow, 22> group_family_rows() noexcept {
  using enum Axis;
  using enum GridKind;
  return {{
      {"gtp_remat", kDense, {kGtpRemat}, "ranks that share out one tensor-parallel slice of the dense weights"},
      {"dp_cp", kDense, {kDp, kCp}, "ranks with the same dense weight shard, context-parallel ranks included"},
      {"dp", kDense, {kDp}, "ranks with the same dense weight shard and the same part of the sequence"},
      {"gtp_remat_dp", kDense, {kGtpRemat, kDp}, "data distribution: ranks that read different samples"},
      {"gtp_remat_dp_cp", kDense, {kGtpRemat, kDp, kCp}, "data distribution, context-parallel ranks included"},
      {"cp", kDense, {kCp}, "ranks that split one sequence"},
      {"mp", kDense, {kTp, kGtpRemat, kPp}, "ranks that hold one whole copy of the dense weights"},
      {"tp", kDense, {kTp}, "ranks that split one dense layer by tensor parallelism"},
      {"pp", kDense, {kPp}, "the stages of one pipeline"},
      {"tp_dp_cp", kDense, {kTp, kGtpRemat, kDp, kCp}, "all ranks of one pipeline stage"},
      {"tp_dp", kDense, {kTp, kGtpRemat, kDp}, "ranks of one pipeline stage with the same part of the sequence"},
      {"tp_cp", kDense, {kTp, kCp}, "ranks that work on the same sample in one pipeline stage"},
      {"expt_gtp_remat", kExpert, {kGtpRemat}, "ranks that share out one expert-tensor-parallel slice of the experts"},
      {"ep", kExpert, {kEp}, "ranks that hold different experts of one layer"},
      {"ep_tp", kExpert, {kTp}, "ranks that split one expert by tensor parallelism"},
      {"tp_ep_mp", kExpert, {kTp, kEp}, "ranks among which the tokens of one layer are dispatched"},
      {"tp_ep_pp", kExpert, {kTp, kEp, kPp}, "the dispatch ranks of all stages of one pipeline"},
      {"tp_ep_gtp_remat_pp", kExpert, {kTp, kEp, kGtpRemat, kPp}, "ranks that hold one whole copy of the experts"},
      {"ep_dp", kExpert, {kDp}, "ranks with the same expert weight shard"},
      {"ep_gtp_remat_dp", kExpert, {kGtpRemat, kDp}, "ranks with the same experts: their weight shards and replicas"},
      {"embd", kDense, {kPp}, "stages with word embeddings: first and last, or the only", MemberPick::kFirstAndLast},
      {"pos_embd", kDense, {kPp}, "the stage with position embeddings: the first", MemberPick::kFirst},
  }};
}

}  // namespace detail

/// Every family, roughly as upstream builds them; each mask is that of a `get_ranks` call in
/// megatron/core/parallel_state.py:944-1530, the two picks are those of lines 560-572.
inline constexpr std::array<GroupFamilyRow, 22> kGroupFamilies = detail::group_family_rows();

/// nullptr for an unknown name.
constexpr const GroupFamilyRow* find_group_family(std::string_view name) noexcept {
  for (const GroupFamilyRow& row : kGroupFamilies) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

namespace detail {

/// A nested loop over ranks, innermost level first. Six axes, split in members and the rest and merged where they are
/// contiguous, leave at most three levels of each.
class RankLoop {
 public:
  static constexpr std::size_t kMaxLevels = 3;

  struct Level {
    std::int64_t size = 1;
    std::int64_t stride = 0;
    friend constexpr bool operator==(const Level&, const Level&) = default;
  };

  /// Axes come with growing strides; one that continues the level before it is merged into that level.
  constexpr void add(std::int64_t size, std::int64_t stride) noexcept {
    if (size == 1) return;
    total_ *= size;
    if (count_ != 0 && levels_[count_ - 1].size * levels_[count_ - 1].stride == stride) {
      levels_[count_ - 1].size *= size;
    } else {
      levels_[count_++] = {size, stride};
    }
  }

  constexpr std::int64_t total() const noexcept { return total_; }
  constexpr const Level& level(std::size_t index) const noexcept { return levels_[index]; }

  /// The rank offset of iteration `index`.
  constexpr std::int64_t offset(std::int64_t index) const noexcept {
    std::int64_t offset = 0;
    for (std::size_t level = 0; level < count_; ++level) {
      offset += index % levels_[level].size * levels_[level].stride;
      index /= levels_[level].size;
    }
    return offset;
  }

  /// The iteration that has the digits of `offset`; whether it is exactly that offset is for the caller to compare.
  constexpr std::int64_t index(std::int64_t offset) const noexcept {
    std::int64_t index = 0;
    std::int64_t place = 1;
    for (std::size_t level = 0; level < count_; ++level) {
      index += offset / levels_[level].stride % levels_[level].size * place;
      place *= levels_[level].size;
    }
    return index;
  }

  friend constexpr bool operator==(const RankLoop&, const RankLoop&) = default;

 private:
  std::array<Level, kMaxLevels> levels_{};
  std::size_t count_ = 0;
  std::int64_t total_ = 1;
};

/// Steps through a RankLoop without division. Offsets are unsigned because the step past the end may wrap.
class Odometer {
 public:
  constexpr Odometer() noexcept = default;
  constexpr Odometer(const RankLoop& loop, std::int64_t start, std::int64_t index) noexcept
      : loop_(&loop), offset_(static_cast<std::uint64_t>(start)), index_(index) {}

  constexpr std::int64_t offset() const noexcept { return static_cast<std::int64_t>(offset_); }
  constexpr std::int64_t index() const noexcept { return index_; }

  constexpr void advance() noexcept {
    ++index_;
    offset_ += stride(0);
    if (++digits_[0] != loop_->level(0).size) return;
    carry(0);
    if (++digits_[1] != loop_->level(1).size) return;
    carry(1);
  }

 private:
  constexpr std::uint64_t stride(std::size_t level) const noexcept {
    return static_cast<std::uint64_t>(loop_->level(level).stride);
  }
  constexpr void carry(std::size_t level) noexcept {
    offset_ += stride(level + 1) - static_cast<std::uint64_t>(loop_->level(level).size) * stride(level);
    digits_[level] = 0;
  }

  const RankLoop* loop_ = nullptr;
  std::uint64_t offset_ = 0;
  std::int64_t index_ = 0;
  std::array<std::int64_t, RankLoop::kMaxLevels - 1> digits_{};
};

/// Forward iterator over a RankLoop that yields `Project(odometer)`.
template <class Project>
class LoopIterator {
 public:
  using value_type = std::invoke_result_t<Project, const Odometer&>;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::forward_iterator_tag;
  using iterator_category = std::input_iterator_tag;

  constexpr LoopIterator() noexcept = default;
  constexpr LoopIterator(Odometer odometer, Project project) noexcept : odometer_(odometer), project_(project) {}
  constexpr value_type operator*() const noexcept { return project_(odometer_); }
  constexpr LoopIterator& operator++() noexcept {
    odometer_.advance();
    return *this;
  }
  constexpr LoopIterator operator++(int) noexcept {
    const LoopIterator before = *this;
    ++*this;
    return before;
  }
  friend constexpr bool operator==(const LoopIterator& left, const LoopIterator& right) noexcept {
    return left.odometer_.index() == right.odometer_.index();
  }

 private:
  Odometer odometer_;
  [[no_unique_address]] Project project_{};
};

struct ProjectRank {
  constexpr std::int64_t operator()(const Odometer& odometer) const noexcept { return odometer.offset(); }
};

}  // namespace detail

/// One group: a range of ranks in upstream's member order. Valid while its GroupFamily lives.
class GroupView {
 public:
  using iterator = detail::LoopIterator<detail::ProjectRank>;

  constexpr GroupView(const detail::RankLoop& members, std::int64_t first_rank, std::int64_t index) noexcept
      : members_(&members), first_rank_(first_rank), index_(index) {}

  /// The place of this group in its family.
  constexpr std::int64_t index() const noexcept { return index_; }
  constexpr std::int64_t size() const noexcept { return members_->total(); }
  constexpr std::int64_t front() const noexcept { return first_rank_; }
  constexpr iterator begin() const noexcept { return {{*members_, first_rank_, 0}, {}}; }
  constexpr iterator end() const noexcept { return {{*members_, first_rank_, size()}, {}}; }

 private:
  const detail::RankLoop* members_;
  std::int64_t first_rank_;
  std::int64_t index_;
};

namespace detail {

struct ProjectGroup {
  const RankLoop* members = nullptr;
  constexpr GroupView operator()(const Odometer& odometer) const noexcept {
    return {*members, odometer.offset(), odometer.index()};
  }
};

}  // namespace detail

/// The place of a rank in a family.
struct GroupPlace {
  std::int64_t group = 0;
  std::int64_t position = 0;

  friend constexpr bool operator==(const GroupPlace&, const GroupPlace&) = default;
};

/// All groups of one family, in upstream's order (megatron/core/parallel_state.py:269), as a range of GroupView. A
/// small value: nothing in it grows with the world.
class GroupFamily {
 public:
  using iterator = detail::LoopIterator<detail::ProjectGroup>;

  constexpr GroupFamily(const Grid& grid, AxisMask members, MemberPick pick = MemberPick::kAll) noexcept
      : world_size_(grid.world_size()) {
    std::int64_t last = 0;
    for (const GridAxis& axis : grid.axes()) {
      if (!members.contains(axis.axis)) {
        groups_.add(axis.size, axis.stride);
      } else if (pick == MemberPick::kAll) {
        members_.add(axis.size, axis.stride);
      } else {
        last += (axis.size - 1) * axis.stride;
      }
    }
    if (pick == MemberPick::kFirstAndLast && last != 0) members_.add(2, last);
  }

  /// Number of groups.
  constexpr std::int64_t count() const noexcept { return groups_.total(); }
  /// Number of ranks of each group.
  constexpr std::int64_t size() const noexcept { return members_.total(); }

  constexpr iterator begin() const noexcept { return {{groups_, 0, 0}, {&members_}}; }
  constexpr iterator end() const noexcept { return {{groups_, 0, count()}, {&members_}}; }

  /// nullopt outside 0 .. count() - 1.
  constexpr std::optional<GroupView> group(std::int64_t index) const noexcept {
    if (index < 0 || index >= count()) return std::nullopt;
    return GroupView(members_, groups_.offset(index), index);
  }

  /// nullopt if there is no such group or position.
  constexpr std::optional<std::int64_t> rank(std::int64_t group, std::int64_t position) const noexcept {
    if (group < 0 || group >= count() || position < 0 || position >= size()) return std::nullopt;
    return groups_.offset(group) + members_.offset(position);
  }

  /// nullopt for a rank outside the world, and for one that is in no group of the family (inner stages of `embd`).
  constexpr std::optional<GroupPlace> group_of(std::int64_t rank) const noexcept {
    if (rank < 0 || rank >= world_size_) return std::nullopt;
    const std::int64_t group = groups_.index(rank);
    const std::int64_t offset = rank - groups_.offset(group);
    const std::int64_t position = members_.index(offset);
    if (members_.offset(position) != offset) return std::nullopt;
    return GroupPlace{group, position};
  }

  /// Whether the groups are the same, in a world of the same size.
  friend constexpr bool operator==(const GroupFamily&, const GroupFamily&) = default;

 private:
  detail::RankLoop groups_;
  detail::RankLoop members_;
  std::int64_t world_size_;
};

/// Precondition: `topology` came from `make_topology`.
constexpr GroupFamily make_group_family(const Topology& topology, const GroupFamilyRow& row) noexcept {
  return GroupFamily(make_grid(row.grid, topology), row.members, row.pick);
}

namespace detail {

/// Collects text in a fixed buffer and hands it on in large pieces.
template <class Sink>
class ChunkWriter {
 public:
  explicit ChunkWriter(Sink& sink) noexcept : sink_(sink) {}

  /// Makes room for one number and the punctuation around it.
  void reserve() {
    if (size_ > kCapacity - kLongestItem) flush();
  }
  void put(char letter) noexcept { buffer_[size_++] = letter; }
  void put(std::int64_t number) noexcept {
    const std::to_chars_result end = std::to_chars(buffer_.data() + size_, buffer_.data() + kCapacity, number);
    size_ = static_cast<std::size_t>(end.ptr - buffer_.data());
  }
  void flush() {
    sink_(std::string_view(buffer_.data(), size_));
    size_ = 0;
  }

 private:
  static constexpr std::size_t kCapacity = 16384;
  static constexpr std::size_t kLongestItem = 32;  // 20 characters of a 64-bit number, brackets and commas

  Sink& sink_;
  std::array<char, kCapacity> buffer_;
  std::size_t size_ = 0;
};

}  // namespace detail

/// Writes `[[0,2],[1,3]]`, without spaces or a line end, calling `sink(std::string_view)` for each piece of up to 16
/// KiB. These are the bytes that upstream's digests in `rank_groups.json` cover. Time is linear in ranks, memory
/// constant.
template <class Sink>
void write_json(const GroupFamily& family, Sink&& sink) {
  detail::ChunkWriter writer(sink);
  writer.put('[');
  for (const GroupView group : family) {
    char before = '[';
    if (group.index() != 0) writer.put(',');
    for (const std::int64_t rank : group) {
      writer.reserve();
      writer.put(before);
      writer.put(rank);
      before = ',';
    }
    writer.put(']');
  }
  writer.put(']');
  writer.flush();
}

}  // namespace gtp
