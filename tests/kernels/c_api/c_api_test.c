/* The C ABI from a C99 caller: whole steps on two ranks, each a POSIX thread, and what happens to a caller who errs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gtp/runtime.h"

enum { kRanks = 2, kWeights = 3, kRows = 24, kCols = 4, kMaxJobs = 256, kSteps = 2, kMicrobatches = 2 };

static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static int failures = 0;
static int checks = 0;

static void check(int ok, const char* promise) {
  pthread_mutex_lock(&report_lock);
  ++checks;
  if (!ok) {
    ++failures;
    fprintf(stderr, "FAILED: %s\n  last error: %s\n", promise, gtp_last_error());
  }
  pthread_mutex_unlock(&report_lock);
}

static void check_status(gtp_status got, gtp_status expected, const char* text, const char* promise) {
  const int ok = got == expected && (text == NULL || strstr(gtp_last_error(), text) != NULL);
  check(ok, promise);
  if (!ok) fprintf(stderr, "  %s, not %s\n", gtp_status_name(got), gtp_status_name(expected));
}

static void must(gtp_status got, const char* promise) { check_status(got, GTP_OK, NULL, promise); }

/* --- one rank of a model ------------------------------------------------------------------------------------------ */

/* The upper half of a float: exact for the small integers used here. */
static uint16_t bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float weight_value(int64_t tensor, int64_t version, int64_t index) {
  return index < kRows * kCols ? (float)((tensor * 31 + version * 17 + index * 13) % 120) : 0.0F;
}

static float wgrad_value(int64_t rank, int64_t tensor, int64_t round, int64_t index) {
  return 2.0F * (float)((rank * 5 + tensor * 3 + round * 7 + index) % 16);
}

typedef struct rank_state rank_state;

/* What an enqueued kernel works on. */
typedef struct job {
  rank_state* rank;
  const void* source;
  void* destination;
  int64_t tensor;
  int64_t version;
  int64_t first;
  int64_t count;
  int accumulate;
} job;

struct rank_state {
  gtp_host_world* world;
  int64_t rank;
  gtp_backend* backend;
  gtp_stream* stream;
  gtp_runtime* runtime;
  gtp_weight* weights[kWeights];
  gtp_weight_layout layout;
  uint16_t* shards[kWeights * 2];
  float* main_grads[kWeights * 2];
  int64_t version;
  job jobs[kMaxJobs];
  int job_count;
  int mismatches;
  int readings;
  int param_ready_calls;
  int grad_ready_calls;
  int foreign_grad_ready;
  int allocations;
  int frees;
};

/* Weight 2 has two experts: tensors 2 and 3. */
static size_t shard_count(int weight) { return weight == 2 ? 2 : 1; }
static int first_tensor(int weight) { return weight; }

static job* new_job(rank_state* self) {
  if (self->job_count == kMaxJobs) abort();
  job* made = &self->jobs[self->job_count++];
  memset(made, 0, sizeof *made);
  made->rank = self;
  return made;
}

static void read_weight(void* argument) {
  const job* work = argument;
  const uint16_t* bits = work->source;
  ++work->rank->readings;
  for (int64_t i = 0; i < work->count; ++i) {
    if (bits[i] != bf16(weight_value(work->tensor, work->version, i))) ++work->rank->mismatches;
  }
}

static void write_weight(void* argument) {
  const job* work = argument;
  uint16_t* bits = work->destination;
  for (int64_t i = 0; i < work->count; ++i) bits[i] = bf16(weight_value(work->tensor, work->version, work->first + i));
}

static void write_wgrad(void* argument) {
  const job* work = argument;
  float* gradient = work->destination;
  for (int64_t i = 0; i < work->count; ++i) {
    const float value = wgrad_value(work->rank->rank, work->tensor, work->version, i);
    gradient[i] = work->accumulate ? gradient[i] + value : value;
  }
}

static void* allocate(void* user, const gtp_memory_request* request) {
  ++((rank_state*)user)->allocations;
  return malloc(request->bytes);
}

static void deallocate(void* user, void* data, const gtp_memory_request* request) {
  (void)request;
  ++((rank_state*)user)->frees;
  free(data);
}

static void param_ready(void* user, gtp_stream* stream) {
  rank_state* self = user;
  ++self->param_ready_calls;
  check(stream != NULL, "param_ready is given a stream");
}

static void grad_ready(void* user, gtp_weight* weight, gtp_stream* stream) {
  rank_state* self = user;
  ++self->grad_ready_calls;
  if (weight != self->weights[0]) ++self->foreign_grad_ready;
  job* work = new_job(self);
  check_status(gtp_host_launch(stream, "after grad_ready", NULL, 0, write_weight, work), GTP_OK, NULL,
               "grad_ready may enqueue on the stream it is given");
}

static gtp_weight_options weight_options(rank_state* self, int weight, int graphed, gtp_shard* shards) {
  static const char* const kNames[kWeights] = {"qkv", "out", "experts"};
  gtp_weight_options options = {0};
  options.size = sizeof options;
  options.name = kNames[weight];
  options.rows = kRows;
  options.cols = kCols;
  options.domain = weight == 2 ? GTP_DOMAIN_EXPERT : GTP_DOMAIN_DENSE;
  options.graphed = graphed;
  for (size_t shard = 0; shard < shard_count(weight); ++shard) {
    memset(&shards[shard], 0, sizeof shards[shard]);
    shards[shard].size = sizeof shards[shard];
    shards[shard].data[GTP_ROW_DATA] = self->shards[first_tensor(weight) + (int)shard];
    shards[shard].main_grad = self->main_grads[first_tensor(weight) + (int)shard];
  }
  options.shards = shards;
  options.shard_count = shard_count(weight);
  return options;
}

static void add_weights(rank_state* self, int graphed) {
  uint32_t bucket = 0;
  must(gtp_add_ready_bucket(self->runtime, param_ready, self, &bucket), "a ready bucket is added");
  gtp_shard shards[2];
  gtp_weight_options options = weight_options(self, 0, graphed, shards);
  self->layout.size = sizeof self->layout;
  must(gtp_layout_of(self->runtime, &options, &self->layout), "the layout of a weight is known before its memory is");
  const size_t elements = (size_t)self->layout.shard_elements;
  check(self->layout.group_size == kRanks && self->layout.position == self->rank, "two ranks share the weight");
  check(self->layout.shard_bytes[GTP_ROW_DATA] == (int64_t)(2 * elements), "a bf16 shard has two bytes an element");
  for (int tensor = 0; tensor < kWeights + 1; ++tensor) {
    self->shards[tensor] = calloc(elements, sizeof(uint16_t));
    self->main_grads[tensor] = calloc(elements, sizeof(float));
  }
  for (int weight = 0; weight < kWeights; ++weight) {
    options = weight_options(self, weight, graphed, shards);
    options.bucket = weight == 0 ? bucket : 0;
    options.grad_ready = weight == 0 ? grad_ready : NULL;
    options.grad_ready_user = self;
    must(gtp_add_weight(self->runtime, &options, &self->weights[weight]), "a weight is added");
  }
}

/* What an optimizer does: new values in stream order, then publish. */
static void update_weights(rank_state* self) {
  ++self->version;
  const int64_t first = self->layout.row_begin * kCols;
  for (int tensor = 0; tensor < kWeights + 1; ++tensor) {
    job* work = new_job(self);
    work->destination = self->shards[tensor];
    work->tensor = tensor;
    work->version = self->version;
    work->first = first;
    work->count = self->layout.shard_elements;
    const gtp_access touched = {self->shards[tensor], (size_t)work->count * sizeof(uint16_t), 1};
    must(gtp_host_launch(self->stream, "optimizer", &touched, 1, write_weight, work), "a kernel is launched");
  }
  must(gtp_publish(self->weights, kWeights, self->stream), "weights are published");
}

static void read_views(rank_state* self, int weight, gtp_use use) {
  gtp_gathered_view views[2];
  views[0].size = views[1].size = sizeof views[0];
  must(gtp_materialize(self->weights[weight], use, self->stream, views, shard_count(weight)),
       "a weight is materialized");
  for (size_t shard = 0; shard < shard_count(weight); ++shard) {
    job* work = new_job(self);
    work->source = views[shard].data[GTP_ROW_DATA];
    work->tensor = first_tensor(weight) + (int64_t)shard;
    work->version = self->version;
    work->count = views[shard].padded_rows * views[shard].cols;
    check(views[shard].rows == kRows && views[shard].padded_rows == self->layout.padded_rows,
          "a view has the rows of the whole weight");
    const gtp_access touched = {work->source, (size_t)work->count * sizeof(uint16_t), 0};
    must(gtp_host_launch(self->stream, "gemm", &touched, 1, read_weight, work), "a kernel is launched");
  }
}

static void reduce_weight(rank_state* self, int weight, int64_t round) {
  gtp_wgrad_view views[2];
  views[0].size = views[1].size = sizeof views[0];
  must(gtp_grad_buffer(self->weights[weight], self->stream, views, shard_count(weight)), "a gradient has a buffer");
  for (size_t shard = 0; shard < shard_count(weight); ++shard) {
    job* work = new_job(self);
    work->destination = views[shard].data;
    work->tensor = first_tensor(weight) + (int64_t)shard;
    work->version = round;
    work->count = views[shard].rows * views[shard].cols;
    work->accumulate = views[shard].accumulate;
    check(views[shard].type == GTP_TYPE_FLOAT32, "the gradient travels in the type of main_grad");
    const gtp_access touched = {views[shard].data, (size_t)work->count * sizeof(float), 1};
    must(gtp_host_launch(self->stream, "wgrad", &touched, 1, write_wgrad, work), "a kernel is launched");
  }
  must(gtp_reduce_grad(self->weights[weight], self->stream), "a gradient is reduced");
}

static void microbatch(rank_state* self, int64_t round) {
  for (int weight = 0; weight < kWeights; ++weight) read_views(self, weight, GTP_USE_FORWARD);
  for (int weight = kWeights - 1; weight >= 0; --weight) {
    read_views(self, weight, GTP_USE_DGRAD);
    reduce_weight(self, weight, round);
  }
}

/* Main_grad is the mean over the ranks, summed over the rounds so far. */
static int wrong_gradients(const rank_state* self, int64_t rounds) {
  int wrong = 0;
  for (int tensor = 0; tensor < kWeights + 1; ++tensor) {
    for (int64_t i = 0; i < self->layout.shard_elements; ++i) {
      const int64_t index = self->layout.row_begin * kCols + i;
      float expected = 0;
      for (int64_t round = 0; index < kRows * kCols && round < rounds; ++round) {
        expected += (wgrad_value(0, tensor, round, index) + wgrad_value(1, tensor, round, index)) / 2;
      }
      if (self->main_grads[tensor][i] != expected) ++wrong;
    }
  }
  return wrong;
}

static void begin(rank_state* self, int with_callbacks) {
  must(gtp_backend_begin(self->world, self->rank, &self->backend), "a rank begins");
  must(gtp_stream_create(self->backend, "compute", &self->stream), "a stream is made");
  gtp_runtime_options options = {0};
  options.size = sizeof options;
  options.tensor_parallel_num_weight_shards = kRanks;
  options.expert_tensor_parallel_num_weight_shards = kRanks;
  if (with_callbacks) {
    options.allocate = allocate;
    options.deallocate = deallocate;
    options.memory_user = self;
  }
  must(gtp_runtime_create(self->backend, &options, &self->runtime), "a runtime is made");
}

static void finish(rank_state* self) {
  must(gtp_runtime_destroy(self->runtime), "a runtime is destroyed");
  must(gtp_backend_finish(self->backend), "a rank finishes");
  for (int tensor = 0; tensor < kWeights + 1; ++tensor) {
    free(self->shards[tensor]);
    free(self->main_grads[tensor]);
  }
}

static void run_ranks(uint64_t seed, void* (*body)(void*), gtp_host_world** world, rank_state* ranks) {
  gtp_host_world_options options = {0};
  options.size = sizeof options;
  options.ranks = kRanks;
  options.seed = seed;
  options.trace = 1;
  must(gtp_host_world_create(&options, world), "a world is made");
  pthread_t threads[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    memset(&ranks[rank], 0, sizeof ranks[rank]);
    ranks[rank].world = *world;
    ranks[rank].rank = rank;
    if (pthread_create(&threads[rank], NULL, body, &ranks[rank]) != 0) abort();
  }
  for (int rank = 0; rank < kRanks; ++rank) pthread_join(threads[rank], NULL);
}

/* --- whole steps -------------------------------------------------------------------------------------------------- */

static void* train(void* argument) {
  rank_state* self = argument;
  begin(self, 1);
  add_weights(self, 0);
  update_weights(self);
  for (int step = 0; step < kSteps; ++step) {
    for (int index = 0; index < kMicrobatches; ++index) microbatch(self, step * kMicrobatches + index);
    must(gtp_fence_grads(self->runtime, self->stream), "gradients are fenced");
    must(gtp_stream_synchronize(self->stream, 20000), "a stream is synchronized");
    check(wrong_gradients(self, (step + 1) * kMicrobatches) == 0,
          "main_grad is the mean of the gradients, bit for bit");
    if (step + 1 < kSteps) update_weights(self);
  }
  check(self->readings == kSteps * kMicrobatches * 2 * (kWeights + 1), "every GEMM ran");
  check(self->mismatches == 0, "every GEMM read the published bits");
  check(self->param_ready_calls == kSteps, "param_ready is called once a publish");
  check(self->grad_ready_calls == kSteps * kMicrobatches, "grad_ready is called once a reduction");
  check(self->foreign_grad_ready == 0, "grad_ready is given the handle of its weight");

  gtp_counters counters = {0};
  counters.size = sizeof counters;
  must(gtp_get_counters(self->runtime, &counters), "counters are read");
  check(counters.consumes == kSteps * kMicrobatches * 2 * kWeights, "consumes are counted");
  check(counters.prefetched_gathers > 0, "weights are gathered ahead");
  check(counters.reduce_scatters == kSteps * kMicrobatches * kWeights, "reductions are counted");
  check(counters.buffer_allocations == self->allocations && self->allocations > 0, "memory comes from the callback");
  float factor = 0;
  must(gtp_gradient_scaling_factor(self->runtime, GTP_DOMAIN_DENSE, &factor), "the scaling factor is read");
  check(factor == 1.0F, "without replicas nothing is left to divide by");
  finish(self);
  check(self->frees == self->allocations, "all memory goes back to the callback");
  return NULL;
}

typedef struct text {
  char data[1 << 16];
  size_t length;
} text;

static void append(void* user, const char* piece, size_t length) {
  text* all = user;
  if (all->length + length < sizeof all->data) {
    memcpy(all->data + all->length, piece, length);
    all->length += length;
  }
}

static void test_steps(void) {
  static rank_state ranks[kRanks];
  for (uint64_t seed = 0; seed < 8; ++seed) {
    gtp_host_world* world = NULL;
    run_ranks(seed, train, &world, ranks);
    static text trace;
    memset(&trace, 0, sizeof trace);
    must(gtp_host_world_write_trace(world, append, &trace), "the trace is written");
    check(strstr(trace.data, "\"traceEvents\"") != NULL && strstr(trace.data, "all-gather qkv") != NULL,
          "the trace names operations and weights");
    must(gtp_host_world_destroy(world), "a world is destroyed");
  }
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static void* capture(void* argument) {
  rank_state* self = argument;
  begin(self, 0);
  add_weights(self, 1);
  update_weights(self);
  must(gtp_begin_warmup(self->runtime, self->stream), "a warm-up begins");
  microbatch(self, 0);
  microbatch(self, 0);
  must(gtp_end_warmup(self->runtime, self->stream), "a warm-up ends");

  gtp_graph* graph = NULL;
  must(gtp_begin_capture(self->runtime, "step", self->stream, &graph), "a capture begins");
  gtp_graph* second = NULL;
  check_status(gtp_begin_capture(self->runtime, "again", self->stream, &second), GTP_CAPTURE_FAILED, "step",
               "a second capture is refused, and the runtime stays usable");
  microbatch(self, 0);
  must(gtp_end_capture(graph), "a capture ends");
  const int before = self->readings;
  for (int replay = 0; replay < 3; ++replay) must(gtp_replay(graph, self->stream), "a graph is replayed");
  must(gtp_fence_grads(self->runtime, self->stream), "gradients are fenced");
  must(gtp_stream_synchronize(self->stream, 20000), "a stream is synchronized");
  check(self->readings == before + 3 * 2 * (kWeights + 1) && self->mismatches == 0, "each replay reads the right bits");
  float expected = 3 * (wgrad_value(0, 0, 0, 0) + wgrad_value(1, 0, 0, 0)) / 2;
  if (self->rank == 0) check(self->main_grads[0][0] == expected, "each replay adds its gradient, the warm-up none");
  check_status(gtp_end_capture(graph), GTP_CAPTURE_FAILED, "not under way", "a capture ends once");

  gtp_graph* dropped = NULL;
  must(gtp_begin_capture(self->runtime, "dropped", self->stream, &dropped), "another capture begins");
  must(gtp_abort_capture(dropped), "a capture is dropped");
  check_status(gtp_replay(dropped, self->stream), GTP_CAPTURE_FAILED, "no graph", "a dropped capture has no graph");
  finish(self);
  check_status(gtp_replay(graph, self->stream), GTP_INVALID_ARGUMENT, "gtp_graph was destroyed",
               "graphs die with their runtime");
  return NULL;
}

static void test_graphs(void) {
  static rank_state ranks[kRanks];
  gtp_host_world* world = NULL;
  run_ranks(3, capture, &world, ranks);
  must(gtp_host_world_destroy(world), "a world is destroyed");
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

/* Both gather once, so that neither is still registering when rank 1 gives up. */
static void* fail_on_rank_1(void* argument) {
  rank_state* self = argument;
  begin(self, 0);
  add_weights(self, 0);
  gtp_gathered_view view = {0};
  view.size = sizeof view;
  gtp_status status = gtp_materialize(self->weights[0], GTP_USE_FORWARD, self->stream, &view, 1);
  if (self->rank == 1) {
    must(status, "a weight is materialized");
    must(gtp_stream_synchronize(self->stream, 20000), "a stream is synchronized");
    must(gtp_backend_abort(self->backend, "out of ideas"), "a rank gives up");
  } else {
    for (int turn = 0; turn < 1000 && status == GTP_OK; ++turn) {
      status = gtp_stream_synchronize(self->stream, 20000);
      if (status == GTP_OK) status = gtp_materialize(self->weights[0], GTP_USE_FORWARD, self->stream, &view, 1);
    }
    check_status(status, GTP_ABORTED, "out of ideas", "a peer's failure arrives with its reason");
    check_status(gtp_materialize(self->weights[0], GTP_USE_FORWARD, self->stream, &view, 1), GTP_ABORTED,
                 "out of ideas", "a dead runtime says so again at every call");
    check_status(gtp_fence_grads(self->runtime, self->stream), GTP_ABORTED, "out of ideas",
                 "a dead runtime says so at other calls too");
  }
  finish(self);
  return NULL;
}

static void test_failing_peer(void) {
  static rank_state ranks[kRanks];
  gtp_host_world* world = NULL;
  run_ranks(1, fail_on_rank_1, &world, ranks);
  must(gtp_host_world_destroy(world), "a world is destroyed after a failure");
}

static void test_missing_peer(void) {
  static rank_state self;
  gtp_host_world_options options = {0};
  options.size = sizeof options;
  options.ranks = 2;
  options.time_limit_ms = 200;
  must(gtp_host_world_create(&options, &self.world), "a world is made");
  must(gtp_backend_begin(self.world, 0, &self.backend), "a rank begins");
  gtp_status status = GTP_OK;
  for (int turn = 0; turn < 2000 && status == GTP_OK; ++turn) {
    status = gtp_stream_create(self.backend, "compute", &self.stream);
  }
  check_status(status, GTP_TIMEOUT, "rank 1 makes no call", "a rank that never begins is named after the time limit");
  check_status(gtp_host_world_destroy(self.world), GTP_INVALID_USE, "rank 0 began and has not finished",
               "a world with a rank at work is not destroyed");
  must(gtp_backend_finish(self.backend), "a failed rank finishes");
  must(gtp_host_world_destroy(self.world), "a world is destroyed after a timeout");
}

/* --- a caller who errs -------------------------------------------------------------------------------------------- */

static void test_bad_worlds(void) {
  gtp_host_world* world = NULL;
  gtp_host_world_options options = {0};
  check_status(gtp_host_world_create(NULL, &world), GTP_INVALID_ARGUMENT, "NULL", "NULL options are refused");
  check_status(gtp_host_world_create(&options, &world), GTP_INVALID_ARGUMENT, "`size` of gtp_host_world_options is 0",
               "options without a size are refused");
  options.size = sizeof options + 8;
  check_status(gtp_host_world_create(&options, &world), GTP_INVALID_ARGUMENT, "`size`", "a later header is refused");
  options.size = sizeof options;
  check_status(gtp_host_world_create(&options, &world), GTP_INVALID_ARGUMENT, "ranks is 0", "no ranks are refused");
  options.ranks = INT64_MAX;
  check_status(gtp_host_world_create(&options, &world), GTP_INVALID_ARGUMENT, "ranks is", "too many ranks are refused");
  options.ranks = 1;
  options.time_limit_ms = -1;
  check_status(gtp_host_world_create(&options, &world), GTP_INVALID_ARGUMENT, "time_limit_ms is -1",
               "a negative time limit is refused");
  options.time_limit_ms = 0;
  check_status(gtp_host_world_create(&options, NULL), GTP_INVALID_ARGUMENT, "out is NULL", "out must not be NULL");
  check(world == NULL, "outputs are written on success only");
  check_status(gtp_host_world_destroy(NULL), GTP_INVALID_ARGUMENT, "the gtp_host_world is NULL", "NULL is no world");
  check_status(gtp_host_world_destroy((gtp_host_world*)&options), GTP_INVALID_ARGUMENT, "never made",
               "a foreign pointer is no world");
}

static void test_bad_backends(gtp_host_world* world, gtp_backend* backend) {
  gtp_backend* again = NULL;
  check_status(gtp_backend_begin(world, 0, &again), GTP_INVALID_USE, "begun before", "a rank begins once");
  check_status(gtp_backend_begin(world, 1, &again), GTP_INVALID_ARGUMENT, "outside the world of 1 ranks",
               "a rank outside the world is refused");
  check_status(gtp_backend_begin((gtp_host_world*)backend, 0, &again), GTP_INVALID_ARGUMENT, "gtp_host_world",
               "a handle of another kind is refused");
  check_status(gtp_backend_abort(backend, NULL), GTP_INVALID_ARGUMENT, "reason is NULL", "giving up needs a reason");
  check_status(gtp_host_world_write_trace(world, append, NULL), GTP_INVALID_USE, "without `trace`",
               "there is no trace unless it was asked for");
  gtp_stream* stream = NULL;
  check_status(gtp_stream_create(backend, NULL, &stream), GTP_INVALID_ARGUMENT, "name is NULL", "a stream has a name");
}

static void test_bad_runtimes(gtp_backend* backend) {
  gtp_runtime* runtime = NULL;
  gtp_runtime_options options = {0};
  check_status(gtp_runtime_create(backend, &options, &runtime), GTP_INVALID_ARGUMENT, "`size` of gtp_runtime_options",
               "options without a size are refused");
  options.size = sizeof options;
  options.tensor_model_parallel_size = -4;
  check_status(gtp_runtime_create(backend, &options, &runtime), GTP_INVALID_PLAN, "sizes-must-be-positive",
               "a negative size is an invalid plan");
  options.tensor_model_parallel_size = 0;
  options.tensor_parallel_num_weight_shards = 2;
  check_status(gtp_runtime_create(backend, &options, &runtime), GTP_INVALID_PLAN, "world-divisible-by-dense-grid",
               "more shards than ranks are an invalid plan");
  options.tensor_parallel_num_weight_shards = 0;
  options.prefetch_depth = 1000;
  check_status(gtp_runtime_create(backend, &options, &runtime), GTP_INVALID_PLAN, "prefetch_depth 1000",
               "an absurd prefetch depth is an invalid plan");
  options.prefetch_depth = 0;
  options.allocate = allocate;
  check_status(gtp_runtime_create(backend, &options, &runtime), GTP_INVALID_ARGUMENT, "together or not at all",
               "allocate without deallocate is refused");
  options.allocate = NULL;
  options.teardown_limit_ms = INT64_MAX;
  check_status(gtp_runtime_create(backend, &options, &runtime), GTP_INVALID_ARGUMENT, "teardown_limit_ms",
               "an absurd time limit is refused");
  check(runtime == NULL, "outputs are written on success only");
}

static void test_bad_weights(gtp_runtime* runtime, gtp_stream* stream) {
  uint16_t data[16] = {0};
  float main_grad[16] = {0};
  gtp_shard shard = {0};
  gtp_weight_options options = {0};
  gtp_weight* weight = NULL;
  options.size = sizeof options;
  options.rows = 4;
  options.cols = 4;
  options.shards = &shard;
  options.shard_count = 1;
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_ARGUMENT, "name of the weight is NULL",
               "a weight has a name");
  options.name = "w";
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_ARGUMENT, "`size` of gtp_shard",
               "a shard without a size is refused");
  shard.size = sizeof shard;
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_PLAN, "`w` lacks the memory",
               "a shard without memory is an invalid plan");
  shard.data[GTP_ROW_DATA] = data;
  shard.main_grad = main_grad;
  options.rows = -1;
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_PLAN, "rows must be positive",
               "negative rows are an invalid plan");
  options.rows = INT64_MAX;
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_PLAN, "63-bit", "a huge weight is refused");
  options.rows = 4;
  options.format = 77;
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_ARGUMENT, "77 is no gtp_format",
               "an unknown format is refused");
  options.format = GTP_FORMAT_BF16;
  options.bucket = 9;
  check_status(gtp_add_weight(runtime, &options, &weight), GTP_INVALID_PLAN, "bucket",
               "a bucket that does not exist is an invalid plan");
  options.bucket = 0;
  must(gtp_add_weight(runtime, &options, &weight), "the weight is fine at last");
  check(gtp_last_error()[0] == '\0', "after a success there is no error text");

  gtp_gathered_view views[2] = {{0}, {0}};
  check_status(gtp_materialize(weight, GTP_USE_FORWARD, stream, views, 1), GTP_INVALID_ARGUMENT,
               "`size` of gtp_gathered_view", "a view without a size is refused");
  views[0].size = views[1].size = sizeof views[0];
  check_status(gtp_materialize(weight, GTP_USE_FORWARD, stream, views, 2), GTP_INVALID_ARGUMENT,
               "`w` has 1 shards, but there is room for 2", "a wrong number of views is refused");
  check_status(gtp_materialize(weight, 3, stream, views, 1), GTP_INVALID_ARGUMENT, "3 is no gtp_use",
               "an unknown use is refused");
  check_status(gtp_materialize(weight, GTP_USE_FORWARD, NULL, views, 1), GTP_INVALID_ARGUMENT, "gtp_stream is NULL",
               "a stream is needed");
  must(gtp_materialize(weight, GTP_USE_FORWARD, stream, views, 1), "a group of one materializes");
  check(views[0].data[GTP_ROW_DATA] == data, "a group of one reads the shard itself");
  check_status(gtp_publish(&weight, 0, stream), GTP_INVALID_ARGUMENT, "empty", "publishing nothing is refused");
  check_status(gtp_publish(NULL, 1, stream), GTP_INVALID_ARGUMENT, "NULL", "a list of weights is needed");
}

static void test_misuse(void) {
  gtp_host_world* world = NULL;
  gtp_backend* backend = NULL;
  gtp_stream* stream = NULL;
  gtp_runtime* runtime = NULL;
  gtp_host_world_options options = {0};
  options.size = sizeof options;
  options.ranks = 1;
  must(gtp_host_world_create(&options, &world), "a world is made");
  must(gtp_backend_begin(world, 0, &backend), "a rank begins");
  must(gtp_stream_create(backend, "compute", &stream), "a stream is made");
  test_bad_backends(world, backend);
  test_bad_runtimes(backend);
  gtp_runtime_options runtime_options = {0};
  runtime_options.size = sizeof runtime_options;
  must(gtp_runtime_create(backend, &runtime_options, &runtime), "all defaults make a runtime");
  test_bad_weights(runtime, stream);
  check_status(gtp_backend_finish(backend), GTP_INVALID_USE, "1 runtimes left", "a rank with a runtime cannot finish");
  must(gtp_runtime_destroy(runtime), "a runtime is destroyed");
  check_status(gtp_runtime_destroy(runtime), GTP_INVALID_ARGUMENT, "gtp_runtime was destroyed",
               "a runtime is destroyed once");
  check_status(gtp_fence_grads(runtime, stream), GTP_INVALID_ARGUMENT, "destroyed", "a dead handle is refused");
  must(gtp_backend_finish(backend), "a rank finishes");
  check_status(gtp_stream_synchronize(stream, 1000), GTP_INVALID_ARGUMENT, "gtp_stream was destroyed",
               "streams die with their backend");
  must(gtp_host_world_destroy(world), "a world is destroyed");
  check_status(gtp_host_world_destroy(world), GTP_INVALID_ARGUMENT, "destroyed", "a world is destroyed once");
}

static void* read_last_error(void* argument) {
  *(int*)argument = gtp_last_error()[0] == '\0';
  return NULL;
}

static void test_last_error(void) {
  gtp_host_world_destroy(NULL);
  int empty = 0;
  pthread_t thread;
  if (pthread_create(&thread, NULL, read_last_error, &empty) != 0) abort();
  pthread_join(thread, NULL);
  check(empty, "another thread does not see this thread's error");
  check(strstr(gtp_last_error(), "NULL") != NULL, "this thread still does");
  check(strcmp(gtp_status_name(GTP_TIMEOUT), "GTP_TIMEOUT") == 0, "a status has a name");
  check(strcmp(gtp_status_name(-5), "unknown status") == 0 && strcmp(gtp_status_name(10), "unknown status") == 0,
        "other numbers have none");
}

int main(void) {
  test_last_error();
  test_bad_worlds();
  test_misuse();
  test_steps();
  test_graphs();
  test_failing_peer();
  test_missing_peer();
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
