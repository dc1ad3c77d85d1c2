// The extern "C" functions of include/gtp/runtime_cuda.h, in the manner of kernels/c_api.cpp.
#include <nccl.h>

#include <cstring>

#include "gtp/runtime_cuda.h"
#include "kernels/c_guard.hpp"
#include "kernels/c_options.hpp"
#include "kernels/cuda/nccl_api.hpp"
#include "kernels/cuda/nccl_world.hpp"

struct gtp_cuda_world {
  explicit gtp_cuda_world(gtp::NcclWorld made) : world(std::move(made)) {}

  gtp::NcclWorld world;
  gtp_backend backend{world.backend(), world.rank(), world.size()};
};

namespace {

using gtp::capi::guard;
using gtp::capi::HandleKind;
using gtp::capi::handles;
using gtp::capi::InvalidArgument;
using gtp::capi::require;
using gtp::capi::require_pointer;
using gtp::capi::require_size;

static_assert(sizeof(gtp_cuda_id) == sizeof(ncclUniqueId));

gtp_cuda_world& require(gtp_cuda_world* handle) { return require(handle, HandleKind::kCudaWorld); }

gtp::NcclOptions nccl_options(const gtp_cuda_options* options) {
  gtp::NcclOptions result;
  if (options == nullptr) return result;
  const gtp_cuda_options& given = require_size(options, "gtp_cuda_options");
  if (given.choose_device != 0) {
    if (given.device < 0) throw InvalidArgument(fmt::format("device is {}", given.device));
    result.device = given.device;
  }
  result.start_limit = gtp::capi::milliseconds(given.start_limit_ms, "start_limit_ms", result.start_limit.count());
  result.operation_limit =
      given.operation_limit_ms == -1
          ? std::chrono::milliseconds(0)
          : gtp::capi::milliseconds(given.operation_limit_ms, "operation_limit_ms", result.operation_limit.count());
  result.annotate = given.annotate != 0;
  return result;
}

void hand_out(gtp::NcclWorld made, gtp_cuda_world** out) {
  auto world = std::make_unique<gtp_cuda_world>(std::move(made));
  handles().add(world.get(), HandleKind::kCudaWorld);
  handles().add(&world->backend, HandleKind::kBackend);
  *out = world.release();
}

std::vector<gtp::SuppliedCommunicator> supplied(const gtp_cuda_communicators& given) {
  if ((given.dense_gather == nullptr) != (given.dense_reduce == nullptr) ||
      (given.expert_gather == nullptr) != (given.expert_reduce == nullptr)) {
    throw InvalidArgument("a gather and a reduce communicator are given together or not at all");
  }
  std::vector<gtp::SuppliedCommunicator> result;
  const auto add = [&](const char* group, gtp::CommunicatorPurpose purpose, void* handle) {
    if (handle != nullptr) result.push_back({group, purpose, static_cast<ncclComm_t>(handle)});
  };
  add("gtp_remat", gtp::CommunicatorPurpose::kGather, given.dense_gather);
  add("gtp_remat", gtp::CommunicatorPurpose::kReduce, given.dense_reduce);
  add("expt_gtp_remat", gtp::CommunicatorPurpose::kGather, given.expert_gather);
  add("expt_gtp_remat", gtp::CommunicatorPurpose::kReduce, given.expert_reduce);
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (result[i].communicator == result[k].communicator) throw InvalidArgument("one communicator was given twice");
    }
  }
  return result;
}

}  // namespace

extern "C" {

gtp_status gtp_cuda_world_from_environment(const gtp_cuda_options* options, gtp_cuda_world** out) {
  return guard([&] {
    require_pointer(out, "out");
    hand_out(gtp::NcclWorld::from_environment(nccl_options(options)), out);
  });
}

gtp_status gtp_cuda_make_id(gtp_cuda_id* out) {
  return guard([&] {
    require_pointer(out, "out");
    gtp::cuda::prepare_nccl_environment();
    ncclUniqueId id{};
    gtp::cuda::nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::memcpy(out->bytes, id.internal, sizeof id.internal);
  });
}

gtp_status gtp_cuda_world_from_id(const gtp_cuda_options* options, int64_t rank, int64_t world_size,
                                  const gtp_cuda_id* given, gtp_cuda_world** out) {
  return guard([&] {
    require_pointer(given, "id");
    require_pointer(out, "out");
    ncclUniqueId id{};
    std::memcpy(id.internal, given->bytes, sizeof id.internal);
    hand_out(gtp::NcclWorld::from_unique_id(rank, world_size, id, nccl_options(options)), out);
  });
}

gtp_status gtp_cuda_world_from_communicators(const gtp_cuda_options* options, int64_t rank, int64_t world_size,
                                             const gtp_cuda_communicators* communicators, gtp_cuda_world** out) {
  return guard([&] {
    require_pointer(out, "out");
    const gtp_cuda_communicators& given = require_size(communicators, "gtp_cuda_communicators");
    hand_out(gtp::NcclWorld::from_communicators(rank, world_size, supplied(given), nccl_options(options)), out);
  });
}

gtp_status gtp_cuda_world_destroy(gtp_cuda_world* handle) {
  return guard([&] {
    gtp_cuda_world& world = require(handle);
    world.backend.forget();
    handles().remove(handle);
    delete handle;
  });
}

gtp_status gtp_cuda_world_place(gtp_cuda_world* handle, int64_t* rank, int64_t* world_size, int32_t* device) {
  return guard([&] {
    const gtp_cuda_world& world = require(handle);
    if (rank != nullptr) *rank = world.world.rank();
    if (world_size != nullptr) *world_size = world.world.size();
    if (device != nullptr) *device = world.world.device();
  });
}

gtp_status gtp_cuda_backend(gtp_cuda_world* handle, gtp_backend** out) {
  return guard([&] {
    gtp_cuda_world& world = require(handle);
    require_pointer(out, "out");
    *out = &world.backend;
  });
}

gtp_status gtp_cuda_stream(gtp_backend* handle, void* cuda_stream, gtp_stream** out) {
  return guard([&] {
    gtp_backend& backend = require(handle, HandleKind::kBackend);
    require_pointer(out, "out");
    if (backend.host != nullptr) throw InvalidArgument("the gtp_backend is not on a GPU");
    *out = backend.handle_of({cuda_stream});
  });
}

gtp_status gtp_cuda_native_stream(gtp_stream* handle, void** cuda_stream) {
  return guard([&] {
    const gtp_stream& stream = require(handle, HandleKind::kStream);
    require_pointer(cuda_stream, "cuda_stream");
    if (stream.backend->host != nullptr) throw InvalidArgument("the gtp_stream is not on a GPU");
    *cuda_stream = stream.stream.handle;
  });
}

}  // extern "C"
