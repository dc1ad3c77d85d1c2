// Sequence length and context parallelism: what the golden cases do not show.
#include <gtp/check.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../support/config.hpp"

using namespace gtp;
using namespace gtp::literals;
using gtp::test::violated;
using Ids = std::vector<std::string>;

TEST_CASE("a sequence splits into two chunks for every context-parallel rank or is refused") {
  CHECK(violated({{"context_parallel_size", "4"}, {"seq_length", "8192"}}).empty());
  CHECK(violated({{"context_parallel_size", "4"}, {"seq_length", "8196"}}) == Ids{"seq-divisible-by-2cp"});
  CHECK(violated({{"context_parallel_size", "1"}, {"seq_length", "8191"}}).empty());
  CHECK(violated({{"context_parallel_size", "9223372036854775807"}, {"seq_length", "8"}}) ==
        Ids{"seq-divisible-by-2cp"});
}

TEST_CASE("as many positions as tokens are enough and one less is not") {
  CHECK(violated({{"num_layers", "4"}, {"max_position_embeddings", "4096"}, {"seq_length", "4096"}}).empty());
  CHECK(violated({{"num_layers", "4"}, {"max_position_embeddings", "4095"}, {"seq_length", "4096"}}) ==
        Ids{"max-position-ge-seq"});
  CHECK(violated({{"num_layers", "4"}, {"max_position_embeddings", "4096"}, {"decoder_seq_length", "4097"}}) ==
        Ids{"max-position-ge-seq"});
}

TEST_CASE("an encoder's sequence length stands in for the one that is missing") {
  Diagnostics none;
  const Config config = test::make_config({{"encoder_seq_length", "512"}}, none);
  CHECK(derive(config).facts.integer("seq_length"_opt) == 512);
}

TEST_CASE("one communication word fits a model of any depth and two fit a model of two layers") {
  CHECK(violated({{"num_layers", "8"}, {"context_parallel_size", "2"}, {"cp_comm_type", "all_gather"}}).empty());
  CHECK(violated({{"num_layers", "2"}, {"context_parallel_size", "2"}, {"cp_comm_type", "p2p all_gather"}}).empty());
  CHECK(violated({{"num_layers", "8"}, {"context_parallel_size", "2"}, {"cp_comm_type", "p2p all_gather"}}) ==
        Ids{"cp-comm-list-length"});
  CHECK(violated({{"num_layers", "8"}, {"context_parallel_size", "1"}, {"cp_comm_type", "p2p all_gather"}}).empty());
}

TEST_CASE("two-level context parallelism without its levels is refused even for one rank") {
  CHECK(violated({{"context_parallel_size", "1"}, {"cp_comm_type", "a2a+p2p"}}) == Ids{"cp-a2a-p2p-needs-hierarchy"});
  CHECK(
      violated(
          {{"context_parallel_size", "4"}, {"cp_comm_type", "a2a+p2p"}, {"hierarchical_context_parallel_sizes", "2 2"}})
          .empty());
}

TEST_CASE("a window without a limit is no window") {
  for (const char* window : {"-1,-1", "(-1, 0)"})
    CHECK(violated({{"num_layers", "4"}, {"context_parallel_size", "2"}, {"window_size", window}}).empty());
  CHECK(violated({{"num_layers", "4"}, {"context_parallel_size", "2"}, {"window_size", "128,0"}}) == Ids{"te-cp-swa"});
}

TEST_CASE("sequence parallelism asked for with one tensor-parallel rank does not help tensor-parallel overlap") {
  CHECK(violated({{"tensor_model_parallel_size", "1"}, {"sequence_parallel", "true"}, {"tp_comm_overlap", "true"}}) ==
        Ids{"tp-comm-overlap-needs-sp"});
}
