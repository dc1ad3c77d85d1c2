/* Whole steps on two ranks, from graphs too, and what the others learn when one is lost. */
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { kSteps = 2, kMicrobatches = 2 };

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

void test_steps(void) {
  static rank_state ranks[kRanks];
  for (uint64_t seed = 0; seed < 8; ++seed) {
    gtp_host_world* world = NULL;
    run_ranks(seed, train, &world, ranks);
    static collected_text trace;
    memset(&trace, 0, sizeof trace);
    must(gtp_host_world_write_trace(world, append, &trace), "the trace is written");
    check(strstr(trace.data, "\"traceEvents\"") != NULL && strstr(trace.data, "all-gather qkv") != NULL,
          "the trace names operations and weights");
    must(gtp_host_world_destroy(world), "a world is destroyed");
  }
}

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

void test_graphs(void) {
  static rank_state ranks[kRanks];
  gtp_host_world* world = NULL;
  run_ranks(3, capture, &world, ranks);
  must(gtp_host_world_destroy(world), "a world is destroyed");
}

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

void test_failing_peer(void) {
  static rank_state ranks[kRanks];
  gtp_host_world* world = NULL;
  run_ranks(1, fail_on_rank_1, &world, ranks);
  must(gtp_host_world_destroy(world), "a world is destroyed after a failure");
}

void test_missing_peer(void) {
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
