#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/bookkeeping/segments.hpp"
#include "kernels/bookkeeping/writer_election.hpp"

namespace {

using Buffer = std::vector<std::uint8_t>;
using Rows = std::vector<std::int64_t>;
using gtp::ParamTags;
using gtp::SegmentPiece;
using gtp::ShardLayout;

constexpr std::int64_t kRowBytes = 6;

ShardLayout layout_of(std::int64_t rows, std::int64_t size) {
  const auto layout = gtp::make_shard_layout({rows, kRowBytes / 2, gtp::WeightFormat::kBf16, 16, size});
  REQUIRE(layout);
  return *layout;
}

std::int64_t total(const Rows& rows) {
  std::int64_t sum = 0;
  for (const std::int64_t part : rows) sum += part;
  return sum;
}

/// A fused weight as global tensors of its segments; no two bytes near each other are equal, none is zero.
std::vector<Buffer> source_segments(const Rows& segment_rows) {
  std::vector<Buffer> segments;
  std::uint32_t next = 0;
  for (const std::int64_t rows : segment_rows) {
    Buffer segment(static_cast<std::size_t>(rows * kRowBytes));
    for (std::uint8_t& byte : segment) byte = static_cast<std::uint8_t>(1 + next++ % 251);
    segments.push_back(segment);
  }
  return segments;
}

/// Rows of one TP rank as a runtime without GTP holds them: its part of each segment, one below the other.
Buffer tp_local(const std::vector<Buffer>& segments, std::int64_t tp_rank, std::int64_t tp_size) {
  Buffer local;
  for (const Buffer& segment : segments) {
    const auto part = static_cast<std::int64_t>(segment.size()) / tp_size;
    local.insert(local.end(), segment.begin() + tp_rank * part, segment.begin() + (tp_rank + 1) * part);
  }
  return local;
}

/// Cuts a TP-local weight into padded shards, independently of the code under test.
std::vector<Buffer> cut(Buffer local, const ShardLayout& layout) {
  local.resize(static_cast<std::size_t>(layout.padded_rows() * kRowBytes));
  std::vector<Buffer> shards;
  const std::int64_t bytes = layout.shard_rows() * kRowBytes;
  for (std::int64_t rank = 0; rank < layout.group_size(); ++rank) {
    shards.emplace_back(local.begin() + rank * bytes, local.begin() + (rank + 1) * bytes);
  }
  return shards;
}

/// The checkpoint that all ranks of a TP x GTP grid write together.
std::vector<Buffer> saved(const std::vector<Buffer>& source, const Rows& segment_rows, std::int64_t tp_size,
                          std::int64_t gtp_size) {
  std::vector<Buffer> checkpoint;
  for (const Buffer& segment : source) checkpoint.emplace_back(segment.size(), 0);
  const std::vector<gtp::Bytes> targets(checkpoint.begin(), checkpoint.end());
  const ShardLayout layout = layout_of(total(segment_rows) / tp_size, gtp_size);
  for (std::int64_t tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
    const std::vector<Buffer> shards = cut(tp_local(source, tp_rank, tp_size), layout);
    for (std::int64_t gtp_rank = 0; gtp_rank < gtp_size; ++gtp_rank) {
      REQUIRE(gtp::save_shard({segment_rows, tp_rank, tp_size, gtp_rank}, layout, kRowBytes,
                              shards[static_cast<std::size_t>(gtp_rank)], std::span<const gtp::Bytes>(targets)));
    }
  }
  return checkpoint;
}

/// Every shard of a TP x GTP grid as loaded from a checkpoint equals what that grid would have held.
void check_load(const std::vector<Buffer>& checkpoint, const Rows& segment_rows, std::int64_t tp_size,
                std::int64_t gtp_size) {
  const std::vector<gtp::ConstBytes> sources(checkpoint.begin(), checkpoint.end());
  const ShardLayout layout = layout_of(total(segment_rows) / tp_size, gtp_size);
  for (std::int64_t tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
    const std::vector<Buffer> expected = cut(tp_local(checkpoint, tp_rank, tp_size), layout);
    for (std::int64_t gtp_rank = 0; gtp_rank < gtp_size; ++gtp_rank) {
      Buffer shard(static_cast<std::size_t>(layout.shard_rows() * kRowBytes), 0xCD);
      REQUIRE(gtp::load_shard({segment_rows, tp_rank, tp_size, gtp_rank}, layout, kRowBytes,
                              std::span<const gtp::ConstBytes>(sources), shard));
      CHECK(shard == expected[static_cast<std::size_t>(gtp_rank)]);
    }
  }
}

const std::map<std::string, Rows> kFused = {
    {"gate and up", {100, 100}}, {"q, k and v", {64, 16, 16}}, {"z, x, B, C and dt", {80, 80, 8, 8, 6}}};

/// Which piece of a tensor a rank holds: coordinates along the axes that shard it, pipeline and expert stage included.
using Chunk = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

/// How many ranks write each chunk of a parameter.
std::map<Chunk, int> writers(const gtp::Topology& topology, const ParamTags& tags) {
  std::map<Chunk, int> counts;
  const gtp::Grid grid = gtp::make_grid(gtp::grid_of(tags), topology);
  for (std::int64_t rank = 0; rank < topology.world_size; ++rank) {
    const auto at = *grid.coordinates(rank);
    const auto place = gtp::place_of(tags, topology, rank);
    REQUIRE(place);
    const auto along = [&](gtp::Axis axis, bool sharded) { return sharded ? at[gtp::axis_index(axis)] : 0; };
    const Chunk chunk{along(gtp::Axis::kTp, tags.tp_sharded), along(gtp::Axis::kGtpRemat, tags.gtp_sharded),
                      along(gtp::Axis::kEp, true), along(gtp::Axis::kPp, true)};
    counts[chunk] += gtp::replica_id(tags, *place).writes() ? 1 : 0;
  }
  return counts;
}

void check_one_writer(const gtp::Topology& topology, const ParamTags& tags, std::int64_t chunks) {
  const std::map<Chunk, int> counts = writers(topology, tags);
  CHECK(static_cast<std::int64_t>(counts.size()) == chunks);
  for (const auto& [chunk, count] : counts) CHECK(count == 1);
}

const gtp::TopologyOptions kTopologies[] = {
    {.world_size = 4, .tensor_parallel_num_weight_shards = 4},
    {.world_size = 16,
     .tensor_model_parallel_size = 2,
     .tensor_parallel_num_weight_shards = 4,
     .context_parallel_size = 2},
    {.world_size = 32,
     .tensor_model_parallel_size = 2,
     .tensor_parallel_num_weight_shards = 8,
     .pipeline_model_parallel_size = 2,
     .expert_model_parallel_size = 2,
     .expert_tensor_parallel_size = 1,
     .expert_tensor_parallel_num_weight_shards = 4},
    {.world_size = 8},
};

}  // namespace

TEST_CASE("T28 a shard that straddles segments has a piece of each") {
  const Rows gate_up{50, 50};
  const ShardLayout layout = layout_of(100, 4);
  REQUIRE(layout.shard_rows() == 32);
  const auto pieces = [&](std::int64_t rank) { return *gtp::pieces_of({gate_up, 0, 1, rank}, layout); };
  CHECK(pieces(0) == std::vector<SegmentPiece>{{0, 0, 0, 32}});
  CHECK(pieces(1) == std::vector<SegmentPiece>{{0, 32, 0, 18}, {1, 0, 18, 14}});
  CHECK(pieces(2) == std::vector<SegmentPiece>{{1, 14, 0, 32}});
  CHECK(pieces(3) == std::vector<SegmentPiece>{{1, 46, 0, 4}});
}

TEST_CASE("T28 at TP 2 and G 2 a whole shard can belong to the second segment") {
  const Rows gate_up{32, 32};
  const ShardLayout layout = layout_of(32, 2);
  const auto pieces = [&](std::int64_t tp, std::int64_t g) { return *gtp::pieces_of({gate_up, tp, 2, g}, layout); };
  CHECK(pieces(0, 0) == std::vector<SegmentPiece>{{0, 0, 0, 16}});
  CHECK(pieces(0, 1) == std::vector<SegmentPiece>{{1, 0, 0, 16}});
  CHECK(pieces(1, 0) == std::vector<SegmentPiece>{{0, 16, 0, 16}});
  CHECK(pieces(1, 1) == std::vector<SegmentPiece>{{1, 16, 0, 16}});
}

TEST_CASE("T28 segments saved at G=4 equal those saved at G=1, byte for byte") {
  for (const auto& fused : kFused) {
    CAPTURE(fused.first);
    const Rows& rows = fused.second;
    const std::vector<Buffer> source = source_segments(rows);
    for (const std::int64_t tp_size : {1, 2}) {
      const std::vector<Buffer> checkpoint = saved(source, rows, tp_size, 4);
      CHECK(checkpoint == source);
      CHECK(checkpoint == saved(source, rows, tp_size, 1));
    }
  }
}

TEST_CASE("T28 a checkpoint of G=4 loads at G=1, 2 and 8 and saves the same bytes again") {
  for (const auto& fused : kFused) {
    CAPTURE(fused.first);
    const Rows& rows = fused.second;
    const std::vector<Buffer> checkpoint = saved(source_segments(rows), rows, 1, 4);
    for (const std::int64_t gtp_size : {1, 2, 8}) {
      for (const std::int64_t tp_size : {1, 2}) {
        CAPTURE(gtp_size);
        CAPTURE(tp_size);
        check_load(checkpoint, rows, tp_size, gtp_size);
        CHECK(saved(checkpoint, rows, tp_size, gtp_size) == checkpoint);
      }
    }
  }
}

TEST_CASE("fused shards that make no sense are refused") {
  const ShardLayout layout = layout_of(100, 4);
  const Rows right{50, 50}, short_by_one{50, 49}, negative{150, -50}, huge{INT64_MAX, INT64_MAX};
  CHECK_FALSE(gtp::pieces_of({short_by_one, 0, 1, 0}, layout));
  CHECK_FALSE(gtp::pieces_of({negative, 0, 1, 0}, layout));
  CHECK_FALSE(gtp::pieces_of({huge, 0, 1, 0}, layout));
  CHECK_FALSE(gtp::pieces_of({right, 0, 2, 0}, layout));
  CHECK_FALSE(gtp::pieces_of({right, 0, 1, 4}, layout));
  CHECK_FALSE(gtp::pieces_of({right, -1, 1, 0}, layout));
  CHECK_FALSE(gtp::pieces_of({right, 0, 0, 0}, layout));
  Buffer shard(static_cast<std::size_t>(32 * kRowBytes));
  std::vector<Buffer> segments(2, Buffer(static_cast<std::size_t>(50 * kRowBytes)));
  const std::vector<gtp::ConstBytes> good(segments.begin(), segments.end()), one(1, segments[0]);
  const auto load = [&](std::int64_t row_bytes, std::span<const gtp::ConstBytes> from) {
    return gtp::load_shard({right, 0, 1, 0}, layout, row_bytes, from, shard);
  };
  CHECK(load(kRowBytes, good));
  CHECK_FALSE(load(kRowBytes, one));
  CHECK_FALSE(load(kRowBytes + 1, good));
  CHECK_FALSE(load(0, good));
  CHECK_FALSE(load(INT64_MAX, good));
}

TEST_CASE("T29 each shard of a sharded weight has exactly one writer, elected without the gtp axis") {
  for (const gtp::TopologyOptions& options : kTopologies) {
    const auto topology = gtp::make_topology(options);
    REQUIRE(topology);
    CAPTURE(topology->world_size);
    const gtp::Topology& t = *topology;
    check_one_writer(t, {.gtp_sharded = true, .tp_sharded = true}, t.tp * t.gtp_remat * t.pp);
    check_one_writer(t, {.gtp_sharded = true, .tp_sharded = true, .expert = true}, t.etp * t.egtp_remat * t.ep * t.pp);
    check_one_writer(t, {.gtp_sharded = true}, t.gtp_remat * t.pp);
  }
  CHECK(gtp::shard_replica_family({.gtp_sharded = true}) == "dp_cp");
  CHECK(gtp::shard_replica_family({.gtp_sharded = true, .expert = true}) == "ep_dp");
}

TEST_CASE("T29 a replicated tensor has exactly one writer in all, gtp peers included") {
  for (const gtp::TopologyOptions& options : kTopologies) {
    const auto topology = gtp::make_topology(options);
    REQUIRE(topology);
    CAPTURE(topology->world_size);
    const gtp::Topology& t = *topology;
    check_one_writer(t, {}, t.pp);
    check_one_writer(t, {.tp_sharded = true}, t.tp * t.pp);
    check_one_writer(t, {.tp_sharded = true, .expert = true}, t.etp * t.ep * t.pp);
    check_one_writer(t, {.expert = true}, t.ep * t.pp);
  }
}

TEST_CASE("T29 replica ids of replicas differ and the first of them writes") {
  CHECK(gtp::replica_id({.gtp_sharded = true, .tp_sharded = true}, {1, 3, 4, 2}) == gtp::ReplicaId{0, 2});
  CHECK(gtp::replica_id({.gtp_sharded = true}, {1, 3, 4, 2}) == gtp::ReplicaId{1, 2});
  CHECK(gtp::replica_id({.tp_sharded = true}, {1, 3, 4, 2}) == gtp::ReplicaId{3, 2});
  CHECK(gtp::replica_id({}, {1, 3, 4, 2}) == gtp::ReplicaId{7, 2});
}

TEST_CASE("T30 no two ranks of a TP and PP place share a sidecar file") {
  for (const gtp::TopologyOptions& options : kTopologies) {
    const auto topology = gtp::make_topology(options);
    REQUIRE(topology);
    const gtp::Grid grid = gtp::dense_grid(*topology);
    std::set<std::tuple<std::int64_t, std::int64_t, std::string>> files;
    for (std::int64_t rank = 0; rank < topology->world_size; ++rank) {
      const auto at = *grid.coordinates(rank);
      const auto name = gtp::sidecar_file_name(*topology, rank);
      REQUIRE(name);
      files.emplace(at[gtp::axis_index(gtp::Axis::kTp)], at[gtp::axis_index(gtp::Axis::kPp)], *name);
    }
    CHECK(static_cast<std::int64_t>(files.size()) == topology->world_size);
    CHECK_FALSE(gtp::sidecar_file_name(*topology, topology->world_size));
  }
}

TEST_CASE("T30 the number of a sidecar counts the gtp axis") {
  const auto topology = gtp::make_topology({.world_size = 8, .tensor_parallel_num_weight_shards = 4});
  REQUIRE(topology);
  CHECK(gtp::sidecar_file_name(*topology, 0) == "layer_wise_optimizer_0.pt");
  CHECK(gtp::sidecar_file_name(*topology, 1) == "layer_wise_optimizer_1.pt");
  CHECK(gtp::sidecar_file_name(*topology, 7) == "layer_wise_optimizer_7.pt");
}
