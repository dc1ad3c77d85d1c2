#include "tools/arguments.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include "tools/could_not_run.hpp"
#include "tools/suggest.hpp"

namespace gtp::cli {

namespace {

/// Words that no option took: an unknown option with the nearest one, or one positional too many.
[[noreturn]] void fail_extras(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  const auto dashed =
      std::find_if(extras.begin(), extras.end(), [](const std::string& word) { return word.starts_with('-'); });
  if (dashed == extras.end())
    throw CouldNotRun{fmt::format("`{}` is one argument too many", extras.front()),
                      fmt::format("see `{} --help`", app.get_name())};
  const std::string word = dashed->substr(0, dashed->find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string otherwise = fmt::format("see `{} --help`; Megatron's own options go after `--`", app.get_name());
  throw CouldNotRun{fmt::format("`{}` has no option `{}`", app.get_name(), word), suggest(word, names, otherwise)};
}

}  // namespace

void Arguments::describe(const std::string& description, const std::string& examples) {
  app_.description(description);
  app_.footer(examples);
}

void Arguments::positional(const std::string& name, std::string& word, const std::string& help) {
  app_.add_option(name, word, help)->type_name("");
}

void Arguments::positionals(const std::string& name, std::vector<std::string>& words, const std::string& help) {
  app_.add_option(name, words, help)->type_name("");
}

void Arguments::flag(const std::string& flags, bool& on, const std::string& help) { app_.add_flag(flags, on, help); }

void Arguments::word(const std::string& flags, std::string& word, const std::string& type, const std::string& help) {
  app_.add_option(flags, word, help)->type_name(type)->take_last();
}

void Arguments::word(const std::string& flags, std::optional<std::string>& word, const std::string& type,
                     const std::string& help) {
  app_.add_option(flags, word, help)->type_name(type)->take_last();
}

void Arguments::list(const std::string& flags, std::vector<std::string>& words, const std::string& type,
                     const std::string& help) {
  app_.add_option(flags, words, help)->type_name(type)->delimiter(',')->allow_extra_args(false);
}

void Arguments::words(const std::string& flags, std::vector<std::string>& words, const std::string& type,
                      const std::string& help) {
  app_.add_option(flags, words, help)->type_name(type)->allow_extra_args(false);
}

std::optional<std::string> parse(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ExtrasError&) {
    fail_extras(app);
  } catch (const CLI::ParseError& error) {
    throw CouldNotRun{error.what(), fmt::format("see `{} --help`", app.get_name())};
  }
  return std::nullopt;
}

}  // namespace gtp::cli
