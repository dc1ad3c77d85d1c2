#include "validators/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include <gtp/checked.hpp>

#include "validators/flat.hpp"
#include "validators/word_source.hpp"

namespace gtp::readers {

namespace {

using namespace gtp::literals;

constexpr std::string_view kName = "<command line>";

/// One word with its place, which is known only when the source has all words.
struct Argument {
  std::string word;
  WordPlace at;

  [[nodiscard]] Place part(std::uint32_t source, std::size_t from, std::size_t to) const {
    return WordSource::part(at, word, source, from, to);
  }
  [[nodiscard]] Word all(std::uint32_t source) const { return {word, part(source, 0, word.size()), false}; }
};

struct Bytes {
  std::size_t begin;
  std::size_t end;
};

Bytes trimmed(std::string_view text, Bytes bytes) {
  while (bytes.begin < bytes.end && text[bytes.begin] == ' ') ++bytes.begin;
  while (bytes.end > bytes.begin && text[bytes.end - 1] == ' ') --bytes.end;
  return bytes;
}

/// The items of `[a, b]`, without quotes round them.
std::vector<Word> list_items(const Argument& set, std::size_t begin, std::uint32_t source) {
  std::vector<Word> items;
  const std::string_view text = set.word;
  const std::size_t close = text.size() - 1;
  for (std::size_t at = begin + 1; at < close || (at == close && !items.empty());) {
    const std::size_t end = std::min(text.find(',', at), close);
    Bytes item = trimmed(text, {at, end});
    const bool quoted = item.end - item.begin >= 2 && (text[item.begin] == '"' || text[item.begin] == '\'') &&
                        text[item.end - 1] == text[item.begin];
    if (quoted) item = {item.begin + 1, item.end - 1};
    items.push_back(
        {std::string(text.substr(item.begin, item.end - item.begin)), set.part(source, item.begin, item.end), quoted});
    if (end == close) break;
    at = end + 1;
  }
  return items;
}

class CommandLine {
 public:
  CommandLine(const LoadRequest& request, Config& config, Sources& sources, Diagnostics& out)
      : reading_{config, out, static_cast<std::uint32_t>(sources.size())} {
    WordSource words;
    const auto add = [&](std::string_view flag, const std::optional<std::string>& word) {
      if (!word) return std::optional<Argument>();
      words.add(flag);
      return std::optional(Argument{*word, words.add(*word)});
    };
    gpus_ = add("--gpus-per-node", request.gpus_per_node);
    nodes_ = add("--nodes", request.nodes);
    world_ = add("--world-size", request.world_size);
    for (const std::string& set : request.set) sets_.push_back(*add("--set", set));
    sources.add(std::string(kName), words.text());
  }

  void apply() {
    if (gpus_) set_word("gpus_per_node"_opt, *gpus_);
    for (const Argument& set : sets_) {
      if (full(reading_.out)) return report_rest(reading_.out);
      apply_set(set);
    }
    if (world_was_set_) return;
    if (world_)
      set_word("world_size"_opt, *world_);
    else if (nodes_)
      set_world_from_nodes();
  }

 private:
  void set_word(OptionId option, const Argument& argument) {
    const Word word = argument.all(reading_.source);
    set_option(reading_, option, std::span(&word, 1), word.place);
  }

  void apply_set(const Argument& set) {
    const std::size_t equals = set.word.find('=');
    const std::size_t name_end = std::min(equals, set.word.size());
    const std::string_view name = std::string_view(set.word).substr(0, name_end);
    const Place name_place = set.part(reading_.source, 0, name_end);
    const std::optional<OptionId> option = resolve_name(name, name_place, reading_.config.target(), reading_.out);
    if (!option) return;
    world_was_set_ = world_was_set_ || *option == "world_size"_opt;
    if (equals == std::string::npos) {
      reading_.out.push_back(
          rules::at_place(rules::kWrongArity, name_of(*option), name_place, "expected option=value"));
      return;
    }
    set_value(*option, set, equals + 1);
  }

  void set_value(OptionId option, const Argument& set, std::size_t begin) {
    const Option& row = row_of(option, reading_.config.version());
    const std::string_view value = std::string_view(set.word).substr(begin);
    const Place place = set.part(reading_.source, begin, set.word.size());
    if (is_default(row, value)) {
      forget(reading_.config, option);
      reading_.config.describe(row.section);
      return;
    }
    std::vector<Word> words;
    if (is_list(row.type) && value.starts_with('[') && value.ends_with(']') && value.size() >= 2)
      words = list_items(set, begin, reading_.source);
    else
      words.push_back({std::string(value), place, false});
    if (words.empty()) return reading_.config.set(option, empty_list(row.type), place);
    set_option(reading_, option, words, place);
  }

  /// `none` is also a word of some options' own.
  static bool is_default(const Option& row, std::string_view value) {
    constexpr std::array<std::string_view, 4> kUnset{"none", "None", "null", "~"};
    const StringList choices = gtp::detail::split_words(row.choices);
    return std::find(kUnset.begin(), kUnset.end(), value) != kUnset.end() &&
           std::find(choices.begin(), choices.end(), value) == choices.end();
  }

  void set_world_from_nodes() {
    const Word word = nodes_->all(reading_.source);
    const Parsed<std::int64_t> nodes = parse_int(word.text);
    if (!nodes.value || *nodes.value <= 0) {
      const bool large = nodes.error == ParseError::OutOfRange && !nodes.value;
      reading_.out.push_back(rules::at_place(large ? rules::kOutOfRange : rules::kWrongType, "nodes", word.place,
                                             fmt::format("`{}` is not a number of hosts", word.text)));
      return make_unknown(reading_.config, "world_size"_opt);
    }
    const Setting* gpus = reading_.config.given("gpus_per_node"_opt);
    if (gpus == nullptr) {
      if (reading_.config.given_unknown("gpus_per_node"_opt)) return;  // said already
      reading_.out.push_back(
          rules::at_place(rules::kWrongArity, "nodes", word.place, "needs --gpus-per-node beside it"));
      reading_.out.back().help = "add --gpus-per-node, or give --world-size instead";
      return make_unknown(reading_.config, "world_size"_opt);
    }
    set_product(*nodes.value, *gpus, word.place);
  }

  void set_product(std::int64_t nodes, const Setting& gpus, Place place) {
    const auto* per_node = std::get_if<std::int64_t>(&gpus.value);
    const auto world = per_node == nullptr ? std::nullopt : checked_multiply(nodes, *per_node);
    if (world) return reading_.config.set("world_size"_opt, *world, place);
    Diagnostic d = rules::at_place(rules::kOutOfRange, "nodes", place,
                                   fmt::format("{} hosts of {} GPUs are too many", nodes, gtp::to_text(gpus.value)));
    d.related.push_back({"gpus_per_node", gpus.place, "GPUs of one host"});
    reading_.out.push_back(std::move(d));
    make_unknown(reading_.config, "world_size"_opt);
  }

  Reading reading_;
  std::optional<Argument> gpus_{};
  std::optional<Argument> nodes_{};
  std::optional<Argument> world_{};
  std::vector<Argument> sets_{};
  bool world_was_set_ = false;
};

}  // namespace

void apply_command_line(const LoadRequest& request, Config& config, Sources& sources, Diagnostics& out) {
  CommandLine(request, config, sources, out).apply();
}

}  // namespace gtp::readers
