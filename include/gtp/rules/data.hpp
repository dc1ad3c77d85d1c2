// 85x: data sets, samplers, logs.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>

namespace gtp::rules {

namespace detail {

inline bool has_paths(const Facts& f, OptionId option) {
  const Value* value = f.find(option);
  if (value == nullptr || is_none(*value)) return false;
  const auto* paths = std::get_if<StringList>(value);
  return paths == nullptr || !paths->empty();
}

/// The first of the options for one split each that has a path.
inline std::optional<OptionId> per_split_path(const Facts& f) {
  for (const OptionId option : {"train_data_path"_opt, "valid_data_path"_opt, "test_data_path"_opt})
    if (has_paths(f, option)) return option;
  return std::nullopt;
}

/// Every source of data but the first.
inline Findings more_than_one_source(const Facts& f) {
  std::vector<OptionId> sources;
  if (f.on("mock_data"_opt)) sources.push_back("mock_data"_opt);
  if (has_paths(f, "data_path"_opt)) sources.push_back("data_path"_opt);
  if (const auto split = per_split_path(f)) sources.push_back(*split);
  Findings findings;
  for (std::size_t i = 1; i < sources.size(); ++i)
    findings.list.push_back(at(sources[i], "another source of data").also(sources[0], "the first"));
  return findings;
}

inline bool fim_rate_missing(const Facts& f, OptionId rate) {
  const Value* value = f.find(rate);
  return value != nullptr && (is_none(*value) || *value == Value(0.0));
}

}  // namespace detail

inline constexpr Rule kDataRules[] = {
    {"GTP851",
     "single-data-source",
     Severity::Error,
     Phase::Startup,
     {"mock_data"_opt, "data_path"_opt},
     "training data comes from one source",
     "Synthetic samples, one data set that is split, or a data set a split.",
     "keep one of them",
     "megatron/training/arguments.py:1679",
     [](const Derivation& d) { return detail::more_than_one_source(d.facts); }},
    {"GTP852",
     "data-path-vs-args-path",
     Severity::Error,
     Phase::Startup,
     {"data_path"_opt, "data_args_path"_opt, "per_split_data_args_path"_opt},
     "data paths are given twice",
     "A file of paths takes the place of paths in the options.",
     "keep one of the two",
     "megatron/training/arguments.py:677",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.has("data_path"_opt) && f.has("data_args_path"_opt))
         return at("data_args_path"_opt, "a file of paths").also("data_path"_opt, "paths");
       for (const OptionId split : {"train_data_path"_opt, "valid_data_path"_opt, "test_data_path"_opt})
         if (f.has(split) && f.has("per_split_data_args_path"_opt))
           return at("per_split_data_args_path"_opt, "a file of paths").also(split, "paths");
       return {};
     }},
    {"GTP853",
     "dataset-builder-threads",
     Severity::Error,
     Phase::Startup,
     {"num_dataset_builder_threads"_opt},
     "data sets are built by at least one thread",
     "Without a thread nothing is built.",
     "use 1 or more",
     "megatron/training/arguments.py:1258",
     [](const Derivation& d) -> Findings {
       const auto threads = d.facts.integer("num_dataset_builder_threads"_opt);
       if (!threads || *threads > 0) return {};
       return at("num_dataset_builder_threads"_opt, fmt::format("{} is not positive", *threads));
     }},
    {"GTP854",
     "sampler-cyclic-alignment",
     Severity::Error,
     Phase::Later,
     {"dataloader_type"_opt, "consumed_train_samples"_opt, kMbs, kLanes},
     "the cyclic sampler can resume only at a whole number of microbatches",
     "Samples already consumed must be a multiple of micro batch size x data distribution; after a change of either "
     "they often are not.",
     "keep micro batch size and data distribution, or use the sampler `single`",
     "megatron/training/datasets/data_samplers.py:366",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto consumed = f.integer("consumed_train_samples"_opt), mbs = f.integer(kMbs);
       if (f.text("dataloader_type"_opt) != "cyclic" || !consumed || *consumed <= 0 || !mbs || *mbs < 1) return {};
       const auto unit = checked_multiply(*mbs, f[kLanes]);
       if (!unit || divides(*unit, *consumed)) return {};
       return at("consumed_train_samples"_opt, fmt::format("{} is not a multiple of {}", *consumed, *unit))
           .also("dataloader_type"_opt, "cyclic");
     }},
    {"GTP855",
     "fim-requirements",
     Severity::Error,
     Phase::Startup,
     {"fim_data"_opt, "mock_data"_opt, "fim_rate"_opt, "fim_spm_rate"_opt},
     "fill-in-the-middle data needs real data and both rates",
     "A rate of 0 counts as not given.",
     "use a real data set, and set fim_rate and fim_spm_rate above 0",
     "megatron/training/arguments.py:1684",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!f.on("fim_data"_opt)) return {};
       if (f.on("mock_data"_opt)) return at("mock_data"_opt, "on").also("fim_data"_opt, "on");
       for (const OptionId rate : {"fim_rate"_opt, "fim_spm_rate"_opt})
         if (detail::fim_rate_missing(f, rate)) return at(rate, "not given").also("fim_data"_opt, "on");
       return {};
     }},
    {"GTP856",
     "log-memory-interval",
     Severity::Error,
     Phase::Startup,
     {"log_memory_interval"_opt, "log_interval"_opt},
     "memory is logged together with the rest",
     "log_memory_interval must be a multiple of log_interval.",
     "use a multiple of log_interval",
     "megatron/training/arguments.py:1369",
     [](const Derivation& d) -> Findings {
       const auto memory = d.facts.integer("log_memory_interval"_opt), all = d.facts.integer("log_interval"_opt);
       if (!memory || !all || (*all != 0 && *memory % *all == 0)) return {};
       return at("log_memory_interval"_opt, fmt::format("{} is not a multiple of {}", *memory, *all))
           .also("log_interval"_opt, "log interval");
     }},
    {"GTP857",
     "logits-save",
     Severity::Error,
     Phase::Startup,
     {"logits_save_dir"_opt, "logits_save_top_k"_opt},
     "dumping logits needs a count and background saves",
     "The largest logits_save_top_k logits are written by the process that writes checkpoints in the background; "
     "without use_persistent_ckpt_worker upstream has just turned async_save off.",
     "set logits_save_top_k, async_save and use_persistent_ckpt_worker",
     "megatron/training/arguments.py:1825",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto folder = "logits_save_dir"_opt;
       if (!f.has(folder)) return {};
       if (!f.has("logits_save_top_k"_opt)) return at(folder, "without logits_save_top_k");
       if (!detail::off_or_unsaid(f, "async_save"_opt)) return {};
       return at(folder, "given").also("async_save"_opt, "off");
     }},
};

}  // namespace gtp::rules
