// Fused weights ([gate|up], [q|k|v], the in_proj of an SSM) and the shards cut across them: which rows of which segment
// a shard holds. Checkpoints keep each segment as a tensor of its own, without padding, so that any other number of
// shards or of tensor-parallel ranks can load it. Byte ranges only; no files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gtp/checked.hpp"
#include "kernels/format/scale_layout.hpp"
#include "kernels/shard_layout.hpp"

namespace gtp {

/// Consecutive rows that a shard and a segment share. A shard that straddles a boundary has a piece on either side.
struct SegmentPiece {
  std::size_t segment = 0;
  std::int64_t segment_row = 0;  ///< First row, in the segment's global tensor.
  std::int64_t shard_row = 0;    ///< First row, in the shard.
  std::int64_t rows = 0;

  friend constexpr bool operator==(const SegmentPiece&, const SegmentPiece&) = default;
};

/// A rank's part of a column-parallel fused weight: `tp_rank` holds every tp_size-th part of each segment, its
/// GTP_remat group cuts those parts, put below each other, into shards.
struct FusedShard {
  std::span<const std::int64_t> segment_rows;  ///< Global rows of each segment, all TP ranks together.
  std::int64_t tp_rank = 0;
  std::int64_t tp_size = 1;
  std::int64_t gtp_rank = 0;
};

namespace detail {

inline bool is_inside(const FusedShard& shard, const ShardLayout& layout) noexcept {
  if (shard.tp_size <= 0 || shard.tp_rank < 0 || shard.tp_rank >= shard.tp_size) return false;
  if (shard.gtp_rank < 0 || shard.gtp_rank >= layout.group_size()) return false;
  std::int64_t total = 0;
  for (const std::int64_t rows : shard.segment_rows) {
    const auto part = rows >= 0 ? exact_quotient(rows, shard.tp_size) : std::nullopt;
    const auto sum = part ? checked_add(total, *part) : std::nullopt;
    if (!sum) return false;
    total = *sum;
  }
  return total == layout.rows();
}

}  // namespace detail

/// In the order of the shard's rows; pad rows belong to no piece. nullopt if a rank lies outside its group, a segment
/// does not divide by tp_size, or the parts do not make up layout.rows().
inline std::optional<std::vector<SegmentPiece>> pieces_of(const FusedShard& shard, const ShardLayout& layout) {
  if (!detail::is_inside(shard, layout)) return std::nullopt;
  const std::int64_t shard_begin = layout.row_begin(shard.gtp_rank);
  const std::int64_t shard_end = shard_begin + layout.local_rows(shard.gtp_rank);
  std::vector<SegmentPiece> pieces;
  std::int64_t part_begin = 0;
  for (std::size_t segment = 0; segment < shard.segment_rows.size(); ++segment) {
    const std::int64_t part_rows = shard.segment_rows[segment] / shard.tp_size;
    const std::int64_t begin = std::max(part_begin, shard_begin);
    const std::int64_t end = std::min(part_begin + part_rows, shard_end);
    if (begin < end) {
      const std::int64_t in_part = begin - part_begin;
      pieces.push_back({segment, shard.tp_rank * part_rows + in_part, begin - shard_begin, end - begin});
    }
    part_begin += part_rows;
  }
  return pieces;
}

namespace detail {

inline bool buffers_hold(const FusedShard& shard, const ShardLayout& layout, std::int64_t row_bytes,
                         std::size_t shard_bytes, std::span<const std::size_t> segment_bytes) noexcept {
  const auto is = [&](std::int64_t rows, std::size_t bytes) {
    const auto product = checked_multiply(rows, row_bytes);
    return product && bytes == static_cast<std::size_t>(*product);
  };
  if (row_bytes <= 0 || segment_bytes.size() != shard.segment_rows.size()) return false;
  for (std::size_t i = 0; i < segment_bytes.size(); ++i) {
    if (!is(shard.segment_rows[i], segment_bytes[i])) return false;
  }
  return is(layout.shard_rows(), shard_bytes);
}

/// Calls `copy(segment, segment_byte, shard_byte, bytes)` for every piece.
template <class Buffer, class Copy>
bool for_each_piece(const FusedShard& shard, const ShardLayout& layout, std::int64_t row_bytes, std::size_t shard_bytes,
                    std::span<const Buffer> segments, Copy copy) {
  const auto pieces = pieces_of(shard, layout);
  std::vector<std::size_t> sizes;
  for (const Buffer& segment : segments) sizes.push_back(segment.size());
  if (!pieces || !buffers_hold(shard, layout, row_bytes, shard_bytes, sizes)) return false;
  for (const SegmentPiece& piece : *pieces) {
    copy(piece.segment, piece.segment_row * row_bytes, piece.shard_row * row_bytes, piece.rows * row_bytes);
  }
  return true;
}

}  // namespace detail

/// Saves: copies the shard's rows to where they belong in the segments' global tensors, row-major with `row_bytes` a
/// row. Padding is left out. False, with nothing written, where pieces_of() has no answer or a span has another length.
inline bool save_shard(const FusedShard& shard, const ShardLayout& layout, std::int64_t row_bytes, ConstBytes values,
                       std::span<const Bytes> segments) {
  return detail::for_each_piece(
      shard, layout, row_bytes, values.size(), segments,
      [&](std::size_t segment, std::int64_t segment_byte, std::int64_t shard_byte, std::int64_t bytes) {
        std::copy_n(values.begin() + shard_byte, bytes, segments[segment].begin() + segment_byte);
      });
}

/// Loads: the inverse of save_shard(), for any layout of the same weight; pad rows become zero.
inline bool load_shard(const FusedShard& shard, const ShardLayout& layout, std::int64_t row_bytes,
                       std::span<const ConstBytes> segments, Bytes values) {
  std::int64_t filled = 0;
  const bool loaded = detail::for_each_piece(
      shard, layout, row_bytes, values.size(), segments,
      [&](std::size_t segment, std::int64_t segment_byte, std::int64_t shard_byte, std::int64_t bytes) {
        std::copy_n(segments[segment].begin() + segment_byte, bytes, values.begin() + shard_byte);
        filled = shard_byte + bytes;
      });
  if (loaded) std::fill(values.begin() + filled, values.end(), std::uint8_t{0});
  return loaded;
}

}  // namespace gtp
