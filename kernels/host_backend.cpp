#include "kernels/host_backend.hpp"

#include <fmt/format.h>

#include <exception>
#include <thread>

#include "kernels/host_device.hpp"
#include "kernels/host_kernels.hpp"

namespace gtp {

namespace {

using host::CollectiveCall;
using host::CollectiveKind;
using host::HostEvent;
using host::HostGraph;
using host::Membership;
using host::Op;
using host::VirtualStream;

VirtualStream& in(Stream stream) { return *static_cast<VirtualStream*>(stream.handle); }
HostEvent& in(Event event) { return *static_cast<HostEvent*>(event.handle); }
Membership& in(Communicator communicator) { return *static_cast<Membership*>(communicator.handle); }

Op kernel(std::string_view name, OpLabel label, std::span<const Access> accesses, std::function<void()> body) {
  Op op;
  op.name = name;
  op.label = label;
  op.accesses.assign(accesses.begin(), accesses.end());
  op.body = std::move(body);
  return op;
}

CollectiveCall call(CollectiveKind kind, std::span<const CollectivePart> parts, ElementType type) {
  return {kind, type, {parts.begin(), parts.end()}};
}

RankOutcome run_rank(HostBackend& backend, const std::function<void(std::int64_t, HostBackend&)>& function) {
  RankOutcome outcome;
  try {
    function(backend.rank(), backend);
    return outcome;
  } catch (const RuntimeError& error) {
    outcome.status = error.status();
    outcome.text = error.text();
  } catch (const std::exception& error) {
    outcome.status = RuntimeStatus::kInvalidUse;
    outcome.text = error.what();
  } catch (...) {
    outcome.status = RuntimeStatus::kInvalidUse;
    outcome.text = "an exception of an unknown type";
  }
  outcome.threw = true;
  backend.abort(outcome.text);
  return outcome;
}

}  // namespace

HostWorld::HostWorld(HostWorldOptions options) : world_(std::make_unique<host::World>(options)) {
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
    backends_.push_back(std::make_unique<HostBackend>(*world_, rank));
  }
}

HostWorld::~HostWorld() = default;

std::vector<RankOutcome> HostWorld::run(const std::function<void(std::int64_t, HostBackend&)>& function) {
  std::vector<RankOutcome> outcomes(backends_.size());
  std::vector<std::thread> threads;
  world_->begin_run();
  for (std::size_t rank = 0; rank < backends_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      outcomes[rank] = run_rank(*backends_[rank], function);
      outcomes[rank].killed = world_->rank(static_cast<std::int64_t>(rank)).killed;
      world_->end_rank(static_cast<std::int64_t>(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::optional<std::string> left = world_->drain();
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const BackendFailure* failure = backends_[rank]->failure();
    if (!outcomes[rank].ok() || (!left && failure == nullptr)) continue;
    outcomes[rank].threw = true;
    outcomes[rank].status = failure != nullptr ? failure->status : RuntimeStatus::kTimeout;
    outcomes[rank].text = failure != nullptr ? failure->text : *left;
  }
  if (backends_.size() == 1) world_->begin_run();
  return outcomes;
}

HostBackend& HostWorld::backend(std::int64_t rank) { return *backends_[static_cast<std::size_t>(rank)]; }
std::size_t HostWorld::inject(Injection injection) { return world_->inject(std::move(injection)); }
InjectionReport HostWorld::report(std::size_t injection) const { return world_->report(injection); }
std::uint64_t HostWorld::executed() const noexcept { return world_->steps(); }

std::int64_t HostWorld::live_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (std::size_t rank = 0; rank < backends_.size(); ++rank) {
    bytes += world_->rank(static_cast<std::int64_t>(rank)).live_bytes.load(std::memory_order_relaxed);
  }
  return bytes;
}

HostBackend::HostBackend(host::World& world, std::int64_t rank)
    : world_(world), device_(std::make_unique<host::Device>(world, rank)) {}
HostBackend::~HostBackend() = default;

std::int64_t HostBackend::rank() const noexcept { return device_->rank(); }

void HostBackend::enqueue(Stream stream, OpLabel label, std::initializer_list<Access> accesses,
                          std::function<void()> body) {
  enqueue(stream, label, std::span<const Access>(accesses.begin(), accesses.size()), std::move(body));
}

void HostBackend::enqueue(Stream stream, OpLabel label, std::span<const Access> accesses, std::function<void()> body) {
  device_->push(in(stream), kernel(host_op::kKernel, label, accesses, std::move(body)));
}

void HostBackend::barrier() {
  world_.block(device_->rank(), {host::Until::Kind::kBarrier, nullptr}, std::chrono::hours(1));
}

Stream HostBackend::create_stream(std::string_view name, StreamPriority) {
  world_.enter(device_->rank());
  return {&world_.make_stream(device_->rank(), std::string(name))};
}
void HostBackend::destroy_stream(Stream) noexcept {}  // its operations and clock are still referred to

Event HostBackend::create_event(EventKind kind) { return {new HostEvent{kind, nullptr, 0, 0, false}}; }
void HostBackend::destroy_event(Event event) noexcept { delete static_cast<HostEvent*>(event.handle); }
void HostBackend::record(Event event, Stream stream) { device_->record(in(event), in(stream)); }
void HostBackend::wait(Stream stream, Event event) { device_->wait(in(stream), in(event)); }

void* HostBackend::allocate(std::size_t bytes, MemoryKind) { return device_->allocate(bytes); }
void HostBackend::deallocate(void* data, std::size_t bytes, MemoryKind) noexcept { device_->deallocate(data, bytes); }

Communicator HostBackend::create_communicator(const CommunicatorSpec& spec) {
  world_.enter(device_->rank());
  return {new Membership{world_.join_communicator(spec), static_cast<std::size_t>(spec.position)}};
}
void HostBackend::destroy_communicator(Communicator communicator) noexcept {
  delete static_cast<Membership*>(communicator.handle);
}

void* HostBackend::register_window(Communicator communicator, void* data, std::size_t bytes) {
  world_.enter(device_->rank());
  if (device_->is_capturing())
    throw RuntimeError(RuntimeStatus::kCaptureFailed, "a window was registered in a capture");
  Membership& membership = in(communicator);
  membership.communicator->windows[membership.position].emplace_back(static_cast<const char*>(data), bytes);
  return data;
}
void HostBackend::deregister_window(Communicator communicator, void* window) noexcept {
  Membership& membership = in(communicator);
  std::erase_if(membership.communicator->windows[membership.position],
                [&](const auto& entry) { return entry.first == window; });
}

void HostBackend::all_gather(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  device_->collective(call(CollectiveKind::kAllGather, parts, type), in(communicator), in(stream), label);
}
void HostBackend::reduce_scatter(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                                 Stream stream, OpLabel label) {
  device_->collective(call(CollectiveKind::kReduceScatter, parts, type), in(communicator), in(stream), label);
}
void HostBackend::all_to_all(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  device_->collective(call(CollectiveKind::kAllToAll, parts, type), in(communicator), in(stream), label);
}
void HostBackend::all_reduce(std::span<const CollectivePart> parts, ElementType type, Communicator communicator,
                             Stream stream, OpLabel label) {
  device_->collective(call(CollectiveKind::kAllReduce, parts, type), in(communicator), in(stream), label);
}

void HostBackend::fill(void* data, std::uint8_t byte, std::size_t bytes, Stream stream, OpLabel label) {
  const Access touched[] = {{data, bytes, true}};
  device_->push(in(stream), kernel(host_op::kFill, label, touched,
                                   [=] { std::fill_n(static_cast<std::uint8_t*>(data), bytes, byte); }));
}

void HostBackend::copy(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                       std::size_t count, Stream stream, OpLabel label) {
  const Access touched[] = {{source, count * element_bytes(source_type), false},
                            {destination, count * element_bytes(destination_type), true}};
  device_->push(in(stream), kernel(host_op::kCopy, label, touched, [=] {
                  for (std::size_t i = 0; i < count; ++i) {
                    host::store(destination, destination_type, i, host::load(source, source_type, i));
                  }
                }));
}

void HostBackend::scale(void* data, ElementType type, std::size_t count, float factor, Stream stream, OpLabel label) {
  const Access touched[] = {{data, count * element_bytes(type), false}, {data, count * element_bytes(type), true}};
  device_->push(in(stream), kernel(host_op::kScale, label, touched, [=] {
                  for (std::size_t i = 0; i < count; ++i) {
                    host::store(data, type, i, host::load(data, type, i) * factor);
                  }
                }));
}

void HostBackend::add_into(void* destination, ElementType destination_type, const void* source, ElementType source_type,
                           std::size_t count, float factor, Stream stream, OpLabel label) {
  const std::size_t destination_bytes = count * element_bytes(destination_type);
  const Access touched[] = {{source, count * element_bytes(source_type), false},
                            {destination, destination_bytes, false},
                            {destination, destination_bytes, true}};
  device_->push(in(stream), kernel(host_op::kAdd, label, touched, [=] {
                  for (std::size_t i = 0; i < count; ++i) {
                    const float sum =
                        host::load(destination, destination_type, i) + factor * host::load(source, source_type, i);
                    host::store(destination, destination_type, i, sum);
                  }
                }));
}

void HostBackend::sum_chunks_into(void* destination, ElementType destination_type, const void* source,
                                  ElementType source_type, std::size_t count, std::size_t chunks, float factor,
                                  Stream stream, OpLabel label) {
  const std::size_t destination_bytes = count * element_bytes(destination_type);
  const Access touched[] = {{source, chunks * count * element_bytes(source_type), false},
                            {destination, destination_bytes, false},
                            {destination, destination_bytes, true}};
  device_->push(in(stream), kernel(host_op::kSumChunks, label, touched, [=] {
                  for (std::size_t i = 0; i < count; ++i) {
                    float sum = host::load(source, source_type, i);
                    for (std::size_t c = 1; c < chunks; ++c) sum += host::load(source, source_type, c * count + i);
                    sum = host::load(destination, destination_type, i) + factor * sum;
                    host::store(destination, destination_type, i, sum);
                  }
                }));
}

void HostBackend::host_function(void (*function)(void*), void* argument, Stream stream, OpLabel label) {
  device_->push(in(stream), kernel(host_op::kHostFunction, label, {}, [=] { function(argument); }));
}

void HostBackend::begin_capture(Stream stream) { device_->begin_capture(in(stream)); }
Graph HostBackend::end_capture(Stream stream) { return {device_->end_capture(in(stream)).release()}; }
void HostBackend::abort_capture() noexcept { device_->abort_capture(); }
void HostBackend::launch(Graph graph, Stream stream) {
  device_->launch(*static_cast<HostGraph*>(graph.handle), in(stream));
}
void HostBackend::destroy_graph(Graph graph) noexcept { delete static_cast<HostGraph*>(graph.handle); }

const BackendFailure* HostBackend::failure() const noexcept {
  return world_.rank(device_->rank()).failure.load(std::memory_order_acquire);
}

void HostBackend::synchronize(Stream stream, std::chrono::milliseconds limit) {
  device_->synchronize({host::Until::Kind::kDrained, &in(stream)}, limit);
}

bool HostBackend::synchronize_all(std::chrono::milliseconds limit) noexcept {
  try {
    device_->synchronize({host::Until::Kind::kAllDrained, nullptr}, limit);
    return true;
  } catch (...) {  // the failure stays to be polled
    return false;
  }
}

void HostBackend::abort(std::string_view reason) noexcept {
  if (failure() == nullptr) world_.fail(device_->rank(), RuntimeStatus::kAborted, std::string(reason));
}

void HostBackend::set_trace(TraceSink* sink) { world_.set_trace(sink); }

}  // namespace gtp
