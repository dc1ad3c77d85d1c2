#include "tools/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <gtp/assign.hpp>
#include <gtp/facts.hpp>
#include <gtp/rules.hpp>

#include "tools/json_writer.hpp"

namespace gtp::cli {

std::string_view name_of_section(Section section) {
  switch (section) {
    case Section::Topology:
      return "topology";
    case Section::Model:
      return "model";
    case Section::Batch:
      return "batch";
    case Section::Precision:
      return "precision";
    case Section::Overlap:
      return "overlap and DDP";
    case Section::Optimizer:
      return "optimizer";
    case Section::CudaGraphs:
      return "CUDA graphs";
    case Section::Recompute:
      return "recompute";
    case Section::Checkpoint:
      return "checkpoint";
    case Section::Data:
      return "data";
    case Section::Run:
      return "run";
    case Section::Bridge:
      return "Megatron-Bridge";
    case Section::Surroundings:
      return "surroundings";
    case Section::Derived:
      return "derived";
  }
  return "";
}

namespace {

using Layout = JsonWriter::Layout;

/// The framework's targets that a rule holds for, oldest first.
std::vector<std::string_view> targets_of(const Rule& rule, Framework framework) {
  std::vector<std::string_view> names;
  for (const Target& target : kTargets)
    if (target.framework == framework && rule.in(target)) names.push_back(target.name);
  return names;
}

/// Lines of at most `kColumns` columns, each after two spaces.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kColumns = 88;
  std::string out = " ";
  std::size_t column = 1;
  for (const std::string& word : detail::split_words(text)) {
    if (column + 1 + word.size() > kColumns && column > 1) {
      out += "\n ";
      column = 1;
    }
    out += ' ' + word;
    column += 1 + word.size();
  }
  return out + '\n';
}

std::string line(std::string_view title, std::string_view text) {
  return text.empty() ? std::string() : fmt::format("{:9} {}\n", title, text);
}

std::vector<std::string_view> names_of(const Needs& needs) {
  std::vector<std::string_view> names;
  for (const OptionId option : needs.span()) names.push_back(name_of(option));
  return names;
}

/// The targets that a rule holds for, as one range for each framework.
std::string versions_of(const Rule& rule) {
  std::vector<std::string> ranges;
  std::size_t count = 0;
  for (const Framework framework : {Framework::kMegatronLm, Framework::kBridge}) {
    const auto names = targets_of(rule, framework);
    if (names.empty()) continue;
    ranges.push_back(names.size() == 1 ? std::string(names.front())
                                       : fmt::format("{} to {}", names.front(), names.back()));
    count += names.size();
  }
  return fmt::format("{}{}", fmt::join(ranges, ", "), count == 1 ? " only" : "");
}

std::vector<std::string_view> rules_that_need(OptionId option) {
  std::vector<std::string_view> codes;
  for (const Rule* rule : all_rules()) {
    const auto needs = rule->needs.span();
    if (std::find(needs.begin(), needs.end(), option) != needs.end()) codes.push_back(rule->code);
  }
  return codes;
}

std::string default_text(OptionId option, const Target& target) {
  const Option& row = row_of(option, target.version);
  if (row.section == Section::Derived) return "derived by upstream";
  if (row.required || detail::from_recipe(target, row.name)) return "none: unknown when absent";
  const std::string text = to_text(detail::defaults_of(target)[option.index].value);
  return text.empty() ? "empty" : text;
}

/// The targets that know the option; all of them as a rule.
std::vector<Target> targets_of(OptionId option) {
  std::vector<Target> targets;
  for (const Target& target : kTargets)
    if (exists(option, target)) targets.push_back(target);
  return targets;
}

/// One default, or one for each target where they differ.
std::string defaults_of(OptionId option) {
  std::vector<std::string> texts;
  for (const Target& target : targets_of(option)) texts.push_back(default_text(option, target));
  const bool same = std::equal(texts.begin() + 1, texts.end(), texts.begin());
  if (same) return texts.front();
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < texts.size(); ++i)
    lines.push_back(fmt::format("{} ({})", texts[i], targets_of(option)[i].name));
  return fmt::format("{}", fmt::join(lines, ", "));
}

std::vector<std::string> flag_texts(const Option& row) {
  std::vector<std::string> texts;
  for (const Flag& flag : flags_of(row))
    texts.push_back(flag.constant ? fmt::format("{} ({})", flag.text, *flag.constant) : flag.text);
  return texts;
}

void write_rule(JsonWriter& json, const Rule& rule) {
  json.begin_object();
  json.field("code", rule.code);
  json.field("rule", rule.id);
  json.field("severity", to_text(rule.severity));
  json.field("phase", to_text(rule.phase));
  json.field("message", rule.message);
  json.field("why", rule.why);
  json.field("help", rule.help);
  json.field("needs", names_of(rule.needs));
  const auto megatron = targets_of(rule, Framework::kMegatronLm), bridge = targets_of(rule, Framework::kBridge);
  json.field("first_target", megatron.empty() ? bridge.front() : megatron.front());
  json.field("last_target", megatron.empty() ? bridge.back() : megatron.back());
  json.field("on_bridge", !bridge.empty());
  json.field("source", rule.source);
  json.end();
}

}  // namespace

std::string rule_page(const Rule& rule) {
  std::string page = fmt::format("{}  {}\n\n{}\nWhy\n{}\nHow to mend it\n{}\n", rule.code, rule.id,
                                 wrapped(rule.message), wrapped(rule.why), wrapped(rule.help));
  page += line("severity", to_text(rule.severity));
  page += line("phase", to_text(rule.phase));
  page += line("needs", fmt::format("{}", fmt::join(names_of(rule.needs), ", ")));
  page += line("targets", versions_of(rule));
  page += line("upstream", rule.source);
  return page;
}

std::string rule_json(const Rule& rule) {
  std::string out;
  JsonWriter json(out);
  write_rule(json, rule);
  return out;
}

std::string option_page(OptionId option) {
  const std::vector<Target> targets = targets_of(option);
  const Option& row = row_of(option, targets.back().version);
  std::string page = fmt::format("{}\n\n{}\n", row.name, wrapped(row.doc));
  page += line("type", to_text(row.type));
  page += line("default", defaults_of(option));
  page += line("choices", fmt::format("{}", fmt::join(detail::split_words(row.choices), ", ")));
  page += line("flags", fmt::format("{}", fmt::join(flag_texts(row), ", ")));
  page += line("Bridge", row.bridge);
  page += line("section", name_of_section(row.section));
  if (targets.size() < kTargets.size()) {
    std::vector<std::string_view> names;
    for (const Target& target : targets) names.push_back(target.name);
    page += line("targets", fmt::format("{} only", fmt::join(names, ", ")));
  }
  page += line("rules", fmt::format("{}", fmt::join(rules_that_need(option), ", ")));
  return page;
}

std::string option_json(OptionId option) {
  const std::vector<Target> targets = targets_of(option);
  const Option& row = row_of(option, targets.back().version);
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.field("option", row.name);
  json.field("doc", row.doc);
  json.field("section", name_of_section(row.section));
  json.field("type", to_text(row.type));
  json.field("choices", detail::split_words(row.choices));
  json.field("flags", flag_texts(row));
  json.field("bridge", row.bridge);
  json.field("required", row.required);
  json.key("defaults");
  json.begin_object();
  for (const Target& target : targets) json.field(target.name, detail::defaults_of(target)[option.index].value);
  json.end();
  json.field("rules", rules_that_need(option));
  json.end();
  return out;
}

std::string rule_list() {
  std::string out;
  for (const Rule* rule : all_rules())
    out +=
        fmt::format("{}  {:7}  {:10}  {}\n", rule->code, to_text(rule->severity), to_text(rule->phase), rule->message);
  return out;
}

std::string rule_list_markdown() {
  std::string out;
  for (const Rule* rule : all_rules()) {
    out += fmt::format("### {}\n\n`{}` · {} · {}", rule->code, rule->id, to_text(rule->severity), to_text(rule->phase));
    if (rule->first != kOldestVersion || rule->last != kNewestVersion) out += fmt::format(" · {}", versions_of(*rule));
    out += fmt::format("\n\n**{}.** {}\n", rule->message, rule->why);
    if (!rule->help.empty()) out += fmt::format("Mend: {}.\n", rule->help);
    if (const auto needs = names_of(rule->needs); !needs.empty())
      out += fmt::format("Looks at `{}`.\n", fmt::join(needs, "`, `"));
    if (!rule->source.empty()) out += fmt::format("Upstream: `{}`.\n", rule->source);
    out += '\n';
  }
  return out;
}

std::string rule_list_json() {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.key("rules");
  json.begin_array();
  for (const Rule* rule : all_rules()) write_rule(json, *rule);
  json.end();
  json.end();
  return out;
}

}  // namespace gtp::cli
