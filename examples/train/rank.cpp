#include "rank.hpp"

namespace gtp::train {

namespace {

constexpr std::chrono::milliseconds kDrainLimit{60000};

Groups make_groups(Backend& backend, const Topology& topology, std::int64_t rank) {
  const auto group = [&](std::string_view family) { return Group(backend, group_of_plan(topology, family, rank)); };
  return {group("tp"),          group("dp_cp"), group("ep_dp"), group("ep"), group("mp"), group("tp_ep_gtp_remat_pp"),
          group("gtp_remat_dp")};
}

}  // namespace

Rank::Rank(const RankBackend& transport, const Topology& topology, RuntimeOptions options)
    : backend_(transport.backend),
      arithmetic_(transport.arithmetic),
      topology_(topology),
      index_(transport.rank),
      compute_(backend_.create_stream("compute", StreamPriority::kNormal)),
      groups_(make_groups(backend_, topology_, index_)),
      gtp_(std::make_unique<Runtime>(backend_, topology_, index_, options)) {}

Rank::~Rank() {
  gtp_.reset();
  drain();
  for (const Block& block : blocks_) backend_.deallocate(block.data, block.bytes, MemoryKind::kPlain);
  backend_.destroy_stream(compute_);
}

void Rank::drain() noexcept {
  if (!backend_.synchronize_all(kDrainLimit)) backend_.abort("the rank ended before its work");
}

void* Rank::allocate(std::size_t bytes) {
  void* data = backend_.allocate(bytes, MemoryKind::kPlain);
  if (data == nullptr) throw RuntimeError(RuntimeStatus::kOutOfMemory, "no memory is left for the model");
  blocks_.push_back({data, bytes});
  return data;
}

void Rank::all_reduce(const Group& group, Floats values, OpLabel label, std::int64_t& calls) {
  if (group.size() == 1) return;
  const CollectivePart part{values.data(), values.data(), values.size()};
  backend_.all_reduce({&part, 1}, ElementType::kFloat32, group.reduce_comm(), compute_, label);
  ++calls;
}

void Rank::all_gather(const Group& group, std::span<std::byte> gathered, std::span<const std::byte> sent, OpLabel label,
                      std::int64_t& calls) {
  const CollectivePart part{sent.data(), gathered.data(), sent.size()};
  backend_.all_gather({&part, 1}, ElementType::kByte, group.gather_comm(), compute_, label);
  ++calls;
}

void Rank::all_to_all(const Group& group, Floats received, ConstFloats sent, OpLabel label, std::int64_t& calls) {
  const CollectivePart part{sent.data(), received.data(), sent.size() / static_cast<std::size_t>(group.size())};
  backend_.all_to_all({&part, 1}, ElementType::kFloat32, group.gather_comm(), compute_, label);
  ++calls;
}

}  // namespace gtp::train
