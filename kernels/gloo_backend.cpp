#include "kernels/gloo_backend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "kernels/gloo_world.hpp"
#include "kernels/host_kernels.hpp"
#include "kernels/stream_workers.hpp"

namespace gtp {

namespace {

using host::CollectiveKind;
using host::HostEvent;
using host::HostGraph;
using host::Op;
using host::VirtualStream;

constexpr std::align_val_t kAlignment{256};
/// How long the store may take to notice that a peer's connection broke.
constexpr std::chrono::milliseconds kWhyLimit{1500};

/// What a Communicator points at.
struct Membership {
  std::shared_ptr<host::HostCommunicator> order;
  std::shared_ptr<detail::GlooGroup> group;
};

VirtualStream& in(Stream stream) { return *static_cast<VirtualStream*>(stream.handle); }
HostEvent& in(Event event) { return *static_cast<HostEvent*>(event.handle); }
Membership& in(Communicator communicator) { return *static_cast<Membership*>(communicator.handle); }

Op kernel(std::string_view name, OpLabel label, std::function<void()> body) {
  Op op;
  op.name = name;
  op.label = label;
  op.body = std::move(body);
  return op;
}

}  // namespace

struct GlooBackend::Impl {
  explicit Impl(GlooWorld::Impl& of) : world(of), workers(of.config.rank) {}

  void collective(CollectiveKind kind, std::span<const CollectivePart> parts, ElementType type,
                  Communicator communicator, Stream stream, OpLabel label);
  /// On a stream's thread.
  void run(const host::CollectiveCall& call, const Membership& membership, OpLabel label);
  [[noreturn]] void give_up(std::string what, RuntimeStatus status, std::string_view why);
  void close_groups() noexcept;

  GlooWorld::Impl& world;
  std::map<std::string, std::uint64_t> instances;
  std::uint64_t barriers = 0;
  std::mutex mutex;  ///< Of `groups`, which a failing thread walks.
  std::vector<std::weak_ptr<detail::GlooGroup>> groups;
  StreamWorkers workers;  ///< Last: its threads use the rest.
};

void GlooBackend::Impl::collective(CollectiveKind kind, std::span<const CollectivePart> parts, ElementType type,
                                   Communicator communicator, Stream stream, OpLabel label) {
  const Membership& membership = in(communicator);
  Op op = kernel(host::collective_name(kind), label,
                 [this, membership, label, call = host::CollectiveCall{kind, type, {parts.begin(), parts.end()}}] {
                   run(call, membership, label);
                 });
  op.type = host::OpType::kCollective;
  op.communicator = membership.order;
  workers.push(in(stream), std::move(op));
}

void GlooBackend::Impl::run(const host::CollectiveCall& call, const Membership& membership, OpLabel label) {
  const auto describe = [&] {
    return fmt::format("rank {}: {} of `{}` over group {} (ranks {})", world.config.rank,
                       host::collective_name(call.kind), label.weight, membership.order->group,
                       fmt::join(membership.order->ranks, ","));
  };
  try {
    membership.group->run(call, label.weight);
  } catch (const RuntimeError& error) {
    give_up(describe(), error.status(), error.text());
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    if (const std::optional<std::string> why = world.store->why(kWhyLimit)) {
      give_up(describe(), RuntimeStatus::kAborted, *why);
    }
    if (text.find("Timed out") != std::string_view::npos) {
      give_up(describe(), RuntimeStatus::kTimeout,
              fmt::format("a peer did not answer within {} ms", world.config.time_limit.count()));
    }
    give_up(describe(), RuntimeStatus::kCollectiveFailed, text);
  }
}

void GlooBackend::Impl::give_up(std::string what, RuntimeStatus status, std::string_view why) {
  const std::string text = fmt::format("{}: {}", what, why);
  workers.fail({status, text});
  world.store->report_failure(text);
  close_groups();
  throw RuntimeError(status, text);
}

void GlooBackend::Impl::close_groups() noexcept {
  const std::scoped_lock lock(mutex);
  for (const auto& each : groups) {
    if (const auto group = each.lock()) group->close();
  }
}

GlooBackend::GlooBackend(GlooWorld::Impl& world) : impl_(std::make_unique<Impl>(world)) {}

GlooBackend::~GlooBackend() {
  if (!synchronize_all(impl_->world.config.time_limit)) abort("it left with work under way");
}

std::int64_t GlooBackend::rank() const noexcept { return impl_->world.config.rank; }

void GlooBackend::enqueue(Stream stream, OpLabel label, std::initializer_list<Access>, std::function<void()> body) {
  impl_->workers.push(in(stream), kernel(host_op::kKernel, label, std::move(body)));
}
void GlooBackend::enqueue(Stream stream, OpLabel label, std::span<const Access>, std::function<void()> body) {
  impl_->workers.push(in(stream), kernel(host_op::kKernel, label, std::move(body)));
}

void GlooBackend::barrier() {
  impl_->workers.check();
  const GlooConfig& config = impl_->world.config;
  const std::string key = fmt::format("barrier/{}/", impl_->barriers++);
  impl_->world.store->set(key + std::to_string(config.rank), "");
  for (std::int64_t peer = 0; peer < config.world_size; ++peer) {
    impl_->world.store->get(key + std::to_string(peer), config.time_limit);
  }
}

Stream GlooBackend::create_stream(std::string_view name, StreamPriority) { return {&impl_->workers.make_stream(name)}; }
void GlooBackend::destroy_stream(Stream stream) noexcept { impl_->workers.destroy_stream(in(stream)); }

Event GlooBackend::create_event(EventKind kind) { return {new HostEvent{kind, nullptr, 0, 0, false}}; }
void GlooBackend::destroy_event(Event event) noexcept { delete static_cast<HostEvent*>(event.handle); }
void GlooBackend::record(Event event, Stream stream) { impl_->workers.record(in(event), in(stream)); }
void GlooBackend::wait(Stream stream, Event event) { impl_->workers.wait(in(stream), in(event)); }

void* GlooBackend::allocate(std::size_t bytes, MemoryKind) {
  impl_->workers.check();
  if (impl_->workers.is_capturing()) {
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "memory was asked for during capture");
  }
  return ::operator new(bytes, kAlignment, std::nothrow);
}
void GlooBackend::deallocate(void* data, std::size_t, MemoryKind) noexcept { ::operator delete(data, kAlignment); }

Communicator GlooBackend::create_communicator(const CommunicatorSpec& spec) {
  impl_->workers.check();
  GlooWorld::Impl& world = impl_->world;
  const std::string name = fmt::format("{} (ranks {})", spec.group, fmt::join(spec.ranks, ","));
  auto made = std::make_unique<Membership>();
  made->order = std::make_shared<host::HostCommunicator>();
  made->order->group = spec.group;
  made->order->ranks = spec.ranks;
  made->order->issued.assign(1, 0);
  const std::uint64_t instance = impl_->instances[name + (spec.purpose == CommunicatorPurpose::kGather ? "g" : "r")]++;
  try {
    made->group =
        std::make_shared<detail::GlooGroup>(spec, instance, *world.store, world.device, world.config.time_limit);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const RuntimeError*>(&error);
    throw RuntimeError(known != nullptr ? known->status() : RuntimeStatus::kCollectiveFailed,
                       fmt::format("rank {}: connecting group {}: {}", world.config.rank, name, error.what()));
  }
  const std::scoped_lock lock(impl_->mutex);
  std::erase_if(impl_->groups, [](const auto& each) { return each.expired(); });
  impl_->groups.push_back(made->group);
  return {made.release()};
}
void GlooBackend::destroy_communicator(Communicator communicator) noexcept { delete &in(communicator); }

void* GlooBackend::register_window(Communicator, void*, std::size_t) { return nullptr; }
void GlooBackend::deregister_window(Communicator, void*) noexcept {}

void GlooBackend::all_gather(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kAllGather, parts, type, communicator, stream, label);
}
void GlooBackend::reduce_scatter(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                                 Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kReduceScatter, parts, type, communicator, stream, label);
}
void GlooBackend::all_to_all(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kAllToAll, parts, type, communicator, stream, label);
}
void GlooBackend::all_reduce(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  impl_->collective(CollectiveKind::kAllReduce, parts, type, communicator, stream, label);
}

void GlooBackend::fill(void* data, std::uint8_t byte, std::size_t bytes, Stream stream, OpLabel label) {
  impl_->workers.push(in(stream), kernel(host_op::kFill, label, [=] { std::memset(data, byte, bytes); }));
}

void GlooBackend::copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                       std::size_t count, Stream stream, OpLabel label) {
  impl_->workers.push(in(stream), kernel(host_op::kCopy, label, [=] {
                        for (std::size_t i = 0; i < count; ++i) {
                          host::store(destination, destination_type, i, host::load(source, source_type, i));
                        }
                      }));
}

void GlooBackend::scale(void* data, ElementType type, std::size_t count, float factor, Stream stream, OpLabel label) {
  impl_->workers.push(in(stream), kernel(host_op::kScale, label, [=] {
                        for (std::size_t i = 0; i < count; ++i) {
                          host::store(data, type, i, host::load(data, type, i) * factor);
                        }
                      }));
}

void GlooBackend::add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                           std::size_t count, float factor, Stream stream, OpLabel label) {
  sum_chunks_into(destination, destination_type, source, source_type, count, 1, factor, stream, label);
}

void GlooBackend::sum_chunks_into(void* destination, ElementType destination_type, const void* source,
                                  ElementType source_type, std::size_t count, std::size_t chunks, float factor,
                                  Stream stream, OpLabel label) {
  impl_->workers.push(in(stream), kernel(chunks == 1 ? host_op::kAdd : host_op::kSumChunks, label, [=] {
                        for (std::size_t i = 0; i < count; ++i) {
                          float sum = host::load(source, source_type, i);
                          for (std::size_t c = 1; c < chunks; ++c) {
                            sum += host::load(source, source_type, c * count + i);
                          }
                          sum = host::load(destination, destination_type, i) + factor * sum;
                          host::store(destination, destination_type, i, sum);
                        }
                      }));
}

void GlooBackend::host_function(void (*function)(void*), void* argument, Stream stream, OpLabel label) {
  impl_->workers.push(in(stream), kernel(host_op::kHostFunction, label, [=] { function(argument); }));
}

void GlooBackend::begin_capture(Stream stream) { impl_->workers.begin_capture(in(stream)); }
Graph GlooBackend::end_capture(Stream stream) { return {impl_->workers.end_capture(in(stream)).release()}; }
void GlooBackend::abort_capture() noexcept { impl_->workers.abort_capture(); }
void GlooBackend::launch(Graph graph, Stream stream) {
  impl_->workers.launch(*static_cast<HostGraph*>(graph.handle), in(stream));
}
void GlooBackend::destroy_graph(Graph graph) noexcept {
  impl_->workers.destroy_graph(std::unique_ptr<HostGraph>(static_cast<HostGraph*>(graph.handle)));
}

const BackendFailure* GlooBackend::failure() const noexcept { return impl_->workers.failure(); }

void GlooBackend::synchronize(Stream stream, std::chrono::milliseconds limit) {
  if (impl_->workers.drain(&in(stream), limit)) return;
  throw RuntimeError(RuntimeStatus::kTimeout, fmt::format("rank {}: stream {} was not done within {} ms", rank(),
                                                          in(stream).name, limit.count()));
}

bool GlooBackend::synchronize_all(std::chrono::milliseconds limit) noexcept {
  try {
    return impl_->workers.drain(nullptr, limit);
  } catch (...) {  // the failure stays to be polled
    return false;
  }
}

void GlooBackend::abort(std::string_view reason) noexcept {
  if (failure() != nullptr) return;
  try {
    const std::string text = fmt::format("rank {} gave up: {}", rank(), reason);
    impl_->workers.fail({RuntimeStatus::kAborted, text});
    impl_->world.store->report_failure(text);
  } catch (...) {  // peers will run into their time limit
  }
  impl_->close_groups();
}

void GlooBackend::set_trace(TraceSink* sink) { impl_->workers.set_trace(sink); }

}  // namespace gtp
