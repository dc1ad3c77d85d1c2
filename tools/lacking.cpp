#include "tools/lacking.hpp"

#include <algorithm>
#include <bitset>
#include <optional>
#include <string_view>

namespace gtp::cli {

namespace {

using namespace literals;

struct Follows {
  OptionId derived;
  Needs from;
};

constexpr Follows kFollows[] = {
    {"gtp_weight_remat_size"_opt, {"tensor_model_parallel_size"_opt, "tensor_parallel_num_weight_shards"_opt}},
    {"expert_gtp_weight_remat_size"_opt,
     {"tensor_model_parallel_size"_opt, "expert_tensor_parallel_size"_opt,
      "expert_tensor_parallel_num_weight_shards"_opt}},
    {"data_parallel_size"_opt,
     {"world_size"_opt, "tensor_model_parallel_size"_opt, "pipeline_model_parallel_size"_opt,
      "context_parallel_size"_opt, "gtp_weight_remat_size"_opt}},
    {"expert_data_parallel_size"_opt,
     {"world_size"_opt, "pipeline_model_parallel_size"_opt, "expert_model_parallel_size"_opt,
      "expert_gtp_weight_remat_size"_opt}},
    {"data_distribution_size"_opt, {"data_parallel_size"_opt}},
    {"virtual_pipeline_model_parallel_size"_opt,
     {"pipeline_model_parallel_size"_opt, "num_layers_per_virtual_pipeline_stage"_opt,
      "num_virtual_stages_per_pipeline_rank"_opt}},
    {"num_microbatches"_opt, {"micro_batch_size"_opt, "global_batch_size"_opt, "data_distribution_size"_opt}},
    {"running_global_batch_size"_opt, {"num_microbatches"_opt}},
    {"eval_num_microbatches"_opt,
     {"micro_batch_size"_opt, "global_batch_size"_opt, "eval_micro_batch_size"_opt, "eval_global_batch_size"_opt,
      "eval_iters"_opt, "step_batch_size_schedule"_opt, "decrease_batch_size_if_needed"_opt,
      "data_distribution_size"_opt}},
    {"dense_order"_opt, {"use_tp_pp_dp_mapping"_opt}},
    {"expert_order"_opt, {"use_tp_pp_dp_mapping"_opt}},
};

void add(OptionId option, std::vector<OptionId>& options) {
  if (std::find(options.begin(), options.end(), option) == options.end()) options.push_back(option);
}

/// Ends: the table leads from each derived value only to earlier ones.
void trace(const Facts& facts, OptionId need, std::vector<OptionId>& options) {
  if (facts.known(need)) return;
  for (const Follows& row : kFollows)
    if (row.derived == need)
      for (const OptionId option : row.from.span()) trace(facts, option, options);
  if (kOptions[need.index].section != Section::Derived) add(need, options);
}

/// One option given makes the defaults of its section hold, so that one of a section that the input says nothing of is
/// enough to ask for. Not so for an option without a default, nor in the model section.
class Sections {
 public:
  explicit Sections(const Facts& facts) : facts_(facts) {}

  /// Whether the option is to be asked for beside those before it.
  bool add(OptionId option) {
    const Option& row = row_of(option, facts_.version());
    const auto section = static_cast<std::size_t>(row.section);
    if (row.section == Section::Model || facts_.described(row.section)) return true;
    const bool named = named_.test(section);
    named_.set(section);
    return row.required || !named;
  }

 private:
  const Facts& facts_;
  std::bitset<kSectionCount> named_;
};

std::vector<OptionId> traced(const Facts& facts, std::span<const OptionId> needs) {
  std::vector<OptionId> options;
  for (const OptionId need : needs) trace(facts, need, options);
  if (options.empty())
    for (const OptionId need : needs)
      if (!facts.known(need)) add(need, options);
  return options;
}

}  // namespace

std::vector<OptionId> lacking(const Facts& facts, std::span<const OptionId> needs) {
  std::vector<OptionId> options = traced(facts, needs);
  Sections sections(facts);
  std::erase_if(options, [&](OptionId option) { return !sections.add(option); });
  return options;
}

std::vector<Lack> lacking(const Report& report) {
  const Facts& facts = report.derivation.facts;
  std::vector<Lack> lacks;
  for (const NotChecked& rule : report.not_checked) {
    for (const OptionId option : traced(facts, rule.needs().span())) {
      const auto same = std::find_if(lacks.begin(), lacks.end(), [&](const Lack& l) { return l.option == option; });
      ++(same == lacks.end() ? lacks.emplace_back(Lack{option}) : *same).rules;
    }
  }
  std::stable_sort(lacks.begin(), lacks.end(), [](const Lack& a, const Lack& b) { return a.rules > b.rules; });
  Sections sections(facts);
  std::erase_if(lacks, [&](const Lack& lack) { return !sections.add(lack.option); });
  return lacks;
}

}  // namespace gtp::cli
