/* C ABI of the GTP runtime in kernels/: plain C99, opaque handles, statuses. What the calls mean, and their rules of
 * use, are those of kernels/runtime.hpp. Here ranks are threads of one process; gtp/runtime_cuda.h has a process per
 * GPU.
 *
 * Every call that returns a gtp_status leaves the reason of a failure in gtp_last_error() and lets no exception out.
 * NULL, a handle that was destroyed or is of another kind, a wrong `size` or an unknown enumerator are refused with
 * GTP_INVALID_ARGUMENT; a call out of order with GTP_INVALID_USE. Output parameters are written on success only.
 *
 * Structs that cross the border begin with `size`, to be set to their sizeof. All other members may be left zero, which
 * selects the default: `gtp_runtime_options options = {0}; options.size = sizeof options;`
 *
 * The calls of one rank come from one thread at a time. Callbacks must not throw, longjmp, or call the runtime. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gtp_host_world gtp_host_world;
typedef struct gtp_backend gtp_backend; /* One rank's device; owned by its world. */
typedef struct gtp_stream gtp_stream;
typedef struct gtp_runtime gtp_runtime;
typedef struct gtp_weight gtp_weight; /* Owned by its runtime. */
typedef struct gtp_graph gtp_graph;   /* Owned by its runtime. */

/* Enumerations travel as int32_t, whose size does not depend on the compiler. */
typedef int32_t gtp_status;
enum {
  GTP_OK = 0,
  GTP_INVALID_ARGUMENT = 1,
  GTP_INVALID_PLAN = 2, /* The topology, rank or weight cannot be run. */
  GTP_INVALID_USE = 3,  /* A call out of order, or on an object of another runtime. */
  GTP_OUT_OF_MEMORY = 4,
  GTP_COLLECTIVE_FAILED = 5, /* An operation of this rank failed, or ranks issued different operations. */
  GTP_TIMEOUT = 6,           /* A peer did not arrive within the time limit. */
  GTP_ABORTED = 7,           /* A peer failed first; the text names it. */
  GTP_CAPTURE_FAILED = 8,    /* A graph could not be captured; the runtime remains usable. */
  GTP_INTERNAL_ERROR = 9
};

typedef int32_t gtp_use;
enum { GTP_USE_FORWARD = 0, GTP_USE_DGRAD = 1, GTP_USE_RECOMPUTE = 2 };

typedef int32_t gtp_domain;
enum { GTP_DOMAIN_DENSE = 0, GTP_DOMAIN_EXPERT = 1 };

typedef int32_t gtp_format;
enum { GTP_FORMAT_BF16 = 0, GTP_FORMAT_MXFP8 = 1, GTP_FORMAT_NVFP4 = 2 };

/* Of gradients. GTP_TYPE_DEFAULT: fp32 for main_grad, the type of main_grad for the wire. */
typedef int32_t gtp_type;
enum { GTP_TYPE_DEFAULT = 0, GTP_TYPE_FLOAT32 = 1, GTP_TYPE_BFLOAT16 = 2 };

typedef int32_t gtp_chain_role;
enum { GTP_ROLE_GENERAL = 0, GTP_ROLE_EXPERT_FC1 = 1, GTP_ROLE_EXPERT_FC2 = 2 };

typedef int32_t gtp_memory_kind;
enum { GTP_MEMORY_PLAIN = 0, GTP_MEMORY_WINDOW = 1 };

/* Index into the `data`, `shard_bytes` and `gathered_bytes` arrays below. */
enum {
  GTP_ROW_DATA = 0,
  GTP_ROW_SCALE = 1,
  GTP_COL_DATA = 2,
  GTP_COL_SCALE = 3,
  GTP_AMAX = 4,
  GTP_COMPONENT_COUNT = 5
};

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* Text of this thread's latest call that returned a gtp_status, "" if it succeeded; cut off at 1023 bytes. Never NULL;
 * valid until this thread's next call. */
const char* gtp_last_error(void);
/* "GTP_TIMEOUT" and so on; "unknown status" for other numbers. */
const char* gtp_status_name(gtp_status status);

/* --- world: ranks as threads -------------------------------------------------------------------------------------- */

typedef struct gtp_host_world_options {
  size_t size;
  int64_t ranks;         /* 1 to 1024. */
  uint64_t seed;         /* Of the interleaving of operations. */
  int64_t time_limit_ms; /* After which a silent or missing rank ends the run; 0: 30 000. */
  int32_t skip_race_detection;
  int32_t trace; /* Keep what gtp_host_world_write_trace reports. */
} gtp_host_world_options;

gtp_status gtp_host_world_create(const gtp_host_world_options* options, gtp_host_world** out);
/* Refused with GTP_INVALID_USE while a rank that began is not finished. GTP_TIMEOUT: operations were left that can
 * never run; the world is destroyed all the same. */
gtp_status gtp_host_world_destroy(gtp_host_world* world);
/* Chrome trace JSON of what has run, in pieces that are not terminated by a zero; times are counted in operations.
 * GTP_INVALID_USE without `trace` or while a rank that began is not finished. */
gtp_status gtp_host_world_write_trace(gtp_host_world* world, void (*sink)(void* user, const char* text, size_t length),
                                      void* user);

/* Begins a rank, once, on the thread that will make its calls. Every rank of a world must begin: the others wait. */
gtp_status gtp_backend_begin(gtp_host_world* world, int64_t rank, gtp_backend** out);
/* The rank makes no more calls, and its peers stop waiting for them; the handle is dead. Its runtimes must be destroyed
 * before. Also the last call of a rank that failed. */
gtp_status gtp_backend_finish(gtp_backend* backend);
/* Gives up: this rank's and its peers' next calls return GTP_ABORTED with `reason`. */
gtp_status gtp_backend_abort(gtp_backend* backend, const char* reason);

/* Lives as long as the backend. */
gtp_status gtp_stream_create(gtp_backend* backend, const char* name, gtp_stream** out);
/* Waits for everything enqueued on the stream. */
gtp_status gtp_stream_synchronize(gtp_stream* stream, int64_t limit_ms);

/* A range of memory that a host kernel touches: what is not declared is not checked for races. */
typedef struct gtp_access {
  const void* data;
  size_t bytes;
  int32_t write;
} gtp_access;
/* Enqueues `body(argument)`, which stands for a kernel: it runs in stream order, on some thread, and must not call into
 * this library. `name` (copied) appears in errors and traces. */
gtp_status gtp_host_launch(gtp_stream* stream, const char* name, const gtp_access* accesses, size_t access_count,
                           void (*body)(void* argument), void* argument);

/* --- runtime ------------------------------------------------------------------------------------------------------ */

typedef struct gtp_memory_request {
  size_t bytes;
  gtp_memory_kind kind;
  int32_t graphed; /* Addresses end up in graphs. */
} gtp_memory_request;

/* Options under Megatron's names. The world size is that of the backend. */
typedef struct gtp_runtime_options {
  size_t size;

  int64_t tensor_model_parallel_size;        /* 0: 1, and so for all sizes; otherwise noted. */
  int64_t tensor_parallel_num_weight_shards; /* 0: not set, no GTP_remat. */
  int64_t context_parallel_size;
  int64_t pipeline_model_parallel_size;
  int64_t expert_model_parallel_size;
  int64_t expert_tensor_parallel_size;              /* 0: the tensor-parallel size. */
  int64_t expert_tensor_parallel_num_weight_shards; /* 0: not set. */
  int32_t use_tp_pp_dp_mapping;

  int32_t gather_on_demand;       /* No prefetch. */
  uint32_t prefetch_depth;        /* Weights gathered ahead, at most 16; 0: 1. */
  uint32_t graph_wgrad_ring_size; /* 0: 2. */
  int32_t synchronous_reduction;  /* gtp_reduce_grad finalizes at once. */
  int32_t calculate_per_token_loss;
  int32_t gtp_remat_reduce_scatter_with_fp32_accumulation;
  int32_t gtp_remat_nccl_ub;
  int32_t gtp_expert_remat_nccl_ub;
  int32_t register_gather_outputs;
  int32_t poison_free_buffers;
  int64_t teardown_limit_ms; /* 0: 60 000. */

  /* Both or neither; absent: the backend's memory. `allocate` returns NULL when there is none left. */
  void* (*allocate)(void* memory_user, const gtp_memory_request* request);
  void (*deallocate)(void* memory_user, void* data, const gtp_memory_request* request);
  void* memory_user;
} gtp_runtime_options;

/* Collective over the groups of the rank. */
gtp_status gtp_runtime_create(gtp_backend* backend, const gtp_runtime_options* options, gtp_runtime** out);
/* Drains the device, or aborts it at the teardown limit. The runtime's weights and graphs are dead afterwards. */
gtp_status gtp_runtime_destroy(gtp_runtime* runtime);

/* --- registration: before the first step -------------------------------------------------------------------------- */

/* Parameters published together. `param_ready` sees to it, by what it enqueues on `stream`, that later work of that
 * stream reads the published parameters. `bucket` is a number for gtp_weight_options, from 1. */
gtp_status gtp_add_ready_bucket(gtp_runtime* runtime, void (*param_ready)(void* user, gtp_stream* stream), void* user,
                                uint32_t* bucket);

/* One tensor on this rank. The memory is the caller's, and stays where it is while the runtime lives. */
typedef struct gtp_shard {
  size_t size;
  const void* data[GTP_COMPONENT_COUNT]; /* NULL where the format has no such component. */
  void* main_grad;                       /* shard_elements of the layout; NULL in all shards: frozen. */
} gtp_shard;

typedef struct gtp_weight_options {
  size_t size;
  const char* name;
  int64_t rows; /* Whole, of this tensor-parallel rank. */
  int64_t cols;
  gtp_format format;
  gtp_domain domain;
  int64_t pad_for_alignment; /* 0: what the format wants; -1: no padding. */

  const gtp_shard* shards; /* One, or one per local expert. */
  size_t shard_count;

  uint32_t model_chunk;
  int32_t graphed; /* Consumed in captured graphs. */
  gtp_chain_role role;
  gtp_type main_grad_type;
  gtp_type wire_type;
  int32_t no_dgrad; /* Backward never reads it. */
  int32_t zero_out_wgrad;
  uint32_t bucket; /* 0: none. */

  /* Once per gtp_reduce_grad: work that waits for `stream` from now on finds main_grad final. May enqueue there. */
  void (*grad_ready)(void* grad_ready_user, gtp_weight* weight, gtp_stream* stream);
  void* grad_ready_user;
} gtp_weight_options;

/* How a weight is cut over its group: what memory to provide, and which part of the whole this rank holds. */
typedef struct gtp_weight_layout {
  size_t size;
  int64_t group_size;
  int64_t position; /* Of this rank in the group. */
  int64_t shard_rows;
  int64_t padded_rows;
  int64_t row_begin; /* First row of this rank's shard in the padded whole. */
  int64_t shard_elements;
  int64_t shard_bytes[GTP_COMPONENT_COUNT];
  int64_t gathered_bytes[GTP_COMPONENT_COUNT];
} gtp_weight_layout;

/* Looks at rows, cols, format, domain and pad_for_alignment only. */
gtp_status gtp_layout_of(gtp_runtime* runtime, const gtp_weight_options* options, gtp_weight_layout* out);
gtp_status gtp_add_weight(gtp_runtime* runtime, const gtp_weight_options* options, gtp_weight** out);
/* A parameter that every rank of the group holds whole. */
gtp_status gtp_add_replicated(gtp_runtime* runtime, const char* name, gtp_domain domain, void* main_grad,
                              gtp_type main_grad_type, size_t count);
/* The forward (or recompute) order of a chain, instead of recording it in the first pass; seals the chain. */
gtp_status gtp_declare_chain(gtp_weight* const* order, size_t count, int32_t recompute);
gtp_status gtp_seal_chains(gtp_runtime* runtime);

/* --- each microbatch ---------------------------------------------------------------------------------------------- */

/* One materialized tensor: addresses of the whole, padded weight. */
typedef struct gtp_gathered_view {
  size_t size;
  const void* data[GTP_COMPONENT_COUNT];
  int64_t rows;
  int64_t padded_rows;
  int64_t cols;
  int32_t swizzled;
  uint64_t version;
  uint64_t generation;
} gtp_gathered_view;

/* Where the wgrad GEMM writes. `accumulate`: it must add to what is there. */
typedef struct gtp_wgrad_view {
  size_t size;
  void* data;
  gtp_type type;
  int32_t accumulate;
  int64_t rows;
  int64_t cols;
} gtp_wgrad_view;

/* `views` has room for `view_count` views, exactly one per shard of the weight; the size of each is set by the caller.
 * Work enqueued on `compute` may read them until the next gtp_materialize with that stream, or gtp_release. */
gtp_status gtp_materialize(gtp_weight* weight, gtp_use use, gtp_stream* compute, gtp_gathered_view* views,
                           size_t view_count);
gtp_status gtp_hold(gtp_weight* weight, gtp_use use);
gtp_status gtp_release(gtp_weight* weight, gtp_use use, gtp_stream* compute);
gtp_status gtp_grad_buffer(gtp_weight* weight, gtp_stream* compute, gtp_wgrad_view* views, size_t view_count);
gtp_status gtp_reduce_grad(gtp_weight* weight, gtp_stream* compute);

/* --- each step ---------------------------------------------------------------------------------------------------- */

/* Work enqueued on `stream` afterwards finds main_grad final and may rewrite shards. */
gtp_status gtp_fence_grads(gtp_runtime* runtime, gtp_stream* stream);
gtp_status gtp_reduce_replicated_grads(gtp_runtime* runtime, gtp_stream* stream);
/* What a replicate-DP reduction multiplies by. */
gtp_status gtp_gradient_scaling_factor(gtp_runtime* runtime, gtp_domain domain, float* factor);
/* Shards were rewritten by work already on `stream`. All weights are of one runtime. */
gtp_status gtp_publish(gtp_weight* const* weights, size_t count, gtp_stream* stream);

/* --- graphs ------------------------------------------------------------------------------------------------------- */

gtp_status gtp_begin_warmup(gtp_runtime* runtime, gtp_stream* stream);
gtp_status gtp_end_warmup(gtp_runtime* runtime, gtp_stream* stream);
gtp_status gtp_begin_capture(gtp_runtime* runtime, const char* name, gtp_stream* stream, gtp_graph** out);
gtp_status gtp_end_capture(gtp_graph* graph);
/* Drops a capture that is under way. */
gtp_status gtp_abort_capture(gtp_graph* graph);
gtp_status gtp_replay(gtp_graph* graph, gtp_stream* stream);

/* --- observation -------------------------------------------------------------------------------------------------- */

/* One gather, reduce-scatter or finalize of a weight counts once, however many experts or components it has. */
typedef struct gtp_counters {
  size_t size;
  int64_t consumes;
  int64_t gathers;
  int64_t prefetched_gathers;
  int64_t head_gathers;
  int64_t recording_gathers;
  int64_t on_demand_gathers;
  int64_t stale_gathers;
  int64_t gathered_bytes;
  int64_t reduce_scatters;
  int64_t fp32_reduce_scatters;
  int64_t reduced_bytes;
  int64_t finalizes;
  int64_t deferred_finalizes;
  int64_t copied_wgrads;
  int64_t replicated_reductions;
  int64_t param_ready_calls;
  int64_t grad_ready_calls;
  int64_t buffer_allocations;
  int64_t buffer_bytes;
  int64_t buffer_spills;
  int64_t captures;
  int64_t replays;
} gtp_counters;

gtp_status gtp_get_counters(gtp_runtime* runtime, gtp_counters* out);

#ifdef __cplusplus
}
#endif
