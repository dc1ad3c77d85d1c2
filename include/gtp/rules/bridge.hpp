// 95x-96x: what Megatron-Bridge checks of sizes, durations, schedules, batches and sequences. What it checks of
// process groups, precision and FSDP is in bridge_runtime.hpp.
#pragma once

#include <array>
#include <numeric>
#include <span>
#include <string_view>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/batch.hpp>
#include <gtp/rules/names.hpp>
#include <gtp/rules/pipeline.hpp>
#include <gtp/rules/world_size.hpp>

namespace gtp::rules {

inline constexpr OptionId kTrainIters = "train_iters"_opt, kTrainSamples = "train_samples"_opt,
                          kNumEpochs = "num_epochs"_opt, kDecayIters = "lr_decay_iters"_opt,
                          kDecaySamples = "lr_decay_samples"_opt, kWarmupIters = "lr_warmup_iters"_opt,
                          kWarmupSamples = "lr_warmup_samples"_opt, kWarmupFraction = "lr_warmup_fraction"_opt,
                          kMaxSteps = "max_steps"_opt, kEvalCp = "eval_context_parallel_size"_opt,
                          kSeqLength = "seq_length"_opt, kDatasetSeqLength = "dataset_seq_length"_opt,
                          kDatasetConfig = "dataset_config"_opt;

namespace detail {

inline bool given(const Derivation& d, OptionId option) { return d.facts.config().given(option) != nullptr; }

inline bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Shards beyond the parallel size, which Bridge's groups do not know.
inline Findings unwired_shards(const Facts& f, OptionId shards, OptionId parallel, std::string_view what) {
  const auto count = f.integer(shards), size = f.integer(parallel);
  if (!count || !size || *count <= *size || *count % *size != 0) return {};
  return at(shards, fmt::format("remat size {}, but groups of 1 rank", *count / *size))
      .also(parallel, fmt::format("{} size", what));
}

/// A run that counted samples or epochs records the iterations that it got from them beside its own duration.
inline bool recorded_beside(const Derivation& d) {
  const Facts& f = d.facts;
  if (f.config().partial || !f.has(kTrainIters)) return false;
  if (given(d, kNumEpochs)) return !given(d, kTrainSamples);
  const auto samples = f.integer(kTrainSamples), global = f.integer(kGbs);
  return samples && global && *samples / *global == f[kTrainIters];
}

inline Findings one_duration(const Derivation& d) {
  Finding finding;
  int count = 0;
  for (const OptionId option : {kNumEpochs, kTrainSamples, kTrainIters}) {
    if (!given(d, option)) continue;
    if (count++ == 0)
      finding = at(option, "a duration");
    else
      finding.related.push_back({std::string(name_of(option)), {}, "another"});
  }
  return count < 2 || recorded_beside(d) ? Findings{} : Findings{std::move(finding)};
}

inline Findings rampup_conflict(const Derivation& d) {
  if (!d.facts.has("rampup_batch_size"_opt)) return {};
  for (const OptionId option : {kTrainSamples, kNumEpochs})
    if (given(d, option)) return at("rampup_batch_size"_opt, "a ramp").also(option, "the duration");
  return {};
}

inline Findings epochs_conflict(const Derivation& d) {
  const Facts& f = d.facts;
  const auto epochs = gtp::detail::real(f, kNumEpochs);
  if (!epochs) return {};
  if (!(*epochs > 0)) return at(kNumEpochs, fmt::format("{} is not positive", *epochs));
  if (const auto dataset = f.text(kDatasetConfig); dataset && *dataset != "GPTSFTDatasetConfig")
    return at(kDatasetConfig, fmt::format("{} does not say how long it is", *dataset)).also(kNumEpochs, "epochs");
  const auto loader = "dataloader_type"_opt;
  if (given(d, loader) && f.has(loader) && f.text(loader) != "batch")
    return at(loader, fmt::format("`{}` is not batch", *f.text(loader))).also(kNumEpochs, "epochs");
  return {};
}

/// The first of the options that says something; 0 says nothing of a warmup.
inline std::optional<OptionId> first_set(const Facts& f, std::initializer_list<OptionId> options) {
  for (const OptionId option : options)
    if (f.config().given(option) != nullptr && f.has(option) && f.integer(option) != 0) return option;
  return std::nullopt;
}

inline Findings mixed_units(const Facts& f) {
  const auto iterations = first_set(f, {kDecayIters, kWarmupIters, "lr_wsd_decay_iters"_opt});
  const auto samples = first_set(f, {kDecaySamples, kWarmupSamples, "lr_wsd_decay_samples"_opt});
  if (iterations && samples) return at(*samples, "counts samples").also(*iterations, "counts iterations");
  const auto warmup = first_set(f, {kWarmupIters, kWarmupSamples});
  if (f.has(kWarmupFraction) && warmup) return at(*warmup, "a warmup").also(kWarmupFraction, "another");
  return {};
}

inline Findings unit_mismatch(const Facts& f) {
  if (!mixed_units(f).list.empty()) return {};
  const bool samples = f.config().given(kTrainSamples) != nullptr;
  if (!samples && f.config().given(kTrainIters) == nullptr) return {};
  const auto wrong =
      samples ? first_set(f, {kDecayIters, kWarmupIters, kMaxSteps}) : first_set(f, {kDecaySamples, kWarmupSamples});
  if (!wrong) return {};
  return at(*wrong, samples ? "counts iterations" : "counts samples")
      .also(samples ? kTrainSamples : kTrainIters, "the duration");
}

/// Whose value is the length of the decay; nothing when no input says it.
inline std::optional<OptionId> decay_option(const Derivation& d) {
  const bool samples = given(d, kTrainSamples);
  const auto options = samples ? std::array{kDecaySamples, kDecaySamples, kTrainSamples}
                               : std::array{kMaxSteps, kDecayIters, kTrainIters};
  for (const OptionId option : options)
    if (d.facts.integer(option)) return option;
  return std::nullopt;
}

inline Findings long_warmup(const Derivation& d) {
  const auto decay = decay_option(d);
  if (!decay || d.facts[*decay] <= 0 || !mixed_units(d.facts).list.empty()) return {};
  const OptionId option = given(d, kTrainSamples) ? kWarmupSamples : kWarmupIters;
  if (const auto fraction = gtp::detail::real(d.facts, kWarmupFraction); fraction && *fraction >= 1)
    return at(kWarmupFraction, fmt::format("{} of the decay", *fraction));
  const auto warmup = d.facts.integer(option);
  if (!warmup || *warmup < d.facts[*decay]) return {};
  return at(option, fmt::format("{} is not below {}", *warmup, d.facts[*decay])).also(*decay, "the decay");
}

inline Findings max_steps(const Facts& f) {
  const auto steps = f.integer(kMaxSteps), train = f.integer(kTrainIters);
  if (!steps) return {};
  if (*steps <= 0) return at(kMaxSteps, fmt::format("{} is not positive", *steps));
  if (!train || *steps >= *train) return {};
  return at(kMaxSteps, fmt::format("{} is below {}", *steps, *train)).also(kTrainIters, "iterations to train");
}

/// Ranks that read different evaluation samples, with a context-parallel size of its own; nothing when the world is not
/// divided or a size is unknown.
inline std::optional<std::int64_t> eval_lanes(const Facts& f) {
  const auto world = f.integer(kWorldSize), tp = f.integer(kTp), pp = f.integer(kPp), cp = f.integer(kEvalCp);
  if (!world || !tp || !pp || !cp || *cp < 1) return std::nullopt;
  const std::array sizes{*tp, *pp, *cp};
  return replicate_size(*world, std::span<const std::int64_t>(sizes));
}

inline Findings bridge_eval_batch(const Derivation& d) {
  const Facts& f = d.facts;
  if (!d.batch_options) return {};
  if (!f.has(kEvalCp)) return eval_batch_findings(d);
  const auto lanes = eval_lanes(f);
  const auto global = f.integer(kEvalGbs), micro = f.integer(kEvalMbs);
  if (!lanes || !global || !micro) return {};
  const auto unit = checked_multiply(*lanes, *micro);
  if (unit && *unit > 0 && *global % *unit == 0) return {};
  return at(given(d, kEvalGbs) ? kEvalGbs : kGbs,
            fmt::format("{} is not a multiple of {} x {}", *global, *micro, *lanes))
      .also(kEvalCp, "context-parallel size of evaluation");
}

inline Findings eval_world(const Facts& f) {
  const auto cp = f.integer(kEvalCp);
  if (!cp) return {};
  if (*cp < 1) return at(kEvalCp, fmt::format("{} is below 1", *cp));
  if (eval_lanes(f)) return {};
  return at(kEvalCp, fmt::format("{} is not a multiple of TP {} x PP {} x {}", f[kWorldSize], f[kTp], f[kPp], *cp))
      .also(kWorldSize, "ranks");
}

inline Findings flat_hierarchy(const Facts& f) {
  const auto sizes = "hierarchical_context_parallel_sizes"_opt, type = "cp_comm_type"_opt;
  const Value* levels = f.find(sizes);
  if (const auto* list = levels == nullptr ? nullptr : std::get_if<IntList>(levels)) {
    const auto product = checked_product(std::span<const std::int64_t>(*list));
    if (product == f[kCp]) return {};
    return at(sizes, fmt::format("{} is not {}", product ? fmt::format("{}", *product) : "the product", f[kCp]))
        .also(kCp, "context-parallel size");
  }
  const Value* types = f.find(type);
  const auto* words = types == nullptr ? nullptr : std::get_if<StringList>(types);
  if (words == nullptr || std::find(words->begin(), words->end(), "a2a+p2p") == words->end()) return {};
  if (f.config().partial && levels == nullptr) return {};
  return at(type, "two levels, and no sizes for them").also(kCp, "context-parallel size");
}

inline bool is_finetuning(const Facts& f) {
  return is_one_of(f.text(kDatasetConfig).value_or(""), {"GPTSFTDatasetConfig", "DirectHFSFTDatasetConfig",
                                                         "EnergonDatasetConfig", "MockVLMSFTDatasetConfig"});
}

inline Findings finetuning_with_cp(const Facts& f) {
  if (!is_finetuning(f) || f[kCp] <= 1) return {};
  const auto per_token = "calculate_per_token_loss"_opt, average = "ddp_average_in_collective"_opt;
  if (f.known(per_token) && !f.on(per_token)) return at(per_token, "off").also(kCp, "context-parallel size");
  if (f.on(average)) return at(average, "on").also(kCp, "context-parallel size");
  return {};
}

/// What a collated row is padded to; nothing beyond 64 bits.
inline std::optional<std::int64_t> collate_multiple(const Facts& f) {
  std::int64_t multiple = 1;
  for (const auto cp : {f.integer(kCp), f.integer(kEvalCp)}) {
    if (!cp || *cp < 1) continue;
    const bool sp = f.on("sequence_parallel"_opt) && f[kTp] > 1;
    const auto twice = checked_multiply(*cp, *cp > 1 ? 2 : 1), shards = checked_multiply(*cp, sp ? f[kTp] : 1);
    if (!twice || !shards) return std::nullopt;
    for (const std::int64_t factor : {*twice, sp || *cp > 1 ? *shards : 1}) {
      const auto next = checked_multiply(multiple / std::gcd(multiple, factor), factor);
      if (!next) return std::nullopt;
      multiple = *next;
    }
  }
  return multiple;
}

inline Findings collate_remainder(const Facts& f) {
  if (!is_finetuning(f) || f.text(kDatasetConfig) == "GPTSFTDatasetConfig") return {};
  const auto multiple = collate_multiple(f), length = f.integer(kDatasetSeqLength);
  if (!multiple || !length || *length % *multiple == 0) return {};
  return at(kDatasetSeqLength, fmt::format("{} is not a multiple of {}", *length, *multiple))
      .also(kCp, "context-parallel size")
      .also(kTp, "tensor-parallel size");
}

/// Only Bridge's own dataset classes are compared; a partial input does not name its class.
inline Findings lengths_differ(const Facts& f) {
  const auto dataset = f.text(kDatasetConfig);
  if (dataset && *dataset != "GPTDatasetConfig" && *dataset != "MockGPTDatasetConfig" && !is_finetuning(f)) return {};
  if (f[kSeqLength] == f[kDatasetSeqLength]) return {};
  return at(kDatasetSeqLength, fmt::format("{} is not {}", f[kDatasetSeqLength], f[kSeqLength]))
      .also(kSeqLength, "the model's length");
}

}  // namespace detail

inline constexpr Rule kBridge[] = {
    {"GTP950",
     "bridge-head-no-gtp-wiring",
     Severity::Error,
     Phase::FirstStep,
     {},
     "Megatron-Bridge does not build GTP groups in this version",
     "Parallel state is initialized without the remat sizes, so the groups have one rank while the model is made for "
     "shards; the first gradient step stops at that.",
     "leave the weight shards out, or use a Bridge with pull request 5569",
     "Megatron-Bridge src/megatron/bridge/training/initialize.py:805",
     [](const Derivation& d) {
       Findings findings = detail::unwired_shards(d.facts, kShards, kTp, "tensor-parallel");
       for (Finding& finding : detail::unwired_shards(d.facts, kExpertShards, kEtp, "expert-tensor-parallel").list)
         findings.list.push_back(std::move(finding));
       return findings;
     },
     kOldestVersion,
     Version::kd98e8a64},
    {"GTP951",
     "bridge-world-divisible",
     Severity::Error,
     Phase::Startup,
     {kWorldSize, kTp, kPp, kCp},
     "the world size must be a multiple of TP x PP x CP",
     "One replica of the model takes TP x PP x CP ranks, and the world holds a whole number of replicas.",
     "change the world size or a parallel size",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1024",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.has(kDp)) return {};
       return at(kWorldSize, fmt::format("{} is not a multiple of {}", f[kWorldSize],
                                         detail::product_text({f[kTp], f[kPp], f[kCp]})))
           .note(fmt::format("TP {} x PP {} x CP {}", f[kTp], f[kPp], f[kCp]))
           .mend(detail::nearest_worlds(f[kWorldSize], {f[kTp], f[kPp], f[kCp]}));
     }},
    {"GTP952",
     "bridge-training-mode-exclusive",
     Severity::Error,
     Phase::Startup,
     {},
     "only one of train_iters, train_samples and num_epochs may be given",
     "Each of them says how long the training takes.",
     "keep one of the three",
     "Megatron-Bridge src/megatron/bridge/training/config.py:480",
     [](const Derivation& d) { return detail::one_duration(d); }},
    {"GTP953",
     "bridge-rampup-conflicts",
     Severity::Error,
     Phase::Startup,
     {},
     "a batch-size ramp works with train_iters only",
     "Iterations are computed from samples or epochs with a constant batch.",
     "drop rampup_batch_size, or train for iterations",
     "Megatron-Bridge src/megatron/bridge/training/config.py:484",
     [](const Derivation& d) { return detail::rampup_conflict(d); }},
    {"GTP954",
     "bridge-epochs-needs-batch-loader",
     Severity::Error,
     Phase::Startup,
     {},
     "epochs need a finite dataset and the batch loader",
     "Only a GPTSFTDatasetConfig with the batch loader knows how many samples an epoch has.",
     "use train_iters, or such a dataset with dataloader_type batch",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1261",
     [](const Derivation& d) { return detail::epochs_conflict(d); }},
    {"GTP955",
     "bridge-scheduler-unit-exclusive",
     Severity::Error,
     Phase::Startup,
     {},
     "the scheduler counts either iterations or samples, and has one warmup",
     "Decay, warmup and annealing are laid out in one unit; a warmup fraction is a warmup of its own.",
     "use one unit and one kind of warmup",
     "Megatron-Bridge src/megatron/bridge/training/config.py:426",
     [](const Derivation& d) { return detail::mixed_units(d.facts); }},
    {"GTP956",
     "bridge-scheduler-mode-match",
     Severity::Error,
     Phase::Startup,
     {},
     "the scheduler must count what the training counts",
     "Training by samples needs a schedule in samples, training by iterations one in iterations.",
     "use the scheduler's options of the same unit",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1703",
     [](const Derivation& d) { return detail::unit_mismatch(d.facts); }},
    {"GTP957",
     "bridge-warmup-capped",
     Severity::Warning,
     Phase::Startup,
     {},
     "the warmup takes all of the decay and is cut short",
     "Megatron Core needs a warmup shorter than the decay; Bridge lowers it to one sample less and says so in its log. "
     "The learning rate then never decays as planned.",
     "shorten the warmup",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1798",
     [](const Derivation& d) { return detail::long_warmup(d); }},
    {"GTP958",
     "bridge-lr-decay-positive",
     Severity::Error,
     Phase::Startup,
     {},
     "the decay of the learning rate must be positive",
     "A schedule of no steps has no learning rate.",
     "train longer, or use a longer decay",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1793",
     [](const Derivation& d) -> Findings {
       const auto decay = detail::decay_option(d);
       if (!decay || *decay == kMaxSteps || d.facts[*decay] > 0) return {};
       return at(*decay, fmt::format("{} is not positive", d.facts[*decay]));
     }},
    {"GTP959",
     "bridge-max-steps",
     Severity::Error,
     Phase::Startup,
     {},
     "max_steps must be positive and not below train_iters",
     "The schedules are laid out for max_steps, and the run must end within them.",
     "use train_iters or more",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1768",
     [](const Derivation& d) { return detail::max_steps(d.facts); }},
    {"GTP960",
     "bridge-eval-batch-divisible",
     Severity::Error,
     Phase::Startup,
     {kMbs, kGbs, kDp},
     "the evaluation batch must be a multiple of evaluation micro batch size x data-parallel size",
     "Evaluation runs a whole number of microbatches on every rank, with eval_context_parallel_size when that is "
     "given. "
     "Unset sizes are those of training.",
     "use a multiple",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1474",
     [](const Derivation& d) { return detail::bridge_eval_batch(d); }},
    {"GTP961",
     "bridge-eval-cp",
     Severity::Error,
     Phase::Startup,
     {kWorldSize, kTp, kPp, kEvalCp},
     "the world size must be a multiple of TP x PP x the context-parallel size of evaluation",
     "Evaluation lays the same ranks out with its own context-parallel size.",
     "use a size that divides the world",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1467",
     [](const Derivation& d) { return detail::eval_world(d.facts); }},
    {"GTP962",
     "bridge-seq-2cp",
     Severity::Error,
     Phase::Startup,
     {kSeqLength, kCp},
     "with context parallelism the sequence must be a multiple of 2 x CP",
     "Every rank takes two pieces of the sequence, one from each end, so that causal attention is balanced.",
     "use a multiple",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1575",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto pieces = checked_multiply(f[kCp], 2);
       if (f[kCp] <= 1 || (pieces && f[kSeqLength] % *pieces == 0)) return {};
       return at(kSeqLength, fmt::format("{} is not a multiple of 2 x {}", f[kSeqLength], f[kCp]))
           .also(kCp, "context-parallel size");
     }},
    {"GTP963",
     "bridge-a2a-p2p",
     Severity::Error,
     Phase::Startup,
     {kCp},
     "hierarchical context parallelism needs sizes that multiply to CP",
     "With a2a+p2p and no sizes every rank would attend to its own piece only, fast and wrong, so Bridge refuses.",
     "set hierarchical_context_parallel_sizes to factors of CP",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1682",
     [](const Derivation& d) { return detail::flat_hierarchy(d.facts); }},
    {"GTP964",
     "bridge-sft-cp",
     Severity::Error,
     Phase::Startup,
     {kDatasetConfig, kCp},
     "finetuning with context parallelism needs the per-token loss and no averaging in the collective",
     "A rank may hold masked tokens only; an average over its own tokens would then divide by zero.",
     "set calculate_per_token_loss, and turn ddp.average_in_collective off",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1591",
     [](const Derivation& d) { return detail::finetuning_with_cp(d.facts); }},
    {"GTP965",
     "bridge-collate-multiple",
     Severity::Error,
     Phase::Startup,
     {kDatasetConfig, kDatasetSeqLength, kCp, kTp},
     "the dataset's sequence length must be a multiple of what rows are padded to",
     "Rows are padded to a common multiple of 2 x CP and, with sequence parallelism, CP x TP; evaluation's CP counts "
     "too.",
     "round the sequence length up",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1361",
     [](const Derivation& d) { return detail::collate_remainder(d.facts); }},
    {"GTP966",
     "bridge-seq-match",
     Severity::Error,
     Phase::Startup,
     {kSeqLength, kDatasetSeqLength},
     "model and dataset must have the same sequence length",
     "Both are configured on their own, and Bridge compares them.",
     "set both to the same length",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1644",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has(kSeqLength) || !d.facts.has(kDatasetSeqLength)) return {};
       return detail::lengths_differ(d.facts);
     }},
    {"GTP967",
     "bridge-offline-packing",
     Severity::Error,
     Phase::Startup,
     {"enable_offline_packing"_opt, kMbs},
     "rows packed ahead of time need a micro batch of 1",
     "A packed row already holds many sequences.",
     "set micro_batch_size to 1 and divide the global batch",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1600",
     [](const Derivation& d) -> Findings {
       const auto packing = "enable_offline_packing"_opt;
       if (!d.facts.on(packing) || d.facts[kMbs] <= 1) return {};
       return at(kMbs, fmt::format("{} rows", d.facts[kMbs])).also(packing, "packed ahead of time");
     }},
    {"GTP968",
     "bridge-in-batch-packing",
     Severity::Error,
     Phase::Startup,
     {"enable_in_batch_packing"_opt, kMbs},
     "packing within a micro batch needs at least two sequences",
     "The sequences of one micro batch become one row.",
     "raise micro_batch_size, or turn the packing off",
     "Megatron-Bridge src/megatron/bridge/training/config.py:1619",
     [](const Derivation& d) -> Findings {
       const auto packing = "enable_in_batch_packing"_opt;
       if (!d.facts.on(packing) || d.facts[kMbs] != 1) return {};
       return at(kMbs, "one sequence").also(packing, "packs a micro batch");
     }},
};

}  // namespace gtp::rules
