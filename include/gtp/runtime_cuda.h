/* C ABI of the GTP runtime on NVIDIA GPUs: one process per GPU over NCCL. It makes the gtp_backend that the calls of
 * runtime.h take; their rules about statuses, handles, `size` and defaults hold here. In the library only if that was
 * built with CUDA.
 *
 * The calling thread's current CUDA device must be the world's whenever a call enqueues something; making a world sets
 * it. Memory given to the runtime is device memory. Captures are begun with gtp_begin_capture only, and ended on the
 * same thread. */
#pragma once

#include "gtp/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gtp_cuda_world gtp_cuda_world;

typedef struct gtp_cuda_options {
  size_t size;
  int32_t choose_device; /* Use `device`. Otherwise LOCAL_RANK is the device or, without a launcher, the current one. */
  int32_t device;
  int64_t start_limit_ms;     /* Of each step of starting up; 0: 60 000. */
  int64_t operation_limit_ms; /* After which collectives without progress fail the job; 0: 300 000; -1: never. */
  int32_t annotate;           /* NVTX ranges. */
} gtp_cuda_options;

/* Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT (or GTP_STORE_PORT), as torchrun sets them, and waits
 * for all ranks. Sets NCCL_LAUNCH_ORDER_IMPLICIT=1 unless that variable exists. Collective. GTP_INVALID_PLAN: the
 * environment, the device, two ranks on one GPU, or NCCL versions; GTP_TIMEOUT: ranks that did not arrive, by number.
 * `options` may be NULL. */
gtp_status gtp_cuda_world_from_environment(const gtp_cuda_options* options, gtp_cuda_world** out);

/* What the bytes of an ncclUniqueId are: made by one rank, passed to the others by the caller, used once. */
typedef struct gtp_cuda_id {
  unsigned char bytes[128];
} gtp_cuda_id;
gtp_status gtp_cuda_make_id(gtp_cuda_id* out);
/* Collective. Failures of peers are noticed by `operation_limit_ms`, and by what NCCL notices. */
gtp_status gtp_cuda_world_from_id(const gtp_cuda_options* options, int64_t rank, int64_t world_size,
                                  const gtp_cuda_id* id, gtp_cuda_world** out);

/* ncclComm_t of the caller's, which stay the caller's and outlive the world. A pair that is NULL cannot be used; a
 * group of one rank needs none. Gathers and reductions run at the same time, so they must not be one communicator. */
typedef struct gtp_cuda_communicators {
  size_t size;
  void* dense_gather;
  void* dense_reduce;
  void* expert_gather;
  void* expert_reduce;
} gtp_cuda_communicators;
gtp_status gtp_cuda_world_from_communicators(const gtp_cuda_options* options, int64_t rank, int64_t world_size,
                                             const gtp_cuda_communicators* communicators, gtp_cuda_world** out);

/* Refused with GTP_INVALID_USE while a runtime is left. Waits for peers to leave too, at most the start limit. The
 * backend and its streams are dead afterwards; streams of the caller's are not touched. */
gtp_status gtp_cuda_world_destroy(gtp_cuda_world* world);

/* Each may be NULL. */
gtp_status gtp_cuda_world_place(gtp_cuda_world* world, int64_t* rank, int64_t* world_size, int32_t* device);
/* The rank's backend, for gtp_runtime_create, gtp_stream_create and gtp_backend_abort; always the same. Not for
 * gtp_backend_finish. */
gtp_status gtp_cuda_backend(gtp_cuda_world* world, gtp_backend** out);

/* A `cudaStream_t` of the caller's as a gtp_stream. It stays the caller's, and must live as long as runtimes use it.
 * NULL is the null stream, which cannot be captured. */
gtp_status gtp_cuda_stream(gtp_backend* backend, void* cuda_stream, gtp_stream** out);
/* The `cudaStream_t` behind a gtp_stream, for example of one that gtp_stream_create made. */
gtp_status gtp_cuda_native_stream(gtp_stream* stream, void** cuda_stream);

#ifdef __cplusplus
}
#endif
