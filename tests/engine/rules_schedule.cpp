// Boundaries of the rules about durations, learning rates and evaluation that no golden case shows.
#include <doctest/doctest.h>

#include "../support/config.hpp"

using namespace gtp::test;
using Ids = std::vector<std::string>;

TEST_CASE("the warmup may take all but the last step of the decay") {
  CHECK(violated({{"micro_batch_size", "1"}, {"train_iters", "100"}, {"lr_warmup_iters", "99"}}) == Ids{});
  CHECK(violated({{"micro_batch_size", "1"}, {"train_iters", "100"}, {"lr_warmup_iters", "100"}}) ==
        Ids{"warmup-lt-decay"});
  CHECK(violated({{"micro_batch_size", "1"}, {"train_samples", "100"}, {"lr_warmup_samples", "100"}}) ==
        Ids{"warmup-lt-decay"});
  CHECK(violated({{"micro_batch_size", "1"}, {"train_iters", "100"}, {"lr_warmup_fraction", "1"}}) ==
        Ids{"warmup-lt-decay"});
}

TEST_CASE("a duration of zero counts as not given, and sample options then say nothing about units") {
  CHECK(violated({{"micro_batch_size", "1"}, {"train_samples", "0"}, {"lr_warmup_samples", "1"}}) ==
        Ids{"iters-or-samples-required"});
  CHECK(violated({{"micro_batch_size", "1"}, {"train_iters", "0"}, {"train_samples", "10"}}) ==
        Ids{"samples-vs-iters-exclusive"});
}

TEST_CASE("a run that skips training has no schedule to be wrong") {
  CHECK(violated({{"micro_batch_size", "1"},
                  {"skip_train", "true"},
                  {"train_iters", "100"},
                  {"train_samples", "100"},
                  {"lr_warmup_iters", "100"}}) == Ids{});
}

TEST_CASE("schedule options without a batch section are not judged") {
  CHECK(violated({{"lr_warmup_iters", "100"}, {"lr_warmup_fraction", "0.5"}}) == Ids{});
}

TEST_CASE("a length of data phases is a whole number, with or without spaces") {
  CHECK(violated({{"train_samples", "100"}, {"phase_transition_iterations", " 5 , 6"}}) == Ids{});
  CHECK(violated({{"train_samples", "100"}, {"phase_transition_iterations", "5,"}}) == Ids{"phase-transition-format"});
}
