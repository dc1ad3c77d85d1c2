/* What happens to a caller who errs. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

static void* allocate(void* user, const gtp_memory_request* request) {
  (void)user;
  return malloc(request->bytes);
}

void test_bad_worlds(void) {
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

void test_misuse(void) {
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

void test_last_error(void) {
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
