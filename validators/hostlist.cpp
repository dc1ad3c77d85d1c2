#include "validators/hostlist.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace gtp::readers {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

class Hostlist {
 public:
  Hostlist(std::string_view list, std::size_t& budget, std::vector<std::string>& names)
      : list_(list), budget_(budget), names_(names) {}

  std::optional<HostlistProblem> expand() {
    while (at_ < list_.size() && read_item()) {
      if (at_ == list_.size()) return std::nullopt;
      ++at_;  // the comma
      if (at_ == list_.size()) fail("expected a name after the comma");
    }
    if (!problem_ && list_.empty()) fail("expected a name");
    return problem_;
  }

 private:
  bool fail(const char* what) {
    problem_ = HostlistProblem{at_, what};
    return false;
  }

  /// Up to a comma outside of brackets, or the end.
  bool read_item() {
    std::vector<std::string> names{{}};
    while (at_ < list_.size() && list_[at_] != ',') {
      std::vector<std::string> choices;
      if (list_[at_] == '[') {
        if (!read_choices(choices, names.size())) return false;
      } else if (is_name_part(list_[at_])) {
        const std::size_t begin = at_;
        while (at_ < list_.size() && is_name_part(list_[at_])) ++at_;
        choices.emplace_back(list_.substr(begin, at_ - begin));
      } else {
        return fail("expected a letter, a digit or a bracket");
      }
      if (!multiply(names, choices)) return false;
    }
    if (names.front().empty()) return fail("expected a name");
    if (names.size() > budget_) return fail("these are too many names");
    budget_ -= names.size();
    std::move(names.begin(), names.end(), std::back_inserter(names_));
    return true;
  }

  bool multiply(std::vector<std::string>& names, const std::vector<std::string>& choices) {
    std::vector<std::string> products;
    products.reserve(names.size() * choices.size());
    for (const std::string& name : names)
      for (const std::string& choice : choices) {
        if (name.size() + choice.size() > kLongestHostName) return fail("the name is too long");
        products.push_back(name + choice);
      }
    names = std::move(products);
    return true;
  }

  /// `[01-16,20]`. There are `times` names that each gets every choice.
  bool read_choices(std::vector<std::string>& choices, std::size_t times) {
    do {
      ++at_;  // the bracket or comma
      if (!read_range(choices, budget_ / times)) return false;
    } while (at_ < list_.size() && list_[at_] == ',');
    if (at_ == list_.size() || list_[at_] != ']') return fail("expected `]`");
    ++at_;
    return true;
  }

  bool read_range(std::vector<std::string>& choices, std::size_t most) {
    const std::size_t begin = at_;
    std::int64_t first = 0, last = 0;
    if (!read_number(first)) return false;
    const std::size_t width = list_[begin] == '0' ? at_ - begin : 1;
    last = first;
    if (at_ < list_.size() && list_[at_] == '-') {
      ++at_;
      if (!read_number(last)) return false;
    }
    if (last < first) return fail("the range ends before it begins");
    if (static_cast<std::size_t>(last - first) >= most - std::min(most, choices.size()))
      return fail("these are too many names");
    for (std::int64_t number = first; number <= last; ++number) choices.push_back(fmt::format("{:0{}}", number, width));
    return true;
  }

  bool read_number(std::int64_t& number) {
    constexpr std::size_t kMostDigits = 18;  // fits into 64 bits
    const std::size_t begin = at_;
    while (at_ < list_.size() && is_digit(list_[at_])) ++at_;
    if (at_ == begin) return fail("expected a number");
    if (at_ - begin > kMostDigits) return fail("the number is too long");
    std::from_chars(list_.data() + begin, list_.data() + at_, number);
    return true;
  }

  std::string_view list_;
  std::size_t& budget_;
  std::vector<std::string>& names_;
  std::size_t at_ = 0;
  std::optional<HostlistProblem> problem_{};
};

}  // namespace

std::optional<HostlistProblem> expand_hostlist(std::string_view list, std::size_t& budget,
                                               std::vector<std::string>& names) {
  return Hostlist(list, budget, names).expand();
}

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestHostName && std::all_of(name.begin(), name.end(), is_name_part);
}

}  // namespace gtp::readers
