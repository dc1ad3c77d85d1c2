#include "validators/shell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "validators/argv.hpp"
#include "validators/shell_launch.hpp"
#include "validators/shell_runner.hpp"

namespace gtp::readers {

namespace {

using shell::Field;
using namespace gtp::literals;

std::string_view flag_name(std::string_view word) { return word.substr(0, word.find('=')); }

std::optional<FlagMatch> flag_of(const Field& field, Version version) {
  return field.text.starts_with("--") ? find_flag(flag_name(field.text), version) : std::nullopt;
}

/// Flags that only a training program takes; a tool that prepares its data has none of them.
std::size_t count_sizes(std::span<const Field> fields, Version version) {
  return static_cast<std::size_t>(std::count_if(fields.begin(), fields.end(), [&](const Field& field) {
    const auto match = flag_of(field, version);
    if (!match) return false;
    const Section section = kOptions[match->option.index].section;
    return section == Section::Topology || section == Section::Model || section == Section::Batch;
  }));
}

/// Where the program's own words begin: after its file, or after `-m MODULE`.
std::size_t program_words(std::span<const Field> fields, Version version) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].text.ends_with(".py")) return i + 1;
    const bool module = fields[i].text == "-m" && i + 1 < fields.size();
    if (module && !fields[i + 1].text.starts_with("torch.distributed.")) return i + 2;
  }
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (flag_of(fields[i], version)) return i;
  return fields.size();
}

/// Whether argparse would take the word as a flag: a dash and no number after it.
bool looks_like_flag(std::string_view text) {
  return text.starts_with('-') && text.size() > 1 && text.find_first_not_of("0123456789.", 1) != std::string_view::npos;
}

class ScriptReader {
 public:
  ScriptReader(Reading& reading, std::string_view text) : reading_(reading), text_(text) {}

  bool read() {
    const auto script = shell::parse_script(text_, reading_.source, 0, text_.size(), reading_.out);
    if (!script) return false;
    const shell::SlurmSizes directives = shell::read_directives(text_, reading_.source);
    const shell::Variables before = known_variables(directives);
    const Version version = reading_.config.version();
    const shell::Run run = shell::run_script(text_, *script, before, [&](std::span<const Field> fields) {
      return std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return flag_of(f, version).has_value(); });
    });
    report(run);
    if (const shell::Started* chosen = choose(run)) read_command(*chosen, directives, before);
    return true;
  }

 private:
  [[nodiscard]] shell::Variables known_variables(const shell::SlurmSizes& directives) const {
    shell::Variables variables;
    for (const Variable& variable : reading_.config.env) {
      shell::Value value;
      value.elements.push_back({{{variable.value, variable.place, true}}, 0});
      value.exported = true;
      variables.insert_or_assign(variable.name, std::make_shared<const shell::Value>(std::move(value)));
    }
    shell::add_slurm_variables(directives, variables);
    return variables;
  }

  void warn(const Rule& rule, std::string_view option, Place place, std::string label) {
    if (full(reading_.out)) return report_rest(reading_.out);
    reading_.out.push_back(rules::at_place(rule, option, place, std::move(label)));
  }

  void report(const shell::Run& run) {
    for (const shell::Opaque& opaque : run.opaque)
      warn(rules::kUnresolved, "", opaque.place, fmt::format("`{}` may set variables and options", opaque.what));
    if (!run.complete) warn(rules::kNotUnderstood, "", first_line(), "too much work to follow to its end");
  }

  [[nodiscard]] Place first_line() const { return reading_.place(0, std::min(text_.find('\n'), text_.size())); }

  /// The last command that has sizes among its options, or else the last one.
  const shell::Started* choose(const shell::Run& run) {
    const shell::Started* chosen = nullptr;
    const auto sized = [&](const shell::Started& s) { return count_sizes(s.fields, reading_.config.version()) > 0; };
    for (const shell::Started& started : run.started)
      if (chosen == nullptr || sized(started) || !sized(*chosen)) chosen = &started;
    if (chosen == nullptr)
      warn(rules::kNotUnderstood, "", first_line(), "no command with options of Megatron is found in this script");
    for (const shell::Started& started : run.started)
      if (&started != chosen && sized(started))
        warn(rules::kNotUnderstood, "", started.fields.front().place,
             "this command has options of Megatron too; only the last such command is read");
    return chosen;
  }

  void read_command(const shell::Started& started, const shell::SlurmSizes& directives,
                    const shell::Variables& before) {
    const std::span<const Field> fields(started.fields);
    const std::size_t begin = program_words(fields, reading_.config.version());
    read_variables(started, before);
    read_program(fields.subspan(begin));
    shell::read_launcher(reading_, fields.first(begin), directives);
    if (reading_.config.given("world_size"_opt) == nullptr && !reading_.config.given_unknown("world_size"_opt))
      read_world_variable(started);
  }

  /// What the program finds in its environment, beside what was there before the script.
  void read_variables(const shell::Started& started, const shell::Variables& before) {
    for (const auto& [name, value] : started.variables) {
      const auto known = before.find(name);
      if (!value->exported || !value->known || value->elements.empty()) continue;
      if (known != before.end() && known->second == value) continue;
      std::string text;
      for (const shell::Chunk& chunk : value->elements.front().chunks) text += chunk.text;
      const auto& chunks = value->elements.front().chunks;
      reading_.config.env.push_back({name, std::move(text), chunks.empty() ? Place{} : chunks.front().place});
    }
    for (const Variable& variable : started.set) reading_.config.env.push_back(variable);
  }

  /// Megatron itself reads the size from this variable when no launcher sets it.
  void read_world_variable(const shell::Started& started) {
    const auto found = started.variables.find("WORLD_SIZE");
    if (found == started.variables.end() || !found->second->exported) return;
    const std::optional<std::string> text = shell::plain(*found->second);
    const auto world = text ? parse_int(*text).value : std::nullopt;
    if (world) reading_.config.set("world_size"_opt, *world, found->second->elements.front().chunks.front().place);
  }

  void read_program(std::span<const Field> fields) {
    std::vector<Word> words;
    std::map<std::size_t, std::vector<Word>> perhaps;
    for (const Field& field : fields) {
      if (field.condition != 0)
        perhaps[field.condition].push_back({field.text, field.place, false});
      else if (field.open && !takes_value(words))
        warn(rules::kUnresolved, "", field.place, fmt::format("`{}` may hold any options", field.text));
      else
        words.push_back({field.text, field.place, false});
    }
    read_argv(reading_, words);
    for (const auto& [condition, group] : perhaps) read_conditional(group);
  }

  /// Whether the last word is a flag that waits for a value.
  [[nodiscard]] bool takes_value(const std::vector<Word>& words) const {
    if (words.empty() || !looks_like_flag(words.back().text)) return false;
    if (words.back().text.find('=') != std::string::npos) return false;
    const auto match = find_flag(words.back().text, reading_.config.version());
    return !match || !match->constant;
  }

  /// Words that are there only under some condition: what they would change is not known.
  void read_conditional(const std::vector<Word>& group) {
    if (!looks_like_flag(group.front().text))
      return warn(rules::kUnresolved, "", group.front().place, "is there only under a condition");
    Config apart(reading_.config.target());
    Diagnostics ignored;
    Reading reading{apart, ignored, reading_.source};
    read_argv(reading, group);
    for (const Setting& setting : apart.settings()) {
      const Setting* given = reading_.config.given(setting.option);
      if (given == nullptr || given->value != setting.value) forget_conditional(setting.option, setting.place);
    }
    for (const OptionId option : sorted_options())
      if (apart.given_unknown(option)) forget_conditional(option, group.front().place);
  }

  void forget_conditional(OptionId option, Place place) {
    if (!reading_.config.given_unknown(option))
      warn(rules::kUnresolved, name_of(option), place, "given only under a condition that is not known here");
    make_unknown(reading_.config, option);
  }

  Reading& reading_;
  std::string_view text_;
};

}  // namespace

bool read_shell(Reading& reading, std::string_view text) { return ScriptReader(reading, text).read(); }

}  // namespace gtp::readers
