// 4xx: batches, their schedules, and evaluation. The arithmetic is in batch_math.hpp and batch.hpp.
#pragma once

#include <gtp/derive.hpp>
#include <gtp/rule.hpp>
#include <gtp/rules/names.hpp>

namespace gtp::rules {

namespace detail {

inline const std::int64_t* given_integer(const Derivation& d, OptionId option) {
  const Setting* setting = d.facts.config().given(option);
  return setting == nullptr ? nullptr : std::get_if<std::int64_t>(&setting->value);
}

/// Label of the training batch: at `global_batch_size`, or where its default comes from.
inline Finding at_global_batch(const Derivation& d, std::string_view what) {
  const Facts& f = d.facts;
  const auto& options = *d.batch_options;
  const auto unit = samples_per_microbatch(*options.micro_batch_size, f[kLanes]);
  const std::string multiple = unit ? fmt::format("{}", *unit) : "micro_batch_size x data distribution";
  Finding finding;
  if (options.global_batch_size) {
    finding = at(kGbs, fmt::format("{} is not a multiple of {}{}", *options.global_batch_size, multiple, what));
  } else {
    finding = at(kMbs, fmt::format("global_batch_size is unset and becomes {} x {} = {}, no multiple of {}",
                                   *options.micro_batch_size, f[kDp], f[kGbs], multiple));
    finding.help = fmt::format("set `global_batch_size` to a multiple of {}", multiple);
    if (f[kGtpRemat] > 1) finding.notes.push_back("upstream's default leaves GTP_remat out");
  }
  finding.notes.push_back(fmt::format("micro_batch_size {} x data distribution {} (replicate DP {} x GTP_remat {})",
                                      *options.micro_batch_size, f[kLanes], f[kDp], f[kGtpRemat]));
  if (options.global_batch_size && unit) {
    const std::int64_t below = *options.global_batch_size / *unit * *unit;
    if (const auto above = checked_add(below, *unit); above)
      finding.help = below > 0 ? fmt::format("use {} or {}", below, *above) : fmt::format("use {} or more", *above);
  }
  return finding;
}

inline bool has_problem(const Derivation& d, BatchProblemKind kind) {
  for (const BatchProblem& problem : d.batch_problems)
    if (problem.kind == kind) return true;
  return false;
}

inline bool training_batch_wrong(const Derivation& d) {
  return !d.schedule && !d.facts.on(kDecrease) &&
         batch_not_divisible(d.facts[kGbs], *d.batch_options->micro_batch_size, d.facts[kLanes]);
}

/// Upstream checks the evaluation batch first, and an inherited one fails there for what the training batch has wrong:
/// one cause, one report.
inline bool eval_inherits(const Derivation& d) {
  return !d.batch_options->eval_global_batch_size && !d.batch_options->eval_micro_batch_size &&
         gtp::detail::eval_batch_rule(d.facts.version()) == EvalBatchRule::kDataDistribution;
}

inline bool eval_batch_wrong(const Derivation& d) {
  const Facts& f = d.facts;
  return eval_batch_not_divisible(f[kEvalGbs], f[kEvalMbs], f[kDp], f[kGtpRemat],
                                  gtp::detail::eval_batch_rule(f.version()));
}

inline Findings eval_batch_findings(const Derivation& d) {
  const Facts& f = d.facts;
  if (!d.batch_options || !eval_batch_wrong(d)) return {};
  if (!d.batch_options->eval_global_batch_size) {
    Finding finding = at_global_batch(d, ", and eval_global_batch_size takes its value");
    if (f.on(kDecrease)) finding.notes.push_back("decrease_batch_size_if_needed rounds the training batch only");
    if (d.schedule) finding.notes.push_back("a step_batch_size_schedule leaves global_batch_size at its default");
    if (d.schedule || f.on(kDecrease))
      finding.help = fmt::format("set `eval_global_batch_size` to a multiple of eval_micro_batch_size {} x {}",
                                 f[kEvalMbs], f[kLanes]);
    return finding;
  }
  const bool with_remat = gtp::detail::eval_batch_rule(f.version()) == EvalBatchRule::kDataDistribution;
  const std::int64_t lanes = with_remat ? f[kLanes] : f[kDp];
  return at(kEvalGbs, fmt::format("{} is not a multiple of {} x {}", f[kEvalGbs], f[kEvalMbs], lanes))
      .note(fmt::format("eval_micro_batch_size {} x {} {}", f[kEvalMbs],
                        with_remat ? "data distribution" : "replicate DP", lanes));
}

/// Part of the schedule's text, as a place inside its value when the input spells it without escapes.
inline Label schedule_label(const Derivation& d, std::size_t offset, std::size_t length, std::string text) {
  Label label{std::string(name_of(kSchedule)), {}, std::move(text)};
  const Setting* setting = d.facts.config().given(kSchedule);
  const auto* value = setting == nullptr ? nullptr : std::get_if<std::string>(&setting->value);
  if (value != nullptr && setting->place.known() && setting->place.end - setting->place.begin == value->size()) {
    label.place = setting->place;
    label.place.begin += static_cast<std::uint32_t>(offset);
    label.place.end = label.place.begin + static_cast<std::uint32_t>(length);
  }
  return label;
}

/// Every problem of one of the kinds that the schedule's reader found.
inline Findings schedule_findings(const Derivation& d, std::initializer_list<ScheduleProblemKind> kinds) {
  Findings findings;
  for (const ScheduleProblem& problem : d.schedule_problems) {
    if (std::find(kinds.begin(), kinds.end(), problem.kind) == kinds.end()) continue;
    std::string text;
    switch (problem.kind) {
      case ScheduleProblemKind::kEmpty:
        text = "no entry";
        break;
      case ScheduleProblemKind::kFormat:
        text = fmt::format("`{}` has no colon", problem.entry);
        break;
      case ScheduleProblemKind::kNumberFormat:
        text = fmt::format("no number in `{}`", problem.entry);
        break;
      case ScheduleProblemKind::kNumberOverflow:
        text = fmt::format("`{}` is too large", problem.entry);
        break;
      case ScheduleProblemKind::kSeqLength:
        text = "thresholds are tokens, but seq_length is not positive";
        break;
      case ScheduleProblemKind::kFirstNotZero:
        text = fmt::format("the smallest threshold is {} samples", problem.value.value_or(0));
        break;
      case ScheduleProblemKind::kNotIncreasing:
        text = fmt::format("also {} samples, like another entry", problem.value.value_or(0));
        break;
      case ScheduleProblemKind::kBatchNotPositive:
        text = fmt::format("a batch of {}", problem.value.value_or(0));
        break;
    }
    Finding finding{schedule_label(d, problem.part_offset, problem.part_length, std::move(text))};
    if (d.facts.has("seq_length"_opt))
      finding.notes.push_back(
          fmt::format("thresholds are tokens, divided by seq_length {} and rounded down", d.facts["seq_length"_opt]));
    findings.list.push_back(std::move(finding));
  }
  return findings;
}

/// Every schedule entry that the accounting has a problem of this kind with.
inline Findings entry_findings(const Derivation& d, BatchProblemKind kind, std::string_view text) {
  Findings findings;
  if (!d.schedule) return findings;
  for (const BatchProblem& problem : d.batch_problems) {
    if (problem.kind != kind || !problem.entry_index) continue;
    const ScheduleEntry& entry = d.schedule->entries()[*problem.entry_index];
    const auto unit = samples_per_microbatch(*d.batch_options->micro_batch_size, d.facts[kLanes]).value_or(0);
    findings.list.push_back(Finding{schedule_label(d, entry.text_offset, entry.text_length,
                                                   fmt::format(fmt::runtime(text), entry.global_batch_size, unit))});
  }
  return findings;
}

}  // namespace detail

inline constexpr Rule kBatches[] = {
    {"GTP401",
     "mbs-required",
     Severity::Error,
     Phase::Startup,
     {},
     "the micro batch size must be positive",
     "Every batch is a whole number of microbatches.",
     "set micro_batch_size to 1 or more",
     "megatron/training/arguments.py:693",
     [](const Derivation& d) -> Findings {
       const std::int64_t* size = detail::given_integer(d, kMbs);
       if (size == nullptr || *size >= 1) return {};
       return at(kMbs, fmt::format("{} is not positive", *size));
     }},
    {"GTP402",
     "gbs-positive",
     Severity::Error,
     Phase::Startup,
     {},
     "the global batch size must be positive",
     "A step without samples trains nothing.",
     "set global_batch_size to 1 or more",
     "megatron/training/arguments.py:705",
     [](const Derivation& d) -> Findings {
       const std::int64_t* size = detail::given_integer(d, kGbs);
       if (size == nullptr || *size >= 1) return {};
       return at(kGbs, fmt::format("{} is not positive", *size));
     }},
    {"GTP403",
     "gbs-divisible",
     Severity::Error,
     Phase::Startup,
     {kMbs, kGbs, kLanes, kSchedule, kDecrease},
     "the global batch size must be a multiple of micro batch size x data distribution",
     "Every rank of the data distribution (replicate DP x GTP_remat) reads other samples and runs the same number of "
     "microbatches. An unset global_batch_size becomes micro_batch_size x replicate DP, which is never enough under "
     "GTP (gbs-required-with-gtp).",
     "use a multiple",
     "megatron/core/num_microbatches_calculator.py:381",
     [](const Derivation& d) -> Findings {
       if (!d.batch_options || !detail::training_batch_wrong(d)) return {};
       if (detail::eval_inherits(d) && detail::eval_batch_wrong(d)) return {};
       return detail::at_global_batch(d, "");
     }},
    {"GTP404",
     "num-microbatches-min-one",
     Severity::Error,
     Phase::Startup,
     {kMbs, kGbs, kLanes, kDecrease},
     "rounding the global batch size down leaves no microbatch",
     "decrease_batch_size_if_needed rounds to a multiple of micro batch size x data distribution, and one microbatch "
     "a rank is the least.",
     "raise global_batch_size",
     "megatron/core/num_microbatches_calculator.py:389",
     [](const Derivation& d) -> Findings {
       if (!detail::has_problem(d, BatchProblemKind::kNoMicrobatch)) return {};
       return at(kGbs, fmt::format("{} is below micro_batch_size {} x data distribution {}", d.facts[kGbs],
                                   d.facts[kMbs], d.facts[kLanes]));
     }},
    {"GTP405",
     "eval-gbs-divisible",
     Severity::Error,
     Phase::Startup,
     {kEvalGbs, kEvalMbs, kDp, kGtpRemat},
     "the evaluation batch must be a multiple of evaluation micro batch size x data distribution",
     "Evaluation runs a whole number of microbatches on every rank of the data distribution. Upstream checks it before "
     "the training batch, also when evaluation never runs. An unset eval_global_batch_size takes global_batch_size, so "
     "it defeats decrease_batch_size_if_needed (eval-check-blocks-decrease) and, under GTP, a batch schedule "
     "(step-schedule-gtp-needs-eval-batch). Before 2026-08-22 GTP_remat was left out of the check.",
     "use a multiple, or set eval_global_batch_size",
     "megatron/training/arguments.py:715",
     [](const Derivation& d) { return detail::eval_batch_findings(d); }},
    {"GTP406",
     "eval-without-microbatches",
     Severity::Error,
     Phase::Silent,
     {kEvalGbs, kEvalMbs, kDp, kGtpRemat},
     "evaluation rounds down to fewer samples than it counts",
     "This version divides the evaluation batch by replicate DP x GTP_remat without checking that it divides, so part "
     "of the batch, or all of it, is not evaluated while the counters say it was.",
     "use a multiple of evaluation micro batch size x data distribution",
     "megatron/training/training.py:5131",
     [](const Derivation& d) -> Findings {
       const Facts& f = d.facts;
       if (!d.batch_options || detail::eval_batch_wrong(d)) return {};
       if (!d.batch_options->eval_global_batch_size && detail::training_batch_wrong(d)) return {};
       if (!batch_not_divisible(f[kEvalGbs], f[kEvalMbs], f[kLanes])) return {};
       return at(d.batch_options->eval_global_batch_size ? kEvalGbs : kGbs,
                 fmt::format("{} is not a multiple of {} x {}", f[kEvalGbs], f[kEvalMbs], f[kLanes]))
           .note(fmt::format("{} microbatches are evaluated", num_microbatches(f[kEvalGbs], f[kEvalMbs], f[kLanes])));
     },
     Version::k6513e3e2,
     Version::k6513e3e2},
    {"GTP407",
     "step-schedule-vs-gbs",
     Severity::Error,
     Phase::Startup,
     {kSchedule},
     "a batch-size schedule and a global batch size exclude each other",
     "The schedule says the batch size of every step; a second source of it has no meaning.",
     "drop one of the two",
     "megatron/training/arguments.py:698",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has(kSchedule) || d.facts.config().given(kGbs) == nullptr) return {};
       return at(kGbs, "given").also(kSchedule, "schedule");
     }},
    {"GTP408",
     "step-schedule-vs-decrease",
     Severity::Error,
     Phase::Startup,
     {kSchedule, kDecrease},
     "a batch-size schedule is never rounded",
     "decrease_batch_size_if_needed works on a constant batch only.",
     "drop decrease_batch_size_if_needed",
     "megatron/core/num_microbatches_calculator.py:265",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has(kSchedule) || !d.facts.on(kDecrease)) return {};
       return at(kDecrease, "on").also(kSchedule, "schedule");
     }},
    {"GTP409",
     "step-schedule-format",
     Severity::Error,
     Phase::Startup,
     {kSchedule},
     "a schedule entry is THRESHOLD:BATCH",
     "Entries are separated by spaces or commas; numbers take the decimal suffixes K, M, B and T, and fractions.",
     "write entries such as 0:256 or 1.5M:512",
     "megatron/core/num_microbatches_calculator.py:516",
     [](const Derivation& d) {
       return detail::schedule_findings(
           d, {ScheduleProblemKind::kEmpty, ScheduleProblemKind::kFormat, ScheduleProblemKind::kNumberFormat,
               ScheduleProblemKind::kNumberOverflow, ScheduleProblemKind::kSeqLength});
     }},
    {"GTP410",
     "step-schedule-first-zero",
     Severity::Error,
     Phase::Startup,
     {kSchedule},
     "a batch-size schedule must start at 0",
     "The first step needs a batch size too.",
     "add an entry for 0",
     "megatron/core/num_microbatches_calculator.py:539",
     [](const Derivation& d) { return detail::schedule_findings(d, {ScheduleProblemKind::kFirstNotZero}); }},
    {"GTP411",
     "step-schedule-increasing",
     Severity::Error,
     Phase::Startup,
     {kSchedule},
     "schedule thresholds must be different numbers of samples",
     "Token thresholds are divided by the sequence length and rounded down, so two within one sequence fall together.",
     "move the thresholds apart",
     "megatron/core/num_microbatches_calculator.py:544",
     [](const Derivation& d) { return detail::schedule_findings(d, {ScheduleProblemKind::kNotIncreasing}); }},
    {"GTP412",
     "step-schedule-positive",
     Severity::Error,
     Phase::Startup,
     {kSchedule},
     "scheduled batch sizes must be positive",
     "A step without samples trains nothing.",
     "use batches of 1 or more",
     "megatron/core/num_microbatches_calculator.py:555",
     [](const Derivation& d) { return detail::schedule_findings(d, {ScheduleProblemKind::kBatchNotPositive}); }},
    {"GTP413",
     "step-schedule-late-divisibility",
     Severity::Error,
     Phase::Later,
     {kSchedule, kMbs, kLanes},
     "every scheduled batch must be a multiple of micro batch size x data distribution",
     "Upstream notices only when training reaches the entry, possibly weeks in.",
     "use multiples in every entry",
     "megatron/core/num_microbatches_calculator.py:580",
     [](const Derivation& d) {
       return detail::entry_findings(d, BatchProblemKind::kScheduleEntryNotDivisible, "{} is not a multiple of {}");
     }},
    {"GTP414",
     "num-microbatches-monotonic",
     Severity::Error,
     Phase::Later,
     {kSchedule, kMbs, kLanes},
     "scheduled batches must not shrink",
     "The training loop asserts that the microbatch count only grows, and stops at the first entry that lowers it.",
     "use batch sizes that never go down",
     "megatron/training/training.py:4612",
     [](const Derivation& d) {
       return detail::entry_findings(d, BatchProblemKind::kMicrobatchesDrop, "{} is smaller than the batch before");
     }},
    {"GTP415",
     "rampup-ignored",
     Severity::Warning,
     Phase::Silent,
     {"rampup_batch_size"_opt},
     "rampup_batch_size is ignored",
     "The option still parses, but nothing hands it to the microbatch calculator: the run uses a constant batch.",
     "use step_batch_size_schedule",
     "megatron/training/global_vars.py:148",
     [](const Derivation& d) -> Findings {
       if (!d.facts.has("rampup_batch_size"_opt)) return {};
       return at("rampup_batch_size"_opt, "has no effect");
     }},
    {"GTP416",
     "batch-overflow",
     Severity::Error,
     Phase::Startup,
     {kMbs, kDp},
     "the batch arithmetic does not fit into 64 bits",
     "Samples are counted in 64-bit integers; a product beyond them is a slip.",
     "use smaller sizes",
     "megatron/training/arguments.py:703",
     [](const Derivation& d) {
       Findings findings;
       for (const BatchProblem& problem : d.batch_problems) {
         if (problem.kind != BatchProblemKind::kOverflow) continue;
         if (const auto option = find_option(problem.option))
           findings.list.push_back(at(*option, fmt::format("{} is too large here", problem.value.value_or(0))));
       }
       return findings;
     }},
    {"GTP417",
     "counts-not-negative",
     Severity::Error,
     Phase::Startup,
     {},
     "a count must not be negative",
     "Samples and iterations are counted from 0.",
     "use 0 or more",
     "megatron/training/training.py:2155",
     [](const Derivation& d) {
       Findings findings;
       for (const OptionId option : {"eval_iters"_opt, "consumed_train_samples"_opt, "skipped_train_samples"_opt})
         if (const std::int64_t* count = detail::given_integer(d, option); count != nullptr && *count < 0)
           findings.list.push_back(at(option, fmt::format("{} is negative", *count)));
       return findings;
     }},
};

}  // namespace gtp::rules
