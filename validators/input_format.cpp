// The table of input formats and how one is recognized.
#include "validators/input_format.hpp"

#include <array>
#include <utility>

#include "validators/bridge.hpp"
#include "validators/reading.hpp"

namespace gtp {

namespace {

constexpr std::array<std::pair<InputFormat, std::string_view>, 11> kFormats{{
    {InputFormat::Json, "json"},
    {InputFormat::Yaml, "yaml"},
    {InputFormat::MegatronTestYaml, "megatron-test-yaml"},
    {InputFormat::MegatronArgs, "megatron-args"},
    {InputFormat::HuggingFace, "hf-config"},
    {InputFormat::BridgeYaml, "bridge-yaml"},
    {InputFormat::BridgeOverrides, "bridge-overrides"},
    {InputFormat::NemoRl, "nemo-rl"},
    {InputFormat::Shell, "shell"},
    {InputFormat::Env, "env"},
    {InputFormat::Plan, "plan"},
}};

/// The text from its first character that is no space and in no `#` comment.
std::string_view first_content(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\f";
  if (text.starts_with(readers::kByteOrderMark)) text.remove_prefix(readers::kByteOrderMark.size());
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    if (!text.starts_with('#')) return text;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
}

/// A line that only a shell or Slurm reads comes first.
bool is_script(std::string_view text, std::string_view name) {
  if (text.starts_with(readers::kByteOrderMark)) text.remove_prefix(readers::kByteOrderMark.size());
  const std::string_view line = text.substr(0, text.find('\n'));
  if (line.starts_with("#!")) return line.find("sh") != std::string_view::npos;
  if (line.starts_with("#SBATCH")) return true;
  constexpr std::array<std::string_view, 4> kEndings{".sh", ".bash", ".sbatch", ".slurm"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

std::string_view to_text(InputFormat format) {
  for (const auto& [value, name] : kFormats)
    if (value == format) return name;
  return "";
}

std::optional<InputFormat> find_input_format(std::string_view name) {
  for (const auto& [value, text] : kFormats)
    if (text == name) return value;
  return std::nullopt;
}

namespace readers {

Syntax syntax_of(std::string_view text, std::string_view name) {
  if (is_script(text, name)) return Syntax::Script;
  const std::string_view content = first_content(text);
  if (content.starts_with('{')) return Syntax::Json;
  const bool flag = content.starts_with("--") && content.size() > 2 && content[2] != '-' && content[2] != '\n' &&
                    content[2] != '\r' && content[2] != ' ';
  if (flag) return Syntax::Words;
  if (starts_with_override(content)) return Syntax::Overrides;
  if (name.ends_with(".json")) return Syntax::Json;
  return name.ends_with(".args") ? Syntax::Words : Syntax::Yaml;
}

Syntax syntax_of(InputFormat format) {
  switch (format) {
    case InputFormat::Json:
    case InputFormat::HuggingFace:
    case InputFormat::Plan:
      return Syntax::Json;
    case InputFormat::Yaml:
    case InputFormat::MegatronTestYaml:
    case InputFormat::BridgeYaml:
    case InputFormat::NemoRl:
      return Syntax::Yaml;
    case InputFormat::BridgeOverrides:
      return Syntax::Overrides;
    case InputFormat::MegatronArgs:
      return Syntax::Words;
    case InputFormat::Shell:
      return Syntax::Script;
    case InputFormat::Env:
      return Syntax::Variables;
  }
  return Syntax::Yaml;
}

}  // namespace readers

}  // namespace gtp
