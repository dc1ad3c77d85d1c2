#include "validators/argv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "validators/script_flags.hpp"

namespace gtp::readers {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// argparse's own test: `-1`, `-.5`, `-0.5`, but not `-1e-4`.
bool is_negative_number(std::string_view word) {
  if (!word.starts_with('-')) return false;
  word.remove_prefix(1);
  const std::size_t dot = word.find('.');
  const std::string_view whole = word.substr(0, dot);
  const std::string_view fraction = dot == std::string_view::npos ? std::string_view{} : word.substr(dot + 1);
  return std::all_of(whole.begin(), whole.end(), is_digit) && std::all_of(fraction.begin(), fraction.end(), is_digit) &&
         (dot == std::string_view::npos ? !whole.empty() : !fraction.empty());
}

/// One word that is a flag: `--name`, or `--name=value` with the value in `explicit_value`.
struct FlagWord {
  std::string_view name;
  std::optional<Word> explicit_value{};
  Place place{};
};

class ArgvReader {
 public:
  ArgvReader(Reading& reading, std::span<const Word> words) : reading_(reading), words_(words) {}

  void read() {
    while (at_ < words_.size()) {
      if (full(reading_.out)) return report_rest(reading_.out);
      const std::optional<FlagWord> flag = as_flag(words_[at_]);
      if (!flag) {
        leave_out();
        continue;
      }
      ++at_;
      read_flag(*flag);
    }
  }

 private:
  /// argparse's rule: a word with a space is a value unless it is a known flag, and so is `-1`.
  [[nodiscard]] std::optional<FlagWord> as_flag(const Word& word) const {
    const std::string_view text = word.text;
    if (text.size() < 2 || text[0] != '-' || text == "--" || is_negative_number(text)) return std::nullopt;
    const std::size_t equals = text.find('=');
    const bool spaced = text.find(' ') != std::string_view::npos;
    if (equals == std::string_view::npos && (!spaced || known(text))) return FlagWord{text, std::nullopt, word.place};
    const std::string_view name = text.substr(0, equals);
    if (equals != std::string_view::npos && (!spaced || known(name)))
      return FlagWord{name, part(word, equals + 1, text.size()), part(word, 0, equals).place};
    return std::nullopt;
  }

  [[nodiscard]] bool known(std::string_view text) const {
    return find_flag(text, reading_.config.version()).has_value() || is_script_flag(text);
  }

  /// A piece of a word; tight where the text holds the word as it is.
  static Word part(const Word& word, std::size_t begin, std::size_t end) {
    Word piece{word.text.substr(begin, end - begin), word.place, word.quoted};
    if (word.place.end - word.place.begin == word.text.size()) {
      piece.place.begin = word.place.begin + static_cast<std::uint32_t>(begin);
      piece.place.end = word.place.begin + static_cast<std::uint32_t>(end);
    }
    return piece;
  }

  /// Words before the first flag, or after one that takes none: the name of the script, say.
  void leave_out() {
    const Word& first = words_[at_];
    const std::span<const Word> words = take_values();
    if (has_variable(first.text))
      reading_.out.push_back(
          rules::at_place(rules::kUnresolved, "", first.place, fmt::format("`{}` may hold any options", first.text)));
    else
      reading_.out.push_back(rules::at_place(rules::kNotUnderstood, "", span_of(words), "belongs to no flag"));
  }

  std::span<const Word> take_values() {
    const std::size_t begin = at_;
    while (at_ < words_.size() && !as_flag(words_[at_])) ++at_;
    return words_.subspan(begin, at_ - begin);
  }

  static Place span_of(std::span<const Word> words) {
    Place place = words.front().place;
    if (words.back().place.source == place.source) place.end = std::max(place.end, words.back().place.end);
    return place;
  }

  void read_flag(const FlagWord& flag) {
    if (has_variable(flag.name)) {
      reading_.out.push_back(
          rules::at_place(rules::kUnresolved, "", flag.place, fmt::format("`{}` may be any option", flag.name)));
      take_values();
      return;
    }
    std::optional<FlagMatch> match = find_flag(flag.name, reading_.config.version());
    if (!match && !is_script_flag(flag.name))
      match = resolve_flag(flag.name, flag.place, reading_.config.target(), reading_.out);
    if (const OptionId grids = *find_option("use_decentralized_pg");
        is_module_grid_flag(flag.name) && reading_.config.given(grids) == nullptr)
      reading_.config.set(grids, true, flag.place);
    if (!match)
      take_values();
    else if (match->constant)
      read_switch(flag, *match);
    else
      read_values(flag, *match);
  }

  void read_switch(const FlagWord& flag, const FlagMatch& match) {
    std::vector<Word> extra;
    if (flag.explicit_value) extra.push_back(*flag.explicit_value);
    const std::span<const Word> words = take_values();
    extra.insert(extra.end(), words.begin(), words.end());
    if (!extra.empty())
      reading_.out.push_back(rules::at_place(rules::kWrongArity, name_of(match.option), span_of(extra),
                                             fmt::format("`{}` takes no value", flag.name)));
    if (extra.empty())
      reading_.config.set(match.option, *match.constant, flag.place);
    else
      make_unknown(reading_.config, match.option);
  }

  void read_values(const FlagWord& flag, const FlagMatch& match) {
    if (!flag.explicit_value) {
      const std::span<const Word> words = take_values();
      return set_option(reading_, match.option, words, words.empty() ? flag.place : span_of(words));
    }
    set_option(reading_, match.option, std::span(&*flag.explicit_value, 1), flag.explicit_value->place);
  }

  Reading& reading_;
  std::span<const Word> words_;
  std::size_t at_ = 0;
};

}  // namespace

void read_argv(Reading& reading, std::span<const Word> words) { ArgvReader(reading, words).read(); }

}  // namespace gtp::readers
