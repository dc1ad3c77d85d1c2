// `moe_layer_freq`, `linear_attention_freq`, `window_attn_skip_freq` and `no_rope_freq`: an integer or a list
// expression such as `([0]*3+[1]*58)`, and what it means for every layer. Nothing but such expressions is ever
// evaluated.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace gtp {

/// "One layer in N", or one number a layer.
using LayerFreq = std::variant<std::int64_t, std::vector<std::int64_t>>;

enum class LayerFreqOption : std::uint8_t { MoeLayerFreq, LinearAttentionFreq, WindowAttnSkipFreq, NoRopeFreq };

enum class LayerFreqProblem : std::uint8_t {
  NotAnInteger,        ///< Without `[` it must be an integer.
  Characters,          ///< With `[` it may have digits and `,[]()+*` only.
  Syntax,              ///< Not an expression.
  Type,                ///< Lists cannot be added to numbers, or multiplied by lists, and so on.
  NotAListOfIntegers,  ///< A tuple, which upstream refuses when it builds the layers, or a list inside a list.
  TooLarge,            ///< A number beyond 64 bits, or a list beyond kMaxLayerFreqLength.
  TooDeep,             ///< More than kMaxLayerFreqDepth brackets inside each other.
  Zero,                ///< One layer in zero: upstream divides by it.
  Length,              ///< The list does not have one number a layer.
  Values,              ///< A number other than 0 and 1 where only these are allowed.
  NoRopeFreq,          ///< `no_rope_freq` does not divide the layers, is negative, or its list has another length.
};

struct LayerFreqRule {
  LayerFreqProblem problem;
  std::string_view id;
};

/// Only the last id is upstream's; the rest are exceptions that no rule names.
inline constexpr std::array<LayerFreqRule, 11> kLayerFreqRules{{
    {LayerFreqProblem::NotAnInteger, "layer-freq-integer"},
    {LayerFreqProblem::Characters, "layer-freq-characters"},
    {LayerFreqProblem::Syntax, "layer-freq-syntax"},
    {LayerFreqProblem::Type, "layer-freq-type"},
    {LayerFreqProblem::NotAListOfIntegers, "layer-freq-list-of-integers"},
    {LayerFreqProblem::TooLarge, "layer-freq-limit"},
    {LayerFreqProblem::TooDeep, "layer-freq-depth"},
    {LayerFreqProblem::Zero, "layer-freq-zero"},
    {LayerFreqProblem::Length, "layer-freq-length"},
    {LayerFreqProblem::Values, "layer-freq-values"},
    {LayerFreqProblem::NoRopeFreq, "no-rope-freq"},
}};

[[nodiscard]] constexpr std::string_view rule_id(LayerFreqProblem problem) {
  return kLayerFreqRules[static_cast<std::size_t>(problem)].id;
}

/// `offset` is a byte of the text; `found` and `wanted` are the length, value or frequency and what it should be.
struct LayerFreqFinding {
  LayerFreqProblem problem;
  std::optional<std::size_t> offset{};
  std::optional<std::int64_t> found{};
  std::optional<std::int64_t> wanted{};
};

inline constexpr std::size_t kMaxLayerFreqLength = 1'000'000;
/// As deep as Python's own tokenizer goes.
inline constexpr int kMaxLayerFreqDepth = 200;

/// Exactly one of the two is present.
struct LayerFreqParse {
  std::optional<LayerFreq> value;
  std::optional<LayerFreqFinding> finding;
};

namespace detail {

constexpr bool layer_freq_rules_in_order() {
  for (std::size_t i = 0; i < kLayerFreqRules.size(); ++i)
    if (static_cast<std::size_t>(kLayerFreqRules[i].problem) != i) return false;
  return true;
}
static_assert(layer_freq_rules_in_order());

/// A Python int, list of ints or tuple of ints. `items` is empty for an int.
struct FreqValue {
  enum class Kind : std::uint8_t { Int, List, Tuple } kind = Kind::Int;
  std::int64_t number = 0;
  std::vector<std::int64_t> items{};

  [[nodiscard]] bool is_int() const { return kind == Kind::Int; }
};

/// Recursive descent over Python's expression grammar, as far as the allowed characters reach: + * ** (), lists,
/// tuples, unpacking, indexing. A failed step returns nothing and leaves the first finding.
class FreqParser {
 public:
  explicit FreqParser(std::string_view text) : text_(text) {}

  void run(LayerFreqParse& parse) {
    std::optional<FreqValue> value = sum();
    if (value && peek() == ',') {
      fail(LayerFreqProblem::NotAListOfIntegers);
    } else if (value && at_ != text_.size()) {
      fail(LayerFreqProblem::Syntax);
    } else if (value && value->kind == FreqValue::Kind::Tuple) {
      at_ = 0;
      fail(LayerFreqProblem::NotAListOfIntegers);
    }
    if (finding_)
      parse.finding = finding_;
    else if (value->is_int())
      parse.value.emplace(value->number);
    else
      parse.value.emplace(std::move(value->items));
  }

 private:
  using Result = std::optional<FreqValue>;
  static constexpr std::size_t kMaxWork = 16 * kMaxLayerFreqLength;

  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] bool at_power() const { return text_.substr(at_, 2) == "**"; }

  bool accept(char character) {
    if (peek() != character) return false;
    ++at_;
    return true;
  }

  std::nullopt_t fail(LayerFreqProblem problem) {
    if (!finding_) finding_ = {problem, at_};
    return std::nullopt;
  }

  Result sum() {
    Result left = product();
    while (left && accept('+')) {
      Result right = product();
      left = right ? add(std::move(*left), std::move(*right)) : std::nullopt;
    }
    return left;
  }

  Result product() {
    Result left = signed_factor();
    while (left && peek() == '*' && !at_power()) {
      ++at_;
      Result right = signed_factor();
      left = right ? multiply(std::move(*left), std::move(*right)) : std::nullopt;
    }
    return left;
  }

  Result signed_factor() {
    bool has_sign = false;
    while (accept('+')) has_sign = true;
    Result value = power();
    if (value && has_sign && !value->is_int()) return fail(LayerFreqProblem::Type);
    return value;
  }

  Result power() {
    Result base = primary();
    if (!base || !at_power()) return base;
    at_ += 2;
    if (++depth_ > kMaxLayerFreqDepth) return fail(LayerFreqProblem::TooDeep);
    Result exponent = signed_factor();
    --depth_;
    return exponent ? raise(*base, *exponent) : std::nullopt;
  }

  Result primary() {
    Result value = atom();
    while (value && (peek() == '[' || peek() == '(')) {
      if (value->is_int() || peek() == '(') return fail(LayerFreqProblem::Type);
      value = subscript(*value);
    }
    return value;
  }

  Result subscript(const FreqValue& list) {
    const std::optional<Group> index = group(']');
    if (!index) return std::nullopt;
    if (!index->single || !index->single->is_int()) return fail(LayerFreqProblem::Type);
    const auto position = static_cast<std::uint64_t>(index->single->number);
    if (position >= list.items.size()) return fail(LayerFreqProblem::Type);
    return FreqValue{FreqValue::Kind::Int, list.items[position], {}};
  }

  Result atom() {
    if (peek() == '[') return list_display();
    if (peek() == '(') return parenthesis();
    return number();
  }

  Result number() {
    const std::string_view rest = text_.substr(at_);
    const std::size_t length = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (length == 0) return fail(LayerFreqProblem::Syntax);
    if (rest.front() == '0' && rest.substr(0, length).find_first_not_of('0') != std::string_view::npos)
      return fail(LayerFreqProblem::Syntax);  // Python takes 00 but not 01
    FreqValue value;
    if (std::from_chars(rest.data(), rest.data() + length, value.number).ec != std::errc{})
      return fail(LayerFreqProblem::TooLarge);
    at_ += length;
    return value;
  }

  /// `[a,b,*c]`
  Result list_display() {
    std::optional<Group> items = group(']');
    if (!items) return std::nullopt;
    if (items->single) append(*items, std::move(*items->single), false);
    return finish(std::move(*items), FreqValue::Kind::List);
  }

  /// `(a)` is a; with a comma, or empty, it is a tuple.
  Result parenthesis() {
    std::optional<Group> items = group(')');
    if (!items) return std::nullopt;
    if (items->single) return std::move(items->single);
    if (items->unpacked && !items->has_comma) return fail(LayerFreqProblem::Syntax);
    return finish(std::move(*items), FreqValue::Kind::Tuple);
  }

  /// What stands between two brackets. A sole item without comma or star is `single`, and not yet in `items`.
  struct Group {
    std::vector<std::int64_t> items{};
    std::optional<FreqValue> single{};
    bool has_comma = false;
    bool unpacked = false;
    bool nested = false;
  };

  std::optional<Group> group(char close) {
    ++at_;
    if (++depth_ > kMaxLayerFreqDepth) return fail(LayerFreqProblem::TooDeep);
    Group result;
    for (bool first = true; !accept(close); first = false) {
      const bool unpack = accept('*');
      Result item = sum();
      if (!item) return std::nullopt;
      const bool comma = accept(',');
      if (!comma && peek() != close) return fail(LayerFreqProblem::Syntax);
      result.has_comma = result.has_comma || comma;
      if (first && !comma && !unpack)
        result.single = std::move(item);
      else if (!append(result, std::move(*item), unpack))
        return std::nullopt;
    }
    --depth_;
    return result;
  }

  bool append(Group& group, FreqValue item, bool unpack) {
    group.unpacked = group.unpacked || unpack;
    group.nested = group.nested || (!unpack && !item.is_int());
    if (unpack && item.is_int()) fail(LayerFreqProblem::Type);
    if (item.is_int()) item.items.push_back(item.number);
    if (!may_grow(group.items.size(), item.items.size())) fail(LayerFreqProblem::TooLarge);
    if (finding_) return false;
    group.items.insert(group.items.end(), item.items.begin(), item.items.end());
    return true;
  }

  Result finish(Group group, FreqValue::Kind kind) {
    if (group.nested) return fail(LayerFreqProblem::NotAListOfIntegers);
    if (finding_) return std::nullopt;
    return FreqValue{kind, 0, std::move(group.items)};
  }

  /// Lists are capped one by one, and so is the work on all of them together.
  bool may_grow(std::size_t size, std::size_t more) {
    work_ += more;
    return size + more <= kMaxLayerFreqLength && work_ <= kMaxWork;
  }

  Result add(FreqValue left, FreqValue right) {
    if (left.kind != right.kind) return fail(LayerFreqProblem::Type);
    if (__builtin_add_overflow(left.number, right.number, &left.number)) return fail(LayerFreqProblem::TooLarge);
    if (!may_grow(left.items.size(), right.items.size())) return fail(LayerFreqProblem::TooLarge);
    left.items.insert(left.items.end(), right.items.begin(), right.items.end());
    return left;
  }

  Result multiply(FreqValue left, FreqValue right) {
    if (left.is_int()) std::swap(left, right);
    if (!right.is_int()) return fail(LayerFreqProblem::Type);
    if (left.is_int()) {
      if (__builtin_mul_overflow(left.number, right.number, &left.number)) return fail(LayerFreqProblem::TooLarge);
      return left;
    }
    FreqValue repeated{left.kind, 0, {}};
    if (left.items.empty()) return repeated;
    const auto times = static_cast<std::uint64_t>(right.number);
    if (times > kMaxLayerFreqLength / left.items.size() || !may_grow(0, left.items.size() * times))
      return fail(LayerFreqProblem::TooLarge);
    repeated.items.reserve(left.items.size() * times);
    for (std::uint64_t i = 0; i < times; ++i)
      repeated.items.insert(repeated.items.end(), left.items.begin(), left.items.end());
    return repeated;
  }

  Result raise(const FreqValue& base, const FreqValue& exponent) {
    if (!base.is_int() || !exponent.is_int()) return fail(LayerFreqProblem::Type);
    FreqValue result{FreqValue::Kind::Int, 1, {}};
    const bool trivial = base.number <= 1;  // 0 and 1 need one step whatever the exponent
    const std::int64_t steps = trivial && exponent.number > 1 ? 1 : exponent.number;
    for (std::int64_t i = 0; i < steps; ++i)
      if (__builtin_mul_overflow(result.number, base.number, &result.number)) return fail(LayerFreqProblem::TooLarge);
    return result;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::size_t work_ = 0;
  std::optional<LayerFreqFinding> finding_;
};

/// Python's int(): blanks around, one sign, single underscores between digits.
inline std::optional<LayerFreqProblem> read_freq_integer(std::string_view text, std::int64_t& value) {
  constexpr std::string_view kSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789_") == std::string_view::npos;
  if (!digits || text.front() == '_' || text.back() == '_' || text.find("__") != std::string_view::npos)
    return LayerFreqProblem::NotAnInteger;
  value = 0;
  for (const char character : text) {
    if (character == '_') continue;
    const std::int64_t digit = negative ? '0' - character : character - '0';
    if (__builtin_mul_overflow(value, std::int64_t{10}, &value) || __builtin_add_overflow(value, digit, &value))
      return LayerFreqProblem::TooLarge;
  }
  return std::nullopt;
}

}  // namespace detail

/// Reads the text as upstream does (moe_freq_type and its siblings, arguments.py:327; _eval_pattern, arguments.py:244):
/// with a `[` it is a list expression, else an integer. An index or a power may make an expression an integer too.
[[nodiscard]] inline LayerFreqParse parse_layer_freq(std::string_view text) {
  LayerFreqParse parse;
  const std::size_t bad = text.find_first_not_of(",0123456789[]()+*");
  if (text.size() > kMaxLayerFreqLength) {
    parse.finding = {LayerFreqProblem::TooLarge};
  } else if (text.find('[') == std::string_view::npos) {
    std::int64_t value = 0;
    if (const auto problem = detail::read_freq_integer(text, value))
      parse.finding = {*problem, 0};
    else
      parse.value.emplace(value);
  } else if (bad != std::string_view::npos) {
    parse.finding = {LayerFreqProblem::Characters, bad};
  } else {
    detail::FreqParser(text).run(parse);
  }
  return parse;
}

/// One flag a layer, true where the layer is the special one of the option: experts, linear attention, windowed
/// attention, no rotary embedding. Exactly one of the two is present.
struct LayerFlags {
  std::optional<std::vector<bool>> flags;
  std::optional<LayerFreqFinding> finding;
};

namespace detail {

/// `freq` is not zero. moe_layer_freq: gpt_layer_specs.py:648; linear_attention_freq:
/// experimental_attention_variant_module_specs.py:467; window_attn_skip_freq: utils.py:540; no_rope_freq:
/// transformer_config.py:3147.
constexpr bool flag_of_layer(LayerFreqOption option, std::int64_t freq, std::int64_t layer) {
  switch (option) {
    case LayerFreqOption::MoeLayerFreq:
      return layer % freq == 0;
    case LayerFreqOption::LinearAttentionFreq:
    case LayerFreqOption::WindowAttnSkipFreq:
      return (layer + 1) % freq != 0;
    case LayerFreqOption::NoRopeFreq:
      return (layer + 1) % freq == 0;
  }
  return false;
}

constexpr std::optional<LayerFreqFinding> check_freq_number(LayerFreqOption option, std::int64_t freq,
                                                            std::int64_t num_layers) {
  if (option != LayerFreqOption::NoRopeFreq) {
    if (freq == 0) return LayerFreqFinding{LayerFreqProblem::Zero, {}, freq, 1};
  } else if (freq < 0 || (freq > 0 && num_layers % freq != 0)) {
    return LayerFreqFinding{LayerFreqProblem::NoRopeFreq, {}, freq, num_layers};
  }
  return std::nullopt;
}

inline std::optional<LayerFreqFinding> check_freq_list(LayerFreqOption option, const std::vector<std::int64_t>& list,
                                                       std::int64_t num_layers) {
  const auto length = static_cast<std::int64_t>(list.size());
  const bool no_rope = option == LayerFreqOption::NoRopeFreq;
  if (no_rope && list.empty()) return std::nullopt;                   // as if unset
  const bool window = option == LayerFreqOption::WindowAttnSkipFreq;  // it may be longer than needed
  if (window ? length < num_layers : length != num_layers)
    return LayerFreqFinding{no_rope ? LayerFreqProblem::NoRopeFreq : LayerFreqProblem::Length, {}, length, num_layers};
  if (option != LayerFreqOption::MoeLayerFreq) return std::nullopt;
  for (const std::int64_t value : list)
    if (value != 0 && value != 1) return LayerFreqFinding{LayerFreqProblem::Values, {}, value, 1};
  return std::nullopt;
}

}  // namespace detail

/// What is wrong with a frequency for a model of so many layers; upstream notices when it builds the layers.
[[nodiscard]] inline std::optional<LayerFreqFinding> check_layer_freq(LayerFreqOption option, const LayerFreq& freq,
                                                                      std::int64_t num_layers) {
  if (num_layers < 0 || num_layers > static_cast<std::int64_t>(kMaxLayerFreqLength))
    return LayerFreqFinding{LayerFreqProblem::TooLarge, {}, num_layers, kMaxLayerFreqLength};
  if (const auto* number = std::get_if<std::int64_t>(&freq))
    return detail::check_freq_number(option, *number, num_layers);
  return detail::check_freq_list(option, std::get<std::vector<std::int64_t>>(freq), num_layers);
}

/// Whether layer `layer_index`, counted from 0, is the special one. Asks for a frequency that check_layer_freq accepts;
/// false for a layer that a list does not reach.
[[nodiscard]] inline bool layer_flag(LayerFreqOption option, const LayerFreq& freq, std::int64_t layer_index) {
  if (layer_index < 0 || layer_index >= static_cast<std::int64_t>(kMaxLayerFreqLength)) return false;
  if (const auto* number = std::get_if<std::int64_t>(&freq))
    return *number != 0 && detail::flag_of_layer(option, *number, layer_index);
  const auto& list = std::get<std::vector<std::int64_t>>(freq);
  const auto index = static_cast<std::size_t>(layer_index);
  if (index >= list.size()) return false;
  const bool only_one_counts =
      option == LayerFreqOption::MoeLayerFreq || option == LayerFreqOption::LinearAttentionFreq;
  return only_one_counts ? list[index] == 1 : list[index] != 0;
}

[[nodiscard]] inline bool is_moe_layer(const LayerFreq& moe_layer_freq, std::int64_t layer_index) {
  return layer_flag(LayerFreqOption::MoeLayerFreq, moe_layer_freq, layer_index);
}

[[nodiscard]] inline LayerFlags expand_layer_freq(LayerFreqOption option, const LayerFreq& freq,
                                                  std::int64_t num_layers) {
  if (auto finding = check_layer_freq(option, freq, num_layers)) return {std::nullopt, finding};
  std::vector<bool> flags(static_cast<std::size_t>(num_layers));
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    flags[static_cast<std::size_t>(layer)] = layer_flag(option, freq, layer);
  return {std::move(flags), std::nullopt};
}

}  // namespace gtp
