// Pages about rules and options, from the tables that the engine works with: nothing is said here that they do not say.
#pragma once

#include <gtp/options.hpp>
#include <gtp/rule.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace gtp::cli {

[[nodiscard]] std::string_view name_of_section(Section section);

[[nodiscard]] std::string rule_page(const Rule& rule);
[[nodiscard]] std::string rule_json(const Rule& rule);

[[nodiscard]] std::string option_page(OptionId option);
[[nodiscard]] std::string option_json(OptionId option);

/// A line, a section of docs/rules.md, or an object, for each rule.
[[nodiscard]] std::string rule_list();
[[nodiscard]] std::string rule_list_markdown();
[[nodiscard]] std::string rule_list_json();

}  // namespace gtp::cli
