#include "arguments.hpp"

#include <array>
#include <charconv>

namespace gtp::train {

namespace {

template <class T>
bool parse(std::string_view text, T& out) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ec == std::errc{} && end.ptr == text.data() + text.size();
}

bool parse_size(std::string_view name, std::string_view text, Arguments& out) {
  constexpr std::size_t kLargest = std::size_t{1} << 20U;
  std::size_t value = 0;
  if (!parse(text, value) || value > kLargest) return false;
  if (name == "--experts") out.experts = value;
  if (name == "--topk") out.topk = value;
  if (name == "--experts" || name == "--topk") return true;
  struct Flag {
    std::string_view name;
    std::size_t* value;
  };
  ModelShape& shape = out.shape;
  const std::array flags{Flag{"--layers", &shape.layers}, Flag{"--hidden", &shape.hidden},
                         Flag{"--heads", &shape.heads},   Flag{"--ffn", &shape.ffn},
                         Flag{"--vocab", &shape.vocab},   Flag{"--seq", &shape.seq}};
  for (const Flag& flag : flags) {
    if (flag.name != name) continue;
    *flag.value = value;
    return true;
  }
  return false;
}

bool parse_format(std::string_view text, WeightFormat& out) {
  struct Format {
    std::string_view name;
    WeightFormat format;
  };
  for (const Format& each : {Format{"bf16", WeightFormat::kBf16}, Format{"mxfp8", WeightFormat::kMxfp8},
                             Format{"nvfp4", WeightFormat::kNvfp4}}) {
    if (each.name != text) continue;
    out = each.format;
    return true;
  }
  return false;
}

bool parse_file(std::string_view text, std::string& out) {
  out = text;
  return !text.empty();
}

bool parse_value(std::string_view name, std::string_view text, Arguments& out) {
  if (name == "--seed") return parse(text, out.options.seed);
  if (name == "--trace") return parse_file(text, out.trace);
  if (name == "--weights") return parse_file(text, out.weights);
  if (name == "--weight-format") return parse_format(text, out.options.weight_format);
  if (name == "--log-interval") return parse(text, out.options.log_interval) && out.options.log_interval > 0;
  if (name != "--steps") return parse_size(name, text, out);
  std::int64_t steps = 0;
  if (!parse(text, steps) || steps < 0) return false;
  out.options.steps = steps;
  return true;
}

bool parse_switch(std::string_view name, bool has_loopback, Arguments& out) {
  if (name == "--bf16-wire") {
    out.options.wire = ElementType::kBFloat16;
  } else if (name == "--chains") {
    out.chains = true;
  } else if (name == "--graph") {
    out.options.graph = true;
  } else if (name == "--loopback" && has_loopback) {
    out.loopback = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<Arguments> parse_arguments(std::span<char*> words, bool has_loopback) {
  Arguments out;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (parse_switch(word, has_loopback, out)) continue;
    if (!word.starts_with("--") && out.plan.empty()) {
      out.plan = word;
    } else if (++i == words.size() || !parse_value(word, words[i], out)) {
      return std::nullopt;
    }
  }
  out.options.collect_weights = !out.weights.empty();
  return out.plan.empty() ? std::nullopt : std::optional(std::move(out));
}

ModelShape shape_of(const Arguments& arguments, const PlanValues& plan) {
  ModelShape shape = arguments.shape;
  shape.experts = arguments.experts.value_or(static_cast<std::size_t>(plan.num_experts));
  shape.topk = arguments.topk.value_or(static_cast<std::size_t>(plan.moe_router_topk));
  return shape;
}

}  // namespace gtp::train
