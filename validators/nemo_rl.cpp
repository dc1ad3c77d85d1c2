#include "validators/nemo_rl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtp/checked.hpp>
#include <gtp/nearest.hpp>

#include "validators/flat.hpp"
#include "validators/interpolation.hpp"

namespace gtp::readers {

namespace {

using namespace gtp::literals;

/// Groups of `policy.megatron_cfg` and where Megatron-Bridge, whose names they use, keeps the same options.
struct Group {
  std::string_view name;
  std::array<std::string_view, 2> homes;
};
constexpr std::array kGroups{Group{"", {"model.", "train."}}, Group{"optimizer", {"optimizer.", "ddp."}},
                             Group{"scheduler", {"scheduler.", "scheduler."}},
                             Group{"distributed_data_parallel_config", {"ddp.", "mixed_precision."}},
                             Group{"checkpoint", {"checkpoint.", "checkpoint."}}};

/// Values of `policy` that are options of Megatron under another name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kPolicyKeys{
    {{"train_global_batch_size", "global_batch_size"},
     {"train_micro_batch_size", "micro_batch_size"},
     {"max_total_sequence_length", "seq_length"}}};

/// Options that NeMo-RL takes from elsewhere, so that what the file says of them here has no effect or another
/// meaning: precisions of the optimizer's copy, and recomputation, which `activation_checkpointing` switches.
constexpr std::array<std::string_view, 8> kNotTaken{"bf16",
                                                    "fp16",
                                                    "params_dtype",
                                                    "recompute_granularity",
                                                    "recompute_modules",
                                                    "recompute_method",
                                                    "recompute_num_layers",
                                                    "use_custom_fsdp"};

/// NeMo-RL's own keys of `policy.megatron_cfg` whose names are near those of an option.
constexpr std::array<std::string_view, 4> kOwnKeys{"enabled", "env_vars", "fp8_cfg", "peft"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Options by where Megatron-Bridge keeps them.
const std::map<std::string_view, OptionId>& bridge_homes() {
  static const std::map<std::string_view, OptionId> homes = [] {
    std::map<std::string_view, OptionId> rows;
    for (const OptionId id : sorted_options())
      if (const std::string_view home = kOptions[id.index].bridge; !home.empty()) rows.emplace(home, id);
    return rows;
  }();
  return homes;
}

bool ends_like_yaml(const Node& value) {
  return value.kind == Kind::Scalar && (value.text.ends_with(".yaml") || value.text.ends_with(".yml"));
}

bool is_true(const Node& value) { return value.text == "true" || value.text == "True" || value.text == "TRUE"; }

/// Python's word, which YAML reads as text and NeMo-RL as nothing.
bool is_nothing(const Node& value) {
  return value.kind == Kind::Null || (value.kind == Kind::Scalar && !value.quoted && value.text == "None");
}

class NemoRlReader {
 public:
  NemoRlReader(Reading& reading, const Node& root) : reading_(reading), root_(root), values_(root, reading.config.env) {
    options_.kind = Kind::Map;
  }

  void read() {
    const auto megatron = values_.find("policy.megatron_cfg");
    const std::optional<Node> enabled = value("policy.megatron_cfg.enabled");
    if (!megatron || megatron->node->kind != Kind::Map || !enabled || !is_true(*enabled)) return report_disabled();
    for (const Group& group : kGroups) read_group(group);
    for (const auto& [key, option] : kPolicyKeys) take(fmt::format("policy.{}", key), option);
    set_expert_tensor_default(*megatron->node);
    read_precision();
    read_fp8();
    read_recompute();
    if (const auto env = value("policy.megatron_cfg.env_vars"); env && env->kind == Kind::Map)
      options_.entries.push_back({"env", env->place, *env, false});
    read_flat(reading_, options_);
    set_world();
  }

 private:
  std::optional<Node> value(std::string_view path) {
    const std::optional<Located> at = values_.find(path);
    return at ? std::optional(values_.resolved(*at)) : std::nullopt;
  }

  void report_disabled() {
    const Node* policy = find(root_, "policy");
    const auto enabled = values_.find("policy.megatron_cfg.enabled");
    const Place place = enabled ? enabled->node->place : policy != nullptr ? first_byte(policy->place) : Place{};
    reading_.out.push_back(rules::at_place(rules::kNotUnderstood, "", place,
                                           "`policy.megatron_cfg` is not enabled, so there is nothing of Megatron"));
  }

  static Place first_byte(Place place) { return {place.source, place.begin, place.begin + 1}; }

  /// Adds an option; one that is there already wins.
  void add(std::string_view option, Place key_place, Node node) {
    if (is_nothing(node)) return;
    if (find(options_, option) == nullptr)
      options_.entries.push_back({std::string(option), key_place, std::move(node), false});
  }

  void take(std::string_view path, std::string_view option) {
    const std::string_view key = path.substr(path.rfind('.') + 1);
    const std::optional<Located> group = values_.find(path.substr(0, path.size() - key.size() - 1));
    if (!group || group->node->kind != Kind::Map) return;
    for (const Entry& entry : group->node->entries)
      if (!entry.overridden && entry.key == key) add(option, entry.key_place, resolved(*group, entry));
  }

  Node resolved(const Located& group, const Entry& entry) {
    Located at{&entry.value, group.path};
    at.path.push_back(entry.key);
    return values_.resolved(at);
  }

  void read_group(const Group& group) {
    const std::string dot = group.name.empty() ? "" : ".";
    const auto at = values_.find(fmt::format("policy.megatron_cfg{}{}", dot, group.name));
    if (!at || at->node->kind != Kind::Map) return;
    for (const Entry& entry : at->node->entries) {
      if (entry.overridden || is_one_of(entry.key, kNotTaken)) continue;
      if (entry.value.kind == Kind::Map) continue;
      if (const std::optional<OptionId> option = option_of(group, entry.key))
        add(name_of(*option), entry.key_place, resolved(*at, entry));
      else
        report_slip(entry);
    }
  }

  [[nodiscard]] std::optional<OptionId> option_of(const Group& group, std::string_view key) const {
    for (const std::string_view home : group.homes)
      if (const auto row = bridge_homes().find(std::string(home).append(key)); row != bridge_homes().end())
        if (exists(row->second, reading_.config.target())) return row->second;
    const std::optional<OptionId> option = find_settable(key);
    if (!option || !exists(*option, reading_.config.target())) return std::nullopt;
    return kOptions[option->index].section == Section::Derived ? std::nullopt : option;
  }

  /// NeMo-RL has many keys of its own; only one that is a letter or two from an option's name is told.
  void report_slip(const Entry& entry) {
    constexpr std::size_t kMostSearches = 128, kSlip = 2;
    if (is_one_of(entry.key, kOwnKeys) || searches_++ > kMostSearches || full(reading_.out)) return;
    std::vector<std::string_view> names;
    for (const OptionId id : sorted_options())
      if (exists(id, reading_.config.target())) names.push_back(name_of(id));
    const std::string_view near = nearest(entry.key, names);
    if (near.empty() || near == entry.key || edit_distance(near, entry.key) > kSlip) return;
    reading_.out.push_back(rules::at_place(rules::kNotUnderstood, "", entry.key_place,
                                           fmt::format("`{}` is no option of Megatron", entry.key)));
    reading_.out.back().help = fmt::format("did you mean `{}`?", near);
  }

  /// NeMo-RL's own files set it to 1 where Megatron-LM would take the tensor-parallel size.
  void set_expert_tensor_default(const Node& megatron) {
    Node one;
    one.kind = Kind::Scalar;
    one.text = "1";
    one.place = first_byte(megatron.place);
    add("expert_tensor_parallel_size", one.place, std::move(one));
  }

  void add_word(std::string_view option, const Node& from, std::string_view word) {
    Node node;
    node.kind = Kind::Scalar;
    node.text = word;
    node.place = from.place;
    add(option, from.place, std::move(node));
  }

  void read_precision() {
    const std::optional<Node> precision = value("policy.precision");
    if (!precision || precision->kind != Kind::Scalar) return;
    if (precision->text == "bfloat16") add_word("bf16", *precision, "true");
    if (precision->text == "float16") add_word("fp16", *precision, "true");
    if (precision->text == "float32") add_word("bf16", *precision, "false");
  }

  /// nemo_rl/models/megatron/setup.py:1171-1178 and 1376-1388.
  void read_fp8() {
    const std::optional<Node> enabled = value("policy.megatron_cfg.fp8_cfg.enabled");
    if (!enabled || !is_true(*enabled)) return;
    take("policy.megatron_cfg.fp8_cfg.fp8", "fp8");
    take("policy.megatron_cfg.fp8_cfg.fp8_recipe", "fp8_recipe");
    take("policy.megatron_cfg.fp8_cfg.fp8_param", "fp8_param_gather");
    const Node* gathers = find(options_, "fp8_param_gather");
    const Node* recipe = find(options_, "fp8_recipe");
    if (gathers != nullptr && is_true(*gathers) && recipe != nullptr && recipe->text == "mxfp8")
      add_word("reuse_grad_buf_for_mxfp8_param_ag", Node(*gathers), "true");
  }

  /// nemo_rl/models/megatron/setup.py:1071-1093.
  void read_recompute() {
    const std::optional<Node> enabled = value("policy.megatron_cfg.activation_checkpointing");
    if (!enabled || !is_true(*enabled)) return;
    take("policy.megatron_cfg.recompute_granularity", "recompute_granularity");
    add_word("recompute_granularity", *enabled, "full");
    const Node* granularity = find(options_, "recompute_granularity");
    if (granularity->text == "full") {
      add_word("recompute_method", *enabled, "uniform");
      add_word("recompute_num_layers", *enabled, "1");
    } else {
      take("policy.megatron_cfg.recompute_modules", "recompute_modules");
    }
  }

  /// An integer of the file. Absent, or given as something that is not known here.
  struct Count {
    std::optional<std::int64_t> value{};
    Place place{};
    bool unknown = false;
  };

  Count count(std::string_view path) {
    const std::optional<Node> node = value(path);
    if (!node || is_nothing(*node)) return {};
    Count count{{}, node->place, false};
    if (node->kind == Kind::Scalar && !node->quoted) count.value = parse_int(node->text).value;
    count.unknown = !count.value;
    return count;
  }

  void unknown_world(Place place, std::string label) {
    reading_.out.push_back(rules::at_place(rules::kUnresolved, "world_size", place, std::move(label)));
    make_unknown(reading_.config, "world_size"_opt);
  }

  /// nemo_rl/algorithms/grpo.py:759-911: generation with GPUs of its own takes them from `cluster`.
  void set_world() {
    const Count nodes = count("cluster.num_nodes"), gpus = count("cluster.gpus_per_node");
    for (const Count& size : {nodes, gpus})
      if (size.unknown) return unknown_world(size.place, "is no number that is known here");
    if (!nodes.value || !gpus.value || shares_with_others()) return;
    std::int64_t train_nodes = *nodes.value, train_gpus = *gpus.value;
    const std::optional<Node> colocated = value("policy.generation.colocated.enabled");
    if (colocated && !is_nothing(*colocated) && !is_true(*colocated)) {
      const bool one_node = train_nodes == 1;
      const Count pool = count(one_node ? "policy.generation.colocated.resources.gpus_per_node"
                                        : "policy.generation.colocated.resources.num_nodes");
      if (!pool.value)
        return unknown_world(pool.place.known() ? pool.place : colocated->place,
                             "the size of the generation's own pool is not known here");
      const auto left = checked_subtract(one_node ? train_gpus : train_nodes, *pool.value);
      if (!left) return unknown_world(pool.place, "too large to count with");
      (one_node ? train_gpus : train_nodes) = *left;
    }
    const auto world = checked_multiply(train_nodes, train_gpus);
    if (!world) return unknown_world(nodes.place, "too many GPUs to count");
    if (!fits(*world) && gym_takes_nodes(nodes.place)) return;
    reading_.config.set("gpus_per_node"_opt, train_gpus, gpus.place);
    reading_.config.set("world_size"_opt, *world, nodes.place);
  }

  /// Teachers and reward models with nodes of their own: how many they take depends on more than this file.
  bool shares_with_others() {
    const auto on = [&](std::string_view path) {
      const std::optional<Node> node = value(path);
      return node && is_true(*node) ? node : std::nullopt;
    };
    if (on("on_policy_distillation.enabled"))
      if (const auto teachers = on("on_policy_distillation.non_colocated_teachers.enabled")) {
        unknown_world(teachers->place, "teachers take nodes of the cluster, so the training's share is not known");
        return true;
      }
    if (const auto reward = values_.find("env.reward_model.resources.num_nodes");
        reward && reward->node->kind == Kind::Scalar) {
      unknown_world(reward->node->place, "a reward model may take nodes of the cluster");
      return true;
    }
    return false;
  }

  /// Whether the world divides into model replicas, as far as the sizes are known.
  [[nodiscard]] bool fits(std::int64_t world) const {
    const auto size = [&](OptionId option) {
      const Setting* given = reading_.config.given(option);
      const auto* known = given == nullptr ? nullptr : std::get_if<std::int64_t>(&given->value);
      return known == nullptr || *known < 1 ? 1 : *known;
    };
    const auto pp = size("pipeline_model_parallel_size"_opt);
    const auto dense = checked_product({size("tensor_model_parallel_size"_opt), pp, size("context_parallel_size"_opt)});
    const auto expert =
        checked_product({size("expert_tensor_parallel_size"_opt), pp, size("expert_model_parallel_size"_opt)});
    return dense && expert && world % *dense == 0 && world % *expert == 0;
  }

  /// Files differ in whether `cluster.num_nodes` counts the nodes of judges and other servers of NeMo Gym.
  bool gym_takes_nodes(Place nodes) {
    const Count gym = count("env.nemo_gym.num_gpu_nodes");
    if (!gym.unknown && gym.value.value_or(0) == 0) return false;
    unknown_world(nodes, "seems to count nodes that serve other models, so the training's share is not known");
    reading_.out.back().related.push_back({"", gym.place, "nodes of NeMo Gym"});
    return true;
  }

  Reading& reading_;
  const Node& root_;
  Interpolator values_;
  Node options_{};
  std::size_t searches_ = 0;
};

}  // namespace

bool is_nemo_rl(const Node& root) {
  const Node* policy = find(root, "policy");
  const Node* defaults = find(root, "defaults");
  if (policy != nullptr && policy->kind == Kind::Map && find(root, "cluster") != nullptr) return true;
  if (defaults == nullptr) return false;
  return ends_like_yaml(*defaults) ||
         (!defaults->items.empty() && std::all_of(defaults->items.begin(), defaults->items.end(), ends_like_yaml));
}

void read_nemo_rl(Reading& reading, const Node& root) { NemoRlReader(reading, root).read(); }

}  // namespace gtp::readers
