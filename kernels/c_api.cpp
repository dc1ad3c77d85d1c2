// The only file with extern "C" functions of include/gtp/runtime.h. Every body is one guard(lambda): arguments are
// checked, the C++ runtime is called, and whatever is thrown becomes a status.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/c_guard.hpp"
#include "kernels/c_handles.hpp"
#include "kernels/c_options.hpp"

namespace {

using gtp::RuntimeError;
using gtp::RuntimeStatus;
using gtp::capi::guard;
using gtp::capi::HandleKind;
using gtp::capi::handles;
using gtp::capi::InvalidArgument;
using gtp::capi::RankPhase;
using gtp::capi::refuse_use;
using gtp::capi::require;
using gtp::capi::require_pointer;
using gtp::capi::require_size;

constexpr std::size_t kErrorBytes = 1024;
thread_local char last_error[kErrorBytes] = "";

gtp_host_world& require(gtp_host_world* handle) { return require(handle, HandleKind::kWorld); }
gtp_backend& require(gtp_backend* handle) { return require(handle, HandleKind::kBackend); }
gtp_stream& require(gtp_stream* handle) { return require(handle, HandleKind::kStream); }
gtp_runtime& require(gtp_runtime* handle) { return require(handle, HandleKind::kRuntime); }
gtp_weight& require(gtp_weight* handle) { return require(handle, HandleKind::kWeight); }
gtp_graph& require(gtp_graph* handle) { return require(handle, HandleKind::kGraph); }

/// A stream that this runtime can enqueue on.
gtp::Stream stream_for(const gtp_runtime& runtime, gtp_stream* handle) {
  const gtp_stream& stream = require(handle);
  if (stream.backend != runtime.backend) throw InvalidArgument("the gtp_stream belongs to another rank");
  return stream.stream;
}

std::vector<gtp::ShardedWeight*> weights_of_one_runtime(gtp_weight* const* list, std::size_t count) {
  if (count == 0) throw InvalidArgument("the list of weights is empty");
  require_pointer(list, "the list of weights");
  std::vector<gtp::ShardedWeight*> weights;
  const gtp_runtime* owner = require(list[0]).owner;
  for (std::size_t index = 0; index < count; ++index) {
    const gtp_weight& weight = require(list[index]);
    if (weight.owner != owner) refuse_use(fmt::format("`{}` belongs to another runtime", weight.weight->name()));
    weights.push_back(weight.weight);
  }
  return weights;
}

template <class View>
void require_views(const gtp_weight& weight, const View* views, std::size_t count, std::string_view type) {
  require_pointer(views, "views");
  if (count != weight.weight->shard_count()) {
    throw InvalidArgument(fmt::format("`{}` has {} shards, but there is room for {} views", weight.weight->name(),
                                      weight.weight->shard_count(), count));
  }
  for (std::size_t index = 0; index < count; ++index) require_size(views[index], type);
}

void require_all_finished(const gtp_host_world& world) {
  for (const auto& each : world.backends) {
    const gtp_backend* backend = &each->handle;
    if (backend->phase.load() == RankPhase::kBegun) {
      refuse_use(fmt::format("rank {} began and has not finished", backend->rank));
    }
  }
}

void forget(gtp_runtime& runtime) noexcept {
  for (const auto& weight : runtime.weights) handles().remove(weight.get());
  for (const auto& graph : runtime.graphs) handles().remove(graph.get());
  handles().remove(&runtime);
}

/// What only ranks of a host world can do.
gtp::HostBackend& host_of(gtp_backend& backend) {
  if (backend.host == nullptr) refuse_use("this gtp_backend is not a rank of a gtp_host_world");
  return *backend.host;
}

}  // namespace

void gtp::capi::set_last_error(std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), kErrorBytes - 1);
  if (length > 0) std::memcpy(last_error, text.data(), length);
  last_error[length] = '\0';
}

extern "C" {

const char* gtp_last_error(void) { return last_error; }

const char* gtp_status_name(gtp_status status) {
  constexpr const char* kNames[] = {"GTP_OK",
                                    "GTP_INVALID_ARGUMENT",
                                    "GTP_INVALID_PLAN",
                                    "GTP_INVALID_USE",
                                    "GTP_OUT_OF_MEMORY",
                                    "GTP_COLLECTIVE_FAILED",
                                    "GTP_TIMEOUT",
                                    "GTP_ABORTED",
                                    "GTP_CAPTURE_FAILED",
                                    "GTP_INTERNAL_ERROR"};
  return status >= 0 && status <= GTP_INTERNAL_ERROR ? kNames[status] : "unknown status";
}

gtp_status gtp_host_world_create(const gtp_host_world_options* options, gtp_host_world** out) {
  return guard([&] {
    require_pointer(out, "out");
    auto world = std::make_unique<gtp_host_world>(gtp::capi::world_options(options));
    world->traced = options->trace != 0;
    if (world->traced) world->world.set_trace(&world->trace);
    world->world.begin_run();
    handles().add(world.get(), HandleKind::kWorld);
    *out = world.release();
  });
}

gtp_status gtp_host_world_destroy(gtp_host_world* handle) {
  return guard([&] {
    gtp_host_world& world = require(handle);
    require_all_finished(world);
    const std::optional<std::string> left = world.world.drain();
    handles().remove(handle);
    delete handle;
    if (left) throw RuntimeError(RuntimeStatus::kTimeout, *left);
  });
}

gtp_status gtp_host_world_write_trace(gtp_host_world* handle, void (*sink)(void* user, const char* text, size_t length),
                                      void* user) {
  return guard([&] {
    gtp_host_world& world = require(handle);
    if (sink == nullptr) throw InvalidArgument("sink is NULL");
    if (!world.traced) refuse_use("the world was created without `trace`");
    require_all_finished(world);
    world.trace.write([&](std::string_view text) { sink(user, text.data(), text.size()); });
  });
}

gtp_status gtp_backend_begin(gtp_host_world* handle, int64_t rank, gtp_backend** out) {
  return guard([&] {
    gtp_host_world& world = require(handle);
    require_pointer(out, "out");
    const auto ranks = static_cast<std::int64_t>(world.backends.size());
    if (rank < 0 || rank >= ranks) {
      throw InvalidArgument(fmt::format("rank {} is outside the world of {} ranks", rank, ranks));
    }
    gtp_backend& backend = world.backends[static_cast<std::size_t>(rank)]->handle;
    RankPhase expected = RankPhase::kNew;
    if (!backend.phase.compare_exchange_strong(expected, RankPhase::kBegun)) {
      refuse_use(fmt::format("rank {} has begun before", rank));
    }
    handles().add(&backend, HandleKind::kBackend);
    *out = &backend;
  });
}

gtp_status gtp_backend_finish(gtp_backend* handle) {
  return guard([&] {
    gtp_backend& backend = require(handle);
    host_of(backend);
    backend.forget();
    backend.world->end_rank(backend.rank);
    backend.phase.store(RankPhase::kFinished);
  });
}

gtp_status gtp_backend_abort(gtp_backend* handle, const char* reason) {
  return guard([&] { require(handle).device.abort(gtp::capi::text_of(reason, "reason")); });
}

gtp_status gtp_stream_create(gtp_backend* handle, const char* name, gtp_stream** out) {
  return guard([&] {
    gtp_backend& backend = require(handle);
    require_pointer(out, "out");
    *out =
        backend.handle_of(backend.device.create_stream(gtp::capi::text_of(name, "name"), gtp::StreamPriority::kNormal));
  });
}

gtp_status gtp_stream_synchronize(gtp_stream* handle, int64_t limit_ms) {
  return guard([&] {
    const gtp_stream& stream = require(handle);
    stream.backend->device.synchronize(stream.stream, gtp::capi::milliseconds(limit_ms, "limit_ms", 0));
  });
}

gtp_status gtp_host_launch(gtp_stream* handle, const char* name, const gtp_access* accesses, size_t access_count,
                           void (*body)(void* argument), void* argument) {
  return guard([&] {
    const gtp_stream& stream = require(handle);
    if (body == nullptr) throw InvalidArgument("body is NULL");
    if (access_count > 0) require_pointer(accesses, "accesses");
    std::vector<gtp::Access> touched;
    for (std::size_t index = 0; index < access_count; ++index) {
      touched.push_back({accesses[index].data, accesses[index].bytes, accesses[index].write != 0});
    }
    const std::string& kept = *stream.backend->names.emplace(gtp::capi::text_of(name, "name")).first;
    host_of(*stream.backend)
        .enqueue(stream.stream, {kept, ""}, std::span<const gtp::Access>(touched),
                 [body, argument] { body(argument); });
  });
}

gtp_status gtp_runtime_create(gtp_backend* handle, const gtp_runtime_options* options, gtp_runtime** out) {
  return guard([&] {
    gtp_backend& backend = require(handle);
    require_pointer(out, "out");
    const gtp_runtime_options& given = require_size(options, "gtp_runtime_options");
    auto runtime = std::make_unique<gtp_runtime>();
    runtime->backend = &backend;
    const gtp::Topology topology = gtp::require_topology(gtp::capi::topology_options(given, backend.world_size));
    runtime->runtime = std::make_unique<gtp::Runtime>(
        backend.device, topology, backend.rank, gtp::capi::runtime_options(given), gtp::capi::memory_callbacks(given));
    handles().add(runtime.get(), HandleKind::kRuntime);
    ++backend.runtimes;
    *out = runtime.release();
  });
}

gtp_status gtp_runtime_destroy(gtp_runtime* handle) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    --runtime.backend->runtimes;
    forget(runtime);
    delete handle;
  });
}

gtp_status gtp_add_ready_bucket(gtp_runtime* handle, void (*param_ready)(void* user, gtp_stream* stream), void* user,
                                uint32_t* bucket) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    if (param_ready == nullptr) throw InvalidArgument("param_ready is NULL");
    require_pointer(bucket, "bucket");
    gtp_backend* backend = runtime.backend;
    *bucket = static_cast<uint32_t>(
        runtime.runtime->add_ready_bucket([=](gtp::Stream stream) { param_ready(user, backend->handle_of(stream)); }));
  });
}

gtp_status gtp_layout_of(gtp_runtime* handle, const gtp_weight_options* options, gtp_weight_layout* out) {
  return guard([&] {
    const gtp_runtime& runtime = require(handle);
    const gtp_weight_options& given = require_size(options, "gtp_weight_options");
    require_size(out, "gtp_weight_layout");
    const gtp::Group& group = runtime.runtime->group(gtp::capi::domain(given.domain));
    gtp::capi::write(*out, gtp::capi::layout(given, group), group);
  });
}

gtp_status gtp_add_weight(gtp_runtime* handle, const gtp_weight_options* options, gtp_weight** out) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    const gtp_weight_options& given = require_size(options, "gtp_weight_options");
    require_pointer(out, "out");
    auto made = std::make_unique<gtp_weight>();
    made->owner = &runtime;
    gtp::WeightSpec spec = gtp::capi::weight_spec(given, runtime.runtime->group(gtp::capi::domain(given.domain)));
    if (given.grad_ready != nullptr) {
      const auto grad_ready = given.grad_ready;
      void* const user = given.grad_ready_user;
      spec.grad_ready = [grad_ready, user, self = made.get()](gtp::ShardedWeight&, gtp::Stream stream) {
        grad_ready(user, self, self->owner->backend->handle_of(stream));
      };
    }
    gtp_weight& kept = *runtime.weights.emplace_back(std::move(made));
    try {
      kept.weight = &runtime.runtime->add_weight(std::move(spec));
      handles().add(&kept, HandleKind::kWeight);
    } catch (...) {
      runtime.weights.pop_back();
      throw;
    }
    *out = &kept;
  });
}

gtp_status gtp_add_replicated(gtp_runtime* handle, const char* name, gtp_domain domain, void* main_grad,
                              gtp_type main_grad_type, size_t count) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    require_pointer(main_grad, "main_grad");
    runtime.runtime->add_replicated(
        {std::string(gtp::capi::text_of(name, "name")), gtp::capi::domain(domain), main_grad,
         gtp::capi::gradient_type(main_grad_type).value_or(gtp::ElementType::kFloat32), count});
  });
}

gtp_status gtp_declare_chain(gtp_weight* const* order, size_t count, int32_t recompute) {
  return guard([&] {
    const std::vector<gtp::ShardedWeight*> weights = weights_of_one_runtime(order, count);
    order[0]->owner->runtime->declare_chain(weights, recompute != 0);
  });
}

gtp_status gtp_seal_chains(gtp_runtime* handle) {
  return guard([&] { require(handle).runtime->seal_chains(); });
}

gtp_status gtp_materialize(gtp_weight* handle, gtp_use use, gtp_stream* compute, gtp_gathered_view* views,
                           size_t view_count) {
  return guard([&] {
    const gtp_weight& weight = require(handle);
    const gtp::Stream stream = stream_for(*weight.owner, compute);
    require_views(weight, views, view_count, "gtp_gathered_view");
    for (const gtp::GatheredView& view :
         weight.owner->runtime->materialize(*weight.weight, gtp::capi::use(use), stream)) {
      gtp::capi::write(*views++, view);
    }
  });
}

gtp_status gtp_hold(gtp_weight* handle, gtp_use use) {
  return guard([&] {
    const gtp_weight& weight = require(handle);
    weight.owner->runtime->hold(*weight.weight, gtp::capi::use(use));
  });
}

gtp_status gtp_release(gtp_weight* handle, gtp_use use, gtp_stream* compute) {
  return guard([&] {
    const gtp_weight& weight = require(handle);
    const gtp::Stream stream = stream_for(*weight.owner, compute);
    weight.owner->runtime->release(*weight.weight, gtp::capi::use(use), stream);
  });
}

gtp_status gtp_grad_buffer(gtp_weight* handle, gtp_stream* compute, gtp_wgrad_view* views, size_t view_count) {
  return guard([&] {
    const gtp_weight& weight = require(handle);
    const gtp::Stream stream = stream_for(*weight.owner, compute);
    require_views(weight, views, view_count, "gtp_wgrad_view");
    for (const gtp::WgradView& view : weight.owner->runtime->grad_buffer(*weight.weight, stream)) {
      gtp::capi::write(*views++, view);
    }
  });
}

gtp_status gtp_reduce_grad(gtp_weight* handle, gtp_stream* compute) {
  return guard([&] {
    const gtp_weight& weight = require(handle);
    weight.owner->runtime->reduce_grad(*weight.weight, stream_for(*weight.owner, compute));
  });
}

gtp_status gtp_fence_grads(gtp_runtime* handle, gtp_stream* stream) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    runtime.runtime->fence_grads(stream_for(runtime, stream));
  });
}

gtp_status gtp_reduce_replicated_grads(gtp_runtime* handle, gtp_stream* stream) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    runtime.runtime->reduce_replicated_grads(stream_for(runtime, stream));
  });
}

gtp_status gtp_gradient_scaling_factor(gtp_runtime* handle, gtp_domain domain, float* factor) {
  return guard([&] {
    const gtp_runtime& runtime = require(handle);
    require_pointer(factor, "factor");
    *factor = runtime.runtime->gradient_scaling_factor(gtp::capi::domain(domain));
  });
}

gtp_status gtp_publish(gtp_weight* const* list, size_t count, gtp_stream* stream) {
  return guard([&] {
    const std::vector<gtp::ShardedWeight*> weights = weights_of_one_runtime(list, count);
    const gtp_runtime& runtime = *list[0]->owner;
    runtime.runtime->publish(weights, stream_for(runtime, stream));
  });
}

gtp_status gtp_begin_warmup(gtp_runtime* handle, gtp_stream* stream) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    runtime.runtime->begin_warmup(stream_for(runtime, stream));
  });
}

gtp_status gtp_end_warmup(gtp_runtime* handle, gtp_stream* stream) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    runtime.runtime->end_warmup(stream_for(runtime, stream));
  });
}

gtp_status gtp_begin_capture(gtp_runtime* handle, const char* name, gtp_stream* stream, gtp_graph** out) {
  return guard([&] {
    gtp_runtime& runtime = require(handle);
    require_pointer(out, "out");
    const gtp::Stream origin = stream_for(runtime, stream);
    gtp_graph& graph = *runtime.graphs.emplace_back(new gtp_graph{&runtime, nullptr});
    try {
      handles().add(&graph, HandleKind::kGraph);
      graph.scope = &runtime.runtime->begin_capture(std::string(gtp::capi::text_of(name, "name")), origin);
    } catch (...) {
      handles().remove(&graph);
      runtime.graphs.pop_back();
      throw;
    }
    *out = &graph;
  });
}

gtp_status gtp_end_capture(gtp_graph* handle) {
  return guard([&] {
    const gtp_graph& graph = require(handle);
    graph.owner->runtime->end_capture(*graph.scope);
  });
}

gtp_status gtp_abort_capture(gtp_graph* handle) {
  return guard([&] {
    const gtp_graph& graph = require(handle);
    graph.owner->runtime->abort_capture(*graph.scope);
  });
}

gtp_status gtp_replay(gtp_graph* handle, gtp_stream* stream) {
  return guard([&] {
    const gtp_graph& graph = require(handle);
    graph.owner->runtime->replay(*graph.scope, stream_for(*graph.owner, stream));
  });
}

gtp_status gtp_get_counters(gtp_runtime* handle, gtp_counters* out) {
  return guard([&] {
    const gtp_runtime& runtime = require(handle);
    require_size(out, "gtp_counters");
    gtp::capi::write(*out, runtime.runtime->counters());
  });
}

}  // extern "C"
