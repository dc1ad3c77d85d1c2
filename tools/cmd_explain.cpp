// gtplan explain: what a diagnostic or an option means.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include <gtp/options.hpp>
#include <gtp/rules.hpp>

#include "tools/commands.hpp"
#include "tools/explain.hpp"
#include "tools/file.hpp"
#include "tools/input.hpp"
#include "tools/suggest.hpp"

namespace gtp::cli {

namespace {

constexpr std::array<std::string_view, 3> kFormats{"text", "json", "markdown"};

constexpr const char* kDescription =
    "Explains a diagnostic, by its code or rule id: what it means, why it matters, how to mend it, which options it\n"
    "looks at and where upstream decides it. Explains an option, by its name or flag: type, default, choices, and the\n"
    "rules that look at it.";
constexpr const char* kExamples =
    "Examples:\n"
    "  gtplan explain GTP003\n"
    "  gtplan explain dense-shards-multiple-of-tp\n"
    "  gtplan explain tensor_parallel_num_weight_shards\n"
    "  gtplan explain --list";

struct Options {
  std::string topic, format, output;
  bool list = false;
};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return text;
}

[[noreturn]] void fail_unknown(const std::string& topic) {
  std::vector<std::string_view> names;
  for (const Rule* rule : all_rules()) names.insert(names.end(), {rule->code, rule->id});
  for (const OptionId option : sorted_options()) names.push_back(name_of(option));
  throw CouldNotRun{fmt::format("`{}` is neither a code, a rule nor an option", topic),
                    suggest(topic, names, suggest(upper(topic), names, "`gtplan explain --list` lists all codes"))};
}

std::string explain(const std::string& topic, bool json) {
  const Rule* rule = find_rule(topic);
  if (rule == nullptr) rule = find_rule(upper(topic));
  if (rule != nullptr) return json ? rule_json(*rule) : rule_page(*rule);
  std::optional<OptionId> option = find_settable(topic);
  for (const Target& target : kTargets)
    if (const auto flag = find_flag(topic, target.version); !option && flag) option = flag->option;
  if (!option) fail_unknown(topic);
  return json ? option_json(*option) : option_page(*option);
}

Exit run(const Options& options) {
  expect_choice("--format", options.format, kFormats);
  if (options.list != options.topic.empty())
    throw CouldNotRun{"give either one code, rule or option, or --list", "for example `gtplan explain GTP003`"};
  const bool json = options.format == "json", markdown = options.format == "markdown";
  if (markdown && !options.list) throw CouldNotRun{"markdown is a form of --list", "add --list, or use text"};
  Output output(options.output);
  output.write(!options.list ? explain(options.topic, json)
               : json        ? rule_list_json()
               : markdown    ? rule_list_markdown()
                             : rule_list());
  output.finish();
  return Exit::Valid;
}

}  // namespace

Action setup_explain(Arguments& arguments) {
  const auto options = std::make_shared<Options>();
  options->format = kFormats.front();
  if (arguments.rest && !arguments.rest->empty()) options->topic = arguments.rest->front();  // `explain -- --a-flag`
  arguments.describe(kDescription, kExamples);
  arguments.positional("TOPIC", options->topic, "Code (GTP003), rule id, or option");
  arguments.flag("--list", options->list, "All codes, one a line");
  arguments.word("--format", options->format, "NAME", "Output: text, json; markdown with --list");
  arguments.word("-o,--output", options->output, "FILE", "Write the result to FILE instead of standard output");
  return [options] { return run(*options); };
}

}  // namespace gtp::cli
