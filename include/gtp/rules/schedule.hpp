// 45x-47x: how long to train, learning-rate and weight-decay schedules, when to evaluate.
#pragma once

#include <charconv>
#include <cmath>

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/unsaid.hpp>

namespace gtp::rules {

inline constexpr OptionId kRunIters = "train_iters"_opt, kRunSamples = "train_samples"_opt,
                          kLrDecayIters = "lr_decay_iters"_opt, kLrDecaySamples = "lr_decay_samples"_opt,
                          kLrWarmupIters = "lr_warmup_iters"_opt, kLrWarmupSamples = "lr_warmup_samples"_opt,
                          kLrWarmupFraction = "lr_warmup_fraction"_opt, kEvalInterval = "eval_interval"_opt,
                          kPhases = "phase_transition_iterations"_opt;

namespace detail {

enum class Duration : std::uint8_t {
  Unknown,
  Iterations,  ///< also while neither is given: then no sample option has a meaning
  Samples,
};

/// In which unit the run is told to last (arguments.py:1274, 1288). Zero counts as not given.
inline Duration duration(const Facts& f) {
  if (f.original(kRunIters) == nullptr || f.original(kRunSamples) == nullptr) return Duration::Unknown;
  if (original_integer(f, kRunIters).value_or(0) != 0) return Duration::Iterations;
  return original_integer(f, kRunSamples).value_or(0) != 0 ? Duration::Samples : Duration::Iterations;
}

inline bool given_number(const Facts& f, OptionId option) { return original_integer(f, option).has_value(); }
inline bool not_zero(const Facts& f, OptionId option) { return original_integer(f, option).value_or(0) != 0; }

/// Every option of the other unit, each at its place.
inline Findings other_unit(const Facts& f, Duration unit) {
  if (duration(f) != unit || f.on(kSkipTrain)) return {};
  const bool iterations = unit == Duration::Iterations;
  if (iterations && !not_zero(f, kRunIters) && given_number(f, kRunSamples)) return {};  // no duration: GTP451
  Findings findings;
  const auto blame = [&](OptionId option, std::string_view what) {
    findings.list.push_back(at(option, fmt::format("{} beside {}", what, iterations ? "iterations" : "samples")));
    const OptionId given = iterations ? kRunIters : kRunSamples;
    if (f.config().given(given) != nullptr && option != given)
      findings.list.back().related.push_back({std::string(name_of(given)), {}, "the run's duration"});
  };
  if (iterations && not_zero(f, kRunIters) && given_number(f, kRunSamples)) blame(kRunSamples, "samples");
  if (!iterations && given_number(f, kRunIters)) blame(kRunIters, "0 iterations");
  const OptionId decay = iterations ? kLrDecaySamples : kLrDecayIters,
                 warmup = iterations ? kLrWarmupSamples : kLrWarmupIters;
  if (given_number(f, decay)) blame(decay, "a decay in the other unit");
  if (not_zero(f, warmup)) blame(warmup, "a warmup in the other unit");
  return findings;
}

/// A known number of either type.
inline std::optional<double> known_number(const Facts& f, OptionId option) {
  if (const auto whole = f.integer(option)) return static_cast<double>(*whole);
  return gtp::detail::real(f, option);
}

/// Length of the decay in the run's unit: the option, or the run's duration (training.py:2559, 2577).
inline std::optional<std::int64_t> decay_length(const Facts& f) {
  switch (duration(f)) {
    case Duration::Unknown:
      return std::nullopt;
    case Duration::Iterations:
      return given_number(f, kLrDecayIters) ? original_integer(f, kLrDecayIters) : original_integer(f, kRunIters);
    case Duration::Samples:
      return given_number(f, kLrDecaySamples) ? original_integer(f, kLrDecaySamples) : original_integer(f, kRunSamples);
  }
  return std::nullopt;
}

inline Findings warmup_not_shorter(const Facts& f) {
  if (f.on(kSkipTrain)) return {};
  const auto decay = decay_length(f);
  if (!decay || *decay <= 0) return {};
  if (const auto fraction = known_number(f, kLrWarmupFraction)) {
    if (*fraction < 1) return {};
    return at(kLrWarmupFraction, fmt::format("{} of the decay", *fraction));
  }
  const OptionId warmup = duration(f) == Duration::Samples ? kLrWarmupSamples : kLrWarmupIters;
  const auto length = original_integer(f, warmup);
  if (!length || *length < *decay) return {};
  return at(warmup, fmt::format("{} is not below {}", *length, *decay));
}

/// Whether the batch of some step is not the configured one.
inline bool batch_varies(const Derivation& d) {
  const Facts& f = d.facts;
  if (f.has(kSchedule)) return true;
  const auto running = f.integer("running_global_batch_size"_opt), configured = f.integer(kGbs);
  return running && configured && *running != *configured;
}

/// Iterations of the list `1000,2000`; nothing when an entry is no whole number.
inline std::optional<IntList> read_phases(std::string_view text) {
  IntList phases;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty() && part.front() == '+') part.remove_prefix(1);
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || stop != part.data() + part.size()) return std::nullopt;
    phases.push_back(value);
    begin = end + 1;
  }
  return phases;
}

inline bool has_phases(const Facts& f) { return !f.text(kPhases).value_or("").empty(); }

inline bool evaluates_in_training(const Facts& f) { return !f.on(kSkipTrain) && !f.on("full_validation"_opt); }

}  // namespace detail

inline constexpr Rule kSchedules[] = {
    {"GTP451",
     "iters-or-samples-required",
     Severity::Error,
     Phase::FirstStep,
     {kRunIters, kRunSamples},
     "the run has no duration",
     "Upstream reads 0 as not given, and builds no learning-rate schedule without train_iters or train_samples.",
     "set train_iters or train_samples to 1 or more",
     "megatron/training/training.py:2586",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.on(kSkipTrain) || detail::not_zero(f, kRunIters) || detail::not_zero(f, kRunSamples)) return {};
       for (const OptionId option : {kRunIters, kRunSamples})
         if (detail::given_number(f, option)) return at(option, "0 counts as not given");
       return {};
     }},
    {"GTP452",
     "iters-vs-samples-exclusive",
     Severity::Error,
     Phase::Startup,
     {kRunIters, kRunSamples},
     "a run that lasts iterations takes no sample options",
     "Duration, learning-rate decay and warmup are all told in the same unit.",
     "express duration, decay and warmup in iterations",
     "megatron/training/arguments.py:1276",
     [](const Derivation& d) { return detail::other_unit(d.facts, detail::Duration::Iterations); }},
    {"GTP453",
     "samples-vs-iters-exclusive",
     Severity::Error,
     Phase::Startup,
     {kRunIters, kRunSamples},
     "a run that lasts samples takes no iteration options",
     "Duration, learning-rate decay and warmup are all told in the same unit.",
     "express duration, decay and warmup in samples",
     "megatron/training/arguments.py:1290",
     [](const Derivation& d) { return detail::other_unit(d.facts, detail::Duration::Samples); }},
    {"GTP454",
     "warmup-fraction-exclusive",
     Severity::Error,
     Phase::Startup,
     {kRunIters, kRunSamples, kLrWarmupFraction, kLrWarmupIters, kLrWarmupSamples},
     "the warmup is given as a fraction and as a length",
     "One of the two says how long the learning rate rises.",
     "keep lr_warmup_fraction or the length",
     "megatron/training/arguments.py:1285",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.on(kSkipTrain) || !f.has(kLrWarmupFraction)) return {};
       const OptionId length = detail::duration(f) == detail::Duration::Samples ? kLrWarmupSamples : kLrWarmupIters;
       if (!detail::not_zero(f, length)) return {};
       return at(length, fmt::format("{}", f[length])).also(kLrWarmupFraction, "fraction");
     }},
    {"GTP455",
     "lr-decay-vs-increment-mismatch",
     Severity::Warning,
     Phase::Silent,
     {kRunIters, kRunSamples, kGbs},
     "the learning rate decays by other batches than the run uses",
     "In a run that lasts iterations the decay is iterations x the configured global batch size, while each step "
     "advances by the samples of the real batch. With a batch schedule the configured size is its default, one "
     "microbatch a replica, so decay and weight-decay ramps end far too early; a rounded batch makes them end late.",
     "use train_samples with a batch schedule, or a global batch size that needs no rounding",
     "megatron/training/training.py:2561",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!detail::not_zero(f, kRunIters) || f.on(kSkipTrain) || !detail::batch_varies(d)) return {};
       Finding finding = at(kRunIters, "the decay counts the configured batch");
       if (f.has(kSchedule)) return std::move(finding).also(kSchedule, "the batch changes");
       return std::move(finding).also(
           kGbs, fmt::format("steps take {} samples", *f.integer("running_global_batch_size"_opt)));
     }},
    {"GTP456",
     "warmup-lt-decay",
     Severity::Error,
     Phase::FirstStep,
     {kRunIters, kRunSamples, kLrWarmupFraction, kLrWarmupIters, kLrWarmupSamples, kLrDecayIters, kLrDecaySamples},
     "the warmup must be shorter than the learning-rate decay",
     "The decay counts from the first step, warmup included; an unset decay lasts as long as the run.",
     "shorten the warmup, or lengthen the decay",
     "megatron/core/optimizer_param_scheduler.py:160",
     [](const Derivation& d) { return detail::warmup_not_shorter(d.facts); }},
    {"GTP457",
     "decay-positive",
     Severity::Error,
     Phase::FirstStep,
     {kRunIters, kRunSamples, kLrDecayIters, kLrDecaySamples},
     "the learning-rate decay must last at least one step",
     "Upstream divides by its length.",
     "use 1 or more",
     "megatron/core/optimizer_param_scheduler.py:159",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto length = detail::decay_length(f);
       if (f.on(kSkipTrain) || !length || *length > 0) return {};
       const bool samples = detail::duration(f) == detail::Duration::Samples;
       const OptionId decay = samples ? kLrDecaySamples : kLrDecayIters, whole = samples ? kRunSamples : kRunIters;
       if (!detail::given_number(f, decay) && *length == 0) return {};  // GTP451
       return at(detail::given_number(f, decay) ? decay : whole, fmt::format("{} is not positive", *length));
     }},
    {"GTP458",
     "lr-bounds",
     Severity::Error,
     Phase::FirstStep,
     {"lr"_opt, "min_lr"_opt, "lr_warmup_init"_opt},
     "learning rates must be ordered",
     "0 <= min_lr <= lr, and warmup starts at lr_warmup_init <= lr.",
     "use 0 <= min_lr <= lr and lr_warmup_init <= lr",
     "megatron/core/optimizer_param_scheduler.py:150",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto lr = detail::known_number(f, "lr"_opt), lowest = detail::known_number(f, "min_lr"_opt),
                  first = detail::known_number(f, "lr_warmup_init"_opt);
       if (f.on(kSkipTrain)) return {};
       if (lowest && *lowest < 0) return at("min_lr"_opt, fmt::format("{} is negative", *lowest));
       if (lr && first && *first > *lr)
         return at("lr_warmup_init"_opt, fmt::format("{} is above {}", *first, *lr)).also("lr"_opt, "peak");
       return {};
     }},
    {"GTP459",
     "min-lr-le-lr",
     Severity::Error,
     Phase::Startup,
     {"lr"_opt, "min_lr"_opt},
     "the lowest learning rate must not be above the peak",
     "Decay goes from lr down to min_lr.",
     "lower min_lr, or raise lr",
     "megatron/training/arguments.py:1359",
     [](const Derivation& d) -> Findings {
       const auto lr = detail::known_number(d.facts, "lr"_opt), lowest = detail::known_number(d.facts, "min_lr"_opt);
       if (!lr || !lowest || *lowest <= *lr) return {};
       return at("min_lr"_opt, fmt::format("{} is above {}", *lowest, *lr)).also("lr"_opt, "peak");
     }},
    {"GTP460",
     "wsd-needs-decay",
     Severity::Error,
     Phase::FirstStep,
     {kRunIters, kRunSamples, "lr_decay_style"_opt, "lr_wsd_decay_iters"_opt, "lr_wsd_decay_samples"_opt},
     "a WSD schedule needs the length of its decay phase",
     "Warmup, stable, decay: without the length of the last phase there is no schedule.",
     "set lr_wsd_decay_iters, or lr_wsd_decay_samples in a run that lasts samples",
     "megatron/core/optimizer_param_scheduler.py:163",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const bool samples = detail::duration(f) == detail::Duration::Samples;
       const OptionId length = samples ? "lr_wsd_decay_samples"_opt : "lr_wsd_decay_iters"_opt;
       if (f.on(kSkipTrain) || f.text("lr_decay_style"_opt) != "WSD" || f.has(length)) return {};
       return at("lr_decay_style"_opt, fmt::format("WSD without {}", name_of(length)));
     }},
    {"GTP461",
     "wd-constant",
     Severity::Error,
     Phase::Startup,
     {"weight_decay_incr_style"_opt, "start_weight_decay"_opt, "end_weight_decay"_opt},
     "a constant weight decay has no start and end",
     "The ends belong to the ramps `linear` and `cosine`.",
     "drop start_weight_decay and end_weight_decay, or choose a ramp",
     "megatron/training/arguments.py:1393",
     [](const Derivation& d) -> Findings {
       if (d.facts.text("weight_decay_incr_style"_opt) != "constant") return {};
       Findings findings;
       for (const OptionId end : {"start_weight_decay"_opt, "end_weight_decay"_opt})
         if (d.facts.has(end)) findings.list.push_back(at(end, "beside a constant weight decay"));
       return findings;
     }},
    {"GTP462",
     "wd-ramp-needs-ends",
     Severity::Error,
     Phase::Startup,
     {"weight_decay_incr_style"_opt, "start_weight_decay"_opt, "end_weight_decay"_opt},
     "a weight-decay ramp needs its start and its end",
     "The ramp goes from one to the other over the run.",
     "set start_weight_decay and end_weight_decay",
     "megatron/training/arguments.py:1398",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       const auto style = "weight_decay_incr_style"_opt;
       if (f.text(style) == "constant") return {};
       for (const OptionId end : {"start_weight_decay"_opt, "end_weight_decay"_opt})
         if (!f.has(end)) return at(style, fmt::format("{} without {}", f.text(style).value_or("None"), name_of(end)));
       return {};
     }},
    {"GTP463",
     "wd-ordering",
     Severity::Error,
     Phase::FirstStep,
     {"weight_decay_incr_style"_opt, "start_weight_decay"_opt, "end_weight_decay"_opt, "weight_decay"_opt},
     "weight decay must not be negative nor fall",
     "0 <= start <= end; a constant weight decay is both.",
     "use 0 <= start_weight_decay <= end_weight_decay",
     "megatron/core/optimizer_param_scheduler.py:168",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.on(kSkipTrain)) return {};
       const bool constant = f.text("weight_decay_incr_style"_opt) == "constant";
       const OptionId first = constant ? "weight_decay"_opt : "start_weight_decay"_opt;
       const auto start = detail::known_number(f, first), end = detail::known_number(f, "end_weight_decay"_opt);
       if (start && *start < 0) return at(first, fmt::format("{} is negative", *start));
       if (constant || !start || !end || *end >= *start) return {};
       return at("end_weight_decay"_opt, fmt::format("{} is below {}", *end, *start)).also(first, "start");
     }},
    {"GTP464",
     "override-vs-use-checkpoint-scheduler",
     Severity::Error,
     Phase::FirstStep,
     {"override_opt_param_scheduler"_opt, "use_checkpoint_opt_param_scheduler"_opt},
     "the schedule cannot come from here and from the checkpoint",
     "One option says that this input wins on a resume, the other that the checkpoint does.",
     "keep one of the two",
     "megatron/core/optimizer_param_scheduler.py:175",
     [](const Derivation& d) -> Findings {
       const auto here = "override_opt_param_scheduler"_opt, there = "use_checkpoint_opt_param_scheduler"_opt;
       if (!d.facts.on(here) || !d.facts.on(there)) return {};
       return at(here, "on").also(there, "on");
     }},
    {"GTP465",
     "eval-interval-none",
     Severity::Warning,
     Phase::FirstStep,
     {kEvalInterval, "eval_iters"_opt, kRunIters},
     "evaluation has no interval",
     "Upstream sizes the validation data by train_iters / eval_interval and stops with a TypeError when it has no "
     "interval, unless full_validation or skip_train is set.",
     "set eval_interval",
     "megatron/training/training.py:5436",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (f.has(kEvalInterval) || !f.has(kRunIters) || !detail::evaluates_in_training(f)) return {};
       const Setting* iterations = f.config().given("eval_iters"_opt);
       if (iterations == nullptr || iterations->value == Value(std::int64_t{0})) return {};
       return at("eval_iters"_opt, "evaluation without eval_interval");
     }},
    {"GTP466",
     "eval-interval-positive",
     Severity::Error,
     Phase::FirstStep,
     {kEvalInterval},
     "the evaluation interval must be positive",
     "Upstream divides by it.",
     "use 1 or more, or set eval_iters to 0",
     "megatron/training/training.py:5436",
     [](const Derivation& d) -> Findings {
       const auto interval = d.facts.integer(kEvalInterval);
       if (!interval || *interval > 0 || !detail::evaluates_in_training(d.facts)) return {};
       return at(kEvalInterval, fmt::format("{} is not positive", *interval));
     }},
    {"GTP467",
     "multiple-validation-sets",
     Severity::Error,
     Phase::FirstStep,
     {"multiple_validation_sets"_opt, "full_validation"_opt},
     "several validation sets need full validation",
     "Samples already used are counted once for all sets, not for each.",
     "set full_validation",
     "megatron/training/training.py:5530",
     [](const Derivation& d) -> Findings {
       const auto sets = "multiple_validation_sets"_opt;
       if (!d.facts.on(sets) || !detail::evaluates_in_training(d.facts)) return {};
       return at(sets, "on").also("full_validation"_opt, "off");
     }},
    {"GTP468",
     "phase-transition-needs-samples",
     Severity::Error,
     Phase::FirstStep,
     {kPhases, kRunSamples},
     "data phases need a run that lasts samples",
     "The end of the last phase is train_samples, also in a run that lasts iterations; without it the phases cannot be "
     "compared.",
     "use train_samples",
     "megatron/training/training.py:5446",
     [](const Derivation& d) -> Findings {
       if (!detail::has_phases(d.facts) || d.facts.has(kRunSamples)) return {};
       return at(kPhases, "without train_samples");
     }},
    {"GTP469",
     "phase-transition-fixed-batch",
     Severity::Warning,
     Phase::Silent,
     {kPhases, kGbs},
     "data phases begin at the wrong samples when the batch varies",
     "Phase boundaries are iterations x the configured global batch size; a batch schedule or a rounded batch uses "
     "other numbers of samples.",
     "use one global batch size that needs no rounding",
     "megatron/training/training.py:5446",
     [](const Derivation& d) -> Findings {
       if (!detail::has_phases(d.facts) || !detail::batch_varies(d)) return {};
       const OptionId cause = d.facts.has(kSchedule) ? kSchedule : kGbs;
       return at(kPhases, "counted in fixed batches").also(cause, "the batch varies");
     }},
    {"GTP471",
     "phase-transition-format",
     Severity::Error,
     Phase::Startup,
     {kPhases},
     "data phases are iterations separated by commas",
     "Every entry is a whole number.",
     "write them like 1000,2000",
     "megatron/training/arguments.py:690",
     [](const Derivation& d) -> Findings {
       if (!detail::has_phases(d.facts) || detail::read_phases(*d.facts.text(kPhases))) return {};
       return at(kPhases, "not a list of whole numbers");
     }},
    {"GTP472",
     "removed-option",
     Severity::Error,
     Phase::Startup,
     {},
     "this option no longer exists",
     "Upstream keeps the name only to say what replaces it, and refuses to start.",
     "use the option that replaces it",
     "megatron/training/arguments.py:590",
     [](const Derivation& d) {
       constexpr std::array<std::pair<OptionId, std::string_view>, 4> kReplacements{
           {{"batch_size"_opt, "micro_batch_size"},
            {"warmup"_opt, "lr_warmup_fraction"},
            {"model_parallel_size"_opt, "tensor_model_parallel_size"},
            {"checkpoint_activations"_opt, "recompute_activations"}}};
       Findings findings;
       for (const auto& [option, replacement] : kReplacements) {
         const Setting* given = d.facts.config().given(option);
         if (given == nullptr || is_none(given->value) || given->value == Value(false)) continue;
         findings.list.push_back(at(option, "removed").mend(fmt::format("use `{}`", replacement)));
       }
       return findings;
     }},
};

}  // namespace gtp::rules
