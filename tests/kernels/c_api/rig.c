#include "rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;
static int failures = 0;
static int checks = 0;

void check(int ok, const char* promise) {
  pthread_mutex_lock(&report_lock);
  ++checks;
  if (!ok) {
    ++failures;
    fprintf(stderr, "FAILED: %s\n  last error: %s\n", promise, gtp_last_error());
  }
  pthread_mutex_unlock(&report_lock);
}

void check_status(gtp_status got, gtp_status expected, const char* text, const char* promise) {
  const int ok = got == expected && (text == NULL || strstr(gtp_last_error(), text) != NULL);
  check(ok, promise);
  if (!ok) fprintf(stderr, "  %s, not %s\n", gtp_status_name(got), gtp_status_name(expected));
}

void must(gtp_status got, const char* promise) { check_status(got, GTP_OK, NULL, promise); }

int report_checks(void) {
  printf("%d checks, %d failed\n", checks, failures);
  return failures;
}

/* The upper half of a float: exact for the small integers used here. */
static uint16_t bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float weight_value(int64_t tensor, int64_t version, int64_t index) {
  return index < kRows * kCols ? (float)((tensor * 31 + version * 17 + index * 13) % 120) : 0.0F;
}

float wgrad_value(int64_t rank, int64_t tensor, int64_t round, int64_t index) {
  return 2.0F * (float)((rank * 5 + tensor * 3 + round * 7 + index) % 16);
}

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

void add_weights(rank_state* self, int graphed) {
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

void update_weights(rank_state* self) {
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

void microbatch(rank_state* self, int64_t round) {
  for (int weight = 0; weight < kWeights; ++weight) read_views(self, weight, GTP_USE_FORWARD);
  for (int weight = kWeights - 1; weight >= 0; --weight) {
    read_views(self, weight, GTP_USE_DGRAD);
    reduce_weight(self, weight, round);
  }
}

int wrong_gradients(const rank_state* self, int64_t rounds) {
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

void begin(rank_state* self, int with_callbacks) {
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

void finish(rank_state* self) {
  must(gtp_runtime_destroy(self->runtime), "a runtime is destroyed");
  must(gtp_backend_finish(self->backend), "a rank finishes");
  for (int tensor = 0; tensor < kWeights + 1; ++tensor) {
    free(self->shards[tensor]);
    free(self->main_grads[tensor]);
  }
}

void run_ranks(uint64_t seed, void* (*body)(void*), gtp_host_world** world, rank_state* ranks) {
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

void append(void* user, const char* piece, size_t length) {
  collected_text* all = user;
  if (all->length + length < sizeof all->data) {
    memcpy(all->data + all->length, piece, length);
    all->length += length;
  }
}
