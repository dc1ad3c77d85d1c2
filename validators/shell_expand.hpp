// Expansion of words: variables, defaults, arrays, arithmetic, splitting. Nothing is looked up outside the script.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "validators/shell_script.hpp"
#include "validators/shell_value.hpp"

namespace gtp::readers::shell {

/// What one script may cost, so that a short one cannot take long or much memory.
class Budget {
 public:
  bool spend(std::size_t work) {
    spent_ += work < kMost ? work + 1 : kMost;
    return spent_ < kMost;
  }
  [[nodiscard]] bool empty() const { return spent_ >= kMost; }

 private:
  static constexpr std::size_t kMost = std::size_t{32} << 20U;
  std::size_t spent_ = 0;
};

enum class Splitting {
  Shell,  ///< what is not in quotes is split at blanks
  None,   ///< one word
  All,    ///< quotes or not: what a second shell would see
};

class Expander {
 public:
  Expander(std::string_view text, Variables& variables, Budget& budget)
      : text_(text), variables_(variables), budget_(budget) {}

  [[nodiscard]] std::vector<Field> fields(const Word& word, Splitting splitting);
  /// The value that `NAME=word` gives.
  [[nodiscard]] Value value(const Word& word);
  /// The items that `NAME=( words )` gives.
  [[nodiscard]] std::vector<Element> items(const std::vector<Word>& words);
  /// The text of a word, if all of it is known.
  [[nodiscard]] std::optional<std::string> plain_text(const Word& word);
  /// The value of an arithmetic expression.
  [[nodiscard]] std::optional<std::int64_t> arithmetic(std::string_view expression);

 private:
  struct Parameter {
    Value value{};
    bool each = false;  ///< `[@]`: an item is a word even in quotes
    bool open = false;  ///< not known, and perhaps many words
  };
  class Builder;

  Value expanded(const Part& part, bool& open, bool& each);
  Parameter parameter(const Part& part);
  Parameter substituted(const Part& part, std::string_view name, std::string_view operation, const Value* value);
  std::vector<Element> elements(const Word& word, Splitting splitting, std::vector<bool>* open);
  [[nodiscard]] Value unknown(const Part& part) const;
  std::optional<std::string> number_text(std::string_view reference);

  std::string_view text_;
  Variables& variables_;
  Budget& budget_;
  std::size_t depth_ = 0;
};

}  // namespace gtp::readers::shell
