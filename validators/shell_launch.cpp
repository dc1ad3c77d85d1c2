#include "validators/shell_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtp/checked.hpp>

namespace gtp::readers::shell {

namespace {

using namespace gtp::literals;
using Sized = std::optional<gtp::Word>;

struct SlurmOption {
  std::string_view name;
  std::string_view letter;
  Sized SlurmSizes::*member;
};

constexpr std::array<SlurmOption, 6> kSlurmOptions{{{"--nodes", "-N", &SlurmSizes::nodes},
                                                    {"--ntasks", "-n", &SlurmSizes::tasks},
                                                    {"--ntasks-per-node", "", &SlurmSizes::tasks_per_node},
                                                    {"--gpus-per-node", "", &SlurmSizes::gpus_per_node},
                                                    {"--gres", "", &SlurmSizes::gpus_per_node},
                                                    {"--tasks-per-node", "", &SlurmSizes::tasks_per_node}}};

gtp::Word word_of(const Field& field) { return {field.text, field.place, false}; }

/// The end of a word from `skip` bytes on, with a tight place where the source has the word as it is.
gtp::Word tail_of(const Field& field, std::size_t skip) {
  gtp::Word word{field.text.substr(skip), field.place, false};
  if (field.place.end - field.place.begin == field.text.size()) word.place.begin += static_cast<std::uint32_t>(skip);
  return word;
}

/// `gpu:8` and `h100:8`: the number at the end.
gtp::Word without_kind(gtp::Word word) {
  const std::size_t colon = word.text.rfind(':');
  if (colon == std::string::npos) return word;
  return tail_of({word.text, word.place}, colon + 1);
}

/// The value of an option that is written `--name=value`, `--name value` or `-Nvalue`.
std::optional<gtp::Word> value_at(std::span<const Field> words, std::size_t at, std::string_view name,
                                  std::string_view letter) {
  std::string text = words[at].text.substr(0, words[at].text.find('='));
  if (text.starts_with("--")) std::replace(text.begin(), text.end(), '_', '-');
  const std::string& whole = words[at].text;
  if (text == name && text.size() < whole.size()) return tail_of(words[at], text.size() + 1);
  if ((text == name || (!letter.empty() && whole == letter)) && at + 1 < words.size()) return word_of(words[at + 1]);
  if (!letter.empty() && whole.starts_with(letter) && whole.size() > letter.size() && whole[1] != '-' &&
      whole.find_first_not_of("0123456789", letter.size()) == std::string::npos)
    return tail_of(words[at], letter.size());
  return std::nullopt;
}

Sized last_value(std::span<const Field> words, std::string_view name, std::string_view letter = {}) {
  Sized value;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (Sized found = value_at(words, i, name, letter)) value = std::move(found);
  return value;
}

void read_slurm_options(std::span<const Field> words, SlurmSizes& sizes) {
  for (const SlurmOption& option : kSlurmOptions)
    if (const Sized value = last_value(words, option.name, option.letter))
      if (option.name != "--gres" || value->text.starts_with("gpu")) sizes.*option.member = without_kind(*value);
}

std::optional<std::int64_t> number(const Sized& word) { return word ? parse_int(word->text).value : std::nullopt; }

bool is_program(const Field& field, std::span<const std::string_view> names) {
  const std::string_view program = std::string_view(field.text).substr(field.text.rfind('/') + 1);
  return std::find(names.begin(), names.end(), program) != names.end();
}

class Launcher {
 public:
  explicit Launcher(Reading& reading) : reading_(reading) {}

  void torchrun(std::span<const Field> words, const SlurmSizes& directives) {
    const gtp::Word one{"1", words.front().place, false};
    const gtp::Word per_node = last_value(words, "--nproc-per-node").value_or(one);
    gtp::Word nodes = last_value(words, "--nnodes").value_or(one);
    if (!number(nodes) && number(directives.nodes)) nodes = *directives.nodes;
    set(per_node, nodes);
  }

  void srun(const SlurmSizes& sizes) {
    const Sized per_node = sizes.tasks_per_node ? sizes.tasks_per_node : sizes.gpus_per_node;
    if (sizes.gpus_per_node) set_gpus(*sizes.gpus_per_node);
    if (const auto tasks = number(sizes.tasks))
      return reading_.config.set("world_size"_opt, *tasks, sizes.tasks->place);
    if (per_node && sizes.nodes && (sizes.tasks_per_node || sizes.gpus_per_node)) set_world(*per_node, *sizes.nodes);
    if (per_node && !sizes.gpus_per_node) set_gpus(*per_node);
  }

 private:
  void set(const gtp::Word& per_node, const gtp::Word& nodes) {
    set_gpus(per_node);
    set_world(per_node, nodes);
  }

  void set_gpus(const gtp::Word& word) {
    if (const auto gpus = number(word))
      reading_.config.set("gpus_per_node"_opt, *gpus, word.place);
    else
      unresolved("gpus_per_node"_opt, word);
  }

  void set_world(const gtp::Word& per_node, const gtp::Word& nodes) {
    const auto gpus = number(per_node), hosts = number(nodes);
    const auto world = gpus && hosts ? checked_multiply(*gpus, *hosts) : std::nullopt;
    if (world) return reading_.config.set("world_size"_opt, *world, hosts == 1 ? per_node.place : nodes.place);
    if (!hosts || gpus)
      unresolved("world_size"_opt, nodes);
    else
      make_unknown(reading_.config, "world_size"_opt);
  }

  void unresolved(OptionId option, const gtp::Word& word) {
    reading_.out.push_back(rules::at_place(rules::kUnresolved, name_of(option), word.place,
                                           fmt::format("`{}` is no number that is known here", word.text)));
    make_unknown(reading_.config, option);
  }

  Reading& reading_;
};

}  // namespace

SlurmSizes read_directives(std::string_view text, std::uint32_t source) {
  constexpr std::string_view kMark = "#SBATCH", kBlanks = " \t\r";
  SlurmSizes sizes;
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    std::vector<Field> words;
    if (text.substr(line, end - line).starts_with(kMark))
      for (std::size_t at = line + kMark.size(); at < end && text[at] != '#';) {
        const std::size_t stop = std::min(text.find_first_of(" \t\r\n", at), end);
        if (stop > at)
          words.push_back({std::string(text.substr(at, stop - at)),
                           {source, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(stop)}});
        at = std::max(at + 1, std::min(text.find_first_not_of(kBlanks, stop), end));
      }
    read_slurm_options(words, sizes);
    line = end + 1;
  }
  return sizes;
}

void add_slurm_variables(const SlurmSizes& sizes, Variables& variables) {
  const auto add = [&](std::string_view name, const Sized& word) {
    if (!number(word)) return;
    Value value;
    value.elements.push_back({{{word->text, word->place, true}}, 0});
    variables.try_emplace(std::string(name), std::make_shared<const Value>(std::move(value)));
  };
  add("SLURM_NNODES", sizes.nodes);
  add("SLURM_JOB_NUM_NODES", sizes.nodes);
  add("SLURM_NTASKS", sizes.tasks);
  add("SLURM_NTASKS_PER_NODE", sizes.tasks_per_node);
  add("SLURM_GPUS_PER_NODE", sizes.gpus_per_node);
  add("SLURM_GPUS_ON_NODE", sizes.gpus_per_node);
}

void read_launcher(Reading& reading, std::span<const Field> words, const SlurmSizes& directives) {
  constexpr std::array<std::string_view, 3> kTorch{"torchrun", "torch.distributed.run", "torch.distributed.launch"};
  constexpr std::array<std::string_view, 1> kSrun{"srun"};
  for (std::size_t i = 0; i < words.size(); ++i)
    if (is_program(words[i], kTorch)) return Launcher(reading).torchrun(words.subspan(i), directives);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_program(words[i], kSrun)) continue;
    SlurmSizes sizes = directives;
    read_slurm_options(words.subspan(i), sizes);
    return Launcher(reading).srun(sizes);
  }
}

}  // namespace gtp::readers::shell
