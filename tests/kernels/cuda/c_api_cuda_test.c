/* The C ABI on GPUs from C: launch.sh N c_api_cuda_test. A step of one weight by a world from the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gtp/runtime_cuda.h"

/* Of the CUDA runtime, whose headers need not be there. */
extern int cudaMalloc(void** data, size_t bytes);
extern int cudaFree(void* data);
extern int cudaMemcpy(void* to, const void* from, size_t bytes, int kind);
extern int cudaGetDeviceCount(int* count);
enum { TO_DEVICE = 1, TO_HOST = 2 };

static int failures = 0;

static void check(gtp_status status, const char* what) {
  if (status == GTP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, gtp_status_name(status), gtp_last_error());
  exit(1);
}

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "not so: %s (%s)\n", what, gtp_last_error());
  ++failures;
}

static void refuses(gtp_cuda_world* world, gtp_backend* backend) {
  gtp_stream* stream = NULL;
  gtp_cuda_options options = {0};
  gtp_cuda_world* none = NULL;
  gtp_cuda_communicators communicators = {0};
  expect(gtp_cuda_world_from_environment(&options, &none) == GTP_INVALID_ARGUMENT, "a size of 0 is refused");
  expect(gtp_cuda_backend(NULL, &backend) == GTP_INVALID_ARGUMENT, "NULL is refused");
  expect(gtp_cuda_stream(backend, NULL, NULL) == GTP_INVALID_ARGUMENT, "out must be given");
  expect(gtp_backend_finish(backend) == GTP_INVALID_USE, "only ranks of a host world are finished");
  expect(gtp_cuda_world_destroy((gtp_cuda_world*)(void*)backend) == GTP_INVALID_ARGUMENT, "kinds are told apart");
  communicators.size = sizeof communicators;
  communicators.dense_gather = world;
  expect(gtp_cuda_world_from_communicators(NULL, 0, 1, &communicators, &none) == GTP_INVALID_ARGUMENT,
         "half a pair is refused");
  expect(none == NULL && stream == NULL, "nothing was written");
}

static void step(gtp_backend* backend, int64_t rank, int64_t world_size) {
  enum { ROWS = 64, COLS = 32 };
  gtp_runtime_options options = {0};
  gtp_weight_options wanted = {0};
  gtp_weight_layout layout = {0};
  gtp_shard shard = {0};
  gtp_gathered_view view = {0};
  gtp_wgrad_view wgrad = {0};
  gtp_runtime* runtime = NULL;
  gtp_weight* weight = NULL;
  gtp_stream* compute = NULL;
  void* native = NULL;
  unsigned short whole[ROWS * COLS];
  float gradient[ROWS * COLS];
  void* data = NULL;
  void* grad = NULL;
  size_t i;
  int wrong = 0;

  options.size = sizeof options;
  options.tensor_parallel_num_weight_shards = world_size;
  check(gtp_runtime_create(backend, &options, &runtime), "gtp_runtime_create");
  check(gtp_stream_create(backend, "compute", &compute), "gtp_stream_create");
  check(gtp_cuda_native_stream(compute, &native), "gtp_cuda_native_stream");
  expect(native != NULL, "a made stream has a cudaStream_t");

  wanted.size = sizeof wanted;
  wanted.name = "w";
  wanted.rows = ROWS;
  wanted.cols = COLS;
  layout.size = sizeof layout;
  check(gtp_layout_of(runtime, &wanted, &layout), "gtp_layout_of");
  expect(cudaMalloc(&data, (size_t)layout.shard_bytes[GTP_ROW_DATA]) == 0, "cudaMalloc");
  expect(cudaMalloc(&grad, (size_t)layout.shard_elements * sizeof(float)) == 0, "cudaMalloc");
  for (i = 0; i < (size_t)layout.shard_elements; ++i) whole[i] = (unsigned short)(0x3F80 + rank);
  expect(cudaMemcpy(data, whole, (size_t)layout.shard_bytes[GTP_ROW_DATA], TO_DEVICE) == 0, "cudaMemcpy");
  memset(gradient, 0, sizeof gradient);
  expect(cudaMemcpy(grad, gradient, (size_t)layout.shard_elements * sizeof(float), TO_DEVICE) == 0, "cudaMemcpy");
  shard.size = sizeof shard;
  shard.data[GTP_ROW_DATA] = data;
  shard.main_grad = grad;
  wanted.shards = &shard;
  wanted.shard_count = 1;
  check(gtp_add_weight(runtime, &wanted, &weight), "gtp_add_weight");

  view.size = sizeof view;
  wgrad.size = sizeof wgrad;
  check(gtp_materialize(weight, GTP_USE_FORWARD, compute, &view, 1), "gtp_materialize");
  check(gtp_stream_synchronize(compute, 60000), "gtp_stream_synchronize");
  expect(cudaMemcpy(whole, view.data[GTP_ROW_DATA], sizeof whole, TO_HOST) == 0, "cudaMemcpy");
  for (i = 0; i < ROWS * COLS; ++i) {
    const size_t owner = i / (size_t)layout.shard_elements;
    if (world_size > 1 && whole[i] != 0x3F80 + owner) ++wrong;
  }
  expect(wrong == 0, "the gathered weight is made of all shards");

  check(gtp_materialize(weight, GTP_USE_DGRAD, compute, &view, 1), "gtp_materialize");
  check(gtp_grad_buffer(weight, compute, &wgrad, 1), "gtp_grad_buffer");
  for (i = 0; i < ROWS * COLS; ++i) gradient[i] = (float)(rank + 1);
  expect(cudaMemcpy(wgrad.data, gradient, sizeof gradient, TO_DEVICE) == 0, "cudaMemcpy");
  check(gtp_reduce_grad(weight, compute), "gtp_reduce_grad");
  check(gtp_fence_grads(runtime, compute), "gtp_fence_grads");
  check(gtp_stream_synchronize(compute, 60000), "gtp_stream_synchronize");
  expect(cudaMemcpy(gradient, grad, (size_t)layout.shard_elements * sizeof(float), TO_HOST) == 0, "cudaMemcpy");
  for (i = 0; i < (size_t)layout.shard_elements; ++i) {
    if (gradient[i] != (float)(world_size + 1) / 2.0F) ++wrong;
  }
  expect(wrong == 0, "a gradient is the mean over the ranks");
  check(gtp_runtime_destroy(runtime), "gtp_runtime_destroy");
  cudaFree(data);
  cudaFree(grad);
}

int main(void) {
  gtp_cuda_options options = {0};
  gtp_cuda_world* world = NULL;
  gtp_backend* backend = NULL;
  int64_t rank = 0;
  int64_t world_size = 0;
  int32_t device = 0;
  int devices = 1;
  const char* local = getenv("LOCAL_RANK");

  cudaGetDeviceCount(&devices);
  options.size = sizeof options;
  options.choose_device = 1;
  options.device = local != NULL && devices > 0 ? atoi(local) % devices : 0;
  check(gtp_cuda_world_from_environment(&options, &world), "gtp_cuda_world_from_environment");
  check(gtp_cuda_world_place(world, &rank, &world_size, &device), "gtp_cuda_world_place");
  expect(device == options.device, "the chosen device is used");
  check(gtp_cuda_backend(world, &backend), "gtp_cuda_backend");
  refuses(world, backend);
  step(backend, rank, world_size);
  check(gtp_cuda_world_destroy(world), "gtp_cuda_world_destroy");
  expect(gtp_cuda_world_destroy(world) == GTP_INVALID_ARGUMENT, "a destroyed world is refused");
  return failures == 0 ? 0 : 1;
}
