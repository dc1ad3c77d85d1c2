// Valid configurations by the thousand: the same ones in every run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtp/assign.hpp>

#include "tests/cli/launch.hpp"

namespace gtp::test {

/// Deterministic everywhere, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }
  std::int64_t below(std::size_t count) { return static_cast<std::int64_t>(next() % count); }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[static_cast<std::size_t>(below(items.size()))];
  }
  template <class T>
  T of(std::initializer_list<T> items) {
    return items.begin()[below(items.size())];
  }

 private:
  std::uint64_t state_;
};

namespace detail {

/// A dense or MoE job with GTP on either grid, no default among its values, valid by construction.
inline Config topology_of(Random& random) {
  Config config;
  const auto set = [&](std::string_view option, Value value) { config.set(*find_option(option), std::move(value)); };
  const std::vector<std::int64_t> sizes{1, 2, 4};
  const std::int64_t tp = random.of(sizes), gtp = random.of(sizes), pp = random.of(sizes), cp = random.of({1, 1, 2});
  const std::int64_t dense = tp * gtp * cp;
  const std::int64_t world = dense * pp * random.of({8, 16, 32});
  set("world_size", world);
  set("gpus_per_node", std::int64_t{random.of({4, 8})});
  if (!random.one_in(4)) set("gpu_arch", std::string(random.of({"ampere", "hopper", "blackwell"})));
  if (random.one_in(2)) set("te_version", std::string("2.19.0"));
  if (tp > 1 || gtp > 1) set("tensor_model_parallel_size", tp);
  if (gtp > 1) set("tensor_parallel_num_weight_shards", tp * gtp);
  if (pp > 1) set("pipeline_model_parallel_size", pp);
  if (cp > 1) set("context_parallel_size", cp);
  if (tp > 1) set("sequence_parallel", true);
  set("add_bias_linear", false);
  set("untie_embeddings_and_output_weights", true);
  set("num_layers", 8 * pp);
  set("hidden_size", std::int64_t{1024});
  set("num_attention_heads", std::int64_t{16});
  set("max_position_embeddings", std::int64_t{4096});
  set("seq_length", std::int64_t{4096});
  const std::int64_t mbs = random.of({1, 2});
  set("micro_batch_size", mbs);
  set("global_batch_size", mbs * (world / (tp * cp * pp)) * (1 + random.below(3)));
  if (random.one_in(2)) {
    const std::int64_t etp = random.of({1, 2}), ep = random.of({2, 4}), egtp = random.of({1, 2});
    set("num_experts", std::int64_t{16});
    set("expert_model_parallel_size", ep);
    set("expert_tensor_parallel_size", etp);
    if (egtp > 1) set("expert_tensor_parallel_num_weight_shards", etp * egtp);
  }
  set("bf16", true);
  set("use_distributed_optimizer", true);
  return config;
}

inline std::string text_for(Random& random) {
  static const std::vector<std::string> more{"-x", "--load", "--", "-", "-1", "-a b=c", "--load=x"};
  return random.one_in(4) ? random.of(more) : random.of(hostile_texts());
}

/// A value of the option's type; None for a list that no command line can carry.
inline Value value_for(const Option& row, Random& random) {
  const StringList choices = gtp::detail::split_words(row.choices);
  if (!choices.empty() && row.type != Type::Words) {
    const Word choice{random.of(choices)};
    Diagnostics none;
    return parse_value(row, std::span(&choice, 1), {}, none).value_or(Value{});
  }
  switch (row.type) {
    case Type::Bool:
      return !row.default_value.boolean;
    case Type::Int:
      return random.below(2000) - (random.one_in(4) ? 1000 : 0);
    case Type::Float:
      return static_cast<double>(random.below(1'000'000)) * (random.one_in(2) ? 1e-9 : -1e-3);
    case Type::String:
      return text_for(random);
    case Type::Integers:
      return IntList{random.below(100), 100 + random.below(100), -1 - random.below(9)};
    case Type::Floats:
      return FloatList{1e-7, -1e-7, static_cast<double>(random.below(1000))};
    case Type::Words:
      if (!choices.empty()) return StringList{random.of(choices)};
      return random.one_in(3) ? StringList{text_for(random)}
                              : StringList{random.of(hostile_texts()), random.of(hostile_texts()), "last"};
    case Type::Frequency:
      return random.one_in(2) ? Value(2 + random.below(5)) : Value(IntList{0, 0, 1, 1, 1, 0, 1, 0});
  }
  return {};
}

/// Not those with which a launch writes a size that the input leaves to upstream.
inline bool is_extra(OptionId option, const Config& config) {
  const Option& row = kOptions[option.index];
  if (row.name.find("num_weight_shards") != std::string_view::npos || row.name == "num_experts") return false;
  if (row.name == "expert_model_parallel_size") return false;
  return !flags_of(row).empty() && exists(option, config.version()) && config.given(option) == nullptr &&
         row.name != "use_checkpoint_args";
}

inline bool valid(const Config& config) {
  const Report report = check(config);
  return !has_errors(report.diagnostics) && report.derivation.topology.has_value();
}

}  // namespace detail

/// With up to `extras` further options of any section, as many as keep the configuration valid.
inline Config random_configuration(Random& random, std::size_t extras) {
  while (true) {
    const Config base = detail::topology_of(random);
    if (!detail::valid(base)) continue;
    for (std::size_t count = extras; count > 0; count /= 2) {
      Config config = base;
      for (std::size_t i = 0; i < count; ++i) {
        const OptionId option = sorted_options()[static_cast<std::size_t>(random.below(sorted_options().size()))];
        if (!detail::is_extra(option, config)) continue;
        const Option& row = row_of(option, config.version());
        Value value = detail::value_for(row, random);
        if (!is_none(value) && value != gtp::detail::to_value(row)) config.set(option, std::move(value));
      }
      if (detail::valid(config)) return config;
    }
    return base;
  }
}

}  // namespace gtp::test
