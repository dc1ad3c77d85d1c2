#include "validators/plan.hpp"

#include <fmt/format.h>

#include "validators/flat.hpp"

namespace gtp::readers {

bool is_plan(const Node& root) {
  const Node* format = find(root, "format");
  return format != nullptr && format->text == "gtplan-plan";
}

bool read_plan(Reading& reading, const Node& root) {
  constexpr std::string_view kMajor = "1";
  const auto fail = [&](Place place, std::string label) {
    reading.out.push_back(rules::at_place(rules::kUnreadable, "", place, std::move(label)));
    return false;
  };
  const Node* version = find(root, "format_version");
  if (!is_plan(root) || version == nullptr)
    return fail(root.place, "no plan: expected `format` gtplan-plan and `format_version`");
  const std::string_view text = version->text;
  if (text.substr(0, text.find('.')) != kMajor)
    return fail(version->place, fmt::format("version {} of a plan; this program reads {}.x", text, kMajor));
  const auto read = [&](std::string_view key, auto reader) {
    if (const Node* part = find(root, key); part != nullptr && part->kind == Kind::Map) reader(reading, *part);
  };
  read("options", read_flat);
  read("env", read_env);
  read("checkpoint", read_checkpoint);
  return true;
}

}  // namespace gtp::readers
