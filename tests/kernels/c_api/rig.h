/* One rank of a small model on the C ABI, and checks that count. Every rank is a POSIX thread. */
#ifndef GTP_TESTS_C_API_RIG_H
#define GTP_TESTS_C_API_RIG_H

#include "gtp/runtime.h"

enum { kRanks = 2, kWeights = 3, kRows = 24, kCols = 4, kMaxJobs = 256 };

/* Any thread. A promise that is not kept is printed with the thread's last error. */
void check(int ok, const char* promise);
/* `text`: what the last error must hold, or NULL. */
void check_status(gtp_status got, gtp_status expected, const char* text, const char* promise);
void must(gtp_status got, const char* promise);
/* Prints how many checks there were; how many failed. */
int report_checks(void);

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

float wgrad_value(int64_t rank, int64_t tensor, int64_t round, int64_t index);

/* Runs `body` with each of `ranks` on a thread of its own; the caller destroys the world. */
void run_ranks(uint64_t seed, void* (*body)(void*), gtp_host_world** world, rank_state* ranks);
/* Makes a backend, a stream and a runtime; with callbacks, memory is this rank's. */
void begin(rank_state* self, int with_callbacks);
void add_weights(rank_state* self, int graphed);
/* What an optimizer does: new values in stream order, then publish. */
void update_weights(rank_state* self);
/* Forward and backward once, every weight read and reduced. */
void microbatch(rank_state* self, int64_t round);
/* Main_grad is the mean over the ranks, summed over the rounds so far. */
int wrong_gradients(const rank_state* self, int64_t rounds);
void finish(rank_state* self);

/* What a writer callback with `append` has collected: a string as long as it fits. */
typedef struct collected_text {
  char data[1 << 16];
  size_t length;
} collected_text;

void append(void* user, const char* piece, size_t length);

/* The parts of the test. */
void test_steps(void);
void test_graphs(void);
void test_failing_peer(void);
void test_missing_peer(void);
void test_bad_worlds(void);
void test_misuse(void);
void test_last_error(void);

#endif
