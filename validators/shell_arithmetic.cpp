#include "validators/shell_arithmetic.hpp"

#include <gtp/assign.hpp>
#include <gtp/checked.hpp>

namespace gtp::readers::shell {

namespace {

constexpr std::size_t kMaxDepth = 32;

using Number = std::optional<std::int64_t>;
using Lookup = std::function<std::optional<std::string>(std::string_view)>;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class Calculator {
 public:
  Calculator(std::string_view text, const Lookup& variable) : text_(text), variable_(variable) {}

  Number calculate() {
    const Number value = sum();
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  Number sum() {
    Number value = product();
    while (value) {
      if (take("+")) {
        const Number right = product();
        value = right ? checked_add(*value, *right) : std::nullopt;
      } else if (take("-")) {
        const Number right = product();
        value = right ? checked_subtract(*value, *right) : std::nullopt;
      } else {
        break;
      }
    }
    return value;
  }

  Number product() {
    Number value = power();
    while (value) {
      const bool times = take("*"), over = !times && take("/"), rest = !times && !over && take("%");
      if (!times && !over && !rest) break;
      const Number right = power();
      if (!right) return std::nullopt;
      if (times) {
        value = checked_multiply(*value, *right);
      } else {
        if (*right == 0 || *right == -1) return std::nullopt;
        value = over ? *value / *right : *value % *right;
      }
    }
    return value;
  }

  Number power() {
    const Number base = primary();
    if (!base || !take("**")) return base;
    const Number exponent = power_again();
    constexpr std::int64_t kMostFactors = 64;
    if (!exponent || *exponent < 0 || *exponent > kMostFactors) return std::nullopt;
    Number value = 1;
    for (std::int64_t i = 0; i < *exponent && value; ++i) value = checked_multiply(*value, *base);
    return value;
  }

  Number power_again() {
    if (++depth_ > kMaxDepth) return std::nullopt;
    const Number value = power();
    --depth_;
    return value;
  }

  Number primary() {
    if (++depth_ > kMaxDepth) return std::nullopt;
    Number value;
    if (take("(")) {
      value = sum();
      if (!take(")")) value.reset();
    } else if (take("-")) {
      value = primary();
      if (value) value = checked_subtract(0, *value);
    } else if (take("+")) {
      value = primary();
    } else {
      value = number_of(word());
    }
    --depth_;
    return value;
  }

  /// A number, a name, `$NAME` or `${...}`.
  std::string_view word() {
    skip();
    const std::size_t begin = at_;
    if (text_.substr(at_).starts_with("${")) {
      at_ = std::min(text_.find('}', at_), text_.size() - 1) + 1;
      return text_.substr(begin, at_ - begin);
    }
    if (at_ < text_.size() && text_[at_] == '$') ++at_;
    while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  /// Decimal only: a leading zero would mean octal.
  [[nodiscard]] static Number decimal(std::string_view text) {
    if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
    if (text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
    return parse_int(text).value;
  }

  [[nodiscard]] Number number_of(std::string_view word) const {
    if (word.empty()) return std::nullopt;
    if (word[0] >= '0' && word[0] <= '9') return decimal(word);
    const std::optional<std::string> text = variable_(word);
    return text ? decimal(detail::trim(*text)) : std::nullopt;
  }

  std::string_view text_;
  const Lookup& variable_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace

std::optional<std::int64_t> evaluate_arithmetic(std::string_view expression, const Lookup& variable) {
  return Calculator(expression, variable).calculate();
}

}  // namespace gtp::readers::shell
