// The options of one command: a narrow face of CLI11, so that a single file has to compile it. Says which words a
// command takes, not what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gtp::cli {

class Arguments {
 public:
  /// What follows `--` on the command line, untouched: a Megatron argv. Nothing without a `--`.
  const std::optional<std::vector<std::string>> rest;

  Arguments(CLI::App& app, std::optional<std::vector<std::string>> words) : rest(std::move(words)), app_(app) {}

  /// Text above and below the list of options on the command's help page.
  void describe(const std::string& description, const std::string& examples);

  void positional(const std::string& name, std::string& word, const std::string& help);
  /// Any number.
  void positionals(const std::string& name, std::vector<std::string>& words, const std::string& help);
  void flag(const std::string& flags, bool& on, const std::string& help);
  /// Of an option given more than once the last one wins.
  void word(const std::string& flags, std::string& word, const std::string& type, const std::string& help);
  void word(const std::string& flags, std::optional<std::string>& word, const std::string& type,
            const std::string& help);
  /// May be repeated; commas separate, too.
  void list(const std::string& flags, std::vector<std::string>& words, const std::string& type,
            const std::string& help);
  /// May be repeated; commas are part of the word.
  void words(const std::string& flags, std::vector<std::string>& words, const std::string& type,
             const std::string& help);

 private:
  CLI::App& app_;
};

/// Parses the words of a command. Returns the help page if that is what they ask for; throws CouldNotRun for words
/// that `app` does not take.
[[nodiscard]] std::optional<std::string> parse(CLI::App& app, std::vector<std::string> words);

}  // namespace gtp::cli
