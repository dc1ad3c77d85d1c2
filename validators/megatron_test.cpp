#include "validators/megatron_test.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtp/checked.hpp>

#include "validators/argv.hpp"
#include "validators/flat.hpp"

namespace gtp::readers {

namespace {

using namespace gtp::literals;

/// Keys that say how a test is run and judged, and nothing of the configuration.
constexpr auto kRunnerKeys = std::to_array<std::string_view>({"MODEL_ARGS",
                                                              "ENV_VARS",
                                                              "BASE_MODEL_ARGS",
                                                              "MODEL_ENV_VARS",
                                                              "TEST_TYPE",
                                                              "LAUNCHER",
                                                              "MODE",
                                                              "METRICS",
                                                              "TEST_EVALUATION",
                                                              "BEFORE_SCRIPT",
                                                              "AFTER_SCRIPT",
                                                              "THROUGHPUT_TEST_PARAMS",
                                                              "MODEL",
                                                              "DP",
                                                              "DATASET",
                                                              "ASYNC_SCHED",
                                                              "NUM_INPUT_TOKENS",
                                                              "NUM_OUTPUT_TOKENS",
                                                              "NUM_WARMUP_ITERS",
                                                              "NUM_TIMED_ITERS",
                                                              "BATCH_SIZES",
                                                              "TOLERANCE_PCT"});

/// Sizes of the performance tests.
constexpr auto kSizes =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"TP", "tensor_model_parallel_size"},
                                                                  {"PP", "pipeline_model_parallel_size"},
                                                                  {"EP", "expert_model_parallel_size"}});

/// `MODEL_ARGS_2`: what a rerun of the same test uses instead.
bool is_rerun(std::string_view key) {
  constexpr std::string_view kPrefix = "MODEL_ARGS_";
  return key.starts_with(kPrefix) && key.size() > kPrefix.size() &&
         key.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

bool is_true(const Node& value) {
  return value.text == "true" || (!value.quoted && (value.text == "True" || value.text == "TRUE"));
}

struct Piece {
  std::string text;
  Place place;
};

/// What `echo VALUE | xargs` leaves: words with single spaces between, quotes and backslashes taken away.
/// Pieces have tight places where the source holds the value as it is. Nothing at a quote without an end.
std::optional<std::vector<Piece>> through_xargs(const Node& value, std::string_view text) {
  const bool verbatim = text.substr(value.place.begin, value.text.size()) == value.text;
  const std::size_t after_quote = std::min<std::size_t>(value.place.begin + 1U, text.size());
  const bool inside_quotes = !verbatim && text.substr(after_quote, value.text.size()) == value.text;
  const std::size_t offset = value.place.begin + (inside_quotes ? 1U : 0U);
  const std::string_view raw = value.text;
  std::vector<Piece> pieces;
  constexpr std::string_view kSpaces = " \t\n\r";
  for (std::size_t at = raw.find_first_not_of(kSpaces); at < raw.size(); at = raw.find_first_not_of(kSpaces, at)) {
    const std::size_t begin = at;
    Piece& piece = pieces.emplace_back();
    while (at < raw.size() && kSpaces.find(raw[at]) == std::string_view::npos) {
      if (raw[at] == '\'' || raw[at] == '"') {
        const std::size_t end = raw.find(raw[at], at + 1);
        if (end == std::string_view::npos) return std::nullopt;
        piece.text += raw.substr(at + 1, end - at - 1);
        at = end + 1;
      } else {
        if (raw[at] == '\\' && at + 1 < raw.size()) ++at;
        piece.text += raw[at++];
      }
    }
    piece.place = value.place;
    if (verbatim || inside_quotes) {
      piece.place.begin = static_cast<std::uint32_t>(offset + begin);
      piece.place.end = static_cast<std::uint32_t>(offset + at);
    }
  }
  return pieces;
}

std::string joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    if (&piece != &pieces.front()) text += ' ';
    text += piece.text;
  }
  return text;
}

/// `[a b]` without its brackets, which may also stand apart from the words.
void drop_brackets(std::vector<Piece>& pieces) {
  pieces.front().text.erase(0, 1);
  ++pieces.front().place.begin;
  pieces.back().text.pop_back();
  --pieces.back().place.end;
  std::erase_if(pieces, [](const Piece& piece) { return piece.text.empty(); });
}

class TestReader {
 public:
  TestReader(Reading& reading, std::string_view text) : reading_(reading), text_(text) {}

  void read(const Node& root) {
    for (const Entry& entry : root.entries) {
      if (entry.overridden) continue;
      if (full(reading_.out)) return report_rest(reading_.out);
      read_top(entry);
    }
    read_sizes(root);
  }

 private:
  void read_top(const Entry& entry) {
    if (entry.key == "MODEL_ARGS" && entry.value.kind == Kind::Map) return read_model_args(entry.value);
    if (entry.key == "ENV_VARS" && entry.value.kind == Kind::Map) return read_env(reading_, entry.value);
    const bool args = entry.key == "MODEL_ARGS" || entry.key == "ENV_VARS";
    if (args && entry.value.kind == Kind::Null) return;
    const bool known = std::find(kRunnerKeys.begin(), kRunnerKeys.end(), entry.key) != kRunnerKeys.end() ||
                       std::any_of(kSizes.begin(), kSizes.end(), [&](auto row) { return row.first == entry.key; });
    if (args)
      not_understood(entry.value.place,
                     fmt::format("`{}` is {}, not a group of keys", entry.key, to_text(entry.value.kind)));
    else if (!known && !is_rerun(entry.key))
      not_understood(entry.key_place, fmt::format("`{}` is no key of a functional test", entry.key));
  }

  void not_understood(Place place, std::string label) {
    reading_.out.push_back(rules::at_place(rules::kNotUnderstood, "", place, std::move(label)));
  }

  void read_model_args(const Node& args) {
    std::vector<Word> words;
    for (const Entry& entry : args.entries) {
      if (full(reading_.out)) return report_rest(reading_.out);
      if (entry.key.starts_with('-'))
        append_flag(entry, words);
      else if (!entry.overridden)
        read_nemo(entry);
    }
    read_argv(reading_, words);
    set_nemo_world();
  }

  void append_flag(const Entry& entry, std::vector<Word>& words) {
    const Node& value = entry.value;
    if (value.kind == Kind::Scalar && value.text.empty()) return;  // the runner drops an empty text, flag and all
    words.push_back({entry.key, entry.key_place, false});
    if (value.kind == Kind::Null) {  // nothing written at all leaves the flag alone; `null` and `~` become words
      if (!value.text.empty()) words.push_back({value.text, value.place, false});
    } else if (value.kind == Kind::List && !value.block) {
      Node flow;
      flow.kind = Kind::Scalar;
      flow.place = value.place;
      flow.text = text_.substr(value.place.begin, value.place.end - value.place.begin);
      append_value(flow, words);
    } else if (value.kind == Kind::Scalar) {
      if (!is_true(value)) append_value(value, words);
    } else {
      words.pop_back();
      not_understood(value.place, fmt::format("{} cannot be the value of a flag", to_text(value.kind)));
      if (const auto match = find_flag(entry.key, reading_.config.version()))
        make_unknown(reading_.config, match->option);
    }
  }

  void append_value(const Node& value, std::vector<Word>& words) {
    std::optional<std::vector<Piece>> pieces = through_xargs(value, text_);
    if (!pieces) return not_understood(value.place, "a quote without an end, at which the runner stops");
    const std::string text = joined(*pieces);
    if (text == "true" || pieces->empty()) return;
    if (text.size() > 2 && text.front() == '[' && text.find(']') == text.size() - 1) {
      drop_brackets(*pieces);
      for (Piece& piece : *pieces) words.push_back({std::move(piece.text), piece.place, false});
    } else {
      Place place = pieces->front().place;
      place.end = pieces->back().place.end;
      words.push_back({text, place, false});
    }
  }

  /// NeMo's dotted keys name the option last; a few of them are the size of the job.
  void read_nemo(const Entry& entry) {
    const std::size_t dot = entry.key.rfind('.');
    const std::string_view name = std::string_view(entry.key).substr(dot == std::string::npos ? 0 : dot + 1);
    if (entry.key == "trainer.devices") devices_ = &entry.value;
    if (entry.key == "trainer.num_nodes") nodes_ = &entry.value;
    if (devices_ == &entry.value || nodes_ == &entry.value || entry.value.kind == Kind::Null) return;
    const std::optional<OptionId> option = find_settable(name);
    const bool settable =
        option && exists(*option, reading_.config.target()) && kOptions[option->index].section != Section::Derived;
    if (dot == std::string::npos) {
      reading_.out.push_back(
          rules::at_place(rules::kUnknownOption, entry.key, entry.key_place, "no flag: it has no `--`"));
      if (settable) reading_.out.back().help = fmt::format("write the flag of `{}`", name_of(*option));
    } else if (!settable || entry.value.kind != Kind::Scalar) {
      not_understood(entry.key_place, fmt::format("`{}` is no option of Megatron", name));
    } else {
      const Word word{entry.value.text, entry.value.place, false};
      set_option(reading_, *option, std::span(&word, 1), word.place);
    }
  }

  [[nodiscard]] static std::optional<std::int64_t> positive(const Node* value) {
    if (value == nullptr || value->kind != Kind::Scalar) return std::nullopt;
    const Parsed<std::int64_t> parsed = parse_int(value->text);
    return parsed.value && *parsed.value > 0 ? parsed.value : std::nullopt;
  }

  void set_nemo_world() {
    const auto devices = positive(devices_), nodes = positive(nodes_);
    if (!devices || !nodes) return;
    if (const auto world = checked_multiply(*devices, *nodes)) {
      reading_.config.set("gpus_per_node"_opt, *devices, devices_->place);
      reading_.config.set("world_size"_opt, *world, devices_->place);
    }
  }

  void read_sizes(const Node& root) {
    if (find(root, "MODEL_ARGS") != nullptr) return;
    for (const auto& [key, name] : kSizes)
      if (const Node* value = find(root, key); value != nullptr && value->kind == Kind::Scalar) {
        const Word word{value->text, value->place, value->quoted};
        set_option(reading_, *find_option(name), std::span(&word, 1), word.place);
      }
    set_performance_world(root);
  }

  /// The performance runner starts TP x PP x max(DP, EP) ranks, each 1 when absent (run_perf_test.sh:78-103).
  void set_performance_world(const Node& root) {
    const Node* dp = find(root, "DP");
    if (dp == nullptr) return;
    const auto size = [&](std::string_view key) {
      const Node* value = find(root, key);
      return value == nullptr ? std::optional<std::int64_t>(1) : positive(value);
    };
    const auto tp = size("TP"), pp = size("PP"), dp_size = size("DP"), ep = size("EP");
    if (!tp || !pp || !dp_size || !ep) return;
    const auto model = checked_multiply(*tp, *pp);
    const auto world = model ? checked_multiply(*model, std::max(*dp_size, *ep)) : std::nullopt;
    if (world) reading_.config.set("world_size"_opt, *world, dp->place);
  }

  Reading& reading_;
  std::string_view text_;
  const Node* devices_ = nullptr;
  const Node* nodes_ = nullptr;
};

}  // namespace

bool is_megatron_test(const Node& root) {
  const auto has = [&](std::string_view key) { return find(root, key) != nullptr; };
  return has("MODEL_ARGS") || has("ENV_VARS") || (has("MODEL") && has("TP") && has("PP"));
}

void read_megatron_test(Reading& reading, const Node& root, std::string_view text) {
  TestReader(reading, text).read(root);
}

}  // namespace gtp::readers
