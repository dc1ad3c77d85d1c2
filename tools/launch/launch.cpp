#include "tools/launch/launch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <gtp/rules/form.hpp>

#include "tools/could_not_run.hpp"
#include "tools/launch/job.hpp"
#include "tools/launch/quote.hpp"
#include "tools/plan.hpp"
#include "validators/reading.hpp"

namespace gtp::cli {

namespace {

using namespace literals;

constexpr std::string_view kPinnedBridge = "megatron-bridge@067f987d";

/// Whether this version of Megatron-Bridge hands weight shards on to Megatron Core.
bool bridge_wires_gtp(const Target& target) {
  return target.name.starts_with("megatron-bridge@") && target.name != kPinnedBridge;
}

class LaunchMaker {
 public:
  LaunchMaker(const Checked& checked, const LaunchOptions& options)
      : checked_(checked),
        facts_(checked.report->derivation.facts),
        job_{.options = options,
             .target = checked.loaded.config.target(),
             .topology = *checked.report->derivation.topology,
             .arguments = {},
             .environment = {},
             .high_priority = {},
             .warnings = {},
             .size_words = {}} {}

  Launch make() {
    fill_options();
    place_processes();
    make_words();
    choose_priorities();
    warn();
    if (!has_errors(launch_.problems)) make_files();
    return std::move(launch_);
  }

 private:
  [[nodiscard]] const Config& config() const { return checked_.loaded.config; }

  void fill_options() {
    LaunchOptions& o = job_.options;
    const bool hybrid = facts_.has("hybrid_layer_pattern"_opt);
    if (o.script.empty())
      o.script = job_.bridge() ? "scripts/training/run_recipe.py" : hybrid ? "pretrain_hybrid.py" : "pretrain_gpt.py";
    if (o.script.starts_with('-')) o.script.insert(0, "./");  // torchrun and python would read a flag
    if (o.job_name.empty()) o.job_name = fmt::format("gtp-{}", job_.topology.world_size);
  }

  void place_processes() {
    const std::int64_t world = job_.topology.world_size;
    const std::int64_t per_node = std::min(facts_.integer("gpus_per_node"_opt).value_or(world), world);
    if (world % per_node != 0)
      throw CouldNotRun{fmt::format("{} ranks do not fill hosts of {} GPUs", world, per_node),
                        "choose --gpus-per-node so that it divides the world size"};
    job_.processes_per_node = per_node;
    job_.nodes = world / per_node;
  }

  void make_words() {
    TrainerArguments arguments = make_arguments(config(), facts_, job_.options.framework);
    job_.arguments = std::move(arguments.list);
    job_.environment = make_environment(config(), checked_.report->derivation);
    add_problems(std::move(arguments.problems));
    add_problems(std::move(job_.environment.problems));
    left_out_ = std::move(arguments.left_out);
    for (const OptionId option : sorted_options()) look_at_variables(option);
    job_.size_words = size_words();
  }

  /// A rule that `check` has reported is not reported again; there can be many values with variables in them.
  void add_problems(Diagnostics problems) {
    for (Diagnostic& problem : problems)
      if (problem.rule == rules::kUnresolved.id ||
          std::ranges::none_of(checked_.diagnostics, [&](const Diagnostic& d) { return d.rule == problem.rule; }))
        launch_.problems.push_back(std::move(problem));
  }

  void look_at_variables(OptionId option) {
    if (config().given_unknown(option)) {
      Diagnostic d = rules::at_place(rules::kRequiredMissing, name_of(option), {}, "not known");
      d.message = "`gtplan launch` needs every value that the input speaks of";
      d.help = fmt::format("give it with --set {}=VALUE", name_of(option));
      launch_.problems.push_back(std::move(d));
    }
    const Setting* setting = config().given(option);
    if (setting == nullptr || !readers::has_variable(gtp::to_text(setting->value))) return;
    Diagnostic d = rules::at_place(rules::kUnresolved, name_of(option), setting->place, "no shell will replace this");
    d.message = "the value is handed to the trainer as it is written";
    d.help = fmt::format("give the value that is meant with --set {}=VALUE", name_of(option));
    launch_.problems.push_back(std::move(d));
  }

  /// What a reader of the arguments cannot see in them.
  [[nodiscard]] std::string size_words() const {
    std::string words = fmt::format("--world-size {}", job_.topology.world_size);
    if (const auto gpus = facts_.integer("gpus_per_node"_opt)) words += fmt::format(" --gpus-per-node {}", *gpus);
    for (const OptionId option : {"gpu_arch"_opt, "te_version"_opt})
      if (const auto text = facts_.text(option))
        words += fmt::format(" --set {}", shell_quoted(comment_text(fmt::format("{}={}", name_of(option), *text))));
    return words;
  }

  /// The groups that upstream itself gives high priority from Blackwell on (megatron/training/arguments.py:1484, 1529).
  void choose_priorities() {
    if (facts_.has("nccl_communicator_config_path"_opt)) return;
    StringList groups;
    const auto add = [&](std::string_view group) {
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.emplace_back(group);
    };
    if (const Value* given = facts_.find("high_priority_stream_groups"_opt))
      if (const auto* names = std::get_if<StringList>(given))
        for (const std::string& name : *names) add(name);
    const Topology& t = job_.topology;
    if (t.gtp_remat > 1 || t.egtp_remat > 1) add("gtp_remat");
    if (t.egtp_remat > 1) add("expt_gtp_remat");
    const bool fsdp = facts_.on("use_torch_fsdp2"_opt) || facts_.on("use_megatron_fsdp"_opt);
    if (fsdp) add("dp_cp");
    if (fsdp && t.ep > 1) add("ep_dp");
    job_.high_priority = std::move(groups);
  }

  /// By the input, because a target of Megatron-Bridge derives no remat sizes.
  [[nodiscard]] bool asks_for_gtp() const {
    const auto beyond = [&](OptionId shards, OptionId parallel) {
      const Setting* given = config().given(shards);
      const auto* count = given == nullptr ? nullptr : std::get_if<std::int64_t>(&given->value);
      return count != nullptr && *count > facts_.integer(parallel).value_or(1);
    };
    return beyond("tensor_parallel_num_weight_shards"_opt, "tensor_model_parallel_size"_opt) ||
           beyond("expert_tensor_parallel_num_weight_shards"_opt, "expert_tensor_parallel_size"_opt);
  }

  void warn() {
    if (job_.bridge() && asks_for_gtp() && !bridge_wires_gtp(job_.target))
      job_.warnings.push_back(
          fmt::format("{} does not wire GTP: it makes its process groups without a remat axis, whatever the weight "
                      "shards say. Use Megatron-LM, or a newer Megatron-Bridge.",
                      kPinnedBridge));
    if (!left_out_.empty())
      job_.warnings.push_back(
          fmt::format("Megatron-Bridge has no place for {}: a recipe decides them", fmt::join(left_out_, ", ")));
    if (job_.bridge() && job_.options.recipe.empty() && job_.options.launcher == Launcher::Kubernetes)
      job_.warnings.push_back("no recipe is named: give --recipe NAME, or add it to the arguments below");
    launch_.remarks = job_.warnings;
    for (const std::string& undecided : job_.environment.undecided)
      launch_.remarks.push_back(fmt::format("not set: {}; give --set gpu_arch=NAME", undecided));
  }

  OutputFile main_file() {
    switch (job_.options.launcher) {
      case Launcher::Torchrun:
        return {"launch.sh", torchrun_script(job_), true};
      case Launcher::Slurm:
        return {"launch.sbatch", slurm_script(job_), true};
      case Launcher::SlurmNative:
        return {"launch.sbatch", slurm_native_script(job_), true};
      case Launcher::Local:
        return {"local.sh", local_script(job_), true};
      case Launcher::Kubernetes:
        break;
    }
    switch (job_.options.kubernetes_kind) {
      case KubernetesKind::TrainJob:
        return {"trainjob.yaml", kubernetes_manifest(job_)};
      case KubernetesKind::JobSet:
        return {"jobset.yaml", kubernetes_manifest(job_)};
      case KubernetesKind::PyTorchJob:
        return {"pytorchjob.yaml", kubernetes_manifest(job_)};
    }
    return {};
  }

  void make_files() {
    std::vector<OutputFile>& files = launch_.files;
    files.push_back(main_file());
    files.push_back({std::string(job_.bridge() ? kOverridesFile : kArgumentsFile), arguments_file(job_)});
    files.push_back({std::string(kEnvironmentFile), environment_file(job_)});
    if (!job_.high_priority.empty()) files.push_back({std::string(kCommunicatorsFile), communicators_file(job_)});
    files.push_back({"ranks.tsv", rank_map(job_.topology, facts_.integer("gpus_per_node"_opt))});
    files.push_back({"plan.json", write_plan(checked_)});
  }

  const Checked& checked_;
  const Facts& facts_;
  Job job_;
  Launch launch_;
  std::vector<std::string_view> left_out_;
};

}  // namespace

Launch make_launch(const Checked& checked, const LaunchOptions& options) {
  return LaunchMaker(checked, options).make();
}

}  // namespace gtp::cli
