// Collectives between processes, against values that each rank computes itself.
#include <doctest/doctest.h>

#include <numeric>

#include "job.hpp"
#include "kernels/format/bf16.hpp"
#include "kernels/gloo_backend.hpp"

namespace gtp::test {

namespace {

constexpr std::chrono::milliseconds kLimit{20000};

/// Exact in bf16 and in sums of a few.
float value(std::int64_t rank, std::size_t index) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 7 + index * 3) % 16);
}

class Rank {
 public:
  Rank() : world(GlooWorld::from_environment(kLimit)), backend(world.backend()) {
    stream = backend.create_stream("compute", StreamPriority::kNormal);
  }
  ~Rank() {
    if (all.handle != nullptr) backend.destroy_communicator(all);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void join_all() {
    CommunicatorSpec spec{"everyone", std::vector<std::int64_t>(size()), world.rank(), CommunicatorPurpose::kGather};
    std::iota(spec.ranks.begin(), spec.ranks.end(), 0);
    all = backend.create_communicator(spec);
  }
  std::size_t size() const { return static_cast<std::size_t>(world.size()); }
  void finish() { backend.synchronize(stream, kLimit); }

  GlooWorld world;
  GlooBackend& backend;
  Stream stream{};
  Communicator all{};
};

std::vector<float> own_values(std::int64_t rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
  return values;
}

float sum(std::int64_t ranks, std::size_t index) {
  float total = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) total += value(rank, index);
  return total;
}

}  // namespace

TEST_CASE("child collectives" * doctest::skip()) {
  Rank self;
  self.join_all();
  const std::size_t n = self.size();
  const std::int64_t rank = self.world.rank();
  constexpr std::size_t kCount = 1000;

  std::vector<float> mine = own_values(rank, kCount * n);
  std::vector<float> gathered(kCount * n);
  std::vector<float> also(3 * n);
  const CollectivePart gathers[] = {{mine.data(), gathered.data(), kCount}, {mine.data() + 5, also.data(), 3}};
  self.backend.all_gather(gathers, ElementType::kFloat32, self.all, self.stream, {"w", ""});
  std::vector<float> scattered(kCount);
  const CollectivePart reduces[] = {{mine.data(), scattered.data(), kCount}};
  self.backend.reduce_scatter(reduces, ElementType::kFloat32, self.all, self.stream, {"w", ""});
  std::vector<float> exchanged(kCount * n);
  const CollectivePart exchanges[] = {{mine.data(), exchanged.data(), kCount}};
  self.backend.all_to_all(exchanges, ElementType::kFloat32, self.all, self.stream, {"w", ""});
  std::vector<float> reduced = mine;
  const CollectivePart in_place[] = {{reduced.data(), reduced.data(), kCount}};
  self.backend.all_reduce(in_place, ElementType::kFloat32, self.all, self.stream, {"norm", ""});
  self.finish();

  std::int64_t wrong = 0;
  for (std::size_t from = 0; from < n; ++from) {
    const auto peer = static_cast<std::int64_t>(from);
    for (std::size_t i = 0; i < kCount; ++i) {
      wrong += gathered[from * kCount + i] != value(peer, i);
      wrong += exchanged[from * kCount + i] != value(peer, static_cast<std::size_t>(rank) * kCount + i);
    }
    for (std::size_t i = 0; i < 3; ++i) wrong += also[from * 3 + i] != value(peer, 5 + i);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    wrong += scattered[i] != sum(self.world.size(), static_cast<std::size_t>(rank) * kCount + i);
    wrong += reduced[i] != sum(self.world.size(), i);
  }
  CHECK(wrong == 0);
}

TEST_CASE("child bf16 sums" * doctest::skip()) {
  Rank self;
  self.join_all();
  const std::size_t n = self.size();
  const std::uint16_t own = bits_of(to_bf16(self.world.rank() == 0 ? 256.0F : 1.0F));
  std::vector<std::uint16_t> mine(n, own);
  std::uint16_t scattered = 0;
  std::uint16_t reduced = 0;
  const CollectivePart scatter[] = {{mine.data(), &scattered, 1}};
  self.backend.reduce_scatter(scatter, ElementType::kBFloat16, self.all, self.stream, {"w", ""});
  const CollectivePart reduce[] = {{mine.data(), &reduced, 1}};
  self.backend.all_reduce(reduce, ElementType::kBFloat16, self.all, self.stream, {"w", ""});
  self.finish();
  const std::uint16_t expected = bits_of(to_bf16(256.0F + static_cast<float>(n - 1)));
  CHECK(scattered == expected);
  CHECK(reduced == expected);
}

TEST_CASE("child crossing groups" * doctest::skip()) {
  Rank self;
  // Two pairs, and two streams whose hosts enqueue the pairs' collectives in opposite order.
  const std::int64_t rank = self.world.rank();
  const std::vector<std::int64_t> pair = rank < 2 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{3, 2};
  const std::int64_t position = pair[0] == rank ? 0 : 1;
  const Communicator gather = self.backend.create_communicator({"pair", pair, position, CommunicatorPurpose::kGather});
  const Communicator reduce = self.backend.create_communicator({"pair", pair, position, CommunicatorPurpose::kReduce});
  const Stream side = self.backend.create_stream("side", StreamPriority::kHighest);
  std::vector<float> mine = own_values(rank, 2);
  std::vector<float> gathered(4);
  float scattered = 0;
  const CollectivePart gathers[] = {{mine.data(), gathered.data(), 2}};
  const CollectivePart reduces[] = {{mine.data(), &scattered, 1}};
  const auto issue_gather = [&] {
    self.backend.all_gather(gathers, ElementType::kFloat32, gather, self.stream, {"w", ""});
  };
  const auto issue_reduce = [&] {
    self.backend.reduce_scatter(reduces, ElementType::kFloat32, reduce, side, {"w", ""});
  };
  for (int turn = 0; turn < 20; ++turn) {
    if (position == 0) issue_gather();
    issue_reduce();
    if (position == 1) issue_gather();
  }
  self.finish();
  self.backend.synchronize(side, kLimit);
  CHECK(gathered[0] == value(pair[0], 0));
  CHECK(gathered[3] == value(pair[1], 1));
  CHECK(scattered ==
        value(pair[0], static_cast<std::size_t>(position)) + value(pair[1], static_cast<std::size_t>(position)));
  self.backend.barrier();
  self.backend.destroy_communicator(reduce);
  self.backend.destroy_communicator(gather);
}

TEST_CASE("collectives of 2 and of 4 processes move and add what each rank can compute alone") {
  CHECK(run_job("child collectives", 2) == "0 0");
  CHECK(run_job("child collectives", 4) == "0 0 0 0");
}

TEST_CASE("bf16 gradients are added in fp32 and rounded once") {
  CHECK(run_job("child bf16 sums", 2) == "0 0");
  CHECK(run_job("child bf16 sums", 4) == "0 0 0 0");
}

TEST_CASE("groups of some ranks, and two communicators in opposite order, do not deadlock") {
  CHECK(run_job("child crossing groups", 4) == "0 0 0 0");
}

}  // namespace gtp::test
